"""Where a run's predictions are: inside of the results, whatever a bundle's table of runs says."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.study.results import RunKey
from worlds.recipe_results import run_row

KEY = RunKey("response", "coin", "A", 1)


@pytest.fixture
def at(mri_results, tmp_path):
    """A function: where results say that the predictions of a run are."""

    def folder(predictions: str):
        runs = pd.DataFrame([run_row(*KEY, predictions=predictions)])
        return replace(mri_results, runs=runs, predictions_folder=tmp_path).folder(KEY)

    return folder


def test_a_folder_inside_is_found(at, tmp_path):
    assert at("response/coin") == tmp_path / "response" / "coin"


@pytest.mark.parametrize("place", ["../../secret", "/etc", "response/../../x"])
def test_a_folder_outside_is_refused(at, place):
    """`check-bundle` read the predictions of a crafted bundle wherever its runs.csv pointed."""
    with pytest.raises(UserError, match="outside of its folder"):
        at(place)
