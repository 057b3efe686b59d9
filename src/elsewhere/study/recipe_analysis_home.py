"""At home and elsewhere: the house's question, put to recipes (MRI-11, ST-05, ST-07).

A transfer from one dataset is held against the same recipe at home in its source: other patients, so two
independent samples. A recipe trained on all other datasets is held against the one trained at the target: the
same patients, so a paired difference. A word over datasets takes four of them, as in every study here; with
fewer, each comparison keeps its own word, which rests on patients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.privacy import suppress
from elsewhere.scoring.prepared import Prepared, answered_cases, prepare, truth_of
from elsewhere.scoring.task import ScoreOptions, Scores
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.differences import Difference, difference_subsets
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.power import auroc_variance, power_numbers, smallest_detectable_drop
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.scenario import scenario_summary
from elsewhere.statistics.seeds import over_seeds
from elsewhere.statistics.two_sides import difference_of_sides
from elsewhere.statistics.verdict import Verdict, judge
from elsewhere.study.analysis_drop import ALPHA, CHANGE, SOURCES_NEEDED, few_sources
from elsewhere.study.recipe_analysis_boards import (
    MAIN,
    SEED,
    USUAL_BASELINE,
    Board,
    Entry,
    ids_of,
    in_order,
    kinds_of,
    pooled,
)
from elsewhere.study.recipe_analysis_groups import CENTRES, codes_of

if TYPE_CHECKING:
    from elsewhere.study.recipe_results import RecipeResults

HOME = ("internal", "folds")
AWAY = ("external", "leave-one-dataset-out")
FEWEST = 10
"""Patients below this at a centre give no difference: the interval would be a guess."""
FEWEST_OF_A_CLASS = 5
FLOOR = {"auroc": 0.5, "dice": 0.0}
"""What a metric can fall to: a coin, and no voxel right."""
COIN = "a coin, which has nothing to lose"
_NAN = float("nan")


def _evaluated(scores: Mapping[int, Scores]) -> tuple[Evaluator, Clusters, Scores] | None:
    """The seeds that tested the same cases, in whatever order, as one evaluator; nothing for a constant
    prediction, which the board tells."""
    ready = _prepared(scores)
    if not ready:
        return None
    return over_seeds([r.evaluator for r in ready]), ready[0].partition, ready[0].scores


def _prepared(scores: Mapping[int, Scores]) -> list[Prepared]:
    """A seed each, over one order of the cases; none for a constant prediction."""
    try:
        return [prepare(s, ScoreOptions()) for s in _same_cases(scores).values()]
    except UserError:
        return []


def _same_cases(scores: Mapping[int, Scores]) -> dict[int, Scores]:
    """In the order of the first seed's cases: folds put them in another order with every seed. A seed whose
    test part holds other cases (a random split at home) cannot be averaged over patients, and is left out."""
    order = ids_of(scores[min(scores)])
    return {
        seed: in_order(scores[seed], order)
        for seed in sorted(scores)
        if sorted(ids_of(scores[seed])) == sorted(order)
    }


def home_and_elsewhere(
    results: RecipeResults, task: str, *, margin: float | None, resamples: int
) -> pd.DataFrame:
    """A row a recipe and transfer: the value elsewhere, the value at home, their difference with its 90 %
    interval, the word where a margin was declared, and what this many patients could have seen."""
    metric = MAIN[task]
    where = kinds_of(results)
    held: dict[tuple[str, str], dict[int, Scores]] = {}
    for (of, recipe, scenario, seed), scores in results.scores.items():
        if of == task:
            held.setdefault((recipe, scenario), {})[seed] = scores
    rows: list[dict[str, Any]] = []
    coins = coins_of(results.settings)
    for recipe in dict.fromkeys(r for r, _ in held):
        home = _homes({s: v for (r, s), v in held.items() if r == recipe}, where)
        for (of, scenario), by_seed in held.items():
            kind = where.get(scenario, {}).get("kind", "")
            if of != recipe or kind not in AWAY:
                continue
            source, target = where[scenario]["source"], where[scenario]["target"]
            row = {"task": task, "recipe": recipe, "scenario": scenario, "kind": kind, "source": source}
            row |= {"target": target, "metric": metric}
            found = _transfer(by_seed, home, row, margin=margin, key=results.cohort.hash, resamples=resamples)
            rows.append(row | (without_word(found, margin) if recipe in coins else found))
    return pd.DataFrame(rows)


def coins_of(settings: Mapping[str, Any]) -> frozenset[str]:
    """The study's names of recipes that predict by chance: equal to itself everywhere is no finding."""
    given = settings.get("recipes")
    sections = dict(given) if isinstance(given, Mapping) else {}
    named = {
        str(name)
        for name, made in sections.items()
        if isinstance(made, Mapping) and (made.get("recipe") or name) == USUAL_BASELINE["response"]
    }
    return frozenset(named if sections else {USUAL_BASELINE["response"]})


