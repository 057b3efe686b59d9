from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.inputs.volumes import MemoryVolumes
from elsewhere.training.volumes import (
    FitSettings,
    build_network,
    fingerprint,
    fit,
    make_plan,
    predict,
    prepare,
    supervised,
)
from elsewhere.training.volumes.losses import (
    baseline_objective,
    dice_and_cross_entropy,
    supervision_weights,
)
from elsewhere.training.volumes.networks import InstanceNorm
from elsewhere.training.volumes.patches import draw_patches
from elsewhere.training.volumes.program import StepProgram
from worlds.ball_volumes import TINY, ball_volumes, dice

FAST = FitSettings(epochs=3, steps_per_epoch=3, validation_steps=2, checkpoint_every=1, momentum=0.9)


def world(channels="three", **more):
    volumes, truth = ball_volumes(6, **more)
    cases = list(volumes.images)
    plan = make_plan(fingerprint(volumes, cases[:4], channels), channels, **TINY)
    return volumes, truth, cases, plan


def test_a_planted_ball_is_found():
    volumes, truth, cases, plan = world()
    data = prepare(volumes, cases[:4], plan, "three")
    network = build_network(plan, seed=0)
    settings = dataclasses.replace(FAST, epochs=2, steps_per_epoch=20)
    done = fit(network, data, plan, settings, seed=0, validation=data.subset(cases[:1]))
    scores = [dice(predict(network, volumes, case, plan, "three").mask(), truth[case]) for case in cases[4:]]
    assert min(scores) > 0.7
    assert done.patches == 80 and done.history[-1]["train_loss"] < done.history[0]["train_loss"]
    assert done.history[-1]["validation_dice"] > 0.7


def weights_of(network) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


class KilledError(Exception):
    pass


def kill_after(epoch):
    def watch(entry, network):
        if entry["epoch"] == epoch:
            raise KilledError

    return watch


@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_a_killed_training_ends_as_an_uninterrupted_one(tmp_path, keep, optimiser):
    volumes, _, cases, plan = world()
    data = prepare(volumes, cases[:4], plan, "three")
    settings = dataclasses.replace(FAST, keep=keep, optimiser=optimiser, epochs=4)
    held = data.subset(cases[3:4])
    whole = build_network(plan, seed=3)
    one = fit(whole, data, plan, settings, seed=3, validation=held)
    file = tmp_path / "network.pt"
    broken = build_network(plan, seed=3)
    with pytest.raises(KilledError):
        fit(broken, data, plan, settings, seed=3, validation=held, checkpoint=file, on_epoch=kill_after(3))
    # Killed before epoch 3 was written: two epochs are kept.
    assert torch.load(file, weights_only=True)["epoch"] == 2
    again = build_network(plan, seed=99)
    two = fit(again, data, plan, settings, seed=3, validation=held, checkpoint=file)
    assert torch.equal(weights_of(whole), weights_of(again))
    assert one.best_epoch == two.best_epoch and len(two.history) == 4
    assert [e["train_loss"] for e in one.history] == [e["train_loss"] for e in two.history]


def test_a_finished_training_is_not_repeated_and_a_spoilt_file_is_not_believed(tmp_path):
    volumes, _, cases, plan = world()
    data = prepare(volumes, cases[:3], plan, "three")
    file = tmp_path / "network.pt"
    network = build_network(plan, seed=3)
    fit(network, data, plan, FAST, seed=3, checkpoint=file)
    seen: list[float] = []
    again = build_network(plan, seed=4)
    fit(
        again,
        data,
        plan,
        FAST,
        seed=3,
        checkpoint=file,
        on_epoch=lambda entry, _: seen.append(entry["epoch"]),
    )
    assert seen == [] and torch.equal(weights_of(network), weights_of(again))
    file.write_bytes(file.read_bytes()[:1000])
    third = build_network(plan, seed=3)
    fit(third, data, plan, FAST, seed=3, checkpoint=file)
    assert torch.equal(weights_of(network), weights_of(third))


def test_the_seed_is_all_the_chance_there_is():
    volumes, _, cases, plan = world()
    data = prepare(volumes, cases[:3], plan, "three")
    found = []
    for seed, spoil in ((1, 0), (1, 7), (2, 0)):
        torch.manual_seed(spoil)
        np.random.seed(spoil)  # noqa: NPY002 - a stranger's draw from the global generator
        network = build_network(plan, seed=seed)
        fit(network, data, plan, dataclasses.replace(FAST, epochs=1), seed=seed)
        found.append(weights_of(network))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_a_case_of_weight_zero_teaches_nothing():
    volumes, _, cases, plan = world()
    spoilt = MemoryVolumes(
        images=volumes.images, masks=dict(volumes.masks) | {cases[0]: ~volumes.masks[cases[0]]}
    )
    found = []
    for held in (volumes, spoilt):
        data = prepare(held, cases[:3], plan, "three")
        network = build_network(plan, seed=0)
        # foreground=0: the places of patches must not depend on the mask that is compared
        settings = dataclasses.replace(FAST, epochs=1, foreground=0.0)
        done = fit(network, data, plan, settings, seed=0, sample_weights={cases[0]: 0.0})
        assert done.weights[cases[0]] == 0 and done.weights[cases[1]] == 1
        found.append(weights_of(network))
    assert torch.equal(found[0], found[1])


