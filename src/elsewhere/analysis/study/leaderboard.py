"""The leaderboards of a study and what its ranks rest on (MRI-08 to MRI-10, MRI-12).

All numbers of a board come from the same resamples of its patients: performance, fairness, combined, the
differences that separate two ranks, and the ranks at every fairness weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.study.boards import SEED, Board, Entry, FloatArray
from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.protocols import Protocol
from elsewhere.scoring.binary import judge
from elsewhere.scoring.response import chance_test
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.fairness.variants import weighting_table
from elsewhere.statistics.leaderboard import centred_interval, performance_metric, weight_steps
from elsewhere.statistics.paired import PAIRED_T, WILCOXON, compare_pair, holm
from elsewhere.statistics.ranking import (
    PatientCounts,
    Ranking,
    left_out_sites,
    rank_from_draws,
    weight_stability,
)
from elsewhere.statistics.resampling import Resampling

STEPS = 101
SLOWEST_SECONDS = 300.0
"""The challenge allows five minutes per case (MRI-17)."""
BOOTSTRAP_T = "t of the paired bootstrap"
MEAN_MODEL = "mean probability of the seeds"
_CENTRED = ("fairness", "combined")
_NAN = float("nan")


def ranking_of(board: Board) -> Ranking:
    """Rank the methods of a board, with the rankings that leave a site out.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        The ranking by the board's metric, on the board's own resamples.
    """
    metric = board.ranked_by
    spec = board.evaluators[0].spec(metric)
    ranking = rank_from_draws(
        board.values(metric),
        board.drawn(metric),
        names=board.names,
        metric=metric,
        higher_is_better=spec.higher_is_better,
        patients=PatientCounts(df=board.df, patients=board.partition.n_clusters),
        baseline=board.baseline,
    )
    apart = left_out_sites(board.evaluators, board.partition, metric, names=board.names)
    return replace(ranking, left_out_sites=apart)


def leaderboard(board: Board, costs: pd.DataFrame) -> pd.DataFrame:
    """List one row per method, best first; those that could not be ranked come last, with the reason.

    Args:
        board: Methods of a task on the same cases.
        costs: Seconds, memory and energy by case, with the columns `method` and `task`; may be empty.

    Returns:
        Ranks, tiers, every reported metric with its interval, costs and the test against chance.
    """
    ranking = ranking_of(board)
    chance = {r["method"]: r for r in chance_rows(board) if r["in_board"]}
    rows: list[dict[str, Any]] = []
    for at in ranking.order:
        entry = board.entries[at]
        row: dict[str, Any] = _identity(board) | {
            "method": entry.method,
            "baseline": entry.method == board.baseline,
            "seeds": len(entry.seeds),
            "rank": int(ranking.ranks[at]),
            "rank_lo": int(ranking.rank_lo[at]),
            "rank_hi": int(ranking.rank_hi[at]),
            "tier": int(ranking.tiers[at]),
            "ranked_by": ranking.metric,
        }
        row |= _estimates(board, at) | _cost(costs, entry.method, board.task)
        if entry.method in chance:
            tested = chance[entry.method]
            row |= {"p_chance": tested["p"], "p_chance_holm": tested["p_holm"], "p_chance_of": tested["of"]}
        rows.append(row | {"status": "ranked", "reason": ""})
    for lost in board.failed:
        rows.append(
            _identity(board) | {"method": lost["method"], "status": "not ranked", "reason": lost["reason"]}
        )
    return pd.DataFrame(rows)


def _identity(board: Board) -> dict[str, Any]:
    return {
        "task": board.task,
        "board": board.name,
        "kind": board.kind,
        "protocol": board.protocol.name,
        "protocol_version": board.protocol.version,
        "cases": len(board.cases),
        "patients": board.partition.n_clusters,
    }


def _estimates(board: Board, at: int) -> dict[str, Any]:
    entry, rules = board.entries[at], board.protocol.interval
    have = {spec.name for spec in entry.evaluator.specs}
    shown = [name for name in board.metrics.shown if name in have]
    found = estimate_all(
        entry.evaluator,
        board.partition,
        rules=rules,
        resampling=Resampling(key=board.key, seed=SEED, resamples=board.resamples),
        level=rules.level,
        metrics=shown,
    )
    out: dict[str, Any] = {}
    for name, made in found.items():
        out |= {name: _number(made.value), f"{name}_lo": _number(made.lo), f"{name}_hi": _number(made.hi)}
        out[f"{name}_method"] = made.method
        if made.undefined_reason:
            out[f"{name}_reason"] = made.undefined_reason
        if name in _CENTRED and made.value is not None:
            spec = entry.evaluator.spec(name)
            ends = centred_interval(
                made.value,
                board.draws[at][:, entry.evaluator.index(name)],
                df=board.df,
                patients=board.partition.n_clusters,
                level=rules.level,
            )
            bounds = (spec.lower_bound, spec.upper_bound)
            low, high = np.clip(ends, *bounds) if ends else (_NAN, _NAN)
            out |= {f"{name}_t_lo": float(low), f"{name}_t_hi": float(high)}
            out[f"{name}_excludes_itself"] = bool(
                made.lo is not None and made.hi is not None and not made.lo <= made.value <= made.hi
            )
    return out


def _number(value: float | None) -> float:
    return _NAN if value is None else float(value)


def _cost(costs: pd.DataFrame, method: str, task: str) -> dict[str, Any]:
    """Median over cases, the slowest case, and the largest memory, where they were measured (MRI-12)."""
    if costs is None or costs.empty:
        return {}
    part = costs[(costs["method"] == method) & (costs["task"] == task)]
    seconds = pd.to_numeric(part.get("seconds", pd.Series(dtype=float)), errors="coerce").dropna()
    memory = pd.to_numeric(part.get("peak_bytes", pd.Series(dtype=float)), errors="coerce").dropna()
    energy = pd.to_numeric(part.get("energy_joule", pd.Series(dtype=float)), errors="coerce").dropna()
    memory = memory[memory > 0]
    return {
        "cost_cases": len(seconds),
        "seconds": float(seconds.median()) if len(seconds) else _NAN,
        "slowest_seconds": float(seconds.max()) if len(seconds) else _NAN,
        "over_limit": int((seconds > SLOWEST_SECONDS).sum()),
        "peak_mb": float(memory.max()) / 2**20 if len(memory) else _NAN,
        "energy_joule": float(energy.median()) if len(energy) else _NAN,
    }


def pairwise(board: Board) -> pd.DataFrame:
    """Compare every two methods of the board: the difference and its simultaneous interval (ST-09).

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row per pair.
    """
    rows = ranking_of(board).to_dict()["pairwise"]
    return pd.DataFrame(
        [{"task": board.task, "board": board.name, "metric": board.ranked_by, **r} for r in rows]
    )


def paired(board: Board) -> pd.DataFrame:
    """Test each method against the baseline on the same patients (MRI-09).

    The tests are the paired t-test of Dice and NormHD, or those of balanced accuracy and AUROC, with Holm's
    adjustment over the methods, metric by metric.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row per method and metric; empty without a baseline.
    """
    if board.baseline is None:
        return pd.DataFrame()
    base = board.entries[board.names.index(board.baseline)]
    rules, rows = board.protocol.interval, []
    metrics = [m for m in board.metrics.paired if np.isfinite(base.evaluator.values().get(m, _NAN))]
    for entry in board.entries:
        if entry is base or not metrics:
            continue
        found = compare_pair(
            entry.evaluator, base.evaluator, board.partition, rules=rules, resampling=Resampling(key=board.key, seed=SEED, resamples=board.resamples),
            level=rules.level, metrics=metrics, permutations=0,
        )  # fmt: skip
        for metric, made in found.items():
            test = made.tests.get(PAIRED_T)
            wilcoxon = made.tests.get(WILCOXON)
            rows.append(
                {
                    "task": board.task,
                    "board": board.name,
                    "method": entry.method,
                    "baseline": base.method,
                    "metric": metric,
                    "value": _number(made.value_a),
                    "baseline_value": _number(made.value_b),
                    "difference": _number(made.difference),
                    "lo": _number(made.lo),
                    "hi": _number(made.hi),
                    "interval": made.method,
                    "test": PAIRED_T if test else (made.p_method or ""),
                    "t": _number(test.statistic if test else None),
                    "df": _number(test.df if test else None),
                    "p": _number(test.p if test else made.p),
                    "p_wilcoxon": _number(wilcoxon.p if wilcoxon else None),
                }
            )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    for metric in table.loc[table["p"].isna(), "metric"].unique():
        told = {r["model"]: r["p"] for r in against_by_bootstrap(board, str(metric))}
        for at in table.index[(table["metric"] == metric) & table["p"].isna()]:
            table.loc[at, "p"] = _number(told.get(table.loc[at, "method"]))
            table.loc[at, "test"] = BOOTSTRAP_T
    table["p_holm"] = _NAN
    for _, part in table.groupby("metric"):
        adjusted = holm([None if np.isnan(p) else float(p) for p in part["p"]])
        table.loc[part.index, "p_holm"] = [_number(p) for p in adjusted]
    return table


def against_by_bootstrap(board: Board, metric: str) -> Sequence[dict[str, Any]]:
    """Test each method against the baseline by the t of the paired bootstrap.

    It serves metrics that have no mean per patient: balanced accuracy, or a mean of AUROCs over seeds.

    Args:
        board: Methods of a task on the same cases.
        metric: Name of the metric.

    Returns:
        One entry per method with `model`, `difference`, `lo`, `hi`, `p` and `p_holm`; empty without a
        baseline or without resamples.
    """
    made = rank_from_draws(
        board.values(metric), board.drawn(metric), names=board.names, metric=metric,
        patients=PatientCounts(df=board.df, patients=board.partition.n_clusters),
        baseline=board.baseline,
    )  # fmt: skip
    return made.against_baseline


def chance_rows(board: Board) -> list[dict[str, Any]]:
    """Test balanced accuracy against a thousand random classifiers (MRI-09).

    Every seed is tested, and with several seeds also the one model that answers with the mean of their
    probabilities. `in_board` marks the test that the board shows: of the only seed, or of that model. A mean
    of balanced accuracies is not made by anybody's decisions, so no random classifier can be compared with
    it; and a seed picked out of several would let chance choose. Holm's adjustment is over the methods,
    separately for each seed and for the mean model.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One entry per method and test; empty for a task without decisions, or where one class is absent.
    """
    truth = board.truth
    if truth is None or "decision" not in board.cases.columns or len(np.unique(truth)) < 2:
        return []
    rows: list[dict[str, Any]] = []
    for entry in board.entries:
        many = len(entry.members) > 1
        tested: list[tuple[str, int | None, npt.NDArray[Any]]] = [
            (member.label, member.seed, ready.scores.cases["decision"].to_numpy())
            for member, ready in zip(entry.members, entry.ready, strict=True)
        ]
        if many:
            tested.append((MEAN_MODEL, None, decisions_of_mean(entry, truth, board.protocol)))
        for of, seed, decision in tested:
            made = chance_test(truth, decision, key=board.key, seed=SEED).to_dict()
            row: dict[str, Any] = {"task": board.task, "board": board.name, "method": entry.method}
            row |= {"of": of, "seed": seed}
            rows.append(row | {"in_board": seed is None or not many, **made})
    for family in {(r["of"] if not r["in_board"] else "") for r in rows}:
        part = [r for r in rows if (r["of"] if not r["in_board"] else "") == family]
        for row, p in zip(part, holm([r["p"] for r in part]), strict=True):
            row["p_holm"] = _number(p)
    return rows


def decisions_of_mean(entry: Entry, truth: FloatArray, protocol: Protocol) -> npt.NDArray[np.bool_]:
    """Decide by the mean of the seeds' probabilities, at the threshold that each seed was judged by.

    Args:
        entry: One method of a board.
        truth: Outcome of each case, 0 or 1.
        protocol: Says whether the threshold itself counts as positive.

    Returns:
        One decision per case; True is positive.
    """
    return judge(
        truth,
        entry.mean("probability"),
        threshold=float(entry.scores.extras["threshold"]),
        inclusive=protocol.response.threshold_inclusive,
    ).decision


def weights(board: Board) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Rank the methods of a board at 101 fairness weights, and by the gate and the adaptive weight (MRI-10,
    MRI-12).

    Methods whose performance or fairness is not estimable are left out, and are named.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        The ranking at each weight; the gate and the adaptive weight (empty without a baseline); and
        `reference`, `crossings`, `stable_between`, `left_out`, or the `reason` why there is no such ranking.
    """
    found = performance_metric(board.evaluators[0].specs)
    if found is None or "fairness" not in [s.name for s in board.evaluators[0].specs]:
        return pd.DataFrame(), pd.DataFrame(), {"reason": "this task has no fairness"}
    metric, chance = found.name, found.chance
    perf, fair = board.values(metric), board.values("fairness")
    usable = np.flatnonzero(np.isfinite(perf) & np.isfinite(fair))
    lost = [board.names[i] for i in range(len(board.names)) if i not in usable]
    if usable.size < 2:
        reasons = {r for e in board.evaluators for n, r in e.undefined_reasons().items() if n == "fairness"}
        why = "; ".join(sorted(reasons)) or "fewer than two methods have a performance and a fairness"
        return pd.DataFrame(), pd.DataFrame(), {"reason": why, "left_out": lost}
    names = [board.names[i] for i in usable]
    reference = board.fairness_weight
    table = weight_table(
        perf[usable],
        fair[usable],
        names=names,
        performance_draws=board.drawn(metric)[:, usable],
        fairness_draws=board.drawn("fairness")[:, usable],
        reference=reference,
    ).assign(task=board.task, board=board.name)
    stability = weight_stability(perf[usable], fair[usable], names=names, reference=reference)
    about = {
        "reference": reference,
        "crossings": len(stability["crossings"]),
        "stable_between": stability["stable_between"],
        "left_out": lost,
    }
    gate = pd.DataFrame()
    if board.baseline in names:
        gate = _gate(board, names, perf[usable], fair[usable], metric=metric, chance=chance, weight=reference)
    return table, gate, about


