"""Weights: their distribution, their strata, and that threads and block sizes do not change them (ST-01)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from elsewhere.statistics import bootstrap_weights as resampling
from elsewhere.statistics.bootstrap_weights import WeightStream, draw, generator_for
from elsewhere.statistics.clusters import Clusters


def make_split(n: int, *, sites: int = 1, positive_share: float | None = None) -> Clusters:
    rng = np.random.default_rng(1)
    return Clusters(
        np.arange(n, dtype=np.int32),
        tuple(map(str, range(n))),
        rng.integers(0, sites, n).astype(np.int32) if sites > 1 else np.zeros(n, dtype=np.int32),
        tuple(f"s{i}" for i in range(sites)),
        None if positive_share is None else rng.random(n) < positive_share,
    )


def all_weights(stream: WeightStream) -> np.ndarray:
    return np.concatenate([piece for _, piece in stream])


class _SumOfWeights:
    """The least an evaluator can be: weights times patient numbers."""

    specs = (None,)

    def evaluate(self, weights):
        return (weights @ np.arange(weights.shape[1], dtype=float))[:, None]


def test_each_stratum_keeps_its_size():
    partition = make_split(403, sites=3, positive_share=0.3)
    weights = all_weights(WeightStream(partition, key="k", seed=1, resamples=100, by_class=True))
    strata = partition.strata(by_class=True)
    assert strata.max() == 5  # each class of each site has enough patients for a stratum of its own
    for s in range(6):
        inside = strata == s
        assert (weights[:, inside].sum(axis=1) == inside.sum()).all()


def test_many_small_sites_keep_the_variance_of_the_patients():
    """50 sites of 2 patients: a mean must vary over the resamples as it varies over cohorts (ST-01a)."""
    n = 100
    partition = Clusters(
        np.arange(n, dtype=np.int32),
        tuple(map(str, range(n))),
        np.repeat(np.arange(50), 2).astype(np.int32),
        tuple(map(str, range(50))),
        np.arange(n) % 10 == 0,
    )
    x = np.random.default_rng(0).normal(size=n)
    for by_class in (False, True):
        w = all_weights(WeightStream(partition, key="k", seed=3, resamples=3000, by_class=by_class))
        assert (w @ x / n).std() == pytest.approx(x.std(ddof=1) / np.sqrt(n), rel=0.08)


def test_given_strata_take_the_place_of_the_sites():
    """A caller that has strata of its own keeps them, small ones included: nothing is pooled twice."""
    partition = make_split(30)
    strata = np.repeat([0, 1, 2], 10).astype(np.int32)
    w = all_weights(WeightStream(partition, key="k", seed=3, resamples=200, strata=strata))
    for s in range(3):
        assert (w[:, strata == s].sum(axis=1) == 10).all()


@pytest.mark.parametrize("piece", [8, 8192])
def test_weights_are_multinomial(monkeypatch, piece):
    """Drawing piece by piece has the moments of drawing over the whole stratum."""
    monkeypatch.setattr(resampling, "_PIECE", piece)
    n, b = 40, 6000
    w = all_weights(WeightStream(make_split(n), key="k", seed=3, resamples=b)).astype(float)
    assert np.allclose(w.mean(axis=0), 1.0, atol=5 * np.sqrt(1 / b))
    assert np.var(w) == pytest.approx(1 - 1 / n, rel=0.03)
    across = np.mean((w[:, 0] - 1) * (w[:, -1] - 1))
    assert across == pytest.approx(-1 / n, abs=5 / np.sqrt(b))
    observed = np.bincount(w[:, 5].astype(int), minlength=6)[:6]
    expected = stats.binom.pmf(np.arange(6), n, 1 / n) * b
    assert stats.chisquare(observed[:5], expected[:5] * observed[:5].sum() / expected[:5].sum()).pvalue > 1e-4


def test_stream_depends_on_key_and_seed_alone(monkeypatch):
    partition = make_split(50)
    one = all_weights(WeightStream(partition, key="k", seed=3, resamples=130))
    monkeypatch.setattr(resampling, "_ROW_BUDGET_BYTES", 700)
    again = all_weights(WeightStream(partition, key="k", seed=3, resamples=130))
    longer = all_weights(WeightStream(partition, key="k", seed=3, resamples=300))[:130]
    assert (one == again).all() and (one == longer).all()
    assert (one != all_weights(WeightStream(partition, key="other", seed=3, resamples=130))).any()
    assert (one != all_weights(WeightStream(partition, key="k", seed=4, resamples=130))).any()


def test_threads_do_not_change_the_draws():
    stream = WeightStream(make_split(30), key="k", seed=3, resamples=200)
    seen: list[int] = []
    one = draw([_SumOfWeights()], stream, threads=1)[0]
    three = draw([_SumOfWeights(), _SumOfWeights()], stream, threads=3, progress=seen.append)
    assert (one == three[0]).all() and (one == three[1]).all()
    assert sum(seen) == 200


def test_named_streams_differ():
    a, b = generator_for("k", 1, 0), generator_for("k", 1, 1)
    assert a.integers(0, 2**62) != b.integers(0, 2**62)
