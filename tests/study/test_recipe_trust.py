"""What a study must not let through: one woman on both sides, and the outcome among what a recipe is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from elsewhere.commands.plan import plan_study
from elsewhere.commands.run import run_study
from elsewhere.errors import UserError
from worlds.mri_study import STUDY as TINY
from worlds.mri_study import make_study, make_world

STUDY = """
[study]
name = "two-sets"
[[cohort]]
source = "one.csv"
[[cohort]]
source = "other.csv"
[scenarios]
kinds = ["external"]
seeds = [1]
[tasks.response]
[recipes.random]
baseline = true
[recipes.clinical]
settings = { columns = ["age"] }
"""
WOMEN = 12


@pytest.fixture
def two_sets(tmp_path) -> Path:
    """Two publications of overlapping women, by ids of their own; the second names the first's."""
    one = pd.DataFrame(
        {
            "case_id": [f"MM_{at:02d}" for at in range(WOMEN)],
            "dataset": "MM",
            "modality": "MRI",
            "age": range(40, 40 + WOMEN),
            "pcr": [at % 2 for at in range(WOMEN)],
        }
    )
    other = one.assign(
        case_id=[f"B{at}" for at in range(WOMEN)],
        dataset="BD",
        mamamia_id=[f"mm_{at:02d}" if at < 4 else None for at in range(WOMEN)],
    )
    for name, frame in (("one", one), ("other", other)):
        frame.assign(patient_id=frame["case_id"]).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def test_a_woman_of_two_sets_never_trains_where_she_is_tested(two_sets, tmp_path):
    plan = plan_study(two_sets, out=tmp_path / "out").plan
    shared = {f"MM/MM_{at:02d}": f"BD/B{at}" for at in range(4)}
    assert set(plan.partitions) == {("MM>BD", 1), ("BD>MM", 1)}
    for (name, _), made in plan.partitions.items():
        learnt = {*made.train, *made.validation}
        assert len(learnt) == WOMEN - 4 and len(made.test) == WOMEN, name
        assert not learnt & {*shared, *shared.values()}
    groups = plan.table.frame.set_index("case")["group"]
    assert all(groups[one] == groups[other] for one, other in shared.items())
    assert groups.nunique() == 2 * WOMEN - 4
    assert any("4 patients are in two datasets" in word for word in plan.table.audit["warnings"])


def test_each_set_may_have_a_column_of_its_own_for_the_ids_of_another(two_sets, tmp_path):
    other = pd.read_csv(tmp_path / "other.csv").rename(columns={"mamamia_id": "other_patient_id"})
    other.to_csv(tmp_path / "other.csv", index=False)
    one = pd.read_csv(tmp_path / "one.csv")
    one.assign(mamamia_id=["B9" if at == 8 else None for at in range(WOMEN)]).to_csv(
        tmp_path / "one.csv", index=False
    )
    plan = plan_study(two_sets, out=tmp_path / "out").plan
    groups = plan.table.frame.set_index("case")["group"]
    pairs = {("MM_08", "B9"), *((f"MM_{at:02d}", f"B{at}") for at in range(4))}
    assert all(groups[f"MM/{one}"] == groups[f"BD/{other}"] for one, other in pairs)
    assert groups.nunique() == 2 * WOMEN - 5
    assert {plan.about["patients"][f"BD/B{at}"][1] for at in range(2)} == {"mm_00", "mm_01"}


@pytest.mark.parametrize("column", ["pcr", "mask", "days_to_recurrence"])
def test_what_tells_the_outcome_is_no_clinical_column(two_sets, tmp_path, column):
    two_sets.write_text(STUDY.replace('name = "two-sets"', f'name = "leak"\nclinical = ["age", "{column}"]'))
    with pytest.raises(UserError, match=column):
        plan_study(two_sets, out=tmp_path / "out")


def test_what_nobody_could_be_asked_is_said(two_sets, tmp_path):
    one = pd.read_csv(tmp_path / "one.csv")
    one.assign(pcr=0).to_csv(tmp_path / "one.csv", index=False)
    one.assign(dataset="TH").to_csv(tmp_path / "third.csv", index=False)
    two_sets.write_text(STUDY.replace("[scenarios]", '[[cohort]]\nsource = "third.csv"\n[scenarios]'))
    ran = run_study(two_sets, out=tmp_path / "out", device="cpu", report=False)
    told = [line for line in ran.lines() if line.startswith("skipped: response in ")]
    assert len(told) == 4 and all("(random, clinical): one outcome (no pCR)" in line for line in told)
    assert {line.split()[3] for line in told} == {"MM>BD", "MM>TH", "BD>MM", "TH>MM"}


def test_a_case_of_one_phase_stops_the_study_by_name(tmp_path):
    world = make_world(tmp_path / "world")
    for phase in (1, 2):
        (world / "images" / "DUKE_001" / f"duke_001_{phase:04d}.nii.gz").unlink()
    file = make_study(
        tmp_path, TINY.split("[tasks.segmentation]")[0] + "[tasks.response]\n[recipes.random]\n"
    )
    with pytest.raises(UserError, match="DUKE/DUKE_001' has one phase alone"):
        plan_study(file, data=world, out=tmp_path / "out")


def test_a_patient_without_a_volume_does_not_cost_image_recipes_their_place(tmp_path):
    world = make_world(tmp_path / "world")
    shutil.rmtree(world / "images" / "DUKE_001")
    recipes = "[tasks.response]\n[recipes.random]\n[recipes.radiomics]\n"
    file = make_study(tmp_path, TINY.split("[tasks.segmentation]")[0] + recipes)
    plan = plan_study(file, data=world, out=tmp_path / "out").plan
    runs = plan.runs[plan.runs["scenario"] == "rest>DUKE"].to_dict(orient="records")
    tested = {run["method"]: plan.tested(run) for run in runs}
    assert tested["random"] == tested["radiomics"] and len(tested["random"]) == 5
    assert [run["test"] for run in runs] == [5, 5]
    alone = make_study(tmp_path, file.read_text().replace("[recipes.radiomics]", ""))
    plan = plan_study(alone, data=world, out=tmp_path / "out").plan
    assert len(plan.tested(plan.runs.to_dict(orient="records")[0])) == 6


def test_home_and_elsewhere_are_never_one_mean_in_the_terminal(two_sets, tmp_path):
    text = STUDY.replace('kinds = ["external"]', 'kinds = ["external", "folds"]\nfolds = 2')
    two_sets.write_text(text)
    ran = run_study(two_sets, out=tmp_path / "out", device="cpu", report=False)
    told = [line for line in ran.lines() if "means over" in line]
    assert [line.split(" (")[0] for line in told] == ["response, external", "response, folds"]
    assert "(means over 2 scenarios, 1 seeds)" in told[0]
