"""An expert's mask without a voxel: kept by the challenge's rule, and told."""

from __future__ import annotations

import json

import nibabel
import numpy as np
import pandas as pd

from elsewhere.commands.plan import plan_study
from elsewhere.commands.run import run_study
from worlds import fake_recipes  # noqa: F401 - registers 'threshold'
from worlds.mri_study import make_study, make_world


def test_an_empty_mask_of_an_expert_is_told_before_and_after(tmp_path):
    """Every model has Dice 0 there: said once with the count, in plan, scores and report, and nobody named."""
    world = make_world(tmp_path / "world")
    for name in ("duke_000", "ispy2_003"):
        path = world / "segmentations" / "expert" / f"{name}.nii.gz"
        held = nibabel.load(path)
        nibabel.save(nibabel.Nifti1Image(np.zeros(held.shape, dtype=np.uint8), held.affine), path)
    study = make_study(tmp_path)
    planned = plan_study(study, data=world, out=tmp_path / "out")
    words = (
        "2 of 17 truth masks are empty: there protocol 'mamamia-paper' scores every prediction with Dice 0"
    )
    told = [line for line in planned.lines() if "truth masks are empty" in line]
    assert len(told) == 1 and words in told[0] and told[0].endswith("150 mm (DUKE 1, ISPY2 1)")
    assert plan_study(study, data=world, out=tmp_path / "out").plan.audit() == planned.plan.audit()
    run_study(study, data=world, out=tmp_path / "out", device="cpu")
    scored = pd.read_parquet(tmp_path / "out" / "scores_segmentation.parquet")
    assert (scored.loc[scored["n_truth_voxels"] == 0, "dice"] == 0).all()
    report = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "truth masks are empty" in report
    warnings = json.loads((tmp_path / "out" / "report" / "summary.json").read_text())["warnings"]
    assert sum("truth masks are empty" in warning for warning in warnings) == 1
    assert "duke_000" not in report.casefold() and "ispy2_003" not in report.casefold()
