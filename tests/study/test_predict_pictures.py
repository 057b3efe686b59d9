"""A kept network of pictures at another hospital, through the same command as a recipe's."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

pytest.importorskip("torch")

from elsewhere.commands.predict import list_models, predict
from elsewhere.commands.run import run_study
from elsewhere.commands.score import score
from elsewhere.errors import UserError

STUDY = """
[study]
name = "there"
keep_weights = ["Alder>Birch"]
[[cohort]]
source = "Alder/cohort.csv"
[[cohort]]
source = "Birch/cohort.csv"
[scenarios]
kinds = ["external"]
seeds = [1]
keep_duplicates_together = false
[inputs.whole]
kind = "whole"
[inputs.roi]
kind = "roi"
margin = 0.5
[inputs.found]
kind = "roi"
boxes = "found"
[models.cnn]
network = "tiny-cnn"
weights = "none"
size_px = 48
epochs = 2
batch = 8
test_mirror = true
[finder]
network = "finder-small"
weights = "none"
size_px = 64
epochs = 2
"""


def write_hospital(folder: Path, seed: int, patients: int = 20) -> Path:
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    rows = []
    for patient in range(patients):
        picture = rng.integers(60, 120, (60, 72)).astype(np.uint8)
        y, x = rng.integers(4, 36, 2)
        picture[y : y + 18, x : x + 20] = 230 if patient % 2 else 5
        drawn = np.zeros_like(picture)
        drawn[y : y + 18, x : x + 20] = 255
        name = f"c{patient:02d}"
        Image.fromarray(picture).save(folder / "images" / f"{name}.png")
        Image.fromarray(drawn).save(folder / "images" / f"{name}_mask.png")
        rows.append(
            {
                "case_id": name,
                "patient_id": f"p{patient:02d}",
                "dataset": folder.name,
                "label": "malignant" if patient % 2 else "benign",
                "image": f"images/{name}.png",
                "mask": f"images/{name}_mask.png",
            }
        )
    pd.DataFrame(rows).to_csv(folder / "cohort.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A study that has run: its folder, and its results."""
    folder = tmp_path_factory.mktemp("there")
    write_hospital(folder / "Alder", 1)
    write_hospital(folder / "Birch", 2)
    (folder / "there.toml").write_text(STUDY)
    done = run_study(folder / "there.toml", out=folder / "out", device="cpu", report=False)
    assert not done.run.engine.failed
    return folder, done.run.results


def said_in_the_study(results, run: str) -> np.ndarray:
    test = results.answers(run)["test"].sort_values("case")
    return test["probability"].to_numpy()


@pytest.mark.parametrize(
    ("name", "told"),
    [("whole", []), ("roi", ["the annotated box of the lesion"]), ("found", [])],
)
def test_a_network_says_of_another_hospital_what_its_study_said(there, tmp_path, name, told):
    folder, results = there
    model = tmp_path / "model.zip"
    listed = list_models(folder / "out", model=f"Alder>*|cnn|{name}", export=model)
    assert [one["tasks"] for one in listed.models] == [["classification"]]
    with zipfile.ZipFile(model) as archive:
        whole = b"".join(archive.read(entry) for entry in archive.namelist())
    assert b"Alder/c0" not in whole and b"Birch/c0" not in whole
    cohort = folder / "Birch" / "cohort.csv"
    predict(model, cohort, out=tmp_path / "out", device="cpu")
    table = pd.read_csv(tmp_path / "out" / "probabilities.csv").sort_values("case_id")
    expected = said_in_the_study(results, f"Alder>Birch|cnn-{name}|classification|1")
    assert np.allclose(table["probability"], expected, atol=1e-5) and np.ptp(expected) > 1e-4
    summary = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert summary["told_beside_images"] == told and summary["files"] == {
        "classification": "probabilities.csv"
    }
    scored = score("classification", cohort, tmp_path / "out" / "probabilities.csv", resamples=0)
    assert scored.summary["counts"]["missing"] == 0


def test_labels_are_not_asked_for(there, tmp_path):
    folder, results = there
    bare = Path(shutil.copytree(folder / "Birch", tmp_path / "Birch"))
    table = pd.read_csv(bare / "cohort.csv").drop(columns=["label", "mask"])
    table.to_csv(bare / "cohort.csv", index=False)
    predict(
        folder / "out", bare / "cohort.csv", out=tmp_path / "out", model="Alder>*|cnn|whole", device="cpu"
    )
    ours = pd.read_csv(tmp_path / "out" / "probabilities.csv").sort_values("case_id")["probability"]
    assert np.allclose(ours, said_in_the_study(results, "Alder>Birch|cnn-whole|classification|1"), atol=1e-5)
    done = predict(
        folder / "out", bare / "cohort.csv", out=tmp_path / "roi", model="Alder>*|cnn|roi", device="cpu"
    )
    assert "no box is known in 20 of 20 pictures" in " ".join(done.summary["notes"])


def test_who_trained_is_refused_by_id_and_by_pixels(there, tmp_path):
    folder, _ = there
    options = {"model": "Alder>*|cnn|whole", "out": tmp_path / "out", "device": "cpu"}
    with pytest.raises(UserError, match="its patient is in this model's training data"):
        predict(folder / "out", folder / "Alder" / "cohort.csv", **options)
    other = Path(shutil.copytree(folder / "Birch", tmp_path / "Birch"))
    shutil.copyfile(folder / "Alder" / "images" / "c03.png", other / "images" / "c11.png")
    with pytest.raises(UserError, match=r"Birch/c11' cannot be tested: its picture or volume"):
        predict(folder / "out", other / "cohort.csv", **options)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="takes no masks"):
        predict(folder / "out", folder / "Birch" / "cohort.csv", **options, masks=tmp_path)