def weight_table(
    performance: FloatArray,
    fairness: FloatArray,
    *,
    names: Sequence[str],
    performance_draws: FloatArray,
    fairness_draws: FloatArray,
    reference: float,
) -> pd.DataFrame:
    """Rank methods at 101 fairness weights from 0 to 1.

    Args:
        performance: Performance of each method.
        fairness: Fairness of each method.
        names: Names of the methods.
        performance_draws: Performance under the resamples, (resamples, methods).
        fairness_draws: Fairness under the same resamples, (resamples, methods).
        reference: Weight from which the change of rank is counted.

    Returns:
        One row per weight and method: its score, its rank, where the resamples put it, and its change of rank
        against `reference` (negative: it rises).
    """
    steps = weight_steps(
        performance,
        fairness,
        performance_draws=performance_draws,
        fairness_draws=fairness_draws,
        steps=STEPS,
    )
    at = round(reference * (STEPS - 1))
    return pd.DataFrame(
        {
            "weight": np.repeat(np.round(steps.weights, 4), len(names)),
            "method": list(names) * STEPS,
            "performance": np.tile(performance, STEPS),
            "fairness": np.tile(fairness, STEPS),
            "score": steps.scores.ravel(),
            "rank": steps.ranks.ravel(),
            "rank_lo": steps.rank_lo.ravel(),
            "rank_hi": steps.rank_hi.ravel(),
            "change": (steps.ranks - steps.ranks[at]).ravel(),
        }
    )


