"""`rank`: rank many models on one cohort, on the same resamples."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elsewhere.analysis.ranking.archive import ARCHIVE_TASK, entries_from_archive, published_truth
from elsewhere.analysis.ranking.entries import (
    Entries,
    EntryOptions,
    entries_from_files,
    entries_from_results,
)
from elsewhere.analysis.ranking.lesions import hit_rule_lines
from elsewhere.analysis.ranking.published import comparison_lines
from elsewhere.analysis.ranking.ranking import RankingOptions, incomplete, rank_entries
from elsewhere.analysis.ranking.submissions import Failure
from elsewhere.analysis.result.detection_pictures import PictureOptions
from elsewhere.analysis.result.inputs import Progress, check_choices
from elsewhere.analysis.result.lesion_rows import paired_line
from elsewhere.analysis.result.pictured import PicturedDetections
from elsewhere.commands.advice import fit_error
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError, check_seed
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.dbtex_zip import is_archive
from elsewhere.report.page.numbers import format_interval
from elsewhere.results import Result, write_summary_folder
from elsewhere.scoring.detection.hit_rules import HitRules
from elsewhere.scoring.task import ScoreOptions
from elsewhere.tables import TableOptions, check_out
from elsewhere.tables.identifiers import remembers_ids
from elsewhere.tables.options import DEFAULT


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Rank, interval and tier of every model; those that could not be scored are listed with the reason.

    Args:
        summary: The content of summary.json; it names no case and no folder.
        path: The folder that was written; None where nothing was written.
        failures: The entries that could not be scored, with reasons that may name cases and files.
        pictured: Lesions and false positives in their slices; None where they were not asked for.
    """

    summary: dict[str, Any]
    path: Path | None = None
    failures: tuple[Failure, ...] = ()
    pictured: PicturedDetections | None = field(default=None, repr=False)

    def _lesion_lines(self) -> Iterator[str]:
        """What detections add: the printed table, the lesions, and the hit rules."""
        if published := self.summary.get("published"):
            yield from comparison_lines(published)
        difficulty = self.summary.get("difficulty") or {}
        if difficulty.get("algorithms", 0) > 1:
            found = self.summary["who_finds_what"]
            yield (
                f"{found['lesions']} lesions at {found['budget_fp_per_volume']:g} false positives per volume: "
                f"{found['by_all']} found by all {difficulty['algorithms']} models, {found['by_none']} by none"
            )
            if len(found["sets"]) > 1:
                two = found["sets"][1]
                yield (
                    f"  {' and '.join(two['best'])} together find {two['found']} ({two['gain']:+d} over the best model); "
                    f"at half the budget each, the best two find {two['found_at_shared_budget']}"
                )
        paired = self.summary.get("lesions_paired") or {}
        chosen = paired.get("baseline") and not paired.get("baseline_is_the_first_model")
        if chosen or len(paired.get("pairs", [])) == 1:
            yield from (paired_line(row) for row in paired["pairs"])
        if rules := self.summary.get("hit_rules"):
            yield from hit_rule_lines(rules)

    @property
    def exit_code(self) -> int:
        """0 where every entry is ranked, 5 where some could not be scored."""
        return EXIT_INCOMPLETE if self.failures else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary of the ranking.
        """
        return self.summary

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        part = self.summary["ranking"]
        counts, where = (
            self.summary["counts"],
            self.summary["provenance"].get("settings", {}).get("where") or {},
        )
        chosen = "".join(f", {column} = {value}" for column, value in where.items())
        yield f"ranked by {part['metric']} on {counts['cases']} cases of {counts['patients']} patients{chosen}"
        if other := self.summary.get("protocol_counterpart"):
            rules = f"{self.summary['protocol']} {self.summary['protocol_version']}"
            yield f"protocol {rules} (the challenge's other rules: --protocol {other})"
        for row in part["table"]:
            span = (
                str(row["rank_lo"])
                if row["rank_lo"] == row["rank_hi"]
                else f"{row['rank_lo']}-{row['rank_hi']}"
            )
            yield f"  {row['rank']:>3}  ({span:>7})  tier {row['tier'] or '-'}  {row['model']:30s} {format_interval(row)}"
        yield from self._lesion_lines()
        for row in part.get("against_baseline") or []:
            yield f"  {row['model']} - {part['baseline']}: {row['difference']:+.4f}, p {row['p_holm']:.3g} (Holm)"
        for failed in self.failures:
            yield f"  failed  {failed.model}: {failed.why}"
        if self.failures:
            yield incomplete(self.summary["counts"])
        for warning in self.summary["warnings"]:
            if warning != incomplete(self.summary["counts"]):
                yield f"warning: {warning}"
        if self.pictured is not None:
            yield self.pictured.sentence()
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


@remembers_ids
def rank(
    results: Sequence[str | Path | Result],
    *,
    cohort: str | Path | None = None,
    task: str | None = None,
    protocol: str | None = None,
    where: Mapping[str, str] | None = None,
    metric: str | None = None,
    baseline: str | None = None,
    resamples: int | None = None,
    seed: int = 42,
    out: str | Path | None = None,
    replace: bool = False,
    column_map: Mapping[str, str] | None = None,
    scale: str = "0-1",
    normalise_ids: Sequence[str] = (),
    on_invalid: str = "error",
    failed_status: Sequence[str] = (),
    table: TableOptions = DEFAULT,
    threads: int | None = None,
    progress: Progress | None = None,
    hit_rules: bool = False,
    phase: int | None = None,
    split: str | None = None,
    pictures: int | None = None,
) -> Leaderboard:
    """Rank models with ties, rank intervals, tiers and stability.

    The models share their resamples (ST-09, MRI-10). An entry that cannot be scored does not stop the
    others; `exit_code` is then 5.

    Args:
        results: Result folders or results; with `cohort` and `task`, prediction files, one folder of them, or the
            zip of the published predictions of the DBTex challenge.
        cohort: The cohort of prediction files; for detections also the folder of BCS-DBT's published tables.
        task: The task of prediction files.
        protocol: The protocol of prediction files; None for the one that the cohort's reader names.
        where: Only cases whose columns have these values are ranked ({"split": "test"}), with prediction files.
        metric: The metric to rank by; None for the protocol's primary metric.
        baseline: The entry that the others are tested against; None for no tests.
        resamples: The number of resamples; None for the protocol's number.
        seed: The seed of every draw.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier ranking in `out` may be replaced.
        column_map: The names of the files' columns by the names that they should have.
        scale: The scale of the scores: '0-1', '0-100', 'MIN-MAX' as numbers, 'logit' or 'birads'.
        normalise_ids: Steps that make ids comparable: 'zeros', 'case', 'unicode', 'blanks', 'paths'.
        on_invalid: 'error' to stop at an invalid score, 'worst' to score it as the worst value.
        failed_status: Words of a status column that mean 'could not be analysed'.
        table: How text tables are written: encoding, delimiter and decimal mark.
        threads: How many threads; None for all processors.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.
        hit_rules: Whether detections are also ranked under 60 other rules of a hit.
        phase: The phase of the DBTex challenge: chooses the files of an archive, and the printed table that is
            shown next to the ranking of the test set.
        split: The split of the DBTex challenge: chooses the files of an archive and the cases of the cohort.
        pictures: How many of the hardest lesions and of the highest-scoring false positives the report shows in their
            slices; None for none. The report then holds parts of patients' images.

    Returns:
        The leaderboard.

    Raises:
        UserError: No entry could be scored, or an option does not fit.

    Example:
        >>> from elsewhere import score_arrays
        >>> y = [0, 1, 0, 1, 0, 1]
        >>> good = score_arrays("classification", label=y, probability=[0, 1, 0, 1, 0, 1], resamples=0)
        >>> poor = score_arrays("classification", label=y, probability=[0, 1, 0, 1, 1, 0], resamples=0)
        >>> [row["model"] for row in rank([poor, good], resamples=20).summary["ranking"]["table"]]
        ['model 2', 'model 1']
    """
    check_choices(on_invalid=on_invalid, matching=None)
    inputs = (*results, cohort)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    archives = [item for item in results if not isinstance(item, Result) and is_archive(item)]
    if archives and len(results) > 1:
        raise UserError(
            "an archive of predictions is ranked alone",
            where=str(archives[0]),
            fix="Give the zip alone, or unpack it and give the folder of one phase and split.",
        )
    if archives:
        if cohort is None:
            raise UserError(
                "an archive of predictions needs the truth",
                where=str(archives[0]),
                fix="Give --cohort: the folder with the published tables of labels and boxes.",
            )
        task = task or ARCHIVE_TASK
    if (cohort is None) != (task is None):
        raise UserError(
            "--cohort and --task go together",
            fix="Give both for prediction files, neither for result folders.",
        )
    if where and cohort is None:
        raise UserError(
            "--where is about prediction files and their cohort",
            fix="Result folders hold the cases that they were scored on: score them with --where, then rank them.",
        )
    if cohort is None and (hit_rules or phase is not None or split is not None):
        raise UserError(
            "--hit-rules, --phase and --split are about prediction files and their cohort",
            fix="Result folders hold no boxes: give the prediction files with --cohort and --task.",
        )
    if cohort is None and pictures is not None:
        raise UserError(
            "--pictures is about prediction files and their cohort",
            fix="Result folders hold no boxes: give the prediction files with --cohort and --task.",
        )
    shown = None if pictures is None else PictureOptions(count=pictures)
    entries: Entries
    with tempfile.TemporaryDirectory(prefix="elsewhere-") as unpacked:
        if cohort is not None and task is not None:
            read = ReadOptions(
                column_map=dict(column_map or {}),
                scale=scale,
                normalise_ids=tuple(normalise_ids),
                on_invalid="worst" if on_invalid == "worst" else "error",
                failed_status=tuple(failed_status),
                table=table,
            )
            scoring = ScoreOptions(on_invalid=on_invalid, normalise_ids=tuple(normalise_ids))
            how = EntryOptions(
                task=task,
                protocol=protocol,
                where=where if split is None or archives else {**(where or {}), "split": split},
                read=read,
                scoring=scoring,
                explain=lambda problem: str(fit_error(problem, "rank")),
                progress=progress,
                hit_rules=HitRules() if hit_rules else None,
                pictures=shown,
            )
            if archives:
                held = entries_from_archive(
                    archives[0], cohort, how, folder=Path(unpacked), phase=phase, split=split
                )
                entries, phase, split = held.entries, held.phase, held.split
            else:
                files = [item for item in results if not isinstance(item, Result)]
                truth = published_truth(cohort, table) if task == ARCHIVE_TASK else cohort
                entries = entries_from_files(files, truth, how)
        else:
            entries = entries_from_results(results)
        options = RankingOptions(
            metric=metric,
            baseline=baseline,
            resamples=resamples,
            seed=seed,
            threads=threads,
            progress=progress,
            published_phase=phase if (split or (where or {}).get("split")) == "test" else None,
            pictures=shown,
        )
        made = rank_entries(entries, options)
    if out is None:
        return Leaderboard(summary=made.summary, failures=made.failures, pictured=made.pictured)
    tables = {**made.tables, **made.local_tables}
    path = write_summary_folder(
        made.summary,
        out,
        made.redactor,
        replace=replace,
        inputs=inputs,
        tables=tables,
        pictured=made.pictured,
    )
    return Leaderboard(summary=made.summary, path=path, failures=made.failures, pictured=made.pictured)
