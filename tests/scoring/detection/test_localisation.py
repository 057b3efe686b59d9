"""wAFROC and its family as metrics of the task: under weights, in closed form, in parts, and where undefined."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.protocols import DetectionRules, IntervalRules
from elsewhere.scoring.detection.froc import FrocEvaluator, FrocEvents
from elsewhere.scoring.detection.localisation import (
    DetectionEvaluator,
    froc_part,
    localisation_specs,
)
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.differences import difference_independent
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.limits import one_sample_limits
from elsewhere.statistics.localisation import (
    FIGURES,
    LesionTruth,
    Marks,
    figure_of_merit,
    mark_fractions,
)
from elsewhere.statistics.mann_whitney import pair_sums
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.studentised import studentiser

RESAMPLING = Resampling(key="test", resamples=200, threads=1)


def world(
    seed: int = 1, *, patients: int = 30, volumes: int = 3, shift: float = 1.0, positive: float = 0.4
) -> DetectionEvaluator:
    """Volumes with 0 to 3 lesions, further hits, missed lesions and ties of scores."""
    rng = np.random.default_rng(seed)
    n = patients * volumes
    cluster = np.repeat(np.arange(patients), volumes)
    lesions = np.where(rng.random(n) < positive, rng.integers(1, 4, n), 0)
    lesion_case = np.repeat(np.arange(n), lesions)
    hit = np.flatnonzero(rng.random(lesion_case.size) < 0.8)
    hit = np.concatenate([hit, hit[: hit.size // 3]])
    wrong = np.repeat(np.arange(n), rng.poisson(1.0, n))
    score = np.concatenate([shift + rng.normal(size=hit.size), rng.normal(size=wrong.size)]).round(1)
    case = np.concatenate([lesion_case[hit], wrong])
    events = FrocEvents(
        case=case,
        cluster=cluster[case],
        lesion=np.concatenate([hit, np.full(wrong.size, -1)]),
        score=score,
    )
    return DetectionEvaluator(
        FrocEvaluator(
            rules=DetectionRules(),
            cluster_of_case=cluster,
            n_clusters=patients,
            lesions_of_case=lesions,
            events=events,
        )
    )


def partition_of(evaluator: DetectionEvaluator) -> Clusters:
    n = evaluator.n_clusters
    positive = np.bincount(evaluator.cluster_of_case, evaluator.froc.lesions_of_case, n) > 0
    names = tuple(str(i) for i in range(n))
    return Clusters(evaluator.cluster_of_case, names, np.zeros(n, dtype=np.int32), ("all",), positive)


def repeated(evaluator: DetectionEvaluator, weights: np.ndarray) -> tuple[LesionTruth, Marks]:
    """Every volume as often as its patient's weight says, written out."""
    froc = evaluator.froc
    lesion_case, case, score, lesion, n = [], [], [], [], 0
    for k, w in enumerate(weights[froc.cluster_of_case]):
        for _ in range(w):
            first = len(lesion_case)
            lesion_case += [n] * int(froc.lesions_of_case[k])
            inside = np.flatnonzero(froc.events.case == k)
            ids = {
                name: i
                for i, name in enumerate(
                    np.unique(froc.events.lesion[inside][froc.events.lesion[inside] >= 0])
                )
            }
            for e in inside:
                hit = froc.events.lesion[e]
                case.append(n)
                score.append(froc.events.score[e])
                lesion.append(first + ids[hit] if hit >= 0 else -1)
            n += 1
    truth = LesionTruth(n_cases=n, case=np.array(lesion_case, dtype=int))
    return truth, Marks(case=np.array(case), score=np.array(score), lesion=np.array(lesion))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_weights_are_copies_of_patients(seed):
    evaluator = world(seed, patients=12)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 3, (4, 12)).astype(np.uint16)
    got = evaluator.evaluate(weights)
    for row, w in zip(got, weights, strict=True):
        truth, marks = repeated(evaluator, w)
        for figure in FIGURES:
            assert row[evaluator.index(figure)] == pytest.approx(
                figure_of_merit(figure, truth, marks), abs=1e-12, nan_ok=True
            )
        ends = mark_fractions(truth, marks)
        assert row[evaluator.index("max_llf")] == pytest.approx(ends.max_llf, nan_ok=True)
        assert row[evaluator.index("max_nlf")] == pytest.approx(ends.max_nlf)


