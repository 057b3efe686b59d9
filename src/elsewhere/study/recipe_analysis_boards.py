"""Which recipes are judged beside each other: a board is a task and the cases that all its recipes answered.

Where the scenarios of a kind test no case twice (one dataset left out, folds) their cases are pooled into one
board; else every scenario is a board of its own. All recipes of a board share its patients and so its
resamples (ST-09). What cannot stand in a board is listed with its reason, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.protocols import Protocol
from elsewhere.scoring.prepared import Prepared, prepare, primary_metric, truth_of
from elsewhere.scoring.task import ScoreOptions, Scores
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.leaderboard import performance_metric
from elsewhere.statistics.seeds import over_seeds

if TYPE_CHECKING:
    from elsewhere.study.recipe_results import RecipeResults

FloatArray = npt.NDArray[np.float64]
SEED = 42
SHOWN = {
    "segmentation": ("combined", "fairness", "performance", "dice", "hausdorff_mm", "norm_hd"),
    "response": ("combined", "fairness", "balanced_accuracy", "auroc", "sensitivity", "specificity"),
}
MAIN = {"segmentation": "dice", "response": "auroc"}
"""What is compared between home and elsewhere, and between centres: not the combined score, since a range
over groups has no interval with valid coverage (ST-08)."""
USUAL_BASELINE = {"segmentation": "residual-unet", "response": "random"}
BOARD_WORDS = {
    "leave-one-dataset-out": "one dataset left out, all others train",
    "folds": "folds within each dataset",
    "internal": "at home, each dataset's own test part",
    "external": "trained on one dataset, tested on another",
}
_ORDER = ("leave-one-dataset-out", "external", "folds", "internal")
KINDS: Mapping[str, tuple[str, ...]] = {
    "clip": ("clip", "has_clip", "clip_artefact", "clip_artifact"),
    "implant": ("implant", "has_implant", "breast_implant"),
    "low contrast": ("low_contrast", "has_low_contrast"),
    "non-mass": ("non_mass", "nonmass", "lesion_type", "tumour_type", "tumor_type", "morphology"),
}
"""Kinds of cases that a cohort may mark, by the columns that mark them; 'small' comes from the sizes."""
_CLINICAL = ("subtype", "vendor", "field_strength")
REPORTED_COLUMNS = (*_CLINICAL, *(name for names in KINDS.values() for name in names))
"""Columns of the cohort that analyses read beside the scores."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One recipe of a board; `ready` has a seed each, all of the same cases."""

    recipe: str
    seeds: tuple[int, ...]
    ready: tuple[Prepared, ...]
    evaluator: Evaluator

    @property
    def scores(self) -> Scores:
        """Of the first seed: for what all seeds share, truth and attributes."""
        return self.ready[0].scores

    def stacked(self, column: str) -> FloatArray:
        """(seeds, cases) of a column of the scores; the cases of all seeds are in one order."""
        return np.stack([r.scores.cases[column].to_numpy(dtype=float) for r in self.ready])

    def mean(self, column: str) -> FloatArray:
        """(cases,): over seeds."""
        return self.stacked(column).mean(axis=0)


@dataclass(frozen=True, eq=False)
class Board:
    """`cases` are the rows of every entry's scores, in one order, with the cohort's clinical columns."""

    task: str
    name: str
    kind: str
    scenarios: tuple[str, ...]
    entries: tuple[Entry, ...]
    failed: tuple[dict[str, str], ...]
    cases: pd.DataFrame
    key: str
    baseline: str | None
    resamples: int

    @property
    def names(self) -> list[str]:
        return [entry.recipe for entry in self.entries]

    @property
    def evaluators(self) -> list[Evaluator]:
        return [entry.evaluator for entry in self.entries]

    @property
    def partition(self) -> Clusters:
        return self.entries[0].ready[0].partition

    @property
    def protocol(self) -> Protocol:
        return self.entries[0].scores.protocol

    @property
    def words(self) -> str:
        return BOARD_WORDS.get(self.name, self.name)

    @cached_property
    def truth(self) -> FloatArray | None:
        return truth_of(self.entries[0].scores)

    @cached_property
    def ranked_by(self) -> str:
        """The protocol's metric; where fairness cannot be estimated for anybody, performance alone."""
        wanted = primary_metric(self.entries[0].evaluator, self.protocol)
        if any(np.isfinite(e.evaluator.values()[wanted]) for e in self.entries):
            return wanted
        found = performance_metric(self.entries[0].evaluator.specs)
        return found.name if found else wanted

    @cached_property
    def draws(self) -> list[FloatArray]:
        """(resamples, metrics) an entry: the one set of resamples that every number of the board shares."""
        rules = self.protocol.interval
        stream = WeightStream(
            self.partition, key=self.key, seed=SEED, resamples=self.resamples, by_site=rules.by_site
        )
        return draw(self.evaluators, stream)

    def drawn(self, metric: str) -> FloatArray:
        """(resamples, models)."""
        columns = [d[:, e.index(metric)] for e, d in zip(self.evaluators, self.draws, strict=True)]
        return np.stack(columns, axis=1)

    def values(self, metric: str) -> FloatArray:
        return np.array([e.values()[metric] for e in self.evaluators])

    @property
    def fairness_weight(self) -> float:
        given = self.entries[0].ready[0].options.fairness_weight
        return self.protocol.fairness.fairness_weight if given is None else given

    @property
    def df(self) -> float:
        return float(self.partition.degrees_of_freedom(by_site=self.protocol.interval.by_site))


