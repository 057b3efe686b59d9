"""Tells whose TIFF file a slide is, which of its pictures are levels, and what it states about its scale.

Three formats are read directly: Aperio's svs, Philips' TIFF (CAMELYON16 and CAMELYON17 are published in it), and
tiled TIFF files of any other writer. Descriptions hold users, dates and original file names: scale and objective are
taken from them and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from elsewhere.inputs.slides.scale import ScaleStatement
from elsewhere.inputs.slides.tiff import Directory
from elsewhere.inputs.slides.tiles import refusal

APERIO, PHILIPS, GENERIC = "aperio", "philips", "generic-tiff"
_NUMBER = r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"
_APERIO_MPP = re.compile(rf"\|\s*MPP\s*=\s*{_NUMBER}", re.IGNORECASE)
_APERIO_OBJECTIVE = re.compile(rf"\|\s*AppMag\s*=\s*{_NUMBER}", re.IGNORECASE)
_PHILIPS_SPACING = re.compile(
    rf'Name="DICOM_PIXEL_SPACING"[^>]{{0,200}}>\s*(?:&quot;|"){_NUMBER}(?:&quot;|")\s*(?:&quot;|"){_NUMBER}(?:&quot;|")'
)
_PHILIPS_PICTURE = re.compile(r'Name="PIM_DP_IMAGE_TYPE"[^>]{0,200}>\s*(LABELIMAGE|MACROIMAGE)')
_WORD = re.compile(r"^\s*(label|macro)\b", re.IGNORECASE | re.MULTILINE)
_ASPECT = 0.02


@dataclass(frozen=True, kw_only=True)
class TiffFormat:
    """What the directories of a TIFF file say about the slide.

    Attributes:
        vendor: Whose format it is.
        levels: The directories that are levels, the finest first.
        sizes: Width and height of each level; Philips pads them to whole tiles, and this is without.
        statements: What the file says about the size of pixels, the most trusted part first.
        objective: The magnification that it states; None without one.
        pictures: Names of other pictures in the file.
        refusal: Why the file is not read directly, as a clause; empty where it is.
        warnings: What a reader should know.
    """

    vendor: str
    levels: tuple[Directory, ...]
    sizes: tuple[tuple[int, int], ...]
    statements: tuple[ScaleStatement, ...]
    objective: float | None
    pictures: tuple[str, ...]
    refusal: str
    warnings: tuple[str, ...]


def describe_tiff(directories: Sequence[Directory]) -> TiffFormat:
    """Tell whose TIFF file it is and how it is read.

    Args:
        directories: All its directories.

    Returns:
        The format.
    """
    first = directories[0]
    vendor, reason = _vendor(first)
    levels = _levels(directories, vendor)
    warnings = []
    same = tuple(d for d in levels if _same_shape(first, d, padded=vendor == PHILIPS))
    if len(same) < len(levels):
        warnings.append(
            f"{len(levels) - len(same)} pictures of another shape than level 0 are not read as levels"
        )
    if "sub-directories" in first.marks:
        warnings.append("lower resolutions lie in sub-directories (OME-TIFF), which are not read")
    if first.bits > 8:
        warnings.append(f"colours have {first.bits} bits, of which the upper 8 are shown")
    for directory in same:
        if not reason and (why := refusal(directory)):
            reason = why
    if not reason and not first.tiled and len(directories) > 1 and vendor != GENERIC:
        reason = "its level 0 is not stored in tiles"
    spacings = _philips_spacings(first.description) if vendor == PHILIPS else ()
    sizes = _sizes(same, vendor, spacings)
    if not sizes:
        reason = reason or "the spacings in its Philips description do not fit its levels"
    return TiffFormat(
        vendor=vendor,
        levels=same,
        sizes=sizes,
        statements=_statements(first, vendor, spacings),
        objective=_number(_APERIO_OBJECTIVE, first.description) if vendor == APERIO else None,
        pictures=_pictures(directories, vendor),
        refusal=reason,
        warnings=tuple(warnings),
    )


def _vendor(first: Directory) -> tuple[str, str]:
    """The vendor, and why files of the vendor are not read directly."""
    start = first.description[:4096]
    if "ndpi" in first.marks:
        return "hamamatsu", "it is a Hamamatsu file"
    if start.startswith("Aperio"):
        return APERIO, ""
    if "leica-microsystems.com/scn" in start:
        return "leica", "it is a Leica file"
    if first.software.startswith("MedScan"):
        return "trestle", "it is a Trestle file"
    if first.software.startswith("Philips") or "DPUfsImport" in start:
        return PHILIPS, "" if _philips_spacings(
            first.description
        ) else "its Philips description has no spacing"
    if "xmp" in first.marks:
        return GENERIC, "it has an XMP description, as Ventana's files do"
    return GENERIC, ""


def _levels(directories: Sequence[Directory], vendor: str) -> list[Directory]:
    first, rest = directories[0], directories[1:]
    if not first.tiled:
        return [first]
    found = [d for d in rest if d.tiled and d.depth == 1 and (vendor == APERIO or d.subfile & 1)]
    smaller = [d for d in found if d.width <= first.width and d.height <= first.height]
    return [first, *sorted(smaller, key=lambda d: -d.width)]


def _same_shape(first: Directory, other: Directory, *, padded: bool) -> bool:
    """Whether both sides are reduced alike, to within the pixels that rounding and padding add."""
    slack = max(other.tile_width, other.tile_height) if padded else 1
    across, down = first.width / other.width, first.height / other.height
    allowed = _ASPECT + slack / min(other.width, other.height)
    return abs(across - down) <= allowed * max(across, down)


def _sizes(
    levels: Sequence[Directory], vendor: str, spacings: Sequence[tuple[float, float]]
) -> tuple[tuple[int, int], ...]:
    """Width and height of each level; nothing where the spacings of a Philips file do not fit its levels."""
    if vendor != PHILIPS:
        return tuple((d.width, d.height) for d in levels)
    if len(spacings) != len(levels):
        return ()
    factors = [max(1, round(pair[1] / spacings[0][1])) for pair in spacings]
    sizes = tuple((levels[0].width // f, levels[0].height // f) for f in factors)
    fits = all(0 < w <= d.width and 0 < h <= d.height for (w, h), d in zip(sizes, levels, strict=True))
    return sizes if fits else ()


def _philips_spacings(text: str) -> tuple[tuple[float, float], ...]:
    """Millimetres down and across of the finest pixels first."""
    found = {(float(a), float(b)) for a, b in _PHILIPS_SPACING.findall(text)}
    return tuple(sorted(pair for pair in found if min(pair) > 0))


def _statements(
    first: Directory, vendor: str, spacings: Sequence[tuple[float, float]]
) -> tuple[ScaleStatement, ...]:
    said = []
    if vendor == APERIO and (mpp := _number(_APERIO_MPP, first.description)) is not None:
        said.append(ScaleStatement(source="Aperio description", x_um=mpp, y_um=mpp))
    if spacings:
        down, across = spacings[0]
        said.append(ScaleStatement(source="Philips description", x_um=across * 1000, y_um=down * 1000))
    if first.resolution_um is not None:
        x_um, y_um = first.resolution_um
        said.append(ScaleStatement(source="resolution tags", x_um=x_um, y_um=y_um))
    return tuple(said)


def _number(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return float(found[1]) if found else None


def _pictures(directories: Sequence[Directory], vendor: str) -> tuple[str, ...]:
    names = set()
    for directory in directories[1:]:
        if directory.tiled:
            continue
        named = _WORD.search(directory.description)
        if named:
            names.add(named[1].lower())
        elif vendor == APERIO:
            names.add({1: "label", 9: "macro"}.get(directory.subfile, "thumbnail"))
    if vendor == PHILIPS:
        kinds = _PHILIPS_PICTURE.findall(directories[0].description)
        names |= {kind.removesuffix("IMAGE").lower() for kind in kinds}
    return tuple(sorted(names))
