"""Simulated marks of a detector whose wAFROC is known, in the evaluator that a user's boxes get (DBT-18)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from elsewhere.simulation.cohorts import SimulatedBoxes
from elsewhere.statistics.evaluator import ClosedForm, Evaluator, FloatArray
from elsewhere.statistics.localisation import FIGURES, Figure

_TRUTH_VOLUMES = 1_000_000
FOUND_AT_ALL, FALSE_PER_VOLUME = 0.97, 1.0
_LESIONS_OF_POSITIVE = (0.7, 0.2, 0.1)
"""Shares of the positive volumes with one, two and three lesions."""


@dataclass(frozen=True, kw_only=True)
class MarksDesign:
    """Marks of a detector whose wAFROC is known (DBT-18).

    A positive volume has one to three lesions, of which a share of 0.97 is marked; each volume has a Poisson
    number of false marks, one on average. Ratings are normal; those of one patient, true and false, share a
    patient effect with half of the variance. Since ratings do not depend on the number of lesions, AFROC and
    wAFROC, and the forms against all volumes, have the same value in the population.

    Args:
        patients: Number of patients.
        volumes_per_patient: Number of volumes of each patient.
        prevalence: Share of the volumes with a lesion.
        wafroc: The wAFROC in the population.
        intraclass: The share of the variance that a patient's ratings have in common.
    """

    patients: int
    volumes_per_patient: int = 1
    prevalence: float = 0.3
    wafroc: float = 0.75
    intraclass: float = 0.5

    @property
    def separation(self) -> float:
        """Mean rating of the true marks; the false ones have mean 0, both a standard deviation of 1."""
        return _separation_of(self.wafroc, self.intraclass)


def wafroc_of(separation: float, *, intraclass: float = 0.5) -> float:
    """Compute the wAFROC of a `MarksDesign` in the population, by quadrature.

    Args:
        separation: Mean rating of the true marks.
        intraclass: The share of the variance that a patient's ratings have in common.

    Returns:
        The value for a lesion and a normal volume of two patients.

    Example:
        >>> round(wafroc_of(0.0), 2), round(wafroc_of(9.0), 3)
        (0.63, 0.976)
    """
    z, w = np.polynomial.hermite_e.hermegauss(60)
    w = w / w.sum()
    rating, effect = separation + z[:, None], math.sqrt(intraclass) * z[None, :]
    beyond = special.ndtr(-(rating - effect) / math.sqrt(1.0 - intraclass))
    below = float(w @ np.exp(-FALSE_PER_VOLUME * beyond) @ w)
    return FOUND_AT_ALL * below + (1.0 - FOUND_AT_ALL) * 0.5 * math.exp(-FALSE_PER_VOLUME)


@lru_cache(maxsize=64)
def _separation_of(wafroc: float, intraclass: float) -> float:
    return float(
        optimize.brentq(lambda x: wafroc_of(x, intraclass=intraclass) - wafroc, -8.0, 12.0, xtol=1e-10)
    )


def figure_values(design: MarksDesign) -> dict[str, float]:
    """Find the values of the figures of merit in the population.

    AFROC, wAFROC and the forms against all volumes have one value, by quadrature; that of the inferred ROC is
    estimated from a million volumes.

    Args:
        design: The design.

    Returns:
        The values by the name of the figure.
    """
    values: dict[str, float] = dict.fromkeys(FIGURES, design.wafroc)
    values["inferred_roc"] = _inferred_roc(design.wafroc, design.intraclass)
    return values


@lru_cache(maxsize=64)
def _inferred_roc(wafroc: float, intraclass: float) -> float:
    design = MarksDesign(patients=_TRUTH_VOLUMES, prevalence=0.5, wafroc=wafroc, intraclass=intraclass)
    marks = simulate_marks(design, np.random.default_rng(20_261_119))
    return MarksEvaluator(marks, design.patients, metrics=("inferred_roc",)).values()["inferred_roc"]


def simulate_marks(design: MarksDesign, rng: np.random.Generator) -> SimulatedBoxes:
    """Draw lesions and marks of a design.

    Args:
        design: The design.
        rng: The generator of all draws.

    Returns:
        Lesions, patients and boxes.
    """
    volumes = design.patients * design.volumes_per_patient
    cluster = np.repeat(np.arange(design.patients, dtype=np.int32), design.volumes_per_patient)
    lesions = rng.choice([1, 2, 3], size=volumes, p=_LESIONS_OF_POSITIVE)
    lesions = np.where(rng.random(volumes) < design.prevalence, lesions, 0).astype(np.int64)
    case_of_lesion = np.repeat(np.arange(volumes), lesions)
    hit = np.flatnonzero(rng.random(case_of_lesion.size) < FOUND_AT_ALL)
    wrong = np.repeat(np.arange(volumes), rng.poisson(FALSE_PER_VOLUME, size=volumes))
    case = np.concatenate([case_of_lesion[hit], wrong]).astype(np.int64)
    effect = math.sqrt(design.intraclass) * rng.normal(size=design.patients)
    score = effect[cluster[case]] + math.sqrt(1.0 - design.intraclass) * rng.normal(size=case.size)
    score[: hit.size] += design.separation
    return SimulatedBoxes(
        lesions_of_case=lesions,
        cluster=cluster,
        box_case=case,
        box_lesion=np.concatenate([hit, np.full(wrong.size, -1)]).astype(np.int64),
        box_score=score,
    )


class MarksEvaluator(Evaluator):
    """Some of the metrics that the task detection computes of simulated marks.

    Args:
        boxes: The simulated lesions and marks.
        n_clusters: Number of patients.
        metrics: Names of the metrics.
    """

    def __init__(
        self, boxes: SimulatedBoxes, n_clusters: int, *, metrics: tuple[Figure, ...] = FIGURES
    ) -> None:
        from elsewhere.scoring.detection.froc import FrocEvents
        from elsewhere.scoring.detection.localisation import LocalisationEvaluator

        self.boxes, self.metrics = boxes, metrics
        self.whole = LocalisationEvaluator(
            cluster_of_case=boxes.cluster,
            n_clusters=n_clusters,
            lesions_of_case=boxes.lesions_of_case,
            events=FrocEvents(
                case=boxes.box_case,
                cluster=boxes.cluster[boxes.box_case].astype(np.int64),
                lesion=boxes.box_lesion,
                score=boxes.box_score,
            ),
        )
        self.cluster_of_case, self.n_clusters = boxes.cluster, n_clusters
        self._columns = [self.whole.index(name) for name in metrics]
        self.specs = tuple(self.whole.specs[column] for column in self._columns)

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        return self.whole.evaluate(weights)[:, self._columns]

    def closed_form(self, metric: str) -> ClosedForm | None:
        return self.whole.closed_form(metric)

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> Evaluator:
        raise NotImplementedError("the simulated cohort is judged as a whole")

    def stack(self, other: Evaluator) -> Evaluator:
        raise NotImplementedError("one model is simulated at a time")
