"""The challenge's baseline for pCR: a random probability (MRI-13)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar

from elsewhere.predictions.answers import answer_kinds
from elsewhere.recipes.base import RESPONSE, Job, Prediction, Recipe, Trained, recipes


@recipes.register("random")
class RandomClassifier(Recipe):
    """Predict a seeded random probability, whatever the case looks like."""

    title = "Random classifier"
    answers: ClassVar[Mapping[str, str]] = {RESPONSE: "probability"}
    version = 1
    follows = "The MAMA-MIA challenge's baseline for pCR. Ours is seeded: a case's draw depends on the seed and its name."
    reads: ClassVar[str] = ""
    keeps: ClassVar[bool] = True

    @classmethod
    def can_give(cls, kind: str) -> bool:
        return answer_kinds.get(kind).by_chance(0.5) is not None

    def run(self, job: Job) -> Trained:
        return self.apply(job, {"seed": job.seed})

    def apply(self, job: Job, weights: Mapping[str, Any]) -> Trained:
        seed = int(weights["seed"])
        kinds = {task: job.kinds.get(task) or self.answers[task] for task in job.tasks}
        for case in job.predict:
            given = {
                task: answer_kinds.get(kind).by_chance(draw(seed, _name(task, case.case)))
                for task, kind in kinds.items()
            }
            job.emit(Prediction(case=case.case, answers=given, seconds=0.0))
        return Trained(
            notes=("Trained on nothing: every probability is a draw.",),
            weights=dict(weights) if job.keep else None,
        )


def _name(task: str, case: str) -> str:
    """What the draw of a case rests on: another one for each task."""
    return case if task == RESPONSE else f"{task}|{case}"


def draw(seed: int, case: str) -> float:
    """Draw the probability of a case.

    It is the same for the same seed and case, in any order and with any other cases.

    Args:
        seed: The seed of the training.
        case: The name of the case.

    Returns:
        A number that is uniform in [0, 1).

    Example:
        >>> draw(1, "a") == draw(1, "a"), draw(1, "a") == draw(2, "a")
        (True, False)
    """
    digest = hashlib.blake2b(f"{seed}|{case}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
