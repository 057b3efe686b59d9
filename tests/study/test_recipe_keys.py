"""What names a recipe's training: the masks it learns from and the files it is given, not the truth of its test."""

from __future__ import annotations

import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest

from elsewhere.commands.plan import plan_study
from elsewhere.errors import UserError
from elsewhere.study.plan import Plan
from worlds.mri_study import make_study, make_world

STUDY = """
[study]
name = "keys"
[[cohort]]
reader = "mama-mia"
source = "{data}"
[scenarios]
kinds = ["leave-one-dataset-out"]
seeds = [1]
[tasks.response]
protocol = "mamamia-paper"
[recipes.asked]
"""


@pytest.fixture
def world(tmp_path) -> Path:
    return make_world(tmp_path / "world", patients=4)


def planned(tmp_path: Path, world: Path, recipe: str) -> Plan:
    return plan_study(make_study(tmp_path, STUDY + recipe), data=world, out=tmp_path / "out").plan


def keys(tmp_path: Path, world: Path, recipe: str) -> dict[str, str]:
    runs = planned(tmp_path, world, recipe).runs
    return dict(zip(runs["scenario"], runs["training"], strict=True))


def prints(plan: Plan) -> dict[str, int]:
    """What a stored prediction of each case is held against (`Outcome.covers`)."""
    cases = plan.table.cases
    (first, *_) = plan.units.values()
    return dict(zip(cases.case, first.fingerprints(cases).tolist(), strict=True))


def test_one_voxel_of_a_tested_mask_redoes_no_training(world, tmp_path):
    recipe = 'recipe = "radiomics"'
    before, seen = keys(tmp_path, world, recipe), prints(planned(tmp_path, world, recipe))
    file = world / "segmentations" / "expert" / "duke_000.nii.gz"
    mask = nibabel.load(file)
    changed = np.asarray(mask.dataobj).copy()
    changed[0, 0, 0] = 1
    nibabel.save(nibabel.Nifti1Image(changed, mask.affine), file)
    after = keys(tmp_path, world, recipe)
    assert prints(planned(tmp_path, world, recipe)) == seen
    assert after["rest>DUKE"] == before["rest>DUKE"]
    assert after["rest>ISPY1"] != before["rest>ISPY1"] and after["rest>ISPY2"] != before["rest>ISPY2"]


def test_the_bytes_of_weights_are_in_the_key(world, tmp_path):
    weights = tmp_path / "weights.pth"
    recipe = f'recipe = "slice-cnn"\nsettings = {{ weights = "{weights}" }}'
    found = []
    for content in (b"one", b"two", b"one"):
        weights.write_bytes(content)
        found.append(keys(tmp_path, world, recipe)["rest>DUKE"])
    assert found[0] == found[2] != found[1]
    weights.unlink()
    with pytest.raises(UserError, match="there is no such file"):
        keys(tmp_path, world, recipe)


@pytest.mark.parametrize("recipe", ["simclr", "video"])
def test_the_bytes_of_predicted_masks_are_in_the_key_and_the_experts_are_refused(world, tmp_path, recipe):
    def asked(folder: Path) -> str:
        section = f'recipe = "{recipe}"\nsettings = {{ masks = "{folder}" }}'
        return keys(tmp_path, world, section)["rest>DUKE"]

    folder = tmp_path / "predicted"
    folder.mkdir()
    found = []
    for value in (0, 1):
        np.save(folder / "DUKE_000.npy", np.full((2, 2, 2), value))
        found.append(asked(folder))
    assert found[0] != found[1]
    (folder / "DUKE_000.npy").rename(folder / "DUKE_001.npy")
    assert asked(folder) not in found
    expert = world / "segmentations" / "expert"
    (world / "segmentations" / "automatic").mkdir()
    link = tmp_path / "link"
    link.symlink_to(expert)
    for wrong in (expert, world / "segmentations" / "automatic", world, link):
        with pytest.raises(UserError, match="lies with the cohort's segmentations"):
            asked(wrong)
    with pytest.raises(UserError, match="holds copies of the experts' masks"):
        asked(Path(shutil.copytree(expert, tmp_path / "copy")))
    with pytest.raises(UserError, match="there is no such folder"):
        asked(tmp_path / "nowhere")
