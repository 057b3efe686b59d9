"""The study table as codes: which rows belong together, and which classes each dataset's patients have.

A *unit* is what a split may not divide: everything that the columns `patient` and `group` join,
directly or through others (US-05, US-30).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from elsewhere.cohort.label_scheme import LESIONS, LabelScheme
from elsewhere.errors import UserError, name_rows, unknown_name
from elsewhere.tables.reading import require_columns

COLUMNS = ("case", "dataset", "patient", "group", "label")
_BENIGN, _MALIGNANT, _NORMAL = 0, 1, 2

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class SourceUnits:
    """The units of one dataset that have a lesion image, in the order of their names.

    The order of the rows does not count. A unit is named by the first of its patients in this dataset, so
    that another name of the group, or another dataset, changes nothing.

    Args:
        unit: Number of each unit in the study, 1-D.
        malignant: True where the unit has a malignant lesion image in this dataset: the malignant stratum
            (US-05).
        benign: True where it has a benign lesion image; with `malignant` too, the unit is mixed.
        elsewhere: True where a duplicate joins it to a case of another dataset (US-30).
        both_needed: Whether every part of a split needs both classes.
    """

    unit: IntArray
    malignant: BoolArray
    benign: BoolArray
    elsewhere: BoolArray
    both_needed: bool = True

    @property
    def unknown(self) -> BoolArray:
        """True where the unit has no image of a known class: such units are a stratum of their own."""
        return ~(self.malignant | self.benign)

    def __len__(self) -> int:
        return int(self.unit.size)

    def only(self, keep: BoolArray) -> SourceUnits:
        """Take some of the units.

        Args:
            keep: True for the units to keep, one entry per unit.

        Returns:
            The units that were kept, in the same order.
        """
        return SourceUnits(
            unit=self.unit[keep],
            malignant=self.malignant[keep],
            benign=self.benign[keep],
            elsewhere=self.elsewhere[keep],
            both_needed=self.both_needed,
        )

    def feasible(self, parts: int) -> bool:
        """Check whether a number of parts can each get both classes of lesion image without splitting a unit.

        A part needs a mixed unit, or a malignant and a benign one. With x mixed units, m others with
        malignant and b others with benign images, that is x + min(m, b) >= parts: as many units of
        each class as there are parts, where a mixed unit counts for both. Where the classes are not needed,
        as many units as there are parts.

        Args:
            parts: The number of parts.

        Returns:
            True where such a split exists.

        Example:
            >>> one, two = np.array([True, False]), np.array([False, True])
            >>> units = SourceUnits(unit=np.arange(2), malignant=one, benign=two, elsewhere=one & two)
            >>> units.feasible(1), units.feasible(2)
            (True, False)
        """
        if not self.both_needed:
            return len(self) >= parts
        return min(int(self.malignant.sum()), int(self.benign.sum())) >= parts


class StudyGroups:
    """A study table, checked and coded once; every split of it reads this.

    Args:
        table: One row per case, with the columns `COLUMNS`.
        scheme: The label names, as the task of the study declares them.

    Raises:
        UserError: A column is missing or empty, a case is listed twice, a patient is in two datasets, or a
            label is not one of the scheme.

    Example:
        >>> rows = {"case": ["A/1"], "dataset": ["A"], "patient": ["A/1"], "group": ["A/1"]}
        >>> StudyGroups(pd.DataFrame(rows | {"label": ["benign"]})).datasets
        ('A',)
    """

    def __init__(self, table: pd.DataFrame, *, scheme: LabelScheme = LESIONS) -> None:
        require_columns(table, COLUMNS, where="the study table")
        self.text = {name: _text(table, name) for name in COLUMNS}
        self.case = self.text["case"]
        self.row = {name: at for at, name in enumerate(self.case.tolist())}
        if len(self.row) != len(self.case):
            twice = np.flatnonzero(pd.Series(self.case).duplicated())
            raise UserError(
                f"cases are listed twice in the study table: {name_rows(self.case[twice].tolist())}"
            )
        self.scheme = scheme
        label, wrong = _codes_in(self.text["label"], scheme.labels)
        if wrong:
            raise UserError(
                f"labels {name_rows(wrong)} in the study table",
                fix=f"The labels of this study are {', '.join(scheme.names)}: leave other rows out first.",
            )
        self.label = label
        self.dataset_code, datasets = _factorise(self.text["dataset"])
        self.datasets: tuple[str, ...] = tuple(datasets.tolist())
        self.patient_code, self.patients = _factorise(self.text["patient"])
        self.group_code, self.groups = _factorise(self.text["group"])
        self._check_patients()
        self.unit = self._joined()
        self.n_units = int(self.unit.max()) + 1 if len(self.unit) else 0
        self._sources: dict[str, SourceUnits] = {}

    def __len__(self) -> int:
        return len(self.case)

    @property
    def normal(self) -> BoolArray:
        """True for the rows that are tested apart from both classes, such as normal images."""
        return self.label == _NORMAL

    @cached_property
    def spanning(self) -> BoolArray:
        """True for each unit that has cases of two or more datasets."""
        pairs = np.unique(self.unit * max(len(self.datasets), 1) + self.dataset_code)
        return np.bincount(pairs // max(len(self.datasets), 1), minlength=self.n_units) > 1

    def of(self, dataset: str) -> BoolArray:
        """Find the rows of a dataset.

        Args:
            dataset: The name of the dataset.

        Returns:
            True for its rows, one entry per row of the study table.

        Raises:
            UserError: The study has no such dataset.
        """
        if dataset not in self.datasets:
            raise unknown_name("dataset", dataset, self.datasets)
        return self.dataset_code == self.datasets.index(dataset)

    def lesion_units(self, dataset: str) -> SourceUnits:
        """List the units of a dataset that have a lesion image.

        Args:
            dataset: The name of the dataset.

        Returns:
            The units, in the order of their names; computed once per dataset.
        """
        if dataset not in self._sources:
            self._sources[dataset] = self._lesion_units(dataset)
        return self._sources[dataset]

    def normal_units(self, dataset: str) -> IntArray:
        """List the units of a dataset that have no lesion image in it.

        Args:
            dataset: The name of the dataset.

        Returns:
            The numbers of the units, in the order of their names.
        """
        units = self._named(self.of(dataset))
        return units[~np.isin(units, self.lesion_units(dataset).unit)]

    def _lesion_units(self, dataset: str) -> SourceUnits:
        lesions = self.of(dataset) & ~self.normal
        unit = self._named(lesions)
        malignant = np.zeros(self.n_units, dtype=bool)
        benign = np.zeros(self.n_units, dtype=bool)
        malignant[self.unit[lesions & (self.label == _MALIGNANT)]] = True
        benign[self.unit[lesions & (self.label == _BENIGN)]] = True
        return SourceUnits(
            unit=unit,
            malignant=malignant[unit],
            benign=benign[unit],
            elsewhere=self.spanning[unit],
            both_needed=self.scheme.both_needed,
        )

    def _named(self, rows: BoolArray) -> IntArray:
        """Return the units of these rows in the order of their first patients' names."""
        places = np.flatnonzero(rows)
        units, first = np.unique(self.unit[places[self._by_patient(places)]], return_index=True)
        return units[np.argsort(first, kind="stable")]

    def _by_patient(self, places: IntArray) -> IntArray:
        rank = np.empty(len(self.patients), dtype=np.int64)
        rank[np.argsort(self.patients, kind="stable")] = np.arange(len(self.patients))
        return np.argsort(rank[self.patient_code[places]], kind="stable")

    def _joined(self) -> IntArray:
        patients, groups = len(self.patients), len(self.groups)
        edges = coo_array(
            (np.ones(len(self), dtype=np.int8), (self.patient_code, patients + self.group_code)),
            shape=(patients + groups, patients + groups),
        )
        _, component = connected_components(edges, directed=False)
        return _factorise(component[self.patient_code].astype(np.int64))[0]

    def _check_patients(self) -> None:
        """Refuse rows without a patient, and patients in two datasets (US-02)."""
        for column in ("patient", "group", "dataset"):
            values = self.text[column]
            empty = np.array([not value.strip() for value in values.tolist()], dtype=bool)
            if column == "patient":
                empty |= values == np.array([f"{d}/" for d in self.text["dataset"].tolist()], dtype=object)
            if empty.any():
                raise UserError(
                    f"{int(empty.sum())} cases have no {column}: {name_rows(self.case[empty].tolist())}",
                    where="the study table",
                    fix=f"Fill in the {column} of every case: without it, one patient's cases could be used both for "
                    "training and for the test.",
                )
        pairs = np.unique(self.patient_code * max(len(self.datasets), 1) + self.dataset_code)
        in_two = np.bincount(pairs // max(len(self.datasets), 1), minlength=len(self.patients)) > 1
        if in_two.any():
            raise UserError(
                f"patients are in two datasets: {name_rows(self.patients[in_two].tolist())}",
                where="the study table",
                fix="Name patients 'DATASET/patient_id'; one person in two datasets is a group.",
            )


def _text(table: pd.DataFrame, name: str) -> npt.NDArray[np.object_]:
    values = table[name]
    missing = values.isna().to_numpy(dtype=bool)
    out = np.asarray(values.astype(object), dtype=object)
    if missing.any():
        out = np.where(missing, "", out)
    return np.array([str(value) for value in out.tolist()], dtype=object)


def _factorise(values: npt.NDArray[np.generic]) -> tuple[IntArray, npt.NDArray[np.object_]]:
    codes, levels = pd.factorize(values)
    return np.asarray(codes, dtype=np.int64), np.asarray(levels, dtype=object)


def _codes_in(values: npt.NDArray[np.object_], known: tuple[str, ...]) -> tuple[IntArray, list[str]]:
    codes, levels = _factorise(values)
    place = np.array([known.index(v) if v in known else -1 for v in levels.tolist()], dtype=np.int64)
    wrong = sorted({f"'{v}'" for v in levels.tolist() if v not in known})
    return (place[codes] if len(levels) else codes), wrong
