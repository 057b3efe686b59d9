"""The FROC rule of protocols.md, line by line, and its behaviour under weights."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.protocols import DetectionRules, protocols
from elsewhere.scoring.detection.froc import NO_LESION, FrocEvaluator, FrocEvents, froc_specs
from elsewhere.statistics.metric import IntervalMethod, MetricKind

RULES = protocols.get("dbtex-paper").detection


def evaluator(events, *, lesions_of_case, cluster_of_case=None, extra_cluster=-1, rules=RULES):
    """`events`: (case or -1, lesion or -1, score); one patient a volume unless said otherwise."""
    lesions_of_case = np.asarray(lesions_of_case)
    clusters = np.arange(lesions_of_case.size) if cluster_of_case is None else np.asarray(cluster_of_case)
    case = np.array([e[0] for e in events], dtype=np.int64)
    cluster = np.where(case >= 0, clusters[case] if case.size else case, extra_cluster)
    return FrocEvaluator(
        rules=rules,
        cluster_of_case=clusters.astype(np.int32),
        n_clusters=int(clusters.max()) + 1,
        lesions_of_case=lesions_of_case,
        events=FrocEvents(
            case=case,
            cluster=cluster.astype(np.int64),
            lesion=np.array([e[1] for e in events], dtype=np.int64),
            score=np.array([e[2] for e in events], dtype=float),
        ),
    )


def plain_curve(events, *, lesions_of_case, positive_only):
    """The published rule, written as it reads: a threshold at a time, np.interp at the end."""
    keep = [e for e in events if not positive_only or (e[0] >= 0 and lesions_of_case[e[0]] > 0)]
    volumes = sum(1 for n in lesions_of_case if n > 0) if positive_only else len(lesions_of_case)
    thresholds = sorted({e[2] for e in keep if e[1] >= 0}, reverse=True)
    scores = [e[2] for e in keep]
    thresholds = [max(scores, default=0) + 1, *thresholds, min(scores, default=0) - 1]
    x, y = [], []
    for threshold in thresholds:
        above = [e for e in keep if e[2] >= threshold]
        x.append(sum(1 for e in above if e[1] < 0) / volumes)
        y.append(len({e[1] for e in above if e[1] >= 0}) / sum(lesions_of_case))
    return x, y


def plain_values(events, *, lesions_of_case):
    x, y = plain_curve(events, lesions_of_case=lesions_of_case, positive_only=True)
    positive = [float(np.interp(at, x, y)) for at in (1, 2, 3, 4)]
    x, y = plain_curve(events, lesions_of_case=lesions_of_case, positive_only=False)
    everywhere = [float(np.interp(at, x, y)) for at in (1, 2, 3, 4)]
    return [np.mean(positive), *positive, everywhere[1], np.mean(everywhere)]


def test_names_order_and_declared_properties():
    specs = froc_specs(RULES)
    assert [spec.name for spec in specs] == [
        "mean_sensitivity_1_to_4",
        "sensitivity_at_1_positive",
        "sensitivity_at_2_positive",
        "sensitivity_at_3_positive",
        "sensitivity_at_4_positive",
        "sensitivity_at_2_all",
        "mean_sensitivity_1_to_4_all",
    ]
    assert [spec.primary for spec in specs] == [True] + [False] * 6
    assert all(spec.kind is MetricKind.CURVE and spec.interval is IntervalMethod.PERCENTILE for spec in specs)


def test_linear_interpolation_between_points_at_true_positives():
    events = [(0, 0, 0.9), *[(0, -1, 0.5)] * 4, (0, 1, 0.4)]
    values = evaluator(events, lesions_of_case=[2]).values()
    assert values["sensitivity_at_1_positive"] == 0.5 + 0.5 * 1 / 4
    assert values["sensitivity_at_2_positive"] == 0.75
    assert values["sensitivity_at_4_positive"] == 1.0


def test_false_positives_alone_make_no_point():
    """The step at 0.5 is no point of the curve: at 2 it is read on the line from (0, .5) to (4, 1)."""
    events = [(0, 0, 0.9), *[(0, -1, 0.8)] * 3, (0, -1, 0.41), (0, 1, 0.4)]
    assert evaluator(events, lesions_of_case=[2]).values()["sensitivity_at_2_positive"] == 0.75


def test_further_hits_are_neither_true_nor_false_but_make_points():
    """As in the published code, whose thresholds are the scores of all hits."""
    without = [(0, 0, 0.9), *[(0, -1, 0.5)] * 2, *[(0, -1, 0.3)] * 2, (0, 1, 0.2)]
    again = [*without, (0, 0, 0.4)]
    assert evaluator(without, lesions_of_case=[2]).values()["sensitivity_at_2_positive"] == 0.75
    values = evaluator(again, lesions_of_case=[2]).values()
    assert values["sensitivity_at_2_positive"] == 0.5
    assert values["sensitivity_at_3_positive"] == 0.75
    assert values["sensitivity_at_4_positive"] == 1.0


def test_tied_false_positives_enter_with_the_true_positive():
    events = [(0, 0, 0.5), (0, -1, 0.5), (0, -1, 0.5)]
    values = evaluator(events, lesions_of_case=[1]).values()
    assert values["sensitivity_at_1_positive"] == 0.5
    assert values["sensitivity_at_2_positive"] == 1.0


def test_equal_false_positives_all_count():
    once = [(0, 0, 0.9), (0, -1, 0.5), (0, 1, 0.4)]
    thrice = [(0, 0, 0.9), *[(0, -1, 0.5)] * 3, (0, 1, 0.4)]
    assert evaluator(once, lesions_of_case=[2]).values()["sensitivity_at_1_positive"] == 1.0
    assert evaluator(thrice, lesions_of_case=[2]).values()["sensitivity_at_1_positive"] == 0.5 + 0.5 / 3


def test_flat_after_the_last_point():
    values = evaluator([(0, 0, 0.9)], lesions_of_case=[2]).values()
    assert all(value == 0.5 for value in values.values())


def test_the_highest_sensitivity_where_points_share_an_x():
    events = [(0, -1, 0.95), (0, 0, 0.9), (0, 1, 0.8), (0, 2, 0.7)]
    assert evaluator(events, lesions_of_case=[3]).values()["sensitivity_at_1_positive"] == 1.0


def test_between_two_x_the_line_ends_at_the_first_point_of_the_next_x():
    events = [(0, 0, 0.9), *[(0, -1, 0.8)] * 2, (0, 1, 0.7), (0, 2, 0.6)]
    values = evaluator(events, lesions_of_case=[3]).values()
    assert values["sensitivity_at_1_positive"] == pytest.approx(0.5)
    assert values["sensitivity_at_2_positive"] == 1.0


def test_no_predictions_is_zero_and_no_lesion_is_undefined():
    nothing = evaluator([], lesions_of_case=[1, 0])
    assert set(nothing.values().values()) == {0.0}
    undefined = evaluator([(0, -1, 0.5)], lesions_of_case=[0, 0])
    assert all(np.isnan(value) for value in undefined.values().values())
    assert undefined.undefined_reasons()["mean_sensitivity_1_to_4"] == NO_LESION
    assert undefined.case_counts()["sensitivity_at_2_all"] == (0, 2)


def test_positive_volumes_see_only_their_own_predictions():
    events = [(0, 0, 0.5), *[(1, -1, 0.9)] * 9]
    values = evaluator(events, lesions_of_case=[1, 0]).values()
    assert values["mean_sensitivity_1_to_4"] == 1.0
    assert values["sensitivity_at_2_all"] == pytest.approx(2 / 4.5)
    assert evaluator(events, lesions_of_case=[1, 0]).case_counts()["sensitivity_at_1_positive"] == (1, 0)


def test_all_volumes_divides_by_all_label_rows():
    events = [*[(0, -1, 0.9)] * 8, (0, 0, 0.5)]
    values = evaluator(events, lesions_of_case=[1, 0, 0, 0]).values()
    assert values["sensitivity_at_2_all"] == 1.0
    assert values["sensitivity_at_4_positive"] == 0.5


def test_predictions_in_unlisted_volumes_are_false_positives_in_all():
    listed = [(0, 0, 0.5), (0, 1, 0.4)]
    extra = [*listed, *[(-1, -1, 0.9)] * 8]
    values = evaluator(extra, lesions_of_case=[2, 0]).values()
    assert values["mean_sensitivity_1_to_4"] == 1.0
    assert values["sensitivity_at_2_all"] == 0.25
    assert evaluator(listed, lesions_of_case=[2, 0]).values()["sensitivity_at_2_all"] == 1.0


def test_unlisted_boxes_weigh_as_the_average_patient_or_as_their_own():
    extra = [(0, 0, 0.5), *[(-1, -1, 0.9)] * 8]
    nobody = evaluator(extra, lesions_of_case=[1, 0])
    own = evaluator(extra, lesions_of_case=[1, 0], extra_cluster=1)
    weights = np.array([[2, 0], [1, 1], [1, 0]], dtype=np.uint16)
    column = nobody.index("sensitivity_at_2_all")
    np.testing.assert_allclose(nobody.evaluate(weights)[:, column], [0.5, 0.5, 0.5])
    np.testing.assert_allclose(own.evaluate(weights)[:, column], [1.0, 0.5, 1.0])


def test_a_resample_without_lesions_is_undefined():
    model = evaluator([(0, 0, 0.5), (1, -1, 0.6)], lesions_of_case=[1, 0])
    assert np.isnan(model.evaluate(np.array([[0, 2]], dtype=np.uint16))).all()


def test_hits_of_absent_patients_make_no_point():
    """Patient 1's hit at 0.5 stands between; without patient 1 the line runs straight."""
    events = [(0, 0, 0.9), *[(0, -1, 0.8)] * 2, (1, 2, 0.7), *[(0, -1, 0.6)] * 2, (0, 1, 0.5)]
    model = evaluator(events, lesions_of_case=[2, 1])
    alone = evaluator([e for e in events if e[0] == 0], lesions_of_case=[2])
    only_first = model.evaluate(np.array([[1, 0]], dtype=np.uint16))[0]
    np.testing.assert_array_equal(only_first, list(alone.values().values()))
    assert only_first[model.index("sensitivity_at_2_positive")] == 0.75


