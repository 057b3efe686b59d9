"""Parts of the scores of masks: lesion recall by diameter, and Dice and false-positive rates by stage (LN-14, LN-26)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from elsewhere.predictions.stages import STAGES
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.from_masks import size_class_columns
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.proportions import proportion_interval

BY_STAGE = (
    "slide_dice",
    "slide_dice_within_line",
    "slide_dice_beyond_line",
    "slide_false_positive_rate",
    "slide_false_positive_rate_tissue",
)
_LEVEL = 0.95


def recall_by_diameter(cases: pd.DataFrame, rules: SlideRules, partition: Clusters) -> list[dict[str, Any]]:
    """Count the lesions of the truth masks, and those that the predictions touch, by diameter (LN-26).

    Args:
        cases: The case table.
        rules: The protocol's rules of slides.
        partition: The patients of the cases.

    Returns:
        One row per class of diameters, with a 95 % Wilson interval whose number of lesions is that of independent patients;
        nothing where no masks were scored.
    """
    rows: list[dict[str, Any]] = []
    for words, lesions, found in size_class_columns(rules):
        if lesions not in cases.columns:
            continue
        n, k = int(cases[lesions].sum()), int(cases[found].sum())
        made = proportion_interval(
            cases[found].to_numpy(dtype=float),
            cases[lesions].to_numpy(dtype=float),
            partition.cluster_of_case,
            n_clusters=partition.n_clusters,
            level=_LEVEL,
        )
        rows.append(
            {
                "diameter": words,
                "lesions": n,
                "found": k,
                "recall": k / n if n else None,
                "lo": None if made is None or not n else float(made.lo),
                "hi": None if made is None or not n else float(made.hi),
            }
        )
    return rows


def scores_by_stage(cases: pd.DataFrame, partition: Clusters) -> dict[str, dict[str, Any]]:
    """Average the scores of the masks over the slides of each true stage.

    Args:
        cases: The case table.
        partition: The patients of the cases.

    Returns:
        By stage: `cases`, `patients`, and for each score that any slide of the stage has its mean and its standard
        deviation over slides; nothing where no masks were scored.
    """
    if "slide_dice" not in cases.columns or "stage_true" not in cases.columns:
        return {}
    made: dict[str, dict[str, Any]] = {}
    for stage in STAGES:
        mine = (cases["stage_true"] == stage).to_numpy(dtype=bool)
        if not mine.any():
            continue
        metrics = {}
        for name in BY_STAGE:
            values = pd.to_numeric(cases.loc[mine, name], errors="coerce").to_numpy(dtype=float)
            values = values[np.isfinite(values)]
            if values.size:
                metrics[name] = {
                    "value": float(values.mean()),
                    "sd": float(values.std(ddof=1)) if values.size > 1 else None,
                    "slides": int(values.size),
                }
        made[stage] = {
            "cases": int(mine.sum()),
            "patients": int(np.unique(np.asarray(partition.cluster_of_case)[mine]).size),
            "metrics": metrics,
        }
    return made
