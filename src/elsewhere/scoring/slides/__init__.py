"""Slides: the stage of each, the lesions in it, and the patient's pN stage (LN-14, LN-15, LN-17).

Cohort columns: `stage` (negative, itc, micro, macro), `patient_stage` (pN...), `mask` (a truth mask or outlines), its
`mask_tumour` (the value that means tumour), `tissue_mask`, `microns_per_pixel`, `width_px` and `height_px` (of level 0) and
`mask_downsample` (of a mask file that does not state its scale, against level 0). Positive means macro or micro. Sensitivity and specificity are those of the positive class; the study's
table shows class averages, so these have names of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError, name_rows
from elsewhere.predictions import Predictions, join_by_id
from elsewhere.predictions.slide_masks import SlideGeometry, open_slide_mask
from elsewhere.predictions.slides import mask_reading
from elsewhere.predictions.stages import PATIENT_STAGES, STAGES, normalise_stage
from elsewhere.protocols import Protocol, SlideRules
from elsewhere.scoring.flow import participant_flow, step
from elsewhere.scoring.slides.breakdown import recall_by_diameter, scores_by_stage
from elsewhere.scoring.slides.cases import (
    froc_truth,
    point_events,
    slide_geometries,
    truth_file,
    truth_reading,
)
from elsewhere.scoring.slides.evaluator import SlideEvaluator, slide_metrics
from elsewhere.scoring.slides.from_masks import COUNTED, MEASURED, add_mask_scores, size_class_columns
from elsewhere.scoring.slides.regions import patient_stage
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
            warnings += add_mask_scores(cohort, cases, table, join.row_of_case, status, rules, options)
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
        for _, row in predictions.table.iterrows():
            try:
                with open_slide_mask(
                    str(row["path"]), SlideGeometry(mpp=1.0), reading=mask_reading(row)
                ) as mask:
                    for _strip in mask.strips():
                        pass
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
            *MEASURED,
            "status",
        ):
            if column in table.columns:
                values = table[column].to_numpy(dtype=object)
                got = [values[row] if row >= 0 else None for row in join.row_of_case]
                if column == "status":
                    status = np.array(["missing" if v is None else v for v in got], dtype=object)
                else:
                    cases[column] = got
        by_size = [name for _, *names in size_class_columns(protocol.slides) for name in names]
        for column in ("n_lesions", "n_itc_regions", *COUNTED, *by_size):
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
        geometries = slide_geometries(cohort)
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
                truth, step = froc_truth(
                    truth_file(cohort, path), geometries[i], rules, truth_reading(cohort, i)
                )
                lesions.append(truth.lesions)
                itc.append(int(truth.is_itc.sum()))
                frames.append(point_events(str(case), mine, truth, step))
            else:
                lesions.append(0)
                itc.append(0)
                frames.append(point_events(str(case), mine, None, geometries[i].downsample))
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
        """Compute the four-class and the two-class confusion matrices, and lesion recall by diameter (LN-15, LN-26).

        Args:
            scores: The scores.
            partition: The clusters that are resampled.
            options: What the user set besides the protocol.

        Returns:
            `confusion`, with both matrices, the second without slides that the protocol leaves out, and where masks were
            scored `lesion_recall_by_diameter`, `slide_scores_by_stage` and `boundary_um`; empty where the scores have no
            stages.
        """
        cases = scores.cases
        if not {"stage_true", "stage_predicted"} <= set(cases.columns):
            return {}
        rules = scores.protocol.slides
        known = cases[cases["stage_true"].isin(STAGES)]
        four = pd.crosstab(
            pd.Categorical(known["stage_true"], STAGES),
            pd.Categorical(known["stage_predicted"], STAGES),
            dropna=False,
        )
        known = known if rules.itc == "negative" else known[known["stage_true"] != "itc"]
        truth = known["stage_true"].isin(["micro", "macro"])
        said = known["stage_predicted"].isin(["micro", "macro"])
        found: dict[str, Any] = {
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
        recall = recall_by_diameter(cases, rules, partition)
        if recall:
            found["lesion_recall_by_diameter"] = recall
            found["slide_scores_by_stage"] = scores_by_stage(cases, partition)
            found["boundary_um"] = rules.boundary_um
        return found


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
