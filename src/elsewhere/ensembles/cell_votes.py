"""Votes of the models of a fold on the cells of one slide, and what each ensemble's mask is worth there (LN-14, LN-16).

A slide is a grid of cells of about 8 microns. Only cells that some model or the truth calls tumour are kept, each with
one word of bits: which models call it, whether it is tumour, and whether it is tissue. From these words alone every
ensemble of these models has its pixel counts and the longest axis of its objects, without a further look at a mask. So
a thousand random ensembles cost one pass over a short list each.

A model without a mask votes against the truth, as any missing answer counts as the worst one (ST-14): no cell of a slide
with a macro- or micro-metastasis, and every cell without tumour of any other slide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numba
import numpy as np
import numpy.typing as npt

from elsewhere.ensembles.pixel_votes import TIE_RULES
from elsewhere.errors import UserError, unknown_name

MOST_MEMBERS = 62
TISSUE, TRUTH = np.uint64(1) << np.uint64(62), np.uint64(1) << np.uint64(63)
_NOWHERE = -1
WordArray = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@numba.njit(cache=True, nogil=True)
def _bits(word: np.uint64) -> int:
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True, nogil=True)
def _neighbours(rows: npt.NDArray[np.int32], columns: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The cell to the left, and the three above, of cells in order of row and column; -1 where there is none."""
    count = rows.size
    out = np.full((count, 4), -1, dtype=np.int32)
    above = 0
    for p in range(count):
        r, c = rows[p], columns[p]
        if p and rows[p - 1] == r and columns[p - 1] == c - 1:
            out[p, 0] = p - 1
        while above < p and (rows[above] < r - 1 or (rows[above] == r - 1 and columns[above] < c - 1)):
            above += 1
        q = above
        while q < p and rows[q] == r - 1 and columns[q] <= c + 1:
            out[p, 1 + columns[q] - (c - 1)] = q
            q += 1
    return out


@numba.njit(cache=True, nogil=True)
def _root(parent: npt.NDArray[np.int32], p: int) -> int:
    while parent[p] != p:
        parent[p] = parent[parent[p]]
        p = parent[p]
    return p


@numba.njit(cache=True, nogil=True)
def _axis(sums: npt.NDArray[np.int64]) -> float:
    """The major axis of the ellipse of equal second moments, from the number of cells and sums of places and products."""
    n = float(sums[0])
    r, c = sums[1] / n, sums[2] / n
    rr, cc, rc = sums[3] / n - r * r, sums[4] / n - c * c, sums[5] / n - r * c
    larger = (rr + cc) / 2 + np.sqrt(((rr - cc) / 2) ** 2 + rc * rc)
    return float(4 * np.sqrt(max(larger, 0.0)))


@numba.njit(cache=True, nogil=True)
def _measure_called(
    called: npt.NDArray[np.bool_],
    words: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.int32],
    columns: npt.NDArray[np.int32],
    neighbours: npt.NDArray[np.int32],
    parent: npt.NDArray[np.int32],
    sums: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
) -> float:
    """Counts of one ensemble, and the longest axis of its 8-connected objects in cells."""
    tissue, truth = np.uint64(1) << np.uint64(62), np.uint64(1) << np.uint64(63)
    for p in range(called.size):
        if not called[p]:
            continue
        if words[p] & truth:
            counts[0] += 1
        else:
            counts[1] += 1
            if words[p] & tissue:
                counts[2] += 1
        parent[p] = p
        sums[p, :] = 0
        for k in range(4):
            q = neighbours[p, k]
            if q >= 0 and called[q]:
                one, other = _root(parent, p), _root(parent, q)
                if one < other:
                    parent[other] = one
                else:
                    parent[one] = other
    longest = 0.0
    for p in range(called.size):
        if called[p]:
            at = _root(parent, p)
            r, c = np.int64(rows[p]), np.int64(columns[p])
            sums[at, 0] += 1
            sums[at, 1] += r
            sums[at, 2] += c
            sums[at, 3] += r * r
            sums[at, 4] += c * c
            sums[at, 5] += r * c
    for p in range(called.size):
        if called[p] and parent[p] == p:
            counts[3] += 1
            longest = max(longest, _axis(sums[p]))
    return longest


