"""One mean over simulated cases, declared as the task declares it: the simulations' evaluator of means."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from elsewhere.protocols import protocols
from elsewhere.statistics.accumulators import cluster_sums, weigh_sums
from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs
from elsewhere.statistics.metric import MetricSpec


@lru_cache(maxsize=1)
def declared_specs() -> dict[str, MetricSpec]:
    """List the metrics of the segmentation and slide tasks by name, under the plain protocol.

    Returns:
        The metrics by name.
    """
    from elsewhere.scoring.segmentation.evaluator import segmentation_specs
    from elsewhere.scoring.slides.evaluator import slide_metrics

    plain = protocols.get("plain")
    return {spec.name: spec for spec in (*segmentation_specs(plain), *slide_metrics())}


class SimulatedMean(Evaluator):
    """The mean of simulated values, with the interval and the domain that the metric declares.

    Args:
        name: Name of the metric, one of `declared_specs`.
        values: One value per case.
        cluster: Patient of each case, from 0.
        n_clusters: Number of patients.

    Example:
        >>> evaluator = SimulatedMean("dice", np.array([0.5, 1.0]), np.array([0, 1], dtype=np.int32), 2)
        >>> evaluator.evaluate(np.array([[1, 1], [0, 2]], dtype=np.uint16)).ravel().tolist()
        [0.75, 1.0]
    """

    def __init__(
        self, name: str, values: FloatArray, cluster: npt.NDArray[np.int32], n_clusters: int
    ) -> None:
        self.specs = (declared_specs()[name],)
        self.cluster_of_case, self.n_clusters = cluster, n_clusters
        self._values = values
        self._sums = cluster_sums(cluster, n_clusters, np.stack([values, np.ones(values.size)], axis=1))

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        return RatioInputs(self._values, np.ones(self._values.size))

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        sums = weigh_sums(weights, self._sums)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (sums[:, 0] / sums[:, 1])[:, None]

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> Evaluator:
        return SimulatedMean(
            self.specs[0].name, self._values[case_mask], self.cluster_of_case[case_mask], self.n_clusters
        )

    def stack(self, other: Evaluator) -> Evaluator:
        raise NotImplementedError("one model is simulated at a time")
