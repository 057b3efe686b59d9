"""Averages over scenarios as papers print them (US-24), compared with a published study's (US-25)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from elsewhere.analysis.study.design import Design
from elsewhere.analysis.study.published import Reference, published_input, published_model

WIDE = {
    "auroc": "auroc",
    "bacc": "balanced_accuracy",
    "ece_raw": "ece_confidence",
    "ece_cal": "ece_confidence_calibrated",
    "nll_raw": "nll",
    "nll_cal": "nll_calibrated",
}
"""The published short names and our metrics; the first two have intervals."""
WITH_INTERVAL = ("auroc", "bacc")
OVERALL = "overall"
"""The name of the mean over the main configurations."""


FOUND_MEASURES = ("mean_iou", "median_iou", "found", "none", "covered")


def found_boxes_table(audit: Mapping[str, Any], scenarios: pd.DataFrame) -> pd.DataFrame:
    """Report how the boxes that a model found lie on the annotated ones, seeds averaged (US-33).

    Args:
        audit: What the run checked; its `found_boxes` has one entry per scenario and seed.
        scenarios: One row per scenario and configuration.

    Returns:
        One row per scenario whose boxes a model found.
    """
    held = audit.get("found_boxes")
    if not held:
        return pd.DataFrame()
    where = {str(row["scenario"]): row for row in scenarios.to_dict(orient="records")}
    rows = []
    for name, part in pd.DataFrame(held).groupby("scenario", sort=False):
        if str(name) not in where:
            continue
        keys = {key: where[str(name)][key] for key in ("kind", "source", "target")}
        means = {measure: float(part[measure].astype(float).mean()) for measure in FOUND_MEASURES}
        rows.append(
            {"scenario": name, **keys, "seeds": len(part), "lesions": int(part["lesions"].max())} | means
        )
    return pd.DataFrame(rows)


def complete_kinds(scenarios: pd.DataFrame, published: Reference | None) -> frozenset[str]:
    """Find the kinds of scenarios that are those of the published study, all of them and no others.

    Only then are its averages comparable.

    Args:
        scenarios: One row per scenario and configuration.
        published: The published study; None for none.

    Returns:
        Some of `internal` and `external`.
    """
    if published is None:
        return frozenset()
    names = list(published.table("datasets")["dataset"])
    wanted = {
        "internal": set(names),
        "external": {f"{a}>{b}" for a in names for b in names if a != b},
    }
    held = {kind: set(part["scenario"]) for kind, part in scenarios.groupby("kind")}
    return frozenset(kind for kind, want in wanted.items() if held.get(kind) == want)


def overall_table(
    summary: pd.DataFrame, design: Design, published: Reference | None, complete: frozenset[str]
) -> pd.DataFrame:
    """Tabulate internal and external averages, as the study's table 3 does.

    Args:
        summary: Averages over scenarios, one row per kind, configuration and metric.
        design: Its configurations are the rows; its main ones make up the overall mean.
        published: The published study, whose values are put into columns of their own; None for none.
        complete: Kinds of scenarios whose averages may be compared with the published ones.

    Returns:
        One row per configuration; last the unweighted mean of the main ones, where there are several.
    """
    if summary.empty:
        return pd.DataFrame()
    held = {(r["kind"], r["model"], r["input"], r["metric"]): r for r in summary.to_dict(orient="records")}
    printed = published.rows("overall", "model", "input") if published else {}
    rows = []
    for model, input_ in design.configurations:
        row: dict[str, Any] = {"model": model, "input": input_}
        their = (published_model(model), published_input(input_))
        for kind in ("internal", "external"):
            for short, metric in WIDE.items():
                key = (kind, model, input_, metric)
                if key not in held:
                    continue
                name = f"{kind}_{short}"
                row[name] = held[key]["value"]
                if short in WITH_INTERVAL:
                    row |= {f"{name}_{e}": held[key][e] for e in ("lo", "hi")}
                if kind in complete and their in printed:
                    row |= _compared(name, row[name], float(printed[their][name]))
                    if short in WITH_INTERVAL:
                        row |= {
                            f"published_{name}_{e}": float(printed[their][f"{name}_{e}"])
                            for e in ("lo", "hi")
                        }
        if len(row) > 2:
            rows.append(row)
    out = pd.DataFrame(rows)
    main = [(m, i) in design.main for m, i in zip(out["model"], out["input"], strict=True)] if rows else []
    if sum(main) > 1:
        part = out[main]
        mean: dict[str, Any] = {"model": OVERALL, "input": ""}
        for kind in ("internal", "external"):
            for short in WIDE:
                name = f"{kind}_{short}"
                if name in part.columns:
                    mean[name] = float(part[name].mean(skipna=False))
                    stated = (
                        published.stated(name) if published and f"published_{name}" in part.columns else None
                    )
                    if stated is not None and part[f"published_{name}"].notna().all() and len(part) == 4:
                        mean |= _compared(name, mean[name], stated)
        out = pd.concat([out, pd.DataFrame([mean])], ignore_index=True)
    return out


def _compared(name: str, ours: float, theirs: float) -> dict[str, float]:
    return {f"published_{name}": theirs, f"difference_{name}": ours - theirs}


def without_published(
    without: pd.DataFrame, published: Reference | None, complete: frozenset[str]
) -> pd.DataFrame:
    """Add the published table 5 (external, without BUS-UCLM) to ours.

    Args:
        without: Averages without each dataset in turn.
        published: The published study; None for none.
        complete: Kinds of scenarios whose averages may be compared with the published ones.

    Returns:
        The table with the published value and the difference from it; unchanged where it cannot be compared.
    """
    if published is None or without.empty or "external" not in complete:
        return without
    printed = published.rows("without_busuclm", "model", "input")
    short = {"auroc": "auroc", "balanced_accuracy": "bacc"}
    values = []
    for row in without.to_dict(orient="records"):
        found, name = math.nan, short.get(str(row["metric"]))
        if name and row["without"] == "BUS-UCLM" and row["kind"] == "external":
            theirs = (published_model(str(row["model"])), published_input(str(row["input"])))
            if row["model"] == OVERALL:
                found = published.stated(f"external_{name}_without") or math.nan
            elif theirs in printed:
                found = float(printed[theirs][f"{name}_without"])
        values.append(found)
    out = without.assign(published_value=values)
    return out.assign(difference_value=out["value"] - out["published_value"])


def paired_published(
    paired: pd.DataFrame, published: Reference | None, complete: frozenset[str]
) -> pd.DataFrame:
    """Add the published paired gains of the crop over the whole image, external, to ours.

    Args:
        paired: Paired comparisons of configurations.
        published: The published study; None for none.
        complete: Kinds of scenarios whose averages may be compared with the published ones.

    Returns:
        The table with the published difference, interval and p; unchanged where it cannot be compared.
    """
    if published is None or paired.empty or "external" not in complete:
        return paired
    printed = published.rows("paired_roi_minus_whole", "model", "metric")
    short = {"auroc": "auroc", "balanced_accuracy": "bacc"}
    added = []
    for row in paired.to_dict(orient="records"):
        key = (published_model(str(row["a_model"])), short.get(str(row["metric"])))
        ours = (
            row["what"],
            row["kind"],
            published_input(str(row["a_input"])),
            published_input(str(row["b_input"])),
        )
        theirs = printed.get(key) if ours == ("input", "external", "roi", "whole") else None
        added.append(
            {
                "published_difference": float(theirs["mean_gain"]) if theirs else math.nan,
                "published_lo": float(theirs["lo"]) if theirs else math.nan,
                "published_hi": float(theirs["hi"]) if theirs else math.nan,
                "published_p": str(theirs["wilcoxon_p"]) if theirs else "",
            }
        )
    return pd.concat([paired.reset_index(drop=True), pd.DataFrame(added)], axis=1)


def margins_published(margins: pd.DataFrame, runs: pd.DataFrame, published: Reference | None) -> pd.DataFrame:
    """Add the published table 6 (margins of the crop) to ours, where the scenarios are its four.

    Args:
        margins: Results by model and margin.
        runs: One row per judged run.
        published: The published study; None for none.

    Returns:
        The table with the published values and the differences from them; unchanged where it cannot be
        compared.
    """
    four = {"BUS-UCLM>BUSI", "BUSI>BUS-BRA", "BUS-BRA>BUSI", "BrEaST>BUS-UCLM"}
    if published is None or margins.empty or set(runs["scenario"]) != four:
        return margins
    printed = published.rows("roi_margin", "model", "margin_percent")
    out = margins.copy()
    for ours, theirs in (("auroc", "auroc"), ("balanced_accuracy", "bacc")):
        keys = [
            (published_model(m), round(100 * x)) for m, x in zip(out["model"], out["margin"], strict=True)
        ]
        out[f"published_{ours}"] = [float(printed[k][theirs]) if k in printed else math.nan for k in keys]
        out[f"difference_{ours}"] = out[ours] - out[f"published_{ours}"]
        out[f"published_{ours}_p"] = [
            float(printed[k][f"{theirs}_p_vs_12"]) if k in printed else math.nan for k in keys
        ]
    return out


def multi_source_table(scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Compare training on all other datasets with the mean and the best of single sources, target by target
    (US-31).

    Args:
        scenarios: One row per scenario and configuration.
        design: Names the network and the way of training of each model.

    Returns:
        One row per target and configuration; empty where no scenario leaves a dataset out.
    """
    several = scenarios[scenarios["kind"] == "leave-one-dataset-out"]
    single = scenarios[scenarios["kind"] == "external"]
    rows = []
    for row in several.to_dict(orient="records"):
        base = single[
            (single["target"] == row["target"])
            & (single["input"] == row["input"])
            & (single["model"].map(design.network) == design.network.get(row["model"]))
            & (single["model"].map(design.method) == "plain")
        ]["auroc"]
        rows.append(
            {
                "target": row["target"], "model": row["model"], "input": row["input"],
                "method": design.method.get(row["model"], "plain"), "auroc": row["auroc"],
                "auroc_lo": row.get("auroc_lo", math.nan), "auroc_hi": row.get("auroc_hi", math.nan),
                "single_mean": float(base.mean()) if len(base) else math.nan,
                "single_best": float(base.max()) if len(base) else math.nan,
                "gain_over_mean": row["auroc"] - float(base.mean()) if len(base) else math.nan,
            }
        )  # fmt: skip
    return design.order(pd.DataFrame(rows)) if rows else pd.DataFrame()