def _gate(
    board: Board, names: list[str], perf: Any, fair: Any, *, metric: str, chance: float, weight: float
) -> pd.DataFrame:
    """The gate by the value, and the sure gate: the interval of the paired difference from the baseline lies
    above 0.

    A method's own interval compared with the baseline's value would take the baseline's value as known
    exactly.
    """
    baseline = str(board.baseline)
    by_point = weighting_table(
        perf, fair, names=names, baseline=baseline, fairness_weight=weight, chance=chance
    )
    drawn = board.drawn(metric)[:, [board.names.index(n) for n in names]]
    at = names.index(baseline)
    lower = np.full(len(names), -np.inf)
    if len(drawn):
        lower = perf[at] + np.nanquantile(drawn - drawn[:, [at]], 0.025, axis=0)
    surely = weighting_table(
        perf,
        fair,
        names=names,
        baseline=baseline,
        fairness_weight=weight,
        chance=chance,
        performance_lo=lower,
    )
    rows = []
    for plain, sure, p, f in zip(by_point, surely, perf, fair, strict=True):
        row = {"task": board.task, "board": board.name, "method": plain.pop("model"), "baseline": baseline}
        row |= {"performance": float(p), "fairness": float(f), **plain}
        row |= {"surely_passed_gate": sure["passed_gate"], "surely_gated_rank": sure["gated_rank"]}
        rows.append(row)
    return pd.DataFrame(rows)


