"""A study from its file to its report: with the fake trainer, and, slowly, with torch on phantoms."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.commands.run import run_study
from elsewhere.errors import EXIT_OK
from worlds.picture_study import run_tiny, train, write_world

DRAWS_FIGURES = True


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Two hospitals, two seeds, run to the report and a bundle."""
    folder = tmp_path_factory.mktemp("reported")
    study = write_world(folder, datasets=("Alder", "Birch"), patients=60, images=1)
    options = {"trainer": train, "changes": ["analyses.resamples=50"], "only_models": ["cnn"]}
    done = run_study(study, out=folder / "out", bundle=folder / "bundle", **options)
    return study, folder, options, done


def test_the_report_is_there_and_told(reported):
    _, folder, _, done = reported
    told = done.to_dict()
    assert done.exit_code == EXIT_OK
    assert told["report"] == str(folder / "out" / "report" / "report.html")
    page = (folder / "out" / "report" / "report.html").read_text()
    assert "Alder" in page and "Alder/p001" not in page
    assert told["headline"]["runs"] == 16
    text = list(done.lines())
    assert text[-1] == f"report: {told['report']}"
    (line,) = [line for line in text if line.startswith("classification: AUROC ")]
    assert " internal, " in line and "a spread over 2 datasets" in line
    json.dumps(told["headline"])


def test_the_numbers_of_the_report_are_those_of_the_outputs(reported):
    _, folder, _, done = reported
    name = "Alder>Birch|cnn-roi|classification|2"
    judged = pd.read_csv(folder / "out" / "report" / "tables" / "run_metrics.csv").set_index("run")
    parts = done.run.results.answers(name)["test"]
    score = (parts["logit_positive"] - parts["logit_negative"]).to_numpy()
    label = parts["label"].to_numpy()
    difference = score[label == 1][:, None] - score[label == 0][None, :]
    auroc = np.mean((difference > 0) + 0.5 * (difference == 0))
    assert judged.loc[name, "auroc"] == pytest.approx(auroc, abs=1e-9)
    scores = pd.read_csv(folder / "out" / "scores.csv").set_index(["method", "scenario", "seed"])
    assert scores.loc[("cnn-roi", "Alder>Birch", 2), "auroc"] == pytest.approx(auroc, abs=1e-9)
    seeds = [scores.loc[("cnn-roi", "Alder>Birch", seed), "auroc"] for seed in (1, 2)]
    found = pd.read_csv(folder / "out" / "report" / "tables" / "transfers.csv")
    found = found.set_index(["scenario", "method"]).loc[("Alder>Birch", "cnn-roi")]
    assert found["external"] == pytest.approx(sum(seeds) / 2) and found["seeds"] == 2


def test_a_second_run_does_nothing_but_the_report(reported, trainings):
    study, folder, options, _ = reported
    page = folder / "out" / "report" / "summary.json"
    before = json.loads(page.read_text())
    page.unlink()
    again = run_study(study, out=folder / "out", **options)
    assert trainings() == []
    assert again.to_dict()["trainings"]["trained"] == 0
    after = json.loads(page.read_text())
    for told in (before, after):
        for row in told["tables"]["hardest"]:
            assert row.pop("case").startswith("h-"), "hashes, whose key is drawn anew each time"
    assert after["tables"] == before["tables"]


def test_the_bundle_holds_no_picture_and_all_the_numbers(reported):
    _, folder, _, done = reported
    names = {p.name for p in (folder / "bundle").iterdir()}
    assert {
        "manifest.csv",
        "predictions.parquet",
        "scores_classification.parquet",
        "splits",
        "audit.json",
        "SHA256SUMS",
    } <= names
    assert not list((folder / "bundle").rglob("*.png"))
    outputs = pd.read_parquet(folder / "bundle" / "predictions.parquet")
    assert set(outputs["run"]) == set(done.run.results.done()["run"])


def test_the_report_comes_later_too(world, tmp_path, trainings):
    small = {"only": ["Alder", "Alder>Birch"], "only_models": ["cnn"], "changes": ["analyses.resamples=0"]}
    first = run_tiny(world, tmp_path / "out", **small)
    assert first.written.path is None and not (tmp_path / "out" / "report").exists()
    done = len(trainings())
    second = run_tiny(world, tmp_path / "out", report=True, **small)
    assert second.written.path is not None and second.written.path.is_file()
    assert len(trainings()) == done


def test_a_run_with_failures_still_reports_the_rest(world, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIL_NAMED", "Alder | cnn | roi")
    options = {"only": ["Alder", "Birch", "Alder>Birch"], "only_models": ["cnn"]}
    done = run_tiny(world, tmp_path / "out", report=True, changes=["analyses.resamples=0"], **options)
    assert done.exit_code != EXIT_OK and done.written.path is not None
    assert "not done" in json.dumps(
        json.loads((tmp_path / "out" / "report" / "summary.json").read_text())["warnings"]
    )


PHANTOMS = """
[study]
name = "phantoms"
keep_weights = ["Birch>Alder"]

[[cohort]]
phantom = { name = "Alder", layout = "bus-bra", patients = 12, scale = 0.3, seed = 3 }

[[cohort]]
phantom = { name = "Birch", layout = "busi", patients = 16, scale = 0.3, seed = 4, malignant = 0.5 }

[scenarios]
seeds = [1]

[inputs.whole]
kind = "whole"

[inputs.roi]
kind = "roi"

[inputs.found]
kind = "roi"
boxes = "found"

[models.cnn]
network = "tiny-cnn"
weights = "none"
size_px = 32
epochs = 1

[finder]
network = "finder-tiny"
size_px = 64
epochs = 1

[analyses]
resamples = 0
"""


@pytest.mark.slow
def test_phantoms_through_torch_to_a_report(tmp_path):
    """The whole road, with the real trainer, found boxes and kept weights; then again, doing nothing."""
    pytest.importorskip("torch")
    study = tmp_path / "phantoms.toml"
    study.write_text(PHANTOMS)
    done = run_study(study, out=tmp_path / "out", device="cpu")
    told = done.to_dict()
    assert done.exit_code == EXIT_OK, told["failures"]
    assert told["runs"] == {"planned": 12, "done": 12, "failed": 0, "skipped": 0, "invalid": 0}
    assert done.written.path is not None and done.written.path.is_file()
    kept = sorted((tmp_path / "out" / "store" / "units").glob("*/weights.*"))
    assert len(kept) == 4, "three networks, and the finder whose boxes one of them sees"
    again = run_study(study, out=tmp_path / "out", device="cpu", report=False)
    assert (
        again.to_dict()["trainings"] | {"trained": 0, "reused": told["trainings"]["planned"]}
        == (again.to_dict()["trainings"])
    )
