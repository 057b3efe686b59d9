"""The study file: cohorts, scenarios, inputs and models or tasks and recipes, seeds and analyses, as TOML.

A study is data. Every key is known: a mistyped one is refused with its neighbours, because a study that
silently runs with a default is a wrong study.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from elsewhere.errors import UserError, near_matches
from elsewhere.study.inheritance import apply_profile, resolve_likes
from elsewhere.study.sections import (
    DEFAULT_PROTOCOLS,
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
from elsewhere.untrusted import check_values, is_plain_name, read_toml

DATA_VARIABLE = "ELSEWHERE_DATA"
_NAMED = {
    "cohort": CohortSection,
    "inputs": InputSection,
    "models": ModelSection,
    "recipes": RecipeSection,
    "tasks": TaskSection,
}

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

    @property
    def of_recipes(self) -> bool:
        """Whether published methods run on volumes, instead of networks on pictures."""
        return bool(self.recipes)

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
        protocol = section.protocol or DEFAULT_PROTOCOLS.get(name, "plain")
        return section.model_copy(update={"verdict_margin": margin, "protocol": protocol})

    def pairs(self) -> Iterator[tuple[str, ModelSection, str, InputSection]]:
        """Every model with each of its inputs."""
        for model, section in self.models.items():
            for name in section.inputs or tuple(self.inputs):
                yield model, section, name, self.inputs[name]

    def to_dict(self) -> dict[str, Any]:
        """The study as data, every default written out."""
        return self.model_dump(mode="json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyFile:
    """A study with where it stands: relative paths are relative to the file."""

    study: Study
    path: Path
    data: Path | None = None

    @property
    def name(self) -> str:
        return self.study.study.name

    def source_of(self, cohort: CohortSection) -> Path:
        """The cohort's folder or file, with {data} filled in."""
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
        """A file named in the study, relative to it."""
        path = Path(text).expanduser()
        return path if path.is_absolute() else self.path.parent / path


def shipped() -> dict[str, Path]:
    """The studies that come with the package, by name."""
    import elsewhere.studies

    folder = Path(elsewhere.studies.__file__).parent
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_study(
    source: str | Path,
    *,
    data: str | Path | None = None,
    changes: Sequence[str] = (),
    seeds: Sequence[int] = (),
    ids: str | None = None,
    only_models: Sequence[str] = (),
    only_inputs: Sequence[str] = (),
    only: Sequence[str] = (),
    profile: str | None = None,
) -> StudyFile:
    """Read a study file, or a shipped study by its name, with the command line's changes.

    `changes` are 'models.cnn.epochs=2': a path of keys and a TOML value (a bare word is a string). They come
    after the `profile`, and both before `like` is worked out: a change to a model reaches what is like it.
    """
    path = _find(source)
    content = _read(path)
    apply_profile(content, profile, where=str(path))
    for change in changes:
        _apply(content, change, where=str(path))
    if seeds:
        _section(content, "scenarios")["seeds"] = list(seeds)
    if only:
        _section(content, "scenarios")["only"] = list(only)
    if ids is not None:
        _section(content, "study")["ids"] = ids
    resolve_likes(content, where=str(path))
    if only_models:
        _keep_methods(content, only_models, where=str(path))
    if only_inputs:
        _keep(content, "inputs", only_inputs, where=str(path))
    study = parse_study(content, where=str(path))
    given = data or os.environ.get(DATA_VARIABLE)
    base = given or study.study.data or None
    folder = None
    if base is not None:
        folder = (Path.cwd() if given else path.parent) / Path(base).expanduser()
    if folder is not None and not folder.is_dir():
        raise UserError("there is no such folder of data", where=str(folder), fix="Give --data DIR.")
    return StudyFile(study=study, path=path, data=folder)


def parse_study(content: Mapping[str, Any], *, where: str) -> Study:
    """A checked study from its TOML content; every mistake with its key, and near matches for a name."""
    content = {name: part for name, part in content.items() if name != "profiles"}
    check_values(content, where=where, what="study file")
    try:
        return Study.model_validate(_tuples(content))
    except ValidationError as problem:
        raise _mistake(problem, content, where) from None


def _find(source: str | Path) -> Path:
    path = Path(source)
    known = shipped()
    name = str(source)
    if name in known and not path.is_file():
        return known[name]
    if os.path.lexists(path):
        return path
    near = near_matches(path.stem, known)
    hint = (
        f"Did you mean {' or '.join(near)}?" if near else f"Studies that ship: {', '.join(known) or 'none'}."
    )
    raise UserError("there is no such study file", where=str(path), fix=hint)


def _read(path: Path) -> dict[str, Any]:
    return read_toml(path, what="study file", fix="Give a .toml file.")


def _section(content: dict[str, Any], name: str) -> dict[str, Any]:
    held = content.setdefault(name, {})
    return held if isinstance(held, dict) else {}


