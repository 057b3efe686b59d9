"""The plan: runs, trainings, what is skipped, and which trainings are the same."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pandas as pd
import pytest

from elsewhere.cli import main
from elsewhere.commands.plan import plan_study
from elsewhere.engine.store import Store
from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from elsewhere.recipes.pictures.settings import settings_of
from elsewhere.scenarios import read_splits
from elsewhere.study.estimate import note_speed
from elsewhere.study.file import load_study
from elsewhere.study.plan import make_plan
from elsewhere.study.table import build_table
from worlds.picture_study import edit, outcome_of, write_world


def plan_of(study, *changes: str, **options):
    file = load_study(study, changes=changes, **options)
    return make_plan(file, build_table(file))


def test_four_datasets_two_models_two_inputs_five_seeds_are_320_runs_from_160_trainings(tmp_path):
    """US-10: the benchmark's arithmetic, on four tiny hospitals."""
    study = write_world(tmp_path, seeds=(1, 2, 3, 4, 5), images=1)
    plan = plan_of(study)
    assert len(plan.runs) == 320 and plan.runs["run"].is_unique
    assert len(plan.units) == 160
    assert not plan.skipped
    counts = plan.runs.groupby("kind")["training"].agg(["size", "nunique"])
    assert counts.loc["internal"].tolist() == [80, 80]
    assert counts.loc["external"].tolist() == [240, 80]
    assert set(plan.runs["training"]) == set(plan.units)


def test_a_unit_predicts_what_its_runs_need_and_nothing_it_trains_on(world):
    plan = plan_of(world)
    for _, row in plan.runs.iterrows():
        made, unit = plan.partitions[row["scenario"], row["seed"]], plan.units[row["training"]]
        assert unit.train == made.train and unit.validation == made.validation
        assert {*made.validation, *made.test, *made.normal} <= set(unit.predict)
        assert not set(unit.train) & set(unit.predict)
        assert (row["train"], row["test"]) == (len(made.train), len(made.test))
        assert row["split"] == made.hash
    outer = plan.units[plan.runs.set_index("run").loc["Alder>Birch|cnn-whole|classification|1", "training"]]
    others = {case for case in plan.table.cases.case if not case.startswith("Alder/")}
    assert others <= set(outer.predict)


def test_a_training_does_not_depend_on_which_targets_are_asked_for(world):
    """So that a scenario added later costs nothing."""
    whole = plan_of(world)
    one = plan_of(world, only=["Alder>Cedar"])
    assert len(one.runs) == 8
    assert {key: unit.predict for key, unit in one.units.items()} == {
        key: whole.units[key].predict for key in one.units
    }


def test_the_same_study_names_the_same_trainings_and_a_change_only_what_changed(world):
    before = plan_of(world)
    assert plan_of(world).units == before.units
    after = plan_of(world, "models.cnn.epochs=4")
    kept = set(before.units) & set(after.units)
    assert {before.units[key].method for key in kept} == {"vit-b-16"}
    assert len(kept) == len(before.units) / 2
    renamed = plan_of(world, "study.name=other", "analyses.without=['Birch']")
    assert set(renamed.units) == set(before.units)
    moved = plan_of(world, "inputs.roi.margin=0.2")
    kept = set(before.units) & set(moved.units)
    assert {settings_of(before.units[key].recipe).input.kind for key in kept} == {"whole"}


def test_a_changed_box_changes_crops_alone_and_only_where_the_case_trains(world):
    before = plan_of(world)
    edit(world, "Alder", lambda t: t.loc.__setitem__((0, "box_x0"), 5))
    after = plan_of(world)
    changed = [before.units[key] for key in set(before.units) - set(after.units)]
    assert changed
    for unit in changed:
        assert settings_of(unit.recipe).input.kind == "roi"
        assert "Alder/m000_0" in {*unit.train, *unit.validation}


def test_a_scenario_that_cannot_be_split_is_skipped_with_its_reason(world):
    """US-08: no fall-back to pictures."""
    edit(world, "Cedar", lambda t: t.__setitem__("label", t["label"].replace("malignant", "benign")))
    plan = plan_of(world)
    told = plan.skipped_table()
    assert set(told["scenario"]) == {"Cedar"} | {f"{d}>Cedar" for d in ("Alder", "Birch", "Dogwood")} | {
        f"Cedar>{d}" for d in ("Alder", "Birch", "Dogwood")
    }
    assert told["reason"].str.contains("Cedar").all()
    skipped = plan.runs[plan.runs["status"] == "skipped"]
    assert len(skipped) == 7 * 2 * 4 and (skipped["training"] == "").all() and (skipped["reason"] != "").all()
    assert len(plan.planned()) == 9 * 2 * 4


