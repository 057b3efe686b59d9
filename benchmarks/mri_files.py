"""Real-size pairs of masks on disk for the scoring benchmark: written as nibabel writes them, uint8, .nii.gz.

516 patients of the three test centres of MAMA-MIA with the median image sizes of the study's table 1 (GUM 352 x 352 x
160, KAU 528 x 528 x 187, HCB 512 x 512 x 82) in their proportions, 34 GB of voxels in all. Tumours are smooth blobs of 0.3 to
100 ml (median 6 ml); predictions are moved, swollen or shrunk by some mm, one in twenty has a second, false
lesion far away, one in twenty-five is empty.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

CENTRES = {
    "GUM": ((352, 352, 160), (1.0, 1.0, 1.2), 30),
    "KAU": ((528, 528, 187), (0.65, 0.65, 0.9), 232),
    "HCB": ((512, 512, 82), (0.7, 0.7, 2.0), 312),
}
Mask = npt.NDArray[np.uint8]


def _blob(mask: Mask, centre: npt.NDArray, radii_mm: npt.NDArray, spacing: tuple, waves: npt.NDArray) -> None:
    """Set a bumpy ellipsoid; only its own box is computed."""
    radii = radii_mm / np.asarray(spacing)
    low = np.maximum(0, np.floor(centre - 1.3 * radii)).astype(int)
    high = np.minimum(mask.shape, np.ceil(centre + 1.3 * radii) + 1).astype(int)
    box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    x, y, z = ((a - c) / r for a, c, r in zip(np.ogrid[box], centre, radii, strict=True))
    field = (
        x**2
        + y**2
        + z**2
        + 0.12 * (np.sin(4 * x + waves[0]) + np.sin(5 * y + waves[1]) * np.cos(3 * z + waves[2]))
    )
    mask[box] |= (field <= 1.0).astype(np.uint8)


def make_pair(number: int, centre: str) -> tuple[Mask, Mask]:
    rng = np.random.default_rng([516, number])
    shape, spacing, _ = CENTRES[centre]
    truth, prediction = (np.zeros(shape, dtype=np.uint8, order="F") for _ in range(2))
    volume_ml = float(np.clip(np.exp(rng.normal(np.log(6.0), 1.2)), 0.3, 100.0))
    radius = (3000.0 * volume_ml / (4.0 * np.pi)) ** (1 / 3)
    radii = radius * np.exp(rng.normal(0.0, 0.2, 3))
    middle = np.array(shape) * rng.uniform([0.2, 0.3, 0.3], [0.8, 0.6, 0.7])
    waves = rng.uniform(0.0, 2.0 * np.pi, 3)
    _blob(truth, middle, radii, spacing, waves)
    if rng.random() >= 0.04:
        moved = middle + rng.normal(0.0, 1.5, 3) / np.asarray(spacing)
        _blob(
            prediction,
            moved,
            radii * np.exp(rng.normal(0.0, 0.08, 3)),
            spacing,
            waves + rng.normal(0.0, 0.5, 3),
        )
        if rng.random() < 0.05:
            far = np.array(shape) * rng.uniform([0.2, 0.3, 0.3], [0.8, 0.6, 0.7])
            _blob(prediction, far, np.full(3, 4.0), spacing, waves)
    return truth, prediction


def write_pairs(folder: Path, pairs: int = 516) -> tuple[pd.DataFrame, Path]:
    """`folder/truth`, `folder/predicted`, and the cohort's table; what is there already stays."""
    import nibabel

    rng = np.random.default_rng(574)
    counts = np.array([n for *_, n in CENTRES.values()], dtype=float)
    centres = np.repeat(list(CENTRES), np.round(counts / counts.sum() * 516).astype(int))[:516]
    centres = rng.permutation(centres)[:pairs]
    for name in ("truth", "predicted"):
        (folder / name).mkdir(parents=True, exist_ok=True)

    def write(number: int) -> None:
        files = [folder / part / f"P{number:04d}.nii.gz" for part in ("truth", "predicted")]
        if all(file.exists() for file in files):
            return
        affine = np.diag([*CENTRES[str(centres[number])][1], 1.0])
        for mask, file in zip(make_pair(number, str(centres[number])), files, strict=True):
            nibabel.save(nibabel.Nifti1Image(mask, affine), file)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(len(centres))))
    n = len(centres)
    age = rng.normal(56, 12, n).clip(24, 90).round()
    table = pd.DataFrame(
        {
            "case_id": [f"P{i:04d}" for i in range(n)],
            "patient_id": [f"P{i:04d}" for i in range(n)],
            "dataset": "bench",
            "site": centres,
            "mask": [f"truth/P{i:04d}.nii.gz" for i in range(n)],
            "age": age,
            "menopausal_status": np.where(age < 51, "pre", "post"),
            "breast_density": rng.choice(list("ABCD"), n, p=[0.1, 0.35, 0.4, 0.15]),
        }
    )
    table.to_csv(folder / "cohort.csv", index=False)
    return table, folder / "predicted"
