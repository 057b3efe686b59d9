"""Scales are declared; BI-RADS keeps its order and loses its calibration."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.predictions.scales import (
    BIRADS_BIOPSY_THRESHOLD,
    BIRADS_PROBABILITY,
    birads_probability,
    doubt_scale,
    fitting_scale,
    parse_scale,
    to_probability,
)


@pytest.mark.parametrize(
    ("scale", "value", "probability"),
    [
        ("0-1", 0.25, 0.25),
        ("0-100", 25.0, 0.25),
        ("0-10", 2.5, 0.25),
        ("1-5", 2.0, 0.25),
        ("-2-2", -1.0, 0.25),
        ("-3--1", -2.5, 0.25),
        ("1-0", 0.75, 0.25),
        ("logit", 0.0, 0.5),
        ("logit", -800.0, 0.0),
    ],
)
def test_scales(scale, value, probability):
    found, outside = to_probability(np.array([value]), parse_scale(scale))
    assert found[0] == pytest.approx(probability, abs=1e-12)
    assert not outside[0]


@pytest.mark.parametrize("bad", ["", "percent", "1-1", "0:1", "a-b"])
def test_an_unknown_scale_lists_the_known(bad):
    with pytest.raises(UserError, match="0-100"):
        parse_scale(bad)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.01, 100.01])
def test_outside_the_scale(value):
    found, outside = to_probability(np.array([50.0, value]), parse_scale("0-100"))
    assert outside.tolist() == [False, True]
    assert np.isnan(found[1])


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20))
def test_a_linear_scale_keeps_order(values):
    ordered = np.sort(np.array(values))
    found, _ = to_probability(ordered, parse_scale("0-100"))
    assert (np.diff(found) >= 0).all()
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize(
    ("cell", "category"),
    [
        ("4b", "4B"),
        ("BI-RADS 4B", "4B"),
        ("birads4c", "4C"),
        (" 5 ", "5"),
        ("BI-RADS: 3", "3"),
        ("Category 2", "2"),
        ("6.0", "6"),
        ("ACR BI-RADS 4a", "4A"),
        ("4-A", "4A"),
    ],
)
def test_birads_spellings(cell, category):
    probability, incomplete, bad = birads_probability(pd.Series([cell], dtype="string"))
    assert probability[0] == BIRADS_PROBABILITY[category]
    assert not incomplete[0]
    assert not bad[0]


def test_birads_zero_is_incomplete_and_nonsense_is_bad():
    cells = pd.Series(["0", "7", "4D", "3A", "", None, "benign"], dtype="string")
    _, incomplete, bad = birads_probability(cells)
    assert incomplete.tolist() == [True] + [False] * 6
    assert bad.tolist() == [False] + [True] * 6


def test_birads_order_and_the_biopsy_threshold():
    ranks = [BIRADS_PROBABILITY[c] for c in ("1", "2", "3", "4A", "4B", "4C", "5", "6")]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == len(ranks)
    assert BIRADS_PROBABILITY["3"] < BIRADS_BIOPSY_THRESHOLD <= BIRADS_PROBABILITY["4A"]


@pytest.mark.parametrize(
    ("values", "name"),
    [([3, 87], "0-100"), ([3, 8.7], "0-10"), ([-2.0, 3.1], "logit"), ([0.1, 1], "0-1"), ([500], None)],
)
def test_the_scale_that_would_fit(values, name):
    assert fitting_scale(values) == name


def test_a_scale_that_is_hardly_used_is_doubted():
    values = np.linspace(0, 1, 60)
    assert "0-1" in str(doubt_scale(values, parse_scale("0-100")))
    assert doubt_scale(values * 100, parse_scale("0-100")) is None
    assert doubt_scale(values, parse_scale("0-1")) is None
