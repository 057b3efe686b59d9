"""Pictures, decoded once: from their files, or from packs that travel to another machine.

A pack is one .npz a dataset that holds the picture files as they are (any format Pillow reads), so that
the pixels are the same on both machines and nothing is re-encoded.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

GreyPicture = npt.NDArray[np.uint8]


class BadPictureError(Exception):
    """A picture that cannot be decoded.

    Args:
        case: "DATASET/case_id".
        where: The file, or "packed".
        why: The reason.
    """

    def __init__(self, case: str, where: str, why: str) -> None:
        self.case, self.where, self.why = case, where, why
        super().__init__(f"{case} ({where}): {why}")


class Pictures:
    """Encoded pictures by case, from files or from memory, and mask pictures likewise where they are known.

    Args:
        images: The picture of every case.
        masks: The masks of some cases.

    Example:
        `Pictures({"BUSI/1": Path("benign (1).png")}).grey("BUSI/1")`
    """

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
        """Tell whether a case has a mask.

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

    def mask_digest(self, case: str) -> str:
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
            shape: Of the picture.

        Returns:
            [height, width].
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
        """Decode many pictures; decoding releases the interpreter, so threads use all cores.

        Args:
            cases: Their names.
            threads: At the same time; None: one per core.
            each: Called after each picture.

        Returns:
            Pictures in the order of `cases`.

        Raises:
            BadPictureError: One cannot be decoded.
        """
        names = list(cases)

        def one(name: str) -> GreyPicture:
            picture = self.grey(name)
            if each:
                each()
            return picture

        with ThreadPoolExecutor(threads or min(32, os.cpu_count() or 1)) as pool:
            return list(pool.map(one, names))

    def subset(self, cases: Iterable[str]) -> Pictures:
        """Return some of the pictures and their masks.

        Args:
            cases: Their names.

        Returns:
            These pictures.
        """
        names = list(cases)
        return Pictures(
            {name: self._images[name] for name in names},
            {name: self._masks[name] for name in names if name in self._masks},
        )

    def pack(self, path: str | Path, *, with_masks: bool = False) -> Path:
        """Write all pictures (and masks) into one file, byte for byte.

        Args:
            path: The file.
            with_masks: Pack masks too.

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
            paths: Files that `pack` wrote.

        Returns:
            All their pictures.

        Raises:
            ValueError: A case stands in two packs.
        """
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
