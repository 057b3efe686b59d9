"""Settings of the recipes that read pictures, as a training's spec holds them, and back. Needs no torch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from elsewhere.engine.earlier_layout import CLASSIFICATION, CLASSIFIER, FINDER, LESION_BOXES, NEEDS_BOXES
from elsewhere.engine.training import RecipeSpec, Training, typed_fields
from elsewhere.errors import UserError, near_matches
from elsewhere.recipes.base import RecipeSettings
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec, finder_input, finder_settings

__all__ = ["CLASSIFICATION", "CLASSIFIER", "FINDER", "LESION_BOXES", "NEEDS_BOXES"]


@dataclass(frozen=True, kw_only=True)
class PictureSettings(RecipeSettings):
    """Of a recipe that reads pictures.

    Args:
        input: What the network sees.
        training: How it is trained.
    """

    input: InputSpec = field(default_factory=InputSpec)
    training: ClassifierSettings = field(default_factory=ClassifierSettings)


@dataclass(frozen=True, kw_only=True)
class FinderSettings(PictureSettings):
    """Of a finder of lesions: other defaults.

    Args:
        input: What the finder sees: the whole picture.
        training: How it is trained.
    """

    input: InputSpec = field(default_factory=finder_input)
    training: ClassifierSettings = field(default_factory=finder_settings)


def picture_settings(
    values: Mapping[str, Any], *, where: str = "", made: PictureSettings | None = None
) -> PictureSettings:
    """The settings that a study file or a stored training holds.

    Args:
        values: 'input' and 'training', each with the fields that differ from the defaults.
        where: Where they stand, for a message.
        made: The defaults.

    Returns:
        The settings, checked.

    Raises:
        UserError: A name is unknown, or a value of another type.
    """
    made = made or PictureSettings()
    _check_names(values, ("input", "training"), where)
    try:
        parts = {
            name: _filled(getattr(made, name), values.get(name, {}), f"{where}, {name}") for name in values
        }
    except TypeError as error:
        raise UserError(
            f"a setting cannot be read: {error}", where=where, fix="Each value is of the type of its default."
        ) from error
    return replace(made, **parts)


def _filled(default: Any, values: Any, where: str) -> Any:
    if not isinstance(values, Mapping):
        raise TypeError("it is no mapping")
    _check_names(values, [f.name for f in fields(default)], where)
    typed = typed_fields(default, values)
    scale = typed.get("scale", (1.0, 1.0))
    if len(scale) != 2 or not all(isinstance(part, int | float) for part in scale):
        raise TypeError("scale is no pair of numbers")
    return replace(default, **typed)


def _check_names(values: Mapping[str, Any], known: Any, where: str) -> None:
    for name in values:
        if name not in known:
            near = near_matches(str(name), known)
            raise UserError(
                f"unknown setting '{name}'",
                where=where,
                fix=f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}.",
            )


def settings_of(spec: RecipeSpec) -> PictureSettings:
    """The settings of a training's spec, read once."""
    return _settings_of(json.dumps(spec.to_dict()["settings"], sort_keys=True))


@lru_cache(maxsize=4096)
def _settings_of(text: str) -> PictureSettings:
    return picture_settings(json.loads(text))


def classifier_spec(training: ClassifierSettings, seen: InputSpec) -> RecipeSpec:
    """A network that classifies pictures, as a training asks for it.

    Args:
        training: How it is trained.
        seen: What it sees.

    Returns:
        The spec of the recipe 'picture-classifier'.

    Example:
        >>> classifier_spec(ClassifierSettings(), InputSpec()).tasks
        ('classification',)
    """
    return RecipeSpec(name=CLASSIFIER, settings=_plain(training, seen), tasks=(CLASSIFICATION,))


def finder_spec(training: ClassifierSettings, seen: InputSpec) -> RecipeSpec:
    """A finder of lesions, as a training asks for it: the spec of the recipe 'lesion-finder'."""
    return RecipeSpec(name=FINDER, settings=_plain(training, seen), tasks=(LESION_BOXES,))


def _plain(training: ClassifierSettings, seen: InputSpec) -> dict[str, Any]:
    content = {"input": dataclasses.asdict(seen), "training": dataclasses.asdict(training)}
    return dict(json.loads(json.dumps(content)))


def finder_training(
    training: Training, network: str = "finder-lite0", *, size_px: int = 256, **changes: Any
) -> Training:
    """The finder for a training that takes found boxes: it learns from the same parts with the same seed, so that no
    box in a test picture comes from a network that has seen it (US-33).

    Args:
        training: Whose crops are to be found.
        network: Of the finder.
        size_px: Pixels a side of what the finder sees. The random shift is a part of the picture, so that it means
            the same at every size.
        **changes: Of the finder's settings.

    Returns:
        The finder's training; its key is still to be set.
    """
    shift = finder_settings(network).shift_px * size_px / finder_input().size_px
    return Training(
        name=f"boxes for {training.name}" if training.name else "boxes",
        recipe=finder_spec(finder_settings(network, **{"shift_px": shift} | changes), finder_input(size_px)),
        train=training.train,
        validation=training.validation,
        predict=training.predict,
        seed=training.seed,
    )
