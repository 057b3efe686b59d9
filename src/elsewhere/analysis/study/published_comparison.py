"""Every number that a published study prints and this study also has, in one table (US-25)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.design import configuration
from elsewhere.analysis.study.overall import OVERALL, WIDE, WITH_INTERVAL
from elsewhere.analysis.study.registry import Tables, analysis

_LABELS = {
    "auroc": "AUROC",
    "bacc": "balanced accuracy",
    "balanced_accuracy": "balanced accuracy",
    "ece_raw": "ECE",
    "ece_cal": "ECE, calibrated",
    "nll_raw": "NLL",
    "nll_cal": "NLL, calibrated",
}


MINUS = "\N{MINUS SIGN}"


def comparison_table(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """List every number that the published study prints and this study also has.

    Args:
        tables: Tables that earlier analyses made, by name.

    Returns:
        One row per number: what it is, this study's value with its interval, the published value, the
        difference, and whether the published value lies inside the interval.
    """
    rows = [
        *_overall(tables.get("overall")),
        *_without(tables.get("without_dataset")),
        *_paired(tables.get("paired")),
        *_transfers(tables.get("external_scenarios")),
        *_margins(tables.get("margins")),
    ]
    out = pd.DataFrame(rows)
    if out.empty:
        return out
    out["difference"] = out["value"] - out["published"]
    inside = (out["published"] >= out["lo"]) & (out["published"] <= out["hi"])
    out["inside"] = inside.where(out["lo"].notna(), None).astype(object)
    return out


def _row(table: str, what: str, metric: str, value: Any, lo: Any, hi: Any, published: Any) -> dict[str, Any]:
    return {
        "table": table, "what": what, "metric": metric,
        "value": float(value), "lo": float(lo), "hi": float(hi), "published": float(published),
    }  # fmt: skip


def _name(row: Mapping[str, Any]) -> str:
    return "overall mean" if row["model"] == OVERALL else configuration(str(row["model"]), str(row["input"]))


def _records(table: pd.DataFrame | None, needs: str) -> list[dict[str, Any]]:
    if table is None or needs not in table.columns:
        return []
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def _overall(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    if table is None:
        return
    for row in table.to_dict(orient="records"):
        for kind in ("internal", "external"):
            for short in WIDE:
                name = f"{kind}_{short}"
                published = row.get(f"published_{name}", math.nan)
                if not pd.isna(published):
                    ends = (row.get(f"{name}_lo"), row.get(f"{name}_hi")) if short in WITH_INTERVAL else ()
                    lo, hi = ends or (math.nan, math.nan)
                    lo, hi = (math.nan if e is None else e for e in (lo, hi))
                    what = f"{kind}, {_name({str(k): v for k, v in row.items()})}"
                    yield _row("overall", what, _LABELS[short], row[name], lo, hi, published)


def _without(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for row in _records(table, "published_value"):
        if not pd.isna(row["published_value"]):
            what = f"external without {row['without']}, {_name(row)}"
            yield _row(
                "without_dataset",
                what,
                _LABELS[row["metric"]],
                row["value"],
                row["lo"],
                row["hi"],
                row["published_value"],
            )


def _paired(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for row in _records(table, "published_difference"):
        if not pd.isna(row["published_difference"]):
            what = f"ROI {MINUS} whole image, {configuration(row['a_model'], '').rstrip(', ')}"
            yield _row(
                "paired",
                what,
                _LABELS[row["metric"]],
                row["difference"],
                row["lo"],
                row["hi"],
                row["published_difference"],
            )


def _transfers(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for row in _records(table, "published_auroc"):
        if not pd.isna(row["published_auroc"]):
            what = f"{row['source']} > {row['target']}, {_name(row)}"
            for metric in ("auroc", "balanced_accuracy"):
                lo, hi = row.get(f"{metric}_lo", math.nan), row.get(f"{metric}_hi", math.nan)
                yield _row(
                    "external_scenarios",
                    what,
                    _LABELS[metric],
                    row[metric],
                    lo,
                    hi,
                    row[f"published_{metric}"],
                )


def _margins(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for row in _records(table, "published_auroc"):
        for metric in ("auroc", "balanced_accuracy"):
            if not pd.isna(row[f"published_{metric}"]):
                what = f"margin {100 * row['margin']:g} %, {configuration(row['model'], '').rstrip(', ')}"
                lo, hi = row[f"{metric}_lo"], row[f"{metric}_hi"]
                yield _row("margins", what, _LABELS[metric], row[metric], lo, hi, row[f"published_{metric}"])


@analysis("comparison with published numbers", after=("averages", "comparisons of inputs and models"))
def published_comparison(context: Context) -> Tables:
    """Compare this study's numbers with those of the published study that its file names.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The table `published_comparison`; nothing without probabilities or a published study.
    """
    if not context.has_probabilities or context.published is None:
        return {}
    return {"published_comparison": comparison_table(context.made)}
