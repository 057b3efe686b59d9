"""Pictures and masks of a published set, found by their stems and decoded once.

A copy of a set may have another picture format than the publisher's, so that names in tables are matched with
files by stem, whatever the ending. Every picture and mask is decoded, in threads: a truncated file is found
here and not in the middle of a training, and a box comes from the pixels of the mask (US-01).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, name_rows

Box = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels, half-open."""
Progress = Callable[[str, int, int], None]
Seen = TypeVar("Seen")
SPECK = 1e-3
"""A part of a mask that is smaller than this share of its biggest part is a stray speck, not a lesion."""
QUIET_SECONDS = 2.0
PHANTOM = "phantom.json"
LOSSY = {"JPEG", "MPO", "WEBP", "JPEG2000", "AVIF"}
"""Formats whose black is not quite black: there, what is brighter than half is marked."""
COLOUR_SPREAD = 41
"""Channels that differ by less than this are the noise of a lossy format."""
COLOUR_NAMES = ("black", "blue", "green", "cyan", "red", "magenta", "yellow", "white")


@dataclass(frozen=True, kw_only=True)
class PictureSeen:
    """What one picture shows; its pixels are not kept.

    Args:
        width: In pixels.
        height: In pixels.
        coloured: Whether more than a thousandth of the pixels have a colour.
        deep: Whether it has more than 8 bits per channel.
        digest: SHA-256 of the size and the grey pixels: two files with the same digest are the same picture,
            whatever their format.
    """

    width: int
    height: int
    coloured: bool
    deep: bool
    digest: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, in pixels."""
        return self.width, self.height


@dataclass(frozen=True, kw_only=True)
class MaskSeen:
    """What one mask shows.

    Args:
        width: In pixels.
        height: In pixels.
        box: The box around all that is marked; None where the mask is empty.
        pixels: How many pixels are marked.
        parts: How many connected parts it has; specks do not count.
        specks: How many connected parts are smaller than SPECK of the biggest one.
        core: The box without the specks; None where the mask is empty.
        greys: How many values lie between black and the brightest, in a mask without colours: soft edges.
        colours: The number of marked pixels by the name of their colour; empty for a grey mask.
    """

    width: int
    height: int
    box: Box | None = None
    pixels: int = 0
    parts: int = 0
    specks: int = 0
    core: Box | None = None
    greys: int = 0
    colours: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, in pixels."""
        return self.width, self.height


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """Make a sort key under which 'benign (9)' comes before 'benign (10)'.

    Args:
        text: A name; letter case does not count.

    Returns:
        The key.

    Example:
        >>> sorted(["benign (10)", "benign (9)"], key=natural_key)
        ['benign (9)', 'benign (10)']
    """
    parts = re.split(r"(\d+)", text.casefold())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]


def picture_endings() -> frozenset[str]:
    """List the endings of every format that the installed Pillow can open.

    Returns:
        The endings in lower case, with their dots.
    """
    from PIL import Image

    return frozenset(end for end, kind in Image.registered_extensions().items() if kind in Image.OPEN)


def pictures_in(folder: Path, *, deep: bool = False) -> dict[str, Path]:
    """List the pictures of a folder by their folded stems, in natural order.

    Args:
        folder: The folder.
        deep: Whether folders below it are searched too.

    Returns:
        The path of each picture, by its file name in lower case without the ending.

    Raises:
        UserError: Two pictures have the same stem: masks and tables name pictures by it.
    """
    endings = picture_endings()
    found: dict[str, Path] = {}
    files = folder.rglob("*") if deep else folder.iterdir()
    for path in sorted(files, key=lambda p: natural_key(p.name)):
        if path.name.startswith(".") or path.suffix.lower() not in endings or not path.is_file():
            continue
        key = path.stem.casefold()
        if key in found:
            raise UserError(
                f"two pictures are called '{path.stem}': {found[key].name} and {path.name}",
                where=str(folder),
                fix="Keep one of them: pictures and masks are matched by their names without the ending.",
            )
        found[key] = path
    return found


def stem_of(name: str) -> str:
    r"""Fold the name of a file as a table gives it to its stem.

    Args:
        name: Such as 'case001.png' or 'images/case001.PNG'.

    Returns:
        The name in lower case without folders and ending.

    Example:
        >>> stem_of("images\\case001.PNG")
        'case001'
    """
    return Path(name.strip().replace("\\", "/")).stem.casefold()


