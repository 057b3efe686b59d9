"""Tables 1 and 2 of the lymph-node study, compared with what the files of CAMELYON16 and CAMELYON17 hold (LN-01).

The study counts 58 macro- and 53 micrometastases among the 111 tumour slides for training of CAMELYON16; the stages of
these slides are published nowhere. What can be measured is the longest axis of the outlines: 44 macro, 63 micro and
3 ITC of the 110 slides whose outlines are public. Both are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from elsewhere.cohort.table import Cohort

SOURCE = "the lymph-node study (Varnava et al., 2025)"
STAGES = ("macro", "micro", "itc", "negative")
TABLE_1: Mapping[str, tuple[int, int, int, int]] = {
    "CAMELYON16 train": (58, 53, 0, 159),
    "CAMELYON16 test": (22, 27, 0, 80),
    "CAMELYON17 outlined": (17, 17, 16, 0),
    "SMH": (4, 18, 6, 30),
}
"""Slides by stage, in the order of STAGES."""
TABLE_2: Mapping[tuple[str, str], tuple[float, str, int, int]] = {
    ("CAMELYON16", "RUMC"): (0.24, "ID", 171, 74),
    ("CAMELYON16", "UMCU"): (0.23, "ID", 99, 55),
    ("CAMELYON17", "CWZ"): (0.24, "ID", 0, 10),
    ("CAMELYON17", "RST"): (0.24, "ID", 0, 10),
    ("CAMELYON17", "UMCU"): (0.23, "ID", 0, 10),
    ("CAMELYON17", "RUMC"): (0.24, "ID", 0, 10),
    ("CAMELYON17", "LPON"): (0.25, "OOD", 0, 10),
    ("SMH", "SMH"): (0.50, "OOD", 0, 58),
}
"""Microns per pixel, domain, and slides for training and for tests, by dataset and centre."""


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """One comparison of the study's tables with the files.

    Attributes:
        what: What is compared.
        counted: What the files hold, in words.
        printed: What the study prints, in words.
        agrees: Whether both are the same.
        note: Why they differ, where it is known.
    """

    what: str
    counted: str
    printed: str
    agrees: bool
    note: str = ""

    def sentence(self) -> str:
        """Write the comparison as one sentence for the audit.

        Returns:
            The sentence.
        """
        verdict = f"as {SOURCE} prints" if self.agrees else f"{SOURCE} prints {self.printed}"
        return f"{self.what}: {self.counted}: {verdict}" + (f"; {self.note}" if self.note else "")


def compare_lymph_nodes(cohort: Cohort) -> tuple[PrintedRow, ...]:
    """Compare a cohort of CAMELYON16 or CAMELYON17 with tables 1 and 2 of the study.

    Args:
        cohort: The cohort; synthetic and incomplete ones are not compared.

    Returns:
        One row per part of table 1 and per centre of table 2 that the cohort holds.
    """
    cases = cohort.cases
    if cohort.synthetic or "stage" not in cases.columns:
        return ()
    rows: list[PrintedRow] = []
    sixteen = cases[cases["dataset"] == "CAMELYON16"]
    if len(sixteen) == 399 and "split" in cases.columns:
        rows += _table_1("CAMELYON16 train", sixteen[sixteen["split"] == "train"])
        rows += _table_1("CAMELYON16 test", sixteen[sixteen["split"] == "test"])
        rows += _table_2("CAMELYON16", sixteen)
    seventeen = cases[cases["dataset"] == "CAMELYON17"]
    if len(seventeen) == 500 and "outlined" in cases.columns:
        outlined = seventeen[seventeen["outlined"] == 1]
        rows += _table_1("CAMELYON17 outlined", outlined)
        rows += _table_2("CAMELYON17", outlined.assign(split="test"))
    return tuple(rows)


def _stages(rows: pd.DataFrame, column: str = "stage") -> tuple[int, ...]:
    return tuple(int((rows[column] == stage).sum()) for stage in STAGES)


def _words(figures: tuple[int, ...]) -> str:
    return "/".join(map(str, figures))


def _table_1(part: str, rows: pd.DataFrame) -> list[PrintedRow]:
    printed, counted = TABLE_1[part], _stages(rows)
    unknown = int(rows["stage"].isna().sum())
    shown = _words(counted) + (f" and {unknown} without a stage" if unknown else "")
    note = ""
    if "annotated_stage" in rows.columns and unknown:
        measured = rows.loc[rows["stage"].isna(), "annotated_stage"]
        known = measured[measured.notna()]
        if len(known):
            axes = _words(tuple(int((known == stage).sum()) for stage in STAGES[:3]))
            note = f"the longest axis of the outlines gives {axes} (macro/micro/itc) of {len(known)} outlined slides"
    return [
        PrintedRow(
            what=f"{part}, {_words_of_stages()}",
            counted=shown,
            printed=_words(printed),
            agrees=counted == printed,
            note=note,
        )
    ]


def _words_of_stages() -> str:
    return "/".join(STAGES)


def _table_2(dataset: str, rows: pd.DataFrame) -> list[PrintedRow]:
    found = []
    for (name, centre), (mpp, domain, train, test) in TABLE_2.items():
        own = rows[rows["site"] == centre]
        if name != dataset or own.empty:
            continue
        split = own["split"].value_counts()
        counts = (int(split.get("train", 0)), int(split.get("test", 0)))
        domains = sorted(own["domain"].dropna().unique()) if "domain" in own.columns else []
        sizes = sorted({f"{value:.3g}" for value in own["microns_per_pixel"].dropna()})
        same = counts == (train, test) and domains == [domain]
        note = ""
        if dataset == "CAMELYON16" and counts != (train, test):
            note = (
                "metadata.csv, corrected, has other hospitals for the training slides than the study counted"
            )
        found.append(
            PrintedRow(
                what=f"{dataset} at {centre}",
                counted=f"{counts[0]} for training, {counts[1]} for tests, {'/'.join(domains) or 'no domain'}, "
                f"{_range(sizes)} microns per pixel",
                printed=f"{train} for training, {test} for tests, {domain}, {mpp:.2f} microns per pixel",
                agrees=same,
                note=note,
            )
        )
    return found


def _range(values: list[str]) -> str:
    if not values:
        return "unknown"
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}"
