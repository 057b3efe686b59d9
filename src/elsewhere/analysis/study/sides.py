"""The two sides of a comparison: the scores of several seeds, ready for statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from elsewhere.analysis.study.boards import (
    ids_of,
    in_order,
)
from elsewhere.errors import UserError
from elsewhere.scoring.prepared import Prepared, prepare, resampled_units
from elsewhere.scoring.task import ScoreOptions, Scores, tasks
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.evaluator import Evaluator
from elsewhere.statistics.seeds import SplitMean, over_seeds


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison: the scores of a method's seeds, ready for statistics.

    Args:
        seeds: The scores of each seed.
        places: For each seed, which of the cases of all seeds together it tested.
        partition: Maps the cases of all seeds together to patients and sites.
        scores: The cases of all seeds together, each once.
    """

    seeds: tuple[Prepared, ...]
    places: tuple[np.ndarray, ...]
    partition: Clusters
    scores: Scores

    @property
    def same_cases(self) -> bool:
        """Whether every seed tested every case."""
        return all(place.size == self.partition.n_cases for place in self.places)

    def over(self, numbered: Clusters) -> Evaluator:
        """Average the seeds, with patients numbered by another partition of these cases.

        Args:
            numbered: Maps the cases of all seeds together to patients and sites.

        Returns:
            The metrics, averaged over the seeds.
        """
        if self.same_cases:
            return over_seeds([seed.evaluator_over(numbered) for seed in self.seeds])
        members = [
            seed.evaluator_over(_at(numbered, place))
            for seed, place in zip(self.seeds, self.places, strict=True)
        ]
        return SplitMean(members, self.places, numbered.cluster_of_case)

    def evaluator(self) -> Evaluator:
        """Average the seeds.

        Returns:
            The metrics of the cases of all seeds together, averaged over the seeds.
        """
        return self.over(self.partition)


def side_of(scores: Mapping[int, Scores]) -> Side | None:
    """Prepare the scores of several seeds; None where a seed's prediction is constant.

    Args:
        scores: Scores by seed. The seeds may have tested different parts of a dataset.

    Returns:
        The side, or None.
    """
    options = ScoreOptions()
    first = scores[min(scores)]
    order = list(dict.fromkeys(name for seed in sorted(scores) for name in ids_of(scores[seed])))
    if len(order) == len(first.cases):
        union = first
    else:
        rows = pd.concat([scores[seed].cases for seed in sorted(scores)], ignore_index=True)
        union = replace(first, cases=rows.drop_duplicates("case_id").reset_index(drop=True))
    number = {name: row for row, name in enumerate(order)}
    seeds, places = [], []
    try:
        for seed in sorted(scores):
            names = ids_of(scores[seed])
            ordered = scores[seed]
            if len(names) == len(order):
                ordered, names = in_order(scores[seed], order), order
            seeds.append(prepare(ordered, options))
            places.append(np.array([number[name] for name in names], dtype=np.int64))
    except UserError:
        return None
    partition = (
        seeds[0].partition if union is first else resampled_units(tasks.get(first.task), union, options)
    )
    return Side(seeds=tuple(seeds), places=tuple(places), partition=partition, scores=union)


def _at(partition: Clusters, places: np.ndarray) -> Clusters:
    """Some of the cases; the patients keep their numbers."""
    return replace(
        partition,
        cluster_of_case=partition.cluster_of_case[places],
        case_sites=partition.site_of_case[places],
        case_order=None,
    )


def only(scores: Scores, ids: set[str]) -> Scores:
    """Select cases of scores.

    Args:
        scores: Scores of one run.
        ids: The case ids to keep.

    Returns:
        The scores of these cases, sorted by id.
    """
    named = scores.cases["case_id"].astype(str).to_numpy()
    rows = np.flatnonzero([name in ids for name in named])
    return scores.take(rows[np.argsort(named[rows], kind="stable")])
