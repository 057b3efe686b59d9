"""`readers`: analyse a reader study with readers, cases or both as the random factor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.readers.inputs import (
    Design,
    ReaderInputs,
    inputs_of_results,
    inputs_of_workbook,
)
from elsewhere.analysis.readers.summary import ReaderStudyOptions, analyse_inputs
from elsewhere.errors import EXIT_OK, UserError, unknown_name
from elsewhere.report.page.numbers import format_number, p_value
from elsewhere.report.result.answered import verdict_lines
from elsewhere.results import write_summary_folder
from elsewhere.scoring.reader_study import StudyTables, read_study_workbook, study_of_tables
from elsewhere.scoring.reader_study.figures import LeftOut
from elsewhere.scoring.reader_study.marks import OnInvalid
from elsewhere.scoring.reader_study.study import Paradigm
from elsewhere.statistics.mrmc import RandomFactors
from elsewhere.tables import check_out
from elsewhere.tables.identifiers import note_source, remembers_ids


@dataclass(frozen=True, kw_only=True)
class ReaderStudyReport:
    """The analysis of a reader study: analysis of variance, readers, differences, and the verdict.

    Args:
        summary: The content of summary.json; it names no case.
        tables: The tables of the result, by the name of their csv file.
        path: The folder that was written; None where nothing was written.
        exit_code: The exit code that stands for the verdict; 0 without a margin.
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    path: Path | None = None
    exit_code: int = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary of the study; with `path` where it was written.
        """
        return self.summary if self.path is None else {**self.summary, "path": str(self.path)}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        part, counts = self.summary["readers"], self.summary["counts"]
        figure, treatments = part["figure"], part["treatments"]
        yield f"{figure['title']}" + (f": {figure['about']}" if figure["about"] else "")
        with_lesion = f", {counts['positives']} positive" if "positives" in counts else ""
        design = "" if len(treatments) < 2 else f", {part['design']}"
        yield (
            f"{_count(len(treatments), 'treatment')}, {_count(counts['readers'], part['readers_are'][:-1])}{design}; "
            f"{counts['cases']} cases of {counts['patients']} patients{with_lesion}; jackknife over {part['left_out']}s"
        )
        yield from _reader_lines(part)
        yield "analysis of variance"
        for row in part["anova"]:
            yield f"  {row['source']:24s} df {row['df']:<4d} mean square {row['mean_square']:.6f}"
        yield "error covariance (correlation)"
        yield "  " + "  ".join(_covariances(part["covariances"]))
        for random in sorted(part["analyses"], key=lambda name: name != part["random"]):
            yield from _analysis_lines(part["analyses"][random], part["level"], len(treatments))
        for panel in part.get("panel", ()):
            yield (
                f"{panel['model']} and {_count(panel['readers'], 'reader')}, {panel['treatment']}: "
                f"{panel['model']} {format_number(panel['value'])}, mean of the readers {format_number(panel['mean_of_readers'])}; "
                f"{panel['readers_above']} of {panel['readers']} readers are above {panel['model']}"
            )
            for random in sorted(panel["analyses"], key=lambda name: name != part["random"]):
                row = panel["analyses"][random]
                text = _difference_text(row, f"{panel['model']} - readers")
                yield f"  {row['title']}: {text}"
        for note in part["notes"]:
            yield f"note: {note}"
        for warning in self.summary["warnings"]:
            yield f"warning: {warning}"
        if "verdict" in self.summary:
            yield from _claims(self.summary["verdict"])
            yield from verdict_lines(self.summary["verdict"])
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _reader_lines(part: Mapping[str, Any]) -> Iterator[str]:
    """The figure of merit of each reader: a column per treatment where readers are crossed with them."""
    treatments, rows = part["treatments"], part["per_reader"]
    if part["design"] == "nested":
        for row in rows:
            yield f"  {row['treatment'][:20]:20s} {row['reader'][:28]:28s} {format_number(row['value'])}"
        return
    width = max(9, *(len(name[:20]) for name in treatments))
    differences = {row["reader"]: row for row in part["reader_differences"]} if len(treatments) == 2 else {}
    header = "".join(f"{name[:20]:>{width + 2}s}" for name in treatments)
    pair = f"   {treatments[1]} - {treatments[0]}" if differences else ""
    yield f"  {'reader':20s}{header}{pair}"
    by_reader: dict[str, list[float]] = {}
    for row in rows:
        by_reader.setdefault(row["reader"], []).append(row["value"])
    for reader, values in by_reader.items():
        shown = "".join(f"{format_number(value):>{width + 2}s}" for value in values)
        row = differences.get(reader)
        text = (
            ""
            if row is None
            else f"   {row['value']:+.3f} [{row['lo']:+.3f}, {row['hi']:+.3f}]"
            + ("" if row["p"] is None else f" p {p_value(row['p'])}")
        )
        yield f"  {reader[:20]:20s}{shown}{text}"


def _covariances(errors: Mapping[str, Any]) -> list[str]:
    shown = [f"Var {errors['var']:.6f}"]
    for number in (1, 2, 3):
        value, share = errors[f"cov{number}"], errors[f"correlation{number}"]
        if value is not None:
            shown.append(f"Cov{number} {value:.6f}" + ("" if share is None else f" ({share:.2f})"))
    return shown


def _analysis_lines(one: Mapping[str, Any], level: float, treatments: int) -> Iterator[str]:
    test = one["test"]
    yield f"{one['title'].lower()}, {100 * level:g} % intervals"
    if treatments > 1:
        if test["f"] is None:
            yield f"  test of the treatments: undefined ({test['reason']})"
        else:
            df2 = "infinite" if test["df2"] is None else f"{test['df2']:.2f}"
            yield f"  test of the treatments: F {test['f']:.3f}, df {test['df1']} and {df2}, p {p_value(test['p'])}"
    for row in one["means"]:
        if row["lo"] is None:
            yield f"  {row['treatment']}: {format_number(row['value'])} (no interval: {row['reason']})"
        else:
            yield f"  {row['treatment']}: {format_number(row['value'])} [{row['lo']:.3f}, {row['hi']:.3f}]{_df(row)}"
    for row in one["differences"]:
        holm = (
            f", p (Holm) {p_value(row['p_holm'])}"
            if len(one["differences"]) > 1 and row["p"] is not None
            else ""
        )
        text = _difference_text(row, f"{row['first']} - {row['second']}")
        yield f"  {text}{holm}"


def _df(row: Mapping[str, Any]) -> str:
    return ", normal" if row["df"] is None else f", df {row['df']:.1f}"


def _difference_text(row: Mapping[str, Any], name: str) -> str:
    if row["lo"] is None:
        return f"{name}: {row['value']:+.4f} (no interval: {row['reason']})"
    return (
        f"{name}: {row['value']:+.4f} [{row['lo']:+.4f}, {row['hi']:+.4f}], SE {row['se']:.4f}{_df(row)}, "
        f"t {row['t']:.2f}, p {p_value(row['p'])}"
    )


def _claims(verdict: Mapping[str, Any]) -> Iterator[str]:
    for claim in verdict["claims"]:
        if claim["difference"] is None or claim["lo"] is None:
            yield f"{claim['metric']}: {claim.get('reason') or 'undefined'}"
            continue
        of = f" ({claim['group']})" if claim.get("group") else ""
        yield (
            f"non-inferiority{of}: difference {claim['difference']:+.4f}, {100 * (1 - 2 * claim['alpha']):g} % interval "
            f"[{claim['lo']:+.4f}, {claim['hi']:+.4f}], margin {claim['margin']:g}: "
            f"{'non-inferior' if claim['non_inferior'] else 'not shown to be non-inferior'}"
        )


@remembers_ids
def reader_study(
    workbook: str | Path | StudyTables | None = None,
    *,
    treatments: Mapping[str, Sequence[str | Path]] | None = None,
    figure: str | None = None,
    threshold: float | None = None,
    random: str = "readers,cases",
    reference: str | None = None,
    model: str | None = None,
    use_readers: Sequence[str] = (),
    use_treatments: Sequence[str] = (),
    paradigm: str | None = None,
    design: str = "auto",
    leave_out: str = "patient",
    level: float = 0.95,
    margin: float | None = None,
    alpha: float = 0.05,
    on_invalid: str = "error",
    out: str | Path | None = None,
    replace: bool = False,
) -> ReaderStudyReport:
    """Analyse a reader study by the method of Obuchowski and Rockette, with Hillis' degrees of freedom (ST-15).

    The readers are people in a workbook, or the trainings of a method whose results were scored.

    Args:
        workbook: The workbook of a JAFROC study, or its three tables; None with `treatments`.
        treatments: In place of a workbook, the result folders of each treatment.
        figure: The figure of merit, or a metric of the results; None for the usual one.
        threshold: The rating from which a case counts as positive: for sensitivity and specificity of a workbook.
        random: What is random in the leading analysis: 'readers,cases', 'cases' or 'readers'.
        reference: The treatment that the others are compared with; None for the first one.
        model: The reader, or treatment, that is a model and is compared with the readers; None for none.
        use_readers: The readers of the workbook to take; empty for all.
        use_treatments: The treatments of the workbook to take; empty for all.
        paradigm: 'ROC' or 'FROC'; None for what the workbook states or looks like.
        design: Of result folders, 'crossed', 'nested' or 'auto'.
        leave_out: What the jackknife of a workbook leaves out: 'patient' or 'case'.
        level: The level of the intervals.
        margin: The non-inferiority margin; None for no verdict.
        alpha: The level of the verdict's one-sided test.
        on_invalid: 'error' to stop at a mark that cannot be used, 'skip' to leave it out and count it.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier result in `out` may be replaced.

    Returns:
        The analysis.

    Raises:
        UserError: The workbook or the results cannot be used, or an option does not fit.

    Example:
        >>> import numpy as np
        >>> from elsewhere.phantom.reader_study import ReaderWorld, draw_reader_study, study_tables
        >>> study = draw_reader_study(ReaderWorld(readers=4), np.random.default_rng(2))
        >>> made = reader_study(study_tables(study)).summary["readers"]
        >>> made["figure"]["title"], [row["df"] for row in made["anova"]]
        ('wAFROC', [1, 3, 3])
    """
    for name, value, known in (
        ("--paradigm", paradigm, (None, "ROC", "FROC")),
        ("--design", design, ("auto", "crossed", "nested")),
        ("--leave-out", leave_out, ("patient", "case")),
        ("--on-invalid", on_invalid, ("error", "skip")),
    ):
        if value not in known:
            raise unknown_name(name.strip("-"), str(value), [one for one in known if one])
    factors = RandomFactors.parse(random)
    folders = [item for items in (treatments or {}).values() for item in items]
    inputs = (*folders, *([workbook] if isinstance(workbook, str | Path) else []))
    check_out(out, replace=replace, inputs=inputs)
    if (workbook is None) == (not treatments):
        raise UserError(
            "a reader study is a workbook, or result folders by treatment",
            fix="elsewhere readers STUDY.xlsx, or --treatment NAME=FOLDER for each result folder.",
        )
    made: ReaderInputs
    if workbook is None:
        if use_readers or use_treatments or threshold is not None:
            raise UserError(
                "--use-readers, --use-treatments and --threshold are about a workbook",
                fix="Of result folders, name only those that are to be compared; their threshold is that of `score`.",
            )
        made = inputs_of_results(treatments or {}, figure=figure, model=model, design=_design(design))
    else:
        made = _of_workbook(
            workbook,
            figure=(figure, threshold),
            model=model,
            chosen=(use_treatments, use_readers),
            paradigm="ROC" if paradigm == "ROC" else "FROC" if paradigm == "FROC" else None,
            leave_out="case" if leave_out == "case" else "patient",
            on_invalid="skip" if on_invalid == "skip" else "error",
        )
    options = ReaderStudyOptions(random=factors, level=level, margin=margin, alpha=alpha, reference=reference)
    done = analyse_inputs(made, options)
    path = None
    if out is not None:
        path = write_summary_folder(
            done.summary, out, done.redactor, replace=replace, inputs=inputs, tables=done.tables
        )
    return ReaderStudyReport(summary=done.summary, tables=done.tables, path=path, exit_code=done.exit_code)


def _design(name: str) -> Design:
    return "crossed" if name == "crossed" else "nested" if name == "nested" else "auto"


def _of_workbook(
    workbook: str | Path | StudyTables,
    *,
    figure: tuple[str | None, float | None],
    model: str | None,
    chosen: tuple[Sequence[str], Sequence[str]],
    paradigm: Paradigm | None,
    leave_out: LeftOut,
    on_invalid: OnInvalid,
) -> ReaderInputs:
    if isinstance(workbook, StudyTables):
        study = study_of_tables(
            workbook, paradigm=paradigm, model=model, chosen=chosen, on_invalid=on_invalid
        )
        return inputs_of_workbook(study, figure=figure[0], threshold=figure[1], leave_out=leave_out)
    note_source(workbook)
    study = read_study_workbook(
        workbook, paradigm=paradigm, model=model, chosen=chosen, on_invalid=on_invalid
    )
    return inputs_of_workbook(
        study, figure=figure[0], threshold=figure[1], path=Path(workbook), leave_out=leave_out
    )
