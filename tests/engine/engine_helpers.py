"""A little study: two datasets of tiny pictures, and units over them; a machine with little installed."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.inputs import Cases, Pictures
from elsewhere.predictions.answers import Probabilities, answer_kinds
from elsewhere.recipes.pictures.settings import classifier_spec, finder_spec
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

HERE = Path(__file__).resolve().parent
BLOCKED = ("pandas", "pyarrow", "pydantic", "numba", "typer", "rich", "scipy", "sklearn", "matplotlib", "ray")
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))  # as if they were not installed
sys.path.insert(0, {str(HERE)!r})
import runpy
sys.argv[0] = "elsewhere.engine"
runpy.run_module("elsewhere.engine", run_name="__main__")
"""


def picture_bytes(pixels: np.ndarray) -> bytes:
    packed = io.BytesIO()
    Image.fromarray(pixels).save(packed, "PNG")
    return packed.getvalue()


def make_work(n: int = 12, side: int = 16) -> Work:
    rng = np.random.default_rng(5)
    names, datasets, blobs = [], [], {}
    for at in range(n):
        dataset = "A" if at < n // 2 else "B"
        names.append(f"{dataset}/{at:03d}")
        datasets.append(dataset)
        blobs[names[-1]] = picture_bytes(rng.integers(0, 255, (side, side), dtype=np.uint8))
    cases = Cases(
        case=tuple(names),
        dataset=tuple(datasets),
        label=(np.arange(n) % 2).astype(np.int8),
        box=np.tile(np.array([2, 3, 9, 11], dtype=np.int32), (n, 1)),
        digest=tuple(hashlib.sha256(blobs[name]).hexdigest() for name in names),
    )
    return Work(cases=cases, sources={"pictures": Pictures(blobs)})


def make_units(
    work: Work,
    n: int,
    *,
    seconds: float = 0.0,
    recipe: ClassifierSettings | None = None,
    input: InputSpec | None = None,
    finder: bool = False,
    boxes: str = "",
    **changes: object,
) -> list[Training]:
    """Trainings of half of the cases that predict the other half; `boxes`: the key of a finder."""
    names = work.cases.case
    half = len(names) // 2
    spec = finder_spec if finder else classifier_spec
    units = []
    for seed in range(n):
        unit = Training(
            name=f"A seed {seed}",
            train=names[: half - 2],
            validation=names[half - 2 : half],
            predict=names[half:],
            recipe=spec(recipe or ClassifierSettings(strength=seconds), input or InputSpec()),
            needs={"boxes": boxes} if boxes else {},
            seed=seed,
        )
        units.append(replace(unit, **changes).with_key(work.cases))  # type: ignore[arg-type]
    return units


def logits_of(outcome: Outcome) -> np.ndarray:
    return outcome.answers["classification"].logits


def distance_of(outcome: Outcome) -> np.ndarray:
    return outcome.answers["classification"].distance


def boxes_of(outcome: Outcome) -> np.ndarray:
    return outcome.answers["lesion-boxes"].best()


def packed(outcome: Outcome) -> dict[str, bytes]:
    """All answers, to the last bit."""
    found = {}
    for task, answers in outcome.answers.items():
        arrays = answer_kinds.get(answers.kind).pack(answers)
        found |= {f"{task} {name}": array.tobytes() for name, array in arrays.items()}
    return found


def with_logits(
    outcome: Outcome, logits: np.ndarray, distance: np.ndarray | None = None, **changes: object
) -> Outcome:
    """The outcome with other logits; without a distance it keeps its own, as far as there are logits."""
    far = distance_of(outcome)[: len(logits)] if distance is None else distance
    answers = Probabilities(probability=np.zeros(len(logits)), logits=logits, distance=far)
    if logits.shape == (len(logits), 2):
        answers = Probabilities.from_logits(logits, far)
    return replace(outcome, answers={"classification": answers}, **changes)
