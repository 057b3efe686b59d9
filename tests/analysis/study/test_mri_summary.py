"""What `analyse` refuses, and that the same scores give the same numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.errors import UserError
from worlds.recipe_results import LODO, failed_where, make_results


def test_a_study_without_a_run_that_is_done_is_an_error(mri_results):
    with pytest.raises(UserError, match="no run of the study is done"):
        analyse(failed_where(mri_results), resamples=0)
    with pytest.raises(UserError, match="resamples"):
        analyse(mri_results, resamples=-1)


def test_the_same_scores_give_the_same_numbers():
    made = make_results(
        kinds=(LODO, "internal"), sizes={"A": 30, "B": 30}, margin=0.05,
        segmenters={"residual-unet": 0.68, "subtraction": 0.72}, predictors={"random": 0.0, "clinical": 0.9},
    )  # fmt: skip
    once, again = (analyse(made, resamples=30) for _ in range(2))
    assert list(again.tables) == list(once.tables)
    for name, table in once.tables.items():
        pd.testing.assert_frame_equal(
            table.drop(columns="case", errors="ignore"),
            again.tables[name].drop(columns="case", errors="ignore"),
        )
    assert once.headline["boards"] == again.headline["boards"]
