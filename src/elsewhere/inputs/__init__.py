"""Pixels to tensors: whole image and lesion crop (US-12, US-13). Needs numpy and Pillow alone."""

from __future__ import annotations

from elsewhere.inputs.cases import BENIGN, MALIGNANT, NORMAL, Cases
from elsewhere.inputs.pictures import BadPictureError, Pictures

__all__ = ["BENIGN", "MALIGNANT", "NORMAL", "BadPictureError", "Cases", "Pictures"]
