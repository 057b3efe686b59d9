"""What each method was given of the cases that it predicted, and what it says of itself (MRI-02, MRI-14)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.registry import Tables, analysis
from elsewhere.errors import UserError
from elsewhere.inputs.pictures import Pictures
from elsewhere.inputs.source import LESION_BOX, MASK
from elsewhere.recipes.base import Recipe, given_words, recipe_of
from elsewhere.study.file import Study
from elsewhere.study.methods import Method
from elsewhere.study.results import Results

MOST_NOTES = 4


@analysis("disclosure", whole_study=True)
def disclosure(context: Context) -> Tables:
    """List what the methods were given in addition to the images.

    Args:
        context: Any task of the study.

    Returns:
        The table `disclosure`.
    """
    return {"disclosure": disclosure_table(context.results)}


def disclosure_table(results: Results) -> pd.DataFrame:
    """List what each method was given of the cases that it predicted, and what its recipe says of itself.

    Args:
        results: Results of the study.

    Returns:
        One row per method. `given` is what the method sees of a tested case in addition to its images; empty
        for nothing, or where its recipe is not installed here. `follows` and `notes` are the recipe's own
        words.
    """
    rows = []
    for name in dict.fromkeys(map(str, results.runs["method"])):
        method = results.methods.get(name)
        if method is None:
            continue
        rows.append(
            {
                "method": name,
                "recipe": method.recipe,
                "given": ", ".join(_given(results.study, method)),
                "follows": _follows(method),
                "notes": " ".join(_notes(results, name)),
            }
        )
    return pd.DataFrame(rows)


def _recipe(method: Method) -> type[Recipe] | None:
    try:
        return recipe_of(method.recipe)
    except UserError:
        return None


def _given(study: Study, method: Method) -> tuple[str, ...]:
    """What the method is given, in words; settings that this version does not take are ignored."""
    if method.factors:
        section = study.inputs[method.factors["input"]]
        annotated = section.kind == "roi" and section.boxes == "annotated"
        shown = {LESION_BOX: annotated, MASK: section.outline}
        return tuple(words for truth, words in Pictures.truths.items() if shown.get(truth))
    recipe = _recipe(method)
    return () if recipe is None else given_words(recipe, study.recipes[method.name].settings)


def _follows(method: Method) -> str:
    recipe = None if method.factors else _recipe(method)
    return recipe.follows if recipe is not None else ""


def _notes(results: Results, name: str) -> list[str]:
    """The notes of all trainings of a method, each once; the first few of many."""
    trainings, runs = results.trainings, results.runs
    if "notes" not in trainings.columns or "training" not in runs.columns:
        return []
    own = trainings[trainings["training"].isin(set(runs.loc[runs["method"] == name, "training"]))]
    found: dict[str, Any] = {}
    for notes in own["notes"]:
        found |= (
            dict.fromkeys(_sentence(str(note)) for note in notes) if isinstance(notes, list | tuple) else {}
        )
    shown = list(found)[:MOST_NOTES]
    left = len(found) - MOST_NOTES
    return [*shown, f"{left} more are in trainings.csv."] if left > 0 else shown


def _sentence(note: str) -> str:
    text = note.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
