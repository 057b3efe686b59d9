"""What each team adds to a merge: the merge of all teams compared with the merge of all but one (DBT-08)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from elsewhere.analysis.merging.settings import MergeSetting
from elsewhere.analysis.merging.sides import Side
from elsewhere.analysis.merging.team_boxes import MergeOptions, TeamBoxes, merge_boxes
from elsewhere.analysis.result.inputs import Progress
from elsewhere.ensembles.normalisation import ScoreScale
from elsewhere.scoring.prepared import Prepared


def without_team(teams: TeamBoxes, left_out: int) -> TeamBoxes:
    """Return the boxes of all teams but one.

    Args:
        teams: The boxes of two teams or more.
        left_out: The number of the team that is left out.

    Returns:
        The boxes of the others, with their numbers moved up.

    Example:
        >>> from elsewhere.analysis.merging.team_boxes import gather
        >>> from elsewhere.predictions.boxes import boxes_from_frame
        >>> from elsewhere.protocols import DetectionRules
        >>> import pandas as pd
        >>> row = {"case_id": "s/lcc", "x": 5, "y": 5, "width": 9, "height": 9, "z": 4, "depth": 2, "score": 0.7}
        >>> said = {name: boxes_from_frame(pd.DataFrame([row])) for name in ("one", "two", "three")}
        >>> rest = without_team(gather(said, DetectionRules()), 1)
        >>> rest.names, rest.boxes.model.tolist()
        (('one', 'three'), [0, 1])
    """
    stays = teams.boxes.model != left_out
    model = teams.boxes.model[stays]
    columns = ("volume", "x", "y", "width", "height", "z", "depth")
    boxes = replace(
        teams.boxes,
        model=model - (model > left_out),
        models=teams.boxes.models - 1,
        **{name: getattr(teams.boxes, name)[stays] for name in columns},
    )
    names = tuple(name for number, name in enumerate(teams.names) if number != left_out)
    invalid = {name: teams.invalid[name] for name in names}
    return replace(teams, names=names, boxes=boxes, scores=teams.scores[stays], invalid=invalid)


def team_contributions(
    sides: Mapping[str, Side],
    merged: Mapping[str, Prepared],
    setting: MergeSetting,
    *,
    scales: Sequence[ScoreScale],
    options: MergeOptions,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Compare the merge with the merge of all teams but one, for each team, by the same setting and score scales.

    Args:
        sides: The volumes of each role.
        merged: The scores of the merge of all teams, by role.
        setting: The setting of the merge.
        scales: The scale of each team's scores.
        options: What holds for every setting.
        progress: Called after each team.

    Returns:
        For each team, by role: the difference all minus all but this one, paired by patient. Empty for two teams,
        where it would be a single team.
    """
    names = next(iter(sides.values())).boxes.names
    if len(names) < 3:
        return []
    rows = []
    for left_out in range(len(names)):
        rest = [number for number in range(len(names)) if number != left_out]
        weights = None if options.weights is None else tuple(np.asarray(options.weights)[rest].tolist())
        row: dict[str, Any] = {"team": names[left_out]}
        for role, side in sides.items():
            boxes = merge_boxes(
                without_team(side.boxes, left_out),
                setting,
                scales=[scales[number] for number in rest],
                options=replace(options, weights=weights),
            )
            row[role] = side.paired(merged[role], side.judge(boxes))
        rows.append(row)
        if progress:
            progress("leaving out one team", left_out + 1, len(names))
    return rows
