"""ST-09 and MRI-10: ranks with ties, intervals, tiers, Holm, and what moves a ranking."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from elsewhere.errors import UserError
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.ranking import (
    PatientCounts,
    left_out_sites,
    rank_frequencies,
    rank_from_draws,
    rank_models,
    ranks_of,
    tiers_of,
    weight_stability,
)
from elsewhere.statistics.resampling import Resampling

N = 200
CLUSTERS = np.arange(N, dtype=np.int32)
PARTITION = Clusters(CLUSTERS, tuple(map(str, CLUSTERS)), (CLUSTERS % 2).astype(np.int32), ("north", "south"))


def models(*shifts, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    base = rng.normal(0.7, 0.1, N)
    return [ColumnMeans({"dice": base + s + rng.normal(0, noise, N)}, CLUSTERS, n_clusters=N) for s in shifts]


def rank(evaluators, **options):
    names = [f"m{i}" for i in range(len(evaluators))]
    how = {"key": "k", "seed": 1, "resamples": 300}
    how |= {name: options.pop(name) for name in ("key", "seed", "resamples", "threads") if name in options}
    return rank_models(
        evaluators, PARTITION, "dice", resampling=Resampling(**how), **({"names": names} | options)
    )


def test_ties_share_the_better_rank_and_undefined_is_last():
    assert ranks_of([0.5, 0.9, 0.9, np.nan, 0.1]).tolist() == [3, 1, 1, 5, 4]
    assert ranks_of([0.5, 0.9, 0.1], higher_is_better=False).tolist() == [2, 3, 1]
    assert ranks_of([0.3, 0.1 + 0.2]).tolist() == [1, 1]


def test_clear_differences_are_parted_and_close_ones_are_not():
    made = rank(models(0.3, 0.3, 0.0, -0.3))
    assert made.tiers.tolist() == [1, 1, 2, 3]
    assert made.rank_lo.tolist() == [1, 1, 3, 4]
    assert made.rank_hi.tolist() == [2, 2, 3, 4]


def test_identical_models_are_never_parted():
    one = models(0.0)[0]
    made = rank([one, one, one])
    assert made.ranks.tolist() == [1, 1, 1]
    assert made.tiers.tolist() == [1, 1, 1]
    assert (made.rank_hi == 3).all()
    assert "equal predictions" in made.notes[0]


def constant(value):
    return ColumnMeans({"dice": np.full(N, value)}, CLUSTERS, n_clusters=N)


def test_an_entry_that_is_always_worst_does_not_share_the_first_tier():
    """A difference that never varies has no spread, but it is a difference (ST-09a)."""
    made = rank([constant(1.0), constant(0.0), *models(0.0), constant(1.0)], baseline="m0")
    assert made.tiers.tolist() == [1, 3, 2, 1]
    assert made.rank_lo.tolist() == [1, 4, 3, 1] and made.rank_hi.tolist() == [2, 4, 3, 2]
    assert (made.lo[0, 1], made.hi[0, 1]) == (1.0, 1.0) and made.lo[1, 0] == -1.0
    assert np.isnan(made.lo[0, 3])  # equal entries: no difference, no interval
    against = {row["model"]: row for row in made.against_baseline}
    assert against["m1"]["p_holm"] < 1e-9 and against["m1"]["lo"] == against["m1"]["hi"] == -1.0
    assert against["m3"]["p"] == 1.0
    assert any("same amount" in note for note in made.notes)


def test_a_constant_difference_on_very_few_patients_separates_nobody():
    """Four patients who all agree are no proof: a coin per patient does the same in one of eight cohorts."""
    draws = np.tile([0.0, 1.0], (100, 1))
    values = np.array([0.0, 1.0])
    few = rank_from_draws(values, draws, names=["a", "b"], metric="dice", patients=PatientCounts(df=3))
    assert few.tiers.tolist() == [1, 1] and "too few patients" in few.notes[0]
    enough = rank_from_draws(values, draws, names=["a", "b"], metric="dice", patients=PatientCounts(df=9))
    assert enough.tiers.tolist() == [2, 1]
    rare = rank_from_draws(
        values, draws, names=["a", "b"], metric="dice", patients=PatientCounts(df=98, fewest=2)
    )
    assert rare.tiers.tolist() == [1, 1]
    none = rank_from_draws(values, draws[:0], names=["a", "b"], metric="dice", patients=PatientCounts(df=98))
    assert none.tiers.tolist() == [1, 1]


def test_many_small_sites_give_the_ranking_of_one():
    """50 sites of 4 patients: the strata are pooled, so the standard errors are those of one site."""
    evaluators = models(0.02, 0.0)
    sites = (CLUSTERS % 50).astype(np.int32)
    many = Clusters(CLUSTERS, PARTITION.cluster_ids, sites, tuple(map(str, range(50))))
    one = Clusters(CLUSTERS, PARTITION.cluster_ids, 0 * sites, ("s",))
    a, b = (
        rank_models(
            evaluators, p, "dice", names=["a", "b"], resampling=Resampling(key="k", seed=1, resamples=300)
        )
        for p in (many, one)
    )
    assert a.lo[0, 1] == b.lo[0, 1] and a.hi[0, 1] == b.hi[0, 1]


def test_lower_is_better_turns_everything_round():
    good, bad = models(0.0, 0.3)
    turned = [ColumnMeans(m.columns, CLUSTERS, n_clusters=N, lower_is_better=("dice",)) for m in (good, bad)]
    made = rank(turned, baseline="m1")
    assert made.ranks.tolist() == [1, 2]
    assert made.tiers.tolist() == [1, 2]
    assert made.against_baseline[0]["difference"] < 0


def test_the_same_seed_gives_the_same_ranking_whatever_the_threads():
    evaluators = models(0.0, 0.01, 0.02)
    assert (rank(evaluators, threads=1).lo == rank(evaluators, threads=2).lo)[np.triu_indices(3, 1)].all()


def test_without_resamples_nothing_is_parted():
    made = rank(models(0.3, 0.0), resamples=0)
    assert made.tiers.tolist() == [1, 1]
    assert made.rank_hi.tolist() == [2, 2]


def test_an_undefined_model_is_last_in_no_tier():
    gone = ColumnMeans({"dice": np.full(N, np.nan)}, CLUSTERS, n_clusters=N)
    made = rank([*models(0.3, 0.0), gone], baseline="m1")
    assert made.ranks.tolist() == [1, 2, 3]
    assert made.tiers.tolist() == [1, 2, 0]
    assert made.rank_lo.tolist() == [1, 2, 3]
    assert made.rank_hi.tolist() == [1, 2, 3]
    assert "undefined for m2" in made.notes[0]
    assert made.against_baseline[1]["p_holm"] is None


def test_holm_against_the_baseline():
    made = rank(models(0.0, 0.2, 0.0), baseline="m0")
    by_name = {row["model"]: row for row in made.against_baseline}
    assert set(by_name) == {"m1", "m2"}
    assert by_name["m1"]["p_holm"] < 1e-6
    assert by_name["m2"]["p_holm"] > 0.05


def test_ranking_without_each_site():
    value = np.where(CLUSTERS % 2 == 0, 0.9, 0.1)
    north_best = ColumnMeans({"dice": value}, CLUSTERS, n_clusters=N)
    level = ColumnMeans({"dice": np.full(N, 0.4)}, CLUSTERS, n_clusters=N)
    made = left_out_sites([north_best, level], PARTITION, "dice", names=["a", "b"])
    assert made["north"]["first"] == ["b"]
    assert [c["model"] for c in made["north"]["changed"]] == ["a", "b"]
    assert made["south"]["changed"] == []


def test_frequencies_are_shares_of_resamples():
    draws = np.array([[0.9, 0.5, 0.5], [0.1, 0.5, 0.3], [np.nan, 0.1, 0.2]])
    made = rank_frequencies(draws)
    np.testing.assert_allclose(made.sum(axis=1), 1.0)
    assert made[0].tolist() == pytest.approx([1 / 3, 0, 2 / 3])
    assert made[1].tolist() == pytest.approx([1 / 3, 2 / 3, 0])


def test_many_models_need_little_memory():
    """7,140 pairs under 2,000 resamples: one table of all their differences would fill 114 MB."""
    rng = np.random.default_rng(5)
    values, draws = rng.random(120), rng.random((2000, 120))
    tracemalloc.start()
    try:
        made = rank_from_draws(
            values, draws, names=[str(i) for i in range(120)], metric="x", patients=PatientCounts(df=50)
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.ranks.min() == 1
    assert peak < 70 * 2**20


def test_tiers_follow_the_best_of_the_rest():
    surely = np.zeros((4, 4), dtype=bool)
    surely[0, 2] = surely[0, 3] = surely[2, 3] = True
    assert tiers_of(np.array([0.9, 0.8, 0.7, 0.6]), surely).tolist() == [1, 1, 2, 3]


@settings(max_examples=80, deadline=None)
@given(arrays(float, (30, 5), elements=st.floats(-1, 1)), arrays(float, 5, elements=st.floats(-1, 1)))
def test_the_rank_lies_in_its_interval_and_tiers_follow_the_values(draws, values):
    made = rank_from_draws(values, draws, names=list("abcde"), metric="x")
    assert (made.rank_lo <= made.ranks).all()
    assert (made.ranks <= made.rank_hi).all()
    order = np.argsort(-values, kind="stable")
    assert made.tiers.min() == 1
    assert made.tiers[order[0]] == 1
    assert set(made.tiers.tolist()) == set(range(1, made.tiers.max() + 1))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 8))
def test_crossings_are_exact_and_the_ranking_stands_still_between_them(seed, m):
    rng = np.random.default_rng(seed)
    perf, fair = rng.random(m), rng.random(m)
    names = [str(i) for i in range(m)]
    made = weight_stability(perf, fair, names=names, reference=0.5)
    for c in made["crossings"]:
        i, j = int(c["ahead_before"]), int(c["ahead_after"])
        w = c["weight"]
        assert (1 - w) * perf[i] + w * fair[i] == pytest.approx((1 - w) * perf[j] + w * fair[j])
        assert perf[i] > perf[j]
        assert fair[i] < fair[j]
    lo, hi = made["stable_between"]
    inside = np.linspace(lo, hi, 7)[1:-1]
    still = weight_stability(perf, fair, names=names, reference=0.5, weights=inside.tolist())
    assert all(not row["changed"] for row in still["weights"])


def test_the_dictionary_is_json():
    made = json.loads(json.dumps(rank(models(0.3, 0.0), baseline="m0").to_dict()))
    assert [row["model"] for row in made["models"]] == ["m0", "m1"]
    assert made["pairwise"][0]["lo"] > 0
    assert set(made["left_out_sites"]) == {"north", "south"}


@pytest.mark.parametrize(
    ("names", "metric", "baseline", "message"),
    [
        (["a", "a"], "dice", None, "two models are called a"),
        (["a", "b"], "dicee", None, "Did you mean dice"),
        (["a", "b"], "dice", "c", "unknown model"),
    ],
)
def test_bad_names(names, metric, baseline, message):
    with pytest.raises(UserError, match=message):
        rank_models(
            models(0.0, 0.1),
            PARTITION,
            metric,
            names=names,
            resampling=Resampling(key="k", seed=1),
            baseline=baseline,
        )


def test_models_of_another_cohort_are_refused():
    other = ColumnMeans({"dice": np.ones(3)}, np.arange(3, dtype=np.int32), n_clusters=3)
    with pytest.raises(UserError, match="3 patients"):
        rank([*models(0.0), other])
    with pytest.raises(UserError, match="no model"):
        rank([])
    with pytest.raises(UserError, match="names"):
        weight_stability([0.1], [0.2, 0.3], names=["a"])


def test_a_ranking_outside_the_domain_says_so():
    """Ranks look at the domain of the promised coverage too: forty patients are too few for a mean."""
    assert not any("Outside the domain" in note for note in rank(models(0.0, 0.1)).notes)
    few = np.arange(40, dtype=np.int32)
    rng = np.random.default_rng(0)
    small = [ColumnMeans({"dice": rng.random(40)}, few, n_clusters=40) for _ in range(3)]
    partition = Clusters(few, tuple(map(str, few)), np.zeros(40, dtype=np.int32), ("north",))
    made = rank_models(
        small, partition, "dice", names=["a", "b", "c"], resampling=Resampling(key="k", seed=1, resamples=50)
    )
    (note,) = [note for note in made.notes if "Outside the domain" in note]
    assert "40 patients" in note and note.endswith("This concerns 3 of 3 models.")
