"""From a study file to its report: plan, train what the store lacks, gather, analyse, write.

Nothing here is worth keeping but the store and the files that follow from it: a run that was killed at any
moment is the same command again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.engine.files import explained
from elsewhere.engine.run import EngineReport, run_units
from elsewhere.engine.store import Store
from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from elsewhere.files import MARKER, explained_refusals
from elsewhere.scenarios import Skipped, Split, write_splits
from elsewhere.study.estimate import note_speed
from elsewhere.study.file import StudyFile
from elsewhere.study.picture_results import StudyResults, results_of
from elsewhere.study.pictures import Report
from elsewhere.study.plan import Plan, make_plan
from elsewhere.study.recipe_results import RecipeResults, recipe_results_of, write_recipe_results
from elsewhere.study.relevance import Relevance, check_maps_can_be_drawn, relevance_maps
from elsewhere.study.table import build_table
from elsewhere.tables import check_out, write_json, write_table
from elsewhere.untrusted import read_json

PARTS = ("study.json", "manifest.csv", "runs.csv", "trainings.csv", "predictions.parquet", "splits", "report")
"""What a run writes into its folder, and writes anew every time."""
_STORE = {"units", "failed", "damaged", "scratch", "cache", ".writers", ".lock", ".commit"}


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a study's things are."""

    out: Path
    store: Path

    @property
    def cache(self) -> Path:
        return self.store / "cache"

    @property
    def report(self) -> Path:
        return self.out / "report"


def places(file: StudyFile, *, out: str | Path | None = None, store: str | Path | None = None) -> Places:
    """`--out` and `--store`, the study's own, or a folder called by the study's name."""
    folder = Path(out) if out is not None else Path(file.name)
    if folder.exists() and not folder.is_dir():
        raise UserError("there is a file of this name", where=str(folder), fix="Give another --out.")
    with explained_refusals(folder, "the folder cannot be used"):
        if folder.is_dir() and any(folder.iterdir()) and not _holds_a_study(folder):
            raise UserError(
                "the folder holds other things and no earlier run of a study, so it is left alone",
                where=str(folder),
                fix="Give a new or empty --out.",
            )
    if store is not None:
        return Places(out=folder, store=Path(store))
    own = file.study.study.store
    return Places(out=folder, store=file.file_of(own) if own else folder / "store")


def _holds_a_study(folder: Path) -> bool:
    """Whether an earlier run wrote this folder: by what its `study.json` says, not by its name. A run that was
    stopped before it wrote that file left a store, or splits with our marker, and the manifest at most.
    """
    if not os.path.lexists(folder / "study.json"):
        parts = {name for name in PARTS if os.path.lexists(folder / name)}
        if os.path.lexists(folder / "splits" / MARKER):
            return parts <= {"splits", "manifest.csv"}
        store = folder / "store"
        return not parts and store.is_dir() and {entry.name for entry in store.iterdir()} <= _STORE
    try:
        about = read_json(folder / "study.json")
    except (OSError, UserError):
        return False
    return isinstance(about, dict) and {"study", "environment", "trainings"} <= set(about)


def plan_of(file: StudyFile, at: Places, *, progress: Report | None = None) -> Plan:
    """Read the cohorts, look at the pictures, split, and name the trainings."""
    with explained(at.store, "planning the study"):
        table = build_table(file, cache=at.cache, progress=progress)
        return make_plan(file, table, progress=progress)


@dataclass(frozen=True, kw_only=True)
class Status:
    """Which trainings of a plan are in the store, whole, with every prediction that the plan asks for."""

    done: tuple[str, ...]
    todo: tuple[Training, ...]
    failed: dict[str, str] = field(default_factory=dict)


def status_of(plan: Plan, store: Store) -> Status:
    done, todo = [], []
    for key, unit in plan.units.items():
        if store.has(unit, plan.table.cases):
            done.append(key)
        else:
            todo.append(unit)
    waiting = {unit.key for unit in todo}
    failed = {key: why for key, why in store.failures().items() if key in waiting}
    return Status(done=tuple(done), todo=tuple(todo), failed=failed)


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """What a run did, and what came of it."""

    plan: Plan
    engine: EngineReport
    results: StudyResults | RecipeResults
    places: Places
    summary: Any = None
    """Of `elsewhere.study.analysis.analyse` or `recipe_analysis.analyse_recipes`; None where there was nothing to analyse, or no report wanted."""
    report: Path | None = None
    bundle: Path | None = None
    added: tuple[str, ...] = ()
    """Units taken from other machines."""


