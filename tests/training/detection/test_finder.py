"""The finder on pictures whose lesion is known, and what must hold for every finder (US-33)."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")
from PIL import Image  # noqa: E402

from elsewhere.errors import UserError  # noqa: E402
from elsewhere.inputs import Cases, Pictures  # noqa: E402
from elsewhere.inputs.boxes import box_quality  # noqa: E402
from elsewhere.networks.finder import build_finder, find_finder_weights  # noqa: E402
from elsewhere.training.detection.finder import (  # noqa: E402
    StoppedError,
    outline_loss,
    train_finder,
    train_finders,
)
from elsewhere.training.pictures.settings import (  # noqa: E402
    PictureTraining,
    PictureWork,
    finder_input,
    finder_settings,
)


def png(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    Image.fromarray(array).save(held, "png")
    return held.getvalue()


def speckled(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Speckle with a darker ellipse; pictures differ in size and shape."""
    h, w = int(rng.integers(70, 120)), int(rng.integers(70, 140))
    ry, rx = rng.uniform(0.1, 0.22, 2) * (h, w)
    cy, cx = rng.uniform(ry + 2, h - ry - 2), rng.uniform(rx + 2, w - rx - 2)
    y, x = np.mgrid[:h, :w]
    mask = ((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1
    mean = np.where(mask, 50.0, 130.0) + 20 * np.sin(x / w * 3)
    return np.clip(mean * rng.gamma(8, 1 / 8, (h, w)), 0, 255).astype(np.uint8), mask


def make_work(n: int, seed: int, *, masks: bool = True, normals: int = 0) -> PictureWork:
    rng = np.random.default_rng(seed)
    images, drawn, boxes = {}, {}, []
    names = tuple(f"A/{i:03d}" for i in range(n))
    for at, name in enumerate(names):
        picture, mask = speckled(rng)
        if at < normals:
            mask[:] = False
        images[name] = png(picture)
        if masks and mask.any():
            drawn[name] = [png(mask.astype(np.uint8) * 255)]
        ys, xs = np.nonzero(mask)
        boxes.append([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1] if len(xs) else [0, 0, 0, 0])
    label = np.array([-1 if i < normals else i % 2 for i in range(n)], dtype=np.int8)
    pictures = Pictures(images, drawn)
    cases = Cases(
        case=names,
        dataset=("A",) * n,
        label=label,
        box=np.array(boxes, dtype=np.int32),
        digest=tuple(pictures.digest(name) for name in names),
    )
    return PictureWork(cases=cases, pictures=pictures)


def make_unit(work: PictureWork, train: int, validation: int, **changes: object) -> PictureTraining:
    names = work.cases.case
    recipe = finder_settings("finder-tiny", **{"epochs": 2, "batch": 8, "shift_px": 6.0} | changes)
    return PictureTraining(
        key="finder",
        name="finder of A",
        train=names[:train],
        validation=names[train : train + validation],
        predict=names[train + validation :],
        input=finder_input(64),
        recipe=recipe,
        seed=3,
    )


def test_it_finds_dark_ellipses_in_speckle():
    work = make_work(120, seed=1)
    unit = make_unit(work, 72, 16, epochs=24)
    seen = []
    outcome = train_finder(unit, work, device="cpu", progress=lambda what, done, total: seen.append(done))
    truth = work.cases.box[work.cases.rows(unit.predict)]
    quality = box_quality(outcome.box, truth)["all"]
    assert quality["lesions"] == 32
    assert quality["mean_iou"] > 0.6, quality
    assert quality["found"] > 0.8, quality
    assert seen == list(range(1, 25))
    assert outcome.best_epoch == 1 + int(np.argmax([e["validation_dice"] for e in outcome.history]))
    assert outcome.history[-1]["train_loss"] < 0.7 * outcome.history[0]["train_loss"]


def test_outcome_has_the_shape_of_every_outcome():
    work = make_work(24, seed=2, normals=4)
    unit = replace(make_unit(work, 14, 5), keep_weights=True)
    outcome = train_finder(unit, work, device="cpu")
    assert outcome.case == unit.predict
    assert outcome.box.shape == (5, 4)
    assert outcome.box.dtype == np.int32
    assert outcome.logits.shape == (5, 0)
    assert np.isnan(outcome.distance).all()
    assert outcome.images == 2 * 8
    assert len(outcome.history) == 2
    sizes = [work.pictures.grey(name).shape for name in unit.predict]
    for (x0, y0, x1, y1), (h, w) in zip(outcome.box.tolist(), sizes, strict=True):
        assert 0 <= x0 <= x1 <= w
        assert 0 <= y0 <= y1 <= h
    again = build_finder("finder-tiny")
    again.load_state_dict(outcome.weights)


def test_the_same_seed_gives_the_same_boxes_and_another_one_does_not():
    work = make_work(26, seed=4)
    unit = make_unit(work, 16, 4)
    first, second = (train_finder(unit, work, device="cpu") for _ in range(2))
    other = train_finder(replace(unit, seed=9), work, device="cpu")
    assert np.array_equal(first.box, second.box)
    losses = [[e["train_loss"] for e in outcome.history] for outcome in (first, second, other)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_no_draw_of_the_global_generators():
    work = make_work(14, seed=5)
    np_state, state = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
    train_finder(make_unit(work, 8, 3, epochs=1), work, device="cpu")
    assert np.array_equal(np_state, np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(state, torch.random.get_rng_state())


def test_without_masks_there_is_nothing_to_learn_from():
    work = make_work(10, seed=6, masks=False)
    with pytest.raises(UserError, match="no case of the training part of finder of A has a mask"):
        train_finder(make_unit(work, 6, 2), work, device="cpu")


def test_a_mask_of_another_size_does_not_teach_that_there_is_nothing():
    work = make_work(10, seed=6)
    wrong = {name: [png(np.full((5, 5), 255, dtype=np.uint8))] for name in work.cases.case}
    images = {name: work.pictures.encoded(name) for name in work.cases.case}
    work = replace(work, pictures=Pictures(images, wrong))
    with pytest.raises(UserError, match="has a mask"):
        train_finder(make_unit(work, 6, 2), work, device="cpu")


def test_lesions_without_a_mask_are_left_out_and_normal_pictures_stay():
    work = make_work(24, seed=7, normals=3)
    some = set(work.cases.case[3:6])
    images = {name: work.pictures.encoded(name) for name in work.cases.case}
    masks = {
        name: [png(work.pictures.mask(name, work.pictures.grey(name).shape).astype(np.uint8))]
        for name in work.cases.case
        if work.pictures.has_mask(name) and name not in some
    }
    work = replace(work, pictures=Pictures(images, masks))
    outcome = train_finder(make_unit(work, 18, 4, batch=5, epochs=1), work, device="cpu")
    assert outcome.images == 15  # 18 less the 3 without a mask; the 3 normal ones count


def test_a_bad_size_and_a_bad_name_are_refused():
    work = make_work(8, seed=8)
    unit = make_unit(work, 4, 2)
    with pytest.raises(UserError, match="not a multiple of 32"):
        train_finder(replace(unit, input=finder_input(100)), work, device="cpu")
    with pytest.raises(UserError, match="finder-tiny"):
        train_finder(replace(unit, recipe=replace(unit.recipe, network="finder-tini")), work, device="cpu")
    with pytest.raises(UserError, match="no ImageNet weights of finder-small"):
        find_finder_weights("finder-small", "imagenet")


def test_stopping_keeps_nothing():
    work = make_work(10, seed=9)
    asked = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 1

    with pytest.raises(StoppedError):
        train_finder(make_unit(work, 6, 2, epochs=5), work, device="cpu", stop=stop)
    assert len(asked) == 2


def test_several_finders_share_their_pictures_and_one_may_fail():
    work = make_work(20, seed=10, normals=6)
    good = make_unit(work, 12, 4, epochs=1)
    bad = replace(good, name="normals", train=work.cases.case[:6], key="")
    done, failed = {}, {}
    train_finders(
        [bad, good],
        work,
        device="cpu",
        finished=lambda unit, outcome: done.update({unit.name: outcome}),
        failed=lambda unit, why: failed.update({unit.name: why}),
    )
    assert list(failed) == ["normals"]
    alone = train_finder(good, work, device="cpu")
    assert np.array_equal(done["finder of A"].box, alone.box)
    assert done["finder of A"].history[0]["train_loss"] == alone.history[0]["train_loss"]


def test_the_loss_is_least_for_the_truth():
    target = torch.zeros((2, 1, 8, 8))
    target[0, 0, 2:5, 2:6] = 1
    right = outline_loss((target - 0.5) * 40, target)
    wrong = outline_loss((0.5 - target) * 40, target)
    shifted = outline_loss((target.roll(1, 3) - 0.5) * 40, target)
    assert float(right) < 1e-3
    assert float(right) < float(shifted) < float(wrong)


def test_training_rooms_import_without_the_tables():
    """A bare GPU machine has torch and numpy, and neither pyarrow nor pydantic."""
    import subprocess
    import sys

    code = (
        "import sys\n"
        "for name in ('pyarrow', 'pydantic', 'numba', 'typer', 'scipy'): sys.modules[name] = None\n"
        "import elsewhere.training.detection.finder, elsewhere.networks.finder, elsewhere.inputs.boxes\n"
        "print('elsewhere.tables' in sys.modules, 'elsewhere.cohort' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False False"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_the_captured_step_learns_and_repeats_itself():
    work = make_work(120, seed=1)
    unit = make_unit(work, 72, 16, epochs=24)
    first, second = (train_finder(unit, work, device="cuda") for _ in range(2))
    truth = work.cases.box[work.cases.rows(unit.predict)]
    assert box_quality(first.box, truth)["all"]["mean_iou"] > 0.6
    assert [e["train_loss"] for e in first.history] == [e["train_loss"] for e in second.history]
    assert np.array_equal(first.box, second.box)
    on_cpu = train_finder(replace(unit, recipe=replace(unit.recipe, epochs=1)), work, device="cpu")
    assert first.history[0]["train_loss"] == pytest.approx(on_cpu.history[0]["train_loss"], rel=0.05)
