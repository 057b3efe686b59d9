"""Synthetic cohorts with a known truth, for the coverage tables and the levels of the tests (ST-04, ST-13).

Scores are binormal with a patient effect shared by the patient's cases, so that clusters matter; the marginal
distribution of a case does not depend on the cluster size, so one truth serves every size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

FloatArray = npt.NDArray[np.float64]
SHARE_IN_POSITIVE_PATIENT = 0.6
"""In a patient with any positive, this share of the cases is positive (more where prevalence asks for it)."""


@dataclass(frozen=True, kw_only=True)
class BinormalDesign:
    """`intraclass` is the correlation of two cases of a patient; `slope` stretches the logit (1: calibrated)."""

    patients: int
    cases_per_patient: int = 1
    prevalence: float = 0.3
    auroc: float = 0.8
    intraclass: float = 0.5
    slope: float = 1.5

    @property
    def separation(self) -> float:
        """The distance of the two classes in standard deviations that gives this AUROC."""
        return float(special.ndtri(self.auroc)) * math.sqrt(2.0)


@dataclass(frozen=True)
class SimulatedCases:
    """One row a case: truth, score on the normal scale, predicted probability, patient."""

    label: npt.NDArray[np.int8]
    score: FloatArray
    probability: FloatArray
    cluster: npt.NDArray[np.int32]


def _labels(design: BinormalDesign, rng: np.random.Generator) -> npt.NDArray[np.int8]:
    shape = (design.patients, design.cases_per_patient)
    if design.cases_per_patient == 1:
        return (rng.random(shape) < design.prevalence).astype(np.int8)
    of_patients = min(1.0, design.prevalence / SHARE_IN_POSITIVE_PATIENT)
    positive_patient = rng.random((design.patients, 1)) < of_patients
    return (positive_patient & (rng.random(shape) < design.prevalence / of_patients)).astype(np.int8)


def binormal_scores(
    design: BinormalDesign,
    label: npt.NDArray[np.int8],
    rng: np.random.Generator,
    *,
    shared: FloatArray | None = None,
) -> FloatArray:
    """Scores of one model; `shared` (patients, cases) noise makes two models agree beyond the truth."""
    patient = rng.normal(size=(label.shape[0], 1)) * math.sqrt(design.intraclass)
    own = rng.normal(size=label.shape) * math.sqrt(1.0 - design.intraclass)
    noise = patient + own
    if shared is not None:
        noise = (noise + shared) / math.sqrt(2.0)
    return noise + design.separation * label


def to_probability(design: BinormalDesign, score: FloatArray) -> FloatArray:
    """The posterior of the binormal model, its logit stretched by `slope`: known, and not calibrated."""
    d, p = design.separation, design.prevalence
    logit = d * score - d * d / 2.0 + math.log(p / (1.0 - p))
    return special.expit(design.slope * logit)


def simulate_binormal(design: BinormalDesign, rng: np.random.Generator) -> SimulatedCases:
    label = _labels(design, rng)
    score = binormal_scores(design, label, rng)
    cluster = np.repeat(np.arange(design.patients, dtype=np.int32), design.cases_per_patient)
    return SimulatedCases(label.ravel(), score.ravel(), to_probability(design, score).ravel(), cluster)


def simulate_two_models(
    design: BinormalDesign, rng: np.random.Generator
) -> tuple[SimulatedCases, SimulatedCases]:
    """Two models of the same AUROC on the same cases, half of whose noise is common: the null of a comparison."""
    label = _labels(design, rng)
    patient = rng.normal(size=(design.patients, 1)) * math.sqrt(design.intraclass)
    shared = patient + rng.normal(size=label.shape) * math.sqrt(1.0 - design.intraclass)
    cluster = np.repeat(np.arange(design.patients, dtype=np.int32), design.cases_per_patient)
    models = []
    for _ in range(2):
        score = binormal_scores(design, label, rng, shared=shared)
        models.append(
            SimulatedCases(label.ravel(), score.ravel(), to_probability(design, score).ravel(), cluster)
        )
    return models[0], models[1]


def simulate_dice(
    patients: int,
    cases_per_patient: int,
    rng: np.random.Generator,
    *,
    centre: float = 1.6,
    spread: float = 1.0,
    intraclass: float = 0.5,
    failure_rate: float = 0.04,
) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Dice values: logit-normal around 0.8 with a patient effect, and some failures at exactly 0."""
    shape = (patients, cases_per_patient)
    noise = rng.normal(size=(patients, 1)) * math.sqrt(intraclass)
    noise = noise + rng.normal(size=shape) * math.sqrt(1.0 - intraclass)
    dice = special.expit(centre + spread * noise)
    dice[rng.random(shape) < failure_rate] = 0.0
    return dice.ravel(), np.repeat(np.arange(patients, dtype=np.int32), cases_per_patient)


@dataclass(frozen=True)
class SimulatedBoxes:
    """Detection: lesions a volume, and boxes with score, volume and the lesion they hit (-1: none)."""

    lesions_of_case: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int32]
    box_case: npt.NDArray[np.int64]
    box_lesion: npt.NDArray[np.int64]
    box_score: FloatArray


def simulate_boxes(
    patients: int,
    volumes_per_patient: int,
    rng: np.random.Generator,
    *,
    positive_share: float = 0.3,
    separation: float = 1.5,
    found_at_all: float = 0.9,
    false_per_volume: float = 3.0,
) -> SimulatedBoxes:
    """One lesion in some volumes, found with a patient effect; false boxes everywhere."""
    volumes = patients * volumes_per_patient
    cluster = np.repeat(np.arange(patients, dtype=np.int32), volumes_per_patient)
    lesions = (rng.random(volumes) < positive_share).astype(np.int64)
    lesion_id = np.where(lesions > 0, np.cumsum(lesions) - 1, -1)
    hit = np.flatnonzero((lesions > 0) & (rng.random(volumes) < found_at_all))
    ease = rng.normal(size=patients) * math.sqrt(0.5)
    hit_score = separation + ease[cluster[hit]] + rng.normal(size=hit.size) * math.sqrt(0.5)
    wrong = np.repeat(np.arange(volumes), rng.poisson(false_per_volume, size=volumes))
    return SimulatedBoxes(
        lesions_of_case=lesions,
        cluster=cluster,
        box_case=np.concatenate([hit, wrong]).astype(np.int64),
        box_lesion=np.concatenate([lesion_id[hit], np.full(wrong.size, -1)]).astype(np.int64),
        box_score=np.concatenate([hit_score, rng.normal(size=wrong.size)]),
    )
