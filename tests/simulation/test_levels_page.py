"""The page of levels: every promise has its row, and a coin does not beat chance more often than it may."""

from __future__ import annotations

import pandas as pd
import pytest

from elsewhere.commands import coverage as command
from elsewhere.errors import UserError
from elsewhere.simulation import levels_page
from elsewhere.simulation.chance import chance_promises
from elsewhere.simulation.fairness import judge_rate


def test_a_coin_beats_chance_as_often_as_the_level_says():
    for row in chance_promises(replicates=400):
        assert row.holds, row
        assert row.rate > 0.005, "a test that never rejects keeps no level"


def test_a_broken_promise_is_printed_as_broken(monkeypatch):
    bad = judge_rate("fair model flagged", "50 patients", kind="level", nominal=0.05, hits=30, runs=100)
    good = judge_rate("fair model flagged", "500 patients", kind="level", nominal=0.05, hits=4, runs=100)
    cells = pd.DataFrame(
        [
            {
                "metric": "auroc",
                "patients": 50,
                "method": "mover",
                "nearer": 0.04,
                "further": 0.06,
                "not_assessed": 0.0,
                "holds": True,
                "promised": True,
            }
        ]
    )
    calls = []

    def levels(**settings):
        calls.append(settings)
        return cells if len(calls) == 1 else cells.assign(holds=True)

    cells["holds"] = False
    monkeypatch.setattr(levels_page, "DEFAULT_CELLS", ("the only cell",))
    monkeypatch.setattr(levels_page, "equivalence_levels", levels)
    monkeypatch.setattr(levels_page, "fairness_promises", lambda **_: [bad, good])
    monkeypatch.setattr(levels_page, "chance_promises", lambda **_: [])
    for name in (
        "planted_promises",
        "odds_promises",
        "drop_promises",
        "plan_promises",
        "new_hospital_promises",
        "reader_promises",
    ):
        monkeypatch.setattr(levels_page, name, lambda **_: [])
    monkeypatch.setattr(levels_page, "site_rows", lambda *_: [])
    page = levels_page.levels_page(replicates=100)
    assert "| fair model flagged | 50 patients | 5 | 30.0 |" in page
    assert page.count("**no**") == 2
    assert "0 of 1 cells hold" in page and "1,000 fresh replicates" in page
    assert calls[1]["cells"] == ["the only cell"] and calls[1]["seed"] != calls[0].get("seed", 42)


def test_the_command_writes_both_pages(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "coverage_tables", lambda **_: "# Coverage\n")
    monkeypatch.setattr(command, "levels_page", lambda **settings: f"# Levels {settings['replicates']}\n")
    pages = command.coverage(tmp_path / "reference", quick=True)
    assert [file.name for file in pages.files] == ["coverage.md", "levels.md"]
    assert (tmp_path / "reference" / "levels.md").read_text() == "# Levels 60\n"


@pytest.mark.slow
def test_equivalence_levels_hold_on_a_few_cells():
    from elsewhere.simulation.type1_error import DEFAULT_CELLS, equivalence_levels

    rows = equivalence_levels(cells=DEFAULT_CELLS[2:4], replicates=400)
    assert rows["holds"].all()


def test_levels_are_the_same_in_one_process_and_in_two():
    """Every cell has its own generator, so how the cells are spread over processes changes no number."""
    from elsewhere.simulation.type1_error import LevelCell, equivalence_levels

    cells = [LevelCell(metric=metric, against="constant", patients=40) for metric in ("auroc", "sensitivity")]
    seen: list[LevelCell] = []
    settings = {"cells": cells, "replicates": 8, "resamples": 99}
    one, two = (
        equivalence_levels(**settings),
        equivalence_levels(**settings, processes=2, progress=seen.append),
    )
    pd.testing.assert_frame_equal(one, two)
    assert set(seen) == set(cells)


def test_parts_of_the_pages_can_be_run_alone(monkeypatch, tmp_path):
    """A page without any of the parts that were asked for is not written; an unknown part is named."""
    monkeypatch.setattr(levels_page, "fairness_promises", lambda **_: [])
    pages = command.coverage(tmp_path, quick=True, only=["fairness"])
    assert [file.name for file in pages.files] == ["levels.md"]
    text = (tmp_path / "levels.md").read_text()
    assert "A part of the page" in text and "## Equivalence" not in text and "## Planted" not in text
    with pytest.raises(UserError, match="unknown part 'clams'"):
        command.coverage(tmp_path, only=["clams"])
