"""A forest row shows the interval it was given: both ends, one, or none."""

from __future__ import annotations

import pytest

from elsewhere.report.page import canvas
from elsewhere.report.result import plots


@pytest.mark.parametrize(
    ("lo", "hi", "drawn"),
    [(0.7, 0.9, [0.7, 0.9]), (0.7, None, [0.7, 1.0]), (None, 0.9, [0.2, 0.9]), (None, None, None)],
)
def test_a_row_without_an_interval_is_a_mark_alone(lo, hi, drawn):
    whole = ("whole", {"value": 0.5, "lo": 0.2, "hi": 1.0}, None)
    row = ("row", {"value": 0.8, "lo": lo, "hi": hi}, None)
    with canvas.drawing():
        axes = plots.forest([("", [whole, row])], canvas.LIGHT).axes[0]
    lines = [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 2]
    assert lines[0] == [0.2, 1.0]
    assert lines[1:] == ([drawn] if drawn else [])
