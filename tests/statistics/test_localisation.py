"""The JAFROC figures against a plain triple loop over cases, lesions and cases, and what they must not notice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.statistics.auroc import auroc_components
from elsewhere.statistics.localisation import (
    FIGURES,
    LesionTruth,
    Marks,
    figure_of_merit,
    figure_sums,
    mark_fractions,
    ratings_of,
)


def plain_figure(figure, truth, marks) -> float:
    """The definition, written out: every lesion (or case with lesions) against every other case."""

    def psi(x, y):
        return 1.0 if x > y else 0.5 if x == y else 0.0

    def highest(keep):
        return max(marks.score[keep], default=-np.inf)

    total = weights = 0.0
    with_lesion = set(truth.case.tolist())
    everyone = figure.endswith("1")
    others = [k for k in range(truth.n_cases) if everyone or k not in with_lesion]
    for case in sorted(with_lesion):
        lesions = np.flatnonzero(truth.case == case)
        if figure == "inferred_roc":
            items = [(1.0, highest(marks.case == case))]
        else:
            equal = truth.weight is None
            items = [
                (
                    (1.0 / lesions.size if equal else truth.weight[m]) if figure.startswith("w") else 1.0,
                    highest(marks.lesion == m),
                )
                for m in lesions
            ]
        for weight, rating in items:
            weights += weight
            for k in others:
                total += weight * psi(rating, highest((marks.case == k) & (marks.lesion < 0)))
    return total / weights / len(others) if weights and others else np.nan


def drawn(seed: int, *, cases: int = 14, levels: int = 5, own_weights: bool = False):
    """Cases with 0 to 3 lesions, some without a mark, ratings with many ties."""
    rng = np.random.default_rng(seed)
    lesion_case = np.repeat(np.arange(cases), rng.choice([0, 0, 1, 1, 2, 3], cases))
    n = int(rng.integers(0, 5 * cases))
    lesion = np.where(rng.random(n) < 0.4, rng.integers(0, max(lesion_case.size, 1), n), -1)
    if not lesion_case.size:
        lesion[:] = -1
    case = rng.integers(0, cases, n)
    case[lesion >= 0] = lesion_case[lesion[lesion >= 0]]
    score = rng.integers(0, levels, n) - 2.0
    weight = None
    if own_weights:
        raw = rng.random(lesion_case.size) + 0.1
        weight = raw / np.bincount(lesion_case, raw, cases)[lesion_case]
    truth = LesionTruth(n_cases=cases, case=lesion_case, weight=weight)
    return truth, Marks(case=case, score=score, lesion=lesion)


def without_case(truth: LesionTruth, marks: Marks, case: int):
    kept = truth.case != case
    number = np.cumsum(kept) - 1
    stay = marks.case != case
    lesion = marks.lesion[stay]
    smaller = LesionTruth(
        n_cases=truth.n_cases - 1,
        case=truth.case[kept] - (truth.case[kept] > case),
        weight=None if truth.weight is None else truth.weight[kept],
    )
    return smaller, Marks(
        case=marks.case[stay] - (marks.case[stay] > case),
        score=marks.score[stay],
        lesion=np.where(lesion >= 0, number[lesion], -1) if number.size else lesion,
    )


@given(seed=st.integers(0, 100_000), levels=st.sampled_from([1, 3, 1000]), own=st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_figure_equals_the_triple_loop(seed, levels, own):
    truth, marks = drawn(seed, levels=levels, own_weights=own)
    for figure in FIGURES:
        assert figure_of_merit(figure, truth, marks) == pytest.approx(
            plain_figure(figure, truth, marks), abs=1e-12, nan_ok=True
        )


@given(seed=st.integers(0, 100_000))
@settings(max_examples=25, deadline=None)
def test_a_rising_transformation_of_the_ratings_changes_nothing(seed):
    truth, marks = drawn(seed)
    moved = Marks(case=marks.case, score=np.exp(3.0 * marks.score) - 7.0, lesion=marks.lesion)
    order = np.random.default_rng(seed).permutation(marks.case.size)
    mixed = Marks(case=marks.case[order], score=marks.score[order], lesion=marks.lesion[order])
    for figure in FIGURES:
        value = figure_of_merit(figure, truth, marks)
        for other in (moved, mixed):
            assert figure_of_merit(figure, truth, other) == pytest.approx(value, abs=1e-12, nan_ok=True)


@given(seed=st.integers(0, 100_000), own=st.booleans())
@settings(max_examples=15, deadline=None)
def test_without_each_case_equals_the_figure_of_the_other_cases(seed, own):
    truth, marks = drawn(seed, cases=8, own_weights=own)
    for figure in FIGURES:
        closed = figure_sums(figure, truth, marks).without_each()
        if np.isnan(figure_of_merit(figure, truth, marks)):
            assert np.isnan(closed).all()
            continue
        plain = [plain_figure(figure, *without_case(truth, marks, k)) for k in range(truth.n_cases)]
        assert closed == pytest.approx(np.array(plain), abs=1e-12, nan_ok=True)


def test_clusters_of_several_cases_are_left_out_together():
    truth, marks = drawn(3, cases=20)
    patient = np.arange(20) // 4
    for figure in FIGURES:
        sums = figure_sums(figure, truth, marks, cluster_of_case=patient)
        left = sums.without_each()
        for c in range(5):
            small, fewer = truth, marks
            for k in range(4 * c + 3, 4 * c - 1, -1):
                small, fewer = without_case(small, fewer, k)
            assert left[c] == pytest.approx(plain_figure(figure, small, fewer), abs=1e-12)


def test_one_lesion_per_case_and_no_other_marks_there_is_an_auroc_with_its_clustered_variance():
    rng = np.random.default_rng(5)
    label, patient = np.arange(60) % 2, np.arange(60) // 3
    score = rng.normal(size=60) + label
    truth = LesionTruth(n_cases=60, case=np.flatnonzero(label))
    lesion = np.full(60, -1)
    lesion[label > 0] = np.arange(30)
    marks = Marks(case=np.arange(60), score=score, lesion=lesion)
    expected = auroc_components(label, score, patient)
    for figure in ("afroc", "wafroc", "inferred_roc"):
        parts = figure_sums(figure, truth, marks, cluster_of_case=patient).components()
        assert parts.value == pytest.approx(expected.value, abs=1e-14)
        assert parts.variance() == pytest.approx(expected.variance(), abs=1e-14)
        assert parts.disjoint_pairs == expected.disjoint_pairs


def test_a_lesion_rich_case_weighs_as_much_as_any_other_in_wafroc_alone():
    truth = LesionTruth(n_cases=4, case=np.array([0, 0, 0, 1]))
    marks = Marks(
        case=np.array([0, 0, 0, 2, 3]),
        score=np.array([3.0, 3.0, 3.0, 1.0, 1.0]),
        lesion=np.array([0, 1, 2, -1, -1]),
    )
    assert figure_of_merit("afroc", truth, marks) == pytest.approx(0.75)
    assert figure_of_merit("wafroc", truth, marks) == pytest.approx(0.5)
    assert mark_fractions(truth, marks).max_llf == 0.75
    assert mark_fractions(truth, marks).max_nlf == 0.5


def test_undefined_sides_are_nan_and_all_cases_serve_where_none_is_normal():
    truth = LesionTruth(n_cases=2, case=np.array([0, 1]))
    marks = Marks(case=np.array([0, 1]), score=np.array([2.0, 1.0]), lesion=np.array([0, -1]))
    for figure in ("wafroc", "afroc", "inferred_roc"):
        sums = figure_sums(figure, truth, marks)
        assert np.isnan(sums.value) and sums.components() is None and np.isnan(sums.without_each()).all()
    assert figure_of_merit("wafroc1", truth, marks) == pytest.approx((2 + 0.5) / 4)
    nobody = LesionTruth(n_cases=2, case=np.array([], dtype=int))
    assert np.isnan(figure_of_merit("afroc1", nobody, marks_of_none()))
    assert np.isnan(mark_fractions(nobody, ratings_of(nobody, marks_of_none())).max_llf)


def marks_of_none() -> Marks:
    return Marks(case=np.array([], dtype=int), score=np.array([]), lesion=np.array([], dtype=int))


@pytest.mark.parametrize(
    ("case", "score", "lesion", "words"),
    [
        ([0], [np.nan], [-1], "finite"),
        ([0], [-np.inf], [-1], "finite"),
        ([5], [1.0], [-1], "none of the cases"),
        ([1], [1.0], [0], "another case"),
        ([0], [1.0], [7], "another case"),
    ],
)
def test_marks_that_do_not_fit_are_refused(case, score, lesion, words):
    truth = LesionTruth(n_cases=2, case=np.array([0]))
    with pytest.raises(ValueError, match=words):
        ratings_of(truth, Marks(case=np.array(case), score=np.array(score), lesion=np.array(lesion)))


@pytest.mark.parametrize(
    ("case", "weight", "words"),
    [([3], None, "none of the cases"), ([0, 0], [0.5, 0.4], "add up"), ([0, 0], [1.0, 0.0], "above 0")],
)
def test_truth_that_does_not_fit_is_refused(case, weight, words):
    with pytest.raises(ValueError, match=words):
        LesionTruth(n_cases=2, case=np.array(case), weight=None if weight is None else np.array(weight))
