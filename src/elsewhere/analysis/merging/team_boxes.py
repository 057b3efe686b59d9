"""The boxes of all teams in the volumes of one cohort as arrays, and merged boxes as predictions again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.analysis.merging.settings import MergeSetting
from elsewhere.cohort import Cohort
from elsewhere.ensembles.normalisation import BUDGET, ScoreScale, fit_scale
from elsewhere.ensembles.volumes import FusedVolumes, VolumeBoxes, fuse
from elsewhere.ensembles.voting import vote_in_volumes
from elsewhere.errors import UserError
from elsewhere.predictions.boxes import BoxPredictions, Predictions, rows_of
from elsewhere.protocols import DetectionRules
from elsewhere.scoring.detection.matching import Boxes, Lesions, match_boxes
from elsewhere.scoring.detection.tables import case_frame, lesion_frame
from elsewhere.scoring.task import ScoreOptions
from elsewhere.statistics.difficulty import budget_threshold

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
_NUMBERS = ("x", "y", "width", "height", "z", "depth")


@dataclass(frozen=True, kw_only=True)
class TeamBoxes:
    """The boxes of all teams in the volumes of one cohort.

    Args:
        names: The teams.
        volume_ids: The ids of the volumes: those of the cohort, then others that some team has boxes in.
        patients: The patient of each volume; missing where it is not known.
        listed: How many of the volumes are the cohort's.
        boxes: The boxes as arrays.
        scores: The teams' own scores, (n,).
        lesions: The lesions of the cohort in the form of the matching; None without a cohort.
        rules: The protocol's rules of detection.
        with_slices: Whether the boxes have slices.
        invalid: How many boxes of each team were left out because they are invalid.
    """

    names: tuple[str, ...]
    volume_ids: tuple[str, ...]
    patients: tuple[str | None, ...]
    listed: int
    boxes: VolumeBoxes
    scores: FloatArray
    lesions: Lesions | None
    rules: DetectionRules
    with_slices: bool
    invalid: Mapping[str, int]

    @property
    def n_lesions(self) -> int:
        """How many lesions the cohort has."""
        return 0 if self.lesions is None else int(self.lesions.volume.size)

    def scores_of(self, team: int) -> FloatArray:
        """Return the scores of one team.

        Args:
            team: Its number.

        Returns:
            The scores of its boxes.
        """
        return self.scores[self.boxes.model == team]

    def hits(self, found: VolumeBoxes | FusedVolumes) -> IndexArray:
        """Find the lesion that each box hits, by the protocol.

        Args:
            found: Boxes in these volumes.

        Returns:
            The number of the lesion of each box, or -1.
        """
        if self.lesions is None:
            return np.full(len(found), -1, dtype=np.int64)
        z = found.z if self.with_slices else np.full(len(found), np.nan)
        boxes = Boxes(
            volume=np.where(found.volume < self.listed, found.volume, -1), x=found.x, y=found.y, width=found.width,
            height=found.height, z=z, depth=found.depth,
        )  # fmt: skip
        return match_boxes(boxes, self.lesions, self.rules, n_volumes=self.listed)


def gather(
    teams: Mapping[str, Predictions], rules: DetectionRules, *, cohort: Cohort | None = None
) -> TeamBoxes:
    """Collect the boxes of all teams in the volumes of one cohort.

    Args:
        teams: The boxes of each team, by its name.
        rules: The protocol's rules of detection.
        cohort: The volumes and lesions; None: the volumes in which some team has boxes, without lesions.

    Returns:
        The boxes; invalid ones are left out and counted.

    Raises:
        UserError: There is no team, or some teams have boxes with slices and others without.
    """
    if not teams:
        raise UserError("no team to merge", fix="Give the prediction files of two teams or more.")
    names = tuple(teams)
    parts, invalid = [], {}
    for number, (name, said) in enumerate(teams.items()):
        table = said.table
        good = table["reason"].isna().to_numpy(dtype=bool)
        invalid[name] = int((~good).sum())
        kept = table.loc[good, ["case_id", *_NUMBERS, "score"]].assign(model=number)
        kept["patient_id"] = table.loc[good, "patient_id"] if "patient_id" in table.columns else pd.NA
        parts.append(kept)
    flat = [bool(part["z"].isna().all()) for part in parts if len(part)]
    if len(set(flat)) > 1:
        lacking = [
            name for name, part in zip(names, parts, strict=True) if len(part) and part["z"].isna().all()
        ]
        raise UserError(
            f"some teams have boxes without slices: {', '.join(lacking)}",
            fix="Give z and depth in all files, or in none.",
        )
    with_slices = not any(flat)
    pool = pd.concat(parts, ignore_index=True)
    pool["case_id"] = pool["case_id"].astype("string")
    volume_ids: list[str] = []
    patients: list[str | None] = []
    lesions = None
    if cohort is not None:
        cases = case_frame(cohort, ScoreOptions())
        volume_ids += cases["case_id"].astype(str).tolist()
        patients += cases["patient_id"].astype(str).tolist()
        lesions = _lesions(lesion_frame(cohort, cases))
    listed = len(volume_ids)
    row = rows_of(pool["case_id"], pd.Index(volume_ids, dtype="string"))
    stray = row < 0
    if stray.any():
        first = pool[stray].drop_duplicates("case_id")
        volume_ids += first["case_id"].astype(str).tolist()
        patients += [None if pd.isna(patient) else str(patient) for patient in first["patient_id"]]
        row = rows_of(pool["case_id"], pd.Index(volume_ids, dtype="string"))
    numbers = {name: np.ascontiguousarray(pool[name].to_numpy(dtype=np.float64)) for name in _NUMBERS}
    if not with_slices:
        numbers["z"], numbers["depth"] = np.zeros(len(pool)), np.zeros(len(pool))
    boxes = VolumeBoxes(
        volume=row.astype(np.int64), model=pool["model"].to_numpy(dtype=np.int64), **numbers, volumes=len(volume_ids),
        models=len(names),
    )  # fmt: skip
    return TeamBoxes(
        names=names,
        volume_ids=tuple(volume_ids),
        patients=tuple(patients),
        listed=listed,
        boxes=boxes,
        scores=pool["score"].to_numpy(dtype=np.float64),
        lesions=lesions,
        rules=rules,
        with_slices=with_slices,
        invalid=invalid,
    )


def _lesions(table: pd.DataFrame) -> Lesions:
    numbers = ("x", "y", "width", "height", "slice", "volume_slices")
    return Lesions(
        volume=table["volume"].to_numpy(dtype=np.int64),
        **{name: np.ascontiguousarray(table[name].to_numpy(dtype=np.float64)) for name in numbers},
    )


def fit_scales(teams: TeamBoxes, normalisation: str) -> tuple[ScoreScale, ...]:
    """Fit one normalisation to the scores of each team.

    Args:
        teams: The boxes of all teams.
        normalisation: Its name. 'thresholded-percentile' needs lesions.

    Returns:
        One scale per team.

    Raises:
        UserError: The normalisation needs lesions and there are none.
    """
    thresholds: list[float | None] = [None] * len(teams.names)
    if normalisation == "thresholded-percentile" and teams.n_lesions:
        false = teams.hits(teams.boxes) < 0
        thresholds = [
            budget_threshold(
                teams.scores[false & (teams.boxes.model == team)], budget=BUDGET, volumes=teams.listed
            )
            for team in range(len(teams.names))
        ]
    return tuple(
        fit_scale(normalisation, teams.scores_of(team), threshold=thresholds[team])
        for team in range(len(teams.names))
    )


def scaled(teams: TeamBoxes, scales: Sequence[ScoreScale]) -> FloatArray:
    """Bring the scores of all teams to one scale.

    Args:
        teams: The boxes of all teams.
        scales: One scale per team.

    Returns:
        One score per box.
    """
    out = np.empty(teams.scores.size)
    for team, scale in enumerate(scales):
        mine = teams.boxes.model == team
        out[mine] = scale.apply(teams.scores[mine])
    return out


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """What holds for every setting of a merge.

    Args:
        floor: Boxes with a lower score, on the common scale, are left out.
        weights: One weight above 0 for each team, in their order; None: all 1.
        threads: How many threads; None for all processors.
    """

    floor: float = 0.0
    weights: tuple[float, ...] | None = None
    threads: int | None = None


def merge_boxes(
    teams: TeamBoxes,
    setting: MergeSetting,
    *,
    scales: Sequence[ScoreScale] | None = None,
    options: MergeOptions | None = None,
) -> BoxPredictions:
    """Merge the boxes of all teams by one setting.

    Args:
        teams: The boxes of all teams.
        setting: The setting.
        scales: The scale of each team's scores; None: fitted to these boxes.
        options: See `MergeOptions`.

    Returns:
        The merged boxes: in each volume the highest score first, volumes in the order of the cohort.

    Raises:
        UserError: The normalisation needs lesions and there are none, or an option does not fit.

    Example:
        >>> from elsewhere.predictions.boxes import boxes_from_frame
        >>> row = {"case_id": "s/lcc", "x": 5, "y": 5, "width": 9, "height": 9, "z": 4, "depth": 2, "score": 0.7}
        >>> one, two = boxes_from_frame(pd.DataFrame([row])), boxes_from_frame(pd.DataFrame([row]))
        >>> teams = gather({"one": one, "two": two}, DetectionRules())
        >>> merge_boxes(teams, MergeSetting()).table["score"].tolist()
        [1.0]
    """
    options = options or MergeOptions()
    scales = fit_scales(teams, setting.normalisation) if scales is None else scales
    scores = scaled(teams, scales)
    if setting.vote is None:
        fused, value = fuse(
            teams.boxes, scores, setting.fusion(), floor=options.floor, weights=options.weights,
            threads=options.threads,
        )  # fmt: skip
    else:
        fused, value = vote_in_volumes(
            teams.boxes, scores, setting.vote, iou_above=setting.iou, within_slices=setting.distance,
            floor=options.floor, weights=options.weights,
        )  # fmt: skip
    table = pd.DataFrame(
        {
            "case_id": pd.array(np.asarray(teams.volume_ids, dtype=object)[fused.volume], dtype="string"),
            "patient_id": pd.array(np.asarray(teams.patients, dtype=object)[fused.volume], dtype="string"),
            **{name: getattr(fused, name) for name in _NUMBERS},
            "score": value,
            "row": np.arange(1, len(fused) + 1, dtype=np.int64),
        }
    )
    if not teams.with_slices:
        table[["z", "depth"]] = np.nan
    table["reason"] = pd.Series(pd.NA, index=table.index, dtype="string")
    return BoxPredictions(
        kind="boxes",
        table=table,
        source="the merged boxes",
        digest="",
        flow=({"step": "merged boxes", "n": len(table), "lost": 0, "why": ""},),
        extras={"form": "dbtex"},
    )
