"""Sources whose cases are arrays in files, one file per case: signals, tables of features, embeddings.

A subclass says what its files are called and how one is read; everything else that an engine asks of a source is here.
`docs/how-to/bring-your-own-modality.md` has a whole package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.source import CaseRow

if TYPE_CHECKING:
    from elsewhere.inputs.cases import Cases

Array = npt.NDArray[Any]
TARGETS = "targets"
"""The kind of truth that a recipe names in `sees` to be shown the annotated values of the cases that it predicts."""


class ArrayView:
    """The arrays of one training's cases. The annotated values of a case that is only predicted are not there, unless
    the recipe says that it sees them. What they are kept in is no attribute of it.

    Args:
        held: The source.
        cases: The cases that may be asked for.
        hidden: Those of them whose annotated values are not shown.
    """

    __slots__ = ("_ask",)
    _ask: Callable[[str, str], Any]

    def __init__(self, held: ArraySource, *, cases: frozenset[str], hidden: frozenset[str]) -> None:
        def ask(what: str, case: str) -> Any:
            if what == "contains":
                return case in cases and case in held
            if case not in cases:
                raise KeyError(f"'{case}' is not a case of this job")
            return held.array(case) if what == "array" else (None if case in hidden else held.targets(case))

        self._ask = ask

    def __contains__(self, case: str) -> bool:
        return bool(self._ask("contains", case))

    def array(self, case: str) -> Array:
        """Read the array of a case.

        Args:
            case: Its name.

        Returns:
            The array.

        Raises:
            KeyError: The case is not one of this training.
        """
        found: Array = self._ask("array", case)
        return found

    def targets(self, case: str) -> Mapping[str, float] | None:
        """Return the annotated values of a case.

        Args:
            case: Its name.

        Returns:
            Value by column, NaN where a cell is empty; None where they are hidden.

        Raises:
            KeyError: The case is not one of this training.
        """
        found: Mapping[str, float] | None = self._ask("targets", case)
        return found


class ArraySource:
    """A source of arrays. A subclass sets the class attributes and `read`; `sources.add(NAME, CLASS)` or the entry-point
    group 'elsewhere.sources' registers it.

    Attributes:
        name: The name under which recipes read it.
        noun: What the arrays are called, in the plural.
        column: The column of the cohort with each case's file.
        target_columns: The columns with the annotated values, numbers that recipes learn from.
        complete: Whether every case of a training must have an array.
        truths: The kinds of truth that a recipe may see of predicted cases, in words.

    Args:
        files: The file of each case.
        targets: The annotated values of each case.
        arrays: Arrays that are in memory already, in place of files.

    Example:
        >>> class Signals(ArraySource):
        ...     name, noun, column, target_columns = "signals", "signals", "signal", ("peak_s",)
        >>> held = Signals(arrays={"A/1": np.arange(3.0)}, targets={"A/1": {"peak_s": 2.0}})
        >>> view = held.view(cases=frozenset({"A/1"}), hidden=frozenset({"A/1"}), sees=frozenset())
        >>> view.array("A/1").tolist(), view.targets("A/1"), "A/2" in held
        ([0.0, 1.0, 2.0], None, False)
    """

    name: ClassVar[str] = ""
    noun: ClassVar[str] = "arrays"
    column: ClassVar[str] = "image"
    target_columns: ClassVar[tuple[str, ...]] = ()
    complete: ClassVar[bool] = True
    truths: ClassVar[Mapping[str, str]] = {TARGETS: "the annotated values"}

    def __init__(
        self,
        files: Mapping[str, Path] | None = None,
        *,
        targets: Mapping[str, Mapping[str, float]] | None = None,
        arrays: Mapping[str, Array] | None = None,
    ) -> None:
        self.files, self.arrays = dict(files or {}), dict(arrays or {})
        self._targets = {case: dict(values) for case, values in (targets or {}).items()}

    def read(self, path: Path) -> Array:
        """Read one file.

        Args:
            path: The file; by default an .npy file without pickles.

        Returns:
            The array.
        """
        found: Array = np.load(path, allow_pickle=False)
        return found

    def array(self, case: str) -> Array:
        """Return the array of a case.

        Args:
            case: Its name.

        Returns:
            From memory, or read from the file.
        """
        return self.arrays[case] if case in self.arrays else self.read(self.files[case])

    def targets(self, case: str) -> Mapping[str, float]:
        """Return the annotated values of a case.

        Args:
            case: Its name.

        Returns:
            Value by column; NaN where a cell is empty.
        """
        return self._targets.get(case, {})

    def __contains__(self, case: str) -> bool:
        return case in self.files or case in self.arrays

    @classmethod
    def of_cases(cls, rows: Iterable[CaseRow]) -> ArraySource:
        """Make the source of a cohort's rows. No file is opened yet.

        Args:
            rows: The rows; one without a file is not in the source.

        Returns:
            The source.
        """
        files, targets = {}, {}
        for row in rows:
            file = row.values.get(cls.column)
            if isinstance(file, str) and file:
                files[row.name] = row.file(file)
                targets[row.name] = {name: _number(row.values.get(name)) for name in cls.target_columns}
        return cls(files, targets=targets)

    def problems(self, cases: Iterable[str]) -> dict[str, str]:
        """Find files that cannot be read, without training anything.

        Args:
            cases: The cases to look at.

        Returns:
            What is wrong, by case.
        """
        found = {}
        for case in cases:
            try:
                self.array(case)
            except (OSError, ValueError, EOFError) as error:
                found[case] = f"{self.files[case]}: {error}"
        return found

    def digest(self, case: str) -> str:
        """Return what names a case's array in a training's key.

        Args:
            case: Its name.

        Returns:
            A digest of type, shape and values.
        """
        array = np.ascontiguousarray(self.array(case))
        content = f"{array.dtype.str}{array.shape}".encode() + array.tobytes()
        return hashlib.sha256(content).hexdigest()

    def truth_digest(self, case: str) -> str:
        """Return what names a case's annotated values in a training's key.

        Args:
            case: Its name.

        Returns:
            A digest; empty where every value is.
        """
        values = {name: value for name, value in self.targets(case).items() if value == value}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest() if values else ""

    def identity(self, case: str) -> str:
        """Return what the same array has in common under another name.

        Args:
            case: Its name.

        Returns:
            The digest of the array.
        """
        return self.digest(case)

    def truth_files(self) -> tuple[Path, ...]:
        """Return the files of annotations.

        Returns:
            None: annotated values stand in the cohort's table.
        """
        return ()

    def boxes(self, rows: Sequence[CaseRow]) -> npt.NDArray[np.int32]:
        """Return the boxes of lesions in pictures.

        Args:
            rows: The cohort's rows.

        Returns:
            Zeros: arrays have none.
        """
        return np.zeros((len(rows), 4), dtype=np.int32)

    def shape(self, case: str) -> tuple[int, ...] | None:
        """Return the shape that an answer must have.

        Args:
            case: Its name.

        Returns:
            None: any shape will do.
        """
        return None

    def view(self, *, cases: frozenset[str], hidden: frozenset[str], sees: frozenset[str]) -> ArrayView:
        """Make what a recipe is shown.

        Args:
            cases: The cases of its training.
            hidden: Those that are only predicted.
            sees: The kinds of truth that the recipe is shown all the same.

        Returns:
            The view.
        """
        return ArrayView(self, cases=cases, hidden=frozenset() if TARGETS in sees else hidden)

    def pack(self, folder: Path, cases: Cases, *, with_truth: bool) -> None:
        """Write what a bare machine needs of these cases.

        Args:
            folder: An empty folder.
            cases: The cases.
            with_truth: Whether the annotated values travel too.
        """
        for number, case in enumerate(cases.case):
            np.save(folder / f"{number:06d}.npy", self.array(case), allow_pickle=False)
        held = {case: dict(self.targets(case)) if with_truth else {} for case in cases.case}
        (folder / "cases.json").write_text(json.dumps(held), encoding="utf-8")

    @classmethod
    def unpack(cls, folder: Path) -> ArraySource:
        """Read what `pack` wrote.

        Args:
            folder: The folder.

        Returns:
            The source.
        """
        held = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
        arrays = {
            str(case): np.load(folder / f"{number:06d}.npy", allow_pickle=False)
            for number, case in enumerate(held)
        }
        return cls(arrays=arrays, targets=held)

    def portable(self, cases: Iterable[str]) -> ArraySource:
        """Return the source of some cases as an object that can be pickled.

        Args:
            cases: The cases.

        Returns:
            The source with these arrays in memory.
        """
        names = list(cases)
        return type(self)(
            arrays={case: self.array(case) for case in names},
            targets={case: self.targets(case) for case in names},
        )

    def nbytes(self) -> int:
        """Estimate how much memory `portable` takes.

        Returns:
            The size of the arrays in memory and of the files.
        """
        on_disk = sum(path.stat().st_size for path in self.files.values() if path.is_file())
        return on_disk + sum(array.nbytes for array in self.arrays.values())


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
