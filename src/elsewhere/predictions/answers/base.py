"""What an answer kind is: the one piece of code between a recipe's answer and a file that can be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.registry import Registry

if TYPE_CHECKING:
    import pandas as pd

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class AnswerTarget:
    """Where answers are written, as a participant would hand them in.

    Args:
        folder: An existing folder.
        ids: The cohort's case id of each answer, in the order of the answers.
        names: The study's name of each case ('DATASET/case_id'), in the same order.
        source: What the cases' pixels are read from: masks are written on their grid.
    """

    folder: Path
    ids: Sequence[str]
    names: Sequence[str] = ()
    source: Any = None


class AnswerKind:
    """One kind of answers. A subclass implements every method; `answer_kinds.add(KIND.name, KIND)` names it.

    The answers of several cases are one object of the kind's own class, with a row for each case.
    """

    name: ClassVar[str] = ""
    truth: ClassVar[str] = "label"
    """What of a case its answers are compared with: its 'label' or its 'mask'."""
    own_folder: ClassVar[bool] = False
    """Whether its files fill a folder of their own, one file per case."""

    def one(self, value: Any, *, shape: tuple[int, ...] | None = None) -> Any:
        """Check one case's answer as a recipe hands it over, and pack it.

        Args:
            value: The recipe's answer.
            shape: The shape of the case's grid, where it has one.

        Returns:
            The packed answer, of which nothing is shared with the recipe.

        Raises:
            ValueError: The answer is not of this kind. The message reads on from 'its answer of a case'.
        """
        raise NotImplementedError

    def gather(self, values: Sequence[Any]) -> Any:
        """Join the packed answers of `one` into answers with a row for each case."""
        raise NotImplementedError

    def check(self, answers: Any, n: int) -> str:
        """Say what is wrong with answers that should have `n` rows; empty where nothing is."""
        raise NotImplementedError

    def pack(self, answers: Any) -> dict[str, npt.NDArray[Any]]:
        """Answers as plain arrays, for a .npz without pickles."""
        raise NotImplementedError

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
        """What `pack` packed.

        Raises:
            ValueError: The arrays do not fit together.
            KeyError: An array is missing.
        """
        raise NotImplementedError

    def take(self, answers: Any, rows: Rows) -> Any:
        """The answers of these rows, in this order."""
        raise NotImplementedError

    def join(self, first: Any, second: Any) -> Any:
        """The rows of both, one after the other."""
        raise NotImplementedError

    def empty(self) -> Any:
        """Answers without a row."""
        return self.gather(())

    def table(self, answers: Any, ids: Sequence[str]) -> pd.DataFrame:
        """The answers as the prediction table that is scored; `ids` are the cohort's case ids."""
        raise NotImplementedError

    def write(self, answers: Any, target: AnswerTarget) -> str:
        """Write the answers as a participant hands them in.

        Returns:
            What to score: the file's name in the folder; empty where it is the folder itself.
        """
        raise NotImplementedError

    def files(self, ids: Sequence[str]) -> tuple[str, ...]:
        """The names of the files that `write` writes for these cases."""
        raise NotImplementedError


answer_kinds: Registry[AnswerKind] = Registry(
    "answer kind",
    group="elsewhere.answer_kinds",
    builtin_modules=(
        "elsewhere.predictions.answers.boxes",
        "elsewhere.predictions.answers.masks",
        "elsewhere.predictions.answers.probability",
    ),
)


def register_kind(kind: type[AnswerKind]) -> type[AnswerKind]:
    """Class decorator: one object of the class is the kind of this name."""
    answer_kinds.add(kind.name, kind(), owner=f"{kind.__module__}:{kind.__qualname__}")
    return kind
