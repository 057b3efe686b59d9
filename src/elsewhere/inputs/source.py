"""Defines how pixels reach a recipe. There is one source per modality; recipes name the one that they read.

A source gives the pictures or volumes of a study's cases, from their files, from memory, or from packs that
travelled to a bare machine. Another package adds one by the entry-point group 'elsewhere.sources'.
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
"""Kinds of truth that a recipe may declare to see of the cases that it predicts. A source may know others."""
LESIONS = "lesions"
"""The value of a row that holds the case's rows of the cohort's lesion table, where it has one."""


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """One row of a cohort, as a source reads it.

    Args:
        name: The study's name of the case, 'DATASET/case_id'.
        values: The cells of the row by column; None or NaN where a cell is empty. Where the cohort has a table of
            lesions, `LESIONS` holds the case's rows of it, each a mapping by column; of a case without lesions none.
        file: A function from a file name in a cell to its path.
    """

    name: str
    values: Mapping[str, Any]
    file: Callable[[str], Path]


class View(Protocol):
    """What a recipe is shown of a source: its training's cases, without the truth of those it predicts."""

    def __contains__(self, case: str) -> bool: ...


class Source(Protocol):
    """The pictures or volumes of a study, by case name ('DATASET/case_id').

    Attributes:
        name: The name by which recipes choose the source.
        noun: What the pixels are called, in the plural: 'pictures', 'volumes'.
        complete: Whether every case of a training must have pixels; otherwise recipes learn which cases have
            some.
        truths: The kinds of truth that it can show of a case, each in words for a report.

    A source whose files are slow to read may have a further method, `prepare(cases, *, threads, progress, stop)`. The
    engine on one machine calls it before the first training, so that it can fill a cache with several threads.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    complete: ClassVar[bool]
    truths: ClassVar[Mapping[str, str]]

    def __contains__(self, case: str) -> bool: ...

    def write_mask(self, path: Path, mask: npt.NDArray[np.bool_], *, like: str) -> Path:
        """Write a predicted mask on the grid of a case's own file.

        Only sources whose recipes answer with masks can do so.

        Args:
            path: The file to write.
            mask: The mask on the grid of the source.
            like: The case ('DATASET/case_id') whose file gives the grid.

        Returns:
            The file that was written.

        Raises:
            TypeError: The source has no files with a grid.
        """

    @classmethod
    def of_cases(cls, rows: Iterable[CaseRow]) -> Source:
        """Make the source of a cohort's rows. A row without pixels is not in it. No pixel is read yet.

        Args:
            rows: The rows of one or several cohorts.

        Returns:
            The source.
        """

    def problems(self, cases: Iterable[str]) -> Mapping[str, str]:
        """Find what would stop a training, without training anything.

        Args:
            cases: The cases to check ('DATASET/case_id').

        Returns:
            The reason by case; cases without a problem are not in it.
        """

    def digest(self, case: str) -> str:
        """Return the digest that stands for a case's pixels in a training's key.

        Args:
            case: 'DATASET/case_id'.

        Returns:
            Hexadecimal sha256.
        """

    def truth_digest(self, case: str) -> str:
        """Return the digest that stands for the expert's annotation of a case in a training's key.

        Args:
            case: 'DATASET/case_id'.

        Returns:
            Hexadecimal sha256; '' where there is no annotation.
        """

    def identity(self, case: str) -> str:
        """Return a digest that the same pixels have under another name, header or packing.

        It guards the rule that no case is tested whose pixels were trained on.

        Args:
            case: 'DATASET/case_id'.

        Returns:
            Hexadecimal sha256.
        """

    def truth_files(self) -> tuple[Path, ...]:
        """List the files of the experts' annotations; no recipe may be given them under another name.

        Returns:
            Paths; empty where the annotations are not files.
        """

    def boxes(self, rows: Sequence[CaseRow]) -> npt.NDArray[np.int32]:
        """Return where the lesion is in each case's picture.

        Args:
            rows: The rows of the cohort.

        Returns:
            (n, 4) x0, y0, x1, y1 in pixels, half-open; zeros where it is not known.
        """

    def shape(self, case: str) -> tuple[int, ...] | None:
        """Return the shape of the grid that a mask of this case must have.

        Args:
            case: 'DATASET/case_id'.

        Returns:
            Voxels or pixels along each axis; None where any shape is accepted.
        """

    def view(self, *, cases: frozenset[str], hidden: frozenset[str], sees: frozenset[str]) -> View:
        """Make the view that a recipe reads from.

        Args:
            cases: The cases of its training; it can ask for no other.
            hidden: Those that are only predicted, whose truth it is not shown.
            sees: The kinds of truth that its recipe is shown all the same.

        Returns:
            The view.
        """

    def pack(self, folder: Path, cases: Cases, *, with_truth: bool) -> None:
        """Write what a bare machine needs of these cases; `unpack` reads it.

        Args:
            folder: An empty folder.
            cases: The cases to pack.
            with_truth: Whether the experts' annotations are packed too.
        """

    @classmethod
    def unpack(cls, folder: Path) -> Source:
        """Read the source that `pack` wrote.

        Args:
            folder: The folder.

        Returns:
            The source.
        """

    def portable(self, cases: Iterable[str]) -> Any:
        """Return the source of some cases as an object that can be pickled and used on a node of a cluster.

        Args:
            cases: The cases ('DATASET/case_id').

        Returns:
            A source.
        """

    def nbytes(self) -> int:
        """Estimate how much memory `portable` takes.

        Returns:
            Bytes.
        """


sources: Registry[type[Source]] = Registry(
    "source",
    group="elsewhere.sources",
    builtin_modules=(
        "elsewhere.inputs.pictures",
        "elsewhere.inputs.mri.source",
        "elsewhere.inputs.tomosynthesis.source",
        "elsewhere.inputs.slides.source",
    ),
)
