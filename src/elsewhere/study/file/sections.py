"""The sections of a study file: what each key is called, what it may be, and what it means.

The descriptions are what a mistake's message shows, so that they are written for the person who mistyped.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

_RECIPE = ClassifierSettings()
CLINICAL = (
    "age",
    "menopausal_status",
    "breast_density",
    "subtype",
    "site",
    "vendor",
    "field_strength",
)
OUTCOMES = (
    "pcr",
    "label",
    "mask",
    "mastectomy_post_nac",
    "days_to_follow_up",
    "days_to_recurrence",
    "days_to_metastasis",
    "days_to_death",
)
"""Known only after the therapy, or the answer itself: no recipe is given them of a case that it predicts."""

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Part = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Kind = Literal["internal", "external", "leave-one-dataset-out", "folds", "nested"]


class Section(BaseModel):
    """A section of a study file: no key is accepted that it does not declare, and none is changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class StudySection(Section):
    """[study]: what it is called, and the rules that hold for all of it."""

    name: str = Field(
        max_length=100,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$",
        description="Also the default output folder.",
    )
    task: Literal["classification"] = Field(
        "classification", description="What the networks of [models] predict."
    )
    description: str = Field("", description="Stands in the report.")
    publication: bool = Field(True, description="An empty patient id stops the study before any training.")
    ids: Literal["patient", "image"] = Field(
        "patient", description="image: every picture counts as a patient, to measure the effect of that leak."
    )
    data: str = Field("", description="Stands for {data} in the cohorts' sources; --data has precedence.")
    store: str = Field("", description="Folder of finished trainings; default: store in the output folder.")
    clinical: tuple[str, ...] = Field(
        CLINICAL,
        description="Columns that recipes may learn from; only recipes that declare it are given those of the cases they predict.",
    )
    keep_weights: tuple[str, ...] = Field(
        (),
        description="Scenarios whose trained weights are saved, or ['all']; `explain` and `predict` need them.",
    )

    @field_validator("clinical")
    @classmethod
    def _before_the_therapy(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        told = [name for name in value if name.strip().casefold() in OUTCOMES]
        if told:
            raise ValueError(f"'{told[0]}' tells the outcome, and recipes read these columns of the test too")
        return value


class CohortSection(Section):
    """[[cohort]]: one dataset, read from its published layout, from a cohort folder or table, or synthetic."""

    reader: str = Field("", description="`elsewhere readers` lists them; empty: a cohort folder or a table.")
    source: str = Field("", description="Folder or file; {data} is the data folder.")
    name: str = Field("", description="Another name for the dataset; default: the reader's.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the reader.")
    phantom: dict[str, Any] | None = Field(None, description="Make a synthetic hospital instead of reading.")

    @model_validator(mode="after")
    def _one_origin(self) -> CohortSection:
        if (self.phantom is None) == (not self.source):
            raise ValueError("give either source or phantom")
        if self.phantom is not None and self.reader:
            raise ValueError("a phantom needs no reader")
        return self


class ScenarioSection(Section):
    """[scenarios]: who is trained on and who is tested (US-06 to US-10)."""

    kinds: tuple[Kind, ...] = Field(
        ("internal", "external"), min_length=1, description="Which comparisons, in this order."
    )
    only: tuple[str, ...] = Field((), description="Scenarios by name, such as BUSI or BUSI>BUS-BRA.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (1, 2, 3, 4, 5), min_length=1, description="The same for every model and input."
    )
    folds: int = Field(5, ge=2, description="Of the kind 'folds'.")
    by: Literal["dataset", "site"] = Field(
        "dataset", description="What is trained on and left out: whole datasets, or the sites in them."
    )
    keep_duplicates_together: bool = Field(
        True, description="Near-duplicates stay on one side of every split."
    )

    @field_validator("seeds", "kinds", "only")
    @classmethod
    def _no_repeats(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(value)) != len(value):
            raise ValueError("an entry stands twice")
        return value


class InputSection(Section):
    """[inputs.NAME]: what the network sees (US-12, US-13). The size comes from the model."""

    kind: Literal["whole", "roi"] = Field(description="The whole picture, or the lesion crop.")
    margin: NotNegative = Field(
        InputSpec().margin, description="Of the crop: this part of the box's larger side, on each side."
    )
    outline: bool = Field(
        False, description="The third channel is the lesion's mask (not in the published study)."
    )
    boxes: Literal["annotated", "found"] = Field(
        "annotated", description="found: a model finds the boxes at prediction."
    )

    @model_validator(mode="after")
    def _only_of_a_crop(self) -> InputSection:
        plain = self.margin == InputSpec().margin and self.boxes == "annotated"
        if self.kind == "whole" and not plain:
            raise ValueError("margin and boxes have a meaning for kind = 'roi' alone")
        if self.outline and self.boxes == "found":
            raise ValueError(
                "outline = true takes the annotated mask, and boxes = 'found' is to do without it"
            )
        return self

    def spec(self, size_px: int) -> InputSpec:
        """Make the specification of what a network sees.

        For the whole picture the margin is left at its default: the key of a training must not depend on a
        value that is not used.

        Args:
            size_px: The size of the square that the network sees, in pixels a side; the model sets it.

        Returns:
            The specification.

        Example:
            >>> InputSection(kind="roi", margin=0.2).spec(224).margin
            0.2
        """
        margin = self.margin if self.kind == "roi" else InputSpec().margin
        return InputSpec(kind=self.kind, size_px=size_px, margin=margin, outline=self.outline)


class ModelSection(Section):
    """[models.NAME]: a network and how it is trained (US-14); the defaults are the study's CNN."""

    like: str = Field(
        "", description="Another model of the study, whose keys hold where this section gives none."
    )
    network: str = Field(_RECIPE.network, description="efficientnet-b0, efficientnet-lite0, vit-b-16, ...")
    weights: str = Field(_RECIPE.weights, description="imagenet, none, or a file.")
    size_px: int = Field(224, ge=16, le=2048, description="Pixels per side of what the network sees.")
    learning_rate: Positive = Field(_RECIPE.learning_rate, description="Of Adam.")
    batch: Count = Field(_RECIPE.batch, description="Pictures per step.")
    epochs: Count = Field(_RECIPE.epochs, description="At most.")
    weight_decay: NotNegative = Field(_RECIPE.weight_decay, description="L2, as a part of the gradient.")
    gradient_norm: Positive = Field(_RECIPE.gradient_norm, description="Threshold on the global L2 norm.")
    patience: Count = Field(_RECIPE.patience, description="Epochs without a better validation loss.")
    mirror: bool = Field(_RECIPE.mirror, description="Mirror left-right at random.")
    rotate_degrees: NotNegative = Field(
        _RECIPE.rotate_degrees, description="Rotate by up to this, both ways."
    )
    shift_px: NotNegative = Field(_RECIPE.shift_px, description="Shift by up to this in x and y.")
    scale: tuple[Positive, Positive] = Field(_RECIPE.scale, description="Smallest and largest scale.")
    oversample: bool = Field(_RECIPE.oversample, description="The rarer class, in the training part only.")
    schedule: Literal["constant", "cosine"] = Field("constant", description="Of the learning rate.")
    batch_statistics: Literal["population", "running"] = Field(
        "population", description="Batch norm at prediction: over the training part anew, or moving averages."
    )
    keep: Literal["best", "last"] = Field(
        "best", description="Weights of the best validation loss, or the last."
    )
    dropout: Part = Field(_RECIPE.dropout, description="Before the last layer.")
    brightness: NotNegative = Field(
        _RECIPE.brightness, description="Contrast, gain and gamma jitter; 0 none."
    )
    noise: NotNegative = Field(_RECIPE.noise, description="Speckle jitter; 0 none.")
    erase: NotNegative = Field(_RECIPE.erase, description="Probability of an erased rectangle.")
    label_smoothing: Part = Field(_RECIPE.label_smoothing, description="0 none.")
    test_mirror: bool = Field(_RECIPE.test_mirror, description="Average over the mirror image at prediction.")
    balance_datasets: bool = Field(
        _RECIPE.balance_datasets, description="Several sources: each is drawn equally often."
    )
    method: Literal["plain", "group-dro", "coral", "mixstyle"] = Field(
        "plain", description="How several sources are trained on."
    )
    strength: NotNegative = Field(_RECIPE.strength, description="Of the method; 0: its default.")
    inputs: tuple[str, ...] = Field((), description="Only these inputs; default: all of the study.")
    kinds: tuple[Kind, ...] = Field(
        (), description="Only these kinds of scenario; default: all of the study."
    )

    @field_validator("scale")
    @classmethod
    def _in_order(cls, value: tuple[float, float]) -> tuple[float, float]:
        if value[0] > value[1]:
            raise ValueError("the smaller scale comes first")
        return value

    def recipe(self, *, weights: str = "", digest: str = "") -> ClassifierSettings:
        """Make the settings of the classifier that this section describes.

        Args:
            weights: A label for the weights in place of the section's own value, for weights from a file, whose
                path must not count; '': as the section says.
            digest: The SHA-256 of the file of weights; '': they do not come from a file.

        Returns:
            The settings.

        Example:
            >>> ModelSection(network="vit-b-16", epochs=3).recipe().epochs
            3
        """
        values = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(ClassifierSettings)
            if f.name != "weights_digest"
        }
        return ClassifierSettings(**values | {"weights": weights or self.weights, "weights_digest": digest})


