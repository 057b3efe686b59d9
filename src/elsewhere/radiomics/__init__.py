"""Numbers that describe a region of a contrast-enhanced volume: shape, first order, texture, kinetics.

The features follow the definitions of the Image Biomarker Standardisation Initiative (IBSI 1) and need only
numpy and scipy; the tests compare them with the published values of IBSI's digital phantom.
"""

from __future__ import annotations

from elsewhere.radiomics.features import FeatureSettings, case_features, region_features
from elsewhere.radiomics.region import automatic_region, bounding_box, case_region

__all__ = [
    "FeatureSettings",
    "automatic_region",
    "bounding_box",
    "case_features",
    "case_region",
    "region_features",
]
