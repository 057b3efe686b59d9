"""Probabilities of an outcome, one per case; of networks also logits and distances to the training part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.predictions.answers.base import AnswerKind, AnswerTarget, Rows, register_kind

if TYPE_CHECKING:
    import pandas as pd

FILE = "probabilities.csv"


@dataclass(frozen=True, kw_only=True)
class ProbabilityAnswer:
    """The answer of a network for one case.

    Args:
        logits: The logits of the negative and the positive class.
        distance: Mahalanobis distance of the case's features to the nearer class of the training part; NaN:
            unknown.

    Example:
        >>> ProbabilityAnswer(logits=(np.float32(0), np.float32(2))).distance
        nan
    """

    logits: tuple[np.float32, np.float32]
    distance: float | np.float32 = float("nan")


@dataclass(frozen=True, kw_only=True)
class Probabilities:
    """The probability of the positive class for each case.

    Args:
        probability: (n,), from 0 to 1.
        logits: (n, 2) of the negative and the positive class; None where the recipe does not report them.
        distance: (n,) Mahalanobis distance of the features to the nearer class of the training part, NaN
            where it is unknown; None without logits.

    Example:
        >>> len(Probabilities(probability=np.array([0.2, 0.9])))
        2
    """

    kind: ClassVar[str] = "probability"
    probability: npt.NDArray[np.float64]
    logits: npt.NDArray[np.float32] | None = None
    distance: npt.NDArray[np.float32] | None = None

    @classmethod
    def from_logits(
        cls, logits: npt.NDArray[np.float32], distance: npt.NDArray[np.float32] | None = None
    ) -> Probabilities:
        """Turn two logits per case into probabilities, by softmax.

        Args:
            logits: (n, 2) of the negative and the positive class.
            distance: (n,) distance of the features to the training part; None: unknown for every case.

        Returns:
            The probabilities with their logits and distances.

        Example:
            >>> Probabilities.from_logits(np.zeros((1, 2), np.float32)).probability.tolist()
            [0.5]
        """
        held = np.asarray(logits, dtype=np.float32).reshape(-1, 2)
        far = np.full(len(held), np.nan, np.float32) if distance is None else np.asarray(distance, np.float32)
        odds = held[:, 1].astype(np.float64) - held[:, 0]
        value = np.array([_logistic(one) for one in odds.tolist()], dtype=np.float64)
        return cls(probability=value, logits=held, distance=far)

    def __len__(self) -> int:
        return len(self.probability)


@register_kind
class ProbabilityKind(AnswerKind):
    """The answer kind 'probability'."""

    name = Probabilities.kind

    def one(self, value: Any, *, shape: tuple[int, ...] | None = None) -> float | ProbabilityAnswer:
        if isinstance(value, ProbabilityAnswer):
            return value
        p = float(value)
        if not math.isfinite(p) or not 0.0 <= p <= 1.0:
            raise ValueError(f"is {p}, and not from 0 to 1")
        return p

    def by_chance(self, draw: float) -> float:
        return draw

    def gather(self, values: Sequence[float | ProbabilityAnswer]) -> Probabilities:
        if values and all(isinstance(value, ProbabilityAnswer) for value in values):
            held = [value for value in values if isinstance(value, ProbabilityAnswer)]
            return Probabilities.from_logits(
                np.array([value.logits for value in held], dtype=np.float32),
                np.array([value.distance for value in held], dtype=np.float32),
            )
        plain = [
            float(Probabilities.from_logits(np.array([value.logits])).probability[0])
            if isinstance(value, ProbabilityAnswer)
            else value
            for value in values
        ]
        return Probabilities(probability=np.array(plain, dtype=np.float64))

    def check(self, answers: Any, n: int) -> str:
        if not isinstance(answers, Probabilities):
            return f"its answers are of {type(answers).__name__}, and not probabilities"
        logits, distance = answers.logits, answers.distance
        if logits is not None:
            if np.asarray(logits).shape != (n, 2):
                return f"the trainer gave logits of shape {np.asarray(logits).shape} for {n} cases"
            if distance is not None and np.asarray(distance).shape != (n,):
                return "the trainer gave no distance for each predicted case"
            return ""
        p = np.asarray(answers.probability)
        if p.shape != (n,) or not np.isfinite(p).all() or (p < 0).any() or (p > 1).any():
            return "the recipe gave no probability from 0 to 1 for each predicted case"
        return ""

    def pack(self, answers: Probabilities) -> dict[str, npt.NDArray[Any]]:
        if answers.logits is None:
            return {"probability": np.asarray(answers.probability, dtype=np.float64)}
        distance = np.full(len(answers), np.nan) if answers.distance is None else answers.distance
        return {
            "logits": np.asarray(answers.logits, dtype=np.float32).reshape(-1, 2),
            "distance": np.asarray(distance, dtype=np.float32),
        }

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Probabilities:
        if "logits" in arrays:
            return Probabilities.from_logits(arrays["logits"], arrays["distance"])
        return Probabilities(probability=arrays["probability"].astype(np.float64))

    def take(self, answers: Probabilities, rows: Rows) -> Probabilities:
        return Probabilities(
            probability=answers.probability[rows],
            logits=None if answers.logits is None else answers.logits[rows],
            distance=None if answers.distance is None else answers.distance[rows],
        )

    def join(self, first: Probabilities, second: Probabilities) -> Probabilities:
        def both(one: Any, two: Any) -> Any:
            return None if one is None or two is None else np.concatenate([one, two])

        return Probabilities(
            probability=np.concatenate([first.probability, second.probability]),
            logits=both(first.logits, second.logits),
            distance=both(first.distance, second.distance),
        )

    def table(self, answers: Probabilities, ids: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame({"case_id": list(ids), "probability": answers.probability})

    def write(self, answers: Probabilities, target: AnswerTarget) -> str:
        from elsewhere.tables import write_table

        write_table(self.table(answers, target.ids), target.folder / FILE)
        return FILE

    def files(self, ids: Sequence[str]) -> tuple[str, ...]:
        return (FILE,)


def _logistic(x: float) -> float:
    """The logistic function, without an overflow for very negative numbers."""
    return 0.0 if x < -709.0 else 1.0 / (1.0 + math.exp(-x))
