"""Content of the first page of a study's report: for each task the internal and external result, and the
verdict.

In a study of models and inputs it is the mean over the main configurations; in a study of published methods
the best method of the leading board. Every verdict comes with the margin, the protocol with its version, and
the smallest drop that the comparisons could have detected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.analysis.study.boards import NESTED, Board
from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.detectable import ALPHA
from elsewhere.analysis.study.overall import OVERALL
from elsewhere.analysis.study.transfers import FLOOR, could_be_seen, too_few
from elsewhere.statistics.verdict import Verdict, judge
from elsewhere.study.results import Results

_NAN = float("nan")
Tables = Mapping[str, pd.DataFrame]


def study_headline(results: Results, contexts: Mapping[str, Context]) -> dict[str, Any]:
    """Summarise a study.

    Args:
        results: Results of the study.
        contexts: The contexts of its tasks, by name, with every table made.

    Returns:
        Counts, the boards, and one entry per task.
    """
    runs = results.runs
    status = runs["status"].value_counts()
    scored = runs[runs["kind"] != NESTED]
    return {
        "study": results.name,
        "ids": results.study.study.ids,
        "datasets": int(results.cohort.cases["dataset"].nunique()),
        "cases": len(results.cohort.cases),
        "patients": int(results.cohort.cases["patient_id"].nunique()),
        "methods": int(runs["method"].nunique()),
        "scenarios": int(scored.loc[scored["status"] == "done", "scenario"].nunique()),
        "choosing_scenarios": int(runs.loc[runs["kind"] == NESTED, "scenario"].nunique()),
        "seeds": sorted(int(seed) for seed in runs["seed"].dropna().unique()),
        "runs": int(status.get("done", 0)),
        "planned": len(runs),
        "failed": int(status.get("failed", 0)),
        "skipped": int(status.get("skipped", 0)),
        "invalid": int(status.get("invalid", 0)),
        "leaked_runs": sum(_leaked(context) for context in contexts.values()),
        "boards": [_board(b, b is c.leading) for c in contexts.values() for b in c.boards],
        "tasks": {task: task_headline(context) for task, context in contexts.items() if context.boards},
    }


def _leaked(context: Context) -> int:
    runs = context.table("run_metrics")
    return int((runs["leaked_groups"] > 0).sum()) if len(runs) else 0


def _board(board: Board, leading: bool) -> dict[str, Any]:
    return {
        "task": board.task,
        "board": board.name,
        "kind": board.kind,
        "label": board.label,
        "leading": leading,
        "cases": len(board.cases),
        "patients": board.partition.n_clusters,
        "methods": len(board.entries),
        "scenarios": len(board.scenarios),
        "baseline": board.baseline,
        "ranked_by": board.ranked_by,
        "protocol": board.protocol.name,
        "protocol_version": board.protocol.version,
        "interval": board.protocol.interval.method or "each metric's own",
    }


def task_headline(context: Context) -> dict[str, Any]:
    """Summarise a task: which method leads, how much is lost at other hospitals, and the verdict.

    Args:
        context: The context of the task, with every table made and at least one board.

    Returns:
        The entry of the task.
    """
    board = context.boards[0]
    lead = context.table("leaderboard")
    lead = lead[(lead["board"] == board.name) & (lead["status"] == "ranked")]
    top = lead.iloc[0]
    best, metric = str(top["method"]), board.main
    stability = context.table("weight_stability")
    out: dict[str, Any] = {
        "board": board.name,
        "label": board.label,
        "best": best,
        "tied": int((lead["tier"] == 1).sum()),
        "ranked_by": board.ranked_by,
        "score": float(top[board.ranked_by]),
        "score_lo": _end(top, board.ranked_by, "lo"),
        "score_hi": _end(top, board.ranked_by, "hi"),
        "metric": metric,
        "value": float(top[metric]),
        "value_lo": float(top.get(f"{metric}_lo", _NAN)),
        "value_hi": float(top.get(f"{metric}_hi", _NAN)),
        "margin": context.margin,
        "alpha": ALPHA,
        "protocol": board.protocol.name,
        "protocol_version": board.protocol.version,
        "too_few": _too_few(board),
        "weights": {} if stability.empty else stability.drop(columns=["task", "board"]).iloc[0].to_dict(),
    }
    if "p_chance_holm" in lead.columns:
        out["beats_chance"] = [str(r) for r in lead.loc[lead["p_chance_holm"] < ALPHA, "method"]]
    return out | _change(context, board, best) | _selection(context) | _found_boxes(context)


def _change(context: Context, board: Board, best: str) -> dict[str, Any]:
    """The change from internal to external results, with the verdict."""
    drop, found = context.table("drop"), context.table("transfers")
    subject = OVERALL if len(drop) and (drop["method"] == OVERALL).any() else best
    out: dict[str, Any] = {"subject": subject}
    own = drop[drop["method"] == subject] if len(drop) else drop
    if own.empty:
        part = found[found["method"] == best] if len(found) else found
        verdict = "" if context.margin is None else str(Verdict.NOT_ASSESSED)
        return (
            out | _centres(context, board, best) | {"verdict": verdict, "reason": _no_change(context, part)}
        )
    order = (board.kind, "external") if subject != OVERALL else ("external", board.kind)
    rank = {kind: position for position, kind in reversed(list(enumerate(order)))}
    row = own.sort_values("kind", key=lambda kinds: kinds.map(rank).fillna(9), kind="stable").iloc[0]
    methods = [subject] if subject != OVERALL else _main_methods(context)
    part = found[found["method"].isin(methods) & (found["kind"] == row["kind"]) & found["difference"].notna()]
    names = ("internal", "external", "difference", "lo", "hi", "lo90", "hi90")
    out |= {name: float(row[name]) for name in names}
    out |= {
        "kind": str(row["kind"]),
        "datasets": int(row["datasets"]),
        "comparisons": int(row["comparisons"]),
        "smallest_detectable_mean_drop": float(row["smallest_detectable_drop"]),
        "without_one": [float(row["without_one_lo"]), float(row["without_one_hi"])],
        "verdict": str(row["verdict"]),
        "reason": str(row["reason"]),
    }
    out |= smallest_drops(part, "internal", board.main)
    out["verdicts"] = {str(w): int(n) for w, n in part["verdict"].value_counts().items() if w}
    worst = part.sort_values("difference").iloc[0]
    out["worst"] = {
        "where": f"{worst['source']} → {worst['target']}",
        "method": str(worst["method"]),
        "difference": float(worst["difference"]),
    }
    return out | _margins(out, context.margin)


def _no_change(context: Context, part: pd.DataFrame) -> str:
    few = [str(w) for w in part.get("reason", []) if str(w).endswith("not compared")]
    if few:
        return f"internal and external results, {few[0]}"
    if len(part):
        return "the study has no internal scenario to compare with"
    kinds = set(context.runs["kind"])
    if kinds & {"internal", "folds"} and not kinds & {"external", "leave-one-dataset-out"}:
        return "the study has no external scenario, so there is no drop to measure"
    return "nothing was tested at another hospital"


def _margins(out: Mapping[str, Any], margin: float | None) -> dict[str, Any]:
    """Where the verdict would change, or what a margin would have given where none was declared."""
    lo, hi = float(out["lo90"]), float(out["hi90"])
    if out["reason"] or not (math.isfinite(lo) and math.isfinite(hi)):
        return {}
    if margin is not None:
        made = judge(lo, hi, margin)
        return {
            "non_inferior": made.non_inferior,
            "changes_at": made.flips_at,
            "changes_to": str(made.flips_to) if made.flips_to else None,
        }
    would = judge(lo, hi, 1e-9)
    one_sided = would.word in (Verdict.BELOW, Verdict.ABOVE)
    return {
        "one_sided_verdict": str(would.word) if one_sided else None,
        "one_sided_below_margin": would.flips_at if one_sided else None,
        "equivalent_from": max(abs(lo), abs(hi)),
    }


def _main_methods(context: Context) -> list[str]:
    return [
        name
        for name, method in context.methods.items()
        if (method.factors.get("model"), method.factors.get("input")) in context.design.main
    ]


def _end(row: pd.Series, metric: str, end: str) -> float:
    """An end of the interval; of the one that contains its own point, where the metric holds a range over
    groups.
    """
    centred = row.get(f"{metric}_t_{end}", np.nan)
    return float(centred if np.isfinite(centred) else row.get(f"{metric}_{end}", np.nan))


def _centres(context: Context, board: Board, best: str) -> dict[str, Any]:
    """Without an internal result: how far the datasets of the board lie apart, and what could have been
    detected.
    """
    found = context.table("centres")
    if found.empty:
        return {}
    part = found[found["method"] == best]
    part = part[part["by"] == ("dataset" if (part["by"] == "dataset").any() else "site")]
    part = part[part["value"].notna()] if "value" in part.columns else part.iloc[:0]
    if part.empty:
        return {}
    ordered = part.sort_values("value")
    low, high = ordered.iloc[0], ordered.iloc[-1]
    return {
        "lowest": {"where": str(low["centre"]), "value": float(low["value"])},
        "highest": {"where": str(high["centre"]), "value": float(high["value"])},
        **smallest_drops(part, "others", board.main),
    }


def smallest_drops(rows: pd.DataFrame, level: str, metric: str) -> dict[str, Any]:
    """Summarise the drops that comparisons could have detected.

    Args:
        rows: One row per comparison.
        level: The column of the value from which the metric would drop.
        metric: Name of the metric.

    Returns:
        The range of smallest detectable drops, and how many comparisons could have detected none, not even a
        fall to the smallest value of the metric.

    Example:
        >>> rows = pd.DataFrame({"smallest_detectable_drop": [0.1, 0.4], "internal": [0.8, 0.8]})
        >>> smallest_drops(rows, "internal", "auroc")["detecting_none"]
        1
    """
    drops = [
        float(r["smallest_detectable_drop"])
        for r in rows.to_dict(orient="records")
        if could_be_seen(r["smallest_detectable_drop"], r[level], metric)
    ]
    return {
        "smallest_detectable_drop": [min(drops), max(drops)] if drops else [_NAN, _NAN],
        "floor": FLOOR.get(metric, 0.0),
        "detecting_none": len(rows) - len(drops),
        "compared": len(rows),
    }


def _too_few(board: Board) -> str:
    """Why the board has too few patients for a number of its own; empty where it has enough."""
    truth = board.truth
    split = None if truth is None else (int((truth > 0).sum()), int((truth == 0).sum()))
    return too_few(board.partition.n_clusters, split)


def _selection(context: Context) -> dict[str, Any]:
    """What may be claimed of hospitals left out: the method was chosen on the sources alone (ST-12)."""
    table, plain = context.table("selection"), context.table("selection_without_outline")
    if table.empty:
        return {}
    mean = table.iloc[-1]
    return {
        "chosen": float(mean["ensemble_auroc"]),
        "chosen_lo": float(mean["lo"]),
        "chosen_hi": float(mean["hi"]),
        "chosen_targets": len(table) - 1,
        "chosen_without_outline": None if plain.empty else float(plain.iloc[-1]["ensemble_auroc"]),
    }


def _found_boxes(context: Context) -> dict[str, Any]:
    """How much found boxes lose against annotated ones, where that is the study's one comparison."""
    table = context.table("paired")
    if table.empty:
        return {}
    rows = table[(table["what"] == "boxes") & (table["kind"] == "external") & (table["metric"] == "auroc")]
    if len(rows) != 1:
        return {}
    row = rows.iloc[0]
    names = ("difference", "lo", "hi", "pairs")
    return {"found_boxes": {name: float(row[name]) for name in names}}
