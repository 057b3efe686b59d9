"""Masks of slides as files: TIFF (tiled, of any levels), PNG and outlines, at their scale and place on the slide (LN-14).

A mask is read in strips of rows from top to bottom and never held. Its scale is the microns per pixel that the user
states, else those of the file, else those of the mask that it is compared with. Its place is its offset, else the upper
left corner. Values are 0 to 255: 255 for tumour, or probabilities in 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.untrusted import check_plain_file

Bytes = npt.NDArray[np.uint8]
MASK_ENDINGS = (".png", ".tif", ".tiff", ".geojson", ".json", ".xml")
SAME_SCALE = 0.02
"""Scales that differ by more than this share are two scales."""
_OUTLINES = (".geojson", ".json", ".xml")
_TIFFS = (".tif", ".tiff")
_WITH_ALPHA = ("LA", "RGBA")
_ROWS = 256
_ROUNDING = 0.001
_WHOLE = 0.004
_PATCH_UM = 128.0


@dataclass(frozen=True, kw_only=True)
class MaskReading:
    """What the user states of a mask file.

    Args:
        pixel_um: Microns per pixel of the mask; None for those of the file.
        offset_px: x and y of its upper left corner in pixels of the slide's level 0; None where the mask covers
            the whole slide.
        tumour: The values that mean tumour; None where they can be recognised.
        threshold: The probability above which a pixel is tumour; None for a mask of classes.

    Example:
        >>> MaskReading(threshold=0.7).tumour is None
        True
    """

    pixel_um: float | None = None
    offset_px: tuple[float, float] | None = None
    tumour: tuple[int, ...] | None = None
    threshold: float | None = None


@dataclass(frozen=True, kw_only=True)
class SlideGeometry:
    """What is known of a slide when its masks are read.

    Args:
        mpp: Microns per pixel of level 0.
        size_px: Width and height of level 0; None where they are not known.
        downsample: Pixels of level 0 per pixel of a mask that does not state its scale.
        stated: Whether the user stated `downsample`, so that a file that says otherwise is refused.

    Example:
        >>> SlideGeometry(mpp=0.25).downsample
        32.0
    """

    mpp: float
    size_px: tuple[int, int] | None = None
    downsample: float = 32.0
    stated: bool = False


@dataclass(frozen=True, kw_only=True)
class SlideMask(AbstractContextManager["SlideMask"]):
    """An open mask of a slide. `open_slide_mask` makes one.

    Args:
        path: The file.
        columns: Pixels across.
        rows: Pixels down.
        step_px: Pixels of level 0 per pixel of the mask, along a side.
        offset_px: x and y of its upper left corner at level 0.
        placed: Whether the offset was stated, so that the mask may cover a part of the slide.
        threshold: The share of 255 above which a pixel is tumour.
        reader: Makes the strips; used by `strips`.
        closer: Closes the file.
    """

    path: Path
    columns: int
    rows: int
    step_px: float
    offset_px: tuple[float, float] = (0.0, 0.0)
    placed: bool = False
    threshold: float = 0.5
    reader: Callable[[], Iterator[Bytes]] = field(repr=False)
    closer: Callable[[], None] = field(repr=False, default=lambda: None)

    @property
    def extent_px(self) -> tuple[float, float]:
        """x and y of its lower right corner at level 0."""
        return (
            self.offset_px[0] + self.columns * self.step_px,
            self.offset_px[1] + self.rows * self.step_px,
        )

    @property
    def tumour_above(self) -> float:
        """The value above which a pixel is tumour."""
        return 255.0 * self.threshold

    def marked(self, strip: Bytes) -> npt.NDArray[np.bool_]:
        """Compare values with the threshold.

        Args:
            strip: Values of the mask.

        Returns:
            True where they are above it.
        """
        return np.asarray(strip > np.uint8(math.floor(self.tumour_above)))

    def strips(self) -> Iterator[Bytes]:
        """Read the mask from top to bottom.

        Yields:
            Full rows of values, of heights that the file decides.

        Raises:
            UserError: The file is damaged.
        """
        return self.reader()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closer()


def open_slide_mask(
    path: str | Path,
    geometry: SlideGeometry,
    *,
    reading: MaskReading | None = None,
    like: SlideMask | None = None,
    wanted_step: float | None = None,
) -> SlideMask:
    """Open a mask of a slide.

    Args:
        path: A TIFF, a PNG, or outlines (GeoJSON, XML of ASAP, json of NCRF).
        geometry: What is known of the slide.
        reading: What the user states of the file.
        like: Another mask of the slide: the scale of files that state none, and the grid on which outlines are drawn.
        wanted_step: Pixels of level 0 per pixel that are wanted: a level of this scale is opened in place of the finest
            one where the file has it.

    Returns:
        The mask; a context manager.

    Raises:
        UserError: The file cannot be read, its scale contradicts what is stated, or its values are not recognised.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.fromarray(np.full((30, 40), 255, dtype=np.uint8)).save(f"{folder}/a.png")
        ...     with open_slide_mask(f"{folder}/a.png", SlideGeometry(mpp=0.25)) as mask:
        ...         mask.columns, mask.step_px, mask.extent_px
        (40, 32.0, (1280.0, 960.0))
    """
    path, reading = Path(path), reading or MaskReading()
    check_plain_file(
        path, what="mask file", fix="Check the path in the cohort, or the folder of predictions."
    )
    if reading.threshold is not None and not 0 < reading.threshold < 1:
        raise UserError(
            f"the threshold is {reading.threshold}", where=str(path), fix="Give 0 to 1, such as 0.5."
        )
    if path.suffix.lower() in _OUTLINES:
        return _open_outlines(path, geometry, reading, like)
    if path.suffix.lower() in _TIFFS:
        opened = _open_tiff(path, geometry, reading, like, wanted_step)
        if opened is not None:
            return opened
    pixels = _read_picture(path, reading)
    step = _step(None, path, geometry, reading, like)
    return _placed(
        SlideMask(
            path=path,
            columns=pixels.shape[1],
            rows=pixels.shape[0],
            step_px=step,
            reader=lambda: (pixels[top : top + _ROWS] for top in range(0, len(pixels), _ROWS)),
        ),
        None,
        reading,
    )


def _placed(mask: SlideMask, own: tuple[float, float] | None, reading: MaskReading) -> SlideMask:
    """The mask at the offset that is stated, else that of the file; a file at 0, 0 covers the whole slide."""
    offset = reading.offset_px if reading.offset_px is not None else own
    if reading.threshold is not None:
        mask = replace(mask, threshold=reading.threshold)
    if offset is None or (reading.offset_px is None and offset == (0.0, 0.0)):
        return mask
    if not all(math.isfinite(value) for value in offset):
        raise UserError(
            f"the offset of the mask is {offset}", where=str(mask.path), fix="Give finite numbers."
        )
    return replace(mask, offset_px=(float(offset[0]), float(offset[1])), placed=True)


def _step(
    own_um: float | None,
    path: Path,
    geometry: SlideGeometry,
    reading: MaskReading,
    like: SlideMask | None,
) -> float:
    """Pixels of level 0 per pixel of the mask."""
    if reading.pixel_um is not None:
        if not (math.isfinite(reading.pixel_um) and reading.pixel_um > 0):
            raise UserError(f"the mask has {reading.pixel_um} microns per pixel", where=str(path))
        if own_um is not None and abs(own_um / reading.pixel_um - 1) > SAME_SCALE:
            raise UserError(
                f"the mask is at another scale: {reading.pixel_um:.4g} microns per pixel are stated, and the file "
                f"says {own_um:.4g}",
                where=str(path),
                fix="Correct the stated value, or write the mask again.",
            )
        return _whole(reading.pixel_um / geometry.mpp)
    if own_um is not None:
        step = _whole(own_um / geometry.mpp)
        if like is None and geometry.stated and abs(step / geometry.downsample - 1) > SAME_SCALE:
            raise UserError(
                f"the mask is at another scale: the cohort states {geometry.downsample:g} slide pixels per mask pixel "
                f"of {geometry.mpp:g} microns, and the file says {own_um:.4g} microns per pixel",
                where=str(path),
                fix="Correct mask_downsample or microns_per_pixel in the cohort, or write the mask again.",
            )
        return step
    return like.step_px if like is not None else geometry.downsample


def _whole(step: float) -> float:
    """A whole number where it is one but for the rounding of microns per pixel."""
    near = round(step)
    return float(near) if near and abs(step - near) <= _WHOLE * near else step


def _open_tiff(
    path: Path,
    geometry: SlideGeometry,
    reading: MaskReading,
    like: SlideMask | None,
    wanted_step: float | None,
) -> SlideMask | None:
    """The mask; None without the libraries for tiles, where small files are opened as pictures."""
    from elsewhere.inputs.slides.annotations import open_mask

    try:
        import tifffile
    except ImportError:
        return None
    del tifffile
    mask = open_mask(path, tumour=reading.tumour, probability=True if reading.threshold is not None else None)
    try:
        step = _step(mask.pixel_um, path, geometry, reading, like)
        level = _level(mask.levels, step, wanted_step)
        columns, rows = mask.levels[level]
        offset = mask.about.get("offset_px")
        own = None
        if isinstance(offset, list) and len(offset) == 2 and all(isinstance(v, int | float) for v in offset):
            own = (float(offset[0]), float(offset[1]))
        return _placed(
            SlideMask(
                path=path,
                columns=columns,
                rows=rows,
                step_px=step if level == 0 else float(wanted_step or step),
                reader=lambda: (strip for _, strip in mask.strips(level=level)),
                closer=mask.close,
            ),
            own,
            reading,
        )
    except BaseException:
        mask.close()
        raise


def _level(levels: list[tuple[int, int]], step: float, wanted: float | None) -> int:
    """The level at the scale that is wanted; the finest where there is none."""
    if wanted is None:
        return 0
    for number, (columns, rows) in enumerate(levels):
        ratio = wanted / step
        if abs(levels[0][0] / ratio - columns) <= 1 and abs(levels[0][1] / ratio - rows) <= 1:
            return number
    return 0


def _open_outlines(
    path: Path, geometry: SlideGeometry, reading: MaskReading, like: SlideMask | None
) -> SlideMask:
    from elsewhere.inputs.slides.annotations import check_inside, moved, read_annotations
    from elsewhere.inputs.slides.annotations.scanning import Grid, mask_rows, ring_table

    drawn = read_annotations(path)
    if reading.offset_px is not None:
        drawn = moved(drawn, offset_px=reading.offset_px)
    if geometry.size_px is not None:
        drawn = check_inside(drawn, geometry.size_px)
    step = _step(None, path, geometry, reading, like)
    if like is not None:
        width, height = like.extent_px
    elif geometry.size_px is not None:
        width, height = geometry.size_px
    else:
        width, height = (max(side, step) for side in drawn.box[2:])
    grid = Grid(x=0.0, y=0.0, step_px=step, columns=math.ceil(width / step), rows=math.ceil(height / step))
    table = ring_table(drawn)

    def strips() -> Iterator[Bytes]:
        for top in range(0, grid.rows, _ROWS):
            rows = mask_rows(table, grid, top, min(top + _ROWS, grid.rows))
            yield rows * np.uint8(255)

    return SlideMask(path=path, columns=grid.columns, rows=grid.rows, step_px=step, reader=strips)


def _read_picture(path: Path, reading: MaskReading) -> Bytes:
    """The values of a PNG or a small TIFF; transparency is no tumour."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            array = np.asarray(picture.convert(picture.mode[:-1]) if picture.mode in _WITH_ALPHA else picture)
    except (
        UnidentifiedImageError,
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
    ) as problem:
        raise UserError(
            f"the mask cannot be read ({problem})",
            where=str(path),
            fix="Write it again as PNG, or as a tiled TIFF where it is large.",
        ) from problem
    if array.ndim == 3:
        array = array.max(axis=2)
    if array.ndim != 2 or not array.size:
        raise UserError("the mask holds no pixels", where=str(path), fix="Write it again.")
    if reading.threshold is not None:
        if array.dtype != np.uint8:
            raise UserError(
                f"probabilities of {array.dtype} in a picture are not read",
                where=str(path),
                fix="Write them as 8 bits, 0 to 255.",
            )
        return np.asarray(array, dtype=np.uint8)
    if reading.tumour is not None:
        return np.asarray(np.isin(array, reading.tumour) * np.uint8(255), dtype=np.uint8)
    values = np.unique(array)
    if (values != 0).sum() > 1:
        shown = ", ".join(str(value) for value in values[:8].tolist())
        raise UserError(
            f"the mask holds the values {shown}, and which of them is tumour is not known",
            where=str(path),
            fix="Give a table of masks with the tumour's value in the column `tumour`, or with a `threshold` where "
            "these are probabilities; of a truth, the column `mask_tumour` of the cohort.",
        )
    return np.asarray((array != 0) * np.uint8(255), dtype=np.uint8)


