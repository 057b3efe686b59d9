"""The plan of a study: methods x scenarios x seeds, and the trainings they need.

A run is one method tested on one target for one task; a training serves every task that its recipe does, and every
target that its sources are compared with (US-10). Trainings are named by the hash of what they depend on: a plan made
twice names the same trainings, and a changed study names only what changed anew. A task that cannot be asked in a
scenario (one outcome among those it trains on, no mask in the test) is skipped there with the reason; the other tasks of
the method go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.engine.plan import joined_trainings
from elsewhere.engine.training import Training, Work
from elsewhere.errors import UserError
from elsewhere.scenarios import Scenario, Skipped, Split
from elsewhere.scoring.task import tasks
from elsewhere.study.file import Study, StudyFile
from elsewhere.study.methods import RUN_KEYS
from elsewhere.study.names import check_names
from elsewhere.study.pictures import Report
from elsewhere.study.planned_methods import PlannedMethod, plan_methods, truth_of
from elsewhere.study.splits import (
    check_only,
    of_all_kinds,
    partitions_of,
    scenarios_by_part,
    scenarios_with_weights,
    scheme_of,
)
from elsewhere.study.table import StudyTable

PARTS = ("train", "validation", "test")
RUN_COLUMNS = (
    *RUN_KEYS,
    "training_method",
    "margin",
    "training",
    "boxes_training",
    "split",
    *PARTS,
    "normal",
    "left_out",
    "roi_fallbacks",
    "status",
    "reason",
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study will do.

    Args:
        file: The study.
        table: Its cases.
        methods: Its methods by name.
        scenarios: In the order of the runs.
        partitions: The split of each scenario and seed.
        skipped: The scenarios that cannot be split.
        runs: One row per run, with `RUN_COLUMNS`.
        units: The trainings by key.
        weights: Files of published weights that trainings start from.
    """

    file: StudyFile
    table: StudyTable
    methods: dict[str, PlannedMethod]
    scenarios: tuple[Scenario, ...]
    partitions: dict[tuple[str, int], Split]
    skipped: tuple[Skipped, ...]
    runs: pd.DataFrame
    units: dict[str, Training]
    weights: dict[str, Path]

    @property
    def study(self) -> Study:
        """The study file, checked."""
        return self.file.study

    @cached_property
    def work(self) -> Work:
        """What the trainings refer to."""
        return Work(
            cases=self.table.cases, sources=self.table.sources, weights=self.weights, about=self.about
        )

    @property
    def about(self) -> dict[str, Any]:
        """What kept weights tell of their training: study, cohorts, and who is who."""
        frame = self.table.frame
        return {
            "study": self.file.name,
            "cohorts": {name: about["hash"] for name, about in self.table.audit["cohorts"].items()},
            "patients": {
                case: [name, self.table.also.get(case, "")]
                for case, name in zip(frame["case"], frame["patient"], strict=True)
            },
            "pixels": dict(self.table.pixels),
        }

    def partition(self, run: str) -> Split:
        """Find the split of a run.

        Args:
            run: The run's name, as in the column `run` of `runs`.

        Returns:
            The split of its scenario and seed.
        """
        row = self.runs.loc[self.runs["run"] == run].iloc[0]
        return self.partitions[str(row["scenario"]), int(row["seed"])]

    def tested(self, run: Mapping[Any, Any]) -> tuple[str, ...]:
        """The cases of a run's test part that its task can be judged on.

        Args:
            run: Its row: scenario, seed, method and task are read.

        Returns:
            The study's names of the cases.
        """
        made = self.partitions[str(run["scenario"]), int(run["seed"])]
        judged = self.methods[str(run["method"])].judged[str(run["task"])]
        return tuple(case for case in made.test if case in judged)

    def planned(self) -> pd.DataFrame:
        """List the runs that are not skipped.

        Returns:
            Their rows of `runs`.
        """
        return self.runs[self.runs["status"] != "skipped"]

    def skipped_table(self) -> pd.DataFrame:
        """List the scenarios that cannot be split.

        Returns:
            One row per scenario and seed: scenario, kind, seed (missing where it is all of them), reason.
        """
        rows = [
            {"scenario": s.scenario.name, "kind": s.scenario.kind, "seed": s.seed, "reason": s.reason}
            for s in self.skipped
        ]
        frame = pd.DataFrame(rows, columns=["scenario", "kind", "seed", "reason"])
        frame["seed"] = frame["seed"].astype("Int64")
        return frame

    def kept(self) -> set[str]:
        """List the scenarios whose trained weights are saved.

        Returns:
            Their names.
        """
        return scenarios_with_weights(self.study, of_all_kinds(self.study, self.table))

    def audit(self) -> dict[str, Any]:
        """Join the table's audit with what the scenarios add (US-03).

        Returns:
            The audit of the table, and of each scenario the lesions without a box and the warnings, the hash of
            each split, and a warning for methods whose weights cannot be saved where the study asks for them.
        """
        fallbacks: dict[str, dict[str, int]] = {}
        warnings: dict[str, list[str]] = {}
        for (name, _), made in self.partitions.items():
            counts = fallbacks.setdefault(name, dict.fromkeys(PARTS, 0))
            for part in counts:
                counts[part] = max(counts[part], self.table.fallbacks(getattr(made, part)))
            words = warnings.setdefault(name, [])
            words += [word for word in made.warnings if word not in words]
        found = self.table.audit | {
            "roi_fallbacks": fallbacks,
            "scenario_warnings": {name: words for name, words in warnings.items() if words},
            "splits": {f"{name} seed {seed}": made.hash for (name, seed), made in self.partitions.items()},
        }
        bare = self._not_kept()
        if bare:
            word = f"weights of {' and '.join(bare)} cannot be kept (the recipe says keeps = False): trained without"
            return found | {"warnings": [*found["warnings"], word]}
        return found

    def _not_kept(self) -> list[str]:
        planned = self.planned()
        asked = set(planned.loc[planned["scenario"].isin(self.kept()), "method"])
        return [name for name, method in self.methods.items() if name in asked and not method.recipe.keeps]


