"""One valid artefact of every kind that a user may be handed by somebody else, made once and mutated many times."""

from __future__ import annotations

import contextlib
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from elsewhere.cli import main
from elsewhere.cohort import read_cohort
from elsewhere.commands.predict import list_models
from elsewhere.commands.run import run_study
from worlds import fake_recipes  # noqa: F401 - registers 'threshold' and 'kept-threshold'
from worlds.mri_study import STUDY, make_study, make_world
from worlds.picture_study import write_world
from worlds.task_files import MAKERS, binary_tables, write_pair

TASKS = ("classification", "response", "segmentation", "detection", "slides")
CLAIM = """
model = "Vendor 3"
task = "classification"
threshold = 0.5
where = { site = "north" }
[predictions]
map = { score = "probability" }
normalise_ids = ["blanks"]
[outcomes]
verified_by = "biopsy"
follow_up_months = 24
[population]
prevalence_of_use = 0.01
prevalence_of_source = 0.3
[[primary]]
metric = "auroc"
value = 0.9
n = 500
positives = 100
margin = 0.1
margin_source = "the tender"
[[primary]]
metric = "sensitivity"
value = 0.8
lo = 0.7
hi = 0.9
margin = 0.1
[subgroups]
describe = ["site", "breast_density"]
[[subgroup]]
variable = "site"
group = "north"
metric = "auroc"
value = 0.85
margin = 0.1
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    said: str


def call(*arguments: object) -> Ended:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Ended(code=code, said=out.getvalue() + err.getvalue())


def make_results(folder: Path) -> Path:
    """`TASK/first` and `TASK/second`: two results of the same cases for each task, and what they were made of."""
    for task in TASKS:
        here = folder / task
        here.mkdir(parents=True)
        if task in ("classification", "response"):
            target = "label" if task == "classification" else "pcr"
            files = write_pair(here, *binary_tables(patients=24, target=target))
        else:
            files = MAKERS[task](here)
        if files.cohort.is_file() and task != "segmentation":
            shutil.copy(files.cohort, here / "who.csv")
        for name in ("first", "second"):
            done = call(
                "score", task, files.cohort, files.predictions, "--resamples", 20, "--out", here / name
            )
            assert done.code == 0, done.said
    return folder


def cohort_of(results: Path, task: str) -> Path:
    return results / task / ("dbt" if task == "detection" else "cohort.csv")


def make_claim(folder: Path) -> Path:
    """`claim.toml`, its lock, a cohort and predictions."""
    files = write_pair(folder, *binary_tables(patients=60))
    (folder / "claim.toml").write_text(CLAIM)
    done = call("accept", files.cohort, files.predictions, "--claim", folder / "claim.toml", "--out", folder / "out",
                "--resamples", 20)  # fmt: skip
    assert done.code in (0, 2, 3, 4), done.said
    shutil.rmtree(folder / "out")
    return folder


def make_picture_study(folder: Path) -> Path:
    """A study file of two small hospitals, with every kind of section."""
    folder.mkdir(parents=True)
    path = write_world(folder, datasets=("Alder", "Birch"), seeds=(1,), patients=8, normals=1, images=1)
    path.write_text(path.read_text() + '\n[models.like]\nlike = "cnn"\nlearning_rate = 1e-3\n[profiles.small.models.cnn]\nepochs = 1\n[analyses]\nresamples = 10\n')  # fmt: skip
    assert call("plan", path, "--out", folder / "out").code == 0
    return folder


def import_torch() -> None:
    """Before memory is limited: its libraries are large, and the model files need them."""
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401


def make_recipe_study(folder: Path) -> Path:
    """`world`, `tiny.toml`, a bundle, a store with kept weights, `keeper.zip`, and another hospital's `cohort`."""
    folder.mkdir(parents=True)
    world = make_world(folder / "world", patients=6)
    text = STUDY.replace('name = "tiny"', 'name = "tiny"\nkeep_weights = ["rest>DUKE"]').replace(
        "resamples = 50", "resamples = 0"
    )
    text += '[recipes.keeper]\nrecipe = "kept-threshold"\n'
    done = run_study(
        make_study(folder, text), data=world, out=folder / "out", device="cpu", bundle=folder / "bundle"
    )
    assert done.exit_code == 0
    import_torch()
    list_models(folder / "out", model="rest>DUKE|keeper", export=folder / "keeper.zip")
    other = make_world(folder / "other", patients=2, seed=9)
    table = pd.read_csv(other / "clinical_and_imaging_info.csv")
    table["dataset"] = "NEW" + table["dataset"]
    table.to_csv(other / "clinical_and_imaging_info.csv", index=False)
    read_cohort("mama-mia", other).save(folder / "cohort")
    return folder
