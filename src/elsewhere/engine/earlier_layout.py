"""Reads trainings and outputs of versions before 2.0.

They stored classifiers, finders and recipes in three ways. Nothing writes this layout any more. Stores and
zip files of it are read as if they had been written today.
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
    """Convert the content of a training's file to the layout that `Training.from_dict` reads today.

    Args:
        content: The content of the earlier layout: with 'kind', and 'job' for a recipe or 'input' and
            'recipe' for a network.

    Returns:
        The same training in today's layout.

    Raises:
        TypeError: The kind of training is unknown, or a value is of another type.

    Example:
        >>> training_content({"kind": "recipe", "job": {"name": "coin"}, "seed": 7})
        {'seed': 7, 'recipe': {'name': 'coin'}}
    """
    kept = ("key", "name", "train", "validation", "predict", "seed", "keep_weights")
    found = {name: content[name] for name in kept if name in content}
    kind = content["kind"]
    if kind == "recipe":
        return found | {"recipe": content["job"]}
    if kind not in RECIPE_OF_KIND:
        raise TypeError("'kind' is not a kind of training")
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
    """Read the answers by task of an outputs file whose arrays do not name their task.

    Args:
        arrays: The arrays of the file by name. Their names say which kind of training wrote them.

    Returns:
        The answers by task, as `engine.outcomes.from_files` gives them for today's layout.

    Raises:
        KeyError: An array is missing.
        ValueError: The arrays do not fit together.
    """
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
