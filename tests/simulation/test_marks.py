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
from elsewhere.simulation.type1_error import DEFAULT_CELLS, equivalence_levels
from elsewhere.statistics.localisation import FIGURES


@pytest.mark.parametrize("wafroc", [0.75])
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


def test_a_verdict_on_the_margin_keeps_its_level():
    cells = [cell for cell in DEFAULT_CELLS if cell.metric == "wafroc"]
    assert {(cell.against, cell.cases_per_patient) for cell in cells} == {
        (against, size) for against in ("hospital", "constant") for size in (1, 4)
    }
    (row,) = equivalence_levels(cells=cells[1:2], replicates=150, resamples=1).to_dict("records")
    assert row["promised"] and row["holds"], row
