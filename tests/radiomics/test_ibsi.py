"""Every feature that IBSI publishes a value for, on its digital phantom."""

from __future__ import annotations

import numpy as np
import pytest

import worlds.ibsi_phantom as ibsi
from elsewhere.radiomics.first_order import first_order_features, histogram_features
from elsewhere.radiomics.shape import shape_features
from elsewhere.radiomics.texture import (
    cooccurrence,
    cooccurrence_features,
    discretise,
    run_length_features,
    size_zone_features,
)

LEVELS = ibsi.phantom()
INSIDE = LEVELS > 0


def printed(value: float, reference: float) -> bool:
    """Equal at the three figures that the table prints."""
    return float(f"{value:.3g}") == pytest.approx(reference, rel=1e-9, abs=1e-12)


def test_fixed_bin_number_leaves_the_phantom_as_it_is():
    made = discretise(LEVELS.astype(float), INSIDE, bins=ibsi.BINS)
    assert (made == LEVELS).all()


@pytest.mark.parametrize("name", ibsi.SHAPE)
def test_shape(name):
    value, tolerance = ibsi.SHAPE[name]
    assert shape_features(INSIDE, ibsi.SPACING_MM)[name] == pytest.approx(value, abs=tolerance)


@pytest.mark.parametrize("name", ibsi.FIRST_ORDER)
def test_first_order(name):
    assert printed(first_order_features(LEVELS[INSIDE])[name], ibsi.FIRST_ORDER[name])


@pytest.mark.parametrize("name", ibsi.HISTOGRAM)
def test_histogram(name):
    assert printed(histogram_features(LEVELS[INSIDE], bins=ibsi.BINS)[name], ibsi.HISTOGRAM[name])


@pytest.mark.parametrize(
    ("features", "name", "reference"),
    [
        (features, name, value)
        for features, table in (
            (cooccurrence_features, ibsi.COOCCURRENCE),
            (run_length_features, ibsi.RUN_LENGTH),
            (size_zone_features, ibsi.SIZE_ZONE),
        )
        for name, value in table.items()
    ],
)
def test_texture(features, name, reference):
    assert printed(features(LEVELS, bins=ibsi.BINS)[name], reference)


@pytest.mark.parametrize(
    ("features", "table"),
    [
        (cooccurrence_features, ibsi.COOCCURRENCE),
        (run_length_features, ibsi.RUN_LENGTH),
        (size_zone_features, ibsi.SIZE_ZONE),
    ],
)
def test_every_texture_feature_has_a_published_value(features, table):
    assert set(features(LEVELS, bins=ibsi.BINS)) == set(table)


def test_one_slice_has_the_four_directions_that_the_manual_prints():
    shares = cooccurrence(LEVELS[:, :, :1], bins=ibsi.BINS)
    total = sum(n * (1 if i == j else 2) for (i, j), n in ibsi.SLICE_COOCCURRENCE.items())
    expected = np.zeros((ibsi.BINS, ibsi.BINS))
    for (i, j), n in ibsi.SLICE_COOCCURRENCE.items():
        expected[i - 1, j - 1] = expected[j - 1, i - 1] = n / total
    np.testing.assert_allclose(shares, expected, atol=1e-15)