def without_word(row: Mapping[str, Any], margin: float | None) -> dict[str, Any]:
    return {**row, "word": _word(None, margin), "reason": str(row.get("reason") or "") or COIN}


def too_few(patients: int, classes: tuple[int, int] | None = None) -> str:
    """Why these patients give no number of their own; '' where they do."""
    if patients < FEWEST:
        return f"fewer than {FEWEST} patients"
    if classes is not None and min(classes) < FEWEST_OF_A_CLASS:
        return f"fewer than {FEWEST_OF_A_CLASS} patients with or without pCR"
    return ""


def could_be_seen(drop: Any, level: Any, metric: str) -> bool:
    """Whether a fall of `drop` from `level` can be at all: a larger one than to the floor is none."""
    known, start = _number(drop), _number(level)
    return math.isfinite(known) and (not math.isfinite(start) or known <= start - FLOOR.get(metric, 0.0))


def _homes(
    by_scenario: Mapping[str, dict[int, Scores]], where: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[int, Scores]]:
    """The scores at home of each dataset: its internal test part, or its folds together."""
    out: dict[str, dict[int, Scores]] = {}
    for kind in HOME:
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
    home: Mapping[str, dict[int, Scores]],
    row: Mapping[str, Any],
    *,
    margin: float | None,
    key: str,
    resamples: int,
) -> dict[str, Any]:
    metric = str(row["metric"])
    here = _evaluated(scores)
    if here is None:
        return {
            "elsewhere": _NAN,
            "home": _NAN,
            "reason": "a constant prediction",
            "word": _word(None, margin),
        }
    evaluator, partition, first = here
    rules = first.protocol.interval
    made = estimate_all(
        evaluator,
        partition,
        rules=rules,
        resampling=Resampling(key=key, seed=SEED, resamples=resamples),
        metrics=[metric],
    )[metric]
    out: dict[str, Any] = {
        "patients": partition.n_clusters,
        "seeds": len(_same_cases(scores)),
        "elsewhere": _number(made.value),
        "elsewhere_lo": _number(made.lo),
        "elsewhere_hi": _number(made.hi),
    }
    paired = row["kind"] == "leave-one-dataset-out"
    at = str(row["target"] if paired else row["source"])
    if at not in home:
        return out | {"home": _NAN, "reason": f"no scenario at home in {at}", "word": _word(None, margin)}
    out["home_seeds"] = len(_same_cases(home[at]))
    few = too_few(*_compared(scores, home[at], paired=paired))
    if few:
        return out | {"home": _NAN, "reason": f"{few}: not compared", "word": _word(None, margin)}
    compare = _same_patients if paired else _other_patients
    difference = compare(scores, home[at], metric, key=key, resamples=resamples)
    if difference is None:
        return out | {"home": _NAN, "reason": "no interval", "word": _word(None, margin)}
    out |= {"compared": "same patients" if paired else "other patients"} | _judged(difference, margin)
    sides = [_answered(side) for side in (scores, home[at])]
    lost = sum(_size(side) - _size(kept) for side, kept in zip((scores, home[at]), sides, strict=True))
    if not lost:
        return out
    again = (
        compare(sides[0], sides[1], metric, key=key, resamples=resamples) if all(map(_size, sides)) else None
    )
    return out | _answered_only(again, lost, margin)


def _compared(
    away: Mapping[int, Scores], home: Mapping[int, Scores], *, paired: bool
) -> tuple[int, tuple[int, int] | None]:
    """Patients, and those of each outcome, of the smaller side or whom both sides tested: a bootstrap of a
    handful is too sure."""
    sides = [side[min(side)] for side in (away, home)]
    if paired:
        both = set(ids_of(sides[0])) & set(ids_of(sides[1]))
        sides = [_only(sides[0], both)]
    counted = [_counted(scores) for scores in sides]
    classes = [split for _, split in counted if split is not None]
    smaller = (min(c[0] for c in classes), min(c[1] for c in classes)) if classes else None
    return min(patients for patients, _ in counted), smaller


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
        "home": d.reference,
        "elsewhere_compared": d.here,
        "difference": d.difference,
        "lo90": d.lo,
        "hi90": d.hi,
        "method": d.method,
        "smallest_drop": _number(power.smallest_detectable_drop),
        "smallest_margin": _number(power.smallest_provable_margin),
        "word": _word(d, margin),
        "reason": d.undefined_reason or "",
    }


def _word(d: Difference | None, margin: float | None) -> str:
    if margin is None:
        return ""
    if d is None:
        return str(Verdict.NOT_ASSESSED)
    return str(judge(d.lo, d.hi, margin, higher_is_better=d.higher_is_better, reason=d.undefined_reason).word)


