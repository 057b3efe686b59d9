"""A recipe of numpy alone that reads whole slides: how much ink there is decides; importable by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from elsewhere.recipes import Prediction, Recipe, RecipeSettings, Trained, recipes


@dataclass(frozen=True, kw_only=True)
class InkSettings(RecipeSettings):
    mpp: float = 16.0


@recipes.register("ink")
class Ink(Recipe):
    """The darker a slide is against those of the training, the likelier the response."""

    title = "Mean ink of a slide"
    reads = "slides"
    answers = {"response": "probability"}  # noqa: RUF012
    Settings = InkSettings

    def run(self, job):
        usual = np.median([self.ink(job, case.case) for case in job.train])
        shown = [job.pixels.annotations(case.case) or job.pixels.stage(case.case) for case in job.predict]
        for case in job.predict:
            p = 1 / (1 + np.exp((usual - self.ink(job, case.case)) * 50))
            job.emit(Prediction(case=case.case, answers={"response": float(p)}))
        if any(shown):
            raise ValueError("the truth of predicted slides is shown")
        if not all(job.pixels.annotations(case.case) and job.pixels.stage(case.case) for case in job.train):
            raise ValueError("the truth of the training's slides is not shown")
        return Trained(images=len(job.train))

    def ink(self, job, case):
        strips = job.pixels.strips(case, mpp=job.settings.mpp)
        return float(np.mean([1 - strip.pixels.mean() / 255 for strip in strips]))
