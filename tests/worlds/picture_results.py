"""Made-up studies of pictures whose truth is known: datasets, runs and answers without a picture or a training.

Probabilities are drawn at a known AUROC, and `scoring` makes the scores from them, as a study that ran does.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special, stats

from elsewhere.analysis.study.context import Context
from elsewhere.analysis.study.registry import in_order
from elsewhere.analysis.study.summary import StudySummary, analyse
from elsewhere.cohort import Cohort, IdGrade
from elsewhere.cohort.table import KnownOfCohort
from elsewhere.engine.training import COSTS
from elsewhere.predictions import Predictions
from elsewhere.predictions.answers.probability import FILE as PROBABILITIES
from elsewhere.protocols import protocols
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions, Scores, tasks
from elsewhere.study.file import Study, parse_study
from elsewhere.study.gather import with_clusters
from elsewhere.study.results import Results, RunKey, run_name
from elsewhere.study.stored import key_of
from elsewhere.tables import write_table

TASK = "classification"

SMALL_SIZES = {
    "BUSI": (60, 40, 30, 110),
    "BUS-BRA": (80, 50, 0, 90),
    "BrEaST": (40, 30, 4, 70),
    "BUS-UCLM": (50, 40, 60, 24),
}
GRADES = {"BUSI": "C", "BUS-BRA": "A", "BrEaST": "A", "BUS-UCLM": "A"}


def separation(auroc: float) -> float:
    """The distance of two unit normals whose AUROC this is."""
    return float(np.sqrt(2) * stats.norm.ppf(auroc))


@dataclass(frozen=True, kw_only=True)
class World:
    """What a made-up study has; `truth(source, target, model, input)` is the AUROC that its answers are drawn at."""

    sizes: dict[str, tuple[int, int, int, int]] = field(default_factory=lambda: dict(SMALL_SIZES))
    seeds: tuple[int, ...] = (1, 2, 3)
    models: tuple[str, ...] = ("cnn", "vit")
    inputs: tuple[str, ...] = ("whole", "roi")
    kinds: tuple[str, ...] = ("internal", "external")
    margins: dict[str, float] = field(default_factory=lambda: {"roi": 0.12})
    home: float = 0.86
    drop: float = 0.08
    roi_gain: float = 0.06
    sharpness: float = 2.0
    random: int = 7
    analyses: dict[str, Any] = field(
        default_factory=lambda: {"reference": "ultrasound", "without": ["BUS-UCLM"]}
    )
    methods: dict[str, str] = field(default_factory=dict)
    found: tuple[str, ...] = ()
    """Inputs whose boxes a model finds."""
    protocol: str = "plain"
    linked: bool = False
    """Near-duplicates link every two patients."""

    def truth(self, source: str, target: str, model: str, input_: str) -> float:
        gain = 0.0 if input_ == "whole" else self.roi_gain
        away = 0.0 if source == target else self.drop
        poor = 0.08 if "BUS-UCLM" == source != target else 0.0
        several = 0.03 if "+" in source else 0.0
        return (
            self.home
            - away
            - poor
            + several
            + (gain if source != target else gain / 2)
            + 0.01 * (model == "vit")
        )


def study_table(world: World) -> pd.DataFrame:
    rng = np.random.default_rng(world.random)
    parts = []
    for name, (benign, malignant, normal, patients) in world.sizes.items():
        labels = ["benign"] * benign + ["malignant"] * malignant + ["normal"] * normal
        n = len(labels)
        who = np.concatenate([np.arange(patients), rng.integers(0, patients, max(0, n - patients))])[:n]
        who = rng.permutation(who)
        cases = [f"{name.lower().replace('-', '')}_{i:04d}" for i in range(n)]
        parts.append(
            pd.DataFrame(
                {
                    "case": [f"{name}/{c}" for c in cases], "dataset": name, "case_id": cases,
                    "patient": [f"{name}/P{name[:2]}{p:04d}" for p in who], "label": labels,
                    "width": 500, "height": 400, "image": "", "site": name,
                }
            )
        )  # fmt: skip
    table = pd.concat(parts, ignore_index=True)
    table["group"] = table["patient"]
    if world.linked:
        number = table["patient"].str[-4:].astype(int) // 2 * 2
        table["group"] = table["patient"].str[:-4] + number.map("{:04d}".format)
    return table


def scenarios_of(world: World) -> list[tuple[str, str, str, str]]:
    names = list(world.sizes)
    out = []
    if "internal" in world.kinds:
        out += [("internal", n, n, n) for n in names]
    if "external" in world.kinds:
        out += [("external", f"{a}>{b}", a, b) for a in names for b in names if a != b]
    if "leave-one-dataset-out" in world.kinds:
        out += [
            ("leave-one-dataset-out", f"rest>{t}", "+".join(n for n in names if n != t), t) for t in names
        ]
    if "nested" in world.kinds:
        out += [
            ("nested", f"nested {'+'.join(rest)}>{held}", "+".join(rest), held)
            for t in names
            for held in names
            if held != t
            for rest in [tuple(n for n in names if n not in (t, held))]
        ]
    return list(dict.fromkeys(out))


def study_of(world: World) -> Study:
    """The study file of a world."""
    inputs: dict[str, Any] = {}
    for name in world.inputs:
        inputs[name] = {"kind": "whole"}
        if name != "whole":
            inputs[name] = {"kind": "roi", "margin": world.margins.get(name, 0.12)}
        if name in world.found:
            inputs[name]["boxes"] = "found"
    models = {
        name: {
            "network": "vit-b-16" if name.startswith("vit") else "efficientnet-b0",
            "method": world.methods.get(name, "plain"),
        }
        for name in world.models
    }
    content = {
        "study": {"name": "made-up", "ids": "patient"},
        "cohort": [{"source": f"{name}/cohort.csv"} for name in world.sizes],
        "scenarios": {"seeds": list(world.seeds)},
        "inputs": inputs,
        "models": models,
        "tasks": {TASK: {"protocol": world.protocol}},
        "analyses": world.analyses,
    }
    return parse_study(content, where="a made-up study")


def with_settings(results: Results, **sections: Any) -> Results:
    """The same results under another study file: whole sections are replaced, `analyses={}` empties one."""
    return replace(results, study=parse_study(results.study.to_dict() | sections, where="a made-up study"))


class LazyScores(Mapping[RunKey, Scores]):
    """Scores that are made when they are asked for, once."""

    def __init__(self, keys: list[RunKey], score: Callable[[RunKey], Scores]) -> None:
        self._keys, self._score = dict.fromkeys(keys), score

    def __getitem__(self, key: RunKey) -> Scores:
        if key not in self._keys:
            raise KeyError(key)
        return self._score(key)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, runs: pd.DataFrame) -> LazyScores:
        """Those of the runs that were scored."""
        scored = runs[runs["status"].isin(["done", "invalid"])]
        return LazyScores([key_of(row) for row in scored.to_dict(orient="records")], self._score)


def with_runs(results: Results, runs: pd.DataFrame) -> Results:
    """The same results with other runs: some left out, in another order, or failed."""
    runs = runs.reset_index(drop=True)
    return replace(results, runs=runs, scores=results.scores.of(runs))


def failed(results: Results, gone: Any, reason: str = "out of memory") -> Results:
    """The same results where some runs failed."""
    runs = results.runs.copy()
    runs.loc[gone, "status"] = "failed"
    runs.loc[gone, "reason"] = reason
    return with_runs(results, runs)


def with_answers(
    results: Results, change: Callable[[dict[str, pd.DataFrame]], dict[str, pd.DataFrame]]
) -> Results:
    """The same results, whose answers are changed when they are asked for. The scores stay as they are."""
    return replace(results, answers=lambda run: change(results.answers(run)))


def cohort_of(table: pd.DataFrame) -> Cohort:
    """The cohort that the runs are scored against."""
    cases = table[["case_id", "dataset", "site", "label"]].assign(patient_id=table["patient"])
    grades = {
        name: IdGrade(grade=GRADES.get(name, "B"), why=reason_of_grade(name))
        for name in dict.fromkeys(table["dataset"])
    }
    return Cohort.from_frame(cases, reader="made-up", known=KnownOfCohort(id_grades=grades))


def scores_of(
    results_cohort: Cohort, table: pd.DataFrame, test: pd.DataFrame, protocol: str = "plain"
) -> Scores:
    """Score the answers of a test part, as `study/gather.py` does."""
    rows = np.isin(results_cohort.cases["case_id"].to_numpy(str), test["case_id"].to_numpy(str))
    predictions = Predictions(
        kind="probability", table=test[["case_id", "probability"]], source="made up", digest=""
    )
    made = tasks.get(TASK).score(
        results_cohort.subset(rows), predictions, protocols.get(protocol), ScoreOptions()
    )
    return with_clusters(made, dict(zip(table["case_id"], table["group"], strict=True)))


def make_results(world: World | None = None, **changes: Any) -> Results:
    """Answers are drawn on demand, each run from its own generator: the same run always gives the same."""
    world = replace(world or World(), **changes)
    table = study_table(world)
    cohort = cohort_of(table)
    runs = runs_of(world)
    answers = Answers(world, table, runs)
    run_of = dict(zip([key_of(row) for row in runs.to_dict(orient="records")], runs["run"], strict=True))

    @cache
    def score(key: RunKey) -> Scores:
        return scores_of(cohort, table, answers(run_of[key])["test"], world.protocol)

    trainings = runs.drop_duplicates("training")[["training"]].assign(
        name=lambda t: t["training"], epochs=10, best_epoch=7, seconds=41.5, images=9000,
        device="NVIDIA H200", notes=[[] for _ in range(runs["training"].nunique())], details=None,
    )  # fmt: skip
    return Results(
        name="made-up",
        study=study_of(world),
        cohort=cohort,
        table=table,
        runs=runs,
        scores=LazyScores(list(run_of), score),
        answers=answers,
        costs=pd.DataFrame(columns=["case", "method", "task", "scenario", "seed", *COSTS]),
        trainings=trainings.reset_index(drop=True),
        skipped=pd.DataFrame(columns=["scenario", "kind", "seed", "reason"]),
        audit=made_audit(world, table),
    )


def runs_of(world: World) -> pd.DataFrame:
    """The table of runs, all of them done."""
    rows = []
    for kind, scenario, source, target in scenarios_of(world):
        for model in world.models:
            for input_ in world.inputs:
                for seed in world.seeds:
                    key = RunKey(TASK, f"{model}-{input_}", scenario, seed)
                    rows.append(
                        {
                            "run": run_name(key), "scenario": scenario, "kind": kind, "source": source,
                            "target": target, "task": TASK, "method": key.method, "model": model,
                            "input": input_, "seed": seed,
                            "training_method": world.methods.get(model, "plain"),
                            "margin": world.margins.get(input_, float("nan")),
                            "training": f"{source}|{model}|{input_}|{seed}", "boxes_training": "",
                            "status": "done", "reason": "", "predictions": "",
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


class Answers:
    """The answers of every run: drawn from its name, so that they depend on no other run."""

    def __init__(self, world: World, table: pd.DataFrame, runs: pd.DataFrame) -> None:
        self.world, self.table = world, table
        lesions = table[table["label"] != "normal"]
        self.lesion = {name: part.index.to_numpy() for name, part in lesions.groupby("dataset")}
        normals = table[table["label"] == "normal"]
        self.normal = {name: part.index.to_numpy() for name, part in normals.groupby("dataset")}
        own = np.random.default_rng(world.random + 1).normal(0, 0.6, table["patient"].nunique())
        self.patient_part = own[pd.factorize(table["patient"])[0]]
        self.positive = (table["label"] == "malignant").to_numpy()
        self.code = np.where(table["label"] == "normal", -1, self.positive.astype(int))
        self.row_of = {str(row["run"]): row for row in runs.to_dict(orient="records")}
        self._drawn = cache(self._draw)

    def __call__(self, run: str) -> dict[str, pd.DataFrame]:
        return dict(self._drawn(run))

    def _draw(self, run: str) -> dict[str, pd.DataFrame]:
        world, row = self.world, self.row_of[run]
        draw_name = "|".join(str(row[name]) for name in ("scenario", "model", "input", "seed"))
        rng = np.random.default_rng([world.random, hash_of(draw_name)])
        sources = row["source"].split("+")
        known = np.concatenate([self.lesion[s] for s in sources])
        share = 0.1 if row["kind"] == "internal" else 0.15
        split = np.random.default_rng([world.random, int(row["seed"]), hash_of(row["source"])])
        who = self.table["patient"].to_numpy()[known]
        order = dict(
            zip(split.permutation(np.unique(who)), np.linspace(0, 1, np.unique(who).size), strict=True)
        )
        position = np.array([order[p] for p in who])
        validation = known[position < share]
        test = self.lesion[row["target"]]
        if row["kind"] == "internal":
            test = known[(position >= share) & (position < share + 0.2)]
        home = world.truth(sources[0], sources[0], row["model"], row["input"])
        auroc = world.truth(row["source"], row["target"], row["model"], row["input"])
        normal = self.normal.get(row["target"], np.zeros(0, dtype=int))
        return {
            "test": self._part(rng, test, auroc, row["model"]),
            "validation": self._part(rng, validation, home, row["model"]),
            "normal": self._part(rng, normal, 0.5, row["model"]),
        }

    def _part(self, rng: np.random.Generator, rows: np.ndarray, auroc: float, model: str) -> pd.DataFrame:
        z = separation(auroc) * (self.positive[rows] - 0.5) + 0.8 * rng.normal(size=rows.size)
        z = z + self.patient_part[rows]
        sharpness = self.world.sharpness * (1.0 if model == "vit" else 0.7)
        z = np.where(self.code[rows] < 0, 0.6 * z, z) * sharpness
        level = rng.normal(2 + 0.3 * np.abs(z), 0.3)
        part = self.table.iloc[rows][["case", "case_id", "patient", "group"]].reset_index(drop=True)
        return part.rename(columns={"group": "cluster"}).assign(
            label=self.code[rows],
            probability=special.expit(z),
            logit_negative=level - z / 2,
            logit_positive=level + z / 2,
            distance=np.abs(rng.normal(2.0 - 0.4 * np.tanh(np.abs(z)), 0.5)),
        )


def context_of(results: Results, *, resamples: int = 0) -> Context:
    """What an analysis of the study reads."""
    return Context(results=results, task=TASK, resamples=resamples, salt="a salt")


def tables_of(results: Results, *names: str, resamples: int = 0) -> dict[str, pd.DataFrame]:
    """Run some analyses and no others: their tables by name."""
    context = context_of(results, resamples=resamples)
    known = {one.name: one for one in in_order()}
    assert set(names) <= set(known), set(names) - set(known)
    for name, one in known.items():
        if name in names and one.serves(context):
            context.made.update({n: table for n, table in one.function(context).items() if not table.empty})
    return context.made


@cache
def small_results() -> Results:
    """The study of tests that only read: two models, two inputs, three seeds, four datasets."""
    return make_results()


@cache
def small_summary() -> StudySummary:
    """Its numbers."""
    return analyse(small_results(), resamples=100)


@cache
def cnn_alone() -> Results:
    """The same study with one model: for tests that change something and analyse again."""
    results = small_results()
    return with_runs(results, results.runs[results.runs["model"] == "cnn"])


def write_run_folder(results: Results, folder: Path) -> Results:
    """Write what a run leaves beside its report: splits, the manifest, and a file of probabilities per run."""
    (folder / "splits").mkdir(parents=True)
    (folder / "splits" / "index.json").write_text("{}")
    write_table(results.table.assign(image=f"{folder}/picture.png"), folder / "manifest.csv")
    runs = results.runs.assign(predictions=[f"run-{n}" for n in range(len(results.runs))])
    for row in runs.to_dict(orient="records"):
        parts = results.answers(str(row["run"]))
        table = pd.concat([parts["test"], parts["normal"]], ignore_index=True)
        (folder / "predictions" / row["predictions"]).mkdir(parents=True)
        write_table(
            table[["case_id", "probability"]], folder / "predictions" / row["predictions"] / PROBABILITIES
        )
    metrics = {
        key: {n: float(v) for n, v in prepare(scores, ScoreOptions()).evaluator.values().items()}
        for key, scores in results.scores.items()
    }
    return replace(results, runs=runs, metrics=metrics, predictions_folder=folder / "predictions")


def hash_of(text: str) -> int:
    return zlib.crc32(text.encode())


def reason_of_grade(name: str) -> str:
    return "publishes no patient ids" if name == "BUSI" else "as many ids as published"


def made_audit(world: World, table: pd.DataFrame) -> dict[str, Any]:
    return {
        "ids": "patient",
        "publication": True,
        "cohorts": {
            name: {
                "hash": f"{hash_of(name):08x}" * 8,
                "reader": name.lower(),
                "id_grade": GRADES.get(name, "B"),
                "id_grade_why": reason_of_grade(name),
                "rows": int((table["dataset"] == name).sum()),
                "without_box": 0,
                "invalid_box": 0,
            }
            for name in world.sizes
        },
        "left_out": [{"dataset": "BUSI", "reason": "label 'unknown' is not in the list", "rows": 3}],
        "duplicates": {
            "kept_together": True,
            "pairs": [
                [*table["case"].iloc[[0, 1]], "exact", "across patients and labels", 0.0],
                *(
                    [*table["case"].iloc[[at, at + 1]], "near", "across patients", 0.02]
                    for at in range(2, 9, 2)
                ),
            ],
            "counts": {"pairs": 5},
            "warnings": [],
            "calibration": {},
        },
        "warnings": ["BUS-UCLM: 7 patients carry both labels; each stays one unit, in the malignant stratum"],
        "roi_fallbacks": {
            "BUSI": {"train": 0, "validation": 0, "test": 0},
            "BrEaST>BUSI": {"train": 1, "validation": 0, "test": 2},
        },
        "scenario_warnings": {"BUS-UCLM": ["the test part has 7 patients"]},
        "splits": {
            f"{s} seed {n}": f"{hash_of(s + str(n)):08x}"
            for _, s, _, _ in scenarios_of(world)
            for n in world.seeds
        },
    }