def kinds_of(results: RecipeResults) -> dict[str, dict[str, str]]:
    """Each scenario's kind, source and target, from the runs."""
    columns = ("kind", "source", "target")
    rows = results.runs.drop_duplicates("scenario")
    return {
        str(r["scenario"]): {c: str(r.get(c) or "") for c in columns} for r in rows.to_dict(orient="records")
    }


def boards_of(results: RecipeResults, *, resamples: int) -> list[Board]:
    """Every board, the one that leads its task first."""
    where = kinds_of(results)
    found: list[Board] = []
    for task in dict.fromkeys(task for task, _, _, _ in results.scores):
        of_task = {k[1:]: s for k, s in results.scores.items() if k[0] == task}
        scenarios = list(dict.fromkeys(scenario for _, scenario, _ in of_task))
        by_kind: dict[str, list[str]] = {}
        for scenario in scenarios:
            by_kind.setdefault(where.get(scenario, {}).get("kind", ""), []).append(scenario)
        for kind in sorted(by_kind, key=lambda k: (_ORDER.index(k) if k in _ORDER else 99, k)):
            names = by_kind[kind]
            together = [names] if len(names) > 1 and _disjoint(of_task, names) else [[n] for n in names]
            for part in together:
                name = kind if len(part) > 1 else part[0]
                made = _board(results, task, name, kind, part, of_task, resamples=resamples)
                if made is not None:
                    found.append(_best_first(made))
    return found


def _best_first(board: Board) -> Board:
    """So that every table and figure lists the recipes as the board ranks them."""
    values = np.nan_to_num(board.values(board.ranked_by), nan=-np.inf)
    order = sorted(range(len(board.entries)), key=lambda i: (-values[i], board.names[i]))
    return replace(board, entries=tuple(board.entries[i] for i in order))


def _disjoint(of_task: Mapping[tuple[str, str, int], Scores], scenarios: Sequence[str]) -> bool:
    seen: set[str] = set()
    for name in scenarios:
        seeds = sorted(seed for _, scenario, seed in of_task if scenario == name)
        own = set().union(
            *(ids_of(s) for (_, scenario, seed), s in of_task.items() if (scenario, seed) == (name, seeds[0]))
        )
        if own & seen:
            return False
        seen |= own
    return True


def ids_of(scores: Scores) -> list[str]:
    return [str(i) for i in scores.cases["case_id"]]


def pooled(parts: Sequence[Scores]) -> Scores:
    """Scores of several scenarios as those of one test set; every case once."""
    if len(parts) == 1:
        return parts[0]
    cases = pd.concat([part.cases for part in parts], ignore_index=True)
    counts: dict[str, int] = {}
    for part in parts:
        for name, number in part.counts.items():
            counts[name] = counts.get(name, 0) + int(number)
    warnings = tuple(dict.fromkeys(w for part in parts for w in part.warnings))
    return replace(parts[0], cases=cases, counts=counts, warnings=warnings)