@numba.njit(cache=True, nogil=True)
def _patches_of_word(
    words: npt.NDArray[np.uint64], neighbours: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], int]:
    """Number the connected patches of cells of one word: an ensemble calls all of such a patch, or nothing of it."""
    parent = np.arange(words.size).astype(np.int32)
    for p in range(words.size):
        for k in range(4):
            q = neighbours[p, k]
            if q >= 0 and words[q] == words[p]:
                one, other = _root(parent, p), _root(parent, q)
                if one < other:
                    parent[other] = one
                else:
                    parent[one] = other
    number = np.zeros(words.size, dtype=np.int32)
    count = 0
    for p in range(words.size):
        if parent[p] == p:
            number[p] = count
            count += 1
        else:
            number[p] = number[_root(parent, p)]
    return number, count


@numba.njit(cache=True, nogil=True)
def _measure_strict(
    members: npt.NDArray[np.uint64],
    absent: np.uint64,
    against: bool,
    words: npt.NDArray[np.uint64],
    sums: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int64],
    axis: npt.NDArray[np.float64],
) -> None:
    """Vote on patches of one word, join those that touch, and measure the objects."""
    tissue, truth = np.uint64(1) << np.uint64(62), np.uint64(1) << np.uint64(63)
    called = np.zeros(words.size, dtype=np.bool_)
    parent = np.zeros(words.size, dtype=np.int32)
    total = np.zeros((words.size, 6), dtype=np.int64)
    for e in range(members.size):
        size, lost = _bits(members[e]), _bits(members[e] & absent)
        for p in range(words.size):
            votes = 2 * _bits(words[p] & members[e])
            if against and not words[p] & truth:
                votes += 2 * lost
            called[p] = votes > size
            if called[p]:
                parent[p] = p
                if words[p] & truth:
                    counts[e, 0] += sums[p, 0]
                else:
                    counts[e, 1] += sums[p, 0]
                    if words[p] & tissue:
                        counts[e, 2] += sums[p, 0]
                for k in range(6):
                    total[p, k] = sums[p, k]
        for k in range(edges.shape[0]):
            p, q = edges[k, 0], edges[k, 1]
            if called[p] and called[q]:
                one, other = _root(parent, p), _root(parent, q)
                if one < other:
                    parent[other] = one
                elif other < one:
                    parent[one] = other
        longest = 0.0
        for p in range(words.size - 1, -1, -1):
            if called[p] and parent[p] != p:
                at = parent[p]
                for k in range(6):
                    total[at, k] += total[p, k]
        for p in range(words.size):
            if called[p] and parent[p] == p:
                counts[e, 3] += 1
                longest = max(longest, _axis(total[p]))
        axis[e] = longest