def subfolder(root: Path, *names: str) -> Path:
    """Find the subfolder with one of these names, whatever its letter case.

    Args:
        root: The folder to look in.
        names: The names; the first is quoted in the message.

    Returns:
        The subfolder.

    Raises:
        UserError: There is none.
    """
    wanted = {name.casefold() for name in names}
    for child in sorted(root.iterdir()):
        if child.is_dir() and child.name.casefold() in wanted:
            return child
    listed = ", ".join(sorted(child.name for child in root.iterdir())[:8]) or "nothing"
    raise UserError(
        f"no folder '{names[0]}' here (found: {listed})",
        where=str(root),
        fix="Keep the folders as they were published.",
    )


def layout_root(source: Path, holds: Callable[[Path], bool], *, what: str, depth: int = 3) -> Path:
    """Find the folder where a published layout begins: the source itself, or one below it.

    The paths of the cohort are relative to it, so that its hash does not depend on which of the folders was
    given.

    Args:
        source: The folder that the user named.
        holds: Whether a folder holds what marks the layout.
        what: What marks it, for messages.
        depth: How many levels below the source are searched.

    Returns:
        The folder.

    Raises:
        UserError: The source is no folder, no folder holds the layout, or several of one level do.
    """
    if not source.is_dir():
        raise UserError(
            "the reader takes the published folder", where=str(source), fix=f"The folder with {what}."
        )
    level = [source]
    for _ in range(depth + 1):
        found = [folder for folder in level if holds(folder)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(str(folder.relative_to(source)) for folder in found[:4])
            raise UserError(
                f"{len(found)} folders here hold {what}: {names}",
                where=str(source),
                fix="Give the one you mean.",
            )
        level = [
            child
            for folder in level
            for child in sorted(folder.iterdir())
            if child.is_dir() and not child.name.startswith((".", "__"))
        ]
    raise UserError(f"no {what} in this folder", where=str(source), fix="Give the folder as it is published.")


def is_phantom(root: Path) -> bool:
    """Check whether Elsewhere wrote a phantom here: `phantom.json` in the folder of the layout, or above it.

    Args:
        root: The folder of the layout.

    Returns:
        Whether the cases are simulated.
    """
    for folder in (root, root.parent):
        try:
            held = json.loads((folder / PHANTOM).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(held, dict) and {"hospital", "hospitals", "world"} & set(held):
            return True
    return False


def look_at_pictures(paths: Sequence[Path], *, progress: Progress | None = None) -> list[PictureSeen]:
    """Decode every picture once, in threads.

    Args:
        paths: The files.
        progress: Called with 'pictures', how many are decoded and how many there are, after QUIET_SECONDS;
            None: no reports.

    Returns:
        What each picture shows, in the order of the paths.

    Raises:
        UserError: A picture cannot be decoded; the message names all such files.
    """
    return _look(paths, see_picture, "picture", progress)


def look_at_masks(paths: Sequence[Path], *, progress: Progress | None = None) -> list[MaskSeen]:
    """Decode every mask once, in threads.

    Args:
        paths: The files.
        progress: Called with 'masks', how many are decoded and how many there are, after QUIET_SECONDS; None:
            no reports.

    Returns:
        What each mask shows, in the order of the paths.

    Raises:
        UserError: A mask cannot be decoded; the message names all such files.
    """
    return _look(paths, see_mask, "mask", progress)


_UNDECODABLE = (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, MemoryError, struct.error)
"""What decoders raise on damaged files."""


def _look(
    paths: Sequence[Path], see: Callable[[Path], Seen], what: str, progress: Progress | None
) -> list[Seen]:
    from PIL import Image, UnidentifiedImageError

    def one(path: Path) -> Seen | str:
        try:
            return see(path)
        except UnidentifiedImageError:
            return "it is no picture" if path.stat().st_size else "it is empty"
        except (*_UNDECODABLE, Image.DecompressionBombError) as error:
            return str(error) or type(error).__name__

    seen: list[Seen] = []
    bad: list[tuple[Path, str]] = []
    start = time.monotonic()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for at, result in enumerate(pool.map(one, paths)):
            if isinstance(result, str):
                bad.append((paths[at], result))
            else:
                seen.append(result)
            if progress is not None and time.monotonic() - start > QUIET_SECONDS:
                progress(f"{what}s", at + 1, len(paths))
    if bad:
        path, why = bad[0]
        more = f"; and {len(bad) - 1} more: {name_rows([p.name for p, _ in bad[1:]])}" if len(bad) > 1 else ""
        raise UserError(
            f"the {what} cannot be decoded ({why}){more}",
            where=str(path),
            fix="Fetch the file again from the publisher; or move it out of the folder: what is missing is "
            "counted.",
        )
    return seen


def see_picture(path: Path) -> PictureSeen:
    """Decode a whole picture: a header alone does not show that a file is truncated.

    Args:
        path: The file.

    Returns:
        What it shows.
    """
    from PIL import Image

    with Image.open(path) as image:
        image.load()
        deep = image.mode.startswith(("I", "F"))
        coloured = not deep and image.mode not in ("1", "L", "LA") and _is_coloured(image)
        grey = image if image.mode == "L" else image.convert("L")
        digest = hashlib.sha256(f"{image.size}".encode() + grey.tobytes()).hexdigest()
        return PictureSeen(
            width=image.width, height=image.height, coloured=coloured, deep=deep, digest=digest
        )


def _is_coloured(image: Any) -> bool:
    """Whether more than a thousandth of the pixels are coloured; most pictures saved as RGB are grey."""
    from PIL import Image, ImageChops

    size = (max(1, image.width // 4), max(1, image.height // 4))
    red, green, blue = image.convert("RGB").resize(size, Image.Resampling.NEAREST).split()
    pairs = ((red, green), (green, blue), (red, blue))
    spread = [ImageChops.difference(one, other) for one, other in pairs]
    widest = ImageChops.lighter(ImageChops.lighter(spread[0], spread[1]), spread[2])
    return sum(widest.histogram()[COLOUR_SPREAD:]) > 1e-3 * size[0] * size[1]


def see_mask(path: Path) -> MaskSeen:
    """Decode a mask and find where it is not black, and what is unusual about it.

    In a lossy format, black is not quite black: there a pixel is marked where it is brighter than half.

    Args:
        path: The file.

    Returns:
        What it shows.
    """
    from PIL import Image

    with Image.open(path) as image:
        image.load()
        floor = 127 if image.format in LOSSY else 0
        shown = _plain_mask(image)
        box: Box | None = (
            _brightest(shown).point([0] * (floor + 1) + [255] * (255 - floor)) if floor else shown
        ).getbbox()
        if box is None:
            return MaskSeen(width=image.width, height=image.height)
        part = shown.crop(box)
        values = np.asarray(_brightest(part))
        inside = values > floor
        colours = _colours(np.asarray(part), inside) if part.mode == "RGB" else {}
        soft = not floor and not set(colours) - {"white"}
        parts, specks, core = _parts(inside, box)
        return MaskSeen(
            width=image.width,
            height=image.height,
            box=box,
            pixels=int(inside.sum()),
            parts=parts,
            specks=specks,
            core=core,
            greys=len(np.unique(values[inside])) - 1 if soft else 0,
            colours=colours,
        )


def _plain_mask(image: Any) -> Any:
    """The mask as 8-bit grey or RGB, 0 exactly where it is black."""
    from PIL import Image

    if image.mode in ("1", "L"):
        return image.convert("L")
    if image.mode.startswith(("I", "F")):
        return Image.fromarray((np.asarray(image) > 0).astype(np.uint8) * 255)
    return image.convert("RGB")


def _brightest(image: Any) -> Any:
    """The brightest channel of each pixel."""
    from PIL import ImageChops

    if image.mode == "L":
        return image
    red, green, blue = image.split()
    return ImageChops.lighter(ImageChops.lighter(red, green), blue)


def _colours(rgb: npt.NDArray[np.uint8], inside: npt.NDArray[np.bool_]) -> dict[str, int]:
    """Pixels by colour; a channel counts where it is above half of the pixel's brightest channel."""
    pixels = rgb[inside].astype(np.int16)
    on = pixels * 2 > pixels.max(axis=1, keepdims=True)
    codes = np.bincount(on @ np.array([4, 2, 1]), minlength=8)
    return {name: int(n) for name, n in zip(COLOUR_NAMES, codes, strict=True) if n}


def _parts(inside: npt.NDArray[np.bool_], box: Box) -> tuple[int, int, Box]:
    from scipy import ndimage

    labels, count = ndimage.label(inside, structure=np.ones((3, 3), dtype=int))
    if count == 1:
        return 1, 0, box
    sizes = np.bincount(labels.ravel())[1:]
    big = np.flatnonzero(sizes >= SPECK * sizes.max()) + 1
    rows, columns = np.nonzero(np.isin(labels, big))
    x, y = box[0], box[1]
    core = (
        int(x + columns.min()),
        int(y + rows.min()),
        int(x + columns.max() + 1),
        int(y + rows.max() + 1),
    )
    return len(big), int(count - len(big)), core


def union(boxes: Iterable[Box]) -> Box | None:
    """Find the smallest box around some boxes.

    Args:
        boxes: x0, y0, x1, y1 each, half-open.

    Returns:
        The box; None where there are none.

    Example:
        >>> union([(0, 0, 2, 2), (1, 1, 5, 3)])
        (0, 0, 5, 3)
    """
    found = list(boxes)
    if not found:
        return None
    columns = list(zip(*found, strict=True))
    return min(columns[0]), min(columns[1]), max(columns[2]), max(columns[3])
