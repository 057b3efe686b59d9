"""Digits: few, and none that lies."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.report.page import numbers


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.8421, "0.842"),
        (0.99964, "0.9996"),
        (0.9999999999, "0.999999"),
        (1.0, "1.000"),
        (0.00004, "0.00004"),
        (1e-9, "1.0e−9"),
        (-0.0679, "−0.068"),
        (0.0, "0.000"),
        (21.43, "21.43"),
        (149.97, "150.0"),
        (12345, "12\u202f345"),
        (None, "—"),
        (math.nan, "—"),
        ("<5", "<5"),
        (True, "yes"),
    ],
)
def test_number(value, shown):
    assert numbers.number(value) == shown


@given(st.floats(min_value=0, max_value=1, exclude_max=True))
def test_below_one_is_never_printed_as_one_and_above_zero_never_as_zero(value):
    shown = float(numbers.number(value).replace("−", "-"))
    assert shown < 1
    assert (shown == 0) == (value == 0)
    assert abs(shown - value) <= 0.00051


@given(st.floats(min_value=0, max_value=1))
def test_percent_keeps_off_its_ends(value):
    shown = numbers.percent(value)
    assert (shown.startswith("100")) == (value == 1)
    assert (shown.startswith("0.0")) == (value == 0)


def test_intervals():
    assert numbers.value_with_interval({"value": 0.5, "lo": 0.4, "hi": 0.6}) == "0.500 [0.400, 0.600]"
    one_sided = {"value": 1.0, "lo": 0.93, "hi": None, "method": "one-sided-bound"}
    assert numbers.value_with_interval(one_sided) == "1.000 ≥ 0.930"
    assert numbers.value_with_interval({"value": None}) == "undefined"
    assert numbers.interval({"lo": -0.1, "hi": 0.2}, sign=True) == "[−0.100, +0.200]"


def test_p_values_are_never_zero():
    assert numbers.p_value(0.0) == "<0.001"
    assert numbers.p_value(0.0412) == "0.041"
