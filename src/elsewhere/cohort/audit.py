"""The audit: what a reader of the numbers must know about the table behind them (US-03, US-04, US-11, DBT-02).

An audit corrects nothing. Each finding says what was seen and where; `error` is for what makes a number wrong
(a leak), `warning` for what may, `info` for what is worth knowing.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from elsewhere.cohort.describe import TARGET_COLUMNS
from elsewhere.cohort.grades import file_name_ids
from elsewhere.cohort.groups import rows_that_vary
from elsewhere.cohort.published import published
from elsewhere.cohort.published.figures import compare_figures
from elsewhere.cohort.published.lymph_nodes import compare_lymph_nodes
from elsewhere.cohort.rows import rows_that_are_no_case
from elsewhere.cohort.table import FILE_COLUMNS, LEVELS, Cohort
from elsewhere.errors import name_rows

Severity = Literal["info", "warning", "error"]
MOSTLY_EMPTY = 0.5
MOST_SPLITS = 12
"""A column 'split' with more parts than this is not written out in the audit."""
_FILE_ENDINGS = ("_path", "_file")
_NOT_TELLING = ("microns_per_pixel", "mpp", "annotated_axis_mm")
"""Numbers that many slides share, of one scanner or without an outline: they make no two rows the same case."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One finding of the audit.

    Args:
        kind: What was found, in kebab case (such as `leak` or `ids-in-two-datasets`), for programs.
        severity: `error` for what makes a number wrong, `warning` for what may, `info` for what is worth
            knowing.
        message: A sentence for the reader of the audit.
        dataset: The dataset that the finding is about; None: the cohort as a whole.
        rows: Rows of the cohort's table, counted from 1; of the source table where the kind is
            `row-is-no-case` with severity `warning`.
        ids: Ids of the patients or cases, or names of the sites, that the finding is about.

    Example:
        >>> Finding(kind="leak", severity="error", message="2 patients are in two parts", rows=(3, 9)).rows
        (3, 9)
    """

    kind: str
    severity: Severity
    message: str
    dataset: str | None = None
    rows: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the finding for summary.json, without ids, since a report names no patient.

        Returns:
            `kind`, `severity` and `message`; `dataset` and the first 50 `rows` where there are any.

        Example:
            >>> Finding(kind="boxes", severity="info", message="no box", ids=("p1",)).to_dict()
            {'kind': 'boxes', 'severity': 'info', 'message': 'no box'}
        """
        told: dict[str, Any] = {"kind": self.kind, "severity": self.severity, "message": self.message}
        if self.dataset is not None:
            told["dataset"] = self.dataset
        if self.rows:
            told["rows"] = list(self.rows[:50])
        return told


