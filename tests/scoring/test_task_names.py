"""Tasks are found in their registry: no module outside `scoring` decides by a task's name or a protocol's name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import elsewhere
from elsewhere.protocols import protocols
from elsewhere.scoring.task import tasks

SOURCE = Path(elsewhere.__file__).parent
OWN = ("scoring/", "recipes/", "protocols/builtin.py", "phantom/", "simulation/")
"""Tasks themselves, methods, rules and synthetic data: each is made for named tasks."""
NOT_YET = ("study/", "analysis/", "engine/", "commands/predict.py", "commands/run.py")
"""Studies still name their tasks."""
MEANT = {
    "commands/claim.py": "the template of a claim is one of a classifier",
    "commands/demo.py": "the demo's main report",
    "predictions/masks.py": "names of files",
    "tables/identifiers.py": "names of files",
    "inputs/slides/annotations/reading.py": "a key of QuPath's GeoJSON",
    "inputs/slides/annotations/writing.py": "a key of QuPath's GeoJSON",
}


def literals(path: Path, names: set[str]) -> set[int]:
    """The lines with one of the names as a text of its own, outside docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in names and id(node) not in said
    }


@pytest.mark.parametrize(
    "names", [{"classification", "segmentation", "response", "detection"}, set(protocols.names()) - {"plain"}]
)
def test_no_module_decides_by_a_name(names):
    names = names - {"camelyon16", "camelyon17"}  # also readers
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        lines = literals(path, names)
        if lines and not place.startswith((*OWN, *NOT_YET)) and place not in MEANT:
            found[place] = sorted(lines)
    assert found == {}


def test_every_task_says_what_is_asked_of_it():
    from elsewhere.predictions import answer_kinds

    for name, task in tasks:
        assert task.name == name and task.title and task.answer_kind in answer_kinds
        assert task.default_protocol in protocols and task.accepts(protocols.get(task.default_protocol))
        assert task.resampling_units[0] == "patients"
        specs = task.metrics(protocols.get(task.default_protocol))
        assert all(spec.label for spec in specs) and sum(spec.primary for spec in specs) == 1


def test_a_metric_says_where_guessing_leads():
    found = {spec.name: spec.chance for _, task in tasks for spec in task.metrics(protocols.get("plain"))}
    assert found["auroc"] == found["balanced_accuracy"] == 0.5
    assert found["dice"] == found["performance"] == found["pn_kappa"] == 0.0
