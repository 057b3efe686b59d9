"""Patients of a board: recall of each class, reliability, the hardest cases and those of a kind (MRI-11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.study.boards import KINDS, Board
from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.groups import sizes_of
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.privacy import SMALLEST_CELL, hash_ids
from elsewhere.statistics.calibration import recalibration, reliability_curve

RELIABILITY_BINS = 5
HARDEST = 10
_YES = {"1", "1.0", "true", "yes", "y", "non-mass", "nonmass", "non_mass", "nme", "non-mass enhancement"}
_NAN = float("nan")


def recalls(board: Board) -> pd.DataFrame:
    """Compute the recall of each class, and their gap: a model that says 'no' to everybody has a wide one.

    Values and intervals are from the board's own values and resamples, so that with several seeds each is
    their mean, as in the board.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row per method with sensitivity, specificity and their gap (sensitivity - specificity), each with
        its percentile interval; empty for a task without classes.
    """
    if board.truth is None:
        return pd.DataFrame()
    point = np.stack([board.values(m) for m in ("sensitivity", "specificity")])
    draws = np.stack([board.drawn(m) for m in ("sensitivity", "specificity")])
    point, draws = (
        np.concatenate([point, point[:1] - point[1:]]),
        np.concatenate([draws, draws[:1] - draws[1:]]),
    )
    beyond = (1 - board.protocol.interval.level) / 2
    rows = []
    for i, entry in enumerate(board.entries):
        row: dict[str, Any] = {"task": board.task, "board": board.name, "method": entry.method}
        for k, name in enumerate(("sensitivity", "specificity", "gap")):
            known = draws[k, :, i][np.isfinite(draws[k, :, i])]
            low, high = np.quantile(known, [beyond, 1 - beyond]) if known.size else (_NAN, _NAN)
            row |= {name: float(point[k, i]), f"{name}_lo": float(low), f"{name}_hi": float(high)}
        rows.append(row)
    return pd.DataFrame(rows)


def _number(value: float | None) -> float:
    return _NAN if value is None else float(value)


def reliability(board: Board) -> pd.DataFrame:
    """Compute the observed share of positive cases in quantile bins of the probability, with the prevalence
    and the slope.

    The cases of several seeds lie in the bins together, each patient once per seed, and the patient stays the
    unit of the intervals. So the curve describes what one of the trainings says, not their mean, which no
    board ranks. Bins of fewer than five patients are left out: they would disclose those people's outcomes.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row per method and bin; empty for a task without classes. A method with fewer than ten patients
        that have a usable score has no rows.
    """
    rows: list[dict[str, Any]] = []
    outcome = board.truth
    if outcome is None:
        return pd.DataFrame()
    for entry in board.entries:
        p = entry.stacked("probability").ravel()
        usable = np.isfinite(p) & np.concatenate([r.scores.cases["status"] == "scored" for r in entry.ready])
        seeds = len(entry.ready)
        cluster = np.tile(board.partition.cluster_of_case, seeds)[usable]
        if np.unique(cluster).size < 2 * SMALLEST_CELL:
            continue
        truth = np.tile(outcome, seeds)[usable]
        curve = reliability_curve(truth, p[usable], cluster, bins=RELIABILITY_BINS, binning="quantile")
        fit = recalibration(truth, p[usable], cluster).to_dict()
        slope = fit.get("slope") or {}
        for at in range(len(curve.x)):
            if curve.patients[at] < SMALLEST_CELL:
                continue
            rows.append(
                {
                    "task": board.task,
                    "board": board.name,
                    "method": entry.method,
                    "predicted": curve.x[at],
                    "observed": curve.y[at],
                    "lo": curve.lo[at],
                    "hi": curve.hi[at],
                    "cases": curve.cases[at] if seeds == 1 else curve.patients[at],
                    "seeds": seeds,
                    "prevalence": float(truth.mean()),
                    "slope": _number(slope.get("value") if isinstance(slope, Mapping) else None),
                }
            )
    return pd.DataFrame(rows)


def case_values(board: Board) -> tuple[str, pd.DataFrame]:
    """Compute how well each method did on each case; higher is better.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        The name of the measure and a table with one column per method. For two classes the measure is
        `nearness`, 1 minus the distance of the mean probability from the truth; else the main metric of the
        task, such as Dice.
    """
    held: dict[str, npt.NDArray[np.float64]] = {}
    for entry in board.entries:
        if board.truth is not None:
            held[entry.method] = 1.0 - np.abs(board.truth - entry.mean("probability"))
        elif board.main in board.cases.columns:
            held[entry.method] = entry.mean(board.main)
    return (board.main if board.truth is None else "nearness"), pd.DataFrame(held)


@dataclass(frozen=True)
class Chosen:
    """A case to be shown, and why it was chosen.

    Args:
        at: Its row in the board.
        case: Its id, which is not shown.
        hashed: The salted hash that is shown in its place.
        why: `hardest`, or the kind of cases of which it is the hardest.
        mean: Mean over the methods of how well they did on it.
    """

    at: int
    case: str
    hashed: str
    why: str
    mean: float


def hardest(board: Board, *, salt: str) -> tuple[pd.DataFrame, list[Chosen]]:
    """List the cases that the methods together do worst on, and the hardest of each kind that the cohort
    marks.

    Args:
        board: Methods of a task on the same cases.
        salt: Key of the hashes that replace the case ids.

    Returns:
        One row per case with its hash, the reason and every method's value; and the same cases with their
        rows in the board.
    """
    metric, values = case_values(board)
    if values.empty:
        return pd.DataFrame(), []
    mean = values.mean(axis=1).to_numpy(dtype=float)
    order = [int(i) for i in np.argsort(np.nan_to_num(mean, nan=np.inf), kind="stable")[:HARDEST]]
    chosen = [(i, "hardest") for i in order if np.isfinite(mean[i])]
    sizes = sizes_of(board)
    for kind, mask in kinds(board):
        of_kind = np.flatnonzero(mask & np.isfinite(mean))
        if of_kind.size:
            chosen.append((int(of_kind[np.argmin(mean[of_kind])]), kind))
    ids = board.cases["case_id"].astype(str).tolist()
    shown = [Chosen(at, ids[at], hash_ids([ids[at]], salt)[0], why, float(mean[at])) for at, why in chosen]
    rows = []
    for pick in shown:
        row: dict[str, Any] = {"task": board.task, "board": board.name, "case": pick.hashed, "why": pick.why}
        if sizes is not None and sizes.codes[pick.at] >= 0:
            row["size"] = sizes.names[sizes.codes[pick.at]]
        row |= {"metric": metric, "mean": pick.mean}
        rows.append(row | {str(name): float(values[name].iloc[pick.at]) for name in values.columns})
    return pd.DataFrame(rows), shown


def kinds(board: Board) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Find the cases of each kind; a kind that the cohort does not mark is left out.

    Args:
        board: Methods of a task on the same cases.

    Yields:
        The name of a kind and a mask over the cases of the board.
    """
    for kind, columns in KINDS.items():
        name = next((c for c in columns if c in board.cases.columns), None)
        if name is not None:
            words = board.cases[name].astype("string").str.strip().str.casefold().fillna("")
            mask = words.isin(_YES).to_numpy(dtype=bool)
            if mask.any():
                yield kind, mask
    sizes = sizes_of(board)
    if sizes is not None and (sizes.codes == 0).any():
        yield "small", sizes.codes == 0


@analysis("cases")
def cases(context: Context) -> Tables:
    """List the hardest cases of the leading board, and judge the probabilities by class.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `hardest`, `recall` and `reliability`; nothing without a board.
    """
    board = context.leading
    if board is None:
        return {}
    return {
        "hardest": hardest(board, salt=context.salt)[0],
        "recall": recalls(board),
        "reliability": reliability(board),
    }
