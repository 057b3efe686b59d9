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


@dataclass(frozen=True, kw_only=True)
class SlideOptions:
    """What is asked of the whole slides of a cohort.

    Attributes:
        look: Whether slides and annotations are opened and audited, and what is known of them noted in columns.
        folder: The folder of slides, where it is not that of the table.
        annotations: The folder of annotations, where they do not lie with the slides.
        trained_on: The centres whose slides trained the model, separated by commas: the column `domain` follows.
        stage_words: What words in the table's column of stages mean, such as {"pos": "macro"}.
    """

    look: bool = False
    folder: str | Path | None = None
    annotations: str | Path | None = None
    trained_on: str | None = None
    stage_words: Mapping[str, str] | None = None

    def of_reader(self) -> dict[str, Any]:
        """Return what a reader is given: only what was asked for.

        Returns:
            Options by name.
        """
        named = {
            "folder": self.folder,
            "annotations": self.annotations,
            "trained_on": self.trained_on,
            "stage_words": dict(self.stage_words) if self.stage_words else None,
        }
        return {name: value for name, value in named.items() if value is not None}


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
    slides: SlideOptions | None = None,
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
        slides: What is asked of whole slides; None for nothing.
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
    if ids is not None:
        options["ids"] = ids
    if takes(reader, "table"):
        options["table"] = table
    else:
        written = {"encoding": table.encoding, "delimiter": table.delimiter}
        options |= {name: value for name, value in written.items() if value is not None}
        if table.decimal != ".":
            options["decimal"] = table.decimal
    options |= slides.of_reader() if slides is not None else {}
    if volumes:
        options["volumes"] = True
    if progress is not None and takes(reader, "progress"):
        options["progress"] = progress
    made = cohorts.read_cohort(reader, Path(source), **options)
    seen: tuple[Finding, ...] = ()
    if slides is not None and slides.look:
        from elsewhere.cohort.slides import audit_slides

        looked = audit_slides(made, progress=progress)
        made, seen = looked.cohort, looked.findings
    findings = (*seen, *cohorts.audit(made))
    if seen:
        order = {"error": 0, "warning": 1, "info": 2}
        findings = tuple(sorted(findings, key=lambda finding: order[finding.severity]))
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
