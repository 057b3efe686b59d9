"""Internal and external results: how much each method loses at another hospital, by task (MRI-11, ST-05,
ST-07).

A transfer from one dataset is compared with the same method's internal result at its source: other patients,
so two independent samples. A method trained on all other datasets is compared with the one trained at the
target: the same patients, so a paired difference. A verdict over datasets takes four of them; with fewer,
each comparison keeps its own verdict, which rests on patients.

An internal result is the mean over the seeds, whatever part of the dataset each of them tested: a resample
gives each patient one weight in every seed that tested her.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from elsewhere.analysis.study.boards import (
    SEED,
    Board,
    Entry,
    chance_methods,
    ids_of,
    kinds_of,
    pooled,
)
from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.detectable import ALPHA, POWER, minimum_detectable_effects
from elsewhere.analysis.study.groups import CENTRES, codes_of
from elsewhere.analysis.study.overall import OVERALL
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.analysis.study.sides import Side, only, side_of
from elsewhere.scoring.prepared import answered_cases, truth_of
from elsewhere.scoring.task import Scores
from elsewhere.statistics.differences import Difference, difference_subsets
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.power import power_numbers
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.scenario import scenario_summary, signed_rank_test
from elsewhere.statistics.two_sides import difference_of_sides
from elsewhere.statistics.verdict import Verdict, judge
from elsewhere.study.methods import Method
from elsewhere.study.results import Results

INTERNAL = ("internal", "folds")
EXTERNAL = ("external", "leave-one-dataset-out")
FEWEST = 10
"""Patients below this at a centre give no difference: the interval would be a guess."""
FEWEST_OF_A_CLASS = 5
FLOOR = {"auroc": 0.5, "dice": 0.0}
"""What a metric can fall to: chance, and no voxel right."""
SOURCES_NEEDED = 4
"""Fewer datasets than this give no verdict for the study."""
CHANGE = (-1.0, 1.0)
"""A difference of two values in [0, 1] lies here."""
PREDICTS_BY_CHANCE = "it predicts by chance, and has nothing to lose"
_NAN = float("nan")


def transfers(
    results: Results, task: str, *, margin: float | None, resamples: int, metric: str
) -> pd.DataFrame:
    """Compare every external scenario with the internal result of the same method.

    Args:
        results: Results of the study.
        task: Task whose runs are compared.
        margin: The largest drop that would not matter; None for no verdicts.
        resamples: Number of resamples of patients.
        metric: Name of the metric that is compared.

    Returns:
        One row per method and transfer: the external value, the internal value, their difference with its 90
        % interval, the verdict where a margin was declared, and the smallest drop that these patients could
        have shown.
    """
    where = kinds_of(results)
    scores_of: dict[tuple[str, str], dict[int, Scores]] = {}
    for key, scores in results.scores.items():
        if key.task == task:
            scores_of.setdefault((key.method, key.scenario), {})[key.seed] = scores
    by_chance = chance_methods(results.methods)
    resampling = Resampling(key=results.cohort.hash, seed=SEED, resamples=resamples)
    rows: list[dict[str, Any]] = []
    for method in dict.fromkeys(m for m, _ in scores_of):
        internal = _internal({s: v for (m, s), v in scores_of.items() if m == method}, where)
        sides = {dataset: side_of(scores) for dataset, scores in internal.items()}
        for (of, scenario), by_seed in scores_of.items():
            kind = where.get(scenario, {}).get("kind", "")
            if of != method or kind not in EXTERNAL:
                continue
            row: dict[str, Any] = {"task": task, "method": method, "scenario": scenario, "kind": kind}
            row |= {"source": where[scenario]["source"], "target": where[scenario]["target"]}
            row |= {"metric": metric, "margin": _number(margin)}
            found = _transfer(by_seed, internal, sides, row, margin=margin, resampling=resampling)
            rows.append(row | (not_assessed(found, margin) if method in by_chance else found))
    return pd.DataFrame(rows)


def not_assessed(row: Mapping[str, Any], margin: float | None) -> dict[str, Any]:
    """Take the verdict from the row of a method that predicts by chance, and say why.

    Args:
        row: A comparison of external with internal results.
        margin: The largest drop that would not matter; None for no verdicts.

    Returns:
        The row without a verdict; a reason that it has already stays.

    Example:
        >>> not_assessed({"verdict": "BELOW"}, 0.05)
        {'verdict': 'NOT ASSESSED', 'reason': 'it predicts by chance, and has nothing to lose'}
    """
    reason = str(row.get("reason") or "") or PREDICTS_BY_CHANCE
    return {**row, "verdict": _verdict(None, margin), "reason": reason}


def too_few(patients: int, classes: tuple[int, int] | None = None) -> str:
    """Say why some patients give no number of their own.

    Args:
        patients: How many patients there are.
        classes: How many positive and negative cases there are; None for a task without classes.

    Returns:
        The reason; empty where there are enough.

    Example:
        >>> too_few(9), too_few(50, (46, 4)), too_few(50, (25, 25))
        ('fewer than 10 patients', 'fewer than 5 cases of a class', '')
    """
    if patients < FEWEST:
        return f"fewer than {FEWEST} patients"
    if classes is not None and min(classes) < FEWEST_OF_A_CLASS:
        return f"fewer than {FEWEST_OF_A_CLASS} cases of a class"
    return ""


def could_be_seen(drop: Any, level: Any, metric: str) -> bool:
    """Decide whether a fall of `drop` from `level` is possible: a larger one than to the metric's floor is
    not.

    Args:
        drop: The smallest detectable drop; None or NaN where it is not known.
        level: The value that would fall; None or NaN where it is not known.
        metric: Name of the metric, which decides the floor: 0.5 for AUROC, else 0.

    Returns:
        True where the drop is known and not too large.

    Example:
        >>> could_be_seen(0.1, 0.8, "auroc"), could_be_seen(0.4, 0.8, "auroc")
        (True, False)
    """
    known, start = _number(drop), _number(level)
    return math.isfinite(known) and (not math.isfinite(start) or known <= start - FLOOR.get(metric, 0.0))


def _internal(
    by_scenario: Mapping[str, dict[int, Scores]], where: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[int, Scores]]:
    """The internal scores of each dataset: its own test part, or its folds together."""
    out: dict[str, dict[int, Scores]] = {}
    for kind in INTERNAL:
        parts: dict[str, list[dict[int, Scores]]] = {}
        for scenario, scores in by_scenario.items():
            if where.get(scenario, {}).get("kind") == kind:
                parts.setdefault(where[scenario]["target"], []).append(scores)
        for target, found in parts.items():
            seeds = set.intersection(*(set(f) for f in found))
            if seeds and target not in out:
                out[target] = {seed: pooled([f[seed] for f in found]) for seed in sorted(seeds)}
    return out


def _transfer(
    scores: Mapping[int, Scores],
    internal: Mapping[str, Mapping[int, Scores]],
    sides: Mapping[str, Side | None],
    row: Mapping[str, Any],
    *,
    margin: float | None,
    resampling: Resampling,
) -> dict[str, Any]:
    metric = str(row["metric"])
    side = side_of(scores)
    if side is None:
        return {
            "external": _NAN, "internal": _NAN, "reason": "a constant prediction", "verdict": _verdict(None, margin)
        }  # fmt: skip
    made = estimate_all(
        side.evaluator(), side.partition, rules=side.scores.protocol.interval, resampling=resampling,
        metrics=[metric],
    )[metric]  # fmt: skip
    out: dict[str, Any] = {
        "protocol": side.scores.protocol.name,
        "protocol_version": side.scores.protocol.version,
        "cases": side.partition.n_cases,
        "patients": side.partition.n_clusters,
        "seeds": len(side.seeds),
        "external": _number(made.value),
        "external_lo": _number(made.lo),
        "external_hi": _number(made.hi),
        "external_method": made.method,
    }
    paired = row["kind"] == "leave-one-dataset-out"
    dataset = str(row["target"] if paired else row["source"])
    reference = sides.get(dataset)
    if reference is None:
        reason = (
            "a constant prediction internally" if dataset in sides else f"no internal scenario of {dataset}"
        )
        return out | {"internal": _NAN, "reason": reason, "verdict": _verdict(None, margin)}
    out["internal_seeds"] = len(reference.seeds)
    few = too_few(*_smaller(side, reference, paired=paired))
    if few:
        return out | {"internal": _NAN, "reason": f"{few}: not compared", "verdict": _verdict(None, margin)}
    compare = _same_patients if paired else _other_patients
    difference = compare(side, reference, metric, resampling=resampling)
    if difference is None:
        return out | {"internal": _NAN, "reason": "no interval", "verdict": _verdict(None, margin)}
    out |= {"compared": "same patients" if paired else "other patients"} | _judged(difference, margin)
    both = (scores, internal[dataset])
    answered = [_answered(part) for part in both]
    lost = sum(_size(part) - _size(kept) for part, kept in zip(both, answered, strict=True))
    if not lost:
        return out
    again = None
    if all(map(_size, answered)):
        here, there = side_of(answered[0]), side_of(answered[1])
        again = None if here is None or there is None else compare(here, there, metric, resampling=resampling)
    return out | _answered_only(again, lost, margin)


def _smaller(side: Side, reference: Side, *, paired: bool) -> tuple[int, tuple[int, int] | None]:
    """The number of patients, and of cases of each outcome, of the smaller side, or of the cases that both
    tested.

    A bootstrap of a few patients is too sure of itself.
    """
    counted = [side.scores, reference.scores]
    if paired:
        counted = [only(side.scores, set(ids_of(side.scores)) & set(ids_of(reference.scores)))]
    counts = [_counted(scores) for scores in counted]
    classes = [split for _, split in counts if split is not None]
    smaller = (min(c[0] for c in classes), min(c[1] for c in classes)) if classes else None
    return min(patients for patients, _ in counts), smaller


def _counted(scores: Scores) -> tuple[int, tuple[int, int] | None]:
    cases = scores.cases
    patients = (
        cases["patient_id"].astype(str).nunique() if "patient_id" in cases.columns else len(ids_of(scores))
    )
    truth = truth_of(scores)
    return int(patients), None if truth is None else (int((truth > 0).sum()), int((truth == 0).sum()))


def _judged(d: Difference, margin: float | None) -> dict[str, Any]:
    power = power_numbers(d.se, lo=d.lo, hi=d.hi, margin=margin, alpha=ALPHA, comparison=d.comparison)
    return {
        "internal": d.reference,
        "external_compared": d.here,
        "difference": d.difference,
        "lo90": d.lo,
        "hi90": d.hi,
        "method_of_interval": d.method,
        "smallest_detectable_drop": _number(power.smallest_detectable_drop),
        "smallest_provable_margin": _number(power.smallest_provable_margin),
        "verdict": _verdict(d, margin),
        "reason": d.undefined_reason or "",
    }


def _verdict(d: Difference | None, margin: float | None) -> str:
    if margin is None:
        return ""
    if d is None:
        return str(Verdict.NOT_ASSESSED)
    return str(judge(d.lo, d.hi, margin, higher_is_better=d.higher_is_better, reason=d.undefined_reason).word)


def _size(scores: Mapping[int, Scores]) -> int:
    return sum(len(s.cases) for s in scores.values()) // max(1, len(scores))


def _answered(scores: Mapping[int, Scores]) -> dict[int, Scores]:
    """The cases that every seed that tested them has a usable score for."""
    unanswered = set().union(
        *(s.cases.loc[~answered_cases(s), "case_id"].astype(str) for s in scores.values())
    )
    if not unanswered:
        return dict(scores)
    return {
        seed: s.take(~s.cases["case_id"].astype(str).isin(unanswered).to_numpy(dtype=bool))
        for seed, s in scores.items()
    }


def _answered_only(again: Difference | None, lost: int, margin: float | None) -> dict[str, Any]:
    """The same comparison without the cases that have no usable score (ST-14)."""
    return {
        "without_score": lost,
        "difference_answered": _NAN if again is None else again.difference,
        "lo90_answered": _NAN if again is None else again.lo,
        "hi90_answered": _NAN if again is None else again.hi,
        "verdict_answered": _verdict(again, margin),
    }


def _other_patients(side: Side, reference: Side, metric: str, *, resampling: Resampling) -> Difference:
    """Two sets of cases; patients seen in both are compared with themselves."""
    return difference_of_sides(
        side.partition, side.over, reference.partition, reference.over, metric, alpha=ALPHA,
        resampling=resampling,
    )  # fmt: skip


def _same_patients(side: Side, reference: Side, metric: str, *, resampling: Resampling) -> Difference | None:
    """Both models on the cases that both were tested on."""
    if not (side.same_cases and reference.same_cases):
        return _same_parts(side, reference, metric, resampling=resampling)
    both = set(ids_of(side.scores)) & set(ids_of(reference.scores))
    cut = [
        side_of({n: only(seed.scores, both) for n, seed in enumerate(part.seeds)}) if both else None
        for part in (side, reference)
    ]
    here, there = cut
    if here is None or there is None:
        return None
    made = compare_pair(
        here.evaluator(), there.evaluator(), here.partition, rules=here.scores.protocol.interval,
        resampling=resampling, level=1 - 2 * ALPHA, metrics=[metric], permutations=0,
    )[metric]  # fmt: skip
    return Difference(
        metric=metric,
        here=_number(made.value_a),
        reference=_number(made.value_b),
        difference=_number(made.difference),
        lo=_number(made.lo),
        hi=_number(made.hi),
        se=_number(made.se),
        alpha=ALPHA,
        method=f"{made.method}, paired",
        reference_source="the method trained there, same patients",
        higher_is_better=made.spec.higher_is_better,
        undefined_reason=made.undefined_reason,
    )


def _same_parts(side: Side, reference: Side, metric: str, *, resampling: Resampling) -> Difference | None:
    """Where the internal seeds tested different parts: every external seed on each of these parts."""
    parts = {
        (n, m): only(outer.scores, set(ids_of(inner.scores)))
        for m, inner in enumerate(reference.seeds)
        for n, outer in enumerate(side.seeds)
    }
    if any(not len(part.cases) for part in parts.values()):
        return None
    here = side_of(dict(enumerate(parts.values())))
    if here is None:
        return None
    return _other_patients(here, reference, metric, resampling=resampling)


def _number(value: float | None) -> float:
    return _NAN if value is None else float(value)


def drop_over_datasets(
    found: pd.DataFrame,
    *,
    margin: float | None,
    by_chance: frozenset[str] = frozenset(),
    main: Sequence[str] = (),
) -> pd.DataFrame:
    """Average the differences of each method over datasets, with a t interval and the verdict that it allows.

    Transfers are averaged by their source first; a dataset left out is one observation. The mean over the
    targets is given too: its pairing is another.

    Args:
        found: The transfers, one row per method and transfer.
        margin: The largest drop that would not matter; None for no verdicts.
        by_chance: Methods that predict by chance, which get no verdict.
        main: The methods whose mean over a transfer is a row of its own, `overall`.

    Returns:
        One row per method, kind and metric.
    """
    if found.empty or "difference" not in found.columns:
        return pd.DataFrame()
    whole = pd.concat([_mean_of_main(found, main), found], ignore_index=True) if len(main) > 1 else found
    rows: list[dict[str, Any]] = []
    for (task, method, kind, metric), part in whole.groupby(["task", "method", "kind", "metric"], sort=False):
        row: dict[str, Any] = {"task": task, "method": method, "kind": kind, "metric": metric}
        sides = ("source", "target") if kind == "external" else ("target",)
        means = {side: _by_dataset(part, side) for side in sides}
        first = means[sides[0]]
        if first.empty:
            continue
        row |= {"datasets": len(first), "comparisons": int(part["difference"].notna().sum())}
        row |= {"internal": float(first["internal"].mean())}
        row |= {"external": float(part["external_compared"].mean())}
        row |= _over_datasets(first["difference"])
        if len(means) > 1:
            row |= {
                f"{name}_by_target": value
                for name, value in _over_datasets(means["target"]["difference"]).items()
            }
        row |= _without_one(part) | {"margin": _number(margin), "verdict": "", "reason": ""}
        if method in by_chance:
            row["reason"] = PREDICTS_BY_CHANCE
        elif len(first) < SOURCES_NEEDED:
            row["reason"] = few_sources(len(first))
        if margin is not None:
            verdict = Verdict.NOT_ASSESSED if row["reason"] else judge(row["lo90"], row["hi90"], margin).word
            row["verdict"] = str(verdict)
        rows.append(row)
    return pd.DataFrame(rows)


def _by_dataset(part: pd.DataFrame, side: str) -> pd.DataFrame:
    defined = part.dropna(subset=["difference"])
    return defined.groupby(side)[["difference", "external_compared", "internal"]].mean()


def _over_datasets(difference: pd.Series) -> dict[str, float]:
    values = difference.to_numpy(dtype=float)
    wide = scenario_summary(values, bounds=CHANGE)
    narrow = scenario_summary(values, bounds=CHANGE, level=1 - 2 * ALPHA)
    test = signed_rank_test(values) if values.size else None
    n = values.size
    smallest = _NAN
    if n > 1:
        quantiles = float(stats.t.ppf(1 - ALPHA, n - 1) + stats.t.ppf(POWER, n - 1))
        smallest = quantiles * float(values.std(ddof=1)) / math.sqrt(n)
    return {
        "difference": wide.value,
        "lo": _number(wide.lo),
        "hi": _number(wide.hi),
        "lo90": _number(narrow.lo),
        "hi90": _number(narrow.hi),
        "smallest_detectable_drop": smallest,
        "p": _number(test.p if test else None),
        "smallest_p": _number(test.smallest_p if test else None),
    }


def _without_one(part: pd.DataFrame) -> dict[str, float]:
    """The range of the mean difference when each dataset is left out, as a source and as a target."""
    defined = part.dropna(subset=["difference"])
    names = sorted(set(defined["target"]) | {n for n in defined["source"] if "+" not in str(n)})
    values = []
    for name in names:
        rest = defined[(defined["source"] != name) & (defined["target"] != name)]
        if len(rest):
            side = "source" if rest["kind"].iloc[0] == "external" else "target"
            values.append(float(rest.groupby(side)["difference"].mean().mean()))
    return {
        "without_one_lo": min(values) if values else _NAN,
        "without_one_hi": max(values) if values else _NAN,
    }


def _mean_of_main(found: pd.DataFrame, main: Sequence[str]) -> pd.DataFrame:
    """Each transfer's mean over the main configurations: one that lacks a configuration is left out."""
    part = found[found["method"].isin(list(main)) & found["difference"].notna()]
    keys = ["task", "scenario", "kind", "source", "target", "metric"]
    grouped = part.groupby(keys, as_index=False, sort=False)
    values = ["internal", "external", "external_compared", "difference"]
    whole = np.asarray(grouped["method"].nunique()["method"]) == len(main)
    return grouped[values].mean()[whole].assign(method=OVERALL)


