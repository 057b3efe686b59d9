"""The release bundle of a study of published methods: what another team makes again without a volume, and what it is told."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd
import pytest

from elsewhere.commands.check_bundle import check_bundle
from elsewhere.commands.run import run_study
from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK, UserError
from elsewhere.study.bundle.seal import MARK, SUMS, seal
from elsewhere.study.results import RunKey
from worlds import fake_recipes  # noqa: F401 - registers 'threshold'
from worlds.mri_study import STUDY, make_study, make_world

TEXT = (
    STUDY
    + """
[recipes.coin]
recipe = "random"
[recipes.same]
recipe = "threshold"
tasks = ["response"]
settings = { fault = "constant" }
"""
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    return make_world(tmp_path_factory.mktemp("mama-mia"), patients=12)


@pytest.fixture(scope="module")
def ran(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return run_study(
        make_study(folder, TEXT),
        data=world,
        out=folder / "out",
        device="cpu",
        bundle=folder / "bundle",
        pictures=True,
    )


@pytest.fixture
def bundle(ran, tmp_path) -> Path:
    return Path(shutil.copytree(ran.written.bundle, tmp_path / "bundle"))


def sealed_again(folder: Path) -> None:
    """As somebody would who changes a number and its digest with it."""
    about = json.loads((folder / MARK).read_text())
    for name in (MARK, SUMS):
        (folder / name).unlink()
    seal(folder, about)


def test_it_holds_every_part_and_no_picture(ran, bundle, world):
    files = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert {
        "README.md",
        "manifest.csv",
        "cohort.csv",
        "masks.csv",
        "scores.json",
        "scores_segmentation.parquet",
        "scores_response.parquet",
        "audit.json",
        "study.json",
        "environment.json",
        "summary.json",
        "report.html",
        "tables/leaderboard.csv",
        "predictions/response/coin/rest_to_DUKE/seed-1/probabilities.csv",
    } <= files
    assert any(name.startswith("splits/") for name in files)
    assert not [name for name in files if name.endswith((".nii.gz", ".png", "case_key.csv"))]
    assert "data:image/png" in (ran.run.paths.report / "report.html").read_text()
    assert "data:image/png" not in (bundle / "report.html").read_text()
    assert str(world) not in "".join(
        path.read_text(errors="replace")
        for path in bundle.rglob("*")
        if path.suffix in (".json", ".csv", ".md")
    )
    assert set(pd.read_csv(bundle / "cohort.csv").columns) <= {
        *("case_id", "patient_id", "exam_id", "dataset", "site", "pcr", "mask", "subtype"),
        *("age", "menopausal_status", "breast_density"),
    }
    readme = (bundle / "README.md").read_text()
    assert "sha256sum -c SHA256SUMS" in readme and "What cannot be made again" in readme


def test_another_team_makes_scores_and_tables_again(bundle):
    done = check_bundle(bundle)
    assert done.exit_code == EXIT_OK, list(done.lines())
    assert done.check.scored_again == 9 and done.check.tables >= 15
    lines = "\n".join(done.lines())
    assert (
        "9 of 9 runs have the same scores" in lines
        and f"{done.check.tables} of {done.check.tables} tables" in lines
    )


def test_the_digest_of_a_mask_is_what_the_readme_says(ran, bundle):
    rows = pd.read_csv(bundle / "masks.csv")
    assert (
        len(rows) == 2 * 35 and (rows["voxels"] > 0).sum() == 35
    )  # one of 36 has no expert's mask; 'blind' finds none
    row = rows[rows["voxels"] > 0].iloc[3]
    key = RunKey("segmentation", row["method"], row["scenario"], int(row["seed"]))
    file = ran.run.results.folder(key) / f"{row['case_id']}.nii.gz"
    bits = np.asarray(nibabel.load(file).dataobj) > 0
    text = f"{bits.shape[0]} {bits.shape[1]} {bits.shape[2]}\n".encode()
    packed = np.packbits(bits.ravel(order="F")).tobytes()
    assert row["voxels_sha256"] == hashlib.sha256(text + packed).hexdigest()
    assert row["file_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert row["voxels"] == bits.sum()


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (lambda folder: (folder / "costs.csv").write_text("changed"), "costs.csv: it has changed"),
        (lambda folder: (folder / "audit.json").unlink(), "audit.json: it is not there"),
        (lambda folder: (folder / "more.csv").write_text("x"), "more.csv: it is not listed"),
    ],
)
def test_a_file_that_changed_is_named(bundle, how, told):
    how(bundle)
    done = check_bundle(bundle)
    assert done.exit_code == EXIT_BAD_INPUT and f"wrong: {told}" in list(done.lines())


def test_a_number_that_does_not_follow_from_the_scores_is_named_though_its_digest_fits(bundle):
    board = pd.read_csv(bundle / "tables" / "leaderboard.csv")
    board.loc[0, "dice"] += 0.01
    board.to_csv(bundle / "tables" / "leaderboard.csv", index=False)
    metrics = pd.read_csv(bundle / "scores.csv")
    metrics.loc[metrics["task"] == "response", "auroc"] += 0.01
    metrics.to_csv(bundle / "scores.csv", index=False)
    said = next((bundle / "predictions").rglob("coin/rest_to_ISPY1/seed-1/probabilities.csv"))
    table = pd.read_csv(said)
    table.loc[0, "probability"] = 1 - table.loc[0, "probability"]
    table.to_csv(said, index=False)
    sealed_again(bundle)
    wrong = "\n".join(check_bundle(bundle).check.wrong)
    assert "tables/leaderboard.csv: dice" in wrong and "scores.csv: auroc of" in wrong
    assert "response, coin, rest>ISPY1, seed 1: probability" in wrong
    assert "rest>DUKE, seed 1: probability" not in wrong


def test_masks_are_in_it_on_request(ran, world, tmp_path):
    again = run_study(
        ran.run.plan.file.path,
        data=world,
        out=ran.run.paths.out,
        device="cpu",
        bundle=tmp_path / "bundle",
        bundle_masks=True,
    )
    assert again.run.engine.done == () and again.to_dict()["bundle"] == str(tmp_path / "bundle")
    rows = pd.read_csv(tmp_path / "bundle" / "masks.csv")
    held = list((tmp_path / "bundle" / "predictions" / "segmentation").rglob("*.nii.gz"))
    assert len(held) == len(rows)
    assert {hashlib.sha256(file.read_bytes()).hexdigest() for file in held} == set(rows["file_sha256"])
    assert check_bundle(tmp_path / "bundle").exit_code == EXIT_OK


def test_what_cannot_be_bundled_is_refused_before_anything_is_trained(world, tmp_path):
    study = make_study(tmp_path, TEXT)
    options = {"data": world, "out": tmp_path / "out", "device": "cpu"}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="left alone"):
        run_study(study, **options, bundle=tmp_path / "full")
    with pytest.raises(UserError, match="holds the report's tables"):
        run_study(study, **options, bundle=tmp_path / "b", report=False)
    with pytest.raises(UserError, match="masks go into a bundle"):
        run_study(study, **options, bundle_masks=True)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="no release bundle"):
        check_bundle(tmp_path)
