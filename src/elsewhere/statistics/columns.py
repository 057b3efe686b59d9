"""The simplest evaluator: means of columns. Arrays in, estimates out, without any task or folder.

It serves strata and comparisons over columns that somebody already has (Dice by size, a reader's marks),
and is the plain example of what an `Evaluator` must do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.fairness.group_scores import MeanRanges
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec


class ColumnMeans(Evaluator):
    """Means over cases of named columns; NaN is an undefined case, left out of that column and counted."""

    def __init__(
        self,
        columns: Mapping[str, npt.ArrayLike],
        cluster_of_case: npt.NDArray[np.int32],
        *,
        n_clusters: int,
        lower_is_better: Sequence[str] = (),
        proportions: Sequence[str] = (),
    ) -> None:
        self.cluster_of_case = np.asarray(cluster_of_case, dtype=np.int32)
        self.n_clusters = n_clusters
        self._lower, self._proportions = tuple(lower_is_better), tuple(proportions)
        self.columns = {name: np.asarray(c, dtype=np.float64) for name, c in columns.items()}
        self.specs = tuple(
            MetricSpec(
                name=name,
                label=name.replace("_", " "),
                higher_is_better=name not in self._lower,
                kind=MetricKind.PROPORTION if name in self._proportions else MetricKind.MEAN,
                interval=IntervalMethod.WILSON if name in self._proportions else IntervalMethod.CLUSTERED_T,
                lower_bound=0.0 if name in self._proportions else -np.inf,
                upper_bound=1.0 if name in self._proportions else np.inf,
            )
            for name in self.columns
        )
        values = np.stack(list(self.columns.values()), axis=1) if self.columns else np.zeros((0, 0))
        everyone = np.zeros(self.cluster_of_case.size, dtype=np.int16)
        self._means = None
        if everyone.size:
            self._means = MeanRanges(self.cluster_of_case, values, [everyone], n_clusters=n_clusters)

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        """Evaluate every metric under weights; see `Evaluator.evaluate`."""
        if self._means is None:
            return np.full((len(weights), len(self.specs)), np.nan)
        return self._means.group_means(weights)[0][:, 0, :]

    def _with(
        self, columns: Mapping[str, npt.ArrayLike], cluster: npt.NDArray[np.int32], n: int
    ) -> ColumnMeans:
        return ColumnMeans(
            columns, cluster, n_clusters=n, lower_is_better=self._lower, proportions=self._proportions
        )

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> ColumnMeans:
        """Take some of the cases; see `Evaluator.subset`."""
        kept = {name: c[case_mask] for name, c in self.columns.items()}
        return self._with(kept, self.cluster_of_case[case_mask], self.n_clusters)

    def stack(self, other: Evaluator) -> ColumnMeans:
        """Put two models into one; see `Evaluator.stack`."""
        if not isinstance(other, ColumnMeans) or list(other.columns) != list(self.columns):
            raise TypeError("two evaluators are stacked only when they have the same columns")
        both = {name: np.concatenate([c, other.columns[name]]) for name, c in self.columns.items()}
        clusters = np.concatenate([self.cluster_of_case, other.cluster_of_case + self.n_clusters])
        return self._with(both, clusters.astype(np.int32), self.n_clusters + other.n_clusters)

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        """Return the inputs of a closed form; see `Evaluator.closed_form`."""
        column = self.columns[metric]
        defined = np.isfinite(column)
        return RatioInputs(np.where(defined, column, 0.0), defined.astype(np.float64))

    def case_counts(self) -> dict[str, tuple[int, int]]:
        """Count defined and undefined cases of each metric."""
        counts = {name: int(np.isfinite(c).sum()) for name, c in self.columns.items()}
        return {name: (n, self.n_cases - n) for name, n in counts.items()}

    def undefined_reasons(self) -> dict[str, str]:
        """Say why a metric is undefined."""
        return {n: "no case has a value" for n, (defined, _) in self.case_counts().items() if not defined}
