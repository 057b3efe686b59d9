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
    """Compute the log-odds of a class, one value per picture; of a network with one output, that output.

    Args:
        logits: The network's answer, of shape (pictures, classes).
        target_class: The column of the class; not used where there is one output only.

    Returns:
        A tensor of shape (pictures,): the logit of the class minus the log-sum-exp of the others.

    Raises:
        ValueError: `logits` does not have two axes.

    Example:
        >>> import torch
        >>> target_score(torch.tensor([[0.0, 2.0]]))
        tensor([2.])
    """
    import torch

    if logits.ndim != 2:
        raise ValueError(f"a network gives (pictures, classes), not {tuple(logits.shape)}")
    if logits.shape[1] == 1:
        return logits[:, 0]
    others = [at for at in range(logits.shape[1]) if at != target_class]
    return logits[:, target_class] - torch.logsumexp(logits[:, others], dim=1)


def to_unit(maps: npt.ArrayLike) -> Maps:
    """Scale maps so that the largest value of each is 1; a map without positive values becomes zero.

    Values below zero speak against the class and are set to 0.

    Args:
        maps: Maps of shape (n, height, width).

    Returns:
        Maps of the same shape with values in [0, 1].

    Example:
        >>> to_unit([[[1.0, 4.0], [-2.0, 0.0]]]).tolist()
        [[[0.25, 1.0], [0.0, 0.0]]]
    """
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
    """Compute Grad-CAM (Selvaraju et al. 2017) at a layer, in [0, 1] and of the size of the pictures.

    The weight of a channel is the mean gradient of the class's log-odds over the positions of the
    channel. What is below zero in the weighted sum speaks against the class and is set to 0.

    Args:
        model: The network. It is switched to evaluation mode for the computation and restored afterwards.
        layer: The layer, or its name in the network. It must give (n, channels, height, width).
        images: Pictures of shape (n, channels, height, width), on the network's device.
        target_class: The class that is explained.
        batch: How many pictures are processed at once.

    Returns:
        Maps of shape (n, height, width); the largest value of each is 1 unless the map is all zero.

    Raises:
        UserError: The layer is not used by the network, or its output has no height and width.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
        >>> network = nn.Sequential(nn.Conv2d(1, 2, 3), *head)
        >>> grad_cam(network, "0", torch.rand(3, 1, 8, 8)).shape
        (3, 8, 8)
    """
    import torch
    from torch.nn import functional

    module = model.get_submodule(layer) if isinstance(layer, str) else layer
    held: list[torch.Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        held.append(output)
        return output.clone()  # a later in-place activation must not change the stored tensor

    parts: list[Maps] = []
    handle = module.register_forward_hook(keep)
    try:
        with _evaluating(model), torch.enable_grad():
            for part in images.split(batch):
                held.clear()
                score = target_score(model(part.detach().clone().requires_grad_()), target_class)
                if not held:
                    raise UserError(
                        f"the network's answer does not depend on the layer {layer}",
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
    """Measure how much the class's score falls where a square is covered; signed, in log-odds or probability.

    The value of a pixel is the mean fall over all squares that cover it. By default a square is one fifth
    of the picture wide and moves by half its width: the defaults of the toolbox that the published study
    used.

    Args:
        model: The network. It is switched to evaluation mode for the computation and restored afterwards.
        images: Pictures of shape (n, channels, height, width), on the network's device.
        patch: The side of the square in pixels; None for one fifth of the picture's smaller side.
        stride: How far the square moves, in pixels; None for half of `patch`.
        batch: How many covered pictures are processed at once.
        fill: The value that covers: a number, or 'mean' for the mean of each picture.
        target_class: The class that is explained.
        measure: 'log-odds', or 'probability'.

    Returns:
        Maps of shape (n, height, width); positive where covering lowers the score of the class.

    Raises:
        UserError: `measure` is not known, or the squares do not cover the picture.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
        >>> occlusion_map(network, torch.rand(3, 1, 8, 8)).shape
        (3, 8, 8)
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
    """Choose how a network is explained: Grad-CAM where it has convolutions, occlusion otherwise.

    Args:
        model: The network; its attribute `last_conv`, if any, names the last convolution.
        name: 'grad-cam' or 'occlusion'; empty to choose by the network.
        layer: The layer for Grad-CAM; None for `model.last_conv`.

    Returns:
        The name of the method, and a function from a network and pictures to maps in [0, 1].

    Raises:
        UserError: The name is not known, or Grad-CAM was named and the network has no convolution.

    Example:
        >>> from torch import nn
        >>> method_for(nn.Linear(4, 2))[0]
        'occlusion'
    """
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
    """List which pixels each square covers, one row per square; the last square ends at the border."""
    import torch

    starts = [*range(0, size - patch, stride), size - patch]
    at = torch.arange(size)
    return torch.stack([(at >= start) & (at < start + patch) for start in starts])


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch off dropout and batch statistics; afterwards the network is as it was."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
