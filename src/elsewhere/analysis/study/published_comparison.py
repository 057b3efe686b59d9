"""Every number that the paper prints and we also have, in one table (US-25)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from elsewhere.report.page.numbers import MINUS
from elsewhere.study.analysis_design import configuration
from elsewhere.study.analysis_drop import OVERALL
from elsewhere.study.analysis_tables import WIDE, WITH_INTERVAL

_SAYS = {
    "auroc": "AUROC",
    "bacc": "balanced accuracy",
    "balanced_accuracy": "balanced accuracy",
    "ece_raw": "ECE",
    "ece_cal": "ECE, calibrated",
    "nll_raw": "NLL",
    "nll_cal": "NLL, calibrated",
}


def beside_paper(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """A row a number: what it is, ours with its interval, the paper's, the difference, and whether the
    paper's value lies inside our interval over scenarios."""
    rows = [
        *_overall(tables.get("overall")),
        *_without(tables.get("without_dataset")),
        *_paired(tables.get("paired")),
        *_transfers(tables.get("transfers")),
        *_margins(tables.get("margins")),
    ]
    out = pd.DataFrame(rows)
    if out.empty:
        return out
    out["difference"] = out["ours"] - out["paper"]
    inside = (out["paper"] >= out["lo"]) & (out["paper"] <= out["hi"])
    out["inside"] = inside.where(out["lo"].notna(), None).astype(object)
    return out


def _row(table: str, what: str, metric: str, ours: Any, lo: Any, hi: Any, paper: Any) -> dict[str, Any]:
    return {
        "table": table, "what": what, "metric": metric,
        "ours": float(ours), "lo": float(lo), "hi": float(hi), "paper": float(paper),
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
                paper = row.get(f"paper_{name}", math.nan)
                if not pd.isna(paper):
                    ends = (row.get(f"{name}_lo"), row.get(f"{name}_hi")) if short in WITH_INTERVAL else ()
                    lo, hi = ends or (math.nan, math.nan)
                    lo, hi = (math.nan if e is None else e for e in (lo, hi))
                    what = f"{kind}, {_name({str(k): v for k, v in row.items()})}"
                    yield _row("overall", what, _SAYS[short], row[name], lo, hi, paper)


def _without(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for row in _records(table, "paper_value"):
        if not pd.isna(row["paper_value"]):
            what = f"external without {row['without']}, {_name(row)}"
            yield _row(
                "without_dataset",
                what,
                _SAYS[row["metric"]],
                row["value"],
                row["lo"],
                row["hi"],
                row["paper_value"],
            )


def _paired(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for row in _records(table, "paper_difference"):
        if not pd.isna(row["paper_difference"]):
            what = f"ROI {MINUS} whole image, {configuration(row['a_model'], '').rstrip(', ')}"
            yield _row(
                "paired",
                what,
                _SAYS[row["metric"]],
                row["difference"],
                row["lo"],
                row["hi"],
                row["paper_difference"],
            )


def _transfers(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for row in _records(table, "paper_auroc"):
        if not pd.isna(row["paper_auroc"]):
            what = f"{row['source']} > {row['target']}, {_name(row)}"
            for metric in ("auroc", "balanced_accuracy"):
                lo, hi = row.get(f"{metric}_lo", math.nan), row.get(f"{metric}_hi", math.nan)
                yield _row("transfers", what, _SAYS[metric], row[metric], lo, hi, row[f"paper_{metric}"])


def _margins(table: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for row in _records(table, "paper_auroc"):
        for metric in ("auroc", "balanced_accuracy"):
            if not pd.isna(row[f"paper_{metric}"]):
                what = f"margin {100 * row['margin']:g} %, {configuration(row['model'], '').rstrip(', ')}"
                lo, hi = row[f"{metric}_lo"], row[f"{metric}_hi"]
                yield _row("margins", what, _SAYS[metric], row[metric], lo, hi, row[f"paper_{metric}"])
