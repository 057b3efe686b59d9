"""Epochs, best weights, checkpoints and rates, on a network of one weight."""

from __future__ import annotations

import math

import pytest
import torch

from elsewhere.training.loop import (
    BestWeights,
    EpochLoop,
    read_checkpoint,
    scheduled_rate,
    write_checkpoint,
)


def network(value: float = 0.0) -> torch.nn.Module:
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    return model


def run(scores, **options):
    """Every epoch writes its number into the weight."""
    model = network()
    loop = EpochLoop(model, epochs=len(scores), **options)
    for epoch in loop:
        with torch.no_grad():
            model.weight.fill_(epoch)
        loop.record({"epoch": epoch}, score=scores[epoch - 1])
    return loop, loop.finish(), model.weight.item()


@pytest.mark.parametrize(
    ("scores", "options", "best"),
    [
        ([3.0, 1.0, 2.0], {}, 2),
        ([3.0, 1.0, 2.0], {"higher_is_better": True}, 1),
        ([1.0, 1.0, 1.0], {}, 1),
        ([math.nan, 2.0, 1.0], {}, 3),
        ([2.0, math.nan, 1.5], {}, 3),
        ([math.nan, math.nan], {}, 1),
        ([math.inf, 5.0], {}, 2),
        ([None, 2.0, 3.0], {}, 2),
        ([None, None], {}, 2),
        ([3.0, 1.0, 2.0], {"keep": "last"}, 3),
    ],
)
def test_the_weights_of_the_best_epoch_are_restored(scores, options, best):
    loop, epoch, weight = run(scores, **options)
    assert (epoch, weight) == (best, best)
    assert len(loop.history) == len(scores)


def test_patience_counts_epochs_since_the_best_one():
    loop, best, _ = run([3.0, 2.0, 2.5, 2.5, 1.0], patience=2)
    assert (loop.epoch, best) == (4, 2)


def test_an_epoch_knows_its_seconds_and_must_be_recorded():
    ticks = iter([0.0, 10.0, 12.5, 20.0])
    loop = EpochLoop(network(), epochs=2, clock=lambda: next(ticks))
    with pytest.raises(RuntimeError, match="epoch 2 was not recorded"):
        for epoch in loop:
            if epoch == 1:
                assert loop.record({"epoch": 1})["seconds"] == 2.5
                assert not loop.is_last


@pytest.mark.parametrize("device", [None, torch.device("cpu")])
def test_a_loop_resumes_from_its_checkpoint(tmp_path, device):
    scores, file = [2.0, 1.0, 3.0, 0.5], tmp_path / "folder" / "training.pt"
    model = network()
    loop = EpochLoop(model, epochs=4, best=BestWeights(model, device=device))
    for epoch in loop:
        with torch.no_grad():
            model.weight.fill_(epoch)
        loop.record({"epoch": epoch}, score=scores[epoch - 1])
        if epoch == 3:
            write_checkpoint(file, loop.state())
            break
    again = network(7.0)
    resumed = EpochLoop(again, epochs=4, best=BestWeights(again, device=device))
    resumed.load(read_checkpoint(file))
    assert (resumed.epoch, resumed.best_epoch, resumed.best_score) == (3, 2, 1.0)
    for epoch in resumed:
        resumed.record({"epoch": epoch}, score=9.0)
    assert resumed.finish() == 2
    assert again.weight.item() == 2.0
    assert [entry["epoch"] for entry in resumed.history] == [1, 2, 3, 4]


def test_a_checkpoint_that_was_cut_off_is_removed(tmp_path):
    file = tmp_path / "training.pt"
    assert read_checkpoint(None) is None
    assert read_checkpoint(file) is None
    write_checkpoint(file, {"epoch": 1})
    assert [entry.name for entry in tmp_path.iterdir()] == ["training.pt"]
    file.write_bytes(file.read_bytes()[:100])
    assert read_checkpoint(file) is None
    assert not file.exists()


def test_the_cosine_schedule_goes_down_to_near_zero():
    rates = [scheduled_rate("cosine", 1.0, epoch, 10) for epoch in range(1, 11)]
    assert rates[0] == 1.0
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.03
    assert scheduled_rate("constant", 0.5, 7, 10) == 0.5
