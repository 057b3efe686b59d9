"""A tiny world of hospitals: noise pictures, csv cohorts, a study file, and a trainer without torch."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from elsewhere.engine.training import Outcome
from elsewhere.predictions.answers import FoundBoxes, Probabilities

DATASETS = ("Alder", "Birch", "Cedar", "Dogwood")


def write_hospital(
    folder: Path,
    name: str,
    *,
    patients: int = 16,
    normals: int = 3,
    images: int = 2,
    size: tuple[int, int] = (24, 20),
    malignant: float = 0.5,
) -> pd.DataFrame:
    """A folder with pictures and cohort.csv; every second patient is malignant, the last ones normal."""
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little"))
    here = folder / name
    (here / "images").mkdir(parents=True)
    rows = []
    for patient in range(patients + normals):
        label = (
            "normal" if patient >= patients else "malignant" if patient < malignant * patients else "benign"
        )
        for number in range(images):
            case = f"{label[0]}{patient:03d}_{number}"
            pixels = rng.integers(0, 256, size=(size[1], size[0]), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "images" / f"{case}.png")
            box = (3, 2, 15, 12) if label != "normal" else (None,) * 4
            rows.append(
                {
                    "case_id": case,
                    "patient_id": f"p{patient:03d}",
                    "dataset": name,
                    "label": label,
                    "image": f"images/{case}.png",
                    **dict(zip(("box_x0", "box_y0", "box_x1", "box_y1"), box, strict=True)),
                }
            )
    table = pd.DataFrame(rows)
    table.to_csv(here / "cohort.csv", index=False)
    return table


STUDY = """
[study]
name = "tiny"

{cohorts}

[scenarios]
kinds = ["internal", "external"]
seeds = {seeds}
keep_duplicates_together = false

[inputs.whole]
kind = "whole"

[inputs.roi]
kind = "roi"

[models.cnn]
network = "efficientnet-lite0"
weights = "none"
epochs = 3

[models.vit]
network = "vit-b-16"
weights = "none"
size_px = 384
learning_rate = 1e-5
epochs = 3
"""


def write_world(folder: Path, *, datasets: tuple[str, ...] = DATASETS, seeds=(1, 2), **hospital) -> Path:
    """Hospitals and `tiny.toml` under `folder`; returns the study file."""
    for name in datasets:
        write_hospital(folder, name, **hospital)
    cohorts = "\n".join(f'[[cohort]]\nsource = "{name}/cohort.csv"\n' for name in datasets)
    path = folder / "tiny.toml"
    path.write_text(STUDY.format(cohorts=cohorts, seeds=list(seeds)))
    return path


def edit(study: Path, name: str, change) -> None:
    """Rewrite a hospital's cohort.csv through `change(frame)`."""
    path = study.parent / name / "cohort.csv"
    frame = pd.read_csv(path, dtype={"patient_id": "str", "case_id": "str"})
    change(frame)
    frame.to_csv(path, index=False)


def _number(*parts: str) -> float:
    digest = hashlib.sha256("|".join(parts).encode()).digest()
    return int.from_bytes(digest[:6], "little") / 2**48


def outcome_of(unit, work) -> Outcome:
    """Logits that follow from the unit's key and the case alone, with some of the label in them."""
    cases = work.cases
    rows = cases.rows(unit.predict)
    noise = np.array([_number(unit.key, name) for name in unit.predict])
    score = 2.0 * (cases.label[rows] == 1) + 3.0 * noise - 2.5
    (task,) = unit.recipe.tasks
    if task == "lesion-boxes":
        answers = FoundBoxes.from_best(cases.box[rows])
    else:
        logits = np.column_stack([-score / 2, score / 2]).astype(np.float32)
        answers = Probabilities.from_logits(logits, noise.astype(np.float32))
    return Outcome(
        case=unit.predict,
        fingerprint=unit.fingerprints(cases)[rows],
        answers={task: answers},
        history=({"epoch": 1, "train_loss": 0.6, "validation_loss": 0.5, "seconds": 0.1},),
        best_epoch=1,
        images=len(unit.train),
        seconds=0.1,
        device="cpu",
        versions={"fake": "1"},
        weights={"head": np.zeros(2)} if unit.keep_weights else None,
    )


def train(units, work, *, device, lanes, finished, failed, progress=None, stop=None):
    """A trainer: each training is written down in $TRAININGS; $TRAINING_SECONDS makes it slow."""
    for unit in units:
        if stop is not None and stop():
            return
        if os.environ.get("FAIL_NAMED") and os.environ["FAIL_NAMED"] in unit.name:
            failed(unit, "the loss is not a number")
            continue
        time.sleep(float(os.environ.get("TRAINING_SECONDS", "0")))
        log = os.environ.get("TRAININGS")
        if log:
            with open(log, "a") as file:
                file.write(f"{unit.key} {unit.name}\n")
        finished(unit, outcome_of(unit, work))