def test_the_curve_is_what_it_was_without_these_metrics():
    evaluator = world()
    weights = np.random.default_rng(0).integers(0, 3, (5, 30)).astype(np.uint16)
    alone = evaluator.froc.evaluate(weights)
    assert np.array_equal(evaluator.evaluate(weights)[:, : alone.shape[1]], alone)
    assert froc_part(evaluator) is evaluator.froc


@pytest.mark.parametrize("name", [*FIGURES, "max_llf", "max_nlf"])
def test_the_closed_form_is_the_value_and_its_error_that_of_the_jackknife(name):
    evaluator = world(4, patients=60)
    value = evaluator.values()[name]
    inputs = evaluator.closed_form(name)
    s = studentiser(evaluator, partition_of(evaluator), name)
    assert s.value == pytest.approx(value, abs=1e-12)
    left_out = evaluator.leave_one_out()[:, evaluator.index(name)]
    jackknife = np.sqrt(59 / 60 * np.sum((left_out - left_out.mean()) ** 2))
    assert s.se == pytest.approx(jackknife, rel=0.06)
    if name in FIGURES:
        sums = pair_sums(inputs, n_clusters=60)
        assert sums.value == pytest.approx(value, abs=1e-12)
        assert sums.without_each() == pytest.approx(left_out, abs=1e-12)
        assert np.sqrt(sums.components().variance()[0]) == pytest.approx(jackknife, rel=0.06)


def test_influences_under_weights_are_those_of_the_weighted_sample():
    evaluator = world(6, patients=25)
    s = studentiser(evaluator, partition_of(evaluator), "wafroc1")
    weights = np.random.default_rng(1).multinomial(25, np.full(25, 1 / 25), 6).astype(np.uint16)
    values, ses = s.under(weights)
    assert values == pytest.approx(evaluator.evaluate(weights)[:, evaluator.index("wafroc1")], abs=1e-12)
    assert (ses > 0).all()
    ones = np.ones((1, 25), dtype=np.uint16)
    assert s.under(ones)[1][0] == pytest.approx(s.se)


def test_parts_and_stacks_keep_the_values():
    one, two = world(7), world(7, shift=2.0)
    both = one.stack(two)
    n = one.n_clusters
    first = np.concatenate([np.ones(n), np.zeros(n)]).astype(np.uint16)[None, :]
    assert both.evaluate(first)[0] == pytest.approx(one.evaluate(first[:, :n])[0], abs=1e-12)
    assert both.evaluate(1 - first)[0] == pytest.approx(two.evaluate(first[:, :n])[0], abs=1e-12)
    mask = one.cluster_of_case < 10
    weights = (np.arange(n) < 10).astype(np.uint16)[None, :]
    assert one.subset(mask).evaluate(np.ones_like(weights))[0] == pytest.approx(
        one.evaluate(weights)[0], abs=1e-12, nan_ok=True
    )
    assert one.subset(np.ones_like(mask)) is one
    ranked = one.ranked().values()
    for spec in localisation_specs():
        assert ranked[spec.name] == pytest.approx(one.values()[spec.name], abs=1e-12)


def test_boxes_of_unlisted_volumes_take_no_part():
    froc = world(8).froc
    events = FrocEvents(
        case=np.append(froc.events.case, np.full(300, -1)),
        cluster=np.append(froc.events.cluster, np.tile([0, -1], 150)),
        lesion=np.append(froc.events.lesion, np.full(300, -1)),
        score=np.append(froc.events.score, np.full(300, 99.0)),
    )
    more = DetectionEvaluator(
        FrocEvaluator(
            rules=froc.rules,
            cluster_of_case=froc.cluster_of_case,
            n_clusters=froc.n_clusters,
            lesions_of_case=froc.lesions_of_case,
            events=events,
        )
    )
    before, after = world(8).values(), more.values()
    assert all(before[spec.name] == after[spec.name] for spec in localisation_specs())
    assert before["sensitivity_at_2_all"] != after["sensitivity_at_2_all"]


