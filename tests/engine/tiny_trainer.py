"""A trainer of numpy alone, importable by name in any process: what it predicts depends on the unit's seed
and on the pixels of its cases, as a network's predictions do. The setting `strength` is how long it takes, and
`method` how it goes wrong.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

from elsewhere.engine.training import Outcome
from elsewhere.errors import UserError
from elsewhere.predictions.answers import FoundBoxes, Probabilities
from elsewhere.recipes.pictures.settings import settings_of


def train(units, work, *, device, lanes, finished, failed, progress=None, stop=None):
    for at, unit in enumerate(units):
        if stop is not None and stop():
            return
        note(unit)
        settings = settings_of(unit.recipe).training
        time.sleep(settings.strength)
        method = settings.method
        if method == "fail":
            failed(unit, "it would not learn")
            continue
        if method == "raise":
            raise ZeroDivisionError("a fault of the trainer")
        if method == "user-error":
            raise UserError("there is no memory left", where="device 0", fix="Use fewer lanes.")
        if method == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if method != "silent":
            finished(unit, outcome_of(unit, work, device))
        if progress:
            progress("epochs", at + 1, len(units))


def train_to_the_end(units, work, *, device, lanes, finished, failed, progress=None):
    """One that cannot be stopped."""
    train(units, work, device=device, lanes=lanes, finished=finished, failed=failed, progress=progress)


def note(unit):
    """One line a training, for tests that count them: key, process, parent."""
    log = os.environ.get("ELSEWHERE_TINY_LOG")
    if log:
        with Path(log).open("a") as file:
            file.write(f"{unit.key} {os.getpid()} {os.getppid()}\n")


def outcome_of(unit, work, device):
    rows = work.cases.rows(unit.predict)
    prints = unit.fingerprints(work.cases)
    pictures = work.sources["pictures"]
    learnt = np.mean([pictures.grey(name).mean() for name in unit.train])
    logits = np.zeros((len(rows), 2), dtype=np.float32)
    for place, name in enumerate(unit.predict):
        rng = np.random.default_rng([unit.seed, int(prints[rows[place]])])
        seen = pictures.grey(name).astype(np.float64)
        logits[place] = rng.normal(size=2) + (seen.mean() - learnt) / 255
        if "boxes" in unit.needs:
            logits[place] += work.outcomes(unit.needs["boxes"]).answers["lesion-boxes"].best()[place].sum()
    (task,) = unit.recipe.tasks
    if task == "lesion-boxes":
        answers = FoundBoxes.from_best(np.tile(np.array([1, 2, 5, 6]), (len(rows), 1)))
    else:
        answers = Probabilities.from_logits(logits)
    weights = None
    if unit.keep_weights:
        import torch

        weights = {"head": torch.full((2, 3), float(unit.seed))}
    return Outcome(
        case=unit.predict,
        fingerprint=prints[rows],
        answers={task: answers},
        history=({"epoch": 1, "train_loss": 0.5, "validation_loss": float("nan"), "seconds": 0.01},),
        best_epoch=1,
        images=len(unit.train),
        seconds=0.02,
        device=device,
        versions={"numpy": np.__version__},
        weights=weights,
    )