def make_plan(file: StudyFile, table: StudyTable, *, progress: Report | None = None) -> Plan:
    """Work out every run and every training of a study; nothing is trained, nothing is written.

    Args:
        file: The study.
        table: Its table.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        The plan.

    Raises:
        UserError: The study names something that is not known, or has no runs.
    """
    study = file.study
    check_names(study, table.datasets, where=str(file.path))
    planned = plan_methods(file, table)
    scenarios = scenarios_by_part(study, table)
    check_only(study, table)
    partitions: dict[tuple[str, int], Split] = {}
    skipped: list[Skipped] = []
    for part in table.each:
        made, gone = partitions_of(part, scenarios[part.source], study.scenarios.seeds, progress)
        partitions |= made
        skipped += gone
    reasons = {(s.scenario.name, s.seed): s.reason for s in skipped}
    pool = _Trainings(
        table, keep=scenarios_with_weights(study, of_all_kinds(study, table)), partitions=partitions
    )
    rows: list[dict[str, Any]] = []
    for part in table.each:
        methods = [method for method in planned.methods.values() if method.part is part]
        for scenario in scenarios[part.source]:
            for seed in study.scenarios.seeds:
                for method in methods:
                    if not method.kinds or scenario.kind in method.kinds:
                        why = reasons.get((scenario.name, seed), "")
                        rows += pool.runs(method, scenario, seed, why)
    runs = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    runs["seed"] = runs["seed"].astype("int64")
    if runs.empty:
        raise UserError(
            "the study has no runs",
            where=str(file.path),
            fix="Look at models.*.kinds, recipes.*.kinds and inputs.",
        )
    return Plan(
        file=file,
        table=table,
        methods=planned.methods,
        scenarios=tuple(s for found in scenarios.values() for s in found),
        partitions=partitions,
        skipped=tuple(skipped),
        runs=runs,
        units=pool.units,
        weights=planned.weights,
    )


