"""Warnings of a study: missing runs, groups that are too small, odd predictions, patients on both sides.

They are what a reader must know before believing the numbers; the most important come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from elsewhere.analysis.study.boards import Board, Entry
from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.design import KIND_LABELS
from elsewhere.analysis.study.published import other_networks
from elsewhere.scoring.response import CONSTANT
from elsewhere.scoring.segmentation import EMPTY_PREDICTION, EMPTY_TRUTH, empty_predictions, empty_truth
from elsewhere.study.results import Results


def study_warnings(results: Results, contexts: Mapping[str, Context]) -> tuple[str, ...]:
    """Collect the warnings of a study, each once.

    Args:
        results: Results of the study.
        contexts: The contexts of its tasks, with every table made.

    Returns:
        Full sentences.
    """
    runs = results.runs
    found: list[str] = []
    lost = int((~runs["status"].isin(["done", "invalid"])).sum())
    if lost:
        found.append(f"{lost} of {len(runs)} runs are not done: the averages are without them.")
    for context in contexts.values():
        found += _of_answers(context)
    for context in contexts.values():
        found += _of_seeds(context)
    found += _of_fairness(contexts)
    invalid = runs[runs["status"] == "invalid"].to_dict(orient="records")
    found += _of_invalid_runs(runs)
    known = {(str(r["task"]), str(r["method"]), str(r["scenario"])) for r in invalid}
    boards = [board for context in contexts.values() for board in context.boards]
    found += _of_boards(boards, known)
    audit = [_sentence(str(w)) for w in results.audit.get("warnings", ()) or ()]  # type: ignore[attr-defined]
    if not any(EMPTY_TRUTH in w for w in audit):
        found += _empty_truths(boards)
    found += audit
    found += _of_duplicates(results)
    for context in contexts.values():
        found += _of_normals(context)
    return tuple(dict.fromkeys(found))


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _of_invalid_runs(runs: pd.DataFrame) -> Iterator[str]:
    """Runs that were scored and that the protocol calls invalid, by method and reason."""
    invalid = runs[runs["status"] == "invalid"]
    for (task, method, reason), part in invalid.groupby(["task", "method", "reason"], sort=False):
        every = int(((runs["task"] == task) & (runs["method"] == method)).sum())
        yield f"{method} ({task}): {len(part)} of {every} runs are invalid: {reason}."


def _of_answers(context: Context) -> Iterator[str]:
    runs = context.table("run_metrics")
    broken = int((runs["no_answer"] > 0).sum()) if len(runs) else 0
    if broken:
        yield f"{broken} runs ({context.task}) gave answers that are not numbers; these count as wrong."


def _of_seeds(context: Context) -> Iterator[str]:
    """Warn of scenarios whose configurations have different numbers of seeds: their means differ in weight.

    Scenarios that only serve to choose a method count too: a choice by fewer seeds is a less certain one.
    """
    done = context.planned[context.planned["status"] == "done"]
    seeds = done.groupby(["kind", "scenario", "method"])["seed"].nunique()
    for kind, uneven in seeds.groupby("kind"):
        if uneven.min() == uneven.max():
            continue
        fewest = uneven.groupby("method").min()
        fewer = "; ".join(map(str, fewest[fewest < uneven.max()].index))
        yield (
            f"Scenarios ({KIND_LABELS.get(str(kind), kind)}; {context.task}) have {uneven.min()} to {uneven.max()} "
            f"seeds: their means differ in weight (fewer: {fewer})."
        )


def _of_fairness(contexts: Mapping[str, Context]) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for task, context in contexts.items():
        if "fairness" not in context.metrics.shown:
            continue
        for row in context.table("known").to_dict(orient="records"):
            if row["scored"] and row["reason"]:
                reasons.setdefault((str(row["variable"]), str(row["reason"])), []).append(task)
    for (variable, reason), tasks in reasons.items():
        yield f"Fairness by {variable.replace('_', ' ')} ({' and '.join(tasks)}): {reason}."


def _of_boards(boards: list[Board], known: set[tuple[str, str, str]]) -> Iterator[str]:
    for board in boards:
        for failed in board.failed:
            if all((board.task, failed["method"], s) in known for s in board.scenarios):
                continue
            yield f"{failed['method']} is not ranked ({board.task}, {board.label}): {failed['reason']}."
    for board in boards:
        reported = (*board.protocol.fairness.variables, EMPTY_TRUTH, EMPTY_PREDICTION, CONSTANT)
        for entry in board.entries:
            for warning in _of_all_cases(entry, board):
                yield f"{entry.method} ({board.label}): {warning}"
        for entry in board.entries:
            yield from (w for w in entry.scores.warnings if not any(name in w for name in reported))


def _of_all_cases(entry: Entry, board: Board) -> list[str]:
    """Warnings about predictions of the whole board: a constant part of several makes no constant board, and
    empty masks add up. Of the first seed.
    """
    cases, found = entry.scores.cases, []
    if "decision" in cases.columns and len(set(cases["decision"])) == 1:
        found += [w for w in entry.scores.warnings if CONSTANT in w][:1]
    if "n_prediction_voxels" in cases.columns:
        blank = (
            (cases["status"] == "scored")
            & (cases["n_truth_voxels"] > 0)
            & (cases["n_prediction_voxels"] == 0)
        )
        if blank.any():
            found.append(f"{empty_predictions(int(blank.sum()), len(cases), board.protocol)}.")
    return found


def _empty_truths(boards: list[Board]) -> list[str]:
    """Once for all methods and scenarios: of the largest board, for all boards have the same masks."""
    with_masks = [board for board in boards if "n_truth_voxels" in board.cases.columns]
    for board in sorted(with_masks, key=lambda b: -len(b.cases))[:1]:
        empty = int((board.cases["n_truth_voxels"] == 0).sum())
        if empty:
            return [f"{empty_truth(empty, len(board.cases), board.protocol)}."]
    return []


def _of_duplicates(results: Results) -> Iterator[str]:
    duplicates = results.audit.get("duplicates")
    pairs = duplicates.get("pairs") if isinstance(duplicates, Mapping) else None
    across = sum("labels" in str(pair[3]) for pair in pairs or () if len(pair) > 3)
    if across:
        yield f"{across} pairs of near-duplicate pictures carry different labels; both stay."


def _of_normals(context: Context) -> Iterator[str]:
    runs = context.table("run_metrics")
    if runs.empty:
        return
    shared = runs[(runs["normal_shared_patients"] > 0) & runs["normal_auroc"].notna()]
    for target, part in shared.groupby("target"):
        most = int(part["normal_shared_patients"].max())
        yield (
            f"Lesion against normal at {target}: up to {most} patients have both lesion and normal images, so that "
            "the two sides are not independent."
        )


def notes_on_published(context: Context) -> list[str]:
    """Say how far a published study's numbers can be compared.

    Args:
        context: The context of the task.

    Returns:
        Sentences; none where the study file names no published study.
    """
    found: list[str] = []
    if context.has_probabilities and context.published is not None:
        found.append(f"Source of the published numbers: {context.published.source}.")
        for kind in ("internal", "external"):
            if kind in context.design.kinds and kind not in context.complete_kinds:
                found.append(
                    f"The {kind} scenarios are not those of the published study, so its averages over them are not "
                    "shown."
                )
        found += other_networks(context.design.network, context.design.weights)
    if context.results.study.study.ids == "image":
        found.append(
            "Every picture counts as a patient (ids = image): a reading that leaks patients, for comparison."
        )
    return found
