"""Small studies of published methods without an image: cohorts, scores and runs with a known truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.analysis.study.leaderboard import weight_table
from elsewhere.cohort import Cohort
from elsewhere.protocols import protocols
from elsewhere.scoring.task import ScoreOptions, Scores, tasks
from elsewhere.study.file import Study, parse_study
from elsewhere.study.gather import with_clusters
from elsewhere.study.results import RUN_COLUMNS, Results, RunKey, run_name
from worlds import TESTS

PUBLISHED = TESTS / "golden" / "mri_response_leaderboard.csv"
AGES = (34, 46, 55, 66, 75)
LODO = "leave-one-dataset-out"
BASELINES = ("residual-unet", "random")


def make_study(
    recipes: Mapping[str, Mapping[str, Any]],
    *,
    margin: float | None = None,
    **tasks_of_study: Mapping[str, Any],
) -> Study:
    """Make the study file of some recipes.

    Args:
        recipes: The sections [recipes.NAME].
        margin: The `verdict_margin` of [analyses].
        tasks_of_study: The sections [tasks.NAME]; default: segmentation and response.

    Returns:
        The study, checked.

    Example:
        study = make_study({"coin": {"recipe": "random", "tasks": ["response"]}}, margin=0.05)
    """
    content = {
        "study": {"name": "mri"},
        "cohort": [{"reader": "mama-mia", "source": "mama-mia"}],
        "tasks": dict(tasks_of_study) or {"segmentation": {}, "response": {}},
        "recipes": {name: dict(section) for name, section in recipes.items()},
        "analyses": {} if margin is None else {"verdict_margin": margin},
    }
    return parse_study(content, where="a test")


def study_of(segmenters: Iterable[str], predictors: Iterable[str], *, margin: float | None = None) -> Study:
    """Make the study file of segmenters and predictors of the response, each its own recipe.

    Args:
        segmenters: Names of recipes that segment.
        predictors: Names of recipes that predict the response.
        margin: The `verdict_margin` of [analyses].

    Returns:
        The study, checked.
    """
    of_task = {"segmentation": segmenters, "response": predictors}
    return make_study(
        {
            name: {"tasks": [task], "baseline": name in BASELINES}
            for task, names in of_task.items()
            for name in names
        },
        margin=margin,
    )


def study_table(cohort: Cohort) -> pd.DataFrame:
    """Make the study table of a cohort: every patient is a cluster."""
    cases = cohort.cases
    patient = cases["dataset"].astype("str") + "/" + cases["patient_id"].astype("str")
    return pd.DataFrame(
        {
            "case": cases["dataset"].astype("str") + "/" + cases["case_id"].astype("str"),
            "dataset": cases["dataset"].astype("str"),
            "case_id": cases["case_id"].astype("str"),
            "patient": patient,
            "group": patient,
            "site": cases["site"].astype("str"),
        }
    )


def run_row(
    task: str, method: str, scenario: str, seed: int = 1, *, kind: str = "internal", **more: Any
) -> dict[str, Any]:
    """Make a row of the table of runs: a run that is done, unless `more` says otherwise.

    Args:
        task: Of the run.
        method: Of the run.
        scenario: Of the run.
        seed: Of the run.
        kind: Of the scenario.
        more: Other columns: source, target, status, reason, training, predictions.

    Returns:
        The row, with `RUN_COLUMNS` and those that an analysis may read.
    """
    row = {"run": run_name(RunKey(task, method, scenario, seed)), "scenario": scenario, "kind": kind}
    row |= {
        "source": scenario,
        "target": scenario,
        "task": task,
        "method": method,
        "model": method,
        "input": "",
    }
    row |= {"seed": seed, "status": "done", "reason": "", "training": f"{method}|{scenario}|{seed}"}
    row |= {"training_method": "plain", "margin": float("nan"), "boxes_training": "", "predictions": ""}
    assert set(RUN_COLUMNS) <= set(row)
    return row | more


def answers_of(scores: Mapping[RunKey, Scores]) -> Callable[[str], dict[str, pd.DataFrame]]:
    """Make the answers of runs from their scores, as `Results.answers` gives them: the test part of the response."""
    keys = {run_name(key): key for key in scores}

    def answers(run: str) -> dict[str, pd.DataFrame]:
        key = keys[run]
        if key.task != "response":
            return {}
        cases = scores[key].cases
        table = pd.DataFrame(
            {
                "case": cases["dataset"].astype("str") + "/" + cases["case_id"].astype("str"),
                "case_id": cases["case_id"].astype("str"),
                "patient": cases["cluster_id"].astype("str"),
                "cluster": cases["cluster_id"].astype("str"),
                "label": cases["pcr"].astype("int64"),
                "probability": cases["probability"].astype("float64"),
            }
        )
        return {"test": table}

    return answers


def results_of(
    study: Study,
    cohort: Cohort,
    runs: Iterable[Mapping[str, Any]],
    scores: Mapping[tuple[str, str, str, int], Scores],
    **more: Any,
) -> Results:
    """Make results from scores.

    Args:
        study: The study file.
        cohort: Against which the runs were scored.
        runs: Rows of the table of runs.
        scores: By task, method, scenario and seed; they get the cluster of every case.
        more: Other fields of `Results`.

    Returns:
        The results, with answers that follow from the scores.
    """
    held = _clustered(cohort, scores)
    return Results(
        name=study.study.name,
        study=study,
        cohort=cohort,
        table=study_table(cohort),
        runs=pd.DataFrame(list(runs)),
        scores=held,
        answers=answers_of(held),
        **more,
    )


def _clustered(cohort: Cohort, scores: Mapping[tuple[str, str, str, int], Scores]) -> dict[RunKey, Scores]:
    table = study_table(cohort)
    cluster_of_id = dict(zip(table["case_id"], table["group"], strict=True))
    return {RunKey(*key): with_clusters(made, cluster_of_id) for key, made in scores.items()}


def with_scores(results: Results, scores: Mapping[tuple[str, str, str, int], Scores]) -> Results:
    """The same results with other scores, and the answers that follow from these."""
    held = _clustered(results.cohort, scores)
    return replace(results, scores=held, answers=answers_of(held))


def failed_where(results: Results, reason: str = "it could not be trained", **where: str) -> Results:
    """The same results, had the runs failed that have these values in the table of runs."""
    runs = results.runs.copy()
    lost = np.logical_and.reduce([runs[name] == value for name, value in where.items()], initial=True)
    lost = np.broadcast_to(lost, len(runs))
    runs.loc[lost, ["status", "reason"]] = ["failed", reason]
    gone = set(runs.loc[lost, "run"])
    scores = {key: made for key, made in results.scores.items() if run_name(key) not in gone}
    return with_scores(replace(results, runs=runs), scores)


def with_margin(results: Results, margin: float | None) -> Results:
    """The same results of a study with another margin."""
    analyses = results.study.analyses.model_copy(update={"verdict_margin": margin})
    return replace(results, study=results.study.model_copy(update={"analyses": analyses}))


def make_cohort(
    sizes: dict[str, int], rng: np.random.Generator, *, density_known: float = 1.0, **more: Any
) -> Cohort:
    rows = []
    for dataset, n in sizes.items():
        for k in range(n):
            age = int(rng.choice(AGES)) + int(rng.integers(-3, 4))
            rows.append(
                {
                    "case_id": f"{dataset}_{k:03d}",
                    "patient_id": f"{dataset}_{k:03d}",
                    "dataset": dataset,
                    "site": f"{dataset}-{'AB'[k % 2]}",
                    "modality": "MRI",
                    "mask": f"truth/{dataset}_{k:03d}.nii.gz",
                    "pcr": int(rng.random() < 0.3),
                    "age": age,
                    "menopausal_status": "pre" if age < 50 else "post",
                    "breast_density": str(rng.choice(list("ABCD"))) if rng.random() < density_known else None,
                    "subtype": str(rng.choice(["luminal", "triple_negative", "her2_enriched"])),
                    "clip": int(rng.random() < 0.1),
                }
            )
    frame = pd.DataFrame(rows)
    for name, value in more.items():
        frame[name] = value
    return Cohort.from_frame(frame)


def segmentation_scores(cohort: Cohort, rng: np.random.Generator, *, dice: float, drop: Any = None) -> Any:
    """Dice around `dice`; `drop` maps rows to what is taken off."""
    cases = cohort.cases
    hard = np.random.default_rng(7).normal(0, 0.08, len(cases))
    value = dice + hard + rng.normal(0, 0.05, len(cases))
    if drop is not None:
        value = value - np.array([drop(row) for row in cases.to_dict(orient="records")])
    value = np.clip(value, 0, 1)
    table = pd.DataFrame(
        {
            "case_id": cases["case_id"],
            "dice": value,
            "hausdorff_mm": np.clip(60 * (1 - value) + rng.normal(0, 2, len(cases)), 0, None),
            "volume_truth_ml": np.exp(np.random.default_rng(8).normal(1, 1, len(cases))),
        }
    )
    return tasks.get("segmentation").from_table(
        cohort, table, None, protocols.get("mamamia-paper"), ScoreOptions()
    )


def response_scores(cohort: Cohort, rng: np.random.Generator, *, skill: float, constant: bool = False) -> Any:
    truth = cohort.cases["pcr"].to_numpy(dtype=float)
    logit = rng.normal(0, 1, len(truth)) + skill * (truth - 0.3)
    p = np.full(len(truth), 0.2) if constant else 1 / (1 + np.exp(-logit))
    table = pd.DataFrame({"case_id": cohort.cases["case_id"], "probability": p})
    return tasks.get("response").from_table(
        cohort, table, None, protocols.get("mamamia-paper"), ScoreOptions()
    )


SEGMENTERS = {"residual-unet": 0.68, "subtraction": 0.72, "breast-crop": 0.70, "shared-encoder": 0.62}
PREDICTORS = {"random": 0.0, "clinical": 0.9, "slice-cnn": 0.3, "radiomics": 0.1}


def make_results(
    *,
    sizes: dict[str, int] | None = None,
    kinds: tuple[str, ...] = ("internal", "external", "leave-one-dataset-out"),
    seeds: tuple[int, ...] = (1,),
    segmenters: dict[str, float] | None = None,
    predictors: dict[str, float] | None = None,
    away: float = 0.08,
    margin: float | None = None,
    density_known: float = 1.0,
    seed: int = 0,
) -> Results:
    """Every method loses `away` of Dice, and of its skill, where it was not trained."""
    rng = np.random.default_rng(seed)
    sizes = sizes or {"DUKE": 60, "ISPY1": 50, "ISPY2": 80}
    cohort = make_cohort(sizes, rng, density_known=density_known)
    scenarios = []
    names = list(sizes)
    if "internal" in kinds:
        scenarios += [(d, "internal", d, d) for d in names]
    if "external" in kinds:
        scenarios += [(f"{a}>{b}", "external", a, b) for a in names for b in names if a != b]
    if "leave-one-dataset-out" in kinds:
        scenarios += [
            (f"rest>{t}", "leave-one-dataset-out", "+".join(n for n in names if n != t), t) for t in names
        ]
    segmenters = SEGMENTERS if segmenters is None else segmenters
    predictors = PREDICTORS if predictors is None else predictors
    scores, rows = {}, []
    for scenario, kind, source, target in scenarios:
        mask = cohort.cases["dataset"] == target
        if kind == "internal":
            mask &= np.arange(len(cohort.cases)) % 2 == 0
        part = cohort.subset(mask.to_numpy())
        off = 0.0 if kind == "internal" else away
        for task, recipes in (("segmentation", segmenters), ("response", predictors)):
            for recipe, level in recipes.items():
                for s in seeds:
                    made = (
                        segmentation_scores(part, rng, dice=level - off)
                        if task == "segmentation"
                        else response_scores(part, rng, skill=level * (1 - 3 * off))
                    )
                    scores[task, recipe, scenario, s] = made
                    rows.append(run_row(task, recipe, scenario, s, kind=kind, source=source, target=target))
    costs = pd.DataFrame(
        [
            {
                "case": case,
                "method": recipe,
                "task": task,
                "seconds": float(rng.uniform(2, 9)),
                "peak_bytes": int(rng.integers(1, 4) * 2**30),
                "energy_joule": float("nan") if task == "response" else 40.0,
            }
            for task, recipes in (("segmentation", segmenters), ("response", predictors))
            for recipe in recipes
            for case in cohort.cases["case_id"].head(12)
        ]
    )
    study = study_of(segmenters, predictors, margin=margin)
    return results_of(study, cohort, rows, scores, costs=costs)


def published() -> pd.DataFrame:
    """Rank the published table of responses at every fairness weight.

    Returns:
        One row per weight and team.

    Example:
        published().query("weight == 0.5")
    """
    table = pd.read_csv(PUBLISHED)
    none = np.zeros((0, len(table)))
    return weight_table(
        table["balanced_accuracy"].to_numpy(), 1 - table["fairness_gap"].to_numpy(), names=table["team"].tolist(),
        performance_draws=none, fairness_draws=none, reference=0.5,
    )  # fmt: skip
