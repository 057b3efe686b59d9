"""Pages make many reports of the same numbers: their figures are drawn once."""

from __future__ import annotations

import pytest

from worlds.drawn_figures import draw_once


@pytest.fixture(autouse=True)
def _figures_drawn_once(monkeypatch):
    """For every page: none shows how a figure is drawn."""
    draw_once(monkeypatch)