def test_without_a_normal_volume_the_figures_of_all_volumes_stay():
    evaluator = world(9, positive=1.1)
    values, reasons = evaluator.values(), evaluator.undefined_reasons()
    assert set(reasons) == {"wafroc", "afroc", "inferred_roc"}
    assert all("no volume without a lesion" in text for text in reasons.values())
    assert all(np.isnan(values[name]) for name in reasons) and 0 < values["wafroc1"] < 1
    made = estimate_all(
        evaluator, partition_of(evaluator), rules=IntervalRules(), resampling=RESAMPLING, metrics=["wafroc"]
    )["wafroc"]
    assert made.value is None and made.undefined == evaluator.n_cases and made.undefined_reason


def test_a_protocol_that_names_one_method_leaves_these_metrics_their_own():
    evaluator = world(10)
    rules = IntervalRules(method="percentile")
    made = estimate_all(evaluator, partition_of(evaluator), rules=rules, resampling=RESAMPLING)
    assert made["mean_sensitivity_1_to_4"].method == "percentile"
    assert made["wafroc"].method == "delong-logit-clustered"
    assert made["wafroc"].lo < made["wafroc"].value < made["wafroc"].hi
    assert made["wafroc"].bootstrap is not None
    assert made["max_llf"].method == "wilson-clustered"


def perfect(patients: int = 20) -> DetectionEvaluator:
    n = 2 * patients
    lesions = np.tile([0, 1], patients)
    cluster = np.arange(n)
    positive = np.flatnonzero(lesions)
    events = FrocEvents(
        case=positive, cluster=positive, lesion=np.arange(positive.size), score=np.ones(positive.size)
    )
    return DetectionEvaluator(
        FrocEvaluator(
            rules=DetectionRules(),
            cluster_of_case=cluster,
            n_clusters=n,
            lesions_of_case=lesions,
            events=events,
        )
    )


def test_a_perfect_sample_gets_a_one_sided_bound():
    evaluator = perfect()
    made = estimate_all(
        evaluator, partition_of(evaluator), rules=IntervalRules(), resampling=RESAMPLING, metrics=["wafroc"]
    )["wafroc"]
    assert made.method == "one-sided-bound" and made.hi == 1.0
    assert made.lo == pytest.approx(0.05 ** (1 / 20))
    assert any("wAFROC 1" in text for text in made.warnings)
    s = studentiser(evaluator, partition_of(evaluator), "wafroc")
    limits = one_sample_limits(s, alpha=0.05, resampling=RESAMPLING)
    assert limits.lo == pytest.approx(0.05 ** (1 / 20)) and limits.hi == 1.0


def test_two_models_are_compared_by_their_paired_components():
    one, two = world(11, patients=60), world(11, patients=60, shift=2.5)
    made = compare_pair(
        one,
        two,
        partition_of(one),
        rules=IntervalRules(method="percentile"),
        resampling=RESAMPLING,
        metrics=["wafroc"],
        permutations=100,
    )["wafroc"]
    assert made.difference == pytest.approx(one.values()["wafroc"] - two.values()["wafroc"])
    assert made.hi < 0 and made.p < 0.05
    alone = studentiser(one, partition_of(one), "wafroc")
    assert made.se < np.hypot(alone.se, studentiser(two, partition_of(two), "wafroc").se)


def test_two_hospitals_are_compared_by_the_limits_of_both():
    here, there = world(12, patients=80, shift=0.3), world(13, patients=80, shift=2.5)
    made = difference_independent(
        here, partition_of(here), there, partition_of(there), "wafroc", resampling=RESAMPLING
    )
    assert made.method == "mover (delong-logit-clustered)" and made.hi < 0
    assert made.comparison.detection(0.3) > 0.5
