"""What a study of recipes found: prediction files, and scores by the same tasks as any submission's.

The store's outcomes become files (a mask a case on the grid of its own file, a table of probabilities), and
those files are scored. So what a recipe is told about itself is what `elsewhere score` would say of the same
folder. A run that cannot be judged is there with its reason; the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.engine.store import DamagedUnitError, Store
from elsewhere.engine.training import COSTS, Outcome, RecipeSpec
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions, read_predictions
from elsewhere.predictions.answers import AnswerTarget, answer_kinds
from elsewhere.protocols import protocols
from elsewhere.recipes.base import SEGMENTATION
from elsewhere.report.page.privacy import Redactor
from elsewhere.scenarios import Scenario
from elsewhere.scenarios.files import file_name
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions, Scores, tasks
from elsewhere.study.picture_results import TOO_FEW
from elsewhere.study.pictures import Report
from elsewhere.study.plan import Plan
from elsewhere.study.recipe_privacy import ids_in, nameless
from elsewhere.study.volume_part import cohort_of
from elsewhere.tables import staged_directory, write_json, write_table

MARK = ".elsewhere.json"
PROBABILITIES = "probabilities.csv"
Key = tuple[str, str, str, int]
"""task, recipe, scenario, seed."""


@dataclass(frozen=True, kw_only=True)
class RecipeResults:
    """What the analyses read. `runs` has the statuses done, invalid (answered, but not by the protocol's
    rules: a constant prediction), failed and skipped, with the reason; `scores` those that are scored.
    """

    name: str
    settings: dict[str, Any]
    cohort: Cohort
    runs: pd.DataFrame
    scores: dict[Key, Scores]
    predictions_folder: Path
    costs: pd.DataFrame
    """case, recipe, task, scenario, seed, seconds, peak_bytes, energy_joule (MRI-12)."""
    units: pd.DataFrame
    """A row a training; `details` is what the recipe tells of itself."""
    skipped: pd.DataFrame
    audit: dict[str, Any]
    metrics: dict[Key, dict[str, float]] = field(default_factory=dict)
    """The values of every scored run, without intervals."""

    def done(self) -> pd.DataFrame:
        """The runs that have a valid score."""
        return self.runs[self.runs["status"] == "done"]

    def folder(self, key: Key) -> Path:
        """Where a run's prediction files are."""
        row = self.runs[
            (self.runs["task"] == key[0])
            & (self.runs["recipe"] == key[1])
            & (self.runs["scenario"] == key[2])
            & (self.runs["seed"] == key[3])
        ].iloc[0]
        place = self.predictions_folder / str(row["predictions"])
        if not place.resolve().is_relative_to(self.predictions_folder.resolve()):  # a bundle may be anybody's
            raise UserError("a run's predictions lie outside of its folder", where=str(row["predictions"]))
        return place

    def table(self) -> pd.DataFrame:
        """A row a run with its metrics: the plain table."""
        rows = [
            {"task": task, "recipe": recipe, "scenario": scenario, "seed": seed} | values
            for (task, recipe, scenario, seed), values in self.metrics.items()
        ]
        return pd.DataFrame(rows, columns=None if rows else ["task", "recipe", "scenario", "seed"])


