"""Where a run's predictions are: inside of the results, whatever a bundle's table of runs says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from elsewhere.study.recipe_results import RecipeResults

from elsewhere.errors import UserError


def results(folder: Path, predictions: str) -> RecipeResults:
    run = {"task": "response", "recipe": "coin", "scenario": "A", "seed": 1, "predictions": predictions}
    empty = pd.DataFrame()
    return RecipeResults(
        name="x", settings={}, cohort=None, runs=pd.DataFrame([run]), scores={}, predictions_folder=folder,
        costs=empty, units=empty, skipped=empty, audit={},
    )  # fmt: skip


def test_a_folder_inside_is_found(tmp_path):
    assert (
        results(tmp_path, "response/coin").folder(("response", "coin", "A", 1))
        == tmp_path / "response" / "coin"
    )


@pytest.mark.parametrize("place", ["../../secret", "/etc", "response/../../x"])
def test_a_folder_outside_is_refused(tmp_path, place):
    """`check-bundle` read the predictions of a crafted bundle wherever its runs.csv pointed."""
    with pytest.raises(UserError, match="outside of its folder"):
        results(tmp_path, place).folder(("response", "coin", "A", 1))
