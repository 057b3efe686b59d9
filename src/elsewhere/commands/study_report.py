"""Write the report and the release bundle of a study from its results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from elsewhere.analysis.study.boards import NESTED, REPORTED_COLUMNS
from elsewhere.analysis.study.summary import StudySummary, analyse
from elsewhere.commands.output import Report
from elsewhere.errors import UserError
from elsewhere.report.study.page import write_study_report
from elsewhere.report.study.pictures import CasePictures
from elsewhere.study.bundle.writing import BundleOptions, write_bundle
from elsewhere.study.file import StudyFile
from elsewhere.study.run import StudyRun
from elsewhere.tables import check_out


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What is written after the trainings.

    Args:
        report: Whether to analyse the results and write the report.
        bundle: A folder for the release bundle; None for no bundle.
        bundle_masks: Whether the bundle also holds the predicted masks.
        replace: Whether an earlier bundle in that folder may be replaced.
        pictures: Whether the report shows relevance maps and contours, and so holds pixels of patients.
    """

    report: bool = True
    bundle: str | Path | None = None
    bundle_masks: bool = False
    replace: bool = False
    pictures: bool = False

    def check(self, file: StudyFile) -> None:
        """Refuse before hours of training what could not be written after them.

        Args:
            file: The study file.

        Raises:
            UserError: A bundle without a report or masks without a bundle was asked for, the folder of the
                bundle may not be replaced, or maps were asked for and no weights are saved.
        """
        if self.pictures and file.study.models:
            from elsewhere.explain.study_maps import check_maps_can_be_drawn

            check_maps_can_be_drawn(file)
        if self.bundle_masks and (self.bundle is None or not file.study.recipes):
            raise UserError(
                "masks go into a bundle of a study whose methods predict masks",
                where="--bundle-masks",
                fix="Give --bundle DIR too." if file.study.recipes else "Leave it out.",
            )
        if self.bundle is None:
            return
        if not self.report:
            raise UserError(
                "a bundle holds the report's tables",
                where="--bundle",
                fix="Leave out --no-report, or --bundle.",
            )
        check_out(self.bundle, replace=self.replace)


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """What was written of a study.

    Args:
        summary: The numbers; None where no report was asked for, or where only runs are done that serve to
            choose a method.
        path: The path of the report; None where none was written.
        bundle: The folder of the release bundle; None where none was written.
    """

    summary: StudySummary | None = None
    path: Path | None = None
    bundle: Path | None = None


def report_study(
    run: StudyRun, options: ReportOptions, *, device: str = "auto", progress: Report | None = None
) -> StudyReport:
    """Analyse the results of a run, and write the report and the bundle.

    Args:
        run: The run of the study.
        options: What is written.
        device: The device on which relevance maps are computed: 'auto', 'cpu', 'cuda' or 'cuda:N'.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was written.

    Raises:
        UserError: A file cannot be written, or the report would be too large.
    """
    done = run.results.done()
    if not options.report or done[done["kind"] != NESTED].empty:
        return StudyReport()
    summary = analyse(run.results, progress=progress)
    pictures = _pictures(run, summary, device, progress) if options.pictures else None
    page = write_study_report(summary, run.paths.report, pictures=pictures)
    if options.bundle is None:
        return StudyReport(summary=summary, path=page)
    same = None if pictures is not None else page.read_text(encoding="utf-8")
    bundle = write_bundle(
        run.results,
        options.bundle,
        run_folder=run.paths.out,
        write_report=lambda folder: write_study_report(summary, folder, key_file=False, html=same),
        options=BundleOptions(masks=options.bundle_masks, replace=options.replace, columns=REPORTED_COLUMNS),
    )
    return StudyReport(summary=summary, path=page, bundle=bundle)


def _pictures(run: StudyRun, summary: StudySummary, device: str, progress: Report | None) -> CasePictures:
    found = CasePictures()
    if run.plan.study.models:
        from elsewhere.explain.study_maps import relevance_maps

        found = relevance_maps(run.results, run.plan, run.store, device=device, progress=progress)
    if run.plan.study.recipes:
        from elsewhere.report.study.contours import contours

        found = replace(found, contours=contours(summary, run.results).contours)
    return found
