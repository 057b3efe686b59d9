"""The cases of a study as plain arrays: what training and prediction know, and nothing more.

The study's tables need pandas and pyarrow; a bare GPU machine has neither, or older versions. This is the
part of the tables that travels to such a machine.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BENIGN, MALIGNANT, NORMAL = 0, 1, -1
Value = float | str | None


@dataclass(frozen=True, kw_only=True)
class Cases:
    """The cases of a study, one entry per case in the same order everywhere.

    Args:
        case: "DATASET/case_id", unique in a study.
        dataset: The dataset of each case.
        label: 0 benign, 1 malignant, -1 normal; of a response: 0 no pCR, 1 pCR, -1 not known.
        box: (n, 4): x0, y0, x1, y1 in pixels of the picture, half-open; all zero where there is no box.
        digest: Hexadecimal sha256 of each picture or volume: what makes two trainings the same training.
        mask_digest: The same of each case's mask files together, "" for none; empty where no mask is known.
        group: What no split may part: a patient, or patients with near-duplicates of each other; empty where
            each case is its own group.
        clinical: Columns that a recipe may know of a case (age, subtype, ...); None where a value is missing.

    Raises:
        ValueError: The columns differ in length, or a case appears twice.

    Example:
        >>> cases = Cases(
        ...     case=("A/1", "B/1"),
        ...     dataset=("A", "B"),
        ...     label=np.array([BENIGN, MALIGNANT], dtype=np.int8),
        ...     box=np.zeros((2, 4), dtype=np.int32),
        ...     digest=("4bf5", "7c9f"),
        ... )
        >>> len(cases), cases.rows(["B/1"]).tolist(), cases.subset(["B/1"]).dataset
        (2, [1], ('B',))
    """

    case: tuple[str, ...]
    dataset: tuple[str, ...]
    label: npt.NDArray[np.int8]
    box: npt.NDArray[np.int32]
    digest: tuple[str, ...]
    mask_digest: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    clinical: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.case)
        columns = (self.mask_digest, self.group, *self.clinical.values())
        if any(len(column) != n for column in columns if column):
            raise ValueError("the columns of Cases differ in length")
        if not (len(self.dataset) == len(self.label) == len(self.box) == len(self.digest) == n):
            raise ValueError("the columns of Cases differ in length")
        if len(set(self.case)) != n:
            raise ValueError("a case appears twice in Cases")

    def __len__(self) -> int:
        return len(self.case)

    @cached_property
    def row(self) -> dict[str, int]:
        """The row of each case, by name."""
        return {name: at for at, name in enumerate(self.case)}

    def rows(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the rows of cases.

        Args:
            names: The names of the cases.

        Returns:
            One row per name, in the order of the names.

        Raises:
            KeyError: A name is not among the cases.
        """
        return np.array([self.row[name] for name in names], dtype=np.int64)

    def subset(self, names: Sequence[str]) -> Cases:
        """Return some of the cases.

        Args:
            names: The names of the cases.

        Returns:
            These cases, in this order.

        Raises:
            KeyError: A name is not among the cases.
        """
        rows = self.rows(names)

        def taken(column: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(column[at] for at in rows) if column else ()

        return Cases(
            case=taken(self.case),
            dataset=taken(self.dataset),
            label=self.label[rows],
            box=self.box[rows],
            digest=taken(self.digest),
            mask_digest=taken(self.mask_digest),
            group=taken(self.group),
            clinical={name: taken(column) for name, column in self.clinical.items()},
        )

    def clinical_of(self, case: str) -> dict[str, Value]:
        """Return the clinical values of a case.

        Args:
            case: The name of the case.

        Returns:
            The values by column; None where a value is missing.

        Raises:
            KeyError: The name is not among the cases.
        """
        at = self.row[case]
        return {name: column[at] for name, column in self.clinical.items()}

    @cached_property
    def clinical_prints(self) -> npt.NDArray[np.uint64]:
        """One number per case that stands for its clinical values, with columns in alphabetical order."""
        columns = sorted(self.clinical.items())
        return _prints(
            json.dumps([[name, plain_value(column[at])] for name, column in columns])
            for at in range(len(self))
        )

    def fingerprints(self, *, with_box: bool, with_mask: bool = False) -> npt.NDArray[np.uint64]:
        """Return what a network can see of each case, as one number: its pixels and, for a crop, its box.

        Args:
            with_box: Whether the box counts.
            with_mask: Whether the mask counts too, where the lesion's outline is an input or a target.

        Returns:
            (n,) one number per case; it changes when what is seen changes.
        """
        if with_mask and self.mask_digest:
            return self._with_mask
        return self._with_box if with_box else self._without_box

    @cached_property
    def _with_mask(self) -> npt.NDArray[np.uint64]:
        boxes = self._with_box.tolist()
        return _prints(f"{box:016x}:{mask}" for box, mask in zip(boxes, self.mask_digest, strict=True))

    @cached_property
    def _with_box(self) -> npt.NDArray[np.uint64]:
        boxes = (",".join(map(str, box)) for box in self.box.tolist())
        return _prints(f"{digest}:{box}" for digest, box in zip(self.digest, boxes, strict=True))

    @cached_property
    def _without_box(self) -> npt.NDArray[np.uint64]:
        return _prints(self.digest)

    def save(self, path: str | Path) -> None:
        """Write the cases as one .npz file without pickles.

        Args:
            path: The file to write.
        """
        np.savez_compressed(
            path,
            case=np.array(self.case, dtype=np.str_),
            dataset=np.array(self.dataset, dtype=np.str_),
            label=self.label,
            box=self.box,
            digest=np.array(self.digest, dtype=np.str_),
            mask_digest=np.array(self.mask_digest, dtype=np.str_),
            group=np.array(self.group, dtype=np.str_),
            clinical=np.array(json.dumps(self._plain_clinical(), ensure_ascii=False)),
        )

    def _plain_clinical(self) -> dict[str, list[Value]]:
        return {name: [plain_value(value) for value in column] for name, column in self.clinical.items()}

    @classmethod
    def load(cls, path: str | Path) -> Cases:
        """Read the cases of a file that `save` wrote.

        Args:
            path: The file.

        Returns:
            The cases.

        Raises:
            ValueError: The columns differ in length, or a case appears twice.
            KeyError: A column is missing.
        """
        with np.load(path, allow_pickle=False) as held:
            return cls(
                case=tuple(map(str, held["case"])),
                dataset=tuple(map(str, held["dataset"])),
                label=held["label"].astype(np.int8),
                box=held["box"].astype(np.int32),
                digest=tuple(map(str, held["digest"])),
                mask_digest=tuple(map(str, held["mask_digest"])) if "mask_digest" in held else (),
                group=tuple(map(str, held["group"])) if "group" in held else (),
                clinical={
                    name: tuple(column) for name, column in json.loads(str(held["clinical"][()])).items()
                }
                if "clinical" in held
                else {},
            )


def plain_value(value: Value) -> Value:
    """Return a clinical value as JSON can hold it; a number that is not finite is missing.

    Args:
        value: A number, a text or None.

    Returns:
        A finite number, a text or None.

    Example:
        >>> plain_value(52), plain_value("luminal"), plain_value(float("nan"))
        (52.0, 'luminal', None)
    """
    if isinstance(value, str) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _prints(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    """The first eight bytes of each text's sha256, little-endian."""
    heads = b"".join(hashlib.sha256(text.encode()).digest()[:8] for text in texts)
    return np.frombuffer(heads, dtype="<u8").astype(np.uint64)
