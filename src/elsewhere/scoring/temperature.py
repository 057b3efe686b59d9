"""Temperature scaling from a calibration file (US-16): fitted on other cases than it is judged on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.predictions.probability import read_probabilities
from elsewhere.predictions.table import ReadOptions
from elsewhere.protocols import ClassificationRules
from elsewhere.scoring.labels import read_truth
from elsewhere.statistics.calibration import Temperature, fit_temperature, to_logit
from elsewhere.tables import read_table
from elsewhere.tables.reading import require_columns


@dataclass(frozen=True, kw_only=True)
class FileTemperature:
    """A temperature that was fitted on a calibration file.

    Args:
        fit: The fitted temperature.
        overlap: How many ids of the file are also cases of the cohort that it will be judged on.
        left_out: How many rows of the file have no usable probability or label.
    """

    fit: Temperature
    overlap: int = 0
    left_out: int = 0

    @property
    def value(self) -> float:
        """The temperature; 1 where none could be fitted."""
        return self.fit.value

    def to_dict(self) -> dict[str, Any]:
        """Return it as a mapping that json can hold.

        Returns:
            The fit, the overlap and the rows left out.
        """
        return self.fit.to_dict() | {"overlap": self.overlap, "left_out": self.left_out}

    def warnings(self) -> tuple[str, ...]:
        """List what a reader of calibrated metrics should know about the fit.

        Returns:
            Warnings as sentences, without ids.
        """
        found = []
        if not self.fit.eligible:
            found.append(f"Not calibrated, temperature 1 ({self.fit.reason}).")
        if self.fit.hit_bound:
            found.append(
                f"The temperature stopped at its {self.fit.hit_bound} bound, {self.value:g}: "
                "the best one lies beyond."
            )
        if self.overlap:
            found.append(
                f"{self.overlap} ids of the calibration file are also cases of this cohort: a temperature "
                "fitted on the cases it is judged on flatters the calibrated metrics."
            )
        if self.left_out:
            found.append(
                f"{self.left_out} rows of the calibration file have no usable probability or no label of "
                "benign or malignant, and were left out of the fit."
            )
        return tuple(found)


def temperature_of(
    label: npt.ArrayLike, probability: npt.ArrayLike, *, rules: ClassificationRules | None = None
) -> Temperature:
    """Fit a temperature within the bounds of the protocol (US-16).

    Args:
        label: The class of each case, 0 or 1.
        probability: The probability of the positive class of each case.
        rules: The protocol's rules; None takes the defaults.

    Returns:
        The temperature; 1 where there are too few cases.
    """
    rules = rules or ClassificationRules()
    return fit_temperature(
        np.asarray(label),
        to_logit(np.asarray(probability, dtype=np.float64), epsilon=rules.nll_epsilon),
        bounds=rules.temperature_bounds,
        min_cases=rules.calibration_min_cases,
        min_per_class=rules.calibration_min_per_class,
    )


def temperature_from_file(
    path: str | Path,
    *,
    rules: ClassificationRules,
    cohort_ids: npt.ArrayLike | None = None,
    read: ReadOptions | None = None,
) -> FileTemperature:
    """Fit a temperature on a table with `case_id, probability, label`; ids of the cohort are counted.

    The file comes from the same model, so `read` (columns, scale, encoding) is that of the predictions. Ids
    that the cohort has too are data leakage.

    Args:
        path: The table.
        rules: The protocol's rules.
        cohort_ids: The ids of the cohort that the temperature will be judged on; None counts no overlap.
        read: How the table is read; None takes the defaults.

    Returns:
        The temperature.

    Raises:
        UserError: The file cannot be read, lacks a column, or has no usable row.
    """
    read = read or ReadOptions()
    raw = read_table(path, strings=("case_id", "label"), options=read.table)
    label = read.column_map.get("label", "label")
    require_columns(raw, [label], where=str(path))
    raw = raw.rename(columns={label: "label"})
    others = {target: column for target, column in read.column_map.items() if target != "label"}
    predictions = read_probabilities(path, replace(read, column_map=others, unit="case"))
    truth = read_truth(raw, "label")
    probability = predictions.table["probability"].to_numpy(dtype=np.float64)
    usable = (truth.label >= 0) & np.isfinite(probability)
    if not usable.any():
        raise UserError(
            "no row has both a probability and a label of benign or malignant (0 or 1)",
            where=str(path),
            fix="The calibration file needs the columns case_id, probability and label.",
        )
    fit = temperature_of(truth.label[usable], probability[usable], rules=rules)
    overlap = 0
    if cohort_ids is not None:
        known = set(np.asarray(cohort_ids, dtype=object).tolist())
        overlap = sum(case in known for case in predictions.table["case_id"])
    return FileTemperature(fit=fit, overlap=overlap, left_out=int((~usable).sum()))
