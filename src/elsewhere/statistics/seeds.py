"""Several trainings of one method on the same cases: each metric is their mean, under every weight (US-20)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elsewhere.statistics.evaluator import AurocInputs, Evaluator, FloatArray, RatioInputs


class SeedMean(Evaluator):
    """The mean over seeds of what each seed's evaluator says; undefined where one of them is.

    A seed is a training, not a patient: the mean is over trainings within every resample of patients, so an
    interval is of the method's mean value on other patients, not of one more seed.

    Args:
        members: One evaluator per seed, all over the same cases and metrics.
    """

    def __init__(self, members: Sequence[Evaluator]) -> None:
        first = members[0]
        for other in members[1:]:
            if [s.name for s in other.specs] != [s.name for s in first.specs] or not np.array_equal(
                other.cluster_of_case, first.cluster_of_case
            ):
                raise ValueError("seeds are averaged only over the same cases and metrics")
        self.members = tuple(members)
        self.specs = first.specs
        self.cluster_of_case, self.n_clusters = first.cluster_of_case, first.n_clusters

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        return np.mean([member.evaluate(weights) for member in self.members], axis=0)

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> SeedMean:
        return SeedMean([member.subset(case_mask) for member in self.members])

    def stack(self, other: Evaluator) -> SeedMean:
        if not isinstance(other, SeedMean) or len(other.members) != len(self.members):
            raise TypeError("two methods are stacked only when both have as many seeds")
        return SeedMean([a.stack(b) for a, b in zip(self.members, other.members, strict=True)])

    def ranked(self) -> SeedMean:
        """Put ranks in place of scores.

        Returns:
            The mean over the seeds' evaluators of ranks.
        """
        return SeedMean([member.ranked() for member in self.members])

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        forms = [member.closed_form(metric) for member in self.members]
        ratios = [form for form in forms if isinstance(form, RatioInputs)]
        if len(ratios) != len(forms) or any(
            not np.array_equal(ratio.denominator, ratios[0].denominator) for ratio in ratios
        ):
            return None
        return RatioInputs(np.mean([ratio.numerator for ratio in ratios], axis=0), ratios[0].denominator)

    def undefined_reasons(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        for member in self.members:
            reasons |= member.undefined_reasons()
        return reasons

    def case_counts(self) -> dict[str, tuple[int, int]]:
        return self.members[0].case_counts()


class SplitMean(Evaluator):
    """The mean over seeds that tested different parts of one set of cases, such as random splits at one
    hospital.

    Every member counts the same patients: a resample gives each patient one weight in all seeds that tested
    her. A seed whose metric is undefined in a resample takes no part in that resample's mean.

    Args:
        members: One evaluator per seed, all over the same numbering of patients.
        places: For each seed, which of the cases its evaluator holds, in its order.
        cluster_of_case: The patient of each case of all seeds together.
    """

    def __init__(
        self,
        members: Sequence[Evaluator],
        places: Sequence[npt.NDArray[np.int64]],
        cluster_of_case: npt.NDArray[np.int32],
    ) -> None:
        first = members[0]
        for member, place in zip(members, places, strict=True):
            if not np.array_equal(member.cluster_of_case, cluster_of_case[place]):
                raise ValueError("a seed's patients are not those of its cases")
            if [s.name for s in member.specs] != [s.name for s in first.specs]:
                raise ValueError("seeds are averaged only over the same metrics")
        self.members = tuple(members)
        self.places = tuple(places)
        self.specs = first.specs
        self.cluster_of_case, self.n_clusters = cluster_of_case, first.n_clusters

    def evaluate(self, weights: npt.NDArray[np.uint16]) -> FloatArray:
        values = np.stack([member.evaluate(weights) for member in self.members])
        defined = np.isfinite(values)
        count = defined.sum(axis=0)
        total = np.where(defined, values, 0.0).sum(axis=0)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def subset(self, case_mask: npt.NDArray[np.bool_]) -> SplitMean:
        mask = np.asarray(case_mask, dtype=bool)
        number = np.cumsum(mask) - 1
        members, places = [], []
        for member, place in zip(self.members, self.places, strict=True):
            inside = mask[place]
            if inside.any():
                members.append(member.subset(inside))
                places.append(number[place[inside]])
        return SplitMean(members, places, self.cluster_of_case[mask])

    def stack(self, other: Evaluator) -> Evaluator:
        raise NotImplementedError("seeds with different test parts are compared by their differences")

    def closed_form(self, metric: str) -> RatioInputs | AurocInputs | None:
        return None

    def undefined_reasons(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        for member in self.members:
            reasons |= member.undefined_reasons()
        return reasons


def over_seeds(members: Sequence[Evaluator]) -> Evaluator:
    """Average evaluators over seeds.

    Args:
        members: One evaluator per seed, all over the same cases and metrics.

    Returns:
        The one evaluator, or the mean of several.

    Example:
        >>> from elsewhere.statistics.columns import ColumnMeans
        >>> of_seed = [ColumnMeans({"dice": [d]}, np.array([0]), n_clusters=1) for d in (0.5, 0.75)]
        >>> over_seeds(of_seed).values()
        {'dice': 0.625}
    """
    return members[0] if len(members) == 1 else SeedMean(members)
