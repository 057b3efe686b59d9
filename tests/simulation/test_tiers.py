"""Tiers do not part equal models, by simulation, judged by ST-13."""

from __future__ import annotations

import pytest

from elsewhere.simulation.fairness import fairness_promises

pytestmark = pytest.mark.slow
RUNS = 300


@pytest.mark.parametrize("event", ["equal models separated", "true rank missed"])
def test_the_family_wise_error_is_at_most_alpha(event):
    for row in fairness_promises(replicates=RUNS, only=event):
        assert row.holds, row


def test_a_clearly_better_model_is_parted():
    (row,) = fairness_promises(replicates=100, only="lead of 0.08 separated")
    assert row.rate > 0.8
