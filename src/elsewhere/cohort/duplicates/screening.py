"""Which pairs are worth laying over each other, and how alike unrelated pictures are by chance (US-30).

Screening is one matrix product over coarse textures per pair of datasets. The level of chance comes from
decoys: the same pictures, one of the two mirrored left to right. A mirrored picture has the same noise,
depth, layers and darkness as the original, and matches nothing, so that its best matches show what chance
alone reaches in these datasets. In a set full of copies the best decoys may be copies themselves: then pairs
drawn at random show what chance reaches, and more candidates are matched, until enough of them are no copies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from elsewhere.cohort.duplicates.matching import Ints, scores
from elsewhere.cohort.duplicates.textures import Floats, textures

DECOYS = 300
"""How many of the best decoys of each pair of datasets are matched in full, to see what chance reaches."""
SUSPECT = 0.6
"""A level of chance above this is compared with that of pairs drawn at random."""
RANDOM_ABOVE = 7.0
"""The level in standard deviations over random decoys; the best decoys give 5 to 6.7 in the public sets."""
ABOVE = 5.0
"""A pair counts from this many standard deviations above the median decoy. Of some 6,000 matched decoys and
plain pairs of the four public ultrasound sets, those that do not show one scene reach 4.0 at most."""
FEW = 40
"""Fewer decoys than this cannot calibrate: those of all datasets are pooled, or the default is used."""
ENOUGH_BLOCKS = 48
"""Of 64 blocks: a picture of which more than a quarter is dark has to agree better."""
DEFAULT_SCORE = 0.6
LEAST_SCORE = 0.42
"""No threshold is below this, whatever the decoys show: unrelated pictures seldom reach 0.4."""
FIRST_ROWS, ROWS = 64, 512
MOST_EACH = 40


@dataclass(frozen=True, kw_only=True)
class Textures:
    """What a search compares: coarse textures of all pictures for screening, and thumbnails for matching.

    Args:
        unit: (thumbnails, pixels) coarse textures, each of mean 0 and length 1.
        mirrored: The same of the pictures mirrored left to right.
        grey: (thumbnails, SIDE, SIDE) uint8 thumbnails.
    """

    unit: Floats
    mirrored: Floats
    grey: npt.NDArray[np.uint8]

    def scores(
        self, first: Ints, second: Ints, mirrored: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.float64], Ints]:
        """Lay the pictures of some pairs over each other, with fine textures made of these pictures alone.

        Args:
            first: (pairs,) the position of each pair's first picture.
            second: (pairs,) the position of its second picture.
            mirrored: (pairs,) whether the second picture is mirrored left to right before.

        Returns:
            The score of each pair, and the number of blocks that it is the median of.
        """
        used, at = np.unique(np.concatenate([first, second]), return_inverse=True)
        coarse, fine = (textures(self.grey[used], side, radius=4) for side in (32, 64))
        return scores(coarse, fine, at[: len(first)], at[len(first) :], mirrored)


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Pairs of pictures that reach the screening level, with their scores.

    Chance reaches further where little is visible, by the square root of the number of blocks: this is the
    `weight` of a pair.

    Args:
        first: (pairs,) the position of the first picture.
        second: (pairs,) the position of the second picture.
        mirrored: (pairs,) whether the second picture was mirrored. Mirrored pairs are the decoys; one above
            the threshold is a mirrored copy.
        same: (pairs,) whether both are of one patient.
        score: (pairs,) how alike they are, 1 for the same picture.
        weight: (pairs,) from 0 to 1; the score is multiplied by it before it is compared with the threshold.
        left_out: How many further candidates were not examined.
        random: Weighted scores of random mirrored pairs; None where the best decoys sufficed.
    """

    first: Ints
    second: Ints
    mirrored: npt.NDArray[np.bool_]
    same: npt.NDArray[np.bool_]
    score: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    left_out: int = 0
    random: npt.NDArray[np.float64] | None = None

    def null(self, *, mirrored: bool) -> npt.NDArray[np.float64]:
        """Return the weighted scores of the candidates of different patients, in one orientation.

        Args:
            mirrored: Whether those of mirrored pairs (decoys) are wanted, or of plain ones.

        Returns:
            One weighted score per candidate.
        """
        return (self.score * self.weight)[(self.mirrored == mirrored) & ~self.same]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The weighted score from which on a pair of two datasets counts as a duplicate.

    Args:
        score: The threshold.
        decoys: How many scores of unrelated pairs it was set by; 0: it is the default.
        median: The median of these scores; NaN where there are none.
        how: In words, what it was set by.
    """

    score: float
    decoys: int
    median: float
    how: str


def make_textures(grey: npt.NDArray[np.uint8], datasets: Ints) -> Textures:
    """Make the coarse textures of all pictures, plain and mirrored.

    The mean texture of each dataset of FEW pictures or more is subtracted: logos, scales and frames are
    shared by all its pictures.

    Args:
        grey: (thumbnails, SIDE, SIDE) uint8 thumbnails.
        datasets: (thumbnails,) the number of each one's dataset.

    Returns:
        The textures, and the thumbnails themselves.
    """
    screen = textures(grey, 16, radius=2)
    for code in np.unique(datasets):
        members = datasets == code
        if members.sum() >= FEW:
            screen[members] -= screen[members].mean(axis=0)
    return Textures(
        unit=_unit(screen),
        mirrored=_unit(screen[:, :, ::-1]),
        grey=grey,
    )


def _unit(pictures: Floats) -> Floats:
    flat = np.ascontiguousarray(pictures).reshape(len(pictures), -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), np.float32(1e-6))


def candidates(tex: Textures, first: Ints, second: Ints, patients: Ints) -> Candidates:
    """Find the pairs of two sets of pictures that are as alike as the best decoys, and match them in full.

    Where the best decoys may be copies themselves, random decoys are matched too, and more candidates, until
    enough of them are below the level.

    Args:
        tex: The textures of all pictures.
        first: Positions of the pictures of one dataset.
        second: Positions of those of the other, or of the same one; each pair is taken once.
        patients: (thumbnails,) the number of each one's patient.

    Returns:
        The pairs with their scores.
    """
    decoys, random = DECOYS, None
    while True:
        found = replace(_matched(tex, first, second, patients, decoys), random=random)
        if random is None and level_of(found).score > SUSPECT:
            random = _random_decoys(tex, first, second, patients)
            found = replace(found, random=random)
        level = level_of(found).score
        chance = max(int((found.null(mirrored=side) < level).sum()) for side in (False, True))
        if chance >= DECOYS // 2 or decoys >= min(len(first) * len(second), DECOYS * 4**4):
            return found
        decoys *= 4


def _random_decoys(tex: Textures, first: Ints, second: Ints, patients: Ints) -> npt.NDArray[np.float64]:
    """Weighted scores of mirrored pairs of different patients, drawn at random with a fixed seed."""
    rng = np.random.default_rng(0)
    a, b = rng.choice(first, DECOYS), rng.choice(second, DECOYS)
    other = patients[a] != patients[b]
    a, b = a[other], b[other]
    score, blocks = tex.scores(a, b, np.ones(len(a), dtype=bool))
    return score * _weight(blocks)


def _weight(blocks: Ints) -> npt.NDArray[np.float64]:
    return np.sqrt(np.minimum(blocks / ENOUGH_BLOCKS, 1.0))


def _matched(tex: Textures, first: Ints, second: Ints, patients: Ints, decoys: int) -> Candidates:
    found: dict[bool, list[tuple[Ints, Ints, Floats]]] = {False: [], True: []}
    floors = {False: -np.inf, True: -np.inf}
    best: dict[bool, Floats] = {side: np.empty(0, dtype=np.float32) for side in (False, True)}
    within = np.array_equal(first, second)
    most = MOST_EACH * max(decoys, len(first) + len(second))
    left_out = 0
    for begin, end in pairwise([0, *range(FIRST_ROWS, len(first), ROWS), len(first)]):
        rows = first[begin:end]
        columns = second[begin:] if within else second
        for side in (False, True):
            alike = tex.unit[rows] @ (tex.mirrored if side else tex.unit)[columns].T
            y, x = np.divmod(np.flatnonzero(alike >= min(floors.values())), len(columns))
            if within:
                once = x > y
                y, x = y[once], x[once]
            one, two, value = rows[y], columns[x], alike[y, x]
            found[side].append((one, two, value))
            if sum(len(piece[0]) for piece in found[side]) > 8 * most:
                found[side], dropped = _most_alike(found[side], most)
                left_out += dropped
            others = value[(value > floors[side]) & (patients[one] != patients[two])]
            best[side] = _largest(np.concatenate([best[side], others]), decoys)
            if len(best[side]) == decoys:
                floors[side] = float(best[side].min())
    level = min(floors.values())
    parts = []
    for side in (False, True):
        [(a, b, value)], dropped = _most_alike(found[side], most)
        left_out += dropped
        keep = value >= level
        parts.append((a[keep], b[keep], np.full(int(keep.sum()), side)))
    a, b, mirrored = (np.concatenate(column) for column in zip(*parts, strict=True))
    score, blocks = tex.scores(a, b, mirrored)
    return Candidates(
        first=a,
        second=b,
        mirrored=mirrored,
        same=patients[a] == patients[b],
        score=score,
        weight=_weight(blocks),
        left_out=left_out if np.isfinite(level) else 0,
    )


def _most_alike(
    pieces: list[tuple[Ints, Ints, Floats]], most: int
) -> tuple[list[tuple[Ints, Ints, Floats]], int]:
    a, b, value = (np.concatenate(column) for column in zip(*pieces, strict=True))
    if len(a) <= most:
        return [(a, b, value)], 0
    kept = np.sort(np.argpartition(-value, most)[:most])
    return [(a[kept], b[kept], value[kept])], len(a) - most


def _largest(values: Floats, count: int) -> Floats:
    return values if len(values) <= count else np.partition(values, -count)[-count:]


def level_of(found: Candidates, pooled: npt.NDArray[np.float64] | None = None) -> Level:
    """Set the threshold of two datasets: ABOVE standard deviations over the median of the matched decoys.

    The deviation is taken from the median to the 80 % quantile, which a few copies among the decoys do not
    move. Where there are so many copies that it is moved, the plain pairs are used, then random ones. The
    threshold is never below LEAST_SCORE.

    Args:
        found: The matched candidates of the two datasets.
        pooled: Weighted scores of the decoys of all datasets, used where these two have fewer than FEW; None:
            there are none.

    Returns:
        The threshold; DEFAULT_SCORE where there are too few scores to calibrate by.
    """
    usable = [null for side in (True, False) if len(null := found.null(mirrored=side)) >= FEW]
    how = "decoys of these sets"
    if not usable and pooled is not None and len(pooled) >= FEW:
        usable, how = [pooled], "decoys of all sets: too few pictures here"
    if not usable:
        return Level(
            score=DEFAULT_SCORE,
            decoys=0,
            median=float("nan"),
            how="the default: too few pictures to calibrate",
        )
    levels = [(_chance(null, ABOVE), null) for null in usable]
    if found.random is not None and len(found.random) >= FEW:
        levels.append((_chance(found.random, RANDOM_ABOVE), found.random))
    sound = [entry for entry in levels if entry[0] <= SUSPECT]
    score, null = sound[0] if sound else min(levels, key=lambda entry: entry[0])
    return Level(score=max(score, LEAST_SCORE), decoys=len(null), median=float(np.median(null)), how=how)


def _chance(null: npt.NDArray[np.float64], above: float) -> float:
    median, q80 = np.quantile(null, [0.5, 0.8])
    return float(median + above * max((q80 - median) / 0.8416, 0.01))
