"""The slide metrics as a function of patient weights: confusion counts, pN counts and lesion events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.predictions.stages import PATIENT_STAGES, STAGES
from elsewhere.protocols import SlideRules
from elsewhere.scoring.slides.froc import slide_froc
from elsewhere.statistics.accumulators import shared_ranks
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

_POSITIVE = np.array([False, False, True, True])
_ITC = STAGES.index("itc")


def slide_metrics() -> tuple[MetricSpec, ...]:
    """List the slide metrics: both averages of LN-15 under their own names; `f1_macro` is over both classes.

    Returns:
        The specifications, in the order of the report.
    """

    def spec(
        name: str, label: str, kind: MetricKind, interval: IntervalMethod, *, up: bool = True, **more: Any
    ) -> MetricSpec:
        return MetricSpec(name=name, label=label, higher_is_better=up, kind=kind, interval=interval, **more)

    wilson, bca, share, ratio = (
        IntervalMethod.WILSON,
        IntervalMethod.BCA,
        MetricKind.PROPORTION,
        MetricKind.RATIO,
    )
    return (
        spec(
            "stage_accuracy",
            "Stage accuracy (four stages)",
            share,
            wilson,
            primary=True,
            moves_with_prevalence=True,
        ),
        spec("positive_sensitivity", "Sensitivity, macro or micro", share, wilson, stratify_by_class=True),
        spec("positive_specificity", "Specificity, ITC or negative", share, wilson, stratify_by_class=True),
        spec("positive_precision", "Precision, macro or micro", share, wilson, moves_with_prevalence=True),
        spec("positive_f1", "F1, macro or micro", ratio, bca, moves_with_prevalence=True),
        spec("f1_macro", "F1, mean over positive and negative", ratio, bca, moves_with_prevalence=True),
        spec(
            "sensitivity_class_averaged",
            "Recall, mean over positive and negative",
            ratio,
            bca,
            stratify_by_class=True,
        ),
        spec(
            "precision_class_averaged",
            "Precision, mean over both classes",
            ratio,
            bca,
            moves_with_prevalence=True,
        ),
        spec("slide_dice", "Dice of slides with tumour", MetricKind.MEAN, IntervalMethod.CLUSTERED_T),
        spec(
            "slide_false_positive_rate",
            "False-positive rate of negative slides",
            MetricKind.MEAN,
            IntervalMethod.BOOTSTRAP_T,
            up=False,
            worst=1.0,
            skewed=True,
        ),
        spec(
            "slide_false_positive_rate_tissue",
            "False-positive rate of negative slides, over tissue",
            MetricKind.MEAN,
            IntervalMethod.BOOTSTRAP_T,
            up=False,
            worst=1.0,
            skewed=True,
        ),
        spec(
            "slide_dice_within_line",
            "Dice near the annotated line",
            MetricKind.MEAN,
            IntervalMethod.CLUSTERED_T,
        ),
        spec(
            "slide_dice_beyond_line",
            "Dice away from the annotated line",
            MetricKind.MEAN,
            IntervalMethod.CLUSTERED_T,
        ),
        spec("mask_lesion_recall", "Lesions that the mask finds", ratio, bca),
        spec(
            "froc_score",
            "Lesion FROC score (mean at 1/4 to 8)",
            MetricKind.CURVE,
            IntervalMethod.PERCENTILE,
            rank_based=True,
        ),
        spec(
            "pn_kappa",
            "Patient pN stage, quadratic kappa",
            MetricKind.COMPOSITE,
            IntervalMethod.PERCENTILE,
            lower_bound=-1.0,
            worst=-1.0,
            moves_with_prevalence=True,
        ),
    )


_MEANS = {
    "slide_dice": "dice",
    "slide_false_positive_rate": "rate",
    "slide_false_positive_rate_tissue": "tissue_rate",
    "slide_dice_within_line": "within",
    "slide_dice_beyond_line": "beyond",
}
"""Metrics that are the mean of a value over slides, and the value."""
_RATES = {
    "positive_sensitivity": "sensitivity",
    "positive_specificity": "specificity",
    "positive_precision": "precision",
    "positive_f1": "f1",
    "f1_macro": "f1_mean",
    "sensitivity_class_averaged": "recall_mean",
    "precision_class_averaged": "precision_mean",
}
_NAMES = tuple(spec.name for spec in slide_metrics())


def class_averages(
    tp: npt.ArrayLike, fn: npt.ArrayLike, fp: npt.ArrayLike, tn: npt.ArrayLike
) -> dict[str, FloatArray]:
    """Compute the rates of a two-class confusion matrix, and their means over both classes (LN-15).

    Args:
        tp: Positive slides called positive; counts, or sums of weights.
        fn: Positive slides called negative.
        fp: Negative slides called positive.
        tn: Negative slides called negative.

    Returns:
        `sensitivity`, `specificity`, `precision` and `f1` of the positive class, and `recall_mean`, `precision_mean` and
        `f1_mean` over both; NaN where a denominator is 0.

    Example:
        >>> rates = class_averages(95.4, 9.6, 41.6, 68.4)
        >>> round(float(rates["precision_mean"]), 3), round(float(rates["f1_mean"]), 3)
        (0.787, 0.758)
    """
    tp, fn, fp, tn = (np.asarray(value, dtype=np.float64) for value in (tp, fn, fp, tn))
    with np.errstate(invalid="ignore", divide="ignore"):
        sensitivity, specificity = tp / (tp + fn), tn / (tn + fp)
        precision, negative_precision = tp / (tp + fp), tn / (tn + fn)
        f1, negative_f1 = 2 * tp / (2 * tp + fp + fn), 2 * tn / (2 * tn + fp + fn)
        return {
            "sensitivity": sensitivity,
            "specificity": specificity,
            "precision": precision,
            "f1": f1,
            "f1_mean": (f1 + negative_f1) / 2,
            "recall_mean": (sensitivity + specificity) / 2,
            "precision_mean": (precision + negative_precision) / 2,
        }


@dataclass(frozen=True)
class _Cases:
    """Case arrays; -1 where a stage is unknown, NaN where a value is."""

    cluster: npt.NDArray[np.int32]
    truth: npt.NDArray[np.int8]
    said: npt.NDArray[np.int8]
    dice: FloatArray
    rate: FloatArray
    tissue_rate: FloatArray
    within: FloatArray
    beyond: FloatArray
    in_mask: npt.NDArray[np.int64]
    in_mask_found: npt.NDArray[np.int64]
    slides: npt.NDArray[np.int64]
    lesions: npt.NDArray[np.int64]
    zeros: npt.NDArray[np.int64]
    pn_truth: npt.NDArray[np.int8]
    pn_said: npt.NDArray[np.int8]
    is_first_of_patient: npt.NDArray[np.bool_]

    def pick(self, index: npt.NDArray[np.intp]) -> _Cases:
        return _Cases(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class _Events:
    """False positives and best hits of lesions: the number of the case, the score, and whether it is a hit."""

    case: npt.NDArray[np.int64]
    score: FloatArray
    hit: npt.NDArray[np.bool_]


def _entering_scores(events: _Events) -> FloatArray:
    """Return the threshold at which each event enters the published script's curve.

    The script stores hits in single precision and compares them so: a hit rounded down enters together with a
    false positive of the same score, a hit rounded up before it.
    """
    single, which = np.unique(events.score.astype(np.float32), return_inverse=True)
    highest = np.full(single.size, -np.inf)
    np.maximum.at(highest, which[~events.hit], events.score[~events.hit])
    return np.where(events.hit, np.maximum(events.score, highest[which]), events.score)


class SlideEvaluator(Evaluator):
    """The metrics of `slide_metrics` from weighted confusion counts and sorted lesion events.

    `SlideEvaluator.build` makes one from a case table.

    Args:
        cases: Codes of stages and values of each case.
        events: False positives and best hits of lesions.
        n_clusters: How many patients there are.
        rules: The protocol's rules of slides.
        has_events: Whether points were submitted; without them `froc_score` is undefined.
    """

    def __init__(
        self, cases: _Cases, events: _Events, n_clusters: int, rules: SlideRules, *, has_events: bool
    ) -> None:
        self.specs = slide_metrics()
        self.cluster_of_case = cases.cluster
        self.n_clusters = n_clusters
        self._cases, self._events, self._rules, self._has_events = cases, events, rules, has_events
        self._negative = ~_POSITIVE & (np.arange(len(STAGES)) != _ITC if rules.itc == "left-out" else True)
        c = cases
        self._stage_counts = _count_pairs(c.cluster, c.truth, c.said, n_clusters, len(STAGES))
        first = c.is_first_of_patient
        self._pn_counts = _count_pairs(
            c.cluster[first], c.pn_truth[first], c.pn_said[first], n_clusters, len(PATIENT_STAGES)
        )
        self._sums = np.stack(
            [
                np.bincount(
                    c.cluster,
                    np.nan_to_num(values) if part == "sum" else np.isfinite(values),
                    minlength=n_clusters,
                )
                for values in (getattr(c, name) for name in _MEANS.values())
                for part in ("sum", "count")
            ],
            axis=1,
        ).astype(float)
        self._found = np.stack(
            [np.bincount(c.cluster, values, minlength=n_clusters) for values in (c.in_mask_found, c.in_mask)],
            axis=1,
        ).astype(float)
        self._slides = np.bincount(c.cluster, c.slides, minlength=n_clusters).astype(np.int64)
        self._lesions = np.bincount(c.cluster, c.lesions, minlength=n_clusters).astype(np.int64)
        self._zeros = np.bincount(c.cluster, c.zeros, minlength=n_clusters).astype(np.int64)
        entering = _entering_scores(events) if rules.froc_missed_as_zero else events.score
        order = np.argsort(-entering, kind="stable")
        self._event_cluster = (
            c.cluster[events.case[order]] if events.case.size else np.zeros(0, dtype=np.int32)
        )
        self._event_score, self._event_hit = entering[order], events.hit[order]
        self._event_listed = events.score[order]

    @classmethod
    def build(
        cls, cases: pd.DataFrame, events: pd.DataFrame | None, partition: Clusters, rules: SlideRules
    ) -> SlideEvaluator:
        """Make the evaluator from a case table and its events.

        Args:
            cases: The case table.
            events: The events of lesions; None where no points were submitted.
            partition: The clusters of the cases.
            rules: The protocol's rules of slides.

        Returns:
            The evaluator.
        """
        n = len(cases)
        cluster = partition.cluster_of_case
        _, first_index = np.unique(cluster, return_index=True)
        first = np.zeros(n, dtype=bool)
        first[first_index] = True
        lesions = _int_column(cases, "n_lesions")
        case_number = {str(case): i for i, case in enumerate(cases["case_id"])}
        hits = np.zeros(n, dtype=np.int64)
        chosen = _Events(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=bool))
        if events is not None:
            used = events[events["kind"].isin(["tp", "fp"])]
            owner = np.array([case_number[str(case)] for case in used["case_id"]], dtype=np.int64)
            is_hit = (used["kind"] == "tp").to_numpy(dtype=bool)
            score = used["score"].to_numpy(dtype=float)
            if rules.froc_missed_as_zero:
                score = np.where(is_hit, score.astype(np.float32).astype(float), score)
            chosen = _Events(owner, score, is_hit)
            hits = np.bincount(owner[is_hit], minlength=n).astype(np.int64) if owner.size else hits
        zeros = (
            lesions - hits + _int_column(cases, "n_itc_regions")
            if rules.froc_missed_as_zero
            else np.zeros(n, dtype=np.int64)
        )
        arrays = _Cases(
            cluster=cluster,
            truth=_codes(cases, "stage_true", STAGES),
            said=_codes(cases, "stage_predicted", STAGES),
            dice=_float_column(cases, "slide_dice"),
            rate=_float_column(cases, "slide_false_positive_rate"),
            tissue_rate=_float_column(cases, "slide_false_positive_rate_tissue"),
            within=_float_column(cases, "slide_dice_within_line"),
            beyond=_float_column(cases, "slide_dice_beyond_line"),
            in_mask=_int_column(cases, "n_mask_lesions"),
            in_mask_found=_int_column(cases, "n_mask_lesions_found"),
            slides=np.ones(n, dtype=np.int64),
            lesions=lesions,
            zeros=zeros,
            pn_truth=_codes(cases, "patient_stage_true", PATIENT_STAGES),
            pn_said=_codes(cases, "patient_stage_predicted", PATIENT_STAGES),
            is_first_of_patient=first,
        )
        return cls(arrays, chosen, partition.n_clusters, rules, has_events=events is not None)

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        w = weights.astype(np.float64)
        counts = (w @ self._stage_counts).reshape(-1, len(STAGES), len(STAGES))
        made: dict[str, FloatArray] = {}
        with np.errstate(invalid="ignore", divide="ignore"):
            total = counts.sum(axis=(1, 2))
            made["stage_accuracy"] = np.trace(counts, axis1=1, axis2=2) / total
            sums, found = w @ self._sums, w @ self._found
            for k, name in enumerate(_MEANS):
                made[name] = sums[:, 2 * k] / sums[:, 2 * k + 1]
            made["mask_lesion_recall"] = found[:, 0] / found[:, 1]
        positive, negative = _POSITIVE, self._negative
        rates = class_averages(
            counts[:, positive][:, :, positive].sum(axis=(1, 2)),
            counts[:, positive][:, :, ~positive].sum(axis=(1, 2)),
            counts[:, negative][:, :, positive].sum(axis=(1, 2)),
            counts[:, negative][:, :, ~positive].sum(axis=(1, 2)),
        )
        made |= {metric: rates[rate] for metric, rate in _RATES.items()}
        if self._has_events:
            made["froc_score"] = self.sensitivities(weights, self._rules.froc_points).mean(axis=1)
        made["pn_kappa"] = quadratic_kappa(
            (w @ self._pn_counts).reshape(-1, len(PATIENT_STAGES), len(PATIENT_STAGES))
        )
        unknown = np.full(len(w), np.nan)
        return np.stack([made.get(name, unknown) for name in _NAMES], axis=1)

    def sensitivities(self, weights: npt.NDArray[np.uint16], points: npt.ArrayLike) -> FloatArray:
        """Read the lesion FROC at rates of false positives.

        Args:
            weights: Integer weights of the patients, (rows, patients).
            points: False positives per slide, rising.

        Returns:
            (rows, points): the sensitivity at each rate; NaN without a countable lesion.
        """
        at_fp = np.asarray(points, dtype=np.float64)
        out = np.empty((len(weights), at_fp.size))
        slide_froc(
            np.ascontiguousarray(weights, dtype=np.uint16),
            self._event_cluster,
            self._event_score,
            self._event_listed,
            self._event_hit,
            self._slides,
            self._lesions,
            self._zeros,
            at_fp,
            self._rules.froc_drop_lowest_threshold,
            out,
        )
        return out

    @property
    def has_events(self) -> bool:
        """Whether points were submitted."""
        return self._has_events

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> SlideEvaluator:
        index = np.flatnonzero(case_mask)
        number = np.full(case_mask.size, -1, dtype=np.int64)
        number[index] = np.arange(index.size)
        kept = number[self._events.case] >= 0
        events = _Events(number[self._events.case[kept]], self._events.score[kept], self._events.hit[kept])
        cases = self._cases.pick(index)
        first = np.zeros(index.size, dtype=bool)
        first[np.unique(cases.cluster, return_index=True)[1]] = True
        cases = replace(cases, is_first_of_patient=first)
        return SlideEvaluator(cases, events, self.n_clusters, self._rules, has_events=self._has_events)

    def stack(self, other: Evaluator) -> SlideEvaluator:
        if not isinstance(other, SlideEvaluator):
            raise TypeError("two slide evaluators are needed")
        mine, theirs = (
            self._cases,
            replace(other._cases, cluster=(other._cases.cluster + self.n_clusters).astype(np.int32)),
        )
        both = _Cases(
            *(np.concatenate([getattr(mine, f), getattr(theirs, f)]) for f in mine.__dataclass_fields__)
        )
        events = _Events(
            np.concatenate([self._events.case, other._events.case + mine.cluster.size]),
            np.concatenate([self._events.score, other._events.score]),
            np.concatenate([self._events.hit, other._events.hit]),
        )
        return SlideEvaluator(
            both,
            events,
            self.n_clusters + other.n_clusters,
            self._rules,
            has_events=self._has_events and other._has_events,
        )

    def ranked(self) -> SlideEvaluator:
        """Replace scores of points by 1 / rank from the top; scores of 0 and less stay below all others.

        So `froc_score` keeps its value where the published script enters missed lesions at 0.

        Returns:
            The same metrics of the ranks.
        """
        entering = _entering_scores(self._events) if self._rules.froc_missed_as_zero else self._events.score
        score = np.where(entering > 0, 1.0 / shared_ranks(-entering), entering)
        events = replace(self._events, score=score)
        return SlideEvaluator(self._cases, events, self.n_clusters, self._rules, has_events=self._has_events)

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        c = self._cases
        known = (c.truth >= 0) & (c.said >= 0)
        judged = known & ((c.truth != _ITC) | (self._rules.itc != "left-out"))
        truth, said = (c.truth >= 2) & known, (c.said >= 2) & judged
        if metric == "stage_accuracy":
            return RatioInputs((known & (c.truth == c.said)).astype(float), known.astype(float))
        if metric == "positive_sensitivity":
            return RatioInputs((truth & said).astype(float), truth.astype(float))
        if metric == "positive_specificity":
            return RatioInputs((judged & ~truth & ~said).astype(float), (judged & ~truth).astype(float))
        if metric == "positive_precision":
            return RatioInputs((truth & said).astype(float), said.astype(float))
        if metric == "mask_lesion_recall":
            return RatioInputs(c.in_mask_found.astype(float), c.in_mask.astype(float))
        if metric in _MEANS:
            values = getattr(c, _MEANS[metric])
            return RatioInputs(np.nan_to_num(values), np.isfinite(values).astype(float))
        return None

    def undefined_reasons(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        values = self.values()
        no_stage = not (self._cases.truth >= 0).any() or not (self._cases.said >= 0).any()
        for spec in self.specs:
            if np.isfinite(values[spec.name]):
                continue
            if spec.name == "froc_score":
                reasons[spec.name] = (
                    "no countable lesion" if self._has_events else "no scored points were submitted"
                )
            elif spec.name == "pn_kappa":
                reasons[spec.name] = "no patient stages, or all patients of one stage in truth and prediction"
            elif spec.name == "slide_false_positive_rate_tissue":
                reasons[spec.name] = "no negative slide has a mask of its tissue"
            elif spec.name == "mask_lesion_recall":
                reasons[spec.name] = "no masks were submitted, or the truth masks hold no lesion"
            elif spec.name in _MEANS:
                reasons[spec.name] = "no masks with a truth mask were submitted"
            else:
                reasons[spec.name] = (
                    "no slide stages in the truth or the predictions"
                    if no_stage
                    else "no slide in the denominator"
                )
        return reasons

    def case_counts(self) -> dict[str, tuple[int, int]]:
        n = self.n_cases
        known = int(((self._cases.truth >= 0) & (self._cases.said >= 0)).sum())
        pn = int(
            (self._cases.is_first_of_patient & (self._cases.pn_truth >= 0) & (self._cases.pn_said >= 0)).sum()
        )
        patients = int(self._cases.is_first_of_patient.sum())
        out = {spec.name: (known, n - known) for spec in self.specs}
        for name, column in _MEANS.items():
            finite = int(np.isfinite(getattr(self._cases, column)).sum())
            out[name] = (finite, n - finite)
        with_lesions = int((self._cases.in_mask > 0).sum())
        out["mask_lesion_recall"] = (with_lesions, n - with_lesions)
        out["froc_score"] = (n, 0) if self._has_events else (0, n)
        out["pn_kappa"] = (pn, patients - pn)
        return out


def quadratic_kappa(counts: FloatArray) -> FloatArray:
    """Compute quadratic weighted kappa.

    Args:
        counts: Confusion counts, (rows, k, k).

    Returns:
        One value per row; NaN where chance agreement is total.

    Example:
        >>> quadratic_kappa(np.array([[[4.0, 1.0], [1.0, 4.0]]])).round(3).tolist()
        [0.6]
    """
    k = counts.shape[-1]
    penalty = np.subtract.outer(np.arange(k), np.arange(k)) ** 2 / (k - 1) ** 2
    total = counts.sum(axis=(1, 2))
    expected = counts.sum(axis=2)[:, :, None] * counts.sum(axis=1)[:, None, :]
    with np.errstate(invalid="ignore", divide="ignore"):
        disagreement = (counts * penalty).sum(axis=(1, 2)) / total
        by_chance = (expected * penalty).sum(axis=(1, 2)) / total**2
        return np.where(by_chance > 0, 1 - disagreement / by_chance, np.nan)


def _count_pairs(
    cluster: npt.NDArray[np.int32],
    truth: npt.NDArray[np.int8],
    said: npt.NDArray[np.int8],
    n_clusters: int,
    k: int,
) -> FloatArray:
    known = (truth >= 0) & (said >= 0)
    flat = cluster[known].astype(np.int64) * k * k + truth[known].astype(np.int64) * k + said[known]
    return np.bincount(flat, minlength=n_clusters * k * k).reshape(n_clusters, k * k).astype(float)


def _codes(cases: pd.DataFrame, column: str, words: tuple[str, ...]) -> npt.NDArray[np.int8]:
    if column not in cases.columns:
        return np.full(len(cases), -1, dtype=np.int8)
    return np.asarray(
        pd.Categorical(cases[column].astype("object"), categories=list(words)).codes, dtype=np.int8
    )


def _int_column(cases: pd.DataFrame, column: str) -> npt.NDArray[np.int64]:
    return (
        cases[column].to_numpy(dtype=np.int64)
        if column in cases.columns
        else np.zeros(len(cases), dtype=np.int64)
    )


def _float_column(cases: pd.DataFrame, column: str) -> FloatArray:
    if column not in cases.columns:
        return np.full(len(cases), np.nan)
    return pd.to_numeric(cases[column], errors="coerce").to_numpy(dtype=float)
