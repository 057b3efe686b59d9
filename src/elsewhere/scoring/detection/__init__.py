"""Detection: predicted boxes compared with lesion boxes; one case per volume (DBT-03 to DBT-08).

`score` matches boxes to lesions and writes the result of each as an event; every number after that
comes from the case table and the events alone. Kinds of event: `tp` (the first hit on a lesion, by
score), `duplicate` (a further hit: neither true nor false positive), `fp`, and `fn` (a lesion that no box
hits at any score).

A volume without boxes is not 'missing': DBTex's csv cannot tell 'not run' from 'nothing found', so it is
scored as nothing found and counted as `without_boxes` (ST-14). Boxes in volumes that the cohort does not
list are false positives over all volumes, and counted as `extra`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.label_scheme import LabelScheme
from elsewhere.errors import UserError, name_rows, unknown_name
from elsewhere.predictions.boxes import rows_of
from elsewhere.predictions.join import join_by_id
from elsewhere.protocols import Protocol
from elsewhere.scoring.detection.froc import FrocEvaluator, FrocEvents, froc_specs
from elsewhere.scoring.detection.localisation import (
    DetectionEvaluator,
    froc_part,
    localisation_specs,
)
from elsewhere.scoring.detection.prepared_boxes import prepare_boxes
from elsewhere.scoring.detection.tables import (
    case_frame,
    case_numbers,
    checked_events,
    clusters_of_patients,
    events_of,
    hits_of,
    id_warnings,
    is_kind,
    lesion_frame,
    no_events,
)
from elsewhere.scoring.flow import participant_flow
from elsewhere.scoring.stored import check_stored_boxes
from elsewhere.scoring.task import ScoreOptions, Scores, StudyMetrics, Task, tasks
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator, FloatArray
from elsewhere.statistics.metric import MetricSpec
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables import to_number

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions

VOLUMES = LabelScheme(
    classes=("without a lesion", "with a lesion"), unknown="not annotated", image="volume", both_needed=False
)
"""Volumes of the task detection. A detector needs lesions; volumes without any may be absent."""
_MATCHINGS = ("challenge", "nearest")
_CURVE_STEPS = 160


class DetectionTask(Task):
    """Boxes with scores: a case is a volume, and the patient is the cluster (ST-01)."""

    name = "detection"
    title = "Lesion detection"
    unit = "volume"
    units = "volumes"
    cluster = "patient_id"
    target = None
    answer_kind = "boxes"
    resampling_units = ("patients", "volumes")
    ranking_curve = "froc"
    label_scheme = VOLUMES
    needed_classes = frozenset({1})
    lesion_columns = (
        "lesion_id",
        "x",
        "y",
        "width",
        "height",
        "slice",
        "volume_slices",
        "class",
        "finding_id",
    )
    case_columns = ("n_lesions", "n_detected")
    stored_columns = ("n_lesions", "n_detected", "n_boxes", "n_false_positives")

    def resampled(self, scores: Scores, units: str) -> Clusters:
        """Make the clusters: patients, or volumes as the challenge's study may have done (DBT-06).

        Args:
            scores: The scores.
            units: One of `resampling_units`.

        Returns:
            The clusters.
        """
        return self.partition(scores, cluster="case_id" if units == "volumes" else "patient_id")

    def check_stored(self, cases: pd.DataFrame, events: pd.DataFrame | None, *, where: str) -> None:
        """Check the stored boxes of a detection by the scorer's own rules.

        Args:
            cases: The stored table of scores.
            events: The stored table of events, where the task writes one.
            where: The folder of the result.

        Raises:
            UserError: A value that the task reads is not what it may be.
        """
        check_stored_boxes(cases, events, where=where)

    def case_cost(self, scores: Scores) -> npt.NDArray[np.float64]:
        """Count the missed lesions of each volume; NaN where none was missed.

        Args:
            scores: The scores.

        Returns:
            The number of missed lesions for each volume; NaN where none was missed.
        """
        missed = (scores.cases["n_lesions"] - scores.cases["n_detected"]).to_numpy(dtype=float)
        return np.where(missed > 0, missed, np.nan)

    def ranking_details(self, scores: Mapping[str, Scores]) -> tuple[dict[str, Any], list[str]]:
        """Count how many algorithms find each lesion, at what cost, and who finds what (DBT-08).

        Args:
            scores: The scores of each model, by its name, of the same cases.

        Returns:
            `difficulty` and `who_finds_what`, where the results have the events for them; and a warning that names
            those without.
        """
        from elsewhere.scoring.detection.found import difficulty_of, lesions_of_models

        held = lesions_of_models(scores)
        return difficulty_of(held), held.warnings()

    def paired_details(
        self, scores: Mapping[str, Scores], *, baseline: str | None, resampling: Resampling
    ) -> dict[str, Any]:
        """Compare models lesion by lesion at equal budgets of false positives.

        Args:
            scores: The scores of each model, by its name, of the same cases.
            baseline: The model that all others are compared with; None for every pair.
            resampling: How many exchanges and resamples are drawn.

        Returns:
            `lesions_paired`, where at least two results have the events for it.
        """
        from elsewhere.scoring.detection.found import lesions_of_models, paired_lesions

        return paired_lesions(lesions_of_models(scores), baseline=baseline, resampling=resampling)

    def local_tables(self, scores: Mapping[str, Scores]) -> dict[str, pd.DataFrame]:
        """List the lesions with their ids, hardest first.

        Args:
            scores: The scores of each model, by its name, of the same cases.

        Returns:
            `lesions.csv`; nothing without lesions.
        """
        from elsewhere.scoring.detection.found import lesions_of_models, lesions_table

        table = lesions_table(lesions_of_models(scores))
        return {} if table.empty else {"lesions.csv": table}

    def metrics(self, protocol: Protocol) -> tuple[MetricSpec, ...]:
        return (*froc_specs(protocol.detection), *localisation_specs())

    def reported(self, protocol: Protocol) -> StudyMetrics:
        """List the metrics that a study reports: the primary and the secondary one lead (DBT-04).

        Args:
            protocol: The rules of scoring, whose operating points name the metrics.

        Returns:
            The metrics.
        """
        primary, *points = (spec.name for spec in froc_specs(protocol.detection))
        secondary = points[-2]
        return StudyMetrics(
            main=primary,
            shown=(primary, secondary, *points[:-2], points[-1]),
            paired=(primary, secondary),
            grouped=(primary,),
        )

    def case_classes(self, cohort: Cohort) -> pd.Series | None:
        """Tell volumes with a lesion from those without one, by the table of lesions.

        Args:
            cohort: The cohort.

        Returns:
            "1" for each volume with a lesion, "0" for the others; None without a table of lesions.
        """
        if cohort.lesions is None:
            return None
        positive = cohort.cases["case_id"].astype("string").isin(cohort.lesions["case_id"].astype("string"))
        return positive.map({True: "1", False: "0"}).astype("string")

    def score(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Scores:
        protocol = _with_matching(protocol, options)
        held = prepare_boxes(cohort, predictions, options)
        cases, lesions, boxes = held.cases, held.lesions, held.boxes
        volume, invalid, score = held.volume, held.invalid, held.score
        ids = pd.Index(cases["case_id"])
        warnings = [*predictions.warnings, *id_warnings(cases, boxes, source=predictions.source)]
        if cohort.lesions is None:
            warnings.append("The cohort has no lesion table, so every sensitivity is undefined.")
        hit = hits_of(boxes, lesions, volume=volume, ids=ids, protocol=protocol)
        hit[invalid] = -1
        nearest = hit
        if protocol.detection.matching != "nearest":
            by_distance = _with_matching(protocol, dataclasses.replace(options, matching="nearest"))
            nearest = hits_of(boxes, lesions, volume=volume, ids=ids, protocol=by_distance)
            nearest[invalid] = -1
        events = events_of(boxes, lesions, hit=hit, nearest=nearest, score=score)
        cases = case_numbers(cases, events, lesions)
        cases["status"] = "scored"
        cases.loc[np.unique(volume[invalid & (volume >= 0)]), "status"] = "invalid"
        if invalid.any():
            warnings.append(
                f"{int(invalid.sum())} of {len(boxes)} boxes are invalid; each counts as a false positive "
                "with the highest score of its volume."
            )
        extra = volume < 0
        flow = (
            *predictions.flow,
            {
                "step": "boxes in volumes of the cohort",
                "n": int((~extra).sum()),
                "lost": int(extra.sum()),
                "why": f"{int(extra.sum())} boxes lie in volumes that the cohort does not list; "
                "they count as false positives over all volumes"
                if extra.any()
                else "",
            },
        )
        counts = {
            "extra": int(extra.sum()),
            "extra_volumes": int(boxes["case_id"][extra].nunique()),
            "invalid_boxes": int(invalid.sum()),
        }
        return _finish(cases, events, protocol, flow=flow, warnings=tuple(warnings), counts=counts)

    def from_table(
        self,
        cohort: Cohort,
        table: pd.DataFrame,
        events: pd.DataFrame | None,
        protocol: Protocol,
        options: ScoreOptions,
    ) -> Scores:
        """Make scores from saved scores and events; the cohort adds attributes and volumes left out.

        Args:
            cohort: The cohort.
            table: One row per case, with the columns that the task stores.
            events: The stored events, where the task has any.
            protocol: The rules.
            options: What the user set besides the protocol.

        Returns:
            The scores.

        Raises:
            UserError: There are no events, a value is not allowed, or events and scores do not fit together.
        """
        protocol = _with_matching(protocol, options)
        if events is None:
            raise UserError(
                "detection cannot be summed up from the score table alone",
                fix="Give the results folder that has events.parquet next to scores.parquet: a FROC curve "
                "needs every box's score.",
            )
        cases = case_frame(cohort, options)
        join = join_by_id(cases["case_id"], table["case_id"], source="the score table", what="score")
        rows = join.row_of_case
        lesions = lesion_frame(cohort, cases)
        events = checked_events(events)
        cases = case_numbers(cases, events, lesions)
        if "n_lesions" in table.columns:
            saved = to_number(
                table["n_lesions"], column="n_lesions", where="the score table", missing="error"
            )
            n_lesions = cases["n_lesions"].to_numpy().copy()
            n_lesions[rows >= 0] = saved.to_numpy()[rows[rows >= 0]].astype(np.int64)
            cases["n_lesions"] = n_lesions
        status = np.full(len(cases), "scored", dtype=object)
        if "status" in table.columns:
            status[rows >= 0] = table["status"].astype(object).to_numpy()[rows[rows >= 0]]
        cases["status"] = pd.array(status, dtype="string")
        hits = events[is_kind(events, "tp", "duplicate")]
        hit_lesions = hits.drop_duplicates(["case_id", "lesion_id"]).groupby("case_id").size()
        too_many = cases.set_index("case_id")["n_lesions"].reindex(hit_lesions.index).fillna(0) < hit_lesions
        if too_many.any():
            raise UserError(
                f"{int(too_many.sum())} volumes have hits on more lesions than they have",
                where=f"events, case_id {name_rows(list(too_many.index[too_many]))}",
                fix="The events and the score table are not of the same run: score again.",
            )
        extra = ~events["case_id"].isin(cases["case_id"]).to_numpy(dtype=bool)
        counts = {
            "extra": int(extra.sum()),
            "extra_volumes": int(events["case_id"][extra].nunique()),
            "missing": int((rows < 0).sum()),
        }
        cases.loc[rows < 0, "status"] = "missing"
        return _finish(
            cases, events, protocol, flow=join.of_predictions, warnings=join.warnings, counts=counts
        )

    def partition(self, scores: Scores, *, cluster: str | None = None) -> Clusters:
        """Assign volumes to patients; `cluster="case_id"` resamples volumes, as the study may have done.

        Args:
            scores: The scores.
            cluster: The column of the unit that is resampled; None for patients.

        Returns:
            The clusters.
        """
        positive = scores.cases["n_lesions"].to_numpy(dtype=float) > 0
        return Clusters.from_table(scores.cases, cluster=cluster or self.cluster, positive=positive)

    def evaluator(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> DetectionEvaluator:
        cases = scores.cases
        events = scores.events if scores.events is not None else no_events()
        boxes = events[~is_kind(events, "fn")]
        case = rows_of(boxes["case_id"], pd.Index(cases["case_id"]))
        cluster = np.full(len(boxes), -1, dtype=np.int64)
        listed = case >= 0
        cluster[listed] = partition.cluster_of_case[case[listed]]
        if not listed.all():
            cluster[~listed] = clusters_of_patients(boxes["patient_id"][~listed], cases, partition)
        lesion = np.full(len(boxes), -1, dtype=np.int64)
        hits = np.flatnonzero(is_kind(boxes, "tp", "duplicate"))
        keys = boxes.iloc[hits]
        pairs = pd.MultiIndex.from_arrays([keys["case_id"].to_numpy(), keys["lesion_id"].to_numpy()])
        lesion[hits] = pd.factorize(pairs)[0]
        return DetectionEvaluator(
            FrocEvaluator(
                rules=scores.protocol.detection,
                cluster_of_case=partition.cluster_of_case,
                n_clusters=partition.n_clusters,
                lesions_of_case=cases["n_lesions"].to_numpy(dtype=np.int64),
                events=FrocEvents(
                    case=case, cluster=cluster, lesion=lesion, score=boxes["score"].to_numpy(dtype=np.float64)
                ),
            )
        )

    def curves(
        self, scores: Scores, partition: Clusters, stream: WeightStream | None, options: ScoreOptions
    ) -> dict[str, Any]:
        """Compute the FROC curves over positive volumes (`froc`) and all (`froc_all`), with bands.

        Args:
            scores: The scores.
            partition: The clusters that are resampled.
            stream: The weights of the resamples, for the bands; None for curves without bands.
            options: What the user set besides the protocol.

        Returns:
            The curves by name; empty where the metrics are undefined. Without resamples they have no bands.
        """
        return froc_curves(
            [froc_part(self.evaluator(scores, partition, options))],
            scores.protocol,
            stream,
            threads=options.threads,
        )

    def details(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> dict[str, Any]:
        """Count how many lesions of each class come within the false-positive budgets, without ids.

        `lesion_table` has the lesions one by one.

        Args:
            scores: The scores.
            partition: The clusters that are resampled.
            options: What the user set besides the protocol.

        Returns:
            `lesions`, with the counts of all lesions and of each class.
        """
        table = lesion_table(scores)
        points = scores.protocol.detection.positive_operating_points
        strata: dict[str, Any] = {}
        for name, rows in [("all", table), *table.groupby("lesion_class", dropna=False, sort=True)]:
            cost = rows["fp_per_volume"].to_numpy(dtype=float)
            strata["not stated" if pd.isna(name) else str(name)] = {
                "lesions": len(rows),
                "volumes": int(rows["case_id"].nunique()),
                "found_at_any_score": int((~np.isnan(cost)).sum()),
                "found_within": {f"{x:g}": float((cost <= x).mean()) if len(rows) else None for x in points},
            }
        return {
            "lesions": {
                "strata": strata,
                "note": "Share of the lesions whose best box comes before this many false positives a "
                "positive volume; counted, not interpolated, so it can lie below the curve's sensitivity.",
            }
        }


def froc_curves(
    evaluators: Sequence[FrocEvaluator],
    protocol: Protocol,
    stream: WeightStream | None,
    *,
    threads: int | None = None,
) -> dict[str, Any]:
    """Compute FROC curves over positive volumes (`froc`) and all (`froc_all`), with pointwise bands.

    Args:
        evaluators: Of one model; of several trainings the curve is their mean, also in every resample.
        protocol: The rules of scoring: operating points, and the level of the bands.
        stream: The weights of the resamples; None for curves without bands.
        threads: How many threads; None for all processors.

    Returns:
        The curves by name; empty where sensitivity is undefined.
    """
    if any(one.undefined_reasons() for one in evaluators):
        return {}
    rules, level = protocol.detection, protocol.interval.level
    grid = np.linspace(0.0, 2.0 * max(rules.positive_operating_points), _CURVE_STEPS + 1)
    on_grid = _OnGrid(evaluators, grid)
    middle = on_grid.evaluate(np.ones((1, evaluators[0].n_clusters), dtype=np.uint16))[0]
    low = high = None
    if stream is not None and stream.resamples > 0:
        drawn = draw([cast(Evaluator, on_grid)], stream, threads=threads)[0]
        drawn = drawn[~np.isnan(drawn[:, 0])]
        if len(drawn):
            tail = 50.0 * (1.0 - level)
            low, high = np.percentile(drawn, [tail, 100.0 - tail], axis=0)
    out: dict[str, Any] = {}
    for k, (key, where) in enumerate((("froc", "positive volumes"), ("froc_all", "all volumes"))):
        part = slice(k * grid.size, (k + 1) * grid.size)
        out[key] = {
            "x": grid.tolist(),
            "y": middle[part].tolist(),
            "lo": None if low is None else low[part].tolist(),
            "hi": None if high is None else high[part].tolist(),
            "x_label": f"False positives per volume ({where})",
            "y_label": "Sensitivity",
            "volumes": where,
            "band": f"pointwise {100 * level:g} % percentile bootstrap" if low is not None else None,
        }
    return out


class _OnGrid:
    """The curve at many rates, for `draw`: it needs only the width and the rows of an evaluator."""

    def __init__(self, evaluators: Sequence[FrocEvaluator], grid: FloatArray) -> None:
        self._evaluators, self._grid = evaluators, grid
        self.specs = (evaluators[0].specs[0],) * (2 * grid.size)

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        each = [
            one.sensitivities(weights, positive_at=self._grid, all_at=self._grid) for one in self._evaluators
        ]
        mean: FloatArray = np.mean(each, axis=0)
        return mean


def lesion_table(scores: Scores, *, positive_only: bool = True) -> pd.DataFrame:
    """List the lesions, one row per lesion: `case_id, lesion_id, lesion_class, best_score, fp_per_volume`.

    `fp_per_volume` is the cost of finding the lesion: false positives per volume at the score of its best
    hit (DBT-08), over positive volumes or all; NaN where no box hits it.

    Args:
        scores: The scores of a detection, with their events.
        positive_only: Whether false positives are counted over volumes with a lesion alone.

    Returns:
        The table.
    """
    events = scores.events if scores.events is not None else no_events()
    found = events[is_kind(events, "tp", "fn")]
    table = found[["case_id", "lesion_id", "lesion_class", "score"]].rename(columns={"score": "best_score"})
    false = events[is_kind(events, "fp")]
    volumes = len(scores.cases)
    if positive_only:
        positive = scores.cases["case_id"][scores.cases["n_lesions"] > 0]
        false, volumes = false[false["case_id"].isin(positive)], len(positive)
    ranked = np.sort(false["score"].to_numpy(dtype=float))
    best = table["best_score"].to_numpy(dtype=float)
    above = ranked.size - np.searchsorted(ranked, best, side="left")
    table["fp_per_volume"] = np.where(np.isnan(best), np.nan, above / max(volumes, 1))
    return table.reset_index(drop=True)


def _with_matching(protocol: Protocol, options: ScoreOptions) -> Protocol:
    if options.matching is None:
        return protocol
    if options.matching not in _MATCHINGS:
        raise unknown_name("matching", options.matching, _MATCHINGS)
    rules = dataclasses.replace(protocol.detection, matching=cast(Any, options.matching))
    return dataclasses.replace(protocol, detection=rules)


def _finish(
    cases: pd.DataFrame,
    events: pd.DataFrame,
    protocol: Protocol,
    *,
    flow: tuple[dict[str, Any], ...],
    warnings: tuple[str, ...],
    counts: dict[str, int],
) -> Scores:
    status = cases["status"].astype("string")
    cases = cases.assign(status=status)
    people = cases[[c for c in ("dataset", "patient_id") if c in cases.columns]].drop_duplicates()
    full = {
        "cases": len(cases),
        "patients": len(people),
        "scored": int((status == "scored").sum()),
        "missing": 0,
        "undefined": 0,
        "invalid": int((status == "invalid").sum()),
        "not_analysable": 0,
        "without_boxes": int((cases["n_boxes"] == 0).sum()),
        "extra": 0,
        "extra_volumes": 0,
        "invalid_boxes": 0,
        "boxes": int((~is_kind(events, "fn")).sum()),
        "lesions": int(cases["n_lesions"].sum()),
        "positives": int((cases["n_lesions"] > 0).sum()),
    }
    return Scores(
        task="detection",
        protocol=protocol,
        cases=cases,
        events=events,
        counts={**full, **counts},
        flow=participant_flow(flow, cohort_cases=len(cases), status=status, what="prediction"),
        warnings=tuple(warnings),
    )


tasks.add("detection", DetectionTask())