def test_fall_backs_are_counted_a_scenario(world):
    edit(world, "Alder", lambda t: t.__setitem__("box_x1", t["box_x1"].mask(t.index < 4)))
    plan = plan_of(world)
    runs = plan.runs.set_index("run")
    assert runs.loc["Birch>Alder|cnn-roi|classification|1", "roi_fallbacks"] == 4
    assert runs.loc["Birch>Alder|cnn-whole|classification|1", "roi_fallbacks"] == 0
    assert runs.loc["Birch>Cedar|cnn-roi|classification|1", "roi_fallbacks"] == 0
    assert plan.audit()["roi_fallbacks"]["Birch>Alder"] == {"train": 0, "validation": 0, "test": 4}


@pytest.mark.parametrize(
    ("kind", "scenarios", "trainings"),
    [("leave-one-dataset-out", 4, 4), ("folds", 12, 12), ("nested", 12, 6)],
)
def test_other_kinds(world, kind, scenarios, trainings):
    plan = plan_of(world, f"scenarios.kinds=['{kind}']", "scenarios.folds=3", only_models=["cnn"])
    assert len(plan.runs) == scenarios * 2 * 2
    assert set(plan.runs["kind"]) == {kind}
    assert len(plan.units) == trainings * 2 * 2


def test_only_by_pattern_also_among_nested_scenarios(world):
    plan = plan_of(world, "scenarios.kinds=['internal', 'nested']", only=["Alder", "nested *>Birch"])
    assert set(plan.runs["scenario"]) == {
        "Alder",
        "nested Alder+Cedar>Birch",
        "nested Alder+Dogwood>Birch",
        "nested Cedar+Dogwood>Birch",
    }
    with pytest.raises(UserError, match="unknown scenario"):
        plan_of(world, "scenarios.kinds=['nested']", only=["Alder"])


def test_a_model_may_have_its_own_inputs_and_kinds(world):
    plan = plan_of(
        world,
        "scenarios.kinds=['external', 'leave-one-dataset-out']",
        "models.vit.kinds=['leave-one-dataset-out']",
        "models.vit.inputs=['roi']",
        "models.vit.method=coral",
    )
    vit = plan.runs[plan.runs["model"] == "vit"]
    assert set(vit["kind"]) == {"leave-one-dataset-out"} and set(vit["input"]) == {"roi"}
    assert set(vit["training_method"]) == {"coral"}


def test_weights_are_kept_where_they_are_asked_for(world):
    plan = plan_of(world, "study.keep_weights=['Alder>Birch']")
    kept = {unit.name for unit in plan.units.values() if unit.keep_weights}
    assert kept and all(name.startswith("Alder>*") for name in kept)
    assert set(plan.units) == set(plan_of(world).units)
    with pytest.raises(UserError, match="unknown scenario"):
        plan_of(world, "study.keep_weights=['Elder']")


def test_scenarios_left_for_another_time_may_be_named_as_kept(world):
    plan = plan_of(world, "study.keep_weights=['Alder>Birch']", "scenarios.only=['Birch>Alder']")
    assert not any(unit.keep_weights for unit in plan.units.values())


def test_a_file_of_weights_counts_by_its_content(world):
    (world.parent / "a.pth").write_bytes(b"some weights")
    (world.parent / "b.pth").write_bytes(b"some weights")
    (world.parent / "c.pth").write_bytes(b"other weights")
    one, two, three = (plan_of(world, f"models.cnn.weights={n}.pth", only_models=["cnn"]) for n in "abc")
    assert set(one.units) == set(two.units)
    assert not set(one.units) & set(three.units)
    (label,) = {settings_of(unit.recipe).training.weights for unit in one.units.values()}
    assert one.work.weights == {f"efficientnet-lite0/{label}": (world.parent / "a.pth").resolve()}
    with pytest.raises(UserError, match="no such file of weights"):
        plan_of(world, "models.cnn.weights=d.pth")


def test_found_boxes_take_one_finder_a_source_split(world):
    """US-33: shared by the models, trained on what the classifier trains on."""
    plan = plan_of(
        world, "inputs.found={kind='roi', boxes='found'}", "scenarios.kinds=['external']", seeds=[1]
    )
    finders = {key: unit for key, unit in plan.units.items() if unit.recipe.name == "lesion-finder"}
    assert len(finders) == 4
    found = plan.runs[plan.runs["input"] == "found"]
    assert set(found["boxes_training"]) == set(finders)
    for _, row in found.iterrows():
        unit, finder = plan.units[row["training"]], finders[row["boxes_training"]]
        assert unit.needs == {"boxes": finder.key}
        assert (unit.train, unit.validation, unit.seed) == (finder.train, finder.validation, finder.seed)
        assert set(unit.predict) <= set(finder.predict)
    assert (plan.runs.loc[plan.runs["input"] == "roi", "boxes_training"] == "").all()


