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
    """Every model and recipe with `like` gets the other's keys; its own go before, and its own settings one
    by one.
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
    """Lay `[profiles.NAME]` over the study: its tables are those of the study itself."""
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
    """Tables are joined key by key, anything else is replaced."""
    out = copy.deepcopy(dict(base))
    for key, value in over.items():
        held = out.get(key)
        both = isinstance(held, Mapping) and isinstance(value, Mapping)
        out[key] = merged(held, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]
    return out
