"""The cells of the coverage simulation: which cohorts, how large, and how often (ST-04, ST-04a)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elsewhere.simulation.cohorts import (
    EQUAL,
    HEAVY_FEW,
    SKEWED_DESIGNS,
    BinormalDesign,
    SkewedDesign,
)
from elsewhere.simulation.marks import MarksDesign

CLOSED_FORM_METRICS = ("auroc", "sensitivity", "specificity")
RESAMPLED_METRICS = (
    "auroc",
    "auprc",
    "balanced_accuracy",
    "f1",
    "ece_confidence",
    "ece_malignant",
    "ppv",
    "nll",
    "brier",
)
NEARLY_PERFECT_METRICS = ("auroc", "auprc", "balanced_accuracy", "f1", "sensitivity")
PARTS = ("binary", "means", "boxes", "localisation", "uneven", "perfect", "paired", "sites")
"""Parts of this page that `elsewhere coverage --only` can run: families of cells, and the paired tests."""
_PART_OF_FAMILY = {
    "closed": "binary",
    "resampled": "binary",
    "dice": "means",
    "skewed": "means",
    "froc": "boxes",
    "localisation": "localisation",
    "uneven": "uneven",
    "uneven-means": "uneven",
    "perfect": "perfect",
}
DICE_CENTRE = 1.6
FRESH_SHIFT = 0.003
"""How far prevalence and AUROC (and, relatively, the shape of means) are moved for the fresh cohorts."""
METRICS_OF_FAMILY = {
    "closed": CLOSED_FORM_METRICS,
    "resampled": RESAMPLED_METRICS,
    "uneven": CLOSED_FORM_METRICS,
    "perfect": NEARLY_PERFECT_METRICS,
}
_THRESHOLDS = {"perfect": 0.5}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cell of one family of the coverage simulation.

    Args:
        family: 'closed' or 'resampled' (binary metrics), 'dice', 'skewed' (skewed means), 'froc', 'localisation'
            (wAFROC), 'uneven' or
            'uneven-means' (unequal numbers of cases per patient), or 'perfect' (models that are nearly always
            right).
        patients: Number of patients.
        cases_per_patient: Number of cases of each patient.
        prevalence: Share of positive cases; 0.5 where a family has no labels.
        auroc: The AUROC in the population, or the wAFROC; 0.5 where a family has neither.
        replicates: Number of simulated cohorts.
        resamples: Number of resamples of each interval; 0 for closed forms.
        alternatives: Whether the intervals that are not the default are made as well.
        counts: EQUAL or HEAVY_FEW (`cohorts`): how the cases are spread over the patients.
        skewed: The distribution of a skewed mean; None for other families.
        fresh: Whether the cohort has other random numbers and slightly moved parameters.
    """

    family: str
    patients: int
    cases_per_patient: int
    prevalence: float
    auroc: float
    replicates: int
    resamples: int
    alternatives: bool = False
    counts: str = EQUAL
    skewed: SkewedDesign | None = None
    fresh: bool = False

    @property
    def part(self) -> str:
        """The part of the page that the cell belongs to, one of `PARTS`."""
        return _PART_OF_FAMILY[self.family]

    @property
    def binary(self) -> bool:
        """Whether the cell has labels and probabilities."""
        return self.family in METRICS_OF_FAMILY

    @property
    def threshold(self) -> float:
        """The probability at which a case counts as positive."""
        return _THRESHOLDS.get(self.family, 0.3)

    @property
    def setting(self) -> str:
        """The distribution of a skewed mean in words; empty for others."""
        return "" if self.skewed is None else self.skewed.title

    def design(self) -> BinormalDesign:
        """Return the binormal design; on fresh cohorts prevalence and AUROC are moved by `FRESH_SHIFT`.

        Returns:
            The design.
        """
        moved = FRESH_SHIFT if self.fresh else 0.0
        return BinormalDesign(
            patients=self.patients,
            cases_per_patient=self.cases_per_patient,
            counts=self.counts,
            prevalence=self.prevalence + moved,
            auroc=self.auroc - (moved if self.auroc < 0.99 else 0.0),
        )

    def marks_design(self) -> MarksDesign:
        """Return the design of simulated marks; on fresh cohorts prevalence and wAFROC are moved.

        Returns:
            The design.
        """
        moved = FRESH_SHIFT if self.fresh else 0.0
        return MarksDesign(
            patients=self.patients,
            volumes_per_patient=self.cases_per_patient,
            prevalence=self.prevalence + moved,
            wafroc=self.auroc - moved,
        )

    def skewed_design(self) -> SkewedDesign:
        """Return the design of a skewed mean; on fresh cohorts its sigma is moved.

        Returns:
            The design.
        """
        given = self.skewed or SKEWED_DESIGNS[0]
        return replace(given, sigma=given.sigma * (1.0 + FRESH_SHIFT)) if self.fresh else given

    def dice_centre(self) -> float:
        """Return the centre of the simulated Dice on the logit scale; on fresh cohorts it is moved.

        Returns:
            The centre.
        """
        return DICE_CENTRE + (FRESH_SHIFT if self.fresh else 0.0)

    def generator(self) -> np.random.Generator:
        """Make the generator of the cell, which depends on the cell alone.

        Returns:
            A new generator.
        """
        seed = [
            self.patients,
            self.cases_per_patient,
            round(1000 * self.prevalence),
            round(1000 * self.auroc),
        ]
        words = f"{self.family}{self.counts if self.counts != EQUAL else ''}{self.setting}"
        return np.random.default_rng([*seed, sum(map(ord, words)), *([20_261_118] if self.fresh else [])])