def test_nan_scores_are_refused():
    with pytest.raises(ValueError, match="NaN"):
        evaluator([(0, 0, np.nan)], lesions_of_case=[1])


def test_operating_points_come_from_the_protocol():
    rules = dataclasses.replace(RULES, positive_operating_points=(0.5, 8.0), all_operating_point=3.0)
    events = [(0, 0, 0.9), *[(0, -1, 0.8)] * 4, (0, 1, 0.7)]
    values = evaluator(events, lesions_of_case=[2], rules=rules).values()
    assert list(values) == [
        "mean_sensitivity_0.5_to_8",
        "sensitivity_at_0.5_positive",
        "sensitivity_at_8_positive",
        "sensitivity_at_3_all",
        "mean_sensitivity_0.5_to_8_all",
    ]
    assert values["sensitivity_at_0.5_positive"] == 0.5625
    assert isinstance(rules, DetectionRules)


def test_closed_form_has_none_and_unknown_names_are_refused():
    model = evaluator([(0, 0, 0.9)], lesions_of_case=[1])
    assert model.closed_form("mean_sensitivity_1_to_4") is None
    with pytest.raises(KeyError):
        model.closed_form("auroc")


@st.composite
def cohorts(draw, *, distinct=False, max_volumes=5):
    """Volumes with 0 to 2 lesions, patients with 1 or 2 volumes, boxes at few score levels (ties)."""
    n = draw(st.integers(1, max_volumes))
    lesions_of_case = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    cluster_of_case = draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n))
    cluster_of_case = np.unique(cluster_of_case, return_inverse=True)[1]
    first = np.concatenate([[0], np.cumsum(lesions_of_case)])
    events = []
    for case in range(n):
        options = [-1, *range(int(first[case]), int(first[case + 1]))]
        for lesion in draw(st.lists(st.sampled_from(options), max_size=7)):
            events.append((case, lesion, draw(st.integers(0, 6)) / 8))
    if distinct:
        order = draw(st.permutations(range(len(events))))
        events = [(c, lesion, rank / 64) for (c, lesion, _), rank in zip(events, order, strict=True)]
    return events, lesions_of_case, cluster_of_case