def execute(
    file: StudyFile,
    at: Places,
    *,
    engine: str = "local",
    address: str | None = None,
    device: str = "auto",
    lanes: int = 0,
    trainer: Any = None,
    imports: Sequence[str | Path] = (),
    deadline: float | None = None,
    report: bool = True,
    bundle: str | Path | None = None,
    bundle_masks: bool = False,
    replace: bool = False,
    pictures: bool = False,
    progress: Report | None = None,
) -> StudyRun:
    """Do a study. What is in the store is not done again; what fails is recorded, and the rest goes on.

    `bundle`: a folder for the release bundle, what another team needs to check the numbers (US-24);
    `bundle_masks`: with the masks that recipes predicted. `replace`: an earlier bundle there is replaced.
    `pictures`: of patients, drawn into the report: relevance maps of the kept networks (US-23), or the hardest
    cases of a study of recipes.
    """
    if pictures and not file.study.of_recipes:
        check_maps_can_be_drawn(file)
    _check_bundle(file, bundle, masks=bundle_masks, report=report, replace=replace)
    plan = plan_of(file, at, progress=progress)
    if not plan.units:
        gone = plan.runs[plan.runs["status"] == "skipped"]
        reasons = list(dict.fromkeys(gone["scenario"].astype("str") + ": " + gone["reason"].astype("str")))
        raise UserError(
            f"no scenario of the study can be split: {'; '.join(reasons[:3])}",
            where=str(file.path),
            fix="`elsewhere plan` shows every reason.",
        )
    store = Store(at.store)
    with explained(at.out, "writing the study"):
        added = tuple(key for path in imports for key in store.add(path))
        at.out.mkdir(parents=True, exist_ok=True)
        write_plan(plan, at)
        done = run_units(
            list(plan.units.values()),
            plan.work,
            store,
            engine=engine,
            device=device,
            lanes=lanes,
            address=address,
            trainer=trainer,
            progress=_named(progress),
            deadline=deadline,
        )
        if done.done:
            note_speed(store, done.done, done.seconds)
        results: StudyResults | RecipeResults
        summary, page, packed = None, None, None
        if file.study.of_recipes:
            results = recipe_results_of(plan, store, at.out / "predictions", done.failed, progress=progress)
            write_recipe_results(results, at.out)
            if report and len(results.done()):
                summary, page = _recipes_analysed(results, at, progress, pictures=pictures)
                if bundle is not None:
                    from elsewhere.study.recipe_bundle import write_recipe_bundle

                    packed = write_recipe_bundle(
                        results, summary, bundle, study=at.out, masks=bundle_masks, replace=replace
                    )
        else:
            results = results_of(plan, store, done.failed)
            write_results(results, at)
            if report and len(results.done()):
                maps = (
                    relevance_maps(results, plan, store, device=device, progress=progress)
                    if pictures
                    else None
                )
                summary, page = _analysed(results, at, progress, maps)
                if bundle is not None:
                    from elsewhere.study.bundle import write_bundle

                    packed = write_bundle(results, summary, bundle, splits=at.out / "splits", replace=replace)
    return StudyRun(
        plan=plan,
        engine=done,
        results=results,
        places=at,
        summary=summary,
        report=page,
        bundle=packed,
        added=added,
    )


def _check_bundle(
    file: StudyFile, bundle: str | Path | None, *, masks: bool, report: bool, replace: bool
) -> None:
    """What would be found out after hours of training is found out before."""
    if masks and (bundle is None or not file.study.of_recipes):
        raise UserError(
            "masks go into a bundle of a study of recipes",
            where="--bundle-masks",
            fix="Give --bundle DIR too." if file.study.of_recipes else "Leave it out.",
        )
    if bundle is None:
        return
    if not report:
        raise UserError(
            "a bundle holds the report's tables", where="--bundle", fix="Leave out --no-report, or --bundle."
        )
    check_out(bundle, replace=replace)


