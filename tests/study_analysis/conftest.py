"""One small study for the tests that only read it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elsewhere.study.analysis import analyse

from worlds.picture_results import make_results


@pytest.fixture(scope="session")
def results():
    return make_results()


@pytest.fixture(scope="session")
def summary(results):
    return analyse(results, resamples=100)


@pytest.fixture(scope="session")
def half(results):
    """The CNN alone: for tests that change something and analyse again."""
    return replace(results, runs=results.runs[results.runs["model"] == "cnn"].reset_index(drop=True))
