"""Prediction by stored networks: the logits of pictures that no training saw (US-12, US-13, US-33)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.errors import UserError
from elsewhere.networks import build_network
from elsewhere.networks.classifiers import NETWORKS
from elsewhere.networks.finder import build_finder
from elsewhere.training.cuda import enable_determinism, mixed_precision, select_device
from elsewhere.training.detection.inference import FinderInference
from elsewhere.training.pictures.augment import plain
from elsewhere.training.pictures.crops import DevicePictures
from elsewhere.training.pictures.settings import PictureTraining, PictureWork

BATCH = 32
Boxes = npt.NDArray[np.int32]


@torch.no_grad()
def apply_network(
    unit: PictureTraining,
    weights: Mapping[str, Any],
    work: PictureWork,
    *,
    device: str = "auto",
) -> npt.NDArray[np.float32]:
    """Return the logits of a training's predicted cases, cut and prepared as in its training.

    Args:
        unit: The training that gave the weights; `predict` names what is predicted, `boxes` found boxes.
        weights: The stored state dict.
        work: Cases and pictures.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Returns:
        Logits [cases, 2].

    Raises:
        UserError: There is no such device, or the weights do not fit the network.
    """
    enable_determinism()
    chosen = select_device(device)
    recipe = unit.recipe
    model = build_network(recipe.network, size_px=unit.input.size_px, dropout=recipe.dropout)
    _load(model, weights, unit)
    model.to(chosen).eval()
    layout = (
        torch.channels_last if NETWORKS[recipe.network].last_conv is not None else torch.contiguous_format
    )
    rows = work.cases.rows(unit.predict)
    pictures = DevicePictures(work.cases, work.pictures, device=chosen, rows=rows)
    if unit.boxes is None:
        inputs = pictures.cut(unit.input)[rows]
    else:
        boxes = np.array([unit.boxes[name] for name in unit.predict], dtype=np.int32).reshape(-1, 4)
        inputs = pictures.cut_boxes(unit.input, rows, boxes)
    outline = pictures.outline(unit.input)[rows] if unit.input.outline else None
    batches: list[npt.NDArray[np.float32]] = []
    for start in range(0, len(rows), BATCH):
        part = slice(start, start + BATCH)
        x = plain(inputs[part], None if outline is None else outline[part])
        views = [x, x.flip(3)] if recipe.test_mirror else [x]
        with mixed_precision(chosen, cache=True):
            logits = [model(view.contiguous(memory_format=layout)).float() for view in views]
        batches.append(torch.stack(logits).mean(0).cpu().numpy())
    answers = np.concatenate(batches) if batches else np.zeros((0, 2), dtype=np.float32)
    return answers.astype(np.float32)


def apply_finder(
    unit: PictureTraining, weights: Mapping[str, Any], work: PictureWork, *, device: str = "auto"
) -> Boxes:
    """The box that a kept finder sees in each of the training's `predict`, (n, 4), zeros where none.

    Args:
        unit: The finder's training.
        weights: The state dict of the network.
        work: What it refers to.
        device: Where it runs.

    Returns:
        Boxes in the pictures' pixels.

    Raises:
        UserError: The weights do not fit the network of this version.
    """
    enable_determinism()
    chosen = select_device(device)
    rows = work.cases.rows(unit.predict)
    pictures = DevicePictures(work.cases, work.pictures, device=chosen, rows=rows)
    model = build_finder(unit.recipe.network, weights="none", seed=0)
    _load(model, weights, unit)
    spec = replace(unit.input, kind="whole", outline=False)
    return FinderInference(model, unit.recipe, chosen).boxes(pictures, spec, rows)


def _load(model: torch.nn.Module, weights: Mapping[str, Any], unit: PictureTraining) -> None:
    try:
        model.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise UserError(
            f"the stored weights do not fit the network of this version ({str(error).splitlines()[0]})",
            where=f"training {unit.name or unit.key}",
            fix="Use the version of Elsewhere that trained them, or train again.",
        ) from error
