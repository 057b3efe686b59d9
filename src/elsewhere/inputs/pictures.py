"""Pictures, decoded once: from their files, or from packs that travel to another machine.

A pack is one .npz a dataset that holds the picture files as they are (any format Pillow reads), so that
the pixels are the same on both machines and nothing is re-encoded.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.source import LESION_BOX, MASK, CaseRow, sources

if TYPE_CHECKING:
    from elsewhere.inputs.cases import Cases

BOX_COLUMNS = ("box_x0", "box_y0", "box_x1", "box_y1")
"""Of a cohort: half-open, in pixels of the picture."""
GreyPicture = npt.NDArray[np.uint8]


class BadPictureError(Exception):
    """A picture that cannot be decoded: which, and why."""

    def __init__(self, case: str, where: str, why: str) -> None:
        self.case, self.where, self.why = case, where, why
        super().__init__(f"{case} ({where}): {why}")


class PicturesView:
    """What a recipe is shown of pictures: those of its own training, without the masks of what is only predicted.

    What they are kept in is no attribute of it.

    Args:
        held: All pictures.
        cases: The cases that may be asked for.
        hidden: Those of them whose masks are not shown.
    """

    __slots__ = ("_ask",)
    _ask: Callable[..., Any]

    def __init__(self, held: Pictures, *, cases: frozenset[str], hidden: frozenset[str]) -> None:
        def ask(what: str, case: str, *more: Any) -> Any:
            if what == "__contains__":
                return case in cases and case in held
            if what not in _ASKED:
                raise AttributeError(what)
            if case not in cases:
                raise KeyError(f"'{case}' is not a case of this training")
            if case in hidden and what == "has_mask":
                return False
            if case in hidden and what == "mask":
                return np.zeros(more[0], dtype=np.bool_)
            return getattr(held, what)(case, *more)

        self._ask = ask

    def __contains__(self, case: str) -> bool:
        return bool(self._ask("__contains__", case))

    def grey(self, case: str) -> GreyPicture:
        """The picture, height x width, 8 bit."""
        found: GreyPicture = self._ask("grey", case)
        return found

    def has_mask(self, case: str) -> bool:
        """Whether there is a mask that may be seen."""
        return bool(self._ask("has_mask", case))

    def mask(self, case: str, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """The union of the case's masks; nothing is marked where they are hidden."""
        found: npt.NDArray[np.bool_] = self._ask("mask", case, shape)
        return found


_ASKED = frozenset({"grey", "has_mask", "mask"})