def audit(cohort: Cohort) -> tuple[Finding, ...]:
    """List everything in a cohort that a reader of its numbers must know (US-03, US-04, US-11).

    The audit corrects nothing: each finding says what was seen and where.

    Args:
        cohort: The cohort to examine.

    Returns:
        The findings: errors first, then warnings, then remarks.

    Example:
        >>> table = pd.DataFrame(
        ...     {"case_id": ["a", "b"], "patient_id": ["p", "p"], "split": ["train", "test"]}
        ... )
        >>> audit(Cohort.from_frame(table))[0].message
        '1 patients are in more than one part of the split (rows 1, 2): a leak'
    """
    cases = cohort.cases
    found: list[Finding] = []
    for dataset, rows in cases.groupby("dataset", sort=True):
        found += _ids_against_images(str(dataset), rows, cohort)
        found += _classes(str(dataset), rows, synthetic=cohort.synthetic)
    found += _collections(cohort)
    found += _figures(cohort)
    found += _remarks(cohort)
    found += _pictures(cohort)
    found += _contradictions(cases)
    found += _shared_ids(cases)
    found += _no_case(cohort)
    found += _site_spellings(cases)
    found += _empty_attributes(cases)
    found += _leaks(cases)
    found += _duplicates(cases)
    found += [
        Finding(kind="reader", severity="warning", message=word)
        for word in cohort.warnings
        if "is no case" not in word
        and not any(grade.grade == "C" and word.startswith(grade.why) for grade in cohort.id_grades.values())
    ]
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def _ids_against_images(dataset: str, rows: pd.DataFrame, cohort: Cohort) -> list[Finding]:
    found: list[Finding] = []
    patients, cases = int(rows["patient_id"].nunique()), len(rows)
    grade = cohort.id_grades.get(dataset)
    splits = list(rows["split"].dropna().unique()) if "split" in rows.columns else []
    known = None if cohort.synthetic else published(dataset, cohort.reader, splits=splits)
    made = grade is not None and grade.grade == "C"
    told = f"{patients} patient ids for {cases} cases" + ("; synthetic" if cohort.synthetic else "")
    if known is not None and known.patients is not None:
        told += f"; published: {known.patients} patients"
        if known.cases is not None:
            told += f", {known.cases} cases"
        told += f" ({known.source})"
        if patients > known.patients:
            found.append(
                Finding(
                    kind="more-ids-than-patients",
                    severity="warning",
                    dataset=dataset,
                    message=f"{told}: the ids are finer than patients",
                )
            )
        elif patients != known.patients or (known.cases is not None and cases != known.cases):
            found.append(
                Finding(kind="not-the-published-count", severity="info", dataset=dataset, message=told)
            )
        else:
            found.append(Finding(kind="counts", severity="info", dataset=dataset, message=told))
    else:
        kind = "counts"
        if known is not None:
            told += f"; {known.name} publishes no patient ids, {known.cases} images ({known.source})"
            kind = "counts" if known.cases == cases else "not-the-published-count"
        found.append(Finding(kind=kind, severity="info", dataset=dataset, message=told))
    if made:
        why = grade.why if grade else ""
        found.append(
            Finding(
                kind="no-patient-ids", severity="warning", dataset=dataset, message=f"ids of grade C: {why}"
            )
        )
        return found
    ids = rows["patient_id"].drop_duplicates()
    named = file_name_ids(ids).to_numpy(dtype=bool)
    if named.any():
        which = "the patient ids" if named.all() else f"{int(named.sum())} of {patients} patient ids"
        found.append(
            Finding(
                kind="ids-are-file-names",
                severity="warning",
                dataset=dataset,
                message=f"{which} are file names",
                ids=tuple(ids[named].head(5).astype("str")),
            )
        )
    elif patients == cases and cases > 1 and not (known is not None and known.one_case_each):
        found.append(
            Finding(
                kind="one-id-a-case",
                severity="warning",
                dataset=dataset,
                message=f"every one of the {cases} cases has a patient id of its own: if patients "
                "repeat, intervals are too narrow",
            )
        )
    return found


def _lesion_words(cases: pd.DataFrame) -> bool:
    """Whether the labels are the words benign, malignant and normal (US-01)."""
    if "label" not in cases.columns or pd.api.types.is_numeric_dtype(cases["label"].dtype):
        return False
    words = set(cases["label"].dropna().unique())
    return bool(words) and words <= {"benign", "malignant", "normal"}


def _classes(dataset: str, rows: pd.DataFrame, *, synthetic: bool) -> list[Finding]:
    """Rows and patients per class (US-03), compared with the published numbers of a known set (US-04).

    Lesion against normal compares different patients only where no patient has both (US-18).
    """
    if not _lesion_words(rows):
        return []
    told = ", ".join(
        f"{label} {len(part)} of {part['patient_id'].nunique()} patients"
        for label, part in rows.groupby("label", sort=True)
    )
    normals = int((rows["label"] == "normal").sum())
    lesions = int(rows["label"].notna().sum()) - normals
    known = None if synthetic else published(dataset)
    kind: str = "classes"
    severity: Severity = "info"
    message = f"{dataset}: {told}; {lesions} lesion and {normals} normal images"
    if known is not None and known.lesions is not None:
        if (lesions, normals) == (known.lesions, known.normals):
            message += ", as published"
        else:
            kind, severity = "not-the-published-count", "warning"
            message += f"; published: {known.lesions} and {known.normals} ({known.source})"
        message += f"; {known.note}" if known.note else ""
    found = [Finding(kind=kind, severity=severity, dataset=dataset, message=message)]
    lesion = rows["label"] != "normal"
    shared = set(rows.loc[lesion, "patient_id"]) & set(rows.loc[~lesion, "patient_id"])
    if shared:
        found.append(
            Finding(
                kind="lesion-and-normal",
                severity="info",
                dataset=dataset,
                message=f"{len(shared)} patients of {dataset} have lesion and normal images: lesion against "
                "normal is not a comparison of different patients",
                ids=tuple(sorted(str(name) for name in shared)),
            )
        )
    return found


