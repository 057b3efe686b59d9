"""What a study file says once: `like` ("that one, but") and profiles, worked out before the file is checked.

Both are plain changes to the file's content, so that what is checked, run and reported is the whole study,
and the key of a training does not know how its settings were written down.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from elsewhere.errors import UserError, near_matches

OWN = ("baseline", "skip")
"""Keys that are no part of a method: what is like a baseline is not the baseline."""
MOST_LIKES = 40


def resolve_likes(content: dict[str, Any], *, where: str) -> None:
    """Give every model and recipe with `like` the keys of the other one, in place.

    The section's own keys replace those of the other; its tables, such as settings, are joined key by key.
    `skip` and `baseline` are not taken over. A recipe without `recipe` is then the other section's recipe.

    Args:
        content: The content of the study file; its sections models and recipes are replaced.
        where: The file, for messages.

    Raises:
        UserError: `like` names a section that does not exist, goes round in a circle, or leads through too
            many sections.

    Example:
        >>> content = {"models": {"a": {"epochs": 2, "batch": 8}, "b": {"like": "a", "batch": 4}}}
        >>> resolve_likes(content, where="study.toml")
        >>> content["models"]["b"]
        {'epochs': 2, 'batch': 4, 'like': 'a'}
    """
    for kind in ("models", "recipes"):
        held = content.get(kind)
        if isinstance(held, dict):
            content[kind] = {name: _resolved(held, kind, name, (), where) for name in held}


def _resolved(held: Mapping[str, Any], kind: str, name: str, seen: tuple[str, ...], where: str) -> Any:
    own = held[name]
    other = own.get("like") if isinstance(own, Mapping) else None
    if not isinstance(other, str) or not other:
        return own
    if len(seen) > MOST_LIKES:
        raise UserError(
            f"{kind}.{name}.like: more than {MOST_LIKES} that are like each other in turn", where=where
        )
    if other == name or other in seen:
        chain = " like ".join((*seen, name, other))
        raise UserError(f"{kind}.{name}.like goes round in a circle: {chain}", where=where)
    if other not in held:
        near = near_matches(other, held)
        raise UserError(
            f"{kind}.{name}.like: there is no '{other}' in [{kind}]",
            where=where,
            fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(held)}.",
        )
    base = _resolved(held, kind, other, (*seen, name), where)
    if not isinstance(base, Mapping):
        return own
    inherited = {key: value for key, value in base.items() if key not in OWN and key != "like"}
    if kind == "recipes" and "recipe" not in own:
        inherited.setdefault("recipe", other)
    return merged(inherited, own)


def apply_profile(content: dict[str, Any], name: str | None, *, where: str) -> None:
    """Lay `[profiles.NAME]` over a study, in place, and take the profiles out of it.

    Args:
        content: The content of the study file; the profile's tables are joined with the study's key by key.
        name: The profile; None: none is applied.
        where: The file, for messages.

    Raises:
        UserError: The study has no such profile (the message lists similar names), or it is not a table.

    Example:
        >>> content = {"study": {"name": "A"}, "profiles": {"quick": {"models": {"cnn": {"epochs": 1}}}}}
        >>> apply_profile(content, "quick", where="study.toml")
        >>> content
        {'study': {'name': 'A'}, 'models': {'cnn': {'epochs': 1}}}
    """
    profiles = content.pop("profiles", {})
    if name is None:
        return
    if not isinstance(profiles, Mapping) or name not in profiles:
        known = list(profiles) if isinstance(profiles, Mapping) else []
        near = near_matches(name, known)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known) or 'none'}."
        raise UserError(f"the study has no profile '{name}'", where=where, fix=hint)
    laid = profiles[name]
    if not isinstance(laid, Mapping):
        raise UserError(f"profiles.{name} is no table", where=where)
    content.update(merged(content, laid))


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Join two tables key by key.

    Args:
        base: The table to start from.
        over: The table whose values replace those of `base`; where both have a table, these are joined too.

    Returns:
        A new table; neither argument is changed.

    Example:
        >>> merged({"a": {"x": 1, "y": 2}, "b": [1, 2]}, {"a": {"y": 3}, "b": [4]})
        {'a': {'x': 1, 'y': 3}, 'b': [4]}
    """
    out = copy.deepcopy(dict(base))
    for key, value in over.items():
        held = out.get(key)
        both = isinstance(held, Mapping) and isinstance(value, Mapping)
        out[key] = merged(held, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]
    return out