def _size(scores: Mapping[int, Scores]) -> int:
    return len(scores[min(scores)].cases)


def _answered(scores: Mapping[int, Scores]) -> dict[int, Scores]:
    """The cases that every seed has a usable score for."""
    unanswered = set().union(
        *(s.cases.loc[~answered_cases(s), "case_id"].astype(str) for s in scores.values())
    )
    if not unanswered:
        return dict(scores)
    return {
        seed: replace(
            s, cases=s.cases[~s.cases["case_id"].astype(str).isin(unanswered)].reset_index(drop=True)
        )
        for seed, s in scores.items()
    }


def _answered_only(again: Difference | None, lost: int, margin: float | None) -> dict[str, Any]:
    """The same comparison without the cases that have no usable score, beside the one with them (ST-14)."""
    return {
        "without_score": lost,
        "difference_answered": _NAN if again is None else again.difference,
        "lo90_answered": _NAN if again is None else again.lo,
        "hi90_answered": _NAN if again is None else again.hi,
        "word_answered": _word(again, margin),
    }


def _other_patients(
    away: Mapping[int, Scores], home: Mapping[int, Scores], metric: str, *, key: str, resamples: int
) -> Difference | None:
    """Two sets of cases; patients seen in both are compared with themselves."""
    here, there = _prepared(away), _prepared(home)
    if not here or not there:
        return None
    return difference_of_sides(
        here[0].partition,
        lambda numbered: over_seeds([r.evaluator_over(numbered) for r in here]),
        there[0].partition,
        lambda numbered: over_seeds([r.evaluator_over(numbered) for r in there]),
        metric,
        alpha=ALPHA,
        resampling=Resampling(key=key, seed=SEED, resamples=resamples),
    )


def _same_patients(
    away: Mapping[int, Scores], home: Mapping[int, Scores], metric: str, *, key: str, resamples: int
) -> Difference | None:
    """Both models on the cases that both were tested on."""
    both = set(away[min(away)].cases["case_id"].astype(str)) & set(
        home[min(home)].cases["case_id"].astype(str)
    )
    cut = [{seed: _only(s, both) for seed, s in side.items()} for side in (away, home)]
    here, there = (_evaluated(side) if both else None for side in cut)
    if here is None or there is None:
        return None
    made = compare_pair(
        here[0], there[0], here[1], rules=here[2].protocol.interval, resampling=Resampling(key=key, seed=SEED, resamples=resamples),
        level=1 - 2 * ALPHA, metrics=[metric], permutations=0,
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
        reference_source="the recipe trained there, same patients",
        higher_is_better=made.spec.higher_is_better,
        undefined_reason=made.undefined_reason,
    )


def _only(scores: Scores, ids: set[str]) -> Scores:
    kept = scores.cases[scores.cases["case_id"].astype(str).isin(ids)]
    return replace(scores, cases=kept.sort_values("case_id").reset_index(drop=True))


def _number(value: float | None) -> float:
    return _NAN if value is None else float(value)


def drop_over_datasets(
    home: pd.DataFrame, *, margin: float | None, coins: frozenset[str] = frozenset()
) -> pd.DataFrame:
    """A row a recipe and kind: the mean change over datasets with its t interval, and the word they allow.

    Transfers are averaged by their source first; a dataset left out is one observation.
    """
    rows: list[dict[str, Any]] = []
    if home.empty or "difference" not in home.columns:
        return pd.DataFrame()
    for (task, recipe, kind, metric), part in home.groupby(["task", "recipe", "kind", "metric"], sort=False):
        side = "source" if kind == "external" else "target"
        held = (
            part.dropna(subset=["difference"])
            .groupby(side)[["difference", "elsewhere_compared", "home"]]
            .mean()
        )
        if held.empty:
            continue
        wide = scenario_summary(held["difference"].to_numpy(), bounds=CHANGE)
        narrow = scenario_summary(held["difference"].to_numpy(), bounds=CHANGE, level=1 - 2 * ALPHA)
        row: dict[str, Any] = {"task": task, "recipe": recipe, "kind": kind, "metric": metric}
        row |= {"datasets": len(held), "comparisons": int(part["difference"].notna().sum())}
        row |= {"home": float(held["home"].mean()), "elsewhere": float(held["elsewhere_compared"].mean())}
        row |= {"difference": wide.value, "lo": _number(wide.lo), "hi": _number(wide.hi)}
        row |= {"lo90": _number(narrow.lo), "hi90": _number(narrow.hi), "margin": _number(margin)}
        row |= {"word": "", "reason": ""}
        if recipe in coins:
            row["reason"] = COIN
        elif len(held) < SOURCES_NEEDED:
            row["reason"] = few_sources(len(held))
        if margin is not None:
            word = Verdict.NOT_ASSESSED if row["reason"] else judge(row["lo90"], row["hi90"], margin).word
            row["word"] = str(word)
        rows.append(row)
    return pd.DataFrame(rows)