def few_sources(sources: int) -> str:
    """Say why so few datasets give no verdict.

    Args:
        sources: How many datasets there are.

    Returns:
        The reason, as part of a sentence.
    """
    return (
        f"{sources} dataset{'' if sources == 1 else 's'}: a verdict over datasets takes at least {SOURCES_NEEDED}, "
        "since with fewer their agreement is luck"
    )


def centres(board: Board, *, margin: float | None, by_chance: frozenset[str] = frozenset()) -> pd.DataFrame:
    """Compare each dataset and site with all the others of the board, with the 90 % interval of the
    difference.

    Args:
        board: Methods of a task on the same cases.
        margin: The largest difference that would not matter; None for no verdicts.
        by_chance: Methods that predict by chance, which get no verdict.

    Returns:
        One row per method and centre; a centre with fewer than 10 patients is named and not compared.
    """
    metric = board.main
    rows: list[dict[str, Any]] = []
    for variable, coded in codes_of(board, CENTRES).items():
        if sum(n > 0 for n in coded.sizes().values()) < 2:
            continue
        for entry in board.entries:
            for g, name in enumerate(coded.names):
                here = coded.codes == g
                patients = int(np.unique(board.partition.cluster_of_case[here]).size)
                row: dict[str, Any] = {"task": board.task, "board": board.name, "method": entry.method}
                row |= {"by": variable, "centre": name, "metric": metric, "patients": patients}
                if patients < FEWEST:
                    row |= {"patients": f"<{FEWEST}", "verdict": _verdict(None, margin)}
                    rows.append(row | {"reason": f"fewer than {FEWEST} patients: not compared"})
                    continue
                others = (coded.codes >= 0) & ~here
                answered = np.logical_and.reduce([answered_cases(r.scores) for r in entry.ready])
                made = _between(board, entry, here, others)
                judged = _judged(made, margin)
                lost = int(((here | others) & ~answered).sum())
                if lost:
                    both = (here & answered).any() and (others & answered).any()
                    again = _between(board, entry, here & answered, others & answered) if both else None
                    judged |= _answered_only(again, lost, margin)
                judged["value"], judged["others"] = judged.pop("external_compared"), judged.pop("internal")
                judged = not_assessed(judged, margin) if entry.method in by_chance else judged
                rows.append(row | judged)
    return pd.DataFrame(rows)


