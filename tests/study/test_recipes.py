"""A study of recipes from its file to prediction files and scores, on tiny volumes; a stranger's recipe too."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import read_cohort
from elsewhere.commands.listing import list_recipes
from elsewhere.commands.plan import plan_study
from elsewhere.commands.run import run_study
from elsewhere.commands.score import score
from elsewhere.errors import EXIT_OK, UserError
from elsewhere.study.results import RunKey
from worlds.mri_study import STUDY, make_study, make_world

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
from worlds import fake_recipes  # noqa: E402, F401 - registers 'threshold'

COIN = """
[recipes.same]
recipe = "threshold"
tasks = ["response"]
settings = { fault = "constant" }
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    return make_world(tmp_path_factory.mktemp("mama-mia"))


@pytest.fixture(scope="module")
def ran(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    study = make_study(folder, STUDY + COIN)
    return run_study(study, data=world, out=folder / "out", device="cpu", report=False)


@pytest.fixture
def copied(world, tmp_path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "world"))


def plan(folder: Path, world: Path, text: str = STUDY, **options):
    return plan_study(make_study(folder, text), data=world, out=folder / "out", **options)


def test_a_plan_counts_who_leaves_which_task_and_one_training_serves_both(world, tmp_path):
    planned = plan(tmp_path, world)
    told = planned.to_dict()
    assert {(r["dataset"], r["reason"].split(":")[0], r["rows"]) for r in told["left_out"]} == {
        ("ISPY1", "without a mask", 1),
        ("ISPY2", "without an outcome", 1),
    }
    assert (told["scenarios"], told["runs"], told["trainings"], told["to_do"]) == (3, 9, 6, 6)
    runs = planned.plan.runs
    both = runs[runs["method"] == "threshold"].groupby(["scenario", "seed"])["training"].nunique()
    assert (both == 1).all()
    at_home = runs[(runs["scenario"] == "rest>ISPY1") & (runs["method"] == "threshold")].set_index("task")
    assert at_home["test"].to_dict() == {"segmentation": 5, "response": 6}
    unit = planned.plan.units[at_home["training"].iloc[0]]
    assert "ISPY1/ISPY1_001" in unit.predict and unit.recipe.tasks == ("segmentation", "response")
    assert unit.recipe.settings["wash_in"] == 40.0
    lines = "\n".join(planned.lines())
    assert "segmentation+response (baseline)" in lines and "done already: 0; to do: 6" in lines
    assert planned.plan.units.keys() == plan(tmp_path, world).plan.units.keys()


def test_one_training_serves_all_its_targets(world, tmp_path):
    text = STUDY.replace('"leave-one-dataset-out"', '"external"')
    planned = plan(tmp_path, world, text).plan
    assert len(planned.planned()) == 6 * 3 and len(planned.units) == 3 * 2
    first = next(iter(planned.units.values()))
    assert {name.split("/")[0] for name in first.predict} == {"ISPY1", "ISPY2"}


def test_sites_can_be_left_out_one_by_one(world, tmp_path):
    planned = plan(tmp_path, world, STUDY.replace("[scenarios]", '[scenarios]\nby = "site"')).plan
    assert len({name for name, _ in planned.partitions}) == 6
    made = planned.partitions["rest>DUKE north", 1]
    assert set(made.test) == {f"DUKE/DUKE_{at:03d}" for at in (1, 3, 5)}
    gone = planned.runs[planned.runs["status"] == "skipped"]
    assert set(gone["task"]) == {"response"} and gone["reason"].str.contains("one outcome").all()


def test_scores_are_those_of_the_files(ran, world):
    assert ran.exit_code == EXIT_OK
    results = ran.run.results
    dice = {key[1:3]: m["dice"] for key, m in results.metrics.items() if key[0] == "segmentation"}
    assert set(dice.values()) == {0.0, 1.0} and len(dice) == 6
    assert all(value == (recipe == "threshold") for (recipe, _), value in dice.items())
    key = RunKey("response", "threshold", "rest>DUKE", 1)
    folder = results.folder(key)
    part = {"dataset": "DUKE"}
    again = score(
        "response",
        read_cohort("mama-mia", world),
        folder / "probabilities.csv",
        where=part,
        protocol="mamamia-paper",
        resamples=0,
    )
    assert again.metrics["auroc"]["value"] == pytest.approx(results.metrics[key]["auroc"], abs=1e-12)
    file = results.folder(RunKey("segmentation", "threshold", "rest>DUKE", 1)) / "DUKE_000.nii.gz"
    written, truth = nibabel.load(file), nibabel.load(world / "segmentations/expert/duke_000.nii.gz")
    assert np.array_equal(written.affine, truth.affine)
    assert np.array_equal(np.asarray(written.dataobj), np.asarray(truth.dataobj))


