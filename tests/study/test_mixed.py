"""A study that holds pictures and volumes, classification and segmentation, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from elsewhere.commands.check_bundle import check_bundle
from elsewhere.commands.plan import plan_study
from elsewhere.commands.run import run_study
from elsewhere.engine.run import run_units
from elsewhere.engine.store import Store
from elsewhere.engine.work import load_work
from elsewhere.errors import UserError
from elsewhere.recipes.running import train_all
from elsewhere.scenarios import Split
from elsewhere.scenarios.files import read_splits
from worlds import fake_recipes  # noqa: F401 - registers its recipes
from worlds.mri_study import make_world
from worlds.picture_study import write_world

STUDY = """
[study]
name = "both"
[[cohort]]
source = "Alder/cohort.csv"
[[cohort]]
source = "Birch/cohort.csv"
[[cohort]]
reader = "mama-mia"
source = "{volumes}"
[scenarios]
kinds = ["external", "leave-one-dataset-out"]
seeds = [1]
keep_duplicates_together = false
[inputs.whole]
kind = "whole"
[inputs.roi]
kind = "roi"
[models.cnn]
network = "tiny-cnn"
weights = "none"
size_px = 32
epochs = 1
[tasks.segmentation]
[tasks.response]
[recipes.threshold]
baseline = true
[recipes.random]
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("both")
    write_world(folder, datasets=("Alder", "Birch"), patients=8)
    volumes = make_world(folder / "volumes")
    (folder / "both.toml").write_text(STUDY.replace("{volumes}", str(volumes)))
    return folder / "both.toml"


def test_one_plan_holds_both_and_no_scenario_crosses_them(world, tmp_path):
    plan = plan_study(world, out=tmp_path / "out").plan
    assert set(plan.methods) == {"cnn-whole", "cnn-roi", "threshold", "random"}
    assert {part.source for part in plan.table.each} == {"pictures", "mri"}
    methods = plan.runs.groupby("task")["method"].agg(set).to_dict()
    assert methods == {
        "classification": {"cnn-whole", "cnn-roi"},
        "segmentation": {"threshold"},
        "response": {"threshold", "random"},
    }
    pictures = {"Alder", "Birch"}
    for made in plan.partitions.values():
        sets = {name.partition("/")[0] for part in made.parts.values() for name in part}
        assert sets <= pictures or not sets & pictures
    assert plan.runs["run"].is_unique
    assert set(plan.runs.loc[plan.runs["task"] != "classification", "input"]) == {""}
    for _, row in plan.planned().iterrows():
        assert row["run"] == f"{row['scenario']}|{row['method']}|{row['task']}|{row['seed']}"
        assert set(plan.tested(row)) <= set(plan.units[row["training"]].predict)


def test_a_training_does_not_depend_on_what_else_the_study_asks(world, tmp_path):
    both = plan_study(world, out=tmp_path / "both").plan
    text = world.read_text()
    begin, end = text.index('[[cohort]]\nsource = "Alder'), text.index("[[cohort]]\nreader")
    volumes, pictures = world.parent / "volumes.toml", world.parent / "pictures.toml"
    networks = text[text.index("[inputs.whole]") : text.index("[tasks.segmentation]")]
    volumes.write_text((text[:begin] + text[end:]).replace(networks, ""))
    cohort = text[end : text.index("[scenarios]")]
    lesions = text.replace(cohort, "").partition("[tasks.segmentation]")[0]
    pictures.write_text(lesions.replace(', "leave-one-dataset-out"', ""))
    alone = [plan_study(file, out=tmp_path / file.stem).plan for file in (volumes, pictures)]
    assert set(both.units) == {key for plan in alone for key in plan.units}
    assert {made.hash for made in both.partitions.values()} == {
        made.hash for plan in alone for made in plan.partitions.values()
    }


def test_both_train_in_one_run_also_from_a_work_folder(world, tmp_path):
    pytest.importorskip("torch")
    planned = plan_study(world, out=tmp_path / "out", export=tmp_path / "work", splits=tmp_path / "splits")
    plan, store = planned.plan, Store(tmp_path / "store")
    done = run_units(list(plan.units.values()), plan.work, store, device="cpu", threads=1)
    assert (done.failed, set(done.done)) == ({}, set(plan.units))
    tasks = {task for key in done.done for task in store.load(key).answers}
    assert tasks == {"classification", "segmentation", "response"}
    units, work = load_work(tmp_path / "work")
    assert set(work.sources) == {"pictures", "mri"}
    again = {}
    train_all(
        units,
        work,
        device="cpu",
        finished=lambda unit, outcome: again.setdefault(unit.key, outcome),
        failed=lambda unit, reason: pytest.fail(reason),
    )
    assert set(again) == set(plan.units)
    for part in plan.table.each:
        read = read_splits(tmp_path / "splits" / part.source, part.frame, scheme=part.label_scheme)
        assert {one.hash for one in read if isinstance(one, Split)} <= {
            made.hash for made in plan.partitions.values()
        }


def test_what_no_method_reads_is_named(world, tmp_path):
    text = world.read_text()
    with pytest.raises(UserError, match="unknown scenario"):
        plan_study(world, out=tmp_path / "out", only=["Alder>DUKE"])
    bare = world.parent / "bare.toml"
    begin, end = text.index("[[cohort]]\nreader"), text.index("[scenarios]")
    bare.write_text(text[:begin] + text[end:])
    with pytest.raises(UserError, match="no cohort of the study has what the source 'mri' reads"):
        plan_study(bare, out=tmp_path / "out")


@pytest.fixture(scope="module")
def ran(world, tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("ran")
    return run_study(world, out=folder / "out", device="cpu", bundle=folder / "bundle")


def test_one_run_scores_and_reports_both(ran):
    results, summary = ran.run.results, ran.written.summary
    assert set(results.runs["status"]) <= {"done", "invalid", "skipped"}
    done = set(results.done()["task"])
    assert done == {"classification", "segmentation", "response"}
    assert set(summary.tables["leaderboard"]["task"]) == done
    page = ran.written.path.read_text(encoding="utf-8")
    assert all(name in page for name in ("cnn-roi", "threshold", "Alder", "DUKE"))


def test_the_bundle_of_both_is_recomputed(ran):
    checked = check_bundle(ran.written.bundle)
    assert checked.exit_code == 0, "\n".join(checked.lines())