def _pictures(cohort: Cohort) -> list[Finding]:
    """Boxes and masks in one line, and the lesions that a crop will miss (US-13)."""
    cases = cohort.cases
    if "box_x0" not in cases.columns or not _lesion_words(cases):
        return []
    lesion = (cases["label"] != "normal").to_numpy(dtype=bool)
    without = lesion & cases["box_x0"].isna().to_numpy(dtype=bool)
    told = f"{int(lesion.sum() - without.sum())} of {int(lesion.sum())} lesion images have a box"
    shown = {
        "masks": "masks",
        "several_masks": "images with several masks",
        "masks_with_several_parts": "masks of several parts",
        "empty_masks": "empty masks",
        "other_masks": "masks of other lesions, not in the box",
    }
    counted = [f"{cohort.counts[key]} {word}" for key, word in shown.items() if cohort.counts.get(key)]
    rows = tuple((np.flatnonzero(without) + 1).tolist())
    return [
        Finding(
            kind="boxes",
            severity="warning" if rows else "info",
            message="; ".join([told, *counted])
            + (f". Without a box (rows {name_rows(rows)}), a crop is the whole image" if rows else ""),
            rows=rows,
        )
    ]


def _collections(cohort: Cohort) -> list[Finding]:
    """MAMA-MIA as a whole, in addition to its four collections."""
    if cohort.reader != "mama-mia" or cohort.synthetic:
        return []
    whole = published("MAMA-MIA")
    patients = cohort.counts.get("patients", 0)
    if whole is None or patients == whole.patients:
        return []
    return [
        Finding(
            kind="not-the-published-count",
            severity="info",
            message=f"{patients} patients in all; published: {whole.patients} ({whole.source})",
        )
    ]


def _figures(cohort: Cohort) -> list[Finding]:
    """What a paper prints of the set, line by line, compared with the table."""
    return [
        Finding(
            kind="published-figures" if row.agrees else "not-the-published-figures",
            severity="info",
            message=row.told(),
        )
        for row in compare_figures(cohort)
    ] + [
        Finding(
            kind="published-figures" if compared.agrees else "not-the-published-figures",
            severity="info",
            message=compared.sentence(),
        )
        for compared in compare_lymph_nodes(cohort)
    ]


def _remarks(cohort: Cohort) -> list[Finding]:
    """What the reader explains of the set, and how the domain of the cases was derived (LN-01)."""
    found = []
    rule, cases = cohort.counts.get("domain_rule"), cohort.cases
    if isinstance(rule, str) and "domain" in cases.columns:
        counts = cases["domain"].value_counts()
        parts = [f"{n} {name}" for name, n in counts.sort_index().items()]
        unknown = int(cases["domain"].isna().sum())
        parts += [f"{unknown} not known"] if unknown else []
        found.append(
            Finding(kind="domain", severity="info", message=f"domain: {', '.join(parts)}. Rule: {rule}")
        )
    remarks = cohort.counts.get("remarks")
    if isinstance(remarks, list):
        found += [Finding(kind="remark", severity="info", message=str(one)) for one in remarks]
    return found


