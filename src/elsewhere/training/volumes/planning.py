"""What the training set looks like, and what follows from it: spacing, patch, pooling, batch (MRI-13).

The rules are those that nnU-Net publishes (Isensee et al., Nature Methods 2021, and its ResEnc-L preset of
2024); the code is ours. Only headers are read for all cases; intensities are read of a few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from elsewhere.errors import TrainingError, UserError
from elsewhere.inputs.volumes import Volumes
from elsewhere.training.volumes.channels import Channels, box_of, channel_count, read_channels

Triple = tuple[int, int, int]
Spacing = tuple[float, float, float]

ANISOTROPY = 3.0
"""A voxel this many times longer one way than the others is treated as thick slices."""
SHORTEST_EDGE = 4
"""Of a feature map at the bottom of the network."""
REFERENCE_VALUES, REFERENCE_GB, REFERENCE_BATCH = 2.1e9, 24.0, 2
"""nnU-Net's ResEnc-L: feature-map values of one patch that a 24 GB GPU trains with two patches per step."""
FIRST_VOXELS = 256**3
"""The patch starts as a cube of this many voxels in mm space, and shrinks until it fits."""
BLOCKS = (1, 3, 4, 6, 6, 6, 6, 6, 6, 6)
"""Residual blocks a stage of the encoder."""
LARGEST_SHARE = 1.0
"""A step sees at most this share of the training set's voxels, if that leaves two patches: all of them in the
ResEnc presets, a twentieth in the plain one."""
SMALL_SHARE = 0.25
"""A patch under this share of the median volume sees little of what is not tumour: Dice is then taken over
the batch (nnU-Net does so where it plans a second, coarser network, by the same share)."""
SAMPLED_CASES, SAMPLED_VOXELS = 32, 10_000


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What a training set looks like.

    Attributes:
        spacings: The voxel size of every case in mm.
        shapes: Voxels of every case, after the crop where there is one.
        foreground: Per channel: mean, sd and percentiles 0.5, 50, 99.5 inside the masks of the cases that
            were sampled.
    """

    spacings: tuple[Spacing, ...]
    shapes: tuple[Triple, ...]
    foreground: tuple[Mapping[str, float], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Summarise the fingerprint for the report.

        Returns:
            Plain values.
        """
        spacing, shape = np.array(self.spacings), np.array(self.shapes)
        return {
            "cases": len(self.spacings),
            "median_spacing_mm": np.median(spacing, axis=0).round(4).tolist(),
            "median_shape": np.median(shape, axis=0).tolist(),
            "smallest_shape": shape.min(axis=0).tolist(),
            "largest_shape": shape.max(axis=0).tolist(),
            "foreground": [dict(entry) for entry in self.foreground],
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How volumes are brought to one form, and the network that reads them.

    Attributes:
        spacing_mm: All volumes are resampled to it.
        patch: Edges in voxels.
        batch: Patches per step.
        strides: One per stage; the first is all ones.
        kernels: One per stage.
        widths: Channels, one per stage.
        blocks: Residual blocks of the encoder, one per stage.
        channels: Channels of the input.
        clip: Percentiles that a channel is cut at before its z-score; None: none.
        crop: "none" or "breast": to the breast's box before anything else.
        thick_axis: Where slices are thick: neighbours are not mixed across them when resampling.
        median_shape: The median size of the training set in voxels, at `spacing_mm`.
        batch_dice: Whether one Dice is computed over all patches of a step, instead of one per patch.
    """

    spacing_mm: Spacing
    patch: Triple
    batch: int
    strides: tuple[Triple, ...]
    kernels: tuple[Triple, ...]
    widths: tuple[int, ...]
    blocks: tuple[int, ...]
    channels: int
    clip: tuple[float, float] | None = None
    crop: str = "none"
    thick_axis: int | None = None
    median_shape: Spacing = (0.0, 0.0, 0.0)
    batch_dice: bool = False

    def __post_init__(self) -> None:
        if not len(self.strides) == len(self.kernels) == len(self.widths) == len(self.blocks):
            raise ValueError("a plan has strides, kernels, widths and blocks for every stage")
        for axis in range(3):
            if self.patch[axis] % self.divisor[axis]:
                raise ValueError(f"patch {self.patch} is not divisible by {self.divisor}")

    @property
    def divisor(self) -> Triple:
        """What the network divides the edges of a patch by."""
        x, y, z = (math.prod(stride[axis] for stride in self.strides) for axis in range(3))
        return (x, y, z)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain values.

        Returns:
            One entry per field.
        """
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Plan:
        """Read what `as_json` returned, also after lists took the place of tuples.

        Args:
            content: One entry per field.

        Returns:
            The plan.
        """

        def tuples(value: Any) -> Any:
            return tuple(tuples(part) for part in value) if isinstance(value, list | tuple) else value

        return cls(**{name: tuples(value) for name, value in content.items()})


def fingerprint(
    volumes: Volumes, cases: Sequence[str], channels: Channels, *, crop: str = "none"
) -> Fingerprint:
    """Measure a training set.

    Spacings and shapes of all cases come from their headers, intensities from inside the masks of some cases.

    Args:
        volumes: Grids, phases and masks.
        cases: The training part.
        channels: A name out of `CHANNELS`, or numbers of phases.
        crop: "none" or "breast".

    Returns:
        The fingerprint.

    Raises:
        TrainingError: There is no case.
    """
    if not cases:
        raise TrainingError(
            "there is no case to train on",
            fix="A segmentation recipe needs cases with a mask in the training part.",
        )
    grids = [volumes.grid(case) for case in cases]
    shapes = []
    for case, grid in zip(cases, grids, strict=True):
        box = box_of(volumes, case, crop=crop)
        shapes.append(grid.shape if box is None else (box[3] - box[0], box[4] - box[1], box[5] - box[2]))
    values: list[list[np.ndarray]] = [[] for _ in range(channel_count(channels))]
    step = max(1, len(cases) // SAMPLED_CASES)
    for case in list(cases)[::step][:SAMPLED_CASES]:
        mask = volumes.mask(case)
        if mask is None or not mask.any():
            continue
        at = np.flatnonzero(mask)
        at = at[:: max(1, len(at) // SAMPLED_VOXELS)]
        for channel, volume in enumerate(read_channels(volumes, case, channels)[0]):
            values[channel].append(np.asarray(volume).ravel()[at])
    return Fingerprint(
        spacings=tuple(grid.spacing_mm for grid in grids),
        shapes=tuple(shapes),
        foreground=tuple(_statistics(np.concatenate(entry)) for entry in values if entry),
    )


def _statistics(values: np.ndarray) -> dict[str, float]:
    low, middle, high = np.percentile(values, (0.5, 50, 99.5))
    return {
        "mean": float(values.mean()),
        "sd": float(values.std()),
        "p0.5": float(low),
        "median": float(middle),
        "p99.5": float(high),
    }


def target_spacing(spacings: Sequence[Spacing], shapes: Sequence[Triple]) -> Spacing:
    """Return the spacing that all volumes are resampled to: the median along each axis.

    Where slices are thick and few, the thick axis takes the tenth percentile instead, so that not too much is
    interpolated away.

    Args:
        spacings: The voxel size of every case in mm.
        shapes: The size of every case in voxels.

    Returns:
        x, y, z in mm.

    Example:
        >>> target_spacing([(1.0, 1.0, 2.0)] * 3, [(64, 64, 32)] * 3)
        (1.0, 1.0, 2.0)
    """
    known = np.array(spacings, dtype=float)
    middle = np.median(known, axis=0)
    size = np.median(np.array(shapes, dtype=float), axis=0)
    thick = int(np.argmax(middle))
    others = [axis for axis in range(3) if axis != thick]
    if (
        middle[thick] > ANISOTROPY * max(middle[others])
        and size[thick] * ANISOTROPY < min(size[others])
        and size[thick] > 1
    ):
        middle[thick] = max(np.percentile(known[:, thick], 10), max(middle[others]) + 1e-5)
    x, y, z = (float(value) for value in middle)
    return (x, y, z)


def pooling(spacing: Spacing, patch: Triple) -> tuple[tuple[Triple, ...], tuple[Triple, ...], Triple]:
    """Return strides and kernels of every stage, and the patch made divisible.

    An axis is halved while its feature map keeps four voxels and its voxels are within twice of the finest
    axis's; a kernel is one wide along an axis that is coarser than that, and three from then on. An axis of
    one voxel is never pooled nor convolved along.

    Args:
        spacing: In mm.
        patch: Edges in voxels.

    Returns:
        Strides, kernels, and the patch.
    """
    flat = tuple(edge == 1 for edge in patch)
    now, size = list(spacing), list(patch)
    strides: list[Triple] = [(1, 1, 1)]
    kernels: list[Triple] = []
    wide = [False, False, False]
    while True:
        able = [axis for axis in range(3) if size[axis] >= 2 * SHORTEST_EDGE]
        if not able:
            break
        finest = min(now[axis] for axis in able)
        able = [axis for axis in able if now[axis] / finest < 2]
        if len(able) == 1 and size[able[0]] < 3 * SHORTEST_EDGE:
            break
        finest = min(now[axis] for axis in range(3) if not flat[axis])
        for axis in range(3):
            wide[axis] = wide[axis] or now[axis] / finest < 2
        kernels.append(_kernel(wide, flat))
        strides.append(_triple(2 if axis in able else 1 for axis in range(3)))
        for axis in able:
            now[axis] *= 2
            size[axis] = math.ceil(size[axis] / 2)
    kernels.append(_kernel([True] * 3, flat))
    divisor = [math.prod(stride[axis] for stride in strides) for axis in range(3)]
    whole = _triple(math.ceil(patch[axis] / divisor[axis]) * divisor[axis] for axis in range(3))
    return tuple(strides), tuple(kernels), whole


def _triple(values: Any) -> Triple:
    x, y, z = (int(value) for value in values)
    return (x, y, z)


def _kernel(wide: Sequence[bool], flat: Sequence[bool]) -> Triple:
    return _triple(3 if w and not f else 1 for w, f in zip(wide, flat, strict=True))


def feature_values(
    patch: Triple, strides: Sequence[Triple], widths: Sequence[int], blocks: Sequence[int]
) -> int:
    """Return how many values all feature maps of one patch have in a residual-encoder U-Net.

    Training keeps them in memory.

    Args:
        patch: Edges in voxels.
        strides: One per stage.
        widths: One per stage.
        blocks: One per stage.

    Returns:
        Their number.
    """
    size = np.array(patch)
    total = int(np.prod(size)) * widths[0]
    sizes = []
    for stage, stride in enumerate(strides):
        size = size // np.array(stride)
        here = int(np.prod(size)) * widths[stage]
        total += 2 * here * blocks[stage]
        sizes.append(size)
    for stage in range(len(strides) - 1):
        # the transposed convolution, the convolution after it, and the head of deep supervision
        total += int(np.prod(sizes[stage])) * (2 * widths[stage] + 1)
    return total


def make_plan(
    known: Fingerprint,
    channels: Channels,
    *,
    memory_gb: float = REFERENCE_GB,
    spacing_mm: Sequence[float] = (),
    patch: Sequence[int] = (),
    batch: int = 0,
    widths: Sequence[int] = (),
    blocks: Sequence[int] = (),
    base_width: int = 32,
    largest_width: int = 320,
    clip: tuple[float, float] | None = None,
    crop: str = "none",
) -> Plan:
    """Plan spacing, patch, network and batch, in the order of nnU-Net.

    A value that is given is used as it is.

    Args:
        known: The fingerprint of the training set.
        channels: A name out of `CHANNELS`, or numbers of phases.
        memory_gb: The GPU memory in GB that the plan has to fit.
        spacing_mm: Empty: `target_spacing`.
        patch: Empty: as large as fits; a given one is made divisible by the pooling.
        batch: 0: as many patches as fit.
        widths: Empty: doubled at every stage; given, they also limit the number of stages.
        blocks: Empty: nnU-Net's ResEnc.
        base_width: Channels of the first stage.
        largest_width: The largest number of channels of a stage.
        clip: Percentiles that a channel is cut at; None: none.
        crop: "none" or "breast".

    Returns:
        The plan.

    Raises:
        UserError: The patch or the spacing is not three numbers above 0.
    """
    spacing = _spacing(spacing_mm) if len(spacing_mm) else target_spacing(known.spacings, known.shapes)
    shapes = [
        [max(1, round(edge * own / new)) for edge, own, new in zip(shape, grid, spacing, strict=True)]
        for shape, grid in zip(known.shapes, known.spacings, strict=True)
    ]
    median = np.median(np.array(shapes, dtype=float), axis=0)
    depth = len(widths) or 99

    def network(edges: Triple) -> tuple[tuple[Triple, ...], tuple[Triple, ...], Triple, tuple[int, ...]]:
        strides, kernels, whole = pooling(spacing, edges)
        if len(strides) > depth:
            strides, kernels = strides[:depth], kernels[:depth]
            divisor = [math.prod(stride[axis] for stride in strides) for axis in range(3)]
            whole = _triple(math.ceil(edges[axis] / divisor[axis]) * divisor[axis] for axis in range(3))
        wide = tuple(widths[: len(strides)]) or tuple(
            min(base_width * 2**stage, largest_width) for stage in range(len(strides))
        )
        return strides, kernels, whole, wide

    def blocks_of(stages: int) -> tuple[int, ...]:
        chosen = tuple(blocks) or BLOCKS
        return (chosen + (chosen[-1],) * stages)[:stages]

    if len(patch):
        if len(patch) != 3 or min(patch) < 1:
            raise UserError(f"patch must be three edges in voxels, not {tuple(patch)}")
        # An axis of single slices stays one: a longer patch would convolve nothing but padding.
        edges = _triple(1 if median[axis] <= 1 else patch[axis] for axis in range(3))
    else:
        ideal = 1.0 / np.array(spacing)
        ideal *= (FIRST_VOXELS / np.prod(ideal)) ** (1 / 3)
        edges = _triple(max(1, min(round(ideal[axis]), int(median[axis]))) for axis in range(3))
    if max(edges) == 1:
        # A norm over one voxel is undefined.
        edges = (SHORTEST_EDGE, SHORTEST_EDGE, 1)
    strides, kernels, edges, wide = network(edges)
    limit = REFERENCE_VALUES * memory_gb / REFERENCE_GB
    while not len(patch) and feature_values(edges, strides, wide, blocks_of(len(strides))) > limit:
        axis = int(np.argmax(np.array(edges) / median))
        divisor = math.prod(stride[axis] for stride in strides)
        if edges[axis] <= divisor:
            break
        smaller = list(edges)
        smaller[axis] -= divisor
        finer = math.prod(stride[axis] for stride in network(_triple(smaller))[0])
        smaller[axis] = edges[axis] - finer
        strides, kernels, edges, wide = network(_triple(smaller))
    if not batch:
        fits = limit / feature_values(edges, strides, wide, blocks_of(len(strides))) * REFERENCE_BATCH
        voxels = float(np.prod(median)) * len(known.shapes)
        most = round(LARGEST_SHARE * voxels / math.prod(edges))
        batch = max(REFERENCE_BATCH, min(round(fits), most))
    thick = int(np.argmax(spacing))
    rest = [spacing[axis] for axis in range(3) if axis != thick]
    return Plan(
        spacing_mm=spacing,
        patch=edges,
        batch=batch,
        strides=strides,
        kernels=kernels,
        widths=wide,
        blocks=blocks_of(len(strides)),
        channels=channel_count(channels),
        clip=clip,
        crop=crop,
        thick_axis=thick if spacing[thick] > ANISOTROPY * max(rest) else None,
        median_shape=(float(median[0]), float(median[1]), float(median[2])),
        batch_dice=math.prod(edges) < SMALL_SHARE * float(np.prod(median)),
    )


def _spacing(values: Sequence[float]) -> Spacing:
    if len(values) != 3 or min(values) <= 0:
        raise UserError(f"spacing_mm must be three lengths above 0, not {tuple(values)}")
    return (float(values[0]), float(values[1]), float(values[2]))