def check_grid(mask: SlideMask, geometry: SlideGeometry, truth: SlideMask | None = None) -> None:
    """Check that a mask lies on its slide: of its size and scale, or inside of it where an offset is stated.

    Args:
        mask: The mask.
        geometry: What is known of the slide.
        truth: Another mask of the slide, whose size is the slide's where that is not known.

    Raises:
        UserError: The mask covers more or less than the slide; the message says by how many patches, or at which scale
            it would fit.

    Example:
        >>> check_grid(SlideMask(path=Path("a.png"), columns=10, rows=8, step_px=32.0, reader=lambda: iter(())),
        ...            SlideGeometry(mpp=0.25, size_px=(320, 256)))
    """
    size = geometry.size_px or (truth.extent_px if truth is not None else None)
    if size is None:
        return
    coarser = max(mask.step_px, truth.step_px if truth is not None else 1.0)
    slack = [coarser + _ROUNDING * side for side in size]
    gaps = [extent - side for extent, side in zip(mask.extent_px, size, strict=True)]
    if mask.placed:
        outside = min(mask.offset_px) < 0 or any(gap > free for gap, free in zip(gaps, slack, strict=True))
        if outside:
            raise UserError(
                f"the mask lies outside of the slide: from {mask.offset_px[0]:,.0f}, {mask.offset_px[1]:,.0f} to "
                f"{mask.extent_px[0]:,.0f}, {mask.extent_px[1]:,.0f} in a slide of {size[0]:,.0f} x {size[1]:,.0f} pixels",
                where=str(mask.path),
                fix="Check the offset, in pixels of level 0, and the mask's microns per pixel.",
            )
        return
    if all(abs(gap) <= free for gap, free in zip(gaps, slack, strict=True)):
        return
    what = f"the mask is {mask.columns:,} x {mask.rows:,} px"
    what += (
        f", the truth {truth.columns:,} x {truth.rows:,}"
        if truth is not None and truth.step_px == mask.step_px
        else f" of {mask.step_px * geometry.mpp:.4g} microns, and the slide {size[0]:,.0f} x {size[1]:,.0f} px of "
        f"{geometry.mpp:g}"
    )
    raise UserError(f"{what}: {_why(mask, geometry, size, gaps)}", where=str(mask.path), fix=_GRID_FIX)


