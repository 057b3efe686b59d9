"""Detectors of lesions in slices, each in a file of its own, and how they are built by name."""

from __future__ import annotations

from elsewhere.networks.detectors.base import DetectOptions, Detector, Found, Targets
from elsewhere.networks.detectors.building import DETECTORS, build_detector, detector_settings
from elsewhere.networks.detectors.slice_classifier import SliceClassifier, build_slice_classifier

__all__ = [
    "DETECTORS",
    "DetectOptions",
    "Detector",
    "Found",
    "SliceClassifier",
    "Targets",
    "build_detector",
    "build_slice_classifier",
    "detector_settings",
]
