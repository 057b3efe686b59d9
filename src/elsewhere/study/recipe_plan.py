"""The plan of a study of recipes: recipes x scenarios x seeds, and the trainings they need.

One training serves every task that its recipe does, and every target that its sources are held against
(US-10). A task that cannot be asked in a scenario (one outcome among those it trains on, no mask in the test)
is skipped there with the reason; the recipe's other task goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.engine.plan import joined_trainings
from elsewhere.engine.training import RecipeSpec, Training
from elsewhere.errors import UserError
from elsewhere.protocols import protocols
from elsewhere.recipes.base import RESPONSE, SEGMENTATION, Recipe, recipe_of, sees_clinical
from elsewhere.scenarios import Scenario, Split
from elsewhere.study.file import RecipeSection, Study, StudyFile
from elsewhere.study.pictures import Report
from elsewhere.study.plan import (
    Plan,
    partitions_of,
    scenarios_in,
    scenarios_with_weights,
    unit_base_name,
)
from elsewhere.study.recipe_files import digests_of_files
from elsewhere.study.recipe_table import UNKNOWN, RecipeTable

RUN_COLUMNS = (
    "run",
    "scenario",
    "kind",
    "source",
    "target",
    "recipe",
    "task",
    "seed",
    "unit",
    "split",
    "train",
    "validation",
    "test",
    "left_out",
    "status",
    "reason",
)
Usable = Mapping[str, frozenset[str]]
"""Task -> the cases that it can learn from and be judged on."""


@dataclass(frozen=True, kw_only=True)
class RecipePlan(Plan):
    """As `Plan`; a row of `runs` is a recipe's task in a scenario, of a seed."""

    table: RecipeTable
    chosen: dict[str, Method]

    @property
    def about(self) -> dict[str, Any]:
        """With the id in another set that a table tells of a patient (`mamamia_id`)."""
        told = super().about | {"pixels": dict(self.table.voxels)}
        cases = self.table.cohort.cases
        if "mamamia_id" in cases.columns:
            by_id = dict(zip(cases["case_id"].astype("str"), cases["mamamia_id"], strict=True))
            for case, case_id in zip(self.table.frame["case"], self.table.frame["case_id"], strict=True):
                also = by_id.get(str(case_id))
                told["patients"][case][1] = also.strip() if isinstance(also, str) else ""
        return told

    def audit(self) -> dict[str, Any]:
        """With the recipes whose weights cannot be kept, where the study asks for them."""
        found = super().audit()
        bare = self._not_kept()
        if bare:
            word = f"weights of {' and '.join(bare)} cannot be kept (the recipe says keeps = False): trained without"
            return found | {"warnings": [*found["warnings"], word]}
        return found

    def _not_kept(self) -> list[str]:
        keep = scenarios_with_weights(self.study, self.scenarios)
        planned = self.planned()
        asked = set(planned.loc[planned["scenario"].isin(keep), "recipe"])
        return [name for name, method in self.chosen.items() if name in asked and not method.recipe.keeps]

    def tested(self, run: Mapping[str, Any]) -> tuple[str, ...]:
        """The cases of a run's test part that its task can be judged on."""
        made = self.partitions[str(run["scenario"]), int(run["seed"])]
        judged = self.chosen[str(run["recipe"])].judged[str(run["task"])]
        return tuple(case for case in made.test if case in judged)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A recipe of the study, looked up and its settings written out."""

    name: str
    section: RecipeSection
    recipe: type[Recipe]
    tasks: tuple[str, ...]
    settings: dict[str, Any]
    usable: Usable
    files: Mapping[str, str] = field(default_factory=dict)
    """Digests of the files that the settings name."""
    judged: Usable = field(default_factory=dict)
    """Those of `usable` that every recipe of the task can answer: a board holds the same patients for all."""

    def spec(self, tasks: tuple[str, ...]) -> RecipeSpec:
        return RecipeSpec(
            name=self.section.recipe or self.name,
            version=self.recipe.version,
            settings=self.settings,
            tasks=tasks,
            clinical=sees_clinical(self.recipe),
            files=self.files,
        )


def make_recipe_plan(file: StudyFile, table: RecipeTable, *, progress: Report | None = None) -> RecipePlan:
    """Work out every run and every training; nothing is trained, nothing is written."""
    study = file.study
    chosen = methods_of(file, table)
    scenarios = scenarios_in(study, table.datasets)
    partitions, skipped = partitions_of(table, scenarios, study.scenarios.seeds, progress)
    keep = scenarios_with_weights(study, scenarios)
    gone = {(s.scenario.name, s.seed): s.reason for s in skipped}
    rows: list[dict[str, Any]] = []
    units: dict[str, Training] = {}
    for scenario in scenarios:
        for seed in study.scenarios.seeds:
            made = partitions.get((scenario.name, seed))
            for method in chosen.values():
                if method.section.kinds and scenario.kind not in method.section.kinds:
                    continue
                if made is None:
                    reasons = dict.fromkeys(method.tasks, gone[scenario.name, seed])
                    key = ""
                else:
                    key, reasons = _unit(method, made, table, units, keep=scenario.name in keep)
                for task in method.tasks:
                    row = _row(scenario, seed, method, task)
                    if made is not None:
                        row |= _counts(method, task, made)
                    if reasons[task]:
                        rows.append(row | {"status": "skipped", "reason": reasons[task]})
                    else:
                        rows.append(row | {"unit": key})
    runs = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    runs["seed"] = runs["seed"].astype("int64")
    if runs.empty:
        raise UserError("the study has no runs", where=str(file.path), fix="Look at recipes.*.kinds.")
    return RecipePlan(
        file=file,
        table=table,
        scenarios=tuple(scenarios),
        partitions=partitions,
        skipped=tuple(skipped),
        runs=runs,
        units=units,
        weights={},
        chosen=chosen,
    )


def methods_of(file: StudyFile, table: RecipeTable) -> dict[str, Method]:
    """The study's recipes by its names for them. What a recipe does not know or do is refused here."""
    study = file.study
    _check_protocols(study, where=str(file.path))
    found: dict[str, Method] = {}
    experts = [path for source in table.sources.values() for path in source.truth_files()]
    for name, section in study.recipes.items():
        if section.skip:
            continue
        where = f"{file.path}, recipes.{name}"
        try:
            recipe = recipe_of(section.recipe or name)
        except UserError as error:
            raise UserError(error.what, where=error.where or where, fix=error.fix) from None
        does = tuple(task for task in recipe.answers if task in study.tasks)
        lacking = [task for task in section.tasks if task not in recipe.answers]
        if lacking or not does:
            raise UserError(
                f"recipe '{section.recipe or name}' does not do {' or '.join(lacking or study.tasks)}",
                where=where,
                fix=f"It does: {', '.join(sorted(recipe.answers))}.",
            )
        asked = tuple(task for task in does if not section.tasks or task in section.tasks)
        settings = recipe.settings(section.settings, where=f"{where}.settings")
        found[name] = Method(
            name=name,
            section=section,
            recipe=recipe,
            tasks=asked,
            settings=RecipeSpec(name=name, settings=dataclasses.asdict(settings)).to_dict()["settings"],
            usable=_usable(recipe, table),
            files=digests_of_files(recipe.files(settings), experts, where=f"{where}.settings"),
        )
    if not found:
        raise UserError("every recipe of the study is left out (skip = true)", where=str(file.path))
    both = {
        task: frozenset.intersection(*(m.usable[task] for m in found.values() if task in m.tasks))
        for task in study.tasks
        if any(task in m.tasks for m in found.values())
    }
    found = {
        name: replace(m, judged={task: both[task] or m.usable[task] for task in m.tasks})
        for name, m in found.items()
    }
    for task in study.tasks:
        first = [name for name, m in found.items() if m.section.baseline and task in m.tasks]
        if len(first) > 1:
            raise UserError(
                f"two recipes are the baseline of {task}: {' and '.join(first)}",
                where=str(file.path),
                fix="One recipe a task has baseline = true.",
            )
    return found