_GRID_FIX = (
    "Write the mask on the truth mask's grid, state its scale (the resolution tags of a TIFF, or `mpp` in a table of "
    "masks), or where it begins (`offset_x` and `offset_y`)."
)


def _why(mask: SlideMask, geometry: SlideGeometry, size: tuple[float, float], gaps: list[float]) -> str:
    ratios = [side / extent for side, extent in zip(size, mask.extent_px, strict=True)]
    if abs(ratios[0] / ratios[1] - 1) < SAME_SCALE and abs(ratios[0] - 1) > 2 * SAME_SCALE:
        return f"it is at another scale, and fits at {mask.step_px * ratios[0] * geometry.mpp:.4g} microns per pixel"
    patch = _PATCH_UM / geometry.mpp
    counts = [gap / patch for gap in gaps]
    if all(abs(count - round(count)) < 0.05 for count in counts) and any(round(count) for count in counts):
        shown = " and ".join(
            f"{abs(round(count))} patch{'' if abs(round(count)) == 1 else 'es'} of {_PATCH_UM:g} microns too "
            f"{'large' if count > 0 else 'small'} {way}"
            for count, way in zip(counts, ("across", "down"), strict=True)
            if round(count)
        )
        return f"it is {shown}"
    return "it is the mask of another slide, or of a part of it"
