"""Which methods are compared with each other: a board is a task and the cases that all its methods answered.

Where the scenarios of a kind test no case twice (one dataset left out, folds) their cases are pooled into one
board; else every scenario is a board of its own. All methods of a board share its patients and so its
resamples (ST-09). A method that cannot be in a board is listed with its reason, never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.errors import UserError
from elsewhere.protocols import Protocol, protocols
from elsewhere.scoring.prepared import Prepared, prepare, primary_metric, truth_of
from elsewhere.scoring.task import ScoreOptions, Scores, StudyMetrics, tasks
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.leaderboard import performance_metric
from elsewhere.statistics.seeds import over_seeds
from elsewhere.study.file import Study
from elsewhere.study.methods import PICTURE_CLASSIFIER, Method
from elsewhere.study.results import Results

FloatArray = npt.NDArray[np.float64]
SEED = 42
CHANCE_METHOD = "random"
"""The recipe that predicts by chance."""
BOARD_LABELS = {
    "leave-one-dataset-out": "one dataset left out, all others train",
    "folds": "folds within each dataset",
    "internal": "internal: each dataset's own test part",
    "external": "external: trained on one dataset, tested on another",
}
_ORDER = ("leave-one-dataset-out", "external", "folds", "internal")
NESTED = "nested"
"""Runs that only serve to choose a method on the sources; they are in no board and no average."""
KINDS: Mapping[str, tuple[str, ...]] = {
    "clip": ("clip", "has_clip", "clip_artefact", "clip_artifact"),
    "implant": ("implant", "has_implant", "breast_implant"),
    "low contrast": ("low_contrast", "has_low_contrast"),
    "non-mass": ("non_mass", "nonmass", "lesion_type", "tumour_type", "tumor_type", "morphology"),
}
"""Kinds of cases that a cohort may mark, by the columns that mark them; 'small' comes from the sizes."""
_CLINICAL = ("subtype", "vendor", "field_strength")
REPORTED_COLUMNS = (*_CLINICAL, *(name for names in KINDS.values() for name in names))
"""Columns of the cohort that analyses read in addition to the scores."""


class Member(NamedTuple):
    """One training of a method, or one of each source, whose answers cover every case of a board once.

    Args:
        seed: Seed of the training.
        source: Number of the source of each tested dataset, from 1; 0 where a case is tested from one source
            alone.

    Example:
        >>> Member(seed=1, source=2).label
        'seed 1, source 2'
    """

    seed: int
    source: int

    @property
    def label(self) -> str:
        """Name of the member in tables."""
        return f"seed {self.seed}" + (f", source {self.source}" if self.source else "")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One method of a board.

    Args:
        method: Name of the method.
        members: Its trainings, in order.
        ready: The scores of each member, ready for statistics, all with the same cases in one order.
        evaluator: Its metrics, averaged over the members.
    """

    method: str
    members: tuple[Member, ...]
    ready: tuple[Prepared, ...]
    evaluator: Evaluator

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds that ran, each once."""
        return tuple(sorted({member.seed for member in self.members}))

    @property
    def scores(self) -> Scores:
        """Return the scores of the first member, for what all members share: truth and attributes."""
        return self.ready[0].scores

    def stacked(self, column: str) -> FloatArray:
        """Stack a column of the scores of all members.

        Args:
            column: Name of a numeric column of the table of cases.

        Returns:
            (members, cases); the cases of all members are in one order.
        """
        return np.stack([r.scores.cases[column].to_numpy(dtype=float) for r in self.ready])

    def mean(self, column: str) -> FloatArray:
        """Average a column of the scores over the members.

        Args:
            column: Name of a numeric column of the table of cases.

        Returns:
            One value per case.
        """
        return self.stacked(column).mean(axis=0)


@dataclass(frozen=True, eq=False)
class Board:
    """The methods of a task that answered the same cases, and these cases.

    Args:
        task: Name of the task.
        name: Kind of the scenarios that are pooled, or the one scenario of the board.
        kind: Kind of its scenarios, such as `external`.
        scenarios: Names of its scenarios.
        entries: Its methods, best first.
        failed: Methods that cannot stand in the board, as `{"method", "reason"}`.
        cases: One row per case in the order of every entry's scores, with the cohort's clinical columns.
        key: Hash of the cohort, which names the stream of random numbers.
        baseline: The method that the others are compared with; None for none.
        resamples: Number of resamples of patients; 0 for none.
    """

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
        """Names of the methods, best first."""
        return [entry.method for entry in self.entries]

    @property
    def evaluators(self) -> list[Evaluator]:
        """The metrics of each method, in the order of `names`."""
        return [entry.evaluator for entry in self.entries]

    @property
    def partition(self) -> Clusters:
        """Maps the cases of the board to patients and sites."""
        return self.entries[0].ready[0].partition

    @property
    def protocol(self) -> Protocol:
        """Protocol by which the methods were scored."""
        return self.entries[0].scores.protocol

    @cached_property
    def metrics(self) -> StudyMetrics:
        """Which metrics are reported of the task."""
        return tasks.get(self.task).reported(self.protocol)

    @property
    def main(self) -> str:
        """What is compared between datasets and centres."""
        return self.metrics.main

    @property
    def label(self) -> str:
        """Name of the board for readers."""
        return BOARD_LABELS.get(self.name, self.name)

    @cached_property
    def truth(self) -> FloatArray | None:
        """Outcome of each case, above 0 for a positive one; None where the task has no classes."""
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
        """(resamples, metrics) for each entry: the one set of resamples that every number of the board
        shares.
        """
        rules = self.protocol.interval
        stream = WeightStream(
            self.partition, key=self.key, seed=SEED, resamples=self.resamples, by_site=rules.by_site
        )
        return draw(self.evaluators, stream)

    def drawn(self, metric: str) -> FloatArray:
        """Select one metric from the resamples.

        Args:
            metric: Name of the metric.

        Returns:
            (resamples, methods).
        """
        columns = [d[:, e.index(metric)] for e, d in zip(self.evaluators, self.draws, strict=True)]
        return np.stack(columns, axis=1)

    def values(self, metric: str) -> FloatArray:
        """Evaluate a metric for every method.

        Args:
            metric: Name of the metric.

        Returns:
            One value per method; NaN where it is undefined.
        """
        return np.array([e.values()[metric] for e in self.evaluators])

    @property
    def fairness_weight(self) -> float:
        """Weight of fairness in the combined score: the study's own, else the protocol's."""
        given = self.entries[0].ready[0].options.fairness_weight
        return self.protocol.fairness.fairness_weight if given is None else given

    @property
    def df(self) -> float:
        """Degrees of freedom of a standard error over the patients of the board."""
        return float(self.partition.degrees_of_freedom(by_site=self.protocol.interval.by_site))


def kinds_of(results: Results) -> dict[str, dict[str, str]]:
    """Read each scenario's kind, source and target from the runs.

    Args:
        results: Results of the study.

    Returns:
        `{"kind", "source", "target"}` by the name of the scenario; an empty text where the runs give none.
    """
    columns = ("kind", "source", "target")
    rows = results.runs.drop_duplicates("scenario")
    return {
        str(r["scenario"]): {c: str(r.get(c) or "") for c in columns} for r in rows.to_dict(orient="records")
    }


def boards_of(results: Results, task: str, *, resamples: int) -> list[Board]:
    """List the boards of a task, the leading one first.

    Args:
        results: Results of the study.
        task: Task whose methods are compared.
        resamples: Number of resamples of patients that every number of a board rests on.

    Returns:
        The boards; scenarios that only serve to choose a method have none.
    """
    where = kinds_of(results)
    of_task = {
        (key.method, key.scenario, key.seed): scores
        for key, scores in results.scores.items()
        if key.task == task and where.get(key.scenario, {}).get("kind") != NESTED
    }
    by_kind: dict[str, list[str]] = {}
    for scenario in dict.fromkeys(scenario for _, scenario, _ in of_task):
        by_kind.setdefault(where.get(scenario, {}).get("kind", ""), []).append(scenario)
    found: list[Board] = []
    for kind in sorted(by_kind, key=lambda k: (_ORDER.index(k) if k in _ORDER else 99, k)):
        names = by_kind[kind]
        for name, rounds in _groups_of_scenarios(kind, names, of_task, where):
            made = _board(results, task, name, kind, rounds, of_task, resamples=resamples)
            if made is not None:
                found.append(_best_first(made))
    return found


Rounds = tuple[tuple[str, ...], ...]
"""Scenarios in rounds: within a round no case is tested twice, and every round tests the same cases."""


def _groups_of_scenarios(
    kind: str,
    names: Sequence[str],
    of_task: Mapping[tuple[str, str, int], Scores],
    where: Mapping[str, Mapping[str, str]],
) -> list[tuple[str, Rounds]]:
    """Which scenarios of a kind make a board together. Where each dataset is tested from several sources, one
    board has all of them, a source of each dataset per round, and every scenario has a board of its own too.
    """
    if len(names) > 1 and _disjoint(of_task, names):
        return [(kind, (tuple(names),))]
    single: list[tuple[str, Rounds]] = [(name, ((name,),)) for name in names]
    by_target: dict[str, list[str]] = {}
    for name in names:
        by_target.setdefault(where[name]["target"], []).append(name)
    lengths = {len(part) for part in by_target.values()}
    if len(by_target) < 2 or len(lengths) > 1 or lengths == {1}:
        return single
    rounds = tuple(tuple(part[i] for part in by_target.values()) for i in range(lengths.pop()))
    return [(kind, rounds), *single]


def _best_first(board: Board) -> Board:
    """Sort the entries by rank, so that every table and figure lists them as the board ranks them."""
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
    """List the case ids of scores.

    Args:
        scores: Scores of one run.

    Returns:
        The ids as text, in the order of the table of cases.
    """
    return [str(i) for i in scores.cases["case_id"]]


def pooled(parts: Sequence[Scores]) -> Scores:
    """Combine the scores of several scenarios into those of one test set.

    Args:
        parts: Scores of scenarios that share no case.

    Returns:
        The scores of all cases, with their events, counts added up and each warning once.
    """
    if len(parts) == 1:
        return parts[0]
    cases = pd.concat([part.cases for part in parts], ignore_index=True)
    events = [part.events for part in parts if part.events is not None]
    counts: dict[str, int] = {}
    for part in parts:
        for name, number in part.counts.items():
            counts[name] = counts.get(name, 0) + int(number)
    warnings = tuple(dict.fromkeys(w for part in parts for w in part.warnings))
    return replace(
        parts[0],
        cases=cases,
        events=pd.concat(events, ignore_index=True) if events else None,
        counts=counts,
        warnings=warnings,
    )


def _board(
    results: Results,
    task: str,
    name: str,
    kind: str,
    rounds: Rounds,
    of_task: Mapping[tuple[str, str, int], Scores],
    *,
    resamples: int,
) -> Board | None:
    scenarios = [name for part in rounds for name in part]
    scores_of: dict[str, dict[Member, Scores]] = {}
    failed: list[dict[str, str]] = []
    for method in dict.fromkeys(method for method, scenario, _ in of_task if scenario in scenarios):
        seeds = sorted({seed for m, s, seed in of_task if m == method and s in scenarios})
        for number, names in enumerate(rounds, start=1):
            for seed in seeds:
                parts = [of_task[method, s, seed] for s in names if (method, s, seed) in of_task]
                if len(parts) == len(names):
                    member = Member(seed, number if len(rounds) > 1 else 0)
                    scores_of.setdefault(method, {})[member] = pooled(parts)
        if method not in scores_of:
            failed.append(
                {"method": method, "reason": f"not every one of {len(scenarios)} scenarios is done"}
            )
    failed += _without_scores(results, task, scenarios, {*scores_of, *(f["method"] for f in failed)})
    if not scores_of:
        return None
    first = {method: of[min(of)] for method, of in scores_of.items()}
    order = max((ids_of(s) for s in first.values()), key=len)
    entries = []
    for method, by_member in scores_of.items():
        try:
            entries.append(_entry(method, by_member, order, options_of(results.study, task)))
        except UserError as problem:
            failed.append({"method": method, "reason": problem.what})
    if not entries:
        return None
    cases = entries[0].scores.cases.reset_index(drop=True)
    baseline = baseline_of(results, task, [e.method for e in entries])
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


def _entry(
    method: str, by_member: Mapping[Member, Scores], order: Sequence[str], options: ScoreOptions
) -> Entry:
    whole = {member: s for member, s in by_member.items() if set(ids_of(s)) == set(order)}
    if not whole:
        answered = len(set(ids_of(by_member[min(by_member)])))
        raise UserError(f"it answers {answered} of the board's {len(order)} cases")
    ready = [prepare(in_order(whole[member], order), options) for member in sorted(whole)]
    return Entry(
        method=method,
        members=tuple(sorted(whole)),
        ready=tuple(ready),
        evaluator=over_seeds([r.evaluator for r in ready]),
    )


def in_order(scores: Scores, order: Sequence[str]) -> Scores:
    """Sort the cases of scores.

    Args:
        scores: Scores that hold every case of `order`.
        order: The case ids in the order that is wanted.

    Returns:
        The scores of these cases in this order.
    """
    place = {case: at for at, case in enumerate(ids_of(scores))}
    return scores.take([place[c] for c in order])


def _without_scores(
    results: Results, task: str, scenarios: Sequence[str], known: Iterable[str]
) -> list[dict[str, str]]:
    """Methods whose runs have no scores in this board."""
    runs = results.runs
    part = runs[(runs["task"] == task) & runs["scenario"].isin(list(scenarios)) & (runs["status"] != "done")]
    lost = part[~part["method"].isin(list(known))].drop_duplicates("method")
    return [
        {"method": str(r["method"]), "reason": str(r["reason"] or r["status"])}
        for r in lost.to_dict(orient="records")
    ]


def baseline_of(results: Results, task: str, names: Sequence[str]) -> str | None:
    """Find the method that the others are compared with.

    Args:
        results: Results of the study.
        task: Task of the board.
        names: Names of the board's methods.

    Returns:
        The study file's `baseline = true`; else the usual baseline of the task, where it ran; for pairs of
        models and inputs the first of the study file; None where there is none.
    """
    methods = [m for name, m in results.methods.items() if name in names]
    usual = tasks.get(task).reported(protocols.get(results.study.task(task).protocol)).baseline
    for method in methods:
        if method.baseline and (not method.tasks or task in method.tasks):
            return method.name
    for method in methods:
        if method.recipe == usual:
            return method.name
    pairs = [method.name for method in methods if method.recipe == PICTURE_CLASSIFIER]
    return pairs[0] if len(pairs) > 1 else None


def chance_methods(methods: Mapping[str, Method]) -> frozenset[str]:
    """List the methods that predict by chance: that they do equally well everywhere is no finding.

    Args:
        methods: The methods of a study by name.

    Returns:
        The names of those whose recipe is `random`.
    """
    return frozenset(name for name, method in methods.items() if method.recipe == CHANCE_METHOD)


def options_of(study: Study, task: str) -> ScoreOptions:
    """Read the options of scoring from the study file, which may weigh fairness otherwise than the protocol.

    Args:
        study: The study file.
        task: Name of the task.

    Returns:
        The options for this task.
    """
    return ScoreOptions(fairness_weight=study.task(task).fairness_weight)


def _with_clinical(cases: pd.DataFrame, cohort: pd.DataFrame) -> pd.DataFrame:
    """Columns that are reported and never scored (MRI-06) come from the cohort by case."""
    wanted = [c for c in REPORTED_COLUMNS if c in cohort.columns and c not in cases.columns]
    wanted += [c for c in ("dataset", "site") if c in cohort.columns and c not in cases.columns]
    if not wanted:
        return cases
    held = cohort.set_index(cohort["case_id"].astype(str))[wanted]
    return pd.concat([cases, held.reindex(cases["case_id"].astype(str)).reset_index(drop=True)], axis=1)
