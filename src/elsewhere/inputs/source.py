"""How pixels reach a recipe. One source per modality; recipes name the one that they read.

A source holds the pictures or volumes of a study's cases, from their files, from memory, or from packs that
travelled to a bare machine. Another package brings one by the entry-point group 'elsewhere.sources'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from elsewhere.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from elsewhere.inputs.cases import Cases


CLINICAL, MASK, LESION_BOX, BREAST_BOX = "clinical", "mask", "lesion-box", "breast-box"
"""Kinds of truth that a recipe may say it sees of the cases that it predicts. A source may know others."""


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """One row of a cohort, as a source reads it.

    Args:
        name: The study's name of the case, 'DATASET/case_id'.
        values: The row by column; None or NaN where a cell is empty.
        file: Where a file that the row names lies.
    """

    name: str
    values: Mapping[str, Any]
    file: Callable[[str], Path]


class View(Protocol):
    """What a recipe is shown of a source: its own training's cases, without the truth of those it predicts."""

    def __contains__(self, case: str) -> bool: ...


class Source(Protocol):
    """The pictures or volumes of a study, by case name ('DATASET/case_id')."""

    name: ClassVar[str]
    noun: ClassVar[str]
    """What the pixels are called, in the plural: 'pictures', 'volumes'."""
    complete: ClassVar[bool]
    """Whether every case of a training must have pixels; otherwise recipes are told which have."""
    truths: ClassVar[Mapping[str, str]]
    """The kinds of truth that it can show of a case, each in words for a report."""

    def __contains__(self, case: str) -> bool: ...

    def write_mask(self, path: Path, mask: npt.NDArray[np.bool_], *, like: str) -> Path:
        """Write a predicted mask on the grid of a case's own file. Of a source whose recipes answer with masks."""

    @classmethod
    def of_cases(cls, rows: Iterable[CaseRow]) -> Source:
        """The source of a cohort's rows. A row without pixels is not in it. No pixel is read yet."""

    def problems(self, cases: Iterable[str]) -> Mapping[str, str]:
        """What would stop a training, by case; found without training anything."""

    def digest(self, case: str) -> str:
        """What names a case's pixels in a training's key."""

    def truth_digest(self, case: str) -> str:
        """The same of the expert's annotation; '' where there is none."""

    def identity(self, case: str) -> str:
        """What the same pixels have in common under another name, header or packing: no case is tested whose pixels
        trained."""

    def truth_files(self) -> tuple[Path, ...]:
        """The files of the experts' annotations: no recipe may be given them under another name."""

    def boxes(self, rows: Sequence[CaseRow]) -> npt.NDArray[np.int32]:
        """(n, 4) x0, y0, x1, y1: where the lesion is in a picture, zeros where it is not known."""

    def shape(self, case: str) -> tuple[int, ...] | None:
        """Of the grid that a mask of this case must have; None where any will do."""

    def view(self, *, cases: frozenset[str], hidden: frozenset[str], sees: frozenset[str]) -> View:
        """What a recipe is shown.

        Args:
            cases: The cases of its training; it can ask for no other.
            hidden: Those that are only predicted, whose truth it is not shown.
            sees: The kinds of truth that its recipe is shown all the same.

        Returns:
            A view that the recipe reads from.
        """

    def pack(self, folder: Path, cases: Cases, *, with_truth: bool) -> None:
        """Write what a bare machine needs of these cases into an empty folder; `unpack` reads it."""

    @classmethod
    def unpack(cls, folder: Path) -> Source:
        """The source that `pack` wrote."""

    def portable(self, cases: Iterable[str]) -> Any:
        """The source of these cases as an object that can be pickled and used on a node of a cluster."""

    def nbytes(self) -> int:
        """About how much memory `portable` takes."""


sources: Registry[type[Source]] = Registry(
    "source",
    group="elsewhere.sources",
    builtin_modules=("elsewhere.inputs.pictures", "elsewhere.inputs.mri.source"),
)
