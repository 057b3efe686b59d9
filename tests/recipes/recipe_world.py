"""Six little breasts in two hospitals, in memory, and units over them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from elsewhere.engine.training import RecipeSpec, Training, Work
from elsewhere.inputs import Cases
from elsewhere.inputs.mri.source import MriSource
from elsewhere.inputs.volumes import MemoryVolumes

SHAPE = (12, 10, 6)


def make_volumes(n: int = 8, seed: int = 3) -> MemoryVolumes:
    rng = np.random.default_rng(seed)
    images, masks, boxes = {}, {}, {}
    for at in range(n):
        name = f"{'A' if at < n // 2 else 'B'}/p{at}"
        mask = np.zeros(SHAPE, dtype=bool)
        x, y = rng.integers(2, 6, 2)
        mask[x : x + 3, y : y + 3, 2:4] = True
        before = rng.normal(100, 5, SHAPE).astype(np.float32)
        images[name] = (before, (before + 80 * mask).astype(np.float32))
        masks[name] = mask
        boxes[name] = (1, 1, 1, 10, 9, 6)
    return MemoryVolumes(images=images, masks=masks, boxes=boxes)


def make_cases(volumes: MemoryVolumes) -> Cases:
    names = tuple(volumes.images)

    def digest(*parts: np.ndarray) -> str:
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    return Cases(
        case=names,
        dataset=tuple(name.partition("/")[0] for name in names),
        label=np.array([(-1 if at == 1 else at % 2) for at in range(len(names))], dtype=np.int8),
        box=np.zeros((len(names), 4), dtype=np.int32),
        digest=tuple(digest(*volumes.images[name]) for name in names),
        mask_digest=tuple(digest(volumes.masks[name]) for name in names),
        group=names,
        clinical={
            "age": tuple(float(40 + at) for at in range(len(names))),
            "menopausal_status": tuple(None if at == 2 else "pre" for at in range(len(names))),
        },
    )


def make_recipe_work(n: int = 8) -> Work:
    volumes = make_volumes(n)
    return Work(cases=make_cases(volumes), sources={"mri": MriSource(volumes)})


def recipe_unit(
    work: Work,
    name: str,
    *,
    tasks: tuple[str, ...] = ("segmentation", "response"),
    settings: dict[str, Any] | None = None,
    clinical: bool = False,
    seed: int = 1,
    **changes: Any,
) -> Training:
    names = work.cases.case
    half = len(names) // 2
    unit = Training(
        name=f"A | {name} | seed {seed}",
        train=names[: half - 1],
        validation=names[half - 1 : half],
        predict=names[half:],
        seed=seed,
        recipe=RecipeSpec(name=name, settings=settings or {}, tasks=tasks, clinical=clinical),
    )
    return replace(unit, **changes).with_key(work.cases)
