"""Trained there, tested here: kept models of a study, as a file, at another hospital."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest

import elsewhere
from elsewhere.cli import main
from elsewhere.cohort import read_cohort
from elsewhere.commands.plan import plan_study
from elsewhere.commands.predict import list_models, predict
from elsewhere.commands.run import run_study
from elsewhere.commands.score import score
from elsewhere.engine.store import Store
from elsewhere.errors import UserError
from elsewhere.study.results import RunKey
from worlds import fake_recipes  # noqa: F401 - registers 'threshold' and those that keep
from worlds.mri_study import STUDY, make_study, make_world

KEEPING = (
    STUDY.replace('name = "tiny"', 'name = "tiny"\nkeep_weights = ["rest>DUKE"]')
    + """
[recipes.keeper]
recipe = "kept-threshold"
[recipes.clinical]
settings = { columns = ["age", "menopausal_status"] }
"""
)
MODEL = "rest>DUKE|keeper"


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    return make_world(tmp_path_factory.mktemp("mama-mia"))


@pytest.fixture(scope="module")
def ran(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return run_study(make_study(folder, KEEPING), data=world, out=folder / "out", device="cpu", report=False)


@pytest.fixture(scope="module")
def results(ran) -> Path:
    return ran.run.paths.out


@pytest.fixture(scope="module")
def model_file(results, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("models") / "keeper.zip"
    list_models(results, model=MODEL, export=file)
    return file


@pytest.fixture
def hospital(tmp_path) -> Path:
    """Another hospital, of patients that nobody trained on, in the published layout."""
    folder = make_world(tmp_path / "hospital", patients=5, seed=9)
    table = pd.read_csv(folder / "clinical_and_imaging_info.csv")
    table["dataset"] = table["dataset"].map(lambda name: f"NEW{name}")
    table["patient_id"] = table["patient_id"].map(lambda name: f"NEW{name}")
    table.to_csv(folder / "clinical_and_imaging_info.csv", index=False)
    for kind in ("images", "segmentations/expert"):
        for path in sorted((folder / kind).iterdir()):
            for file in path.iterdir() if path.is_dir() else ():
                file.rename(file.with_name(f"new{file.name}"))
            prefix = "NEW" if path.is_dir() else "new"
            path.rename(path.with_name(f"{prefix}{path.name}"))
    return folder


def cohort_of(folder: Path, out: Path) -> Path:
    read_cohort("mama-mia", folder).save(out)
    return out


def test_the_plan_says_which_recipe_cannot_be_kept_and_keys_do_not_move(world, tmp_path):
    kept = plan_study(make_study(tmp_path, KEEPING), data=world, out=tmp_path / "a")
    plain = KEEPING.replace('keep_weights = ["rest>DUKE"]', "")
    bare = plan_study(make_study(tmp_path, plain), data=world, out=tmp_path / "b")
    assert kept.plan.units.keys() == bare.plan.units.keys()
    warnings = kept.to_dict()["warnings"]
    assert any("weights of threshold and blind cannot be kept" in word for word in warnings)
    assert not any("cannot be kept" in word for word in bare.to_dict()["warnings"])
    asked = {unit.name for unit in kept.plan.units.values() if unit.keep_weights}
    assert asked == {
        "rest>DUKE | keeper | segmentation+response | seed 1",
        "rest>DUKE | clinical | response | seed 1",
    }


def test_only_what_was_asked_for_is_kept_and_nothing_is_trained_again(ran, results, world):
    store = Store(results / "store")
    keys = sorted(store.keys())
    kept = {store.unit(key).name for key in keys if store.load(key).weights is not None}
    assert kept == {
        "rest>DUKE | keeper | segmentation+response | seed 1",
        "rest>DUKE | clinical | response | seed 1",
    }
    again = run_study(ran.run.plan.file.path, data=world, out=results, device="cpu", report=False, changes=())
    assert again.run.engine.done == ()


def test_a_model_file_names_nobody_and_holds_no_prediction(model_file):
    with zipfile.ZipFile(model_file) as archive:
        whole = b"".join(archive.read(name) for name in archive.namelist())
        (outputs,) = [name for name in archive.namelist() if name.endswith("outputs.npz")]
        with archive.open(outputs) as held:
            arrays = np.load(held, allow_pickle=False)
            assert len(arrays["case"]) == 0 and len(arrays["segmentation/mask_end"]) == 0
        done = json.loads(archive.read(outputs.replace("outputs.npz", "done.json")))
        assert any(name.endswith("weights.npz") for name in archive.namelist())
    for name in (b"ISPY1_00", b"ISPY2_00", b"DUKE_00"):
        assert name.lower() not in whole.lower()
    told = done["trained_on"]
    assert told["n_patients"] == 12 and told["datasets"] == {"ISPY1": 6, "ISPY2": 6}
    assert all(len(name) == 32 for name in (*told["patients"], *told["ids"]))
    assert set(told["cohorts"]) == {"ISPY1", "ISPY2"} and told["study"] == "tiny"


def test_predictions_at_another_hospital_are_those_of_the_model_and_can_be_scored(
    model_file, hospital, tmp_path
):
    cohort = cohort_of(hospital, tmp_path / "cohort")
    done = predict(model_file, cohort, out=tmp_path / "out", device="cpu")
    told = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert told["tested"]["predicted"] == told["tested"]["cases"] == 15
    assert told["model"]["recipe"] == "kept-threshold" and told["model"]["trained_on"]["n_patients"] == 12
    assert told["model"]["unit"] in done.to_dict()["model"]["unit"] and told["told_beside_images"] == []
    assert told["tested"]["cohort_hash"] == read_cohort("mama-mia", hospital).hash
    assert "shown a truth: False; trains on 0" in told["notes"][0] and "NEW" not in told["notes"][0]
    assert set(told["sha256"]) >= {"probabilities.csv", "costs.csv", "masks/NEWDUKE_000.nii.gz"}
    truth = nibabel.load(hospital / "segmentations/expert/newduke_000.nii.gz")
    mask = nibabel.load(tmp_path / "out" / "masks" / "NEWDUKE_000.nii.gz")
    assert np.array_equal(mask.affine, truth.affine)
    assert np.array_equal(np.asarray(mask.dataobj), np.asarray(truth.dataobj))
    where = {"dataset": "NEWDUKE"}
    scored = score("segmentation", cohort, tmp_path / "out" / "masks", where=where, resamples=0)
    assert scored.metrics["dice"]["value"] == 1.0
    response = score("response", cohort, tmp_path / "out" / "probabilities.csv", where=where, resamples=0)
    assert response.summary["counts"]["missing"] == 0


def test_a_kept_model_says_of_its_own_test_part_what_the_study_said(ran, results, world, tmp_path):
    cohort = cohort_of(world, tmp_path / "cohort")
    where = {"dataset": "DUKE"}
    predict(results, cohort, out=tmp_path / "out", model="rest>DUKE|clinical", where=where, device="cpu")
    ours = pd.read_csv(tmp_path / "out" / "probabilities.csv")
    theirs = pd.read_csv(
        ran.run.results.folder(RunKey("response", "clinical", "rest>DUKE", 1)) / "probabilities.csv"
    )
    assert ours.equals(theirs)
    told = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert told["told_beside_images"] == ["clinical columns"]


def test_a_patient_who_trained_is_refused_by_id(results, world, tmp_path):
    cohort = cohort_of(world, tmp_path / "cohort")
    with pytest.raises(
        UserError,
        match=r"ISPY1_000' cannot be tested: its patient is in this model's training data .12 of 18 cases",
    ):
        predict(results, cohort, out=tmp_path / "out", model=MODEL, device="cpu")
    assert not (tmp_path / "out").exists()


def test_a_volume_that_trained_is_refused_under_another_name_and_header(
    model_file, hospital, world, tmp_path
):
    new = hospital / "images" / "NEWDUKE_001"
    old = world / "images" / "ISPY2_003"
    for phase in range(3):
        held = nibabel.load(old / f"ispy2_003_{phase:04d}.nii.gz")
        moved = nibabel.Nifti1Image(np.asarray(held.dataobj).astype(np.float32), held.affine + 0.0)
        moved.header["descrip"] = b"another hospital's"
        (new / f"newduke_001_{phase:04d}.nii.gz").write_bytes(gzip.compress(moved.to_bytes(), 1))
    cohort = cohort_of(hospital, tmp_path / "cohort")
    with pytest.raises(
        UserError, match=r"NEWDUKE_001' cannot be tested: its picture or volume, under another"
    ):
        predict(model_file, cohort, out=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_a_woman_whom_one_set_names_in_the_other_is_refused(model_file, hospital, tmp_path):
    cohort = read_cohort("mama-mia", hospital)
    told = ["ISPY2_001" if name == "NEWDUKE_002" else None for name in cohort.cases["case_id"]]
    linked = elsewhere.Cohort.from_frame(
        cohort.cases.assign(mamamia_id=pd.Series(told, dtype="object")), root=hospital, reader="mama-mia"
    )
    with pytest.raises(UserError, match="NEWDUKE_002' cannot be tested: its patient"):
        predict(model_file, linked, out=tmp_path / "out", device="cpu")


def test_which_model_is_meant_must_be_said(results, hospital, tmp_path):
    cohort = cohort_of(hospital, tmp_path / "cohort")
    with pytest.raises(UserError, match="2 saved models match"):
        predict(results, cohort, out=tmp_path / "out")
    with pytest.raises(UserError, match=r"unknown model 'rest>DUKE\|keepr'") as wrong:
        predict(results, cohort, out=tmp_path / "out", model="rest>DUKE|keepr")
    assert "keeper" in wrong.value.fix
    with pytest.raises(UserError, match=r"weights of 'rest>DUKE \| threshold"):
        predict(results, cohort, out=tmp_path / "out", model="rest>DUKE|threshold")
    with pytest.raises(UserError, match="takes no masks"):
        predict(results, cohort, out=tmp_path / "out", model=MODEL, masks=tmp_path)


def test_what_cannot_be_kept_as_plain_data_fails_with_its_place(world, tmp_path):
    text = KEEPING.replace('recipe = "kept-threshold"', 'recipe = "kept-code"')
    done = run_study(make_study(tmp_path, text), data=world, out=tmp_path / "out", device="cpu", report=False)
    (why,) = done.run.engine.failed.values()
    assert "cannot be saved: weights.model is a builtins.function" in why
    assert (
        done.run.results.runs["method"] == "keeper"
    ).sum() == 6  # the other scenarios keep nothing, and go on


def test_a_study_that_kept_nothing_says_how_to(world, tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    text = KEEPING.replace('keep_weights = ["rest>DUKE"]', "")
    run_study(make_study(folder, text), data=world, out=folder / "out", device="cpu", report=False)
    told = list_models(folder / "out")
    assert told.models == () and "keep_weights" in "\n".join(told.lines())
    with pytest.raises(UserError, match="no weights were kept") as error:
        predict(folder / "out", tmp_path / "none", out=tmp_path / "out")
    assert "keep_weights" in error.value.fix
    with pytest.raises(UserError, match="no finished trainings"):
        list_models(tmp_path / "nowhere")


def test_changed_weights_are_refused(results, hospital, tmp_path):
    held = Path(shutil.copytree(results, tmp_path / "results"))
    for file in (held / "store" / "units").glob("*/weights.npz"):
        content = bytearray(file.read_bytes())
        content[-200] ^= 0xFF
        file.write_bytes(content)
    cohort = cohort_of(hospital, tmp_path / "cohort")
    with pytest.raises(UserError, match="saved weights differ"):
        predict(held, cohort, out=tmp_path / "out", model=MODEL, device="cpu")


def test_from_the_command_line(results, hospital, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cohort_of(hospital, tmp_path / "cohort")

    def run(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out + told.err

    code, said = run("models", str(results))
    assert code == 0 and "rest>DUKE | keeper" in said and "12 patients of ISPY1 6, ISPY2 6" in said
    assert run("models", str(results), "--model", MODEL, "--export", "keeper.zip")[0] == 0
    part = ("--where", "dataset=NEWDUKE", "--device", "cpu")
    code, said = run("predict", "keeper.zip", "cohort", "--out", "said", *part)
    assert code == 0 and "none of whom is among the 5 here" in said
    command = next(line for line in said.splitlines() if "elsewhere score segmentation" in line)
    assert run(*command.split()[1:], "--resamples", "0")[0] == 0
    assert run("predict", "keeper.zip", "cohort", "--out", "cohort")[0] == 64


def test_weights_of_an_earlier_version_learn_whom_they_were_trained_on_without_a_training(
    ran, results, world, hospital, tmp_path
):
    held = Path(shutil.copytree(results, tmp_path / "results"))
    for file in (held / "store" / "units").glob("*/done.json"):
        done = json.loads(file.read_text())
        done.pop("trained_on", None)
        file.write_text(json.dumps(done))
    cohort = cohort_of(hospital, tmp_path / "cohort")
    with pytest.raises(UserError, match="does not list the patients it was trained on"):
        predict(held, cohort, out=tmp_path / "out", model=MODEL, device="cpu")
    again = run_study(ran.run.plan.file.path, data=world, out=held, device="cpu", report=False)
    assert again.run.engine.done == ()
    predict(held, cohort, out=tmp_path / "out", model=MODEL, device="cpu")
