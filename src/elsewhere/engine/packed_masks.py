"""Masks as a store keeps them: the box around what is marked, a bit a voxel.

A mask of 512 x 512 x 110 voxels is 29 MB as bytes; the tumour's box of it, in bits, is some kilobytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from elsewhere.inputs.volumes import Box


@dataclass(frozen=True, kw_only=True)
class PackedMask:
    """One mask: the shape of its grid, the box around it (zeros: it is empty), and the box's bits."""

    shape: tuple[int, int, int]
    box: Box = (0, 0, 0, 0, 0, 0)
    bits: bytes = b""

    @property
    def size(self) -> tuple[int, int, int]:
        """Of the box, in voxels."""
        x0, y0, z0, x1, y1, z1 = self.box
        return x1 - x0, y1 - y0, z1 - z0

    def wrong(self) -> str:
        """What does not fit in it; empty where all does."""
        sides = [(self.box[axis], self.box[axis + 3], self.shape[axis]) for axis in range(3)]
        if any(not 0 <= first <= last <= side for first, last, side in sides):
            return "the box of a mask lies outside its grid"
        if len(self.bits) != -(-int(np.prod(self.size, dtype=np.int64)) // 8):
            return "a mask has other bits than its box"
        return ""

    def unpack(self) -> npt.NDArray[np.bool_]:
        """The whole mask on its grid."""
        mask = np.zeros(self.shape, dtype=np.bool_)
        count = int(np.prod(self.size, dtype=np.int64))
        if count:
            x0, y0, z0, x1, y1, z1 = self.box
            held = np.unpackbits(np.frombuffer(self.bits, dtype=np.uint8), count=count)
            mask[x0:x1, y0:y1, z0:z1] = held.reshape(self.size).astype(np.bool_)
        return mask


def pack_mask(mask: npt.NDArray[np.bool_]) -> PackedMask:
    """A three-dimensional mask, packed."""
    x, y, z = mask.shape
    planes = np.asarray(mask.any(axis=2))
    if not planes.any():
        return PackedMask(shape=(x, y, z))
    # The third axis is looked at inside the other two alone: most of a volume holds no tumour.
    (x0, x1), (y0, y1) = (_ends(np.asarray(planes.any(axis=axis))) for axis in (1, 0))
    z0, z1 = _ends(np.asarray(mask[x0:x1, y0:y1].any(axis=(0, 1))))
    bits = np.packbits(mask[x0:x1, y0:y1, z0:z1]).tobytes()
    return PackedMask(shape=(x, y, z), box=(x0, y0, z0, x1, y1, z1), bits=bits)


def _ends(marked: npt.NDArray[np.bool_]) -> tuple[int, int]:
    places = np.flatnonzero(marked)
    return int(places[0]), int(places[-1]) + 1


def to_arrays(masks: Sequence[PackedMask]) -> dict[str, npt.NDArray[np.generic]]:
    """Many masks as plain arrays, for a .npz without pickles."""
    return {
        "mask_shape": np.array([mask.shape for mask in masks], dtype=np.int32).reshape(-1, 3),
        "mask_box": np.array([mask.box for mask in masks], dtype=np.int32).reshape(-1, 6),
        "mask_bits": np.frombuffer(b"".join(mask.bits for mask in masks), dtype=np.uint8),
        "mask_end": np.cumsum([len(mask.bits) for mask in masks], dtype=np.int64),
    }


def from_arrays(arrays: dict[str, npt.NDArray[np.generic]]) -> tuple[PackedMask, ...] | None:
    """What `to_arrays` gave; None where there is none. Raises ValueError where it does not fit together."""
    if "mask_end" not in arrays:
        return None
    bits = np.asarray(arrays["mask_bits"], dtype=np.uint8).tobytes()
    ends = np.asarray(arrays["mask_end"], dtype=np.int64).tolist()
    shapes, boxes = arrays["mask_shape"].tolist(), arrays["mask_box"].tolist()
    found, start = [], 0
    for shape, box, end in zip(shapes, boxes, ends, strict=True):
        mask = PackedMask(shape=tuple(shape), box=tuple(box), bits=bits[start:end])
        if mask.wrong():
            raise ValueError(mask.wrong())
        found.append(mask)
        start = end
    if start != len(bits):
        raise ValueError("masks have more bits than they say")
    return tuple(found)
