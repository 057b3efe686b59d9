"""Annotations of slides: outlines and masks, read, counted, and written back (LN-01).

Example:
    >>> from elsewhere.inputs.slides.annotations import read_annotations, tumour_shares
"""

from elsewhere.inputs.slides.annotations.axes import longest_axis_of_mask_px, major_axes_px, stage_of_axis
from elsewhere.inputs.slides.annotations.mask_tiff import MaskTiff, open_mask
from elsewhere.inputs.slides.annotations.mending import Region, resolve
from elsewhere.inputs.slides.annotations.outlines import Annotations, Outline, check_inside, moved
from elsewhere.inputs.slides.annotations.reading import read_annotations
from elsewhere.inputs.slides.annotations.scanning import Grid, to_mask, tumour_shares
from elsewhere.inputs.slides.annotations.strip_writing import MaskGrid, write_strips
from elsewhere.inputs.slides.annotations.tracing import trace_region
from elsewhere.inputs.slides.annotations.writing import geojson, write_geojson, write_mask

__all__ = [
    "Annotations",
    "Grid",
    "MaskGrid",
    "MaskTiff",
    "Outline",
    "Region",
    "check_inside",
    "geojson",
    "longest_axis_of_mask_px",
    "major_axes_px",
    "moved",
    "open_mask",
    "read_annotations",
    "resolve",
    "stage_of_axis",
    "to_mask",
    "trace_region",
    "tumour_shares",
    "write_geojson",
    "write_mask",
    "write_strips",
]
