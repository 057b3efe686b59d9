"""Four volumes with planted bright lesions, and the boxes of two models, for pictures of detections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.analysis.result.detection_pictures import (
    PictureOptions,
    PictureVolumes,
    picture_detections,
)
from elsewhere.analysis.result.model_boxes import ModelBoxes, model_boxes
from elsewhere.analysis.result.pictured import PicturedDetections
from elsewhere.cohort import Cohort
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource
from elsewhere.inputs.tomosynthesis.stored import ArrayVolume
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.boxes import boxes_from_frame
from elsewhere.protocols import protocols
from elsewhere.scoring.task import ScoreOptions, tasks
from worlds.tomosynthesis_files import breast

ROWS, COLUMNS, SLICES = 220, 160, 21
VOLUMES = ("secret-7/lcc", "secret-8/rcc", "secret-9/lmlo", "secret-10/lcc")
LESIONS: tuple[dict[str, Any], ...] = (
    {"case_id": VOLUMES[0], "x": 30, "y": 80, "width": 16, "height": 24, "slice": 10, "class": "cancer"},
    {"case_id": VOLUMES[1], "x": 110, "y": 90, "width": 20, "height": 20, "slice": 2, "class": "benign"},
    {"case_id": VOLUMES[2], "x": 20, "y": 120, "width": 30, "height": 14, "slice": 19, "class": "cancer"},
)


def cohort_of(volumes: Sequence[str] = VOLUMES, *, image: str | None = "of the volume") -> Cohort:
    """The cohort; the files that its column `image` names are not there."""
    names = [volume.partition("/")[0] for volume in volumes]
    cases = pd.DataFrame({"case_id": volumes, "patient_id": names, "dataset": "Set"})
    if image is not None:
        cases["image"] = [f"{name}.dcm" for name in names]
    lesions = pd.DataFrame(LESIONS).assign(volume_slices=SLICES, lesion_id=["a", "b", "c"])
    return Cohort.from_frame(cases, lesions=lesions, synthetic=True)


def volumes_of(cohort: Cohort) -> PictureVolumes:
    """The volumes in memory; a lesion is bright on its slice and on both of its neighbours."""
    made = {}
    for number, case in enumerate(cohort.cases["case_id"]):
        side = "right" if "/r" in case else "left"
        volume = breast(ROWS, COLUMNS, SLICES, side=side, seed=number, top=600)
        for lesion in LESIONS:
            if lesion["case_id"] == case:
                x, y, at = lesion["x"], lesion["y"], lesion["slice"]
                volume[at - 1 : at + 2, y : y + lesion["height"], x : x + lesion["width"]] = 1000
        made[f"Set/{case}"] = ArrayVolume(volume, side=side, window=(0.0, 1000.0))
    return PictureVolumes(
        source=TomosynthesisSource(made), datasets=dict.fromkeys(cohort.cases["case_id"].astype(str), "Set")
    )


def box(case: int | str, x: float, y: float, score: float, **more: float) -> dict[str, Any]:
    """A box of 16 x 16 pixels on slices 9 to 11, unless told otherwise."""
    name = VOLUMES[case] if isinstance(case, int) else case
    return {
        "case_id": name, "x": x, "y": y, "width": 16, "height": 16, "z": 9, "depth": 3, "score": score, **more
    }  # fmt: skip


def on_lesion(number: int, score: float, **more: float) -> dict[str, Any]:
    """A box that is exactly a lesion, on its slice and both neighbours."""
    lesion = LESIONS[number]
    where = {name: lesion[name] for name in ("x", "y", "width", "height")}
    return box(number, score=score, **{**where, "z": lesion["slice"] - 1, "depth": 3, **more})


NORTH = (
    on_lesion(0, 0.9),
    on_lesion(1, 0.2),
    box(3, 20, 60, 0.8),
    box(0, 70, 150, 0.7),
    box(1, 90, 20, 0.1),
)
"""Finds the first two lesions; its highest false positive is in the fourth volume."""
SOUTH = (
    on_lesion(0, 55.0),
    box(0, 72, 152, 99.0, depth=1),
    box(3, 22, 61, 60.0),
    box(2, 40, 60, 80.0, z=12, depth=4),
)
"""Finds the first lesion alone; two of its false positives are at the places of two of the other model's."""


def scored(boxes: Sequence[Mapping[str, Any]], cohort: Cohort, *, on_invalid: str = "error") -> ModelBoxes:
    """Boxes scored by the protocol of small phantoms."""
    options = ScoreOptions(on_invalid=on_invalid)
    frame = pd.DataFrame(list(boxes), columns=[*NORTH[0]])
    said = boxes_from_frame(frame, ReadOptions(on_invalid="worst" if on_invalid == "worst" else "error"))
    scores = tasks.get("detection").score(cohort, said, protocols.get("phantom-small"), options)
    return model_boxes(scores, cohort, said, options)


def pictured(
    models: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    *,
    cohort: Cohort | None = None,
    options: PictureOptions | None = None,
    volumes: PictureVolumes | None = None,
) -> PicturedDetections:
    """Picture the boxes of models; both models of this world where none is given."""
    who = cohort or cohort_of()
    said = models if models is not None else {"north": NORTH, "south": SOUTH}
    held = {name: scored(boxes, who) for name, boxes in said.items()}
    return picture_detections(held, volumes or volumes_of(who), options or PictureOptions())


def bright_box(picture: np.ndarray) -> tuple[float, float, float, float]:
    """The box of the bright pixels, as shares of the picture: x, y, width, height."""
    rows, columns = np.flatnonzero((picture > 200).any(axis=1)), np.flatnonzero((picture > 200).any(axis=0))
    tall, wide = picture.shape
    return (
        columns[0] / wide,
        rows[0] / tall,
        (columns[-1] - columns[0] + 1) / wide,
        (rows[-1] - rows[0] + 1) / tall,
    )
