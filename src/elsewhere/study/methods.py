"""The methods of a study: a recipe with its settings, and the factors by which methods are compared.

`[recipes.NAME]` is a method of this name. A pair of `[models.M]` and `[inputs.I]` is the method `M-I`: the recipe
`picture-classifier`, with the factors `model = M` and `input = I`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elsewhere.recipes.base import recipe_of
from elsewhere.recipes.pictures.settings import CLASSIFICATION, CLASSIFIER
from elsewhere.study.table import parts

if TYPE_CHECKING:
    from elsewhere.study.file import Study

PICTURE_CLASSIFIER = CLASSIFIER


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
    blind = []
    for method in methods_in(study).values():
        recipe = recipe_of(method.recipe)
        if recipe.reads:
            found[recipe.reads] = None
        else:
            blind.append(recipe)
    for recipe in blind:
        if not any(set(recipe.answers) & parts.get(name).tasks for name in found):
            for name, builder in parts:
                if set(recipe.answers) & builder.tasks:
                    found[name] = None
                    break
    return list(found)
