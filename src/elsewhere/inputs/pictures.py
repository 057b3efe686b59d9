"""Reads pictures from their files, or from packs that travel to another machine.

A pack is one .npz file per dataset that contains the picture files as they are (any format that Pillow
reads), so that the pixels are the same on both machines and nothing is encoded again.
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
"""The columns of a cohort with the lesion's box: half-open, in pixels of the picture."""
GreyPicture = npt.NDArray[np.uint8]


class BadPictureError(Exception):
    """A picture that cannot be decoded.

    Args:
        case: "DATASET/case_id".
        where: The file, or "packed".
        why: The reason, as a phrase.

    Example:
        >>> str(BadPictureError("BUSI/1", "1.png", "there is no such file"))
        'BUSI/1 (1.png): there is no such file'
    """

    def __init__(self, case: str, where: str, why: str) -> None:
        self.case, self.where, self.why = case, where, why
        super().__init__(f"{case} ({where}): {why}")


class PicturesView:
    """What a recipe is shown of pictures: those of its own training.

    Masks of cases that are only predicted are hidden. The pictures themselves are not an attribute of the
    view.

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
        """Read a picture.

        Args:
            case: "DATASET/case_id".

        Returns:
            [height, width], 8 bit.

        Raises:
            KeyError: The case does not belong to this training.
            BadPictureError: The picture cannot be decoded.
        """
        found: GreyPicture = self._ask("grey", case)
        return found

    def has_mask(self, case: str) -> bool:
        """Say whether a case has a mask that may be seen.

        Args:
            case: "DATASET/case_id".

        Returns:
            False also where the mask is hidden.

        Raises:
            KeyError: The case does not belong to this training.
        """
        return bool(self._ask("has_mask", case))

    def mask(self, case: str, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Read the union of a case's masks.

        Args:
            case: "DATASET/case_id".
            shape: Height and width of its picture.

        Returns:
            [height, width]; nothing is set where the masks are hidden, or where there are none.

        Raises:
            KeyError: The case does not belong to this training.
            BadPictureError: A mask cannot be decoded.
        """
        found: npt.NDArray[np.bool_] = self._ask("mask", case, shape)
        return found


_ASKED = frozenset({"grey", "has_mask", "mask"})


