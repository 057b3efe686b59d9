"""Settings of the recipes that read pictures, to and from a training's spec. Needs no torch."""

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
    """Settings of a recipe that reads pictures.

    Args:
        input: What the network sees.
        training: How it is trained.
    """

    input: InputSpec = field(default_factory=InputSpec)
    training: ClassifierSettings = field(default_factory=ClassifierSettings)


@dataclass(frozen=True, kw_only=True)
class FinderSettings(PictureSettings):
    """Settings of a finder of lesions: those of a picture recipe with other defaults.

    Args:
        input: What the finder sees: the whole picture.
        training: How it is trained.
    """

    input: InputSpec = field(default_factory=finder_input)
    training: ClassifierSettings = field(default_factory=finder_settings)


def picture_settings(
    values: Mapping[str, Any], *, where: str = "", made: PictureSettings | None = None
) -> PictureSettings:
    """Make the settings that a study file or a stored training holds.

    Args:
        values: 'input' and 'training', each with the fields that differ from the defaults.
        where: The place in the file that messages name.
        made: The defaults; None: those of `PictureSettings`.

    Returns:
        The settings, checked.

    Raises:
        UserError: A name is unknown, or a value of another type.

    Example:
        >>> picture_settings({"training": {"epochs": 3}}).training.epochs
        3
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
        raise TypeError("it is not a mapping")
    _check_names(values, [f.name for f in fields(default)], where)
    typed = typed_fields(default, values)
    scale = typed.get("scale", (1.0, 1.0))
    if len(scale) != 2 or not all(isinstance(part, int | float) for part in scale):
        raise TypeError("scale is not a pair of numbers")
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
    """Return the settings of a training's spec; each spec is parsed once.

    Args:
        spec: The recipe as the study asks for it.

    Returns:
        The settings.
    """
    return _settings_of(json.dumps(spec.to_dict()["settings"], sort_keys=True))


@lru_cache(maxsize=4096)
def _settings_of(text: str) -> PictureSettings:
    return picture_settings(json.loads(text))


def classifier_spec(training: ClassifierSettings, seen: InputSpec) -> RecipeSpec:
    """Make the spec of a network that classifies pictures, as a training asks for it.

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
    """Make the spec of a finder of lesions, as a training asks for it.

    Args:
        training: How it is trained.
        seen: What it sees.

    Returns:
        The spec of the recipe 'lesion-finder'.

    Example:
        >>> finder_spec(finder_settings(), finder_input()).tasks
        ('lesion-boxes',)
    """
    return RecipeSpec(name=FINDER, settings=_plain(training, seen), tasks=(LESION_BOXES,))


def _plain(training: ClassifierSettings, seen: InputSpec) -> dict[str, Any]:
    content = {"input": dataclasses.asdict(seen), "training": dataclasses.asdict(training)}
    return dict(json.loads(json.dumps(content)))


def finder_training(
    training: Training, network: str = "finder-lite0", *, size_px: int = 256, **changes: Any
) -> Training:
    """Make the finder's training for a training that uses found boxes.

    It learns from the same parts with the same seed, so that no box in a test picture comes from a network
    that has seen it (US-33).

    Args:
        training: The training whose crops are to be found.
        network: The name of the finder.
        size_px: Side of what the finder sees, in pixels. The random shift is a part of the picture, so that
            it means the same at every size.
        **changes: Settings of the finder with other values than the default.

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
