"""The unit that finds the boxes another unit needs (US-33). Needs no torch: plans are made without it."""

from __future__ import annotations

from typing import Any

from elsewhere.engine.training import ClassifierSettings, InputSpec, Training


def finder_recipe(network: str = "finder-lite0", **changes: Any) -> ClassifierSettings:
    """The recipe of a finder: more varied pictures and more epochs than a classifier, a rate that fades."""
    weights = "imagenet" if network == "finder-lite0" else "none"
    values: dict[str, Any] = {
        "network": network,
        "weights": weights,
        "learning_rate": 1e-3,
        "batch": 16,
        "epochs": 40,
        "patience": 40,
        "weight_decay": 1e-5,
        "rotate_degrees": 15.0,
        "shift_px": 24.0,
        "scale": (0.8, 1.25),
        "oversample": False,
        "schedule": "cosine",
        "dropout": 0.0,
        "brightness": 0.25,
        "noise": 0.1,
        "test_mirror": True,
    }
    return ClassifierSettings(**values | changes)


def finder_input(size_px: int = 256) -> InputSpec:
    """The whole picture; its outline is what is learnt."""
    return InputSpec(kind="whole", size_px=size_px)


def finder_unit(
    unit: Training, network: str = "finder-lite0", *, size_px: int = 256, **changes: Any
) -> Training:
    """The finder for a unit that takes found boxes: it learns from the same parts with the same seed, so that
    no box in a test picture comes from a network that has seen it. Its key is still to be set.

    The random shift is a part of the picture, so that it means the same at every size.
    """
    shift = finder_recipe(network).shift_px * size_px / finder_input().size_px
    return Training(
        name=f"boxes for {unit.name}" if unit.name else "boxes",
        kind="find-boxes",
        train=unit.train,
        validation=unit.validation,
        predict=unit.predict,
        input=finder_input(size_px),
        recipe=finder_recipe(network, **{"shift_px": shift} | changes),
        seed=unit.seed,
    )
