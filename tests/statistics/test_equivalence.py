"""LN-11, LN-12 and ST-05: TOST from summaries, and differences of any metric."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.statistics import studentised
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.equivalence import (
    ClaimedValue,
    GroupSummary,
    claimed_limits,
    difference_from_claim,
    difference_independent,
    difference_subsets,
    equivalence_table,
    study_margin,
    welch_tost,
)
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, RatioInputs
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.studentised import JackknifeStudentiser, studentiser


class Sample(Evaluator):
    """A mean, a proportion and an AUROC over the same cases; `blind` hides the closed forms."""

    def __init__(self, value, label, cluster, n_clusters, *, blind=False):
        self.value, self.label = np.asarray(value, float), np.asarray(label, np.int8)
        self.cluster_of_case = np.asarray(cluster, np.int32)
        self.n_clusters, self.blind = n_clusters, blind
        common = {"higher_is_better": True, "interval": IntervalMethod.BOOTSTRAP_T}
        self.specs = (
            MetricSpec(name="dice", label="Dice", kind=MetricKind.MEAN, **common),
            MetricSpec(name="accuracy", label="accuracy", kind=MetricKind.PROPORTION, **common),
            MetricSpec(name="auroc", label="AUROC", kind=MetricKind.AUROC, stratify_by_class=True, **common),
        )

    def evaluate(self, weights):
        w = weights[:, self.cluster_of_case].astype(float)
        right = (self.value >= 0.5) == (self.label == 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            out = np.stack([w @ self.value / w.sum(1), w @ right / w.sum(1), np.zeros(len(w))], axis=1)
            for r, row in enumerate(w):
                pos, neg = self.label == 1, self.label == 0
                diff = self.value[pos][:, None] - self.value[neg][None, :]
                pair = row[pos][:, None] * row[neg][None, :]
                out[r, 2] = (pair * ((diff > 0) + 0.5 * (diff == 0))).sum() / pair.sum()
        return out

    def subset(self, case_mask):
        keep = np.asarray(case_mask, bool)
        return Sample(
            self.value[keep], self.label[keep], self.cluster_of_case[keep], self.n_clusters, blind=self.blind
        )

    def stack(self, other):
        raise NotImplementedError

    def closed_form(self, metric):
        if self.blind:
            return None
        ones = np.ones(self.value.size)
        right = ((self.value >= 0.5) == (self.label == 1)).astype(float)
        return {
            "dice": RatioInputs(self.value, ones),
            "accuracy": RatioInputs(right, ones),
            "auroc": AurocInputs(self.label, self.value),
        }[metric]


def sample(seed, *, patients=60, shift=0.0, per_patient=2, blind=False):
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(patients), per_patient)
    label = (np.arange(patients) % 3 == 0)[cluster].astype(np.int8)
    effect = rng.normal(0, 0.1, patients)[cluster]
    value = np.clip(0.4 + 0.25 * label + shift + effect + rng.normal(0, 0.15, cluster.size), 0, 1)
    table = pd.DataFrame({"patient_id": cluster.astype(str)})
    partition = Clusters.from_table(table, positive=label)
    return Sample(value, label, cluster, patients, blind=blind), partition


def test_welch_tost_equals_toster(vectors_dir):
    inputs = pd.read_csv(vectors_dir / "tost" / "inputs.csv")
    expected = json.loads((vectors_dir / "tost" / "expected.json").read_text())
    assert len(inputs) == len(expected) >= 6
    for _, row in inputs.iterrows():
        want = expected[row["name"]]
        got = welch_tost(
            GroupSummary(mean=row["m1"], sd=row["sd1"], n=row["n1"]),
            GroupSummary(mean=row["m2"], sd=row["sd2"], n=row["n2"]),
            low=row["low_eqbound"],
            high=row["high_eqbound"],
            alpha=row["alpha"],
        )
        assert got.difference == pytest.approx(want["diff"], abs=1e-9)
        assert got.lo90 == pytest.approx(want["LL_CI_TOST"], abs=1e-9)
        assert got.hi90 == pytest.approx(want["UL_CI_TOST"], abs=1e-9)
        assert got.df == pytest.approx(want["TOST_df"], abs=1e-9)
        assert got.p == pytest.approx(want["ptost_max_p"], abs=1e-9)
        assert got.p_low == pytest.approx(want["TOST_p1"], abs=1e-9)
        assert got.p_high == pytest.approx(want["TOST_p2"], abs=1e-9)
        assert got.equivalent == (want["ptost_max_p"] < row["alpha"])


def test_table_adds_the_contract_columns_and_keeps_the_input():
    table = pd.DataFrame(
        {
            "model": ["a", "b"],
            "mean_1": ["0.745", "0.7"],
            "sd_1": [0.02, 0.0],
            "n_1": [5, 5],
            "mean_2": [0.728, 0.7],
            "sd_2": [0.02, 0.0],
            "n_2": [5, 5],
            "low": [-0.079, -0.1],
            "high": [0.079, 0.1],
        }
    ).astype({"mean_1": "string"})
    out = equivalence_table(table)
    assert list(out.columns[:9]) == list(table.columns)
    assert list(out.columns[9:15]) == ["difference", "lo90", "hi90", "df", "p", "equivalent"]
    assert out["equivalent"][0] and out["p"][0] == pytest.approx(0.0005957321058426924, abs=1e-9)
    assert out["equivalent"].isna()[1] and np.isnan(out["p"][1])
    assert "spread" in out["undefined_reason"][1]
    assert "lo80" in equivalence_table(table, alpha=0.1).columns


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_1": 1}, "n_1"),
        ({"sd_2": -0.1}, "sd_2"),
        ({"mean_1": math.nan}, "mean_1"),
        ({"low": 0.2}, "margins"),
        ({"alpha": 0.7}, "alpha"),
        ({"n_2": 4.5}, "n_2"),
    ],
)
def test_bad_summaries_are_refused(change, named):
    good = {
        "mean_1": 0.7, "sd_1": 0.1, "n_1": 5, "mean_2": 0.7, "sd_2": 0.1, "n_2": 5, "low": -0.1, "high": 0.1
    }  # fmt: skip
    with pytest.raises(UserError, match=named):
        of = good | change
        groups = (GroupSummary(mean=of[f"mean_{k}"], sd=of[f"sd_{k}"], n=of[f"n_{k}"]) for k in (1, 2))
        welch_tost(*groups, low=of["low"], high=of["high"], alpha=of.get("alpha", 0.05))


def test_table_names_bad_rows_and_missing_columns():
    with pytest.raises(UserError, match="high"):
        equivalence_table(pd.DataFrame({"mean_1": [1.0]}))
    row = dict.fromkeys(("mean_1", "sd_1", "mean_2", "sd_2"), 0.1) | {
        "n_1": 5,
        "n_2": 5,
        "low": -1,
        "high": 1,
    }
    bad = pd.DataFrame([row, row | {"sd_1": "0,2"}])
    with pytest.raises(UserError, match=r"rows 2") as caught:
        equivalence_table(bad)
    assert "sd_1" in str(caught.value)


@given(
    d=st.floats(-0.3, 0.3),
    sd_1=st.floats(0.001, 0.5),
    sd_2=st.floats(0.001, 0.5),
    n=st.integers(2, 40),
    margin=st.floats(0.01, 0.4),
    alpha=st.floats(0.01, 0.3),
)
@settings(max_examples=150, deadline=None)
def test_p_below_alpha_is_the_interval_inside_the_margins(d, sd_1, sd_2, n, margin, alpha):
    r = welch_tost(
        GroupSummary(mean=d, sd=sd_1, n=n),
        GroupSummary(mean=0.0, sd=sd_2, n=n + 3),
        low=-margin,
        high=margin,
        alpha=alpha,
    )
    if min(abs(r.hi - margin), abs(r.lo + margin)) > 1e-9:
        assert r.equivalent == (-margin < r.lo and r.hi < margin)
    assert min(n, n + 3) - 1 - 1e-9 <= r.df <= 2 * n + 1 + 1e-9


def test_study_margin_refuses_one_difference():
    assert study_margin([0.1, 0.3]).value == pytest.approx(0.2 + 1.96 * np.std([0.1, 0.3], ddof=1) / 2**0.5)
    with pytest.raises(UserError):
        study_margin([0.1])


@pytest.mark.parametrize("metric", ["dice", "accuracy", "auroc"])
def test_closed_form_standard_errors_agree_with_leaving_out_patients(metric):
    seen, partition = sample(1, patients=150)
    blind, _ = sample(1, patients=150, blind=True)
    closed, jackknife = studentiser(seen, partition, metric), JackknifeStudentiser(blind, partition, metric)
    assert closed.value == pytest.approx(jackknife.value, abs=1e-12)
    assert closed.se == pytest.approx(jackknife.se, rel=0.03)
    weights = np.random.default_rng(0).multinomial(150, np.full(150, 1 / 150), 5).astype(np.uint16)
    values, ses = closed.under(weights)
    assert values == pytest.approx(seen.evaluate(weights)[:, seen.index(metric)], abs=1e-12)
    assert ses == pytest.approx(jackknife.under(weights)[1], rel=0.35)


def test_grouped_and_partial_jackknives_keep_the_standard_error(monkeypatch):
    ev, partition = sample(8, patients=400, blind=True)
    one_by_one = JackknifeStudentiser(ev, partition, "dice")
    left = ev.cluster_of_case < 200
    part = JackknifeStudentiser(ev.subset(left), partition, "dice")
    assert part.clusters == 200
    means = ev.value[left].reshape(200, 2).mean(axis=1)
    assert part.se == pytest.approx(means.std(ddof=1) / math.sqrt(200), rel=1e-6)
    monkeypatch.setattr(studentised, "ONE_BY_ONE_UP_TO", 300)
    monkeypatch.setattr(studentised, "GROUPS_LEFT_OUT", 100)
    grouped = JackknifeStudentiser(ev, partition, "dice")
    assert grouped.se == pytest.approx(one_by_one.se, rel=0.25) and grouped.se != one_by_one.se


def test_ratio_se_under_weights_is_the_se_of_the_repeated_sample():
    """Resampling patient c twice is a cohort in which c stands twice: n/(n - 1) included."""
    ev, partition = sample(3, patients=30)
    weights = np.random.default_rng(5).multinomial(30, np.full(30, 1 / 30), 1).astype(np.uint16)
    _, se = studentiser(ev, partition, "dice").under(weights)
    picks = np.repeat(np.arange(30), weights[0])
    means = np.array([ev.value[ev.cluster_of_case == c].mean() for c in picks])
    assert se[0] == pytest.approx(means.std(ddof=1) / math.sqrt(30), rel=1e-9)


@pytest.mark.parametrize("method", ["auto", "studentised-bootstrap", "t-clustered"])
@pytest.mark.parametrize("metric", ["dice", "accuracy", "auroc"])
def test_two_hospitals(metric, method):
    here, p_here = sample(11, patients=120, shift=-0.05)
    ref, p_ref = sample(12, patients=140)
    d = difference_independent(
        here,
        p_here,
        ref,
        p_ref,
        metric,
        method=method,
        resampling=Resampling(key="equivalence", resamples=400),
    )
    assert d.lo < d.difference < d.hi
    assert d.difference == pytest.approx(here.values()[metric] - ref.values()[metric])
    half = 1.645 * math.hypot(studentiser(here, p_here, metric).se, studentiser(ref, p_ref, metric).se)
    assert (d.hi - d.lo) / 2 == pytest.approx(half, rel=0.2)
    wanted = {"studentised-bootstrap": "studentised", "t-clustered": "welch-t"}.get(method)
    assert d.method.startswith(wanted or ("studentised" if metric == "dice" else "mover"))
    assert json.loads(json.dumps(d.to_dict()))["metric"] == metric


def test_same_seed_same_interval_and_few_patients_take_t():
    here, p_here = sample(1, patients=25)
    ref, p_ref = sample(2, patients=25)
    one = difference_independent(
        here, p_here, ref, p_ref, "dice", resampling=Resampling(key="equivalence", seed=3, resamples=300)
    )
    two = difference_independent(
        here, p_here, ref, p_ref, "dice", resampling=Resampling(key="equivalence", seed=3, resamples=300)
    )
    three = difference_independent(
        here, p_here, ref, p_ref, "dice", resampling=Resampling(key="equivalence", seed=4, resamples=300)
    )
    assert (one.lo, one.hi) == (two.lo, two.hi) != (three.lo, three.hi)
    few, p_few = sample(1, patients=8)
    assert difference_independent(few, p_few, ref, p_ref, "dice").method == "welch-t-clustered"


def test_subsets_with_shared_patients_use_their_covariance():
    """Each patient has one case on either side and a strong patient effect: pairing must narrow it."""
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(80), 2)
    value = np.clip(0.5 + rng.normal(0, 0.15, 80)[cluster] + rng.normal(0, 0.02, 160), 0, 1)
    label = (cluster % 2).astype(np.int8)
    ev = Sample(value, label, cluster, 80)
    partition = Clusters.from_table(pd.DataFrame({"patient_id": cluster.astype(str)}), positive=label)
    first = np.arange(160) % 2 == 0
    shared = difference_subsets(
        ev, partition, first, ~first, "dice", resampling=Resampling(key="equivalence", resamples=400)
    )
    paired = value[first] - value[~first]
    t = stats.t.ppf(0.95, 79) * paired.std(ddof=1) / math.sqrt(80)
    assert shared.method.startswith("studentised") and "shared" in shared.method
    assert (shared.hi - shared.lo) / 2 == pytest.approx(t, rel=0.15)
    auroc = difference_subsets(ev, partition, first, ~first, "auroc")
    assert auroc.hi - auroc.lo < 0.5 * (
        difference_independent(ev.subset(first), partition, ev.subset(~first), partition, "auroc").hi
        - difference_independent(ev.subset(first), partition, ev.subset(~first), partition, "auroc").lo
    )


def test_subsets_without_shared_patients_are_independent_groups():
    ev, partition = sample(5, patients=80)
    left = ev.cluster_of_case < 40
    a = difference_subsets(ev, partition, left, ~left, "accuracy")
    b = difference_independent(ev.subset(left), partition, ev.subset(~left), partition, "accuracy")
    assert (a.lo, a.hi, a.method) == (b.lo, b.hi, b.method)
    with pytest.raises(UserError, match="both sides"):
        difference_subsets(ev, partition, left, left, "accuracy")


def test_constant_claim_says_so_and_a_claim_with_n_is_wider():
    ev, partition = sample(7, patients=100)
    constant = difference_from_claim(ev, partition, "auroc", ClaimedValue(value=0.85))
    with_n = difference_from_claim(ev, partition, "auroc", ClaimedValue(value=0.85, n=400, positives=120))
    with_ci = difference_from_claim(ev, partition, "auroc", ClaimedValue(value=0.85, lo=0.80, hi=0.89))
    assert "constant" in constant.reference_source and any("constant" in w for w in constant.warnings)
    assert with_n.hi - with_n.lo > constant.hi - constant.lo < with_ci.hi - with_ci.lo
    assert "Hanley-McNeil" in with_n.reference_source and "95 % interval" in with_ci.reference_source
    assert with_n.se > constant.se
    no_positives = difference_from_claim(ev, partition, "auroc", ClaimedValue(value=0.85, n=400))
    assert "number of positives" in no_positives.reference_source
    assert (no_positives.lo, no_positives.hi) == (constant.lo, constant.hi)


def test_claimed_proportions_use_the_right_class():
    def spec(name):
        return MetricSpec(
            name=name, label=name, higher_is_better=True, kind=MetricKind.PROPORTION,
            interval=IntervalMethod.WILSON,
        )  # fmt: skip

    claim = ClaimedValue(value=0.9, n=500, positives=50)
    sensitivity, text = claimed_limits(claim, spec("sensitivity"), alpha=0.05)
    specificity, _ = claimed_limits(claim, spec("specificity"), alpha=0.05)
    assert "50 cases" in text
    assert sensitivity.se == pytest.approx(math.sqrt(0.09 / 50))
    assert specificity.se == pytest.approx(math.sqrt(0.09 / 450))
    with pytest.raises(UserError, match="inside its interval"):
        claimed_limits(ClaimedValue(value=0.9, lo=0.91, hi=0.95), spec("sensitivity"), alpha=0.05)
    with pytest.raises(UserError, match="claimed"):
        claimed_limits(ClaimedValue(value=1.9), spec("sensitivity"), alpha=0.05)


def test_perfect_scores_never_give_an_interval_without_width():
    n = 40
    label = (np.arange(n) % 2).astype(np.int8)
    ev = Sample(np.where(label == 1, 0.9, 0.1), label, np.arange(n), n)
    partition = Clusters.from_table(pd.DataFrame({"patient_id": np.arange(n).astype(str)}), positive=label)
    for metric in ("auroc", "accuracy"):
        d = difference_from_claim(ev, partition, metric, ClaimedValue(value=0.95))
        assert d.lo < d.difference - 0.02 and d.se > 0


def test_methods_that_do_not_fit_are_refused():
    ev, partition = sample(7, patients=40)
    claim = ClaimedValue(value=0.5)
    for metric, method in (
        ("dice", "wilson-clustered"),
        ("accuracy", "delong-logit-clustered"),
        ("dice", "magic"),
    ):
        with pytest.raises(UserError, match="method"):
            difference_from_claim(ev, partition, metric, claim, method=method)
    on_logit = difference_from_claim(ev, partition, "dice", claim, method="t-logit-jackknife")
    plain = difference_from_claim(ev, partition, "dice", claim, method="t-clustered")
    assert on_logit.hi - on_logit.lo == pytest.approx(plain.hi - plain.lo, rel=0.05)


def test_one_class_is_undefined_with_its_reason():
    ev = Sample([0.2, 0.3, 0.4], [0, 0, 0], [0, 1, 2], 3)
    partition = Clusters.from_table(pd.DataFrame({"patient_id": ["a", "b", "c"]}))
    d = difference_from_claim(ev, partition, "auroc", ClaimedValue(value=0.9))
    assert math.isnan(d.lo) and "both classes" in d.undefined_reason
    assert d.to_dict()["lo"] is None
