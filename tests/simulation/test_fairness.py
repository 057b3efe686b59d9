"""The null band on fair models and the pairwise intervals, by simulation, judged by ST-13."""

from __future__ import annotations

import pytest

from elsewhere.simulation.fairness import fairness_promises, judge_rate

RUNS = 300


@pytest.mark.slow
@pytest.mark.parametrize("event", ["fair mean Dice rejected", "fair equalised odds rejected"])
def test_fair_models_are_rejected_at_most_at_alpha_and_not_never(event):
    rows = fairness_promises(replicates=RUNS, only=event)
    assert len(rows) >= 2
    for row in rows:
        assert row.holds, row
        assert row.hi99 >= 0.025, f"a test that never rejects is no test: {row}"


@pytest.mark.slow
def test_pairwise_intervals_hold_at_once():
    for row in fairness_promises(replicates=RUNS, only="pairwise intervals hold at once"):
        assert row.holds, row


@pytest.mark.slow
def test_a_planted_gap_is_found():
    (row,) = fairness_promises(replicates=100, only="gap of 0.10 found")
    assert row.rate > 0.8


def test_a_broken_level_and_a_broken_coverage_are_seen():
    assert not judge_rate("e", "s", kind="level", nominal=0.05, hits=40, runs=300).holds
    assert judge_rate("e", "s", kind="level", nominal=0.05, hits=20, runs=300).holds
    assert not judge_rate("e", "s", kind="coverage", nominal=0.95, hits=260, runs=300).holds
    assert judge_rate("e", "s", kind="coverage", nominal=0.95, hits=280, runs=300).holds
    assert judge_rate("e", "s", kind="power", nominal=None, hits=1, runs=300).holds
