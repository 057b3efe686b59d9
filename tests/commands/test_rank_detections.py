"""`rank` on detections: the zip of published predictions, the printed table, hit rules, and who finds what."""

from __future__ import annotations

import json
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest

from elsewhere.report.summary import write_figures

TEAMS = {
    "alpha": "NYU B-Team",
    "beta": "ZeDuS",
    "gamma": "VICOROB",
    "delta": "prarit",
}


@pytest.fixture(scope="module")
def finders(made_once):
    """A phantom of four finders, and its likeness under the names of teams, not marked as synthetic."""
    from elsewhere.commands.phantom_detections import detections

    def make(folder):
        detections(folder / "phantom", patients=40, finders=4)
        likeness = folder / "likeness"
        likeness.mkdir()
        for table in (folder / "phantom").glob("BCS-DBT*"):
            shutil.copy(table, likeness)
        with zipfile.ZipFile(likeness / "predictions.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for split in ("validation", "test"):
                for finder, team in TEAMS.items():
                    source = folder / "phantom" / "phase1" / split / f"{finder}.csv"
                    archive.write(source, f"team_predictions/phase1/{split}/{team}.csv")
                    if finder in ("alpha", "beta"):
                        archive.write(source, f"team_predictions/phase2/{split}/{team}.csv")
            archive.writestr("__MACOSX/phase1/test/._ZeDuS.csv", "x")

    return made_once("finders-to-rank", make)


@pytest.fixture(scope="module")
def ranked(finders, tmp_path_factory):
    """Phase 1 of the likeness, ranked with hit rules: what was printed, and the folder."""
    from commands.conftest import call

    out = tmp_path_factory.mktemp("ranked") / "ranking"
    likeness = finders / "likeness"
    done = call(
        "rank",
        likeness / "predictions.zip",
        "--cohort",
        likeness,
        "--phase",
        1,
        "--split",
        "test",
        "--resamples",
        60,
        "--hit-rules",
        "--out",
        out,
    )
    assert done.code == 0, done.said
    return done, out


def test_the_zip_and_the_unpacked_folder_rank_the_same(finders, ranked, run, tmp_path):
    likeness = finders / "likeness"
    with zipfile.ZipFile(likeness / "predictions.zip") as archive:
        archive.extractall(tmp_path)
    cohort = tmp_path / "cohort"
    assert run("cohort", "read", "bcs-dbt", likeness, "--out", cohort).code == 0
    done = run(
        "rank",
        tmp_path / "team_predictions" / "phase1" / "test",
        "--cohort",
        cohort,
        "--task",
        "detection",
        "--where",
        "split=test",
        "--resamples",
        60,
        "--json",
    )
    assert done.code == 0, done.said
    summary = json.loads((ranked[1] / "summary.json").read_text())
    assert done.json["ranking"]["table"] == summary["ranking"]["table"]
    assert done.json["who_finds_what"] == summary["who_finds_what"]
    assert done.json["lesions_paired"] == summary["lesions_paired"]
    assert "hit_rules" not in done.json and "published" not in done.json


def test_the_printed_table_stands_next_to_ours(ranked):
    done, out = ranked
    part = json.loads((out / "summary.json").read_text())["published"]
    rows = {row["model"]: row for row in part["rows"]}
    assert rows["NYU B-Team"]["printed_value"] == 0.912 and rows["NYU B-Team"]["printed_rank"] == "1"
    assert (rows["ZeDuS"]["printed_lo"], rows["ZeDuS"]["printed_hi"]) == (0.85, 0.947)
    assert rows["prarit"]["difference"] == pytest.approx(rows["prarit"]["value"] - 0.805)
    assert rows["VICOROB"]["lo"] < rows["VICOROB"]["value"] < rows["VICOROB"]["hi"]
    assert set(part["printed_without_a_file"]) == {"UCLA-MII", "pranjalsahu", "Team-PittRad", "coolwulf"}
    assert part["same_number_of_patients_and_volumes"] is False
    assert "the printed values are of other volumes" in done.out
    assert "10.1001/jamanetworkopen.2023.0524" in done.out


def test_files_that_are_not_read_are_said(ranked):
    assert "Not read in the archive: 1 file (added by the operating system)." in ranked[0].out


def test_a_synthetic_cohort_is_not_compared_with_the_printed_table(finders, run):
    phantom = finders / "phantom"
    done = run(
        "rank",
        phantom / "team_predictions_bothphases.zip",
        "--cohort",
        phantom,
        "--where",
        "split=test",
        "--resamples",
        0,
        "--json",
    )
    assert done.code == 0, done.said
    assert "published" not in done.json
    assert any("synthetic" in warning for warning in done.json["warnings"])


def test_what_is_shared_names_no_case_and_the_lesions_stay(finders, ranked):
    out = ranked[1]
    lesions = pd.read_csv(out / "lesions.csv")
    summary = json.loads((out / "summary.json").read_text())
    assert (
        len(lesions)
        == summary["who_finds_what"]["lesions"]
        == summary["hit_rules"]["paper_and_code"]["lesions"]
    )
    for name in ("summary.json", "report.html", "hit_rules.csv"):
        text = (out / name).read_text()
        assert not any(case in text for case in lesions["case_id"])
        assert "DBT-S" not in text and "DBT-P" not in text
    shared, local = (out / "SHARING.txt").read_text().split("Stay with the data")
    assert "hit_rules.csv" in shared and "lesions.csv" in local and "lesions.csv" not in shared
    found = (lesions[[f"fp_per_volume {team}" for team in TEAMS.values()]] <= 4.0).sum(axis=1)
    assert found.tolist() == lesions["detected_by"].tolist()
    assert lesions["difficulty_rank"].is_monotonic_increasing


def test_hit_rules_agree_with_the_ranking(ranked):
    out = ranked[1]
    summary = json.loads((out / "summary.json").read_text())
    table = pd.read_csv(out / "hit_rules.csv")
    assert len(table) == 60 * 4 and summary["hit_rules"]["rules"] == 60
    values = {row["model"]: row["value"] for row in summary["ranking"]["table"]}
    own = table[
        (table["in_plane"] == "radius, at least 100 px")
        & (table["slice_tolerance"] == 0.25)
        & (table["matching"] == "nearest")
    ]
    assert own.set_index("model")["value"].to_dict() == pytest.approx(values, abs=0)
    for row in summary["hit_rules"]["models"]:
        assert row["value"] == values[row["model"]]
        assert row["lowest_value"] <= row["value"] <= row["highest_value"]
        assert row["rank_lo"] <= row["rank"] <= row["rank_hi"]


def test_the_page_has_its_sections_and_figures(ranked, tmp_path):
    out = ranked[1]
    page = (out / "report.html").read_text()
    for heading in ("Hit rules", "Who finds what", "Lesion by lesion", "Comparison with the printed table"):
        assert heading in page
    assert "architectural distortion: yes" in page
    assert "The challenge&#39;s paper and its code allow another distance on" in page
    names = {
        path.stem
        for path in write_figures(json.loads((out / "summary.json").read_text()), tmp_path, formats=("svg",))
    }
    assert {"hit-rule-map", "hit-rule-ranks", "added-lesions", "best-sets", "difficulty"} <= names


def test_a_team_that_cannot_be_read_does_not_stop_the_others(finders, run, tmp_path):
    likeness = finders / "likeness"
    archive = tmp_path / "predictions.zip"
    shutil.copy(likeness / "predictions.zip", archive)
    with zipfile.ZipFile(archive, "a") as more:
        more.writestr("team_predictions/phase2/test/zedus (1).csv", "x")
        more.writestr("team_predictions/phase2/test/broken\x1b[2J.csv", "PatientID,StudyUID\n")
    done = run(
        "rank", archive, "--cohort", likeness, "--phase", 2, "--split", "test", "--resamples", 0, "--json"
    )
    assert done.code == 5, done.said
    assert [row["model"] for row in done.json["ranking"]["table"]] == ["NYU B-Team"]
    failed = {row["model"]: row["why"] for row in done.json["ranking"]["failed"]}
    assert set(failed) == {"ZeDuS", "broken\\x1b[2J"}
    assert "2 files with different content" in failed["ZeDuS"]
    assert "StudyUID" in failed["broken\\x1b[2J"] and "/tmp" not in str(failed)


def test_choices_that_contradict_each_other(finders, run, tmp_path):
    likeness = finders / "likeness"
    archive = likeness / "predictions.zip"
    base = ("rank", archive, "--cohort", likeness, "--resamples", 0)
    several = run(*base)
    assert several.code == 64 and "--phase and --split" in several.err
    assert run(*base, "--phase", 1, "--split", "test", "--where", "split=validation").code == 64
    none = run(*base, "--phase", 3, "--split", "test")
    assert none.code == 64 and "no predictions of phase 3" in none.err
    assert run("rank", archive).code == 64
    two = run("rank", archive, archive, "--cohort", likeness)
    assert two.code == 64 and "alone" in two.err
    assert run("rank", tmp_path, "--hit-rules").code == 64
    assert run("rank", tmp_path / "no.zip", "--cohort", likeness).code == 64


def test_hit_rules_are_those_of_detection(pair, run, tmp_path):
    done = run("rank", pair.predictions, "--cohort", pair.cohort, "--task", "classification", "--hit-rules")
    assert done.code == 64 and "hit rules are those of detection" in done.err


@pytest.fixture
def small_group(tmp_path):
    """A cohort in which three patients have a cancer and twelve a benign lesion, and two models."""
    from elsewhere.cohort import Cohort

    n = 15
    ids = [f"S{i:02d}/lcc" for i in range(n)]
    cases = pd.DataFrame({"case_id": ids, "patient_id": [f"P{i:02d}" for i in range(n)]})
    lesion = {"x": 500, "y": 500, "width": 100, "height": 100, "slice": 20, "volume_slices": 80}
    lesions = pd.DataFrame([{"case_id": name, "lesion_id": "1", **lesion} for name in ids])
    lesions["class"] = ["cancer"] * 3 + ["benign"] * 12
    Cohort.from_frame(cases, lesions=lesions).save(tmp_path / "cohort")
    box = {"x": 510, "y": 510, "width": 90, "height": 90, "z": 19, "depth": 2, "score": 0.9}
    (tmp_path / "subs").mkdir()
    for name, found in (("a", ids), ("b", ids[2:9])):
        pd.DataFrame([{"case_id": case, **box} for case in found]).to_csv(
            tmp_path / "subs" / f"{name}.csv", index=False
        )
    return tmp_path


def test_groups_of_few_patients_are_withheld(small_group, run):
    done = run(
        "rank",
        small_group / "subs",
        "--cohort",
        small_group / "cohort",
        "--task",
        "detection",
        "--resamples",
        20,
        "--json",
    )
    assert done.code == 0, done.said
    for key in ("difficulty", "lesions_paired"):
        rows = {row["level"]: row for row in done.json[key]["strata"]}
        assert rows["cancer"]["patients"] == "<5"
        assert [rows["cancer"].get(name) for name in ("lesions", "found_by_any", "only_a", "p")] == [None] * 4
        assert rows["benign"]["patients"] == "≈10" and rows["benign"]["lesions"] is None


def test_compare_says_which_lesions_differ(small_group, run, tmp_path):
    for name in "ab":
        done = run(
            "score",
            "detection",
            small_group / "cohort",
            small_group / "subs" / f"{name}.csv",
            "--resamples",
            0,
            "--out",
            tmp_path / f"result_{name}",
        )
        assert done.code == 0, done.said
    out = tmp_path / "comparison"
    done = run("compare", tmp_path / "result_a", tmp_path / "result_b", "--resamples", 200, "--out", out)
    assert done.code == 0, done.said
    assert "result_a alone finds 8 and result_b alone 0" in done.out
    (row,) = json.loads((out / "summary.json").read_text())["lesions_paired"]["pairs"]
    assert (row["both"], row["only_a"], row["only_b"], row["discordant_patients"]) == (7, 8, 0, 8)
    # 15 patients act, so that exchanges are drawn; with one lesion each, the test is close to McNemar's.
    assert row["p"] == pytest.approx(2 / 2**8, abs=0.02) and row["lo"] < 8 / 15 < row["hi"]
    assert "Lesion by lesion" in (out / "report.html").read_text()


def test_one_model_and_models_without_boxes(small_group, run):
    (small_group / "subs" / "b.csv").write_text("case_id,x,y,width,height,z,depth,score\n")
    base = (
        "--cohort",
        small_group / "cohort",
        "--task",
        "detection",
        "--resamples",
        20,
        "--hit-rules",
        "--json",
    )
    one = run("rank", small_group / "subs" / "a.csv", *base)
    assert one.code == 0, one.said
    assert "lesions_paired" not in one.json and one.json["hit_rules"]["changing_pairs"] == []
    assert one.json["who_finds_what"]["pairs"] == []
    two = run("rank", small_group / "subs", *base)
    assert two.code == 0, two.said
    assert two.json["who_finds_what"]["models"][1]["found"] == 0
    assert two.json["hit_rules"]["models"][1]["highest_value"] == 0.0
    assert np.isfinite(two.json["lesions_paired"]["pairs"][0]["p"])