@sources.register("pictures")
class Pictures:
    """Encoded pictures by case, from files or from memory, with their masks where these are known.

    The source 'pictures'.

    Args:
        images: The file, or its bytes, of each case ('DATASET/case_id').
        masks: The files, or their bytes, of each case's masks; None: no case has a mask.

    Example:
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.new("L", (4, 3), 7).save(file, "PNG")
        >>> pictures = Pictures({"BUSI/1": file.getvalue()})
        >>> pictures.grey("BUSI/1").shape, pictures.has_mask("BUSI/1")
        ((3, 4), False)
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
        """The names of all cases."""
        return tuple(self._images)

    def has_mask(self, case: str) -> bool:
        """Say whether a case has a mask.

        Args:
            case: "DATASET/case_id".

        Returns:
            True or False.
        """
        return case in self._masks

    def encoded(self, case: str) -> bytes:
        """Return the picture file's bytes.

        Args:
            case: "DATASET/case_id".

        Returns:
            The bytes.
        """
        return _bytes_of(self._images[case])

    def digest(self, case: str) -> str:
        """Return the sha256 of the picture file: what names a picture in the key of a training.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal.
        """
        return hashlib.sha256(self.encoded(case)).hexdigest()

    def truth_digest(self, case: str) -> str:
        """Return the sha256 of the case's mask files in their order.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal; "" where it has none.
        """
        parts = self._masks.get(case, ())
        if not parts:
            return ""
        whole = hashlib.sha256()
        for part in parts:
            whole.update(hashlib.sha256(_bytes_of(part)).digest())
        return whole.hexdigest()

    def grey(self, case: str) -> GreyPicture:
        """Decode a picture. Colour (a Doppler overlay) becomes its luminance (US-12).

        Args:
            case: "DATASET/case_id".

        Returns:
            [height, width], 8 bit.

        Raises:
            BadPictureError: It cannot be decoded.
        """
        return _decode_grey(case, self._images[case])

    def mask(self, case: str, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """Return the union of the case's masks; a mask of another size than its picture does not count.

        Args:
            case: "DATASET/case_id".
            shape: Height and width of its picture.

        Returns:
            [height, width].

        Raises:
            BadPictureError: A mask cannot be decoded.
        """
        union = np.zeros(shape, dtype=bool)
        for part in self._masks.get(case, ()):
            mask = _decode_grey(case, part)
            if mask.shape == shape:
                union |= mask > 0
        return union

    def decode_all(
        self, cases: Iterable[str], *, threads: int | None = None, each: Callable[[], None] | None = None
    ) -> list[GreyPicture]:
        """Decode many pictures in parallel threads, which decoding allows.

        Args:
            cases: The names of the cases.
            threads: How many pictures are decoded at the same time; None: one per core, at most 32.
            each: Called after each picture.

        Returns:
            The pictures in the order of `cases`.

        Raises:
            BadPictureError: A picture cannot be decoded.
        """
        return decode_all(self.grey, cases, threads=threads, each=each)

    def subset(self, cases: Iterable[str]) -> Pictures:
        """Return some of the pictures and their masks.

        Args:
            cases: The names of the cases.

        Returns:
            These pictures.

        Raises:
            KeyError: A name is not among the cases.
        """
        names = list(cases)
        return Pictures(
            {name: self._images[name] for name in names},
            {name: self._masks[name] for name in names if name in self._masks},
        )

    def pack_file(self, path: str | Path, *, with_masks: bool = False) -> Path:
        """Write all pictures (and masks) into one file, byte for byte.

        Args:
            path: The file to write.
            with_masks: Whether masks are packed too.

        Returns:
            The file.
        """
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
        """Read several packs as one.

        Args:
            paths: Files that `pack_file` wrote.

        Returns:
            All their pictures.

        Raises:
            ValueError: A case is in two packs.
        """
        images: dict[str, bytes] = {}
        masks: dict[str, list[bytes]] = {}
        for path in paths:
            with np.load(path, allow_pickle=False) as held:
                for name, blob in zip(held["case"], _parts(held, "image"), strict=True):
                    if str(name) in images:
                        raise ValueError(f"{path}: {name} is in another pack too")
                    images[str(name)] = blob
                if "mask_case" in held:
                    for name, blob in zip(held["mask_case"], _parts(held, "mask"), strict=True):
                        masks.setdefault(str(name), []).append(blob)
        return cls(images, masks)

    # As a source

    @classmethod
    def of_cases(cls, rows: Iterable[CaseRow]) -> Pictures:
        """Make the source of the pictures that rows name in `image`, with the masks whose files exist.

        Args:
            rows: The rows of one or several cohorts; a row without `image` is left out.

        Returns:
            The pictures. None is read yet.
        """
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
        """Find the pictures that cannot be decoded.

        Args:
            cases: The cases to check ("DATASET/case_id").

        Returns:
            The reason by case; cases without a problem are not in it.
        """
        found = {}
        for case in cases:
            try:
                self.grey(case)
            except BadPictureError as error:
                found[case] = error.why
        return found

    def identity(self, case: str) -> str:
        """Return the digest of the picture file's bytes.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256.
        """
        return self.digest(case)

    def truth_files(self) -> tuple[Path, ...]:
        """List the files of masks.

        Returns:
            Paths; masks in memory are not among them.
        """
        return tuple(part for parts in self._masks.values() for part in parts if isinstance(part, Path))

    def boxes(self, rows: Sequence[CaseRow]) -> npt.NDArray[np.int32]:
        """Return the annotated boxes: from the cohort's columns of boxes, or else around the masks.

        A box that does not meet its picture is no box.

        Args:
            rows: The rows of the cohort; each has a picture.

        Returns:
            (n, 4) x0, y0, x1, y1 in pixels, half-open; zeros where there is no box.

        Raises:
            BadPictureError: A picture cannot be decoded.
        """
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
        """Return the box around a case's masks (US-01).

        Args:
            case: "DATASET/case_id".
            shape: Height and width of its picture.

        Returns:
            x0, y0, x1, y1 in pixels, half-open; None where nothing is marked, or a mask cannot be decoded.
        """
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
        """Refuse to write a mask: recipes do not answer to pictures with masks.

        Args:
            path: Not used.
            mask: Not used.
            like: Not used.

        Returns:
            Nothing: it always raises.

        Raises:
            TypeError: Always.
        """
        raise TypeError("masks are written on the grid of volumes, and these are pictures")

    def shape(self, case: str) -> tuple[int, ...] | None:
        """Return None: answers to pictures need no grid.

        Args:
            case: "DATASET/case_id".

        Returns:
            None.
        """
        return None

    def view(self, *, cases: frozenset[str], hidden: frozenset[str], sees: frozenset[str]) -> PicturesView:
        """Make the view of one training; it shows masks of `hidden` cases only to a recipe that sees masks.

        Args:
            cases: The cases that may be asked for.
            hidden: Those of them that are only predicted.
            sees: The kinds of truth that the recipe is shown of them.

        Returns:
            The view.
        """
        return PicturesView(self, cases=cases, hidden=frozenset() if MASK in sees else hidden)

    def pack(self, folder: Path, cases: Cases, *, with_truth: bool) -> None:
        """Write one pack per dataset: the picture files as they are, and their masks where they are needed.

        Args:
            folder: An empty folder.
            cases: The cases to pack.
            with_truth: Whether masks are packed too.
        """
        for at, dataset in enumerate(dict.fromkeys(cases.dataset)):
            owned = zip(cases.case, cases.dataset, strict=True)
            part = self.subset(name for name, owner in owned if owner == dataset)
            plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in dataset)
            part.pack_file(folder / f"{at:02d}-{plain[:60].strip('.') or 'x'}.npz", with_masks=with_truth)

    @classmethod
    def unpack(cls, folder: Path) -> Pictures:
        """Read the packs that `pack` wrote.

        Args:
            folder: The folder.

        Returns:
            The pictures.

        Raises:
            ValueError: A case is in two packs.
        """
        return cls.from_packs(sorted(folder.glob("*.npz")))

    def portable(self, cases: Iterable[str]) -> Pictures:
        """Read the files of some pictures and their masks into memory.

        Args:
            cases: The names of the cases.

        Returns:
            These pictures, with the bytes of their files.

        Raises:
            KeyError: A name is not among the cases.
        """
        names = list(cases)
        return Pictures(
            {name: self.encoded(name) for name in names},
            {name: [_bytes_of(part) for part in self._masks.get(name, ())] for name in names},
        )

    def nbytes(self) -> int:
        """Count the bytes of the pictures and masks that are in memory.

        Returns:
            Bytes; pictures that are files count nothing.
        """
        parts = [*self._images.values(), *(part for held in self._masks.values() for part in held)]
        return sum(len(part) for part in parts if isinstance(part, bytes))


def decode_all(
    read: Callable[[str], GreyPicture],
    cases: Iterable[str],
    *,
    threads: int | None = None,
    each: Callable[[], None] | None = None,
) -> list[GreyPicture]:
    """Read many pictures in parallel threads, which decoding allows.

    Args:
        read: Returns the picture of a case.
        cases: The names of the cases.
        threads: How many pictures are read at the same time; None: one per core, at most 32.
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
    """Keep the boxes that meet their pictures.

    Args:
        raw: (n, 4) x0, y0, x1, y1 in pixels; NaN where there is none.
        sizes: (n, 2) width and height of each picture.

    Returns:
        (n, 4) whole numbers, zeros for no box; and which of the rows have a box that does not meet its
        picture.

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
    """Say whether a cohort's column names files of masks; a cohort may have several such columns.

    Args:
        name: The name of the column.

    Returns:
        True for 'mask' and for 'mask_1_path', 'mask_2_path' and so on.

    Example:
        >>> is_mask_column("mask_2_path"), is_mask_column("masked")
        (True, False)
    """
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
