"""A drop divided over interventions: it adds up, it is the mean over all orders, and its intervals cover (LN-22)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.statistics.many_models import SideSums
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.shift import (
    ALL,
    ALONE,
    DROP,
    LEFT,
    PART,
    Sides,
    decompose,
    shapley_weights,
    subsets,
)

SIDES = {"scale": "external", "stain": "external", "sharpness": "internal"}


def side(values, count=10.0):
    """Sums of patients whose means are given, one model."""
    values = np.atleast_2d(values)
    n = values.shape[1]
    return SideSums(
        patients=tuple(f"{i:03d}" for i in range(n)), total=values * count, count=np.full(n, count)
    )


def worlds(rng, *, patients=12):
    """Any means at all, for every set of interventions of each side."""

    def held(which):
        names = [name for name, of in SIDES.items() if of == which]
        return {one: side(rng.random((2, patients))) for one in subsets(names)}

    return Sides(internal=held("internal"), external=held("external"), sides=SIDES)


def excess(versions, names, *, higher_is_better):
    """External - internal where lower is better, after a set of interventions."""
    parts = {
        which: frozenset(name for name in names if SIDES[name] == which) for which in ("internal", "external")
    }
    moved = versions.external[parts["external"]].value - versions.internal[parts["internal"]].value
    return -moved if higher_is_better else moved


@pytest.mark.parametrize("higher_is_better", [False, True])
def test_a_part_is_the_mean_over_all_orders(higher_is_better):
    versions = worlds(np.random.default_rng(1))
    found = decompose(versions, higher_is_better=higher_is_better)
    for name in SIDES:
        gains = []
        for order in itertools.permutations(SIDES):
            before = order[: order.index(name)]
            gains.append(
                excess(versions, before, higher_is_better=higher_is_better)
                - excess(versions, (*before, name), higher_is_better=higher_is_better)
            )
        part = next(one for one in found if one.kind == PART and one.intervention == name)
        np.testing.assert_allclose(part.value, np.mean(gains, axis=0), atol=1e-12)
        alone = next(one for one in found if one.kind == ALONE and one.intervention == name)
        expected = excess(versions, (), higher_is_better=higher_is_better) - excess(
            versions, (name,), higher_is_better=higher_is_better
        )
        np.testing.assert_allclose(alone.value, expected, atol=1e-12)


def test_the_parts_and_what_is_left_over_add_up_to_the_drop():
    found = decompose(
        worlds(np.random.default_rng(2)),
        higher_is_better=False,
        resampling=Resampling(key="x", resamples=200),
    )
    by_kind = {kind: [one for one in found if one.kind == kind] for kind in (DROP, PART, ALL, LEFT)}
    parts = sum(one.value for one in by_kind[PART])
    np.testing.assert_allclose(parts, by_kind[ALL][0].value, atol=1e-12)
    np.testing.assert_allclose(parts + by_kind[LEFT][0].value, by_kind[DROP][0].value, atol=1e-12)
    for one in found:
        assert (one.lo <= one.value).all() and (one.value <= one.hi).all()
        assert (one.bootstrap_lo <= one.bootstrap_hi).all()


def test_the_weights_of_a_name_do_not_depend_on_the_order_of_the_names():
    first, second = (shapley_weights(names, "a") for names in (["a", "b", "c"], ["c", "b", "a"]))
    assert first == second
    assert sum(first.values()) == pytest.approx(0)
    assert sum(value for key, value in first.items() if "a" not in key) == pytest.approx(1)


def test_an_intervention_that_changes_nothing_has_a_part_of_exactly_0():
    base = side(np.linspace(0.2, 0.4, 8))
    none, stain = frozenset(), frozenset({"stain"})
    found = decompose(
        Sides(
            internal={none: side(np.linspace(0.1, 0.2, 8))},
            external={none: base, stain: base},
            sides={"stain": "external"},
        ),
        higher_is_better=False,
        resampling=Resampling(key="x", resamples=200),
    )
    part = next(one for one in found if one.kind == PART)
    assert part.value[0] == part.lo[0] == part.hi[0] == part.share[0] == 0.0


def test_a_drop_that_is_not_reliable_has_no_shares():
    rng = np.random.default_rng(3)
    none, stain = frozenset(), frozenset({"stain"})
    values = rng.normal(0.3, 0.2, 6)
    found = decompose(
        Sides(
            internal={none: side(values)},
            external={none: side(values + 0.01), stain: side(values)},
            sides={"stain": "external"},
        ),
        higher_is_better=False,
        resampling=Resampling(key="x", resamples=200),
    )
    assert all(np.isnan(one.share).all() and np.isnan(one.share_lo).all() for one in found)


def test_one_patient_has_no_interval():
    none = frozenset()
    found = decompose(
        Sides(internal={none: side([0.1, 0.2])}, external={none: side([0.4])}, sides={}),
        higher_is_better=False,
    )
    assert found[0].value[0] == pytest.approx(0.25) and np.isnan(found[0].lo[0])


def test_a_version_without_scores_is_refused_by_name():
    none = frozenset()
    with pytest.raises(UserError, match="external patches with stain have no scores"):
        Sides(internal={none: side([0.1])}, external={none: side([0.1])}, sides={"stain": "external"})


def cover(trials, *, patients, seed):
    """How often the 90 % intervals of the drop, a part and what is left over hold the truth."""
    rng = np.random.default_rng(seed)
    none, stain = frozenset(), frozenset({"stain"})
    truth = {DROP: 0.2, PART: 0.15, LEFT: 0.05}
    hits = dict.fromkeys(truth, 0)
    for _ in range(trials):
        counts = [np.round(rng.lognormal(3, 0.6, patients)) + 1 for _ in range(2)]
        mean = [rng.normal(level, 0.1, patients) for level in (0.3, 0.5)]
        given = rng.normal(0.15, 0.08, patients)
        sums = [
            SideSums(patients=tuple(f"{i:03d}" for i in range(patients)), total=(m * c)[None], count=c)
            for m, c in ((mean[0], counts[0]), (mean[1], counts[1]), (mean[1] - given, counts[1]))
        ]
        found = decompose(
            Sides(
                internal={none: sums[0]},
                external={none: sums[1], stain: sums[2]},
                sides={"stain": "external"},
            ),
            higher_is_better=False,
        )
        for one in found:
            if one.kind in truth:
                hits[one.kind] += bool(one.lo[0] <= truth[one.kind] <= one.hi[0])
    return {kind: count / trials for kind, count in hits.items()}


@pytest.mark.parametrize("patients", [12, 40])
def test_intervals_cover(patients):
    found = cover(1500, patients=patients, seed=patients)
    # 90 % with a simulation error of 0.8 %: four standard errors and a little for few patients
    assert all(0.865 <= share <= 0.945 for share in found.values()), found
