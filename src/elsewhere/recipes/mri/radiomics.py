"""Radiomics of the enhancing region: shape, first order, texture and kinetics into a regression or a forest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from elsewhere.errors import UserError, unknown_name
from elsewhere.inputs.source import CLINICAL
from elsewhere.radiomics.features import CaseFeatures, FeatureSettings, case_features
from elsewhere.recipes.base import (
    RESPONSE,
    Job,
    Prediction,
    Recipe,
    RecipeCase,
    RecipeSettings,
    Trained,
    recipes,
)
from elsewhere.recipes.mri.clinical import ClinicalDesign
from elsewhere.recipes.mri.response_models import (
    PLAIN_MODELS,
    Applied,
    Candidate,
    ElasticNet,
    FloatArray,
    Forest,
    KeptModel,
    choose,
    training_cases,
)

REGION_NOTE = (
    "Regions are automatic in training and in the test alike (of a volume, the best enhancing piece of both "
    "breasts, which are found; in a slice that was cut round the tumour, the piece at its middle): experts' masks and "
    "boxes of tested cases are hidden."
)
FAMILIES = ("shape", "first", "texture", "kinetic")
MODELS = ("both", "elastic-net", "random-forest")


@dataclass(frozen=True, kw_only=True)
class RadiomicsSettings(RecipeSettings):
    """Settings of the recipes 'radiomics' and 'radiomics-clinical'.

    Args:
        bins: Grey levels of the texture features.
        region: 'automatic', or 'expert': the experts' masks in training, so that training measures other
            regions than the test.
        families: Families of features: 'shape', 'first', 'texture', 'kinetic'.
        model: 'elastic-net', 'random-forest', or 'both': the better one by folds inside the training part.
        clinical: Clinical columns that are added to the features (recipe 'radiomics-clinical' alone).
    """

    bins: int = 32
    region: str = "automatic"
    """'expert' measures experts' masks in training: training then sees other regions than the test does."""
    families: tuple[str, ...] = FAMILIES
    model: str = "both"
    """'elastic-net', 'random-forest', or both: the better one by folds inside the training part."""
    clinical: tuple[str, ...] = ()
    """Clinical columns that are added to the features (recipe 'radiomics-clinical' alone)."""


@recipes.register("radiomics")
class Radiomics(Recipe):
    """Predict the response from features of the automatic region, by an elastic net or a random forest."""

    title = "Radiomics"
    answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
    version = 1
    follows = (
        "The common radiomics baseline, no team of the challenge. Features after IBSI 1 definitions, our own; the "
        "model (elastic net on normal scores of ranks, or a random forest) is chosen by folds inside training."
    )
    keeps: ClassVar[bool] = True
    Settings = RadiomicsSettings

    def run(self, job: Job) -> Trained:
        settings: RadiomicsSettings = job.settings
        how = feature_settings(settings)
        if settings.model not in MODELS:
            raise unknown_name("model", settings.model, list(MODELS))
        cases = training_cases(job)
        columns = settings.clinical if CLINICAL in self.sees else ()
        design = ClinicalDesign.of(cases, columns) if columns else None
        table = FeatureTable(how, design)
        x = table.rows(job, cases)
        y = np.array([case.label for case in cases], dtype=np.int64)
        fitted = choose(_candidates(settings.model), x, y, [case.group for case in cases], seed=job.seed)
        predict_all(job, table, fitted.probability)
        return Trained(
            weights=table.kept() | fitted.kept() if job.keep else None,
            images=len(cases),
            notes=(REGION_NOTE, *(design.notes if design else ())),
            details={
                "cases": len(cases),
                "responders": int(y.sum()),
                "features": len(table.names),
                "chosen": fitted.name,
                "inner_auc": fitted.inner_auc,
                "attempts": fitted.attempts,
                "shift": fitted.shift,
                "weights": _weights(fitted.model, table.names),
            },
        )

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        return apply_features(job, weights, PLAIN_MODELS)


@recipes.register("radiomics-clinical")
class RadiomicsClinical(Radiomics):
    """Predict the response from radiomics and clinical columns, which MRI-02 withholds at test time."""

    title = "Radiomics and clinical columns"
    version = 2
    follows = (
        Radiomics.follows + " Clinical columns, which the challenge withholds in its test, join the features."
    )
    sees: ClassVar[frozenset[str]] = frozenset({CLINICAL})

    @dataclass(frozen=True, kw_only=True)
    class Settings(RadiomicsSettings):
        clinical: tuple[str, ...] = ("age", "menopausal_status", "subtype")


def feature_settings(settings: RadiomicsSettings) -> FeatureSettings:
    """Check a recipe's settings and return those of the features.

    Args:
        settings: The recipe's settings.

    Returns:
        The settings of `elsewhere.radiomics`.

    Raises:
        UserError: A family or the region is unknown.

    Example:
        >>> feature_settings(RadiomicsSettings(bins=16)).bins
        16
    """
    for family in settings.families:
        if family not in FAMILIES:
            raise unknown_name("family of features", family, list(FAMILIES))
    if settings.region not in ("automatic", "expert"):
        raise unknown_name("region", settings.region, ["automatic", "expert"])
    return FeatureSettings(bins=settings.bins, region=settings.region, families=settings.families)