@settings(max_examples=150, deadline=None)
@given(cohorts())
def test_weights_of_one_equal_the_rule_as_it_reads(cohort):
    events, lesions_of_case, clusters = cohort
    got = list(evaluator(events, lesions_of_case=lesions_of_case, cluster_of_case=clusters).values().values())
    if sum(lesions_of_case) == 0:
        assert np.isnan(got).all()
    else:
        np.testing.assert_array_equal(got, plain_values(events, lesions_of_case=lesions_of_case))


@settings(max_examples=100, deadline=None)
@given(cohorts(), st.data())
def test_weights_equal_physically_repeated_patients(cohort, data):
    events, lesions_of_case, clusters = cohort
    model = evaluator(events, lesions_of_case=lesions_of_case, cluster_of_case=clusters)
    weights = data.draw(st.lists(st.integers(0, 3), min_size=model.n_clusters, max_size=model.n_clusters))
    copied, copied_lesions = [], []
    for case, patient in enumerate(clusters):
        for copy in range(weights[patient]):
            row = len(copied_lesions)
            copied_lesions.append(lesions_of_case[case])
            copied += [
                (row, -1 if e[1] < 0 else (copy + 1) * 1000 + e[1], e[2]) for e in events if e[0] == case
            ]
    got = model.evaluate(np.array([weights], dtype=np.uint16))[0]
    if sum(copied_lesions) == 0:
        assert np.isnan(got).all()
    else:
        np.testing.assert_allclose(
            got, plain_values(copied, lesions_of_case=copied_lesions), rtol=0, atol=1e-12
        )


