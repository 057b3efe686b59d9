"""Detection on the one path of studies: a phantom world of two vendors, from the published tables to a checked bundle."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="training needs torch (pip install elsewhere[train])")
pytest.importorskip("pydicom", reason="volumes need pydicom (pip install elsewhere[volumes])")
pytest.importorskip("imagecodecs", reason="volumes need imagecodecs (pip install elsewhere[volumes])")

from elsewhere.analysis.study.boards import pooled
from elsewhere.analysis.study.froc import POPULATIONS
from elsewhere.cohort import read_cohort
from elsewhere.commands.check_bundle import check_bundle
from elsewhere.commands.plan import plan_study
from elsewhere.commands.predict import predict
from elsewhere.commands.run import run_study
from elsewhere.errors import UserError
from elsewhere.phantom.tomosynthesis_layout import write_world
from elsewhere.phantom.tomosynthesis_patients import World
from elsewhere.scoring.prepared import prepare
from elsewhere.scoring.task import ScoreOptions
from elsewhere.study.results import RunKey

DRAWS_FIGURES = True
VENDORS = ("Synthetic vendor A", "Synthetic vendor B")
MAIN = "mean_sensitivity_1_to_4"
STUDY = """
[study]
name = "two-vendors"
keep_weights = ["*>*"]
[[cohort]]
reader = "bcs-dbt"
source = "{data}"
options = { volumes = true, site_by_vendor = true }
[scenarios]
kinds = ["external", "folds"]
folds = 2
by = "site"
seeds = [1]
[tasks.detection]
protocol = "phantom-small"
verdict_margin = 0.1
[recipes.dense-detector]
baseline = true
[recipes.dense-detector.settings]
network = "dense-one-stage-tiny"
pixel = 1.0
tile = [128, 96]
epochs = 1
lesion_slices = 24
batch = 8
learning_rate = 0.003
floor_px = 8.0
[analyses]
resamples = 50
"""


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory):
    """A cache of volumes of its own, and one core: threads of torch that wait for each other spin on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELSEWHERE_VOLUME_CACHE", str(tmp_path_factory.mktemp("volumes")))
        patch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Ten patients per vendor, and a study of them."""
    folder = tmp_path_factory.mktemp("tomosynthesis")
    write_world(World(vendors=("A", "B"), patients=10, size="small"), folder / "world")
    (folder / "study.toml").write_text(STUDY)
    return folder


@pytest.fixture(scope="module")
def ran(made):
    done = run_study(
        made / "study.toml", data=made / "world", out=made / "out", bundle=made / "bundle", device="cpu"
    )
    assert done.run.results.runs["status"].eq("done").all(), done.run.results.runs["reason"].tolist()
    return made, done


def test_the_plan_stratifies_by_lesions_and_parts_no_patient(made, tmp_path):
    plan = plan_study(made / "study.toml", data=made / "world", out=tmp_path / "out").plan
    frame = plan.table.frame.set_index("case")
    assert set(frame["dataset"]) == set(VENDORS) and set(frame["collection"]) == {"BCS-DBT"}
    assert set(frame["label"]) == {"with a lesion", "without a lesion"}
    lesions = set(plan.table.cohort.lesions["case_id"])
    assert all((row.label == "with a lesion") == (row.case_id in lesions) for row in frame.itertuples())
    for split in plan.partitions.values():
        held = [set(frame.loc[list(part), "patient"]) for part in (split.train, split.validation, split.test)]
        assert not held[0] & held[1] and not held[0] & held[2] and not held[1] & held[2]
        assert {*frame.loc[list(split.train), "label"]} == {"with a lesion", "without a lesion"}
    external = plan.partitions[f"{VENDORS[0]}>{VENDORS[1]}", 1]
    assert set(frame.loc[list(external.train), "dataset"]) == {VENDORS[0]}
    assert len(external.test) == 20 and set(frame.loc[list(external.test), "dataset"]) == {VENDORS[1]}


def test_predictions_are_the_challenges_csv_and_give_the_scores(ran):
    folder, done = ran
    results = done.run.results
    key = RunKey("detection", "dense-detector", f"{VENDORS[0]}>{VENDORS[1]}", 1)
    file = results.folder(key) / "boxes.csv"
    table = pd.read_csv(file)
    assert list(table.columns[:3]) == ["PatientID", "StudyUID", "View"]
    patients = results.cohort.cases.set_index("case_id")["patient_id"]
    named = table["StudyUID"] + "/" + table["View"]
    assert (patients[named].to_numpy() == table["PatientID"].to_numpy()).all()
    again = results.predictions(key)
    assert again.extras["form"] == "dbtex" and len(again.table) == len(table)
    events = pd.read_parquet(folder / "out" / "events_detection.parquet")
    assert set(events["kind"]) <= {"tp", "fp", "fn", "duplicate"}
    of_run = events[events["scenario"] == key.scenario]
    assert of_run["score"].notna().sum() == len(table)


def test_the_report_has_curves_with_bands_intervals_and_verdicts(ran):
    folder, _ = ran
    tables = folder / "out" / "report" / "tables"
    froc = pd.read_csv(tables / "froc.csv")
    assert set(froc["volumes"]) == set(POPULATIONS.values())
    assert (froc["lo"] <= froc["sensitivity"] + 1e-9).mean() > 0.9 and froc["hi"].notna().all()
    for _, curve in froc.groupby(["board", "method", "volumes"]):
        assert curve["false_positives"].is_monotonic_increasing and curve["sensitivity"].between(0, 1).all()
    board = pd.read_csv(tables / "leaderboard.csv")
    for name in (MAIN, "sensitivity_at_2_all"):
        assert {name, f"{name}_lo", f"{name}_hi"} <= set(board.columns)
    assert (board["seconds"] > 0).all()
    transfers = pd.read_csv(tables / "transfers.csv")
    assert len(transfers) == 2 and set(transfers["metric"]) == {MAIN}
    assert set(transfers["verdict"]) <= {"EQUIVALENT", "BELOW", "ABOVE", "INCONCLUSIVE"}
    assert transfers[["lo90", "hi90", "margin", "internal"]].notna().all().all()
    page = (folder / "out" / "report" / "report.html").read_text(encoding="utf-8")
    assert "FROC curves" in page and "DBT-P" not in page and "DBT-S" not in page
    datasets = pd.read_csv(tables / "datasets.csv")
    assert int(datasets["with_lesions"].iloc[0]) + int(datasets["without_lesions"].iloc[0]) == 40


def test_pooled_scenarios_have_the_events_of_all(ran):
    _, done = ran
    results = done.run.results
    parts = [scores for key, scores in results.scores.items() if ">" in key.scenario]
    both = pooled(parts)
    assert len(both.events) == sum(len(part.events) for part in parts)
    found = prepare(both, ScoreOptions()).evaluator.values()["mean_sensitivity_1_to_4_all"]
    each = [prepare(part, ScoreOptions()).evaluator.values()["mean_sensitivity_1_to_4_all"] for part in parts]
    assert found <= max(each) + 1e-9
    first = parts[0]
    some = first.take(np.arange(len(first.cases))[::2])
    assert set(some.events["case_id"]) <= set(some.cases["case_id"])
    assert 0 < len(some.events) < len(first.events)


def test_the_bundle_is_recomputed_and_a_changed_box_or_lesion_is_noticed(ran, tmp_path):
    folder, _ = ran
    bundle = folder / "bundle"
    assert {"lesions.csv", "events_detection.parquet"} <= {path.name for path in bundle.iterdir()}
    assert check_bundle(bundle).exit_code == 0
    changed = tmp_path / "changed"
    shutil.copytree(bundle, changed)
    table = pd.read_csv(changed / "lesions.csv")
    table.assign(x=table["x"] + 60).to_csv(changed / "lesions.csv", index=False)
    assert check_bundle(changed).exit_code != 0


def test_a_second_run_trains_nothing_and_a_changed_setting_trains_anew(ran):
    folder, _ = ran
    again = run_study(
        folder / "study.toml", data=folder / "world", out=folder / "out", device="cpu", report=False
    )
    assert not again.run.engine.done
    plan = plan_study(
        folder / "study.toml",
        data=folder / "world",
        out=folder / "out",
        changes=["recipes.dense-detector.settings.epochs=2"],
    )
    assert len(plan.status.todo) == 6


def test_volumes_without_a_vendor_are_a_site_and_the_option_needs_volumes(made, monkeypatch):
    with pytest.raises(UserError, match="no volume is asked for"):
        read_cohort("bcs-dbt", made / "world", site_by_vendor=True)
    from elsewhere.inputs.tomosynthesis import source

    whole = source.read_header
    monkeypatch.setattr(source, "read_header", lambda path: replace(whole(path), maker=""))
    cohort = read_cohort("bcs-dbt", made / "world", volumes=True, site_by_vendor=True)
    assert set(cohort.cases["site"]) == {"vendor not known"}
    assert any("40 volumes state no vendor" in word for word in cohort.warnings)


def test_a_vendor_without_lesions_is_skipped_with_its_reason(made, tmp_path):
    world = tmp_path / "world"
    shutil.copytree(made / "world", world)
    truth = pd.read_csv(world / "truth.csv").set_index("case_id")["vendor"]
    for file in world.glob("*boxes*.csv"):
        table = pd.read_csv(file)
        names = table["StudyUID"] + "/" + table["View"].str.lower()
        table[truth.reindex(names).to_numpy() != "B"].to_csv(file, index=False)
    plan = plan_study(made / "study.toml", data=world, out=tmp_path / "out").plan
    runs = plan.runs.set_index("scenario")
    assert "that it is tested on is with a lesion" in runs.loc[f"{VENDORS[0]}>{VENDORS[1]}", "reason"]
    assert "that it trains on is with a lesion" in runs.loc[f"{VENDORS[1]}>{VENDORS[0]}", "reason"]


def test_a_saved_model_predicts_the_other_vendor_as_the_challenges_csv(ran, tmp_path):
    folder, done = ran
    cohort = read_cohort("bcs-dbt", folder / "world", volumes=True, site_by_vendor=True)
    other = cohort.subset(cohort.cases["site"] == VENDORS[1])
    other = replace(other, root=folder / "world")
    found = predict(
        folder / "out" / "store",
        other,
        model=f"{VENDORS[0]}>*",
        out=tmp_path / "predicted",
        device="cpu",
    )
    table = pd.read_csv(tmp_path / "predicted" / "boxes.csv")
    key = RunKey("detection", "dense-detector", f"{VENDORS[0]}>{VENDORS[1]}", 1)
    before = pd.read_csv(done.run.results.folder(key) / "boxes.csv")
    order = ["StudyUID", "View", "Score", "X", "Y"]
    one, two = (held.sort_values(order, ignore_index=True) for held in (table, before))
    pd.testing.assert_frame_equal(one, two)
    assert found.summary["files"] == {"detection": "boxes.csv"}


def test_a_cohort_without_a_table_of_lesions_is_not_annotated(made, tmp_path):
    cohort = read_cohort("bcs-dbt", made / "world", volumes=True)
    rows = cohort.cases.iloc[:8].assign(
        dataset="Elsewhere", image=[str(cohort.file(name)) for name in cohort.cases["image"].iloc[:8]]
    )
    rows.drop(columns=["site"]).to_csv(tmp_path / "plain.csv", index=False)
    text = STUDY.replace("[scenarios]", f'[[cohort]]\nsource = "{tmp_path / "plain.csv"}"\n[scenarios]')
    (tmp_path / "study.toml").write_text(text.replace('by = "site"', 'by = "dataset"'))
    plan = plan_study(tmp_path / "study.toml", data=made / "world", out=tmp_path / "out").plan
    frame = plan.table.frame
    assert set(frame.loc[frame["dataset"] == "Elsewhere", "label"]) == {"not annotated"}
    runs = plan.runs.set_index("scenario")
    assert "no case of the test part" in runs.loc["BCS-DBT>Elsewhere", "reason"]
    left = {row["reason"]: row["rows"] for row in plan.table.audit["left_out"]}
    assert left == {"not annotated": 8}
