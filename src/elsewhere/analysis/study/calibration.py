"""Calibration (US-16 to US-18): where it was possible, reliability, and lesions against normal cases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.design import Design
from elsewhere.analysis.study.probability_runs import Judged
from elsewhere.analysis.study.published import Reference
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.privacy import SMALLEST_CELL
from elsewhere.statistics.calibration import reliability_curve


@analysis("calibration", probabilities=True)
def calibration(context: Context) -> Tables:
    """Report where probabilities could be calibrated, and how reliable they are before and after.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `calibration_eligibility` and `calibration_curves`.
    """
    runs, design = context.judged_runs, context.design
    return {
        "calibration_eligibility": eligibility_table(runs, design, context.published),
        "calibration_curves": calibration_curves(context.judged, runs, design),
    }


@analysis("lesion against normal", probabilities=True)
def lesion_against_normal(context: Context) -> Tables:
    """Test whether the models are less sure of normal cases than of lesions, where there are normal cases.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The table `lesion_against_normal`; nothing in a study without normal cases.
    """
    runs = context.judged_runs
    if not (runs["normal_images"] > 0).any():
        return {}
    return {"lesion_against_normal": normal_table(runs, context.scenarios, context.design)}


def eligibility_table(runs: pd.DataFrame, design: Design, published: Reference | None) -> pd.DataFrame:
    """Count in how many runs a temperature could be fitted, and give the reasons where it could not (US-16).

    Args:
        runs: One row per judged run.
        design: Gives the order of the rows.
        published: A published study whose counts are put into columns of their own; None for none.

    Returns:
        One row per kind of scenario and source, and one per kind for all sources.
    """
    rows = []
    for (kind, source), part in runs.groupby(["kind", "source"], sort=False):
        reasons = part.loc[~part["calibration_eligible"], "calibration_reason"].unique()
        rows.append(_eligible(kind, source, part) | {"reason": "; ".join(map(str, reasons[:2]))})
    for kind, part in runs.groupby("kind", sort=False):
        row = _eligible(kind, "all", part) | {"reason": ""}
        if published is not None:
            k, n = published.stated(f"{kind!s}_eligible"), published.stated(f"{kind!s}_runs")
            if k is not None and n == len(part):
                row |= {"published_eligible": int(k), "published_runs": int(n)}
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


def normal_table(runs: pd.DataFrame, scenarios: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Give lesion-against-normal values by kind, target and configuration, or the reason why there are none.

    Args:
        runs: One row per judged run.
        scenarios: One row per scenario and configuration.
        design: Gives the order of the rows.

    Returns:
        One row per kind, target and configuration.
    """
    rows = []
    for (kind, target, model, input_), part in runs.groupby(["kind", "target", "model", "input"], sort=False):
        same = scenarios[
            (scenarios["kind"] == kind)
            & (scenarios["target"] == target)
            & (scenarios["model"] == model)
            & (scenarios["input"] == input_)
        ]
        reasons = [r for r in part["normal_reason"].unique() if r]
        rows.append(
            {
                "kind": kind, "target": target, "model": model, "input": input_,
                "auroc": same["normal_auroc"].mean(), "auprc": same["normal_auprc"].mean(),
                "scenarios": int(same["normal_auroc"].notna().sum()),
                "normal_images": int(part["normal_images"].max()),
                "share_normal": float((part["normal_images"] / (part["normal_images"] + part["cases"])).mean()),
                "shared_patients": int(part["normal_shared_patients"].max()),
                "unavailable": reasons[0] if reasons and same["normal_auroc"].isna().all() else "",
            }
        )  # fmt: skip
    return design.order(pd.DataFrame(rows)) if rows else pd.DataFrame()


def calibration_curves(judged: Mapping[str, Judged], runs: pd.DataFrame, design: Design) -> pd.DataFrame:
    """Pool the runs of each kind of scenario into one reliability curve, before and after calibration.

    Args:
        judged: Every run with probabilities, by name.
        runs: One row per judged run.
        design: Its main configurations are pooled; every method where there are none.

    Returns:
        One row per kind, state ('raw', 'calibrated') and bin; bins of fewer than five patients are left out.
    """
    rows: list[dict[str, Any]] = []
    main = set(design.main) or set(design.configurations)
    for kind, part in runs.groupby("kind", sort=False):
        pooled = [
            judged[r]
            for r, m, i in zip(part["run"], part["model"], part["input"], strict=True)
            if (m, i) in main and np.isfinite(judged[r].probability).all()
        ]
        if not pooled:
            continue
        label = np.concatenate([j.test.label for j in pooled])
        cluster = np.unique(np.concatenate([j.cluster for j in pooled]), return_inverse=True)[1]
        for state, values in (
            ("raw", [j.probability for j in pooled]),
            ("calibrated", [j.calibrated for j in pooled]),
        ):
            curve = reliability_curve(label, np.concatenate(values), cluster)
            for position, predicted in enumerate(curve.x):
                if curve.patients[position] < SMALLEST_CELL:
                    continue
                rows.append(
                    {
                        "kind": str(kind), "state": state, "predicted": predicted,
                        "observed": curve.y[position], "lo": curve.lo[position], "hi": curve.hi[position],
                        "cases": curve.cases[position],
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)
