"""One model on one cohort: from predictions, or from an existing table of scores, to an assessment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.result.assessment import Assessment
from elsewhere.analysis.result.detection_pictures import (
    PictureOptions,
    picture_detections,
    picture_volumes,
)
from elsewhere.analysis.result.inputs import (
    CohortLike,
    PredictionsLike,
    Progress,
    as_cohort,
    as_predictions,
    choose_protocol,
    known_columns,
)
from elsewhere.analysis.result.model_boxes import model_boxes
from elsewhere.analysis.result.part import choose_part
from elsewhere.analysis.result.pictured import PicturedDetections
from elsewhere.analysis.result.pictured_slides import PicturedSlides
from elsewhere.analysis.result.site_verdicts import SiteClaim, site_verdicts
from elsewhere.analysis.result.slide_pictures import check_slide_pictures, picture_slides
from elsewhere.analysis.result.storage import load_assessment
from elsewhere.analysis.result.summary import analyse, facts_of
from elsewhere.analysis.result.thresholds import carried_between_sites
from elsewhere.errors import UserError, check_seed
from elsewhere.predictions import ReadOptions
from elsewhere.protocols import Protocol
from elsewhere.scoring.task import ScoreOptions, Scores, tasks
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables import TableOptions, content_hash, file_digest, read_table
from elsewhere.tables.options import DEFAULT
from elsewhere.tables.reading import require_columns


@dataclass(frozen=True, kw_only=True)
class ResultOptions:
    """How a model is assessed.

    Attributes:
        protocol: The name of the protocol; None for the one that belongs to the cohort's reader.
        where: Columns with the values that choose the cases; None for all cases.
        scoring: What may be set in addition to the protocol: threshold, groups, how predictions are read.
        resamples: How many resamples; None for the protocol's number.
        seed: The seed of every draw.
        site_claim: Judge every other site against one; None for no verdict.
        progress: Called to report how far the work is; None for no report.
        pictures: Which lesions and false positives of detections, or which slides, are pictured; None for none.
    """

    protocol: str | None = None
    where: Mapping[str, str] | None = None
    scoring: ScoreOptions = field(default_factory=ScoreOptions)
    resamples: int | None = None
    seed: int = 42
    site_claim: SiteClaim | None = None
    progress: Progress | None = None
    pictures: PictureOptions | None = None

    def resampling(self, key: str, protocol: Protocol) -> Resampling:
        """Choose the resamples of a cohort.

        Args:
            key: The hash of the cohort.
            protocol: Gives their number, where the user does not.

        Returns:
            The resampling.
        """
        count = protocol.interval.resamples if self.resamples is None else self.resamples
        return Resampling(key=key, seed=self.seed, resamples=count)


def score_predictions(
    task: str, cohort: CohortLike, predictions: PredictionsLike, options: ResultOptions
) -> Assessment:
    """Score predictions against a cohort: metrics with intervals, groups, sites, curves.

    Args:
        task: classification, detection, segmentation, response, slides, or the name of a registered task.
        cohort: A cohort, a path, a data frame or a mapping of arrays.
        predictions: The same for the predictions.
        options: How the model is assessed.

    Returns:
        The summary with its scores; nothing is written.

    Raises:
        UserError: An input cannot be read, or the two do not belong together.

    Example:
        >>> cohort = {"case_id": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]}
        >>> said = {"case_id": ["a", "b", "c", "d"], "probability": [0.1, 0.8, 0.4, 0.9]}
        >>> made = score_predictions("classification", cohort, said, ResultOptions(resamples=0))
        >>> made.metrics["auroc"]["value"]
        1.0
    """
    chosen = tasks.get(task)
    check_seed(options.seed)
    read = options.scoring.read or ReadOptions()
    part = choose_part(as_cohort(cohort, read.table), options.where)
    who = part.cohort
    rules = choose_protocol(chosen, options.protocol, who.reader)
    of_slides = chosen.name == "slides"
    volumes = (
        None if options.pictures is None or of_slides else picture_volumes(chosen.name, who, options.pictures)
    )
    said = part.predictions(as_predictions(task, predictions, read, part.whole))
    if options.pictures is not None and of_slides:
        check_slide_pictures(said, options.pictures)
    scoring = replace(options.scoring, read=read, group_by=known_columns(who, options.scoring.group_by))
    scores = part.with_choice(chosen.score(who, said, rules, scoring))
    facts = facts_of(who, predictions_digest=said.digest, command="score", part=part)
    made = _assess(scores, facts, scoring, options)
    if options.pictures is None:
        return made
    pictured: PicturedDetections | PicturedSlides
    if volumes is None:
        pictured = picture_slides(
            scores,
            who,
            said,
            options.pictures,
            normalise_ids=scoring.normalise_ids,
            progress=options.progress,
        )
    else:
        models = {"Model": model_boxes(scores, who, said, scoring)}
        pictured = picture_detections(models, volumes, options.pictures, progress=options.progress)
    warned = {**made.summary, "warnings": [*made.summary.get("warnings", []), *pictured.warnings()]}
    return replace(made, summary=warned, pictured=pictured)


def score_table(
    task: str,
    cohort: CohortLike,
    scores: str | Path | pd.DataFrame,
    options: ResultOptions,
    *,
    column_map: Mapping[str, str] | None = None,
    table: TableOptions = DEFAULT,
) -> Assessment:
    """Assess a model again from a table of scores, or from a result folder, without opening a prediction.

    Args:
        task: The task of the scores.
        cohort: A cohort, a path, a data frame or a mapping of arrays.
        scores: A csv or parquet file, a data frame or a result folder.
        options: How the model is assessed.
        column_map: The columns of the table by the name they should have.
        table: How a text table is written.

    Returns:
        The summary with its scores; nothing is written.

    Raises:
        UserError: The table cannot be read, or is not one of this task.
    """
    chosen = tasks.get(task)
    check_seed(options.seed)
    part = choose_part(as_cohort(cohort, table), options.where)
    who = part.cohort
    found = _read_scores(task, scores, table)
    where = "data frame" if isinstance(scores, pd.DataFrame) else str(scores)
    given = renamed(found.cases, column_map or {}, where=where)
    if "case_id" not in given.columns:
        raise UserError(
            f"the scores have no column case_id (columns: {', '.join(map(str, given.columns))})",
            where=None if isinstance(scores, pd.DataFrame) else str(scores),
            fix="Name it with `--map case_id=COLUMN`.",
        )
    rules = choose_protocol(chosen, options.protocol or found.protocol, who.reader)
    events = None if found.events is None else part.rows(found.events)
    made = part.with_choice(chosen.from_table(who, part.rows(given), events, rules, options.scoring))
    facts = facts_of(who, predictions_digest=found.digest, command="summarise", part=part)
    return _assess(made, facts, options.scoring, options)


def _assess(scores: Scores, facts: Any, scoring: ScoreOptions, options: ResultOptions) -> Assessment:
    resampling, claim = options.resampling(facts.cohort_hash, scores.protocol), options.site_claim
    return analyse(
        scores,
        facts,
        options=scoring,
        resamples=options.resamples,
        seed=options.seed,
        extra={
            **site_verdicts(scores, scoring, claim, resampling),
            **carried_between_sites(scores, None if claim is None else claim.reference, resampling),
        },
        progress=options.progress,
    )


@dataclass(frozen=True, kw_only=True)
class _StoredScores:
    """A table of scores as it was found; `protocol` where it lies in a result folder."""

    cases: pd.DataFrame
    digest: str
    events: pd.DataFrame | None = None
    protocol: str | None = None


def _read_scores(task: str, scores: str | Path | pd.DataFrame, table: TableOptions) -> _StoredScores:
    if isinstance(scores, pd.DataFrame):
        return _StoredScores(cases=scores.copy(), digest=content_hash(scores))
    path = Path(scores)
    if path.is_dir():
        earlier = load_assessment(path)
        if earlier.scores.task != task:
            raise UserError(
                f"the result is of task {earlier.scores.task}",
                where=str(scores),
                fix=f"Use `elsewhere summarise {earlier.scores.task} ...`.",
            )
        return _StoredScores(
            cases=earlier.scores.cases,
            events=earlier.scores.events,
            protocol=earlier.summary["protocol"],
            digest=str(earlier.provenance.get("predictions_digest")),
        )
    cases = read_table(path, strings=("case_id",), options=table)
    beside = path.with_name("events.parquet")
    events = read_table(beside) if path.name.startswith("scores") and beside.exists() else None
    return _StoredScores(cases=cases, digest=file_digest(path), events=events)


def renamed(frame: pd.DataFrame, column_map: Mapping[str, str], *, where: str) -> pd.DataFrame:
    """Give columns the names that a user declares.

    Args:
        frame: The table.
        column_map: The table's columns by the name they should have.
        where: The file that an error names.

    Returns:
        The table with its new names.

    Raises:
        UserError: A column is not there.
    """
    require_columns(frame, list(column_map.values()), where=where)
    return frame.rename(columns={source: target for target, source in column_map.items()})