def test_on_epoch_may_change_the_weights():
    volumes, _, cases, plan = world()
    data = prepare(volumes, cases[:3], plan, "three")
    done = fit(
        build_network(plan, seed=0),
        data,
        plan,
        FAST,
        seed=0,
        on_epoch=lambda entry, _: {cases[1]: entry["epoch"]},
    )
    assert done.weights == {cases[0]: 1.0, cases[1]: 3.0, cases[2]: 1.0}


def test_an_objective_of_ones_own_and_cases_without_masks():
    volumes, _, cases, plan = world(without_mask=6)
    with pytest.raises(UserError, match="none of the 3 training cases has a mask"):
        prepare(volumes, cases[:3], plan, "three")
    data = prepare(volumes, cases[:3], plan, "three", need_mask=False)
    network = build_network(plan, seed=0, outputs=3)

    def restore(forward, image, target, weight):
        return (forward(image * 0.5)[0] - image).square().mean()

    done = fit(network, data, plan, FAST, seed=0, objective=restore, validation=data)
    assert done.history[-1]["train_loss"] < done.history[0]["train_loss"]
    assert np.isnan(done.history[-1]["validation_dice"])


def test_cases_without_a_mask_are_left_out_by_name():
    volumes, _, cases, plan = world(without_mask=1)
    data = prepare(volumes, cases[:3], plan, "three")
    assert data.cases == tuple(cases[1:3]) and data.left_out == (cases[0],)
    assert any(cases[0] in note and "no mask" in note for note in data.notes)


def test_z_score_clip_and_what_is_not_a_number():
    rng = np.random.default_rng(0)
    values = rng.normal(50, 5, (12, 12, 12)).astype(np.float32)
    values[0, 0, 0], values[1, 1, 1] = 1e6, np.nan
    volumes = MemoryVolumes(images={"W/0": [values] * 3}, masks={"W/0": np.ones((12, 12, 12), bool)})
    plan = make_plan(fingerprint(volumes, ["W/0"], "three"), "three", clip=(1.0, 99.0), **TINY)
    image, _ = prepare(volumes, ["W/0"], plan, "three").volume("W/0")
    assert float(image.mean()) == pytest.approx(0, abs=1e-4) and float(image.std()) == pytest.approx(
        1, abs=1e-3
    )
    assert float(image.abs().max()) < 4
    constant = MemoryVolumes(
        images={"W/0": [np.full((9, 9, 9), 7, np.float32)]}, masks={"W/0": np.zeros((9, 9, 9), bool)}
    )
    flat, _ = prepare(constant, ["W/0"], plan, "three").volume("W/0")
    assert float(flat.abs().max()) == 0


def test_dice_and_cross_entropy_by_hand():
    logits = torch.zeros(2, 1, 2, 2, 2)
    target = torch.zeros(2, 1, 2, 2, 2)
    target[0, 0, 0] = 1  # half of the first patch, none of the second
    loss = dice_and_cross_entropy(logits, target)
    log2 = float(np.log(2))
    # soft Dice 2 * (4 * 0.5) / (8 * 0.5 + 4) = 0.5 of the first, 0 of the second
    assert loss.tolist() == pytest.approx([0.5 + log2, 1 + log2], abs=1e-4)
    assert supervision_weights(3) == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    coarse = [logits, torch.zeros(2, 1, 1, 1, 1)]
    expected = 2 / 3 * loss + 1 / 3 * dice_and_cross_entropy(coarse[1], target[:, :, :1, :1, :1])
    assert torch.allclose(supervised(coarse, target)[1], expected[1], atol=1e-5)


def test_dice_over_the_batch_by_hand():
    """A patch without tumour loses by what is found there in vain; a case's weight counts in the sums."""
    logits = torch.zeros(2, 1, 2, 2, 2)
    target = torch.zeros(2, 1, 2, 2, 2)
    target[0, 0, 0] = 1
    log2 = float(np.log(2))
    whole = dice_and_cross_entropy(logits, target, batch_dice=True)
    # 2 * 2 / (8 * 0.5 + 8 * 0.5 + 4)
    assert whole.tolist() == pytest.approx([2 / 3 + log2] * 2, abs=1e-5)
    weight = torch.tensor([1.0, 3.0])
    # 2 * 2 / (4 + 4 + 3 * 4)
    told = dice_and_cross_entropy(logits, target, batch_dice=True, weight=weight)
    assert told.tolist() == pytest.approx([0.8 + log2] * 2, abs=1e-5)

    def gradient(batch_dice: bool) -> float:
        found = torch.full((2, 1, 2, 2, 2), -3.0, requires_grad=True)
        dice_and_cross_entropy(found, target, cross_entropy=0.0, batch_dice=batch_dice).sum().backward()
        assert found.grad is not None
        return float(found.grad[1].abs().max())

    assert gradient(False) < 1e-4 < 1e-3 < gradient(True)


