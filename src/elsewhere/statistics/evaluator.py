"""The interface between scoring and statistics: something that evaluates metrics under weights.

`scoring` builds an `Evaluator` for its task out of the scores table; everything in `statistics` needs
only this class, and so knows no task. A bootstrap, a jackknife, a subgroup, a left-out site, a
permuted group and two swapped models are all rows of weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.metric import MetricSpec

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RatioInputs:
    """A metric as a ratio of sums over cases: value = sum(numerator) / sum(denominator), for means and
    proportions.

    Args:
        numerator: Numerator of each case.
        denominator: Denominator of each case; 1 for a mean, 0 for a case that takes no part.
    """

    numerator: FloatArray
    denominator: FloatArray


@dataclass(frozen=True)
class AurocInputs:
    """What the closed form of ST-02 needs.

    Args:
        label: Truth of each case, 0 or 1.
        score: Score of each case; higher means positive.
    """

    label: npt.NDArray[np.int8]
    score: FloatArray


@dataclass(frozen=True, kw_only=True)
class MannWhitneyInputs:
    """A metric as a weighted share of pairs of a positive and a negative item, ties half (DBT-18).

    The items are not cases: a volume with two lesions has two positive items. An item that nothing marked has
    the score -inf.

    Args:
        positive: True for each positive item.
        score: Score of each item; higher means positive.
        weight: Weight of each item, above 0.
        cluster: The number of the patient of each item.
    """

    positive: npt.NDArray[np.bool_]
    score: FloatArray
    weight: FloatArray
    cluster: npt.NDArray[np.int64]


ClosedForm = RatioInputs | AurocInputs | MannWhitneyInputs
"""What a closed form may need."""


class Evaluator(ABC):
    """Metrics of one task over one set of cases, as a function of patient weights.

    Subclasses set `specs`, `cluster_of_case` (int32, the patient of each case) and `n_clusters`, and
    implement `evaluate`, `subset`, `stack` and `closed_form`. An undefined value is NaN, never a number.
    """

    specs: tuple[MetricSpec, ...]
    cluster_of_case: npt.NDArray[np.int32]
    n_clusters: int

    @abstractmethod
    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        """Evaluate every metric under weights of the patients.

        Args:
            weights: Integer weights of the patients, (rows, patients).

        Returns:
            Values, (rows, metrics); NaN where undefined.
        """

    @abstractmethod
    def subset(self, case_mask: npt.NDArray[np.bool_]) -> Evaluator:
        """Take some of the cases; the clusters keep their numbers.

        Args:
            case_mask: The cases to keep.

        Returns:
            The same metrics over these cases.
        """

    @abstractmethod
    def stack(self, other: Evaluator) -> Evaluator:
        """Put two models into one evaluator, for permutations.

        Swapping a patient between two models is then a weight: the permutation test needs it.

        Args:
            other: The other model, on the same cases.

        Returns:
            Both models' cases in one evaluator with 2 x n_clusters clusters (self first).

        Raises:
            TypeError: The other evaluator is of another kind, or has other metrics.
            NotImplementedError: Evaluators of this kind cannot be stacked.
        """

    def ranked(self) -> Evaluator:
        """Replace each score by its rank among this model's scores (ST-12a).

        Equal scores share their mean rank, and a missing answer stays the worst. The values of metrics that
        declare `rank_based` do not change; the others are not meant to be read. Two models' scores stand on
        one scale afterwards, so that a patient can be swapped between them.

        Returns:
            The same metrics over ranks; the evaluator itself where its metrics read no score.
        """
        return self

    @abstractmethod
    def closed_form(self, metric: str) -> ClosedForm | None:
        """Return the inputs of a metric's closed form.

        Args:
            metric: The name of the metric.

        Returns:
            Inputs of the closed form of a metric (per case, in case order; or per item with the item's patient),
            or None where it has none.
        """

    def undefined_reasons(self) -> dict[str, str]:
        """Say why metrics are undefined at full weights.

        Returns:
            The reasons by metric name; none for defined metrics.
        """
        return {}

    def case_counts(self) -> dict[str, tuple[int, int]]:
        """Count the cases for which each metric is defined.

        Returns:
            (defined, undefined) number of cases by metric name; default: all cases are defined.
        """
        n = int(self.cluster_of_case.size)
        return {spec.name: (n, 0) for spec in self.specs}

    @property
    def n_cases(self) -> int:
        """How many cases there are."""
        return int(self.cluster_of_case.size)

    def index(self, metric: str) -> int:
        """Find the column of a metric.

        Args:
            metric: The name of the metric.

        Returns:
            Its number among the specs.

        Raises:
            KeyError: If there is no such metric.
        """
        for i, spec in enumerate(self.specs):
            if spec.name == metric:
                return i
        raise KeyError(metric)

    def spec(self, metric: str) -> MetricSpec:
        """Find the declaration of a metric.

        Args:
            metric: The name of the metric.

        Returns:
            Its spec.
        """
        return self.specs[self.index(metric)]

    def values(self) -> dict[str, float]:
        """Compute the point estimates: every patient once.

        Returns:
            The values by metric name; NaN where undefined.
        """
        row = self.evaluate(np.ones((1, self.n_clusters), dtype=np.uint16))[0]
        return {spec.name: float(v) for spec, v in zip(self.specs, row, strict=True)}

    def leave_one_out(self) -> FloatArray:
        """Compute the values without each patient in turn, in blocks of weights.

        Returns:
            (patients, metrics).
        """
        out = np.empty((self.n_clusters, len(self.specs)))
        step = max(1, min(256, 2**25 // max(1, self.n_clusters)))
        for first in range(0, self.n_clusters, step):
            last = min(first + step, self.n_clusters)
            weights = np.ones((last - first, self.n_clusters), dtype=np.uint16)
            weights[np.arange(last - first), np.arange(first, last)] = 0
            out[first:last] = self.evaluate(weights)
        return out
