"""`rank --pictures` and `score detection --pictures`: from volumes on demand to a page that names nobody."""

from __future__ import annotations

import csv
import re
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest

from commands.conftest import call

PLAIN = ("--protocol", "phantom-small", "--resamples", "0")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A cohort with volumes that are drawn when they are read, and the files of two finders."""
    folder = tmp_path_factory.mktemp("pictured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELSEWHERE_VOLUME_CACHE", str(folder / "cache"))
        made = call("phantom", "tomosynthesis", folder / "world", "--vendors", "A", "--patients", 5, "--splits", "0.2,0.2,0.6", "--on-demand")  # fmt: skip
        assert made.code == 0, made.err
        read = call("cohort", "read", "bcs-dbt", folder / "world", "--volumes", "--out", folder / "cohort")
        assert read.code == 0, read.err
        (folder / "finders").mkdir()
        cohort = pd.read_parquet(folder / "cohort" / "cases.parquet")
        lesions = pd.read_parquet(folder / "cohort" / "lesions.parquet")
        rng = np.random.default_rng(1)
        for name, share in (("ash", 0.8), ("elm", 0.4)):
            said = lesions[rng.random(len(lesions)) < share].assign(z=lesions["slice"] - 1, depth=3)
            said["score"] = rng.random(len(said))
            false = pd.DataFrame(
                {"case_id": cohort["case_id"], "x": 70.0, "y": rng.integers(60, 120, len(cohort))}
            )
            false = false.assign(width=18.0, height=14.0, z=5, depth=2, score=0.6 * rng.random(len(cohort)))
            columns = ["case_id", "x", "y", "width", "height", "z", "depth", "score"]
            pd.concat([said[columns], false[columns]]).to_csv(folder / "finders" / f"{name}.csv", index=False)
        yield folder


@pytest.fixture(scope="module")
def ranked(world):
    done = call("rank", world / "finders", "--cohort", world / "cohort", "--task", "detection", *PLAIN,
                "--pictures", "--picture-count", 3, "--out", world / "ranking")  # fmt: skip
    assert done.code == 0, done.err
    return done, world / "ranking"


def ids_in(world) -> set[str]:
    cases = pd.read_parquet(world / "cohort" / "cases.parquet")
    lesions = pd.read_parquet(world / "cohort" / "lesions.parquet")
    named = {*cases["case_id"], *cases["patient_id"], *cases["image"].dropna(), *lesions["lesion_id"]}
    return {str(one) for one in named}


def visible(html: str) -> str:
    return re.sub(r"data:image/jpeg;base64,[^\"]*|<script type=\"application/json\">[^<]*", "", html)


def test_a_ranking_shows_lesions_and_false_positives(ranked):
    done, folder = ranked
    assert "pictures of 3 lesions and 3 false positives" in done.out
    html = (folder / "report.html").read_text()
    assert html.count('class="strip-view"') == 6
    assert "Lesion 3 (volume" in html and "ash" in html and "elm" in html


def test_the_page_and_the_summary_name_nobody_and_the_key_file_does(ranked, world):
    _, folder = ranked
    html = visible((folder / "report.html").read_text())
    named = [one for one in ids_in(world) if one in html or one in (folder / "summary.json").read_text()]
    assert named == []
    with (folder / "case_key.csv").open() as file:
        key = {row["case"]: row["case_id"] for row in csv.DictReader(file)}
    assert {"lesion 1", "lesion 3", "false positive 1", "volume 1"} <= set(key)
    hardest = pd.read_csv(folder / "lesions.csv").iloc[0]
    assert key["lesion 1"] == f"{hardest['case_id']}, lesion {hardest['lesion_id']}"
    assert (folder / "case_key.csv").stat().st_mode & 0o077 == 0
    shared, _, guarded = (
        (folder / "SHARING.txt").read_text().partition("Share only where you may share the images")
    )
    assert "report.html" not in shared and "summary.json" in shared
    assert guarded.index("report.html") < guarded.index("Stay with the data") < guarded.index("case_key.csv")


def test_without_pictures_a_ranking_is_as_it_was(world, ranked):
    out = world / "plain"
    done = call("rank", world / "finders", "--cohort", world / "cohort", "--task", "detection", *PLAIN, "--out", out)  # fmt: skip
    assert done.code == 0 and "pictures of" not in done.out
    assert "base64" not in (out / "report.html").read_text()
    assert (out / "summary.json").read_bytes() == (ranked[1] / "summary.json").read_bytes()
    assert "images" not in (out / "SHARING.txt").read_text()


def test_one_model_and_its_result_can_be_read_again(world):
    out = world / "result"
    done = call("score", "detection", world / "cohort", world / "finders" / "elm.csv", *PLAIN,
                "--pictures", "--picture-count", 2, "--out", out)  # fmt: skip
    assert done.code == 0, done.err
    assert "pictures of 2 lesions and 2 false positives" in done.out
    html = (out / "report.html").read_text()
    assert html.count('class="strip-view"') == 4
    assert [one for one in ids_in(world) if one in visible(html)] == []
    again = call("report", out, "--out", world / "again.html")
    assert again.code == 0, again.err
    assert "base64" not in (world / "again.html").read_text()


def test_volumes_that_cannot_be_read_are_counted_and_stop_nothing(world):
    broken = world / "broken"
    shutil.copytree(world / "world", broken)
    for number, file in enumerate(sorted(broken.rglob("*.volume.json"))):
        if number % 2:
            file.write_text("{")
    read = call("cohort", "read", "bcs-dbt", broken, "--volumes", "--out", world / "broken-cohort")
    assert read.code == 0, read.err
    done = call("rank", world / "finders", "--cohort", world / "broken-cohort", "--task", "detection", *PLAIN,
                "--pictures", "--out", world / "broken-ranking")  # fmt: skip
    assert done.code == 0, done.err
    assert "volumes could not be read" in done.out
    html = visible((world / "broken-ranking" / "report.html").read_text())
    assert "No pictures:" in html and str(world) not in html
    assert [one for one in ids_in(world) if one in html] == []


def test_a_zip_of_published_predictions_finds_the_volumes_in_the_folder_of_the_tables(world):
    said = pd.read_csv(world / "finders" / "ash.csv")
    cases = pd.read_parquet(world / "cohort" / "cases.parquet").set_index("case_id")
    said = said[said["case_id"].map(cases["split"]) == "test"]
    study, view = said["case_id"].str.split("/").str[0], said["case_id"].str.split("/").str[1]
    names = {
        "x": "X",
        "width": "Width",
        "y": "Y",
        "height": "Height",
        "z": "Z",
        "depth": "Depth",
        "score": "Score",
    }
    form = said.rename(columns=names)[list(names.values())]
    form = form.assign(PatientID=said["case_id"].map(cases["patient_id"]), StudyUID=study, View=view)
    with zipfile.ZipFile(world / "teams.zip", "w") as archive:
        archive.writestr("phase1/test/ash.csv", form.to_csv(index=False))
    done = call("rank", world / "teams.zip", "--cohort", world / "world", *PLAIN, "--split", "test",
                "--pictures", "--out", world / "zipped")  # fmt: skip
    assert done.code == 0, done.err
    html = (world / "zipped" / "report.html").read_text()
    assert 'class="strip-view"' in html and "No pictures:" not in html


def test_what_is_missing_is_said(world, ranked, tmp_path):
    plain = call("cohort", "read", "bcs-dbt", world / "world", "--out", tmp_path / "cohort")
    assert plain.code == 0
    for cohort, words in ((tmp_path / "cohort", "no column image"), (None, "about prediction files")):
        more = ("--cohort", cohort, "--task", "detection", *PLAIN) if cohort else ()
        done = call("rank", world / "finders", *more, "--pictures", "--out", tmp_path / "out")
        assert done.code == 64 and words in done.err, done.said
        assert not (tmp_path / "out").exists()
    given = ("rank", world / "finders", "--cohort", world / "cohort", "--task", "detection", *PLAIN)
    for more, words in (
        (("--pictures",), "no report is written"),
        (("--picture-count", 3, "--out", tmp_path / "out"), "none are asked for"),
    ):
        done = call(*given, *more)
        assert done.code == 64 and words in done.err, done.said
    other = call("score", "classification", world / "cohort", world / "finders" / "ash.csv", "--pictures", "--out", tmp_path / "out")  # fmt: skip
    assert other.code == 64 and "pictures are those of detection" in other.err
