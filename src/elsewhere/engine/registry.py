"""The engines and the recipes by name. Other packages bring theirs by the entry point groups 'elsewhere.engines'
and 'elsewhere.recipes'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from elsewhere.errors import UserError
from elsewhere.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from elsewhere.engine.batch import TrainingBatch
    from elsewhere.engine.training import RecipeSpec, Training
    from elsewhere.inputs.cases import Cases


class AskedOfRecipe(Protocol):
    """What an engine asks of a recipe; `elsewhere.recipes.base.Recipe` is the whole of it."""

    answers: Mapping[str, str]
    version: int
    reads: str

    def settings(self, values: Mapping[str, Any], *, where: str = "") -> Any:
        """Its settings from plain values; a UserError where they are not its own."""

    def key_content(self, training: Training, cases: Cases) -> Mapping[str, Any]:
        """What the training's key depends on, as plain JSON."""

    def fingerprints(self, spec: RecipeSpec, cases: Cases) -> npt.NDArray[np.uint64]:
        """What a training sees of every case."""

    def label(self, spec: RecipeSpec) -> str:
        """What trains, in a word."""

    def group(self, spec: RecipeSpec) -> str:
        """Trainings of one group share what is prepared for them: they are trained side by side."""

    def needs_truth(self, spec: RecipeSpec) -> bool:
        """Whether the experts' annotations must travel with its cases."""

    def published_weights(self, spec: RecipeSpec) -> tuple[str, ...]:
        """The networks whose published weights a training starts from."""


engines: Registry[Callable[[TrainingBatch], None]] = Registry(
    "engine",
    group="elsewhere.engines",
    builtin_modules=("elsewhere.engine.local", "elsewhere.engine.ray_engine"),
)
recipes: Registry[AskedOfRecipe] = Registry(
    "recipe",
    group="elsewhere.recipes",
    builtin_modules=("elsewhere.recipes.builtin",),
    list_command="elsewhere recipes",
)


def wrong_settings(unit: Training) -> str:
    """Say what is wrong with the settings of a training that came from elsewhere.

    Args:
        unit: The training.

    Returns:
        A sentence; empty where nothing is wrong, or where its recipe is not installed here in its version.
    """
    spec = unit.recipe
    if spec.name not in recipes or recipes.get(spec.name).version != spec.version:
        return ""
    try:
        recipes.get(spec.name).settings(spec.settings)
    except UserError as error:
        return f"its recipe '{spec.name}' has no such settings: {error.what}"
    return ""