def _check_protocols(study: Study, *, where: str) -> None:
    for task, section in study.tasks.items():
        try:
            protocol = protocols.get(section.protocol)
        except UserError as error:
            raise UserError(error.what, where=f"{where}, tasks.{task}.protocol", fix=error.fix) from None
        if task not in protocol.tasks:
            fitting = [name for name, p in protocols if task in p.tasks]
            raise UserError(
                f"protocol {protocol.name} is not for {task}",
                where=f"{where}, tasks.{task}.protocol",
                fix=f"For {task}: {', '.join(fitting)}.",
            )


def _usable(recipe: type[Recipe], table: RecipeTable) -> Usable:
    frame = table.frame
    seen = frame["has_volume"] | (not recipe.reads)
    return {
        SEGMENTATION: frozenset(frame.loc[seen & frame["has_mask"], "case"]),
        RESPONSE: frozenset(frame.loc[seen & (frame["label"] != UNKNOWN), "case"]),
    }


def _unit(
    method: Method, made: Split, table: RecipeTable, units: dict[str, Training], *, keep: bool
) -> tuple[str, dict[str, str]]:
    """The training's key, and why each task cannot be asked ('' where it can)."""
    learnable = {task: _cannot_learn(method, task, made, table) for task in method.tasks}
    tasks = tuple(task for task in method.tasks if not learnable[task])
    reasons = {task: learnable[task] or _cannot_judge(method, task, made, table) for task in method.tasks}
    if all(reasons.values()):
        return "", reasons
    use = frozenset().union(*(method.usable[task] for task in tasks))
    scenario = made.scenario
    unit = Training(
        name=f"{unit_base_name(scenario)} | {method.name} | {'+'.join(tasks)} | seed {made.seed}",
        train=tuple(case for case in made.train if case in use),
        validation=tuple(case for case in made.validation if case in use),
        predict=_predicted(made, use, table),
        seed=made.seed,
        keep_weights=keep and method.recipe.keeps,
        recipe=method.spec(tasks),
    ).with_key(table.cases)
    held = units.get(unit.key)
    if held is not None:
        order = table.cases.row
        both = joined_trainings(held, unit)
        unit = replace(both, predict=tuple(sorted(both.predict, key=order.__getitem__)))
    units[unit.key] = unit
    return unit.key, reasons


