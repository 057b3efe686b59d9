"""A volume under two ids: found by its voxels, kept on one side, and told."""

from __future__ import annotations

import gzip
from pathlib import Path

import nibabel
import numpy as np
import pytest

from elsewhere.commands.plan import plan_study
from elsewhere.inputs.mri.files import FileVolumes, VolumeFiles, value_counts
from worlds import fake_recipes  # noqa: F401 - registers 'threshold'
from worlds.mri_study import STUDY, make_study, make_world

ONE, OTHER = "DUKE_002", "ISPY2_004"


@pytest.fixture
def doubled(tmp_path) -> Path:
    """A patient of DUKE stands in ISPY2 too: packed anew, in another type, with its axes turned."""
    world = make_world(tmp_path / "world")
    for phase in range(3):
        held = nibabel.load(world / "images" / ONE / f"{ONE.lower()}_{phase:04d}.nii.gz")
        turned = nibabel.Nifti1Image(
            np.asarray(held.dataobj).astype(np.float32)[::-1], held.affine @ np.diag([-1.0, 1, 1, 1])
        )
        target = world / "images" / OTHER / f"{OTHER.lower()}_{phase:04d}.nii.gz"
        target.write_bytes(gzip.compress(turned.to_bytes(), 1))
    expert = nibabel.load(world / "segmentations" / "expert" / f"{ONE.lower()}.nii.gz")
    turned = nibabel.Nifti1Image(np.asarray(expert.dataobj)[::-1], expert.affine @ np.diag([-1.0, 1, 1, 1]))
    nibabel.save(turned, world / "segmentations" / "expert" / f"{OTHER.lower()}.nii.gz")
    return world


def plan(folder: Path, world: Path, text: str = STUDY):
    return plan_study(make_study(folder, text), data=world, out=folder / "out")


def test_it_is_found_and_neither_side_trains_where_the_other_is_tested(doubled, tmp_path):
    made = plan(tmp_path, doubled)
    told = made.to_dict()
    counts = {"pairs": 1, "volumes": 2, "pairs_across_patients": 1, "pairs_across_datasets": 1}
    assert told["duplicates"]["counts"] == counts | {"pairs_across_labels": 0}
    assert told["duplicates"]["pairs"] == [[f"DUKE/{ONE}", f"ISPY2/{OTHER}"]]
    assert any("1 pairs of patients share a volume" in word for word in told["warnings"])
    frame = made.plan.table.frame.set_index("case")
    assert frame.loc[f"DUKE/{ONE}", "group"] == frame.loc[f"ISPY2/{OTHER}", "group"]
    assert frame["group"].nunique() == len(frame) - 1
    for partition in made.plan.partitions.values():
        tested, learnt = set(partition.test), {*partition.train, *partition.validation}
        for one, other in ((f"DUKE/{ONE}", f"ISPY2/{OTHER}"), (f"ISPY2/{OTHER}", f"DUKE/{ONE}")):
            assert not (one in tested and other in learnt)


def test_a_study_may_say_that_nobody_looks(doubled, tmp_path):
    text = STUDY.replace("[scenarios]", "[scenarios]\nkeep_duplicates_together = false")
    made = plan(tmp_path, doubled, text)
    assert made.to_dict()["duplicates"] == {
        "kept_together": False,
        "why": "not searched for: keep_duplicates_together = false",
    }
    assert made.plan.table.frame["group"].nunique() == 18


def test_a_world_without_any_has_the_keys_that_it_had(tmp_path):
    world = make_world(tmp_path / "world")
    told = plan(tmp_path, world)
    assert told.to_dict()["duplicates"]["counts"]["pairs"] == 0
    text = STUDY.replace("[scenarios]", "[scenarios]\nkeep_duplicates_together = false")
    assert plan(tmp_path, world, text).plan.units.keys() == told.plan.units.keys()


def test_the_digest_sees_one_voxel(tmp_path):
    rng = np.random.default_rng(2)
    values = rng.normal(100, 9, (7, 6, 5)).astype(np.float32)

    def digest(array: np.ndarray, name: str) -> str:
        for phase in range(2):
            nibabel.save(
                nibabel.Nifti1Image(array, np.diag([-1.0, 1, 1, 1])), tmp_path / f"{name}{phase}.nii"
            )
        paths = tuple(tmp_path / f"{name}{phase}.nii" for phase in range(2))
        return FileVolumes({"c": VolumeFiles(phases=paths)}).voxel_digest("c")

    other = values.copy()
    other[3, 3, 3] += 1
    assert digest(values, "a") == digest(values.copy(), "b") != digest(other, "c")


def test_values_are_counted_alike_with_and_without_sorting():
    rng = np.random.default_rng(0)
    whole = rng.integers(-40, 900, 4000).astype(np.float32)
    for values in (whole, whole + np.float32(0.5), whole * 1e6):
        told, counts = value_counts(values)
        expected = np.unique(values, return_counts=True)
        assert np.array_equal(told, expected[0]) and np.array_equal(counts, expected[1])
