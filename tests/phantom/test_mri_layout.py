"""MRI phantoms on disk: the published layout, read by its reader, and the truth beside it."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import openpyxl
import pandas as pd
import pytest

from elsewhere.cohort import read_cohort
from elsewhere.errors import UserError
from elsewhere.files import MARKER
from elsewhere.inputs.mri.layout import box_to_published
from elsewhere.phantom.mri import case_rng, make_case
from elsewhere.phantom.mri_layout import MARK, TABLE, make_phantom_world, world_from, write_world
from elsewhere.phantom.mri_patient import COLUMNS
from elsewhere.phantom.mri_sites import case_specs, hospitals
from elsewhere.study.phantoms import phantom_cohort

nibabel = pytest.importorskip("nibabel")
WORLD = hospitals(3, patients=7, size=32, missing=0.5, seed=4)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_world(WORLD, tmp_path_factory.mktemp("mri") / "world")


def digests(folder):
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.suffix != ".xlsx" and p.name != MARKER
    }


def test_the_reader_reads_it(written):
    cohort = read_cohort("mama-mia", written)
    cases = cohort.cases
    assert len(cases) == 7 and list(cases["dataset"].unique()) == ["NORTH", "SOUTH", "WEST"]
    assert (cases["modality"] == "MRI").all() and cases["image"].notna().all() and cases["mask"].notna().all()
    truth = pd.read_csv(written / "truth.csv").set_index("patient_id")
    for row in cases.itertuples():
        true = truth.loc[row.patient_id]
        for name in ("pcr", "age", "menopausal_status", "breast_density", "subtype"):
            value = getattr(row, name)
            assert pd.isna(value) or value == true[name]
        assert row.phases_found == len(list((written / row.image).iterdir()))
    holes = cases[["menopausal_status", "breast_density"]].isna().mean().mean()
    assert 0.1 < holes < 0.9


def test_files_hold_what_was_made(written):
    table = pd.read_excel(written / TABLE, sheet_name="dataset_info")
    assert tuple(table.columns) == COLUMNS
    for spec in case_specs(WORLD)[::3]:
        made = make_case(spec, case_rng(spec, spec.hospital.seed))
        name = made.patient_id
        files = sorted((written / "images" / name).iterdir())
        assert [f.name for f in files] == [f"{name}_{at:04d}.nii.gz" for at in range(len(made.phases))]
        for file, phase in zip(files, made.phases, strict=True):
            image = nibabel.load(file)
            assert image.get_data_dtype() == np.int16 and np.array_equal(np.asarray(image.dataobj), phase)
            assert np.allclose(image.affine, made.affine, atol=1e-4)
            assert np.allclose(image.header.get_zooms(), made.spacing_mm, atol=1e-5)
        mask = nibabel.load(written / "segmentations" / "expert" / f"{name}.nii.gz")
        assert mask.get_data_dtype() == np.uint8 and np.array_equal(np.asarray(mask.dataobj), made.mask)
        told = json.loads((written / "patient_info_files" / f"{name.lower()}.json").read_text())
        assert told["primary_lesion"]["breast_coordinates"] == box_to_published(made.breast_box)
        row = table[table["patient_id"] == name].iloc[0]
        assert [row["image_columns"], row["image_rows"], row["num_slices"]] == list(made.mask.shape)
        assert row["num_phases"] == len(made.phases)


def test_the_sheet_is_named_as_published(written):
    assert openpyxl.load_workbook(written / TABLE, read_only=True).sheetnames == ["dataset_info", "legend"]


def test_processes_and_repetition_change_no_byte(written, tmp_path):
    assert digests(write_world(WORLD, tmp_path / "two", workers=2)) == digests(written)


def test_a_world_is_made_once_and_only_over_its_own(tmp_path):
    spec = {"layout": "mama-mia", "sites": ["SOUTH"], "patients": 1, "size": 32}
    folder = make_phantom_world(spec, tmp_path / "w")
    before = (folder / MARK).stat().st_mtime_ns
    assert (make_phantom_world(spec, tmp_path / "w") / MARK).stat().st_mtime_ns == before
    make_phantom_world({**spec, "seed": 8}, tmp_path / "w")
    assert (folder / MARK).stat().st_mtime_ns != before
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("keep")
    with pytest.raises(UserError):
        make_phantom_world(spec, other)
    assert (other / "thesis.txt").read_text() == "keep"


def test_nothing_is_left_of_a_world_that_failed(tmp_path):
    def stop(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_world(WORLD, tmp_path / "w", progress=stop)
    assert not list(tmp_path.iterdir())


def test_a_study_file_makes_hospitals_and_worlds(tmp_path):
    one = {
        "layout": "mama-mia",
        "name": "WEST",
        "patients": 2,
        "size": 32,
        "gap": {"variable": "age", "group": "<=40"},
    }
    cohort, name = phantom_cohort(one, tmp_path, where="study")
    assert name == "WEST" and set(cohort.cases["dataset"]) == {"WEST"}
    many = {"layout": "mama-mia", "sites": 2, "patients": 2, "size": 32}
    cohort, name = phantom_cohort(many, tmp_path, where="study")
    assert name == "" and list(cohort.cases["dataset"]) == ["NORTH", "SOUTH"]
    again, _ = phantom_cohort(many, tmp_path, where="study")
    assert again.cases.equals(cohort.cases) and again.root == cohort.root


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"sites": 2, "name": "A"}, "name"),
        ({"sites": "two"}, "sites"),
        ({"sites": 2, "patiens": 3}, "patients"),
        ({"sites": 2, "patients": "many"}, "patients"),
        ({"gap": {"variable": "age", "group": "old"}}, "group"),
    ],
)
def test_mistakes_in_a_study_file_are_named(words, told):
    with pytest.raises(UserError) as error:
        world_from({"layout": "mama-mia", **words}, where="study.toml, cohort 1")
    assert told in str(error.value)
