"""`tasks`, `protocols`, `readers`, `metrics`, `recipes`: list what is installed and where it is from."""

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
    """Named things, one row each. The terminal shows some columns, and JSON has all.

    Args:
        kind: What is listed, such as 'tasks'.
        rows: The columns of each thing; `name` is one of them.
        shown: The columns that the terminal shows.
        more: The page of the documentation that says more.
    """

    kind: str
    rows: tuple[dict[str, Any], ...]
    shown: tuple[str, ...]
    more: str

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with the rows under the kind of thing that is listed.
        """
        return {self.kind: list(self.rows)}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        width = max(len(str(row["name"])) for row in self.rows)
        for row in self.rows:
            words = [_WORDS.get(key, "{}").format(row[key]) for key in self.shown if row.get(key)]
            if not str(row.get("from", "elsewhere")).startswith("elsewhere"):
                words.append(f"from {row['from']}")
            yield f"{row['name']!s:{width}}  {'; '.join(words)}"
        yield f"more of each: elsewhere {self.kind} --json, or {self.more}"


def list_tasks() -> Listing:
    """List the tasks, with what each declares.

    Returns:
        One row per task.
    """
    from elsewhere.scoring.task import tasks

    rows = tuple(
        {
            "name": name,
            "title": task.title,
            "unit": task.unit,
            "answers": task.answer_kind,
            "protocols": ", ".join(known for known, one in protocols if task.accepts(one)),
            "from": tasks.owner(name),
        }
        for name, task in tasks
    )
    return Listing(kind="tasks", rows=rows, shown=("title", "protocols"), more="docs/how-to/add-a-task.md")


def list_protocols() -> Listing:
    """List the protocols.

    Returns:
        One row per protocol.
    """
    rows = tuple(
        {
            "name": name,
            "version": p.version,
            "tasks": ", ".join(p.tasks),
            "title": p.title,
            "from": protocols.owner(name),
            "notes": " ".join(p.notes),
        }
        for name, p in protocols
    )
    return Listing(kind="protocols", rows=rows, shown=("tasks", "title"), more="docs/reference/protocols.md")


def list_readers() -> Listing:
    """List the readers of cohorts.

    Returns:
        One row per reader.
    """
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
    """List the metrics of every task.

    Returns:
        One row per task and metric, then the metrics that belong to no task.
    """
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
            "from": tasks.owner(name),
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
    """List the recipes.

    Returns:
        One row per recipe.
    """
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
    """Say what a recipe is given of a case that it predicts (MRI-02 withholds clinical columns)."""
    from elsewhere.inputs.source import sources
    from elsewhere.recipes.base import given_words

    pixels = [sources.get(recipe.reads).noun] if recipe.reads else []
    return " and ".join([*pixels, *given_words(recipe)]) or "nothing"


def _defaults(recipe: type[Recipe]) -> str:
    import dataclasses

    values = dataclasses.asdict(recipe.Settings())
    return ", ".join(f"{name} = {value!r}" for name, value in values.items())
