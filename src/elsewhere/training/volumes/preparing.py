"""Volumes brought to a plan's form, and held in memory where training reads them.

All cases lie one after the other in one flat tensor, one row per voxel with its channels as columns: a patch
of any case is then one gather with computed addresses, the same graph whatever the cases' sizes. The tensor
is float16 on the GPU where it fits, otherwise float16 in pinned memory, from where the cases of a step are
copied while the previous step runs; float32 on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.errors import TrainingError, UserError
from elsewhere.inputs.volumes import Box, Volumes
from elsewhere.training.volumes.channels import Channels, box_of, read_channels
from elsewhere.training.volumes.planning import Plan, Triple
from elsewhere.training.volumes.resampling import LINEAR, image_orders, resample, resampled_shape

FOREGROUND_KEPT = 10_000
"""The largest number of foreground voxels of a case that patches may be centred on."""
HALF_RANGE = 30_000.0
DEVICE_SHARE = 0.5
"""The share of the GPU's free memory that volumes may take."""


@dataclass(frozen=True, kw_only=True)
class Standard:
    """One case in the plan's form, and the way back to its own grid.

    Attributes:
        image: [channel, x, y, z], z-scored, float32.
        mask: The mask, [x, y, z]; None where there is none.
        box: The part of the case that was used; None: all of it.
        shape: The size of that part in voxels, on the case's own grid.
        zero: Where a raw 0 (air; no enhancement) lies in each channel of `image`.
        note: What a report should say of the case.
    """

    image: torch.Tensor
    mask: torch.Tensor | None
    box: Box | None
    shape: Triple
    zero: tuple[float, ...] = ()
    note: str = ""


def standardise(
    volumes: Volumes,
    case: str,
    plan: Plan,
    channels: Channels,
    *,
    device: torch.device | str = "cpu",
    margin: int = 0,
    box: Box | None = None,
    with_mask: bool = True,
) -> Standard:
    """Crop a case, cut it at percentiles, z-score every phase, and resample.

    Args:
        volumes: Where phases and masks are read.
        case: The name of the case.
        plan: Spacing, crop and percentiles.
        channels: A name out of `CHANNELS`, or numbers of phases.
        device: The device that computes it.
        margin: Voxels around the breast's box.
        box: A box to use instead of the one that is known; None: the known one.
        with_mask: Whether the mask is resampled too.

    Returns:
        The case in the plan's form.

    Raises:
        UserError: A phase or the mask is of another shape than the grid.
    """
    read, note = read_channels(volumes, case, channels)
    grid = volumes.grid(case)
    if any(tuple(volume.shape) != tuple(grid.shape) for volume in read):
        raise UserError(f"a phase of shape {read[0].shape} on a grid of {grid.shape}", where=case)
    kept = box_of(volumes, case, crop=plan.crop, margin=margin, box=box)
    part = (
        (slice(None),) * 3
        if kept is None
        else (slice(kept[0], kept[3]), slice(kept[1], kept[4]), slice(kept[2], kept[5]))
    )
    shape = tuple(int(edge) for edge in read[0][part].shape)
    target = resampled_shape(shape, grid.spacing_mm, plan.spacing_mm)
    orders = image_orders(plan.thick_axis)
    image = torch.empty((len(read), *target), device=device)
    zero = []
    for at, volume in enumerate(read):
        values = torch.from_numpy(np.ascontiguousarray(volume[part])).to(device)
        scored, at_zero = _normalised(values, plan.clip)
        image[at] = resample(scored, target, orders=orders)
        zero.append(at_zero)
    mask = None
    truth = volumes.mask(case) if with_mask else None
    if truth is not None:
        if tuple(truth.shape) != tuple(grid.shape):
            raise UserError(f"a mask of shape {truth.shape} on a grid of {grid.shape}", where=case)
        drawn = torch.from_numpy(np.ascontiguousarray(truth[part])).to(device=device, dtype=torch.float32)
        mask = resample(drawn, target, orders=LINEAR) >= 0.5
    return Standard(
        image=image,
        mask=mask,
        box=kept,
        shape=(shape[0], shape[1], shape[2]),
        zero=tuple(zero),
        note=note,
    )


