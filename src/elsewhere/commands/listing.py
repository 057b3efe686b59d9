"""`protocols`, `readers`, `metrics`, `recipes`: what can be named, and who brings it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elsewhere.protocols import protocols

if TYPE_CHECKING:
    from elsewhere.recipes import Recipe


_WORDS = {"better": "{} is better", "interval": "interval {}", "sees": "sees {}"}


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Named things, a row each. The terminal shows `shown` of each, and where the rest stands; JSON has all."""

    kind: str
    rows: tuple[dict[str, Any], ...]
    shown: tuple[str, ...]
    more: str

    def to_dict(self) -> dict[str, Any]:
        return {self.kind: list(self.rows)}

    def lines(self) -> Iterator[str]:
        width = max(len(str(row["name"])) for row in self.rows)
        for row in self.rows:
            told = [_WORDS.get(key, "{}").format(row[key]) for key in self.shown if row.get(key)]
            if not str(row.get("from", "elsewhere")).startswith("elsewhere"):
                told.append(f"from {row['from']}")
            yield f"{row['name']!s:{width}}  {'; '.join(told)}"
        yield f"more of each: elsewhere {self.kind} --json, or {self.more}"


def list_protocols() -> Listing:
    rows = tuple(
        {
            "name": name,
            "version": p.version,
            "tasks": ", ".join(p.tasks),
            "title": p.title,
            "notes": " ".join(p.notes),
        }
        for name, p in protocols
    )
    return Listing(kind="protocols", rows=rows, shown=("tasks", "title"), more="docs/reference/protocols.md")


def list_readers() -> Listing:
    from elsewhere.cohort import readers

    rows = tuple(
        {
            "name": name,
            "from": readers.owner(name),
            "about": " ".join((reader.__doc__ or "").split("\n\n")[0].split()),
        }
        for name, reader in readers
    )
    return Listing(kind="readers", rows=rows, shown=("about",), more="docs/how-to/read-a-public-dataset.md")


def list_metrics() -> Listing:
    from elsewhere.scoring.metrics import metrics
    from elsewhere.scoring.task import tasks

    plain = protocols.get("plain")
    rows = [
        {
            "name": f"{name}.{spec.name}",
            "label": spec.label,
            "better": "higher" if spec.higher_is_better else "lower",
            "interval": str(spec.interval),
            "moves_with_prevalence": spec.moves_with_prevalence,
        }
        for name, task in tasks
        for spec in task.metrics(plain)
    ]
    rows += [{"name": name, "from": metrics.owner(name)} for name, _ in metrics]
    return Listing(
        kind="metrics",
        rows=tuple(rows),
        shown=("label", "better", "interval"),
        more="docs/reference/metrics.md",
    )


def list_recipes() -> Listing:
    from elsewhere.recipes.base import recipe_of, recipes

    rows = tuple(
        {
            "name": name,
            "title": recipe.title or recipe.__name__,
            "tasks": ", ".join(sorted(recipe.answers)),
            "version": recipe.version,
            "sees": _seen(recipe),
            "kept": "yes" if recipe.keeps else "no",
            "settings": _defaults(recipe),
            "from": recipes.owner(name),
            "follows": " ".join(recipe.follows.split()),
        }
        for name, recipe in ((name, recipe_of(name)) for name in recipes.names())
    )
    return Listing(
        kind="recipes", rows=rows, shown=("tasks", "title", "sees"), more="docs/reference/recipes.md"
    )


def _seen(recipe: type[Recipe]) -> str:
    """What it is given of a case that it predicts (MRI-02 withholds clinical columns)."""
    from elsewhere.inputs.source import sources
    from elsewhere.recipes.base import given_words

    pixels = [sources.get(recipe.reads).noun] if recipe.reads else []
    return " and ".join([*pixels, *given_words(recipe)]) or "nothing"


def _defaults(recipe: type[Recipe]) -> str:
    import dataclasses

    values = dataclasses.asdict(recipe.Settings())
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())
