"""Faster R-CNN in folds, voting, and boxes linked over the slices: after UCLA-MII (DBT-11 to DBT-17)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elsewhere.boxes import Boxes
from elsewhere.boxes.linking import LinkingOptions, link_boxes
from elsewhere.boxes.markers import MarkerOptions, drop_markers
from elsewhere.boxes.votes import VoteOptions, vote
from elsewhere.errors import TrainingError, UserError, unknown_name
from elsewhere.recipes.base import Job, recipes
from elsewhere.recipes.splits import grouped_folds
from elsewhere.recipes.tomosynthesis.settings import DetectorSettings, inference_of
from elsewhere.recipes.tomosynthesis.volume_detector import (
    Learned,
    Member,
    Networks,
    VolumeDetector,
    have_lesions,
    slices_of,
    train_member,
)

STRATEGIES = ("affirmative", "consensus", "unanimous")


@dataclass(frozen=True, kw_only=True)
class UclaMiiSettings(DetectorSettings):
    """Settings of the recipe 'ucla-mii': those of `DetectorSettings` with other defaults, and further ones.

    Args:
        neighbours: Whether the channels are the slice before, the slice and the one after.
        reach: Slices up to this far from a lesion's slice show it.
        least_score: Boxes of a slice with a lower score are dropped.
        flip_vertical: Probability of a flip top to bottom.
        brightness: Values are multiplied by 1 plus or minus up to this.
        gamma: Values are raised to a power from 1 / (1 + gamma) to 1 + gamma.
        folds: Folds of training and validation cases together, by patient.
        best: How many of the folds' networks predict: those with the best sensitivity on the part held out.
        strategy: How they vote: 'affirmative', 'consensus' or 'unanimous'.
        vote_overlap: Boxes above this IoU with a better one are of one group.
        linked_from: Boxes with a lower score are not linked.
        linked_overlap: Boxes are linked where their intersection is more than this share of the smaller one.
        linked_reach: How far linked boxes may lie apart, as a share of the slices.
        more_slices_than: Candidates with no more slices than this are dropped.
        top: A candidate's score is the mean of so many highest scores.
        remove_markers: Whether boxes on round skin markers are dropped.
        marker_area: The smallest and the largest area of a marker's ring, in stored pixels.
    """

    neighbours: bool = True
    reach: int = 3
    least_score: float = 0.001
    flip_vertical: float = 0.5
    brightness: float = 0.1
    gamma: float = 0.2
    folds: int = 5
    best: int = 3
    strategy: str = "affirmative"
    vote_overlap: float = 0.5
    linked_from: float = 0.85
    linked_overlap: float = 0.75
    linked_reach: float = 0.5
    more_slices_than: int = 1
    top: int = 10
    remove_markers: bool = True
    marker_area: tuple[float, ...] = (1000.0, 5000.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.folds < 2:
            raise UserError(f"folds is {self.folds}", fix="Give 2 or more.")
        if not 1 <= self.best <= self.folds:
            raise UserError(f"best is {self.best}", fix=f"Give 1 to {self.folds}, the number of folds.")
        if self.strategy not in STRATEGIES:
            raise unknown_name("strategy", self.strategy, list(STRATEGIES))
        if len(self.marker_area) != 2:
            raise UserError(
                f"marker_area is {self.marker_area}", fix="Give the smallest and the largest area."
            )


@recipes.register("ucla-mii")
class UclaMii(VolumeDetector):
    """Link the boxes of all slices to candidates; the best of five folds' detectors vote."""

    title = "Faster R-CNN in folds, linked boxes"
    version = 1
    follows = (
        "UCLA-MII, fifth: Faster R-CNN with ResNet-50, feature pyramid and COCO weights, three slices as channels, "
        "slices up to three from the lesion's, flips, brightness and gamma; five folds by patient, of which the best "
        "three vote; boxes of 0.85 or more linked where their intersection is above 0.75 of the smaller one, single "
        "slices dropped, the mean of the ten highest scores; round skin markers removed by blob detection. A "
        "candidate's box is the mean of its boxes weighted by score, which the text does not say."
    )
    Settings = UclaMiiSettings

    def learn(self, job: Job) -> Learned:
        settings: UclaMiiSettings = job.settings
        learned = Learned()
        reached: dict[str, float] = {}
        parts = grouped_folds((*job.train, *job.validation), settings.folds, seed=job.seed)
        for number, (learn, held) in enumerate(parts):
            if not have_lesions(job, learn):
                learned.notes.append(f"Fold {number + 1} has no lesion to learn from, and was left out.")
                continue
            before = len(learned.history)
            member = Member(name=f"fold-{number}", number=number, train=learn, validation=held)
            train_member(job, settings, member, learned)
            values = [entry.get("validation_sensitivity", -1.0) for entry in learned.history[before:]]
            reached[member.name] = max((value for value in values if np.isfinite(value)), default=-1.0)
        if not reached:
            raise TrainingError(
                "no fold of the training part has a lesion to learn from",
                fix="Train on a part with volumes of biopsied lesions.",
            )
        chosen = sorted(reached, key=lambda name: -reached[name])[: settings.best]
        learned.networks = {name: learned.networks[name] for name in chosen}
        learned.details |= {"folds": reached, "chosen": chosen}
        return learned

    def find(self, job: Job, networks: Networks, case: str) -> Boxes:
        from elsewhere.training.detection.volume_inference import detect_slices, store_volume

        settings: UclaMiiSettings = job.settings
        options = inference_of(settings)
        stored, slices = store_volume(next(iter(networks.values())), job.pixels, case, options)
        pairs = [(case, z) for z in slices]
        found = [detect_slices(network, stored, pairs, options)[0] for network in networks.values()]
        agreed = vote(found, VoteOptions(strategy=settings.strategy, overlap=settings.vote_overlap))  # type: ignore[arg-type]
        rules = LinkingOptions(
            least_score=settings.linked_from,
            overlap=settings.linked_overlap,
            reach=settings.linked_reach,
            more_slices_than=settings.more_slices_than,
            top=settings.top,
        )
        linked = link_boxes(agreed, slices_of(job, case), rules)
        return without_markers(job, linked, case, settings) if settings.remove_markers else linked


def without_markers(job: Job, boxes: Boxes, case: str, settings: UclaMiiSettings) -> Boxes:
    """Drop boxes on round skin markers.

    Args:
        job: The job.
        boxes: Boxes in pixels of the volume.
        case: The case.
        settings: The recipe's settings.

    Returns:
        The boxes that stay.
    """
    x0, y0, _, _ = job.pixels.breast(case)
    scale = float(job.pixels.scale(case))
    low, high = settings.marker_area
    return drop_markers(
        boxes.moved(-x0 / scale, -y0 / scale, scale=1 / scale),
        lambda z: job.pixels.slice(case, z),
        job.pixels.window(case),
        options=MarkerOptions(area=(low, high)),
    ).moved(x0, y0, scale=scale)