def _predicted(made: Split, use: frozenset[str], table: RecipeTable) -> tuple[str, ...]:
    """The test part; a training on one dataset predicts all the others, so that a target added later costs
    nothing.
    """
    wanted = set(made.test)
    if made.scenario.kind == "external":
        sources = set(made.scenario.sources)
        held = zip(table.cases.case, table.cases.dataset, strict=True)
        wanted |= {case for case, dataset in held if dataset not in sources}
    return tuple(case for case in table.cases.case if case in wanted and case in use)


def _cannot_learn(method: Method, task: str, made: Split, table: RecipeTable) -> str:
    use = method.usable[task]
    for part in ("train", "validation"):
        cases = getattr(made, part)
        if not cases:
            return f"the {part} part is empty: too few patients to set some apart"
        if not any(case in use for case in cases):
            return f"no case of the {part} part has {_needs(method, task)}"
    if task == RESPONSE:
        return _one_class([case for case in made.train if case in use], table, "trains on")
    return ""


def _cannot_judge(method: Method, task: str, made: Split, table: RecipeTable) -> str:
    tested = [case for case in made.test if case in method.judged[task]]
    if not tested:
        return f"no case of the test part has {_needs(method, task)}"
    return _one_class(tested, table, "is tested on") if task == RESPONSE else ""


def _needs(method: Method, task: str) -> str:
    truth = "a mask" if task == SEGMENTATION else "a known outcome"
    return f"a volume and {truth}" if method.recipe.reads and task == RESPONSE else truth


def _one_class(names: list[str], table: RecipeTable, what: str) -> str:
    labels = np.unique(table.cases.label[table.cases.rows(names)])
    if labels.size > 1:
        return ""
    held = "pCR" if labels[0] == 1 else "no pCR"
    return f"one outcome ({held}) in all {len(names)} patients that it {what}"


def _row(scenario: Scenario, seed: int, method: Method, task: str) -> dict[str, Any]:
    return {
        "run": f"{scenario.name}|{method.name}|{task}|{seed}",
        "scenario": scenario.name,
        "kind": scenario.kind,
        "source": "+".join(scenario.sources),
        "target": scenario.target,
        "recipe": method.name,
        "task": task,
        "seed": seed,
        **dict.fromkeys(("unit", "split"), ""),
        **dict.fromkeys(("train", "validation", "test", "left_out"), 0),
        "status": "planned",
        "reason": "",
    }


def _counts(method: Method, task: str, made: Split) -> dict[str, Any]:
    use = method.usable[task]
    counts = {part: sum(c in use for c in getattr(made, part)) for part in ("train", "validation")}
    counts["test"] = sum(c in method.judged[task] for c in made.test)
    whole = len(made.train) + len(made.validation) + len(made.test)
    return counts | {"left_out": whole - sum(counts.values()), "split": made.hash}
