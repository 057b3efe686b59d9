"""The methods of a study: a recipe with its settings, and the factors by which methods are compared.

`[recipes.NAME]` is a method of this name. A pair of `[models.M]` and `[inputs.I]` is the method `M-I`: the recipe
`picture-classifier`, with the factors `model = M` and `input = I`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elsewhere.inputs.source import sources
from elsewhere.predictions.answers import answer_kinds
from elsewhere.recipes.base import Recipe, recipe_of, recipes
from elsewhere.recipes.pictures.settings import CLASSIFICATION, CLASSIFIER
from elsewhere.scoring.task import tasks

if TYPE_CHECKING:
    from elsewhere.study.file import Study

PICTURE_CLASSIFIER = CLASSIFIER
RUN_KEYS = ("run", "scenario", "kind", "source", "target", "task", "method", "model", "input", "seed")
"""Columns of a table of runs that say which run a row is."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method of a study, as its file declares it.

    Args:
        name: The name under which its results are listed.
        recipe: The registered recipe that trains it.
        factors: What varies between methods, by name: `{"model": "cnn", "input": "roi"}`; empty for a recipe that
            stands alone.
        tasks: The tasks that the study asks of it; empty: all that the recipe answers.
        baseline: Whether the other methods are compared with it.
    """

    name: str
    recipe: str
    factors: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    baseline: bool = False


def methods_in(study: Study) -> dict[str, Method]:
    """List the methods of a study file by name, in the order of the file.

    Args:
        study: The study, checked.

    Returns:
        Every method that is not skipped, by its name.
    """
    found = {
        f"{model}-{seen}": Method(
            name=f"{model}-{seen}",
            recipe=PICTURE_CLASSIFIER,
            factors={"model": model, "input": seen},
            tasks=(CLASSIFICATION,),
        )
        for model, _, seen, _ in study.pairs()
    }
    for name, section in study.recipes.items():
        if not section.skip:
            found[name] = Method(
                name=name,
                recipe=section.recipe or name,
                tasks=section.tasks,
                baseline=section.baseline,
            )
    return found


def sources_of(study: Study) -> list[str]:
    """List the sources whose pixels the methods of a study read.

    Args:
        study: The study, checked.

    Returns:
        Names of sources in the order of the methods; of a study whose recipes look at no pixels, those whose cases are
        labelled for its tasks.
    """
    found: dict[str, None] = {}
    blind: list[str] = []
    for method in methods_in(study).values():
        recipe = recipe_of(method.recipe)
        if recipe.reads:
            found[recipe.reads] = None
        else:
            blind += asked_tasks(recipe, study, method.tasks)
    for task in blind:
        if not any(task in tasks_of_source(name) for name in found):
            name = next((name for name, _ in sources if task in tasks_of_source(name)), None)
            if name is not None:
                found[name] = None
    return list(found)


def tasks_of_source(name: str) -> frozenset[str]:
    """List the tasks that the cases of a source are labelled for: those that some recipe answers by looking at them.

    Args:
        name: The source.

    Returns:
        Names of tasks.

    Example:
        >>> sorted(tasks_of_source("mri"))
        ['response', 'segmentation']
    """
    reading = (recipe for recipe in map(recipe_of, recipes.names()) if recipe.reads == name)
    return frozenset(task for recipe in reading for task in recipe.answers)


def asked_tasks(recipe: type[Recipe], study: Study, wanted: tuple[str, ...] = ()) -> tuple[str, ...]:
    """List the tasks of a study that a method is asked.

    Args:
        recipe: What trains it.
        study: The study, checked.
        wanted: The tasks that the study file names for it; empty: it names none.

    Returns:
        Those of the study's tasks that the recipe is made for; where there are none of these, or where they are named,
        also those whose kind of answer it can give.
    """
    made_for = tuple(task for task in recipe.answers if task in study.tasks)
    able = tuple(task for task in study.tasks if task not in made_for and kind_of(recipe, task))
    if wanted:
        return tuple(task for task in (*made_for, *able) if task in wanted)
    return made_for or able


def kind_of(recipe: type[Recipe], task: str) -> str:
    """Find the kind of the answers that a recipe gives to a task.

    Args:
        recipe: The recipe.
        task: A registered task.

    Returns:
        The name of the answer kind; empty where the recipe does not do the task.

    Example:
        >>> kind_of(recipe_of("random"), "response"), kind_of(recipe_of("random"), "segmentation")
        ('probability', '')
    """
    if task in recipe.answers or task not in tasks:
        return recipe.answers.get(task, "")
    kind = tasks.get(task).answer_kind
    return kind if kind in answer_kinds and recipe.can_give(kind) else ""
