"""ST-15: the analysis of reader studies against plain loops, published numbers, identities and other methods."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from elsewhere.errors import UserError
from elsewhere.statistics.mrmc import (
    FigureMatrix,
    RandomFactors,
    analyse_readers,
    compare_with_panel,
    jackknife_covariance,
)

BOTH, CASES, READERS = RandomFactors.READERS_AND_CASES, RandomFactors.CASES, RandomFactors.READERS


def names(count, prefix):
    return tuple(f"{prefix}{at}" for at in range(count))


def study_of(values, left_out, **more):
    values = np.asarray(values)
    if "readers" not in more:
        more["readers"] = names(values.shape[1], "r")
    return FigureMatrix.from_left_out(values, left_out, treatments=names(len(values), "t"), **more)


def draw(treatments, readers, cases, seed, *, shift=0.0):
    """Means of random cases as figures of merit: their values without each case are known."""
    rng = np.random.default_rng(seed)
    data = (
        rng.normal(size=(1, 1, cases))
        + 0.5 * rng.normal(size=(treatments, 1, cases))
        + 0.5 * rng.normal(size=(1, readers, cases))
        + 0.3 * rng.normal(size=(treatments, readers, 1))
        + rng.normal(size=(treatments, readers, cases))
    )
    data[-1] += shift
    values = data.mean(axis=2)
    return values, (cases * values[:, :, None] - data) / (cases - 1), data


def symmetric(treatments, readers, var, cov1, cov2, cov3):
    matrix = np.empty((treatments, readers, treatments, readers))
    for i, j, k, m in itertools.product(range(treatments), range(readers), range(treatments), range(readers)):
        same_treatment, same_reader = i == k, j == m
        matrix[i, j, k, m] = (
            var
            if same_treatment and same_reader
            else cov1
            if same_reader
            else cov2
            if same_treatment
            else cov3
        )
    return matrix.reshape(treatments * readers, -1)


def plain(values, left_out):
    """The textbook in loops: mean squares, error covariances, and the three F with their df."""
    t, r, n = left_out.shape
    cov = {}
    for i, j, k, m in itertools.product(range(t), range(r), range(t), range(r)):
        a, b = left_out[i, j], left_out[k, m]
        cov[i, j, k, m] = (
            (n - 1) / n * sum((x - a.mean()) * (y - b.mean()) for x, y in zip(a, b, strict=True))
        )
    groups = {"var": [], "cov1": [], "cov2": [], "cov3": []}
    for (i, j, k, m), value in cov.items():
        name = "var" if (i, j) == (k, m) else "cov1" if j == m else "cov2" if i == k else "cov3"
        groups[name].append(value)
    error = {name: sum(found) / len(found) for name, found in groups.items()}
    mean = values.mean()
    ms_t = r / (t - 1) * sum((values[i].mean() - mean) ** 2 for i in range(t))
    ms_r = t / (r - 1) * sum((values[:, j].mean() - mean) ** 2 for j in range(r))
    ms_tr = sum(
        (values[i, j] - values[i].mean() - values[:, j].mean() + mean) ** 2
        for i, j in itertools.product(range(t), range(r))
    ) / ((t - 1) * (r - 1))
    shared = max(error["cov2"] - error["cov3"], 0)
    both = ms_tr + r * shared
    return {
        "ms": (ms_t, ms_r, ms_tr),
        "error": error,
        BOTH: (ms_t / both, both**2 / (ms_tr**2 / ((t - 1) * (r - 1)))),
        CASES: (ms_t / (error["var"] - error["cov1"] + (r - 1) * shared), math.inf),
        READERS: (ms_t / ms_tr, (t - 1) * (r - 1)),
    }


@pytest.mark.parametrize(("treatments", "readers", "cases"), [(2, 3, 12), (3, 4, 9), (2, 2, 30), (4, 2, 7)])
def test_everything_is_as_in_plain_loops(treatments, readers, cases):
    values, left_out, _ = draw(treatments, readers, cases, seed=treatments * 100 + readers)
    expected = plain(values, left_out)
    found = analyse_readers(study_of(values, left_out))
    squares = found.mean_squares
    assert (squares.treatment, squares.reader, squares.interaction) == pytest.approx(
        expected["ms"], rel=1e-12
    )
    for name, value in expected["error"].items():
        assert getattr(found.covariances, name) == pytest.approx(value, rel=1e-10, abs=1e-15)
    for random in RandomFactors:
        test = found.analyses[random].test
        f, df = expected[random]
        assert test.f == pytest.approx(f, rel=1e-10)
        assert test.df2 == pytest.approx(df, rel=1e-10)
        df1 = treatments - 1
        p = stats.chi2.sf(df1 * f, df1) if math.isinf(df) else stats.f.sf(f, df1, df)
        assert test.p == pytest.approx(p, rel=1e-9)


def test_the_published_analysis_of_the_van_dyke_study():
    """AUCs of five readers with two MRI techniques (Van Dyke 1993) and their error covariances, as in Hillis (2007).

    The covariances are printed with eight decimals, so that F and df are met to about four digits.
    """
    values = [
        [0.91964573, 0.85877850, 0.90386473, 0.97310789, 0.82979066],
        [0.94782609, 0.90531401, 0.92173913, 0.99935588, 0.92995169],
    ]
    covariance = symmetric(2, 5, 0.00080229, 0.00034661, 0.00034407, 0.00023903)
    study = FigureMatrix.crossed(values, covariance, treatments=("CINE", "SE"), readers=names(5, "r"))
    found = analyse_readers(study)
    assert found.mean_squares.treatment == pytest.approx(0.004796, abs=5e-7)
    assert found.mean_squares.interaction == pytest.approx(0.000551, abs=5e-7)
    expected = {BOTH: (4.456, 15.26, 0.0517), CASES: (5.476, math.inf, 0.0193), READERS: (8.704, 4.0, 0.0420)}
    for random, (f, df, p) in expected.items():
        test = found.analyses[random].test
        assert test.f == pytest.approx(f, abs=2e-3)
        assert test.df2 == pytest.approx(df, abs=5e-3)
        assert test.p == pytest.approx(p, abs=5e-5)
    difference = found.analyses[BOTH].difference("CINE", "SE")
    assert difference.value == pytest.approx(-0.0438, abs=5e-6)
    assert (difference.lo, difference.hi) == pytest.approx((-0.08796, 0.00036), abs=2e-5)


@pytest.mark.parametrize(("treatments", "readers", "seed"), [(2, 4, 1), (3, 3, 2), (2, 6, 3)])
def test_pseudovalues_of_dorfman_berbaum_and_metz_give_the_same_f(treatments, readers, seed):
    """Hillis et al. (2005): with jackknife covariances the analysis of pseudovalues is the same one."""
    cases = 15
    values, left_out, _ = draw(treatments, readers, cases, seed)
    pseudo = cases * values[:, :, None] - (cases - 1) * left_out
    pseudo += (values - pseudo.mean(axis=2))[:, :, None]

    def effect(*kept):
        """The mean square of the interaction of these axes."""
        total = np.zeros_like(pseudo)
        for size in range(len(kept) + 1):
            for axes in itertools.combinations(kept, size):
                over = tuple(a for a in range(3) if a not in axes)
                total = total + (-1) ** (len(kept) - size) * pseudo.mean(axis=over, keepdims=True)
        return (total**2).sum() / np.prod([pseudo.shape[a] - 1 for a in kept])

    shared = max(effect(0, 2) - effect(0, 1, 2), 0.0)
    f = effect(0) / (effect(0, 1) + shared)
    df = (effect(0, 1) + shared) ** 2 / (effect(0, 1) ** 2 / ((treatments - 1) * (readers - 1)))
    found = analyse_readers(study_of(values, left_out)).analyses[BOTH].test
    assert found.f == pytest.approx(f, rel=1e-10)
    assert found.df2 == pytest.approx(df, rel=1e-10)


def test_fixed_cases_are_the_paired_t_test_of_the_readers():
    values, left_out, _ = draw(2, 6, 20, seed=5, shift=0.4)
    found = analyse_readers(study_of(values, left_out)).analyses[READERS]
    expected = stats.ttest_rel(values[1], values[0])
    row = found.differences[0]
    assert (row.t, row.p, row.df) == pytest.approx((expected.statistic, expected.pvalue, 5), rel=1e-12)
    interval = expected.confidence_interval(0.95)
    assert (row.lo, row.hi) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert found.test.f == pytest.approx(row.t**2, rel=1e-12)
    mean = stats.ttest_1samp(values[0], 0).confidence_interval(0.95)
    assert (found.means[0].lo, found.means[0].hi) == pytest.approx((mean.low, mean.high), rel=1e-12)


def test_fixed_readers_are_the_jackknife_of_their_mean():
    values, left_out, data = draw(2, 4, 25, seed=8)
    found = analyse_readers(study_of(values, left_out))
    assert found.covariances.cov2 > found.covariances.cov3
    row = found.analyses[CASES].differences[0]
    per_case = data[1].mean(axis=0) - data[0].mean(axis=0)
    assert row.se == pytest.approx(per_case.std(ddof=1) / math.sqrt(per_case.size), rel=1e-12)
    assert row.p == pytest.approx(2 * stats.norm.sf(abs(row.value) / row.se), rel=1e-12)
    mean = found.analyses[CASES].means[0]
    assert mean.se == pytest.approx(data[0].mean(axis=0).std(ddof=1) / 5, rel=1e-12)
    for row in found.reader_differences:
        at = int(row.reader[1:])
        each = data[1, at] - data[0, at]
        assert row.se == pytest.approx(each.std(ddof=1) / 5, rel=1e-12)


def test_one_reader_is_the_paired_jackknife_and_readers_cannot_be_random():
    values, left_out, data = draw(2, 1, 30, seed=11, shift=0.5)
    found = analyse_readers(study_of(values, left_out))
    row, each = found.analyses[CASES].differences[0], data[1, 0] - data[0, 0]
    assert row.se == pytest.approx(each.std(ddof=1) / math.sqrt(30), rel=1e-12)
    for random in (BOTH, READERS):
        assert found.analyses[random].test.f is None
        assert "one reader" in found.analyses[random].test.reason
        assert found.analyses[random].differences[0].lo is None
        assert math.isnan(found.analyses[random].differences[0].ends(0.9)[0])
    assert found.covariances.cov2 is None
    assert found.variance_components == {"reader": None, "treatment_reader": None}


def test_one_treatment_has_intervals_and_no_test():
    values, left_out, _ = draw(1, 5, 20, seed=12)
    found = analyse_readers(study_of(values, left_out))
    assert found.analyses[BOTH].test.reason == "there is one treatment"
    assert found.analyses[BOTH].differences == ()
    mean = found.analyses[BOTH].means[0]
    cov2, ms = found.of_treatment[0].cov2, values[0].var(ddof=1)
    total = ms + 5 * max(cov2, 0)
    assert mean.se == pytest.approx(math.sqrt(total / 5), rel=1e-12)
    assert mean.df == pytest.approx(total**2 / (ms**2 / 4), rel=1e-12)


def test_identical_treatments_have_no_test_and_no_false_certainty():
    values, left_out, _ = draw(1, 4, 20, seed=13)
    twice = study_of(np.repeat(values, 2, axis=0), np.repeat(left_out, 2, axis=0))
    for analysis in analyse_readers(twice).analyses.values():
        assert analysis.test.f is None and "standard error is 0" in analysis.test.reason
        assert analysis.differences[0].value == 0.0 and analysis.differences[0].p is None
    assert all(row.p is None and row.se == 0 for row in analyse_readers(twice).reader_differences)


def test_the_sums_of_squares_add_up():
    values, left_out, _ = draw(3, 5, 10, seed=14)
    squares = analyse_readers(study_of(values, left_out)).mean_squares
    total = ((values - values.mean()) ** 2).sum()
    parts = (
        squares.treatment * squares.df_treatment
        + squares.reader * squares.df_reader
        + squares.interaction * squares.df_interaction
    )
    assert parts == pytest.approx(total, rel=1e-12)
    assert squares.df_treatment + squares.df_reader + squares.df_interaction == values.size - 1


def test_order_and_scale_change_nothing():
    values, left_out, _ = draw(3, 4, 12, seed=15)
    first = analyse_readers(study_of(values, left_out))
    turned = analyse_readers(study_of(values[::-1, ::-1], left_out[::-1, ::-1, ::-1]))
    scaled = analyse_readers(study_of(100 - 3 * values, 100 - 3 * left_out))
    for random in RandomFactors:
        one = first.analyses[random].test
        for other in (turned.analyses[random].test, scaled.analyses[random].test):
            assert (other.f, other.df2) == pytest.approx((one.f, one.df2), rel=1e-9)


def test_a_negative_difference_of_covariances_counts_as_zero_and_is_reported():
    values = np.array([[0.80, 0.75, 0.70], [0.90, 0.80, 0.78]])
    covariance = symmetric(2, 3, 0.002, 0.001, 0.0004, 0.0006)
    study = FigureMatrix.crossed(values, covariance, treatments=("a", "b"), readers=names(3, "r"))
    found = analyse_readers(study)
    assert any("Cov2 - Cov3 is negative" in note for note in found.notes)
    assert found.analyses[BOTH].test.denominator == pytest.approx(found.mean_squares.interaction)
    assert found.analyses[BOTH].test.df2 == pytest.approx(2.0)
    assert found.analyses[CASES].test.denominator == pytest.approx(0.001)


def test_nested_readers_with_fixed_cases_are_the_t_test_of_two_samples():
    values, left_out, _ = draw(2, 5, 20, seed=16, shift=0.5)
    rows = [names(5, "a"), names(5, "b")]
    found = analyse_readers(study_of(values, left_out, readers=rows, nested=True))
    expected = stats.ttest_ind(values[1], values[0])
    row = found.analyses[READERS].differences[0]
    assert (row.t, row.p, row.df) == pytest.approx((expected.statistic, expected.pvalue, 8), rel=1e-12)
    assert found.covariances.cov1 is None and found.reader_differences == ()
    both = found.analyses[BOTH].test
    shared = max(found.covariances.cov2 - found.covariances.cov3, 0)
    within = found.mean_squares.interaction
    assert both.denominator == pytest.approx(within + 5 * shared, rel=1e-12)
    assert both.df2 == pytest.approx((within + 5 * shared) ** 2 / (within**2 / 8), rel=1e-12)


def test_nested_readers_with_random_cases_are_the_jackknife_of_the_means():
    values, left_out, data = draw(2, 3, 40, seed=17)
    rows = [names(3, "a"), names(3, "b")]
    found = analyse_readers(study_of(values, left_out, readers=rows, nested=True))
    assert found.covariances.cov2 > found.covariances.cov3
    each = data[1].mean(axis=0) - data[0].mean(axis=0)
    assert found.analyses[CASES].differences[0].se == pytest.approx(
        each.std(ddof=1) / math.sqrt(40), rel=1e-12
    )


def test_leaving_out_patients_is_a_jackknife_over_sums():
    """With whole patients left out, the variance of a mean is that of the patients' sums."""
    rng = np.random.default_rng(18)
    sums, size = rng.normal(size=12), 3
    without = (sums.sum() - sums) / (11 * size)
    variance = jackknife_covariance(without)[0, 0]
    assert variance == pytest.approx(sums.var(ddof=1) / 12 / size**2, rel=1e-12)


