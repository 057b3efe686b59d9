"""`elsewhere slides train`: models per set and fold, resumed and refused (LN-09, LN-10)."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from elsewhere.cohort.patch_table import read_patch_table, write_patch_table
from elsewhere.commands.slide_training import run as run_module
from elsewhere.commands.slide_training.models import ModelFolder
from elsewhere.commands.slide_training.plan import TrainSettings, plan_training
from elsewhere.commands.slide_training.run import RunOptions, answer_rows, train_models
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from elsewhere.inputs.patches.store import PatchSet, PatchStore
from elsewhere.networks.segmenters import build_segmenter
from elsewhere.scoring.patch_scores import DICE, read_patch_scores
from elsewhere.training.patches.settings import PatchSettings
from worlds.trained_patches import PatchWorld, make_patch_world

SETTINGS = TrainSettings(
    training=PatchSettings(
        network="deeplab-tiny", weights="none", epochs=2, learning_rate=5e-3, patience=5, batch=8
    ),
    folds=2,
    seed=3,
)
CPU = RunOptions(device="cpu")


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """For every test of this file."""


@pytest.fixture(scope="module")
def world(made_once) -> PatchWorld:
    folder = made_once("trained_patches", make_patch_world)
    return PatchWorld(
        folder=folder,
        store=folder / "store",
        train=folder / "plain.parquet",
        test=folder / "test.parquet",
    )


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "models"
    torch.set_num_threads(1)
    return train_models(world.store, [world.train], out=out, test=world.test, settings=SETTINGS, options=CPU)


def changed(world, path, change, table="train"):
    """A patch table with other rows."""
    rows = read_patch_table(getattr(world, table)).rows
    write_patch_table(change(rows), path, provenance={})
    return path


def test_a_model_per_fold_is_saved_with_what_it_is(world, trained):
    assert trained.exit_code == EXIT_OK
    assert trained.trained == ("plain-fold1", "plain-fold2")
    folder = ModelFolder(trained.out)
    for fold in (1, 2):
        note, weights = folder.note(f"plain-fold{fold}"), folder.load(f"plain-fold{fold}")
        build_segmenter("deeplab-tiny").load_state_dict(weights)
        assert note["fold"] == fold
        assert len(note["history"]) == 2
        assert note["patches"] == PatchStore(world.store).spec.to_dict()
        assert note["about_set"] == {"clustering": "single", "share": "natural"}
        text = json.dumps(note)
        assert not any(f'"{name}{at}"' in text for name in "sp" for at in range(10)), (
            "a slide or a patient is named"
        )
    assert not list((trained.out / "checkpoints").glob("*")), "a finished training leaves no checkpoint"
    rows = pd.read_csv(trained.out / "models.csv")
    assert rows["clustering"].tolist() == ["single", "single"]
    assert (
        rows["training_patches"].sum() == rows["validation_patches"].sum() == len(trained.plan.sets[0].rows)
    )
    assert len(pd.read_csv(trained.out / "history.csv")) == 4


def test_each_fold_holds_out_other_patients(trained):
    one, other = trained.plan.models
    assert not set(one.validation) & set(other.validation)
    assert set(one.train) == set(other.validation)
    slides = [set(part["case_id"]) for part in _parts(trained)]
    assert not slides[0] & slides[1]


def _parts(trained):
    rows, fold = trained.plan.sets[0].rows, trained.plan.sets[0].folds.fold
    return [rows[fold == number] for number in (1, 2)]


def test_answers_are_those_of_the_saved_weights(world, trained):
    store = PatchStore(world.store)
    rows = pd.read_parquet(trained.out / "patches" / "plain-fold1.parquet")
    test = read_patch_table(world.test).rows
    assert len(rows) == len(test) == 96
    chosen = store.select(list(zip(rows["dataset"], rows["case_id"], strict=True)), rows["i"], rows["j"])
    model = build_segmenter("deeplab-tiny").eval()
    model.load_state_dict(ModelFolder(trained.out).load("plain-fold1"))
    every = np.arange(len(rows))
    with torch.no_grad():
        x = torch.from_numpy(chosen.batch(every)).permute(0, 3, 1, 2).float() / 255
        called = model(x)[:, 0].sigmoid().numpy() > 0.5
    truth = chosen.masks(every)
    assert np.abs(rows["tp"] - (called & truth).sum(axis=(1, 2))).max() <= 1
    assert np.abs(rows["fp"] - (called & ~truth).sum(axis=(1, 2))).max() <= 1
    assert (rows["tumour"] == truth.any(axis=(1, 2))).all()
    assert (rows["dice"].notna() == (rows["tumour"] == 1)).all()
    assert (rows["fpr"].notna() == (rows["tumour"] == 0)).all()
    some = rows[rows["tumour"] == 1].iloc[0]
    assert some["dice"] == pytest.approx(2 * some["tp"] / (2 * some["tp"] + some["fp"] + some["fn"]))


def test_the_table_of_patch_scores_is_read_by_the_comparison_of_models(trained):
    scores = read_patch_scores(trained.out / "patch-scores.parquet")
    assert scores.folds == ("1", "2")
    assert not any(one.patches for one in scores.coverage)
    table = pd.read_parquet(trained.out / "patch-scores.parquet")
    assert dict(table.groupby("case_id")["domain"].first()) == {
        "s6": "ID",
        "s7": "ID",
        "s8": "OOD",
        "s9": "OOD",
    }
    assert "derived" in trained.domains
    assert "Hospital 1" in trained.domains
    inside = (scores.parts["domain"] == "ID").to_numpy()
    expected = float(np.nanmean(scores.fold_means(DICE, inside)))
    assert trained.scores["dice_ID"].iloc[0] == pytest.approx(expected)


def test_a_second_run_does_nothing_again_and_a_third_adds_a_set(world, trained, tmp_path):
    out = shutil.copytree(trained.out, tmp_path / "models")
    before = {path.name: path.stat().st_mtime_ns for path in (out / "models").iterdir()}
    again = train_models(world.store, [world.train], out=out, test=world.test, settings=SETTINGS, options=CPU)
    assert again.trained == ()
    assert again.stored == ("plain-fold1", "plain-fold2")
    assert before == {path.name: path.stat().st_mtime_ns for path in (out / "models").iterdir()}
    pd.testing.assert_frame_equal(again.scores, trained.scores)
    fewer = changed(world, tmp_path / "fewer.parquet", lambda rows: rows[rows["case_id"] != "s5"])
    more = train_models(
        world.store, [world.train, fewer], out=out, test=world.test, settings=SETTINGS, options=CPU
    )
    assert more.trained == ("fewer-fold1", "fewer-fold2")
    assert more.scores["model"].tolist() == ["fewer", "plain"]


def test_a_run_that_was_killed_gives_the_same_models(world, trained, tmp_path, monkeypatch):
    out, save, saved = tmp_path / "models", ModelFolder.save, []

    def die_at_the_second(folder, name, note, weights):
        saved.append(name)
        if len(saved) == 2:
            folder.weights_file(name).write_bytes(b"half")
            raise KeyboardInterrupt
        save(folder, name, note, weights)

    with monkeypatch.context() as patched:
        patched.setattr(ModelFolder, "save", die_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            train_models(world.store, [world.train], out=out, settings=SETTINGS, options=CPU)
    resumed = train_models(
        world.store, [world.train], out=out, test=world.test, settings=SETTINGS, options=CPU
    )
    assert resumed.stored == (saved[0],)
    assert resumed.trained == (saved[1],)
    for name in ("plain-fold1", "plain-fold2"):
        one, other = ModelFolder(out).load(name), ModelFolder(trained.out).load(name)
        assert all(torch.equal(value, other[part]) for part, value in one.items())
    pd.testing.assert_frame_equal(resumed.scores, trained.scores)


def test_a_model_of_other_settings_is_not_overwritten(world, trained):
    for other in (
        replace(SETTINGS, seed=4),
        replace(SETTINGS, training=replace(SETTINGS.training, loss="smp")),
        replace(SETTINGS, folds=3),
    ):
        with pytest.raises(UserError, match="holds another model called plain-fold1"):
            train_models(world.store, [world.train], out=trained.out, settings=other, dry_run=True)


def test_answers_to_other_test_patches_are_not_mixed(world, trained, tmp_path):
    out = shutil.copytree(trained.out, tmp_path / "models")
    other = changed(world, tmp_path / "t.parquet", lambda rows: rows[rows["case_id"] != "s9"], "test")
    with pytest.raises(UserError, match="answers to other test patches"):
        train_models(world.store, [world.train], out=out, test=other, settings=SETTINGS, options=CPU)


def test_damaged_weights_are_noticed_before_they_answer(world, trained, tmp_path):
    out = shutil.copytree(trained.out, tmp_path / "models")
    path = out / "models" / "plain-fold1.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match="not what was written"):
        ModelFolder(out).load("plain-fold1")
    path.write_bytes(bytes(content)[:-5])
    assert ModelFolder(out).note("plain-fold1") is None, "a file that is cut off is no model"


def test_leaks_are_refused(world, tmp_path):
    with pytest.raises(UserError, match="6 patients are both in the set plain and among the test patches"):
        plan_training(world.store, [world.train], test=world.train, settings=SETTINGS)
    # Another node of a patient who is trained on.
    node = changed(world, tmp_path / "node.parquet", lambda rows: rows.assign(patient_id="p0"), "test")
    with pytest.raises(UserError, match="1 patients are both"):
        plan_training(world.store, [world.train], test=node, settings=SETTINGS)


def test_a_slide_under_another_name_is_noticed(world, tmp_path):
    store = shutil.copytree(world.store, tmp_path / "store")
    notes = {json.loads(path.read_text())["case_id"]: path for path in store.glob("slides/*/slide.json")}
    first, copy = (json.loads(notes[name].read_text()) for name in ("s0", "s7"))
    notes["s7"].write_text(json.dumps(copy | {"slide_sha256": first["slide_sha256"]}))
    with pytest.raises(
        UserError, match="1 slides of the set plain are among the test patches under another name"
    ):
        plan_training(store, [world.train], test=world.test, settings=SETTINGS)


def test_a_fold_without_tumour_slides_is_refused(world, tmp_path):
    settings = replace(SETTINGS, folds=5)
    with pytest.raises(UserError, match=r"fold 5 of 5 has no slide with tumour: 4 of the set's 6 patients"):
        plan_training(world.store, [world.train], test=None, settings=settings)


def test_patches_that_were_never_packed(world, tmp_path):
    elsewhere = changed(world, tmp_path / "far.parquet", lambda rows: rows.assign(i=rows["i"] + 100))
    with pytest.raises(UserError, match="are not in the store"):
        plan_training(world.store, [elsewhere], test=None, settings=SETTINGS)


def test_test_patches_that_are_missing_count_with_the_worst_value(world, trained, tmp_path):
    def shifted(rows):
        rows = rows.copy()
        rows.loc[rows.index[rows["tumour"] > 0][:3], "i"] += 100
        return rows

    out = shutil.copytree(trained.out, tmp_path / "models")
    shutil.rmtree(out / "answers")
    shutil.rmtree(out / "patches")
    table = changed(world, tmp_path / "test.parquet", shifted, "test")
    made = train_models(world.store, [world.train], out=out, test=table, settings=SETTINGS, options=CPU)
    assert made.exit_code == EXIT_INCOMPLETE
    assert any("3 test patches are not in the store" in line for line in made.lines())
    whole, less = (pd.read_parquet(one.out / "patch-scores.parquet") for one in (trained, made))
    assert whole["n_tumour"].sum() == less["n_tumour"].sum()
    assert less["sum_dice"].sum() <= whole["sum_dice"].sum()


def test_missing_patches_have_no_value_and_keep_their_kind():
    facts = pd.DataFrame(
        {"case_id": ["a"] * 3, "i": 0, "j": [0, 1, 2], "type": ["PT", "FN", "PT"], "tumour": [0.5, 0, 1]}
    )
    model = SimpleNamespace(set=SimpleNamespace(name="m"), fold=1)
    counts = np.array([[2, 1, 1, 6], [0, 5, 0, 5]])
    made = answer_rows(facts, np.array([True, True, False]), counts, model)
    assert made["dice"].tolist()[0] == pytest.approx(4 / 6)
    assert made["fpr"].tolist()[1] == 0.5
    assert made["tumour"].tolist() == [1, 0, 1]
    assert made.loc[2, ["dice", "fpr", "tp"]].isna().all()


def test_a_dry_run_writes_nothing(world, tmp_path):
    made = train_models(
        world.store, [world.train], out=tmp_path / "m", test=world.test, settings=SETTINGS, dry_run=True
    )
    assert any("2 models to train, 0 of them are there" in line for line in made.lines())
    assert not (tmp_path / "m").exists()
    assert made.to_dict()["models"] == 2


def test_a_folder_of_something_else_and_a_second_run_are_refused(world, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "letter.txt").write_text("x")
    with pytest.raises(UserError, match="something else"):
        train_models(world.store, [world.train], out=tmp_path / "m", settings=SETTINGS, dry_run=True)
    folder = ModelFolder(tmp_path / "free")
    with folder.locked(), pytest.raises(UserError, match="another run is writing"):
        train_models(world.store, [world.train], out=tmp_path / "free", settings=SETTINGS, options=CPU)


def test_a_training_that_fails_leaves_the_others(world, tmp_path, monkeypatch):
    import elsewhere.training.patches.worker as worker

    check = worker.PatchWorker._check

    def refuse(self, unit):
        if unit.name.endswith("fold1"):
            raise UserError("no luck")
        check(self, unit)

    monkeypatch.setattr(worker.PatchWorker, "_check", refuse)
    made = train_models(
        world.store, [world.train], out=tmp_path / "m", test=world.test, settings=SETTINGS, options=CPU
    )
    assert made.exit_code == EXIT_INCOMPLETE
    assert made.failed == (("plain-fold1", "no luck"),)
    assert made.trained == ("plain-fold2",)
    assert made.scores["folds"].tolist() == [1]


def test_many_models_answer_in_groups_with_the_same_numbers(world, trained, tmp_path, monkeypatch):
    out = shutil.copytree(trained.out, tmp_path / "models")
    shutil.rmtree(out / "patches")
    monkeypatch.setattr(run_module, "MODELS_AT_ONCE", 1)
    monkeypatch.setattr(run_module, "PATCHES_AT_ONCE", 7)
    again = train_models(world.store, [world.train], out=out, test=world.test, settings=SETTINGS, options=CPU)
    for column in ("dice_ID", "fpr_OOD"):
        assert again.scores[column].iloc[0] == pytest.approx(trained.scores[column].iloc[0], abs=2e-3)


def test_sets_need_a_name_of_their_own(world, tmp_path):
    (tmp_path / "b").mkdir()
    twin = changed(world, tmp_path / "b" / "plain.parquet", lambda rows: rows)
    with pytest.raises(UserError, match="two sets are called plain"):
        plan_training(world.store, [world.train, twin], test=None, settings=SETTINGS)
    odd = changed(world, tmp_path / "a b.parquet", lambda rows: rows)
    with pytest.raises(UserError, match="cannot be that of a model"):
        plan_training(world.store, [odd], test=None, settings=SETTINGS)


def test_a_set_without_rows_for_training_is_refused(world, tmp_path):
    none = changed(world, tmp_path / "none.parquet", lambda rows: rows.assign(training=False))
    with pytest.raises(UserError, match="no row of this table is for training"):
        plan_training(world.store, [none], test=None, settings=SETTINGS)


def test_a_pool_that_memory_does_not_hold_is_mapped_and_gives_the_same_models(
    world, trained, tmp_path, monkeypatch
):
    laid, lay_out = [], PatchSet.lay_out

    def watch(self, **options):
        laid.append(options.get("path"))
        return lay_out(self, **options)

    monkeypatch.setattr(PatchSet, "lay_out", watch)
    monkeypatch.setattr(run_module, "free_memory", lambda: 1000.0)
    out = tmp_path / "m"
    train_models(world.store, [world.train], out=out, settings=SETTINGS, options=CPU)
    assert out / "pool.npy" in laid
    assert not (out / "pool.npy").exists()
    one, other = ModelFolder(out).load("plain-fold1"), ModelFolder(trained.out).load("plain-fold1")
    assert all(torch.equal(value, other[part]) for part, value in one.items())