def _normalised(values: torch.Tensor, clip: tuple[float, float] | None) -> tuple[torch.Tensor, float]:
    """Normalise to mean 0 and standard deviation 1 over the part that is used, and return where 0 went.

    A constant volume becomes 0. What is not a number counts as 0."""
    values = torch.nan_to_num(values.float(), nan=0.0, posinf=0.0, neginf=0.0)
    if clip is not None:
        low, high = percentiles(values, clip)
        values = values.clamp(low, high)
    # In double precision: the sum of 29 million float32 values is not exact enough for a mean.
    mean = float(values.mean(dtype=torch.float64))
    centred = values - mean
    spread = max(float(centred.square().mean(dtype=torch.float64)) ** 0.5, 1e-8)
    return (centred / spread).clamp_(-HALF_RANGE, HALF_RANGE), -mean / spread


def percentiles(values: torch.Tensor, of: Sequence[float]) -> list[float]:
    """Return percentiles of values.

    Args:
        values: Any shape.
        of: The percentiles, 0 to 100.

    Returns:
        One number per percentile.

    Example:
        >>> percentiles(torch.arange(1.0, 101.0), [5, 50])
        [5.0, 50.0]
    """
    flat = values.reshape(-1)
    n = flat.numel()
    ranks = [min(n, max(1, int(np.ceil(n * percent / 100)))) for percent in of]
    if flat.device.type == "cuda":
        ordered = flat.sort().values
        return [float(ordered[rank - 1]) for rank in ranks]
    ordered_np = np.partition(flat.numpy(), [rank - 1 for rank in ranks])
    return [float(ordered_np[rank - 1]) for rank in ranks]


