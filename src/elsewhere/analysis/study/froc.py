"""FROC curves of the methods of a study: sensitivity at every rate of false positives, with bands (DBT-04, DBT-06)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from elsewhere.analysis.study.boards import SEED, Board
from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.scoring.detection import froc_curves
from elsewhere.scoring.detection.localisation import froc_part
from elsewhere.statistics.bootstrap_weights import WeightStream

POPULATIONS = {"froc": "positive volumes", "froc_all": "all volumes"}
"""What false positives are counted over, by the name of the curve."""


def board_curves(board: Board) -> pd.DataFrame:
    """Compute the curves of every method of a board, with pointwise bands over the board's resamples.

    Of several trainings of a method the curve is their mean.

    Args:
        board: Methods of the task detection on the same volumes.

    Returns:
        One row per method, population and point: false_positives, sensitivity, lo and hi; empty where no volume has a
        lesion.
    """
    stream = WeightStream(
        board.partition,
        key=board.key,
        seed=SEED,
        resamples=board.resamples,
        by_site=board.protocol.interval.by_site,
    )
    parts = []
    for entry in board.entries:
        evaluators = [froc_part(ready.evaluator_over(board.partition)) for ready in entry.ready]
        for name, curve in froc_curves(evaluators, board.protocol, stream).items():
            points = len(curve["x"])
            lacking = [float("nan")] * points
            parts.append(
                pd.DataFrame(
                    {
                        "task": board.task,
                        "board": board.name,
                        "kind": board.kind,
                        "method": entry.method,
                        "volumes": POPULATIONS[name],
                        "false_positives": np.asarray(curve["x"]),
                        "sensitivity": np.asarray(curve["y"]),
                        "lo": np.asarray(curve["lo"] or lacking),
                        "hi": np.asarray(curve["hi"] or lacking),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


@analysis("froc", tasks=("detection",))
def froc(context: Context) -> Tables:
    """Draw the FROC curves of every board.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The table `froc`.
    """
    found = [board_curves(board) for board in context.boards]
    return {"froc": pd.concat(found, ignore_index=True)} if any(len(one) for one in found) else {}
