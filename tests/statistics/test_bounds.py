"""Limits of a sample without spread: the share of other patients that is still likely (ST-02a)."""

from __future__ import annotations

import dataclasses
import math

import pytest

from elsewhere.scoring.binary import binary_spec
from elsewhere.simulation.simulated_mean import declared_specs
from elsewhere.statistics.bounds import independent_patients, is_flat, limits_without_spread
from elsewhere.statistics.measures import Measures


def measures(**more) -> Measures:
    given = {"patients": 80, "cases": 80, "value": 1.0, "cases_per_patient": 1} | more
    return Measures(**given)


def test_the_share_is_what_none_of_n_patients_leaves_likely():
    """(1 - q)^n = alpha: at q the chance of a perfect sample of n patients is exactly alpha."""
    spec = binary_spec("balanced_accuracy")
    lo, hi = limits_without_spread(spec, 1.0, 30, alpha=0.05)
    assert hi == 1.0 and lo**30 == pytest.approx(0.05)
    assert limits_without_spread(spec, 0.0, 30, alpha=0.05) == pytest.approx((0.0, 1.0 - lo))
    inner = limits_without_spread(spec, 0.5, 30, alpha=0.05, both_sides=True)
    assert inner[0] == pytest.approx(0.5 * 0.025 ** (1 / 30)) and inner[0] + inner[1] == pytest.approx(1.0)


def test_a_bound_at_infinity_is_replaced_by_the_worst_value_or_there_is_no_limit():
    """The worst distance is that of an empty mask; a count of components has none."""
    far = declared_specs()["hausdorff95_mm"]
    assert math.isfinite(far.worst)
    lo, hi = limits_without_spread(far, 0.0, 30, alpha=0.05)
    assert lo == 0.0 and hi == pytest.approx(far.worst * (1 - 0.05 ** (1 / 30)))
    assert limits_without_spread(declared_specs()["false_components_per_case"], 0.0, 30, alpha=0.05) is None
    assert limits_without_spread(binary_spec("f1"), 1.0, 0, alpha=0.05) == (0.0, 1.0)


def test_the_rarer_class_speaks_for_what_depends_on_both_classes():
    of_both = measures(effective_patients=60.0, rarer_class_patients=12.0)
    assert independent_patients(binary_spec("balanced_accuracy"), of_both) == 12
    assert independent_patients(binary_spec("brier"), of_both) == 60
    assert independent_patients(declared_specs()["dice"], measures()) == 80
    no_class = dataclasses.replace(of_both, rarer_class_patients=None)
    assert independent_patients(binary_spec("f1"), no_class) == 60


def test_rounding_is_no_spread():
    assert is_flat(1e-17, 0.8) and is_flat(0.0, 0.0) and not is_flat(1e-6, 0.8)
