"""Synthetic tomosynthesis volumes as descriptions of a few hundred bytes, drawn when they are first read.

A world of real size is some ten thousand slices, which need not lie on a disk or travel: a volume depends on its
description alone. Boxes are those of the same world written as DICOM files.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.tomosynthesis.described import Described, Extent, formats
from elsewhere.inputs.tomosynthesis.volume import Stack
from elsewhere.phantom.tomosynthesis_patients import Case, World, world_from

FORMAT = "phantom-tomosynthesis"
DRAWING = 1
"""The version of the drawing: another one whenever the same description gives other voxels."""


def description_of(case: Case) -> dict[str, Any]:
    """Describe a volume, so that it can be drawn elsewhere.

    Args:
        case: The volume.

    Returns:
        Plain values.
    """
    from dataclasses import asdict

    world: dict[str, Any] = json.loads(json.dumps(asdict(case.patient.world)))
    return {"format": FORMAT, "world": world, "volume": case.case_name}


@formats.register(FORMAT)
def describe(content: Mapping[str, Any]) -> Described:
    """Say what the description of a synthetic volume stands for; nothing is drawn.

    Args:
        content: What `description_of` returned.

    Returns:
        What is known of the volume.

    Raises:
        UserError: The world is not allowed, or has no such volume.

    Example:
        >>> case = World(patients=1).cases()[0]
        >>> describe(description_of(case)).extent().shape == (case.shape[1], case.shape[2], case.shape[0])
        True
    """
    case = _case_of(content)
    text = json.dumps(description_of(case), sort_keys=True)
    return Described(
        digest=hashlib.sha256(f"elsewhere-drawn-tomosynthesis {DRAWING} {text}".encode()).hexdigest(),
        maker=case.vendor.manufacturer,
        extent=functools.partial(_extent, case),
        open=functools.partial(_open, case),
    )


def _extent(case: Case) -> Extent:
    from elsewhere.phantom.tomosynthesis_tissue import draw_outline, frame_of

    frame = frame_of(case)
    outline = draw_outline(case, frame, case.generator("outline"))
    (y0, y1), (x0, x1) = outline.rows, outline.columns
    left = case.view.startswith("l")
    if not left:
        x0, x1 = frame.columns - x1, frame.columns - x0
    centre, width = case.vendor.window
    return Extent(
        shape=(frame.rows, frame.columns, frame.slices),
        breast=(x0, y0, x1, y1),
        side="left" if left else "right",
        window=(centre - width / 2, centre + width / 2),
    )


def _open(case: Case) -> Callable[[int], Stack]:
    from elsewhere.phantom.tomosynthesis import draw

    return draw(case).slice


def _case_of(content: Mapping[str, Any]) -> Case:
    world, name = content.get("world"), content.get("volume")
    if not isinstance(world, Mapping) or not isinstance(name, str):
        raise UserError("the description of a synthetic volume needs 'world' and 'volume'")
    cases = _cases_of(world_from(world, where="world"))
    if name not in cases:
        near = near_matches(name, cases)
        raise UserError(
            f"the world has no volume '{name}'", fix=f"Did you mean {' or '.join(near)}?" if near else None
        )
    return cases[name]


@functools.lru_cache(maxsize=4)
def _cases_of(world: World) -> Mapping[str, Case]:
    return {case.case_name: case for case in world.cases()}
