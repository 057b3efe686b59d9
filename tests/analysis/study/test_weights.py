"""The ranking at every fairness weight: the published table's known answers, and what must hold for any table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions
from elsewhere.statistics.leaderboard import centred_interval, weight_steps
from elsewhere.statistics.ranking import ranks_of
from elsewhere.statistics.seeds import SeedMean
from worlds.recipe_results import PUBLISHED, published

unit = st.floats(0, 1, allow_nan=False)


@pytest.mark.parametrize(("weight", "changed"), [(0.5, 0), (0.4, 6), (0.2, 13)])
def test_the_published_table_of_responses(weight, changed):
    at = published().query("weight == @weight")
    assert (at["change"] != 0).sum() == changed


def test_without_fairness_team_pm_is_first():
    at = published().query("weight == 0")
    assert at.loc[at["rank"] == 1, "method"].tolist() == ["PM"]
    assert at.set_index("method").loc["PM", "change"] == -12


def test_the_published_order_stands_at_the_protocols_weight():
    at = published().query("weight == 0.5").sort_values("rank")
    assert at["method"].tolist() == pd.read_csv(PUBLISHED)["team"].tolist()


@given(st.lists(st.tuples(unit, unit), min_size=2, max_size=6), st.integers(0, 1000))
def test_ends_and_bootstrap_ranks(points, seed):
    perf, fair = (np.array(v) for v in zip(*points, strict=True))
    rng = np.random.default_rng(seed)
    shape = (25, perf.size)
    made = weight_steps(
        perf, fair, performance_draws=perf + rng.normal(0, 0.1, shape),
        fairness_draws=fair + rng.normal(0, 0.1, shape), steps=5,
    )  # fmt: skip
    assert made.ranks[0].tolist() == ranks_of(perf).tolist()
    assert made.ranks[-1].tolist() == ranks_of(fair).tolist()
    assert (
        (made.rank_lo <= made.rank_hi).all()
        and (made.rank_lo >= 1).all()
        and (made.rank_hi <= perf.size).all()
    )
    still = weight_steps(
        perf, fair, performance_draws=np.tile(perf, (3, 1)), fairness_draws=np.tile(fair, (3, 1)), steps=5
    )
    assert (still.rank_lo == still.ranks).all() and (still.rank_hi == still.ranks).all()


@given(unit, st.integers(2, 60), st.integers(0, 1000), st.floats(-3, 3))
def test_a_centred_interval_keeps_its_point(value, n, seed, push):
    draws = value + push + np.random.default_rng(seed).normal(0, 0.2, n)
    low, high = centred_interval(value, draws, df=30)
    assert low <= value <= high


def test_a_centred_interval_of_normal_draws_has_the_t_width():
    draws = np.array([-1.0, 1.0] * 50)
    low, high = centred_interval(0.3, draws, df=9)
    se = draws.std(ddof=1) * np.sqrt(10 / 9)
    assert (high - low) / 2 == pytest.approx(2.262157 * se, rel=1e-5)
    assert (
        centred_interval(float("nan"), draws, df=9) is None and centred_interval(0.3, draws[:1], df=9) is None
    )


def test_seeds_of_other_cases_are_not_averaged(mri_results):
    a, b = (
        prepare(mri_results.scores["segmentation", "subtraction", s, 1], ScoreOptions()).evaluator
        for s in ("rest>DUKE", "rest>ISPY1")
    )
    with pytest.raises(ValueError, match="same cases"):
        SeedMean([a, b])
    one = SeedMean([a, a])
    assert one.values() == pytest.approx(a.values(), nan_ok=True)
    assert (
        one.subset(np.arange(a.n_cases) < 20).values()["dice"]
        == a.subset(np.arange(a.n_cases) < 20).values()["dice"]
    )
    assert one.stack(one).n_cases == 2 * a.n_cases
