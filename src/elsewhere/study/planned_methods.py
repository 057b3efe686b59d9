"""The methods of a study looked up: their recipes, what is asked of each, and which cases each can use.

A mistake in a method is found here, before anything is trained.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.engine.training import RecipeSpec, Training
from elsewhere.errors import UserError
from elsewhere.predictions.answers import answer_kinds
from elsewhere.protocols import protocols
from elsewhere.recipes.base import Recipe, recipe_of, sees_clinical
from elsewhere.recipes.pictures.settings import (
    CLASSIFICATION,
    NEEDS_BOXES,
    classifier_spec,
    finder_training,
)
from elsewhere.scoring.task import tasks
from elsewhere.study.file import InputSection, ModelSection, Study, StudyFile
from elsewhere.study.methods import Method, asked_tasks, kind_of, methods_in, tasks_of_source
from elsewhere.study.settings_files import digests_of_files
from elsewhere.study.table import StudyTable
from elsewhere.training.pictures.settings import ClassifierSettings

Usable = Mapping[str, frozenset[str]]
"""Task -> the cases that it can learn from and be judged on."""


@dataclass(frozen=True, kw_only=True)
class PlannedMethod:
    """A method of the study, looked up and its settings written out.

    Args:
        method: As the study file declares it.
        recipe: What trains it.
        part: The part of the study table that it learns from.
        tasks: What is asked of it.
        spec: What its trainings ask for; `of` narrows it to some tasks.
        kinds: The kinds of scenario that it is asked in; empty: all.
        title: In the names of its trainings; '' where the tasks of a training say more.
        usable: The cases that each task can use.
        judged: Those of `usable` that every method of the task can answer: a board holds the same patients for all.
        columns: What the rows of its runs say beside its name: model, input, training_method, margin.
        needs: By role, makes a training whose answers it uses from its own training.
        crops: Whether it cuts the annotated box out: lesions without a box are counted.
    """

    method: Method
    recipe: type[Recipe]
    part: StudyTable
    tasks: tuple[str, ...]
    spec: RecipeSpec
    kinds: tuple[str, ...] = ()
    title: str = ""
    usable: Usable = field(default_factory=dict)
    judged: Usable = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, Callable[[Training], Training]] = field(default_factory=dict)
    crops: bool = False

    @property
    def name(self) -> str:
        """The name under which its results are listed."""
        return self.method.name

    @property
    def predicts(self) -> frozenset[str]:
        """The cases that it can be asked for, whatever is known of them."""
        if "normal" in self.recipe.predicts:
            return frozenset(self.part.frame["case"])
        return frozenset().union(*self.usable.values())

    def of(self, tasks: tuple[str, ...]) -> RecipeSpec:
        """Narrow the specification of the trainings to some tasks.

        Args:
            tasks: The tasks of one training.

        Returns:
            What a training of these tasks asks for.
        """
        return replace(self.spec, tasks=tasks)

    def words(self, tasks: tuple[str, ...]) -> str:
        """Name the method in the name of a training.

        Args:
            tasks: The tasks of the training.

        Returns:
            The method's title; without one its name and the tasks.
        """
        return self.title or f"{self.name} | {'+'.join(tasks)}"


@dataclass(frozen=True, kw_only=True)
class PlannedMethods:
    """All methods of a study, looked up.

    Args:
        methods: The methods by name, in the order of the file.
        weights: The files of weights that they start from, by 'network/label'.
    """

    methods: dict[str, PlannedMethod]
    weights: dict[str, Path]


def plan_methods(file: StudyFile, table: StudyTable) -> PlannedMethods:
    """Look up every method of a study.

    Args:
        file: The study.
        table: Its table.

    Returns:
        The methods by name, in the order of the file.

    Raises:
        UserError: A recipe, a setting, a task, a protocol or a file is not known.
    """
    study = file.study
    _check_protocols(study, where=str(file.path))
    weights, settings = _network_settings(file)
    found: dict[str, PlannedMethod] = {}
    for name, method in methods_in(study).items():
        if method.factors:
            found[name] = _of_pair(study, method, table, settings[method.factors["model"]])
        else:
            found[name] = _of_section(file, method, table)
    if not found:
        raise UserError("every recipe of the study is left out (skip = true)", where=str(file.path))
    judged = {
        task: frozenset.intersection(*(m.usable[task] for m in found.values() if task in m.tasks))
        for task in dict.fromkeys(task for m in found.values() for task in m.tasks)
    }
    for task in judged:
        first = [name for name, m in found.items() if m.method.baseline and task in m.tasks]
        if len(first) > 1:
            raise UserError(
                f"two recipes are the baseline of {task}: {' and '.join(first)}",
                where=str(file.path),
                fix="One recipe a task has baseline = true.",
            )
    methods = {
        name: replace(m, judged={task: judged[task] or m.usable[task] for task in m.tasks})
        for name, m in found.items()
    }
    return PlannedMethods(methods=methods, weights=weights)


def _of_pair(study: Study, method: Method, table: StudyTable, training: ClassifierSettings) -> PlannedMethod:
    """A pair of [models.M] and [inputs.I]."""
    model, name = method.factors["model"], method.factors["input"]
    section: ModelSection = study.models[model]
    seen: InputSection = study.inputs[name]
    recipe = recipe_of(method.recipe)
    part = part_of(recipe, method.tasks, table)
    rules = study.finder

    def finder(unit: Training) -> Training:
        made = finder_training(unit, rules.network, size_px=rules.size_px, **rules.changes())
        return replace(made, name="finder | boxes", keep_weights=unit.keep_weights)

    return PlannedMethod(
        method=method,
        recipe=recipe,
        part=part,
        tasks=(CLASSIFICATION,),
        spec=classifier_spec(training, seen.spec(section.size_px)),
        kinds=section.kinds,
        title=f"{model} | {name}",
        usable=usable_cases(recipe, (CLASSIFICATION,), part),
        columns={
            "model": model,
            "input": name,
            "training_method": training.method,
            "margin": seen.margin if seen.kind == "roi" else float("nan"),
        },
        needs={NEEDS_BOXES: finder} if seen.boxes == "found" else {},
        crops=seen.kind == "roi" and seen.boxes == "annotated",
    )


def _of_section(file: StudyFile, method: Method, table: StudyTable) -> PlannedMethod:
    """A section [recipes.NAME]."""
    study, name = file.study, method.name
    section = study.recipes[name]
    where = f"{file.path}, recipes.{name}"
    try:
        recipe = recipe_of(method.recipe)
    except UserError as error:
        raise UserError(error.what, where=error.where or where, fix=error.fix) from None
    asked = asked_tasks(recipe, study, section.tasks)
    lacking = [task for task in section.tasks if task not in asked]
    if lacking or not asked:
        raise UserError(
            f"recipe '{method.recipe}' does not do {' or '.join(lacking or study.tasks)}",
            where=where,
            fix=f"It does: {', '.join(sorted(recipe.answers))}.",
        )
    settings = recipe.settings(section.settings, where=f"{where}.settings")
    experts = [path for source in table.sources.values() for path in source.truth_files()]
    part = part_of(recipe, asked, table, where=where)
    spec = RecipeSpec(
        name=method.recipe,
        version=recipe.version,
        settings=RecipeSpec(name=name, settings=dataclasses.asdict(settings)).to_dict()["settings"],
        tasks=asked,
        clinical=sees_clinical(recipe),
        files=digests_of_files(recipe.files(settings), experts, where=f"{where}.settings"),
        kinds={task: kind_of(recipe, task) for task in asked if task not in recipe.answers},
    )
    return PlannedMethod(
        method=method,
        recipe=recipe,
        part=part,
        tasks=asked,
        spec=spec,
        kinds=section.kinds,
        usable=usable_cases(recipe, asked, part),
        columns={"model": name, "input": "", "training_method": "plain", "margin": float("nan")},
    )


def part_of(
    recipe: type[Recipe], asked: tuple[str, ...], table: StudyTable, *, where: str = ""
) -> StudyTable:
    """The part of a study table that a recipe reads; of one that looks at no pixels, that with labels of its tasks.

    Args:
        recipe: The recipe.
        asked: The tasks that are asked of it.
        table: Of the study.
        where: For messages.

    Returns:
        The table, or one of its parts.

    Raises:
        UserError: It looks at no pixels, and its tasks are of cases of several sources.
    """
    for part in table.each:
        if part.source == recipe.reads:
            return part
    fitting = [part for part in table.each if set(asked) & tasks_of_source(part.source)]
    if len(fitting) > 1:
        raise UserError(
            f"its tasks are of several sources: {', '.join(asked)}",
            where=where,
            fix="Write one section of [recipes] for each, with tasks = [...].",
        )
    return fitting[0] if fitting else table.each[0]


def usable_cases(recipe: type[Recipe], asked: tuple[str, ...], part: StudyTable) -> Usable:
    """Find the cases that each task can learn from and be judged on: those with pixels, where the recipe looks at them,
    and with the truth that the task's answers are compared with.

    Args:
        recipe: The recipe.
        asked: The tasks that are asked of it.
        part: The part of the study table that it reads.

    Returns:
        The cases by task.
    """
    source = part.sources.get(recipe.reads)
    names = part.frame["case"]
    seen = names.map(lambda name: source is None or name in source).to_numpy(dtype=bool)
    return {task: frozenset(names[seen & _with_truth(recipe, task, part)]) for task in asked}


def truth_of(recipe: type[Recipe], task: str) -> str:
    """Say what the answers of a recipe to a task are compared with.

    Args:
        recipe: The recipe.
        task: The task.

    Returns:
        'label', 'mask' or 'target', as `AnswerKind.truth` says.
    """
    return answer_kinds.get(kind_of(recipe, task)).truth


def _with_truth(recipe: type[Recipe], task: str, part: StudyTable) -> npt.NDArray[np.bool_]:
    truth, frame = truth_of(recipe, task), part.frame
    if truth == "label":
        return np.asarray(part.cases.label[part.cases.rows(tuple(frame["case"]))] >= 0)
    if truth == "mask":
        held = frame["has_mask"] if "has_mask" in frame.columns else np.ones(len(frame))
        return np.asarray(held, dtype=np.bool_)
    rows = part.cohort.cases.set_index(part.cohort.cases["case_id"].astype("str"))
    column = tasks.get(task).target
    if column not in rows.columns:
        return np.zeros(len(frame), dtype=np.bool_)
    known = rows[column].notna().reindex(frame["case_id"].astype("str"), fill_value=False)
    return np.asarray(known, dtype=np.bool_)


def _check_protocols(study: Study, *, where: str) -> None:
    for task in study.tasks:
        try:
            protocol = protocols.get(study.task(task).protocol)
        except UserError as error:
            raise UserError(error.what, where=f"{where}, tasks.{task}.protocol", fix=error.fix) from None
        if not tasks.get(task).accepts(protocol):
            fitting = [name for name, other in protocols if tasks.get(task).accepts(other)]
            raise UserError(
                f"protocol {protocol.name} is not for {task}",
                where=f"{where}, tasks.{task}.protocol",
                fix=f"For {task}: {', '.join(fitting)}.",
            )


def _network_settings(file: StudyFile) -> tuple[dict[str, Path], dict[str, ClassifierSettings]]:
    """A file of weights counts by its content: the settings name its digest, the work says where it is."""
    weights: dict[str, Path] = {}
    settings: dict[str, ClassifierSettings] = {}
    for name, section in file.study.models.items():
        if section.weights in ("imagenet", "none"):
            settings[name] = section.recipe()
            continue
        path = file.file_of(section.weights)
        if not path.is_file():
            raise UserError(
                "there is no such file of weights",
                where=f"{path} (models.{name}.weights)",
                fix="weights is 'imagenet', 'none', or a file.",
            )
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        label = f"file-{digest[:16]}"
        weights[f"{section.network}/{label}"] = path.resolve()
        settings[name] = section.recipe(weights=label, digest=digest)
    return weights, settings
