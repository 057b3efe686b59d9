"""Kept networks in use: the logits of pictures that no training saw (US-12, US-13, US-33)."""

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
from elsewhere.training.augment import plain
from elsewhere.training.crops import DevicePictures
from elsewhere.training.finder import Looker
from elsewhere.training.lanes import be_deterministic, pick_device
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
    """Logits (n, 2) of the training's cases, cut and seen as in the training.

    Args:
        unit: The training that gave the weights; `predict` names what is predicted, `boxes` found boxes.
        weights: The state dict.
        work: What it refers to.
        device: Where it runs.

    Returns:
        A row for each predicted case.

    Raises:
        UserError: The weights do not fit the network of this version.
    """
    be_deterministic()
    where = pick_device(device)
    recipe = unit.recipe
    model = build_network(recipe.network, size_px=unit.input.size_px, dropout=recipe.dropout)
    _load(model, weights, unit)
    model.to(where).eval()
    layout = (
        torch.channels_last if NETWORKS[recipe.network].last_conv is not None else torch.contiguous_format
    )
    rows = work.cases.rows(unit.predict)
    pictures = DevicePictures(work.cases, work.pictures, device=where, rows=rows)
    if unit.boxes is None:
        seen = pictures.cut(unit.input)[rows]
    else:
        boxes = np.array([unit.boxes[name] for name in unit.predict], dtype=np.int32).reshape(-1, 4)
        seen = pictures.cut_boxes(unit.input, rows, boxes)
    outline = pictures.outline(unit.input)[rows] if unit.input.outline else None
    on_gpu = where.type == "cuda"
    found: list[npt.NDArray[np.float32]] = []
    for start in range(0, len(rows), BATCH):
        part = slice(start, start + BATCH)
        x = plain(seen[part], None if outline is None else outline[part])
        views = [x, x.flip(3)] if recipe.test_mirror else [x]
        with torch.autocast(where.type, dtype=torch.bfloat16, enabled=on_gpu):
            seen_as = [model(view.contiguous(memory_format=layout)).float() for view in views]
        found.append(torch.stack(seen_as).mean(0).cpu().numpy())
    logits = np.concatenate(found) if found else np.zeros((0, 2), dtype=np.float32)
    return logits.astype(np.float32)


def apply_finder(
    unit: PictureTraining, weights: Mapping[str, Any], work: PictureWork, *, device: str = "auto"
) -> Boxes:
    """The box that a kept finder sees in each of the training's `predict`, (n, 4), zeros where none.

    Args:
        unit: The finder's training.
        weights: Its state dict.
        work: What it refers to.
        device: Where it runs.

    Returns:
        Boxes in the pictures' pixels.

    Raises:
        UserError: The weights do not fit the network of this version.
    """
    be_deterministic()
    where = pick_device(device)
    rows = work.cases.rows(unit.predict)
    pictures = DevicePictures(work.cases, work.pictures, device=where, rows=rows)
    model = build_finder(unit.recipe.network, weights="none", seed=0)
    _load(model, weights, unit)
    spec = replace(unit.input, kind="whole", outline=False)
    return Looker(model, unit.recipe, where).boxes(pictures, spec, rows)


def _load(model: torch.nn.Module, weights: Mapping[str, Any], unit: PictureTraining) -> None:
    try:
        model.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise UserError(
            f"the kept weights do not fit the network of this version ({str(error).splitlines()[0]})",
            where=f"unit {unit.name or unit.key}",
            fix="Use the version of Elsewhere that trained them, or train again.",
        ) from error
