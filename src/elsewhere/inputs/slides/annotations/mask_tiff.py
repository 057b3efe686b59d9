"""Read mask TIFFs of slides by tile: of any class coding and level, never the whole mask (LN-01).

Published masks code tumour as 255 of 0 and 255, 1 of 0 and 1, or 2 of 0, 1 and 2 (1 is tissue there). The first two
are recognised; anything else is refused until the tumour's value is given. Probabilities are 8 bits from 0 to 255, or
numbers from 0 to 1; they are read as such where the caller or the file's own description says so. The directories of
the file are followed before any library opens it: a chain that returns to itself, or holds more than 64 pictures, is
refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.untrusted import check_plain_file, parse_json, printable

EXTRA = "Install the extra: pip install 'elsewhere[slides]'."
MOST_PICTURES = 64
MOST_EDGE = 1 << 20
MOST_TILE = 1 << 13
MOST_TILES = 4_000_000
_KNOWN_CODINGS = ({0, 255}, {0, 1}, {0}, {255}, {1})
_COMPRESSIONS = {1, 5, 8, 32773, 32946, 50000, 34925, 34887, 50013}
_SMALL_TILE = 2048
_FEW_TILES = 64
_MOST_STRIP = 1 << 29
_LEAST_UM, _MOST_UM = 0.05, 64.0
_LOSSY = {6, 7, 33003, 33005, 34712, 34934, 33007, 50001, 50002}


def check_directories(path: Path) -> int:
    """Follow the chain of picture directories of a TIFF.

    Args:
        path: The file.

    Returns:
        The number of pictures.

    Raises:
        UserError: It is not a TIFF, the chain leaves the file or returns to itself, or it is too long.

    Example:
        >>> import io, tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".tif") as file:
        ...     _ = file.write(b"II*\\0" + struct.pack("<IHI", 8, 0, 0)); file.flush()
        ...     check_directories(Path(file.name))
        1
    """
    size = check_plain_file(path, what="mask").st_size
    where = str(path)
    with path.open("rb") as file:
        head = file.read(16)
        order = {b"II": "<", b"MM": ">"}.get(head[:2])
        version = struct.unpack(f"{order}H", head[2:4])[0] if order and len(head) >= 8 else 0
        if version not in (42, 43):
            kind = "a zip archive" if head[:2] == b"PK" else "not a TIFF"
            raise UserError(f"the mask is {kind}", where=where, fix="Give a mask as a TIFF file.")
        big = version == 43
        count, entry, link = (8, 20, 8) if big else (2, 12, 4)
        if big and len(head) < 16:
            raise UserError("the mask is cut off", where=where, fix="Copy the file again.")
        offset = (
            struct.unpack(f"{order}Q", head[8:16])[0] if big else struct.unpack(f"{order}I", head[4:8])[0]
        )
        seen: set[int] = set()
        while offset:
            if offset in seen or len(seen) >= MOST_PICTURES:
                why = (
                    "the directories of the TIFF form a circle"
                    if offset in seen
                    else f"over {MOST_PICTURES} pictures"
                )
                raise UserError(f"the mask is damaged: {why}", where=where, fix="Write the mask again.")
            seen.add(offset)
            file.seek(offset if offset < size else size)
            raw = file.read(count)
            number = struct.unpack(f"{order}{'Q' if big else 'H'}", raw)[0] if len(raw) == count else size
            after = offset + count + number * entry
            file.seek(min(after, size))
            raw = file.read(link)
            if number > 4096 or len(raw) < link:
                raise UserError(
                    "the mask is cut off or damaged: a directory lies outside of the file",
                    where=where,
                    fix="Copy the file again.",
                )
            offset = struct.unpack(f"{order}{'Q' if big else 'I'}", raw)[0]
    if not seen:
        raise UserError("the mask holds no picture", where=where, fix="Write the mask again.")
    return len(seen)


def probability_bytes(values: npt.NDArray[Any], *, where: str = "") -> npt.NDArray[np.uint8]:
    """Write probabilities as 8 bits: a byte above 127 is a probability above 0.5, and none other.

    Args:
        values: Probabilities from 0 to 1.
        where: The file, for messages.

    Returns:
        The smallest byte v for which the probability is at most (v + 1) / 256.

    Raises:
        UserError: A value is not a number, or lies outside of 0 to 1.

    Example:
        >>> probability_bytes(np.array([0.0, 0.5, 0.5001, 1.0])).tolist()
        [0, 127, 128, 255]
    """
    values = np.asarray(values, dtype=np.float32)
    if values.size and not (float(values.min()) >= 0.0 and float(values.max()) <= 1.0):
        unknown = int(np.isnan(values).sum())
        what = (
            f"{unknown:,} of {values.size:,} probabilities are not a number"
            if unknown
            else f"probabilities lie between {float(values.min()):g} and {float(values.max()):g}, not between 0 and 1"
        )
        raise UserError(what, where=where or None, fix="Write probabilities from 0 to 1, not logits.")
    scaled = np.ceil(values * np.float32(256.0)) - np.float32(1.0)
    return np.asarray(np.maximum(scaled, np.float32(0.0)), dtype=np.uint8)


class MaskTiff:
    """A mask of a slide, read by tile.

    Args:
        path: The file; its first picture is the finest level, and smaller ones are further levels.
        tumour: The values that mean tumour; None to recognise 0 and 255, or 0 and 1.
        probability: Whether the values are probabilities, 0 to 255 or 0 to 1; None where the file's own description
            decides.

    Attributes:
        path: The file.
        levels: Width and height of each level.
        tumour: The values that mean tumour; empty where the file holds probabilities.
        about: What a file that Elsewhere wrote says of itself; empty for other files.

    Example:
        >>> import tempfile
        >>> from elsewhere.inputs.slides.annotations.outlines import Annotations, Outline
        >>> from elsewhere.inputs.slides.annotations.writing import write_mask
        >>> square = Outline(np.array([[0.0, 0], [400, 0], [400, 400], [0, 400]]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = write_mask(Path(folder) / "m.tif", Annotations((square,)), size_px=(800, 600), mpp=0.25)
        ...     with open_mask(written) as mask:
        ...         mask.levels[0], int(mask.read(0, 0, 800, 600).sum())
        ((800, 600), 160000)
    """

    def __init__(
        self,
        path: str | Path,
        *,
        tumour: Sequence[int] | None = None,
        probability: bool | None = None,
    ) -> None:
        self.path = Path(path)
        self._decoded: dict[tuple[int, bytes], npt.NDArray[Any]] = {}
        check_directories(self.path)
        try:
            import tifffile
        except ImportError as error:
            raise UserError("reading a mask TIFF needs tifffile", where=str(path), fix=EXTRA) from error
        try:
            self._file = tifffile.TiffFile(self.path)
            pages = [self._file.pages[number] for number in range(len(self._file.pages))]
        except UserError:
            raise
        except Exception as error:
            raise self._damaged(error) from error
        try:
            self.about = self._describe(pages[0])
            said = self.about.get("content") == "probability" and tumour is None
            self._probability = said if probability is None else probability
            self._pages = self._usable(pages)
            self.levels = [(int(page.imagewidth), int(page.imagelength)) for page in self._pages]
            self.tumour = self._values_of_tumour(tumour)
        except BaseException:
            self.close()
            raise

    @property
    def is_probability(self) -> bool:
        """Whether the values are probabilities and not classes."""
        return self._probability

    @property
    def pixel_um(self) -> float | None:
        """Microns per pixel of the finest level by the resolution tags; None where they state none that can be."""
        try:
            tags = self._pages[0].tags
            unit = int(tags["ResolutionUnit"].value)
            sides = []
            for name in ("XResolution", "YResolution"):
                above, below = tags[name].value
                sides.append((1e4 if unit == 3 else 25_400.0) * float(below) / float(above))
        except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
            return None
        plausible = unit in (2, 3) and all(math.isfinite(v) and _LEAST_UM <= v <= _MOST_UM for v in sides)
        return sides[0] if plausible and abs(sides[0] - sides[1]) <= 0.01 * sides[0] else None

    def _describe(self, page: Any) -> dict[str, Any]:
        """The description that Elsewhere writes; nothing of other programs' descriptions is used."""
        try:
            text = str(page.tags["ImageDescription"].value)
        except (KeyError, AttributeError, TypeError, ValueError):
            return {}
        if not text.startswith('{"elsewhere":') or len(text) > 4096:
            return {}
        try:
            made = parse_json(text, where=str(self.path), what="description", most_depth=4, any_name=True)
        except UserError:
            return {}
        found = made.get("elsewhere") if isinstance(made, dict) else None
        return found if isinstance(found, dict) else {}

    def _values_of_tumour(self, tumour: Sequence[int] | None) -> tuple[int, ...]:
        if self._probability:
            return ()
        return tuple(tumour) if tumour is not None else self._recognise()

    def _damaged(self, error: Exception) -> UserError:
        text = printable(str(error))[:200] or type(error).__name__
        return UserError(
            f"the mask cannot be read ({text})",
            where=str(self.path),
            fix="Write the mask again, as a tiled TIFF of one 8-bit channel.",
        )

    def _usable(self, pages: Sequence[Any]) -> list[Any]:
        """The levels, finest first; refuse pictures that are no masks."""
        kept: list[Any] = []
        for number, page in enumerate(pages):
            try:
                width, height = int(page.imagewidth), int(page.imagelength)
                tile = (int(page.chunks[0]), int(page.chunks[1]))
                kinds: tuple[Any, ...] = (np.uint8, np.uint16, np.bool_)
                if self._probability:
                    kinds = (np.uint8, np.float16, np.float32, np.float64, np.bool_)
                plain = page.dtype in kinds and page.samplesperpixel == 1
                compression = int(page.compression)
                offsets, sizes = len(page.dataoffsets), len(page.databytecounts)
            except Exception as error:
                raise self._damaged(error) from error
            wrong = ""
            if not plain:
                wrong = f"it has {page.samplesperpixel} channels of {page.dtype}, and a mask has one of 8 or 16 bits"
            elif compression in _LOSSY:
                wrong = "it is compressed with loss, so that its values are not classes"
            elif compression not in _COMPRESSIONS:
                wrong = f"its compression {compression} is not read"
            elif not (0 < width <= MOST_EDGE and 0 < height <= MOST_EDGE):
                wrong = f"its size is {width:,} x {height:,}"
            elif not (0 < tile[0] * tile[1] <= MOST_TILE * MOST_TILE):
                wrong = f"its tiles of {tile[1]:,} x {tile[0]:,} are too large to be read one by one"
            else:
                needed = math.ceil(width / tile[1]) * math.ceil(height / tile[0])
                if needed > MOST_TILES or min(offsets, sizes) < needed:
                    wrong = f"it names {min(offsets, sizes):,} tiles and needs {needed:,}"
            if wrong and number == 0:
                raise UserError(
                    f"this TIFF cannot be a mask: {wrong}",
                    where=str(self.path),
                    fix="Write the mask as a tiled TIFF of one 8-bit channel, compressed without loss.",
                )
            if wrong:
                continue
            if not kept or (width < kept[-1].imagewidth and height < kept[-1].imagelength):
                kept.append(page)
        return kept

    def _recognise(self) -> tuple[int, ...]:
        values = self.values(level=len(self._pages) - 1)
        if values not in _KNOWN_CODINGS and len(self._pages) > 1:
            values = self.values(level=0)
        if values in _KNOWN_CODINGS:
            return (255,) if 255 in values else (1,)
        shown = ", ".join(map(str, sorted(values)[:8]))
        raise UserError(
            f"the mask holds the values {shown}, and which of them is tumour is not known",
            where=str(self.path),
            fix="Give the tumour's value, such as tumour=(2,), or say that they are probabilities. In a table of masks "
            "these are the columns `tumour` and `threshold`.",
        )

    def values(self, *, level: int = 0) -> set[int]:
        """Return the values that occur at a level.

        Args:
            level: The level.

        Returns:
            The values.
        """
        found: set[int] = set()
        for _, _, tile in self.tiles(level=level):
            found |= set(np.unique(tile).tolist())
        return found

    def tiles(
        self, *, level: int = 0, box: tuple[int, int, int, int] | None = None
    ) -> Iterator[tuple[int, int, npt.NDArray[Any]]]:
        """Read tiles one by one.

        Args:
            level: The level.
            box: x, y, width and height; None for all.

        Yields:
            x and y of the tile at its level, and its values, cut at the edge of the picture.

        Raises:
            UserError: A tile is damaged.
        """
        page = self._pages[level]
        width, height = self.levels[level]
        rows, columns = int(page.chunks[0]), int(page.chunks[1])
        across = math.ceil(width / columns)
        x, y, w, h = box if box is not None else (0, 0, width, height)
        for row in range(max(y, 0) // rows, math.ceil(min(y + h, height) / rows)):
            for column in range(max(x, 0) // columns, math.ceil(min(x + w, width) / columns)):
                size = (min(rows, height - row * rows), min(columns, width - column * columns))
                yield column * columns, row * rows, self._tile(page, row * across + column, size)

    def _tile(self, page: Any, number: int, size: tuple[int, int]) -> npt.NDArray[Any]:
        length = int(page.databytecounts[number])
        if length == 0:
            return np.zeros(size, dtype=page.dtype)
        if length > 4 * MOST_TILE * MOST_TILE:
            raise self._damaged(ValueError(f"tile {number} has {length:,} bytes"))
        try:
            handle = self._file.filehandle
            handle.seek(int(page.dataoffsets[number]))
            content = handle.read(length)
            if len(content) < length:
                raise ValueError(f"tile {number} lies outside of the file")
            small = length <= _SMALL_TILE and size == tuple(page.chunks[:2])
            if small and (known := self._decoded.get((page.index, content))) is not None:
                return known
            decoded = page.decode(content, number)[0]
            tile = np.zeros(size, dtype=page.dtype)
            if decoded is not None:
                flat = np.asarray(decoded).reshape(decoded.shape[-3], decoded.shape[-2])
                part = flat[: size[0], : size[1]]
                tile[: part.shape[0], : part.shape[1]] = part
        except Exception as error:
            raise self._damaged(error) from error
        if small:
            tile.setflags(write=False)
            if len(self._decoded) >= _FEW_TILES:
                self._decoded.clear()
            self._decoded[page.index, content] = tile
        return tile

    def strips(self, *, level: int = 0) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """Read the mask from top to bottom, one row of tiles at a time.

        Args:
            level: The level.

        Yields:
            The first row, and the values of full rows: 255 for tumour and 0 for everything else, or probabilities
            in 8 bits.

        Raises:
            UserError: A tile is damaged, a probability is not from 0 to 1, or a row of tiles is over 512 MB.
        """
        width, height = self.levels[level]
        rows = int(self._pages[level].chunks[0])
        if min(rows, height) * width > _MOST_STRIP:
            raise UserError(
                f"a row of tiles holds {rows:,} x {width:,} pixels, more than 512 MB",
                where=str(self.path),
                fix="Write the mask in tiles of 512 pixels.",
            )
        for top in range(0, height, rows):
            strip = np.empty((min(rows, height - top), width), dtype=np.uint8)
            for left, _, tile in self.tiles(level=level, box=(0, top, width, strip.shape[0])):
                strip[:, left : left + tile.shape[1]] = self._as_bytes(tile)
            yield top, strip

    def _as_bytes(self, tile: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        if not self._probability:
            if len(self.tumour) == 1:
                return np.asarray((tile == self.tumour[0]) * np.uint8(255), dtype=np.uint8)
            return np.asarray(np.isin(tile, self.tumour) * np.uint8(255), dtype=np.uint8)
        if tile.dtype == np.bool_:
            return np.asarray(tile * np.uint8(255), dtype=np.uint8)
        if tile.dtype == np.uint8:
            return np.asarray(tile, dtype=np.uint8)
        return probability_bytes(tile, where=str(self.path))

    def read(self, x: int, y: int, width: int, height: int, *, level: int = 0) -> npt.NDArray[np.bool_]:
        """Read a part of the mask.

        Args:
            x: Left side, at this level.
            y: Upper side, at this level.
            width: Columns.
            height: Rows.
            level: The level.

        Returns:
            Whether each pixel is tumour, [height, width]; outside of the picture nothing is.

        Raises:
            UserError: The level does not exist, the part is too large, or a tile is damaged.
        """
        if not 0 <= level < len(self.levels):
            raise UserError(
                f"the mask has {len(self.levels)} levels, and none of number {level}", where=str(self.path)
            )
        if width < 0 or height < 0 or width * height > MOST_TILE * MOST_TILE * 4:
            raise UserError(f"a part of {width:,} x {height:,} is not read at once", where=str(self.path))
        out = np.zeros((height, width), dtype=np.bool_)
        for left, top, tile in self.tiles(level=level, box=(x, y, width, height)):
            a, b = max(left, x), min(left + tile.shape[1], x + width)
            c, d = max(top, y), min(top + tile.shape[0], y + height)
            if b > a and d > c:
                part = tile[c - top : d - top, a - left : b - left]
                out[c - y : d - y, a - x : b - x] = np.isin(part, self.tumour)
        return out

    def downsample(self, size_px: tuple[int, int], *, level: int = 0) -> float:
        """Return how many pixels of the slide's level 0 a mask pixel covers along a side.

        Args:
            size_px: Width and height of the slide at level 0.
            level: The level of the mask.

        Returns:
            The factor; both sides agree within the rounding of one mask pixel.

        Raises:
            UserError: The mask has another shape than the slide: it is the mask of another slide.
        """
        width, height = self.levels[level]
        across, down = size_px[0] / width, size_px[1] / height
        factor = across if width >= height else down
        near = 2 ** round(math.log2(factor)) if factor > 0 else 1
        for candidate in (float(near), factor):
            if abs(size_px[0] / candidate - width) <= 1 and abs(size_px[1] / candidate - height) <= 1:
                return candidate
        raise UserError(
            f"the mask of {width:,} x {height:,} does not fit a slide of {size_px[0]:,} x {size_px[1]:,} pixels",
            where=str(self.path),
            fix="Check that this is the mask of this slide.",
        )

    def tumour_shares(
        self,
        *,
        patch_px: float,
        shape: tuple[int, int],
        size_px: tuple[int, int],
        origin_px: tuple[float, float] = (0.0, 0.0),
        level: int = 0,
    ) -> npt.NDArray[np.float64]:
        """Return the share of each patch of a grid that is tumour: of the mask pixels whose centre it holds.

        Args:
            patch_px: Width of a patch in pixels of level 0.
            shape: Rows and columns of patches.
            size_px: Width and height of the slide at level 0.
            origin_px: x and y of the grid's upper left corner at level 0.
            level: The level of the mask to read.

        Returns:
            [rows, columns], 0 to 1; parts of a patch outside of the mask are not tumour.

        Raises:
            UserError: A size is not positive, the mask does not fit the slide, its pixels are larger than
                a patch, or a tile is damaged.
        """
        if not (math.isfinite(patch_px) and patch_px > 0 and min(shape) >= 0):
            raise UserError(f"patches of {patch_px} pixels, {shape[0]} x {shape[1]} of them")
        factor = self.downsample(size_px, level=level)
        if factor > patch_px:
            raise UserError(
                f"a pixel of the mask covers {factor:g} pixels of the slide, more than a patch of {patch_px:g}",
                where=str(self.path),
                fix="Read a finer level of the mask.",
            )
        width, height = self.levels[level]
        at_x = np.floor(((np.arange(width) + 0.5) * factor - origin_px[0]) / patch_px).astype(np.int64)
        at_y = np.floor(((np.arange(height) + 0.5) * factor - origin_px[1]) / patch_px).astype(np.int64)
        inside_x, inside_y = (at_x >= 0) & (at_x < shape[1]), (at_y >= 0) & (at_y < shape[0])
        counts = np.zeros(shape, dtype=np.int64)
        for left, top, tile in self.tiles(level=level):
            marked = np.isin(tile, self.tumour)
            if not marked.any():
                continue
            rows, columns = np.nonzero(marked)
            rows, columns = rows + top, columns + left
            good = inside_y[rows] & inside_x[columns]
            np.add.at(counts, (at_y[rows[good]], at_x[columns[good]]), 1)

        def centres(origin: float, number: int) -> npt.NDArray[np.int64]:
            lines = (origin + patch_px * np.arange(number + 1)) / factor - 0.5
            return np.diff(np.ceil(lines - 1e-9).astype(np.int64))

        whole = np.outer(centres(origin_px[1], shape[0]), centres(origin_px[0], shape[1]))
        return np.clip(counts / np.maximum(whole, 1), 0.0, 1.0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> MaskTiff:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_mask(
    path: str | Path, *, tumour: Sequence[int] | None = None, probability: bool | None = None
) -> MaskTiff:
    """Open a mask TIFF.

    Args:
        path: The file.
        tumour: The values that mean tumour; None to recognise 0 and 255, or 0 and 1.
        probability: Whether the values are probabilities; None where the file's own description decides.

    Returns:
        The mask; a context manager.

    Raises:
        UserError: It is no TIFF of one channel, is damaged, or its values are not recognised.

    Example:
        >>> open_mask("no-such.tif")
        Traceback (most recent call last):
        elsewhere.errors.UserError: no-such.tif: there is no such mask
    """
    return MaskTiff(path, tumour=tumour, probability=probability)
