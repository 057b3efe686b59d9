"""Small slides with outlines, and the rows of a patch table that name their patches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from elsewhere.inputs.patches.slide_packing import SlideRows
from elsewhere.inputs.patches.spec import StoreSpec
from worlds.slide_files import pyramid, tissue_picture, write_tiff

PATCH = 32
"""Pixels along a patch: small, so that a slide of 300 pixels has many."""
MPP = 0.5


def write_slide(path: Path, *, seed: int = 0, mpp: float = 0.25, width: int = 400, height: int = 300) -> Path:
    """A slide of two levels."""
    picture = tissue_picture(width, height, seed=seed)
    return write_tiff(path, pyramid(picture, 2), mpp=mpp, tile=128)


def write_outline(path: Path, box: tuple[int, int, int, int] = (70, 70, 200, 180)) -> Path:
    """One rectangle of tumour, as NCRF writes it."""
    x0, y0, x1, y1 = box
    ring = [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]
    path.write_text(json.dumps({"positive": [{"name": "a", "vertices": ring}], "negative": []}))
    return path


def rows_of(
    path: Path | None,
    *,
    case_id: str = "tumor_001",
    annotation: Path | None = None,
    columns: int = 6,
    rows: int = 4,
    tumour: float = 0.0,
) -> SlideRows:
    """All patches of a grid of a slide."""
    j, i = (side.ravel() for side in np.mgrid[:rows, :columns])
    return SlideRows(
        dataset="A",
        case_id=case_id,
        i=i.astype(np.int64),
        j=j.astype(np.int64),
        path=path,
        annotation=annotation,
        tumour=np.full(len(i), tumour) if annotation is None else None,
    )


SPEC_32 = StoreSpec(size=PATCH, mpp=MPP)
