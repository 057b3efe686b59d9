"""The effect of counting every picture as a patient: the same study twice, and the difference.

The published study counts one id per image in two datasets, so that pictures of one woman may be in training
and in test. The study is run once with the sets' real patient ids and once with one id per image; the
difference of the two is what that leak adds to the reported number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere.errors import UserError
from elsewhere.statistics.scenario import paired_scenarios

if TYPE_CHECKING:
    from elsewhere.analysis.study.summary import StudySummary

_KEYS = ["kind", "scenario", "source", "target", "model", "input"]


def compare_id_readings(
    summary_patient: StudySummary, summary_image: StudySummary, *, metric: str = "auroc"
) -> pd.DataFrame:
    """Compare the same study with image-level and with patient-level ids, seeds averaged, paired by scenario
    and configuration.

    Rows: each dataset's internal scenario (the leak is there), then each kind over all scenarios, where a
    scenario's configurations are averaged first. External rows are a control: no patient of the target is in
    the source under either reading, so that only the validation split moves.

    Args:
        summary_patient: The study with the real patient ids.
        summary_image: The study in which every image counts as a patient.
        metric: A column of the tables of scenarios.

    Returns:
        One row per comparison; `worth` is the image-level minus the patient-level value, with its interval
        and p.

    Raises:
        UserError: If a table has no such column, or the two studies share no scenario and configuration.
    """
    a = summary_patient.tables["scenarios"]
    b = summary_image.tables["scenarios"]
    if metric not in a.columns or metric not in b.columns:
        raise UserError(f"no column {metric} in the tables of scenarios")
    both = a[[*_KEYS, metric]].merge(b[[*_KEYS, metric]], on=_KEYS, suffixes=("_patient", "_image"))
    if both.empty:
        raise UserError(
            "the two studies share no scenario and configuration", fix="Run the same study with --ids image."
        )
    rows: list[dict[str, Any]] = []
    for target, part in both[both["kind"] == "internal"].groupby("target", sort=False):
        rows.append(_row("internal", str(target), part, metric, by=["model", "input"]))
    for kind, part in both.groupby("kind", sort=False):
        mean = part.groupby("scenario", as_index=False)[[f"{metric}_patient", f"{metric}_image"]].mean()
        rows.append(_row(str(kind), "all", mean, metric, by=["scenario"]))
    return pd.DataFrame(rows)


def _row(kind: str, dataset: str, part: pd.DataFrame, metric: str, *, by: list[str]) -> dict[str, Any]:
    named = part.assign(_at=part[by].astype(str).agg("|".join, axis=1)).set_index("_at")
    made = paired_scenarios(named[f"{metric}_image"], named[f"{metric}_patient"])
    return {
        "kind": kind,
        "dataset": dataset,
        "pairs_are": "configurations" if by != ["scenario"] else "scenarios",
        f"{metric}_patient": float(named[f"{metric}_patient"].mean()),
        f"{metric}_image": float(named[f"{metric}_image"].mean()),
        "worth": made.difference,
        "lo": made.lo,
        "hi": made.hi,
        "p": made.p,
        "smallest_p": made.smallest_p,
        "pairs": made.pairs,
    }
