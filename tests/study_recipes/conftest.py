"""One recipe study for the tests that only read it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recipe_worlds import make_results

from elsewhere.study.recipe_analysis import analyse_recipes


@pytest.fixture(scope="session")
def results():
    return make_results(margin=0.05, density_known=0.2)


@pytest.fixture(scope="session")
def summary(results):
    return analyse_recipes(results, resamples=120)
