"""The small models of response recipes, against known answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from elsewhere.recipes.mri.response_models import (
    Candidate,
    ColumnScale,
    ElasticNet,
    auc,
    balanced_shift,
    choose,
    fold_auc,
    inner_folds,
    sigmoid,
)


def blobs(n: int = 120, columns: int = 6, seed: int = 0, gap: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(np.int64)
    x = rng.normal(size=(n, columns))
    x[:, 0] += gap * y
    return x, y


def test_ridge_is_what_scikit_learn_finds():
    x, y = blobs()
    ours = ElasticNet(strength=0.05, l1=0.0, ranks=False, steps=20000).fit(x, y)
    z = (x - x.mean(0)) / x.std(0)
    theirs = LogisticRegression(C=1 / (len(y) * 0.05), class_weight="balanced", tol=1e-10, max_iter=5000)
    theirs.fit(z, y)
    np.testing.assert_allclose(ours.weight, theirs.coef_[0], atol=2e-4)
    assert ours.intercept == pytest.approx(float(theirs.intercept_[0]), abs=2e-4)


def test_a_strong_l1_penalty_leaves_nothing_and_a_weak_one_finds_the_column():
    x, y = blobs(gap=2.0)
    assert not ElasticNet(strength=5.0, l1=1.0).fit(x, y).weight.any()
    weak = ElasticNet(strength=0.05, l1=1.0).fit(x, y).weight
    assert int(np.argmax(np.abs(weak))) == 0
    assert (weak == 0).sum() >= 2


def test_the_elastic_net_meets_its_optimality_conditions():
    x, y = blobs(gap=1.0)
    net = ElasticNet(strength=0.08, l1=0.5, ranks=False, steps=20000).fit(x, y)
    z = (x - x.mean(0)) / x.std(0)
    w = np.where(y == 1, 0.5 / (y == 1).sum(), 0.5 / (y == 0).sum())
    pull = -z.T @ (w * (sigmoid(z @ net.weight + net.intercept) - y)) - 0.04 * net.weight
    on = net.weight != 0
    np.testing.assert_allclose(pull[on], 0.04 * np.sign(net.weight[on]), atol=1e-5)
    assert (np.abs(pull[~on]) <= 0.04 + 1e-5).all()


def test_ranks_do_not_mind_the_scale_of_a_column_and_hold_strangers_at_the_edge():
    x, _ = blobs()
    bent = x.copy()
    bent[:, 0] = np.exp(3 * bent[:, 0])
    plain, other = ColumnScale.of(x, ranks=True), ColumnScale.of(bent, ranks=True)
    np.testing.assert_allclose(plain.apply(x)[:, 1:], other.apply(bent)[:, 1:])
    assert np.corrcoef(plain.apply(x)[:, 0], other.apply(bent)[:, 0])[0, 1] > 0.99
    far = np.full((1, x.shape[1]), 1e9)
    assert (plain.apply(far) == plain.apply(x).max(axis=0)).all()


def test_missing_and_constant_columns():
    x, y = blobs()
    x[:, 1], x[::3, 2], x[:, 3] = 7.0, np.nan, np.nan
    found = ElasticNet(strength=0.1, l1=0.0).fit(x, y)
    assert np.isfinite(found.logit(x)).all()
    assert found.weight[1] == found.weight[3] == 0


@given(
    st.lists(st.tuples(st.booleans(), st.integers(-4, 4)), min_size=4, max_size=40).filter(
        lambda rows: 0 < sum(a for a, _ in rows) < len(rows)
    )
)
@settings(max_examples=60, deadline=None)
def test_auc_is_scikit_learns_and_the_shift_moves_no_rank(rows):
    y = np.array([int(a) for a, _ in rows])
    score = np.array([float(b) for _, b in rows])
    assert auc(y, score) == pytest.approx(roc_auc_score(y, score))
    p = sigmoid(score + balanced_shift(score, y))
    assert p[y == 1].mean() + p[y == 0].mean() == pytest.approx(1.0, abs=1e-6)
    assert auc(y, p) == pytest.approx(auc(y, score))


@given(st.integers(0, 1000), st.integers(2, 8), st.integers(2, 8))
@settings(max_examples=40, deadline=None)
def test_no_group_is_split_by_the_inner_folds(seed, positives, negatives):
    groups = [f"p{i // 2}" for i in range(2 * (positives + negatives))]
    y = np.array([int(i // 2 < positives) for i in range(len(groups))])
    folds = inner_folds(y, groups, seed=seed)
    assert folds is not None
    for group in set(groups):
        assert len({f for f, g in zip(folds.tolist(), groups, strict=True) if g == group}) == 1


def test_a_single_responder_cannot_be_folded():
    y = np.array([1, 0, 0, 0])
    assert inner_folds(y, list("abcd"), seed=1) is None
    fitted = choose(
        [Candidate(name="net", make=lambda seed: ElasticNet(strength=0.1, l1=0.0))],
        np.arange(8.0).reshape(4, 2),
        y,
        list("abcd"),
        seed=1,
    )
    assert np.isfinite(fitted.probability(np.zeros((1, 2)))).all()


class Constant:
    def fit(self, x, y):
        return self

    def logit(self, x):
        return np.zeros(len(x))


def test_a_constant_model_is_never_chosen_where_another_varies():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    fitted = choose(
        [
            Candidate(name="constant", make=lambda seed: Constant()),
            Candidate(name="net", make=lambda seed: ElasticNet(strength=0.01, l1=0.0)),
        ],
        x,
        y,
        [str(i) for i in range(60)],
        seed=3,
    )
    assert fitted.name == "net"
    assert np.ptp(fitted.probability(x)) > 0


def test_folds_are_not_compared_with_each_other():
    y = np.array([0, 1, 0, 1])
    fold = np.array([0, 0, 1, 1])
    assert fold_auc(y, np.array([0.0, 1.0, 10.0, 11.0]), fold) == 1.0


def test_at_one_half_the_training_cases_are_balanced():
    x, y = blobs(n=600, gap=1.5)
    fitted = choose(
        [Candidate(name="net", make=lambda seed: ElasticNet(strength=0.01, l1=0.0))],
        x,
        y,
        [str(i) for i in range(len(y))],
        seed=1,
    )
    yes = fitted.probability(x) >= 0.5
    assert abs(yes[y == 1].mean() - (~yes[y == 0]).mean()) < 0.1
