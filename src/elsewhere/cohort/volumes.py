"""Audits the tomosynthesis volumes of a cohort: the mistakes with DICOM files that somebody has published with.

Each volume's header and some of its slices are read (`inputs/tomosynthesis/audit.py`); what was found is counted over
the cohort, with the rows, and the same pixels under two patients are found by comparing all volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from elsewhere.cohort.audit import Finding, Severity
from elsewhere.cohort.table import Cohort
from elsewhere.errors import name_rows
from elsewhere.inputs.source import LESIONS
from elsewhere.inputs.tomosynthesis.audit import KINDS, VolumeAudit, audit_volume
from elsewhere.inputs.tomosynthesis.described import SUFFIX
from elsewhere.inputs.tomosynthesis.header import load_pydicom
from elsewhere.inputs.tomosynthesis.pictures import SUFFIXES
from elsewhere.inputs.tomosynthesis.source import side_by_name, truth_of

Progress = Callable[[str, int, int], None]
SEVERITY: Mapping[str, Severity] = {
    "volume-unreadable": "error",
    "box-beyond-volume": "error",
    "box-on-background": "warning",
    "frames-unlike-table": "warning",
    "side-unknown": "warning",
    "bits-beyond-stored": "warning",
    "window-missing": "warning",
    "window-implausible": "warning",
    "few-slices": "warning",
    "lossy": "warning",
}
"""How serious a finding is; the others are worth knowing."""
COLUMNS = (
    "rows", "columns", "slices", "encoding", "bits_stored", "bits_used", "window_low", "window_high", "window_from",
    "side_by_tag", "side_by_pixels", "turned", "manufacturer",
)  # fmt: skip
"""What the audit knows of each volume."""


@dataclass(frozen=True, kw_only=True)
class VolumesAudit:
    """What was found in the volumes of a cohort.

    Args:
        findings: One finding per kind of fault, the serious ones first.
        columns: `COLUMNS` by case, in the order of the cohort's table; empty cells where a case has no volume or its
            file cannot be read.
    """

    findings: tuple[Finding, ...]
    columns: pd.DataFrame


def audit_volumes(cohort: Cohort, *, progress: Progress | None = None) -> VolumesAudit:
    """Read the header and some slices of every volume that a cohort names in `image`, and list what is wrong (DBT-01a).

    Args:
        cohort: The cohort; single pictures of slices and described volumes are not audited.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The findings, and what is known of each volume.

    Raises:
        UserError: The extra 'volumes' is not installed.
    """
    lesions: dict[str, list[dict[str, Any]]] = {}
    if cohort.lesions is not None:
        for lesion in cohort.lesions.to_dict("records"):
            lesions.setdefault(str(lesion["case_id"]), []).append({str(k): v for k, v in lesion.items()})
    rows = [{str(name): value for name, value in row.items()} for row in cohort.cases.to_dict("records")]
    numbers = [number for number, row in enumerate(rows) if _is_volume(row.get("image"))]
    if numbers:
        load_pydicom()
    audits: dict[int, VolumeAudit] = {}
    for done, number in enumerate(numbers, start=1):
        row = rows[number]
        own = lesions.get(str(row["case_id"]), [])
        audits[number] = audit_volume(
            cohort.file(str(row["image"])),
            side_by_name=side_by_name(row),
            truth=truth_of(row | {LESIONS: own}),
            table_slices=_table_slices(own),
        )
        if progress and (done % 20 == 0 or done == len(numbers)):
            progress("looking at volumes", done, len(numbers))
    findings = [*_faults(rows, audits), *_same_pixels(rows, audits)]
    if numbers:
        findings.append(_summary(audits, len(rows)))
    order = {"error": 0, "warning": 1, "info": 2}
    return VolumesAudit(
        findings=tuple(sorted(findings, key=lambda finding: order[finding.severity])),
        columns=pd.DataFrame(
            [_cells(audits.get(number)) for number in range(len(rows))], columns=list(COLUMNS)
        ),
    )


def _is_volume(image: Any) -> bool:
    return isinstance(image, str) and bool(image.strip()) and not image.lower().endswith((*SUFFIXES, SUFFIX))


def _table_slices(lesions: list[dict[str, Any]]) -> int | None:
    """The number of slices that the first lesion of a volume states."""
    cells = [row.get("volume_slices") for row in lesions]
    counts = [int(value) for value in cells if isinstance(value, int | float) and value == value]
    return counts[0] if counts else None


def _faults(rows: list[dict[str, Any]], audits: dict[int, VolumeAudit]) -> list[Finding]:
    findings = []
    for kind, words in KINDS.items():
        affected = [case for case, audit in audits.items() if kind in audit.faults]
        if not affected:
            continue
        row_numbers = [case + 1 for case in affected]
        first = audits[affected[0]].faults[kind]
        findings.append(
            Finding(
                kind=kind,
                severity=SEVERITY.get(kind, "info"),
                message=f"{len(affected)} of {len(audits)} volumes {words} (rows {name_rows(row_numbers)}; the first: {first})",
                rows=tuple(row_numbers),
                ids=tuple(str(rows[case]["case_id"]) for case in affected),
            )
        )
    return findings


def _same_pixels(rows: list[dict[str, Any]], audits: dict[int, VolumeAudit]) -> list[Finding]:
    """Volumes whose middle slices hold the same values: of two patients an error, of one patient a warning."""
    by_pixels: dict[str, list[int]] = {}
    for number, audit in audits.items():
        if audit.facts is not None:
            by_pixels.setdefault(audit.facts.identity, []).append(number)
    groups = [group for group in by_pixels.values() if len(group) > 1]
    strangers: list[list[int]] = []
    own: list[list[int]] = []
    for group in groups:
        patients = {(rows[number].get("dataset"), rows[number]["patient_id"]) for number in group}
        (strangers if len(patients) > 1 else own).append(group)
    findings = []
    for kind, severity, chosen, whose in (
        ("same-pixels-two-patients", "error", strangers, "of different patients"),
        ("same-pixels", "warning", own, "of one patient"),
    ):
        if chosen:
            row_numbers = [number + 1 for group in chosen for number in group]
            findings.append(
                Finding(
                    kind=kind,
                    severity="error" if severity == "error" else "warning",
                    message=f"{len(row_numbers)} volumes {whose} have the same pixels as another one "
                    f"(rows {name_rows(row_numbers)})",
                    rows=tuple(row_numbers),
                    ids=tuple(str(rows[number]["case_id"]) for group in chosen for number in group),
                )
            )
    return findings


def _summary(audits: dict[int, VolumeAudit], cases: int) -> Finding:
    readable = [audit for audit in audits.values() if audit.facts is not None]
    encodings = pd.Series([audit.encoding for audit in readable], dtype="str").value_counts()
    depths = sorted(audit.facts.shape[2] for audit in readable if audit.facts is not None)
    listed = ", ".join(f"{count} {name}" for name, count in encodings.items())
    span = f"; {depths[0]} to {depths[-1]} slices" if depths else ""
    return Finding(
        kind="volumes",
        severity="info",
        message=f"{len(audits)} of {cases} cases have a volume, {len(readable)} can be read"
        + (f" ({listed}{span})" if readable else ""),
    )


def _cells(audit: VolumeAudit | None) -> dict[str, Any]:
    facts = audit.facts if audit is not None else None
    if audit is None or facts is None:
        return dict.fromkeys(COLUMNS)
    return {
        "rows": facts.shape[0],
        "columns": facts.shape[1],
        "slices": facts.shape[2],
        "encoding": audit.encoding,
        "bits_stored": audit.bits_stored,
        "bits_used": audit.bits_used,
        "window_low": facts.window[0],
        "window_high": facts.window[1],
        "window_from": facts.window_from,
        "side_by_tag": audit.side_by_tag,
        "side_by_pixels": facts.side_by_pixels,
        "turned": int(facts.turned),
        "manufacturer": audit.manufacturer,
    }
