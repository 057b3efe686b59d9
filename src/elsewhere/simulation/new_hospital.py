"""What the prediction interval of a new hospital promises, by simulation (ST-10a).

Sites are drawn from one distribution and the interval is made from all but the last; the table counts how
often the last one's true value lies inside. With few sites and a small spread the interval is wider than it
need be: the spread is then hardly known, and the sites allow a larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from elsewhere.simulation.fairness import Promise, judge_between, some_of
from elsewhere.statistics.auroc import auroc_interval
from elsewhere.statistics.bootstrap_weights import generator_for
from elsewhere.statistics.scenario import NewHospital, new_hospital

NOMINAL = 0.95
KEPT = (0.93, 1.0)
AUROC_CENTRE = 0.85
_ERRORS = (0.1, 0.2, 0.3, 0.5)
_PATIENTS = (50, 100, 300)
_PREVALENCE = 0.3


@dataclass(frozen=True, kw_only=True)
class NewHospitalCell:
    """One setting of sites that are drawn from one distribution.

    Args:
        sites: Number of sites with an estimate; one more is drawn as the new one.
        spread: Standard deviation of the sites' true values (on the logit for 'auroc').
        of: 'normal' for estimates with known errors of 0.1 to 0.5, or 'auroc' for the AUROC of 50 to 300
            patients with DeLong errors.

    Example:
        >>> NewHospitalCell(sites=5, spread=0.1).setting
        '5 sites, spread 0.1 on the logit, standard errors 0.1 to 0.5'
    """

    sites: int
    spread: float
    of: str = "normal"

    @property
    def setting(self) -> str:
        """The setting in words, for the table."""
        what = (
            "AUROC around 0.85, 50 to 300 patients each"
            if self.of == "auroc"
            else "standard errors 0.1 to 0.5"
        )
        return f"{self.sites} sites, spread {self.spread:g} on the logit, {what}"


CELLS: tuple[NewHospitalCell, ...] = (
    *(
        NewHospitalCell(sites=sites, spread=spread)
        for sites in (5, 10, 20)
        for spread in (0.0, 0.1, 0.2, 0.5)
    ),
    *(NewHospitalCell(sites=sites, spread=spread, of="auroc") for sites in (5, 20) for spread in (0.1, 0.5)),
)


def new_hospital_promises(
    *, replicates: int = 1000, cells: Sequence[NewHospitalCell] | None = None, seed: int = 42
) -> list[Promise]:
    """Simulate how often the prediction interval contains the next site's true value.

    Args:
        replicates: Number of studies per cell; fewer than `fairness.SMALL_RUN` simulate every fourth cell.
        cells: The cells; None: `CELLS`.
        seed: Seed of all draws.

    Returns:
        One row per cell.
    """
    make: dict[str, Callable[[NewHospitalCell, np.random.Generator], tuple[NewHospital, float]]] = {
        "normal": _normal_sites,
        "auroc": _auroc_sites,
    }
    rows = []
    for cell in some_of(CELLS, replicates) if cells is None else cells:
        rng = generator_for(f"promises/new hospital/{cell}", seed)
        hits = judged = 0
        for _ in range(replicates):
            found, truth = make[cell.of](cell, rng)
            if found.prediction_lo is not None and found.prediction_hi is not None:
                judged += 1
                hits += found.prediction_lo <= truth <= found.prediction_hi
        rows.append(
            judge_between(
                "next site inside its interval", cell.setting,
                nominal=NOMINAL, low=KEPT[0], high=KEPT[1], hits=hits, runs=judged,
            )
        )  # fmt: skip
    return rows


def _normal_sites(cell: NewHospitalCell, rng: np.random.Generator) -> tuple[NewHospital, float]:
    truth = rng.normal(0, cell.spread, cell.sites + 1) if cell.spread else np.zeros(cell.sites + 1)
    errors = rng.choice(_ERRORS, cell.sites)
    return new_hospital(truth[:-1] + rng.normal(0, errors), errors, bounds=None), float(truth[-1])


def _auroc_sites(cell: NewHospitalCell, rng: np.random.Generator) -> tuple[NewHospital, float]:
    truth = special.expit(special.logit(AUROC_CENTRE) + rng.normal(0, cell.spread, cell.sites + 1))
    values, errors = [], []
    for area in truth[:-1]:
        patients = int(rng.choice(_PATIENTS))
        label = (np.arange(patients) < round(_PREVALENCE * patients)).astype(int)
        distance = math.sqrt(2.0) * float(stats.norm.ppf(area))
        found = auroc_interval(label, rng.normal(distance * label, 1.0), np.arange(patients))
        values.append(math.nan if found is None else found.value)
        errors.append(math.nan if found is None or found.se is None else found.se)
    return new_hospital(values, errors, scale="logit"), float(truth[-1])
