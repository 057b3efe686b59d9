"""Intervals, ranks and comparisons by number of sites: the simulation, its tables, and what they must show."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from elsewhere.simulation import sites
from elsewhere.simulation.cohorts import BinormalDesign, simulate_binormal, simulate_dice
from elsewhere.simulation.sites import (
    SiteJob,
    SiteRow,
    balanced_accuracy_of,
    coverage_jobs,
    level_jobs,
    run_site_job,
    site_of_patient,
    site_rows,
)
from elsewhere.simulation.sites_page import site_coverage_section, site_level_section


@pytest.fixture(autouse=True)
def small_truth(monkeypatch):
    monkeypatch.setattr(sites, "_FROC_TRUTH_VOLUMES", 4000)
    sites._froc_truth.cache_clear()
    yield
    sites._froc_truth.cache_clear()


def job(**changes) -> SiteJob:
    given = {
        "kind": "coverage",
        "what": "classification",
        "patients": 120,
        "sites": 20,
        "equal": True,
        "positives": 0.3,
        "replicates": 4,
        "resamples": 64,
    }
    return SiteJob(**(given | changes))


@pytest.mark.parametrize("equal", [True, False])
def test_every_site_has_a_patient_and_unequal_sites_fall_off(equal):
    site = site_of_patient(100, 20, equal=equal, rng=np.random.default_rng(1))
    sizes = np.bincount(site, minlength=20)
    assert sizes.sum() == 100 and sizes.min() >= 1
    assert bool(sizes.max() - sizes.min() <= 1) is equal
    if not equal:
        assert all(a >= b - 1 for a, b in pairwise(sizes)) and sizes[0] > 15


def test_the_truths_are_those_of_the_simulated_cohorts():
    rng = np.random.default_rng(3)
    design = BinormalDesign(patients=400_000, prevalence=0.1, auroc=0.85)
    cases = simulate_binormal(design, rng)
    called, positive = cases.probability >= 0.3, cases.label > 0
    simulated = (called[positive].mean() + (~called[~positive]).mean()) / 2
    assert balanced_accuracy_of(design, 0.3) == pytest.approx(simulated, abs=0.005)
    assert sites._dice_truth() == pytest.approx(simulate_dice(400_000, 1, rng)[0].mean(), abs=0.002)


@pytest.mark.parametrize(
    ("what", "kind", "metrics"),
    [
        ("classification", "coverage", {"auroc", "balanced_accuracy"}),
        ("detection", "coverage", {"mean_sensitivity_1_to_4"}),
        ("segmentation", "coverage", {"dice"}),
        ("fairness", "coverage", {"Dice of 4 groups, 6 differences"}),
        ("ranking", "level", {"dice", "balanced_accuracy"}),
        ("comparison", "level", {"auroc", "balanced_accuracy", "brier"}),
    ],
)
def test_a_cell_gives_a_row_per_metric_and_the_same_one_each_time(what, kind, metrics):
    """Each replicate has its own generator: more of them change none of the first."""
    one = run_site_job(job(what=what, kind=kind))
    assert {row.metric for row in one} == metrics
    assert all(row.runs == 4 and 0 <= row.hits <= 4 for row in one)
    assert one == run_site_job(job(what=what, kind=kind))
    more = run_site_job(job(what=what, kind=kind, replicates=6))
    for row, longer in zip(one, more, strict=True):
        assert 0 <= longer.hits - row.hits <= 2


def test_the_layouts_of_a_column_see_the_same_patients():
    """With every site pooled, many small sites give the numbers of one: only the sites may differ."""
    for what, kind in (("classification", "coverage"), ("ranking", "level")):
        one, many = (run_site_job(job(what=what, kind=kind, sites=count, replicates=6)) for count in (1, 40))
        assert [row.hits for row in one] == [row.hits for row in many]


def test_rows_are_judged_with_the_error_of_the_simulation():
    level, coverage = job(kind="level", what="ranking"), job()
    assert SiteRow(job=coverage, metric="x", hits=950, runs=1000).holds
    assert not SiteRow(job=coverage, metric="x", hits=900, runs=1000).holds
    assert SiteRow(job=level, metric="x", hits=60, runs=1000).holds
    assert not SiteRow(job=level, metric="x", hits=82, runs=100).holds
    assert not SiteRow(job=level, metric="x", hits=0, runs=1, warned=0.9).in_domain


def test_the_grids_have_the_layouts_that_are_promised():
    full = {(j.sites, j.equal) for j in coverage_jobs()}
    assert {(1, True), (5, True), (20, True), (20, False), (50, True), (50, False)} <= full
    assert {j.positives for j in coverage_jobs()} == {0.1, 0.3, 0.5}
    assert {j.what for j in level_jobs()} == {"ranking", "comparison"}
    assert len(coverage_jobs(quick=True)) == 3


def test_the_tables_show_what_fails_and_what_the_program_warns_of():
    good = SiteRow(job=job(), metric="auroc", hits=95, runs=100)
    bad = SiteRow(job=job(sites=50), metric="auroc", hits=70, runs=100)
    warned = SiteRow(job=job(positives=0.1), metric="auroc", hits=80, runs=100, warned=1.0)
    text = "\n".join(site_coverage_section([good, bad, warned]))
    assert "| cohort | auroc, 10 % | auroc, 30 % |" in text
    assert "**70.0 fails**" in text and "(80.0)" in text and "1 of 2 cells keep the promise" in text
    level = SiteRow(job=job(kind="level", what="ranking"), metric="dice", hits=5, runs=100)
    text = "\n".join(site_level_section([level]))
    assert "### Ranks" in text and "| 120 patients, 20 equal sites | 5.0 |" in text
    assert site_coverage_section([]) == site_level_section([]) == []


def test_small_sites_keep_the_level_of_a_ranking():
    """The quick form of the table: 50 sites of 2 patients separate equal models about as one site does."""
    cell = job(kind="level", what="ranking", patients=100, sites=50, replicates=30, resamples=150)
    for row in site_rows([cell], processes=1):
        assert row.rate <= 0.2, row  # nearly always without pooling


@pytest.mark.slow
@pytest.mark.parametrize("positives", [0.1, 0.5])
@pytest.mark.parametrize(("count", "equal"), [(5, True), (20, True), (50, False)])
def test_small_sites_keep_the_coverage(positives, count, equal):
    """Balanced accuracy fell to 83 % at 20 sites when each was resampled by itself (ST-01a)."""
    cell = job(patients=300, sites=count, equal=equal, positives=positives, replicates=600, resamples=300)
    for row in run_site_job(cell):
        assert row.holds, row


@pytest.mark.slow
def test_small_sites_keep_the_levels_of_one_site():
    """Equal models at 20 and 50 sites, ranked and compared: as often told apart as the same patients at one site."""
    single: dict[tuple[str, int], dict[str, float]] = {}
    for cell in level_jobs(replicates=300):
        if cell.sites < 20:
            continue
        given = dataclasses.replace(cell, resamples=250)
        if (cell.what, cell.patients) not in single:
            one = run_site_job(dataclasses.replace(given, sites=1))
            single[cell.what, cell.patients] = {row.metric: row.rate for row in one}
        for row in run_site_job(given):
            assert row.rate <= single[cell.what, cell.patients][row.metric] + 0.025, row
