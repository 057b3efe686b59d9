"""Trainings and outputs as versions before 2.0 stored them: classifiers, finders and recipes each in their own way.

Nothing writes this layout any more. Stores and zips of it are read as if they had been written today.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from elsewhere.predictions.answers import FoundBoxes, Probabilities, answer_kinds

CLASSIFIER, FINDER = "picture-classifier", "lesion-finder"
CLASSIFICATION, LESION_BOXES = "classification", "lesion-boxes"
RECIPE_OF_KIND = {"classify": (CLASSIFIER, CLASSIFICATION), "find-boxes": (FINDER, LESION_BOXES)}
NEEDS_BOXES = "boxes"


def training_content(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a training's file as `Training.from_dict` reads it today.

    Args:
        content: With 'kind', and 'job' for a recipe or 'input' and 'recipe' for a network.

    Returns:
        The same training in today's layout.

    Raises:
        TypeError: It is of no known kind, or a value is of another type.
    """
    kept = ("key", "name", "train", "validation", "predict", "seed", "keep_weights")
    found = {name: content[name] for name in kept if name in content}
    kind = content["kind"]
    if kind == "recipe":
        return found | {"recipe": content["job"]}
    if kind not in RECIPE_OF_KIND:
        raise TypeError("kind is no kind of training")
    name, task = RECIPE_OF_KIND[kind]
    settings = {
        part: given
        for part, held in (("input", "input"), ("training", "recipe"))
        if (given := content.get(held))
    }
    boxes = content.get("boxes_from") or ""
    return found | {
        "recipe": {"name": name, "settings": settings, "tasks": [task]},
        "needs": {NEEDS_BOXES: boxes} if boxes else {},
    }


def answers_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The answers by task of an outputs file whose arrays do not name their task."""
    if "box" in arrays:
        return {LESION_BOXES: FoundBoxes.from_best(arrays["box"])}
    found: dict[str, Any] = {}
    if "mask_end" in arrays:
        found["segmentation"] = answer_kinds.get("masks").unpack(arrays)
    if "probability" in arrays:
        found["response"] = answer_kinds.get("probability").unpack({"probability": arrays["probability"]})
    if found:
        return found
    logits = arrays["logits"]
    distance = arrays["distance"] if len(arrays["distance"]) == len(logits) else None
    return {CLASSIFICATION: Probabilities.from_logits(logits, distance)}