def test_the_command_says_what_is_done_and_what_is_not(world, tmp_path):
    out = tmp_path / "out"
    first = plan_study(world, out=out, seeds=[1])
    assert (first.to_dict()["done"], first.to_dict()["to_do"]) == (0, 32)
    assert "rough guess" in first.estimate.basis
    store = Store(out / "store")
    cnn = [unit for unit in first.plan.units.values() if unit.method == "efficientnet-lite0"]
    for unit in cnn[:5]:
        store.save(unit, outcome_of(unit, first.plan.work))
    told = plan_study(world, out=out, seeds=[1]).to_dict()
    assert (told["runs"], told["trainings"], told["done"], told["to_do"]) == (64, 32, 5, 27)
    assert sum(row["done"] for row in told["configurations"]) == 5
    assert "partly from trainings in the store" in told["estimate"]["basis"]
    assert told["estimate"]["seconds"] > 0
    json.dumps(told)


def saved(plan, store, device, seconds):
    for unit in plan.units.values():
        made = outcome_of(unit, plan.work)
        store.save(unit, replace(made, device=device, seconds=seconds, images=10_000))


def test_another_devices_trainings_are_told_and_not_taken(world, tmp_path):
    """A GPU's rate says nothing of a CPU; it stands beside the rough guess, and the guess is what it was."""
    planned = plan_study(world, out=tmp_path / "out", seeds=[1], device="cpu")
    rough = planned.estimate
    saved(planned.plan, Store(tmp_path / "out" / "store"), "NVIDIA H200", 6.0)
    again = plan_study(world, out=tmp_path / "out", seeds=[2], device="cpu").estimate
    assert again.device == "cpu" and again.seconds == pytest.approx(rough.seconds, rel=0.2)
    assert list(again.measured_on) == ["NVIDIA H200"]
    assert again.measured_on["NVIDIA H200"] < again.seconds / 10
    assert re.search(
        r"on NVIDIA H200 \(from trainings in the store\); on this cpu, a rough guess: about", again.text()
    )
    assert again.to_dict()["measured_on"] == {
        "NVIDIA H200": pytest.approx(again.measured_on["NVIDIA H200"], abs=0.1)
    }


def test_the_same_devices_trainings_are_taken(world, tmp_path, monkeypatch):
    monkeypatch.setattr("elsewhere.study.estimate._gpu_names", lambda: ["NVIDIA H200", "NVIDIA T4"])
    planned = plan_study(world, out=tmp_path / "out", seeds=[1], device="cuda", only_models=["cnn"])
    assert planned.estimate.device == "NVIDIA H200"
    saved(planned.plan, Store(tmp_path / "out" / "store"), "NVIDIA H200", 6.0)

    def told(device):
        return plan_study(world, out=tmp_path / "out", seeds=[2], device=device, only_models=["cnn"]).estimate

    known, other = told("cuda"), told("cuda:1")
    assert known.basis == "from trainings in the store" and not known.measured_on
    assert other.device == "NVIDIA T4" and "rough guess" in other.basis
    assert other.measured_on["NVIDIA H200"] == pytest.approx(known.seconds)


def test_trainings_side_by_side_are_noted_a_device(world, tmp_path):
    store = Store(tmp_path / "out" / "store")
    planned = plan_study(world, out=tmp_path / "out", seeds=[1], device="cpu", only_models=["cnn"])
    saved(planned.plan, store, "NVIDIA H200", 6.0)
    keys = list(planned.plan.units)

    def there():
        made = plan_study(world, out=tmp_path / "out", seeds=[2], device="cpu", only_models=["cnn"])
        return made.estimate.measured_on["NVIDIA H200"]

    before = there()
    note_speed(store, keys, wall_seconds=6.0 * len(keys) / 3)
    assert there() == pytest.approx(2 * before), "three side by side, where six were supposed"


def test_plan_lines_are_for_a_person(world, tmp_path):
    edit(world, "Cedar", lambda t: t.__setitem__("label", t["label"].replace("malignant", "odd")))
    text = "\n".join(plan_study(world, out=tmp_path / "out").lines())
    assert "72 runs (9 scenarios) from 48 trainings" in text
    assert "left out: 16 rows of Cedar (label 'odd' is not in the list)" in text
    assert "skipped: Cedar (2 seeds)" in text
    assert "warning: Cedar has one class" in text
    assert "estimate: about" in text