def recipe_results_of(
    plan: Plan,
    store: Store,
    folder: Path,
    failures: Mapping[str, str] | None = None,
    *,
    progress: Report | None = None,
) -> RecipeResults:
    """Write and score what the store holds for a plan. `folder` is for the prediction files."""
    failed = store.failures() | dict(failures or {})
    held = set(store.keys()) & set(plan.units)
    runs = _earlier_columns(plan)
    runs["predictions"] = ""
    scores: dict[Key, Scores] = {}
    metrics: dict[Key, dict[str, float]] = {}
    costs: list[pd.DataFrame] = []

    @lru_cache(maxsize=4)
    def outcome(key: str) -> tuple[Outcome, str]:
        return store.load(key), str(store.info(key)["digests"]["outputs.npz"])

    records: list[dict[str, Any]] = runs.to_dict(orient="records")  # type: ignore[assignment]
    for at, row in enumerate(records):
        if progress:
            progress("scoring runs", at, len(runs))
        if row["status"] == "skipped":
            continue
        unit = str(row["unit"])
        names = plan.tested({**row, "method": row["recipe"]})
        answer = _answering(plan, unit, names, outcome) if unit in held else None
        if answer is None:
            why = failed.get(unit, TOO_FEW if unit in held else "it has not been trained yet")
            runs.loc[at, ["status", "reason"]] = ["failed", why]
            continue
        found, digest = answer
        key: Key = (str(row["task"]), str(row["recipe"]), str(row["scenario"]), int(row["seed"]))
        scenario = plan.partitions[key[2], key[3]].scenario
        where = Path(key[0]) / key[1] / scenario_folder(scenario) / f"seed-{key[3]}"
        runs.loc[at, "predictions"] = where.as_posix()
        write_predictions(plan, found, names, key[0], folder / where, state=digest)
        costs.append(_costs(plan, found, names, key, plan.units[unit].recipe))
        try:
            scores[key], metrics[key], invalid = score_run(plan, names, key[0], folder / where)
        except UserError as error:
            runs.loc[at, ["status", "reason"]] = ["failed", f"it could not be scored: {error.what}"]
            continue
        runs.loc[at, ["status", "reason"]] = ["invalid" if invalid else "done", invalid]
    if progress:
        progress("scoring runs", len(runs), len(runs))
    columns = ["case", "recipe", "task", "scenario", "seed", *COSTS]
    return RecipeResults(
        name=plan.file.name,
        settings=plan.study.to_dict(),
        cohort=plan.table.cohort,
        runs=runs,
        scores=scores,
        predictions_folder=folder,
        costs=pd.concat(costs, ignore_index=True)[columns] if costs else pd.DataFrame(columns=columns),
        units=_units(plan, store, held),
        skipped=plan.skipped_table(),
        audit=plan.audit(),
        metrics=metrics,
    )


RUN_COLUMNS = (
    "run",
    "scenario",
    "kind",
    "source",
    "target",
    "recipe",
    "task",
    "seed",
    "unit",
    "split",
    "train",
    "validation",
    "test",
    "left_out",
    "status",
    "reason",
)


def _earlier_columns(plan: Plan) -> pd.DataFrame:
    """The runs of recipes, with the columns that their analyses read."""
    runs = plan.runs[plan.runs["input"] == ""].reset_index(drop=True)
    return runs.rename(columns={"method": "recipe", "training": "unit"})[list(RUN_COLUMNS)]


def _answering(
    plan: Plan, key: str, names: Sequence[str], outcome: Callable[[str], tuple[Outcome, str]]
) -> tuple[Outcome, str] | None:
    """The stored outcome and its digest, where it predicts all of a run, with the volumes as they are now."""
    try:
        found, digest = outcome(key)
    except DamagedUnitError:
        return None
    prints = plan.units[key].fingerprints(plan.table.cases)[plan.table.cases.rows(tuple(names))]
    return (found, digest) if found.covers(tuple(names), prints) else None


def scenario_folder(scenario: Scenario) -> str:
    """A folder name, as split files are called."""
    return file_name(scenario, 0).removesuffix("_seed-0.csv")


def write_predictions(
    plan: Plan, outcome: Outcome, names: Sequence[str], task: str, folder: Path, *, state: str
) -> None:
    """A folder as a participant would hand it in. What is there from the same outputs (`state` is their
    digest) is left as it is.
    """
    made_of = {"outputs": state, "task": task, "cases": list(names)}
    if _same(folder / MARK, made_of):
        return
    place = {name: at for at, name in enumerate(outcome.case)}
    ids = dict(zip(plan.table.frame["case"], plan.table.frame["case_id"], strict=True))
    answers = outcome.answers[task]
    kind = answer_kinds.get(answers.kind)
    files = [MARK, *kind.files([ids[name] for name in names])]
    with staged_directory(
        folder, replace=True, owned=lambda held: files if (held / MARK).is_file() else ()
    ) as staged:
        target = AnswerTarget(
            folder=staged, ids=[ids[name] for name in names], names=names, source=plan.table.sources["mri"]
        )
        kind.write(kind.take(answers, np.array([place[name] for name in names], dtype=np.int64)), target)
        write_json(made_of, staged / MARK)