def jobs(
    *, quick: bool = False, replicates: int | None = None, only: Sequence[str] | None = None
) -> list[Job]:
    """List the grid of ST-04: 20 to 1,000 patients, 1 to 4 cases per patient, AUROC 0.6 to 0.95.

    Prevalence is 10 to 50 %. Skewed means, unequal numbers of cases per patient, and nearly perfect models
    are added to it (ST-04a).

    Args:
        quick: Whether to list a small grid with few cohorts per cell.
        replicates: Number of cohorts per cell; None: 1,000, or 60 with `quick`.
        only: The `PARTS` to list; None lists all of them.

    Returns:
        The cells.

    Example:
        >>> {job.family for job in jobs(quick=True, only=["means"])} == {"dice", "skewed"}
        True
    """
    reps = replicates or (60 if quick else 1000)
    draws = 200 if quick else 500
    patients = (20, 100) if quick else (20, 50, 100, 300, 1000)
    out: list[Job] = []

    def add(family: str, n: int, k: int, prevalence: float = 0.5, auroc: float = 0.5, **more: Any) -> None:
        given = {"replicates": reps, "resamples": draws} | more
        out.append(
            Job(family=family, patients=n, cases_per_patient=k, prevalence=prevalence, auroc=auroc, **given)
        )

    for n in patients:
        for k in (1, 2, 4):
            for prevalence in (0.1, 0.3, 0.5):
                for auroc in (0.6, 0.75, 0.85, 0.95) if k != 2 else (0.75, 0.95):
                    add("closed", n, k, prevalence, auroc, resamples=0)
            add("dice", n, k, resamples=0)
            for prevalence in (0.1, 0.3, 0.5):
                for wafroc in (0.6, 0.75, 0.85, 0.95) if k != 2 else (0.75, 0.95):
                    add("localisation", n, k, prevalence, wafroc, resamples=0)
        for k in (1, 4):
            for prevalence, auroc in ((0.1, 0.75), (0.1, 0.95), (0.3, 0.75), (0.3, 0.95)):
                if n * k < 4000 or prevalence == 0.3:
                    add("resampled", n, k, prevalence, auroc, alternatives=True)
            if n * k < 4000:
                add("froc", n, k, 0.3)
    for n in (20, 100) if quick else (50, 100, 200, 400):
        for design in SKEWED_DESIGNS:
            for k in (1, 3):
                add("skewed", n, k, skewed=design, alternatives=k == 1 and n <= 200)
    for n in (100,) if quick else (50, 100, 300, 1000, 3000):
        for prevalence, auroc in ((0.3, 0.75), (0.3, 0.95)):
            add("uneven", n, 1, prevalence, auroc, counts=HEAVY_FEW, resamples=0)
        add("uneven-means", n, 1, counts=HEAVY_FEW, resamples=0)
        add("uneven-means", n, 1, counts=HEAVY_FEW, skewed=SKEWED_DESIGNS[1])
    for n in (100,) if quick else (50, 100, 200):
        for prevalence in (0.3, 0.5):
            for auroc in (0.995, 0.999):
                add("perfect", n, 1, prevalence, auroc)
    return [job for job in out if only is None or job.part in only]
