"""Contours of the hardest cases: drawn on request alone, and named by hashes."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.cohort import Cohort
from elsewhere.predictions.masks import mask_file_name
from elsewhere.report.study.contours import contours, picture
from elsewhere.report.study.page import render_study_report, write_study_report
from worlds.recipe_results import results_of, run_row, segmentation_scores, study_of

METHODS = {"residual-unet": (0.8, 0), "subtraction": (0.6, 3)}


@pytest.fixture
def imaged(tmp_path):
    """Six patients with volumes, and what two methods predicted."""
    shape = (40, 36, 8)
    grid = np.indices(shape)
    rng = np.random.default_rng(5)
    rows = []
    affine = np.diag([-0.8, 0.8, 2.0, 1.0])
    for k in range(6):
        name = f"P{k:03d}"
        centre = np.array([12 + k, 15 + k, 4])
        truth = ((grid - centre[:, None, None, None]) ** 2 * np.array([1, 1, 4])[:, None, None, None]).sum(
            0
        ) < 20
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        for phase in range(3):
            volume = rng.normal(100, 5, shape) + 80.0 * phase * truth
            nib.save(
                nib.Nifti1Image(volume.astype(np.float32), affine), folder / f"{name}_{phase:04d}.nii.gz"
            )
        (tmp_path / "masks").mkdir(exist_ok=True)
        nib.save(nib.Nifti1Image(truth.astype(np.uint8), affine), tmp_path / "masks" / f"{name}.nii.gz")
        for method, (_, shift) in METHODS.items():
            out = tmp_path / "predictions" / "segmentation" / method / "A" / "seed-1"
            out.mkdir(parents=True, exist_ok=True)
            moved = np.roll(truth, shift, axis=0)
            nib.save(nib.Nifti1Image(moved.astype(np.uint8), affine), out / mask_file_name(name))
        rows.append(
            {"case_id": name, "patient_id": name, "dataset": "A", "site": "A", "image": f"images/{name}"}
            | {"mask": f"masks/{name}.nii.gz", "pcr": k % 2, "age": 40 + 5 * k, "clip": int(k == 2)}
        )
    cohort = Cohort.from_frame(pd.DataFrame(rows), root=tmp_path)
    scores = {
        ("segmentation", method, "A", 1): segmentation_scores(cohort, rng, dice=dice)
        for method, (dice, _) in METHODS.items()
    }
    runs = [
        run_row("segmentation", method, "A", predictions=f"segmentation/{method}/A/seed-1")
        for method in METHODS
    ]
    return results_of(
        study_of(METHODS, ()), cohort, runs, scores, predictions_folder=tmp_path / "predictions"
    )


def test_contours_only_on_request(imaged, tmp_path):
    summary = analyse(imaged, resamples=10)
    assert "base64" not in render_study_report(summary)
    drawn = contours(summary, imaged)
    page = write_study_report(summary, tmp_path / "out", pictures=drawn).read_text()
    assert page.count("data:image/png;base64") == 6 and "Contours of the methods" in page
    assert len(page.encode()) < 2_000_000
    captions = [caption for caption, _ in drawn.contours["segmentation"]]
    assert any(", clip: mean Dice" in caption for caption in captions)
    assert not any("P00" in caption for caption in captions)


def test_a_case_without_a_volume_says_so(imaged):
    for file in (imaged.cohort.root / "images" / "P001").glob("*.nii.gz"):
        file.unlink()
    summary = analyse(imaged, resamples=0)
    elements = contours(summary, imaged).elements()
    missing = [element for element in elements.values() if "No picture" in element]
    assert len(elements) == 6 and len(missing) == 1 and "P001" not in missing[0]


def test_a_picture_holds_the_slice_and_the_contours():
    truth = np.zeros((30, 20), dtype=bool)
    truth[10:16, 5:9] = True
    image = np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32)
    plain = picture(image, truth, {})
    drawn = picture(image, truth, {"a": np.roll(truth, 4, axis=0), "b": np.zeros_like(truth)})
    assert plain.startswith(b"\x89PNG") and drawn.startswith(b"\x89PNG") and plain != drawn
