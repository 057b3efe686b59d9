"""What came back from the GPU, scored here: files as a participant hands them in, boards under mamamia-paper.

`python -m benchmarks.mri_on_gpu score ZIPS FOLDER`: truth and predictions as .nii.gz on every case's own grid, the
cohort's table, and the report of a recipe study (leaderboards with intervals, fairness, home and elsewhere,
groups, costs) under FOLDER/report. `docs/make_mri_segmentation.py --take FOLDER` makes the page of it.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort, load_cohort
from elsewhere.engine.store import Store
from elsewhere.engine.training import COSTS, Outcome
from elsewhere.predictions import ReadOptions, read_predictions
from elsewhere.predictions.answers import PackedMask, answer_kinds
from elsewhere.predictions.masks import mask_file_name
from elsewhere.protocols import protocols
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions, tasks
from elsewhere.study.recipe_analysis import analyse_recipes
from elsewhere.study.recipe_report import write_recipe_report
from elsewhere.study.recipe_results import Key, RecipeResults

TASK, PROTOCOL = "segmentation", "mamamia-paper"
MARGIN = 0.05
"""Of Dice, declared before the run: a drop within it counts as none."""


def score(zips: Path, out: Path) -> RecipeResults:
    """`zips`: the folder that `collect` filled."""
    out.mkdir(parents=True, exist_ok=True)
    world = _world(zips / "mri-world.zip")
    rows = {row["case"]: row for row in world["cases.json"]}
    split, units = world["mri-split.json"], world["mri-units.json"]
    store = Store(out / "store")
    for file in sorted(zips.glob("mri-unit-*.zip")):
        store.add(file)
    tested = [*split["parts"]["home"], *split["parts"]["elsewhere"]]
    truth = dict(zip(world["truth"][0], world["truth"][1], strict=True))
    _write_masks(out / "truth", {case: truth[case] for case in tested}, rows)
    cohort = _cohort(out, [rows[case] for case in tested])
    results = _results(out, cohort, store, split, units, rows, world)
    print(results.table().to_string(index=False), flush=True)
    summary = analyse_recipes(results)
    write_recipe_report(summary, results, out / "report", title="Segmentation on phantoms of real size")
    for name in ("lengths", "stages", "bench", "split"):
        content = world.get(f"mri-{name}.json", world.get(f"mri-{name}.jsonl"))
        if content is not None:
            (out / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    about = {
        "machine": world["machine.json"]["machine"],
        "split": split["hash"],
        "size": world["mri-world.json"],
    }
    (out / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    _trainings(results, store, units).to_csv(out / "trainings.csv", index=False)
    _cases(results, rows).merge(_in_vain(store, units, truth, rows), how="left").to_csv(
        out / "cases.csv", index=False
    )
    print(summary.of("leaderboard").to_string(index=False), flush=True)
    return results


def _world(file: Path) -> dict[str, Any]:
    held: dict[str, Any] = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(".json"):
                held[name] = json.loads(content)
            elif name.endswith(".jsonl"):
                held[name] = [json.loads(line) for line in content.decode().splitlines()]
        with np.load(io.BytesIO(archive.read("truth.npz")), allow_pickle=False) as arrays:
            masks = answer_kinds.get("masks").unpack(arrays).masks
            held["truth"] = ([str(case) for case in arrays["case"]], masks)
    return held


def _write_masks(folder: Path, masks: dict[str, PackedMask], rows: dict[str, Any]) -> None:
    """What is there stays: a run is scored again when a recipe is added."""
    import nibabel

    folder.mkdir(parents=True, exist_ok=True)

    def write(case: str) -> None:
        row = rows[case]
        file = folder / mask_file_name(row["case_id"])
        if file.exists():
            return
        values = np.asfortranarray(masks[case].unpack().astype(np.uint8))
        if values.shape != tuple(row["shape"]):
            raise ValueError(f"{case}: a mask of {values.shape} on a grid of {row['shape']}")
        image = nibabel.Nifti1Image(values, np.array(row["affine"]))
        image.header.set_xyzt_units("mm")
        part = folder / f".part-{file.name}"
        nibabel.save(image, part)
        part.replace(file)

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        list(pool.map(write, masks))


def _cohort(out: Path, rows: list[dict[str, Any]]) -> Cohort:
    frame = pd.DataFrame(
        [
            {
                "case_id": row["case_id"],
                **{k: v for k, v in row["attributes"].items() if k != "patient_id"},
                "patient_id": row["case_id"],
                "modality": "MRI",
                "mask": f"truth/{mask_file_name(row['case_id'])}",
                "implant": int(row["implant"]),
                "clip": int(row["clip"]),
                "non_mass": int(row["lesion"] == "non-mass"),
            }
            for row in rows
        ]
    )
    frame.to_csv(out / "cohort.csv", index=False)
    return load_cohort(out / "cohort.csv")


def _results(
    out: Path,
    cohort: Cohort,
    store: Store,
    split: dict[str, Any],
    units: dict[str, str],
    rows: dict[str, Any],
    world: dict[str, Any],
) -> RecipeResults:
    """Two scenarios: at home in the sites that trained, and at the site that did not."""
    home = "+".join(sorted({rows[case]["dataset"] for case in split["parts"]["home"]}))
    target = split["target"]
    scenarios = {
        home: ("internal", home, split["parts"]["home"]),
        f"{home}>{target}": ("external", target, split["parts"]["elsewhere"]),
    }
    runs, scores, metrics, costs = [], {}, {}, []
    for recipe, unit in units.items():
        if unit not in store:
            print(f"{recipe}: not there", flush=True)
            continue
        outcome = store.load(unit)
        for scenario, (kind, where, names) in scenarios.items():
            key: Key = (TASK, recipe, scenario, 0)
            folder = Path("predictions") / recipe / kind
            masks = dict(zip(outcome.case, outcome.answers["segmentation"].masks, strict=True))
            _write_masks(out / folder, {case: masks[case] for case in names}, rows)
            part = cohort.subset(cohort.cases["case_id"].isin([rows[case]["case_id"] for case in names]))
            said = read_predictions(TASK, out / folder, ReadOptions(), part)
            scored = tasks.get(TASK).score(part, said, protocols.get(PROTOCOL), ScoreOptions())
            scores[key] = scored
            values = prepare(scored, ScoreOptions()).evaluator.values()
            metrics[key] = {name: float(value) for name, value in values.items()}
            costs.append(_costs(outcome, names, key, rows))
            runs.append(
                {
                    "run": "|".join(map(str, key)), "scenario": scenario, "kind": kind, "source": home,
                    "target": where, "recipe": recipe, "task": TASK, "seed": 0, "unit": unit,
                    "split": split["hash"], "train": len(split["parts"]["train"]),
                    "validation": len(split["parts"]["validation"]), "test": len(names), "left_out": 0,
                    "status": "done", "reason": "", "predictions": folder.as_posix(),
                }
            )  # fmt: skip
    return RecipeResults(
        name="mri-segmentation",
        settings={
            "recipes": {name: {"recipe": name, "baseline": name == "residual-unet"} for name in units},
            "tasks": {TASK: {"protocol": PROTOCOL, "verdict_margin": MARGIN}},
        },
        cohort=cohort,
        runs=pd.DataFrame(runs),
        scores=scores,
        predictions_folder=out,
        costs=pd.concat(costs, ignore_index=True),
        units=pd.DataFrame(
            [{"unit": k, "recipe": r, **store.info(k)} for r, k in units.items() if k in store]
        ),
        skipped=pd.DataFrame(columns=["scenario", "seed", "reason"]),
        audit={"ids": "patient", "publication": "", "cohorts": {}, "left_out": [], "warnings": []},
        metrics=metrics,
    )


def _costs(outcome: Outcome, names: list[str], key: Key, rows: dict[str, Any]) -> pd.DataFrame:
    place = {name: at for at, name in enumerate(outcome.case)}
    told = np.full((len(names), len(COSTS)), np.nan)
    if outcome.cost is not None:
        told = outcome.cost[[place[name] for name in names], 0]
    return pd.DataFrame(told, columns=list(COSTS)).assign(
        case=[rows[name]["case_id"] for name in names], recipe=key[1], task=TASK, scenario=key[2], seed=0
    )


def _trainings(results: RecipeResults, store: Store, units: dict[str, str]) -> pd.DataFrame:
    """How long, how much, and what a case cost under control."""
    out = []
    for recipe, key in units.items():
        if key not in store:
            continue
        info, unit, outcome = store.info(key), store.unit(key), store.load(key)
        job = dict(unit.recipe.settings)
        plan, cost = info["details"].get("plan", {}), info["details"].get("cost") or {}
        case = results.costs[results.costs["recipe"] == recipe]
        last = outcome.history[-1] if outcome.history else {}
        out.append(
            {
                "recipe": recipe, "epochs": job.get("epochs"), "steps_per_epoch": job.get("steps_per_epoch"),
                "steps": (job.get("epochs") or 0) * (job.get("steps_per_epoch") or 0),
                "patch": " x ".join(map(str, plan.get("patch", []))), "batch": plan.get("batch"),
                "spacing_mm": " x ".join(f"{v:.2f}" for v in plan.get("spacing_mm", [])),
                "parameters": info["details"].get("parameters"), "mirror": job.get("mirror"),
                "compiled": job.get("compiled"), "train": len(unit.train), "predicted": len(unit.predict),
                "training_seconds": sum(float(e.get("seconds", 0)) for e in outcome.history),
                "unit_seconds": info["seconds"], "last_loss": last.get("train_loss"),
                "validation_dice": last.get("validation_dice"),
                "validation_dice_by_sixth": _by_sixth(outcome), "case_seconds": case["seconds"].median(),
                "case_seconds_most": case["seconds"].max(), "case_peak_gb": case["peak_bytes"].max() / 1e9,
                "case_joule": case["energy_joule"].median(), "controlled_seconds": cost.get("seconds"),
                "controlled_q1": cost.get("seconds_q1"), "controlled_q3": cost.get("seconds_q3"),
                "controlled_joule": cost.get("energy_joule"), "exclusive": cost.get("exclusive"),
                "device": info["device"], "key": key,
            }
        )  # fmt: skip
    return pd.DataFrame(out)


def _by_sixth(outcome: Outcome) -> str:
    """The mean validation Dice of every sixth of the schedule: whether a longer one would have learnt more."""
    dice = np.array([float(entry.get("validation_dice", np.nan)) for entry in outcome.history])
    return ", ".join(f"{np.nanmean(part):.3f}" for part in np.array_split(dice, 6) if np.isfinite(part).any())


def _cases(results: RecipeResults, rows: dict[str, Any]) -> pd.DataFrame:
    """Every phantom patient's scores: she is nobody, so she may be printed."""
    volume = {row["case_id"]: row["volume_mm3"] for row in rows.values()}
    wanted = ["case_id", "dice", "hausdorff_mm", "norm_hd"]
    parts = [
        scored.cases[[c for c in wanted if c in scored.cases.columns]].assign(
            recipe=recipe, scenario=scenario
        )
        for (_, recipe, scenario, _), scored in results.scores.items()
    ]
    table = pd.concat(parts, ignore_index=True)
    return table.assign(volume_ml=table["case_id"].map(volume) / 1000)


def _in_vain(
    store: Store, units: dict[str, str], truth: dict[str, PackedMask], rows: dict[str, Any]
) -> pd.DataFrame:
    """Of every prediction, in volumes of the tumour: what was found where there is none, how much of that lies outside
    the affected breast's box, and what of the tumour was missed."""
    told = []
    for recipe, key in units.items():
        outcome = store.load(key) if key in store else None
        for case, packed in (
            zip(outcome.case, outcome.answers["segmentation"].masks, strict=True) if outcome else ()
        ):
            found, there = packed.unpack(), truth[case].unpack()
            x0, y0, z0, x1, y1, z1 = rows[case]["breast_box"]
            vain, tumour = found & ~there, int(there.sum())
            inside = int(vain[x0:x1, y0:y1, z0:z1].sum())
            told.append(
                {
                    "case_id": rows[case]["case_id"], "recipe": recipe, "in_vain": int(vain.sum()) / tumour,
                    "in_vain_elsewhere": (int(vain.sum()) - inside) / tumour,
                    "missed": int((there & ~found).sum()) / tumour,
                }
            )  # fmt: skip
    return pd.DataFrame(told)
