"""The search over all settings of a merge (DBT-09): every setting with its value, the chosen and the published one marked.

Which boxes are fused depends on normalisation, IoU and slice distance alone. The two scores and three numbers of votes
are read off the same fusion, so that 72 fusions serve 432 settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.merging.settings import OVERFLOW, MergeSetting, all_settings, published
from elsewhere.analysis.merging.team_boxes import MergeOptions, TeamBoxes, fit_scales, scaled
from elsewhere.analysis.result.inputs import Progress
from elsewhere.ensembles.normalisation import ScoreScale
from elsewhere.ensembles.volumes import FusedVolumes, OrderedBoxes, fuse_ordered, order_boxes
from elsewhere.ensembles.voting import vote_in_volumes
from elsewhere.errors import UserError
from elsewhere.scoring.detection.unweighted import mean_sensitivity

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
_SAME = 1e-12


@dataclass(frozen=True, kw_only=True)
class Search:
    """The settings that were tried on one cohort.

    Args:
        table: One row per setting, in their order: `setting`, its parts, `value` (the mean sensitivity over all
            volumes), `boxes`, `rank`, `chosen` and `published`.
        chosen: The setting with the highest value; among equals the published one, else the first.
        equal: How many settings have the highest value.
        fusions: How often boxes were fused.
        scales: The scale of each team's scores, by normalisation.
    """

    table: pd.DataFrame
    chosen: MergeSetting
    equal: int
    fusions: int
    scales: dict[str, tuple[ScoreScale, ...]]


def search_settings(
    teams: TeamBoxes,
    *,
    settings: Sequence[MergeSetting] | None = None,
    options: MergeOptions | None = None,
    progress: Progress | None = None,
) -> Search:
    """Merge by every setting, and choose the one with the highest mean sensitivity over all volumes.

    Args:
        teams: The boxes of all teams, with the lesions of the cohort.
        settings: The settings, those of one fusion together; None: all 432 of weighted boxes fusion.
        options: What holds for every setting.
        progress: Called after each fusion with the step, the fusions done and their number.

    Returns:
        Every setting with its value.

    Raises:
        UserError: The cohort has no lesion.
    """
    if not teams.n_lesions:
        raise UserError(
            "the cohort has no lesions, so that no setting can be chosen",
            fix="Give a cohort with lesions, or a setting: --setting published.",
        )
    options, tried = options or MergeOptions(), tuple(settings or all_settings())
    groups = [
        (key, list(members))
        for key, members in groupby(tried, key=lambda s: (s.normalisation, s.iou, s.distance, s.vote))
    ]
    values: list[float] = []
    boxes: list[int] = []
    scales: dict[str, tuple[ScoreScale, ...]] = {}
    ordered: dict[str, tuple[FloatArray, OrderedBoxes | None]] = {}
    for number, ((normalisation, iou, distance, vote), members) in enumerate(groups):
        if normalisation not in ordered:
            scales[normalisation] = fit_scales(teams, normalisation)
            score = scaled(teams, scales[normalisation])
            made = (
                None
                if vote
                else order_boxes(teams.boxes, score, floor=options.floor, weights=options.weights)
            )
            ordered = {normalisation: (score, made)}
        score, prepared = ordered[normalisation]
        if prepared is None:
            fused, value = vote_in_volumes(
                teams.boxes, score, str(vote), iou_above=iou, within_slices=distance, floor=options.floor,
                weights=options.weights,
            )  # fmt: skip
            hit = teams.hits(fused)
            found = [(_value(teams, value, hit), len(fused))] * len(members)
        else:
            fused = fuse_ordered(prepared, iou_above=iou, within_slices=distance, threads=options.threads)
            found = _values(teams, fused, members)
        values += [one for one, _ in found]
        boxes += [count for _, count in found]
        if progress:
            progress("merging", number + 1, len(groups))
    return _searched(tried, values, boxes, fusions=len(groups), scales=scales)


def _values(
    teams: TeamBoxes, fused: FusedVolumes, members: Sequence[MergeSetting]
) -> list[tuple[float, int]]:
    """The value and the number of boxes of each setting that shares a fusion."""
    hit = teams.hits(fused)
    scores = {
        overflow: fused.scores(overflow=overflow) for overflow in {s.score == OVERFLOW for s in members}
    }
    enough = {votes: np.flatnonzero(fused.votes >= votes) for votes in {s.votes for s in members}}
    made = []
    for setting in members:
        kept = enough[setting.votes]
        made.append((_value(teams, scores[setting.score == OVERFLOW][kept], hit[kept]), kept.size))
    return made


def _value(teams: TeamBoxes, scores: FloatArray, hit: IndexArray) -> float:
    return mean_sensitivity(
        scores,
        hit,
        volumes=teams.listed,
        lesions=teams.n_lesions,
        points=teams.rules.positive_operating_points,
    )


def _searched(
    tried: Sequence[MergeSetting],
    values: Sequence[float],
    boxes: Sequence[int],
    *,
    fusions: int,
    scales: dict[str, tuple[ScoreScale, ...]],
) -> Search:
    value = np.asarray(values)
    best = np.flatnonzero(value >= value.max() - _SAME).tolist()
    of_study = published(tried[0].vote)
    chosen = next((tried[k] for k in best if tried[k] == of_study), tried[best[0]])
    rank = 1 + np.array([int((value > one + _SAME).sum()) for one in value])
    table = pd.DataFrame([setting.to_dict() for setting in tried])
    table["value"] = value
    table["boxes"] = np.asarray(boxes, dtype=np.int64)
    table["rank"] = rank
    table["chosen"] = [setting == chosen for setting in tried]
    table["published"] = [setting == of_study for setting in tried]
    return Search(table=table, chosen=chosen, equal=len(best), fusions=fusions, scales=scales)
