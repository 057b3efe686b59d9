"""The page of rules: every rule id, its sentence, the modules that follow it and the tests that guard it.

The sentences stand in `src/elsewhere/rules.csv`. Modules and tests are found by reading the source: an id counts
wherever it is written, and a span such as `ST-01 to ST-03` counts for every rule between its ends.
"""

from __future__ import annotations

import ast
import csv
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "elsewhere"
TESTS = ROOT / "tests"
SENTENCES = SOURCE / "rules.csv"
TOPICS = {
    "US": ("Ultrasound: benign or malignant at another hospital", "the ultrasound study"),
    "MRI": ("MRI: tumour segmentation and response to therapy", "the MAMA-MIA challenge"),
    "DBT": ("Tomosynthesis: lesion detection", "the DBTex challenge"),
    "LN": ("Lymph nodes: metastases in whole slides", "the lymph-node study and CAMELYON"),
    "ST": ("Statistics", "this project's statistics"),
}
ID = re.compile(r"\b(?:US|MRI|DBT|LN|ST|SL|WSI)-\d{2}[a-z]?\b")
_SPAN = re.compile(r"\b([A-Z]+)-(\d{2}) to (?:\1-)?(\d{2})\b")
_IN_NAME = re.compile(r"(?:^|_)(us|mri|dbt|ln|st|sl|wsi)_(\d{2}[a-z]?)(?=_|$)")


def sentences() -> dict[str, str]:
    """Read the sentence of every rule.

    Returns:
        Sentence by rule id, in the order of the file.
    """
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row["sentence"] for row in csv.DictReader(file)}


def ids_in(text: str) -> set[str]:
    """Find the rule ids in a text, with every rule that a span covers.

    Args:
        text: Source code or prose.

    Returns:
        The ids, such as `{"ST-01", "ST-02"}` for `"(ST-01 to ST-02)"`.
    """
    found = set(ID.findall(text))
    for prefix, first, last in _SPAN.findall(text):
        found |= {f"{prefix}-{number:02d}" for number in range(int(first), int(last) + 1)}
    return found


def written_ids(*folders: Path) -> set[str]:
    """Collect the ids that are written out in Python and TOML files, spans not filled in.

    Args:
        folders: Folders to search, with everything below them.

    Returns:
        The ids.
    """
    return {
        name
        for folder in folders
        for file in sorted(folder.rglob("*"))
        if file.suffix in (".py", ".toml")
        for name in ID.findall(file.read_text(encoding="utf-8"))
    }


def modules() -> dict[str, list[str]]:
    """Find the modules that follow each rule.

    Returns:
        Paths below `src/elsewhere`, by rule id.
    """
    found: dict[str, list[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for name in ids_in(file.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(file.relative_to(SOURCE).as_posix())
    return found


def tests() -> dict[str, list[str]]:
    """Find the tests that name each rule.

    A test function counts when its name, docstring, comments or code name the rule, a whole test file when its module
    docstring does. Where a helper that is no test names a rule in a docstring (a second implementation of the rule,
    say), the test files of its folder that import it count.

    Returns:
        `file.py` or `file.py::test`, paths below `tests`, by rule id.
    """
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("*.py")):
        if file == TESTS / "docs" / "test_rules.py":
            continue
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        name = file.relative_to(TESTS).as_posix()
        if file.name.startswith("test_"):
            for rule, test in tests_in(tree, text):
                found.setdefault(rule, []).append(f"{name}::{test}" if test else name)
        else:
            users = [
                user.relative_to(TESTS).as_posix()
                for user in sorted(file.parent.glob("test_*.py"))
                if re.search(
                    rf"\bimport {file.stem}\b|\b{file.stem} import\b", user.read_text(encoding="utf-8")
                )
            ]
            for rule in ids_in(_docstrings(tree)):
                found.setdefault(rule, []).extend(users)
    return {rule: _shortened(names) for rule, names in found.items()}


def tests_in(tree: ast.Module, text: str) -> list[tuple[str, str]]:
    """(rule, test) for each test of the file; the test is empty where the rule is the whole file's."""
    lines = text.splitlines()
    found = [(rule, "") for rule in ids_in(ast.get_docstring(tree) or "")]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            rules = ids_in("\n".join(lines[first - 1 : node.end_lineno]))
            rules |= {f"{p.upper()}-{number}" for p, number in _IN_NAME.findall(node.name)}
            found += [(rule, node.name) for rule in rules]
    return found


def _docstrings(tree: ast.Module) -> str:
    documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
    return "\n".join(ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented))


def _shortened(names: list[str]) -> list[str]:
    """Sorted, each once; a test of a file that is there as a whole is left out."""
    whole = {name for name in names if "::" not in name}
    return sorted({name for name in names if name in whole or name.split("::")[0] not in whole})


def page() -> str:
    """Write the page.

    Returns:
        Markdown, without the mark of generated pages.
    """
    said, used, guarded = sentences(), modules(), tests()
    parts = [
        "# Rules\n",
        "Every computation follows a written rule, and the source names it by an id such as `ST-05`. This page gives each "
        "id one sentence, the modules that name it (below `src/elsewhere`) and the tests that name it (below `tests`; a "
        "file alone means all its tests). Messages, reports and tables use words, not ids. "
        "[Rules that no test names](#rules-that-no-test-names) are listed at the end.\n",
    ]
    for prefix, (title, source) in TOPICS.items():
        rules = [rule for rule in said if rule.startswith(f"{prefix}-")]
        parts.append(f"## {title}\n")
        parts.append(f"Ids {prefix}-..., from {source}.\n")
        for rule in sorted(rules):
            parts += [f"### {rule}\n", f"{said[rule]}\n"]
            parts.append(f"- Modules: {_listed(used.get(rule, []), 'none yet')}")
            parts.append(f"- Tests: {_listed(guarded.get(rule, []), 'none names it')}\n")
    parts.append("## Rules that no test names\n")
    alone = [rule for rule in sorted(said) if not guarded.get(rule)]
    parts.append(
        "The behaviour may still be covered by tests that do not name the rule; nothing here shows that it is.\n"
        if alone
        else "None: each rule is named by a test.\n"
    )
    parts += [f"- [{rule}](#{rule.lower()}): {said[rule]}" for rule in alone]
    return "\n".join(parts).rstrip() + "\n"


def _listed(names: list[str], nothing: str) -> str:
    return ", ".join(f"`{name}`" for name in names) if names else nothing
