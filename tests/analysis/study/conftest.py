"""One small study of pictures for the tests that only read it."""

from __future__ import annotations

import pytest

from worlds.picture_results import cnn_alone, small_results


@pytest.fixture(scope="session")
def pictures():
    """Two models, two inputs, three seeds, four datasets."""
    return small_results()


@pytest.fixture(scope="session")
def half():
    """The CNN alone: for tests that change something and analyse again."""
    return cnn_alone()
