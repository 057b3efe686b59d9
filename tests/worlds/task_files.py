"""What the tests of the commands share: small tables whose numbers are known, and the names of the contract."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

METRICS = {
    "classification": (
        "auroc",
        "auprc",
        "sensitivity",
        "specificity",
        "balanced_accuracy",
        "f1",
        "ece_confidence",
        "ece_malignant",
        "nll",
        "brier",
    ),
    "response": ("balanced_accuracy", "auroc", "fairness", "combined"),
    "segmentation": (
        "dice",
        "hausdorff_mm",
        "hausdorff95_mm",
        "norm_hd",
        "performance",
        "fairness",
        "combined",
    ),
    "detection": ("mean_sensitivity_1_to_4", "sensitivity_at_2_all"),
    "slides": (
        "stage_accuracy",
        "positive_sensitivity",
        "positive_specificity",
        "f1_macro",
        "froc_score",
        "pn_kappa",
    ),
}


def options_of_task(task: str) -> tuple[str, ...]:
    """Groups for the tasks that have none of their own."""
    return {"classification": ("--group-by", "breast_density"), "detection": ("--group-by", "label")}.get(
        task, ()
    )


def binary_tables(
    *,
    patients: int = 60,
    strength: float = 2.0,
    seed: int = 1,
    target: str = "label",
    positives: float = 0.4,
    sites: tuple[str, ...] = ("north", "south"),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One or two cases a patient; `strength` is the distance of the classes in standard deviations."""
    rng = np.random.default_rng(seed)
    truth = np.arange(patients) < round(positives * patients)
    cases = pd.DataFrame(
        {
            "patient_id": [f"P{i:04d}" for i in range(patients)],
            "site": [sites[i % len(sites)] for i in range(patients)],
            "age": rng.integers(30, 85, patients),
            "menopausal_status": np.where(rng.random(patients) < 0.5, "pre", "post"),
            "breast_density": [list("abcd")[i % 4] for i in range(patients)],
            target: truth.astype(int),
        }
    )
    if target == "label":
        cases = cases.loc[cases.index.repeat(1 + (np.arange(patients) % 2))].reset_index(drop=True)
    cases.insert(0, "case_id", [f"C{i:04d}" for i in range(len(cases))])
    logit = strength * (cases[target].to_numpy() - 0.5) + rng.normal(0, 1, len(cases))
    said = pd.DataFrame({"case_id": cases["case_id"], "probability": 1 / (1 + np.exp(-logit))})
    return cases, said


@dataclass(frozen=True)
class Pair:
    """A cohort and its predictions, as files."""

    cohort: Path
    predictions: Path


def write_pair(folder: Path, cases: pd.DataFrame, said: pd.DataFrame, name: str = "predictions") -> Pair:
    folder.mkdir(parents=True, exist_ok=True)
    pair = Pair(cohort=folder / "cohort.csv", predictions=folder / f"{name}.csv")
    cases.to_csv(pair.cohort, index=False)
    said.to_csv(pair.predictions, index=False)
    return pair


