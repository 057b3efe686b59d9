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
"""Share of positive cases in a patient who has any (more where the prevalence requires it)."""


EQUAL, HEAVY_FEW = "equal", "5 % of patients with 20 to 60 cases, the others with 1"
_HEAVY_SHARE, _HEAVY_CASES = 0.05, (20, 60)


@dataclass(frozen=True, kw_only=True)
class BinormalDesign:
    """A cohort whose scores are normal in both classes, with a patient effect.

    Args:
        patients: Number of patients.
        cases_per_patient: Number of cases of each patient; not used with `counts` HEAVY_FEW.
        counts: EQUAL, or HEAVY_FEW: few patients have most of the cases.
        positive_patients: Number of patients with a positive case; None draws it by the prevalence.
        prevalence: Share of positive cases.
        auroc: The AUROC in the population.
        intraclass: Correlation of two cases of a patient, given the class.
        slope: Factor that stretches the logit of the probabilities; 1 is calibrated.

    Example:
        >>> round(BinormalDesign(patients=100, auroc=0.5).separation, 3)
        0.0
    """

    patients: int
    cases_per_patient: int = 1
    counts: str = EQUAL
    positive_patients: int | None = None
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
    """Simulated cases, with one entry per case in every array.

    Args:
        label: The truth, 0 or 1.
        score: The score on the normal scale.
        probability: The predicted probability.
        cluster: Number of the patient.
    """

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
    """Draw the scores of one model.

    Args:
        design: The design: separation of the classes and correlation within a patient.
        label: The truth, 0 or 1, (patients, cases).
        rng: The generator of all draws.
        shared: Noise (patients, cases) that two models have in common, so that they agree beyond the truth;
            None for a single model.

    Returns:
        Scores (patients, cases).
    """
    patient = rng.normal(size=(label.shape[0], 1)) * math.sqrt(design.intraclass)
    own = rng.normal(size=label.shape) * math.sqrt(1.0 - design.intraclass)
    noise = patient + own
    if shared is not None:
        noise = (noise + shared) / math.sqrt(2.0)
    return noise + design.separation * label


def to_probability(design: BinormalDesign, score: FloatArray) -> FloatArray:
    """Compute the posterior of the binormal model, its logit stretched by `slope`: known, and not calibrated.

    Args:
        design: The design: separation of the classes, prevalence and slope.
        score: Scores of any shape.

    Returns:
        Probabilities of the same shape.

    Example:
        >>> to_probability(BinormalDesign(patients=1, prevalence=0.5, auroc=0.5), np.zeros(1)).tolist()
        [0.5]
    """
    d, p = design.separation, design.prevalence
    logit = d * score - d * d / 2.0 + math.log(p / (1.0 - p))
    return special.expit(design.slope * logit)