def write_plan(plan: Plan, at: Places) -> None:
    """The study as it is run: settings, audit, manifest and splits (US-09, US-24)."""
    from elsewhere.study.bundle import environment

    write_plan_splits(plan, at.out / "splits", replace=True)
    manifest = plan.table.frame.assign(digest=list(plan.table.cases.digest))
    if "masks" in manifest.columns:
        counts = manifest["masks"].map(lambda masks: len(masks) if isinstance(masks, tuple) else 0)
        manifest = manifest.assign(masks=counts).drop(columns="image")
    write_table(manifest, at.out / "manifest.csv")
    write_json(
        {
            "study": plan.study.to_dict(),
            "file": str(plan.file.path),
            "audit": plan.audit(),
            "runs": len(plan.planned()),
            "trainings": len(plan.units),
            "environment": environment(),
        },
        at.out / "study.json",
    )


def write_plan_splits(plan: Plan, folder: Path, *, replace: bool = False) -> None:
    """Write every split of a plan; of a study with several sources, those of each into a folder of its own.

    Args:
        plan: The plan.
        folder: Where they go.
        replace: Whether earlier splits there are replaced.
    """
    everything: list[Split | Skipped] = [*plan.partitions.values(), *plan.skipped]
    for part in plan.table.each:
        own = set(part.datasets)
        made = [one for one in everything if set(one.scenario.sources) <= own]
        where = folder / part.source if plan.table.parts else folder
        write_splits(made, part.frame, where, replace=replace)


def write_results(results: StudyResults, at: Places) -> None:
    """Seed-level outputs, and how every run and training went (US-24)."""
    write_table(results.runs, at.out / "runs.csv")
    write_table(results.units, at.out / "trainings.csv")
    write_table(results.long(), at.out / "predictions.parquet")


def _analysed(
    results: StudyResults, at: Places, progress: Report | None, maps: Relevance | None
) -> tuple[Any, Path]:
    from elsewhere.study.analysis import analyse
    from elsewhere.study.report import write_study_report

    resamples = int(results.settings["analyses"]["resamples"])
    summary = analyse(results, resamples=resamples, progress=progress)
    return summary, Path(write_study_report(summary, at.report, maps=maps))


def _recipes_analysed(
    results: RecipeResults, at: Places, progress: Report | None, *, pictures: bool
) -> tuple[Any, Path]:
    from elsewhere.study.recipe_analysis import analyse_recipes
    from elsewhere.study.recipe_report import write_recipe_report

    summary = analyse_recipes(results, progress=_told("analysing", progress))
    return summary, Path(write_recipe_report(summary, results, at.report, pictures=pictures))


def _told(what: str, progress: Report | None) -> Report | None:
    """One bar over all boards, whatever each is called."""
    return None if progress is None else lambda _, done, total: progress(what, done, total)


def _named(progress: Report | None) -> Report | None:
    """'units' is the engine's word; a person reads 'trainings'."""
    if progress is None:
        return None

    def heard(what: str, done: int, total: int) -> None:
        progress("trainings" if what == "units" else what, done, total)

    return heard


def by_configuration(plan: Plan, done: Sequence[str]) -> pd.DataFrame:
    """Count the scenarios, runs and trainings of each method.

    Args:
        plan: The plan.
        done: Keys of the trainings that the store has.

    Returns:
        One row per method: what trains it, its tasks, scenarios, seeds, runs, trainings, done, to_do.
    """
    have = set(done)
    rows = []
    for name, part in plan.planned().groupby("method", sort=False):
        units = set(part["training"])
        method = plan.methods[str(name)]
        rows.append(
            {
                "method": name,
                "recipe": method.recipe.label(method.spec),
                "tasks": "+".join(method.tasks) + (" (baseline)" if method.method.baseline else ""),
                "scenarios": part["scenario"].nunique(),
                "seeds": part["seed"].nunique(),
                "runs": len(part),
                "trainings": len(units),
                "done": len(units & have),
                "to_do": len(units - have),
            }
        )
    columns = ["method", "recipe", "tasks", "scenarios", "seeds", "runs", "trainings", "done", "to_do"]
    return pd.DataFrame(rows, columns=columns)
