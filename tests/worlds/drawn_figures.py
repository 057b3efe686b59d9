"""Figures drawn once, or built and not drawn: for tests that make many reports and look at other things than the drawing.

A figure is a function of the numbers that it was given alone (tests/report draws the same ones twice and compares the
bytes), and drawing takes most of the time of a report.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from types import FunctionType
from typing import Any

import pytest

from elsewhere.report import summary as report
from elsewhere.report.page import canvas
from elsewhere.report.page.figures import FigureSpec, Specs

_DRAWN: dict[bytes, str] = {}


def given(value: Any) -> Any:
    """Take apart what draws a figure.

    Args:
        value: A function, a partial of one, or anything else.

    Returns:
        Which function it is and everything that it holds, as plain data; another value as it is.

    Example:
        >>> given(partial(max, 3)) == given(partial(max, 3))
        True
    """
    if isinstance(value, partial):
        return given(value.func), given(value.args), given(value.keywords)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        at = value.__code__.co_filename, value.__code__.co_firstlineno, value.__qualname__
        return at, given(cells), given(value.__defaults__), given(value.__kwdefaults__)
    if isinstance(value, dict):
        return [(name, given(one)) for name, one in value.items()]
    if isinstance(value, list | tuple):
        return [given(one) for one in value]
    return value


def draw_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports of one model take a figure that this process drew from the same numbers before.

    Args:
        monkeypatch: Undoes the change after the test.
    """
    draw = report.inline_figures

    def one(spec: FigureSpec) -> str:
        key = pickle.dumps(given((spec.name, spec.alt, spec.build)))
        if key not in _DRAWN:
            _DRAWN[key] = draw({spec.name: spec})[spec.name]
        return _DRAWN[key]

    def drawn(specs: Specs, *, skip: Sequence[str] = ()) -> dict[str, str]:
        return {name: one(spec) for name, spec in specs.items() if name not in skip}

    monkeypatch.setattr(report, "inline_figures", drawn)


EMPTY = '<svg viewBox="0 0 350 260"></svg>'
"""What stands on a page for a figure that is not drawn."""


def build_without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports build every figure from its numbers, and leave out its layout and its SVG.

    A figure still fails on numbers that it cannot show; its name and its text for readers who do not see it are on
    the page. `draw_once` costs more and gives the whole page.

    Args:
        monkeypatch: Undoes the change after the test.
    """
    monkeypatch.setattr(canvas, "to_svg", lambda figure: EMPTY)
