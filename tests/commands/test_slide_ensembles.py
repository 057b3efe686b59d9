"""`elsewhere slides ensemble` and `elsewhere phantom slide-models`, through the command line and the function."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.cli import main
from elsewhere.commands.phantom_slide_models import slide_models
from elsewhere.commands.slide_ensembles import EnsembleSettings, ensemble
from elsewhere.errors import UserError

pytest.importorskip("tifffile", reason="needs the extra 'slides'")
pytest.importorskip("imagecodecs", reason="needs the extra 'slides'")
FEW = EnsembleSettings(random=20, resamples=20)


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main([*map(str, arguments)])
    out = capsys.readouterr()
    return int(done.value.code or 0), out.out, out.err


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "world"
    slide_models(out, internal=5, external=4, models=4, folds=2, steady=2, side=96, spots=6, seed=2)
    return out


@pytest.fixture
def world(original, tmp_path):
    shutil.copytree(original, tmp_path / "world")
    return tmp_path / "world"


def test_the_command_writes_a_result_and_leaves_no_parts(capsys, world, tmp_path):
    out = tmp_path / "res"
    code, text, err = run(
        capsys, "slides", "ensemble", world / "slides.csv", world / "masks", "--random", 20, "--resamples", 20, "--out", out
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "4 models x 2 folds on 9 slides of 9 patients: 72 masks, 0 missing, 0 invalid" in text
    assert not (tmp_path / "res.parts").exists()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Ensembles and models on slides" in page and "slide_001" not in page and "patient_001" not in page
    assert "slide_001" not in (out / "summary.json").read_text()
    stages = pd.read_csv(out / "slide_stages.csv")
    assert stages["case_id"].nunique() == 9
    assert "slide_stages.csv" in (out / "SHARING.txt").read_text().split("Stay with the data")[1]


def test_the_rates_are_those_of_score_slides(capsys, world, tmp_path):
    made = ensemble(world / "slides.csv", world / "masks", settings=FEW)
    name = made.summary["slide_ensembles"]["rows"][0]["name"]
    code, text, _ = run(
        capsys, "score", "slides", world / "slides.csv", world / "masks" / name / "1", "--protocol", "lymph-nodes",
        "--resamples", 0, "--out", tmp_path / "scored", "--json",
    )  # fmt: skip
    theirs = json.loads(text)["metrics"]
    mine = made.summary["slide_ensembles"]["rows"][0]["rates"]
    for ours, other in (
        ("dice", "slide_dice"), ("fpr", "slide_false_positive_rate"), ("fpr_tissue", "slide_false_positive_rate_tissue"),
        ("stage_accuracy", "stage_accuracy"), ("f1_mean_negative", "f1_macro"),
    ):  # fmt: skip
        assert mine[ours]["folds"][0] == pytest.approx(theirs[other]["value"]), ours
    assert code == 0


def test_a_run_that_was_stopped_resumes(world, tmp_path, monkeypatch):
    from elsewhere.analysis.slide_ensembles import parts

    real, calls = parts.read_votes, []

    def stop(*given, **more):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return real(*given, **more)

    monkeypatch.setattr(parts, "read_votes", stop)
    with pytest.raises(KeyboardInterrupt):
        ensemble(world / "slides.csv", world / "masks", settings=FEW, out=tmp_path / "res")
    assert not (tmp_path / "res").exists()
    kept = sorted((tmp_path / "res.parts").glob("*.npz"))
    kept[0].write_bytes(kept[0].read_bytes()[:100])
    monkeypatch.setattr(parts, "read_votes", real)
    made = ensemble(world / "slides.csv", world / "masks", settings=FEW, out=tmp_path / "res")
    assert made.resumed == 6
    again = ensemble(world / "slides.csv", world / "masks", settings=FEW)
    assert again.resumed == 0 and again.summary["slide_ensembles"] == made.summary["slide_ensembles"]


def test_missing_masks_count_as_the_worst_answer_and_are_named(world):
    cases = pd.read_csv(world / "slides.csv").set_index("case_id")["stage"]
    shutil.rmtree(world / "masks" / "histopathology-0" / "2")
    made = ensemble(world / "slides.csv", world / "masks", settings=FEW)
    assert made.summary["counts"]["missing"] == 9
    text = " ".join(made.summary["warnings"])
    assert "histopathology-0 (9)" in text and "histopathology-0, fold 2" in text
    rows = made.tables["slide_stages.csv"]
    mine = rows[(rows["name"] == "histopathology-0") & (rows["fold"] == "2")].set_index("case_id")
    for case, stage in cases.items():
        worst = "negative" if stage in ("macro", "micro") else "macro"
        assert mine.loc[case, "stage_predicted"] == worst
    assert (mine["dice"].dropna() == 0).all() and (mine["fpr"].dropna() == 1).all()


def test_an_invalid_mask_stops_or_counts_as_missing(world):
    path = world / "masks" / "histopathology-10" / "1" / "slide_002.png"
    Image.fromarray(np.zeros((40, 96), dtype=np.uint8)).save(path)
    with pytest.raises(UserError, match=r"slide slide_002, model histopathology-10, fold 1"):
        ensemble(world / "slides.csv", world / "masks", settings=FEW)
    made = ensemble(
        world / "slides.csv",
        world / "masks",
        settings=EnsembleSettings(random=0, resamples=0, on_invalid="worst"),
    )
    assert made.summary["counts"]["invalid"] == 1
    assert "1 masks cannot be used and count as missing" in " ".join(made.summary["warnings"])


def test_masks_of_ensembles_are_votes_of_their_members(world, tmp_path):
    from elsewhere.inputs.slides.annotations import open_mask

    table = pd.DataFrame(
        {"ensemble": ["A & B"] * 2 + ["three"] * 3,
         "model": ["histopathology-0", "histopathology-10", "histopathology-0", "histopathology-10", "histopathology-20"]}
    )  # fmt: skip
    table.to_csv(tmp_path / "members.csv", index=False)
    settings = EnsembleSettings(
        random=0, resamples=0, members=tmp_path / "members.csv", masks_out=tmp_path / "voted"
    )
    made = ensemble(world / "slides.csv", world / "masks", settings=settings)
    assert made.masks.files == 2 * 2 * 9
    assert "A & B: two members, whose strict vote is an AND" in " ".join(made.summary["warnings"])
    stack = [
        np.asarray(Image.open(world / "masks" / name / "1" / "slide_003.png")) > 0
        for name in table["model"].unique()
    ]
    for name, wanted in (("A & B", stack[0] & stack[1]), ("three", np.sum(stack, axis=0) >= 2)):
        file = next((tmp_path / "voted").glob(f"{name[:1]}*/1/slide_003.tif"))
        with open_mask(file) as mask:
            assert mask.pixel_um == pytest.approx(8.0)
            assert np.array_equal(mask.read(0, 0, 96, 96), wanted)


def test_mean_probability_needs_probabilities_and_is_the_mean(world, tmp_path):
    settings = EnsembleSettings(rule="mean-probability", random=20, resamples=0)
    with pytest.raises(UserError, match="hold no probabilities"):
        ensemble(world / "slides.csv", world / "masks", settings=settings)
    slide_models(
        tmp_path / "p", internal=3, external=3, models=3, folds=1, steady=1, side=96, probabilities=True
    )
    made = ensemble(tmp_path / "p" / "slides.csv", tmp_path / "p" / "masks", settings=settings)
    from elsewhere.inputs.slides.annotations import open_mask

    rows = made.tables["slide_stages.csv"].set_index(["case_id", "name"])
    truth = np.asarray(Image.open(tmp_path / "p" / "truth" / "slide_001.png")) > 0 if (
        tmp_path / "p" / "truth" / "slide_001.png"
    ).exists() else np.zeros((96, 96), dtype=bool)  # fmt: skip
    total = np.zeros((96, 96))
    for file in sorted((tmp_path / "p" / "masks").glob("*/1/slide_001.tif")):
        with open_mask(file) as mask:
            total += np.concatenate([strip for _, strip in mask.strips()])
    said = total / 3 > 127.5
    mine = rows.loc[("slide_001", "histopathology")]
    if truth.any():
        assert mine["dice"] == pytest.approx(2 * (said & truth).sum() / (said.sum() + truth.sum()))
    else:
        assert mine["fpr"] == pytest.approx(said.mean())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: shutil.move(w / "masks" / "histopathology-0" / "1" / "slide_001.png", w / "masks" / "histopathology-0"), "a folder of a fold"),
        (lambda w: shutil.move(w / "masks" / "histopathology-0" / "1" / "slide_001.png", w / "masks"), "in no folder of a model"),
        (lambda w: shutil.copy(w / "masks" / "histopathology-0" / "1" / "slide_001.png", w / "masks" / "histopathology-0" / "1" / "slide_001.tif"), "same slide, model and fold"),
    ],
)  # fmt: skip
def test_folders_that_cannot_be_read_are_refused(world, change, message):
    change(world)
    with pytest.raises(UserError, match=message):
        ensemble(world / "slides.csv", world / "masks", settings=FEW)


def test_without_domains_ensembles_follow_from_the_names(world):
    table = pd.read_csv(world / "slides.csv").drop(columns=["domain"])
    table.to_csv(world / "slides.csv", index=False)
    made = ensemble(world / "slides.csv", world / "masks", settings=FEW)
    names = [row["name"] for row in made.summary["slide_ensembles"]["rows"] if row["kind"] == "ensemble"]
    assert "All models" in names and "Generalising" not in names
    assert "which slides are internal" in " ".join(made.summary["warnings"])


def test_unknown_names_are_refused(world, tmp_path):
    pd.DataFrame({"ensemble": ["a"], "model": ["unet"]}).to_csv(tmp_path / "m.csv", index=False)
    with pytest.raises(UserError, match="unet"):
        ensemble(world / "slides.csv", world / "masks", settings=EnsembleSettings(members=tmp_path / "m.csv"))
    with pytest.raises(UserError, match="tie rule"):
        ensemble(world / "slides.csv", world / "masks", settings=EnsembleSettings(rule="most"))
    with pytest.raises(UserError, match="no model named"):
        ensemble(world / "slides.csv", world / "masks", settings=EnsembleSettings(members="study"))
    table = pd.read_csv(world / "slides.csv")
    table["case_id"] = "x" + table["case_id"]
    table.to_csv(world / "slides.csv", index=False)
    with pytest.raises(UserError, match="no mask belongs to a slide"):
        ensemble(world / "slides.csv", world / "masks", settings=FEW)
