"""Phantom volumes in memory, jobs of recipes on them, and the scores of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource
from elsewhere.inputs.tomosynthesis.stored import ArrayVolume
from elsewhere.inputs.tomosynthesis.volume import Lesion, Truth
from elsewhere.phantom.tomosynthesis import draw
from elsewhere.phantom.tomosynthesis_patients import World
from elsewhere.predictions import Predictions
from elsewhere.predictions.answers import answer_kinds
from elsewhere.protocols import protocols
from elsewhere.recipes.base import Job, RecipeCase, Trained, recipe_of
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions, tasks

DETECTION = "detection"


@dataclass(frozen=True)
class PhantomVolumes:
    """Volumes of one world: the source, the cohort and the cases of a study."""

    source: TomosynthesisSource
    cohort: Cohort
    cases: tuple[RecipeCase, ...]

    def of(self, vendor: str) -> tuple[RecipeCase, ...]:
        return tuple(case for case in self.cases if case.dataset == vendor)

    def of_split(self, split: str) -> tuple[RecipeCase, ...]:
        rows = self.cohort.cases.set_index("case_id")["split"]
        return tuple(case for case in self.cases if rows[case.case.partition("/")[2]] == split)


@lru_cache(maxsize=4)
def phantom_volumes(
    patients: int = 8, *, vendors: tuple[str, ...] = ("A",), seed: int = 1, splits=(0.6, 0.2, 0.2)
) -> PhantomVolumes:
    """Draw the volumes of a small world once."""
    volumes, truths, cases, rows, lesions = {}, {}, [], [], []
    world = World(vendors=vendors, patients=patients, size="small", seed=seed, splits=splits)
    for one in world.cases():
        phantom = draw(one)
        case_id = f"{one.patient.study_id}/{one.view}"
        name = f"{one.patient.vendor}/{case_id}"
        centre, width = phantom.window
        volumes[name] = ArrayVolume(
            phantom.volume(),
            side="left" if one.view.startswith("l") else "right",
            window=(centre - width / 2, centre + width / 2),
        )
        found = tuple(
            Lesion(x=b.x, y=b.y, width=b.width, height=b.height, slice=b.slice, kind=b.kind)
            for b in phantom.lesions
        )
        truths[name] = Truth(lesions=found, finding=one.finding)
        cases.append(
            RecipeCase(
                case=name,
                dataset=one.patient.vendor,
                group=one.patient.patient_id,
                label=int(bool(found)),
                clinical={},
            )
        )
        rows.append(
            {
                "case_id": case_id,
                "patient_id": one.patient.patient_id,
                "dataset": one.patient.vendor,
                "finding": one.finding,
                "split": one.patient.split,
            }
        )
        lesions += [
            {
                "case_id": case_id,
                "lesion_id": f"{case_id}/{at}",
                "x": b.x,
                "y": b.y,
                "width": b.width,
                "height": b.height,
                "slice": b.slice,
                "volume_slices": phantom.shape[0],
                "class": b.kind,
            }
            for at, b in enumerate(found)
        ]
    cohort = Cohort.from_frame(pd.DataFrame(rows), lesions=pd.DataFrame(lesions), synthetic=True)
    return PhantomVolumes(TomosynthesisSource(volumes, truths), cohort, tuple(cases))


def hidden(case: RecipeCase) -> RecipeCase:
    return replace(case, label=-1)


def job_of(
    world: PhantomVolumes,
    name: str,
    settings: Mapping[str, Any],
    scratch: Path,
    *,
    train: Sequence[RecipeCase],
    validation: Sequence[RecipeCase],
    predict: Sequence[RecipeCase],
    view: Any = None,
    **more: Any,
) -> tuple[Job, dict[str, Any]]:
    """A job as the engine makes it, and where its answers are gathered."""
    answers: dict[str, Any] = {}
    learnt = frozenset(case.case for case in (*train, *validation))
    named = learnt | {case.case for case in predict}
    shown = view or world.source.view(cases=named, hidden=named - learnt, sees=frozenset())

    def emit(prediction):
        answers[prediction.case] = answer_kinds.get("boxes").one(prediction.answers[DETECTION])

    job = Job(
        tasks=(DETECTION,),
        train=tuple(train),
        validation=tuple(validation),
        predict=tuple(map(hidden, predict)),
        volumes=shown,
        settings=recipe_of(name).settings(settings),
        seed=1,
        device="cpu",
        scratch=scratch,
        emit=emit,
        kinds={DETECTION: "boxes"},
        **more,
    )
    return job, answers


def run_recipe(world, name, settings, scratch, **parts) -> tuple[Trained, dict[str, Any]]:
    job, answers = job_of(world, name, settings, scratch, **parts)
    return recipe_of(name)().run(job), answers


def metrics_of(world: PhantomVolumes, answers: Mapping[str, Any], protocol: str = "phantom-small") -> dict:
    """The metrics of answers by the task detection."""
    kind = answer_kinds.get("boxes")
    names = list(answers)
    ids = [name.partition("/")[2] for name in names]
    table = kind.table(kind.gather([answers[name] for name in names]), ids)
    if "z" not in table:
        table = table.assign(z=0.0, depth=1.0)
    cohort = world.cohort.subset(world.cohort.cases["case_id"].isin(ids))
    predictions = Predictions(kind="boxes", table=table, source="answers", digest="")
    options = ScoreOptions()
    scores = tasks.get(DETECTION).score(cohort, predictions, protocols.get(protocol), options)
    return prepare(scores, options).evaluator.values()


def random_answers(world: PhantomVolumes, cases: Sequence[RecipeCase], *, seed: int, boxes: int = 20) -> dict:
    """Boxes of a lesion's size at random places of the breast."""
    rng = np.random.default_rng(seed)
    found = {}
    for case in cases:
        facts = world.source.facts(case.case)
        x0, y0, x1, y1 = facts.breast
        side = rng.uniform(15, 45, boxes)
        x, y = rng.uniform(x0, x1, boxes), rng.uniform(y0, y1, boxes)
        z = rng.integers(0, facts.shape[2], boxes)
        corners = np.column_stack([x - side / 2, y - side / 2, z, x + side / 2, y + side / 2, z + 1])
        found[case.case] = (corners, rng.random(boxes))
    return found
