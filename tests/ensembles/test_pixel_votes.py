"""Pixel votes (LN-16): every ensemble from one count, equal to voting pixel by pixel; the tie rules by name."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.ensembles.pixel_votes import count_votes, dice_and_fpr, is_and, vote
from elsewhere.errors import UserError


@pytest.fixture(scope="module")
def world():
    """Seven noisy models on 12 patches, a third of them without tumour."""
    rng = np.random.default_rng(0)
    truth = np.zeros((12, 16, 16), dtype=bool)
    truth[:8, 4:11, 3:12] = True
    flips = rng.random((7, *truth.shape)) < rng.uniform(0.05, 0.3, (7, 1, 1, 1))
    return truth ^ flips, truth


def test_every_ensemble_is_the_vote_of_its_members(world):
    masks, truth = world
    rng = np.random.default_rng(1)
    members = [sorted(rng.choice(7, size=rng.integers(1, 8), replace=False).tolist()) for _ in range(40)]
    votes = count_votes(masks, truth)
    made = votes.confusion(members)
    assert made.shape == (40, 12, 4) and (made.sum(axis=2) == 256).all()
    for e, chosen in enumerate(members):
        called = vote(masks[chosen].astype(float))
        counts = [(called & truth), (called & ~truth), (~called & truth), (~called & ~truth)]
        expected = np.stack([one.sum(axis=(1, 2)) for one in counts], axis=1)
        assert (made[e] == expected).all()
    assert votes.words.size < 0.5 * truth.size


def test_many_models_use_the_highest_bits():
    rng = np.random.default_rng(2)
    masks, truth = rng.random((63, 2, 50)) < 0.5, rng.random((2, 50)) < 0.5
    made = count_votes(masks, truth).confusion([[62], list(range(63))])
    assert made[0, :, 0].tolist() == (masks[62] & truth).sum(axis=1).tolist()
    assert made[1, :, 0].tolist() == ((masks.sum(axis=0) > 31) & truth).sum(axis=1).tolist()


def test_two_members_are_an_and_by_the_strict_rule_and_no_and_by_the_mean(world):
    masks, truth = world
    both = count_votes(masks, truth).confusion([[0, 1]])[0]
    assert both[:, 0].tolist() == (masks[0] & masks[1] & truth).sum(axis=(1, 2)).tolist()
    assert is_and([0, 1]) and not is_and([0, 1], "mean-probability") and not is_and([0, 1, 2])
    probabilities = np.array([[0.9, 0.9, 0.2], [0.2, 0.0, 0.2]])
    assert vote(probabilities).tolist() == [False, False, False]
    assert vote(probabilities, rule="mean-probability").tolist() == [True, False, False]


def test_a_tie_of_four_is_no_majority():
    members = np.array([[1.0], [1.0], [0.0], [0.0]])
    assert vote(members).tolist() == [False]
    assert vote(members[:3]).tolist() == [True]


def test_dice_is_of_tumour_patches_and_the_rate_of_normal_ones(world):
    masks, truth = world
    dice, fpr = dice_and_fpr(count_votes(masks, truth).confusion([list(range(7))]))
    assert np.isfinite(dice[0, :8]).all() and np.isnan(dice[0, 8:]).all()
    assert np.isnan(fpr[0, :8]).all() and (fpr[0, 8:] < 0.1).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, t: count_votes(m, t[:5]), "have the shape"),
        (lambda m, t: count_votes(m * 255, t), "other values than 0 and 1"),
        (
            lambda m, t: count_votes(np.zeros((64, 1, 2), dtype=bool), np.zeros((1, 2), dtype=bool)),
            "64 models",
        ),
        (lambda m, t: count_votes(m, t).confusion([[]]), "no member"),
        (lambda m, t: count_votes(m, t).confusion([[1, 1]]), "one member twice"),
        (lambda m, t: count_votes(m, t).confusion([[7]]), "model 7 is not among the 7 models"),
        (lambda m, t: vote([[0.5]], rule="loose"), "no tie rule 'loose'"),
        (lambda m, t: vote([[1.5]]), "below 0, above 1 or no number"),
        (lambda m, t: vote([[np.nan]]), "below 0, above 1 or no number"),
    ],
)
def test_bad_votes_are_refused(world, call, words):
    with pytest.raises(UserError, match=words):
        call(*world)
