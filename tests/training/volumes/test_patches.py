from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.volumes import Plan, fingerprint, make_plan, prepare
from elsewhere.training.volumes.patches import (
    BLUR,
    BRIGHTNESS,
    CONTRAST,
    GAMMA,
    INVERTED,
    JITTERS,
    NOISE,
    PLAIN,
    change,
    cut,
    draw_patches,
    noise_values,
)
from worlds.ball_volumes import TINY, ball_volumes


def world(shape=(24, 22, 20), patch=(16, 16, 16)):
    volumes, _ = ball_volumes(3, shape=shape)
    cases = list(volumes.images)
    plan = make_plan(fingerprint(volumes, cases, "three"), "three", **(TINY | {"patch": patch}))
    return prepare(volumes, cases, plan, "three"), plan


def made(data, draws, step, plan):
    tables = (torch.from_numpy(v[step]) for v in (draws.offset, draws.shape, draws.matrix))
    return cut(data.images, data.masks, *tables, plan.patch)


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(3, 30), st.integers(3, 30), st.sampled_from([1, 2, 9, 20])),
    seed=st.integers(0, 99),
)
def test_an_unturned_patch_is_a_slice_of_its_volume(shape, seed):
    data, plan = world(shape=shape)
    draws = draw_patches(np.random.default_rng(seed), data, plan, steps=1, batch=2, augment=False)
    x, target = made(data, draws, 0, plan)
    for at in range(2):
        image, mask = data.volume(data.cases[draws.row[0, at]])
        low = np.round(draws.matrix[0, at, :, 3] - (np.array(plan.patch) - 1) / 2).astype(int)
        grown = torch.zeros((3, *(s + 2 * p for s, p in zip(shape, plan.patch, strict=True))))
        drawn = torch.zeros(grown.shape[1:])
        inner = tuple(slice(p, p + s) for s, p in zip(shape, plan.patch, strict=True))
        grown[(slice(None), *inner)], drawn[inner] = image, mask.float()
        part = tuple(slice(a + p, a + 2 * p) for a, p in zip(low, plan.patch, strict=True))
        assert torch.allclose(x[at], grown[(slice(None), *part)], atol=1e-5)
        assert torch.equal(target[at, 0], drawn[part])


@pytest.mark.parametrize(("batch", "sure"), [(1, None), (2, 1), (3, 1), (6, 2)])
def test_every_step_has_its_third_on_foreground(batch, sure):
    """nnU-Net's rule: of two patches one, of three one; MRI-13."""
    shape, steps = (60, 60, 60), 60
    empty, ball = np.zeros(shape, np.float32), np.zeros(shape, bool)
    ball[50:54, 50:54, 50:54] = True
    volumes = MemoryVolumes(images={"W/0": [empty] * 3}, masks={"W/0": ball})
    plan = make_plan(fingerprint(volumes, ["W/0"], "three"), "three", **(TINY | {"patch": (8, 8, 8)}))
    data = prepare(volumes, ["W/0"], plan, "three")
    draws = draw_patches(np.random.default_rng(0), data, plan, steps=steps, batch=batch, augment=False)
    hits = [int(made(data, draws, step, plan)[1].amax((1, 2, 3, 4)).sum()) for step in range(steps)]
    # of the others about (11/53)^3 hit, one in a hundred
    if sure is None:
        assert 20 <= sum(hits) <= 23
    else:
        assert min(hits) == sure
        assert sum(hits) <= sure * steps + 0.05 * steps * batch


def test_the_same_generator_draws_the_same_and_another_does_not():
    data, plan = world()
    one, two, three = (
        draw_patches(np.random.default_rng(s), data, plan, steps=4, batch=2) for s in (1, 1, 2)
    )
    assert np.array_equal(one.matrix, two.matrix) and np.array_equal(one.jitter, two.jitter)
    assert not np.array_equal(one.matrix, three.matrix)


def test_a_mirrored_draw_gives_the_mirrored_patch():
    data, plan = world()
    draws = draw_patches(np.random.default_rng(3), data, plan, steps=1, batch=2, augment=False)
    x, target = made(data, draws, 0, plan)
    draws.matrix[:, :, 1, 1] = -1
    mirrored, mirrored_target = made(data, draws, 0, plan)
    assert torch.equal(mirrored, x.flip(3)) and torch.equal(mirrored_target, target.flip(3))


