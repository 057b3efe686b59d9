"""What every test of the engines is given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elsewhere.engine.training import Training, Work

# Workers in other processes import `tiny_trainer` by name: they take over this path.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from engine_helpers import make_units, make_work


@pytest.fixture
def work() -> Work:
    return make_work()


@pytest.fixture
def units_of(work) -> Callable[..., list[Training]]:
    return lambda n, **changes: make_units(work, n, **changes)
