"""The smallest effects that the patients of a study can show, before any result is known (ST-07)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.analysis.study.boards import (
    Board,
)
from elsewhere.analysis.study.groups import codes_of
from elsewhere.privacy import suppress
from elsewhere.statistics.power import auroc_variance, smallest_detectable_drop

ALPHA = 0.05
POWER = 0.8
_NAN = float("nan")


def minimum_detectable_effects(board: Board) -> pd.DataFrame:
    """Compute the smallest effect that these patients can show, dataset by dataset, before any result
    (ST-07).

    For two classes: the AUROC above 0.5 and the balanced accuracy above 0.5 that would be found with 80 %
    power, from the numbers of patients of each class alone. For a mean over cases (Dice): the drop against
    all the others, which needs the spread between cases, taken from the best method.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row for all datasets together, and one per dataset.
    """
    names = {"all": np.ones(len(board.cases), dtype=bool)}
    for coded in codes_of(board, ("dataset",)).values():
        if len(coded.names) > 1:
            names |= {n: coded.codes == g for g, n in enumerate(coded.names)}
    rows: list[dict[str, Any]] = []
    for name, mask in names.items():
        row: dict[str, Any] = {"task": board.task, "board": board.name, "dataset": name}
        row["patients"] = int(np.unique(board.partition.cluster_of_case[mask]).size)
        if board.truth is not None:
            rows.append(row | _for_two_classes(board, mask))
        elif board.main in board.cases.columns:
            rows.append(row | _for_a_mean(board, mask))
    return pd.DataFrame(rows)


def _for_two_classes(board: Board, mask: Any) -> dict[str, Any]:
    truth = board.truth[mask] > 0 if board.truth is not None else np.zeros(0, dtype=bool)
    p, n = int(truth.sum()), int((~truth).sum())
    if not p or not n:
        return {"positives": suppress(p), "smallest_auroc": _NAN, "smallest_balanced_accuracy": _NAN}
    se_auc = math.sqrt(auroc_variance(0.5, p, n))
    se_ba = 0.5 * math.sqrt(0.25 / p + 0.25 / n)
    return {
        "positives": suppress(p),
        "smallest_auroc": min(1.0, 0.5 + smallest_detectable_drop(se_auc, alpha=ALPHA)),
        "smallest_balanced_accuracy": min(1.0, 0.5 + smallest_detectable_drop(se_ba, alpha=ALPHA)),
    }


def _for_a_mean(board: Board, mask: Any) -> dict[str, Any]:
    """For a mean over cases: from the spread between the cases of the best method."""
    best = board.entries[int(np.nanargmax(board.values(board.main)))]
    value = best.mean(board.main)
    here, rest = value[mask & np.isfinite(value)], value[~mask & np.isfinite(value)]
    columns = (f"sd_{board.main}", f"smallest_{board.main}_drop")
    if here.size < 2 or (rest.size < 2 and not mask.all()):
        return dict.fromkeys(columns, _NAN)
    variance = here.var(ddof=1) / here.size + (rest.var(ddof=1) / rest.size if rest.size > 1 else 0.0)
    smallest = smallest_detectable_drop(math.sqrt(variance), alpha=ALPHA)
    return dict(zip(columns, (float(here.std(ddof=1)), smallest), strict=True))
