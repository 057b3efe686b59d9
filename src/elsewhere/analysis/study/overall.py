"""The tables of the study as its paper prints them (US-24), with the paper's numbers beside ours (US-25)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort.published import published
from elsewhere.report.page.privacy import suppress_counts
from elsewhere.study.analysis_design import Design
from elsewhere.study.analysis_drop import OVERALL
from elsewhere.study.reference import Reference, paper_input, paper_model

WIDE = {
    "auroc": "auroc",
    "bacc": "balanced_accuracy",
    "ece_raw": "ece_confidence",
    "ece_cal": "ece_confidence_calibrated",
    "nll_raw": "nll",
    "nll_cal": "nll_calibrated",
}
"""The paper's short names and our metrics; the first two have intervals."""
WITH_INTERVAL = ("auroc", "bacc")
EXTREMES = 5


def datasets_table(
    table: pd.DataFrame, audit: Mapping[str, Any], design: Design, paper: Reference | None
) -> pd.DataFrame:
    """A row a dataset: images by label, patient ids, patients with both labels, grade (US-03, US-04).

    Counts under five are suppressed, except where the dataset is public and so are its counts.
    """
    printed = paper.rows("datasets", "dataset") if paper else {}
    rows = []
    about = audit.get("cohorts") if isinstance(audit.get("cohorts"), Mapping) else {}
    for name in design.datasets:
        part = table[table["dataset"] == name]
        lesions = part[part["label"] != "normal"]
        both = lesions.groupby("patient")["label"].nunique()
        counts: dict[str, Any] = {
            label: int((part["label"] == label).sum()) for label in ("benign", "malignant", "normal")
        }
        held = about.get(name) if isinstance(about, Mapping) else None
        held = held if isinstance(held, Mapping) else {}
        row: dict[str, Any] = {
            "dataset": name,
            "lesion_images": len(lesions),
            **(counts if published(name) is not None else suppress_counts(counts)),
            "patients": int(part["patient"].nunique()),
            "both_labels": int((both > 1).sum()),
            "id_grade": held.get("id_grade", ""),
            "id_grade_why": held.get("id_grade_why", ""),
        }
        if (name,) in printed:
            theirs = printed[name,]
            row |= {
                "paper_lesion_images": int(theirs["lesion_images"]),
                "paper_normal": int(theirs["normal_images"]),
                "paper_patients": int(theirs["patient_ids"]),
            }
        rows.append(row)
    return pd.DataFrame(rows)


FOUND_MEASURES = ("mean_iou", "median_iou", "found", "none", "covered")


def found_boxes_table(audit: Mapping[str, Any], scenarios: pd.DataFrame) -> pd.DataFrame:
    """A row a scenario whose boxes a model found: how they lie on the annotated ones, seeds averaged (US-33)."""
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


def complete_kinds(scenarios: pd.DataFrame, paper: Reference | None) -> frozenset[str]:
    """Kinds whose scenarios are all of the paper's and no others: only then are its averages comparable."""
    if paper is None:
        return frozenset()
    names = list(paper.table("datasets")["dataset"])
    wanted = {
        "internal": set(names),
        "external": {f"{a}>{b}" for a in names for b in names if a != b},
    }
    held = {kind: set(part["scenario"]) for kind, part in scenarios.groupby("kind")}
    return frozenset(kind for kind, want in wanted.items() if held.get(kind) == want)