@sources.register("pictures")
class Pictures:
    """Encoded pictures by case, from files or from memory; `mask` pictures likewise where they are known.

    The source 'pictures'.

    Args:
        images: The file, or its bytes, of each case ('DATASET/case_id').
        masks: The files, or their bytes, of each case's masks.
    """

    name: ClassVar[str] = "pictures"
    noun: ClassVar[str] = "pictures"
    complete: ClassVar[bool] = True
    truths: ClassVar[Mapping[str, str]] = {
        LESION_BOX: "the annotated box of the lesion",
        MASK: "the annotated outline of the lesion",
    }

    def __init__(
        self,
        images: Mapping[str, Path | bytes],
        masks: Mapping[str, Sequence[Path | bytes]] | None = None,
    ) -> None:
        self._images = dict(images)
        self._masks = {name: tuple(parts) for name, parts in (masks or {}).items() if parts}

    def __len__(self) -> int:
        return len(self._images)

    def __contains__(self, case: str) -> bool:
        return case in self._images

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(self._images)

    def has_mask(self, case: str) -> bool:
        return case in self._masks

    def encoded(self, case: str) -> bytes:
        """The picture file's bytes."""
        return _bytes_of(self._images[case])

    def digest(self, case: str) -> str:
        """sha256 of the picture file: what names a picture in the key of a training."""
        return hashlib.sha256(self.encoded(case)).hexdigest()

    def truth_digest(self, case: str) -> str:
        """sha256 of the case's mask files in their order; '' where it has none."""
        parts = self._masks.get(case, ())
        if not parts:
            return ""
        whole = hashlib.sha256()
        for part in parts:
            whole.update(hashlib.sha256(_bytes_of(part)).digest())
        return whole.hexdigest()

    def grey(self, case: str) -> GreyPicture:
        """Height x width, 8 bit. Colour (a Doppler overlay) becomes its luminance (US-12)."""
        return _decode_grey(case, self._images[case])

    def mask(self, case: str, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """The union of the case's masks; a mask of another size than its picture does not count."""
        union = np.zeros(shape, dtype=bool)
        for part in self._masks.get(case, ()):
            mask = _decode_grey(case, part)
            if mask.shape == shape:
                union |= mask > 0
        return union

    def decode_all(
        self, cases: Iterable[str], *, threads: int | None = None, each: Callable[[], None] | None = None
    ) -> list[GreyPicture]:
        """In the order of `cases`; decoding releases the interpreter, so threads use all cores."""
        return decode_all(self.grey, cases, threads=threads, each=each)

    def subset(self, cases: Iterable[str]) -> Pictures:
        names = list(cases)
        return Pictures(
            {name: self._images[name] for name in names},
            {name: self._masks[name] for name in names if name in self._masks},
        )

    def pack_file(self, path: str | Path, *, with_masks: bool = False) -> Path:
        """All pictures (and masks) in one file, byte for byte."""
        path = Path(path)
        content = _joined("image", [self.encoded(name) for name in self._images])
        content["case"] = np.array(list(self._images), dtype=np.str_)
        if with_masks:
            owner = [name for name, parts in self._masks.items() for _ in parts]
            blobs = [_bytes_of(part) for parts in self._masks.values() for part in parts]
            content |= _joined("mask", blobs)
            content["mask_case"] = np.array(owner, dtype=np.str_)
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            np.savez(file, **content)  # type: ignore[arg-type]
        partial.replace(path)
        return path

    @classmethod
    def from_packs(cls, paths: Iterable[str | Path]) -> Pictures:
        """Several packs as one; a case that stands in two packs is an error."""
        images: dict[str, bytes] = {}
        masks: dict[str, list[bytes]] = {}
        for path in paths:
            with np.load(path, allow_pickle=False) as held:
                for name, blob in zip(held["case"], _parts(held, "image"), strict=True):
                    if str(name) in images:
                        raise ValueError(f"{path}: {name} stands in another pack too")
                    images[str(name)] = blob
                if "mask_case" in held:
                    for name, blob in zip(held["mask_case"], _parts(held, "mask"), strict=True):
                        masks.setdefault(str(name), []).append(blob)
        return cls(images, masks)

    # As a source

    @classmethod
    def of_cases(cls, rows: Iterable[CaseRow]) -> Pictures:
        """The pictures that a cohort's rows name in `image`, with the masks that are there."""
        images: dict[str, Path | bytes] = {}
        masks: dict[str, list[Path]] = {}
        for row in rows:
            if not isinstance(row.values.get("image"), str):
                continue
            images[row.name] = row.file(row.values["image"])
            named = [value for name, value in row.values.items() if is_mask_column(str(name))]
            paths = [row.file(value) for value in named if isinstance(value, str) and value]
            masks[row.name] = [path for path in paths if path.is_file()]
        return cls(images, masks)

    def problems(self, cases: Iterable[str]) -> dict[str, str]:
        """The pictures that cannot be decoded, with the reason."""
        found = {}
        for case in cases:
            try:
                self.grey(case)
            except BadPictureError as error:
                found[case] = error.why
        return found

    def identity(self, case: str) -> str:
        """Of the picture file's bytes."""
        return self.digest(case)

    def truth_files(self) -> tuple[Path, ...]:
        """The files of masks."""
        return tuple(part for parts in self._masks.values() for part in parts if isinstance(part, Path))

    def boxes(self, rows: Sequence[CaseRow]) -> npt.NDArray[np.int32]:
        """The annotated boxes, from the masks where a cohort has no columns of boxes. A box that does not meet its
        picture is no box."""
        raw = np.full((len(rows), 4), np.nan)
        sizes = np.zeros((len(rows), 2))
        for at, row in enumerate(rows):
            height, width = self.grey(row.name).shape
            sizes[at] = width, height
            if all(name in row.values for name in BOX_COLUMNS):
                raw[at] = [_number(row.values[name]) for name in BOX_COLUMNS]
            else:
                raw[at] = self.box_of_mask(row.name, (height, width)) or np.nan
        return boxes_inside(raw, sizes)[0]

    def box_of_mask(self, case: str, shape: tuple[int, int]) -> tuple[int, int, int, int] | None:
        """The box around a case's masks; None where nothing is marked or a mask cannot be read (US-01)."""
        if not self.has_mask(case):
            return None
        try:
            rows, columns = np.nonzero(self.mask(case, shape))
        except BadPictureError:
            return None
        if not len(rows):
            return None
        return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1

    def write_mask(self, path: Path, mask: npt.NDArray[np.bool_], *, like: str) -> Path:
        """Recipes do not answer to pictures with masks.

        Raises:
            TypeError: Always.
        """
        raise TypeError("masks are written on the grid of volumes, and these are pictures")

    def shape(self, case: str) -> tuple[int, ...] | None:
        """Answers to pictures need no grid."""
        return None

    def view(self, *, cases: frozenset[str], hidden: frozenset[str], sees: frozenset[str]) -> PicturesView:
        """The pictures of one training; the masks of `hidden` cases only for a recipe that sees them."""
        return PicturesView(self, cases=cases, hidden=frozenset() if MASK in sees else hidden)

    def pack(self, folder: Path, cases: Cases, *, with_truth: bool) -> None:
        """One pack per dataset: the picture files as they are, and their masks where a recipe learns from them."""
        for at, dataset in enumerate(dict.fromkeys(cases.dataset)):
            owned = zip(cases.case, cases.dataset, strict=True)
            part = self.subset(name for name, owner in owned if owner == dataset)
            plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in dataset)
            part.pack_file(folder / f"{at:02d}-{plain[:60].strip('.') or 'x'}.npz", with_masks=with_truth)

    @classmethod
    def unpack(cls, folder: Path) -> Pictures:
        """What `pack` wrote."""
        return cls.from_packs(sorted(folder.glob("*.npz")))

    def portable(self, cases: Iterable[str]) -> Pictures:
        """These pictures with their files' bytes."""
        names = list(cases)
        return Pictures(
            {name: self.encoded(name) for name in names},
            {name: [_bytes_of(part) for part in self._masks.get(name, ())] for name in names},
        )

    def nbytes(self) -> int:
        """Of the pictures and masks that are in memory."""
        parts = [*self._images.values(), *(part for held in self._masks.values() for part in held)]
        return sum(len(part) for part in parts if isinstance(part, bytes))


