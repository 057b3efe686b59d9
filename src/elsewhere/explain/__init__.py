"""Relevance maps: where a network looked, and whether the map can be trusted (US-23).

`gradcam` draws maps by Grad-CAM and by occlusion, `sanity` compares them with the maps of networks whose
weights are random, and `localisation` measures how much of a map lies in the lesion. A map is a hint and
no proof of cause; the sanity check says whether it depends on what was learnt at all.
"""

from __future__ import annotations

from elsewhere.explain.gradcam import Method, grad_cam, method_for, occlusion_map, target_score, to_unit
from elsewhere.explain.localisation import Inside, box_in_input, relevance_inside
from elsewhere.explain.panels import Caption, panel
from elsewhere.explain.sanity import SanityCheck, map_similarity, randomised, sanity_check

__all__ = [
    "Caption",
    "Inside",
    "Method",
    "SanityCheck",
    "box_in_input",
    "grad_cam",
    "map_similarity",
    "method_for",
    "occlusion_map",
    "panel",
    "randomised",
    "relevance_inside",
    "sanity_check",
    "target_score",
    "to_unit",
]
