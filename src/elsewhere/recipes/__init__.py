"""Published methods, one file each, and those that other packages bring. torch is imported at first use."""

from __future__ import annotations

from elsewhere.inputs.mri.breasts import find_breasts
from elsewhere.recipes.base import (
    RESPONSE,
    SEGMENTATION,
    Job,
    Prediction,
    Recipe,
    RecipeCase,
    RecipeSettings,
    Trained,
    recipes,
)

__all__ = [
    "RESPONSE",
    "SEGMENTATION",
    "Job",
    "Prediction",
    "Recipe",
    "RecipeCase",
    "RecipeSettings",
    "Trained",
    "find_breasts",
    "recipes",
]