@numba.njit(cache=True, nogil=True)
def _measure_mean(
    members: npt.NDArray[np.uint64],
    levels: npt.NDArray[np.uint16],
    limit: float,
    words: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.int32],
    columns: npt.NDArray[np.int32],
    neighbours: npt.NDArray[np.int32],
    counts: npt.NDArray[np.int64],
    axis: npt.NDArray[np.float64],
) -> None:
    called = np.zeros(words.size, dtype=np.bool_)
    parent = np.zeros(words.size, dtype=np.int32)
    sums = np.zeros((words.size, 6), dtype=np.int64)
    total = np.zeros(words.size, dtype=np.int64)
    for e in range(members.size):
        total[:] = 0
        for m in range(levels.shape[0]):
            if members[e] & (np.uint64(1) << np.uint64(m)):
                for p in range(words.size):
                    total[p] += levels[m, p]
        least = limit * _bits(members[e])
        for p in range(words.size):
            called[p] = total[p] > least
        axis[e] = _measure_called(called, words, rows, columns, neighbours, parent, sums, counts[e])


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the masks of several ensembles are worth on one slide.

    Attributes:
        true_positive: Cells of tumour that each ensemble calls.
        false_positive: Cells without tumour that it calls.
        false_positive_tissue: Those on tissue.
        objects: Its 8-connected objects.
        axis: The longest major axis of any of them, in cells.
        lost: Whether over half of its members have no mask where these vote for everything but the truth: the answer
            counts as the worst one.
    """

    true_positive: IntArray
    false_positive: IntArray
    false_positive_tissue: IntArray
    objects: IntArray
    axis: FloatArray
    lost: BoolArray


@dataclass(frozen=True, kw_only=True)
class CellVotes:
    """Which models of one fold call which cells of one slide.

    Args:
        shape: Rows and columns of cells of the slide.
        cell_um: Microns along a cell.
        rows: The row of each kept cell, in rising order.
        columns: Its column, rising within a row.
        words: Bit m for model m, bit 62 for tissue, bit 63 for tumour in the truth.
        present: Which models have a mask.
        n_tissue: Cells of tissue of the whole slide; 0 where tissue is not known.
        against: Whether models without a mask vote for every cell without tumour; otherwise for none.
        levels: Of masks of probabilities: the mean of each model on the kept cells, 0 to 65,535; None for masks.
        limit: With `levels`: the mean above which a cell is tumour, on the same scale.
    """

    shape: tuple[int, int]
    cell_um: float
    rows: npt.NDArray[np.int32]
    columns: npt.NDArray[np.int32]
    words: WordArray
    present: BoolArray
    n_tissue: int = 0
    against: bool = False
    levels: npt.NDArray[np.uint16] | None = None
    limit: float = 0.5 * 65_280
    _neighbours: npt.NDArray[np.int32] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_neighbours", _neighbours(self.rows, self.columns))

    @property
    def n_cells(self) -> int:
        """All cells of the slide."""
        return self.shape[0] * self.shape[1]

    @property
    def n_truth(self) -> int:
        """Cells of tumour in the truth."""
        return int(np.count_nonzero(self.words & TRUTH))

    def measure(self, members: WordArray, *, rule: str = "strict") -> Measured:
        """Vote, and measure the mask of each ensemble.

        Args:
            members: One word per ensemble, bit m for model m.
            rule: 'strict' (more than half of the members) or 'mean-probability' (the mean of their probabilities is above
                the threshold).

        Returns:
            Counts of cells, and the longest axis.

        Raises:
            UserError: The rule is not known, an ensemble has no member, or there are no probabilities.

        Example:
            >>> votes = cells_of([np.eye(3, dtype=bool), np.ones((3, 3), dtype=bool)], truth=np.eye(3, dtype=bool))
            >>> made = votes.measure(member_words([[0], [1], [0, 1]]))
            >>> made.true_positive.tolist(), made.false_positive.tolist()
            ([3, 3, 3], [0, 6, 0])
        """
        members = np.ascontiguousarray(members, dtype=np.uint64)
        if rule not in TIE_RULES:
            raise unknown_name("tie rule", rule, list(TIE_RULES))
        if members.size and int(members.min()) == 0:
            raise UserError("an ensemble has no member", fix="Give each ensemble at least one model.")
        absent = np.bitwise_or.reduce(
            np.where(self.present, 0, np.uint64(1) << np.arange(self.present.size, dtype=np.uint64)),
            initial=np.uint64(0),
        ).astype(np.uint64)
        counts = np.zeros((members.size, 4), dtype=np.int64)
        axis = np.zeros(members.size)
        size, gone = _popcount(members), _popcount(members & absent)
        if rule == "strict":
            words, sums, edges = self._patches()
            _measure_strict(members, absent, self.against, words, sums, edges, counts, axis)
            lost = (2 * gone > size) if self.against else gone == size
        else:
            if self.levels is None:
                raise UserError(
                    "the masks hold no probabilities, and the rule mean-probability needs them",
                    fix="Give masks of probabilities, or --rule strict.",
                )
            grid = (self.words, self.rows, self.columns, self._neighbours)
            _measure_mean(members, self.levels, self.limit, *grid, counts, axis)
            lost = gone > 0 if self.against else gone == size
        return Measured(
            true_positive=counts[:, 0],
            false_positive=counts[:, 1],
            false_positive_tissue=counts[:, 2],
            objects=counts[:, 3],
            axis=axis,
            lost=lost,
        )

    def _patches(self) -> tuple[WordArray, IntArray, npt.NDArray[np.int32]]:
        """Connected patches of one word: their words, sums of places and products, and which of them touch.

        Cells that no model calls are left out.
        """
        models = ~(TISSUE | TRUTH)
        number, count = _patches_of_word(self.words, self._neighbours)
        words = np.zeros(count, dtype=np.uint64)
        words[number] = self.words
        r, c = self.rows.astype(np.int64), self.columns.astype(np.int64)
        sums = np.zeros((count, 6), dtype=np.int64)
        for k, values in enumerate((np.ones_like(r), r, c, r * r, c * c, r * c)):
            np.add.at(sums[:, k], number, values)
        cell, which = np.nonzero(self._neighbours >= 0)
        pairs = np.sort(
            np.stack([number[cell], number[self._neighbours[cell, which]]], axis=1).astype(np.int64), axis=1
        )
        used = ((words & models) != 0)[pairs].all(axis=1) & (pairs[:, 0] != pairs[:, 1])
        codes = np.unique(pairs[used, 0] * count + pairs[used, 1])
        kept = (words & models) != 0
        place = np.cumsum(kept) - 1
        edges = np.stack([place[codes // max(count, 1)], place[codes % max(count, 1)]], axis=1)
        return words[kept], sums[kept], np.ascontiguousarray(edges, dtype=np.int32)

    def patch_sums(
        self, *, patch: int, tissue_of_patch: IntArray | None, least_tissue: float = 0.1
    ) -> PatchSums:
        """Add up Dice and false-positive rates over patches, one row per model (LN-02, LN-10).

        Args:
            patch: Cells along a patch.
            tissue_of_patch: Cells of tissue of each patch, row by row; None where tissue is not known, and every patch without
                tumour counts.
            least_tissue: The share of a patch without tumour that has to be tissue for it to count.

        Returns:
            The sums of each model; NaN for a model without a mask.

        Example:
            >>> votes = cells_of([np.ones((4, 4), dtype=bool)], truth=np.eye(4, dtype=bool))
            >>> made = votes.patch_sums(patch=2, tissue_of_patch=None)
            >>> made.n_tumour, made.n_normal, made.sum_dice.round(2).tolist(), made.sum_fpr.tolist()
            (2, 2, [1.33], [2.0])
        """
        down, across = -(-self.shape[0] // patch), -(-self.shape[1] // patch)
        which = (self.rows.astype(np.int64) // patch) * across + self.columns // patch
        cells = np.outer(
            np.minimum(patch, self.shape[0] - patch * np.arange(down)),
            np.minimum(patch, self.shape[1] - patch * np.arange(across)),
        ).ravel()
        is_truth = (self.words & TRUTH) != 0
        tumour = np.bincount(which[is_truth], minlength=cells.size)
        on_tumour = tumour > 0
        normal = ~on_tumour
        if tissue_of_patch is not None:
            normal &= tissue_of_patch >= least_tissue * cells
        dice, rate = np.full(self.present.size, np.nan), np.full(self.present.size, np.nan)
        for m in np.flatnonzero(self.present):
            said = (self.words & (np.uint64(1) << np.uint64(m))) != 0
            marked = np.bincount(which[said], minlength=cells.size)
            both = np.bincount(which[said & is_truth], minlength=cells.size)
            dice[m] = float((2 * both[on_tumour] / (marked[on_tumour] + tumour[on_tumour])).sum())
            rate[m] = float((marked[normal] / cells[normal]).sum())
        return PatchSums(
            n_tumour=int(on_tumour.sum()), n_normal=int(normal.sum()), sum_dice=dice, sum_fpr=rate
        )


@dataclass(frozen=True, kw_only=True)
class PatchSums:
    """Sums over the patches of one slide and fold.

    Attributes:
        n_tumour: Patches with tumour.
        n_normal: Patches without tumour that count.
        sum_dice: The sum of Dice over the former, by model.
        sum_fpr: The sum of false-positive rates over the latter, by model.
    """

    n_tumour: int
    n_normal: int
    sum_dice: FloatArray
    sum_fpr: FloatArray


def _popcount(words: WordArray) -> IntArray:
    return np.asarray(np.bitwise_count(words), dtype=np.int64)


def member_words(ensembles: Sequence[Sequence[int]]) -> WordArray:
    """Write ensembles as words of bits.

    Args:
        ensembles: The models of each, by number.

    Returns:
        One word per ensemble.

    Raises:
        UserError: A number is no model that can vote.

    Example:
        >>> member_words([[0], [0, 2]]).tolist()
        [1, 5]
    """
    out = np.zeros(len(ensembles), dtype=np.uint64)
    for e, members in enumerate(ensembles):
        for m in members:
            if not 0 <= m < MOST_MEMBERS:
                raise UserError(
                    f"model {m} cannot vote", fix=f"At most {MOST_MEMBERS} models vote in a fold."
                )
            out[e] |= np.uint64(1) << np.uint64(m)
    return out


def cells_of(
    masks: Sequence[BoolArray | None],
    *,
    truth: BoolArray | None = None,
    tissue: BoolArray | None = None,
    cell_um: float = 8.0,
    against: bool = False,
) -> CellVotes:
    """Collect the votes of masks that are in memory.

    Args:
        masks: The mask of each model on the cells; None for a model without one.
        truth: The true mask; None for a slide without tumour.
        tissue: Where tissue is; None where it is not known.
        cell_um: Microns along a cell.
        against: Whether models without a mask vote for every cell without tumour.

    Returns:
        The votes.

    Raises:
        UserError: There is no mask at all, the masks differ in size, or they are too many.

    Example:
        >>> cells_of([np.eye(4, dtype=bool), None], truth=np.ones((4, 4), dtype=bool)).present.tolist()
        [True, False]
    """
    if not 1 <= len(masks) <= MOST_MEMBERS:
        raise UserError(
            f"{len(masks)} models cannot vote", fix=f"Give 1 to {MOST_MEMBERS} models of one fold."
        )
    there = [mask for mask in (*masks, truth, tissue) if mask is not None]
    shapes = {mask.shape for mask in there}
    if len(shapes) != 1:
        raise UserError(f"the masks have the shapes {sorted(shapes)}", fix="Give masks on the same cells.")
    shape = there[0].shape
    words = np.zeros(shape, dtype=np.uint64)
    for m, mask in enumerate(masks):
        if mask is not None:
            words |= mask.astype(np.uint64) << np.uint64(m)
    return sparse_votes(
        words,
        truth=truth,
        tissue=tissue,
        cell_um=cell_um,
        present=np.array([mask is not None for mask in masks]),
        against=against,
    )


def sparse_votes(
    words: WordArray,
    *,
    truth: BoolArray | None,
    tissue: BoolArray | None,
    cell_um: float,
    present: BoolArray,
    against: bool = False,
    means: Sequence[npt.NDArray[np.uint16] | None] | None = None,
    limit: float = 0.0,
) -> CellVotes:
    """Keep the cells that some model or the truth calls tumour.

    Args:
        words: One word per cell of the slide, bit m for model m.
        truth: The true mask; None for a slide without tumour.
        tissue: Where tissue is; None where it is not known.
        cell_um: Microns along a cell.
        present: Which models have a mask.
        against: Whether models without a mask vote for every cell without tumour.
        means: Of masks of probabilities: the mean of each model on every cell; None for masks.
        limit: With `means`: the mean above which a cell is tumour.

    Returns:
        The votes.

    Example:
        >>> words = np.zeros((2, 3), dtype=np.uint64); words[1, 2] = 1
        >>> made = sparse_votes(words, truth=None, tissue=None, cell_um=8.0, present=np.array([True]))
        >>> made.rows.tolist(), made.columns.tolist()
        ([1], [2])
    """
    whole = words if truth is None else words | (truth.astype(np.uint64) << np.uint64(63))
    flat = np.flatnonzero(whole)
    kept = whole.ravel()[flat]
    if tissue is not None:
        kept = kept | (tissue.ravel()[flat].astype(np.uint64) << np.uint64(62))
    levels = None
    if means is not None:
        levels = np.zeros((len(means), flat.size), dtype=np.uint16)
        for m, mean in enumerate(means):
            if mean is not None:
                levels[m] = mean.ravel()[flat]
    return CellVotes(
        shape=(int(words.shape[0]), int(words.shape[1])),
        cell_um=cell_um,
        rows=(flat // words.shape[1]).astype(np.int32),
        columns=(flat % words.shape[1]).astype(np.int32),
        words=kept,
        present=present,
        n_tissue=0 if tissue is None else int(np.count_nonzero(tissue)),
        against=against,
        levels=levels,
        limit=limit,
    )
