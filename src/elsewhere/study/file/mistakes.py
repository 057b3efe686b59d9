"""What is wrong with a study file, said so that it can be mended: the key, its neighbours, and what it may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from elsewhere.errors import UserError, near_matches
from elsewhere.study.file.sections import (
    CohortSection,
    InputSection,
    ModelSection,
    RecipeSection,
    TaskSection,
)
from elsewhere.study.file.study import Study

_NAMED = {
    "cohort": CohortSection,
    "inputs": InputSection,
    "models": ModelSection,
    "recipes": RecipeSection,
    "tasks": TaskSection,
}


def mistake_of(problem: ValidationError, content: Mapping[str, Any], where: str) -> UserError:
    """Tell the first mistake in full, and how many more there are.

    Args:
        problem: What the check found.
        content: Of the file.
        where: The file.

    Returns:
        The error, with the key, near matches for its name, and what it may be.
    """
    errors = problem.errors(include_url=False)
    first = errors[0]
    path = [step for step in first["loc"] if not str(step).startswith(("function-", "constrained-"))]
    key = ".".join(map(str, path))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    if first["type"] == "extra_forbidden":
        known = keys_at(path[:-1])
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


def keys_at(path: Sequence[Any]) -> list[str]:
    """List the keys that a study file may have at a place.

    Args:
        path: Keys from the top.

    Returns:
        Their names; none where there is no such place.
    """
    model = _model_at(path)
    return list(model.model_fields) if model is not None else []


def _help(path: Sequence[Any]) -> str | None:
    model = _model_at(path[:-1]) if path else None
    field = model.model_fields.get(str(path[-1])) if model is not None else None
    return field.description if field is not None and field.description else None
