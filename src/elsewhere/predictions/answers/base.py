"""Answer kinds: the one piece of code between a recipe's answer and a file that can be scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.registry import Registry, object_of

if TYPE_CHECKING:
    import pandas as pd

    from elsewhere.cohort import Cohort
    from elsewhere.predictions.table import Predictions, ReadOptions

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class AnswerTarget:
    """Where answers are written, as a participant would hand them in.

    Args:
        folder: An existing folder.
        ids: The cohort's case id of each answer, in the order of the answers.
        names: The study's name of each case ('DATASET/case_id'), in the same order.
        source: What the cases' pixels are read from: masks are written on their grid.
        patients: The patient of each case, for formats that name them; empty: not known.
    """

    folder: Path
    ids: Sequence[str]
    names: Sequence[str] = ()
    source: Any = None
    patients: Sequence[str] = ()


class AnswerKind:
    """One kind of answers, from a recipe or a participant's file to the table that is scored.

    A subclass implements `read`, so that files can be scored, and the other methods, so that recipes can answer with it;
    `answer_kinds.add(NAME, KIND)` or the entry-point group 'elsewhere.answer_kinds' registers an object of it. The
    answers of several cases are one object of the kind's own class, with one row per case.

    Attributes:
        name: The name under which tasks and recipes ask for it.
        truth: What of a case its answers are compared with: its 'label', its 'mask', or the column 'target' of the task.
        own_folder: Whether its files fill a folder of their own, one file per case.
        reads_status: Whether its tables have a status column, which `--failed-status` is about.
        row: What one id of its table stands for, in messages.
        silence: Whether a case without a row is an answer: a table of boxes has none for a volume in which nothing was
            found.
    """

    name: str = ""
    truth: ClassVar[str] = "label"
    own_folder: ClassVar[bool] = False
    reads_status: ClassVar[bool] = False
    row: ClassVar[str] = "prediction"
    silence: ClassVar[bool] = False

    def read(self, path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
        """Read a file or folder of answers.

        Args:
            path: The file or folder.
            options: How it is to be read.
            cohort: The cases that ids are compared with, where a format needs them.

        Returns:
            The prediction table.

        Raises:
            UserError: The file is not what the kind expects.
        """
        raise NotImplementedError

    def one(self, value: Any, *, shape: tuple[int, ...] | None = None) -> Any:
        """Check one case's answer as a recipe hands it over, and pack it.

        Args:
            value: The recipe's answer.
            shape: The shape of the case's grid, where it has one.

        Returns:
            The packed answer, of which nothing is shared with the recipe.

        Raises:
            ValueError: The answer is not of this kind. The message continues the words 'its answer of a
                case'.
        """
        raise NotImplementedError

    def by_chance(self, draw: float) -> Any:
        """Make an answer that does not depend on the case, for the recipe `random`.

        Args:
            draw: From 0 to 1, a uniform draw.

        Returns:
            An answer that `one` accepts; None where the kind has no such answer.
        """
        return None

    def gather(self, values: Sequence[Any]) -> Any:
        """Join the packed answers of some cases into one object.

        Args:
            values: What `one` returned for each case.

        Returns:
            The answers, one row per case in the same order.

        Raises:
            ValueError: The answers do not fit together.
        """
        raise NotImplementedError

    def check(self, answers: Any, n: int) -> str:
        """Describe what is wrong with answers.

        Args:
            answers: What should be answers of this kind.
            n: How many rows they should have.

        Returns:
            A clause for a message; empty where nothing is wrong.
        """
        raise NotImplementedError

    def pack(self, answers: Any) -> dict[str, npt.NDArray[Any]]:
        """Turn answers into plain arrays, for a .npz file without pickles.

        Args:
            answers: The answers.

        Returns:
            Arrays by name, from which `unpack` restores the answers.
        """
        raise NotImplementedError

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
        """Restore the answers that `pack` turned into arrays.

        Args:
            arrays: The arrays by name.

        Returns:
            The answers.

        Raises:
            ValueError: The arrays do not fit together.
            KeyError: An array is missing.
        """
        raise NotImplementedError

    def take(self, answers: Any, rows: Rows) -> Any:
        """Select the answers of some rows.

        Args:
            answers: The answers.
            rows: The positions of the rows, in the order wanted.

        Returns:
            Answers with these rows alone.
        """
        raise NotImplementedError

    def join(self, first: Any, second: Any) -> Any:
        """Append the rows of some answers to others.

        Args:
            first: The answers whose rows come first.
            second: Answers of the same kind.

        Returns:
            The answers of both.
        """
        raise NotImplementedError

    def empty(self) -> Any:
        """Return answers without a row.

        Returns:
            The answers of no case.
        """
        return self.gather(())

    def table(self, answers: Any, ids: Sequence[str]) -> pd.DataFrame:
        """Turn answers into the prediction table that is scored.

        Args:
            answers: The answers.
            ids: The cohort's case id of each row.

        Returns:
            The table, with `case_id` and the columns of this kind.
        """
        raise NotImplementedError

    def write(self, answers: Any, target: AnswerTarget) -> str:
        """Write the answers as a participant hands them in.

        Args:
            answers: The answers.
            target: The folder to write into, and the names of the cases.

        Returns:
            What to score: the file's name in the folder; empty where it is the folder itself.
        """
        raise NotImplementedError

    def files(self, ids: Sequence[str]) -> tuple[str, ...]:
        """List the files that `write` writes for some cases.

        Args:
            ids: The cohort's case ids.

        Returns:
            The names of the files in the folder.
        """
        raise NotImplementedError


answer_kinds: Registry[AnswerKind] = Registry(
    "answer kind",
    group="elsewhere.answer_kinds",
    builtin_modules=(
        "elsewhere.predictions.answers.boxes",
        "elsewhere.predictions.answers.masks",
        "elsewhere.predictions.answers.probability",
        "elsewhere.predictions.answers.slides",
    ),
    check=object_of(AnswerKind),
)


def register_kind(kind: type[AnswerKind]) -> type[AnswerKind]:
    """Register a class as the answer kind that its `name` says, as a decorator.

    Args:
        kind: A subclass of AnswerKind that is made without arguments.

    Returns:
        The class itself.
    """
    answer_kinds.add(kind.name, kind(), owner=f"{kind.__module__}:{kind.__qualname__}")
    return kind
