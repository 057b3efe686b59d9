"""The settings of a merge (DBT-09): what is varied in the search, and how a setting is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from elsewhere.ensembles.normalisation import NORMALISATIONS
from elsewhere.ensembles.volumes import FusionOptions
from elsewhere.ensembles.voting import STRATEGIES
from elsewhere.errors import UserError, unknown_name

IOUS = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55)
DISTANCES = (5, 10, 15)
VOTES = (1, 2, 3)
CAPPED, OVERFLOW = "capped", "overflow"
PARTS = ("normalisation", "iou", "score", "distance", "votes")


@dataclass(frozen=True, kw_only=True)
class MergeSetting:
    """One way to merge the boxes of several detectors. The defaults are the published choice.

    Args:
        normalisation: How scores are brought to one scale: 'max', 'min-max', 'percentile' or
            'thresholded-percentile'.
        iou: Boxes are of one place where their IoU is above this.
        score: 'capped' (the mean score times min(T, N)/N) or 'overflow' (times T/N), for T boxes of N
            detectors. A vote has none.
        distance: The largest distance of centre slices.
        votes: Places with fewer boxes than this are left out. A vote has none.
        vote: 'affirmative', 'consensus' or 'unanimous' for an ensemble by vote; None: weighted boxes fusion.

    Raises:
        UserError: A value is unknown or out of range.

    Example:
        >>> MergeSetting().name
        'normalisation=percentile,iou=0.4,score=capped,distance=5,votes=1'
    """

    normalisation: str = "percentile"
    iou: float = 0.4
    score: str = CAPPED
    distance: float = 5.0
    votes: int = 1
    vote: str | None = None

    def __post_init__(self) -> None:
        if self.normalisation not in NORMALISATIONS:
            raise unknown_name("normalisation", self.normalisation, list(NORMALISATIONS))
        if self.score not in (CAPPED, OVERFLOW):
            raise unknown_name("score", self.score, [CAPPED, OVERFLOW])
        if self.vote is not None and self.vote not in STRATEGIES:
            raise unknown_name("vote", self.vote, list(STRATEGIES))
        self.fusion()

    @property
    def name(self) -> str:
        """The setting as text that `parse_setting` reads."""
        first = f"normalisation={self.normalisation},iou={self.iou:g}"
        if self.vote is not None:
            return f"{first},distance={self.distance:g},vote={self.vote}"
        return f"{first},score={self.score},distance={self.distance:g},votes={self.votes}"

    def fusion(self) -> FusionOptions:
        """Return the setting as options of weighted boxes fusion.

        Returns:
            The options.
        """
        return FusionOptions(
            iou_above=self.iou,
            within_slices=self.distance,
            overflow=self.score == OVERFLOW,
            least_votes=self.votes,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of summary.json and of grid.csv.

        Returns:
            The name and each part of the setting.
        """
        parts: dict[str, Any] = {
            "setting": self.name,
            "normalisation": self.normalisation,
            "iou": self.iou,
            "distance": self.distance,
        }
        if self.vote is not None:
            return {**parts, "vote": self.vote}
        return {**parts, "score": self.score, "votes": self.votes}


def published(vote: str | None = None) -> MergeSetting:
    """Return the published choice (DBT-09): percentile, IoU 0.4, capped score, 5 slices, 1 vote.

    Args:
        vote: The kind of vote; None for weighted boxes fusion.

    Returns:
        The setting.
    """
    return MergeSetting(vote=vote)


def all_settings(
    vote: str | None = None, *, normalisations: Sequence[str] = NORMALISATIONS
) -> tuple[MergeSetting, ...]:
    """List the settings of the search: 432 of weighted boxes fusion, or 72 of an ensemble by vote.

    Args:
        vote: The kind of vote; None for weighted boxes fusion.
        normalisations: The normalisations to vary.

    Returns:
        The settings; those that share a fusion stand together.

    Example:
        >>> len(all_settings()), len(all_settings("consensus"))
        (432, 72)
    """
    places = product(normalisations, IOUS, DISTANCES)
    if vote is not None:
        return tuple(
            MergeSetting(normalisation=name, iou=iou, distance=float(distance), vote=vote)
            for name, iou, distance in places
        )
    return tuple(
        MergeSetting(normalisation=name, iou=iou, distance=float(distance), score=score, votes=votes)
        for name, iou, distance in places
        for score in (CAPPED, OVERFLOW)
        for votes in VOTES
    )


def parse_setting(text: str, *, vote: str | None = None) -> MergeSetting:
    """Read a setting from text: 'published', or some of its parts; the others are the published ones.

    Args:
        text: 'published', or `normalisation=...,iou=...,score=...,distance=...,votes=...` as in grid.csv.
        vote: The kind of vote; None for weighted boxes fusion, unless the text names one.

    Returns:
        The setting.

    Raises:
        UserError: A part is unknown or has an impossible value.

    Example:
        >>> parse_setting("iou=0.5,votes=2").name
        'normalisation=percentile,iou=0.5,score=capped,distance=5,votes=2'
    """
    given: dict[str, Any] = {}
    for part in () if text.strip() == "published" else text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not value:
            raise UserError(
                f"'{part.strip()}' is no part of a setting",
                where="--setting",
                fix=f"Write 'published', or e.g. {published().name}.",
            )
        if name not in (*PARTS, "vote"):
            raise unknown_name("part of a setting", name, [*PARTS, "vote"])
        if name in given:
            raise UserError(f"'{name}' is given twice", where="--setting", fix="Give each part once.")
        given[name] = value
    for name, kind in (("iou", float), ("distance", float), ("votes", int)):
        if name in given:
            try:
                given[name] = kind(given[name])
            except ValueError:
                raise UserError(
                    f"{name}={given[name]} is not a number",
                    where="--setting",
                    fix=f"Write e.g. {published().name}.",
                ) from None
    if vote is not None and given.setdefault("vote", vote) != vote:
        raise UserError(
            f"--vote {vote} and a setting with vote={given['vote']}",
            where="--setting",
            fix="Leave one of them out.",
        )
    unused = [name for name in ("score", "votes") if name in given and given.get("vote")]
    if unused:
        raise UserError(
            f"an ensemble by vote has no {' and no '.join(unused)}",
            where="--setting",
            fix="Give normalisation, iou and distance with a vote.",
        )
    return MergeSetting(**given)
