"""Gather what the trainings of a study answered: prediction files, scores and costs of every run.

The store's outcomes become files as a participant would hand them in (a mask per case on the grid of its own file, a
table of probabilities), and the same code as `elsewhere score` scores them. A run that cannot be judged is listed with
its reason; the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.cohort.private_ids import ids_in
from elsewhere.engine.store import DamagedUnitError, Store
from elsewhere.engine.training import COSTS, Outcome, Training
from elsewhere.errors import UserError
from elsewhere.inputs.boxes import box_quality
from elsewhere.predictions import Predictions, ReadOptions
from elsewhere.predictions.answers import AnswerTarget, answer_kinds
from elsewhere.privacy import Redactor, nameless
from elsewhere.protocols import protocols
from elsewhere.recipes.base import recipe_of
from elsewhere.recipes.pictures.settings import LESION_BOXES
from elsewhere.scenarios import Scenario, Split
from elsewhere.scenarios.files import file_name
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions, Scores, tasks
from elsewhere.statistics.clusters import CLUSTER_COLUMN
from elsewhere.study.pictures import Report
from elsewhere.study.plan import Plan
from elsewhere.study.results import SCORE_KEYS, Results, RunKey
from elsewhere.study.stored import StoredRuns, answers_of, key_of
from elsewhere.tables import file_digest, staged_directory, write_json, write_table

MARK = ".elsewhere.json"
TRAINING_FACTS = ("epochs", "best_epoch", "seconds", "images", "device", "notes", "details")


def results_of(
    plan: Plan,
    store: Store,
    folder: Path,
    failures: Mapping[str, str] | None = None,
    *,
    progress: Report | None = None,
) -> Results:
    """Write and score what the store holds for a plan.

    Args:
        plan: What the study asks for.
        store: The finished trainings.
        folder: Where the prediction files go.
        failures: Reasons of trainings that failed in this run; those of earlier runs are in the store.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        The results, every planned run with its status.
    """
    stored = StoredRuns(plan, store, failures or {})
    gathered = _Gathered(stored, folder)
    runs = stored.runs.copy()
    records: list[dict[str, Any]] = runs.to_dict(orient="records")  # type: ignore[assignment]
    for position, row in enumerate(records):
        if progress:
            progress("scoring runs", position, len(records))
        if row["status"] != "skipped":
            runs.loc[position, ["status", "reason", "predictions"]] = gathered.run(row)
    if progress:
        progress("scoring runs", len(runs), len(runs))
    quality, without_box = gathered.found_boxes(runs)
    runs["roi_fallbacks"] = [
        without_box.get(run, count) for run, count in zip(runs["run"], runs["roi_fallbacks"], strict=True)
    ]
    columns = ["case", "method", "task", "scenario", "seed", *COSTS]
    costs = [cost for cost in gathered.costs if not cost.empty]
    return Results(
        name=plan.file.name,
        study=plan.study,
        cohort=plan.table.cohort,
        table=plan.table.frame,
        runs=runs,
        scores=gathered.scores,
        answers=stored.answers,
        costs=pd.concat(costs, ignore_index=True)[columns] if costs else pd.DataFrame(columns=columns),
        trainings=_trainings(plan, store, stored.stored),
        skipped=plan.skipped_table(),
        audit=plan.audit() | ({"found_boxes": quality} if quality else {}),
        metrics=gathered.metrics,
        predictions_folder=folder,
    )


@dataclass
class _Gathered:
    """The scores, answers and costs of the runs, as they are read from the store."""

    stored: StoredRuns
    folder: Path
    scores: dict[RunKey, Scores] = field(default_factory=dict)
    metrics: dict[RunKey, dict[str, float]] = field(default_factory=dict)
    costs: list[pd.DataFrame] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = self.stored.plan
        frame = self.plan.table.frame
        self.cluster_of_id = dict(zip(frame["case_id"].astype("str"), frame["group"], strict=True))
        self._row_of_id = {str(name): row for row, name in enumerate(self.plan.table.cohort.cases["case_id"])}
        self.cohort_of = lru_cache(maxsize=64)(self._cohort_of)

    def run(self, row: Mapping[str, Any]) -> tuple[str, str, str]:
        """Write and score one run: its status, the reason, and where its predictions are."""
        reason = self.stored.answered(row)
        if reason:
            return "failed", reason, ""
        key, training, split = key_of(row), str(row["training"]), self.stored.split(row)
        tested = self.plan.tested(row)
        outcome, digest = self.stored.outcome(training)
        place = Path(key.task) / key.method / scenario_folder(split.scenario) / f"seed-{key.seed}"
        names = (*tested, *split.normal)
        recipe = self.plan.units[training].recipe.name
        write_predictions(
            self.plan, outcome, names, key.task, self.folder / place, recipe=recipe, state=digest
        )
        self.costs.append(self._costs(outcome, tested, key, self.plan.units[training]))
        try:
            self.scores[key], self.metrics[key], invalid = self._score(
                tested, outcome, key, self.folder / place
            )
        except UserError as error:
            return "failed", f"it could not be scored: {error.what}", place.as_posix()
        return ("invalid" if invalid else "done"), invalid, place.as_posix()

    def _cohort_of(self, names: tuple[str, ...]) -> Cohort:
        whole = self.plan.table.cohort
        keep = np.zeros(len(whole.cases), dtype=bool)
        keep[[self._row_of_id[str(self.stored.case_id[name])] for name in names]] = True
        return replace(whole.subset(keep), root=whole.root)

    def _score(
        self, names: tuple[str, ...], outcome: Outcome, key: RunKey, folder: Path
    ) -> tuple[Scores, dict[str, float], str]:
        """The answers of a run against the cohort's truth: scores, the metrics, and why they do not count."""
        section = self.plan.study.task(key.task)
        cohort = self.cohort_of(names)
        options = ScoreOptions(read=ReadOptions(), fairness_weight=section.fairness_weight)
        predictions = self._predictions(names, outcome, key, folder, cohort)
        scored = tasks.get(key.task).score(cohort, predictions, protocols.get(section.protocol), options)
        scores = with_clusters(scored, self.cluster_of_id)
        try:
            ready = prepare(scores, options)
        except UserError as error:
            return scores, {}, error.what
        return scores, {name: float(value) for name, value in ready.evaluator.values().items()}, ""

    def _predictions(
        self, names: Sequence[str], outcome: Outcome, key: RunKey, folder: Path, cohort: Cohort
    ) -> Predictions:
        """The prediction table; where every case has a file of its own, as anybody reads the folder."""
        kind = answer_kinds.get(outcome.answers[key.task].kind)
        if kind.own_folder:
            return tasks.get(key.task).read_predictions(folder, ReadOptions(), cohort)
        ids = [self.stored.case_id[name] for name in names]
        file = folder / kind.files(ids)[0]
        table = kind.table(answers_of(outcome, names, key.task), ids)
        return Predictions(kind=kind.name, table=table, source=str(file), digest=file_digest(file))

    def _costs(self, outcome: Outcome, names: Sequence[str], key: RunKey, training: Training) -> pd.DataFrame:
        if outcome.cost is None:
            return pd.DataFrame()
        position = {name: row for row, name in enumerate(outcome.case)}
        rows = [position[name] for name in names]
        values = outcome.cost[rows, training.recipe.tasks.index(key.task)]
        return pd.DataFrame(values, columns=list(COSTS)).assign(
            case=[self.stored.case_id[name] for name in names],
            method=key.method,
            task=key.task,
            scenario=key.scenario,
            seed=key.seed,
        )

    def found_boxes(self, runs: pd.DataFrame) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """How good the boxes were that a model found in each test part, and in how many lesions it found none."""
        rows: dict[tuple[str, int], dict[str, Any]] = {}
        without: dict[str, int] = {}
        some = runs[(runs["boxes_training"] != "") & (runs["status"] == "done")]
        cases = self.plan.table.cases
        for row in some.to_dict(orient="records"):
            where = str(row["scenario"]), int(row["seed"])
            if where not in rows:
                split: Split = self.plan.partitions[where]
                training = str(row["boxes_training"])
                if training not in self.stored.stored:
                    continue
                outcome, _ = self.stored.outcome(training)
                found = outcome.answers.get(LESION_BOXES)
                if found is None or not set(split.test) <= set(outcome.case):
                    continue
                boxes = answers_of(outcome, split.test, LESION_BOXES).best()
                quality = box_quality(boxes, cases.box[cases.rows(split.test)])["all"]
                rows[where] = {"scenario": where[0], "seed": where[1]} | quality
                rows[where]["without_box"] = int((~boxes.any(axis=1)).sum())
            without[str(row["run"])] = rows[where]["without_box"]
        return list(rows.values()), without


