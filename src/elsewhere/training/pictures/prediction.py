"""Stored networks in use: the logits of pictures that no training saw (US-12, US-13, US-33)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.engine.training import Training, Work
from elsewhere.errors import UserError
from elsewhere.networks import build_network
from elsewhere.networks.classifiers import NETWORKS
from elsewhere.networks.finder import build_finder
from elsewhere.training.cuda import enable_determinism, mixed_precision, select_device
from elsewhere.training.detection.inference import FinderInference
from elsewhere.training.pictures.augment import plain
from elsewhere.training.pictures.crops import DevicePictures

BATCH = 32
Boxes = npt.NDArray[np.int32]


@torch.no_grad()
def apply_network(
    unit: Training,
    weights: Mapping[str, Any],
    work: Work,
    *,
    device: str = "auto",
    finder: tuple[Training, Mapping[str, Any]] | None = None,
) -> tuple[npt.NDArray[np.float32], Boxes | None]:
    """Return the logits of a training's predicted cases, cut and prepared as in its training.

    Args:
        unit: The training that the weights are of; its `predict` names the cases.
        weights: The stored state dict.
        work: Cases and pictures.
        device: "auto", "cpu", "cuda" or "cuda:N".
        finder: The training and the state dict of the finder that gives the crops; None: the annotated boxes do.

    Returns:
        Logits [cases, 2], and the boxes [cases, 4] where a finder gave them.

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
    boxes = None if finder is None else _boxes(finder, pictures, rows, chosen)
    inputs = pictures.cut(unit.input)[rows] if boxes is None else pictures.cut_boxes(unit.input, rows, boxes)
    outline = pictures.outline(unit.input)[rows] if unit.input.outline else None
    batches = []
    for start in range(0, len(rows), BATCH):
        part = slice(start, start + BATCH)
        x = plain(inputs[part], None if outline is None else outline[part])
        views = [x, x.flip(3)] if recipe.test_mirror else [x]
        with mixed_precision(chosen, cache=True):
            logits = [model(view.contiguous(memory_format=layout)).float() for view in views]
        batches.append(torch.stack(logits).mean(0).cpu().numpy())
    answers = np.concatenate(batches) if batches else np.zeros((0, 2), dtype=np.float32)
    return answers.astype(np.float32), boxes


def _boxes(
    finder: tuple[Training, Mapping[str, Any]],
    pictures: DevicePictures,
    rows: npt.NDArray[np.int64],
    device: torch.device,
) -> Boxes:
    unit, weights = finder
    model = build_finder(unit.recipe.network, weights="none", seed=0)
    _load(model, weights, unit)
    spec = replace(unit.input, kind="whole", outline=False)
    return FinderInference(model, unit.recipe, device).boxes(pictures, spec, rows)


def _load(model: torch.nn.Module, weights: Mapping[str, Any], unit: Training) -> None:
    try:
        model.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise UserError(
            f"the stored weights do not fit the network of this version ({str(error).splitlines()[0]})",
            where=f"training {unit.name or unit.key}",
            fix="Use the version of Elsewhere that trained them, or train again.",
        ) from error
