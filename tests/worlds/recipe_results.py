"""Small recipe studies without an image: cohorts, scores and runs with a known truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from elsewhere.study.recipe_analysis_ranks import weight_table

from elsewhere.cohort import Cohort
from elsewhere.protocols import protocols
from elsewhere.scoring.task import ScoreOptions, tasks
from worlds import TESTS

PUBLISHED = TESTS / "golden" / "mri_response_leaderboard.csv"
AGES = (34, 46, 55, 66, 75)


@dataclass
class FakeResults:
    """What `study.recipe_results.RecipeResults` offers."""

    name: str
    settings: dict[str, Any]
    cohort: Cohort
    runs: pd.DataFrame
    scores: dict[tuple[str, str, str, int], Any]
    predictions_folder: Path = Path()
    costs: pd.DataFrame = field(default_factory=pd.DataFrame)
    units: pd.DataFrame = field(default_factory=pd.DataFrame)
    skipped: pd.DataFrame = field(default_factory=pd.DataFrame)
    audit: dict[str, Any] = field(default_factory=dict)


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
) -> FakeResults:
    """Every recipe loses `away` of Dice, and of its skill, where it was not trained."""
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
                    rows.append(
                        {
                            "run": f"{task}|{recipe}|{scenario}|{s}",
                            "scenario": scenario,
                            "kind": kind,
                            "source": source,
                            "target": target,
                            "recipe": recipe,
                            "task": task,
                            "seed": s,
                            "unit": f"{recipe}|{scenario}|{s}",
                            "status": "done",
                            "reason": "",
                        }
                    )
    costs = pd.DataFrame(
        [
            {
                "case": case,
                "recipe": recipe,
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
    settings: dict[str, Any] = {
        "recipes": {
            name: {"recipe": name, "tasks": [task], "baseline": name in ("residual-unet", "random")}
            for task, held in (("segmentation", segmenters), ("response", predictors))
            for name in held
        },
        "analyses": {} if margin is None else {"verdict_margin": margin},
    }
    return FakeResults(
        name="mri", settings=settings, cohort=cohort, runs=pd.DataFrame(rows), scores=scores, costs=costs
    )


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