def with_clusters(scores: Scores, cluster_of_id: Mapping[str, str]) -> Scores:
    """The scores with the cluster of every case: patients, merged where near-duplicates link them.

    Args:
        scores: Of a run.
        cluster_of_id: The cluster of each case of the cohort by its `case_id`.

    Returns:
        The same scores; `cases` and `events` have the column `cluster_id`.
    """

    def joined(table: pd.DataFrame) -> pd.DataFrame:
        names = table["case_id"].astype("str").map(cluster_of_id)
        return table.assign(**{CLUSTER_COLUMN: names.astype("string")})

    events = None if scores.events is None else joined(scores.events)
    return replace(scores, cases=joined(scores.cases), events=events)


def scenario_folder(scenario: Scenario) -> str:
    """Name the folder of a scenario's predictions, in the way split files are named.

    Args:
        scenario: The scenario.

    Returns:
        A name of letters, digits, dots, dashes and underscores.

    Example:
        >>> scenario_folder(Scenario(name="BUSI>BUS-BRA", kind="external", sources=("BUSI",), target="BUS-BRA"))
        'BUSI_to_BUS-BRA'
    """
    return file_name(scenario, 0).removesuffix("_seed-0.csv")


def write_predictions(
    plan: Plan, outcome: Outcome, names: Sequence[str], task: str, folder: Path, *, recipe: str, state: str
) -> None:
    """Write a run's answers as a participant hands them in.

    Args:
        plan: What the study asks for.
        outcome: Of the run's training.
        names: The study's names of the cases.
        task: Which task.
        folder: Where the answers go. What is there from the same outputs is left as it is.
        recipe: The name of the training's recipe.
        state: The digest of the outputs.
    """
    content = {"outputs": state, "task": task, "cases": list(names)}
    if _same(folder / MARK, content):
        return
    ids = dict(zip(plan.table.frame["case"], plan.table.frame["case_id"], strict=True))
    written = [ids[name] for name in names]
    kind = answer_kinds.get(outcome.answers[task].kind)
    files = [MARK, *kind.files(written)]
    with staged_directory(
        folder, replace=True, owned=lambda earlier: files if (earlier / MARK).is_file() else ()
    ) as staged:
        source = plan.table.sources.get(recipe_of(recipe).reads)
        patients = plan.table.cohort.patient_ids(written)
        target = AnswerTarget(folder=staged, ids=written, names=names, source=source, patients=patients)
        kind.write(answers_of(outcome, names, task), target)
        write_json(content, staged / MARK)


