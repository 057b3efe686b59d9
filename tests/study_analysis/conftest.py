"""One small study for the tests that only read it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from elsewhere.study.analysis import analyse

from worlds import make_results


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
