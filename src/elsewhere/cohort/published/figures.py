"""Table 1 of the MAMA-MIA challenge paper, compared with the clinical table.

The paper prints its bins in words. Where a word leaves a value out (age 70 is neither in 60-69 nor >70), the
reading under which the numbers agree is used, and the bin's name shows it. Years, and all of the test
centres, are not in the published files and cannot be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd

from elsewhere.cohort.table import Cohort

SOURCE = "MAMA-MIA challenge paper, table 1"
COLLECTIONS = ("NACT", "ISPY1", "ISPY2", "DUKE")
_PATIENTS = {"NACT": 64, "ISPY1": 171, "ISPY2": 980, "DUKE": 291}
_SUM = "sum"
Figures = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class FigureRow:
    """One line of the printed table, and how its figures are counted in a cohort.

    Args:
        what: What the line is about, such as 'age'.
        bins: The names of its figures, such as '<40' and '40-49'.
        printed: The printed figures, by collection; 'sum' is the printed total.
        count: Counts the same figures in the rows of one collection.
        column: The column of the cohort that the figures come from.
    """

    what: str
    bins: tuple[str, ...]
    printed: Mapping[str, Figures]
    count: Callable[[pd.DataFrame], Figures]
    column: str


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """The printed and the counted figures of one line.

    Only collections that are complete in the cohort are compared.

    Args:
        what: What the line is about.
        bins: The names of its figures.
        printed: The printed figures, by collection.
        counted: The figures counted in the cohort, by collection.
    """

    what: str
    bins: tuple[str, ...]
    printed: dict[str, Figures]
    counted: dict[str, Figures]

    @property
    def differing(self) -> tuple[str, ...]:
        """The collections whose counted figures differ from the printed ones."""
        return tuple(name for name in self.counted if self.counted[name] != self.printed[name])

    @property
    def agrees(self) -> bool:
        """Whether all compared collections agree."""
        return not self.differing

    def told(self) -> str:
        """Write the line in words: the figures of every collection, and what is printed where it differs.

        Returns:
            One sentence for the audit.
        """
        parts = []
        for name, figures in self.counted.items():
            shown = "/".join(map(str, figures))
            if figures != self.printed[name]:
                shown += f" (printed {'/'.join(map(str, self.printed[name]))})"
            parts.append(f"{name} {shown}")
        verdict = "as printed" if self.agrees else f"not as printed for {', '.join(self.differing)}"
        return f"{self.what} ({'/'.join(self.bins)}): {', '.join(parts)}: {verdict} in {SOURCE}"


def compare_figures(cohort: Cohort) -> tuple[ComparedRow, ...]:
    """Compare the cohort with every printed line of table 1 of the MAMA-MIA challenge paper.

    Args:
        cohort: The cohort.

    Returns:
        One row per line whose column the cohort has; none for a synthetic set, for another reader, or where
        no collection is complete.
    """
    if cohort.reader != "mama-mia" or cohort.synthetic:
        return ()
    cases = cohort.cases
    parts = {name: cases[cases["dataset"] == name] for name in COLLECTIONS}
    whole = {name: rows for name, rows in parts.items() if len(rows) == _PATIENTS[name]}
    if len(whole) == len(COLLECTIONS) and len(cases) == sum(_PATIENTS.values()):
        whole[_SUM] = cases
    if not whole:
        return ()
    return tuple(
        ComparedRow(
            what=row.what,
            bins=row.bins,
            printed={name: row.printed[name] for name in whole if name in row.printed},
            counted={name: row.count(rows) for name, rows in whole.items() if name in row.printed},
        )
        for row in TABLE_1
        if row.column in cases.columns
    )


def _levels(column: str, *levels: object, missing: bool = False) -> Callable[[pd.DataFrame], Figures]:
    def count(rows: pd.DataFrame) -> Figures:
        values = rows[column]
        if isinstance(levels[0], str):
            values = values.astype("str").str.casefold().where(values.notna())
        found = [int(values.isin(level if isinstance(level, tuple) else (level,)).sum()) for level in levels]
        return (*found, *([int(values.isna().sum())] if missing else []))

    return count


def _bins(column: str, *edges: float, missing: bool = False) -> Callable[[pd.DataFrame], Figures]:
    """Count the values in half-open bins between the edges."""

    def count(rows: pd.DataFrame) -> Figures:
        values = pd.to_numeric(rows[column], errors="coerce")
        found = [int(((values >= low) & (values < high)).sum()) for low, high in pairwise(edges)]
        return (*found, *([int(values.isna().sum())] if missing else []))

    return count


def _flags(column: str) -> Callable[[pd.DataFrame], Figures]:
    """Count yes and no in a column of 1 and 0."""

    def count(rows: pd.DataFrame) -> Figures:
        values = pd.to_numeric(rows[column], errors="coerce")
        return int((values == 1).sum()), int((values == 0).sum())

    return count


def _size(what: str) -> Callable[[pd.DataFrame], Figures]:
    """Sizes of images in voxels; the paper truncates means and deviations to whole numbers."""

    def count(rows: pd.DataFrame) -> Figures:
        columns = (pd.to_numeric(rows[name]) for name in ("image_columns", "image_rows", "num_slices"))
        return tuple(int(getattr(column, what)()) for column in columns)

    return count


def _row(
    what: str,
    column: str,
    bins: tuple[str, ...],
    count: Callable[[pd.DataFrame], Figures],
    *printed: Figures,
) -> FigureRow:
    return FigureRow(
        what=what,
        bins=bins,
        column=column,
        count=count,
        printed=dict(zip((*COLLECTIONS, _SUM), printed, strict=True)),
    )


_INF = math.inf
TABLE_1: tuple[FigureRow, ...] = (
    _row("patients", "patient_id", ("subjects",), lambda rows: (len(rows),), (64,), (171,), (980,), (291,), (1506,)),
    _row(
        "pCR", "pcr", ("yes", "no", "unknown"), _levels("pcr", 1, 0, missing=True),
        (11, 53, 0), (49, 118, 4), (316, 664, 0), (64, 216, 11), (440, 1051, 15),
    ),
    _row(
        "tumour subtype", "subtype", ("luminal", "triple negative", "HER2 enriched", "HER2 pure", "unknown"),
        _levels(
            "subtype", ("luminal", "luminal_a", "luminal_b"), "triple_negative", "her2_enriched", "her2_pure",
            missing=True,
        ),
        (21, 11, 8, 6, 18), (67, 45, 25, 29, 5), (536, 358, 86, 0, 0), (123, 85, 50, 30, 3), (747, 499, 169, 65, 26),
    ),
    _row(
        "age", "age", ("<40", "40-49", "50-59", "60-69", ">=70", "unknown"),
        _bins("age", 0, 40, 50, 60, 70, _INF, missing=True),
        (13, 25, 18, 6, 2, 0), (35, 62, 56, 18, 0, 0), (208, 300, 317, 134, 18, 3), (61, 104, 74, 41, 11, 0),
        (317, 491, 465, 199, 31, 3),
    ),
    _row(
        "menopausal status", "menopausal_status", ("pre", "post", "unknown"),
        _levels("menopausal_status", "pre", "post", missing=True),
        (0, 0, 64), (0, 0, 171), (512, 296, 172), (166, 124, 1), (678, 420, 408),
    ),
    _row(
        "plane", "view", ("axial", "sagittal"), _levels("view", "axial", "sagittal"),
        (0, 64), (0, 171), (980, 0), (291, 0), (1271, 235),
    ),
    _row(
        "field strength", "field_strength", ("1.5 T", "3 T"), _levels("field_strength", 1.5, 3.0),
        (64, 0), (171, 0), (715, 265), (136, 155), (1086, 420),
    ),
    _row(
        "fat suppressed", "fat_suppressed", ("yes", "no"), _flags("fat_suppressed"),
        (64, 0), (170, 1), (976, 4), (290, 1), (1500, 6),
    ),
    _row(
        "vendor", "vendor", ("Siemens", "GE", "Philips"), _levels("vendor", "siemens", "ge", "philips"),
        (0, 64, 0), (44, 115, 12), (252, 611, 117), (115, 176, 0), (411, 966, 129),
    ),
    _row(
        "slice thickness in mm", "slice_thickness", ("<1", "1-1.49", "1.5-1.99", "2-2.49", ">=2.5"),
        _bins("slice_thickness", 0, 1, 1.5, 2, 2.5, _INF),
        (0, 0, 0, 64, 0), (0, 0, 5, 83, 83), (11, 163, 8, 695, 103), (0, 283, 4, 3, 1), (11, 446, 17, 845, 187),
    ),
    _row(
        "pixel spacing in mm", "spacing_row_mm", ("<0.5", "0.5-0.99", "1-1.49"),
        _bins("spacing_row_mm", 0, 0.5, 1, 1.5),
        (2, 62, 0), (15, 150, 6), (2, 939, 39), (0, 274, 17), (19, 1425, 62),
    ),
    _row(
        "echo time in ms", "echo_time", ("1-1.99", "2-2.99", ">=3"), _bins("echo_time", 1, 2, 3, _INF),
        (0, 0, 64), (1, 1, 169), (244, 338, 398), (115, 176, 0), (360, 515, 631),
    ),
    _row(
        "repetition time in ms", "repetition_time", ("3-3.99", "4-4.99", "5-5.99", ">=6"),
        _bins("repetition_time", 3, 4, 5, 6, _INF),
        (0, 0, 0, 64), (0, 0, 1, 170), (1, 226, 218, 535), (32, 116, 116, 27), (33, 342, 335, 796),
    ),
    _row(
        "median image size", "num_slices", ("x", "y", "z"), _size("median"),
        (256, 256, 60), (256, 256, 60), (512, 512, 80), (512, 512, 170), (512, 512, 80),
    ),
    _row(
        "mean image size, cut to whole voxels", "num_slices", ("x", "y", "z"), _size("mean"),
        (264, 264, 59), (278, 278, 63), (481, 481, 105), (479, 479, 169), (449, 449, 111),
    ),
    _row(
        "deviation of the image size, cut to whole voxels", "num_slices", ("x", "y", "z"), _size("std"),
        (44, 44, 2), (72, 72, 28), (69, 69, 41), (49, 49, 22), (99, 99, 48),
    ),
)  # fmt: skip