class RecipeSection(Section):
    """[recipes.NAME]: a published method, ours or another package's (MRI-14, MRI-15)."""

    like: str = Field(
        "", description="Another recipe of the study, whose keys hold where this section gives none."
    )
    recipe: str = Field("", description="`elsewhere recipes` lists them; default: this section's own name.")
    tasks: tuple[str, ...] = Field(
        (),
        description="Of the study's tasks; default: those that the recipe is made for, else those that it can answer.",
    )
    baseline: bool = Field(False, description="The other methods are compared with it.")
    settings: dict[str, Any] = Field(default_factory=dict, description="The recipe's own settings.")
    kinds: tuple[Kind, ...] = Field(
        (), description="Only these kinds of scenario; default: all of the study."
    )
    skip: bool = Field(False, description="True leaves it out: for profiles.")


class TaskSection(Section):
    """[tasks.segmentation], [tasks.response], [tasks.classification]: how a task is scored."""

    protocol: str = Field(
        "", description="`elsewhere protocols` lists them; default: the task's published one, else plain."
    )
    fairness_weight: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Of the combined score; default: the protocol's."
    )
    verdict_margin: NotNegative | None = Field(
        None, description="The largest drop that would not matter: a verdict on every transfer."
    )


class FinderSection(Section):
    """[finder]: the network that finds boxes for inputs with boxes = 'found' (US-33)."""

    network: str = Field("finder-lite0", description="finder-lite0 (ImageNet weights), finder-small, ...")
    weights: Literal["", "imagenet", "none"] = Field("", description="Default: as suits the network.")
    size_px: int = Field(256, ge=32, le=1024, description="Pixels per side of what it sees.")
    epochs: Count = Field(40, description="The best Dice on the validation part is kept.")
    learning_rate: Positive = Field(1e-3, description="Of Adam, with a cosine schedule.")
    batch: Count = Field(16, description="Pictures per step.")

    def changes(self) -> dict[str, Any]:
        """List the settings of the finder that this section sets.

        Returns:
            The values by name; `patience` is the number of epochs, so that no training is stopped early, and
            `weights` is there only where the section names them.
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in ("epochs", "learning_rate", "batch")}
        return values | {"patience": self.epochs} | ({"weights": self.weights} if self.weights else {})


class AnalysesSection(Section):
    """[analyses]: what the report shows in addition to the plain tables."""

    reference: str = Field("", description="Published numbers to show next to ours: ultrasound; empty: none.")
    without: tuple[str, ...] = Field((), description="Datasets each of which is left out once.")
    margin_reference: NotNegative | None = Field(
        None, description="A margin study: the crop margin with which the others are compared."
    )
    verdict_margin: NotNegative | None = Field(
        None, description="The largest drop in AUROC that would not matter: a verdict on every transfer."
    )
    ensemble: bool = Field(True, description="Also the mean over the seeds, as one model.")
    resamples: int = Field(1000, ge=0, description="Of patients, per scenario; 0 leaves these intervals out.")
