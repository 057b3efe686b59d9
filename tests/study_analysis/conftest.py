"""One small study for the tests that only read it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from worlds import make_results

from elsewhere.study.analysis import analyse


@pytest.fixture(scope="session")
def results():
    return make_results()


@pytest.fixture(scope="session")
def summary(results):
    return analyse(results, resamples=100)
