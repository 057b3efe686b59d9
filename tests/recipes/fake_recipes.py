"""Recipes of numpy alone, importable by name in any process, as another package would bring them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elsewhere.errors import TrainingError, UserError
from elsewhere.recipes import Prediction, Recipe, RecipeSettings, Trained, recipes


@dataclass(frozen=True, kw_only=True)
class ThresholdSettings(RecipeSettings):
    wash_in: float = 40.0
    fault: str = ""
    seconds: float = 0.0
    many: tuple[int, ...] = (1, 2)


@recipes.register("threshold")
class Threshold(Recipe):
    """What takes up contrast is tumour; a large one has no complete response."""

    title = "Threshold on the first subtraction"
    answers = {"segmentation": "masks", "response": "probability"}  # noqa: RUF012
    Settings = ThresholdSettings

    def run(self, job):
        note(job)
        if job.settings.fault == "raise":
            raise ZeroDivisionError("a fault of the recipe")
        if job.settings.fault == "user-error":
            raise UserError("no memory", fix="Buy some.")
        if job.settings.fault == "unfit":
            raise TrainingError("one outcome alone", fix="Train on both.")
        if job.settings.fault == "no-package":
            raise ModuleNotFoundError("No module named 'monai'", name="monai.networks")
        if job.settings.fault == "gpu-memory":
            raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")
        if job.settings.fault == "die" and not (job.scratch / "once").exists():
            (job.scratch / "once").write_text("begun")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(job.settings.seconds)
        masks = [job.volumes.mask(case.case) for case in job.train]
        sizes = [mask.sum() for mask in masks if mask is not None]
        rng = np.random.default_rng([job.seed, 7])
        for at, case in enumerate(job.predict):
            change = job.volumes.phase(case.case, 1) - job.volumes.phase(case.case, 0)
            mask = change > job.settings.wash_in
            noise = rng.random()
            if "segmentation" in job.tasks:
                job.emit(Prediction(case=case.case, mask=mask, seconds=0.5, peak_bytes=100))
            if "response" in job.tasks:
                p = (
                    0.25
                    if job.settings.fault == "constant"
                    else np.clip(0.5 + 0.1 * (noise - 0.5) + 0.01 * (np.mean(sizes) - mask.sum()), 0, 1)
                )
                job.emit(Prediction(case=case.case, probability=float(p), seconds=0.25))
            job.progress("cases", at + 1, len(job.predict))
        history = ({"epoch": 1, "train_loss": float(np.mean(sizes)), "validation_loss": float("nan")},)
        return Trained(
            history=history, images=len(job.train), notes=("as simple as can be",), details={"n": np.int64(3)}
        )


def note(job):
    log = os.environ.get("ELSEWHERE_RECIPE_LOG")
    if log:
        with Path(log).open("a") as file:
            file.write(
                f"{job.seed} {os.getpid()} {job.threads} {job.device} {sorted(p.name for p in job.scratch.iterdir())}\n"
            )


def train(*arguments, threads=1, **options):
    """The engine's own trainer; importing this module has registered what is above."""
    from elsewhere.recipes.running import train_all

    train_all(*arguments, threads=threads, **options)


@recipes.register("kept-threshold")
class KeptThreshold(Threshold):
    """Learns its threshold from the masks, and can be kept; it tells what it was shown at another hospital."""

    keeps = True

    def run(self, job):
        level = [
            np.median((job.volumes.phase(c.case, 1) - job.volumes.phase(c.case, 0))[job.volumes.mask(c.case)])
            for c in job.train
            if job.volumes.mask(c.case) is not None
        ]
        kept = {"level": float(np.mean(level)) / 2, "sizes": np.arange(3.0), "deep": {"one": [1, None]}}
        done = self.apply(job, kept)
        return Trained(notes=done.notes, weights=kept if job.keep else None)

    def apply(self, job, weights):
        shown = []
        for case in job.predict:
            mask = job.volumes.phase(case.case, 1) - job.volumes.phase(case.case, 0) > weights["level"]
            if "segmentation" in job.tasks:
                job.emit(Prediction(case=case.case, mask=mask))
            if "response" in job.tasks:
                job.emit(Prediction(case=case.case, probability=float(18 / (18 + mask.sum()))))
            shown += [
                case.label >= 0,
                bool(case.clinical),
                job.volumes.mask(case.case) is not None,
                job.volumes.breast_box(case.case) is not None,
            ]
        said = f"{job.predict[0].case}: shown a truth: {any(shown)}; trains on {len(job.train)}"
        return Trained(notes=(said,))


@recipes.register("kept-code")
class KeptCode(KeptThreshold):
    """Would have to be pickled."""

    def run(self, job):
        done = super().run(job)
        return Trained(weights={"model": lambda x: x} if job.keep else None, notes=done.notes)
