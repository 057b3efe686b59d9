"""From a study file to its results: plan, train what the store lacks, gather and score.

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
from elsewhere.study.environment import environment
from elsewhere.study.estimate import note_speed
from elsewhere.study.file import StudyFile
from elsewhere.study.gather import results_of, write_results
from elsewhere.study.pictures import Report
from elsewhere.study.plan import Plan, make_plan
from elsewhere.study.results import Results
from elsewhere.study.splits import scheme_of
from elsewhere.study.table import build_table
from elsewhere.tables import write_json, write_table
from elsewhere.untrusted import read_json

PARTS = (
    "study.json",
    "manifest.csv",
    "runs.csv",
    "trainings.csv",
    "predictions.parquet",
    "predictions",
    "splits",
    "report",
)
"""What a run writes into its folder, and writes anew every time."""
_STORE = {"units", "failed", "damaged", "scratch", "cache", ".writers", ".lock", ".commit"}


@dataclass(frozen=True, kw_only=True)
class StudyPaths:
    """Where a study's files are.

    Args:
        out: The folder of its results.
        store: The folder of its finished trainings.
    """

    out: Path
    store: Path

    @property
    def cache(self) -> Path:
        """The folder for what is slow to find out, in the store."""
        return self.store / "cache"

    @property
    def report(self) -> Path:
        """The folder of the report, in that of the results."""
        return self.out / "report"


def study_paths(
    file: StudyFile, *, out: str | Path | None = None, store: str | Path | None = None
) -> StudyPaths:
    """Find where a study's files go.

    Args:
        file: The study.
        out: The folder of the results; None: a folder of the study's name in the current one.
        store: The folder of the trainings; None: the study file's `store`, else 'store' in `out`.

    Returns:
        The folders; they need not exist.

    Raises:
        UserError: `out` is a file, or a folder that holds other things and no earlier run of a study.
        FileSystemError: `out` cannot be read.
    """
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
        return StudyPaths(out=folder, store=Path(store))
    own = file.study.study.store
    return StudyPaths(out=folder, store=file.file_of(own) if own else folder / "store")


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


def plan_of(file: StudyFile, paths: StudyPaths, *, progress: Report | None = None) -> Plan:
    """Read the cohorts, look at the pictures, split, and name the trainings.

    Args:
        file: The study.
        paths: Where its files are; what is slow to find out is kept in the cache there.
        progress: Called with what is done, how much, and how much there is; None: nobody is told.

    Returns:
        The plan.

    Raises:
        UserError: A cohort or picture cannot be used, or the study names something that is not known.
        FileSystemError: A file cannot be read, or the cache cannot be written.
    """
    with explained(paths.store, "planning the study"):
        table = build_table(file, cache=paths.cache, progress=progress)
        return make_plan(file, table, progress=progress)


@dataclass(frozen=True, kw_only=True)
class Status:
    """Which trainings of a plan are done.

    Args:
        done: The keys of those that the store has, whole, with every prediction that the plan asks for.
        todo: The trainings that are still to do.
        failed: Why trainings that are still to do failed in an earlier run, by key.
    """

    done: tuple[str, ...]
    todo: tuple[Training, ...]
    failed: dict[str, str] = field(default_factory=dict)


def status_of(plan: Plan, store: Store) -> Status:
    """Compare a plan with the trainings that a store has.

    Args:
        plan: What the study asks for.
        store: The finished trainings.

    Returns:
        What is done, what is still to do, and what of it failed before.
    """
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
class EngineOptions:
    """How trainings are run.

    Args:
        engine: 'local' or 'ray'.
        address: Of a Ray cluster.
        device: 'auto', 'cpu', 'cuda' or 'cuda:0,cuda:1'.
        lanes: Trainings at a time on a GPU; 0: as many as fit.
        trainer: What trains instead of the recipes; for tests.
        deadline: The time (of `time.time`) after which no training is begun.
    """

    engine: str = "local"
    address: str | None = None
    device: str = "auto"
    lanes: int = 0
    trainer: Any = None
    deadline: float | None = None


@dataclass(frozen=True, kw_only=True)
class StudyRun:
    """What a run did, and its results.

    Args:
        plan: What the study asks for.
        engine: What was trained, and what was in the store.
        results: Every planned run with its status and scores.
        paths: Where the study's files are.
        added: Keys of trainings that were imported from other machines.
    """

    plan: Plan
    engine: EngineReport
    results: Results
    paths: StudyPaths
    added: tuple[str, ...] = ()

    @property
    def store(self) -> Store:
        """The finished trainings."""
        return Store(self.paths.store)


def execute(
    file: StudyFile,
    paths: StudyPaths,
    options: EngineOptions | None = None,
    *,
    imports: Sequence[str | Path] = (),
    progress: Report | None = None,
) -> StudyRun:
    """Train what the store lacks and score every run. What fails is recorded, and the rest goes on.

    Args:
        file: The study.
        paths: Where results and trainings are.
        options: How trainings are run.
        imports: Archives of trainings that other machines finished.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        What was done, and the results.

    Raises:
        UserError: No scenario of the study can be split, or a file cannot be read or written.
    """
    options = options or EngineOptions()
    plan = plan_of(file, paths, progress=progress)
    if not plan.units:
        skipped = plan.runs[plan.runs["status"] == "skipped"]
        reasons = list(
            dict.fromkeys(skipped["scenario"].astype("str") + ": " + skipped["reason"].astype("str"))
        )
        raise UserError(
            f"no scenario of the study can be split: {'; '.join(reasons[:3])}",
            where=str(file.path),
            fix="`elsewhere plan` shows every reason.",
        )
    store = Store(paths.store)
    with explained(paths.out, "writing the study"):
        added = tuple(key for path in imports for key in store.add(path))
        paths.out.mkdir(parents=True, exist_ok=True)
        write_plan(plan, paths)
        done = run_units(
            list(plan.units.values()),
            plan.work,
            store,
            engine=options.engine,
            device=options.device,
            lanes=options.lanes,
            address=options.address,
            trainer=options.trainer,
            progress=_named(progress),
            deadline=options.deadline,
        )
        if done.done:
            note_speed(store, done.done, done.seconds)
        results = results_of(plan, store, paths.out / "predictions", done.failed, progress=progress)
        write_results(results, paths.out)
    return StudyRun(plan=plan, engine=done, results=results, paths=paths, added=added)


def write_plan(plan: Plan, paths: StudyPaths) -> None:
    """Write a study as it is run: settings, audit, manifest and splits (US-09, US-24).

    Args:
        plan: The plan.
        paths: Where its files go: study.json, manifest.csv and splits in the folder of the results; earlier
            ones are replaced.
    """
    write_plan_splits(plan, paths.out / "splits", replace=True)
    manifest = plan.table.frame.assign(digest=list(plan.table.cases.digest))
    if "masks" in manifest.columns:
        counts = manifest["masks"].map(lambda masks: len(masks) if isinstance(masks, tuple) else 0)
        manifest = manifest.assign(masks=counts).drop(columns="image")
    write_table(manifest, paths.out / "manifest.csv")
    write_json(
        {
            "study": plan.study.to_dict(),
            "file": str(plan.file.path),
            "audit": plan.audit(),
            "runs": len(plan.planned()),
            "trainings": len(plan.units),
            "environment": environment(),
        },
        paths.out / "study.json",
    )


def write_plan_splits(plan: Plan, folder: Path, *, replace: bool = False) -> None:
    """Write every split of a plan; for a study with several sources, each source's splits into its own subfolder.

    Args:
        plan: The plan.
        folder: Where they go.
        replace: Whether earlier splits there are replaced.
    """
    everything: list[Split | Skipped] = [*plan.partitions.values(), *plan.skipped]
    for part in plan.table.each:
        datasets = set(part.datasets)
        own = [one for one in everything if set(one.scenario.sources) <= datasets]
        where = folder / part.source if plan.table.parts else folder
        write_splits(own, part.frame, where, scheme=scheme_of(part), replace=replace)


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
