"""Networks that mark tumour in patches of slides: DeepLabV3 on small bodies, and a U-Net (LN-09)."""

from __future__ import annotations

from elsewhere.networks.segmenters.building import (
    SEGMENTERS,
    SIZE_STEP,
    Segmenter,
    build_segmenter,
    find_segmenter_weights,
    load_segmenter,
    segmenter_entry,
    segmenter_weights_digest,
)

__all__ = [
    "SEGMENTERS",
    "SIZE_STEP",
    "Segmenter",
    "build_segmenter",
    "find_segmenter_weights",
    "load_segmenter",
    "segmenter_entry",
    "segmenter_weights_digest",
]
