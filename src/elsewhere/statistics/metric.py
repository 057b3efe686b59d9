"""What a metric declares about itself, so that intervals, verdicts and ranks know how to treat it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class IntervalMethod(StrEnum):
    """Every interval the program can print; the output names it as `method`."""

    DELONG_LOGIT = "delong-logit-clustered"
    WILSON = "wilson-clustered"
    CLUSTERED_T = "t-clustered"
    BOOTSTRAP_T = "bootstrap-t"
    BCA = "bca"
    PERCENTILE = "percentile"
    ONE_SIDED = "one-sided-bound"
    NONE = "none"


class MetricKind(StrEnum):
    """How the value is made: it decides which closed form and which interval may be used."""

    AUROC = "auroc"
    LOCALISATION = "localisation"
    PROPORTION = "proportion"
    MEAN = "mean"
    RATIO = "ratio"
    CURVE = "curve"
    RANGE = "range"
    COMPOSITE = "composite"


PAIR_KINDS = frozenset({MetricKind.AUROC, MetricKind.LOCALISATION})
"""Kinds whose value is a share of pairs, and whose interval is DeLong's (ST-02, DBT-18)."""


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """The declared properties of a metric (a test asserts that every metric declares them truly).

    Args:
        name: Key of the metric in tables and in summary.json.
        label: Name of the metric for readers.
        higher_is_better: Whether a higher value is better.
        kind: How the value is made; it decides which closed form and which interval may be used.
        interval: The default method under protocol `plain` (ST-02, ST-03); challenge protocols override it.
        lower_bound: The smallest possible value; may be infinite.
        upper_bound: The largest possible value; may be infinite.
        worst: What a missing prediction scores.
        chance: The value that guessing reaches: the baseline above which a model has shown anything.
        unit: Unit of the value, such as `mm`; empty for none.
        moves_with_prevalence: Whether the share of positive cases changes the value, though the model is the
            same (ST-06).
        stratify_by_class: Whether resamples are drawn within the classes (ST-01).
        rank_based: Whether no strictly rising transformation of a model's scores changes the value, so that
            permutation tests swap ranks in place of scores (ST-12a).
        skewed: Whether it is a mean of values that are mostly small (or zero) and now and then large, such as
            distances, rates of rare errors and counts: its interval is the bootstrap-t, in a domain of its
            own (ST-03a).
        own_interval: Whether it keeps its own interval under a protocol that names one method for all metrics,
            since that protocol does not know the metric.
        primary: Whether it is the headline of its task.
        weighed_with_fairness: Whether the combined score of a challenge weighs it against fairness.
    """

    name: str
    label: str
    higher_is_better: bool
    kind: MetricKind
    interval: IntervalMethod
    lower_bound: float = 0.0
    upper_bound: float = 1.0
    worst: float = 0.0
    chance: float = 0.0
    unit: str = ""
    moves_with_prevalence: bool = False
    stratify_by_class: bool = False
    rank_based: bool = False
    skewed: bool = False
    own_interval: bool = False
    primary: bool = False
    weighed_with_fairness: bool = False
