"""Prediction: a window slides over the volume, Gaussian weights join them, mirrored copies are averaged.

Logits are averaged over windows, mirrors and networks, as nnU-Net does; probabilities (not labels) go back to
the case's own grid. Windows in which there is nothing but air are skipped: blocks of 8 voxels a side whose
mean distance from a raw 0 is under 5 % of the volume's 99th percentile, in every channel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from elsewhere.inputs.volumes import Box, Volumes
from elsewhere.training.cuda import fixed_shapes, mixed_precision
from elsewhere.training.volumes.channels import Channels
from elsewhere.training.volumes.networks import layout_of
from elsewhere.training.volumes.planning import Plan, Triple
from elsewhere.training.volumes.preparing import Standard, standardise
from elsewhere.training.volumes.resampling import LINEAR, resample

OVERLAP = 0.5
SIGMA = 1 / 8
"""Of the Gaussian, in edges of the patch."""
BLOCK = 8
AIR = 0.05


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A prediction on the case's own grid.

    Attributes:
        probability: [x, y, z] on the device; 0 outside the part that was processed.
        windows: Windows that were computed.
        skipped: Windows that held nothing but air.
        note: What a report should say of the case.
    """

    probability: torch.Tensor
    windows: int
    skipped: int
    note: str = ""

    def mask(self, threshold: float = 0.5) -> npt.NDArray[np.bool_]:
        """Return the voxels whose probability is above a threshold.

        Args:
            threshold: The probability above which a voxel belongs to the tumour.

        Returns:
            [x, y, z].
        """
        return (self.probability > threshold).cpu().numpy()


def window_starts(size: int, edge: int, overlap: float = OVERLAP) -> list[int]:
    """Return where windows start: even steps of at most (1 - overlap) windows that reach both ends.

    Args:
        size: Voxels along the axis.
        edge: The edge of a window in voxels.
        overlap: The overlap of two neighbouring windows, as a share of a window.

    Returns:
        First voxels.

    Example:
        >>> window_starts(10, 4)
        [0, 2, 4, 6]
    """
    if size <= edge:
        return [0]
    step = edge * (1 - overlap)
    steps = int(np.ceil((size - edge) / step)) + 1
    return [round(at * (size - edge) / (steps - 1)) for at in range(steps)]


@lru_cache(maxsize=16)
def gaussian(patch: Triple) -> npt.NDArray[np.float32]:
    """Return the weights of a window: 1 at its centre, never 0.

    Args:
        patch: Edges of the window.

    Returns:
        [x, y, z].
    """
    axes = []
    for edge in patch:
        at = (np.arange(edge) - (edge - 1) / 2) / max(edge * SIGMA, 1e-9)
        axes.append(np.exp(-0.5 * at**2))
    weights = axes[0][:, None, None] * axes[1][None, :, None] * axes[2][None, None, :]
    return np.maximum(weights / weights.max(), 1e-4).astype(np.float32)


def mirrors(patch: Triple, *, mirror: bool) -> list[tuple[int, ...]]:
    """Return the axes to mirror, of [batch, channel, x, y, z]; the empty set first.

    Args:
        patch: Edges; an axis of one voxel is not mirrored.
        mirror: False: the empty set alone.

    Returns:
        Sets of axes.

    Example:
        >>> mirrors((8, 8, 1), mirror=True)
        [(), (2,), (3,), (2, 3)]
    """
    axes = [axis + 2 for axis in range(3) if patch[axis] > 1]
    if not mirror:
        return [()]
    return [chosen for n in range(len(axes) + 1) for chosen in itertools.combinations(axes, n)]


def occupied(image: torch.Tensor, zero: Sequence[float]) -> npt.NDArray[np.bool_]:
    """Find the blocks that hold more than air.

    Args:
        image: [channel, x, y, z].
        zero: Where a raw 0 lies in each channel.

    Returns:
        One value per block of `BLOCK` voxels along each axis.
    """
    raw = torch.tensor(list(zero) or [0.0] * len(image), device=image.device)[:, None, None, None]
    edges = [min(BLOCK, size) for size in image.shape[1:]]
    blocks = functional.avg_pool3d((image - raw).abs()[None], edges, edges, ceil_mode=True)[0]
    flat = blocks.reshape(len(image), -1)
    high = flat.sort(dim=1).values[:, int(0.99 * (flat.shape[1] - 1))]
    return (blocks > AIR * high[:, None, None, None]).any(dim=0).cpu().numpy()


