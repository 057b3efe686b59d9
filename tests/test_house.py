"""The house rules that a script can see: which room may use which, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "elsewhere"
MAY_NOT_USE = {
    "protocols": {"scoring", "statistics", "cohort", "predictions", "report", "commands", "cli", "results"},
    "statistics": {"scoring", "cohort", "predictions", "report", "commands", "cli", "results", "phantom"},
    "tables": {"scoring", "statistics", "cohort", "predictions", "report", "commands", "cli", "results"},
    "cohort": {"scoring", "statistics", "predictions", "report", "commands", "cli", "results"},
    "predictions": {"scoring", "statistics", "report", "commands", "cli", "results"},
    "ensembles": {"scoring", "cohort", "predictions", "report", "commands", "cli", "results"},
    "scoring": {"report", "commands", "cli", "results", "phantom"},
    "report": {"scoring", "cohort", "predictions", "commands", "cli", "results"},
}


def imported_rooms(file: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("elsewhere.")}
    return rooms


@pytest.mark.parametrize("room", MAY_NOT_USE)
def test_dependencies_point_down(room):
    wrong = {
        str(file.relative_to(SOURCE)): sorted(imported_rooms(file) & MAY_NOT_USE[room])
        for file in (SOURCE / room).rglob("*.py")
        if imported_rooms(file) & MAY_NOT_USE[room]
    }
    assert wrong == {}


def test_scoring_a_table_needs_no_torch_and_no_matplotlib():
    code = (
        "import sys, numpy as np, elsewhere\n"
        "rng = np.random.default_rng(0); y = np.arange(60) % 2\n"
        "r = elsewhere.score_arrays('classification', label=y, probability=np.clip(y * 0.3 + rng.random(60) * 0.6, 0, 1), resamples=0)\n"
        "assert r.metrics['auroc']['value'] > 0.5\n"
        "print([m for m in ('torch', 'matplotlib', 'monai', 'sklearn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_no_file_is_left_to_grow():
    long = {
        str(f.relative_to(SOURCE)): n
        for f in SOURCE.rglob("*.py")
        if (n := len(f.read_text().splitlines())) > 520
    }
    assert long == {}
