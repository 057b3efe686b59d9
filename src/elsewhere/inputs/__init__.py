"""Reads pixels for recipes: whole images and lesion crops (US-12, US-13), with numpy and Pillow only."""

from __future__ import annotations

from elsewhere.inputs.cases import BENIGN, MALIGNANT, NORMAL, Cases
from elsewhere.inputs.pictures import BadPictureError, Pictures

__all__ = ["BENIGN", "MALIGNANT", "NORMAL", "BadPictureError", "Cases", "Pictures"]
