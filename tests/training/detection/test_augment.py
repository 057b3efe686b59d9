"""Augmentation: pixels and boxes move together, nothing is drawn (DBT-14)."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")

from elsewhere.networks.detectors.base import Targets  # noqa: E402
from elsewhere.training.detection.augment import (  # noqa: E402
    affine,
    brightness,
    copy_paste,
    flip_horizontal,
    flip_vertical,
    gamma,
    inverse,
    mosaic,
    move_boxes,
)

BOXES = torch.tensor([[10.0, 20, 30, 28], [40, 8, 56, 40], [4, 50, 24, 60]])
YES, NO = torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)


def scene():
    """Three grey pictures, each with one bright rectangle."""
    pictures = torch.full((3, 3, 64, 80), 0.2)
    for at, (x0, y0, x1, y1) in enumerate(BOXES.int().tolist()):
        pictures[at, :, y0:y1, x0:x1] = 0.8
    return pictures, Targets(box=BOXES[:, None], label=torch.tensor([[1], [0], [1]]))


def bright_box(picture, above=0.5):
    ys, xs = torch.nonzero(picture[1] > above, as_tuple=True)
    return [float(v) for v in (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)]


def agrees(pictures, targets, tolerance=0.0):
    for at in range(len(pictures)):
        box = targets.box[at, targets.there[at]]
        assert torch.tensor(bright_box(pictures[at])).sub(box[0]).abs().max() <= tolerance


@pytest.mark.parametrize("flip", [flip_horizontal, flip_vertical])
def test_flips_move_boxes_with_pixels_and_undo_themselves(flip):
    pictures, targets = scene()
    flipped, moved = flip(pictures, targets, YES)
    agrees(flipped, moved)
    back, again = flip(flipped, moved, YES)
    assert torch.equal(back, pictures) and torch.equal(again.box, targets.box)
    same, held = flip(pictures, targets, NO)
    assert torch.equal(same, pictures) and torch.equal(held.box, targets.box)


def test_absent_rows_stay_zero():
    pictures, _ = scene()
    none = Targets(box=torch.zeros(3, 2, 4), label=torch.full((3, 2), -1))
    for flip in (flip_horizontal, flip_vertical):
        assert (flip(pictures, none, YES)[1].box == 0).all()


def test_affine_moves_boxes_with_pixels():
    pictures, targets = scene()
    matrix = torch.tensor([[0.5, 0, 4], [0, 0.5, 10]]).expand(3, 2, 3).clone()
    matrix[1] = torch.tensor([[1.25, 0, -6], [0, 1.25, -2]])
    matrix[2] = torch.tensor([[1.0, 0.0, -9.0], [0.0, 1.0, 7.0]])
    seen, moved = affine(pictures, targets, matrix)
    agrees(seen, moved, tolerance=1.5)


def test_a_turned_box_is_the_box_around_its_corners():
    angle = math.radians(90)
    turn = torch.tensor(
        [[[math.cos(angle), -math.sin(angle), 64.0], [math.sin(angle), math.cos(angle), 0.0]]]
    )
    one = Targets(box=torch.tensor([[[10.0, 20, 30, 28]]]), label=torch.tensor([[1]]))
    found = move_boxes(one, turn, (100, 100))
    assert torch.allclose(found.box[0, 0], torch.tensor([36.0, 10, 44, 30]), atol=1e-4)


def test_matrices_are_undone():
    matrix = torch.tensor([[[0.9, 0.2, 5.0], [-0.1, 1.3, -7.0]]])
    there = torch.tensor([[3.0, 8.0, 1.0]])
    moved = torch.einsum("nak,nk->na", matrix, there)
    back = torch.einsum("nak,nk->na", inverse(matrix), torch.cat([moved, torch.ones(1, 1)], dim=1))
    assert torch.allclose(back, there[:, :2], atol=1e-5)


def test_lesions_of_which_little_is_left_are_absent():
    one = Targets(box=torch.tensor([[[0.0, 0, 10, 10], [8, 0, 18, 10]]]), label=torch.tensor([[1, 0]]))
    shift = torch.tensor([[[1.0, 0, -7.5], [0, 1.0, 0]]])
    found = move_boxes(one, shift, (20, 20))
    assert found.label.tolist() == [[-1, 0]] and found.box[0, 1].tolist() == [0.5, 0, 10.5, 10]


def test_a_lesion_larger_than_the_picture_is_still_one():
    one = Targets(box=torch.tensor([[[-100.0, -100, 300, 300]]]), label=torch.tensor([[1]]))
    found = move_boxes(one, torch.tensor([[[1.0, 0, 0], [0, 1.0, 0]]]), (64, 80))
    assert found.label.tolist() == [[1]] and found.box.tolist() == [[[0, 0, 80, 64]]]


def test_brightness_and_gamma_change_values_alone():
    pictures, targets = scene()
    factor = torch.tensor([1.0, 2.0, 0.5])
    seen, held = brightness(pictures, targets, factor)
    assert held is targets and seen.max() == 1 and torch.allclose(seen[2], pictures[2] / 2)
    seen, held = gamma(pictures, targets, factor)
    assert held is targets and torch.allclose(seen[1], pictures[1] ** 2) and torch.equal(seen[0], pictures[0])


def test_a_lesion_is_pasted_with_its_box():
    pictures, targets = scene()
    place = torch.tensor([[60.0, 44.0], [20.0, 20.0], [50.0, 30.0]])
    on = torch.tensor([True, False, True])
    seen, found = copy_paste(pictures, targets, torch.tensor([1, 0, 0]), place, on)
    assert found.label.tolist() == [[1, 0], [0, -1], [1, 1]]
    assert found.box[0, 1].tolist() == [52, 28, 68, 60]
    assert torch.equal(seen[1], pictures[1])
    x, y = 50, 30
    assert seen[2, 1, y, x] == pytest.approx(0.8) and pictures[2, 1, y, x] == pytest.approx(0.2)
    assert found.box[2, 1].tolist() == [40, 26, 60, 34]
    assert torch.equal(targets.box, scene()[1].box) and torch.equal(pictures, scene()[0])


@pytest.mark.parametrize("why", ["border", "background", "no lesion"])
def test_nothing_is_pasted_where_it_cannot_be(why):
    pictures, targets = scene()
    place = torch.full((3, 2), 40.0)
    if why == "border":
        place[:] = 2.0
    if why == "background":
        pictures[:] = 0
    if why == "no lesion":
        targets = Targets(box=targets.box * 0, label=torch.full_like(targets.label, -1))
    seen, found = copy_paste(pictures, targets, torch.tensor([1, 2, 0]), place, YES)
    assert torch.equal(seen, pictures) and (found.label[:, 1] == -1).all()


def test_a_mosaic_shows_four_pictures_and_their_lesions():
    pictures, targets = scene()
    others = torch.tensor([[1, 2, 0], [0, 0, 0], [0, 1, 2]])
    centre = torch.tensor([[38.0, 45.0]] * 3)
    on = torch.tensor([True, False, False])
    seen, found = mosaic(pictures, targets, others, centre, on)
    assert found.label.shape == (3, 4)
    assert torch.equal(seen[1], pictures[1]) and torch.equal(seen[0, :, :45, :38], pictures[0, :, :45, :38])
    assert torch.equal(seen[0, :, :45, 38:], pictures[1, :, :45, 38:])
    assert torch.equal(seen[0, :, 45:, :38], pictures[2, :, 45:, :38])
    boxes = found.box[0][found.there[0]].tolist()
    assert boxes == [[10, 20, 30, 28], [40, 8, 56, 40], [4, 50, 24, 60]]
    assert found.box[1][found.there[1]].tolist() == [[40, 8, 56, 40]]