def overall_table(
    summary: pd.DataFrame, design: Design, paper: Reference | None, complete: frozenset[str]
) -> pd.DataFrame:
    """The study's table 3: internal and external, a row a configuration; last the unweighted mean of the
    main ones."""
    if summary.empty:
        return pd.DataFrame()
    held = {(r["kind"], r["model"], r["input"], r["metric"]): r for r in summary.to_dict(orient="records")}
    printed = paper.rows("overall", "model", "input") if paper else {}
    rows = []
    for model, input_ in design.configurations:
        row: dict[str, Any] = {"model": model, "input": input_}
        their = (paper_model(model), paper_input(input_))
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
                    row |= _beside(name, row[name], float(printed[their][name]))
                    if short in WITH_INTERVAL:
                        row |= {
                            f"paper_{name}_{e}": float(printed[their][f"{name}_{e}"]) for e in ("lo", "hi")
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
                    stated = paper.stated(name) if paper and f"paper_{name}" in part.columns else None
                    if stated is not None and part[f"paper_{name}"].notna().all() and len(part) == 4:
                        mean |= _beside(name, mean[name], stated)
        out = pd.concat([out, pd.DataFrame([mean])], ignore_index=True)
    return out


def _beside(name: str, ours: float, theirs: float) -> dict[str, float]:
    return {f"paper_{name}": theirs, f"difference_{name}": ours - theirs}


def transfers_table(scenarios: pd.DataFrame, paper: Reference | None) -> pd.DataFrame:
    """Every external transfer by falling AUROC; `rank` counts from the best, `paper_auroc` where printed."""
    part = scenarios[scenarios["kind"] == "external"]
    columns = [
        c
        for c in (
            "source", "target", "model", "input", "auroc", "auroc_lo", "auroc_hi", "auroc_seed_sd",
            "balanced_accuracy", "balanced_accuracy_lo", "balanced_accuracy_hi", "seeds", "cases", "patients",
        )
        if c in part.columns
    ]  # fmt: skip
    out = part[columns].sort_values("auroc", ascending=False, kind="stable").reset_index(drop=True)
    out.insert(0, "rank", np.arange(1, len(out) + 1))
    if paper is not None and len(out):
        printed = paper.rows("transfers", "train", "test", "model", "input")
        keys = [
            (s, t, paper_model(m), paper_input(i))
            for s, t, m, i in zip(out["source"], out["target"], out["model"], out["input"], strict=True)
        ]
        for ours, theirs in (("auroc", "external_auroc"), ("balanced_accuracy", "external_bacc")):
            out[f"paper_{ours}"] = [float(printed[k][theirs]) if k in printed else math.nan for k in keys]
            out[f"difference_{ours}"] = out[ours] - out[f"paper_{ours}"]
        out["paper_rank"] = [str(printed[k]["rank"]) if k in printed else "" for k in keys]
    return out


def without_beside(without: pd.DataFrame, paper: Reference | None, complete: frozenset[str]) -> pd.DataFrame:
    """The paper's table 5 (external, without BUS-UCLM) beside ours."""
    if paper is None or without.empty or "external" not in complete:
        return without
    printed = paper.rows("without_busuclm", "model", "input")
    short = {"auroc": "auroc", "balanced_accuracy": "bacc"}
    values = []
    for row in without.to_dict(orient="records"):
        found, name = math.nan, short.get(str(row["metric"]))
        if name and row["without"] == "BUS-UCLM" and row["kind"] == "external":
            theirs = (paper_model(str(row["model"])), paper_input(str(row["input"])))
            if row["model"] == OVERALL:
                found = paper.stated(f"external_{name}_without") or math.nan
            elif theirs in printed:
                found = float(printed[theirs][f"{name}_without"])
        values.append(found)
    out = without.assign(paper_value=values)
    return out.assign(difference_value=out["value"] - out["paper_value"])


def paired_beside(paired: pd.DataFrame, paper: Reference | None, complete: frozenset[str]) -> pd.DataFrame:
    """The paper's paired gains of the crop over the whole image, external."""
    if paper is None or paired.empty or "external" not in complete:
        return paired
    printed = paper.rows("paired_roi_minus_whole", "model", "metric")
    short = {"auroc": "auroc", "balanced_accuracy": "bacc"}
    added = []
    for row in paired.to_dict(orient="records"):
        key = (paper_model(str(row["a_model"])), short.get(str(row["metric"])))
        ours = (row["what"], row["kind"], paper_input(str(row["a_input"])), paper_input(str(row["b_input"])))
        theirs = printed.get(key) if ours == ("input", "external", "roi", "whole") else None
        added.append(
            {
                "paper_difference": float(theirs["mean_gain"]) if theirs else math.nan,
                "paper_lo": float(theirs["lo"]) if theirs else math.nan,
                "paper_hi": float(theirs["hi"]) if theirs else math.nan,
                "paper_p": str(theirs["wilcoxon_p"]) if theirs else "",
            }
        )
    return pd.concat([paired.reset_index(drop=True), pd.DataFrame(added)], axis=1)


def margin_beside(margins: pd.DataFrame, runs: pd.DataFrame, paper: Reference | None) -> pd.DataFrame:
    """The paper's table 6 beside ours, where the scenarios are its four."""
    four = {"BUS-UCLM>BUSI", "BUSI>BUS-BRA", "BUS-BRA>BUSI", "BrEaST>BUS-UCLM"}
    if paper is None or margins.empty or set(runs["scenario"]) != four:
        return margins
    printed = paper.rows("roi_margin", "model", "margin_percent")
    out = margins.copy()
    for ours, theirs in (("auroc", "auroc"), ("balanced_accuracy", "bacc")):
        keys = [(paper_model(m), round(100 * x)) for m, x in zip(out["model"], out["margin"], strict=True)]
        out[f"paper_{ours}"] = [float(printed[k][theirs]) if k in printed else math.nan for k in keys]
        out[f"difference_{ours}"] = out[ours] - out[f"paper_{ours}"]
        out[f"paper_{ours}_p"] = [
            float(printed[k][f"{theirs}_p_vs_12"]) if k in printed else math.nan for k in keys
        ]
    return out


def eligibility_table(runs: pd.DataFrame, design: Design, paper: Reference | None) -> pd.DataFrame:
    """US-16: in how many runs a temperature could be fitted, k of n, and why not."""
    rows = []
    for (kind, source), part in runs.groupby(["kind", "source"], sort=False):
        reasons = part.loc[~part["calibration_eligible"], "calibration_reason"].unique()
        rows.append(_eligible(kind, source, part) | {"reason": "; ".join(map(str, reasons[:2]))})
    for kind, part in runs.groupby("kind", sort=False):
        row = _eligible(kind, "all", part) | {"reason": ""}
        if paper is not None:
            k, n = paper.stated(f"{kind!s}_eligible"), paper.stated(f"{kind!s}_runs")
            if k is not None and n == len(part):
                row |= {"paper_eligible": int(k), "paper_runs": int(n)}
        rows.append(row)
    return design.order(pd.DataFrame(rows)) if rows else pd.DataFrame()


def _eligible(kind: Any, source: Any, part: pd.DataFrame) -> dict[str, Any]:
    eligible = part["calibration_eligible"].astype(bool)
    return {
        "kind": str(kind),
        "source": str(source),
        "eligible": int(eligible.sum()),
        "runs": len(part),
        "share": float(eligible.mean()),
        "at_a_bound": int((part["temperature_bound"] != "").sum()),
        "median_temperature": float(part.loc[eligible, "temperature"].median())
        if eligible.any()
        else math.nan,
    }


def multi_source_table(scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """US-31: all other datasets train, target by target, beside the mean and the best of single sources."""
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
