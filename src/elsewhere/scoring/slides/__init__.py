"""Slides: the stage of each, the lesions in it, and the patient's pN stage (LN-14, LN-15, LN-17).

Cohort columns: `stage` (negative, itc, micro, macro), `patient_stage` (pN...), `mask` (a truth mask
file), `microns_per_pixel` (of level 0) and `mask_downsample` (of the mask file against level 0).
Positive means macro or micro. Sensitivity and specificity are those of the positive class; the study's
table shows class averages, so these have names of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError, name_rows
from elsewhere.predictions import Predictions, join_by_id
from elsewhere.predictions.stages import PATIENT_STAGES, STAGES, normalise_stage
from elsewhere.protocols import Protocol, SlideRules
from elsewhere.scoring.flow import participant_flow, step
from elsewhere.scoring.slides.cases import (
    mask_downsample,
    mask_pixel_um,
    mask_scores,
    point_events,
    read_on_grid,
    read_slide_mask,
    stage_of_mask,
    truth_file,
)
from elsewhere.scoring.slides.evaluator import SlideEvaluator, slide_metrics
from elsewhere.scoring.slides.regions import (
    evaluation_mask,
    find_regions,
    largest_feret_px,
    patient_stage,
    stage_of_extent,
)
from elsewhere.scoring.stored import check_stored_points
from elsewhere.scoring.task import Checked, ScoreOptions, Scores, Task, tasks
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.metric import MetricSpec

_KEPT = ("case_id", "patient_id", "exam_id", "dataset", "site")


def worst_stage(truth: str) -> str:
    """Return the worst answer for a slide: a positive one is missed, a negative one called macro (ST-14).

    Args:
        truth: The true stage: negative, itc, micro or macro.

    Returns:
        'negative' or 'macro'.

    Example:
        >>> worst_stage("micro"), worst_stage("itc")
        ('negative', 'macro')
    """
    return "negative" if truth in ("macro", "micro") else "macro"


def worst_patient_stage(truth: str) -> str:
    """Return the pN stage farthest from the truth, which costs quadratic kappa the most.

    Args:
        truth: The true pN stage.

    Returns:
        The first or the last pN stage.

    Example:
        >>> worst_patient_stage("pN0"), worst_patient_stage("pN2")
        ('pN2', 'pN0')
    """
    return PATIENT_STAGES[-1] if PATIENT_STAGES.index(truth) <= 2 else PATIENT_STAGES[0]


_NOWHERE = -1e9
"""A place outside every slide."""


class SlideTask(Task):
    """Metastases in slides: a case is a slide, and the cluster is the patient."""

    name = "slides"
    title = "Metastases in slides"
    units = "slides"
    target = "stage"
    answer_kind = "slides"
    case_columns = ()

    def case_cost(self, scores: Scores) -> npt.NDArray[np.float64] | None:
        """Mark the slides of which the stage is wrong with 1.

        Args:
            scores: The scores.

        Returns:
            1 for each slide with a wrong stage, NaN for the others; None where the scores have no stages.
        """
        if not {"stage_true", "stage_predicted"} <= set(scores.cases.columns):
            return None
        wrong = scores.cases["stage_true"] != scores.cases["stage_predicted"]
        return np.where(wrong.to_numpy(dtype=bool), 1.0, np.nan)

    def check_stored(self, cases: pd.DataFrame, events: pd.DataFrame | None, *, where: str) -> None:
        """Check that the points of a slide have a kind, a score and a slide of the scores.

        Args:
            cases: The stored table of scores.
            events: The stored table of events, where the task writes one.
            where: The folder of the result.

        Raises:
            UserError: A value that the task reads is not what it may be.
        """
        if events is not None:
            check_stored_points(cases, events, where=where)

    def metrics(self, protocol: Protocol) -> tuple[MetricSpec, ...]:
        return slide_metrics()

    def score(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Scores:
        rules = protocol.slides
        cases = self._base(cohort, options)
        table = predictions.table
        is_patient_row = (
            table["stage"].isin(PATIENT_STAGES)
            if "stage" in table.columns
            else pd.Series(False, index=table.index)
        )
        node_rows, patient_rows = table[~is_patient_row], table[is_patient_row]
        warnings: list[str] = list(predictions.warnings)
        flow: list[dict[str, Any]] = [dict(one) for one in predictions.flow]
        if len(patient_rows):
            why = "they are of patients: see below"
            flow.append(
                {"step": "rows of slides", "n": len(node_rows), "lost": len(patient_rows), "why": why}
            )
        extra = 0
        status = np.full(len(cases), "scored", dtype=object)
        events: pd.DataFrame | None = None
        if "stage" in table.columns and len(node_rows):
            join = join_by_id(
                cases["case_id"],
                node_rows["case_id"],
                normalise=options.normalise_ids,
                source=predictions.source,
            )
            flow += join.of_predictions
            warnings += list(join.warnings)
            extra = len(join.extra)
            said = node_rows["stage"].to_numpy(dtype=object)
            picked = [said[row] if row >= 0 else None for row in join.row_of_case]
            status[join.row_of_case < 0] = "missing"
            status[
                [row >= 0 and stage is None for row, stage in zip(join.row_of_case, picked, strict=True)]
            ] = "invalid"
            cases["stage_predicted"] = picked
        elif "path" in table.columns:
            join = join_by_id(
                cases["case_id"], table["case_id"], normalise=options.normalise_ids, source=predictions.source
            )
            flow += join.of_predictions
            warnings += list(join.warnings)
            extra = len(join.extra)
            status[join.row_of_case < 0] = "missing"
            self._from_masks(cohort, cases, table, join.row_of_case, status, rules, options)
        elif predictions.points is not None:
            ids = predictions.points["case_id"].astype("string").unique()
            join = join_by_id(
                cases["case_id"],
                ids,
                normalise=options.normalise_ids,
                source=predictions.source,
                what="slide",
            )
            flow = [{**one, "of": "points"} for one in flow]
            flow += [{**one, "of": "slides"} for one in join.of_predictions]
            warnings += list(join.warnings)
            extra = len(join.extra)
            own_id = {
                str(case): str(ids[row])
                for case, row in zip(cases["case_id"], join.row_of_case, strict=True)
                if row >= 0
            }
            events = self._from_points(cohort, cases, predictions.points, own_id, status, rules)
        if len(patient_rows):
            said_of = dict(zip(patient_rows["case_id"], patient_rows["stage"], strict=True))
            cases["patient_stage_predicted"] = [said_of.get(p) for p in cases["patient_id"]]
            unknown = len(set(said_of) - set(cases["patient_id"]))
            extra += unknown
            why = "no such patient in the cohort: ignored"
            flow.append(step("patient stages in the file", len(said_of), of="patients"))
            flow.append(
                step(
                    "patient stages of the cohort",
                    len(said_of) - unknown,
                    of="patients",
                    lost=unknown,
                    why=why,
                )
            )
        cases["status"] = status
        return self._finish(cases, events, protocol, extra=extra, flow=flow, warnings=warnings)

    def has_truth(self, cohort: Cohort) -> bool:
        """Check whether the cohort has stages, patient stages or masks.

        Args:
            cohort: The cohort.

        Returns:
            True where one of these columns is there.
        """
        return any(name in cohort.cases.columns for name in ("stage", "patient_stage", "mask"))

    def check_files(self, predictions: Predictions, cohort: Cohort | None, options: ScoreOptions) -> Checked:
        """Read every mask by itself; stages and points are in the table, which was read before.

        Args:
            predictions: The predictions.
            cohort: The cohort, for example for the grids of its images; None where there is none.
            options: What the user set besides the protocol.

        Returns:
            Errors and warnings; nothing where the predictions have no masks.
        """
        if "path" not in predictions.table.columns:
            return Checked()
        errors = []
        for path in predictions.table["path"]:
            try:
                read_slide_mask(Path(str(path)))
            except UserError as error:
                errors.append(error)
        notes = ("without the truth, each mask was read by itself",)
        if options.on_invalid == "worst":
            remark = f"{len(errors)} masks are invalid and scored worst: {errors[0].what}." if errors else ""
            return Checked(warnings=(remark,) if remark else (), notes=notes)
        return Checked(errors=tuple(errors), notes=notes)

    def from_table(
        self,
        cohort: Cohort,
        table: pd.DataFrame,
        events: pd.DataFrame | None,
        protocol: Protocol,
        options: ScoreOptions,
    ) -> Scores:
        cases = self._base(cohort, options)
        join = join_by_id(cases["case_id"], table["case_id"].astype("string"), source="scores table")
        status = np.where(join.row_of_case < 0, "missing", "scored").astype(object)
        for column in (
            "stage_predicted",
            "patient_stage_predicted",
            "slide_dice",
            "slide_false_positive_rate",
            "status",
        ):
            if column in table.columns:
                values = table[column].to_numpy(dtype=object)
                got = [values[row] if row >= 0 else None for row in join.row_of_case]
                if column == "status":
                    status = np.array(["missing" if v is None else v for v in got], dtype=object)
                else:
                    cases[column] = got
        for column in ("n_lesions", "n_itc_regions"):
            if column in table.columns:
                values = table[column].to_numpy()
                cases[column] = [int(values[row]) if row >= 0 else 0 for row in join.row_of_case]
        cases["status"] = status
        return self._finish(
            cases,
            events,
            protocol,
            extra=len(join.extra),
            flow=join.of_predictions,
            warnings=list(join.warnings),
        )

    def _base(self, cohort: Cohort, options: ScoreOptions) -> pd.DataFrame:
        source = cohort.cases
        wanted = [c for c in dict.fromkeys((*_KEPT, *options.group_by)) if c in source.columns]
        cases = source[wanted].reset_index(drop=True).copy()
        if "patient_id" not in cases.columns:
            cases["patient_id"] = cases["case_id"]
        if "stage" in source.columns:
            cases["stage_true"] = _stage_column(source["stage"], STAGES, column="stage")
        if "patient_stage" in source.columns:
            cases["patient_stage_true"] = _stage_column(
                source["patient_stage"], PATIENT_STAGES, column="patient_stage"
            )
        return cases

    def _from_masks(
        self,
        cohort: Cohort,
        cases: pd.DataFrame,
        table: pd.DataFrame,
        row_of_case: npt.NDArray[np.int64],
        status: npt.NDArray[np.object_],
        rules: SlideRules,
        options: ScoreOptions,
    ) -> None:
        pixel_um = mask_pixel_um(cohort)
        truths = cohort.cases["mask"].to_numpy(dtype=object) if "mask" in cohort.cases.columns else None
        known_stage = cases["stage_true"].to_list() if "stage_true" in cases.columns else None
        predicted: list[str | None] = []
        numbers: dict[str, list[float]] = {
            name: []
            for name in ("largest_axis_mm", "largest_feret_mm", "slide_dice", "slide_false_positive_rate")
        }
        for i, row in enumerate(row_of_case):
            if options.progress:
                options.progress(i, len(row_of_case))
            has_truth = truths is not None and isinstance(truths[i], str) and truths[i] != ""
            truth = (
                read_slide_mask(truth_file(cohort, str(truths[i])))
                if truths is not None and has_truth
                else None
            )
            mask = None
            if row >= 0:
                try:
                    mask = read_on_grid(Path(str(table["path"].iloc[row])), truth)
                except UserError:
                    if options.on_invalid == "error":
                        raise
                    status[i] = "invalid"
            if truth is None and known_stage is not None and known_stage[i] == "negative":
                truth = np.zeros((1, 1) if mask is None else mask.shape, dtype=bool)
            dice, rate = mask_scores(mask, truth)
            numbers["slide_dice"].append(dice)
            numbers["slide_false_positive_rate"].append(rate)
            if mask is None:
                predicted.append(None)
                numbers["largest_axis_mm"].append(np.nan)
                numbers["largest_feret_mm"].append(np.nan)
                continue
            regions = find_regions(mask)
            axis_mm = float(regions.major_axis_px.max()) * pixel_um[i] / 1000 if regions.count else 0.0
            feret_mm = largest_feret_px(mask) * pixel_um[i] / 1000
            extent_mm = feret_mm if rules.stage_axis == "feret" else axis_mm
            predicted.append(stage_of_extent(extent_mm, rules, any_object=regions.count > 0))
            numbers["largest_axis_mm"].append(axis_mm)
            numbers["largest_feret_mm"].append(feret_mm)
        cases["stage_predicted"] = predicted
        for name, values in numbers.items():
            cases[name] = values
        if "stage_true" not in cases.columns and truths is not None:
            cases["stage_true"] = [
                stage_of_mask(read_slide_mask(truth_file(cohort, str(path))), pixel_um[i], rules)
                for i, path in enumerate(truths)
            ]

    def _from_points(
        self,
        cohort: Cohort,
        cases: pd.DataFrame,
        points: pd.DataFrame,
        own_id: dict[str, str],
        status: npt.NDArray[np.object_],
        rules: SlideRules,
    ) -> pd.DataFrame:
        """Make the events of every slide.

        A slide with a point that is no point (--on-invalid worst) finds nothing: its lesions are missed and
        all its points are false positives, the bad ones at the highest score.
        """
        pixel_um = mask_pixel_um(cohort)
        downsample = mask_downsample(cohort)
        truths = (
            cohort.cases["mask"].to_numpy(dtype=object)
            if "mask" in cohort.cases.columns
            else np.full(len(cases), None)
        )
        by_case = {str(case): group for case, group in points.groupby("case_id", sort=False)}
        highest = float(np.nanmax(points["score"], initial=0.0)) if len(points) else 0.0
        frames: list[pd.DataFrame] = []
        lesions, itc = [], []
        for i, case in enumerate(cases["case_id"]):
            mine = by_case.get(own_id.get(str(case), ""))
            if mine is not None and mine[["x", "y", "score"]].isna().to_numpy().any():
                status[i] = "invalid"
                mine = mine.assign(x=_NOWHERE, y=_NOWHERE, score=mine["score"].fillna(highest))
            path = truths[i]
            if isinstance(path, str) and path:
                truth = evaluation_mask(
                    read_slide_mask(truth_file(cohort, path)), pixel_um=pixel_um[i], rules=rules
                )
                lesions.append(truth.lesions)
                itc.append(int(truth.is_itc.sum()))
                frames.append(point_events(str(case), mine, truth, downsample[i]))
            else:
                lesions.append(0)
                itc.append(0)
                frames.append(point_events(str(case), mine, None, downsample[i]))
        cases["n_lesions"], cases["n_itc_regions"] = lesions, itc
        return pd.concat(frames, ignore_index=True)

    def _finish(
        self,
        cases: pd.DataFrame,
        events: pd.DataFrame | None,
        protocol: Protocol,
        *,
        extra: int,
        flow: Sequence[dict[str, Any]],
        warnings: Sequence[str],
    ) -> Scores:
        rules = protocol.slides
        cases = cases.copy()
        unanswered = cases["status"].isin(["missing", "invalid"]).to_numpy(dtype=bool)
        if "stage_true" in cases.columns and "stage_predicted" in cases.columns:
            cases["stage_answered"] = ~unanswered
            said = cases["stage_predicted"].to_numpy(dtype=object)
            truth = cases["stage_true"].to_numpy(dtype=object)
            cases["stage_predicted"] = [
                worst_stage(t) if lost and isinstance(t, str) else s
                for s, t, lost in zip(said, truth, unanswered, strict=True)
            ]
        if "patient_stage_true" in cases.columns:
            lost = _derive_patient_stages(cases, rules)
            if lost:
                warnings = [
                    *warnings,
                    f"{lost} patients have no predicted stage; each counts as the stage farthest from the truth",
                ]
        known = cases["stage_true"].isin(STAGES).sum() if "stage_true" in cases.columns else 0
        counts = {
            "cases": len(cases),
            "patients": len(cases[["dataset", "patient_id"]].drop_duplicates())
            if "dataset" in cases.columns
            else int(cases["patient_id"].nunique()),
            "scored": int((cases["status"] == "scored").sum()),
            "missing": int((cases["status"] == "missing").sum()),
            "invalid": int((cases["status"] == "invalid").sum()),
            "undefined": int(len(cases) - known) if "stage_true" in cases.columns else 0,
            "without_boxes": 0,
            "extra": extra,
        }
        return Scores(
            task=self.name,
            protocol=protocol,
            cases=cases,
            events=events,
            counts=counts,
            flow=participant_flow(flow, cohort_cases=len(cases), status=cases["status"]),
            warnings=tuple(warnings),
        )

    def partition(self, scores: Scores) -> Clusters:
        positive = (
            scores.cases["stage_true"].isin(["micro", "macro"])
            if "stage_true" in scores.cases.columns
            else None
        )
        return Clusters.from_table(scores.cases, positive=positive)

    def evaluator(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> Evaluator:
        return SlideEvaluator.build(scores.cases, scores.events, partition, scores.protocol.slides)

    def curves(
        self, scores: Scores, partition: Clusters, stream: WeightStream | None, options: ScoreOptions
    ) -> dict[str, Any]:
        """Compute the lesion FROC up to 8 false positives per slide, with a pointwise band over patients.

        Args:
            scores: The scores.
            partition: The clusters that are resampled.
            stream: The weights of the resamples, for the bands; None for curves without bands.
            options: What the user set besides the protocol.

        Returns:
            `froc`; empty where there are no points or no lesions. Without resamples it has no band.
        """
        evaluator = SlideEvaluator.build(scores.cases, scores.events, partition, scores.protocol.slides)
        x = np.linspace(0.0, 8.0, 161)
        y = evaluator.sensitivities(np.ones((1, partition.n_clusters), dtype=np.uint16), x)[0]
        if not evaluator.has_events or np.isnan(y).all():
            return {}
        curve: dict[str, Any] = {"x": x.tolist(), "y": y.tolist(), "lo": None, "hi": None}
        if stream is not None and stream.resamples > 1:
            draws = np.concatenate([evaluator.sensitivities(weights, x) for _, weights in stream])
            known = draws[np.isfinite(draws).all(axis=1)]
            if len(known):
                lo, hi = np.quantile(known, [0.025, 0.975], axis=0)
                curve |= {"lo": lo.tolist(), "hi": hi.tolist()}
        return {"froc": {**curve, "x_label": "False positives a slide", "y_label": "Lesion sensitivity"}}

    def details(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> dict[str, Any]:
        """Compute the four-class and the two-class confusion matrices (LN-15).

        Args:
            scores: The scores.
            partition: The clusters that are resampled.
            options: What the user set besides the protocol.

        Returns:
            `confusion`, with both matrices; empty where the scores have no stages.
        """
        cases = scores.cases
        if not {"stage_true", "stage_predicted"} <= set(cases.columns):
            return {}
        known = cases[cases["stage_true"].isin(STAGES)]
        four = pd.crosstab(
            pd.Categorical(known["stage_true"], STAGES),
            pd.Categorical(known["stage_predicted"], STAGES),
            dropna=False,
        )
        truth = known["stage_true"].isin(["micro", "macro"])
        said = known["stage_predicted"].isin(["micro", "macro"])
        return {
            "confusion": {
                "four_class": {
                    "labels": list(STAGES),
                    "rows_truth_columns_prediction": four.to_numpy().tolist(),
                },
                "two_class": {
                    "labels": ["negative", "positive"],
                    "rows_truth_columns_prediction": [
                        [int((~truth & ~said).sum()), int((~truth & said).sum())],
                        [int((truth & ~said).sum()), int((truth & said).sum())],
                    ],
                },
            }
        }


def _derive_patient_stages(cases: pd.DataFrame, rules: SlideRules) -> int:
    """Set a patient's predicted pN: as submitted, else from the patient's predicted node stages (LN-17).

    Returns how many patients have none, and got the worst.
    """
    first = cases.groupby("patient_id", sort=False)["patient_stage_true"].first().to_dict()
    submitted = "patient_stage_predicted" in cases.columns
    if submitted:
        said = cases.groupby("patient_id", sort=False)["patient_stage_predicted"].first()
    elif "stage_predicted" in cases.columns:
        said = cases.groupby("patient_id", sort=False)["stage_predicted"].agg(
            lambda s: patient_stage(s.to_numpy(dtype=object))
        )
    else:
        return 0
    lost = [
        str(patient)
        for patient, stage in said.items()
        if not isinstance(stage, str) and isinstance(first[patient], str)
    ]
    if lost and rules.missing_patient_is_error:
        raise UserError(
            f"{len(lost)} patients have no predicted stage: {name_rows(lost)}",
            fix="The protocol accepts no submission with a missing patient: add their rows.",
        )
    final = {
        patient: stage
        if isinstance(stage, str)
        else worst_patient_stage(str(first[patient]))
        if isinstance(first[patient], str)
        else None
        for patient, stage in said.items()
    }
    cases["patient_stage_predicted"] = [final[p] for p in cases["patient_id"]]
    return len(lost)


def _stage_column(values: pd.Series, allowed: tuple[str, ...], *, column: str) -> list[str | None]:
    out: list[str | None] = []
    bad: list[int] = []
    for row, value in enumerate(values.astype("string").fillna("").to_numpy(dtype=object), start=1):
        stage = normalise_stage(str(value)) if str(value).strip() else None
        if str(value).strip() and stage not in allowed:
            bad.append(row)
        out.append(stage)
    if bad:
        raise UserError(
            f"'{values.iloc[bad[0] - 1]}' is no {column}",
            where=f"cohort, rows {name_rows(bad)}",
            fix=f"Use one of {', '.join(allowed)}.",
        )
    return out


tasks.add("slides", SlideTask())
