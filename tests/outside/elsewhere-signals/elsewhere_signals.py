"""Recordings of one channel, 100 samples per second: from when to when an event lasts in each."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from elsewhere.analysis.study.registry import analysis
from elsewhere.inputs.arrays import ArraySource
from elsewhere.predictions.answers import NumberTable
from elsewhere.recipes import Prediction, Recipe, RecipeSettings, Trained
from elsewhere.report.page.blocks import Table, num, text
from elsewhere.report.study.registry import section
from elsewhere.scoring.case_means import CaseMeanTask
from elsewhere.scoring.task import StudyMetrics
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec
from elsewhere.study.results import RunKey

RATE, LONGEST_S = 100, 10.0


class Signals(ArraySource):
    """One .npy file per recording."""

    name = "signals"
    noun = "signals"
    column = "signal"
    target_columns = ("start_s", "end_s")


class Interval(NumberTable):
    """Two times in seconds, the first before the second."""

    def one(self, value, *, shape=None):
        start, end = super().one(value)
        if not 0 <= start <= end:
            raise ValueError(f"is from {start:g} s to {end:g} s, and not an interval")
        return np.array([start, end])

    def by_chance(self, draw):
        return np.sort(super().by_chance(draw))


INTERVAL = Interval("interval", ["start_s", "end_s"], {"start_s": (0, LONGEST_S), "end_s": (0, LONGEST_S)})


class EventTask(CaseMeanTask):
    """How well the predicted interval covers the event."""

    name = "event"
    title = "Event in a recording"
    unit = "recording"
    units = "recordings"
    target = "start_s"
    truth_columns = ("end_s",)
    answer_kind = "interval"
    specs = (
        MetricSpec(
            name="overlap",
            label="Overlap with the event",
            higher_is_better=True,
            kind=MetricKind.MEAN,
            interval=IntervalMethod.BOOTSTRAP_T,
            lower_bound=0.0,
            upper_bound=1.0,
            worst=0.0,
            primary=True,
        ),
        MetricSpec(
            name="start_error_s",
            label="Error of the start",
            higher_is_better=False,
            kind=MetricKind.MEAN,
            interval=IntervalMethod.BOOTSTRAP_T,
            lower_bound=0.0,
            upper_bound=LONGEST_S,
            worst=LONGEST_S,
            unit="s",
        ),
    )
    study_metrics = StudyMetrics(
        main="overlap",
        shown=("overlap", "start_error_s"),
        paired=("overlap",),
        grouped=("overlap",),
        baseline="random",
    )

    def case_values(self, cases, answers, protocol):
        start, end = (cases[name].astype(float).to_numpy() for name in ("start_s", "end_s"))
        first, last = (answers[name].to_numpy(dtype=float) for name in ("start_s", "end_s"))
        both = np.clip(np.minimum(end, last) - np.maximum(start, first), 0, None)
        either = np.maximum(end, last) - np.minimum(start, first)
        return {"overlap": both / either, "start_error_s": np.minimum(abs(first - start), LONGEST_S)}


EVENT = EventTask()


@dataclass(frozen=True, kw_only=True)
class LevelSettings(RecipeSettings):
    smooth_s: float = 0.1
    """Over how long the signal is averaged first."""


class LevelCrossing(Recipe):
    """The event lasts while the signal is above a level that is learnt from the training recordings."""

    title = "Level crossing"
    reads = "signals"
    answers = {"event": "interval", "response": "probability"}
    follows = "Nobody: the smallest recipe that learns something."
    holds_out_validation = True
    Settings = LevelSettings

    def run(self, job):
        inside, outside = [], []
        for case in job.train:
            signal, known = self.smoothed(job, case), job.pixels.targets(case.case)
            during = slice(int(known["start_s"] * RATE), int(known["end_s"] * RATE))
            inside.append(signal[during].mean())
            outside.append(np.delete(signal, during).mean())
        level = (np.mean(inside) + np.mean(outside)) / 2
        labelled = [case for case in job.train if case.label >= 0]
        usual = np.median([np.ptp(self.interval(job, case, level)) for case in labelled or job.train])
        for number, case in enumerate(job.predict, start=1):
            found = self.interval(job, case, level)
            given = {"event": found, "response": 1 / (1 + np.exp(usual - np.ptp(found)))}
            job.emit(Prediction(case=case.case, answers={task: given[task] for task in job.tasks}))
            job.progress("predicting", number, len(job.predict))
        return Trained(images=len(job.train), details={"level": float(level)})

    def smoothed(self, job, case):
        width = max(1, int(job.settings.smooth_s * RATE))
        return np.convolve(job.pixels.array(case.case), np.full(width, 1 / width), mode="same")

    def interval(self, job, case, level):
        above = np.flatnonzero(self.smoothed(job, case) > level)
        return (above[0] / RATE, (above[-1] + 1) / RATE) if above.size else (0.0, LONGEST_S)


@analysis("delay", tasks=("event",))
def delay(context):
    """How much later than the event each method begins, by kind of scenario."""
    truth = context.results.cohort.cases.set_index("case_id")["start_s"].astype(float)
    rows = []
    for run in context.runs.to_dict(orient="records"):
        key = RunKey(run["task"], run["method"], run["scenario"], run["seed"])
        answers = context.results.predictions(key).table
        late = answers.set_index("case_id")["start_s"] - truth
        rows.append({"method": run["method"], "kind": run["kind"], "late_s": late.dropna().mean()})
    mean = pd.DataFrame(rows).groupby(["method", "kind"], as_index=False)["late_s"].mean()
    return {"delay": mean}


@section("delay", place="transfer", tables=("delay",))
def delay_section(page):
    """Mean delay of the predicted start."""
    cells = [[text(row["method"]), text(row["kind"]), num(row["late_s"])] for row in page.rows("delay")]
    table = Table(
        name=page.name("delay"),
        caption="Mean delay of the start",
        columns=["Method", "Scenario", "Delay (s)"],
        rows=cells,
    )
    return page.section("delay", "Delay of the predicted start", [table])