def test_an_empty_segmentation_is_scored_worst(ran):
    cases = ran.run.results.scores["segmentation", "blind", "rest>DUKE", 1].cases
    assert (cases["dice"] == 0).all() and (cases["norm_hd"] == 1).all()


def test_a_constant_prediction_is_invalid_by_name_and_the_run_goes_on(ran):
    runs = ran.run.results.runs
    assert set(runs.loc[runs["method"] == "same", "status"]) == {"invalid"}
    assert set(runs.loc[runs["method"] != "same", "status"]) == {"done"}
    assert any(line.startswith("invalid: same in rest>DUKE") and "constant" in line for line in ran.lines())
    assert ran.to_dict()["runs"]["invalid"] == 3


def test_costs_and_trainings_are_told(ran):
    results = ran.run.results
    costs = results.costs.groupby(["method", "task"])["seconds"].agg(["size", "mean"])
    assert costs.loc[("threshold", "segmentation")].tolist() == [17, 0.5]
    assert costs.loc[("threshold", "response")].tolist() == [17, 0.25]
    out = ran.run.paths.out
    assert {"runs.csv", "trainings.csv", "costs.csv", "scores.csv", "study.json"} <= set(os.listdir(out))
    assert len(pd.read_parquet(out / "scores_segmentation.parquet")) == 2 * 17
    assert json.loads((out / "study.json").read_text())["trainings"] == 9
    assert results.trainings["notes"].iloc[0] == ["as simple as can be"]


def test_the_same_command_again_trains_and_writes_nothing_new(ran, world):
    out = ran.run.paths.out
    files = {p: p.stat().st_mtime_ns for p in (out / "predictions").rglob("*") if p.is_file()}
    again = run_study(ran.run.plan.file.path, data=world, out=out, device="cpu", report=False)
    assert len(again.run.engine.reused) == 9 and not again.run.engine.done
    assert {p: p.stat().st_mtime_ns for p in (out / "predictions").rglob("*") if p.is_file()} == files
    assert again.run.results.metrics.keys() == ran.run.results.metrics.keys()
    estimate = plan_study(ran.run.plan.file.path, data=world, out=out, seeds=[2])
    assert estimate.estimate.basis == "from trainings in the store"


def test_a_recipe_that_fails_is_told_and_the_others_are_scored(world, tmp_path):
    text = STUDY + '[recipes.broken]\nrecipe = "threshold"\nsettings = { fault = "raise" }\n'
    study = make_study(tmp_path, text)
    done = run_study(study, data=world, out=tmp_path / "out", device="cpu", report=False, only=["rest>DUKE"])
    runs = done.run.results.runs
    assert set(runs.loc[runs["method"] == "broken", "status"]) == {"failed"}
    assert runs.loc[runs["method"] == "broken", "reason"].str.contains("a fault of the recipe").all()
    assert set(runs.loc[runs["method"] != "broken", "status"]) == {"done"}
    assert done.exit_code != EXIT_OK


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('recipe = "threshold"', 'recipe = "thresold"', "unknown recipe 'thresold'"),
        ("wash_in = 1000.0", "wash_im = 1000.0", "unknown setting 'wash_im'"),
        ("wash_in = 1000.0", 'wash_in = "high"', "'wash_in' is 'high'"),
        ('protocol = "mamamia-paper"', 'protocol = "camelyon16"', "not for segmentation"),
        ('tasks = ["segmentation"]', "baseline = true", "two recipes are the baseline of segmentation"),
    ],
)
def test_mistakes_in_the_file_stop_before_anything_is_trained(world, tmp_path, old, new, said):
    with pytest.raises(UserError) as caught:
        plan(tmp_path, world, STUDY.replace(old, new, 1))
    assert said in caught.value.what and caught.value.fix


def other_phase(world: Path) -> None:
    values = np.zeros((12, 10, 5), dtype=np.int16)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), world / "images/DUKE_002/duke_002_0001.nii.gz")


def other_mask(world: Path) -> None:
    values = np.zeros((12, 9, 6), dtype=np.uint8)
    nibabel.save(
        nibabel.Nifti1Image(values, np.diag([-1, 1, 1.5, 1])), world / "segmentations/expert/duke_002.nii.gz"
    )


def missing_phase(world: Path) -> None:
    (world / "images/DUKE_002/duke_002_0001.nii.gz").unlink()


