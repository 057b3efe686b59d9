"""Small volumes with a lesion that enhances, and a planted sign of the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.recipes.base import Job, Prediction, RecipeCase


@dataclass
class World:
    volumes: MemoryVolumes
    cases: list[RecipeCase]

    def job(self, settings, tmp_path: Path, *, train, validation, predict, tasks, seed=1, **more) -> tuple:
        """A job, and the list that its predictions land in. Masks and labels of what is predicted are hidden."""
        hidden = {case.case for case in self.cases[predict]}
        seen = MemoryVolumes(
            images=self.volumes.images,
            masks={name: mask for name, mask in self.volumes.masks.items() if name not in hidden},
            boxes=self.volumes.boxes,
            spacing_mm=self.volumes.spacing_mm,
        )
        out: list[Prediction] = []
        blind = [
            RecipeCase(case=c.case, dataset=c.dataset, group=c.group, label=-1, clinical={})
            for c in self.cases[predict]
        ]
        job = Job(
            tasks=tasks,
            train=tuple(self.cases[train]),
            validation=tuple(self.cases[validation]),
            predict=tuple(blind),
            volumes=seen,
            settings=settings,
            seed=seed,
            device="cpu",
            scratch=tmp_path,
            emit=out.append,
            **more,
        )
        return job, out


def world(
    count: int,
    *,
    shape: tuple[int, int, int] = (24, 24, 12),
    sign: str = "washout",
    seed: int = 0,
    hard: str | None = None,
) -> World:
    """`sign`: 'washout' (a later phase tells), 'rim' (the first post-contrast phase tells), 'none'. `hard`: the
    dataset in which the lesion hardly enhances."""
    rng = np.random.default_rng(seed)
    images, masks, boxes, cases = {}, {}, {}, []
    axes = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij")
    for at in range(count):
        label = at % 2
        dataset = "AB"[at // 2 % 2]
        radius = rng.uniform(3.0, 4.0)
        low = [4 if n > 1 else 0 for n in shape]
        centre = [rng.uniform(a, n - 1 - a) for a, n in zip(low, shape, strict=True)]
        away = np.sqrt(sum((a - c) ** 2 for a, c in zip(axes, centre, strict=True)))
        mask = away < radius
        rise = mask * (0.15 if dataset == hard else 1.0)
        if sign == "rim" and label:
            rise = rise * np.where(away < 0.6 * radius, 0.1, 1.0)
        base = 1.0 + 0.1 * rng.standard_normal(shape)
        later = 0.2 if sign == "washout" and label else 1.0
        phases = [base, base + 2.0 * rise, base + 2.0 * later * rise]
        name = f"{dataset}/{at}"
        images[name] = [(p + 0.1 * rng.standard_normal(shape)).astype(np.float32) for p in phases]
        masks[name] = mask
        boxes[name] = (0, 0, 0, *shape)
        cases.append(
            RecipeCase(
                case=name,
                dataset=dataset,
                group=f"g{at}",
                label=label,
                clinical={"age": float(30 + at % 50), "menopausal_status": "pre" if at % 3 else "post"},
            )
        )
    return World(MemoryVolumes(images=images, masks=masks, boxes=boxes), cases)


def auc(label, score) -> float:
    label, score = np.asarray(label), np.asarray(score)
    pairs = score[label == 1][:, None] - score[label == 0][None, :]
    return float((pairs > 0).mean() + 0.5 * (pairs == 0).mean())


def chance_of(prediction: Prediction) -> float:
    """Return the probability of a response that a recipe handed over, in either of the two ways."""
    given = prediction.probability
    return prediction.answers["response"] if given is None else given
