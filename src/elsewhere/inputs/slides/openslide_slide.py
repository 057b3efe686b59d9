"""Reads slides through OpenSlide: Hamamatsu, Leica, MIRAX, Ventana, Zeiss, DICOM and what is not read directly.

OpenSlide places regions of lower levels by whole pixels of level 0. Where the size of a level is no whole fraction of
level 0, its pixels are therefore interpolated, by at most half a pixel of level 0.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.errors import UserError
from elsewhere.inputs.slides.files import CUT_OFF
from elsewhere.inputs.slides.scale import ScaleStatement, choose_scale
from elsewhere.inputs.slides.slide import Level, Pixels, Slide, SlideFacts, exact_downsample
from elsewhere.inputs.slides.tiff_formats import TiffFormat
from elsewhere.inputs.slides.tiles import EXTRA, compression_name
from elsewhere.untrusted import as_float, check_plain_file, printable

_CHUNK_PX = 4096
_OTHER_FILES = {
    ".mrxs": "A .mrxs slide is a file and a folder of the same name beside it: keep both together.",
    ".dcm": "A DICOM slide is a folder of files: keep all of them together.",
    ".vms": "A .vms slide is several files: keep all of them together.",
    ".vmu": "A .vmu slide is several files: keep all of them together.",
}


def openslide_module() -> Any:
    """Import OpenSlide.

    Returns:
        The module `openslide`.

    Raises:
        UserError: It is not installed.
    """
    try:
        import openslide
    except (ImportError, OSError) as error:
        raise UserError("OpenSlide is not installed", fix=EXTRA) from error
    return openslide


class OpenSlideSlide(Slide):
    """A slide that OpenSlide reads.

    Args:
        path: The file.
        stated_mpp: Microns per pixel that the user states; None for those of the file.
        tiff: What the file's own TIFF directories say, where it has some.
        reason: Why it is not read directly.

    Raises:
        UserError: OpenSlide cannot open it, or its microns per pixel are missing, absurd or contradicted.
    """

    backend = "openslide"

    def __init__(
        self, path: Path, stated_mpp: float | None = None, *, tiff: TiffFormat | None = None, reason: str = ""
    ) -> None:
        super().__init__(path, stated_mpp)
        check_plain_file(path, what="slide")
        self._library = openslide_module()
        self._tiff = tiff
        self._lock = threading.Lock()
        self._handle: Any = None
        self._process = -1
        self._closed = False
        handle = self._open()
        properties: Mapping[str, str] = handle.properties
        vendor = properties.get("openslide.vendor", "unknown")
        objective = _number(properties.get("openslide.objective-power"))
        statements = _statements(properties) if tiff is None or not tiff.statements else tiff.statements
        scale = choose_scale(statements, stated=stated_mpp, objective=objective, where=str(path))
        sizes = [(int(w), int(h)) for w, h in handle.level_dimensions]
        self._openslide_downsamples = [float(factor) for factor in handle.level_downsamples]
        bounds = _bounds(properties, sizes[0])
        warnings = [*scale.warnings, *(tiff.warnings if tiff is not None else ())]
        if bounds != (0, 0, *sizes[0]):
            warnings.append(
                f"the scanned part begins at x = {bounds[0]:,}, y = {bounds[1]:,} of level 0: annotations may count "
                "from there or from the corner of the slide"
            )
        self.facts = SlideFacts(
            mpp=scale.mpp,
            mpp_source=scale.source,
            levels=tuple(
                Level(
                    width=size[0],
                    height=size[1],
                    downsample=(factor := exact_downsample(sizes[0], size)),
                    mpp=scale.mpp * factor,
                    tile_width=_whole(properties.get(f"openslide.level[{number}].tile-width")),
                    tile_height=_whole(properties.get(f"openslide.level[{number}].tile-height")),
                )
                for number, size in enumerate(sizes)
            ),
            objective=objective,
            vendor=vendor,
            compression=compression_name(tiff.levels[0]) if tiff is not None else "by its vendor",
            bounds_px=bounds,
            pictures=tuple(sorted(printable(name)[:40] for name in handle.associated_images)),
            reader_reason=reason,
            warnings=tuple(warnings),
        )

    def close(self) -> None:
        """Close the file. A closed slide cannot be read."""
        with self._lock:
            self._closed = True
            if self._handle is not None and self._process == os.getpid():
                self._handle.close()
            self._handle = None

    def _open(self) -> Any:
        """The handle of this process: one that a fork copied shares its position in the file with the parent."""
        if self._process == os.getpid() and self._handle is not None:
            return self._handle
        if self._process != os.getpid():
            self._lock = threading.Lock()
        with self._lock:
            if self._closed:
                raise UserError(
                    "the slide was closed before this read", where=str(self.path), fix="Open it again."
                )
            if self._process != os.getpid() or self._handle is None:
                try:
                    self._handle = self._library.OpenSlide(str(self.path))
                except self._library.OpenSlideError as error:
                    raise self._refusal(printable(error)[:200]) from error
                self._process = os.getpid()
            return self._handle

    def _refusal(self, error: str) -> UserError:
        """Why neither reader opens the file."""
        if self._tiff is not None and self._tiff.refusal:
            return UserError(
                f"the slide can be read neither directly ({self._tiff.refusal}) nor by OpenSlide ({error})",
                where=str(self.path),
                fix="Save it as a TIFF file with 8 bits per colour and JPEG, LZW or deflate tiles of 256 or 512 pixels.",
            )
        return UserError(
            f"OpenSlide cannot open the slide ({error})",
            where=str(self.path),
            fix=_OTHER_FILES.get(self.path.suffix.lower(), CUT_OFF),
        )

    def _fill(self, level: int, x: int, y: int, out: Pixels) -> None:
        factor = self._openslide_downsamples[level]
        for top in range(0, out.shape[0], _CHUNK_PX):
            for left in range(0, out.shape[1], _CHUNK_PX):
                part = out[top : top + _CHUNK_PX, left : left + _CHUNK_PX]
                corner = (round((x + left) * factor), round((y + top) * factor))
                part[:] = self._region(corner, level, (part.shape[1], part.shape[0]))

    def _region(self, corner: tuple[int, int], level: int, size: tuple[int, int]) -> Pixels:
        handle = self._open()
        try:
            pixels = np.asarray(handle.read_region(corner, level, size))
        except self._library.OpenSlideError as error:
            with self._lock:
                if self._handle is handle:
                    self._handle = None  # OpenSlide refuses every later read by a handle that failed
            raise UserError(
                f"OpenSlide cannot read level {level} at x = {corner[0]:,}, y = {corner[1]:,} of level 0 "
                f"({printable(error)[:200]})",
                where=str(self.path),
                fix="Fetch or export the slide again; other parts of it can be read.",
            ) from error
        return on_white(pixels)


def on_white(pixels: Pixels) -> Pixels:
    """Show pixels with transparency on white.

    Args:
        pixels: [height, width, 4] of 8 bits: red, green, blue and opacity.

    Returns:
        [height, width, 3].

    Example:
        >>> import numpy as np
        >>> on_white(np.array([[[0, 0, 0, 0], [10, 20, 30, 255]]], dtype=np.uint8)).tolist()
        [[[255, 255, 255], [10, 20, 30]]]
    """
    opacity = pixels[..., 3]
    colours: Pixels = pixels[..., :3]
    if opacity.min() == 255:
        return colours
    share = opacity[..., None].astype(np.uint32)
    mixed = (colours * share + 255 * (255 - share) + 127) // 255
    return mixed.astype(np.uint8)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else as_float(float(text))
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


def _statements(properties: Mapping[str, str]) -> tuple[ScaleStatement, ...]:
    x_um, y_um = _number(properties.get("openslide.mpp-x")), _number(properties.get("openslide.mpp-y"))
    if x_um is None or y_um is None:
        return ()
    return (ScaleStatement(source="OpenSlide's properties", x_um=x_um, y_um=y_um),)


def _bounds(properties: Mapping[str, str], size: tuple[int, int]) -> tuple[int, int, int, int]:
    values = [_whole(properties.get(f"openslide.bounds-{name}")) for name in ("x", "y", "width", "height")]
    if any(value is None for value in values):
        return (0, 0, *size)
    x, y, width, height = (int(value or 0) for value in values)
    return x, y, width, height
