"""Three synthetic hospitals for each task, at the level of predictions: no images, a known truth.

The model was trained at Alder, works at Birch and does not work at Cedar. Four faults are planted, each of
a kind that has misled published studies: a drop at Cedar, a gap for one subgroup, patients of the training
set in the test set, and ids that are not patients.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

SITES = ("Alder", "Birch", "Cedar")
DENSITIES = ("A", "B", "C", "D")


@dataclass(frozen=True, kw_only=True)
class World:
    """The faults that are planted in the synthetic hospitals, and their strength; zero switches a fault off.

    Args:
        patients_per_site: Number of patients at each of the three sites.
        drop: Loss at Cedar of the signal that separates the classes, on the logit scale.
        subgroup_gap: The same loss for patients of breast density D, at every site.
        leaked_patients: Number of Cedar patients who are also in the training split (task 'classification'
            only).
        file_name_ids: Number of Birch cases whose patient id is a file name (task 'classification' only).
        respelt_site_rows: Number of Birch cases whose site is spelt 'birch ' (task 'classification' only).

    Example:
        >>> World(drop=0, leaked_patients=0, file_name_ids=0, respelt_site_rows=0).planted()
        {'subgroup_gap': 'the model is worse for breasts of density D'}
    """

    patients_per_site: int = 260
    drop: float = 0.9
    subgroup_gap: float = 1.3
    leaked_patients: int = 8
    file_name_ids: int = 14
    respelt_site_rows: int = 9

    def planted(self) -> dict[str, str]:
        """List the planted faults in words, by the name under which the report must find them.

        Returns:
            One sentence per planted fault; keys are 'drop', 'subgroup_gap', 'leak' and 'id_mistake'.
        """
        found = {}
        if self.drop:
            found["drop"] = "the model separates the classes less well at Cedar"
        if self.subgroup_gap:
            found["subgroup_gap"] = "the model is worse for breasts of density D"
        if self.leaked_patients:
            found["leak"] = f"{self.leaked_patients} patients are both in training and in test"
        if self.file_name_ids or self.respelt_site_rows:
            found["id_mistake"] = "some patient ids are file names, and one site is spelt two ways"
        return found


@dataclass(frozen=True, kw_only=True)
class Tables:
    """A synthetic cohort and its predictions, ready to be written.

    Args:
        cases: The cohort table, one row per case.
        predictions: The predictions in the format of the task: probabilities, scores, boxes or stages.
        lesions: One row per lesion box of task 'detection'; None for the other tasks.
        planted: The planted faults, in words.
        margin: The margin with which the demo judges the difference between hospitals.
        scored: Whether `predictions` are the case values of the task's metrics, for `elsewhere summarise`.
    """

    cases: pd.DataFrame
    predictions: pd.DataFrame
    lesions: pd.DataFrame | None = None
    planted: dict[str, str] = field(default_factory=dict)
    margin: float = 0.05
    scored: bool = False


def _patients(rng: np.random.Generator, world: World, *, prefix: str, positives: float) -> pd.DataFrame:
    n = world.patients_per_site
    frames = []
    for site in SITES:
        age = np.clip(rng.normal(57, 12, n), 25, 92).round(0)
        density = rng.choice(DENSITIES, n, p=[0.10, 0.35, 0.35, 0.20])
        frames.append(
            pd.DataFrame(
                {
                    "patient_id": [f"{prefix}{site[0]}{i:04d}" for i in range(n)],
                    "dataset": site.lower(),
                    "site": site,
                    "age": age,
                    "menopausal_status": np.where(age + rng.normal(0, 4, n) > 51, "post", "pre"),
                    "breast_density": density,
                    "positive": rng.random(n) < positives,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _difficulty(world: World, patients: pd.DataFrame) -> np.ndarray:
    """Compute how much of the signal each patient loses: at Cedar, and for density D."""
    return (
        world.drop * (patients["site"] == "Cedar").to_numpy()
        + world.subgroup_gap * (patients["breast_density"] == "D").to_numpy()
    )


def _plant_id_mistakes(rng: np.random.Generator, world: World, cases: pd.DataFrame) -> pd.DataFrame:
    """Plant the leak, the file-name ids and a site spelt two ways; the truth of each case does not change."""
    cases = cases.copy()
    cases["split"] = "test"
    tests = cases.groupby("patient_id", sort=False).head(1)
    leaked = tests[tests["site"] == "Cedar"].sample(world.leaked_patients, random_state=rng).copy()
    leaked["case_id"] = leaked["case_id"] + "_train"
    leaked["split"] = "train"
    birch = np.flatnonzero(cases["site"].to_numpy() == "Birch")
    named = rng.choice(birch, world.file_name_ids, replace=False)
    cases.loc[cases.index[named], "patient_id"] = [
        f"{case}.png" for case in cases["case_id"].to_numpy()[named]
    ]
    rest = np.setdiff1d(birch, named)
    respelt = rng.choice(rest, world.respelt_site_rows, replace=False)
    cases.loc[cases.index[respelt], "site"] = "birch "
    return pd.concat([cases, leaked], ignore_index=True)


def classification(rng: np.random.Generator, world: World) -> Tables:
    """Make ultrasound pictures labelled benign or malignant, one or two per patient.

    This is the only task with all four faults.

    Args:
        rng: The generator of all draws.
        world: The faults to plant, and the number of patients.

    Returns:
        Cases with a `label`, and predictions with a `probability` of malignancy.
    """
    patients = _patients(rng, world, prefix="US", positives=0.4)
    pictures = rng.integers(1, 3, len(patients))
    cases = patients.loc[patients.index.repeat(pictures)].reset_index(drop=True)
    number = cases.groupby("patient_id").cumcount() + 1
    cases["case_id"] = cases["patient_id"] + "_" + number.astype(str)
    cases["modality"] = "ultrasound"
    cases["label"] = np.where(cases["positive"], "malignant", "benign")
    strength = 2.9 - _difficulty(world, cases)
    own = dict(zip(patients["patient_id"], rng.normal(0, 0.7, len(patients)), strict=True))
    signal = strength * (cases["positive"].to_numpy() - 0.5)
    logit = signal + cases["patient_id"].map(own).to_numpy() + rng.normal(0, 0.8, len(cases))
    predictions = pd.DataFrame({"case_id": cases["case_id"], "probability": 1 / (1 + np.exp(-1.3 * logit))})
    cases = cases.drop(columns="positive")
    if world.leaked_patients or world.file_name_ids or world.respelt_site_rows:
        before = len(cases)
        cases = _plant_id_mistakes(rng, world, cases)
        leaked = cases["case_id"].iloc[before:]
        sure = np.where(cases["label"].iloc[before:] == "malignant", 0.99, 0.01)
        predictions = pd.concat(
            [predictions, pd.DataFrame({"case_id": leaked, "probability": sure})], ignore_index=True
        )
    return Tables(cases=cases, predictions=predictions, planted=world.planted())


def response(rng: np.random.Generator, world: World) -> Tables:
    """Make MRI patients with or without a complete response, with one probability per patient.

    Args:
        rng: The generator of all draws.
        world: The faults to plant (only `drop` and `subgroup_gap` apply), and the number of patients.

    Returns:
        Cases with `pcr` (0 or 1), and predictions with a `probability` of it.
    """
    patients = _patients(rng, world, prefix="MR", positives=0.3)
    strength = 1.9 - _difficulty(world, patients)
    logit = strength * (patients["positive"].to_numpy() - 0.5) + rng.normal(0, 1, len(patients))
    cases = patients.assign(
        case_id=patients["patient_id"], modality="MRI", pcr=patients["positive"].astype(int)
    ).drop(columns="positive")
    return Tables(
        cases=cases,
        predictions=pd.DataFrame({"case_id": cases["case_id"], "probability": 1 / (1 + np.exp(-logit))}),
    )


def segmentation(rng: np.random.Generator, world: World) -> Tables:
    """Make scores of MRI tumour masks: one Dice value and one Hausdorff distance per patient.

    Args:
        rng: The generator of all draws.
        world: The faults to plant (only `drop` and `subgroup_gap` apply), and the number of patients.

    Returns:
        Cases, and predictions that are the scores `dice`, `hausdorff_mm` and `volume_truth_ml`.
    """
    patients = _patients(rng, world, prefix="SG", positives=0.3)
    loss = 0.35 * _difficulty(world, patients)
    dice = 1 / (1 + np.exp(-(1.4 - loss + rng.normal(0, 0.7, len(patients)))))
    hausdorff = np.clip(np.exp(rng.normal(2.2, 0.6, len(patients)) + loss), 1, 200)
    volume = np.exp(rng.normal(2.0, 1.0, len(patients)))
    cases = patients.assign(case_id=patients["patient_id"], modality="MRI").drop(columns="positive")
    scores = pd.DataFrame(
        {"case_id": cases["case_id"], "dice": dice, "hausdorff_mm": hausdorff, "volume_truth_ml": volume}
    )
    return Tables(cases=cases, predictions=scores, scored=True)


def detection(rng: np.random.Generator, world: World) -> Tables:
    """Make two tomosynthesis volumes per patient, lesion boxes, and a detector's boxes in DBTex's format.

    Args:
        rng: The generator of all draws.
        world: The faults to plant (only `drop` and `subgroup_gap` apply), and the number of patients.

    Returns:
        Cases, lesions, and one row per predicted box; about 3 false boxes per volume.
    """
    patients = _patients(rng, world, prefix="DBT-P", positives=0.3)
    loss = _difficulty(world, patients)
    cases, lesions, boxes = [], [], []
    for i, patient in enumerate(patients.to_dict("records")):
        side = "l" if rng.random() < 0.5 else "r"
        for view in (f"{side}cc", f"{side}mlo"):
            study = f"S{i:05d}"
            case = f"{study}/{view}"
            cases.append(
                {
                    **patient,
                    "case_id": case,
                    "exam_id": study,
                    "view": view,
                    "modality": "tomosynthesis",
                }
            )
            slices = int(rng.integers(40, 80))
            if patient["positive"]:
                x, y, width, height = (
                    int(v) for v in (*rng.integers(200, 1500, 2), *rng.integers(60, 320, 2))
                )
                z = int(rng.integers(4, slices - 4))
                lesions.append(
                    {
                        "case_id": case,
                        "lesion_id": f"{case}#0",
                        "x": x,
                        "y": y,
                        "width": width,
                        "height": height,
                        "slice": z,
                        "volume_slices": slices,
                        "class": "cancer" if rng.random() < 0.4 else "benign",
                    }
                )
                if rng.random() < 0.93 - 0.13 * loss[i]:
                    score = float(rng.beta(5 - 1.2 * loss[i], 2))
                    boxes.append(
                        (
                            patient["patient_id"],
                            study,
                            view,
                            x + int(rng.normal(0, 12)),
                            width,
                            y + int(rng.normal(0, 12)),
                            height,
                            z - 2,
                            4,
                            score,
                        )
                    )
            for _ in range(int(rng.poisson(3.0))):
                fx, fy, fw, fh = (int(v) for v in (*rng.integers(50, 1700, 2), *rng.integers(40, 300, 2)))
                boxes.append(
                    (
                        patient["patient_id"],
                        study,
                        view,
                        fx,
                        fw,
                        fy,
                        fh,
                        int(rng.integers(0, slices - 4)),
                        4,
                        float(rng.beta(1.5, 4)),
                    )
                )
    columns = ["PatientID", "StudyUID", "View", "X", "Width", "Y", "Height", "Z", "Depth", "Score"]
    return Tables(
        cases=pd.DataFrame(cases).drop(columns="positive"),
        lesions=pd.DataFrame(lesions),
        predictions=pd.DataFrame(boxes, columns=columns),
        margin=0.10,
    )


def slides(rng: np.random.Generator, world: World) -> Tables:
    """Make five lymph nodes per patient: the stage of each and the patient's, in CAMELYON17's format.

    Args:
        rng: The generator of all draws.
        world: The faults to plant (only `drop` and `subgroup_gap` apply), and the number of patients.

    Returns:
        Cases with `stage` and `patient_stage`, and one predicted stage per node.
    """
    from elsewhere.predictions.stages import STAGES
    from elsewhere.scoring.slides.regions import patient_stage

    patients = _patients(rng, world, prefix="LN", positives=0.45).head(len(SITES) * world.patients_per_site)
    loss = _difficulty(world, patients)
    cases, said = [], []
    for i, patient in enumerate(patients.to_dict("records")):
        share = [0.35, 0.15, 0.2, 0.3] if patient["positive"] else [0.92, 0.06, 0.02, 0.0]
        truth = [STAGES[k] for k in rng.choice(4, 5, p=share)]
        for node, stage in enumerate(truth):
            case = f"{patient['patient_id']}_node_{node}"
            cases.append(
                {
                    **patient,
                    "case_id": case,
                    "modality": "histology",
                    "stage": stage,
                    "patient_stage": patient_stage(truth),
                }
            )
            slip = rng.random() < 0.12 + 0.10 * loss[i]
            level = STAGES.index(stage)
            guess = STAGES[int(np.clip(level + rng.choice([-1, 1]), 0, 3))] if slip else stage
            said.append({"patient": f"{case}.tif", "stage": guess})
    return Tables(cases=pd.DataFrame(cases).drop(columns="positive"), predictions=pd.DataFrame(said))


MAKERS = {
    "classification": classification,
    "response": response,
    "segmentation": segmentation,
    "detection": detection,
    "slides": slides,
}


def make(task: str, rng: np.random.Generator, world: World | None = None) -> Tables:
    """Make the synthetic hospitals of one task.

    Args:
        task: One of `MAKERS`: 'classification', 'response', 'segmentation', 'detection' or 'slides'.
        rng: The generator of all draws; the same state gives the same tables.
        world: The faults to plant, and the number of patients; None takes the defaults of `World`.

    Returns:
        The cohort and its predictions.

    Raises:
        KeyError: The task is unknown.

    Example:
        >>> made = make("response", np.random.default_rng(0), World(patients_per_site=20))
        >>> made.cases.groupby("site").size().to_dict()
        {'Alder': 20, 'Birch': 20, 'Cedar': 20}
    """
    return MAKERS[task](rng, world or World())