def _board(
    results: RecipeResults,
    task: str,
    name: str,
    kind: str,
    scenarios: Sequence[str],
    of_task: Mapping[tuple[str, str, int], Scores],
    *,
    resamples: int,
) -> Board | None:
    held: dict[str, dict[int, Scores]] = {}
    failed: list[dict[str, str]] = []
    for recipe in dict.fromkeys(recipe for recipe, scenario, _ in of_task if scenario in scenarios):
        seeds = sorted({seed for r, s, seed in of_task if r == recipe and s in scenarios})
        for seed in seeds:
            parts = [of_task[recipe, s, seed] for s in scenarios if (recipe, s, seed) in of_task]
            if len(parts) == len(scenarios):
                held.setdefault(recipe, {})[seed] = pooled(parts)
        if recipe not in held:
            failed.append(
                {"recipe": recipe, "reason": f"not every one of {len(scenarios)} scenarios is done"}
            )
    failed += _without_scores(results, task, scenarios, {*held, *(f["recipe"] for f in failed)})
    if not held:
        return None
    first = {recipe: of[min(of)] for recipe, of in held.items()}
    order = max((ids_of(s) for s in first.values()), key=len)
    entries = []
    for recipe, by_seed in held.items():
        try:
            entries.append(_entry(recipe, by_seed, order, options_of(results.settings, task)))
        except UserError as problem:
            failed.append({"recipe": recipe, "reason": problem.what})
    if not entries:
        return None
    cases = entries[0].scores.cases.reset_index(drop=True)
    baseline = baseline_of(results.settings, task, [e.recipe for e in entries])
    return Board(
        task=task,
        name=name,
        kind=kind,
        scenarios=tuple(scenarios),
        entries=tuple(entries),
        failed=tuple(failed),
        cases=_with_clinical(cases, results.cohort.cases),
        key=results.cohort.hash,
        baseline=baseline,
        resamples=resamples,
    )


def _entry(recipe: str, by_seed: Mapping[int, Scores], order: Sequence[str], options: ScoreOptions) -> Entry:
    whole = {seed: s for seed, s in by_seed.items() if set(ids_of(s)) == set(order)}
    if not whole:
        got = len(set(ids_of(by_seed[min(by_seed)])))
        raise UserError(f"it answers {got} of the board's {len(order)} cases")
    ready = [prepare(in_order(whole[seed], order), options) for seed in sorted(whole)]
    return Entry(
        recipe=recipe,
        seeds=tuple(sorted(whole)),
        ready=tuple(ready),
        evaluator=over_seeds([r.evaluator for r in ready]),
    )


def in_order(scores: Scores, order: Sequence[str]) -> Scores:
    place = {case: at for at, case in enumerate(ids_of(scores))}
    return replace(scores, cases=scores.cases.iloc[[place[c] for c in order]].reset_index(drop=True))


def _without_scores(
    results: RecipeResults, task: str, scenarios: Sequence[str], known: Iterable[str]
) -> list[dict[str, str]]:
    """Recipes whose runs came to nothing in this board."""
    runs = results.runs
    part = runs[(runs["task"] == task) & runs["scenario"].isin(list(scenarios)) & (runs["status"] != "done")]
    lost = part[~part["recipe"].isin(list(known))].drop_duplicates("recipe")
    return [
        {"recipe": str(r["recipe"]), "reason": str(r["reason"] or r["status"])}
        for r in lost.to_dict(orient="records")
    ]


def baseline_of(settings: Mapping[str, Any], task: str, names: Sequence[str]) -> str | None:
    """The study file's `baseline = true`; else the challenge's own kind of baseline, where it ran."""
    given = settings.get("recipes") if isinstance(settings.get("recipes"), Mapping) else {}
    for name, made in (given or {}).items():
        if not isinstance(made, Mapping) or not made.get("baseline") or str(name) not in names:
            continue
        if not made.get("tasks") or task in made["tasks"]:
            return str(name)
    for name in names:
        made = (given or {}).get(name)
        recipe = str(made.get("recipe", name)) if isinstance(made, Mapping) else name
        if recipe == USUAL_BASELINE.get(task):
            return name
    return None


def options_of(settings: Mapping[str, Any], task: str) -> ScoreOptions:
    """The study may weigh fairness otherwise than the protocol."""
    part = settings.get("tasks")
    part = part.get(task) if isinstance(part, Mapping) else None
    weight = part.get("fairness_weight") if isinstance(part, Mapping) else None
    return ScoreOptions(fairness_weight=None if weight is None else float(weight))


def margin_of(settings: Mapping[str, Any], task: str) -> float | None:
    """The task's own margin, or the study's."""
    for holder, name in (("tasks", task), ("analyses", "")):
        part = settings.get(holder)
        part = part.get(name) if name and isinstance(part, Mapping) else part
        if isinstance(part, Mapping):
            value = part.get("verdict_margin", part.get("margin"))
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
    return None


def _with_clinical(cases: pd.DataFrame, cohort: pd.DataFrame) -> pd.DataFrame:
    """Columns that are reported and never scored (MRI-06) come from the cohort by case."""
    wanted = [c for c in REPORTED_COLUMNS if c in cohort.columns and c not in cases.columns]
    wanted += [c for c in ("dataset", "site") if c in cohort.columns and c not in cases.columns]
    if not wanted:
        return cases
    held = cohort.set_index(cohort["case_id"].astype(str))[wanted]
    return pd.concat([cases, held.reindex(cases["case_id"].astype(str)).reset_index(drop=True)], axis=1)