def test_turns_keep_lengths_in_mm():
    plan = make_plan(fingerprint(*_one_case(spacing=(0.5, 1.0, 1.25)), "three"), "three", **TINY)
    from elsewhere.training.volumes.patches import _turns

    turns = _turns(np.random.default_rng(0), 400, plan)
    spacing = np.array(plan.spacing_mm)
    in_mm = spacing[None, :, None] * turns / spacing[None, None, :]
    squares = np.einsum("nij,nik->njk", in_mm, in_mm)
    scale = squares[:, 0, 0]
    assert np.allclose(squares, scale[:, None, None] * np.eye(3), atol=1e-6)
    assert scale.min() > 0.7**2 - 1e-6 and scale.max() < 1.4**2 + 1e-6
    still = np.isclose(np.abs(turns), np.eye(3)).all(axis=(1, 2)).mean()
    assert 0.5 < still < 0.78


def _one_case(spacing):
    volumes, _ = ball_volumes(1)
    return MemoryVolumes(images=volumes.images, masks=volumes.masks, spacing_mm={"W/0": spacing}), ["W/0"]


def jitters(which: int, value: float) -> torch.Tensor:
    values = np.broadcast_to(PLAIN, (1, 2, JITTERS)).copy()
    values[..., which] = value
    return torch.from_numpy(values)


@pytest.fixture(scope="module")
def patch():
    return torch.from_numpy(np.random.default_rng(0).normal(size=(1, 2, 8, 6, 5)).astype(np.float32))


def changed(patch, which, value, **more):
    return change(
        patch, jitters(which, value), torch.zeros(1, dtype=torch.int64), noise_values(patch.device), **more
    )


def test_nothing_is_changed_where_nothing_was_drawn(patch):
    assert torch.equal(changed(patch, GAMMA, 1.0), patch)


def test_each_change_does_what_it_says(patch):
    space = (2, 3, 4)
    assert torch.allclose(changed(patch, BRIGHTNESS, 1.2), 1.2 * patch)
    low = changed(patch, CONTRAST, 0.8)
    assert torch.allclose(low.mean(space), patch.mean(space), atol=1e-5)
    assert torch.allclose(low.std(space), 0.8 * patch.std(space), rtol=1e-4)
    for which in (GAMMA, INVERTED):
        curved = changed(patch, which, 1.4)
        assert not torch.allclose(curved, patch, atol=1e-2)
        assert torch.allclose(curved.mean(space), patch.mean(space), atol=1e-4)
        assert torch.allclose(curved.std(space), patch.std(space), rtol=1e-3)
        order = patch[0, 0].flatten().argsort()
        assert bool((curved[0, 0].flatten()[order].diff() >= -1e-4).all())
    noisy = changed(patch, NOISE, 0.3) - patch
    assert 0.25 < float(noisy.std()) < 0.35


def test_blur_is_a_gaussian_of_the_variance_drawn():
    point = torch.zeros(1, 2, 15, 15, 15)
    point[:, :, 7, 7, 7] = 1.0
    out = changed(point, BLUR, 0.25)[0, 0]
    at = torch.arange(15.0) - 7
    assert float(out.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float((out.sum((1, 2)) * at**2).sum()) == pytest.approx(1.0, abs=1e-4)


def test_leaving_out_what_no_patch_has_changes_nothing(patch):
    active = [False] * JITTERS
    active[CONTRAST] = True
    assert torch.equal(changed(patch, CONTRAST, 0.9, active=active), changed(patch, CONTRAST, 0.9))


def test_a_plan_that_does_not_divide_its_patch_is_refused():
    with pytest.raises(ValueError, match="not divisible"):
        Plan(
            spacing_mm=(1, 1, 1),
            patch=(9, 8, 8),
            batch=2,
            strides=((1, 1, 1), (2, 2, 2)),
            kernels=((3, 3, 3),) * 2,
            widths=(8, 16),
            blocks=(1, 1),
            channels=1,
        )