@dataclass(kw_only=True)
class Prepared:
    """The training set in memory.

    Args:
        cases: The names of the cases.
        images: The voxels of all cases, one row per voxel, [voxels, channel].
        masks: The masks of all cases, [voxels], uint8; zeros where a case has no mask.
        offsets: The first row of each case, [cases].
        shapes: The size of each case in voxels, [cases, 3].
        foreground: Indices of foreground voxels of each case, [n, 3]; empty where there are none.
        has_mask: Whether each case has a mask, [cases].
        device: Where training runs; `images` may lie in pinned memory instead.
        notes: What a report should say of the cases.
        left_out: The cases that were left out because they have no mask.
    """

    cases: tuple[str, ...]
    images: torch.Tensor
    masks: torch.Tensor
    offsets: npt.NDArray[np.int64]
    shapes: npt.NDArray[np.int64]
    foreground: list[npt.NDArray[np.int64]]
    has_mask: npt.NDArray[np.bool_]
    device: torch.device
    notes: list[str] = field(default_factory=list)
    left_out: tuple[str, ...] = ()

    @property
    def resident(self) -> bool:
        """Whether the volumes lie on the device."""
        return self.images.device.type == self.device.type

    @property
    def largest(self) -> int:
        """Voxels of the largest case."""
        return int(self.shapes.prod(axis=1).max())

    def index(self, case: str) -> int:
        """Return the position of a case.

        Args:
            case: The name of the case.

        Returns:
            Its position in `cases`.
        """
        return self.cases.index(case)

    def subset(self, cases: Sequence[str]) -> Prepared:
        """Return some of the cases over the same memory: folds share one preparation.

        Args:
            cases: Their names.

        Returns:
            The cases in this preparation's order.
        """
        wanted = set(cases)
        at = [row for row, case in enumerate(self.cases) if case in wanted]
        return Prepared(
            cases=tuple(self.cases[row] for row in at),
            images=self.images,
            masks=self.masks,
            offsets=self.offsets[at],
            shapes=self.shapes[at],
            foreground=[self.foreground[row] for row in at],
            has_mask=self.has_mask[at],
            device=self.device,
        )

    def volume(self, case: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a case as it is stored.

        Args:
            case: The name of the case.

        Returns:
            [channel, x, y, z] and its mask.
        """
        at = self.index(case)
        start, shape = int(self.offsets[at]), tuple(int(edge) for edge in self.shapes[at])
        stop = start + int(np.prod(shape))
        image = self.images[start:stop].reshape(*shape, -1).permute(3, 0, 1, 2)
        return image, self.masks[start:stop].reshape(shape)


def prepare(
    volumes: Volumes,
    cases: Sequence[str],
    plan: Plan,
    channels: Channels,
    *,
    device: str = "cpu",
    margin: int = 0,
    need_mask: bool = True,
    memory: str = "auto",
    progress: Callable[[str, int, int], None] | None = None,
) -> Prepared:
    """Bring every case to the plan's form.

    Args:
        volumes: Where phases and masks are read.
        cases: Their names.
        plan: Spacing, crop and percentiles.
        channels: A name out of `CHANNELS`, or numbers of phases.
        device: Where training runs.
        margin: Voxels around the breast's box.
        need_mask: Whether cases without a mask are left out, with a note; False for pretraining.
        memory: "device", "pinned" or "auto" (the device where half of its free memory holds the set).
        progress: Called with "prepare", how many are done, and how many there are.

    Returns:
        The cases.

    Raises:
        TrainingError: No case has a mask.
    """
    where = torch.device(device)
    on_gpu = where.type == "cuda"
    kind = torch.float16 if on_gpu else torch.float32
    chosen = list(cases)
    shapes = np.array([_shape(volumes, case, plan, margin) for case in chosen], dtype=np.int64)
    sizes = shapes.prod(axis=1)
    offsets = np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)
    total = int(sizes.sum())
    held = where
    if on_gpu and memory != "device":
        free, _ = torch.cuda.mem_get_info(where)
        if memory == "pinned" or total * (2 * plan.channels + 1) > DEVICE_SHARE * free:
            held = torch.device("cpu")
    pinned = on_gpu and held.type == "cpu"
    images = torch.empty((total, plan.channels), dtype=kind, device=held, pin_memory=pinned)
    masks = torch.zeros(total, dtype=torch.uint8, device=held, pin_memory=pinned)
    notes: list[str] = []
    foreground: list[npt.NDArray[np.int64]] = []
    has_mask = np.zeros(len(chosen), dtype=bool)
    for at, case in enumerate(chosen):
        one = standardise(volumes, case, plan, channels, device=where, margin=margin)
        rows = slice(int(offsets[at]), int(offsets[at] + sizes[at]))
        images[rows].copy_(one.image.permute(1, 2, 3, 0).reshape(-1, plan.channels))
        if one.mask is None:
            foreground.append(np.empty((0, 3), dtype=np.int64))
        else:
            masks[rows].copy_(one.mask.reshape(-1))
            has_mask[at] = True
            foreground.append(_places(one.mask))
        if one.note:
            notes.append(f"{case}: {one.note}")
        if progress is not None:
            progress("prepare", at + 1, len(chosen))
    everything = Prepared(
        cases=tuple(chosen),
        images=images,
        masks=masks,
        offsets=offsets,
        shapes=shapes,
        foreground=foreground,
        has_mask=has_mask,
        device=where,
    )
    left_out = tuple(case for case, has in zip(chosen, has_mask, strict=True) if need_mask and not has)
    if len(left_out) == len(chosen):
        raise TrainingError(
            f"none of the {len(cases)} training cases has a mask",
            fix="A segmentation recipe learns from masks: see the reader's column 'mask'.",
        )
    kept = everything.subset([case for case in chosen if case not in set(left_out)])
    kept.notes = notes + [f"{case}: no mask, left out of training" for case in left_out]
    kept.left_out = left_out
    return kept


def _shape(volumes: Volumes, case: str, plan: Plan, margin: int) -> Triple:
    grid = volumes.grid(case)
    box = box_of(volumes, case, crop=plan.crop, margin=margin)
    shape = grid.shape if box is None else (box[3] - box[0], box[4] - box[1], box[5] - box[2])
    return resampled_shape(shape, grid.spacing_mm, plan.spacing_mm)


def _places(mask: torch.Tensor) -> npt.NDArray[np.int64]:
    """Return some of the foreground voxels, evenly over all of them."""
    found = mask.nonzero()
    step = max(1, -(-len(found) // FOREGROUND_KEPT))
    return found[::step].cpu().numpy().astype(np.int64)