def _contradictions(cases: pd.DataFrame) -> list[Finding]:
    """Patients with two labels: they cannot be divided, so a warning (US-03). Stages of slides may differ."""
    found = []
    for column in ("label", "pcr", "patient_stage"):
        if column not in cases.columns:
            continue
        compared, what = cases, f"more than one {column}"
        if column == "label" and _lesion_words(cases):
            compared = cases.assign(label=cases["label"].where(cases["label"] != "normal"))
            what = "both benign and malignant labels"
        mask = rows_that_vary(compared, ("dataset", "patient_id"), column)
        if mask.any():
            rows, ids = _rows_and_ids(cases, mask)
            found.append(
                Finding(
                    kind="contradictory-labels",
                    severity="warning",
                    message=f"{len(ids)} patients carry {what}: each stays one unit (rows {name_rows(rows)})",
                    rows=rows,
                    ids=ids,
                )
            )
    return found


def _rows_and_ids(cases: pd.DataFrame, mask: np.ndarray) -> tuple[tuple[int, ...], tuple[str, ...]]:
    rows = tuple((np.flatnonzero(mask) + 1).tolist())
    return rows, tuple(pa.array(cases["patient_id"][mask].unique()).to_pylist())


def _shared_ids(cases: pd.DataFrame) -> list[Finding]:
    found = []
    for level, keys, kind in (
        ("dataset", ("patient_id",), "ids-in-two-datasets"),
        ("site", ("dataset", "patient_id"), "ids-at-two-sites"),
    ):
        if cases[level].nunique() < 2:
            continue
        mask = rows_that_vary(cases, keys, level)
        if mask.any():
            rows, ids = _rows_and_ids(cases, mask)
            found.append(
                Finding(
                    kind=kind,
                    severity="warning",
                    message=f"{len(ids)} patient ids occur in more than one {level}: one patient, or two "
                    "with one number?",
                    rows=rows,
                    ids=ids,
                )
            )
    return found


def _no_case(cohort: Cohort) -> list[Finding]:
    found = []
    for entry in cohort.counts.get("left_out", []):
        found.append(
            Finding(
                kind="row-is-no-case",
                severity="warning",
                message=f"row {entry['row']} of the source table is no case and was left out: {entry['why']}",
                rows=(int(entry["row"]),),
            )
        )
    for at, why in rows_that_are_no_case(cohort.cases, "case_id").items():
        found.append(
            Finding(
                kind="row-is-no-case",
                severity="error",
                message=f"row {at + 1} seems to be no case ({why}): remove it",
                rows=(at + 1,),
                ids=(str(cohort.cases["case_id"].iloc[at]),),
            )
        )
    return found


def _fold(name: str) -> str:
    """A site's name without case, blanks, punctuation and words such as 'site' or 'hospital'."""
    words = re.findall(r"[^\W_]+", name.casefold())
    kept = [word for word in words if word not in {"site", "center", "centre", "hospital", "the", "of"}]
    return "".join(kept or words)


def _nearly(a: str, b: str) -> bool:
    """Whether two long names differ by a typing error; 'hospital1' and 'hospital2' are two places."""
    if min(len(a), len(b)) < 6 or re.sub(r"\d", "", a) == re.sub(r"\d", "", b):
        return False
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() >= 0.88


def _site_spellings(cases: pd.DataFrame) -> list[Finding]:
    counts = cases["site"].dropna().value_counts()
    names = sorted(str(name) for name in counts.index)
    folded = {name: _fold(name) for name in names}
    pairs = []
    for a, b in combinations(names[:400], 2):
        if folded[a] == folded[b] or _nearly(folded[a], folded[b]):
            pairs.append((a, b))
    found = []
    if pairs:
        shown = "; ".join(f"{a!r} ({counts[a]}) and {b!r} ({counts[b]})" for a, b in pairs[:4])
        more = f" and {len(pairs) - 4} more pairs" if len(pairs) > 4 else ""
        found.append(
            Finding(
                kind="site-spelt-two-ways",
                severity="warning",
                message=f"site names that may be one place: {shown}{more}",
                ids=tuple(name for pair in pairs for name in pair),
            )
        )
    missing = cases["site"].isna().to_numpy(dtype=bool)
    if missing.any() and not missing.all():
        found.append(
            Finding(
                kind="site-missing",
                severity="warning",
                message=f"{int(missing.sum())} of {len(cases)} cases have no site: they are shown as a site "
                "'unknown', and are in no verdict over sites",
                rows=tuple((np.flatnonzero(missing) + 1).tolist()),
            )
        )
    homes = cases.dropna(subset=["site"]).groupby("site")["dataset"].nunique()
    shared = [str(name) for name in homes[homes > 1].index]
    if shared:
        found.append(
            Finding(
                kind="site-in-two-datasets",
                severity="info",
                message=f"{len(shared)} site names occur in more than one dataset: "
                f"{name_rows(shared)}. One place, or one code twice?",
                ids=tuple(shared),
            )
        )
    return found


