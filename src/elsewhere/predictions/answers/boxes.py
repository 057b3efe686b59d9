"""Boxes with scores, any number per case: the answers of finders and detectors.

Boxes of volumes that are named by study and view are written as the DBTex challenge's csv (DBT-07), others in our own
columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.predictions.answers.base import AnswerKind, AnswerTarget, Rows, register_kind

if TYPE_CHECKING:
    import pandas as pd

    from elsewhere.cohort import Cohort
    from elsewhere.predictions.table import Predictions, ReadOptions

FILE = "boxes.csv"
PLANE, VOLUME = 4, 6


@dataclass(frozen=True, kw_only=True)
class FoundBoxes:
    """The boxes of n cases, any number per case.

    Args:
        n: How many cases were examined; a case may have no box.
        row: (m,) the position of the case that each box is of, ascending.
        box: (m, 4) x0, y0, x1, y1, or (m, 6) x0, y0, z0, x1, y1, z1; half-open, in pixels and slices.
        score: (m,) how sure the finder is; higher is surer.

    Example:
        >>> found = FoundBoxes.from_best([[2, 3, 9, 8], [0, 0, 0, 0]])
        >>> len(found), found.row.tolist(), found.score.tolist()
        (2, [0], [1.0])
    """

    kind: ClassVar[str] = "boxes"
    n: int
    row: npt.NDArray[np.int64]
    box: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]

    @classmethod
    def from_best(cls, box: npt.ArrayLike) -> FoundBoxes:
        """Make the answers of a finder that gives at most one plane box per case.

        Args:
            box: (n, 4) x0, y0, x1, y1; all zero where nothing was found.

        Returns:
            The boxes, each with score 1.

        Example:
            >>> FoundBoxes.from_best([[2, 3, 9, 8]]).best().tolist()
            [[2, 3, 9, 8]]
        """
        held = np.asarray(box, dtype=np.float64).reshape(-1, PLANE)
        row = np.flatnonzero(held.any(axis=1))
        return cls(n=len(held), row=row.astype(np.int64), box=held[row], score=np.ones(len(row)))

    def best(self) -> npt.NDArray[np.int32]:
        """Return the box with the highest score of each case.

        Returns:
            (n, 4) x0, y0, x1, y1; zeros where a case has no box. Boxes must be plane ones.
        """
        found = np.zeros((self.n, PLANE), dtype=np.int32)
        for at in np.argsort(self.score, kind="stable"):
            found[self.row[at]] = self.box[at]
        return found

    def __len__(self) -> int:
        return self.n


@register_kind
class BoxKind(AnswerKind):
    """The answer kind 'boxes'."""

    name = FoundBoxes.kind
    row: ClassVar[str] = "volume"
    silence: ClassVar[bool] = True

    def read(self, path: Path, options: ReadOptions, cohort: Cohort | None) -> Predictions:
        from elsewhere.predictions.boxes import read_boxes

        return read_boxes(path, options, cohort)

    def one(
        self, value: Any, *, shape: tuple[int, ...] | None = None
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        box, score = value
        held = np.array(box, dtype=np.float64)
        sure = np.array(score, dtype=np.float64).reshape(-1)
        if held.size == 0:
            held = held.reshape(0, held.shape[-1] if held.ndim == 2 else PLANE)
        if held.ndim != 2 or held.shape[1] not in (PLANE, VOLUME) or len(held) != len(sure):
            raise ValueError(f"holds boxes of shape {held.shape} and {len(sure)} scores")
        if not np.isfinite(held).all() or not np.isfinite(sure).all():
            raise ValueError("holds a box or a score that is not finite")
        return held, sure

    def gather(self, values: Sequence[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]) -> FoundBoxes:
        width = max((box.shape[1] for box, _ in values if len(box)), default=PLANE)
        parts = [box for box, _ in values if len(box)]
        if any(part.shape[1] != width for part in parts):
            raise ValueError("holds boxes of pictures and of volumes")
        return FoundBoxes(
            n=len(values),
            row=np.repeat(np.arange(len(values)), [len(box) for box, _ in values]).astype(np.int64),
            box=np.concatenate([np.zeros((0, width)), *parts]),
            score=np.concatenate([np.zeros(0), *(score for _, score in values)]),
        )

    def check(self, answers: Any, n: int) -> str:
        if not isinstance(answers, FoundBoxes):
            return f"its answers are of {type(answers).__name__}, and not boxes"
        m = len(answers.row)
        if answers.n != n:
            return "the trainer gave no box for each predicted case"
        if answers.box.shape not in ((m, PLANE), (m, VOLUME)) or answers.score.shape != (m,):
            return "its boxes and their scores differ in number"
        if m and (answers.row.min() < 0 or answers.row.max() >= n):
            return "a box is of a case that was not asked for"
        if not np.isfinite(answers.box).all() or not np.isfinite(answers.score).all():
            return "a box or its score is not finite"
        return ""

    def pack(self, answers: FoundBoxes) -> dict[str, npt.NDArray[Any]]:
        return {
            "n": np.array(answers.n, dtype=np.int64),
            "row": np.asarray(answers.row, dtype=np.int64),
            "box": np.asarray(answers.box, dtype=np.float64),
            "score": np.asarray(answers.score, dtype=np.float64),
        }

    def unpack(self, arrays: Mapping[str, npt.NDArray[Any]]) -> FoundBoxes:
        found = FoundBoxes(
            n=int(arrays["n"]),
            row=arrays["row"].astype(np.int64),
            box=arrays["box"].astype(np.float64),
            score=arrays["score"].astype(np.float64),
        )
        wrong = self.check(found, found.n)
        if wrong:
            raise ValueError(wrong)
        return found

    def take(self, answers: FoundBoxes, rows: Rows) -> FoundBoxes:
        places = [np.flatnonzero(answers.row == row) for row in rows.tolist()]
        taken = np.concatenate([np.zeros(0, dtype=np.int64), *places])
        return FoundBoxes(
            n=len(rows),
            row=np.repeat(np.arange(len(rows)), [len(part) for part in places]).astype(np.int64),
            box=answers.box[taken],
            score=answers.score[taken],
        )

    def join(self, first: FoundBoxes, second: FoundBoxes) -> FoundBoxes:
        some = [one.box for one in (first, second) if len(one.box)] or [first.box]
        return FoundBoxes(
            n=first.n + second.n,
            row=np.concatenate([first.row, second.row + first.n]),
            box=np.concatenate(some),
            score=np.concatenate([first.score, second.score]),
        )

    def table(self, answers: FoundBoxes, ids: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        half = answers.box.shape[1] // 2
        low, size = answers.box[:, :half], answers.box[:, half:] - answers.box[:, :half]
        columns = {
            "case_id": [ids[row] for row in answers.row.tolist()],
            "x": low[:, 0],
            "y": low[:, 1],
            "width": size[:, 0],
            "height": size[:, 1],
        }
        if half > 2:
            # the challenge's centre slice is Z + Depth/2: from the first slice to the last one
            columns |= {"z": low[:, 2], "depth": np.maximum(size[:, 2] - 1, 0)}
        return pd.DataFrame(columns | {"score": answers.score})

    def write(self, answers: FoundBoxes, target: AnswerTarget) -> str:
        from elsewhere.predictions.dbtex import names_a_view, write_dbtex
        from elsewhere.predictions.table import Predictions
        from elsewhere.tables import write_table

        table, path = self.table(answers, target.ids), target.folder / FILE
        of_volumes = answers.box.shape[1] == VOLUME or not len(answers.box)
        if of_volumes and target.patients and all(map(names_a_view, target.ids)):
            patients = [target.patients[row] for row in answers.row.tolist()]
            slices: dict[str, Any] = {name: table.get(name, []) for name in ("z", "depth")}
            table = table.assign(patient_id=patients, **slices)
            write_dbtex(Predictions(kind=self.name, table=table, source=str(path), digest=""), path)
        else:
            write_table(table, path)
        return FILE

    def files(self, ids: Sequence[str]) -> tuple[str, ...]:
        return (FILE,)
