"""Write annotations as GeoJSON (QuPath) and as tiled pyramidal TIFF (QuPath, ASAP, OpenSlide).

Both hold the region by the rule of `outlines`: polygons are resolved first, and the mask is drawn from them tile by
tile, level by level, so that a slide of 100,000 x 100,000 pixels needs one row of tiles in memory. Resolution stands in
the tags, in pixels per centimetre.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.errors import UserError
from elsewhere.files import check_out_file, replacing
from elsewhere.inputs.slides.annotations.mask_tiff import EXTRA, MOST_EDGE
from elsewhere.inputs.slides.annotations.mending import Region, resolve
from elsewhere.inputs.slides.annotations.outlines import Annotations, Ring
from elsewhere.inputs.slides.annotations.scanning import Grid, RingTable, mask_rows, ring_table

TILE = 512
SMALLEST_LEVEL = 1024
_COLOUR = [200, 0, 0]
_MPP = (0.02, 100.0)
_LARGE = 2 << 30


def geojson(annotations: Annotations | Region, *, name: str = "Tumor") -> dict[str, Any]:
    """Return annotations as a GeoJSON FeatureCollection, one feature per polygon, as QuPath reads it.

    Args:
        annotations: The annotations; rings that cross are resolved.
        name: The class that QuPath shows.

    Returns:
        The collection; coordinates are pixels of level 0.

    Raises:
        UserError: The outlines cross too often to be resolved.

    Example:
        >>> geojson(Annotations())
        {'type': 'FeatureCollection', 'features': []}
    """
    region = annotations if isinstance(annotations, Region) else resolve(annotations)
    features = []
    for polygon in region.polygons:
        rings = [_closed(polygon.ring), *(_closed(hole) for hole in polygon.holes)]
        features.append(
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": rings},
                "properties": {
                    "objectType": "annotation",
                    "classification": {"name": name, "color": _COLOUR},
                },
            }
        )
    return {"type": "FeatureCollection", "features": features}


def _closed(ring: Ring) -> list[list[float]]:
    points = ring.tolist()
    return [*points, points[0]]


def write_geojson(
    path: str | Path, annotations: Annotations | Region, *, name: str = "Tumor", replace: bool = False
) -> Path:
    """Write annotations as GeoJSON.

    Args:
        path: The file to write.
        annotations: The annotations.
        name: The class that QuPath shows.
        replace: Whether a file of this name may be replaced.

    Returns:
        The file.

    Raises:
        UserError: The file exists and may not be replaced, or the outlines cannot be resolved.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_geojson(Path(folder) / "a.geojson", Annotations()).name
        'a.geojson'
    """
    path = Path(path)
    content = json.dumps(geojson(annotations, name=name), separators=(",", ":"))
    check_out_file(path, replace=replace)
    with replacing(path) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return path


def write_mask(
    path: str | Path,
    annotations: Annotations,
    *,
    size_px: tuple[int, int],
    mpp: float,
    downsample: float = 1.0,
    replace: bool = False,
) -> Path:
    """Write annotations as a tiled pyramidal TIFF: 255 is tumour, 0 is not.

    Args:
        path: The file to write.
        annotations: The annotations.
        size_px: Width and height of the slide at level 0.
        mpp: Microns per pixel of the slide at level 0.
        downsample: Pixels of the slide per pixel of the mask's finest level, along a side.
        replace: Whether a file of this name may be replaced.

    Returns:
        The file.

    Raises:
        UserError: A size is not usable, the file exists and may not be replaced, or the annotations lie outside
            of the slide.

    Example:
        >>> write_mask("m.tif", Annotations(), size_px=(100, 100), mpp=250.0)
        Traceback (most recent call last):
        elsewhere.errors.UserError: the slide has 250.0 microns per pixel
        Give microns, such as 0.25; from 0.02 to 100.
    """
    if not (math.isfinite(mpp) and _MPP[0] <= mpp <= _MPP[1]):
        raise UserError(
            f"the slide has {mpp} microns per pixel",
            fix=f"Give microns, such as 0.25; from {_MPP[0]} to {_MPP[1]:g}.",
        )
    if not (0 < size_px[0] <= MOST_EDGE and 0 < size_px[1] <= MOST_EDGE):
        raise UserError(
            f"the slide is {size_px[0]:,} x {size_px[1]:,} pixels", fix=f"Give sizes from 1 to {MOST_EDGE:,}."
        )
    if not (math.isfinite(downsample) and 1 <= downsample <= max(size_px)):
        raise UserError(f"the downsample is {downsample}", fix="Give 1 or more.")
    try:
        import tifffile
    except ImportError as error:
        raise UserError("writing a mask TIFF needs tifffile", where=str(path), fix=EXTRA) from error
    path = Path(path)
    check_out_file(path, replace=replace)
    factors = _factors(size_px, downsample)
    table = ring_table(annotations)
    pixels = sum(math.ceil(size_px[0] / f) * math.ceil(size_px[1] / f) for f in factors)
    with replacing(path) as temporary, tifffile.TiffWriter(temporary, bigtiff=pixels > _LARGE) as writer:
        for number, factor in enumerate(factors):
            columns, rows = math.ceil(size_px[0] / factor), math.ceil(size_px[1] / factor)
            grid = Grid(x=0.0, y=0.0, step_px=factor, columns=columns, rows=rows)
            per_cm = 10_000.0 / (mpp * factor)
            writer.write(
                _tiles(table, grid),
                shape=(rows, columns),
                dtype=np.uint8,
                tile=(TILE, TILE),
                compression="zlib",
                photometric="minisblack",
                resolution=(per_cm, per_cm),
                resolutionunit="CENTIMETER",
                subfiletype=1 if number else 0,
                metadata=None,
                software="elsewhere",
            )
    return path


def _factors(size_px: tuple[int, int], downsample: float) -> list[float]:
    factors = [float(downsample)]
    while max(size_px) / factors[-1] > SMALLEST_LEVEL:
        factors.append(factors[-1] * 2)
    return factors


def _tiles(table: RingTable, grid: Grid) -> Iterator[bytes]:
    """The tiles of a level, row by row; those of one value are compressed once."""
    across = math.ceil(grid.columns / TILE)
    empty, full = (
        zlib.compress(np.full((TILE, TILE), value, dtype=np.uint8).tobytes(), 6) for value in (0, 255)
    )
    for first in range(0, grid.rows, TILE):
        last = min(first + TILE, grid.rows)
        rows = mask_rows(table, grid, first, last)
        for column in range(across):
            part = rows[:, column * TILE : (column + 1) * TILE]
            if not part.any():
                yield empty
            elif part.shape == (TILE, TILE) and part.all():
                yield full
            else:
                tile = np.zeros((TILE, TILE), dtype=np.uint8)
                tile[: part.shape[0], : part.shape[1]] = part * np.uint8(255)
                yield zlib.compress(tile.tobytes(), 6)
