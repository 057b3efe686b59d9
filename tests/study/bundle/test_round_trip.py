"""The release bundle of a study of pictures, and of a study of one task: everything in it can be made again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.study.summary import analyse
from elsewhere.commands.check_bundle import check_bundle
from elsewhere.commands.run import run_study
from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK, UserError
from elsewhere.study.bundle.reading import read_bundle
from elsewhere.study.bundle.seal import MARK, SUMS, read_mark, seal
from worlds import fake_recipes  # noqa: F401 - registers 'threshold'
from worlds.mri_study import STUDY, make_study, make_world
from worlds.picture_study import train, write_world

RESPONSE = """
[recipes.threshold]
baseline = true
[recipes.coin]
recipe = "random"
[analyses]
resamples = 20
"""


def pictures(folder: Path):
    """Two hospitals whose case ids are the same, with images of no lesion, two models and two seeds."""
    study = write_world(folder, datasets=("Alder", "Birch"), patients=30)
    return run_study(
        study,
        out=folder / "out",
        bundle=folder / "bundle",
        trainer=train,
        changes=["analyses.resamples=20", "analyses.verdict_margin=0.1"],
    )


def response(folder: Path):
    """One task of published methods, which predicts no masks."""
    world = make_world(folder / "world", patients=8)
    text = (
        STUDY.split("[tasks.segmentation]")[0] + '[tasks.response]\nprotocol = "mamamia-paper"\n' + RESPONSE
    )
    return run_study(
        make_study(folder, text), data=world, out=folder / "out", device="cpu", bundle=folder / "bundle"
    )


@pytest.fixture(
    scope="module",
    params=[pictures, pytest.param(response, marks=pytest.mark.slow)],
    ids=lambda made: made.__name__,
)
def ran(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("study"))


@pytest.fixture
def bundle(ran, tmp_path) -> Path:
    return Path(shutil.copytree(ran.written.bundle, tmp_path / "bundle"))


def sealed_again(folder: Path) -> None:
    """As somebody would who changes a number and its digest with it."""
    about = json.loads((folder / MARK).read_text())
    for name in (MARK, SUMS):
        (folder / name).unlink()
    seal(folder, about)


def test_every_score_metric_and_table_is_made_again(ran, bundle):
    done = check_bundle(bundle)
    assert done.exit_code == EXIT_OK, list(done.lines())
    runs = len(ran.run.results.scored())
    assert done.check.scored_again == done.check.metrics == runs > 0
    assert done.check.tables == len(ran.written.summary.tables) - 1, "all but the table of runs"
    lines = "\n".join(done.lines())
    assert f"{runs} of {runs} runs have the same scores when they are scored again" in lines
    assert f"{done.check.tables} of {done.check.tables} tables are the same" in lines


def test_it_holds_no_picture_no_path_and_no_key(ran, bundle):
    files = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert {"cohort.csv", "scores.json", "predictions.parquet", "report.html", "README.md"} <= files
    assert not [name for name in files if name.endswith((".nii.gz", ".png", ".jpg", "case_key.csv"))]
    assert "masks.csv" not in files
    folder = str(ran.run.plan.file.path.parent)
    for name in files:
        if name.endswith((".json", ".csv", ".md", ".html")):
            assert folder not in (bundle / name).read_text(errors="replace"), name


def test_what_is_read_is_what_the_analyses_read(ran, bundle):
    results, again = ran.run.results, read_bundle(bundle, read_mark(bundle))
    assert again.study == results.study.model_copy(
        update={"study": again.study.study, "cohort": again.study.cohort}
    )
    assert set(again.scores) == set(results.scores) and again.cohort.hash == results.cohort.hash
    for key, scores in results.scores.items():
        for name in ("case_id", "cluster_id"):
            assert again.scores[key].cases[name].tolist() == scores.cases[name].tolist()
        assert again.scores[key].protocol == scores.protocol
    for run in results.scored()["run"]:
        ours, theirs = results.answers(run), again.answers(run)
        assert list(theirs) == [part for part in ours if len(ours[part])]
        for part, table in theirs.items():
            assert table["case"].tolist() == ours[part]["case"].tolist()
            assert np.array_equal(table["probability"], ours[part]["probability"])
            assert table["label"].tolist() == ours[part]["label"].tolist()
    once, twice = (analyse(one, resamples=5).headline for one in (results, again))
    assert json.dumps(once, default=str) == json.dumps(twice, default=str)


def test_numbers_that_do_not_follow_are_named_though_their_digests_fit(ran, bundle):
    board = pd.read_csv(bundle / "tables" / "leaderboard.csv")
    board.loc[0, "auroc"] += 0.01
    board.to_csv(bundle / "tables" / "leaderboard.csv", index=False)
    metrics = pd.read_csv(bundle / "scores.csv")
    metrics["auroc"] += 0.01
    metrics.to_csv(bundle / "scores.csv", index=False)
    sealed_again(bundle)
    done = check_bundle(bundle)
    wrong = "\n".join(done.check.wrong)
    assert done.exit_code == EXIT_BAD_INPUT
    assert "tables/leaderboard.csv: auroc" in wrong and "scores.csv: auroc of" in wrong


def test_the_two_forms_of_the_predictions_must_agree(ran, bundle):
    """`predictions.parquet` is what calibration and abstention read; the csv is what was handed in and scored."""
    table = pd.read_parquet(bundle / "predictions.parquet")
    row = table.index[table["part"] == "test"][0]
    table.loc[row, "probability"] = 1 - table.loc[row, "probability"]
    table.to_parquet(bundle / "predictions.parquet", index=False)
    sealed_again(bundle)
    wrong = "\n".join(check_bundle(bundle).check.wrong)
    assert "predictions.parquet and probabilities.csv have other probabilities" in wrong


def test_masks_are_refused_where_no_method_predicts_any(tmp_path):
    with pytest.raises(UserError, match="masks go into a bundle"):
        run_study(
            "ultrasound-lite", data=tmp_path, out=tmp_path / "o", bundle=tmp_path / "b", bundle_masks=True
        )
    assert not (tmp_path / "o").exists()
