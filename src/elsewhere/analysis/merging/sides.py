"""The volumes of one role in a merge, and what is counted and remarked about the teams' boxes in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elsewhere.analysis.merging.team_boxes import TeamBoxes, gather
from elsewhere.analysis.merging.teams import TEST, VALIDATION, ReadTeams
from elsewhere.analysis.result.inputs import Progress
from elsewhere.analysis.result.part import Part
from elsewhere.ensembles.normalisation import ScoreScale
from elsewhere.predictions import Predictions
from elsewhere.protocols import Protocol
from elsewhere.scoring.detection.froc import froc_specs
from elsewhere.scoring.prepared import Prepared, prepare
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.statistics.estimates import estimate_all
from elsewhere.statistics.paired import compare_pair
from elsewhere.statistics.resampling import Resampling

_OUTSIDE = 0.1
_FEW_VOLUMES = 0.5


@dataclass(frozen=True, kw_only=True)
class Side:
    """The volumes of one role with the boxes of all teams, and how boxes in them are judged.

    Args:
        part: The volumes.
        boxes: The boxes of all teams.
        protocol: The rules of scoring.
        resampling: The resamples of every interval.
        metrics: The metric that a setting is chosen by, then the primary and the secondary one.
        singles: The scores of each team alone.
    """

    part: Part
    boxes: TeamBoxes
    protocol: Protocol
    resampling: Resampling
    metrics: tuple[str, str, str]
    singles: Mapping[str, Prepared]

    def judge(self, said: Predictions) -> Prepared:
        """Score boxes in these volumes.

        Args:
            said: The boxes.

        Returns:
            Their scores, ready for statistics.
        """
        return _judge(said, self.part, self.protocol)

    def estimates(self, ready: Prepared, *, all_metrics: bool = False) -> dict[str, Any]:
        """Estimate metrics with their intervals.

        Args:
            ready: The scores.
            all_metrics: Whether the primary and the secondary metric are estimated too.

        Returns:
            The entries of summary.json by metric.
        """
        found = estimate_all(
            ready.evaluator,
            ready.partition,
            rules=self.protocol.interval,
            resampling=self.resampling,
            metrics=self.metrics if all_metrics else self.metrics[:1],
        )
        return {name: estimate.to_dict() for name, estimate in found.items()}

    def value(self, ready: Prepared) -> float:
        """Compute the metric that a setting is chosen by.

        Args:
            ready: The scores.

        Returns:
            The value; NaN where it is undefined.
        """
        weights = np.ones((1, ready.evaluator.n_clusters), dtype=np.uint16)
        return float(ready.evaluator.evaluate(weights)[0, ready.evaluator.index(self.metrics[0])])

    def paired(self, a: Prepared, b: Prepared) -> dict[str, Any]:
        """Compare two sets of boxes in these volumes by the metric that a setting is chosen by.

        Args:
            a: The scores of the first.
            b: The scores of the second.

        Returns:
            The entry of summary.json: a - b with its interval, paired by patient.
        """
        rows = compare_pair(
            a.evaluator,
            b.evaluator,
            a.partition,
            rules=self.protocol.interval,
            resampling=self.resampling,
            metrics=[self.metrics[0]],
        )
        return rows[self.metrics[0]].to_dict()


def _judge(said: Predictions, part: Part, protocol: Protocol) -> Prepared:
    options = ScoreOptions(on_invalid="worst")
    return prepare(tasks.get("detection").score(part.cohort, said, protocol, options), options)


def side_of(
    role: str,
    part: Part,
    teams: ReadTeams,
    protocol: Protocol,
    *,
    resampling: Resampling,
    progress: Progress | None = None,
) -> Side:
    """Gather the boxes of one role, and score each team alone.

    Args:
        role: 'validation' or 'test'.
        part: The volumes.
        teams: The boxes of every team.
        protocol: The rules of scoring.
        resampling: The resamples of every interval.
        progress: Called after each team.

    Returns:
        The side.
    """
    said = teams.boxes[role]
    boxes = gather(said, protocol.detection, cohort=part.cohort)
    names = [spec.name for spec in froc_specs(protocol.detection)]
    singles = {}
    for number, (name, one) in enumerate(said.items()):
        singles[name] = _judge(one, part, protocol)
        if progress:
            progress(f"scoring teams, {role}", number + 1, len(said))
    return Side(
        part=part,
        boxes=boxes,
        protocol=protocol,
        resampling=resampling,
        metrics=(names[-1], names[0], names[-2]),
        singles=singles,
    )


def shared_patients(sides: Mapping[str, Side]) -> list[str]:
    """Remark on patients who are on both sides.

    Args:
        sides: The sides by role.

    Returns:
        A sentence, or none.
    """
    if len(sides) < 2:
        return []
    first, second = (set(side.part.cohort.cases["patient_id"].astype(str)) for side in sides.values())
    shared = len(first & second)
    if not shared:
        return []
    return [
        f"{shared} patients are in both cohorts, though with other volumes: the test is not independent of the choice."
    ]


def counted(role: str, boxes: TeamBoxes) -> list[str]:
    """Remark on boxes that are left out, and on teams that have boxes in few volumes.

    Args:
        role: What the volumes are called.
        boxes: The boxes of all teams.

    Returns:
        One sentence per remark.
    """
    texts = []
    for name, count in boxes.invalid.items():
        if count:
            texts.append(f"{name}, {role}: {count} invalid boxes are left out of the merge.")
    flat = int(((boxes.boxes.width <= 0) | (boxes.boxes.height <= 0)).sum())
    if flat:
        texts.append(f"{role}: {flat} boxes without width or height are left out of the merge.")
    covered = np.array(
        [np.unique(boxes.boxes.volume[boxes.boxes.model == team]).size for team in range(len(boxes.names))]
    )
    usual = float(np.median(covered))
    for name, volumes in zip(boxes.names, covered.tolist(), strict=True):
        if volumes == 0:
            texts.append(f"{name}, {role}: no boxes. The team still counts as one that found nothing.")
        elif volumes < _FEW_VOLUMES * usual:
            texts.append(
                f"{name}, {role}: boxes in {volumes} volumes, where half of the teams have boxes in {usual:g} or more; it "
                "may not have been run on all."
            )
    return texts


def scale_notes(names: Sequence[str], scales: Sequence[ScoreScale]) -> list[str]:
    """Remark on teams whose scores are unusual.

    Args:
        names: The teams.
        scales: Their scales.

    Returns:
        One sentence per remark.
    """
    return [f"{name} {scale.note}." for name, scale in zip(names, scales, strict=True) if scale.note]


def other_range(sides: Mapping[str, Side]) -> list[str]:
    """Remark on teams whose test scores lie outside the range of their validation scores.

    Args:
        sides: The sides by role, both of them.

    Returns:
        One sentence per remark.
    """
    texts = []
    validation, test = sides[VALIDATION].boxes, sides[TEST].boxes
    for team, name in enumerate(validation.names):
        known, new = validation.scores_of(team), test.scores_of(team)
        if not known.size or not new.size:
            continue
        share = float(((new < known.min()) | (new > known.max())).mean())
        if share > _OUTSIDE:
            texts.append(
                f"{name}: {share:.0%} of its test scores lie outside the range of its validation scores, so that one scale "
                "may not fit both."
            )
    return texts
