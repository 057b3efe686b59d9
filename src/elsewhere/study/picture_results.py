"""What a study found: a row a run, and the outputs of each run, read from the store when they are asked for.

Runs of every kind look alike here: internal, external, leave one dataset out, folds. A run whose training
failed or was not done is there with its reason; nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.engine.store import DamagedUnitError, Store
from elsewhere.engine.training import Outcome
from elsewhere.errors import UserError
from elsewhere.inputs import Cases
from elsewhere.inputs.boxes import box_quality
from elsewhere.recipes.base import recipe_of
from elsewhere.recipes.pictures.settings import CLASSIFICATION, LESION_BOXES, settings_of
from elsewhere.scenarios import Split
from elsewhere.study.plan import Plan

PARTS = ("test", "validation", "normal")
OUTPUT_COLUMNS = ("case", "patient", "label", "logit_benign", "logit_malignant", "distance")
ENSEMBLE_SEED = -1
FIXED_TEST = ("external", "leave-one-dataset-out", "nested")
"""Kinds whose test set no seed trains on: only there may models of several seeds answer together."""

TOO_FEW = "it was trained for fewer or other pictures, and has not been done again yet"

Outputs = Callable[[str], dict[str, pd.DataFrame]]


@dataclass(frozen=True, kw_only=True)
class StudyResults:
    """What the analyses read. `outputs(run)` gives the parts 'test', 'validation' and 'normal', each with
    the columns case, patient, label (0 benign, 1 malignant, -1 normal), logit_benign, logit_malignant and
    distance.
    """

    name: str
    settings: dict[str, Any]
    table: pd.DataFrame
    runs: pd.DataFrame
    outputs: Outputs
    units: pd.DataFrame
    skipped: pd.DataFrame
    audit: dict[str, Any]

    def done(self) -> pd.DataFrame:
        """The runs that have outputs."""
        return self.runs[self.runs["status"] == "done"]

    def ensemble(self) -> StudyResults:
        """The same with a further run a scenario, model and input: the mean probability over its seeds
        (US-32), with seed -1 and `ensemble` true.

        Only where the seeds share their test set and none trains on it. Validation parts differ by seed (one
        seed's validation trains another), so that an ensemble has none, and is never calibrated.
        """
        rows: list[dict[str, Any]] = []
        members: dict[str, tuple[str, ...]] = {}
        done = self.done()
        done = done[done["kind"].isin(FIXED_TEST) & ~done["ensemble"]]
        for _, group in done.groupby(["scenario", "model", "input"], sort=False):
            if len(group) < 2:
                continue
            first = {str(name): value for name, value in group.iloc[0].items()}
            name = f"{first['scenario']}|{first['model']}|{first['input']}|ensemble"
            members[name] = tuple(group["run"])
            rows.append(
                first
                | {"run": name, "seed": ENSEMBLE_SEED, "ensemble": True, "unit": "", "validation": 0}
                | {"split": "", "reason": f"mean of {len(group)} seeds"}
            )
        if not rows:
            return self

        @lru_cache(maxsize=64)
        def outputs(run: str) -> dict[str, pd.DataFrame]:
            if run not in members:
                return self.outputs(run)
            return average([self.outputs(member) for member in members[run]])

        added = pd.DataFrame(rows).astype(self.runs.dtypes.to_dict())
        runs = pd.concat([self.runs, added], ignore_index=True)
        return replace(self, runs=runs, outputs=outputs)

    def long(self) -> pd.DataFrame:
        """Every output of every run in one table: run, part and the columns of `outputs`."""
        parts = []
        for run in self.done()["run"]:
            for part, frame in self.outputs(run).items():
                parts.append(frame.assign(run=run, part=part))
        if not parts:
            return pd.DataFrame(columns=["run", "part", *OUTPUT_COLUMNS])
        return pd.concat(parts, ignore_index=True)[["run", "part", *OUTPUT_COLUMNS]]


def average(members: list[dict[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """The mean probability of several models on the same cases, as logits; no validation part."""
    joined: dict[str, pd.DataFrame] = {}
    for part in ("test", "normal"):
        frames = [member[part] for member in members]
        first = frames[0]
        if any(not frame["case"].equals(first["case"]) for frame in frames[1:]):
            raise ValueError(f"the members were tested on other cases ({part})")
        logits = np.stack([frame[["logit_benign", "logit_malignant"]].to_numpy(float) for frame in frames])
        top = logits.max(axis=2, keepdims=True)
        log_p = logits - top - np.log(np.exp(logits - top).sum(axis=2, keepdims=True))
        mean = np.logaddexp.reduce(log_p, axis=0) - np.log(len(frames))
        joined[part] = first.assign(
            logit_benign=mean[:, 0],
            logit_malignant=mean[:, 1],
            distance=np.mean([frame["distance"].to_numpy(float) for frame in frames], axis=0),
        )
    joined["validation"] = members[0]["validation"].iloc[:0]
    return {part: joined[part] for part in PARTS}


def results_of(plan: Plan, store: Store, failures: Mapping[str, str] | None = None) -> StudyResults:
    """The results that the store holds for a plan. `failures` are of this run; the store's own stand too."""
    failed = store.failures() | dict(failures or {})
    held = set(store.keys()) & set(plan.units)
    runs = _earlier_columns(plan)
    runs["ensemble"] = False

    @lru_cache(maxsize=32)
    def outcome(key: str) -> tuple[Outcome, dict[str, int]]:
        found = store.load(key)
        return found, {name: at for at, name in enumerate(found.case)}

    def answers(key: str, made: Split) -> bool:
        """Whether a stored unit predicts all of a run, with the pictures and boxes as they are today."""
        try:
            found, place = outcome(key)
        except DamagedUnitError:
            return False
        names = (*made.test, *made.validation, *made.normal)
        prints = plan.units[key].fingerprints(plan.table.cases)[plan.table.cases.rows(names)]
        at = [place.get(name, -1) for name in names]
        return -1 not in at and np.array_equal(found.fingerprint[at], prints)

    status, reasons = [], []
    for row in runs.to_dict(orient="records"):
        unit = str(row["unit"])
        if row["status"] == "skipped":
            status.append("skipped")
            reasons.append(row["reason"])
        elif unit in held and answers(unit, plan.partitions[row["scenario"], row["seed"]]):
            status.append("done")
            reasons.append("")
        else:
            status.append("failed")
            reasons.append(failed.get(unit, TOO_FEW if unit in held else "it has not been trained yet"))
    runs["status"] = pd.Series(status, dtype="str", index=runs.index)
    runs["reason"] = pd.Series(reasons, dtype="str", index=runs.index)
    where = {
        run: (name, seed) for run, name, seed in zip(runs["run"], runs["scenario"], runs["seed"], strict=True)
    }
    unit_of = dict(zip(runs["run"], runs["unit"], strict=True))
    done = set(runs.loc[runs["status"] == "done", "run"])
    reason_of = dict(zip(runs["run"], runs["reason"], strict=True))
    patient = dict(zip(plan.table.frame["case"], plan.table.frame["patient"], strict=True))

    @lru_cache(maxsize=64)
    def outputs(run: str) -> dict[str, pd.DataFrame]:
        if run not in unit_of:
            raise UserError(f"the study has no run '{run}'")
        if run not in done:
            raise UserError(f"run '{run}' has no outputs: {reason_of[run]}")
        found, place = outcome(unit_of[run])
        return _parts(plan.partitions[where[run]], found, place, plan.table.cases, patient)

    quality, missed = _found_boxes(plan, runs, outcome, held)
    runs["roi_fallbacks"] = [
        missed.get(run, count) for run, count in zip(runs["run"], runs["roi_fallbacks"], strict=True)
    ]
    return StudyResults(
        name=plan.file.name,
        settings=plan.study.to_dict(),
        table=plan.table.frame,
        runs=runs,
        outputs=outputs,
        units=_units(plan, store, held),
        skipped=plan.skipped_table(),
        audit=plan.audit() | ({"found_boxes": quality} if quality else {}),
    )


RUN_COLUMNS = (
    "run",
    "scenario",
    "kind",
    "source",
    "target",
    "model",
    "input",
    "seed",
    "method",
    "margin",
    "unit",
    "boxes_unit",
    "split",
    "train",
    "validation",
    "test",
    "normal",
    "roi_fallbacks",
    "status",
    "reason",
)


def _earlier_columns(plan: Plan) -> pd.DataFrame:
    """The runs of pairs of model and input, with the columns that the analyses of pictures read."""
    runs = plan.runs[plan.runs["input"] != ""].reset_index(drop=True)
    runs = runs.drop(columns="method").rename(
        columns={"training_method": "method", "training": "unit", "boxes_training": "boxes_unit"}
    )
    names = zip(runs["scenario"], runs["model"], runs["input"], runs["seed"], strict=True)
    runs["run"] = ["|".join(map(str, parts)) for parts in names]
    return runs[list(RUN_COLUMNS)]


def _found_boxes(
    plan: Plan,
    runs: pd.DataFrame,
    outcome: Callable[[str], tuple[Outcome, dict[str, int]]],
    held: set[str],
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """How good the boxes were that a model found in each test part (US-33), and in how many lesions of each
    run it found none.
    """
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    missed: dict[str, int] = {}
    some = runs[(runs["boxes_unit"] != "") & (runs["status"] == "done")]
    for run, name, seed, key in zip(
        some["run"], some["scenario"], some["seed"], some["boxes_unit"], strict=True
    ):
        if (name, seed) not in rows:
            test = plan.partitions[name, seed].test
            if key not in held:
                continue
            found, place = outcome(key)
            if LESION_BOXES not in found.answers or not set(test) <= set(place):
                continue
            boxes = found.answers[LESION_BOXES].best()[[place[case] for case in test]]
            told = box_quality(boxes, plan.table.cases.box[plan.table.cases.rows(test)])["all"]
            rows[name, seed] = {"scenario": name, "seed": int(seed)} | told
            rows[name, seed]["without_box"] = int((~boxes.any(axis=1)).sum())
        missed[run] = rows[name, seed]["without_box"]
    return list(rows.values()), missed


def _parts(
    made: Split, outcome: Outcome, place: Mapping[str, int], cases: Cases, patient: Mapping[str, str]
) -> dict[str, pd.DataFrame]:
    found = {}
    for part in PARTS:
        names: tuple[str, ...] = getattr(made, part)
        lost = [name for name in names if name not in place]
        if lost:
            raise UserError(
                f"the stored unit predicts {len(lost)} cases of {part} not, first {lost[0]}",
                where=f"{made.scenario.name}, seed {made.seed}",
                fix="Run the study again: it trains what is missing.",
            )
        rows = np.array([place[name] for name in names], dtype=np.int64)
        answers = outcome.answers[CLASSIFICATION]
        logits = answers.logits[rows].astype(np.float64)
        found[part] = pd.DataFrame(
            {
                "case": pd.Series(names, dtype="str"),
                "patient": pd.Series([patient[name] for name in names], dtype="str"),
                "label": cases.label[cases.rows(names)].astype(np.int64),
                "logit_benign": logits[:, 0],
                "logit_malignant": logits[:, 1],
                "distance": answers.distance[rows].astype(np.float64),
            }
        )
    return found


def _units(plan: Plan, store: Store, held: set[str]) -> pd.DataFrame:
    """How each training went."""
    rows = []
    for key, unit in plan.units.items():
        if recipe_of(unit.recipe.name).reads != "pictures":
            continue
        row: dict[str, Any] = {
            "unit": key,
            "name": unit.name,
            "kind": getattr(recipe_of(unit.recipe.name), "kind", ""),
            "network": unit.method,
            "input": settings_of(unit.recipe).input.kind,
            "seed": unit.seed,
        }
        if key in held:
            try:
                info = store.info(key)
            except DamagedUnitError:
                info = {}
            row |= {name: info.get(name) for name in ("epochs", "best_epoch", "seconds", "images", "device")}
        rows.append(row)
    columns = ["unit", "name", "kind", "network", "input", "seed"]
    columns += ["epochs", "best_epoch", "seconds", "images", "device"]
    return pd.DataFrame(rows, columns=columns)
