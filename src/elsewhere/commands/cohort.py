"""`cohort read`, `cohort check` and `cohort describe`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere import cohort as cohorts
from elsewhere.analysis.result.inputs import open_cohort
from elsewhere.cohort import Cohort, Finding
from elsewhere.cohort.describe import describe_lines
from elsewhere.cohort.readers import takes
from elsewhere.commands.output import Report
from elsewhere.tables import TableOptions, check_out
from elsewhere.tables.options import DEFAULT


@dataclass(frozen=True, kw_only=True)
class CohortReport:
    """What is in a cohort, and what the audit found in it.

    Args:
        cohort: The cohort.
        findings: The findings of the audit, the serious ones first.
        description: Counts and distributions; None where they were not asked for.
        path: The folder that was written; None where nothing was written.
    """

    cohort: Cohort
    findings: tuple[Finding, ...]
    description: Any = None
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `hash`, `reader`, `id_grades`, `counts`, `warnings` and `audit`; where they apply,
            also `description` and `path`.
        """
        content: dict[str, Any] = {
            "hash": self.cohort.hash,
            "reader": self.cohort.reader,
            "id_grades": {d: {"grade": g.grade, "why": g.why} for d, g in self.cohort.id_grades.items()},
            "counts": self.cohort.counts,
            "warnings": list(self.cohort.warnings),
            "audit": [finding.to_dict() for finding in self.findings],
        }
        if self.description is not None:
            content["description"] = (
                self.description.to_dict() if hasattr(self.description, "to_dict") else self.description
            )
        if self.path is not None:
            content["path"] = str(self.path)
        return content

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        cases = self.cohort.cases
        patients = self.cohort.counts.get("patients", len(cases))
        yield f"{len(cases)} cases of {patients} patients, hash {self.cohort.hash[:12]}, reader {self.cohort.reader}"
        for dataset, grade in self.cohort.id_grades.items():
            yield f"patient ids of {dataset}: grade {grade.grade} ({grade.why})"
        if self.description is not None:
            yield from describe_lines(self.description)
        several = cases["dataset"].nunique() > 1 if "dataset" in cases.columns else False
        for finding in self.findings:
            whose = f"{finding.dataset}: " if several and finding.dataset else ""
            told = finding.message if finding.message.startswith(whose) else f"{whose}{finding.message}"
            yield f"{finding.severity}: {told}"
        if not self.findings:
            yield "the audit found nothing"
        if self.path is not None:
            yield f"written: {self.path}"


def read(
    reader: str,
    source: str | Path,
    *,
    out: str | Path,
    replace: bool = False,
    column_map: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    ids: str | None = None,
    volumes: bool = False,
    table: TableOptions = DEFAULT,
    progress: Report | None = None,
) -> CohortReport:
    """Read a published set, or any csv, into a cohort folder. `ids="image"` makes each picture a patient.

    Args:
        reader: The name of a reader (`elsewhere readers` lists them).
        source: The published folder or table.
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        column_map: The names of the table's columns by the names that they should have.
        constants: Columns that have one value for every case, such as {"site": "Alder"}.
        ids: 'patient', or 'image' to make each picture a patient; None for the reader's default.
        volumes: Whether the folder is searched for the files of the volumes, by the readers that have this
            option; each volume's header and some of its slices are then audited too.
        table: How text tables are written: encoding, delimiter and decimal mark.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The cohort with the findings of its audit.
    """
    check_out(out, replace=replace, inputs=(source,))
    options: dict[str, Any] = {}
    if column_map:
        options["column_map"] = dict(column_map)
    if constants:
        options["values"] = dict(constants)
    written = {"encoding": table.encoding, "delimiter": table.delimiter, "ids": ids}
    options |= {name: value for name, value in written.items() if value is not None}
    if table.decimal != ".":
        options["decimal"] = table.decimal
    if volumes:
        options["volumes"] = True
    if progress is not None and takes(reader, "progress"):
        options["progress"] = progress
    made = cohorts.read_cohort(reader, Path(source), **options)
    findings = cohorts.audit(made)
    if volumes:
        from elsewhere.cohort.volumes import audit_volumes

        findings = (*audit_volumes(made, progress=progress).findings, *findings)
        findings = tuple(sorted(findings, key=lambda finding: finding.severity != "error"))
    made.save(out, replace=replace, inputs=(source,))
    return CohortReport(cohort=made, findings=findings, path=Path(out))


def check(cohort: str | Path, *, table: TableOptions = DEFAULT) -> CohortReport:
    """Audit the ids of a cohort.

    Args:
        cohort: A cohort folder or a table with one row per case.
        table: How text tables are written: encoding, delimiter and decimal mark.

    Returns:
        The cohort with the findings of its audit.
    """
    made = open_cohort(Path(cohort), table)
    return CohortReport(cohort=made, findings=cohorts.audit(made))


def describe(cohort: str | Path, *, table: TableOptions = DEFAULT) -> CohortReport:
    """Count and describe the cases of a cohort.

    Args:
        cohort: A cohort folder or a table with one row per case.
        table: How text tables are written: encoding, delimiter and decimal mark.

    Returns:
        Counts, distributions and findings.
    """
    made = open_cohort(Path(cohort), table)
    return CohortReport(cohort=made, findings=cohorts.audit(made), description=cohorts.describe(made))