def decode_all(
    read: Callable[[str], GreyPicture],
    cases: Iterable[str],
    *,
    threads: int | None = None,
    each: Callable[[], None] | None = None,
) -> list[GreyPicture]:
    """Read many pictures; decoding releases the interpreter, so threads use all cores.

    Args:
        read: Gives the picture of a case.
        cases: Which.
        threads: How many; None: as there are cores, 32 at most.
        each: Called after every picture.

    Returns:
        The pictures in the order of `cases`.
    """

    def one(name: str) -> GreyPicture:
        picture = read(name)
        if each:
            each()
        return picture

    with ThreadPoolExecutor(threads or min(32, os.cpu_count() or 1)) as pool:
        return list(pool.map(one, list(cases)))


def boxes_inside(
    raw: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Boxes that meet their pictures.

    Args:
        raw: (n, 4) x0, y0, x1, y1; NaN where there is none.
        sizes: (n, 2) width and height of each picture.

    Returns:
        (n, 4) whole numbers, zeros for no box; and which of the rows hold a box that does not meet its picture.

    Example:
        >>> boxes_inside(np.array([[1.0, 2, 9, 8], [70, 0, 80, 9]]), np.full((2, 2), 64.0))[1].tolist()
        [False, True]
    """
    there = np.isfinite(raw).all(axis=1)
    cut = np.column_stack(
        [np.maximum(raw[:, :2], 0), np.minimum(raw[:, 2], sizes[:, 0]), np.minimum(raw[:, 3], sizes[:, 1])]
    )
    valid = there & (raw[:, 2] > raw[:, 0]) & (raw[:, 3] > raw[:, 1])
    valid &= (cut[:, 2] > cut[:, 0]) & (cut[:, 3] > cut[:, 1])
    return np.where(valid[:, None], np.nan_to_num(raw), 0).astype(np.int32), there & ~valid


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def is_mask_column(name: str) -> bool:
    """Whether a cohort's column of this name holds a file of a lesion's mask; there may be several."""
    return name == "mask" or re.fullmatch(r"mask_\d+_path", name) is not None


def _bytes_of(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


def _decode_grey(case: str, source: Path | bytes) -> GreyPicture:
    from PIL import Image, UnidentifiedImageError

    where = "packed" if isinstance(source, bytes) else str(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            grey = image if image.mode == "L" else image.convert("RGB").convert("L")
            return np.array(grey, dtype=np.uint8)
    except FileNotFoundError as error:
        raise BadPictureError(case, where, "there is no such file") from error
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise BadPictureError(case, where, f"it cannot be decoded ({error}); is the file whole?") from error


def _joined(name: str, blobs: Sequence[bytes]) -> dict[str, np.ndarray]:
    sizes = np.array([len(blob) for blob in blobs], dtype=np.int64)
    return {
        f"{name}_bytes": np.frombuffer(b"".join(blobs), dtype=np.uint8),
        f"{name}_end": np.cumsum(sizes),
    }


def _parts(held: Mapping[str, np.ndarray], name: str) -> list[bytes]:
    data, ends = held[f"{name}_bytes"], held[f"{name}_end"]
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    return [data[a:b].tobytes() for a, b in zip(starts, ends, strict=True)]
