"""`run`: a study from its file to its report; the same command goes on where it was stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.commands.output import Report
from elsewhere.engine.store import Store
from elsewhere.errors import EXIT_NOT_ASSESSED, EXIT_OK
from elsewhere.study.analysis_drop import SOURCES_NEEDED
from elsewhere.study.estimate import in_words
from elsewhere.study.file import load_study
from elsewhere.study.recipe_results import RecipeResults
from elsewhere.study.run import Places, StudyRun, execute, places

EXIT_STOPPED = 130


@dataclass(frozen=True, kw_only=True)
class RanStudy:
    """A study that ran to its end, as it is printed; some of its trainings may have failed."""

    run: StudyRun
    seconds: float

    @property
    def exit_code(self) -> int:
        """Not assessed where a training failed or was left undone: the numbers are of a part of the study."""
        whole = not self.run.engine.failed and not self.run.engine.left
        return EXIT_OK if whole else EXIT_NOT_ASSESSED

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints."""
        runs = self.run.results.runs
        names = {unit.key: unit.name for unit in self.run.plan.units.values()}
        engine = self.run.engine
        return {
            "study": self.run.plan.file.name,
            "out": str(self.run.places.out),
            "store": str(self.run.places.store),
            "report": None if self.run.report is None else str(self.run.report),
            "bundle": None if self.run.bundle is None else str(self.run.bundle),
            "runs": {
                "planned": len(self.run.plan.planned()),
                "done": int((runs["status"] == "done").sum()),
                "failed": int((runs["status"] == "failed").sum()),
                "skipped": int((runs["status"] == "skipped").sum()),
            }
            | self._invalid(),
            "trainings": {
                "planned": len(self.run.plan.units),
                "trained": len(engine.done),
                "reused": len(engine.reused),
                "failed": len(engine.failed),
                "left": len(engine.left),
                "imported": len(self.run.added),
            },
            "failures": [
                {"unit": k, "name": names.get(k, ""), "reason": why} for k, why in engine.failed.items()
            ],
            "damaged": engine.damaged,
            "skipped": self.run.plan.skipped_table().to_dict(orient="records"),
            "headline": getattr(self.run.summary, "headline", None),
            "seconds": round(self.seconds, 2),
            "seconds_training": round(engine.seconds, 2),
        }

    def _invalid(self) -> dict[str, int]:
        """Of recipes: answered, but not by the protocol's rules."""
        if not isinstance(self.run.results, RecipeResults):
            return {}
        return {"invalid": int((self.run.results.runs["status"] == "invalid").sum())}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows."""
        engine, runs = self.run.engine, self.run.results.runs
        done = int((runs["status"] == "done").sum())
        yield (
            f"{self.run.plan.file.name}: {done} of {len(self.run.plan.planned())} runs, from "
            f"{len(self.run.plan.units)} trainings: {len(engine.done)} trained now, {len(engine.reused)} were "
            f"in the store, {len(engine.failed)} failed; {in_words(self.seconds)}"
        )
        if self.run.added:
            yield f"taken from other machines: {len(self.run.added)} trainings"
        for key, why in engine.damaged.items():
            yield f"damaged, set aside and done again: {key} ({why})"
        skipped = self.run.plan.skipped_table()
        for (name, reason), part in skipped.groupby(["scenario", "reason"], sort=False):
            yield f"skipped: {name} ({len(part)} seeds): {reason}"
        if isinstance(self.run.results, RecipeResults):
            yield from _not_asked(runs[~runs["scenario"].isin(skipped["scenario"])])
        names = {unit.key: unit.name for unit in self.run.plan.units.values()}
        for key, why in list(engine.failed.items())[:10]:
            yield f"failed: {names.get(key, key)}: {why}"
        if len(engine.failed) > 10:
            yield f"failed: and {len(engine.failed) - 10} more ({self.run.places.store / 'failed'})"
        wrong = runs[runs["status"] == "invalid"]
        for row in wrong.head(10).to_dict(orient="records"):
            yield f"invalid: {row['recipe']} in {row['scenario']}, seed {row['seed']}: {row['reason']}"
        if engine.failed:
            yield "The same command tries the failed trainings again; what is done stays done."
        if engine.left:
            yield f"{len(engine.left)} trainings are left: the same command goes on with them."
        if isinstance(self.run.results, RecipeResults):
            yield from _boards(self.run.results)
        headline = getattr(self.run.summary, "headline", None)
        headline = headline if isinstance(headline, Mapping) else {}
        if headline.get("internal") is not None and headline.get("external") is not None:
            yield _home_and_away(headline)
        yield f"results: {self.run.places.out}"
        if self.run.bundle is not None:
            yield f"release bundle: {self.run.bundle}"
        if self.run.report is not None:
            yield f"report: {self.run.report}"


@dataclass(frozen=True, kw_only=True)
class StoppedStudy:
    """A study that was stopped by Ctrl-C."""

    name: str
    places: Places
    done: int
    again: str = "Run the same command again: it goes on where it was."
    exit_code: int = EXIT_STOPPED

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints."""
        return {
            "study": self.name,
            "stopped": True,
            "out": str(self.places.out),
            "store": str(self.places.store),
            "trainings_in_store": self.done,
            "fix": self.again,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows."""
        yield f"stopped: {self.done} trainings are finished and kept in {self.places.store}"
        yield self.again


SHOWN = {
    "segmentation": ("combined", "performance", "fairness", "dice", "norm_hd"),
    "response": ("combined", "balanced_accuracy", "fairness", "auroc"),
}


def _not_asked(runs: pd.DataFrame) -> Iterator[str]:
    """A line a task, scenario and reason: what the study names and nobody trained."""
    gone = runs[runs["status"] == "skipped"].groupby(["task", "scenario", "reason"], sort=False)
    for at, ((task, scenario, reason), part) in enumerate(gone):
        if at == 10:
            yield f"skipped: and {gone.ngroups - at} more (runs.csv)"
            return
        yield f"skipped: {task} in {scenario} ({', '.join(part['recipe'].unique())}): {reason}"


def _boards(results: RecipeResults) -> Iterator[str]:
    """A line a task, kind of scenario and recipe: the mean over scenarios and seeds, plainly; at home and
    elsewhere are never one mean. Pooled cases and intervals are in the report."""
    kinds = dict(zip(results.runs["scenario"], results.runs["kind"], strict=True))
    table = results.table().assign(kind=lambda held: held["scenario"].map(kinds))
    for (task, kind), part in table.groupby(["task", "kind"], sort=False):
        names = [name for name in SHOWN.get(str(task), ()) if name in part.columns]
        if not names:
            continue
        means = part.groupby("recipe", sort=False)[names].mean()
        ranked = means.dropna(subset=names[:1]).sort_values(names[0], ascending=False)
        many = f"{part['scenario'].nunique()} scenarios, {part['seed'].nunique()} seeds"
        yield f"{task}, {kind} (means over {many}):"
        for recipe, row in ranked.iterrows():
            yield f"  {recipe}: " + ", ".join(f"{name} {row[name]:.3f}" for name in names)


def _home_and_away(headline: Mapping[str, Any]) -> str:
    told = (
        f"AUROC {headline['internal']:.3f} at home, {headline['external']:.3f} elsewhere: "
        f"{headline['difference']:+.3f}"
    )
    if not math.isfinite(headline["lo"]):
        return told
    sources = headline["sources"]
    spread = f", a spread over {sources} sources" if sources < SOURCES_NEEDED else ""
    return f"{told} [{headline['lo']:+.3f}, {headline['hi']:+.3f}]{spread}"


def run_study(
    study: str | Path,
    *,
    out: str | Path | None = None,
    data: str | Path | None = None,
    store: str | Path | None = None,
    engine: str = "local",
    address: str | None = None,
    device: str = "auto",
    lanes: int = 0,
    trainer: Any = None,
    imports: Sequence[str | Path] = (),
    changes: Sequence[str] = (),
    seeds: Sequence[int] = (),
    ids: str | None = None,
    only: Sequence[str] = (),
    only_models: Sequence[str] = (),
    only_inputs: Sequence[str] = (),
    profile: str | None = None,
    minutes: float | None = None,
    report: bool = True,
    bundle: str | Path | None = None,
    bundle_masks: bool = False,
    replace: bool = False,
    pictures: bool = False,
    progress: Report | None = None,
) -> RanStudy | StoppedStudy:
    """Run a study to its report. What the store holds is not trained again.

    `pictures`: the report also shows relevance maps of the kept networks, or the hardest cases of recipes, and so
    holds pixels of patients.
    `replace`: an earlier release bundle is replaced; the study's own folder is always resumed.
    `minutes`: no training is begun that would probably end later; the rest is left for the next time.

    Args:
        study: A study file or the name of one that ships.
        out: The folder of the results.
        data: The folder of the data sets.
        store: The store of the trainings.
        engine: The name of an engine.
        address: The address of a cluster.
        device: `auto`, `cpu` or `cuda`.
        lanes: How many trainings run beside each other.
        trainer: Trains in place of the networks, for tests.
        imports: Zips of trainings from other machines.
        changes: Changes of the study file, `key=value`.
        seeds: Seeds in place of the file's.
        ids: `patient` or `image`.
        only: Only scenarios with these names.
        only_models: Only these models.
        only_inputs: Only these inputs.
        profile: A profile of the study file.
        minutes: Stop training after this time.
        report: Whether the report is written.
        bundle: A folder for a release bundle.
        bundle_masks: Whether the bundle holds predicted masks.
        replace: Whether files that exist may be replaced.
        pictures: Whether the report shows pictures of patients.
        progress: Called to report how far the work is.

    Returns:
        What was run, or what is left where the time ended.
    """
    began = time.time()
    file = load_study(
        study,
        data=data,
        changes=changes,
        seeds=seeds,
        ids=ids,
        only=only,
        only_models=only_models,
        only_inputs=only_inputs,
        profile=profile,
    )
    at = places(file, out=out, store=store)
    try:
        done = execute(
            file,
            at,
            engine=engine,
            address=address,
            device=device,
            lanes=lanes,
            trainer=trainer,
            imports=imports,
            deadline=None if minutes is None else began + 60 * minutes,
            report=report,
            bundle=bundle,
            bundle_masks=bundle_masks,
            replace=replace,
            pictures=pictures,
            progress=progress,
        )
    except KeyboardInterrupt:
        return StoppedStudy(name=file.name, places=at, done=len(Store(at.store).keys()))
    return RanStudy(run=done, seconds=time.time() - began)