def test_the_plan_says_which_dice():
    volumes, _, cases, _ = world()
    known = fingerprint(volumes, cases, "three")
    small = make_plan(known, "three", patch=(8, 8, 8), widths=(4, 8), blocks=(1, 1))
    large = make_plan(known, "three", patch=(16, 16, 16), widths=(4, 8), blocks=(1, 1))
    shape = np.prod(small.median_shape)
    assert (8**3 < shape / 4 < 16**3, small.batch_dice, large.batch_dice) == (True, True, False)
    objective = baseline_objective(small)
    target = torch.zeros(2, 1, 8, 8, 8)
    target[0] = 1
    maps = torch.zeros(2, 1, 8, 8, 8)
    loss = objective(lambda image: maps, maps, target, torch.ones(2))
    # 2 * 256 / (256 + 256 + 512) = 0.5 over the batch; a patch alone would give 2/3 and 0
    assert float(loss) == pytest.approx(0.5 + float(np.log(2)), abs=1e-4)


def test_the_poly_schedule():
    settings = FitSettings(epochs=1000)
    assert settings.rate_at(0) == 0.01
    assert settings.rate_at(500) == pytest.approx(0.01 * 0.5**0.9)


def test_deep_supervision_has_a_head_a_scale_but_the_two_coarsest():
    volumes, _, cases, _ = world()
    plan = make_plan(
        fingerprint(volumes, cases, "three"), "three", patch=(16, 16, 16), widths=(4, 8, 8), blocks=(1, 1, 1)
    )
    network = build_network(plan, seed=0)
    x = torch.zeros(1, 3, 16, 16, 16)
    assert [tuple(out.shape[2:]) for out in network.train()(x)] == [(16, 16, 16)]
    assert network.eval()(x).shape == (1, 1, 16, 16, 16)
    assert [f.shape[1] for f in network.encoder(x)] == [4, 8, 8]


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"keep": "worst"}, {"optimiser": "adam"}, {"foreground": 1.5}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UserError):
        FitSettings(**wrong)


def test_the_norm_of_any_layout_is_torchs_own():
    norm = InstanceNorm(4)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, 0.5, -1.0]))
        norm.bias.copy_(torch.arange(4.0))
    x = torch.from_numpy(np.random.default_rng(0).normal(3, 2, (2, 4, 5, 6, 7)).astype(np.float32))
    last = x.contiguous(memory_format=torch.channels_last_3d)
    assert torch.allclose(norm.in_any_layout(last), norm(x), atol=1e-5)
    assert norm.in_any_layout(last).is_contiguous(memory_format=torch.channels_last_3d)


def test_a_step_is_traced_whole():
    """What a GPU captures and compiles has no break in its graph; traced here without a compiler."""
    volumes, _, cases, plan = world()
    data = prepare(volumes, cases[:2], plan, "three")
    network = build_network(plan, seed=0).train()
    program = StepProgram(network, data, plan, FAST, baseline_objective(plan))
    draws = draw_patches(np.random.default_rng(0), data, plan, steps=1, batch=2)
    tables = [
        torch.from_numpy(v[0]) for v in (draws.offset, draws.shape, draws.matrix, draws.jitter, draws.shift)
    ]
    traced = torch.compile(program._make, backend="eager", fullgraph=True, dynamic=False)
    assert torch.equal(traced(*tables)[0], program._make(*tables)[0])
    x = torch.zeros(2, 3, 16, 16, 16)
    whole = torch.compile(network, backend="eager", fullgraph=True, dynamic=False)
    assert torch.equal(whole(x)[0], network(x)[0])
    torch.compiler.reset()


@pytest.mark.parametrize("spoilt", ["phase", "mask"])
def test_volumes_that_do_not_lie_on_one_grid_are_refused_by_name(spoilt):
    volumes, _, cases, plan = world()
    images, masks = dict(volumes.images), dict(volumes.masks)
    if spoilt == "phase":
        images[cases[1]] = [images[cases[1]][0], images[cases[1]][1][:-1], images[cases[1]][2]]
    else:
        masks[cases[1]] = masks[cases[1]][:, :-1]
    wrong = MemoryVolumes(images=images, masks=masks)
    with pytest.raises(UserError, match=cases[1]):
        prepare(wrong, cases[:3], plan, "three")


def test_a_loss_that_is_not_finite_ends_the_training_with_advice():
    volumes, _, cases, plan = world()
    data = prepare(volumes, cases[:2], plan, "three")
    settings = dataclasses.replace(FAST, learning_rate=1e30, gradient_norm=1e30)
    with pytest.raises(UserError, match="learning_rate"):
        fit(build_network(plan, seed=0), data, plan, settings, seed=0)
