"""One run of a task with two classes (US-15 to US-18): metrics, temperature, lesions against normal cases.

Raw and calibrated probabilities are two columns of one evaluator, so that every metric is made in one pass.
Intervals take the study's clusters: patients, merged where near-duplicates link them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from elsewhere.errors import UserError
from elsewhere.protocols import ClassificationRules
from elsewhere.scoring.binary import BinaryEvaluator, ProbabilityRules
from elsewhere.scoring.task import Scores, tasks
from elsewhere.statistics.abstention import energy_uncertainty, softmax_uncertainty
from elsewhere.statistics.auroc import auroc_interval
from elsewhere.statistics.calibration import Temperature, fit_temperature

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]

METRICS = (
    "auroc",
    "auprc",
    "sensitivity",
    "specificity",
    "balanced_accuracy",
    "f1",
    "ece_confidence",
    "ece_malignant",
    "nll",
)
ALL_METRICS = (*METRICS, *(f"{m}_calibrated" for m in METRICS))
BOUNDED = {m: (0.0, math.inf if m.startswith("nll") else 1.0) for m in ALL_METRICS}
FEWEST_NORMAL = 20
SCORES = ("max_softmax", "energy", "mahalanobis")
"""What one network says of its own uncertainty; the ensemble's two need all seeds."""
_COLUMNS = ("case", "patient", "cluster", "label", "probability")
SMALLEST_PROBABILITY = 2.0**-52
"""Probabilities are cut here before their log odds are taken."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Test, validation or normal cases of a run, as arrays.

    Args:
        case: Names of the cases.
        patient: Patient of each case.
        cluster: Cluster of each case, which intervals resample: the patient, or patients joined by
            near-duplicates.
        label: 0, 1, or -1 for a case of neither class.
        probability: Probability of the positive class; NaN for no answer.
        logits: One row per case with the negative and the positive class; no columns where the recipe gives
            none.
        distance: Mahalanobis distance from the training part; NaN where the recipe gives none.
    """

    case: npt.NDArray[np.object_]
    patient: npt.NDArray[np.object_]
    cluster: npt.NDArray[np.object_]
    label: npt.NDArray[np.int8]
    probability: FloatArray
    logits: FloatArray
    distance: FloatArray

    @property
    def size(self) -> int:
        """Number of cases."""
        return int(self.label.size)

    @property
    def logit(self) -> FloatArray:
        """Log odds of the positive class: the difference of the logits where there are any."""
        if self.logits.shape[1]:
            return np.asarray(self.logits[:, 1] - self.logits[:, 0])
        cut = np.clip(self.probability, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
        return np.asarray(special.logit(cut))

    def uncertainty(self, score: str) -> FloatArray:
        """Compute how unsure the model is of each case.

        Args:
            score: One of `SCORES`.

        Returns:
            One value per case, higher for less sure; NaN where it cannot be known.
        """
        if score == "max_softmax":
            if self.logits.shape[1]:
                return softmax_uncertainty(self.logits)
            return np.asarray(1.0 - np.maximum(self.probability, 1.0 - self.probability))
        if score == "energy":
            return energy_uncertainty(self.logits) if self.logits.shape[1] else np.full(self.size, np.nan)
        return self.distance


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run's row of the table, and the arrays that seeds, patients and abstention need again.

    Args:
        row: The run's keys, metrics, temperature and counts.
        test: The test cases.
        normal: The normal cases; may be empty.
        probability: Probability of each test case before calibration.
        calibrated: The same after temperature scaling.
        cluster: Cluster of each test case, numbered over the whole study.
        threshold: Threshold of the decision.
        inclusive: Whether the threshold itself counts as positive.
    """

    row: dict[str, Any]
    test: Part
    normal: Part
    probability: FloatArray
    calibrated: FloatArray
    cluster: IntArray
    threshold: float
    inclusive: bool


def part_of(frame: pd.DataFrame | None, *, where: str) -> Part:
    """Read a part's table as arrays.

    Args:
        frame: A table with `elsewhere.study.results.ANSWER_COLUMNS`; None for a part without cases.
        where: The run and part, for messages.

    Returns:
        The arrays.

    Raises:
        UserError: If a column is missing.
    """
    if frame is None:
        frame = pd.DataFrame({name: [] for name in _COLUMNS})
    missing = [c for c in _COLUMNS if c not in frame.columns]
    if missing:
        raise UserError(f"the answers have no column {', '.join(missing)}", where=where)
    both = [name for name in ("logit_negative", "logit_positive") if name in frame.columns]
    logits = frame[both].to_numpy(dtype=np.float64) if len(both) == 2 else np.zeros((len(frame), 0))
    distance = frame["distance"] if "distance" in frame.columns else pd.Series(np.nan, index=frame.index)
    return Part(
        case=frame["case"].to_numpy(dtype=object),
        patient=frame["patient"].to_numpy(dtype=object),
        cluster=frame["cluster"].to_numpy(dtype=object),
        label=frame["label"].to_numpy(dtype=np.int8),
        probability=frame["probability"].to_numpy(dtype=np.float64),
        logits=logits,
        distance=pd.to_numeric(distance, errors="coerce").to_numpy(dtype=np.float64),
    )


def temperature_of(validation: Part, rules: ClassificationRules, *, predicted: bool = True) -> Temperature:
    """Fit a temperature on the source's validation part alone.

    Args:
        validation: The validation part.
        rules: Bounds of the temperature, and how many cases it takes.
        predicted: Whether the validation part was predicted at all.

    Returns:
        The temperature; 1 with the reason where it cannot be fitted.
    """
    z = validation.logit
    broken = int((~(np.isfinite(validation.probability) & np.isfinite(z))).sum())
    reason = "" if predicted else "not eligible: the validation part was not predicted"
    if broken:
        reason = f"not eligible: {broken} of {validation.size} validation answers are not finite"
    if reason:
        return Temperature(
            value=1.0,
            eligible=False,
            hit_bound=None,
            nll_before=None,
            nll_after=None,
            cases=validation.size,
            positives=int((validation.label == 1).sum()),
            bounds=rules.temperature_bounds,
            reason=reason,
        )
    return fit_temperature(
        validation.label,
        z,
        bounds=rules.temperature_bounds,
        min_cases=rules.calibration_min_cases,
        min_per_class=rules.calibration_min_per_class,
    )


def lesion_against_normal(
    lesion: FloatArray, normal: FloatArray, *, reason: str | None = None
) -> dict[str, Any]:
    """Test whether uncertainty separates normal cases from lesions; it takes at least 20 normal images.

    Normal is the positive class, and the uncertainty is its score.

    Args:
        lesion: Uncertainty of each image with a lesion.
        normal: Uncertainty of each normal image.
        reason: Why there is no value, where the caller knows it already; None to compute one.

    Returns:
        `auroc`, `auprc` and `reason`; both numbers are NaN where there is a reason.

    Example:
        >>> lesion_against_normal(np.array([0.1]), np.array([0.4]))["reason"]
        '1 normal images, and it takes 20'
    """
    if reason is None and normal.size < FEWEST_NORMAL:
        reason = f"{normal.size} normal images, and it takes {FEWEST_NORMAL}"
    if reason is None and lesion.size == 0:
        reason = "no lesion image"
    both = np.concatenate([lesion, normal])
    if reason is None and not np.isfinite(both).all():
        reason = f"{int((~np.isfinite(both)).sum())} images have no score"
    if reason is not None:
        return {"auroc": math.nan, "auprc": math.nan, "reason": reason}
    label = np.concatenate([np.zeros(lesion.size, dtype=np.int8), np.ones(normal.size, dtype=np.int8)])
    values = BinaryEvaluator(
        label=label,
        probability=_into_unit(both),
        cluster_of_case=np.zeros(label.size, dtype=np.int32),
        n_clusters=1,
        metrics=("auroc", "auprc"),
    ).values()
    return {"auroc": values["auroc"], "auprc": values["auprc"], "reason": None}


def _into_unit(score: FloatArray) -> FloatArray:
    """The scores' places in [0, 1]: AUROC and average precision see the order alone, ties kept."""
    places = np.unique(score, return_inverse=True)[1].ravel().astype(np.float64)
    return places / max(1.0, float(places.max()))


def judge_run(
    keys: Mapping[str, Any],
    answers: Mapping[str, pd.DataFrame],
    scores: Scores,
    *,
    number_of: Callable[[npt.NDArray[np.object_]], IntArray],
) -> Judged:
    """Compute everything that one run is judged by.

    Args:
        keys: Columns that name the run; they begin its row.
        answers: Its answers by part: `test`, `validation` and `normal`.
        scores: Its scores, for the protocol and the threshold.
        number_of: Numbers clusters over the whole study.

    Returns:
        The row and the arrays behind it.

    Raises:
        UserError: If a test case has neither of the two classes, or the answers lack a column.
    """
    run = str(keys["run"])
    rules = scores.protocol.classification
    test = part_of(answers.get("test"), where=f"run {run}, test")
    validation = part_of(answers.get("validation"), where=f"run {run}, validation")
    normal = part_of(answers.get("normal"), where=f"run {run}, normal")
    if not np.isin(test.label, (0, 1)).all():
        raise UserError("a test case has neither of the two classes", where=f"run {run}")
    known = np.isin(validation.label, (0, 1))
    if not known.all():
        validation = part_of(answers["validation"][known], where=f"run {run}, validation")
    threshold = float(scores.extras.get("threshold", rules.threshold))
    inclusive = tasks.get(scores.task).threshold_inclusive(scores.protocol)
    temperature = temperature_of(validation, rules, predicted="validation" in answers)
    probability = test.probability
    calibrated = special.expit(test.logit / temperature.value)
    cluster = number_of(test.cluster)
    local = np.unique(cluster, return_inverse=True)[1].astype(np.int32).ravel()
    evaluator = BinaryEvaluator(
        label=test.label,
        probability=probability,
        calibrated=calibrated,
        cluster_of_case=local,
        n_clusters=int(local.max()) + 1 if local.size else 0,
        rules=ProbabilityRules(
            threshold=threshold, inclusive=inclusive, bins=rules.bins, nll_epsilon=rules.nll_epsilon
        ),
        metrics=METRICS,
    )
    values = evaluator.values() if test.size else dict.fromkeys(ALL_METRICS, math.nan)
    answered = np.isfinite(probability)
    interval = auroc_interval(test.label, probability, local) if answered.all() and test.size else None
    row: dict[str, Any] = {
        **keys,
        "cases": test.size,
        "positives": int((test.label == 1).sum()),
        "patients": len(set(test.patient.tolist())),
        "no_answer": int((~answered).sum()),
        **{name: values[name] for name in ALL_METRICS},
        "auroc_lo": interval.lo if interval else math.nan,
        "auroc_hi": interval.hi if interval else math.nan,
        "auroc_interval": interval.method if interval else "none",
        "temperature": temperature.value,
        "calibration_eligible": temperature.eligible,
        "calibration_reason": temperature.reason or "",
        "temperature_bound": temperature.hit_bound or "",
        "validation_cases": temperature.cases,
        "validation_positives": temperature.positives,
        "normal_images": normal.size,
        "normal_shared_patients": len(set(test.patient.tolist()) & set(normal.patient.tolist())),
        "leaked_groups": int(np.isin(np.unique(number_of(validation.cluster)), cluster).sum()),
    }
    for score in SCORES:
        made = lesion_against_normal(test.uncertainty(score), normal.uncertainty(score))
        prefix = "normal" if score == "max_softmax" else f"normal_{score}"
        row[f"{prefix}_auroc"], row[f"{prefix}_auprc"] = made["auroc"], made["auprc"]
        row[f"{prefix}_reason"] = made["reason"] or ""
    return Judged(
        row=row,
        test=test,
        normal=normal,
        probability=probability,
        calibrated=calibrated,
        cluster=cluster,
        threshold=threshold,
        inclusive=inclusive,
    )
