"""The simulated promises of the power numbers, the planner, the new hospital and the pairs of equalised odds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elsewhere.simulation.fairness import judge_between, odds_promises, some_of
from elsewhere.simulation.new_hospital import NewHospitalCell, new_hospital_promises
from elsewhere.simulation.power import (
    PLAN_CELLS,
    POWER_CELLS,
    PlanCell,
    PowerCell,
    drop_promises,
    plan_promises,
)
from elsewhere.statistics import scenario


def test_a_band_is_judged_with_the_simulations_own_error():
    good = judge_between("e", "s", nominal=0.8, low=0.75, high=0.85, hits=790, runs=1000)
    low = judge_between("e", "s", nominal=0.8, low=0.75, high=0.85, hits=680, runs=1000)
    high = judge_between("e", "s", nominal=0.8, low=0.75, high=0.85, hits=960, runs=1000)
    assert (good.holds, low.holds, high.holds) == (True, False, False)
    assert not judge_between("e", "s", nominal=0.8, low=0.75, high=0.85, hits=0, runs=0).holds


def test_a_small_run_shows_part_of_the_grid():
    assert some_of(POWER_CELLS, 1000) == POWER_CELLS
    assert 0 < len(some_of(PLAN_CELLS, 100)) < len(PLAN_CELLS)


def test_drops_and_margins_are_simulated_and_hold():
    cells = [
        PowerCell(metric="sensitivity", reference=0.9, patients=100),
        PowerCell(metric="auroc", reference=0.9, patients=300),
    ]
    rows = drop_promises(replicates=120, cells=cells)
    assert [row.event for row in rows] == ["stated drop detected", "stated margin proved"] * 2
    assert all(row.holds for row in rows), rows
    assert drop_promises(replicates=120, cells=cells[:1])[0] == rows[0], "the same each time"


def test_a_plan_is_simulated_at_its_own_size_and_a_plan_too_small_is_found_out(monkeypatch):
    cell = PlanCell(
        metric="balanced_accuracy", expected=0.85, margin=0.1, aim="non-inferiority", prevalence=0.3
    )
    (row,) = plan_promises(replicates=150, cells=[cell])
    assert row.holds, row
    from elsewhere.simulation import power

    planned = power.plan_sample

    def for_too_little(design):
        return planned(replace(design, power=0.55))

    monkeypatch.setattr(power, "plan_sample", for_too_little)
    (row,) = plan_promises(replicates=150, cells=[cell])
    assert not row.holds, row


def test_new_hospitals_are_covered_and_a_plug_in_spread_is_found_out(monkeypatch):
    cell = NewHospitalCell(sites=20, spread=0.1)
    (row,) = new_hospital_promises(replicates=300, cells=[cell])
    assert row.holds, row

    def plugged_in(y, s, level):
        tau2 = scenario._paule_mandel(y, s)
        weight = 1 / (s**2 + tau2)
        mean, reach = (weight * y).sum() / weight.sum(), 2.1 * (tau2 + 1 / weight.sum()) ** 0.5
        return mean - reach, mean + reach

    monkeypatch.setattr(scenario, "_one_more_site", plugged_in)
    (row,) = new_hospital_promises(replicates=300, cells=[cell])
    assert not row.holds, row


def test_sites_of_an_auroc_are_simulated_too():
    (row,) = new_hospital_promises(replicates=20, cells=[NewHospitalCell(sites=5, spread=0.2, of="auroc")])
    assert row.replicates > 0 and row.rate > 0.5


def test_pairs_of_equalised_odds_are_simulated(monkeypatch):
    monkeypatch.setattr("elsewhere.simulation.fairness.ODDS_CELLS", (((10, 30, 60), 0.3, (0.85, 0.9)),))
    (row,) = odds_promises(replicates=80)
    assert row.holds and row.replicates == 80


@pytest.mark.slow
def test_every_cell_of_the_power_numbers_and_the_planner_holds():
    for row in (*drop_promises(replicates=400), *plan_promises(replicates=400)):
        assert row.holds, row