class FeatureTable:
    """Cases as rows: features by name, then clinical columns.

    Args:
        how: How the features are computed.
        design: How clinical columns become numbers; None: no clinical columns.
    """

    def __init__(self, how: FeatureSettings, design: ClinicalDesign | None) -> None:
        self.how, self.design = how, design
        self.names: tuple[str, ...] = ()

    def kept(self) -> dict[str, Any]:
        """Return the table's definition for saved weights.

        Returns:
            The names of the columns, and the clinical columns' definition.
        """
        return {"features": list(self.names), "design": self.design.kept() if self.design else None}

    def row(self, job: Job, case: RecipeCase) -> tuple[FloatArray, CaseFeatures]:
        """Return one case as a row; the first row sets the names of the columns.

        Args:
            job: The job, whose volumes are read.
            case: The case.

        Returns:
            The row, (columns,), and the features it was made from.
        """
        made = case_features(job.volumes, case.case, self.how)
        if not self.names:
            self.names = (*made.values, *(self.design.names if self.design else ()))
        values = list(made.values.values())
        if self.design:
            values += self.design.table([case])[0].tolist()
        return np.array(values, dtype=np.float64), made

    def rows(self, job: Job, cases: Sequence[RecipeCase]) -> FloatArray:
        """Return cases as a table.

        Args:
            job: The job, whose volumes are read and whose `progress` is called.
            cases: The cases, at least one.

        Returns:
            (cases, columns).
        """
        found = []
        for at, case in enumerate(cases):
            found.append(self.row(job, case)[0])
            job.progress("features", at + 1, len(cases))
        return np.stack(found)


def apply_features(job: Job, weights: Mapping[str, Any], models: Mapping[str, type[KeptModel]]) -> Trained:
    """Predict from a saved model of features.

    A model whose features are not those of this version is refused.

    Args:
        job: The job.
        weights: What the recipe handed over in `Trained.weights`.
        models: The classes of models by the kind that they save.

    Returns:
        What a report needs to know of the predictions.

    Raises:
        UserError: The features that are measured are not those that the model knows.
    """
    design = None if weights["design"] is None else ClinicalDesign.from_kept(weights["design"])
    table = FeatureTable(feature_settings(job.settings), design)
    fitted = Applied.of(weights, models)
    known = tuple(weights["features"])

    def probability(x: FloatArray) -> FloatArray:
        if table.names != known:
            other = sorted({*table.names} ^ {*known})
            raise UserError(
                f"the saved model has {len(known)} features, and {len(table.names)} are measured here"
                + (f" (first: {other[0]})" if other else " (in another order)"),
                fix="Use the version of Elsewhere that trained it, or train it again.",
            )
        return fitted.probability(x)

    predict_all(job, table, probability)
    told = design.empty_notes(job.predict) if design else ()
    return Trained(notes=(REGION_NOTE, *told))


def predict_all(job: Job, table: FeatureTable, probability: Callable[[FloatArray], FloatArray]) -> None:
    """Predict every case, one by one; the time is that of its features and the model, not of reading.

    Args:
        job: The job.
        table: Makes the rows.
        probability: From rows to probabilities of response.
    """
    for at, case in enumerate(job.predict):
        values, made = table.row(job, case)
        start = time.perf_counter()
        p = float(probability(values[None, :])[0])
        seconds = made.seconds + time.perf_counter() - start
        job.emit(Prediction(case=case.case, probability=p, seconds=seconds))
        job.progress("predict", at + 1, len(job.predict))


def _candidates(model: str) -> list[Candidate]:
    found = []
    if model in ("both", "elastic-net"):
        found += [_net(strength, l1) for strength in (0.3, 0.1, 0.03, 0.01) for l1 in (0.0, 0.5)]
    if model in ("both", "random-forest"):
        found.append(_forest(5))
    return found


def _net(strength: float, l1: float) -> Candidate:
    return Candidate(
        name=f"elastic net {strength:g}, l1 {l1:g}", make=lambda seed: ElasticNet(strength=strength, l1=l1)
    )


def _forest(leaf: int) -> Candidate:
    return Candidate(name=f"forest, leaf {leaf}", make=lambda seed: Forest(seed=seed, leaf=leaf))


def _weights(model: object, names: Sequence[str]) -> dict[str, float]:
    """Return the ten largest weights, for a reader."""
    if isinstance(model, ElasticNet):
        values = model.weight
    elif isinstance(model, Forest):
        values = np.asarray(model.forest.feature_importances_)
    else:
        return {}
    order = np.argsort(-np.abs(values), kind="stable")[:10]
    return {names[k]: round(float(values[k]), 4) for k in order if values[k]}
