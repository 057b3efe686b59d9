"""`run`: run a study from its file to its report. The same command resumes where it was stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.study.transfers import SOURCES_NEEDED
from elsewhere.commands.output import Report
from elsewhere.commands.study_report import ReportOptions, StudyReport, report_study
from elsewhere.engine.store import Store
from elsewhere.errors import EXIT_NOT_ASSESSED, EXIT_OK
from elsewhere.report.study.cells import metric_label
from elsewhere.scoring.task import tasks
from elsewhere.study.estimate import in_words
from elsewhere.study.file import load_study
from elsewhere.study.results import Results
from elsewhere.study.run import EngineOptions, StudyPaths, StudyRun, execute, study_paths

EXIT_STOPPED = 130
SHOWN = 10
MOST_METRICS = 5


@dataclass(frozen=True, kw_only=True)
class RanStudy:
    """A study that ran to its end, as it is printed; some of its trainings may have failed.

    Args:
        run: What was planned, trained and scored.
        seconds: How long the command took.
        written: The report and the bundle.
    """

    run: StudyRun
    seconds: float
    written: StudyReport = field(default_factory=StudyReport)

    @property
    def exit_code(self) -> int:
        """Not assessed where a training failed or was left undone: the numbers are of a part of the study."""
        whole = not self.run.engine.failed and not self.run.engine.left
        return EXIT_OK if whole else EXIT_NOT_ASSESSED

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `study`, `out`, `store`, `report`, `bundle`, `runs`, `trainings`, `failures`,
            `damaged`, `skipped`, `headline`, `seconds` and `seconds_training`.
        """
        runs, engine = self.run.results.runs, self.run.engine
        names = {training.key: training.name for training in self.run.plan.units.values()}
        summary, page, bundle = self.written.summary, self.written.path, self.written.bundle
        return {
            "study": self.run.plan.file.name,
            "out": str(self.run.paths.out),
            "store": str(self.run.paths.store),
            "report": None if page is None else str(page),
            "bundle": None if bundle is None else str(bundle),
            "runs": {"planned": len(self.run.plan.planned())}
            | {
                status: int((runs["status"] == status).sum())
                for status in ("done", "failed", "skipped", "invalid")
            },
            "trainings": {
                "planned": len(self.run.plan.units),
                "trained": len(engine.done),
                "reused": len(engine.reused),
                "failed": len(engine.failed),
                "left": len(engine.left),
                "imported": len(self.run.added),
            },
            "failures": [
                {"training": key, "name": names.get(key, ""), "reason": why}
                for key, why in engine.failed.items()
            ],
            "damaged": engine.damaged,
            "skipped": self.run.plan.skipped_table().to_dict(orient="records"),
            "headline": None if summary is None else summary.headline,
            "seconds": round(self.seconds, 2),
            "seconds_training": round(engine.seconds, 2),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        engine, runs = self.run.engine, self.run.results.runs
        done = int((runs["status"] == "done").sum())
        yield (
            f"{self.run.plan.file.name}: {done} of {len(self.run.plan.planned())} runs, from "
            f"{len(self.run.plan.units)} trainings: {len(engine.done)} trained now, {len(engine.reused)} already "
            f"in the store, {len(engine.failed)} failed; {in_words(self.seconds)}"
        )
        if self.run.added:
            yield f"imported from other machines: {len(self.run.added)} trainings"
        for key, why in engine.damaged.items():
            yield f"damaged, set aside and trained again: {key} ({why})"
        skipped = self.run.plan.skipped_table()
        for (name, reason), part in skipped.groupby(["scenario", "reason"], sort=False):
            yield f"skipped: {name} ({len(part)} seeds): {reason}"
        yield from _not_asked(runs[~runs["scenario"].isin(skipped["scenario"])])
        yield from self._failures()
        for row in runs[runs["status"] == "invalid"].head(SHOWN).to_dict(orient="records"):
            yield f"invalid: {row['method']} in {row['scenario']}, seed {row['seed']}: {row['reason']}"
        if engine.left:
            yield f"{len(engine.left)} trainings are left: the same command resumes with them."
        yield from _means(self.run.results)
        if self.written.summary is not None:
            yield from _verdicts(self.written.summary.headline)
        yield f"results: {self.run.paths.out}"
        if self.written.bundle is not None:
            yield f"release bundle: {self.written.bundle}"
        if self.written.path is not None:
            yield f"report: {self.written.path}"

    def _failures(self) -> Iterator[str]:
        failed = self.run.engine.failed
        names = {training.key: training.name for training in self.run.plan.units.values()}
        for key, why in list(failed.items())[:SHOWN]:
            yield f"failed: {names.get(key, key)}: {why}"
        if len(failed) > SHOWN:
            yield f"failed: and {len(failed) - SHOWN} more ({self.run.paths.store / 'failed'})"
        if failed:
            yield "The same command tries the failed trainings again; what is done stays done."


@dataclass(frozen=True, kw_only=True)
class StoppedStudy:
    """A study that was stopped by Ctrl-C.

    Args:
        name: The name of the study.
        paths: The folders of the study.
        done: How many trainings are finished and saved.
        again: What to do next, as a sentence.
        exit_code: The exit code of the command.
    """

    name: str
    paths: StudyPaths
    done: int
    again: str = "Run the same command again: it resumes where it was stopped."
    exit_code: int = EXIT_STOPPED

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `study`, `stopped`, `out`, `store`, `trainings_in_store` and `fix`.
        """
        return {
            "study": self.name,
            "stopped": True,
            "out": str(self.paths.out),
            "store": str(self.paths.store),
            "trainings_in_store": self.done,
            "fix": self.again,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield f"stopped: {self.done} trainings are finished and saved in {self.paths.store}"
        yield self.again


def _not_asked(runs: pd.DataFrame) -> Iterator[str]:
    """Yield one line per task, scenario and reason that the study names and that was not trained."""
    gone = runs[runs["status"] == "skipped"].groupby(["task", "scenario", "reason"], sort=False)
    for number, ((task, scenario, reason), part) in enumerate(gone):
        if number == SHOWN:
            yield f"skipped: and {gone.ngroups - number} more (runs.csv)"
            return
        yield f"skipped: {task} in {scenario} ({', '.join(part['method'].unique())}): {reason}"


def _means(results: Results) -> Iterator[str]:
    """Yield the mean over scenarios and seeds of each task, kind of scenario and method.

    Pooled cases and intervals are in the report.
    """
    table = results.scores_table()
    if table.empty:
        return
    kinds = dict(zip(results.runs["scenario"], results.runs["kind"], strict=True))
    table = table.assign(kind=table["scenario"].map(kinds))
    for (task, kind), part in table.groupby(["task", "kind"], sort=False):
        protocol = next(scores.protocol for key, scores in results.scores.items() if key.task == task)
        shown = [m for m in tasks.get(str(task)).reported(protocol).shown if m in part.columns][:MOST_METRICS]
        if not shown:
            continue
        means = part.groupby("method", sort=False)[shown].mean()
        ranked = means.dropna(subset=shown[:1]).sort_values(shown[0], ascending=False)
        many = f"{part['scenario'].nunique()} scenarios, {part['seed'].nunique()} seeds"
        yield f"{task}, {kind} (means over {many}):"
        for method, row in ranked.iterrows():
            yield f"  {method}: " + ", ".join(f"{name} {row[name]:.3f}" for name in shown)


def _verdicts(headline: Mapping[str, Any]) -> Iterator[str]:
    for task, told in headline["tasks"].items():
        if not math.isfinite(told.get("difference", math.nan)):
            continue
        line = (
            f"{task}: {metric_label(told['metric'])} {told['internal']:.3f} internal, {told['external']:.3f} external: "
            f"{told['difference']:+.3f}"
        )
        if math.isfinite(told["lo"]):
            few = told["datasets"] < SOURCES_NEEDED
            spread = f", a spread over {told['datasets']} datasets" if few else ""
            line += f" [{told['lo']:+.3f}, {told['hi']:+.3f}]{spread}"
        yield line + (f"; {told['verdict']} at a margin of {told['margin']:g}" if told.get("verdict") else "")


@dataclass(frozen=True, kw_only=True)
class StudyChanges:
    """Changes to a study file: the keyword arguments of `load_study`.

    Args:
        data: The folder of the data, for {data} in the file; None for the file's own.
        changes: Changes such as 'models.cnn.epochs=2'.
        seeds: Seeds in place of the file's; empty for the file's.
        ids: 'patient', or 'image': every picture counts as a patient; None for the file's choice.
        only: Scenarios, by name or pattern; empty for all.
        only_models: Models or methods, by name; empty for all.
        only_inputs: Inputs, by name; empty for all.
        profile: A profile of the file; None for none.
    """

    data: str | Path | None = None
    changes: Sequence[str] = ()
    seeds: Sequence[int] = ()
    ids: str | None = None
    only: Sequence[str] = ()
    only_models: Sequence[str] = ()
    only_inputs: Sequence[str] = ()
    profile: str | None = None


_OPTIONS = (StudyChanges, EngineOptions, ReportOptions)


def run_study(
    study: str | Path,
    *,
    out: str | Path | None = None,
    store: str | Path | None = None,
    imports: Sequence[str | Path] = (),
    minutes: float | None = None,
    progress: Report | None = None,
    **options: Any,
) -> RanStudy | StoppedStudy:
    """Run a study to its report. What the store holds is not trained again.

    Args:
        study: A study file, or the name of a shipped study.
        out: The folder of the results; None for the study's name. A study that was stopped there is resumed.
        store: The folder of finished trainings; None for `store` in `out`.
        imports: Archives of trainings that other machines finished.
        minutes: No training is started that would probably end later; the rest is left for the next time.
            None for no limit.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.
        **options: Fields of `StudyChanges` (data, changes, seeds, ids, only, only_models, only_inputs,
            profile), of `EngineOptions` (engine, address, device, lanes, trainer) and of `ReportOptions`
            (report, bundle, bundle_masks, replace, pictures).

    Returns:
        What was done; after Ctrl-C, what is saved.

    Raises:
        UserError: The study or an option is wrong, or a file cannot be read or written.
        TypeError: There is no such option.

    Example:
        Train a shipped study with one seed::

            elsewhere.run_study("ultrasound-lite", out="here", seeds=[1], device="cpu")
    """
    began = time.time()
    deadline = None if minutes is None else began + 60 * minutes
    changes, engine, report = (_taken(kind, options) for kind in _OPTIONS)
    if options:
        raise TypeError(f"run_study() got an unexpected keyword argument '{next(iter(options))}'")
    file = load_study(study, **vars(changes))
    report.check(file)
    paths = study_paths(file, out=out, store=store)
    try:
        run = execute(
            file,
            paths,
            EngineOptions(**vars(engine) | {"deadline": deadline}),
            imports=imports,
            progress=progress,
        )
        written = report_study(run, report, device=engine.device, progress=progress)
    except KeyboardInterrupt:
        return StoppedStudy(name=file.name, paths=paths, done=len(Store(paths.store).keys()))
    return RanStudy(run=run, written=written, seconds=time.time() - began)


def _taken(kind: Any, options: dict[str, Any]) -> Any:
    """Make an object of the options that are its fields, and take them out."""
    names = [name for name in kind.__dataclass_fields__ if name in options]
    return kind(**{name: options.pop(name) for name in names})
