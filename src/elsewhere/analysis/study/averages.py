"""Averages of a task with probabilities over its scenarios, and comparisons of its factors."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.overall import (
    found_boxes_table,
    margins_published,
    multi_source_table,
    overall_table,
    paired_published,
    without_published,
)
from elsewhere.analysis.study.published import Reference, published_input, published_model
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.analysis.study.scenarios import (
    KEYS,
    margin_table,
    new_hospital_table,
    paired_table,
    summaries,
    without_table,
)

EXTERNAL_COLUMNS = (
    "scenario", "source", "target", "method", "model", "input", "auroc", "auroc_lo", "auroc_hi", "auroc_seed_sd",
    "balanced_accuracy", "balanced_accuracy_lo", "balanced_accuracy_hi", "seeds", "cases", "patients",
)  # fmt: skip


@analysis("averages", probabilities=True)
def averages(context: Context) -> Tables:
    """Average every metric over scenarios, seeds first, with a t interval over scenarios.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables of runs, scenarios, their averages, the averages without each dataset, and the prediction
        for a new hospital.
    """
    scenarios, design = context.scenarios, context.design
    summary = summaries(scenarios, design)
    return {
        "run_metrics": context.judged_runs,
        "scenarios": scenarios[[*KEYS, *(c for c in scenarios.columns if c not in KEYS)]],
        "summary": summary,
        "overall": overall_table(summary, design, context.published, context.complete_kinds),
        "external_scenarios": external_scenarios(scenarios, context.published),
        "without_dataset": without_published(
            without_table(scenarios, design), context.published, context.complete_kinds
        ),
        "new_hospital": new_hospital_table(context.judged, context.judged_runs, design),
        "multi_source": multi_source_table(scenarios, design),
    }


@analysis("comparisons of inputs and models", probabilities=True, factors=("model", "input"))
def comparisons(context: Context) -> Tables:
    """Compare inputs, models, margins and ways to train over the same scenarios.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `paired`, `margins` and `found_boxes`.
    """
    scenarios, design = context.scenarios, context.design
    return {
        "paired": paired_published(
            paired_table(scenarios, design), context.published, context.complete_kinds
        ),
        "margins": margins_published(
            margin_table(context.judged_runs, design), context.judged_runs, context.published
        ),
        "found_boxes": found_boxes_table(context.results.audit, scenarios),
    }


def external_scenarios(scenarios: pd.DataFrame, published: Reference | None) -> pd.DataFrame:
    """List every external scenario by falling AUROC.

    Args:
        scenarios: One row per scenario and configuration.
        published: A published study, whose values are put into columns of their own; None for none.

    Returns:
        The external scenarios; `rank` counts from the best.
    """
    part = scenarios[scenarios["kind"] == "external"]
    columns = [c for c in EXTERNAL_COLUMNS if c in part.columns]
    out = part[columns].sort_values("auroc", ascending=False, kind="stable").reset_index(drop=True)
    out.insert(0, "rank", np.arange(1, len(out) + 1))
    if published is not None and len(out):
        printed = published.rows("transfers", "train", "test", "model", "input")
        keys = [
            (s, t, published_model(m), published_input(i))
            for s, t, m, i in zip(out["source"], out["target"], out["model"], out["input"], strict=True)
        ]
        for ours, theirs in (("auroc", "external_auroc"), ("balanced_accuracy", "external_bacc")):
            out[f"published_{ours}"] = [float(printed[k][theirs]) if k in printed else math.nan for k in keys]
            out[f"difference_{ours}"] = out[ours] - out[f"published_{ours}"]
        out["published_rank"] = [str(printed[k]["rank"]) if k in printed else "" for k in keys]
    return out
