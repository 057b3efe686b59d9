"""Whole slides on the one path of studies: a hospital's table and folder, planned and run by a recipe that reads them."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")

from elsewhere.commands.plan import plan_study
from elsewhere.commands.run import run_study
from elsewhere.errors import UserError
from elsewhere.study.results import RunKey
from worlds import slide_recipe  # noqa: F401 - registers 'ink'
from worlds.hospital_slides import asap_xml, box, write_slide

STUDY = """
[study]
name = "slides"
[[cohort]]
reader = "slides"
source = "slides"
[scenarios]
kinds = ["external"]
by = "site"
seeds = [1]
[tasks.response]
protocol = "plain"
[recipes.ink]
"""
EACH = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two hospitals of eight slides; those with a response have more ink. The files of one state no scale."""
    folder = tmp_path_factory.mktemp("slides")
    rng = np.random.default_rng(1)
    rows = ["case_id,patient_id,dataset,pcr,stage,mpp"]
    for site, mpp in (("North", None), ("South", 4.0)):
        for number in range(EACH):
            pcr = number % 2
            ink = 120 - 60 * pcr + rng.integers(-10, 10)
            picture = np.full((200, 240, 3), 240, np.uint8)
            picture[40:160, 50 : 160 + 4 * number] = [ink, ink // 2, ink]
            picture = np.clip(picture + rng.normal(0, 3, picture.shape), 0, 255).astype(np.uint8)
            name = f"{site}-{number}"
            write_slide(folder / "slides" / f"{name}.tif", picture, mpp=mpp, tile=128)
            (folder / "slides" / f"{name}.xml").write_text(asap_xml([box(60, 50, 90, 90)]))
            rows.append(f"{name},{name},{site},{pcr},micro,{'' if mpp else 4.0}")
    (folder / "slides" / "table.csv").write_text("\n".join(rows) + "\n")
    (folder / "study.toml").write_text(STUDY)
    return folder


def test_a_study_of_slides_is_planned(world, tmp_path):
    planned = plan_study(world / "study.toml", data=world, out=tmp_path / "out")
    assert len(planned.plan.planned()) == 2 and len(planned.status.todo) == 2
    assert all(about["slides"] == EACH for about in planned.plan.audit()["cohorts"].values())
    assert any("8 with a slide" in line for line in planned.lines())
    assert all(planned.plan.table.cases.digest) and all(planned.plan.table.cases.mask_digest)


def test_it_runs_and_no_truth_of_predicted_slides_is_shown(world, tmp_path):
    done = run_study(world / "study.toml", data=world, out=tmp_path / "out", device="cpu", report=False)
    results = done.run.results
    assert results.runs["status"].eq("done").all(), results.runs["reason"].tolist()
    for row in results.runs.to_dict("records"):
        key = RunKey(row["task"], row["method"], row["scenario"], row["seed"])
        answers = results.predictions(key).table
        assert len(answers) == EACH and answers["probability"].between(0, 1).all()


def test_annotations_of_another_slide_stop_the_plan_with_the_name_of_the_case(world, tmp_path):
    copy = shutil.copytree(world, tmp_path / "copy")
    (copy / "slides" / "South-3.xml").write_text(asap_xml([box(9000, 50, 90, 90)]))
    (copy / "slides" / "South-4.tif").write_bytes(b"II*\0broken")
    with pytest.raises(
        UserError, match=r"(?s)slide of case 'South/South-3' cannot be used.*likewise South/South-4"
    ):
        plan_study(copy / "study.toml", data=copy, out=tmp_path / "out")


def test_the_same_slide_under_two_patients_stays_in_one_group(world, tmp_path):
    copy = shutil.copytree(world, tmp_path / "copy")
    shutil.copyfile(copy / "slides" / "South-1.tif", copy / "slides" / "South-2.tif")
    plan = plan_study(copy / "study.toml", data=copy, out=tmp_path / "out").plan
    groups = plan.table.frame.set_index("case_id")["group"]
    assert groups["South-1"] == groups["South-2"] and groups.nunique() == 2 * EACH - 1