def _apply(content: dict[str, Any], change: str, *, where: str) -> None:
    key, sign, text = change.partition("=")
    steps = [step.strip() for step in key.split(".")]
    if not sign or not all(steps):
        raise UserError(
            f"'{change}' is no KEY=VALUE", where="--set", fix="Write e.g. --set models.cnn.epochs=2."
        )
    held: Any = content
    for at, step in enumerate(steps):
        if isinstance(held, list):
            if not step.isdecimal() or int(step) >= len(held):
                raise UserError(
                    f"'{'.'.join(steps[:at])}' has {len(held)} entries, counted from 0, and no '{step}'",
                    where=f"--set {change}",
                )
            if at == len(steps) - 1:
                held[int(step)] = _value(text)
            else:
                held = held[int(step)]
        elif isinstance(held, dict):
            if at == len(steps) - 1:
                held[step] = _value(text)
            else:
                if step not in held and at > 0 and step not in _keys_at(steps[:at]):
                    near = near_matches(step, held) or list(held)
                    raise UserError(
                        f"there is no '{'.'.join(steps[: at + 1])}' in {where}",
                        where=f"--set {change}",
                        fix=f"Did you mean {' or '.join(near)}?" if near else None,
                    )
                held = held.setdefault(step, {})
        else:
            raise UserError(f"'{'.'.join(steps[:at])}' is a value, not a section", where=f"--set {change}")


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text.strip()}")["x"]
    except (ValueError, RecursionError):
        return text.strip()


def _keep_methods(content: dict[str, Any], names: Sequence[str], *, where: str) -> None:
    """These models and recipes alone. Of a study with both, one kind may be left out altogether."""
    groups = {kind: content[kind] for kind in ("models", "recipes") if isinstance(content.get(kind), dict)}
    known = [name for group in groups.values() for name in group]
    for name in names:
        if name not in known:
            near = near_matches(name, known)
            noun = " or ".join(kind.removesuffix("s") for kind in groups) or "model"
            raise UserError(
                f"there is no {noun} '{name}' in the study",
                where=where,
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}.",
            )
    for kind, group in groups.items():
        content[kind] = {name: group[name] for name in group if name in names}
        if not content[kind] and len(groups) > 1:
            del content[kind]
            rest = content.pop("inputs" if kind == "models" else "tasks", {})
            if kind == "recipes" and CLASSIFICATION in rest:
                content["tasks"] = {CLASSIFICATION: rest[CLASSIFICATION]}


def _keep(content: dict[str, Any], kind: str, names: Sequence[str], *, where: str) -> None:
    held = content.get(kind)
    if not isinstance(held, dict):
        return
    for name in names:
        if name not in held:
            near = near_matches(name, held)
            raise UserError(
                f"there is no {kind.removesuffix('s')} '{name}' in the study",
                where=where,
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(held)}.",
            )
    content[kind] = {name: held[name] for name in held if name in names}
    if kind == "inputs":
        for model in content.get("models", {}).values():
            if isinstance(model, dict) and model.get("inputs"):
                model["inputs"] = [name for name in model["inputs"] if name in names]


def _tuples(value: Any) -> Any:
    """TOML's lists as tuples: the models are strict and frozen. Whole numbers pass for decimal ones."""
    if isinstance(value, Mapping):
        return {key: _tuples(part) for key, part in value.items()}
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _mistake(problem: ValidationError, content: Mapping[str, Any], where: str) -> UserError:
    """The first mistake in full, and how many more there are."""
    errors = problem.errors(include_url=False)
    first = errors[0]
    path = [step for step in first["loc"] if not str(step).startswith(("function-", "constrained-"))]
    key = ".".join(map(str, path))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    if first["type"] == "extra_forbidden":
        known = _keys_at(path[:-1])
        near = near_matches(str(path[-1]), known)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Known here: {', '.join(known)}."
        return UserError(f"unknown key '{key}'{more}", where=where, fix=hint)
    if first["type"] == "missing":
        return UserError(f"the key '{key}' is missing{more}", where=where, fix=_help(path))
    message = str(first["msg"]).removeprefix("Value error, ").replace("Input should be", "it should be")
    shown = first.get("input")
    told = f": {shown!r}" if isinstance(shown, str | int | float | bool) else ""
    subject = f"'{key}'{told}: " if key else ""
    return UserError(f"{subject}{message}{more}", where=where, fix=_help(path))


def _model_at(path: Sequence[Any]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Study
    inside: Any = None
    for step in path:
        if inside is not None:
            model, inside = inside, None
            continue
        if model is None or step not in model.model_fields:
            return None
        if model is Study and step in _NAMED:
            inside, model = _NAMED[str(step)], None
        else:
            kind = model.model_fields[step].annotation
            model = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return model


def _keys_at(path: Sequence[Any]) -> list[str]:
    model = _model_at(path)
    return list(model.model_fields) if model is not None else []


def _help(path: Sequence[Any]) -> str | None:
    model = _model_at(path[:-1]) if path else None
    field = model.model_fields.get(str(path[-1])) if model is not None else None
    return field.description if field is not None and field.description else None
