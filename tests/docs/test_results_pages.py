"""The results pages are what their programs write from the committed csv files: no number was typed in."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("make_ultrasound", "ultrasound.md"),
        ("make_mri_response", "mri-response.md"),
        ("make_mri_segmentation", "mri-segmentation.md"),
    ],
)
def test_page_is_what_the_csv_files_say(name, page, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    assert program(name).page() == (DOCS / "results" / page).read_text()


def test_figures_of_the_ultrasound_page_are_drawn_from_the_csv_files(tmp_path):
    results = ROOT / "benchmarks" / "results" / "ultrasound"
    drawn = program("ultrasound_figures").write_figures(results, tmp_path)
    shown = (DOCS / "results" / "ultrasound.md").read_text()
    assert len(drawn) == 4
    for path in drawn:
        assert f"../images/{path.name}" in shown
        assert words(path) == words(DOCS / "images" / path.name)


def words(figure: Path) -> list[str]:
    """What a figure says; how its lines are drawn may differ with the plotting library."""
    return re.findall(r"<text[^>]*>([^<]+)<", figure.read_text())
