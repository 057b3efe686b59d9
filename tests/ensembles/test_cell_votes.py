"""Votes on cells equal plain votes of masks, with the objects that slides are staged by (LN-14, LN-16)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from elsewhere.ensembles.cell_votes import cells_of, member_words
from elsewhere.errors import UserError
from elsewhere.scoring.slides.objects import measure_objects


def masks(rng: np.random.Generator, count: int, shape=(70, 90)) -> list[np.ndarray]:
    return [ndimage.gaussian_filter(rng.normal(size=shape), 1.5) > 0.12 for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_counts_and_axes_are_those_of_the_whole_masks(seed):
    rng = np.random.default_rng(seed)
    drawn, truth, tissue = masks(rng, 7), masks(rng, 1)[0], masks(rng, 1)[0]
    votes = cells_of(drawn, truth=truth, tissue=tissue)
    sets = [sorted(rng.choice(7, size=rng.integers(1, 8), replace=False).tolist()) for _ in range(40)]
    made = votes.measure(member_words(sets))
    for e, members in enumerate(sets):
        said = 2 * np.sum([drawn[m] for m in members], axis=0) > len(members)
        found = measure_objects(said)
        assert made.true_positive[e] == (said & truth).sum()
        assert made.false_positive[e] == (said & ~truth).sum()
        assert made.false_positive_tissue[e] == (said & ~truth & tissue).sum()
        assert made.objects[e] == found.count
        assert made.axis[e] == pytest.approx(found.largest_axis_px(), abs=1e-9)


def test_a_missing_member_votes_against_the_truth():
    rng = np.random.default_rng(9)
    drawn, truth = masks(rng, 4), masks(rng, 1)[0]
    votes = cells_of([*drawn, None], truth=truth, against=True)
    made = votes.measure(member_words([[0, 1, 4], [0, 4], [4], [0, 1, 2, 3, 4]]))
    for e, members in enumerate(([0, 1], [0], [], [0, 1, 2, 3])):
        said = 2 * (np.sum([drawn[m] for m in members], axis=0) + ~truth) > len(members) + 1
        if members:
            assert made.true_positive[e] == (said & truth).sum()
            assert made.false_positive[e] == (said & ~truth).sum()
    assert made.lost.tolist() == [False, False, True, False]


def test_patch_sums_are_those_of_the_patches():
    rng = np.random.default_rng(3)
    drawn, truth, tissue = masks(rng, 2, (40, 44)), masks(rng, 1, (40, 44))[0], masks(rng, 1, (40, 44))[0]
    truth[:, 16:] = False
    size, dice, fpr, normal = 8, 0.0, 0.0, 0
    by_patch = []
    for top in range(0, 40, size):
        for left in range(0, 44, size):
            part = np.s_[top : top + size, left : left + size]
            by_patch.append(int(tissue[part].sum()))
            said, true = drawn[0][part], truth[part]
            if true.any():
                dice += 2 * (said & true).sum() / (said.sum() + true.sum())
            elif tissue[part].mean() >= 0.1:
                fpr, normal = fpr + said.mean(), normal + 1
    made = cells_of(drawn, truth=truth, tissue=tissue).patch_sums(
        patch=size, tissue_of_patch=np.array(by_patch)
    )
    assert made.sum_dice[0] == pytest.approx(dice)
    assert (made.sum_fpr[0], made.n_normal) == (pytest.approx(fpr), normal)


def test_what_cannot_vote_is_refused():
    mask = np.ones((3, 3), dtype=bool)
    with pytest.raises(UserError, match="no member"):
        cells_of([mask]).measure(member_words([[]]))
    with pytest.raises(UserError, match="hold no probabilities"):
        cells_of([mask]).measure(member_words([[0]]), rule="mean-probability")
    with pytest.raises(UserError, match="63 models"):
        cells_of([mask] * 63)
    with pytest.raises(UserError, match="shapes"):
        cells_of([mask, mask[:2]])