def test_a_model_against_the_panel():
    values, left_out, data = draw(1, 6, 30, seed=19)
    study = study_of(values, left_out)
    found = compare_with_panel(study, model="r0")
    away = values[0, 0] - values[0, 1:]
    hupse = stats.ttest_1samp(away, 0)
    row = found.differences[READERS]
    assert (row.t, row.p, row.df) == pytest.approx((hupse.statistic, hupse.pvalue, 4), rel=1e-12)
    each = data[0, 0] - data[0, 1:].mean(axis=0)
    assert found.differences[CASES].se == pytest.approx(each.std(ddof=1) / math.sqrt(30), rel=1e-12)
    both, ms = found.differences[BOTH], away.var(ddof=1)
    total = ms + 5 * max(found.errors.cov2, 0)
    assert both.se == pytest.approx(math.sqrt(total / 5), rel=1e-12)
    assert both.df == pytest.approx(total**2 / (ms**2 / 4), rel=1e-12)
    assert found.mean == pytest.approx(values[0, 1:].mean())
    assert found.above == int((values[0, 1:] > values[0, 0]).sum())


def test_a_model_against_one_reader():
    values, left_out, data = draw(1, 2, 30, seed=20)
    found = compare_with_panel(study_of(values, left_out), model="r1")
    each = data[0, 1] - data[0, 0]
    assert found.differences[CASES].se == pytest.approx(each.std(ddof=1) / math.sqrt(30), rel=1e-12)
    assert "one reader" in found.differences[BOTH].reason


