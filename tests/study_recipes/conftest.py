"""One recipe study for the tests that only read it."""

from __future__ import annotations

import pytest
from elsewhere.study.recipe_analysis import analyse_recipes

from worlds.recipe_results import make_results


@pytest.fixture(scope="session")
def results():
    return make_results(margin=0.05, density_known=0.2)


@pytest.fixture(scope="session")
def summary(results):
    return analyse_recipes(results, resamples=120)