class _Trainings:
    """Trainings by key: the same training asked for twice is one training that predicts for both."""

    def __init__(
        self, table: StudyTable, *, keep: set[str], partitions: Mapping[tuple[str, int], Split]
    ) -> None:
        self.table, self.keep, self.partitions = table, keep, partitions
        self.units: dict[str, Training] = {}
        self._keys: dict[tuple[Any, ...], str] = {}

    def runs(self, method: PlannedMethod, scenario: Scenario, seed: int, why: str) -> list[dict[str, Any]]:
        """The runs of a method in a scenario, one per task; `why` where the scenario cannot be split."""
        made = self.partitions.get((scenario.name, seed))
        reasons = dict.fromkeys(method.tasks, why)
        keys: dict[str, str] = {}
        if made is not None:
            keys, reasons = self._training(method, made)
        rows = []
        for task in method.tasks:
            row = _row(scenario, seed, method, task)
            if made is not None:
                row |= _counts(method, task, made, self.table)
            if reasons[task]:
                rows.append(row | {"status": "skipped", "reason": reasons[task]})
            else:
                rows.append(row | keys)
        return rows

    def _training(self, method: PlannedMethod, made: Split) -> tuple[dict[str, str], dict[str, str]]:
        """The keys of the training and of its finder, and why each task cannot be asked ('' where it can)."""
        learnable = {task: _cannot_learn(method, task, made) for task in method.tasks}
        tasks = tuple(task for task in method.tasks if not learnable[task])
        reasons = {task: learnable[task] or _cannot_judge(method, task, made) for task in method.tasks}
        if all(reasons.values()):
            return {}, reasons
        use = frozenset().union(*(method.usable[task] for task in tasks))
        scenario = made.scenario
        unit = Training(
            name=f"{unit_base_name(scenario)} | {method.words(tasks)} | seed {made.seed}",
            recipe=method.of(tasks),
            train=tuple(case for case in made.train if case in use),
            validation=tuple(case for case in made.validation if case in use),
            predict=_predicted(method, made, use),
            optional=_calibrated_on(method, made, use),
            seed=made.seed,
            keep_weights=scenario.name in self.keep and method.recipe.keeps,
        )
        needs = {}
        for role, make in method.needs.items():
            needed = make(unit)
            name = f"{unit_base_name(scenario)} | {needed.name} | seed {made.seed}"
            needs[role] = self.add(replace(needed, name=name))
        key = self.add(replace(unit, needs=needs))
        return {"training": key, "boxes_training": needs.get("boxes", "")}, reasons

    def add(self, unit: Training) -> str:
        """Take a training up; its key."""
        needs = tuple(sorted(unit.needs.items()))
        known = (unit.recipe.text, unit.train, unit.validation, unit.seed, needs)
        key = self._keys.get(known)
        if key is None:
            unit = unit.with_key(self.table.cases)
            key = self._keys[known] = unit.key
        held = self.units.get(key)
        if held is None:
            self.units[key] = replace(unit, key=key)
            return key
        both = joined_trainings(held, unit)
        order = self.table.cases.row
        predict, optional = (tuple(sorted(p, key=order.__getitem__)) for p in (both.predict, both.optional))
        self.units[key] = replace(both, predict=predict, optional=optional)
        return key


def _predicted(method: PlannedMethod, made: Split, use: frozenset[str]) -> tuple[str, ...]:
    """The parts that the recipe predicts. An external training predicts all the other datasets, whichever of them the
    study tests today: a scenario added later then costs nothing.
    """
    wanted = {case for part in method.recipe.predicts for case in getattr(made, part)}
    cases = method.part.cases
    if made.scenario.kind == "external":
        sources = set(made.scenario.sources)
        held = zip(cases.case, cases.dataset, strict=True)
        wanted |= {case for case, dataset in held if dataset not in sources}
    can = method.predicts if "normal" in method.recipe.predicts else use
    return tuple(case for case in cases.case if case in wanted and case in can)


def _calibrated_on(method: PlannedMethod, made: Split, use: frozenset[str]) -> tuple[str, ...]:
    """The validation cases, where probabilities can be calibrated on them. A stored training may lack them: it was
    made before they were predicted, and its scores hold without them."""
    if not method.recipe.holds_out_validation:
        return ()
    return tuple(case for case in made.validation if case in use)


