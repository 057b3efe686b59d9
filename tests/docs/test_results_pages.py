"""The results pages are what their program writes from the committed csv files: no number was typed in."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("name", ["ultrasound", "mri-response", "mri-segmentation", "tomosynthesis"])
def test_page_is_what_the_csv_files_say(name, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    page = import_module("make_results").PAGES[name].page()
    assert page == (DOCS / "results" / f"{name}.md").read_text()


def test_figures_of_the_ultrasound_page_are_drawn_from_the_csv_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    results = ROOT / "benchmarks" / "results" / "ultrasound"
    drawn = import_module("results_pages.ultrasound_figures").write_figures(results, tmp_path)
    shown = (DOCS / "results" / "ultrasound.md").read_text()
    assert len(drawn) == 4
    for path in drawn:
        assert f"../images/{path.name}" in shown
        assert words(path) == words(DOCS / "images" / path.name)


def words(figure: Path) -> list[str]:
    """What a figure says; how its lines are drawn may differ with the plotting library."""
    return re.findall(r"<text[^>]*>([^<]+)<", figure.read_text())
