"""`merge`: make one prediction file of many detectors' boxes, and judge it on volumes that had no part in the choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.merging.merging import MergeChoice, Merged, MergeInputs, merge_teams
from elsewhere.analysis.merging.settings import parse_setting, published
from elsewhere.analysis.merging.teams import TEST, VALIDATION
from elsewhere.analysis.ranking.submissions import Failure
from elsewhere.analysis.result.inputs import Progress, check_choices
from elsewhere.cohort import Cohort
from elsewhere.commands.advice import fit_error
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError, check_seed
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.boxes import BOX_COLUMNS, BoxPredictions
from elsewhere.predictions.dbtex import names_a_view, write_dbtex
from elsewhere.report.page.numbers import format_interval
from elsewhere.results import write_summary_folder
from elsewhere.tables import TableOptions, check_out, write_table
from elsewhere.tables.identifiers import remembers_ids
from elsewhere.tables.options import DEFAULT

MERGED, MERGED_VALIDATION, GRID = "merged.csv", "merged_validation.csv", "grid.csv"


@dataclass(frozen=True, kw_only=True)
class MergeResult:
    """The merged boxes, and what is known of them.

    Args:
        summary: The content of summary.json; it names no case and no folder.
        boxes: The merged boxes of the test volumes, or of those that were given alone.
        grid: Every setting with its value; None where none was searched.
        path: The folder that was written; None where nothing was written.
        failures: The teams that could not be read, with reasons that may name cases and files.
    """

    summary: dict[str, Any]
    boxes: BoxPredictions
    grid: pd.DataFrame | None = None
    path: Path | None = None
    failures: tuple[Failure, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """0 where every team is in the merge, 5 where some could not be read."""
        return EXIT_INCOMPLETE if self.failures else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary of the merge.
        """
        return self.summary

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        part, counts = self.summary["merging"], self.summary["counts"]
        how = f"{part['method']} of {counts['teams']} teams"
        searched = part.get("search")
        if searched:
            equal = "" if searched["equal_to_best"] == 1 else f", {searched['equal_to_best']} equally good"
            yield f"{how}: {searched['settings']} settings tried on validation{equal}"
            yield f"  chosen     {part['setting']['setting']}"
        else:
            yield f"{how} by {part['setting']['setting']}"
        if "metric" in part:
            yield from self._judged(part)
        for failed in self.failures:
            yield f"  failed  {failed.model}: {failed.why}"
        for warning in self.summary["warnings"]:
            yield f"warning: {warning}"
        for role, one in part["merged"].items():
            yield f"merged, {role}: {one['boxes']:,} boxes in {one['volumes']} volumes"
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"

    def _judged(self, part: Mapping[str, Any]) -> Iterator[str]:
        metric, best = part["metric"], part["best_single"]
        yield f"{part['label']} ({metric}):"
        for role in (VALIDATION, TEST):
            if role in part["merged"]:
                yield f"  {role:11s} merged           {format_interval(part['merged'][role]['metrics'][metric])}"
                yield f"  {'':11s} {best['team'][:16]:16s} {format_interval(best[role][metric])}"
                if "published" in part:
                    yield f"  {'':11s} published choice {format_interval(part['published'][role])}"
        yield f"{best['team']} is the best single team on {best['chosen_on']}"
        for role in (VALIDATION, TEST):
            if role in part["gain"]:
                gain = part["gain"][role]
                yield f"merged - {best['team']}, {role}: {_signed(gain)}{_p(gain)}"
        yield from _adds(part)
        if "optimism" in part:
            yield f"optimism (validation - test) of the merge: {_signed(part['optimism']['merged'])}"
            yield f"optimism (validation - test) of {best['team']}: {_signed(part['optimism']['best_single'])}"


def _adds(part: Mapping[str, Any]) -> Iterator[str]:
    """The teams whose part in the merge is the largest and the smallest, on the last volumes."""
    role = TEST if TEST in part["merged"] else VALIDATION
    rows = [
        row for row in part.get("without_one_team", []) if row.get(role, {}).get("difference") is not None
    ]
    if rows:
        rows.sort(key=lambda row: -row[role]["difference"])
        for word, row in (("most", rows[0]), ("least", rows[-1])):
            yield f"{row['team']} adds the {word} to the merge, {role}: {_signed(row[role])}"


def _signed(row: Mapping[str, Any]) -> str:
    if row.get("difference") is None:
        return f"undefined ({row.get('undefined_reason') or 'undefined in one of them'})"
    interval = f" [{row['lo']:+.3f}, {row['hi']:+.3f}]" if row.get("lo") is not None else ""
    return f"{row['difference']:+.3f}{interval}"


def _p(row: Mapping[str, Any]) -> str:
    return f", p {row['p']:.3g} ({row['p_method']})" if row.get("p") is not None else ""