def box_mask(
    shape: tuple[int, int, int], low: tuple[int, int, int], high: tuple[int, int, int]
) -> np.ndarray:
    mask = np.zeros(shape, dtype=np.uint8)
    mask[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = 1
    return mask


def write_nifti(mask_zyx: np.ndarray, path: Path, spacing_zyx: tuple[float, float, float]) -> None:
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    spacing_xyz = tuple(float(v) for v in spacing_zyx[::-1])
    image = nibabel.Nifti1Image(mask_zyx.transpose(2, 1, 0), np.diag([*spacing_xyz, 1.0]))
    image.header.set_xyzt_units("mm")
    nibabel.save(image, path)


def mask_pair(folder: Path) -> Pair:
    """Eight small volumes, each truth a box and each prediction the box moved; one id has a slash."""
    from elsewhere.predictions.masks import mask_file_name

    spacing = (2.0, 1.0, 1.0)
    rows = []
    for i in range(8):
        case = f"S{i}/left" if i == 0 else f"S{i}"
        name = mask_file_name(case)
        write_nifti(box_mask((6, 10, 12), (1, 2, 2), (4, 7, 8)), folder / "truth" / name, spacing)
        shift = i % 3
        said = box_mask((6, 10, 12), (1, 2 + shift, 2), (4, 7 + shift, 8))
        write_nifti(said, folder / "masks" / name, spacing)
        rows.append(
            {
                "case_id": case,
                "patient_id": f"P{i}",
                "mask": f"truth/{name}",
                "age": 40 + 4 * i,
                "menopausal_status": "pre" if i % 2 else "post",
                "breast_density": "ab"[i // 4],
            }
        )
    cohort = folder / "cohort.csv"
    pd.DataFrame(rows).to_csv(cohort, index=False)
    return Pair(cohort=cohort, predictions=folder / "masks")


def detection_pair(folder: Path) -> Pair:
    """Six volumes in BCS-DBT's published form, four with a lesion; DBTex's csv."""
    published = folder / "published"
    published.mkdir()
    labels, boxes, said = [], [], []
    for i in range(6):
        positive = i < 4
        key = {"PatientID": f"P{i}", "StudyUID": f"S{i}", "View": "lcc"}
        labels.append(
            {**key, "Normal": int(not positive), "Actionable": 0, "Benign": 0, "Cancer": int(positive)}
        )
        if positive:
            boxes.append(
                {
                    **key,
                    "Subject": 0,
                    "Slice": 20,
                    "X": 500,
                    "Y": 600,
                    "Width": 200,
                    "Height": 200,
                    "Class": "cancer",
                    "AD": 0,
                    "VolumeSlices": 40,
                }
            )
        hit = 510 if i < 3 else 1500
        said.append(
            {
                **key,
                "X": hit,
                "Width": 180,
                "Y": 610,
                "Height": 180,
                "Z": 18,
                "Depth": 4,
                "Score": 0.9 - 0.1 * i,
            }
        )
    pd.DataFrame(labels).to_csv(published / "labels.csv", index=False)
    pd.DataFrame(boxes).to_csv(published / "boxes.csv", index=False)
    pd.DataFrame(said).to_csv(folder / "boxes_said.csv", index=False)
    from elsewhere.cohort import read_cohort

    cohort = folder / "dbt"
    read_cohort("bcs-dbt", published).save(cohort)
    return Pair(cohort=cohort, predictions=folder / "boxes_said.csv")


def slide_pair(folder: Path) -> Pair:
    """Thirty slides of ten patients with their stage; every fifth answer is one step too high."""
    stages = ("negative", "itc", "micro", "macro")
    truth = [stages[(i * 7) % 4] for i in range(30)]
    said = [stages[min(3, stages.index(s) + (i % 5 == 0))] for i, s in enumerate(truth)]
    ids = [f"patient_{i // 3:03d}_node_{i % 3}" for i in range(30)]
    cases = pd.DataFrame({"case_id": ids, "patient_id": [i[:11] for i in ids], "stage": truth})
    return write_pair(folder, cases, pd.DataFrame({"case_id": ids, "stage": said}))


def classification_pair(folder: Path) -> Pair:
    """A plain cohort of 60 patients, and a model that is right more often than not."""
    return write_pair(folder, *binary_tables())


def response_pair(folder: Path) -> Pair:
    return write_pair(folder, *binary_tables(target="pcr"))


MAKERS = {
    "classification": classification_pair,
    "response": response_pair,
    "segmentation": mask_pair,
    "detection": detection_pair,
    "slides": slide_pair,
}


CLAIM = """
model = "a model"
task = "classification"

[[primary]]
metric = "auroc"
value = 0.9
n = 300
positives = 100
margin = 0.05
margin_source = "written down before"
"""


def two_results(folder: Path, run) -> Path:
    """A cohort, predictions, a claim, and two results of them."""
    files = MAKERS["classification"](folder)
    (folder / "claim.toml").write_text(CLAIM)
    command = ("score", "classification", files.cohort, files.predictions, "--resamples", 0)
    assert run(*command, "--out", folder / "a").code == 0
    shutil.copytree(folder / "a", folder / "b")
    return folder
