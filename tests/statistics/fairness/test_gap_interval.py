"""The interval of a gap: known answers for two groups, what it must contain, and groups without an interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elsewhere.scoring.groups import GroupCodes
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.fairness import fairness_report, flag_gaps, variable_report
from elsewhere.statistics.fairness.disparity import Disparity
from elsewhere.statistics.fairness.gap_interval import gap_interval


def patients(n, positive=None):
    clusters = np.arange(n, dtype=np.int32)
    return Clusters(clusters, tuple(map(str, range(n))), np.zeros(n, np.int32), ("s",), positive)


def coded(codes, names, variable="v"):
    array = np.asarray(codes, dtype=np.int16)
    return GroupCodes(variable, tuple(names), array, int((array < 0).sum()))


def rates(truth, yes):
    clusters = np.arange(len(truth), dtype=np.int32)
    return Disparity.equalised_odds(clusters, truth, yes, n_clusters=len(truth))


def made_rates(counts):
    """counts[group] = (hits, positives, false alarms, negatives) as arrays of cases."""
    truth, yes, codes = [], [], []
    for group, (tp, p, fp, n) in enumerate(counts):
        truth += [1] * p + [0] * n
        yes += [1] * tp + [0] * (p - tp) + [1] * fp + [0] * (n - fp)
        codes += [group] * (p + n)
    return np.array(truth), np.array(yes), np.array(codes)


def interval_of(counts, resamples=200):
    truth, yes, codes = made_rates(counts)
    names = tuple("abcdef"[: len(counts)])
    return variable_report(
        rates(truth, yes),
        patients(len(truth), truth > 0),
        coded(codes, names),
        key="k",
        seed=1,
        resamples=resamples,
    )


def test_two_rates_are_newcombes_square_and_add_of_wilson():
    """With no repeats within a patient the trials are the cases; z of two independent metrics at 95 % together."""
    values = np.array([[0.8, 0.3], [0.5, 0.3]])
    trials = np.array([[20.0, 50.0], [30.0, 50.0]])
    still = np.zeros((10, 2, 2))
    disparity = rates(np.array([1, 0]), np.array([1, 0]))
    made = gap_interval(disparity, values, still + values, np.array([70, 80]), trials=trials)
    z = stats.norm.isf((1 - 0.95**0.5) / 2)

    def wilson(p, n):
        middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)

    (l1, u1), (l2, u2) = wilson(0.8, 20), wilson(0.5, 30)
    tpr_lo = 0.3 - np.hypot(0.8 - l1, u2 - 0.5)
    tpr_hi = 0.3 + np.hypot(u1 - 0.8, 0.5 - l2)
    low, high = wilson(0.3, 50)
    fpr_hi = np.hypot(high - 0.3, 0.3 - low)
    assert made.lo == pytest.approx(max(tpr_lo, 0.0), abs=1e-9)
    assert made.hi == pytest.approx(tpr_hi + fpr_hi, abs=1e-6)


def test_a_group_that_never_varies_still_has_a_width():
    entry = interval_of([(5, 5, 10, 40), (20, 40, 10, 40)])
    assert entry["gap_interval_without"] == []
    assert entry["gap_lo"] < 0.5 < entry["gap_hi"]


def test_a_group_without_positives_is_left_out_and_named():
    entry = interval_of([(15, 20, 5, 30), (10, 20, 9, 30), (0, 0, 3, 9)])
    assert entry["gap_interval_without"] == ["c"]
    assert entry["gap_lo"] is not None


def test_a_subgroup_of_one_patient_is_left_out_and_named():
    rng = np.random.default_rng(3)
    dice = rng.beta(5, 2, 81)
    codes = np.r_[np.zeros(40), np.ones(40), 2].astype(int)
    means = ColumnMeans({"dice": dice}, np.arange(81, dtype=np.int32), n_clusters=81)
    entry = variable_report(
        Disparity.of_metrics(means, ["dice"]),
        patients(81),
        coded(codes, "abc"),
        key="k",
        seed=1,
        resamples=200,
    )
    assert entry["gap_interval_without"] == ["c"]
    only = variable_report(
        Disparity.of_metrics(means, ["dice"]),
        patients(81),
        coded(np.where(codes == 2, 0, -1), "abc"),
        key="k",
        seed=1,
        resamples=200,
    )
    assert only["gap_lo"] is None and only["gap_hi"] is None


def test_two_means_are_welchs_interval():
    rng = np.random.default_rng(0)
    n = 400
    dice = rng.normal(0.7, 0.1, n) - 0.1 * (np.arange(n) < 100)
    codes = (np.arange(n) >= 100).astype(int)
    means = ColumnMeans({"dice": dice}, np.arange(n, dtype=np.int32), n_clusters=n)
    entry = variable_report(
        Disparity.of_metrics(means, ["dice"]),
        patients(n),
        coded(codes, "ab"),
        key="k",
        seed=1,
        resamples=4000,
    )
    welch = stats.ttest_ind(dice[100:], dice[:100], equal_var=False).confidence_interval(0.95)
    assert entry["gap_lo"] == pytest.approx(welch.low, abs=0.003)
    assert entry["gap_hi"] == pytest.approx(welch.high, abs=0.003)


def test_a_fair_model_has_a_lower_end_of_zero_and_more_groups_widen_it():
    rng = np.random.default_rng(8)
    n = 600
    means = ColumnMeans({"dice": rng.normal(0.7, 0.1, n)}, np.arange(n, dtype=np.int32), n_clusters=n)
    disparity = Disparity.of_metrics(means, ["dice"])
    highs = []
    for groups in (2, 5):
        codes = np.arange(n) % groups
        entry = variable_report(
            disparity, patients(n), coded(codes, "abcde"[:groups]), key="k", seed=1, resamples=500
        )
        assert entry["gap_lo"] == 0.0
        highs.append(entry["gap_hi"])
    assert highs[1] > highs[0]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(1, 20)),
        min_size=2,
        max_size=5,
    )
)
def test_the_interval_holds_its_own_point_and_stays_possible(counts):
    """MRI-12: intervals that do not exclude their own point."""
    made = [(min(a, b), b, min(c, d), d) for a, b, c, d in counts]
    entry = interval_of(made, resamples=40)
    assert 0.0 <= entry["gap_lo"] <= entry["gap"] + 1e-9
    assert entry["gap"] <= entry["gap_hi"] + 1e-9
    assert entry["gap_hi"] <= 2.0


def test_several_cases_a_patient_widen_the_interval_of_rates():
    """The same 80 cases as 80 patients, and as 20 patients whose four cases agree."""
    rng = np.random.default_rng(4)
    per_patient = 4
    truth, yes = np.tile([1, 0], 10), (rng.random(20) < 0.5).astype(int)
    group = np.repeat([0, 1], 10)
    many = [np.repeat(a, per_patient) for a in (truth, yes, group)]
    alone = variable_report(
        rates(many[0], many[1]),
        patients(80, many[0] > 0),
        coded(many[2], "ab"),
        key="k",
        seed=1,
        resamples=300,
    )
    clusters = np.repeat(np.arange(20), per_patient).astype(np.int32)
    together = variable_report(
        Disparity.equalised_odds(clusters, many[0], many[1], n_clusters=20),
        Clusters(clusters, tuple(map(str, range(20))), np.zeros(20, np.int32), ("s",), truth > 0),
        coded(many[2], "ab"),
        key="k",
        seed=1,
        resamples=300,
    )
    assert together["gap_hi"] - together["gap_lo"] > 1.3 * (alone["gap_hi"] - alone["gap_lo"])


def test_flags_hold_for_the_variables_together():
    report = {name: {"p": p} for name, p in {"a": 0.01, "b": 0.03, "c": 0.2, "d": None}.items()}
    flag_gaps(report)
    assert [entry["p_holm"] for entry in report.values()] == pytest.approx([0.03, 0.06, 0.2, None])
    assert [entry["flagged"] for entry in report.values()] == [True, False, False, None]


def test_the_report_carries_interval_and_flag():
    rng = np.random.default_rng(2)
    n = 300
    codes = np.arange(n) % 3
    dice = rng.normal(0.7, 0.1, n) - 0.15 * (codes == 2)
    means = ColumnMeans({"dice": dice}, np.arange(n, dtype=np.int32), n_clusters=n)
    report = fairness_report(
        Disparity.of_metrics(means, ["dice"]),
        patients(n),
        [coded(codes, "abc"), coded(rng.integers(0, 2, n), "xy", "w")],
        key="k",
        seed=1,
        resamples=300,
    )
    assert report["v"]["flagged"] is True and report["v"]["gap_lo"] > 0.05
    assert report["w"]["flagged"] is False and report["w"]["gap_lo"] == 0.0


def test_pairs_of_rates_are_square_and_add_of_jeffreys_limits():
    """Two groups without repeats: each rate's limits by hand, the score's halves, then the difference."""
    truth, yes, codes = made_rates([(16, 20, 15, 50), (15, 30, 10, 40)])
    entry = variable_report(
        rates(truth, yes),
        patients(len(truth), truth > 0),
        coded(codes, "ab"),
        key="k",
        seed=1,
        resamples=4000,
    )
    z = stats.norm.ppf(0.975)

    def sides(k, n):
        low, high = stats.beta.ppf([stats.norm.sf(z), stats.norm.cdf(z)], k + 0.5, n - k + 0.5)
        return k / n - low, high - k / n

    def score(tp, p, tn, n):
        (below, above), (less, more) = sides(tp, p), sides(tn, n)
        return (tp / p + tn / n) / 2, np.hypot(below, less) / 2, np.hypot(above, more) / 2

    (s1, d1, u1), (s2, d2, u2) = score(16, 20, 35, 50), score(15, 30, 30, 40)
    pair = entry["pairwise"][0]
    assert pair["difference"] == pytest.approx(s1 - s2)
    # The bootstrap's design effect is 1 but for its noise.
    assert pair["lo"] == pytest.approx(s1 - s2 - np.hypot(d1, u2), abs=0.008)
    assert pair["hi"] == pytest.approx(s1 - s2 + np.hypot(u1, d2), abs=0.008)
    assert "Jeffreys" in entry["pairwise_method"]


def test_a_pair_with_a_perfect_group_has_an_interval_and_one_without_positives_has_none():
    entry = interval_of([(5, 5, 0, 20), (20, 40, 10, 40), (0, 0, 3, 9)])
    by_pair = {(p["a"], p["b"]): p for p in entry["pairwise"]}
    assert by_pair["a", "b"]["lo"] < by_pair["a", "b"]["difference"] < by_pair["a", "b"]["hi"]
    assert by_pair["a", "c"]["lo"] is None and "no positive case" in by_pair["a", "c"]["undefined_reason"]


@pytest.mark.parametrize(
    ("sizes", "prevalence", "tpr", "tnr", "runs"),
    [
        ((10, 30, 100, 200, 400), 0.1, 0.85, 0.9, 250),
        ((50, 50, 50, 50), 0.1, 0.7, 0.7, 250),
        pytest.param((10, 10, 10, 10), 0.3, 0.7, 0.7, 1500, marks=pytest.mark.slow),
        pytest.param((20, 20, 20, 20), 0.1, 0.85, 0.9, 1500, marks=pytest.mark.slow),
        pytest.param((10, 20, 50, 100), 0.3, 0.97, 0.7, 1500, marks=pytest.mark.slow),
    ],
)
def test_pairwise_intervals_of_equalised_odds_hold_together(monkeypatch, sizes, prevalence, tpr, tnr, runs):
    """ST-08a. Max-t over resamples held together in 79 and 85 % of the first two settings. The bound is 93 %
    less two standard errors of the simulation; above 95 % is the price of small counts and no defect."""
    monkeypatch.setattr("elsewhere.statistics.fairness.permuted_gaps", lambda *_, **__: np.zeros((9, 1)))
    rng = np.random.default_rng(1)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    held = judged = 0
    for run in range(runs):
        truth = rng.random(codes.size) < prevalence
        yes = rng.random(codes.size) < np.where(truth, tpr, 1 - tnr)
        entry = variable_report(
            rates(truth, yes), patients(codes.size, truth), coded(codes, "abcde"[: len(sizes)]),
            key="k", seed=run, resamples=150,
        )  # fmt: skip
        known = [p["lo"] <= 0 <= p["hi"] for p in entry["pairwise"] if p["lo"] is not None]
        held, judged = held + all(known), judged + bool(known)
    assert judged > 0.9 * runs
    assert held / judged > 0.93 - 2 * np.sqrt(0.93 * 0.07 / judged)