@settings(max_examples=100, deadline=None)
@given(cohorts(), st.integers(0, 4), st.integers(0, 8))
def test_another_false_positive_never_raises_sensitivity(cohort, case, level):
    events, lesions_of_case, clusters = cohort
    before = evaluator(events, lesions_of_case=lesions_of_case, cluster_of_case=clusters)
    more = [*events, (case % len(lesions_of_case), -1, level / 8)]
    after = evaluator(more, lesions_of_case=lesions_of_case, cluster_of_case=clusters)
    for name, value in after.values().items():
        assert np.isnan(value) or value <= before.values()[name] + 1e-12


@settings(max_examples=60, deadline=None)
@given(cohorts(distinct=True), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(cohort, random):
    events, lesions_of_case, clusters = cohort
    shuffled = list(events)
    random.shuffle(shuffled)
    first = evaluator(events, lesions_of_case=lesions_of_case, cluster_of_case=clusters)
    second = evaluator(shuffled, lesions_of_case=lesions_of_case, cluster_of_case=clusters)
    np.testing.assert_array_equal(list(first.values().values()), list(second.values().values()))


@settings(max_examples=60, deadline=None)
@given(cohorts(), st.data())
def test_subset_equals_scoring_those_volumes_alone(cohort, data):
    events, lesions_of_case, clusters = cohort
    n = len(lesions_of_case)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    part = evaluator(events, lesions_of_case=lesions_of_case, cluster_of_case=clusters).subset(mask)
    chosen = [n for n, keep in zip(lesions_of_case, mask, strict=True) if keep]
    row = np.cumsum(mask) - 1
    mine = [(int(row[e[0]]), e[1], e[2]) for e in events if mask[e[0]]]
    got = list(part.values().values())
    if sum(chosen) == 0:
        assert np.isnan(got).all()
    else:
        np.testing.assert_array_equal(got, plain_values(mine, lesions_of_case=chosen))


@settings(max_examples=60, deadline=None)
@given(cohorts(), cohorts())
def test_stack_holds_both_models_and_weights_choose(first, second):
    a = evaluator(first[0], lesions_of_case=first[1], cluster_of_case=first[2])
    b = evaluator(second[0], lesions_of_case=second[1], cluster_of_case=second[2])
    both = a.stack(b)
    assert both.n_clusters == a.n_clusters + b.n_clusters
    for model, on in ((a, (1, 0)), (b, (0, 1))):
        weights = np.repeat(on, [a.n_clusters, b.n_clusters]).astype(np.uint16)[None, :]
        np.testing.assert_array_equal(both.evaluate(weights)[0], list(model.values().values()))


def test_stacked_extras_follow_their_own_model():
    a = evaluator([(0, 0, 0.5), *[(-1, -1, 0.9)] * 8], lesions_of_case=[1, 0])
    b = evaluator([(0, 0, 0.5)], lesions_of_case=[1, 0])
    both = a.stack(b)
    weights = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=np.uint16)
    column = both.index("sensitivity_at_2_all")
    assert both.evaluate(weights)[:, column].tolist() == [0.5, 1.0]


def test_subset_of_everybody_keeps_extras_and_a_part_drops_them():
    model = evaluator([(0, 0, 0.5), *[(-1, -1, 0.9)] * 8], lesions_of_case=[1, 0])
    assert model.subset(np.array([True, True])).values()["sensitivity_at_2_all"] == 0.5
    assert model.subset(np.array([True, False])).values()["sensitivity_at_2_all"] == 1.0


def test_leave_one_out_is_a_row_of_weights():
    events = [(0, 0, 0.9), (1, 1, 0.8), (2, -1, 0.95), (2, 2, 0.1)]
    model = evaluator(events, lesions_of_case=[1, 1, 1])
    rows = model.leave_one_out()
    for left_out in range(3):
        keep = np.arange(3) != left_out
        np.testing.assert_array_equal(rows[left_out], list(model.subset(keep).values().values()))
