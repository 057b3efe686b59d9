"""Everything random of one epoch of a detector's training, drawn on the host before the epoch begins (DBT-14)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.training.detection.device_slices import DeviceSlices
from elsewhere.training.detection.sampling import SliceTable

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How strongly tiles are changed. Probabilities are per tile.

    Args:
        flip_horizontal: Probability of a flip left to right.
        flip_vertical: Probability of a flip top to bottom.
        rotation: Largest turn in degrees.
        zoom: Smallest and largest factor.
        shear: Largest shear, as a tangent.
        shift: How far from the tile's middle a lesion may lie, as a share of the room it has.
        brightness: Values are multiplied by 1 plus or minus up to this.
        gamma: Values are raised to a power from 1 / (1 + gamma) to 1 + gamma.
        copy_paste: Probability that a lesion of another tile is pasted.
        mosaic: Probability that a tile is put together from four.
    """

    flip_horizontal: float = 0.5
    flip_vertical: float = 0.0
    rotation: float = 10.0
    zoom: tuple[float, float] = (0.8, 1.25)
    shear: float = 0.0
    shift: float = 0.8
    brightness: float = 0.1
    gamma: float = 0.2
    copy_paste: float = 0.0
    mosaic: float = 0.0


NO_AUGMENTATION = Augmentation(
    flip_horizontal=0.0, rotation=0.0, zoom=(1.0, 1.0), shift=0.0, brightness=0.0, gamma=0.0
)


@dataclass(frozen=True, kw_only=True, eq=False)
class EpochDraws:
    """The draws of an epoch, with one row per step and one column per tile of the batch.

    Args:
        sample: (steps, batch) positions in the table.
        matrix: (steps, batch, 2, 3) from tile to stored coordinates.
        flip: (steps, batch, 2) left to right, top to bottom.
        light: (steps, batch, 2) factor and exponent of the values.
        paste: (steps, batch, 4) whether, which tile of the batch, and x and y of the pasted lesion.
        mosaic: (steps, batch, 6) whether, three tiles of the batch, and x and y where four meet.
    """

    sample: IntArray
    matrix: FloatArray
    flip: npt.NDArray[np.bool_]
    light: FloatArray
    paste: FloatArray
    mosaic: FloatArray


def draw_epoch(
    rng: np.random.Generator,
    order: IntArray,
    table: SliceTable,
    slices: DeviceSlices,
    augmentation: Augmentation,
    *,
    batch: int,
    size: tuple[int, int],
) -> EpochDraws:
    """Draw an epoch. The last batch is filled up from the first slices, so that all have one size.

    Args:
        rng: Where draws come from.
        order: Positions in the table, as `draw_order` returns them.
        table: The slices.
        slices: The stored slices, which know how large a case's pixels are.
        augmentation: How strongly tiles are changed.
        batch: Tiles per step.
        size: Height and width of a tile.

    Returns:
        The draws.
    """
    steps = math.ceil(len(order) / batch)
    sample = np.resize(order, steps * batch)
    matrix = np.stack([_place(rng, int(row), table, slices, augmentation, size) for row in sample])
    n = len(sample)
    flip = rng.random((n, 2)) < (augmentation.flip_horizontal, augmentation.flip_vertical)
    factor = rng.uniform(1 - augmentation.brightness, 1 + augmentation.brightness, n)
    exponent = (1 + augmentation.gamma) ** rng.uniform(-1, 1, n)
    place = rng.uniform(0, 1, (n, 4)) * np.tile((size[1], size[0]), 2)
    place[:, 2:] = place[:, 2:] * 0.5 + np.array([size[1], size[0]]) * 0.25
    tiles = rng.integers(0, batch, (n, 4))
    paste = np.column_stack([rng.random(n) < augmentation.copy_paste, tiles[:, :1], place[:, :2]])
    mosaic = np.column_stack([rng.random(n) < augmentation.mosaic, tiles[:, 1:], place[:, 2:]])
    shape = (steps, batch)
    return EpochDraws(
        sample=sample.reshape(shape),
        matrix=matrix.reshape(*shape, 2, 3).astype(np.float32),
        flip=flip.reshape(*shape, 2),
        light=np.column_stack([factor, exponent]).reshape(*shape, 2).astype(np.float32),
        paste=paste.reshape(*shape, 4).astype(np.float32),
        mosaic=mosaic.reshape(*shape, 6).astype(np.float32),
    )


def _place(
    rng: np.random.Generator,
    row: int,
    table: SliceTable,
    slices: DeviceSlices,
    augmentation: Augmentation,
    size: tuple[int, int],
) -> npt.NDArray[np.float64]:
    """Where a tile lies: around its focus or one of the slice's lesions, otherwise anywhere on the breast."""
    case = table.case[row]
    rows, columns = slices.size(case)
    angle = math.radians(rng.uniform(-1, 1) * augmentation.rotation)
    zoom = math.exp(rng.uniform(math.log(augmentation.zoom[0]), math.log(augmentation.zoom[1])))
    shear = rng.uniform(-1, 1) * augmentation.shear
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    linear = turn @ np.array([[1.0, shear], [0.0, 1.0]]) * slices.zoom(case) / zoom
    tile = np.array([size[1], size[0]], dtype=np.float64)
    half = np.abs(linear) @ tile / 2
    lesion = np.flatnonzero(table.label[row] >= 0)
    focus = table.focus[row]
    offset = rng.uniform(-1, 1, 2)
    room = np.array([columns, rows], dtype=np.float64)
    if not np.isnan(focus).any():
        centre = slices.frame[case].to_stored([*focus, *focus])[:2]
        centre = centre + offset * augmentation.shift * half / 4
    elif len(lesion):
        box = slices.frame[case].to_stored(table.box[row, rng.choice(lesion)])
        centre, own = (box[:2] + box[2:]) / 2, (box[2:] - box[:2]) / 2
        centre = centre + offset * augmentation.shift * np.maximum(half - own, 0)
    else:
        low = np.minimum(half, room / 2)
        centre = np.clip((offset + 1) / 2 * room, low, room - low)
    return np.column_stack([linear, centre - linear @ tile / 2])
