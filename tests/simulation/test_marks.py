"""Simulated marks: their wAFROC is what the quadrature says, and intervals and verdicts keep their promise."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.simulation.coverage import binomial_interval, run_job
from elsewhere.simulation.grid import Job, jobs
from elsewhere.simulation.marks import (
    MarksDesign,
    MarksEvaluator,
    figure_values,
    simulate_marks,
    wafroc_of,
)
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.differences import difference_independent
from elsewhere.statistics.localisation import FIGURES
from elsewhere.statistics.resampling import Resampling


@pytest.mark.parametrize("wafroc", [0.6, 0.75, 0.95])
@pytest.mark.parametrize("volumes", [1, 4])
def test_the_truth_is_that_of_a_large_cohort(wafroc, volumes):
    design = MarksDesign(patients=60_000 // volumes, volumes_per_patient=volumes, wafroc=wafroc)
    assert wafroc_of(design.separation) == pytest.approx(wafroc, abs=1e-8)
    marks = simulate_marks(design, np.random.default_rng(1))
    got = MarksEvaluator(marks, design.patients).values()
    truth = figure_values(design)
    assert set(got) == set(truth) == set(FIGURES)
    assert {truth[name] for name in FIGURES if name != "inferred_roc"} == {wafroc}
    for name, value in got.items():
        assert value == pytest.approx(truth[name], abs=0.008), name


def test_ratings_of_one_patient_are_alike_and_their_marginal_distribution_is_not_changed_by_it():
    marks = simulate_marks(
        MarksDesign(patients=20_000, volumes_per_patient=2, prevalence=0.0), np.random.default_rng(2)
    )
    assert marks.box_score.std() == pytest.approx(1.0, abs=0.02)
    first = {int(c): s for c, s in zip(marks.box_case[::-1], marks.box_score[::-1], strict=True)}
    pairs = [(first[2 * p], first[2 * p + 1]) for p in range(20_000) if 2 * p in first and 2 * p + 1 in first]
    assert np.corrcoef(np.array(pairs).T)[0, 1] == pytest.approx(0.5, abs=0.03)


def test_the_part_has_its_cells():
    listed = jobs(only=["localisation"])
    assert len(listed) == 150 and {job.family for job in listed} == {"localisation"}
    assert {(job.cases_per_patient, job.patients) for job in listed} >= {(4, 100), (1, 1000)}
    fresh = Job(
        family="localisation", patients=50, cases_per_patient=4, prevalence=0.3, auroc=0.75, replicates=1,
        resamples=0, fresh=True,
    )  # fmt: skip
    assert fresh.marks_design().wafroc == pytest.approx(0.747)


def covered(replicates: int, **cell: float) -> None:
    rows = run_job(
        Job(family="localisation", replicates=replicates, resamples=0, **cell)  # type: ignore[arg-type]
    )
    assert {row.metric for row in rows if row.default} == set(FIGURES)
    for row in rows:
        assert row.in_domain and row.replicates == replicates and not row.without_width
        lo, hi = binomial_interval(row.covered, row.replicates, level=0.999)
        assert lo <= 0.95 <= hi, (row.metric, row.coverage)


def test_four_volumes_per_patient_are_covered():
    covered(150, patients=100, cases_per_patient=4, prevalence=0.3, auroc=0.75)


@pytest.mark.slow
@pytest.mark.parametrize("auroc", [0.6, 0.75, 0.85])
@pytest.mark.parametrize("patients", [100, 300])
def test_the_interval_covers_over_the_domain(patients, auroc):
    covered(1000, patients=patients, cases_per_patient=4, prevalence=0.3, auroc=auroc)


def _side(design: MarksDesign, rng: np.random.Generator) -> tuple[MarksEvaluator, Clusters]:
    marks = simulate_marks(design, rng)
    n = design.patients
    positive = np.bincount(marks.cluster, marks.lesions_of_case, n) > 0
    clusters = Clusters(
        marks.cluster, tuple(map(str, range(n))), np.zeros(n, dtype=np.int32), ("all",), positive
    )
    return MarksEvaluator(marks, n, metrics=("wafroc",)), clusters


def _errors_on_the_margin(home: float, *, volumes: int, replicates: int) -> tuple[int, int]:
    """How often two hospitals that differ by exactly the margin are called non-inferior, and BELOW."""
    rng = np.random.default_rng([volumes, round(100 * home)])
    inferior = below = 0
    for _ in range(replicates):
        designs = (
            MarksDesign(patients=100, volumes_per_patient=volumes, wafroc=value)
            for value in (home - 0.05, home)
        )
        here, there = (_side(design, rng) for design in designs)
        made = difference_independent(*here, *there, "wafroc", resampling=Resampling(key="x", resamples=0))
        inferior += made.lo > -0.05
        below += made.hi < -0.05
    return inferior, below


def test_the_level_of_a_verdict_on_the_margin():
    for errors in _errors_on_the_margin(0.75, volumes=4, replicates=150):
        assert binomial_interval(errors, 150, level=0.999)[0] <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("volumes", [1, 4])
@pytest.mark.parametrize("home", [0.75, 0.85, 0.9])
def test_the_level_of_a_verdict_on_the_margin_at_many_values(home, volumes):
    for errors in _errors_on_the_margin(home, volumes=volumes, replicates=1000):
        assert binomial_interval(errors, 1000)[0] <= 0.05
