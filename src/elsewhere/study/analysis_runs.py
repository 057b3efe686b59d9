"""One run, judged: threshold, metrics, temperature, lesion against normal (US-15 to US-18).

Raw and calibrated are two columns of one evaluator, so that every metric is made in one pass. Intervals take
the study's groups (patients, merged with near-duplicates) as clusters.
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
from elsewhere.scoring.binary import BinaryEvaluator, ProbabilityRules
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
THRESHOLD = 0.5
FEWEST_NORMAL = 20
SCORES = ("max_softmax", "energy", "mahalanobis")
"""What one network says of its own uncertainty; the ensemble's two need all seeds."""
_COLUMNS = ("case", "patient", "label", "logit_benign", "logit_malignant")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Test, validation or normal cases of a run, as arrays. `distance` is NaN where there is none."""

    case: npt.NDArray[np.object_]
    patient: npt.NDArray[np.object_]
    label: npt.NDArray[np.int8]
    logits: FloatArray
    distance: FloatArray

    @property
    def size(self) -> int:
        return int(self.label.size)

    @property
    def logit(self) -> FloatArray:
        """Log odds of malignant: the difference of the two logits."""
        return np.asarray(self.logits[:, 1] - self.logits[:, 0])

    def uncertainty(self, score: str) -> FloatArray:
        if score == "max_softmax":
            return softmax_uncertainty(self.logits)
        return energy_uncertainty(self.logits) if score == "energy" else self.distance


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run's row of the table, and the arrays that seeds, patients and abstention need again."""

    row: dict[str, Any]
    test: Part
    normal: Part
    probability: FloatArray
    calibrated: FloatArray
    cluster: IntArray


def part_of(frame: pd.DataFrame | None, *, where: str) -> Part:
    """A part's table as arrays; an absent part is one without rows."""
    if frame is None or len(frame) == 0:
        none = np.zeros(0)
        return Part(
            case=none.astype(object),
            patient=none.astype(object),
            label=none.astype(np.int8),
            logits=np.zeros((0, 2)),
            distance=none,
        )
    missing = [c for c in _COLUMNS if c not in frame.columns]
    if missing:
        raise UserError(f"the outputs have no column {', '.join(missing)}", where=where)
    distance = frame["distance"] if "distance" in frame.columns else pd.Series(np.nan, index=frame.index)
    return Part(
        case=frame["case"].to_numpy(dtype=object),
        patient=frame["patient"].to_numpy(dtype=object),
        label=frame["label"].to_numpy(dtype=np.int8),
        logits=frame[["logit_benign", "logit_malignant"]].to_numpy(dtype=np.float64),
        distance=pd.to_numeric(distance, errors="coerce").to_numpy(dtype=np.float64),
    )


def temperature_of(validation: Part) -> Temperature:
    """US-16: fitted on the source's validation part alone, on [0.5, 5], with 40 images and 10 a class."""
    z = validation.logit
    broken = int((~np.isfinite(z)).sum())
    if broken:
        return Temperature(
            value=1.0,
            eligible=False,
            hit_bound=None,
            nll_before=None,
            nll_after=None,
            cases=validation.size,
            positives=int((validation.label == 1).sum()),
            bounds=(0.5, 5.0),
            reason=f"not eligible: {broken} of {validation.size} validation answers are not finite",
        )
    return fit_temperature(validation.label, z)


def lesion_against_normal(
    lesion: FloatArray, normal: FloatArray, *, reason: str | None = None
) -> dict[str, Any]:
    """US-18: normal is the positive class, the uncertainty its score; only with 20 normal images or more."""
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
    outputs: Mapping[str, pd.DataFrame],
    *,
    cluster_of: Callable[[Part], IntArray],
) -> Judged:
    """Everything one run is judged by. `cluster_of` numbers the groups of its test cases over the study."""
    run = str(keys["run"])
    test = part_of(outputs.get("test"), where=f"run {run}, test")
    validation = part_of(outputs.get("validation"), where=f"run {run}, validation")
    normal = part_of(outputs.get("normal"), where=f"run {run}, normal")
    if not np.isin(test.label, (0, 1)).all() or not np.isin(validation.label, (0, 1)).all():
        raise UserError(
            "a test or validation case is neither benign (0) nor malignant (1)", where=f"run {run}"
        )
    temperature = temperature_of(validation)
    z = test.logit
    probability = special.expit(z)
    calibrated = special.expit(z / temperature.value)
    cluster = cluster_of(test)
    local = np.unique(cluster, return_inverse=True)[1].astype(np.int32).ravel()
    evaluator = BinaryEvaluator(
        label=test.label,
        probability=probability,
        calibrated=calibrated,
        cluster_of_case=local,
        n_clusters=int(local.max()) + 1 if local.size else 0,
        metrics=METRICS,
        rules=ProbabilityRules(threshold=THRESHOLD),
    )
    values = evaluator.values() if test.size else dict.fromkeys(ALL_METRICS, math.nan)
    answered = np.isfinite(probability)
    interval = (
        auroc_interval(test.label[answered], probability[answered], local[answered])
        if answered.all()
        else None
    )
    seen = set(test.patient.tolist())
    shared = len(seen & set(normal.patient.tolist()))
    fitted = cluster_of(validation)
    leaked = int(np.isin(np.unique(fitted), cluster).sum())
    row: dict[str, Any] = {
        **keys,
        "cases": test.size,
        "malignant": int((test.label == 1).sum()),
        "patients": len(seen),
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
        "validation_malignant": temperature.positives,
        "normal_images": normal.size,
        "normal_shared_patients": shared,
        "leaked_groups": leaked,
    }
    for score in SCORES:
        made = lesion_against_normal(test.uncertainty(score), normal.uncertainty(score))
        prefix = "normal" if score == "max_softmax" else f"normal_{score}"
        row[f"{prefix}_auroc"], row[f"{prefix}_auprc"] = made["auroc"], made["auprc"]
        row[f"{prefix}_reason"] = made["reason"] or ""
    return Judged(
        row=row, test=test, normal=normal, probability=probability, calibrated=calibrated, cluster=cluster
    )
