"""The order and the augmentation of an epoch (US-14)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.training.pictures.draws import draw_epoch, epoch_steps
from elsewhere.training.pictures.settings import ClassifierSettings


def labels(benign, malignant):
    return np.array([0] * benign + [1] * malignant)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
def test_oversampling_draws_both_classes_equally_often(benign, malignant, seed):
    # US-14: the minority class is drawn as often as the majority; no picture twice more than another.
    label = labels(benign, malignant)
    recipe = ClassifierSettings(batch=1)
    draws = draw_epoch(np.random.default_rng(seed), label, np.zeros_like(label), recipe, size_px=32)
    seen = np.bincount(draws.order.ravel(), minlength=len(label))
    assert seen[label == 0].sum() == seen[label == 1].sum() == max(benign, malignant)
    for kind in (0, 1):
        assert seen[label == kind].max() - seen[label == kind].min() <= 1


def test_balanced_datasets_are_drawn_equally_often():
    label = np.array([0, 1] * 50 + [0, 1] * 5)
    group = np.array([0] * 100 + [1] * 10)
    recipe = ClassifierSettings(batch=1, balance_datasets=True)
    draws = draw_epoch(np.random.default_rng(0), label, group, recipe, size_px=32)
    counts = np.bincount(group[draws.order.ravel()])
    assert counts[0] == counts[1]


def test_an_epoch_drops_the_incomplete_batch_and_a_small_part_is_one_batch():
    assert epoch_steps(labels(20, 20), np.zeros(40, int), ClassifierSettings(batch=16)) == (2, 16)
    assert epoch_steps(labels(3, 2), np.zeros(5, int), ClassifierSettings(batch=16)) == (1, 6)


def test_the_same_seed_draws_the_same_epoch():
    label = labels(9, 5)
    one, two = (
        draw_epoch(
            np.random.default_rng(3), label, np.zeros_like(label), ClassifierSettings(batch=4), size_px=32
        )
        for _ in range(2)
    )
    assert np.array_equal(one.order, two.order)
    assert np.array_equal(one.affine, two.affine)
