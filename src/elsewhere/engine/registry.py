"""The engines and the recipes by name.

Other packages add theirs by the entry-point groups 'elsewhere.engines' and 'elsewhere.recipes'.
"""

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
    """What an engine asks of a recipe; `elsewhere.recipes.base.Recipe` has the full interface.

    Attributes:
        answers: The answer kind of each task that it does.
        version: The version of its code; results of another version are not reused.
        reads: The source whose pixels it reads; '' where it reads none.
    """

    answers: Mapping[str, str]
    version: int
    reads: str

    def settings(self, values: Mapping[str, Any], *, where: str = "") -> Any:
        """Check plain values, and return them as the recipe's settings.

        Args:
            values: Values by the name of the setting; a setting that is missing has its default.
            where: The place that an error names, for example a section of a study file.

        Returns:
            An instance of the recipe's own class of settings.

        Raises:
            UserError: A setting is unknown, or its value is of another type.
        """

    def key_content(self, training: Training, cases: Cases) -> Mapping[str, Any]:
        """Return what the training's key depends on.

        Args:
            training: The training; it needs no key yet.
            cases: The cases of the study.

        Returns:
            Values that JSON can hold.
        """

    def fingerprints(self, spec: RecipeSpec, cases: Cases) -> npt.NDArray[np.uint64]:
        """Return what a training sees of every case, as numbers that change when it changes.

        Args:
            spec: The recipe as the study asks for it.
            cases: The cases of the study.

        Returns:
            (n,) one number per case, in the order of the cases.
        """

    def label(self, spec: RecipeSpec) -> str:
        """Return the name of what trains, for lists and reports.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            One word, for example the name of a network.
        """

    def group(self, spec: RecipeSpec) -> str:
        """Return the group: trainings of one group share what is prepared for them, and run together.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            The name of the group.
        """

    def needs_truth(self, spec: RecipeSpec) -> bool:
        """Say whether the experts' annotations must travel with its cases to another machine.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            True or False.
        """

    def published_weights(self, spec: RecipeSpec) -> tuple[str, ...]:
        """Return the networks whose published weights a training starts from.

        Args:
            spec: The recipe as the study asks for it.

        Returns:
            Names of networks; empty where it starts from random weights.
        """


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
    """Say what is wrong with the settings of a training that came from another machine.

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
        return f"its recipe '{spec.name}' does not accept its settings: {error.what}"
    return ""
