"""When the models of a study should not answer (US-32): scores of uncertainty, one run or ensemble at a time.

Max-softmax, energy and Mahalanobis distance are one network's; the deep ensemble is the mean over the seeds
of one scenario and configuration, which is possible where every seed was tested on the same cases (external
scenarios; each internal seed splits the dataset again). An error is a wrong class at the protocol's
threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.design import Design
from elsewhere.analysis.study.probability_runs import SCORES, Judged, lesion_against_normal
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.statistics.abstention import ensemble_entropy, ensemble_variance, risk_coverage
from elsewhere.statistics.auroc import auroc
from elsewhere.study.results import FIXED_TEST

FloatArray = npt.NDArray[np.float64]
ENSEMBLE_SCORES = ("ensemble_entropy", "ensemble_variance")
SCORE_LABELS = {
    "max_softmax": "max-softmax",
    "energy": "energy",
    "mahalanobis": "Mahalanobis distance",
    "ensemble_entropy": "ensemble, entropy",
    "ensemble_variance": "ensemble, disagreement",
}
COVERAGE = 0.8
GRID = np.round(np.arange(0.1, 1.0001, 0.05), 2)
VALUES = ("error_rate", "error_at_80", "aurc", "excess_aurc", "error_detection", "normal_auroc")


def _measured(
    error: FloatArray, uncertainty: FloatArray, normal: FloatArray
) -> tuple[dict[str, float], FloatArray] | None:
    if error.size == 0 or not np.isfinite(uncertainty).all():
        return None
    made = risk_coverage(error, uncertainty)
    against = lesion_against_normal(uncertainty, normal)
    values = {
        "error_rate": made.error_rate,
        "error_at_80": made.risk_at(COVERAGE),
        "aurc": made.aurc,
        "excess_aurc": made.excess,
        "error_detection": made.detection,
        "normal_auroc": float(against["auroc"]),
    }
    return values, made.at(GRID)


def _wrong(run: Judged, probability: FloatArray) -> FloatArray:
    """1 where the decision by the run's threshold is wrong, else 0."""
    positive = probability >= run.threshold if run.inclusive else probability > run.threshold
    return (positive != (run.test.label == 1)).astype(np.float64)


def _of_runs(judged: Sequence[Judged], score: str) -> list[tuple[dict[str, float], FloatArray]]:
    out = []
    for j in judged:
        if np.isfinite(j.probability).all():
            made = _measured(_wrong(j, j.probability), j.test.uncertainty(score), j.normal.uncertainty(score))
            if made is not None:
                out.append(made)
    return out


def members_of(judged: Sequence[Judged]) -> tuple[FloatArray, FloatArray] | None:
    """Stack the probabilities of several seeds, each column a case in the first seed's order.

    Args:
        judged: The runs of one scenario and configuration, one per seed.

    Returns:
        The probabilities of the test cases, (seeds, cases), and of the normal cases, (seeds, normal cases),
        which have no columns where the seeds' normal cases differ. None where the seeds tested different
        cases, or where an answer is not finite.
    """
    first = judged[0]
    order = np.argsort(first.test.case)
    normal_order = np.argsort(first.normal.case)
    tests, normals = [], []
    for j in judged:
        mine, mine_normal = np.argsort(j.test.case), np.argsort(j.normal.case)
        if not np.array_equal(j.test.case[mine], first.test.case[order]):
            return None
        if not np.isfinite(j.probability).all():
            return None
        tests.append(j.probability[mine])
        same = np.array_equal(j.normal.case[mine_normal], first.normal.case[normal_order])
        normals.append(j.normal.probability[mine_normal] if same else None)
    back = np.argsort(order)
    test = np.stack(tests)[:, back]
    if any(n is None for n in normals):
        return test, np.zeros((len(judged), 0))
    return test, np.stack([n for n in normals if n is not None])[:, np.argsort(normal_order)]


def abstention_tables(
    judged: Mapping[str, Judged], runs: pd.DataFrame, design: Design, *, ensemble: bool = True
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Judge every score of uncertainty by kind of scenario and configuration.

    Runs of one scenario are averaged first, then scenarios. The ensemble of the seeds exists only for kinds
    of scenarios whose seeds tested the same cases.

    Args:
        judged: Every run with probabilities, by name.
        runs: One row per judged run.
        design: Gives the order of the rows.
        ensemble: Whether the seeds of a scenario are also judged together, as a deep ensemble.

    Returns:
        Three tables: one row per kind, configuration and score with the values of `VALUES`; the risk-coverage
        curves of the same, one row per coverage; and one row per scenario and configuration with the AUROC of
        the ensemble and the mean AUROC of its seeds.
    """
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    models: list[dict[str, Any]] = []
    for (kind, model, input_), part in runs.groupby(["kind", "model", "input"], sort=False):
        found: dict[str, list[tuple[dict[str, float], FloatArray]]] = {
            s: [] for s in (*SCORES, *ENSEMBLE_SCORES)
        }
        for scenario, seeds in part.groupby("scenario", sort=False):
            held = [judged[run] for run in seeds["run"]]
            for score in SCORES:
                made = _of_runs(held, score)
                if made:
                    found[score].append(_mean(made))
            together = ensemble and len(held) > 1 and kind in FIXED_TEST
            members = members_of(held) if together else None
            if members is None:
                continue
            test, normal = members
            mean = test.mean(axis=0)
            error = _wrong(held[0], mean)
            for score, scored in (
                ("ensemble_entropy", ensemble_entropy),
                ("ensemble_variance", ensemble_variance),
            ):
                one = _measured(error, scored(test), scored(normal) if normal.size else np.zeros(0))
                if one is not None:
                    found[score].append(one)
            models.append(
                {
                    "kind": kind, "scenario": scenario, "model": model, "input": input_, "seeds": len(held),
                    "auroc": auroc(held[0].test.label, mean),
                    "mean_of_seeds": float(np.mean([auroc(j.test.label, j.probability) for j in held])),
                }
            )  # fmt: skip
        for score, scenarios in found.items():
            if not scenarios:
                continue
            values, curve = _mean(scenarios)
            keys = {"kind": kind, "model": model, "input": input_, "score": score}
            rows.append({**keys, **values, "scenarios": len(scenarios)})
            curves += [
                {**keys, "coverage": float(c), "risk": float(r)} for c, r in zip(GRID, curve, strict=True)
            ]
    scores = design.order(pd.DataFrame(rows)) if rows else pd.DataFrame()
    return scores, pd.DataFrame(curves), pd.DataFrame(models)


def _mean(parts: Sequence[tuple[dict[str, float], FloatArray]]) -> tuple[dict[str, float], FloatArray]:
    """Means over runs or scenarios; a value that one of them lacks is the mean of the others."""
    values = {}
    for name in VALUES:
        held = [p[0][name] for p in parts if math.isfinite(p[0][name])]
        values[name] = float(np.mean(held)) if held else math.nan
    return values, np.mean([p[1] for p in parts], axis=0)


@analysis("abstention", probabilities=True)
def abstention(context: Context) -> Tables:
    """Report how many errors remain when the models answer their surest cases only.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `abstention`, `risk_coverage` and `ensembles`.
    """
    scores, curves, ensembles = abstention_tables(
        context.judged,
        context.judged_runs,
        context.design,
        ensemble=context.results.study.analyses.ensemble,
    )
    return {"abstention": scores, "risk_coverage": curves, "ensembles": ensembles}