@remembers_ids
def merge(
    predictions: Sequence[str | Path],
    *,
    cohort: str | Path | None = None,
    report_on: str | Path | None = None,
    test_predictions: Sequence[str | Path] = (),
    where: Mapping[str, str] | None = None,
    setting: str | None = None,
    vote: str | None = None,
    weights: Mapping[str, float] | None = None,
    floor: float = 0.0,
    protocol: str | None = None,
    resamples: int | None = None,
    seed: int = 42,
    out: str | Path | None = None,
    replace: bool = False,
    column_map: Mapping[str, str] | None = None,
    normalise_ids: Sequence[str] = (),
    on_invalid: str = "error",
    table: TableOptions = DEFAULT,
    threads: int | None = None,
    progress: Progress | None = None,
) -> MergeResult:
    """Merge the boxes of many detectors into one prediction file (DBT-09).

    Without `setting`, 432 settings are tried on `cohort`, and the one with the highest mean sensitivity at 1, 2, 3 and 4
    false positives per volume is taken. With `report_on` the merge is compared, on volumes that had no part in the
    choice, with the team that was best on `cohort`; the difference between both cohorts is the optimism.

    Args:
        predictions: Prediction files, or one folder of them, or one folder with `validation/` and `test/` of the
            same names.
        cohort: The cohort to choose the setting on; None to merge by a given setting without any truth.
        report_on: The test cohort, or COLUMN=VALUE for the cases of `cohort` with this value.
        test_predictions: Prediction files of the test volumes, with the same names; empty where `predictions` hold
            both.
        where: Only cases of `cohort` whose columns have these values choose the setting.
        setting: A setting in place of a search: 'published', or e.g. 'normalisation=max,iou=0.5,votes=2'.
        vote: 'affirmative', 'consensus' or 'unanimous' for an ensemble by vote; None: weighted boxes fusion.
        weights: The weight of a team by its name; others weigh 1.
        floor: Boxes with a lower score on the common scale are left out.
        protocol: The protocol; None for the one that the cohort's reader names.
        resamples: The number of resamples; None for the protocol's number.
        seed: The seed of every draw.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier merge in `out` may be replaced.
        column_map: The names of the files' columns by the names that they should have.
        normalise_ids: Steps that make ids comparable: 'zeros', 'case', 'unicode', 'blanks', 'paths'.
        on_invalid: 'error' to leave out a team with an invalid box, 'worst' to leave out such boxes and count them.
        table: How text tables are written: encoding, delimiter and decimal mark.
        threads: How many threads; None for all processors.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The merged boxes with the summary.

    Raises:
        UserError: There is nothing to choose by, fewer than two teams could be read, or an option does not fit.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> for name, x in (("a.csv", 10), ("b.csv", 12)):
        ...     row = {"case_id": "s/lcc", "x": x, "y": 9, "width": 40, "height": 40, "z": 4, "depth": 2, "score": 0.9}
        ...     pd.DataFrame([row]).to_csv(place / name, index=False)
        >>> merge([place / "a.csv", place / "b.csv"], setting="published").boxes.table["x"].tolist()
        [11.0]
    """
    check_choices(on_invalid=on_invalid, matching=None)
    inputs = (*predictions, *test_predictions, cohort, report_on)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    if not 0.0 <= floor <= 1.0:
        raise UserError(f"a score floor of {floor:g}", where="--floor", fix="A number from 0 to 1.")
    read = ReadOptions(
        column_map=dict(column_map or {}),
        normalise_ids=tuple(normalise_ids),
        on_invalid="worst" if on_invalid == "worst" else "error",
        table=table,
    )
    chosen = None if setting is None else parse_setting(setting, vote=vote)
    kind = vote if chosen is None else chosen.vote
    published(kind)
    made = merge_teams(
        MergeInputs(
            files=[Path(item) for item in predictions],
            test_files=[Path(item) for item in test_predictions],
            cohort=cohort,
            report_on=report_on,
            where=where,
            protocol=protocol,
            read=read,
            explain=lambda problem: str(fit_error(problem, "merge")),
        ),
        MergeChoice(
            setting=chosen,
            vote=kind,
            weights=dict(weights or {}),
            floor=floor,
            resamples=resamples,
            seed=seed,
            threads=threads,
            progress=progress,
        ),
    )
    last = made.boxes.get(TEST) or made.boxes[VALIDATION]
    path = None
    if out is not None:
        path = write_summary_folder(
            made.summary,
            out,
            made.redactor,
            replace=replace,
            inputs=inputs,
            more=lambda folder: _write_tables(made, folder),
        )
    return MergeResult(summary=made.summary, boxes=last, grid=made.grid, path=path, failures=made.failures)


def _write_tables(made: Merged, folder: Path) -> None:
    last = TEST if TEST in made.boxes else VALIDATION
    for role, boxes in made.boxes.items():
        write_boxes(boxes, folder / (MERGED if role == last else MERGED_VALIDATION), made.cohorts.get(role))
    if made.grid is not None:
        write_table(made.grid, folder / GRID)


def write_boxes(boxes: BoxPredictions, path: Path, cohort: Cohort | None) -> None:
    """Write merged boxes as DBTex's csv; in our own columns where the volumes have no study, view or patient.

    Args:
        boxes: The boxes.
        path: The file to write.
        cohort: The cases, for the patients; None: the table has them.
    """
    table = boxes.table
    ids = table["case_id"].drop_duplicates().astype(str)
    known = cohort is not None or bool(table["patient_id"].notna().all())
    if known and all(map(names_a_view, ids)) and not table["z"].isna().any():
        write_dbtex(boxes, path, cohort=cohort)
        return
    columns = [name for name in BOX_COLUMNS if not table[name].isna().all() or name == "score"]
    write_table(table[["case_id", *columns]], path)
