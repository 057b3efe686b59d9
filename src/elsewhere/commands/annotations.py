"""`annotations`: what an annotation file of a slide holds, and the file in another format (LN-01)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import (
    Annotations,
    Region,
    check_inside,
    major_axes_px,
    read_annotations,
    resolve,
    write_geojson,
    write_mask,
)
from elsewhere.inputs.slides.annotations.outlines import COUNTED
from elsewhere.untrusted import printable


@dataclass(frozen=True, kw_only=True)
class AnnotationFile:
    """What an annotation file holds, as it is printed.

    Args:
        path: The file.
        annotations: What was read.
        region: The region that it means.
        mpp: Microns per pixel of the slide; None where they are not known.
        written: The file that was written; None where none was.
    """

    path: Path
    annotations: Annotations
    region: Region
    mpp: float | None = None
    written: Path | None = None
    counts: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", {**self.annotations.counts, **self.region.counts})

    @property
    def area_mm2(self) -> float | None:
        """The area in square millimetres; None without microns per pixel."""
        return None if self.mpp is None else self.region.area_px * (self.mpp / 1000.0) ** 2

    @property
    def longest_axis_mm(self) -> float | None:
        """The longest major axis of a polygon in mm, which gives the stage; None without microns per pixel."""
        return None if self.mpp is None else max(major_axes_px(self.region), default=0.0) * self.mpp / 1000.0

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The counts, the box, the area and the longest axis.
        """
        return {
            "file": str(self.path),
            "counts": dict(self.counts),
            "polygons": len(self.region.polygons),
            "box_px": list(self.annotations.box),
            "area_px": self.region.area_px,
            "area_mm2": self.area_mm2,
            "longest_axis_mm": self.longest_axis_mm,
            "written": str(self.written) if self.written else None,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield printable(str(self.path))
        for name, number in self.counts.items():
            if number:
                yield f"  {number:,} {COUNTED.get(name, name)}"
        left, top, right, bottom = self.annotations.box
        area = f"{self.region.area_px:,.0f} square pixels"
        if self.area_mm2 is not None:
            area += f", {self.area_mm2:.3f} mm2, longest axis {self.longest_axis_mm:.3f} mm"
        yield f"region: {len(self.region.polygons):,} polygons, {area}"
        if self.region.polygons:
            yield f"between x {left:,.0f} and {right:,.0f}, y {top:,.0f} and {bottom:,.0f}"
        if self.written is not None:
            yield f"written: {printable(str(self.written))}"


def convert_annotations(
    path: str | Path,
    *,
    out: str | Path | None = None,
    size_px: tuple[int, int] | None = None,
    mpp: float | None = None,
    downsample: float = 1.0,
    groups: Mapping[str, str] | None = None,
    replace: bool = False,
) -> AnnotationFile:
    """Read the annotations of a slide, say what was found and mended, and write them in another format.

    Args:
        path: An XML of ASAP or CAMELYON, a GeoJSON, or a json of NCRF.
        out: A .geojson, or a .tif mask; None to write nothing.
        size_px: Width and height of the slide at level 0; needed for a mask. Points outside are counted, and
            annotations of another slide refused.
        mpp: Microns per pixel of the slide at level 0; needed for a mask.
        downsample: Pixels of the slide per pixel of the mask, along a side.
        groups: Meanings of groups that are not known: "tumour", "hole" or "ignore".
        replace: Whether a file that exists may be replaced.

    Returns:
        What was found.

    Raises:
        UserError: The file cannot be read, an option for a mask is missing, or `out` has another ending.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "a.geojson"
        ...     ring = [[0, 0], [8, 0], [8, 8], [0, 0]]
        ...     _ = file.write_text(f'{{"type": "Polygon", "coordinates": [{ring}]}}')
        ...     convert_annotations(file).region.area_px
        32.0
    """
    ending = Path(out).suffix.lower() if out is not None else ""
    if out is not None and ending not in (".geojson", ".json", ".tif", ".tiff"):
        raise UserError(
            f"annotations are not written as '{printable(ending)}'",
            where=str(out),
            fix="Give a name that ends in .geojson or .tif.",
        )
    if ending in (".tif", ".tiff") and (size_px is None or mpp is None):
        raise UserError(
            "a mask needs the slide's size and its microns per pixel",
            where=str(out),
            fix="Give them, such as --size 97792x221184 --mpp 0.243.",
        )
    read = read_annotations(path, groups=groups)
    if size_px is not None:
        read = check_inside(read, size_px)
    region = resolve(read)
    written = None
    if out is not None and ending in (".tif", ".tiff") and size_px is not None and mpp is not None:
        written = write_mask(out, read, size_px=size_px, mpp=mpp, downsample=downsample, replace=replace)
    elif out is not None:
        written = write_geojson(out, region, replace=replace)
    return AnnotationFile(path=Path(path), annotations=read, region=region, mpp=mpp, written=written)