def _same(mark: Path, state: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(mark.read_text(encoding="utf-8")) == dict(state))
    except (OSError, ValueError):
        return False


def _trainings(plan: Plan, store: Store, stored: set[str]) -> pd.DataFrame:
    """How each training went."""
    rows = []
    for key, unit in plan.units.items():
        row: dict[str, Any] = {"training": key, "name": unit.name} | _about_training(unit)
        if key in stored:
            try:
                info = store.info(key)
            except DamagedUnitError:
                info = {}
            row |= {name: info.get(name) for name in TRAINING_FACTS}
        rows.append(row)
    columns = [
        "training",
        "name",
        "recipe",
        "version",
        "tasks",
        "label",
        "seed",
        "train",
        "predicted",
    ]
    return pd.DataFrame(rows, columns=[*columns, *TRAINING_FACTS])


def _about_training(training: Training) -> dict[str, Any]:
    spec = training.recipe
    return {
        "recipe": spec.name,
        "version": spec.version,
        "tasks": "+".join(spec.tasks),
        "label": training.method,
        "seed": training.seed,
        "train": len(training.train),
        "predicted": len(training.predict),
    }


def write_results(results: Results, out: Path) -> None:
    """Write runs, trainings, costs, the table of metrics, every case's scores, and the answers.

    Args:
        results: Of the study.
        out: The folder; the files in it are replaced.
    """
    redact = Redactor(ids_in(results.cohort))
    write_table(results.runs, out / "runs.csv")
    plain = results.trainings.assign(
        notes=[_text(nameless(value, redact)) for value in results.trainings["notes"]],
        details=[_text(nameless(value, redact)) for value in results.trainings["details"]],
    )
    write_table(plain, out / "trainings.csv")
    write_table(results.costs, out / "costs.csv")
    write_table(results.scores_table(), out / "scores.csv")
    tables: dict[str, list[pd.DataFrame]] = {}
    for key, scored in results.scores.items():
        of_run = {name: getattr(key, name) for name in SCORE_KEYS}
        tables.setdefault(f"scores_{key.task}", []).append(scored.cases.assign(**of_run))
        if scored.events is not None:
            tables.setdefault(f"events_{key.task}", []).append(scored.events.assign(**of_run))
    for name, parts in tables.items():
        write_table(pd.concat(parts, ignore_index=True), out / f"{name}.parquet")
    answers = results.answers_table()
    if answers.empty:
        (out / "predictions.parquet").unlink(missing_ok=True)
    else:
        write_table(answers, out / "predictions.parquet")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) and value else ""
