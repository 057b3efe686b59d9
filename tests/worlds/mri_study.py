"""A little MAMA-MIA: three collections of tiny volumes as files, and a study of fake recipes over it."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pandas as pd

SHAPE = (12, 10, 6)
STUDY = """
[study]
name = "tiny"
[[cohort]]
reader = "mama-mia"
source = "{data}"
[scenarios]
kinds = ["leave-one-dataset-out"]
seeds = [1]
[tasks.segmentation]
protocol = "mamamia-paper"
[tasks.response]
protocol = "mamamia-paper"
[recipes.threshold]
baseline = true
[recipes.blind]
recipe = "threshold"
tasks = ["segmentation"]
settings = { wash_in = 1000.0 }
[analyses]
resamples = 50
"""


def make_world(folder: Path, *, patients: int = 6, seed: int = 4) -> Path:
    """DUKE, ISPY1, ISPY2: the tumour takes up contrast; one patient without an outcome, one without a mask."""
    rng = np.random.default_rng(seed)
    rows = []
    for dataset in ("DUKE", "ISPY1", "ISPY2"):
        for at in range(patients):
            name = f"{dataset}_{at:03d}"
            mask = np.zeros(SHAPE, dtype=np.uint8)
            x, y = rng.integers(2, 6, 2)
            mask[x : x + 2 + at % 3, y : y + 3, 2:4] = 1
            before = rng.integers(90, 110, SHAPE).astype(np.int16)
            affine = np.diag([-1.0, 1.0, 1.5, 1.0])
            phases = folder / "images" / name
            phases.mkdir(parents=True, exist_ok=True)
            for phase, gain in enumerate((0, 80, 60)):
                values = before + (gain * mask).astype(np.int16)
                nibabel.save(
                    nibabel.Nifti1Image(values, affine), phases / f"{name.lower()}_{phase:04d}.nii.gz"
                )
            if (dataset, at) != ("ISPY1", 1):
                expert = folder / "segmentations" / "expert"
                expert.mkdir(parents=True, exist_ok=True)
                nibabel.save(nibabel.Nifti1Image(mask, affine), expert / f"{name.lower()}.nii.gz")
            rows.append(
                {
                    "patient_id": name,
                    "dataset": dataset,
                    "site": f"{dataset} {'north' if at % 2 else 'south'}",
                    "pcr": "" if (dataset, at) == ("ISPY2", 2) else at % 2,
                    "age": 35 + 7 * at,
                    "menopause": ("pre", "post")[at // 3 % 2],
                    "breast_density": "abcd"[at % 4],
                    "tumor_subtype": ("luminal", "triple_negative")[at % 2],
                }
            )
    pd.DataFrame(rows).to_csv(folder / "clinical_and_imaging_info.csv", index=False)
    return folder


def make_study(folder: Path, text: str = STUDY) -> Path:
    file = folder / "tiny.toml"
    file.write_text(text)
    return file