@pytest.mark.parametrize(
    ("spoil", "said"), [(other_phase, "phase 1"), (other_mask, "mask"), (missing_phase, "0001")]
)
def test_bad_volumes_stop_before_anything_is_trained_with_their_case(copied, tmp_path, spoil, said):
    spoil(copied)
    with pytest.raises(UserError) as caught:
        plan(tmp_path, copied)
    assert "DUKE/DUKE_002" in caught.value.what and said in caught.value.what


def test_a_table_without_outcomes_is_segmented_all_the_same(copied, tmp_path):
    table = copied / "clinical_and_imaging_info.csv"
    pd.read_csv(table).assign(pcr="").to_csv(table, index=False)
    planned = plan(tmp_path, copied)
    runs = planned.plan.runs
    assert set(runs.loc[runs["status"] == "skipped", "task"]) == {"response"}
    assert set(runs.loc[runs["status"] == "planned", "task"]) == {"segmentation"}
    assert all(unit.recipe.tasks == ("segmentation",) for unit in planned.plan.units.values())
    assert any("response" in line and "known outcome" in line for line in planned.lines())


def test_a_validation_part_that_is_empty_is_called_so(world, tmp_path):
    few = STUDY.replace('kinds = ["leave-one-dataset-out"]', 'kinds = ["folds"]\nfolds = 2')
    assert few != STUDY
    copy = tmp_path / "few"
    shutil.copytree(world, copy)
    table = copy / "clinical_and_imaging_info.csv"
    rows = pd.read_csv(table)
    rows.groupby("dataset").head(4).to_csv(table, index=False)
    runs = plan(tmp_path, copy, few).plan.runs
    empty = runs[runs["validation"] == 0]
    reasons = set(empty.loc[empty["status"] == "skipped", "reason"])
    assert any("the validation part is empty" in reason for reason in reasons)
    assert not any("part has a mask" in reason for reason in reasons)


def test_recipes_are_listed_with_what_they_see():
    rows = {row["name"]: row for row in list_recipes().rows}
    assert rows["threshold"]["tasks"] == "response, segmentation"
    assert "wash_in = 40.0" in rows["threshold"]["settings"]
    assert rows["clinical"]["sees"] == "clinical columns"
    ours = [row for row in rows.values() if str(row["from"]).startswith("elsewhere.")]
    assert len(ours) == 26 and all(row["follows"] for row in ours)
    assert rows["clinical"]["kept"] == "yes" and rows["threshold"]["kept"] == rows["nnunet"]["kept"] == "no"


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "bring-your-own-recipe.md"


def block_of_page(language: str, having: str) -> str:
    """The package of the how-to page is what is tested here."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (found,) = [block for block in blocks if having in block]
    return found


@pytest.mark.slow
def test_a_strangers_package_is_trained_and_ranked_beside_ours(world, tmp_path):
    """Must-show 6: nothing of ours knows its name; it is installed, and the study file asks for it."""
    site = tmp_path / "site"
    site.mkdir()
    project = tomllib.loads(block_of_page("toml", "[project]"))
    (module,) = project["tool"]["setuptools"]["py-modules"]
    code = block_of_page("python", "class WashIn(Recipe)")
    told_of_tested = {"breast_box", "lesion_box"} & set(re.findall(r"volumes\.(\w+)\(", code))
    assert not told_of_tested, (
        "boxes are hidden in the test: the page's example would learn one thing and do another"
    )
    (site / f"{module}.py").write_text(code)
    told = site / f"{module}-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['project']['name']}\nVersion: 1.0\n"
    )
    ((theirs, place),) = project["project"]["entry-points"]["elsewhere.recipes"].items()
    (told / "entry_points.txt").write_text(f"[elsewhere.recipes]\n{theirs} = {place}\n")
    text = (
        STUDY[: STUDY.index("[recipes.threshold]")]
        + f"[recipes.random]\nbaseline = true\n[recipes.clinical]\n[recipes.{theirs}]\n"
    )
    study = make_study(tmp_path, text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "elsewhere", "run", str(study), "--data", str(world)),
            *("--out", str(tmp_path / "out"), "--device", "cpu", "--json"),
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_OK, done.stderr
    scores = pd.read_csv(tmp_path / "out" / "scores.csv")
    assert set(scores["method"]) == {"random", "clinical", theirs}
    assert (scores.loc[scores["task"] == "segmentation", "dice"] == 1).all()
    page = Path(json.loads(done.stdout)["report"])
    assert page.is_file() and theirs in page.read_text(encoding="utf-8")