def _cannot_learn(method: PlannedMethod, task: str, made: Split) -> str:
    use = method.usable[task]
    for part in ("train", "validation"):
        cases = getattr(made, part)
        if not cases:
            return f"the {part} part is empty: too few patients to set some apart"
        if not any(case in use for case in cases):
            return f"no case of the {part} part has {_needs(method, task)}"
    if _truth(method, task) == "label":
        return _lacks_class([case for case in made.train if case in use], method.part, task, "trains on")
    return ""


def _cannot_judge(method: PlannedMethod, task: str, made: Split) -> str:
    tested = [case for case in made.test if case in method.judged[task]]
    if not tested:
        return f"no case of the test part has {_needs(method, task)}"
    return _lacks_class(tested, method.part, task, "is tested on") if _truth(method, task) == "label" else ""


def _truth(method: PlannedMethod, task: str) -> str:
    """What the answers to a task are compared with."""
    return truth_of(method.recipe, task)


def _needs(method: PlannedMethod, task: str) -> str:
    if _truth(method, task) == "mask":
        return "a mask"
    if _truth(method, task) == "target":
        return f"a value in '{tasks.get(task).target}'"
    source = method.part.sources.get(method.recipe.reads)
    return f"a {source.noun.removesuffix('s')} and a known outcome" if source else "a known outcome"


def _lacks_class(names: list[str], part: StudyTable, task: str, what: str) -> str:
    labels = part.cases.label[part.cases.rows(tuple(names))]
    asked = tasks.get(task)
    lacking = sorted(asked.needed_classes - set(np.unique(labels).tolist()))
    if not lacking:
        return ""
    classes = scheme_of(part).classes
    if asked.needed_classes == {0, 1}:
        return f"one outcome ({classes[1 - lacking[0]]}) in all {len(names)} patients that it {what}"
    return f"none of the {len(names)} {asked.units} that it {what} is {classes[lacking[0]]}"


def _row(scenario: Scenario, seed: int, method: PlannedMethod, task: str) -> dict[str, Any]:
    return {
        "run": f"{scenario.name}|{method.name}|{task}|{seed}",
        "scenario": scenario.name,
        "kind": scenario.kind,
        "source": "+".join(scenario.sources),
        "target": scenario.target,
        "task": task,
        "method": method.name,
        "seed": seed,
        **method.columns,
        **dict.fromkeys(("training", "boxes_training", "split"), ""),
        **dict.fromkeys((*PARTS, "normal", "left_out", "roi_fallbacks"), 0),
        "status": "planned",
        "reason": "",
    }


def _counts(method: PlannedMethod, task: str, made: Split, table: StudyTable) -> dict[str, Any]:
    use = method.usable[task]
    counts: dict[str, Any] = {part: sum(c in use for c in getattr(made, part)) for part in PARTS[:2]}
    counts["test"] = sum(c in method.judged[task] for c in made.test)
    whole = sum(len(getattr(made, part)) for part in PARTS)
    counts["left_out"] = whole - sum(counts.values())
    counts["normal"] = len(made.normal) if "normal" in method.recipe.predicts else 0
    cropped = sum(table.fallbacks(getattr(made, part)) for part in PARTS) if method.crops else 0
    return counts | {"roi_fallbacks": cropped, "split": made.hash}


def unit_base_name(scenario: Scenario) -> str:
    """Begin the names of a scenario's trainings: those for several targets are named by their sources.

    Args:
        scenario: The scenario.

    Returns:
        'SOURCES>*' for external and nested scenarios, where one training is tested on several targets; else
        the scenario's name.

    Example:
        >>> unit_base_name(Scenario(name="BUSI>BUS-BRA", kind="external", sources=("BUSI",), target="BUS-BRA"))
        'BUSI>*'
    """
    several = scenario.kind in ("external", "nested")
    return "+".join(scenario.sources) + ">*" if several else scenario.name