def centres(board: Board, *, margin: float | None, coins: frozenset[str] = frozenset()) -> pd.DataFrame:
    """Where does it drop? Each dataset and site against all the others of the board, with its 90 % interval."""
    metric = MAIN[board.task]
    rows: list[dict[str, Any]] = []
    for variable, coded in codes_of(board, CENTRES).items():
        if sum(n > 0 for n in coded.sizes().values()) < 2:
            continue
        for entry in board.entries:
            for g, name in enumerate(coded.names):
                here = coded.codes == g
                patients = int(np.unique(board.partition.cluster_of_case[here]).size)
                row: dict[str, Any] = {"task": board.task, "board": board.name, "recipe": entry.recipe}
                row |= {"by": variable, "centre": name, "metric": metric, "patients": patients}
                if patients < FEWEST:
                    row |= {"patients": f"<{FEWEST}", "word": _word(None, margin)}
                    rows.append(row | {"reason": f"fewer than {FEWEST} patients: not compared"})
                    continue
                others = (coded.codes >= 0) & ~here
                answered = np.logical_and.reduce([answered_cases(r.scores) for r in entry.ready])
                made = _between(board, entry, here, others)
                told = _judged(made, margin)
                lost = int(((here | others) & ~answered).sum())
                if lost:
                    both = (here & answered).any() and (others & answered).any()
                    again = _between(board, entry, here & answered, others & answered) if both else None
                    told |= _answered_only(again, lost, margin)
                told["value"], told["others"] = told.pop("elsewhere_compared"), told.pop("home")
                told = without_word(told, margin) if entry.recipe in coins else told
                rows.append(row | told)
    return pd.DataFrame(rows)


def _between(board: Board, entry: Entry, here: Any, others: Any) -> Difference:
    return difference_subsets(
        entry.evaluator, board.partition, here, others, MAIN[board.task], alpha=ALPHA, resampling=Resampling(key=board.key, seed=SEED, resamples=board.resamples),

    )  # fmt: skip


def could_see(results: RecipeResults, boards: list[Board]) -> pd.DataFrame:
    """Before any result: the smallest effect that these patients can show (ST-07), dataset by dataset.

    For pCR the AUC above 0.5 and the balanced accuracy above 0.5 that would be found with 80 % power, from
    the numbers of patients with and without it alone. For Dice the drop against all the others, which needs
    the spread between cases: taken from the best recipe.
    """
    rows: list[dict[str, Any]] = []
    for board in boards:
        names = {"all": np.ones(len(board.cases), dtype=bool)}
        for coded in codes_of(board, ("dataset",)).values():
            if len(coded.names) > 1:
                names |= {n: coded.codes == g for g, n in enumerate(coded.names)}
        for name, mask in names.items():
            row: dict[str, Any] = {"task": board.task, "board": board.name, "dataset": name}
            row["patients"] = int(np.unique(board.partition.cluster_of_case[mask]).size)
            rows.append(
                row | (_for_response(board, mask) if board.task == "response" else _for_dice(board, mask))
            )
    return pd.DataFrame(rows)


def _for_response(board: Board, mask: Any) -> dict[str, Any]:
    truth = board.truth[mask] > 0 if board.truth is not None else np.zeros(0, dtype=bool)
    p, n = int(truth.sum()), int((~truth).sum())
    if not p or not n:
        return {"positives": suppress(p), "smallest_auroc": _NAN, "smallest_balanced_accuracy": _NAN}
    se_auc = math.sqrt(auroc_variance(0.5, p, n))
    se_ba = 0.5 * math.sqrt(0.25 / p + 0.25 / n)
    return {
        "positives": suppress(p),
        "smallest_auroc": min(1.0, 0.5 + smallest_detectable_drop(se_auc, alpha=ALPHA)),
        "smallest_balanced_accuracy": min(1.0, 0.5 + smallest_detectable_drop(se_ba, alpha=ALPHA)),
    }


def _for_dice(board: Board, mask: Any) -> dict[str, Any]:
    best = board.entries[int(np.nanargmax(board.values("dice")))]
    dice = best.mean("dice")
    here, rest = dice[mask & np.isfinite(dice)], dice[~mask & np.isfinite(dice)]
    if here.size < 2 or (rest.size < 2 and not mask.all()):
        return {"sd_dice": _NAN, "smallest_dice_drop": _NAN}
    variance = here.var(ddof=1) / here.size + (rest.var(ddof=1) / rest.size if rest.size > 1 else 0.0)
    return {
        "sd_dice": float(here.std(ddof=1)),
        "smallest_dice_drop": smallest_detectable_drop(math.sqrt(variance), alpha=ALPHA),
    }
