"""Relevance maps: Grad-CAM for networks with convolutions, occlusion for every network (US-23).

Both explain the log-odds of a class (its logit less the log-sum-exp of the others), because that is what
the probability depends on: a single logit may move without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name

if TYPE_CHECKING:
    import torch
    from torch import nn

Maps = npt.NDArray[np.float32]
Method = Callable[["nn.Module", "torch.Tensor"], Maps]
"""A network and pictures (n, channels, height, width) to maps (n, height, width)."""
METHODS = ("grad-cam", "occlusion")


def target_score(logits: torch.Tensor, target_class: int = 1) -> torch.Tensor:
    """The log-odds of the class, one a picture; with a single output, that output."""
    import torch

    if logits.ndim != 2:
        raise ValueError(f"a network gives (pictures, classes), not {tuple(logits.shape)}")
    if logits.shape[1] == 1:
        return logits[:, 0]
    others = [at for at in range(logits.shape[1]) if at != target_class]
    return logits[:, target_class] - torch.logsumexp(logits[:, others], dim=1)


def to_unit(maps: npt.ArrayLike) -> Maps:
    """What speaks for the class, scaled so that the largest value of each map is 1; all zero where nothing does."""
    positive = np.clip(np.asarray(maps, dtype=np.float32), 0, None)
    top = positive.max(axis=(1, 2), keepdims=True)
    return np.asarray(np.divide(positive, top, out=np.zeros_like(positive), where=top > 0))


def grad_cam(
    model: nn.Module,
    layer: nn.Module | str,
    images: torch.Tensor,
    target_class: int = 1,
    *,
    batch: int = 32,
) -> Maps:
    """Grad-CAM (Selvaraju et al. 2017) at `layer`, in [0, 1] and of the size of the pictures.

    Each channel weighs the mean gradient of the class's log-odds over its places; what is left below zero
    speaks against the class and is cut. The layer must give (n, channels, height, width).
    """
    import torch
    from torch.nn import functional

    module = model.get_submodule(layer) if isinstance(layer, str) else layer
    held: list[torch.Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        held.append(output)
        return output.clone()  # a later in-place activation must not change what is kept

    parts: list[Maps] = []
    handle = module.register_forward_hook(keep)
    try:
        with _evaluating(model), torch.enable_grad():
            for part in images.split(batch):
                held.clear()
                score = target_score(model(part.detach().clone().requires_grad_()), target_class)
                if not held:
                    raise UserError(
                        f"the layer {layer} takes no part in the network's answer",
                        fix="Name a layer that the picture passes through.",
                    )
                at = held[-1]
                if at.ndim != 4:
                    raise UserError(
                        f"Grad-CAM needs a layer with a picture's axes, and {layer} gives {tuple(at.shape)}",
                        fix="Use --method occlusion for networks without convolutions.",
                    )
                (slope,) = torch.autograd.grad(score.sum(), at)
                weight = slope.mean(dim=(2, 3), keepdim=True)
                cam = functional.relu((weight * at).sum(dim=1, keepdim=True)).detach().float()
                size = part.shape[-2:]
                cam = functional.interpolate(cam, size=size, mode="bilinear", align_corners=False)
                parts.append(cam[:, 0].cpu().numpy())
    finally:
        handle.remove()
    return to_unit(np.concatenate(parts))


def occlusion_map(
    model: nn.Module,
    images: torch.Tensor,
    *,
    patch: int | None = None,
    stride: int | None = None,
    batch: int = 64,
    fill: float | str = "mean",
    target_class: int = 1,
    measure: str = "log-odds",
) -> Maps:
    """How much the class's score falls where a square is covered; signed, in log-odds or probability.

    A pixel has the mean fall over all squares that cover it. By default a square is a fifth of the picture
    wide and moves by half its width, the defaults of the toolbox the study used. `fill` is the value that
    covers: a number, or 'mean' for each picture's own mean.
    """
    import torch

    if measure not in ("log-odds", "probability"):
        raise unknown_name("measure", measure, ("log-odds", "probability"))
    n, _, height, width = images.shape
    patch = patch or max(1, round(min(height, width) / 5))
    stride = stride or max(1, patch // 2)
    if not 0 < stride <= patch <= min(height, width):
        raise UserError(
            f"squares of {patch} px every {stride} px do not cover a picture of {width} x {height} px",
            fix="Choose 0 < stride <= patch <= the picture's smaller side.",
        )
    rows = _cover(height, patch, stride).to(images.device)
    columns = _cover(width, patch, stride).to(images.device)
    places = len(rows) * len(columns)

    def score(pictures: torch.Tensor) -> torch.Tensor:
        value = target_score(model(pictures), target_class).float()
        return torch.sigmoid(value) if measure == "probability" else value

    cover = images.mean(dim=(1, 2, 3)) if fill == "mean" else images.new_full((n,), float(fill))
    falls = torch.empty(n * places, device=images.device)
    with _evaluating(model), torch.no_grad():
        whole = torch.cat([score(part) for part in images.split(batch)])
        for jobs in torch.arange(n * places, device=images.device).split(batch):
            of, place = jobs // places, jobs % places
            hidden = rows[place // len(columns), None, :, None] & columns[place % len(columns), None, None, :]
            covered = torch.where(hidden, cover[of, None, None, None], images[of])
            falls[jobs] = whole[of] - score(covered)
    drop = falls.reshape(n, len(rows), len(columns)).double()
    down, across = rows.double(), columns.double()
    total = torch.einsum("nrc,rh,cw->nhw", drop, down, across)
    count = down.sum(0)[:, None] * across.sum(0)[None, :]
    return np.asarray((total / count).float().cpu().numpy())


def method_for(model: nn.Module, name: str = "", *, layer: str | None = None) -> tuple[str, Method]:
    """The study's choice for the network, Grad-CAM where it has convolutions, else occlusion; or the named one."""
    layer = layer or getattr(model, "last_conv", None)
    name = name or ("grad-cam" if layer else "occlusion")
    if name == "occlusion":
        return name, lambda network, images: to_unit(occlusion_map(network, images))
    if name != "grad-cam":
        raise unknown_name("method", name, METHODS)
    if not layer:
        raise UserError(
            "Grad-CAM needs a convolution, and this network has none", fix="Use --method occlusion."
        )
    return name, lambda network, images: grad_cam(network, layer, images)


def _cover(size: int, patch: int, stride: int) -> torch.Tensor:
    """A row a square: which pixels it covers; the last square ends at the border."""
    import torch

    starts = [*range(0, size - patch, stride), size - patch]
    at = torch.arange(size)
    return torch.stack([(at >= start) & (at < start + patch) for start in starts])


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout, no batch statistics; afterwards the network is as it was."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
