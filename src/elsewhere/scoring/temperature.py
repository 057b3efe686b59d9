"""Temperature scaling from a calibration file (US-16): fitted on other cases than those it is judged by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.predictions.probability import read_probabilities
from elsewhere.predictions.table import ReadOptions
from elsewhere.protocols import ClassificationRules
from elsewhere.scoring.labels import read_truth
from elsewhere.tables import read_table

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """`value` divides the logit. Not `eligible`: too few cases, the value is 1 and `reason` says why."""

    value: float
    eligible: bool
    reason: str
    at_bound: bool
    cases: int
    positives: int
    nll_before: float | None = None
    nll_after: float | None = None
    overlap: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def warnings(self) -> tuple[str, ...]:
        found = []
        if not self.eligible:
            found.append(f"Not calibrated (temperature 1): {self.reason}.")
        if self.at_bound:
            found.append(f"The temperature stopped at its bound, {self.value:g}: the best one lies beyond.")
        if self.overlap:
            found.append(
                f"{self.overlap} ids of the calibration file are also cases of this cohort: a temperature "
                "fitted on the cases it is judged by flatters the calibrated metrics."
            )
        return tuple(found)


def logit_of(probability: npt.ArrayLike) -> FloatArray:
    """Log odds; minus or plus infinity at 0 and 1."""
    p = np.asarray(probability, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-p)


def scale_probability(probability: npt.ArrayLike, temperature: float) -> FloatArray:
    """The probability after its logit is divided by the temperature; NaN, 0 and 1 stay as they are."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-logit_of(probability) / temperature))


def fit_temperature(
    label: npt.ArrayLike, probability: npt.ArrayLike, *, rules: ClassificationRules | None = None
) -> Temperature:
    """The temperature of least NLL within the bounds; NLL is convex in 1/T, so there is one minimum."""
    from scipy.optimize import minimize_scalar

    rules = rules or ClassificationRules()
    truth = np.asarray(label) > 0
    z = np.clip(logit_of(probability), np.log(rules.nll_epsilon), -np.log(rules.nll_epsilon))
    positives = int(truth.sum())
    fewest = min(positives, truth.size - positives)
    if truth.size < rules.calibration_min_cases or fewest < rules.calibration_min_per_class:
        reason = (
            f"{truth.size} cases with {positives} positive; at least {rules.calibration_min_cases} with "
            f"{rules.calibration_min_per_class} of each class are needed"
        )
        return Temperature(
            value=1.0, eligible=False, reason=reason, at_bound=False, cases=truth.size, positives=positives
        )
    signed = np.where(truth, z, -z)

    def nll(inverse: float) -> float:
        return float(np.logaddexp(0.0, -signed * inverse).mean())

    low, high = rules.temperature_bounds
    found = minimize_scalar(nll, bounds=(1.0 / high, 1.0 / low), method="bounded", options={"xatol": 1e-12})
    best = 1.0 / float(found.x)
    for bound in (low, high):
        if nll(1.0 / bound) <= float(found.fun) + 1e-15:
            best = bound
    at_bound = bool(min(abs(best - low), abs(best - high)) < 1e-6)
    return Temperature(
        value=best,
        eligible=True,
        reason="",
        at_bound=at_bound,
        cases=truth.size,
        positives=positives,
        nll_before=nll(1.0),
        nll_after=nll(1.0 / best),
    )


def temperature_from_file(
    path: str | Path, *, rules: ClassificationRules, cohort_ids: npt.ArrayLike | None = None
) -> Temperature:
    """From a table with `case_id, probability, label`; ids shared with the cohort are counted (leakage)."""
    raw = read_table(path, required=("label",), strings=("case_id", "label"))
    predictions = read_probabilities(path, ReadOptions())
    truth = read_truth(raw, "label")
    probability = predictions.table["probability"].to_numpy(dtype=np.float64)
    usable = (truth.label >= 0) & np.isfinite(probability)
    if not usable.any():
        raise UserError(
            "no row has both a probability and a label of benign or malignant (0 or 1)",
            where=str(path),
            fix="The calibration file needs the columns case_id, probability and label.",
        )
    fitted = fit_temperature(truth.label[usable], probability[usable], rules=rules)
    overlap = 0
    if cohort_ids is not None:
        overlap = int(
            np.isin(predictions.table["case_id"].to_numpy(dtype=object), np.asarray(cohort_ids)).sum()
        )
    return Temperature(**{**asdict(fitted), "overlap": overlap})