def _same(mark: Path, state: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(mark.read_text(encoding="utf-8")) == dict(state))
    except (OSError, ValueError):
        return False


def score_run(
    plan: Plan, names: Sequence[str], task: str, folder: Path
) -> tuple[Scores, dict[str, float], str]:
    """The files of a run against the cohort's truth: scores, the metrics, and why they do not count."""
    section = plan.study.task(task)
    cohort = cohort_of(plan.table, tuple(names))
    read = ReadOptions()
    source = folder if task == SEGMENTATION else folder / PROBABILITIES
    options = ScoreOptions(read=read, fairness_weight=section.fairness_weight)
    said = read_predictions(task, source, read, cohort)
    scores = tasks.get(task).score(cohort, said, protocols.get(section.protocol), options)
    try:
        ready = prepare(scores, options)
    except UserError as error:
        return scores, {}, error.what
    return scores, {name: float(value) for name, value in ready.evaluator.values().items()}, ""


def _costs(plan: Plan, outcome: Outcome, names: Sequence[str], key: Key, spec: RecipeSpec) -> pd.DataFrame:
    task, recipe, scenario, seed = key
    place = {name: at for at, name in enumerate(outcome.case)}
    rows = [place[name] for name in names]
    cost = outcome.cost[rows, spec.tasks.index(task)] if outcome.cost is not None else None
    values = np.full((len(rows), len(COSTS)), np.nan) if cost is None else cost
    ids = dict(zip(plan.table.frame["case"], plan.table.frame["case_id"], strict=True))
    return pd.DataFrame(values, columns=list(COSTS)).assign(
        case=[ids[name] for name in names], recipe=recipe, task=task, scenario=scenario, seed=seed
    )


def _units(plan: Plan, store: Store, held: set[str]) -> pd.DataFrame:
    """How each training went."""
    told = ("epochs", "best_epoch", "seconds", "images", "device", "notes", "details")
    rows = []
    for key, unit in plan.units.items():
        spec = unit.recipe
        row: dict[str, Any] = {
            "unit": key,
            "name": unit.name,
            "recipe": spec.name,
            "version": spec.version,
            "tasks": "+".join(spec.tasks),
            "seed": unit.seed,
            "train": len(unit.train),
            "predicted": len(unit.predict),
        }
        if key in held:
            try:
                info = store.info(key)
            except DamagedUnitError:
                info = {}
            row |= {name: info.get(name) for name in told}
        rows.append(row)
    columns = ["unit", "name", "recipe", "version", "tasks", "seed", "train", "predicted", *told]
    return pd.DataFrame(rows, columns=columns)


def write_recipe_results(results: RecipeResults, out: Path) -> None:
    """Runs, trainings, costs, the plain table, and every case's scores (US-24)."""
    write_table(results.runs, out / "runs.csv")
    redact = Redactor(ids_in(results.cohort))
    plain = results.units.assign(
        notes=[_text(nameless(value, redact)) for value in results.units["notes"]],
        details=[_text(nameless(value, redact)) for value in results.units["details"]],
    )
    write_table(plain, out / "trainings.csv")
    write_table(results.costs, out / "costs.csv")
    write_table(results.table(), out / "scores.csv")
    by_task: dict[str, list[pd.DataFrame]] = {}
    for (task, recipe, scenario, seed), scored in results.scores.items():
        part = scored.cases.assign(recipe=recipe, scenario=scenario, seed=seed)
        by_task.setdefault(task, []).append(part)
    for task, parts in by_task.items():
        write_table(pd.concat(parts, ignore_index=True), out / f"scores_{task}.parquet")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) and value else ""
