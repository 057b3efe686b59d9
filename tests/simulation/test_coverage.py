"""The machinery of the coverage tables: truths, counting, judging, and the page."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from elsewhere.simulation import coverage
from elsewhere.simulation.cohorts import (
    EQUAL,
    HEAVY_FEW,
    SKEWED_DESIGNS,
    BinormalDesign,
    simulate_binormal,
    simulate_boxes,
    simulate_dice,
    simulate_skewed,
    simulate_two_models,
    skewed_mean,
)
from elsewhere.simulation.coverage import (
    CoverageRow,
    binomial_interval,
    coverage_rows,
    run_job,
)
from elsewhere.simulation.coverage_page import coverage_page
from elsewhere.simulation.grid import PARTS, Job, jobs
from elsewhere.simulation.paired_levels import level_rows
from elsewhere.statistics.domain import DOMAIN, Domain, Measures


def small(family: str, **changes) -> Job:
    given = {
        "family": family,
        "patients": 40,
        "cases_per_patient": 2,
        "prevalence": 0.3,
        "auroc": 0.8,
        "replicates": 6,
        "resamples": 64,
        "alternatives": True,
    }
    return Job(**(given | changes))


@pytest.fixture(autouse=True)
def small_truth(monkeypatch):
    monkeypatch.setattr(coverage, "_TRUTH_CASES", 20_000)
    for cached in (coverage._binary_truth, coverage._dice_truth, coverage._froc_truth):
        cached.cache_clear()
    yield
    for cached in (coverage._binary_truth, coverage._dice_truth, coverage._froc_truth):
        cached.cache_clear()


def row(**changes) -> CoverageRow:
    given = {
        "metric": "auroc",
        "method": "delong-logit-clustered",
        "default": True,
        "patients": 100,
        "cases_per_patient": 1,
        "prevalence": 0.3,
        "truth": 0.8,
        "auroc": 0.8,
        "replicates": 1000,
        "covered": 950,
        "without": 0,
        "below": 25,
        "above": 25,
        "width": 0.1,
        "domain": "auroc",
        "measures": Measures(
            patients=100,
            cases=100,
            value=0.8,
            cases_per_patient=1,
            positive_patients=30,
            rarer_class_patients=30,
        ),
    }
    return CoverageRow(**(given | changes))


def test_simulated_cases_have_the_promised_auroc_and_prevalence():
    for k in (1, 4):
        design = BinormalDesign(patients=60_000 // k, cases_per_patient=k, prevalence=0.2, auroc=0.85)
        made = simulate_binormal(design, np.random.default_rng(0))
        assert made.label.mean() == pytest.approx(0.2, abs=0.01)
        assert roc_auc_score(made.label, made.score) == pytest.approx(0.85, abs=0.01)
        assert roc_auc_score(made.label, made.probability) == pytest.approx(0.85, abs=0.01)


def test_cases_of_a_patient_are_alike():
    design = BinormalDesign(patients=20_000, cases_per_patient=2, prevalence=0.3)
    made = simulate_binormal(design, np.random.default_rng(1))
    noise = (made.score - design.separation * made.label).reshape(-1, 2)
    assert np.corrcoef(noise.T)[0, 1] == pytest.approx(0.5, abs=0.03)
    a, b = simulate_two_models(design, np.random.default_rng(1))
    assert (a.label == b.label).all()
    between = np.corrcoef(a.score - design.separation * a.label, b.score - design.separation * b.label)[0, 1]
    assert between == pytest.approx(0.5, abs=0.03)


def test_dice_and_boxes():
    dice, cluster = simulate_dice(1000, 3, np.random.default_rng(0))
    assert dice.size == cluster.size == 3000 and 0.02 < (dice == 0).mean() < 0.06 and dice.max() <= 1
    boxes = simulate_boxes(500, 2, np.random.default_rng(0))
    hit = boxes.box_lesion >= 0
    assert (boxes.lesions_of_case[boxes.box_case[hit]] == 1).all()
    assert np.unique(boxes.box_lesion[hit]).size == hit.sum()


def test_binomial_interval_is_clopper_pearson():
    theirs = stats.binomtest(930, 1000).proportion_ci(0.99, method="exact")
    assert binomial_interval(930, 1000) == pytest.approx((theirs.low, theirs.high))
    assert binomial_interval(0, 10)[0] == 0.0 and binomial_interval(10, 10)[1] == 1.0


def test_rows_are_judged_with_their_own_error():
    assert row().meets_nominal and row().keeps_promise and row().in_domain
    low = row(covered=9310, replicates=10_000)
    assert low.keeps_promise and not low.meets_nominal
    few = row(covered=92, replicates=100)
    assert few.keeps_promise and few.meets_nominal
    assert not row(covered=900).keeps_promise and not row(covered=1000).keeps_promise


def test_domain_rules_each_complain():
    domain = Domain(
        patients=50,
        cases=60,
        positive_patients=5,
        rarer_class_patients=10,
        near_the_end=0.9,
        rarer_class_patients_near_the_end=40,
        events=5,
        carriers=20,
        carriers_of_verdicts=30,
        value_up_to=0.98,
    )
    good = Measures(
        patients=100,
        cases=200,
        value=0.8,
        cases_per_patient=2,
        positive_patients=50,
        rarer_class_patients=20,
        events=30,
        effective_patients=90.0,
        largest_share=0.03,
        carriers=25.0,
    )
    assert len(domain.complaints(good, verdict=True)) == 1
    assert domain.complaints(dataclasses.replace(good, value=1.0, rarer_class_patients=50)) == []
    assert domain.complaints(good) == []
    for change in (
        {"patients": 10},
        {"cases": 10},
        {"positive_patients": 4},
        {"rarer_class_patients": 9},
        {"events": 1},
        {"value": 0.95},
        {"value": 0.05},
        {"value": 0.995, "rarer_class_patients": 50},
        {"effective_patients": 49.0},
        {"largest_share": 0.06},
        {"carriers": 19.0},
    ):
        assert len(domain.complaints(dataclasses.replace(good, **change))) == 1, change


FAMILIES = {
    "closed": {},
    "resampled": {},
    "dice": {},
    "froc": {},
    "skewed": {"skewed": SKEWED_DESIGNS[0]},
    "uneven": {"counts": HEAVY_FEW},
    "uneven-means": {"counts": HEAVY_FEW, "skewed": SKEWED_DESIGNS[5]},
    "perfect": {"auroc": 0.995, "prevalence": 0.5},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cell_is_simulated_and_repeats_itself(family):
    more = FAMILIES[family]
    rows = run_job(small(family, **more))
    assert rows and all(r.replicates + r.without <= 6 for r in rows)
    assert all(r.covered + r.below + r.above == r.replicates for r in rows)
    assert {r.domain for r in rows} <= set(DOMAIN)
    assert sum(r.covered for r in rows) >= 0.5 * sum(r.replicates for r in rows)
    assert run_job(small(family, **more)) == rows
    fresh = run_job(small(family, fresh=True, **more))
    assert [(r.metric, r.truth) for r in fresh] != [(r.metric, r.truth) for r in rows] or family in (
        "froc",
        "uneven-means",
    )
    assert fresh != rows, "fresh cohorts are other cohorts"


@pytest.mark.parametrize("design", SKEWED_DESIGNS, ids=lambda design: design.title)
def test_skewed_values_have_the_mean_that_is_promised(design):
    """The truth of the coverage cells is a closed form: the simulated values must have it as their mean."""
    values, cluster = simulate_skewed(design, 60_000, 2, np.random.default_rng(2))
    error = values.std() / np.sqrt(cluster.size / 2)
    assert values.mean() == pytest.approx(skewed_mean(design), abs=4 * error)
    assert values.min() >= 0 and stats.skew(values) > 1


def test_few_patients_hold_most_cases_where_counts_are_unequal():
    """The cohort of the finding: 5 % of the patients with 20 to 60 cases, a mean near three."""
    design = BinormalDesign(patients=400, counts=HEAVY_FEW, prevalence=0.2, auroc=0.8)
    made = simulate_binormal(design, np.random.default_rng(0))
    sizes = np.bincount(made.cluster)
    assert (sizes > 1).sum() == 20 and sizes.max() <= 60 and 2 < sizes.mean() < 4
    fixed = simulate_binormal(
        dataclasses.replace(design, counts=EQUAL, positive_patients=15), np.random.default_rng(0)
    )
    assert np.unique(fixed.cluster[fixed.label > 0]).size <= 15


def test_the_fresh_check_is_counted_by_the_code():
    """The sentence about fresh cohorts is filled from the run, and names what failed there."""
    page = coverage_page([row()], [], resamples=500, fresh=[row(), row(patients=300, covered=880)])
    text = page.split("## Checked on fresh cohorts")[1]
    assert "1 of 2 kept the promise. The other 1 lay between 88.0 and 88.0 %" in text
    assert "| auroc | 300 |" in text
    assert "| auroc | 300 |" not in page.split("## Checked on fresh cohorts")[0]


def test_only_cells_inside_the_domain_are_checked_again():
    inside, outside = small("closed", patients=100), small("closed", patients=20)
    rows = [row(patients=n, cases_per_patient=2, family="closed") for n in (100,)]
    found = coverage.fresh_jobs([inside, outside], rows)
    assert [(job.patients, job.fresh, job.alternatives) for job in found] == [(100, True, False)]


def test_parts_of_the_grid_can_be_run_alone():
    assert {job.part for job in jobs(only=["means", "perfect"])} == {"means", "perfect"}
    assert {job.part for job in jobs()} == set(PARTS) - {"paired", "sites"}
    assert any(job.skewed is not None for job in jobs()) and any(job.counts != EQUAL for job in jobs())


def test_a_bound_may_cover_more_but_not_less():
    """Nearly perfect models have one-sided bounds: only too little coverage is a failure there."""
    assert row(covered=1000, family="perfect").keeps_promise
    assert not row(covered=900, family="perfect").keeps_promise


def test_alternatives_stand_beside_the_default():
    rows = run_job(small("resampled"))
    of_f1 = {r.method: r.default for r in rows if r.metric == "f1"}
    assert of_f1 == {"bca": True, "percentile": False, "t-clustered": False}


def test_the_grid_spans_what_it_promises():
    closed = [job for job in jobs() if job.family == "closed"]
    assert {job.patients for job in closed} >= {20, 1000}
    assert {job.cases_per_patient for job in closed} == {1, 2, 4}
    assert {job.prevalence for job in closed} == {0.1, 0.3, 0.5}
    assert {job.auroc for job in closed} >= {0.6, 0.95}
    assert all(job.replicates >= 1000 for job in jobs())
    assert len(jobs(quick=True)) < len(jobs())


def test_page_shows_failing_cells_and_brackets_those_outside():
    outside = row(
        patients=20, covered=700, measures=Measures(patients=20, cases=20, value=0.8, cases_per_patient=1)
    )
    again = {"family": "resampled", "patients": 1000}
    rows = [
        row(),
        row(patients=300, covered=880),
        outside,
        row(**again),
        row(default=False, method="percentile", covered=900, **again),
        row(family="resampled", covered=100),
    ]
    page = coverage_page(rows, [], resamples=500)
    assert "**88.0 fails**" in page and "(70.0)" in page
    assert "Cells inside the domain that fail" in page and "| auroc | 300 |" in page
    assert "| auroc | **delong-logit-clustered** | 2 | 52.5 | 10.0 |" in page
    assert "3 cells lie inside the domain; 2 keep" in page


def test_levels_of_the_paired_tests_are_counted():
    rows = level_rows(24, 1, replicates=5, permutations=19)
    tests = {(r.metric, r.test) for r in rows}
    assert ("auroc", "delong-clustered-paired") in tests and ("brier", "wilcoxon-patients") in tests
    assert all(r.replicates + r.without == 5 for r in rows)


def test_the_page_is_made_from_the_grid_and_progress_is_told(monkeypatch):
    monkeypatch.setattr(coverage, "jobs", lambda **_: [small("closed", replicates=3, resamples=0)])
    page = coverage.coverage_tables(quick=True, replicates=3, processes=1)
    assert page.startswith("# Coverage") and "## Levels of the paired tests" in page
    seen: list[Job] = []
    coverage_rows([small("dice")], processes=1, progress=seen.append)
    assert len(seen) == 1


def test_families_without_a_grid_of_aurocs_have_sections_of_their_own():
    """Skewed means, unequal counts and nearly perfect models are listed cell by cell, smallest first."""
    given = {"metric": "hausdorff95_mm", "auroc": None, "family": "skewed", "domain": "skewed-mean"}
    rows = [row(**given, setting="lognormal", patients=n) for n in (300, 100)]
    rows.append(row(family="uneven", counts=HEAVY_FEW, covered=800, above=150, below=50))
    page = coverage_page(rows, [], resamples=500)
    skewed, uneven = page.split("## Skewed means")[1].split("## Unequal numbers of cases")
    assert skewed.index("| 100 | 1 |") < skewed.index("| 300 | 1 |")
    assert "| 15.0 | 5.0 |" in uneven, "the truth was below the interval in 15 %, above it in 5 %"
    assert "### hausdorff95_mm" not in page