def _empty_attributes(cases: pd.DataFrame) -> list[Finding]:
    found = []
    for name in cases.columns:
        if name in LEVELS or name in FILE_COLUMNS or name.startswith("box_") or name.endswith(_FILE_ENDINGS):
            continue
        missing = int(cases[name].isna().sum())
        if missing == 0:
            continue
        scored = name in ("age", "menopausal_status", "breast_density", *TARGET_COLUMNS)
        share = missing / len(cases)
        if share > MOSTLY_EMPTY or scored:
            found.append(
                Finding(
                    kind="mostly-empty" if share > MOSTLY_EMPTY else "partly-empty",
                    severity="warning" if scored and share > MOSTLY_EMPTY else "info",
                    message=f"'{name}' is known for {len(cases) - missing} of {len(cases)} cases",
                )
            )
    return found


def _leaks(cases: pd.DataFrame) -> list[Finding]:
    """A patient in two parts of a split is an error, always (US-11, DBT-02)."""
    if "split" not in cases.columns:
        return []
    parts = cases.assign(split=cases["split"].str.strip().str.casefold())
    mask = rows_that_vary(parts, ("dataset", "patient_id"), "split")
    if not mask.any():
        named = [
            f"{name} {len(rows)} cases of {rows['patient_id'].nunique()} patients"
            for name, rows in cases.groupby("split", sort=False)
        ]
        if len(named) < 2 or len(named) > MOST_SPLITS:
            return []
        message = f"split: {', '.join(named)}; no patient is in more than one part"
        return [Finding(kind="split", severity="info", message=message)]
    rows, ids = _rows_and_ids(cases, mask)
    return [
        Finding(
            kind="leak",
            severity="error",
            message=f"{len(ids)} patients are in more than one part of the split (rows {name_rows(rows)}): "
            "a leak",
            rows=rows,
            ids=ids,
        )
    ]


def _duplicates(cases: pd.DataFrame) -> list[Finding]:
    """Rows that agree in all but files and ids of cases, where four or more values are known."""
    compared = [
        name for name in cases.columns if name not in ("case_id", "exam_id", "lesion_id", *FILE_COLUMNS)
    ]
    content = [name for name in compared if name not in ("patient_id", "dataset", "site")]
    told = cases[content].notna().sum(axis=1).to_numpy() >= 4 if content else np.zeros(len(cases), dtype=bool)
    found = []
    same = cases.duplicated(subset=content, keep=False).to_numpy(dtype=bool) & told if content else told
    numbers = [
        name
        for name in content
        if pd.api.types.is_float_dtype(cases[name].dtype) and name not in _NOT_TELLING
    ]
    if numbers:
        same &= cases[numbers].notna().any(axis=1).to_numpy()
        if same.any():
            rows = np.flatnonzero(same) + 1
            found.append(
                Finding(
                    kind="duplicate-rows",
                    severity="info",
                    message=f"{len(rows)} rows agree in every attribute with another row (rows "
                    f"{name_rows(list(rows))})",
                    rows=tuple(int(r) for r in rows),
                )
            )
    for column in FILE_COLUMNS:
        if column in cases.columns:
            twice = cases[column].notna() & cases[column].duplicated(keep=False)
            if twice.any():
                rows = np.flatnonzero(twice.to_numpy(dtype=bool)) + 1
                found.append(
                    Finding(
                        kind="one-file-twice",
                        severity="warning",
                        message=f"{len(rows)} rows name a {column} that another row names too "
                        f"(rows {name_rows(list(rows))})",
                        rows=tuple(int(r) for r in rows),
                    )
                )
    return found
