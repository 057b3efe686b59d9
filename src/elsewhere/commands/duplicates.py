"""`cohort duplicates`: find pictures that occur in the cohorts twice (US-30)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.analysis.result.inputs import CohortLike, as_cohort
from elsewhere.cohort.duplicates import Duplicates, find_duplicates
from elsewhere.cohort.duplicates.pictures import Progress
from elsewhere.tables import check_out, staged_directory, write_json, write_table
from elsewhere.tables.options import DEFAULT, TableOptions

_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class DuplicatesReport:
    """The near-duplicates that were found, and where they were written.

    Args:
        found: The pairs and groups.
        kept_together: Whether patients who share a picture form one group that no split may part.
        path: The folder that was written; None where nothing was written.
        sheets: How many contact sheets were written.
        not_on_sheets: How many pairs are on no contact sheet.
    """

    found: Duplicates
    kept_together: bool
    path: Path | None = None
    sheets: int = 0
    not_on_sheets: int = 0

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json.

        Returns:
            A dictionary with `counts`, `calibration`, `kept_together`, `groups` and `warnings`.
        """
        groups = self.found.groups
        sizes = groups.groupby("group")["patient"].nunique()
        return {
            "counts": self.found.counts(),
            "calibration": self.found.calibration,
            "kept_together": self.kept_together,
            "groups": {
                "patients": int(groups["patient"].nunique()),
                "groups": len(sizes),
                "merged_groups": int((sizes > 1).sum()),
                "patients_in_merged_groups": int(sizes[sizes > 1].sum()),
            },
            "warnings": list(self.found.warnings),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary and `pairs`; where pages were written, also `path`, `contact_sheets` and
            `not_on_sheets`.
        """
        content = self.summary() | {"pairs": self.found.pairs}
        if self.path is not None:
            content |= {
                "path": str(self.path),
                "contact_sheets": self.sheets,
                "not_on_sheets": self.not_on_sheets,
            }
        return content

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        counts = self.found.counts()
        yield (
            f"{counts['pictures']} pictures, {counts['pairs']} pairs among {counts['pictures_in_pairs']} of them: "
            f"{counts['pairs_across_patients']} across patients, {counts['pairs_across_datasets']} across datasets, "
            f"{counts['pairs_across_labels_and_patients']} across patients and labels"
        )
        for entry in counts["by_datasets"]:
            yield f"{entry['datasets']}, {entry['relation']}: {entry['pairs']} {entry['kind']}"
        worst = self.found.pairs
        worst = worst[(worst["same_label"] == "no") & ~worst["same_patient"].astype(bool)]
        for pair in worst.head(_SHOWN).to_dict("records"):
            yield (
                f"label conflict: {pair['dataset_a']}/{pair['case_a']} ({pair['label_a']}) and "
                f"{pair['dataset_b']}/{pair['case_b']} ({pair['label_b']}), {pair['kind']}, "
                f"distance {pair['distance']:.3f}"
            )
        if len(worst) > _SHOWN:
            yield f"and {len(worst) - _SHOWN} more label conflicts (pairs.csv has all)"
        for row in self.found.calibration.to_dict("records"):
            where = " and ".join(dict.fromkeys((row["dataset_a"], row["dataset_b"])))
            yield f"threshold of {where}: distance {row['threshold']:.3f} ({row['calibrated_by']})"
        groups = self.summary()["groups"]
        if self.kept_together:
            yield (
                f"kept together: {groups['patients_in_merged_groups']} patients in "
                f"{groups['merged_groups']} groups that no split may part"
            )
        else:
            yield "not kept together: a split may put copies on both sides"
        for warning in self.found.warnings:
            yield f"warning: {warning}"
        if self.path is not None:
            if self.not_on_sheets:
                yield f"{self.not_on_sheets} pairs found no room on the contact sheets; pairs.csv has all"
            yield f"written: {self.path}"


def duplicates(
    cohorts: Sequence[CohortLike],
    *,
    out: str | Path | None = None,
    replace: bool = False,
    keep_together: bool = True,
    threads: int | None = None,
    table: TableOptions = DEFAULT,
    progress: Progress | None = None,
) -> DuplicatesReport:
    """Find the pairs; with `out` write pairs.csv, groups.csv, summary.json and the contact sheets there.

    Args:
        cohorts: Cohorts with pictures, or their folders.
        out: The folder to write; None to write nothing.
        replace: Whether files that exist may be replaced.
        keep_together: Whether patients who share a picture form one group that no split may part.
        threads: How many threads; None for all processors.
        table: How text tables are written: encoding, delimiter and decimal mark.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The pairs and groups.
    """
    check_out(out, replace=replace, inputs=cohorts)
    found = find_duplicates(
        [as_cohort(source, table) for source in cohorts],
        keep_together=keep_together,
        threads=threads,
        progress=progress,
    )
    report = DuplicatesReport(found=found, kept_together=keep_together)
    if out is None:
        return report
    from elsewhere.cohort.contact_sheet import write_contact_sheets

    with staged_directory(out, replace=replace, inputs=cohorts) as staged:
        write_table(found.pairs, staged / "pairs.csv")
        write_table(found.groups, staged / "groups.csv")
        sheets, left = write_contact_sheets(found, staged)
        write_json(report.summary(), staged / "summary.json")
    return DuplicatesReport(
        found=found, kept_together=keep_together, path=Path(out), sheets=len(sheets), not_on_sheets=left
    )