def test_the_interval_at_another_level():
    values, left_out, _ = draw(2, 5, 20, seed=21)
    study = study_of(values, left_out)
    wide, narrow = (
        analyse_readers(study, level=level).analyses[BOTH].differences[0] for level in (0.95, 0.9)
    )
    assert wide.ends(0.9) == pytest.approx((narrow.lo, narrow.hi), rel=1e-12)
    swapped = analyse_readers(study).analyses[BOTH].difference("t0", "t1")
    assert (swapped.value, swapped.lo, swapped.hi) == pytest.approx((-wide.value, -wide.hi, -wide.lo))
    with pytest.raises(KeyError):
        analyse_readers(study).analyses[BOTH].difference("t0", "t9")


@settings(max_examples=40, deadline=None)
@given(
    treatments=st.integers(1, 4),
    readers=st.integers(1, 5),
    cases=st.integers(2, 12),
    seed=st.integers(0, 10_000),
    nested=st.booleans(),
)
def test_intervals_hold_their_value_and_p_is_a_probability(treatments, readers, cases, seed, nested):
    values, left_out, _ = draw(treatments, readers, cases, seed)
    rows = [names(readers, f"{i}-") for i in range(treatments)] if nested else names(readers, "r")
    found = analyse_readers(study_of(values, left_out, readers=rows, nested=nested))
    for analysis in found.analyses.values():
        assert analysis.test.p is None or 0.0 <= analysis.test.p <= 1.0
        for row in (*analysis.means, *analysis.differences):
            assert (row.lo is None) == (row.reason is not None)
            assert row.lo is None or row.lo <= row.value <= row.hi
        holm = [row.p_holm for row in analysis.differences if row.p is not None]
        assert all(row.p <= row.p_holm for row in analysis.differences if row.p is not None)
        assert all(0.0 <= p <= 1.0 for p in holm)


