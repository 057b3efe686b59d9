"""A plan of two stages and two channels."""

from __future__ import annotations

from elsewhere.training.volumes import Plan

PLAN = Plan(
    spacing_mm=(1.0, 1.0, 1.0),
    patch=(16, 16, 8),
    batch=2,
    strides=((1, 1, 1), (2, 2, 2)),
    kernels=((3, 3, 3), (3, 3, 3)),
    widths=(8, 16),
    blocks=(1, 1),
    channels=2,
)
