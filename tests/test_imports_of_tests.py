"""What tests share lies in `tests/worlds`: no test extends the module path or imports another test."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PROGRAMS = {"golden/nets.py"}
"""Also run by hand, as `python tests/golden/nets.py`."""


def test_no_test_extends_the_module_path():
    own = "sys.path." + "insert"
    extending = [path for path in TESTS.rglob("*.py") if own in path.read_text(encoding="utf-8")]
    assert {str(path.relative_to(TESTS)) for path in extending} - PROGRAMS == set()


def test_no_test_imports_another_test():
    wrong = set()
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            if module and (module.startswith("tests.") or module.split(".")[-1].startswith("test_")):
                wrong.add((str(path.relative_to(TESTS)), module))
    assert wrong == set()
