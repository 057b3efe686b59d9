"""Study files read: from a path or by the name of one that ships, with the command line's changes."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elsewhere.errors import UserError, near_matches
from elsewhere.study.file.inheritance import apply_profile, resolve_likes
from elsewhere.study.file.mistakes import keys_at, mistake_of
from elsewhere.study.file.study import CLASSIFICATION, DATA_VARIABLE, Study, StudyFile
from elsewhere.untrusted import check_values, read_toml


def shipped() -> dict[str, Path]:
    """List the studies that come with the package.

    Returns:
        Their files by name.
    """
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

    The profile is applied first, then `changes`, then `seeds`, `only` and `ids`, and `like` is worked out after
    them: a change to a model reaches what is like it.

    Args:
        source: A study file, or the name of a study that ships with the package.
        data: The folder that {data} in the cohorts' sources stands for; None: the environment variable
            `ELSEWHERE_DATA`, else `data` of the study file.
        changes: Each a path of keys and a TOML value, such as 'models.cnn.epochs=2'; a bare word is a string.
        seeds: The seeds in place of the file's; empty: those of the file.
        ids: 'patient' or 'image', in place of the file's; None: as the file says.
        only_models: The models and recipes to keep; empty: all.
        only_inputs: The inputs to keep; empty: all.
        only: The scenarios to keep; empty: as the file says.
        profile: A profile of the study file to apply; None: none.

    Returns:
        The study, checked, with its path and the folder of its data.

    Raises:
        UserError: There is no such study, profile, model, input or folder of data; a change is not KEY=VALUE
            or names no key; or the content is wrong, as for `parse_study`.
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
    """Check the content of a study file.

    Args:
        content: The TOML content; profiles in it are left out.
        where: The file, for messages.

    Returns:
        The study, every default filled in.

    Raises:
        UserError: A key is unknown (the message lists similar ones) or missing, or a value is not allowed.
    """
    content = {name: part for name, part in content.items() if name != "profiles"}
    check_values(content, where=where, what="study file")
    try:
        return Study.model_validate(_tuples(content))
    except ValidationError as problem:
        raise mistake_of(problem, content, where) from None


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
                if step not in held and at > 0 and step not in keys_at(steps[:at]):
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
