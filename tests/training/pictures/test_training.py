"""Training as the study does it (US-14), and the methods beyond it (US-31)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from elsewhere.engine.batch import Deadline
from elsewhere.errors import UserError
from elsewhere.networks import build_network
from elsewhere.networks.classifiers import mix_style
from elsewhere.statistics.auroc import auroc
from elsewhere.training import train_units
from elsewhere.training.pictures import concurrent, stream_worker
from elsewhere.training.pictures.distance import class_distance
from elsewhere.training.pictures.multi_source import coral_penalty
from worlds.lesion_pictures import make_unit, make_work, train

WORK = make_work()


def malignancy(work, unit, outcome):
    truth = work.cases.label[work.cases.rows(unit.predict)]
    return auroc(truth, outcome.logits[:, 1] - outcome.logits[:, 0])


@pytest.mark.parametrize("method", ["plain", "group-dro", "coral", "mixstyle"])
def test_every_method_learns_what_can_be_learnt(method):
    unit = make_unit(WORK, method=method, epochs=5)
    done, failures = train([unit], WORK)
    assert failures == {}
    outcome = done[unit.key]
    assert malignancy(WORK, unit, outcome) > 0.9
    assert outcome.case == unit.predict
    assert outcome.images == 5 * 48
    assert np.isfinite(outcome.distance).all()


def test_a_unit_gives_the_same_numbers_whatever_trains_beside_it():
    units = [make_unit(WORK, seed=s, kind=k, dropout=0.3) for s in (1, 2) for k in ("roi", "whole")]
    alone = {u.key: train([u], WORK)[0][u.key] for u in units}
    together, _ = train(units[::-1], WORK, lanes=3)
    for unit in units:
        assert np.array_equal(alone[unit.key].logits, together[unit.key].logits)
        assert np.array_equal(alone[unit.key].distance, together[unit.key].distance)
    assert not np.array_equal(alone[units[0].key].logits, alone[units[2].key].logits)


def test_each_network_has_lanes_of_its_own(monkeypatch):
    """A large network's few lanes are not the small one's; on a CPU one network trains after the other."""
    seen = []
    whole = concurrent._train_concurrently

    def watched(groups, *rest):
        seen.append([[unit.recipe.network for unit in units] for units in groups])
        whole(groups, *rest)

    monkeypatch.setattr(concurrent, "_train_concurrently", watched)
    names = ("efficientnet-lite0", "tiny-cnn", "efficientnet-lite0")
    units = [
        make_unit(WORK, seed=at, network=name, epochs=1 if name == "tiny-cnn" else 2)
        for at, name in enumerate(names)
    ]
    done, _ = train(units, WORK)
    assert seen == [[["efficientnet-lite0"] * 2], [["tiny-cnn"]]]
    assert set(done) == {unit.key for unit in units}
    large = [make_unit(WORK, network=name, batch=12) for name in ("tiny-cnn", "vit-b-16")]
    assert [concurrent.default_lanes([unit]) for unit in large] == [6, 2]


def test_networks_beside_each_other_give_the_numbers_that_each_gives_alone(monkeypatch):
    """What a GPU with memory enough does, on a CPU: both queues drawn from in turn, every unit ended once."""
    whole = concurrent._train_concurrently
    kept: list[list] = []

    def gathered(groups, *rest):
        kept.extend(groups)
        if len(kept) == 2:
            whole(kept, *rest)

    names = ("efficientnet-lite0", "tiny-cnn", "efficientnet-lite0", "tiny-cnn", "tiny-cnn")
    units = [
        make_unit(WORK, seed=at, network=name, epochs=1 if name == "tiny-cnn" else 2)
        for at, name in enumerate(names)
    ]
    alone = {unit.key: train([unit], WORK)[0][unit.key] for unit in units}
    monkeypatch.setattr(concurrent, "_train_concurrently", gathered)
    ended: list[str] = []
    train_units(
        units,
        WORK,
        device="cpu",
        lanes=2,
        finished=lambda unit, outcome: (
            ended.append(unit.key),
            np.testing.assert_array_equal(outcome.logits, alone[unit.key].logits),
        ),
        failed=lambda unit, reason: pytest.fail(reason),
    )
    assert sorted(ended) == sorted(alone)
    assert set(ended[:2]) <= {units[at].key for at in (1, 3, 4)}, "the small network waited for the large one"


@pytest.mark.parametrize("method", ["group-dro", "coral", "mixstyle"])
def test_a_unit_of_few_sources_does_not_feel_one_of_more_beside_it(method):
    work = make_work(datasets=("A", "B", "C"))
    wide = make_unit(work, method=method, strength=0.5)
    names = [name for name in wide.train if not name.startswith("C/")]
    names += [name for name in wide.predict if not name.startswith("C/")][: len(wide.train) - len(names)]
    few = replace(wide, train=tuple(names), predict=wide.validation, name="two of three", key="few")
    alone, beside = train([few], work)[0], train([wide, few], work)[0]
    assert np.array_equal(alone[few.key].logits, beside[few.key].logits)


def test_a_first_epoch_that_is_no_number_is_not_the_best_for_ever(monkeypatch):
    told, fetch = [], stream_worker.StreamWorker.fetch

    def broken(worker, values):
        found = yield from fetch(worker, values)
        if found.shape == (2,) and not told:
            told.append(True)
            return found * np.nan
        return found

    monkeypatch.setattr(stream_worker.StreamWorker, "fetch", broken)
    unit = make_unit(WORK, epochs=4)
    outcome = train([unit], WORK)[0][unit.key]
    assert np.isnan(outcome.history[0]["validation_loss"])
    assert outcome.best_epoch > 1


def test_training_stops_after_five_checks_without_a_better_one_and_keeps_the_best():
    # A rate of zero cannot get better after the first check: 1 + patience epochs.
    unit = make_unit(WORK, learning_rate=0.0, epochs=30, patience=5, keep_weights=True)
    outcome = train([unit], WORK)[0][unit.key]
    assert len(outcome.history) == 6
    assert outcome.best_epoch == 1
    noisy = make_unit(WORK, learning_rate=0.5, epochs=8, patience=99, keep_weights=True)
    kept = train([noisy], WORK)[0][noisy.key]
    losses = [entry["validation_loss"] for entry in kept.history]
    assert kept.best_epoch == int(np.argmin(losses)) + 1


def test_kept_weights_give_the_kept_predictions():
    unit = make_unit(WORK, keep_weights=True)
    outcome = train([unit], WORK)[0][unit.key]
    model = build_network("tiny-cnn", size_px=32, seed=0)
    model.load_state_dict(dict(outcome.weights))
    model.eval()
    from elsewhere.training.pictures.augment import plain
    from elsewhere.training.pictures.crops import DevicePictures

    cut = DevicePictures(WORK.cases, WORK.pictures, device=torch.device("cpu")).cut(unit.input)
    with torch.no_grad():
        logits = model(plain(cut[torch.from_numpy(WORK.cases.rows(unit.predict))]))
    assert np.allclose(logits.numpy(), outcome.logits, atol=1e-5)
    assert train([make_unit(WORK)], WORK)[0][unit.key].weights is None


def test_the_last_weights_can_be_kept_instead_of_the_best():
    unit = make_unit(WORK, learning_rate=0.5, epochs=6, patience=99, keep="last")
    assert train([unit], WORK)[0][unit.key].best_epoch == 6


def test_batch_statistics_of_the_training_part_matter_on_a_small_source():
    settled = make_unit(WORK, epochs=2)
    lagging = make_unit(WORK, epochs=2, batch_statistics="running")
    done, _ = train([settled, lagging], WORK)
    first = [done[u.key].history[-1]["validation_loss"] for u in (settled, lagging)]
    assert first[0] < first[1]


def test_the_lesion_outline_as_a_channel_changes_what_is_seen():
    done, failures = train([make_unit(WORK, outline=True), make_unit(WORK)], WORK)
    assert failures == {}
    one, two = done.values()
    assert not np.array_equal(one.logits, two.logits)


def test_mirrored_prediction_is_the_mean_of_both():
    unit = make_unit(WORK, test_mirror=True)
    done, _ = train([unit, make_unit(WORK)], WORK)
    assert len({outcome.logits.tobytes() for outcome in done.values()}) == 2


def test_one_class_or_no_validation_fails_that_unit_alone():
    good = make_unit(WORK)
    benign = tuple(n for n in good.train if WORK.cases.label[WORK.cases.row[n]] == 0)
    one_class = replace(good, train=benign, name="one class", key="one class")
    no_check = replace(good, validation=(), name="no validation", key="no validation")
    done, failures = train([one_class, no_check, good], WORK)
    assert set(done) == {good.key}
    assert "both classes" in failures[one_class.key]
    assert "validation" in failures[no_check.key]


def test_stop_leaves_the_rest_undone():
    units = [make_unit(WORK, seed=s, epochs=1) for s in range(4)]
    done = []
    train_units(
        units,
        WORK,
        device="cpu",
        finished=lambda unit, outcome: done.append(unit.key),
        failed=lambda unit, reason: None,
        stop=lambda: len(done) >= 2,
    )
    assert len(done) == 2


def test_what_is_short_still_begins_when_what_is_long_would_end_too_late(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("elsewhere.engine.batch.time.time", lambda: now[0])
    long = [make_unit(WORK, seed=s, epochs=1) for s in range(2)]
    short = [make_unit(WORK, seed=s, epochs=1, parts=(12, 64)) for s in (5, 6)]
    stop, done = Deadline(1100.0), []

    def finished(unit, outcome):
        seconds = len(unit.train) * 1.5
        now[0] += seconds
        stop.heard(unit, seconds)
        done.append(unit.key)

    # The first takes 72 s, and another such would end 44 s too late; the short ones take 18 s each, and one ends in time.
    train_units([*long, *short], WORK, device="cpu", finished=finished, failed=lambda *told: None, stop=stop)
    assert done == [long[0].key, short[0].key]
    assert stop() and stop.too_late_for(short[1]) and stop.too_late_for(long[1])
    other = replace(short[0], recipe=replace(short[0].recipe, network="efficientnet-lite0"))
    assert Deadline(1150.0, 72.0, dict(stop.slowest)).too_late_for(other)


def test_no_memory_left_is_said_and_no_smaller_batch_is_used(monkeypatch):
    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(stream_worker.Program, "start", full)
    with pytest.raises(UserError, match="no memory left") as raised:
        train([make_unit(WORK)], WORK)
    assert "not made smaller silently" in str(raised.value)


def test_coral_is_zero_for_equal_groups_and_grows_with_their_distance():
    rng = torch.Generator().manual_seed(0)
    same = torch.randn(8, 5, generator=rng).repeat(2, 1)
    member = torch.zeros(16, 2)
    member[:8, 0] = member[8:, 1] = 1
    assert coral_penalty(same, member) < 1e-10
    moved = same.clone()
    moved[8:] += 2
    assert coral_penalty(moved, member) == pytest.approx(4.0, rel=1e-5)
    assert coral_penalty(moved, torch.tensor([[1.0, 0.0]] * 16)) == 0


def test_mixstyle_takes_the_other_pictures_mean_and_deviation():
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 3.0]).view(
        2, 1, 1, 1
    )
    other = torch.tensor([1, 0])
    assert torch.allclose(mix_style(x, other, torch.ones(2)), x, atol=1e-4)
    swapped = mix_style(x, other, torch.zeros(2))
    assert torch.allclose(swapped.std(dim=(2, 3)), x.flip(0).std(dim=(2, 3)), rtol=1e-3)
    assert torch.allclose(swapped.mean(dim=(2, 3)), x.flip(0).mean(dim=(2, 3)), atol=1e-4)


def test_distance_is_the_mahalanobis_distance_to_the_nearer_class():
    rng = np.random.default_rng(0)
    seen = np.concatenate([rng.normal(0, 1, (200, 3)), rng.normal(8, 1, (200, 3))])
    label = np.repeat([0, 1], 200)
    asked = np.array([[0.0, 0, 0], [8, 8, 8], [4, 4, 4]])
    got = class_distance(*(torch.from_numpy(v) for v in (seen, label, asked)), shrinkage=0.0).numpy()
    means = [seen[label == c].mean(0) for c in (0, 1)]
    centred = np.concatenate([seen[label == c] - means[c] for c in (0, 1)])
    inverse = np.linalg.inv(centred.T @ centred / 398)
    want = [min(np.sqrt((a - m) @ inverse @ (a - m)) for m in means) for a in asked]
    assert np.allclose(got, want, rtol=1e-5)
    assert got[2] > 3 * got[:2].max()
