"""Segmentation metrics under patient weights: sums per patient, and group means (MRI-03, MRI-04).

Performance = (mean Dice + 1 - mean NormHD) / 2. The disparity of a variable is the mean over Dice and
NormHD of (largest - smallest group mean); fairness = mean over variables of 1 - disparity; combined =
(1 - w) x performance + w x fairness (MRI-07). No image is opened here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from elsewhere.protocols import FairnessRules, Protocol
from elsewhere.scoring.groups import GroupCodes
from elsewhere.statistics.accumulators import cluster_sums, weigh_sums
from elsewhere.statistics.evaluator import Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.fairness.group_scores import MeanRanges, combined_score, fairness_score
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

CORE = ("dice", "hausdorff_mm", "hausdorff95_mm", "norm_hd")
SCORES = ("performance", "fairness", "combined")
EXTRA = ("average_surface_distance_mm", "surface_dice_1mm", "false_components_per_case")
RATIO = "lesion_sensitivity"


def _mean(name: str, label: str, *, worst: float, higher: bool = False, unit: str = "") -> MetricSpec:
    """Declare a mean over cases: overlaps are bounded means; distances and counts are skewed (ST-03a)."""
    return MetricSpec(
        name=name,
        label=label,
        higher_is_better=higher,
        kind=MetricKind.MEAN,
        interval=IntervalMethod.CLUSTERED_T if higher else IntervalMethod.BOOTSTRAP_T,
        upper_bound=1.0 if higher else math.inf,
        worst=worst,
        unit=unit,
        skewed=not higher,
    )


def segmentation_specs(protocol: Protocol, *, fairness_weight: float | None = None) -> tuple[MetricSpec, ...]:
    """List the metrics in the order of the report; a challenge leads with its combined score, else Dice.

    Args:
        protocol: The rules: the distance that is normalised, and the worst distance.
        fairness_weight: The weight of fairness in the combined score, 0 to 1; None takes the protocol's.

    Returns:
        The specifications.
    """
    rules = protocol.segmentation
    weight = protocol.fairness.fairness_weight if fairness_weight is None else fairness_weight
    far, challenge = rules.empty_distance_mm, "combined" in protocol.headline
    kind = "95th-percentile contour distance" if rules.distance != "hausdorff_mm" else "Hausdorff distance"
    norm_hd = _mean("norm_hd", f"Normalised {kind}", worst=1.0)
    composite = MetricSpec(
        name="performance",
        label="Performance (Dice and 1 - NormHD)",
        higher_is_better=True,
        kind=MetricKind.COMPOSITE,
        interval=IntervalMethod.BCA,
        lower_bound=0.0 if rules.cut_to_one else -math.inf,
    )
    fairness = replace(
        composite,
        name="fairness",
        label="Fairness (1 - disparity of Dice and NormHD)",
        kind=MetricKind.RANGE,
        interval=IntervalMethod.PERCENTILE,
    )
    combined = replace(
        fairness,
        name="combined",
        label=f"Combined (fairness weight {weight:g})",
        kind=MetricKind.RANGE if weight > 0 else MetricKind.COMPOSITE,
        primary=challenge,
    )
    return (
        replace(_mean("dice", "Dice", worst=0.0, higher=True), primary=not challenge),
        _mean("hausdorff_mm", "Hausdorff distance", worst=far, unit="mm"),
        _mean("hausdorff95_mm", "95th-percentile Hausdorff distance", worst=far, unit="mm"),
        replace(norm_hd, upper_bound=1.0) if rules.cut_to_one else norm_hd,
        replace(composite, weighed_with_fairness=True),
        fairness,
        combined,
        _mean("average_surface_distance_mm", "Average surface distance", worst=far, unit="mm"),
        _mean("surface_dice_1mm", "Surface Dice at 1 mm (by surface voxels)", worst=0.0, higher=True),
        MetricSpec(
            name=RATIO,
            label="Lesions found (components)",
            higher_is_better=True,
            kind=MetricKind.PROPORTION,
            interval=IntervalMethod.WILSON,
        ),
        _mean("false_components_per_case", "False components per case", worst=math.inf),
    )


class SegmentationEvaluator(Evaluator):
    """Segmentation metrics as a function of patient weights.

    Args:
        columns: The case values by metric name (NaN: undefined), and `n_truth_components` and
            `n_found_components` where lesion counts are known.
        cluster_of_case: The number of each case's patient, from 0.
        n_clusters: How many patients there are.
        groups: The groups by each fairness variable.
        protocol: The rules.
        fairness_weight: The weight of fairness in the combined score, 0 to 1; None takes the protocol's.
        reasons: Why a column has no value at all, by its name.
    """

    def __init__(
        self,
        *,
        columns: Mapping[str, FloatArray],
        cluster_of_case: npt.NDArray[np.int32],
        n_clusters: int,
        groups: Sequence[GroupCodes],
        protocol: Protocol,
        fairness_weight: float | None = None,
        reasons: Mapping[str, str] | None = None,
    ) -> None:
        self.columns = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}
        self.cluster_of_case, self.n_clusters = cluster_of_case, n_clusters
        self.groups, self.protocol = tuple(groups), protocol
        # The cut to one of the code's protocol applies to the equalised-odds mean, not to this disparity.
        self.rules: FairnessRules = replace(protocol.fairness, cut_mean_disparity_to_one=False)
        self.fairness_weight = self.rules.fairness_weight if fairness_weight is None else fairness_weight
        self.reasons = dict(reasons or {})
        self.specs = tuple(
            spec
            for spec in segmentation_specs(protocol, fairness_weight=self.fairness_weight)
            if spec.name in CORE or spec.name in SCORES or self._has(spec.name)
        )
        self._ratios = [name for name in (*CORE, *EXTRA, RATIO) if any(s.name == name for s in self.specs)]
        parts = [self.closed_form(name) for name in self._ratios]
        table = np.stack([side for p in parts if p for side in (p.numerator, p.denominator)], axis=1)
        self._sums = cluster_sums(cluster_of_case, n_clusters, table)
        self._ranges: MeanRanges | None = None

    def _has(self, name: str) -> bool:
        return name in self.columns or (name == RATIO and "n_found_components" in self.columns)

    @property
    def ranges(self) -> MeanRanges:
        """The ranges of group means of Dice and NormHD under weights; computed at first use."""
        if self._ranges is None:
            values = np.stack([self.columns["dice"], self.columns["norm_hd"]], axis=1)
            self._ranges = MeanRanges(
                self.cluster_of_case, values, self.groups, n_clusters=self.n_clusters, rules=self.rules
            )
        return self._ranges

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        sums = weigh_sums(weights, self._sums)
        means = np.full((len(weights), len(self._ratios)), np.nan)
        np.divide(sums[:, 0::2], sums[:, 1::2], out=means, where=sums[:, 1::2] > 0)
        value = {name: means[:, k] for k, name in enumerate(self._ratios)}
        value["performance"] = (value["dice"] + 1.0 - value["norm_hd"]) / 2.0
        value["fairness"] = (
            fairness_score(self.ranges(weights), self.rules) if self.groups else np.full(len(weights), np.nan)
        )
        value["combined"] = combined_score(value["performance"], value["fairness"], self.fairness_weight)
        return np.stack([value[spec.name] for spec in self.specs], axis=1)

    def disparities(self) -> dict[str, float]:
        """Compute the disparity of each variable over all patients; fairness is the mean of 1 - it (MRI-04).

        Returns:
            The disparity by the name of the variable; NaN where undefined.
        """
        values = self.ranges(np.ones((1, self.n_clusters), dtype=np.uint16))[0] if self.groups else []
        return {group.variable: float(value) for group, value in zip(self.groups, values, strict=True)}

    def _with(
        self,
        columns: Mapping[str, FloatArray],
        cluster_of_case: npt.NDArray[np.int32],
        n_clusters: int,
        groups: Sequence[GroupCodes],
    ) -> SegmentationEvaluator:
        return SegmentationEvaluator(
            columns=columns,
            cluster_of_case=cluster_of_case,
            n_clusters=n_clusters,
            groups=groups,
            protocol=self.protocol,
            fairness_weight=self.fairness_weight,
            reasons=self.reasons,
        )

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> SegmentationEvaluator:
        columns = {name: values[case_mask] for name, values in self.columns.items()}
        groups = [group.take(case_mask) for group in self.groups]
        return self._with(columns, self.cluster_of_case[case_mask], self.n_clusters, groups)

    def stack(self, other: Evaluator) -> SegmentationEvaluator:
        if not isinstance(other, SegmentationEvaluator) or [g.variable for g in self.groups] != [
            g.variable for g in other.groups
        ]:
            raise TypeError("two models are stacked only when both were judged on the same variables")
        columns = {
            name: np.concatenate([values, other.columns[name]])
            for name, values in self.columns.items()
            if name in other.columns
        }
        groups = [
            GroupCodes(a.variable, a.names, np.concatenate([a.codes, b.codes]), a.missing + b.missing, a.note)
            for a, b in zip(self.groups, other.groups, strict=True)
        ]
        clusters = np.concatenate([self.cluster_of_case, other.cluster_of_case + np.int32(self.n_clusters)])
        return self._with(columns, clusters.astype(np.int32), self.n_clusters + other.n_clusters, groups)

    def closed_form(self, metric: str) -> RatioInputs | None:
        if metric == RATIO:
            truth = np.nan_to_num(self.columns["n_truth_components"])
            return RatioInputs(np.nan_to_num(self.columns["n_found_components"]), truth)
        if metric not in self.columns:
            return None
        values = self.columns[metric]
        defined = np.isfinite(values)
        return RatioInputs(np.where(defined, values, 0.0), defined.astype(np.float64))

    def undefined_reasons(self) -> dict[str, str]:
        reasons = {}
        for name in (*CORE, *EXTRA):
            if name in self.columns and not np.isfinite(self.columns[name]).any():
                reasons[name] = self.reasons.get(name, "no case has a defined value")
        if RATIO in self._ratios and not np.nansum(self.columns["n_truth_components"]) > 0:
            reasons[RATIO] = "no truth mask has a lesion"
        lacking = [name for name in ("dice", "norm_hd") if name in reasons]
        if lacking:
            reasons["performance"] = f"{lacking[0]} is undefined: {reasons[lacking[0]]}"
        if not self.groups:
            reasons["fairness"] = f"the cohort has none of {', '.join(self.rules.variables)}"
        elif not np.isfinite(list(self.disparities().values())).any():
            reasons["fairness"] = "no variable has a group with defined Dice and NormHD"
        if self.fairness_weight > 0 and "fairness" in reasons:
            reasons["combined"] = f"fairness is undefined: {reasons['fairness']}"
        elif self.fairness_weight < 1 and "performance" in reasons:
            reasons["combined"] = f"performance is undefined: {reasons['performance']}"
        return reasons

    def case_counts(self) -> dict[str, tuple[int, int]]:
        n = self.n_cases
        both = np.isfinite(self.columns["dice"]) & np.isfinite(self.columns["norm_hd"])
        out = {}
        for spec in self.specs:
            if spec.name in self.columns:
                defined = int(np.isfinite(self.columns[spec.name]).sum())
            elif spec.name == RATIO:
                defined = int(np.isfinite(self.columns["n_truth_components"]).sum())
            else:
                defined = int(both.sum())
            out[spec.name] = (defined, n - defined)
        return out
