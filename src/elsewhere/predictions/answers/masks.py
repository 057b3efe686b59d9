"""Masks of volumes, stored as the box around what is marked with one bit per voxel.

A mask of 512 x 512 x 110 voxels takes 29 MB as bytes; the box of its tumour, in bits, takes some kilobytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.predictions.answers.base import AnswerKind, AnswerTarget, Rows, register_kind

if TYPE_CHECKING:
    import pandas as pd

Box = tuple[int, int, int, int, int, int]
WRITERS = 8
"""Threads that write masks: compressing one takes longer than writing it."""


@dataclass(frozen=True, kw_only=True)
class PackedMask:
    """One mask of a volume: its grid, the box around what is marked, and one bit per voxel of the box.

    Args:
        shape: The shape of the whole grid, in voxels.
        box: x0, y0, z0, x1, y1, z1, half-open, in voxels; all zero where the mask is empty.
        bits: The voxels of the box as `numpy.packbits` packs them.

    Example:
        >>> mask = np.zeros((4, 4, 4), dtype=bool)
        >>> mask[1, 2, 3] = True
        >>> pack_mask(mask).box
        (1, 2, 3, 2, 3, 4)
    """

    shape: tuple[int, int, int]
    box: Box = (0, 0, 0, 0, 0, 0)
    bits: bytes = b""

    @property
    def size(self) -> tuple[int, int, int]:
        """The size of the box, in voxels."""
        x0, y0, z0, x1, y1, z1 = self.box
        return x1 - x0, y1 - y0, z1 - z0

    def wrong(self) -> str:
        """Describe what does not fit together in the mask.

        Returns:
            A clause for a message; empty where everything fits.
        """
        sides = [(self.box[axis], self.box[axis + 3], self.shape[axis]) for axis in range(3)]
        if any(not 0 <= first <= last <= side for first, last, side in sides):
            return "the box of a mask lies outside its grid"
        if len(self.bits) != -(-int(np.prod(self.size, dtype=np.int64)) // 8):
            return "a mask has other bits than its box"
        return ""

    def unpack(self) -> npt.NDArray[np.bool_]:
        """Restore the whole mask on its grid.

        Returns:
            True where a voxel is marked.
        """
        mask = np.zeros(self.shape, dtype=np.bool_)
        count = int(np.prod(self.size, dtype=np.int64))
        if count:
            x0, y0, z0, x1, y1, z1 = self.box
            held = np.unpackbits(np.frombuffer(self.bits, dtype=np.uint8), count=count)
            mask[x0:x1, y0:y1, z0:z1] = held.reshape(self.size).astype(np.bool_)
        return mask


def pack_mask(mask: npt.NDArray[np.bool_]) -> PackedMask:
    """Pack a three-dimensional mask.

    Args:
        mask: True where a voxel is marked.

    Returns:
        The packed mask; nothing of it is shared with the array.

    Example:
        >>> mask = np.ones((2, 3, 4), dtype=bool)
        >>> bool((pack_mask(mask).unpack() == mask).all())
        True
    """
    x, y, z = mask.shape
    planes = np.asarray(mask.any(axis=2))
    if not planes.any():
        return PackedMask(shape=(x, y, z))
    # The third axis is searched inside the other two only: most of a volume holds no tumour.
    (x0, x1), (y0, y1) = (_ends(np.asarray(planes.any(axis=axis))) for axis in (1, 0))
    z0, z1 = _ends(np.asarray(mask[x0:x1, y0:y1].any(axis=(0, 1))))
    bits = np.packbits(mask[x0:x1, y0:y1, z0:z1]).tobytes()
    return PackedMask(shape=(x, y, z), box=(x0, y0, z0, x1, y1, z1), bits=bits)


def _ends(marked: npt.NDArray[np.bool_]) -> tuple[int, int]:
    places = np.flatnonzero(marked)
    return int(places[0]), int(places[-1]) + 1


@dataclass(frozen=True, kw_only=True)
class Masks:
    """One mask per case, each on its case's own grid.

    Args:
        masks: The packed mask of each case.

    Example:
        >>> len(Masks(masks=(PackedMask(shape=(4, 4, 4)),)))
        1
    """

    kind: ClassVar[str] = "masks"
    masks: tuple[PackedMask, ...]

    def __len__(self) -> int:
        return len(self.masks)


@register_kind
class MaskKind(AnswerKind):
    """The answer kind 'masks'."""

    name = Masks.kind
    truth: ClassVar[str] = "mask"
    own_folder: ClassVar[bool] = True

    def one(self, value: Any, *, shape: tuple[int, ...] | None = None) -> PackedMask:
        found = np.asarray(value)
        if shape is not None and found.shape != shape:
            raise ValueError(f"has the shape {found.shape}, and the case {shape}")
        if found.ndim != 3:
            raise ValueError(f"has {found.ndim} dimensions, not 3")
        if found.dtype != np.bool_:
            raise ValueError(f"is of {found.dtype}, not of bool")
        return pack_mask(found)

    def gather(self, values: Sequence[PackedMask]) -> Masks:
        return Masks(masks=tuple(values))

    def check(self, answers: Any, n: int) -> str:
        if not isinstance(answers, Masks):
            return f"its answers are of {type(answers).__name__}, and not masks"
        if len(answers.masks) != n:
            return "the recipe gave no mask for each predicted case"
        return next((mask.wrong() for mask in answers.masks if mask.wrong()), "")

    def pack(self, answers: Masks) -> dict[str, npt.NDArray[Any]]:
        masks = answers.masks
        return {
            "mask_shape": np.array([mask.shape for mask in masks], dtype=np.int32).reshape(-1, 3),
            "mask_box": np.array([mask.box for mask in masks], dtype=np.int32).reshape(-1, 6),
            "mask_bits": np.frombuffer(b"".join(mask.bits for mask in masks), dtype=np.uint8),
            "mask_end": np.cumsum([len(mask.bits) for mask in masks], dtype=np.int64),
        }

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Masks:
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
        return Masks(masks=tuple(found))

    def take(self, answers: Masks, rows: Rows) -> Masks:
        return Masks(masks=tuple(answers.masks[row] for row in rows.tolist()))

    def join(self, first: Masks, second: Masks) -> Masks:
        return Masks(masks=(*first.masks, *second.masks))

    def table(self, answers: Masks, ids: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame({"case_id": list(ids), "path": list(self.files(ids))})

    def write(self, answers: Masks, target: AnswerTarget) -> str:
        def write_one(at: int) -> None:
            file = target.folder / mask_file_name(target.ids[at])
            target.source.write_mask(file, answers.masks[at].unpack(), like=target.names[at])

        with ThreadPoolExecutor(min(WRITERS, os.cpu_count() or 1)) as pool:
            list(pool.map(write_one, range(len(answers))))
        return ""

    def files(self, ids: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(mask_file_name, ids))


def mask_file_name(case_id: str, ending: str = ".nii.gz") -> str:
    """Return the file name of a case's mask.

    What a file name cannot hold, such as `/`, is percent-encoded.

    Args:
        case_id: The cohort's case id.
        ending: The ending of the file, with its dot.

    Returns:
        The name.

    Example:
        >>> mask_file_name("DBT-S00163/rmlo")
        'DBT-S00163%2Frmlo.nii.gz'
    """
    for character in ("%", "/", "\\", "\0"):
        case_id = case_id.replace(character, f"%{ord(character):02X}")
    return case_id + ending