def cases_of_patients(
    patients: int, cases_per_patient: int, counts: str, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Choose how many cases each patient has.

    Args:
        patients: Number of patients.
        cases_per_patient: Number of cases of each with EQUAL; not used otherwise.
        counts: EQUAL or HEAVY_FEW.
        rng: The generator of all draws.

    Returns:
        Number of cases by patient; with HEAVY_FEW the first 5 % have 20 to 60.

    Example:
        >>> cases_of_patients(3, 2, EQUAL, np.random.default_rng(0)).tolist()
        [2, 2, 2]
    """
    if counts == EQUAL:
        return np.full(patients, cases_per_patient, dtype=np.int64)
    sizes = np.ones(patients, dtype=np.int64)
    heavy = max(1, round(_HEAVY_SHARE * patients))
    sizes[:heavy] = rng.integers(_HEAVY_CASES[0], _HEAVY_CASES[1] + 1, size=heavy)
    return sizes


def patient_noise(
    sizes: npt.NDArray[np.int64], intraclass: float, rng: np.random.Generator
) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Draw standard normal noise, one value per case, correlated within a patient.

    Args:
        sizes: Number of cases by patient.
        intraclass: Correlation of two cases of a patient, 0 to 1.
        rng: The generator of all draws.

    Returns:
        The noise, and the patient of each case.
    """
    cluster = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
    patient = rng.normal(size=sizes.size) * math.sqrt(intraclass)
    return patient[cluster] + rng.normal(size=cluster.size) * math.sqrt(1.0 - intraclass), cluster


def _simulate_uneven(design: BinormalDesign, rng: np.random.Generator) -> SimulatedCases:
    """Draw unequal numbers of cases or a fixed number of positive patients, with the same marginals."""
    sizes = cases_of_patients(design.patients, design.cases_per_patient, design.counts, rng)
    noise, cluster = patient_noise(sizes, design.intraclass, rng)
    single = design.counts == EQUAL and design.cases_per_patient == 1
    of_patients = design.prevalence if single else min(1.0, design.prevalence / SHARE_IN_POSITIVE_PATIENT)
    within = design.prevalence / of_patients
    if design.positive_patients is None:
        positive = rng.random(design.patients) < of_patients
    else:
        positive = np.arange(design.patients) < design.positive_patients
    label = (positive[cluster] & (rng.random(cluster.size) < within)).astype(np.int8)
    score = noise + design.separation * label
    return SimulatedCases(label, score, to_probability(design, score), cluster)


def simulate_binormal(design: BinormalDesign, rng: np.random.Generator) -> SimulatedCases:
    """Draw a cohort with labels, scores and probabilities.

    Args:
        design: The cohort.
        rng: The generator of all draws.

    Returns:
        The cases, patient by patient.

    Example:
        >>> design = BinormalDesign(patients=50, cases_per_patient=2)
        >>> cases = simulate_binormal(design, np.random.default_rng(0))
        >>> cases.label.size, int(cases.cluster.max())
        (100, 49)
    """
    if design.counts != EQUAL or design.positive_patients is not None:
        return _simulate_uneven(design, rng)
    label = _labels(design, rng)
    score = binormal_scores(design, label, rng)
    cluster = np.repeat(np.arange(design.patients, dtype=np.int32), design.cases_per_patient)
    return SimulatedCases(label.ravel(), score.ravel(), to_probability(design, score).ravel(), cluster)


def simulate_two_models(
    design: BinormalDesign, rng: np.random.Generator
) -> tuple[SimulatedCases, SimulatedCases]:
    """Draw two models of the same AUROC on the same cases: the null hypothesis of a comparison.

    Half of their noise is common.

    Args:
        design: The cohort; `counts` and `positive_patients` are not used.
        rng: The generator of all draws.

    Returns:
        The cases of each model; labels and patients are the same.
    """
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
    counts: str = EQUAL,
) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Draw Dice values: logit-normal around 0.8 with a patient effect, and some failures at exactly 0.

    Args:
        patients: Number of patients.
        cases_per_patient: Number of cases of each patient; not used with `counts` HEAVY_FEW.
        rng: The generator of all draws.
        centre: Median of the values that did not fail, on the logit scale.
        spread: Standard deviation on the logit scale.
        intraclass: Correlation of two cases of a patient, on the logit scale.
        failure_rate: Share of cases with a Dice of 0.
        counts: EQUAL or HEAVY_FEW.

    Returns:
        The values, and the patient of each case.
    """
    if counts != EQUAL:
        sizes = cases_of_patients(patients, cases_per_patient, counts, rng)
        uneven, cluster = patient_noise(sizes, intraclass, rng)
        dice = special.expit(centre + spread * uneven)
        dice[rng.random(dice.size) < failure_rate] = 0.0
        return dice, cluster
    shape = (patients, cases_per_patient)
    noise = rng.normal(size=(patients, 1)) * math.sqrt(intraclass)
    noise = noise + rng.normal(size=shape) * math.sqrt(1.0 - intraclass)
    dice = special.expit(centre + spread * noise)
    dice[rng.random(shape) < failure_rate] = 0.0
    return dice.ravel(), np.repeat(np.arange(patients, dtype=np.int32), cases_per_patient)


@dataclass(frozen=True, kw_only=True)
class SkewedDesign:
    """Values that are mostly small and now and then large, as such metrics are in practice (ST-03a).

    'distance' is lognormal, with failures at one large value. 'rate' is zero except for a share of the cases,
    where it is lognormal and at most 1. 'count' is negative binomial.

    Args:
        metric: Name of the metric that the values stand for.
        shape: 'distance', 'rate' or 'count'.
        median: Median of the lognormal values ('distance' in mm); for 'count' the mean.
        sigma: Standard deviation of the logarithm; for 'count' the dispersion.
        nonzero: Share of cases of a 'rate' that are not zero.
        failures: Share of cases of a 'distance' that failed.
        far: The distance of a failed case in mm.

    Example:
        >>> SkewedDesign(metric="false_components_per_case", shape="count", median=0.5, sigma=0.2).title
        'negative binomial, mean 0.5, dispersion 0.2'
    """

    metric: str
    shape: str
    median: float
    sigma: float
    nonzero: float = 1.0
    failures: float = 0.0
    far: float = 150.0

    @property
    def title(self) -> str:
        """The distribution in words, for a table."""
        if self.shape == "distance":
            failed = f", {100 * self.failures:g} % failures at {self.far:g}" if self.failures else ""
            return f"lognormal, sigma {self.sigma:g}{failed}"
        if self.shape == "rate":
            return f"zero but for {100 * self.nonzero:g} %"
        return f"negative binomial, mean {self.median:g}, dispersion {self.sigma:g}"


SKEWED_DESIGNS = (
    SkewedDesign(metric="hausdorff95_mm", shape="distance", median=6.0, sigma=0.8),
    SkewedDesign(metric="hausdorff95_mm", shape="distance", median=6.0, sigma=1.1),
    SkewedDesign(metric="hausdorff95_mm", shape="distance", median=6.0, sigma=0.9, failures=0.04),
    SkewedDesign(metric="slide_false_positive_rate", shape="rate", median=0.005, sigma=1.5, nonzero=0.3),
    SkewedDesign(metric="slide_false_positive_rate", shape="rate", median=0.005, sigma=1.5, nonzero=0.15),
    SkewedDesign(metric="false_components_per_case", shape="count", median=0.5, sigma=0.5),
    SkewedDesign(metric="false_components_per_case", shape="count", median=0.3, sigma=0.2),
)


def simulate_skewed(
    design: SkewedDesign,
    patients: int,
    cases_per_patient: int,
    rng: np.random.Generator,
    *,
    counts: str = EQUAL,
    intraclass: float = 0.5,
) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Draw the values of a skewed metric; the values of a patient's cases are alike.

    Args:
        design: The distribution.
        patients: Number of patients.
        cases_per_patient: Number of cases of each patient; not used with `counts` HEAVY_FEW.
        rng: The generator of all draws.
        counts: EQUAL or HEAVY_FEW.
        intraclass: Correlation of two cases of a patient on the normal scale; not used for 'count', whose
            cases share the patient's mean.

    Returns:
        The values, and the patient of each case.
    """
    sizes = cases_of_patients(patients, cases_per_patient, counts, rng)
    noise, cluster = patient_noise(sizes, intraclass, rng)
    if design.shape == "distance":
        values = design.median * np.exp(design.sigma * noise)
        values[rng.random(values.size) < design.failures] = design.far
        return values, cluster
    if design.shape == "rate":
        large = design.median * np.exp(design.sigma * rng.normal(size=noise.size))
        return np.where(special.ndtr(noise) < design.nonzero, np.minimum(large, 1.0), 0.0), cluster
    mean_of_patient = rng.gamma(design.sigma, design.median / design.sigma, size=patients)
    return rng.poisson(mean_of_patient[cluster]).astype(np.float64), cluster