def seeds(board: Board) -> pd.DataFrame:
    """List what each seed gave, where there are several: a board's value is their mean.

    Args:
        board: Methods of a task on the same cases.

    Returns:
        One row per method and seed with the reported metrics; methods with one seed have none.
    """
    rows = []
    for entry in board.entries:
        if len(entry.members) < 2:
            continue
        for member, ready in zip(entry.members, entry.ready, strict=True):
            values = ready.evaluator.values()
            shown = {m: values[m] for m in board.metrics.shown if m in values}
            row = {"task": board.task, "board": board.name, "method": entry.method, "seed": member.seed}
            rows.append(row | ({"source": member.source} if member.source else {}) | shown)
    return pd.DataFrame(rows)


@analysis("leaderboards")
def leaderboards(context: Context) -> Tables:
    """Rank the methods of every board, and compare them with the baseline and with chance.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `leaderboard`, `against_baseline`, `chance` and `seeds`, without empty ones.
    """
    parts: dict[str, list[pd.DataFrame]] = {}
    for board in context.boards:
        found = {
            "leaderboard": leaderboard(board, context.results.costs),
            "against_baseline": paired(board),
            "chance": pd.DataFrame(chance_rows(board)),
            "seeds": seeds(board),
        }
        for name, table in found.items():
            if not table.empty:
                parts.setdefault(name, []).append(table)
    return {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}


@analysis("ranking")
def ranking(context: Context) -> Tables:
    """Compare every two methods of the leading board, and rank them at every fairness weight.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `pairwise`, `weights`, `gate` and, for a task with fairness, `weight_stability`; nothing
        without a board.
    """
    board = context.leading
    if board is None:
        return {}
    table, gate, about = weights(board)
    stable = about.get("stable_between") or (_NAN, _NAN)
    row = {
        "task": board.task,
        "board": board.name,
        "reference": about.get("reference", _NAN),
        "crossings": about.get("crossings", 0),
        "stable_lo": stable[0],
        "stable_hi": stable[1],
        "left_out": ", ".join(about.get("left_out", ())),
        "reason": about.get("reason", ""),
    }
    found = {"pairwise": pairwise(board), "weights": table, "gate": gate}
    return found | ({"weight_stability": pd.DataFrame([row])} if "fairness" in board.metrics.shown else {})
