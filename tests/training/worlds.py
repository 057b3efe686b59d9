"""A tiny world that a tiny network can learn: benign lesions are wide, malignant ones are not."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
from PIL import Image

from elsewhere.inputs import Cases, Pictures
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec, PictureTraining, PictureWork

SIZE = 32


def make_work(n=96, *, seed=0, datasets=("A", "B")):
    rng = np.random.default_rng(seed)
    images, masks, label, box, dataset = {}, {}, [], [], []
    for at in range(n):
        y, x = rng.integers(12, 40), rng.integers(12, 50)
        kind = at % 2
        h, w = (12, 24) if kind == 0 else (12, 10)
        pixels = rng.normal(100, 12, (72, 96))
        pixels[y : y + h, x : x + w] -= 60
        name = f"{datasets[(at // 2) % len(datasets)]}/{at}"
        mask = np.zeros(pixels.shape, np.uint8)
        mask[y : y + h, x : x + w] = 255
        images[name], masks[name] = png(pixels.clip(0, 255).astype(np.uint8)), [png(mask)]
        label.append(kind)
        box.append([x, y, x + w, y + h])
        dataset.append(name.split("/")[0])
    pictures = Pictures(images, masks)
    cases = Cases(
        case=tuple(images),
        dataset=tuple(dataset),
        label=np.array(label, np.int8),
        box=np.array(box, np.int32),
        digest=tuple(pictures.digest(name) for name in images),
    )
    return PictureWork(cases=cases, pictures=pictures)


def png(pixels):
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "PNG")
    return held.getvalue()


def make_unit(work, *, seed=1, kind="roi", outline=False, keep_weights=False, parts=(48, 64), **recipe):
    names = work.cases.case
    settings = {
        "network": "tiny-cnn",
        "weights": "none",
        "epochs": 3,
        "learning_rate": 3e-3,
        "batch": 16,
        "shift_px": 1.0,
    } | recipe
    unit = PictureTraining(
        name=f"{kind} {seed}",
        train=names[: parts[0]],
        validation=names[parts[0] : parts[1]],
        predict=names[parts[1] :],
        input=InputSpec(kind=kind, size_px=SIZE, outline=outline),
        recipe=ClassifierSettings(**settings),
        seed=seed,
        keep_weights=keep_weights,
    )
    return replace(unit, key=repr(replace(unit, keep_weights=False)))


def train(units, work, **options):
    from elsewhere.training import train_units

    done, failures = {}, {}
    train_units(
        units,
        work,
        device="cpu",
        finished=lambda unit, outcome: done.setdefault(unit.key, outcome),
        failed=lambda unit, reason: failures.setdefault(unit.key, reason),
        **options,
    )
    return done, failures
