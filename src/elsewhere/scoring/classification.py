"""Benign or malignant (US-15 to US-18): one probability per case, compared with the cohort's `label`.

Normal pictures have no lesion to classify: they are left out of the benign/malignant metrics, counted, and
stored (as events) for the question whether the model is less sure of them than of lesions (US-18).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.label_scheme import LESIONS
from elsewhere.errors import UserError
from elsewhere.predictions.scales import ORDINAL_REASON
from elsewhere.protocols import Protocol
from elsewhere.scoring.binary import (
    CLASSIFICATION_METRICS,
    BinaryEvaluator,
    ProbabilityRules,
    binary_spec,
    judge,
)
from elsewhere.scoring.case_table import (
    PROBABILITY_KIND,
    CaseTable,
    check_threshold,
    count_cases,
    join_probabilities,
    predictions_from_scores,
    reversed_warning,
)
from elsewhere.scoring.curves import probability_curves
from elsewhere.scoring.flow import participant_flow
from elsewhere.scoring.labels import Truth, need_truth, read_truth
from elsewhere.scoring.task import ScoreOptions, Scores, StudyMetrics, Task, tasks
from elsewhere.scoring.temperature import FileTemperature, temperature_from_file
from elsewhere.statistics.auroc import auroc_interval
from elsewhere.statistics.calibration import apply_temperature
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.metric import MetricSpec

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions import Predictions

CLASS_NAMES = ("benign", "malignant")
CALIBRATED = "probability_calibrated"


class ClassificationTask(Task):
    """Benign or malignant: a case is a picture or an exam, and the cluster is the patient."""

    name = "classification"
    title = "Classification"
    target = "label"
    truth_column = "label"
    label_scheme = LESIONS
    stored_columns = ("label", "probability")
    study_metrics = StudyMetrics(
        main="auroc",
        shown=("auroc", "balanced_accuracy", "sensitivity", "specificity"),
        paired=("auroc", "balanced_accuracy"),
        grouped=("auroc", "balanced_accuracy", "sensitivity", "specificity"),
    )

    def metrics(self, protocol: Protocol) -> tuple[MetricSpec, ...]:
        epsilon = protocol.classification.nll_epsilon
        return tuple(
            binary_spec(name, nll_epsilon=epsilon, primary=name == "auroc") for name in CLASSIFICATION_METRICS
        )

    def score(
        self, cohort: Cohort, predictions: Predictions, protocol: Protocol, options: ScoreOptions
    ) -> Scores:
        truth = read_truth(cohort.cases, "label")
        need_truth(truth.label, column="label", names=CLASS_NAMES, truth=truth)
        joined = join_probabilities(
            cohort, predictions, group_by=options.group_by, normalise_ids=options.normalise_ids
        )
        temperature = None
        if options.calibrate_on is not None:
            if PROBABILITY_KIND in joined.cases.columns:
                raise UserError(
                    "--calibrate-on with BI-RADS categories",
                    fix=f"Leave it out: {ORDINAL_REASON}.",
                )
            temperature = temperature_from_file(
                options.calibrate_on,
                rules=protocol.classification,
                cohort_ids=joined.cases["case_id"],
                read=options.read,
            )
            calibrated = apply_temperature(
                joined.cases["probability"].to_numpy(),
                temperature.value,
                epsilon=protocol.classification.nll_epsilon,
            )
            joined = _replace_cases(joined, joined.cases.assign(**{CALIBRATED: calibrated}))
        return _finish(joined, truth, protocol, options, temperature)

    def from_table(
        self,
        cohort: Cohort,
        table: pd.DataFrame,
        events: pd.DataFrame | None,
        protocol: Protocol,
        options: ScoreOptions,
    ) -> Scores:
        """Score a table; normals come from `events`, and a column `probability_calibrated` stays as it is.

        Args:
            cohort: The cohort.
            table: One row per case, with the columns that the task stores.
            events: The stored events, where the task has any.
            protocol: The rules.
            options: What the user set besides the protocol.

        Returns:
            The scores.

        Raises:
            UserError: The table is not what the task needs.
        """
        pieces = [table]
        if events is not None and {"case_id", "probability", "kind"} <= set(events.columns):
            pieces.append(events[events["kind"] == "normal"])
        both = pd.concat(pieces, ignore_index=True)
        predictions = predictions_from_scores(both)
        if options.calibrate_on is not None or CALIBRATED not in table.columns:
            return self.score(cohort, predictions, protocol, options)
        truth = read_truth(cohort.cases, "label")
        need_truth(truth.label, column="label", names=CLASS_NAMES, truth=truth)
        joined = join_probabilities(
            cohort, predictions, group_by=options.group_by, normalise_ids=options.normalise_ids
        )
        value_of = dict(zip(table["case_id"].astype("string"), table[CALIBRATED], strict=True))
        column = joined.cases["case_id"].astype("string").map(value_of).astype("float64")
        column = column.where(joined.cases["status"] == "scored")
        return _finish(
            _replace_cases(joined, joined.cases.assign(**{CALIBRATED: column})),
            truth,
            protocol,
            options,
            None,
        )

    def partition(self, scores: Scores) -> Clusters:
        return Clusters.from_table(scores.cases, positive=scores.cases["label"].to_numpy(dtype=float))

    def evaluator(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> BinaryEvaluator:
        cases, rules = scores.cases, scores.protocol.classification
        return BinaryEvaluator(
            label=cases["label"].to_numpy(dtype=np.int8),
            probability=cases["probability"].to_numpy(dtype=np.float64),
            calibrated=cases[CALIBRATED].to_numpy(dtype=np.float64) if CALIBRATED in cases.columns else None,
            cluster_of_case=partition.cluster_of_case,
            n_clusters=partition.n_clusters,
            rules=ProbabilityRules(
                threshold=_threshold(scores.protocol, options),
                bins=rules.bins,
                nll_epsilon=rules.nll_epsilon,
                ordinal_reason=ORDINAL_REASON if _is_ordinal(cases) else None,
                class_names=CLASS_NAMES,
            ),
        )

    def curves(
        self, scores: Scores, partition: Clusters, stream: Any, options: ScoreOptions
    ) -> dict[str, Any]:
        return probability_curves(
            self.evaluator(scores, partition, options),
            stream,
            answered=(scores.cases["status"] == "scored").to_numpy(dtype=bool),
            level=scores.protocol.interval.level,
            threads=options.threads,
        )

    def details(self, scores: Scores, partition: Clusters, options: ScoreOptions) -> dict[str, Any]:
        cases = scores.cases
        decided = judge(
            cases["label"], cases["probability"], threshold=_threshold(scores.protocol, options)
        ).decision
        truth = cases["label"].to_numpy(dtype=int) == 1
        out: dict[str, Any] = {
            "threshold": _threshold(scores.protocol, options),
            "confusion": {
                "true_positives": int((truth & decided).sum()),
                "false_negatives": int((truth & ~decided).sum()),
                "false_positives": int((~truth & decided).sum()),
                "true_negatives": int((~truth & ~decided).sum()),
            },
            "auprc_trapezoid": _trapezoid(scores, partition),
            "lesion_against_normal": lesion_against_normal(scores),
        }
        if "temperature" in scores.extras:
            out["temperature"] = scores.extras["temperature"]
        return out


def _trapezoid(scores: Scores, partition: Clusters) -> float | None:
    """Compute the other AUPRC, for comparisons with results that use it; `auprc` is average precision."""
    value = BinaryEvaluator(
        label=scores.cases["label"],
        probability=scores.cases["probability"],
        cluster_of_case=partition.cluster_of_case,
        n_clusters=partition.n_clusters,
        metrics=("auprc_trapezoid",),
    ).values()["auprc_trapezoid"]
    return value if np.isfinite(value) else None


def _replace_cases(joined: CaseTable, cases: pd.DataFrame) -> CaseTable:
    return replace(joined, cases=cases)


def _is_ordinal(cases: pd.DataFrame) -> bool:
    return PROBABILITY_KIND in cases.columns and bool((cases[PROBABILITY_KIND] == "ordinal").any())


def _threshold(protocol: Protocol, options: ScoreOptions) -> float:
    return check_threshold(
        protocol.classification.threshold if options.threshold is None else options.threshold
    )


def _finish(
    joined: CaseTable,
    truth: Truth,
    protocol: Protocol,
    options: ScoreOptions,
    temperature: FileTemperature | None,
) -> Scores:
    lesion = truth.label >= 0
    cases = joined.cases[lesion].reset_index(drop=True)
    label = truth.label[lesion]
    cases["label"] = label
    judged = judge(label, cases["probability"], nll_epsilon=protocol.classification.nll_epsilon)
    if not _is_ordinal(cases):
        cases["nll"], cases["brier"] = judged.nll, judged.brier
    warnings = [*joined.warnings, *need_truth(truth.label, column="label", names=CLASS_NAMES, truth=truth)]
    left_out: list[tuple[str, int, str]] = []
    n_normal = int(truth.normal.sum())
    if n_normal or truth.n_others:
        why = [f"{n_normal} normal"] if n_normal else []
        why += [f"{truth.n_others} with another label: {truth.others_text()}"] if truth.n_others else []
        left_out.append(("cohort cases labelled benign or malignant", int((~lesion).sum()), "; ".join(why)))
    if truth.n_others:
        warnings.append(
            f"{truth.n_others} cases have another label and were left out: {truth.others_text()}."
        )
    counts = count_cases(cases, label, n_extra=joined.n_extra)
    counts |= {"normals": n_normal, "left_out": truth.n_others}
    turned = reversed_warning(label, cases)
    if turned:
        warnings.append(turned)
    extras: dict[str, Any] = {"threshold": _threshold(protocol, options), **joined.extras}
    if temperature is not None:
        extras["temperature"] = temperature.to_dict()
        warnings += temperature.warnings()
    events = None
    if n_normal:
        kept = [
            c
            for c in ("case_id", "patient_id", "dataset", "site", "status", "probability")
            if c in joined.cases
        ]
        events = joined.cases.loc[truth.normal, kept].reset_index(drop=True).assign(kind="normal")
    return Scores(
        task="classification",
        protocol=protocol,
        cases=cases,
        events=events,
        counts=counts,
        flow=participant_flow(
            joined.flow, cohort_cases=len(joined.cases), status=cases["status"], left_out=left_out
        ),
        warnings=tuple(warnings),
        extras=extras,
    )


def lesion_against_normal(scores: Scores) -> dict[str, Any]:
    """Measure whether the model is less sure of normal pictures than of lesions (US-18).

    Uncertainty is 1 - max probability. Normal is the positive class, probabilities are raw, and cases without
    an answer are left out and counted. With fewer normals than the protocol asks for, the result is
    unavailable.

    Args:
        scores: The scores, whose events are the normal pictures.

    Returns:
        `available` and the counts; where available AUROC with its interval and AUPRC, else the reason.
    """
    need = scores.protocol.classification.normal_min_cases
    normals = scores.events
    if normals is None or not len(normals):
        return {"available": False, "reason": "the cohort has no normal picture", "normals": 0}
    answered = np.isfinite(normals["probability"].to_numpy(dtype=float))
    if int(answered.sum()) < need:
        reason = f"{int(answered.sum())} answered normal pictures; {need} are needed"
        return {"available": False, "reason": reason, "normals": int(answered.sum())}
    if _is_ordinal(scores.cases):
        return {"available": False, "reason": ORDINAL_REASON, "normals": int(answered.sum())}
    told = np.isfinite(scores.cases["probability"].to_numpy(dtype=float))
    both = pd.concat([scores.cases[told], normals[answered]], ignore_index=True)
    is_normal = np.concatenate([np.zeros(int(told.sum())), np.ones(int(answered.sum()))]).astype(np.int8)
    p = both["probability"].to_numpy(dtype=np.float64)
    uncertainty = 1.0 - np.maximum(p, 1.0 - p)
    partition = Clusters.from_table(both)
    values = BinaryEvaluator(
        label=is_normal,
        probability=uncertainty,
        cluster_of_case=partition.cluster_of_case,
        n_clusters=partition.n_clusters,
        metrics=("auroc", "auprc"),
    ).values()
    out: dict[str, Any] = {
        "available": True,
        "normals": int(answered.sum()),
        "lesions": int(told.sum()),
        "without_answer": int((~told).sum() + (~answered).sum()),
        "auroc": values["auroc"],
        "auprc": values["auprc"],
        "positive_class": "normal",
        "score": "1 - max probability, raw",
    }
    interval = auroc_interval(
        is_normal, uncertainty, partition.cluster_of_case, n_clusters=partition.n_clusters
    )
    if interval is not None:
        out |= {"auroc_lo": interval.lo, "auroc_hi": interval.hi, "auroc_method": interval.method}
    shared = _shared_patients(partition.cluster_of_case, is_normal)
    if shared:
        out["shared_patients"] = shared
        out["warning"] = (
            f"{shared} patients have both lesion and normal pictures: the two groups are not independent."
        )
    return out


def _shared_patients(cluster: npt.NDArray[np.int32], is_normal: npt.NDArray[np.int8]) -> int:
    return int(np.intersect1d(cluster[is_normal == 1], cluster[is_normal == 0]).size)


tasks.add("classification", ClassificationTask())
