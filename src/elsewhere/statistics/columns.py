"""The simplest evaluator: means of columns. Arrays in, estimates out, without any task or folder.

It serves strata and comparisons over columns that exist already (Dice by size, a reader's marks),
and is a simple example of what an `Evaluator` must do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.fairness.group_scores import MeanRanges
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec


class ColumnMeans(Evaluator):
    """Means over cases of named columns; NaN is an undefined case, left out of that column and counted.

    Args:
        columns: The values of the cases, by the metric's name.
        cluster_of_case: The patient of each case, counted from 0.
        n_clusters: How many patients there are.
        lower_is_better: Metrics of which less is better, where no specs are given.
        proportions: Metrics of which every case has 0 or 1, where no specs are given.
        specs: What the metrics declare, one for each column in the same order; None: made of the names.

    Example:
        >>> ColumnMeans({"dice": [0.5, 1.0]}, np.array([0, 1], dtype=np.int32), n_clusters=2).values()
        {'dice': 0.75}
    """

    def __init__(
        self,
        columns: Mapping[str, npt.ArrayLike],
        cluster_of_case: npt.NDArray[np.int32],
        *,
        n_clusters: int,
        lower_is_better: Sequence[str] = (),
        proportions: Sequence[str] = (),
        specs: Sequence[MetricSpec] | None = None,
    ) -> None:
        self.cluster_of_case = np.asarray(cluster_of_case, dtype=np.int32)
        self.n_clusters = n_clusters
        self.columns = {name: np.asarray(c, dtype=np.float64) for name, c in columns.items()}
        self.specs = (
            tuple(_spec(name, lower=name in lower_is_better, share=name in proportions) for name in columns)
            if specs is None
            else tuple(specs)
        )
        values = np.stack(list(self.columns.values()), axis=1) if self.columns else np.zeros((0, 0))
        everyone = np.zeros(self.cluster_of_case.size, dtype=np.int16)
        self._means = None
        if everyone.size:
            self._means = MeanRanges(self.cluster_of_case, values, [everyone], n_clusters=n_clusters)

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        if self._means is None:
            return np.full((len(weights), len(self.specs)), np.nan)
        return self._means.group_means(weights)[0][:, 0, :]

    def _with(
        self, columns: Mapping[str, npt.ArrayLike], cluster: npt.NDArray[np.int32], n: int
    ) -> ColumnMeans:
        return ColumnMeans(columns, cluster, n_clusters=n, specs=self.specs)

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> ColumnMeans:
        kept = {name: c[case_mask] for name, c in self.columns.items()}
        return self._with(kept, self.cluster_of_case[case_mask], self.n_clusters)

    def stack(self, other: Evaluator) -> ColumnMeans:
        if not isinstance(other, ColumnMeans) or list(other.columns) != list(self.columns):
            raise TypeError("two evaluators are stacked only when they have the same columns")
        both = {name: np.concatenate([c, other.columns[name]]) for name, c in self.columns.items()}
        clusters = np.concatenate([self.cluster_of_case, other.cluster_of_case + self.n_clusters])
        return self._with(both, clusters.astype(np.int32), self.n_clusters + other.n_clusters)

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        column = self.columns[metric]
        defined = np.isfinite(column)
        return RatioInputs(np.where(defined, column, 0.0), defined.astype(np.float64))

    def case_counts(self) -> dict[str, tuple[int, int]]:
        counts = {name: int(np.isfinite(c).sum()) for name, c in self.columns.items()}
        return {name: (n, self.n_cases - n) for name, n in counts.items()}

    def undefined_reasons(self) -> dict[str, str]:
        return {n: "no case has a value" for n, (defined, _) in self.case_counts().items() if not defined}


def _spec(name: str, *, lower: bool, share: bool) -> MetricSpec:
    return MetricSpec(
        name=name,
        label=name.replace("_", " "),
        higher_is_better=not lower,
        kind=MetricKind.PROPORTION if share else MetricKind.MEAN,
        interval=IntervalMethod.WILSON if share else IntervalMethod.CLUSTERED_T,
        lower_bound=0.0 if share else -np.inf,
        upper_bound=1.0 if share else np.inf,
    )