def test_what_cannot_be_analysed_is_refused_with_a_reason():
    values, left_out, _ = draw(2, 2, 10, seed=22)
    with pytest.raises(UserError, match="r1 with t0"):
        study_of(np.array([[0.8, np.nan], [0.7, 0.9]]), left_out)
    with pytest.raises(UserError, match="undefined without one of the cases"):
        study_of(values, np.where(left_out > left_out.max() - 1e-12, np.nan, left_out))
    with pytest.raises(UserError, match="1 cases to leave out"):
        study_of(values, left_out[:, :, :1])
    with pytest.raises(UserError, match="'a' is there twice"):
        FigureMatrix.crossed(values, np.eye(4), treatments=("a", "a"), readers=("1", "2"))
    with pytest.raises(UserError, match="shape"):
        FigureMatrix.crossed(values, np.eye(3), treatments=("a", "b"), readers=("1", "2"))
    with pytest.raises(UserError, match="other numbers of names"):
        FigureMatrix.crossed(values, np.eye(4), treatments=("a", "b"), readers=("1",))
    with pytest.raises(UserError, match="not finite"):
        FigureMatrix.crossed(values, np.full((4, 4), np.nan), treatments=("a", "b"), readers=("1", "2"))
    with pytest.raises(UserError, match="other readers"):
        FigureMatrix(
            values=values,
            covariance=np.eye(4),
            treatments=("a", "b"),
            readers=(("1", "2"), ("2", "1")),
        )
    with pytest.raises(UserError, match="level"):
        analyse_readers(study_of(values, left_out), level=95)
    with pytest.raises(UserError, match="one treatment"):
        compare_with_panel(study_of(values, left_out), model="r0")
    with pytest.raises(UserError, match="'AI'"):
        compare_with_panel(study_of(values[:1], left_out[:1]), model="AI")
    with pytest.raises(UserError, match="unknown random factor 'reader'"):
        RandomFactors.parse("reader")
    with pytest.raises(UserError, match="no random factor"):
        RandomFactors.parse(" , ")