def test_splits_are_written_and_read_back(world, tmp_path):
    """US-09."""
    planned = plan_study(world, out=tmp_path / "out", splits=tmp_path / "splits")
    read = read_splits(tmp_path / "splits", planned.plan.table.frame)
    assert {p.hash for p in read} == {p.hash for p in planned.plan.partitions.values()}


def test_a_work_folder_holds_what_is_left(world, tmp_path):
    from elsewhere.engine.work import load_work

    planned = plan_study(
        world, out=tmp_path / "out", export=tmp_path / "work", seeds=[1], only_models=["cnn"]
    )
    units, work = load_work(tmp_path / "work")
    assert {unit.key for unit in units} == set(planned.plan.units)
    assert work.cases.case == planned.plan.table.cases.case
    assert work.sources["pictures"].encoded("Alder/m000_0") == planned.plan.table.sources["pictures"].encoded(
        "Alder/m000_0"
    )
    store = Store(tmp_path / "out" / "store")
    for unit in planned.plan.units.values():
        store.save(unit, outcome_of(unit, planned.plan.work))
    again = plan_study(world, out=tmp_path / "out", export=tmp_path / "work2", seeds=[1], only_models=["cnn"])
    assert again.exported is None and not (tmp_path / "work2").exists()


def test_the_command_that_takes_the_work_back_works_as_it_stands(world, tmp_path, capsys):
    given = {"changes": ["models.cnn.epochs=2"], "seeds": [1], "only_models": ["cnn"]}
    planned = plan_study(
        world, out=tmp_path / "a b", data=tmp_path, store=tmp_path / "held", export=tmp_path / "work", **given
    )
    said = next(line for line in planned.lines() if line.startswith("  here:  elsewhere run "))
    words = shlex.split(said.removeprefix("  here:  "))
    assert words[-2:] == ["--import", "done.zip"]
    for pair in (
        ["--data", str(tmp_path)],
        ["--set", "models.cnn.epochs=2"],
        ["--seeds", "1"],
        ["--only-model", "cnn"],
        ["--store", str(tmp_path / "held")],
        ["--out", str(tmp_path / "a b")],
    ):
        assert pair in [words[at : at + 2] for at in range(len(words))], pair
    with pytest.raises(SystemExit) as ended:
        main(["plan", *words[2:-2], "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["to_do"] == len(planned.plan.units)


@pytest.mark.parametrize(
    ("change", "said", "near"),
    [
        ("models.cnn.network=efficientnet-b1", "unknown network 'efficientnet-b1'", "efficientnet-b0"),
        ("analyses.reference=ultrasond", "unknown published study", "ultrasound"),
        ("analyses.without=['Elder']", "unknown dataset 'Elder'", "Alder"),
        ("analyses.margin_reference=0.2", "no input has the margin 0.2", "0.12"),
    ],
)
def test_a_name_that_nobody_knows_is_found_before_anything_is_trained(world, change, said, near):
    with pytest.raises(UserError) as caught:
        plan_of(world, change)
    assert said in caught.value.what and near in (caught.value.fix or "")
    assert "tiny.toml" in (caught.value.where or "")


def test_units_travel_as_json(world):
    for unit in plan_of(world, seeds=[1]).units.values():
        assert Training.from_dict(json.loads(json.dumps(unit.to_dict()))) == unit


@pytest.mark.real_data
@pytest.mark.slow
def test_the_published_study_on_the_real_sets(data_dir, tmp_path):
    """320 runs from 160 trainings, and the published counts of lesion and normal images (US-04, US-10)."""
    planned = plan_study("ultrasound", data=data_dir / "ultrasound", out=tmp_path / "out")
    told = planned.to_dict()
    assert (told["runs"], told["trainings"], told["skipped"]) == (320, 160, [])
    images = pd.DataFrame({name: about["images"] for name, about in told["datasets"].items()})
    assert (images.loc["benign"] + images.loc["malignant"]).to_dict() == {
        "BUSI": 647,
        "BUS-BRA": 1875,
        "BrEaST": 252,
        "BUS-UCLM": 264,
    }
    assert images.loc["normal"].to_dict() == {"BUSI": 133, "BUS-BRA": 0, "BrEaST": 4, "BUS-UCLM": 419}
    assert told["datasets"]["BUS-BRA"]["patients"] == 1064
    assert told["datasets"]["BUS-UCLM"]["patients"] == 38