@torch.no_grad()
def sliding_logits(
    networks: Sequence[torch.nn.Module],
    image: torch.Tensor,
    patch: Triple,
    *,
    mirror: bool = True,
    overlap: float = OVERLAP,
    batch: int = 2,
    keep: npt.NDArray[np.bool_] | None = None,
    compiled: bool = False,
) -> tuple[torch.Tensor, int, int]:
    """Slide a window over a volume and average the logits of all windows, mirror images and networks.

    Args:
        networks: At least one.
        image: [channel, x, y, z].
        patch: Edges of the window.
        mirror: Average over mirror images.
        overlap: The overlap of two neighbouring windows, as a share of a window.
        batch: Windows at the same time.
        keep: Blocks from `occupied`; windows without any are skipped. None: all windows are computed.
        compiled: Use torch.compile on a GPU.

    Returns:
        Mean logits [x, y, z], -inf where no window lay; how many windows were computed, and how many skipped.

    Raises:
        ValueError: There is no network.
    """
    shape = image.shape[1:]
    device = image.device
    on_gpu = device.type == "cuda"
    missing = [max(0, edge - size) for edge, size in zip(patch, shape, strict=True)]
    before = [gap // 2 for gap in missing]
    padding = [p for axis in (2, 1, 0) for p in (before[axis], missing[axis] - before[axis])]
    padded = functional.pad(image, padding) if any(missing) else image
    if on_gpu:
        padded = padded.half()
    wide = padded.shape[1:]
    starts = list(itertools.product(*(window_starts(wide[axis], patch[axis], overlap) for axis in range(3))))
    used = [start for start in starts if keep is None or _holds(keep, start, before, patch)]
    weights = torch.from_numpy(gaussian(patch)).to(device)
    total = torch.zeros(wide, device=device)
    share = torch.zeros(wide, device=device)
    turns = mirrors(patch, mirror=mirror)
    forwards = [forward_of(network, compiled and on_gpu) for network in networks]
    batch = max(1, min(batch, len(used)))
    for network in networks:
        network.eval()
    layout = layout_of(networks[0])
    with mixed_precision(device, cache=True), fixed_shapes(on_gpu):
        for first in range(0, len(used), batch):
            chosen = used[first : first + batch]
            # A compiled network has one shape: the last batch is filled up.
            filled = chosen + chosen[-1:] * (batch - len(chosen) if on_gpu else 0)
            x = torch.stack([padded[(slice(None), *_part(start, patch))] for start in filled]).float()
            out: torch.Tensor | None = None
            for turn in turns:
                turned = x.flip(turn) if turn else x
                turned = turned.contiguous(memory_format=layout)
                for forward in forwards:
                    logits = forward(turned).float()
                    logits = logits.flip(turn) if turn else logits
                    out = logits if out is None else out + logits
            if out is None:
                raise ValueError("there is no network")
            out = out[:, 0] * (weights / (len(turns) * len(forwards)))
            for start, values in zip(chosen, out, strict=False):
                part = _part(start, patch)
                total[part] += values
                share[part] += weights
    mean = torch.where(share > 0, total / share.clamp_min(1e-12), float("-inf"))
    inner = tuple(slice(a, a + size) for a, size in zip(before, shape, strict=True))
    return mean[inner], len(used), len(starts) - len(used)


def _part(start: Sequence[int], patch: Triple) -> tuple[slice, ...]:
    return tuple(slice(at, at + edge) for at, edge in zip(start, patch, strict=True))


def _holds(keep: npt.NDArray[np.bool_], start: Sequence[int], before: Sequence[int], patch: Triple) -> bool:
    part = tuple(
        slice(max(0, at - gap) // BLOCK, -(-(at - gap + edge) // BLOCK))
        for at, gap, edge in zip(start, before, patch, strict=True)
    )
    return bool(keep[part].any())


def forward_of(network: torch.nn.Module, compiled: bool) -> Any:
    """Return a network's forward pass, compiled once where asked for.

    Args:
        network: The network; it keeps its compiled forward pass.
        compiled: False: the network itself.

    Returns:
        A function from images to logits.
    """
    if not compiled:
        return network
    # Stored with the network, and freed with it; in its dict, because a module would register it as its part.
    if "_compiled_forward" not in network.__dict__:
        network.__dict__["_compiled_forward"] = torch.compile(network.forward, dynamic=False)
    return network.__dict__["_compiled_forward"]


def predict(
    networks: torch.nn.Module | Sequence[torch.nn.Module],
    volumes: Volumes,
    case: str,
    plan: Plan,
    channels: Channels,
    *,
    device: str = "cpu",
    mirror: bool = True,
    overlap: float = OVERLAP,
    batch: int = 2,
    margin: int = 0,
    box: Box | None = None,
    skip_air: bool = True,
    compiled: bool = False,
) -> Predicted:
    """Predict the tumour's probability on the case's own grid.

    Args:
        networks: One, or several whose logits are averaged.
        volumes: Where phases are read.
        case: The name of the case.
        plan: The plan that the networks were built from.
        channels: A name out of `CHANNELS`, or numbers of phases.
        device: "cpu", "cuda" or "cuda:N".
        mirror: Average over mirror images.
        overlap: The overlap of two neighbouring windows, as a share of a window.
        batch: Windows at the same time.
        margin: Voxels around the breast's box.
        box: Another box than the one that is known.
        skip_air: Skip windows that hold nothing but air.
        compiled: Use torch.compile on a GPU.

    Returns:
        The prediction.
    """
    members = [networks] if isinstance(networks, torch.nn.Module) else list(networks)
    one = standardise(volumes, case, plan, channels, device=device, margin=margin, box=box, with_mask=False)
    probability, windows, skipped = probabilities(
        members,
        one,
        plan,
        mirror=mirror,
        overlap=overlap,
        batch=batch,
        skip_air=skip_air,
        compiled=compiled,
    )
    whole = volumes.grid(case).shape
    return Predicted(
        probability=to_case_grid(probability, one, whole), windows=windows, skipped=skipped, note=one.note
    )


def probabilities(
    networks: Sequence[torch.nn.Module],
    one: Standard,
    plan: Plan,
    *,
    mirror: bool = True,
    overlap: float = OVERLAP,
    batch: int = 2,
    skip_air: bool = True,
    compiled: bool = False,
) -> tuple[torch.Tensor, int, int]:
    """Predict the tumour's probability on the plan's grid.

    Args:
        networks: At least one.
        one: The case in the plan's form.
        plan: The plan that the networks were built from.
        mirror: Average over mirror images.
        overlap: The overlap of two neighbouring windows, as a share of a window.
        batch: Windows at the same time.
        skip_air: Skip windows that hold nothing but air.
        compiled: Use torch.compile on a GPU.

    Returns:
        Probabilities [x, y, z]; how many windows were computed, and how many skipped.
    """
    keep = occupied(one.image, one.zero) if skip_air else None
    logits, windows, skipped = sliding_logits(
        networks,
        one.image,
        plan.patch,
        mirror=mirror,
        overlap=overlap,
        batch=batch,
        keep=keep,
        compiled=compiled,
    )
    return torch.sigmoid(logits), windows, skipped


def to_case_grid(probability: torch.Tensor, one: Standard, shape: Triple) -> torch.Tensor:
    """Bring a prediction from the plan's grid to the case's own, into the place of the part that was used.

    Args:
        probability: On the plan's grid.
        one: The case in the plan's form.
        shape: The size of the case's own grid in voxels.

    Returns:
        [x, y, z].
    """
    own = resample(probability, one.shape, orders=LINEAR)
    if one.box is None:
        return own
    out = torch.zeros(shape, device=own.device)
    x0, y0, z0, x1, y1, z1 = one.box
    out[x0:x1, y0:y1, z0:z1] = own
    return out
