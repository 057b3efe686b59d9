"""What every test of the engines is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elsewhere.engine.training import Training, Work
from worlds.tiny_pictures import make_units, make_work


@pytest.fixture
def work() -> Work:
    return make_work()


@pytest.fixture
def units_of(work) -> Callable[..., list[Training]]:
    return lambda n, **changes: make_units(work, n, **changes)
