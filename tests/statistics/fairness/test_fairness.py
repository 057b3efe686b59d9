"""ST-08: null bands, pairwise intervals, tables and notes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.protocols import FairnessRules
from elsewhere.scoring.groups import GroupCodes, attribute_groups
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.fairness import (
    Disparity,
    affordable,
    codes_of_patients,
    fairness_report,
    group_values,
    null_band,
    overall_null,
    pairwise_differences,
    permuted_gaps,
    variable_report,
)
from elsewhere.statistics.fairness.group_scores import MeanRanges

N = 240


def coded(codes, names=("a", "b", "c"), variable="v"):
    array = np.asarray(codes, dtype=np.int16)
    return GroupCodes(variable, tuple(names), array, int((array < 0).sum()))


def patients(n=N, positive=None):
    return Clusters(
        np.arange(n, dtype=np.int32), tuple(map(str, range(n))), np.zeros(n, np.int32), ("s",), positive
    )


@pytest.fixture(scope="module")
def means():
    rng = np.random.default_rng(5)
    columns = {"dice": rng.beta(5, 2, N), "norm_hd": rng.beta(2, 9, N)}
    return ColumnMeans(columns, np.arange(N, dtype=np.int32), n_clusters=N, lower_is_better=("norm_hd",))


GROUPS = coded(np.arange(N) % 3)


def report(evaluator, groups, metrics=("dice",), partition=None, **options):
    disparity = Disparity.of_metrics(evaluator, metrics)
    defaults = {"key": "k", "seed": 1, "resamples": 200} | options
    return variable_report(disparity, partition or patients(), groups, **defaults)


def test_the_gap_is_the_protocols_disparity(means):
    entry = report(means, GROUPS, metrics=("dice", "norm_hd"), resamples=0)
    values = np.stack(list(means.columns.values()), axis=1)
    ones = np.ones((1, N), dtype=np.uint16)
    ranges = MeanRanges(means.cluster_of_case, values, [GROUPS], n_clusters=N)(ones)
    assert entry["gap"] == pytest.approx(ranges[0, 0])
    assert entry["gap"] == pytest.approx(np.mean(list(entry["gaps"].values())))


def test_a_planted_gap_is_found_and_the_worst_group_named():
    rng = np.random.default_rng(1)
    dice = rng.normal(0.7, 0.1, N) - 0.1 * (np.arange(N) % 3 == 1)
    entry = report(ColumnMeans({"dice": dice}, np.arange(N, dtype=np.int32), n_clusters=N), GROUPS)
    assert entry["p"] == pytest.approx(1 / 201)
    assert entry["gap_above_null"] > 0.03
    assert entry["worst_group"] == "b"
    surely = {(p["a"], p["b"]) for p in entry["pairwise"] if p["lo"] > 0 or p["hi"] < 0}
    assert surely == {("a", "b"), ("b", "c")}


def test_the_worst_group_of_a_distance_is_the_farthest(means):
    entry = report(means, GROUPS, metrics=("norm_hd",), resamples=0)
    assert entry["worst_group"] == max(entry["group_scores"], key=entry["group_scores"].get)


def test_p_counts_ties_and_is_never_zero():
    band = null_band(0.5, np.array([0.1, 0.5, 0.2, 0.6]))
    assert band.p == pytest.approx(3 / 5)
    assert null_band(9.0, np.zeros(99)).p == pytest.approx(0.01)
    assert null_band(0.5, np.array([0.1, np.nan, 0.2])).p == pytest.approx(2 / 4)
    assert np.isnan(null_band(float("nan"), np.zeros(9)).p)


def test_missing_values_stay_out_of_the_range_and_of_the_permutation(means):
    dice = means.columns["dice"].copy()
    gone = np.arange(N) < 40
    dice[gone] = -50.0
    groups = coded(np.where(gone, -1, np.arange(N) % 2), names=("a", "b"))
    entry = report(ColumnMeans({"dice": dice}, np.arange(N, dtype=np.int32), n_clusters=N), groups)
    assert entry["missing"] == 40
    assert entry["gap"] < 0.2
    assert entry["null_band_upper"] < 0.2


def test_permutations_stay_within_the_outcome_class():
    rng = np.random.default_rng(3)
    truth = (np.arange(N) % 2 == 0).astype(float)
    score = truth * 10 + rng.random(N)
    evaluator = ColumnMeans({"score": score}, np.arange(N, dtype=np.int32), n_clusters=N)
    groups = np.where(truth > 0, 0, 1).astype(np.int16)
    partition = patients(positive=truth > 0)
    common = {"key": "k", "seed": 1, "permutations": 40}
    inside = Disparity.of_metrics(evaluator, ["score"], within_class=True)
    fixed = permuted_gaps(inside, partition, [groups], [2], **common)
    assert np.ptp(fixed) == pytest.approx(0.0, abs=1e-9)
    free = permuted_gaps(Disparity.of_metrics(evaluator, ["score"]), partition, [groups], [2], **common)
    assert free.max() < 5


def test_fewer_permutations_where_one_costs_much_but_never_too_few(means, monkeypatch):
    assert affordable(1000, cells=516 * 5) == 1000
    assert affordable(1000, cells=10**9) == 99
    assert affordable(50, cells=10**9) == 50
    monkeypatch.setattr("elsewhere.statistics.fairness._BUDGET", 1)
    assert report(means, GROUPS)["permutations"] == 99


def test_how_many_are_made_at_once_does_not_matter(means, monkeypatch):
    before = report(means, GROUPS)
    monkeypatch.setattr("elsewhere.statistics.fairness._CELLS", 5 * 3 * N)
    assert report(means, GROUPS) == before


def test_the_null_does_not_depend_on_threads(means):
    disparity = Disparity.of_metrics(means, ["dice"])
    runs = [
        permuted_gaps(
            disparity, patients(), [GROUPS.codes], [3], key="k", seed=4, permutations=150, threads=t
        )
        for t in (1, 2)
    ]
    assert (runs[0] == runs[1]).all()


def test_variables_of_a_patient_move_together(means):
    same = [GROUPS.codes, GROUPS.codes]
    disparity = Disparity.of_metrics(means, ["dice"])
    null = permuted_gaps(disparity, patients(), same, [3, 3], key="k", seed=4, permutations=20)
    assert (null[:, 0] == null[:, 1]).all()
    twin = coded(GROUPS.codes, variable="w")
    band = overall_null(
        disparity, patients(), [GROUPS, twin], rules=FairnessRules(), key="k", seed=4, permutations=20
    )
    assert band.gap == pytest.approx(report(means, GROUPS, resamples=0)["gap"])


def test_a_patient_with_cases_in_two_groups():
    rng = np.random.default_rng(7)
    clusters = np.repeat(np.arange(30), 2).astype(np.int32)
    partition = Clusters(clusters, tuple(map(str, range(30))), np.zeros(30, np.int32), ("s",))
    codes = np.tile([0, 1], 30).astype(np.int16)
    assert codes_of_patients(partition, codes) is None
    value = rng.random(60)
    evaluator = ColumnMeans({"x": value}, clusters, n_clusters=30)
    disparity = Disparity.of_metrics(evaluator, ["x"])
    expected = [value[codes == 0].mean(), value[codes == 1].mean()]
    assert group_values(disparity, partition, codes, 2)[:, 0].tolist() == pytest.approx(expected)
    entry = report(evaluator, coded(codes, ("l", "r")), ("x",), partition, resamples=30)
    assert "several groups" in entry["note"]
    assert entry["pairwise"][0]["lo"] < entry["pairwise"][0]["difference"] < entry["pairwise"][0]["hi"]


def test_a_group_without_variation_has_no_interval_and_a_reason():
    value = np.where(np.arange(N) % 3 == 0, 1.0, np.random.default_rng(0).random(N))
    entry = report(ColumnMeans({"x": value}, np.arange(N, dtype=np.int32), n_clusters=N), GROUPS, ("x",))
    by_pair = {(p["a"], p["b"]): p for p in entry["pairwise"]}
    assert by_pair["a", "b"]["lo"] is None
    assert "undefined_reason" in by_pair["a", "b"]
    assert by_pair["b", "c"]["lo"] is not None


def test_max_t_is_wider_than_one_pair_alone():
    rng = np.random.default_rng(0)
    draws = rng.normal(0, 1, (2000, 5))
    sizes = np.full(5, 1000)
    _, _, five = pairwise_differences(np.zeros(5), draws, sizes)
    _, _, two = pairwise_differences(np.zeros(2), draws[:, :2], sizes[:2])
    assert two.critical == pytest.approx(1.96, abs=0.1)
    assert five.critical == pytest.approx(2.73, abs=0.15)


def test_report_is_json_with_the_contract_keys(means):
    made = fairness_report(
        Disparity.of_metrics(means, ["dice"]), patients(), [GROUPS], key="k", seed=1, resamples=50
    )
    entry = json.loads(json.dumps(made))["v"]
    wanted = {
        "metric",
        "gap",
        "null_band_upper",
        "null_mean",
        "gap_above_null",
        "p",
        "worst_group",
        "best_group",
    }
    wanted |= {"variance", "sizes", "smallest_group", "pairwise", "missing", "note"}
    assert wanted <= set(entry)
    assert "no valid coverage" in entry["note"]
    assert entry["sizes"] == {"a": 80, "b": 80, "c": 80}


def test_no_known_value_at_all(means):
    empty = attribute_groups(pd.Series([None] * N, dtype="string"), variable="v")
    entry = report(means, empty)
    assert entry["gap"] is None
    assert entry["undefined_reason"] == "no group is estimable"


def test_one_estimable_group_has_no_gap(means):
    """ST-08a: a range of one group is 0, and so is every permuted one, which would read as 'fair, p = 1'."""
    for codes in (np.zeros(N, dtype=int), np.where(np.arange(N) < 40, -1, 0)):
        entry = report(means, coded(codes, names=("a", "b")))
        for name in (
            "gap",
            "gap_lo",
            "gap_hi",
            "p",
            "null_band_upper",
            "gap_above_null",
            "worst_group",
            "variance",
        ):
            assert entry[name] is None, name
        assert entry["gaps"] == {"dice": None}
        assert entry["undefined_reason"] == "only the group a is estimable, and a gap needs two groups"
    made = fairness_report(
        Disparity.of_metrics(means, ["dice"]), patients(), [coded(np.zeros(N), ("a",), "w"), GROUPS],
        key="k", seed=1, resamples=50,
    )  # fmt: skip
    assert made["w"]["p_holm"] is None and made["w"]["flagged"] is None
    assert made["v"]["p_holm"] == made["v"]["p"], "a variable without a test is not one of the family"


def test_equalised_odds_need_two_groups_in_each_rate():
    """Both groups have negatives, but only one has positives: the false-positive range alone is no gap."""
    truth = np.where(np.arange(N) % 2 == 0, np.arange(N) % 3 == 0, False).astype(int)
    yes = (np.arange(N) % 5 == 0).astype(int)
    groups = coded(np.arange(N) % 2, names=("a", "b"))
    odds = Disparity.equalised_odds(np.arange(N, dtype=np.int32), truth, yes, n_clusters=N)
    entry = variable_report(odds, patients(positive=truth > 0), groups, key="k", seed=1, resamples=50)
    assert entry["gap"] is None and entry["p"] is None
    assert entry["gaps"]["fpr"] is not None and entry["gaps"]["tpr"] is None
    assert entry["undefined_reason"] == "only the group a is estimable (tpr), and a gap needs two groups"


def test_a_variable_without_a_gap_stays_out_of_the_overall_band(means):
    alone = coded(np.zeros(N), ("a",), variable="w")
    disparity = Disparity.of_metrics(means, ["dice"])
    common = {"rules": FairnessRules(), "key": "k", "seed": 4, "permutations": 20}
    band = overall_null(disparity, patients(), [GROUPS, alone], **common)
    assert band.gap == pytest.approx(report(means, GROUPS, resamples=0)["gap"])
    nothing = overall_null(disparity, patients(), [alone], **common)
    assert np.isnan(nothing.gap) and np.isnan(nothing.p)
