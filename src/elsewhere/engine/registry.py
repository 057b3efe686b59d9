"""The engines and the recipes by name. Other packages bring theirs by the entry point groups 'elsewhere.engines'
and 'elsewhere.recipes'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

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
    reads: str

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