def _between(board: Board, entry: Entry, here: Any, others: Any) -> Difference:
    return difference_subsets(
        entry.evaluator, board.partition, here, others, board.main, alpha=ALPHA,
        resampling=Resampling(key=board.key, seed=SEED, resamples=board.resamples),
    )  # fmt: skip


@analysis("transfers")
def transfers_analysis(context: Context) -> Tables:
    """Compare external with internal results, transfer by transfer and over datasets, and centre with centre.

    Args:
        context: The task, its runs and what analyses share.

    Returns:
        The tables `transfers` and `drop`, and of the leading board `centres` and
        `minimum_detectable_effects`.
    """
    results, task, margin = context.results, context.task, context.margin
    found = transfers(results, task, margin=margin, resamples=context.resamples, metric=context.metrics.main)
    main = [name for name, method in context.methods.items() if _is_main(context, method)]
    drop = drop_over_datasets(found, margin=margin, by_chance=context.chance_methods, main=main)
    tables = {"transfers": found, "drop": drop}
    if context.leading is not None:
        tables["centres"] = centres(context.leading, margin=margin, by_chance=context.chance_methods)
        tables["minimum_detectable_effects"] = minimum_detectable_effects(context.leading)
    return tables


def _is_main(context: Context, method: Method) -> bool:
    factors = method.factors
    return (factors.get("model"), factors.get("input")) in context.design.main
