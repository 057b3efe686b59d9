"""The digital phantom of the Image Biomarker Standardisation Initiative (CC BY 4.0) and its reference values.

5 x 4 x 4 voxels of 2 mm; 0 is outside the region. Values and tolerances are those of the initiative's published
table of reference values for the digital phantom (3D, merged directions for co-occurrence and run length).
"""

from __future__ import annotations

import numpy as np

SPACING_MM = (2.0, 2.0, 2.0)
BINS = 6
_SLICES = (
    ((1, 4, 4, 1, 1), (1, 4, 6, 1, 1), (4, 1, 6, 4, 1), (4, 4, 6, 4, 1)),
    ((1, 4, 4, 1, 1), (1, 1, 6, 1, 1), (0, 1, 3, 1, 1), (4, 4, 6, 1, 1)),
    ((1, 4, 4, 0, 0), (1, 1, 1, 1, 1), (1, 1, 0, 1, 1), (1, 1, 6, 1, 1)),
    ((1, 4, 4, 0, 0), (1, 1, 1, 1, 1), (1, 1, 1, 1, 1), (1, 1, 6, 1, 1)),
)


def phantom() -> np.ndarray:
    """Grey levels [x, y, z]."""
    return np.array(_SLICES).transpose(2, 1, 0)


SHAPE = {
    "volume_mesh": (556, 4),
    "volume_voxels": (592, 4),
    "surface": (388, 3),
    "surface_to_volume": (0.698, 0.004),
    "compactness_1": (0.0411, 0.0003),
    "sphericity": (0.843, 0.005),
    "max_diameter": (13.1, 0.1),
    "major_axis": (11.4, 0.1),
    "minor_axis": (9.31, 0.06),
    "least_axis": (8.54, 0.05),
    "elongation": (0.816, 0.005),
    "flatness": (0.749, 0.005),
}
FIRST_ORDER = {
    "mean": 2.15,
    "variance": 3.05,
    "skewness": 1.08,
    "kurtosis": -0.355,
    "median": 1,
    "minimum": 1,
    "p10": 1,
    "p90": 4,
    "maximum": 6,
    "interquartile_range": 3,
    "range": 5,
    "mean_absolute_deviation": 1.55,
    "robust_mean_absolute_deviation": 1.11,
    "median_absolute_deviation": 1.15,
    "coefficient_of_variation": 0.812,
    "quartile_coefficient": 0.6,
    "energy": 567,
    "root_mean_square": 2.77,
}
HISTOGRAM = {"entropy": 1.27, "uniformity": 0.512}
COOCCURRENCE = {
    "joint_maximum": 0.509,
    "joint_average": 2.15,
    "joint_variance": 3.13,
    "joint_entropy": 2.57,
    "difference_average": 1.38,
    "difference_variance": 3.21,
    "difference_entropy": 1.64,
    "sum_variance": 7.41,
    "sum_entropy": 2.11,
    "angular_second_moment": 0.291,
    "contrast": 5.12,
    "inverse_difference": 0.688,
    "inverse_difference_moment": 0.631,
    "inverse_variance": 0.0574,
    "correlation": 0.183,
    "autocorrelation": 5.19,
    "cluster_shade": 17.4,
    "cluster_prominence": 147,
    "information_correlation_1": -0.0288,
    "information_correlation_2": 0.269,
}
RUN_LENGTH = {
    "short_run_emphasis": 0.729,
    "long_run_emphasis": 2.76,
    "low_grey_emphasis": 0.607,
    "high_grey_emphasis": 9.64,
    "short_run_low_grey_emphasis": 0.372,
    "short_run_high_grey_emphasis": 8.67,
    "long_run_low_grey_emphasis": 2.16,
    "long_run_high_grey_emphasis": 15.6,
    "grey_non_uniformity": 281,
    "grey_non_uniformity_normalised": 0.43,
    "run_length_non_uniformity": 328,
    "run_length_non_uniformity_normalised": 0.501,
    "run_percentage": 0.68,
    "grey_variance": 3.48,
    "run_length_variance": 0.598,
    "run_entropy": 2.62,
}
SIZE_ZONE = {
    "small_zone_emphasis": 0.255,
    "large_zone_emphasis": 550,
    "low_grey_emphasis": 0.253,
    "high_grey_emphasis": 15.6,
    "small_zone_low_grey_emphasis": 0.0256,
    "small_zone_high_grey_emphasis": 2.76,
    "large_zone_low_grey_emphasis": 503,
    "large_zone_high_grey_emphasis": 1490,
    "grey_non_uniformity": 1.4,
    "grey_non_uniformity_normalised": 0.28,
    "zone_size_non_uniformity": 1,
    "zone_size_non_uniformity_normalised": 0.2,
    "zone_percentage": 0.0676,
    "grey_variance": 2.64,
    "zone_size_variance": 331,
    "zone_entropy": 2.32,
}
SLICE_COOCCURRENCE = {(1, 1): 22, (1, 4): 17, (1, 6): 6, (4, 4): 16, (4, 6): 11, (6, 6): 4}
"""Counts of pairs of the first slice, its four directions merged, as the reference manual prints them."""
