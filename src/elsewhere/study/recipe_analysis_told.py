"""What each recipe was told of the cases that it predicted, and what it says of itself (MRI-02, MRI-14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere.errors import UserError
from elsewhere.recipes.base import given_words, recipe_of

if TYPE_CHECKING:
    from elsewhere.study.recipe_results import RecipeResults

MOST_NOTES = 4


def told_table(results: RecipeResults) -> pd.DataFrame:
    """A row a recipe of the study. `beyond`: what it sees of a tested case beside its volumes, which the
    challenge's test withholds; '' for none, or where the recipe is not installed here."""
    given = results.settings.get("recipes")
    given = given if isinstance(given, Mapping) else {}
    rows = []
    for name in dict.fromkeys(map(str, results.runs["recipe"])):
        section = given.get(name)
        spelt = str(section.get("recipe") or name) if isinstance(section, Mapping) else name
        try:
            recipe = recipe_of(spelt)
        except UserError:
            recipe = None
        settings = section.get("settings") if isinstance(section, Mapping) else None
        values = settings if isinstance(settings, Mapping) else {}
        beyond = given_words(recipe, values) if recipe is not None else ()
        rows.append(
            {
                "recipe": name,
                "beyond": ", ".join(beyond),
                "follows": recipe.follows if recipe is not None else "",
                "notes": " ".join(_notes(results, name)),
            }
        )
    return pd.DataFrame(rows)


def _notes(results: RecipeResults, name: str) -> list[str]:
    """Of all its trainings, each once; the first few."""
    units, runs = results.units, results.runs
    if "notes" not in units.columns or "unit" not in runs.columns:
        return []
    own = units[units["unit"].isin(set(runs.loc[runs["recipe"] == name, "unit"]))]
    said: dict[str, Any] = {}
    for notes in own["notes"]:
        said |= dict.fromkeys(_ended(str(note)) for note in notes) if isinstance(notes, list | tuple) else {}
    shown = list(said)[:MOST_NOTES]
    return [*shown, f"And {len(said) - MOST_NOTES} more: trainings.csv."] if len(said) > MOST_NOTES else shown


def _ended(note: str) -> str:
    text = note.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
