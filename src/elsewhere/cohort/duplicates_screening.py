"""Which pairs are worth laying over each other, and how alike unrelated pictures get (US-30).

Screening is one matrix product over coarse textures a pair of datasets. The level of chance comes from
decoys: the same pictures, one of the two mirrored left to right. A mirrored picture has the same noise,
depth, layers and darkness as the original, and matches nothing, so its best matches show what chance
alone reaches in these very sets; where a set was enlarged by mirroring, the plain pairs serve instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elsewhere.cohort.duplicates_matching import Floats, Ints, scores, textures

DECOYS = 400
"""So many best decoys of each pair of datasets are matched in full, to see what chance reaches."""
ABOVE = 5.0
"""A pair counts from so many standard deviations above the median decoy. Of some 8,000 matched decoys and
plain pairs of the four public ultrasound sets, the most alike that are not one scene reach 4.9."""
FEW = 40
"""Fewer decoys than this calibrate nothing: the pooled ones of all sets do, or the default."""
DEFAULT_SCORE = 0.6
LEAST_SCORE = 0.35
ROWS = 1024
MOST_EACH = 40


@dataclass(frozen=True, kw_only=True)
class Textures:
    """All pictures at the three sizes: `unit` and `mirrored` for screening, the others for matching."""

    unit: Floats
    mirrored: Floats
    coarse: Floats
    fine: Floats


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Pairs of positions that reach the screening level; `same` is whether they are of one patient."""

    first: Ints
    second: Ints
    mirrored: npt.NDArray[np.bool_]
    same: npt.NDArray[np.bool_]
    score: npt.NDArray[np.float64]
    left_out: int = 0

    def null(self, *, mirrored: bool) -> npt.NDArray[np.float64]:
        """Scores of the candidates of other patients, in one orientation."""
        return self.score[(self.mirrored == mirrored) & ~self.same]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The score from which on a pair counts, and what it was set by."""

    score: float
    decoys: int
    median: float
    how: str


def make_textures(grey: npt.NDArray[np.uint8], datasets: Ints) -> Textures:
    """The mean texture of each dataset is taken out for screening: logos, scales and frames are shared."""
    screen = textures(grey, 16, radius=2)
    for code in np.unique(datasets):
        members = datasets == code
        if members.sum() >= FEW:
            screen[members] -= screen[members].mean(axis=0)
    return Textures(
        unit=_unit(screen),
        mirrored=_unit(screen[:, :, ::-1]),
        coarse=textures(grey, 32, radius=4),
        fine=textures(grey, 64, radius=4),
    )


def _unit(pictures: Floats) -> Floats:
    flat = np.ascontiguousarray(pictures).reshape(len(pictures), -1)
    flat = flat - flat.mean(axis=1, keepdims=True)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), np.float32(1e-6))


def candidates(tex: Textures, first: Ints, second: Ints, patients: Ints) -> Candidates:
    """The pairs of `first` x `second` (each once) that are as alike as the best decoys, matched in full."""
    found: dict[bool, list[tuple[Ints, Ints, Floats]]] = {False: [], True: []}
    floors = {False: -np.inf, True: -np.inf}
    best: dict[bool, Floats] = {side: np.empty(0, dtype=np.float32) for side in (False, True)}
    within = np.array_equal(first, second)
    for begin in range(0, len(first), ROWS):
        rows = first[begin : begin + ROWS]
        same = patients[rows][:, None] == patients[second][None, :]
        valid = np.arange(len(second))[None, :] > np.arange(begin, begin + len(rows))[:, None]
        for side in (False, True):
            alike = tex.unit[rows] @ (tex.mirrored if side else tex.unit)[second].T
            if within:
                alike[~valid] = -np.inf
            others = alike[(alike > max(floors[side], -1.5)) & ~same]
            best[side] = _largest(np.concatenate([best[side], others]), DECOYS)
            if len(best[side]) == DECOYS:
                floors[side] = float(best[side].min())
            level = min(floors.values())
            y, x = np.nonzero(alike >= max(level, -1.5))
            found[side].append((rows[y], second[x], alike[y, x]))
    level = min(floors.values())
    parts = []
    for side, pieces in found.items():
        a, b, s = (np.concatenate(column) for column in zip(*pieces, strict=True))
        keep = s >= level
        parts.append((a[keep], b[keep], s[keep], np.full(int(keep.sum()), side)))
    a, b, s, mirrored = (np.concatenate(column) for column in zip(*parts, strict=True))
    most = MOST_EACH * max(DECOYS, len(first) + len(second))
    order = np.argsort(-s, kind="stable")[:most]
    order.sort()
    left_out = len(a) - len(order)
    a, b, mirrored = a[order].astype(np.int64), b[order].astype(np.int64), mirrored[order]
    return Candidates(
        first=a,
        second=b,
        mirrored=mirrored,
        same=patients[a] == patients[b],
        score=scores(tex.coarse, tex.fine, a, b, mirrored),
        left_out=left_out,
    )


def _largest(values: Floats, count: int) -> Floats:
    return values if len(values) <= count else np.partition(values, -count)[-count:]


def level_of(found: Candidates, pooled: npt.NDArray[np.float64] | None = None) -> Level:
    """ABOVE standard deviations over the median of the matched decoys.

    The deviation is taken from the median to the 80 % quantile, which a few true mirrored copies among the
    decoys do not move; of the two orientations the lower level counts, for copies can only raise it.
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
    levels = [(_chance(null), null) for null in usable]
    score, null = min(levels, key=lambda item: item[0])
    return Level(score=max(score, LEAST_SCORE), decoys=len(null), median=float(np.median(null)), how=how)


def _chance(null: npt.NDArray[np.float64]) -> float:
    median, q80 = np.quantile(null, [0.5, 0.8])
    return float(median + ABOVE * max((q80 - median) / 0.8416, 0.01))
