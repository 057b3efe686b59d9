"""Pictures as the duplicate search compares them: small, grey, trimmed; and which files are equal (US-30)."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numba
import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from elsewhere.errors import UserError, name_rows

SIDE = 64
"""Pictures are compared at this size, whatever their shape: a resized copy is the same thumbnail."""
UNIFORM = 12
"""A border row or column whose grey values span at most this is trimmed: padding, re-encoded or not."""

MUCH = 0.02
"""A side that lost more than this share to trimming is also compared untrimmed."""

TOGETHER = 32

Grey = npt.NDArray[np.uint8]
Progress = Callable[[str, int, int], None]


class Decode(Protocol):
    """How a file becomes a grey picture; `reduced` allows a smaller one."""

    def __call__(self, path: Path, *, reduced: bool = False) -> Image.Image: ...


@dataclass(frozen=True, kw_only=True)
class Thumbnails:
    """The pictures of a search as small grey squares.

    A picture that lost much to trimming occurs twice, the second time untrimmed: a dark lower edge is trimmed
    in one copy and not in a brighter one.

    Args:
        paths: The files.
        grey: (thumbnails, SIDE, SIDE) uint8: one per file in the order of `paths`, then the untrimmed ones.
        of: (thumbnails,) the position in `paths` of the file that each thumbnail is of.
        decode: How files become grey pictures; None for files of pictures.
    """

    paths: tuple[Path, ...]
    grey: npt.NDArray[np.uint8]
    of: npt.NDArray[np.int64]
    decode: Decode | None = None

    def same_pixels(self) -> list[list[int]]:
        """Group the positions of the pictures that are equal pixel by pixel once they are trimmed.

        Only pictures whose thumbnails are equal are decoded in full: equal pictures have equal thumbnails.

        Returns:
            Groups of two or more positions in `paths`, sorted.
        """
        alike: dict[bytes, list[int]] = defaultdict(list)
        for at, picture in enumerate(self.grey[: len(self.paths)]):
            alike[picture.tobytes()].append(at)
        groups = []
        for members in alike.values():
            if len(members) < 2:
                continue
            by_pixels: dict[tuple[object, ...], list[int]] = defaultdict(list)
            for at in members:
                pixels = trimmed(np.asarray((self.decode or decode_grey)(self.paths[at])))
                by_pixels[pixels.shape, hashlib.sha256(pixels.tobytes()).digest()].append(at)
            groups += [found for found in by_pixels.values() if len(found) > 1]
        return sorted(groups)


def read_thumbnails(
    paths: Sequence[Path],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    decode: Decode | None = None,
) -> Thumbnails:
    """Read every picture as a grey square of SIDE pixels, in threads.

    JPEG files are decoded at reduced size.

    Args:
        paths: The files.
        threads: The number of threads; None: one per processor, at most 32.
        progress: Called with 'pictures', how many are read and how many there are; None: no reports.
        decode: How files become grey pictures; None for files of pictures.

    Returns:
        The thumbnails, in the order of the paths.

    Raises:
        UserError: A file does not exist or is no picture; the message names all such files.
    """
    bad: dict[int, str] = {}
    grey = np.zeros((len(paths), SIDE, SIDE), dtype=np.uint8)
    whole: dict[int, Grey] = {}

    def one(at: int) -> None:
        try:
            picture = (decode or decode_grey)(paths[at], reduced=True)
            top, bottom, left, right = inner_box(np.asarray(picture), UNIFORM)
            width, height = picture.size
            inner = (right - left, bottom - top)
            grey[at] = _thumbnail(
                picture if inner == picture.size else picture.crop((left, top, right, bottom))
            )
            if min(inner[0] / width, inner[1] / height) < 1.0 - MUCH:
                whole[at] = _thumbnail(picture)
        except FileNotFoundError:
            bad[at] = "there is no such file"
        except UserError as error:
            bad[at] = error.what
        except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
            bad[at] = f"it is no picture that can be decoded ({type(error).__name__})"

    def some(begin: int) -> int:
        end = min(begin + TOGETHER, len(paths))
        for at in range(begin, end):
            one(at)
        return end

    with ThreadPoolExecutor(threads or min(32, os.cpu_count() or 1)) as pool:
        for end in pool.map(some, range(0, len(paths), TOGETHER)):
            if progress is not None:
                progress("pictures", end, len(paths))
    if bad:
        first = min(bad)
        raise UserError(
            f"{len(bad)} of {len(paths)} pictures cannot be read, for example: {bad[first]}",
            where=name_rows([str(paths[at]) for at in sorted(bad)], limit=3),
            fix="The column 'image' or 'slide' holds paths below the cohort's root; correct them, or remove those rows.",
        )
    again = sorted(whole)
    return Thumbnails(
        paths=tuple(paths),
        grey=np.concatenate([grey, np.stack([whole[at] for at in again])]) if again else grey,
        of=np.concatenate([np.arange(len(paths)), np.array(again, dtype=np.int64)]),
        decode=decode,
    )


def decode_grey(path: Path, *, reduced: bool = False) -> Image.Image:
    """Decode a picture to 8-bit grey.

    Args:
        path: The file.
        reduced: Whether a JPEG may be decoded smaller than it is, but never below SIDE.

    Returns:
        The picture; grey values of more than 8 bits are stretched from their minimum to their maximum.
    """
    with Image.open(path) as image:
        if reduced and image.format == "JPEG":
            image.draft("L", (SIDE, SIDE))
        if image.mode.startswith(("I", "F")):
            return Image.fromarray(_to_8_bit(np.asarray(image, dtype=np.float64)))
        if image.mode in ("P", "PA"):
            return image.convert("RGB").convert("L")
        if image.mode != "L":
            return image.convert("L")
        image.load()
        return image


def _to_8_bit(values: npt.NDArray[np.float64]) -> Grey:
    low, high = float(values.min()), float(values.max())
    return np.round((values - low) * (255.0 / max(high - low, 1.0))).astype(np.uint8)


def trimmed(grey: Grey) -> Grey:
    """Take uniform border rows and columns off a picture.

    Args:
        grey: (height, width) 8-bit grey values.

    Returns:
        The inner part, as a view; the whole picture where all of it is border.

    Example:
        >>> picture = np.zeros((4, 5), dtype=np.uint8)
        >>> picture[1:3, 2:4] = [[0, 200], [200, 0]]
        >>> trimmed(picture).shape
        (2, 2)
    """
    top, bottom, left, right = inner_box(grey, UNIFORM)
    return grey[top:bottom, left:right]


@numba.njit(cache=True, nogil=True)
def inner_box(grey: Grey, uniform: int) -> tuple[int, int, int, int]:
    """Find what is left of a picture when its uniform border rows and columns are taken off.

    Args:
        grey: (height, width) 8-bit grey values.
        uniform: A border row or column is taken off where its grey values span at most this.

    Returns:
        Top, bottom, left and right, half-open; of a picture that is all border, the whole.
    """
    height, width = grey.shape
    top, bottom, left, right = 0, height, 0, width
    while top < height and _span(grey[top]) <= uniform:
        top += 1
    while bottom > top and _span(grey[bottom - 1]) <= uniform:
        bottom -= 1
    if _span(grey[:, 0]) <= uniform or _span(grey[:, width - 1]) <= uniform:
        low, high = grey[0].copy(), grey[0].copy()
        for y in range(1, height):
            for x in range(width):
                low[x], high[x] = min(low[x], grey[y, x]), max(high[x], grey[y, x])
        while left < width and high[left] - low[left] <= uniform:
            left += 1
        while right > left and high[right - 1] - low[right - 1] <= uniform:
            right -= 1
    if top == bottom or left == right:
        return 0, height, 0, width
    return top, bottom, left, right


@numba.njit(cache=True, nogil=True)
def _span(line: Grey) -> int:
    low, high = line[0], line[0]
    for x in range(len(line)):
        low, high = min(low, line[x]), max(high, line[x])
    return int(high) - int(low)


def _thumbnail(picture: Image.Image) -> Grey:
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, reducing_gap=2.0))
