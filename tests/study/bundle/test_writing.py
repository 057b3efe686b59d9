"""The release bundle of a study of pictures: whole, with digests that hold, and no path of this machine."""

from __future__ import annotations

import hashlib
import json
import shutil

import pandas as pd
import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.errors import UserError
from elsewhere.report.study.page import PRIVATE, write_study_report
from elsewhere.study.bundle.checking import check_bundle_folder
from elsewhere.study.bundle.reading import read_bundle
from elsewhere.study.bundle.seal import FORMAT, MARK, SUMS, broken_files, read_mark, seal
from elsewhere.study.bundle.writing import BundleOptions, write_bundle
from worlds.picture_results import make_results, write_run_folder


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a run, and its results."""
    folder = tmp_path_factory.mktemp("run")
    sizes = {"Harbour": (60, 50, 20, 100), "Hill": (60, 50, 0, 100)}
    results = make_results(sizes=sizes, models=("cnn",), inputs=("whole", "roi"), seeds=(1,), analyses={})
    return folder / "out", write_run_folder(results, folder / "out")


@pytest.fixture(scope="module")
def bundle(ran, tmp_path_factory):
    folder, results = ran
    summary = analyse(results, resamples=0)
    return write_bundle(
        results,
        tmp_path_factory.mktemp("bundle") / "bundle",
        run_folder=folder,
        write_report=lambda place: write_study_report(summary, place, key_file=False),
    )


def test_it_is_whole_and_its_digests_hold(bundle):
    held = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert {
        "cohort.csv",
        "manifest.csv",
        "splits/index.json",
        "predictions.parquet",
        "predictions/run-0/probabilities.csv",
        "scores_classification.parquet",
        "scores.json",
        "scores.csv",
        "runs.csv",
        "trainings.csv",
        "skipped.csv",
        "audit.json",
        "study.json",
        "environment.json",
        "report.html",
        "summary.json",
        "tables/overall.csv",
        "README.md",
        "SHA256SUMS",
        "bundle.json",
    } <= held
    for line in (bundle / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ", 1)
        assert hashlib.sha256((bundle / name).read_bytes()).hexdigest() == digest
    assert read_mark(bundle)["format"] == FORMAT
    assert broken_files(bundle)[1] == []


def test_it_holds_the_answers_of_every_run(ran, bundle):
    _, results = ran
    run = results.runs["run"].iloc[5]
    outputs = pd.read_parquet(bundle / "predictions.parquet")
    assert set(outputs["run"]) == set(results.runs["run"])
    one = outputs[(outputs["run"] == run) & (outputs["part"] == "test")]
    for column in ("probability", "logit_positive"):
        assert one[column].tolist() == results.answers(run)["test"][column].tolist()
    assert set(outputs["part"]) == {"test", "validation", "normal"}


def test_it_holds_no_path_of_this_machine_and_no_key_file(ran, bundle):
    folder, _ = ran
    assert "image" not in pd.read_csv(bundle / "manifest.csv").columns
    assert not (bundle / "case_key.csv").exists()
    for path in bundle.rglob("*"):
        if path.suffix in (".json", ".csv", ".html", ".md"):
            assert str(folder) not in path.read_text(), path


def test_what_is_read_back_is_what_was_written(ran, bundle):
    _, results = ran
    again = read_bundle(bundle, read_mark(bundle))
    assert set(again.scores) == set(results.scores)
    for key, scores in results.scores.items():
        mine, other = scores.cases, again.scores[key].cases
        assert other["cluster_id"].tolist() == mine["cluster_id"].tolist()
        assert other["probability"].tolist() == mine["probability"].tolist()
    assert again.cohort.hash == results.cohort.hash
    assert again.study == results.study
    assert set(again.answers(results.runs["run"].iloc[0])) >= {"test", "validation"}


def tables_of(results):
    tables = analyse(results, resamples=0).tables
    return {name: table for name, table in tables.items() if name not in PRIVATE}


def test_scores_and_tables_can_be_made_again(bundle):
    """Of studies of pictures too: scores from the predictions, metrics and tables from the scores."""
    made = check_bundle_folder(bundle, tables_of)
    assert made.wrong == ()
    assert made.scored_again == made.metrics == 8 and made.tables > 15


def test_a_prediction_that_was_changed_is_found_by_its_digest_and_by_its_score(bundle, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(bundle, copy)
    file = copy / "predictions" / "run-0" / "probabilities.csv"
    table = pd.read_csv(file)
    table.loc[0, "probability"] = 1 - table.loc[0, "probability"]
    table.to_csv(file, index=False)
    changed = check_bundle_folder(copy, tables_of)
    assert changed.wrong == ("predictions/run-0/probabilities.csv: it has changed",)
    about = json.loads((copy / MARK).read_text())
    (copy / MARK).unlink()
    (copy / SUMS).unlink()
    seal(copy, about)
    sealed = check_bundle_folder(copy, tables_of)
    assert sealed.broken_files == () and len(sealed.other_scores) == 2
    assert "differ when scored again" in sealed.other_scores[0]
    assert "predictions.parquet and probabilities.csv have other probabilities" in sealed.other_scores[1]


def test_an_earlier_bundle_is_replaced_only_when_asked(ran, bundle):
    folder, results = ran
    again = {"run_folder": folder, "write_report": lambda place: (place / "report.html").write_text("a")}
    with pytest.raises(UserError):
        write_bundle(results, bundle.parent / "bundle", **again)
    other = write_bundle(results, bundle.parent / "other", **again)
    assert write_bundle(results, other, **again, options=BundleOptions(replace=True)) == other


def test_a_run_folder_without_splits_is_refused(ran, tmp_path):
    _, results = ran
    with pytest.raises(UserError, match="the run's folder has no splits"):
        write_bundle(results, tmp_path / "b", run_folder=tmp_path, write_report=lambda place: None)


def test_the_study_is_data_that_can_be_read_again(ran, bundle):
    _, results = ran
    content = json.loads((bundle / "study.json").read_text())
    assert content["models"]["cnn"]["network"] == "efficientnet-b0"
    assert content["study"]["name"] == results.name