def skewed_mean(design: SkewedDesign) -> float:
    """Compute the population mean of a skewed design, in closed form.

    Args:
        design: The distribution.

    Returns:
        The mean.

    Example:
        >>> skewed_mean(SkewedDesign(metric="x", shape="distance", median=6.0, sigma=0.0, failures=0.5))
        78.0
    """
    if design.shape == "distance":
        typical = design.median * math.exp(design.sigma**2 / 2.0)
        return (1.0 - design.failures) * typical + design.failures * design.far
    if design.shape == "rate":
        s, cut = design.sigma, -math.log(design.median) / design.sigma
        below = design.median * math.exp(s * s / 2.0) * special.ndtr(cut - s)
        return float(design.nonzero * (below + special.ndtr(-cut)))
    return design.median


@dataclass(frozen=True)
class SimulatedBoxes:
    """The boxes of a simulated detector.

    Args:
        lesions_of_case: Number of lesions by volume.
        cluster: Patient of each volume.
        box_case: Volume of each box.
        box_lesion: The lesion that a box hits, numbered over all volumes; -1 for none.
        box_score: Score of each box.
    """

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
    """Draw one lesion in some volumes, found with a patient effect, and false boxes in all volumes.

    Args:
        patients: Number of patients.
        volumes_per_patient: Number of volumes of each patient.
        rng: The generator of all draws.
        positive_share: Share of volumes with a lesion.
        separation: Mean score of a box that hits; false boxes have mean 0, both with standard deviation 1.
        found_at_all: Share of lesions with a box.
        false_per_volume: Mean number of false boxes per volume.

    Returns:
        Lesions, patients and boxes.
    """
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
