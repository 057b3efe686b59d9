"""Disparities under weights: against the published vectors, and against a loop over expanded cases."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.protocols import FairnessRules, protocols
from elsewhere.scoring.groups import fairness_codes
from elsewhere.statistics.fairness.group_scores import (
    EqualisedOdds,
    GroupSums,
    MeanRanges,
    combined_score,
    fairness_score,
    mean_disparity,
)

VECTORS = ("ordinary_60", "age_bin_edges", "group_all_positive_all_predicted_positive")
PAPER = FairnessRules()
CODE = protocols.get("mamamia-code").fairness


def mean_ranges(weights, clusters, values, codes):
    return MeanRanges(clusters, values, codes, n_clusters=weights.shape[1])(weights)


def equalised_odds(weights, clusters, truth, decision, codes, rules=None):
    return EqualisedOdds(clusters, truth, decision, codes, n_clusters=weights.shape[1], rules=rules)(weights)


def ones(n: int) -> np.ndarray:
    return np.ones((1, n), dtype=np.uint16)


@pytest.mark.parametrize("name", VECTORS)
def test_published_template_task_1(vectors_dir, name):
    table = pd.read_csv(vectors_dir / "mamamia" / f"{name}.csv")
    expected = json.loads((vectors_dir / "mamamia" / "expected.json").read_text())[name]["task1"]
    codes, warnings = fairness_codes(table, CODE)
    assert not warnings
    n = len(table)
    gaps = mean_ranges(ones(n), np.arange(n, dtype=np.int32), table[["DSC", "NormHD"]].to_numpy(), codes)
    for coded, gap in zip(codes, gaps[0], strict=True):
        assert 1 - gap == pytest.approx(expected["fairness_score_dict"][coded.variable], abs=1e-9)
    fairness = fairness_score(gaps, CODE)
    assert fairness[0] == pytest.approx(expected["avg_fairness_score"], abs=1e-9)
    performance = np.array([(table["DSC"].mean() + 1 - table["NormHD"].mean()) / 2])
    assert performance[0] == pytest.approx(expected["performance_score"], abs=1e-9)
    assert combined_score(performance, fairness, 0.5)[0] == pytest.approx(expected["ranking_score"], abs=1e-9)


@pytest.mark.parametrize("name", VECTORS)
def test_published_template_task_2(vectors_dir, name):
    table = pd.read_csv(vectors_dir / "mamamia" / f"{name}.csv")
    expected = json.loads((vectors_dir / "mamamia" / "expected.json").read_text())[name]["task2"]
    codes, _ = fairness_codes(table, CODE)
    n = len(table)
    truth, decision = table["pcr"].to_numpy(), (table["pred_score"] > 0.5).to_numpy()
    gaps = equalised_odds(ones(n), np.arange(n, dtype=np.int32), truth, decision, codes, CODE)
    for coded, gap in zip(codes, gaps[0], strict=True):
        assert gap == pytest.approx(expected["equalized_odds_disparities"][coded.variable], abs=1e-9)
    assert mean_disparity(gaps, CODE)[0] == pytest.approx(expected["fairness_score"], abs=1e-9)
    fairness = fairness_score(gaps, CODE)
    assert fairness[0] == pytest.approx(expected["official_Fairness_Score_printed"], abs=1e-9)
    balanced = np.array([(decision[truth == 1].mean() + (~decision[truth == 0]).mean()) / 2])
    assert balanced[0] == pytest.approx(expected["balanced_accuracy"], abs=1e-9)
    assert combined_score(balanced, fairness, 0.5)[0] == pytest.approx(expected["ranking_score"], abs=1e-9)


def test_paper_and_code_part_on_the_one_class_group(vectors_dir):
    table = pd.read_csv(vectors_dir / "mamamia" / "group_all_positive_all_predicted_positive.csv")
    codes, _ = fairness_codes(table, PAPER)
    n = len(table)
    args = (table["pcr"].to_numpy(), (table["pred_score"] >= 0.5).to_numpy(), codes)
    paper = equalised_odds(ones(n), np.arange(n, dtype=np.int32), *args, PAPER)
    code = equalised_odds(ones(n), np.arange(n, dtype=np.int32), *args, CODE)
    density = [c.variable for c in codes].index("breast_density")
    assert paper[0, density] != pytest.approx(code[0, density])


TRUTH = np.array([1, 1, 0, 0, 1, 1, 1])
YES = np.array([1, 0, 1, 0, 1, 1, 1])
GROUP = np.array([0, 0, 0, 0, 1, 1, 1])


def test_paper_rules_leave_a_group_without_negatives_out_of_the_fpr_range():
    clusters = np.arange(7, dtype=np.int32)
    tpr, fpr = EqualisedOdds(clusters, TRUTH, YES, [GROUP], n_clusters=7).rates(ones(7))[0]
    assert tpr[0].tolist() == [0.5, 1.0]
    assert fpr[0, 0] == 0.5
    assert np.isnan(fpr[0, 1])
    assert equalised_odds(ones(7), clusters, TRUTH, YES, [GROUP])[0, 0] == pytest.approx(0.5)


def test_code_rules_give_a_one_cell_group_zero_rates():
    clusters = np.arange(7, dtype=np.int32)
    tpr, fpr = EqualisedOdds(clusters, TRUTH, YES, [GROUP], n_clusters=7, rules=CODE).rates(ones(7))[0]
    assert tpr[0].tolist() == [0.5, 0.0]
    assert fpr[0].tolist() == [0.5, 0.0]


def test_code_rules_a_rate_without_denominator_is_zero_but_an_empty_group_is_no_group():
    truth, yes = np.array([1, 1, 1, 0]), np.array([1, 1, 0, 1])
    codes = np.array([0, 0, 1, 0])
    tpr, fpr = EqualisedOdds(
        np.arange(4, dtype=np.int32), truth, yes, [codes], n_clusters=4, rules=CODE
    ).rates(np.array([[1, 1, 1, 1], [1, 1, 0, 1]], dtype=np.uint16))[0]
    assert fpr[0].tolist() == [1.0, 0.0]
    assert np.isnan(fpr[1, 1])
    assert np.isnan(tpr[1, 1])


def test_the_mean_is_cut_to_one_by_code_rules_only():
    gaps = np.array([[1.4, 1.2, 0.9]])
    assert fairness_score(gaps, CODE)[0] == 0.0
    assert fairness_score(gaps, PAPER)[0] == pytest.approx(1 - 3.5 / 3)


def test_no_estimable_group_is_nan_and_an_undefined_variable_leaves_the_mean():
    clusters = np.arange(4, dtype=np.int32)
    gaps = mean_ranges(
        ones(4), clusters, np.array([[0.1], [0.2], [0.3], [0.9]]), [np.full(4, -1), [0, 0, 1, 1]]
    )
    assert np.isnan(gaps[0, 0])
    assert mean_disparity(gaps, PAPER)[0] == pytest.approx(0.45)
    assert np.isnan(mean_disparity(np.full((1, 2), np.nan), PAPER)[0])


def test_an_undefined_value_leaves_its_own_metric_only():
    values = np.array([[0.1, 0.5], [np.nan, 0.7], [0.3, 0.2], [0.5, 0.2]])
    means = MeanRanges(
        np.arange(4, dtype=np.int32), values, [np.array([0, 0, 1, 1])], n_clusters=4
    ).group_means(ones(4))
    assert means[0][0].tolist() == [[0.1, 0.6], [0.4, 0.2]]


def test_combined_at_the_ends_of_the_weight():
    nan = np.array([np.nan])
    assert combined_score(np.array([0.7]), nan, 0.0)[0] == 0.7
    assert combined_score(nan, np.array([0.9]), 1.0)[0] == 0.9
    assert np.isnan(combined_score(np.array([0.7]), nan, 0.5)[0])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), patients=st.integers(1, 12), rows=st.integers(1, 4))
def test_weights_mean_the_same_as_repeated_cases(seed, n, patients, rows):
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, patients, n).astype(np.int32)
    weights = rng.integers(0, 4, (rows, patients)).astype(np.uint16)
    values = rng.random((n, 2))
    truth, yes = rng.integers(0, 2, n), rng.integers(0, 2, n)
    codes = [rng.integers(-1, 3, n), rng.integers(-1, 2, n)]
    means = mean_ranges(weights, clusters, values, codes)
    for rules in (PAPER, CODE):
        odds = equalised_odds(weights, clusters, truth, yes, codes, rules)
        for r in range(rows):
            repeat = np.repeat(np.arange(n), weights[r][clusters])
            for v, code in enumerate(codes):
                assert means[r, v] == pytest.approx(
                    _loop_means(values[repeat], code[repeat]), abs=1e-12, nan_ok=True
                )
                expected = _loop_odds(truth[repeat], yes[repeat], code[repeat], rules is CODE)
                assert odds[r, v] == pytest.approx(expected, abs=1e-12, nan_ok=True)


def _loop_means(values, code):
    groups = [values[code == g].mean(axis=0) for g in sorted(set(code[code >= 0].tolist()))]
    return float(np.ptp(np.array(groups), axis=0).mean()) if groups else float("nan")


def _loop_odds(truth, yes, code, as_code):
    tprs, fprs = [], []
    for g in sorted(set(code[code >= 0].tolist())):
        t, y = truth[code == g], yes[code == g]
        if as_code and len(set(t.tolist()) | set(y.tolist())) == 1:
            tprs.append(0.0)
            fprs.append(0.0)
            continue
        for rates, cls in ((tprs, 1), (fprs, 0)):
            if (t == cls).any():
                rates.append(y[t == cls].mean())
            elif as_code:
                rates.append(0.0)
    return float(np.ptp(tprs) + np.ptp(fprs)) if tprs and fprs else float("nan")


def test_the_rows_handed_over_at_once_do_not_matter_and_tiles_join():
    rng = np.random.default_rng(3)
    clusters = rng.integers(0, 3000, 4500).astype(np.int32)
    columns, code = rng.random((4500, 2)), rng.integers(-1, 4, 4500)
    weights = rng.integers(0, 3, (5, 3000)).astype(np.uint16)
    sums = GroupSums(clusters, 3000, columns, [code])
    whole = sums.sums(weights)[0]
    rows = np.concatenate([sums.sums(weights[r : r + 1])[0] for r in range(5)])
    assert (whole == rows).all()
    per_case = weights[:, clusters].astype(float)
    for g in range(4):
        np.testing.assert_allclose(whole[:, g], per_case[:, code == g] @ columns[code == g], rtol=1e-12)


def test_a_wrong_number_of_codes_is_refused():
    with pytest.raises(ValueError, match="3 codes for 4 cases"):
        mean_ranges(ones(4), np.arange(4, dtype=np.int32), np.ones((4, 1)), [[0, 1, 0]])


def test_one_group_is_no_disparity_in_plain_and_zero_as_the_challenge_published_it():
    """ST-08a: the published scores of MAMA-MIA stay to the digit; `plain` calls a range of one undefined."""
    clusters, alone = np.arange(7, dtype=np.int32), [np.zeros(7, dtype=int)]
    plain = protocols.get("plain").fairness
    for name in ("mamamia-paper", "mamamia-code"):
        published = protocols.get(name).fairness
        assert EqualisedOdds(clusters, TRUTH, YES, alone, n_clusters=7, rules=published)(ones(7))[0, 0] == 0.0
        dice = MeanRanges(clusters, np.linspace(0, 1, 7), alone, n_clusters=7, rules=published)
        assert dice(ones(7))[0, 0] == 0.0
    assert np.isnan(EqualisedOdds(clusters, TRUTH, YES, alone, n_clusters=7, rules=plain)(ones(7))[0, 0])
    dice = MeanRanges(clusters, np.linspace(0, 1, 7), alone, n_clusters=7, rules=plain)
    assert np.isnan(dice(ones(7))[0, 0])


@pytest.mark.parametrize(
    ("name", "digest"), [("mamamia-paper", "5797684598edf46b"), ("mamamia-code", "ccbe9c2bcd42d87f")]
)
def test_a_rule_added_later_changes_no_digest_of_a_published_protocol(name, digest):
    """Results scored before the rule was added can still be read beside new ones."""
    protocol = protocols.get(name)
    assert protocol.digest() == digest
    other = replace(protocol, fairness=replace(protocol.fairness, one_group_disparity="undefined"))
    assert other.digest() != digest
