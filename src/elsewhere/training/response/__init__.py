"""Response to treatment from lesion crops: crops, augmentation, networks and one training loop (MRI-14, MRI-15).

Crops lie on the device before training starts; a step reads no file and draws nothing on the host.
"""

from __future__ import annotations

from elsewhere.training.response.choice import combined_score, fairness_groups
from elsewhere.training.response.crops import Crops, CropSpec, case_crop, load_crops
from elsewhere.training.response.fitting import Contrast, FitOptions, Fitted, fit, probabilities
from elsewhere.training.response.lesions import LesionSource, find_lesion
from elsewhere.training.response.networks import RESPONSE_NETWORKS, ResponseNetwork, build_response_network

__all__ = [
    "RESPONSE_NETWORKS",
    "Contrast",
    "CropSpec",
    "Crops",
    "FitOptions",
    "Fitted",
    "LesionSource",
    "ResponseNetwork",
    "build_response_network",
    "case_crop",
    "combined_score",
    "fairness_groups",
    "find_lesion",
    "fit",
    "load_crops",
    "probabilities",
]
