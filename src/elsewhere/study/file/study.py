"""A whole study file, checked, and where it stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from elsewhere.errors import UserError
from elsewhere.study.file.sections import (
    AnalysesSection,
    CohortSection,
    FinderSection,
    InputSection,
    ModelSection,
    RecipeSection,
    ScenarioSection,
    Section,
    StudySection,
    TaskSection,
)
from elsewhere.untrusted import is_plain_name

DATA_VARIABLE = "ELSEWHERE_DATA"
CLASSIFICATION = "classification"
"""The task of every pair of [models] and [inputs]."""


class Study(Section):
    """A whole study file, checked. Paths are not resolved: see `source_of`."""

    study: StudySection
    cohort: tuple[CohortSection, ...] = Field(min_length=1)
    scenarios: ScenarioSection = Field(default_factory=lambda: ScenarioSection.model_validate({}))
    inputs: dict[str, InputSection] = Field(default_factory=dict)
    models: dict[str, ModelSection] = Field(default_factory=dict)
    tasks: dict[str, TaskSection] = Field(default_factory=dict)
    recipes: dict[str, RecipeSection] = Field(default_factory=dict)
    finder: FinderSection = Field(default_factory=lambda: FinderSection.model_validate({}))
    analyses: AnalysesSection = Field(default_factory=lambda: AnalysesSection.model_validate({}))

    @model_validator(mode="after")
    def _has_methods(self) -> Study:
        networks, methods = ("inputs", "models"), ("tasks", "recipes")
        given = [name for name in (*networks, *methods) if getattr(self, name)]
        wanted: tuple[str, ...] = tuple(
            n for group in (networks, methods) if set(given) & set(group) for n in group
        )
        if self.models and set(self.tasks) == {CLASSIFICATION} and not self.recipes:
            wanted = networks
        for name in wanted or networks:
            if name not in given:
                raise ValueError(f"the key '{name}' is missing or empty")
        _check_tasks(self.tasks)
        for name, section in self.recipes.items():
            for task in section.tasks:
                if task not in self.tasks:
                    raise ValueError(f"recipes.{name}.tasks: the study has no [tasks.{task}]")
        return self

    @model_validator(mode="after")
    def _names_are_known(self) -> Study:
        for name, model in self.models.items():
            for wanted in model.inputs:
                if wanted not in self.inputs:
                    raise ValueError(
                        f"models.{name}.inputs: there is no input '{wanted}'; known: {', '.join(self.inputs)}"
                    )
        for group in (self.inputs, self.models, self.recipes):
            for name in group:
                if not is_plain_name(name):
                    raise ValueError(
                        f"'{name[:120]}' cannot be a name: letters, digits, - _ and dots inside only, at most 100"
                    )
        return self

    def task(self, name: str) -> TaskSection:
        """How a task is scored and judged: its section, or the defaults.

        Args:
            name: The task.

        Returns:
            The section; without a margin of its own it has that of [analyses].
        """
        section = self.tasks.get(name) or TaskSection.model_validate({})
        margin = (
            section.verdict_margin if section.verdict_margin is not None else self.analyses.verdict_margin
        )
        protocol = section.protocol or _default_protocol(name)
        return section.model_copy(update={"verdict_margin": margin, "protocol": protocol})

    def pairs(self) -> Iterator[tuple[str, ModelSection, str, InputSection]]:
        """Go through every model with each of its inputs.

        Yields:
            The model's name, its section, the input's name, and the input's section.
        """
        for model, section in self.models.items():
            for name in section.inputs or tuple(self.inputs):
                yield model, section, name, self.inputs[name]

    def to_dict(self) -> dict[str, Any]:
        """Convert the study to data for JSON, every default written out.

        Returns:
            The sections by name.
        """
        return self.model_dump(mode="json")


def _default_protocol(name: str) -> str:
    """The protocol of a task where the study file names none."""
    from elsewhere.scoring.task import tasks

    task = tasks.get(name)
    return task.study_protocol or task.default_protocol


def _check_tasks(names: Iterable[str]) -> None:
    """Raise for a section of a task that is not registered: no method would be asked for it."""
    from elsewhere.scoring.task import tasks

    for name in names:
        if name not in tasks:
            raise ValueError(f"there is no task '{name}'; known: {', '.join(tasks.names())}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyFile:
    """A study with its location: paths in it are relative to its file.

    Args:
        study: The study, checked.
        path: The study file.
        data: The folder that {data} in the cohorts' sources stands for; None where it is not known.
    """

    study: Study
    path: Path
    data: Path | None = None

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.study.name

    def source_of(self, cohort: CohortSection) -> Path:
        """Find the folder or file of a cohort, with {data} filled in.

        Args:
            cohort: A section of the study.

        Returns:
            The path; it need not exist.

        Raises:
            UserError: The source contains {data}, and the folder of the data is not known.
        """
        text = cohort.source
        if "{data}" in text:
            if self.data is None:
                raise UserError(
                    "the study does not know where the data are",
                    where=f"{self.path}, source '{text}'",
                    fix=f'Give --data DIR, set {DATA_VARIABLE}, or write data = "DIR" under [study].',
                )
            text = text.replace("{data}", str(self.data))
        path = Path(text).expanduser()
        return path if path.is_absolute() else self.path.parent / path

    def file_of(self, text: str) -> Path:
        """Find a file that the study names.

        Args:
            text: A path as it stands in the study file: relative to that file, or absolute; `~` is filled in.

        Returns:
            The path; it need not exist.
        """
        path = Path(text).expanduser()
        return path if path.is_absolute() else self.path.parent / path
