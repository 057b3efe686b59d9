"""Pages make many reports, and show none of their figures."""

from __future__ import annotations

import pytest

from worlds.drawn_figures import build_without_drawing


@pytest.fixture(autouse=True)
def _figures_not_drawn(monkeypatch):
    """For every page: none shows how a figure is drawn."""
    build_without_drawing(monkeypatch)
