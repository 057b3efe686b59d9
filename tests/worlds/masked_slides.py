"""Fourteen small slides of fourteen patients with truth masks and predictions of known quality, as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from worlds.slide_files import tissue_picture

SIZE, MPP = (600, 400), 4.0
IDS = [f"secret-{k:02d}" for k in range(14)]
"""0 to 7 hold a micrometastasis of 0.48 mm; the others are negative. Slide 0 is missed, slide 1 found by its left half,
slide 8 has a false positive, and all else is right."""


def disc(x: float, y: float, radius: float) -> np.ndarray:
    yy, xx = np.mgrid[: SIZE[1], : SIZE[0]]
    return np.hypot(xx + 0.5 - x, yy + 0.5 - y) <= radius


def write_slides(folder: Path, *, slides: bool = True) -> tuple[Path, Path]:
    """Write slides, truth masks, predictions and the cohort.

    Args:
        folder: Where they go.
        slides: Whether the cohort names the slides' files.

    Returns:
        The cohort and the folder of predictions.
    """
    for name in ("slides", "truth", "said"):
        (folder / name).mkdir()
    rows = []
    for k, case in enumerate(IDS):
        truth = disc(150 + 30 * k, 200, 60) if k < 8 else np.zeros(SIZE[::-1], dtype=bool)
        said = truth.copy()
        if k == 0:
            said[:] = False
        if k == 1:
            said[:, 180:] = False
        if k == 8:
            said = disc(450, 100, 20)
        picture = tissue_picture(*SIZE, seed=k)
        Image.fromarray(picture).save(folder / "slides" / f"{case}.png")
        for name, mask in (("truth", truth), ("said", said)):
            Image.fromarray(mask.astype(np.uint8) * 255).save(folder / name / f"{case}.png")
        rows.append(
            {
                "case_id": case,
                "patient_id": f"patient-{k:02d}",
                "stage": "micro" if k < 8 else "negative",
                "mask": f"truth/{case}.png" if k < 8 else "",
                "slide": f"slides/{case}.png",
                "microns_per_pixel": MPP,
                "mask_downsample": 1,
                "width_px": SIZE[0],
                "height_px": SIZE[1],
            }
        )
    frame = pd.DataFrame(rows)
    if not slides:
        frame = frame.drop(columns="slide")
    frame.to_csv(folder / "cohort.csv", index=False)
    return folder / "cohort.csv", folder / "said"
