"""`check` refuses what `score` refuses, in the same words: one table of bad inputs for every task."""

from __future__ import annotations

import json

import nibabel
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from worlds.task_files import MAKERS, Pair, box_mask, write_nifti


def in_cohort(change):
    """A change of the cohort's csv."""

    def apply(files):
        frame = pd.read_csv(files.cohort, dtype={"label": "object", "pcr": "object"})
        change(frame).to_csv(files.cohort, index=False)

    return apply


def in_predictions(change):
    """A change of the predictions' csv."""

    def apply(files):
        change(pd.read_csv(files.predictions).astype(object)).to_csv(files.predictions, index=False)

    return apply


def in_mask(change):
    """A change of one mask of the predictions: `change(file)`."""
    return lambda files: change(files.predictions / "S3.nii.gz")


def cell(column, value):
    return lambda frame: frame.assign(**{column: [value, *frame[column][1:]]})


def rewrite(values=None, *, affine=None, shape=None):
    """The mask of S3 with other values, another affine or another shape."""

    def apply(file):
        image = nibabel.load(file)
        array = np.asarray(image.dataobj)
        array = array if values is None else values(array)
        array = array if shape is None else array.transpose(shape)
        new = nibabel.Nifti1Image(array, image.affine if affine is None else affine)
        new.header.set_xyzt_units("mm")
        nibabel.save(new, file)

    return apply


def cut(file):
    file.write_bytes(file.read_bytes()[:-40])


FLIPPED = np.array([[-1.0, 0, 0, 11], [0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1]])
FILES = {
    "a probability map": rewrite(lambda m: (m * 0.7).astype(np.float32)),
    "negative values": rewrite(lambda m: m.astype(np.int16) - 1),
    "not a number": rewrite(lambda m: np.where(m > 0, np.nan, 0).astype(np.float32)),
    "truncated": cut,
    "empty": lambda file: file.write_bytes(b""),
    "no image at all": lambda file: file.write_text("this is no mask"),
}
"""What is wrong with a mask by itself."""
GRIDS = {
    "flipped": rewrite(affine=FLIPPED),
    "wrong spacing": rewrite(affine=np.diag([1.0, 1.0, 3.0, 1.0])),
    "moved": rewrite(affine=np.array([[1.0, 0, 0, 5], [0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1]])),
    "turned": rewrite(shape=(1, 0, 2)),
}
"""What is wrong with a mask beside its truth."""


def slide_masks(folder):
    """Four slides with truth masks, and masks as predictions."""
    (folder / "truth").mkdir()
    (folder / "masks").mkdir()
    rows = []
    for i in range(4):
        array = np.zeros((40, 60), dtype=np.uint8)
        array[10:20, 10 : 20 + 5 * i] = 255
        for where in ("truth", "masks"):
            Image.fromarray(array).save(folder / where / f"s{i}.png")
        rows.append(
            {
                "case_id": f"s{i}",
                "patient_id": f"p{i}",
                "mask": f"truth/s{i}.png",
                "stage": "macro",
                "microns_per_pixel": 0.25,
            }
        )
    pd.DataFrame(rows).to_csv(folder / "cohort.csv", index=False)
    return Pair(cohort=folder / "cohort.csv", predictions=folder / "masks")


WORDS = {"0": "gutartig", "1": "Karzinom"}
BOTH = {
    "ids of another cohort": in_predictions(lambda f: f.assign(case_id="X" + f["case_id"])),
    "an id twice": in_predictions(lambda f: pd.concat([f, f[:1]])),
    "a score outside the scale": in_predictions(cell("probability", 7)),
    "a row without a score": in_predictions(cell("probability", None)),
    "a word for a score": in_predictions(cell("probability", "high")),
    "no score column": in_predictions(lambda f: f.rename(columns={"probability": "KI"})),
    "an unknown status and no score": in_predictions(
        lambda f: f.assign(status="done").pipe(cell("status", "Abbruch")).pipe(cell("probability", None))
    ),
    "an empty file": lambda files: files.predictions.write_text(""),
}
BAD = {
    "classification": BOTH
    | {
        "outcomes in other words": in_cohort(lambda f: f.assign(label=f["label"].map(WORDS))),
        "a case without an id": in_cohort(cell("case_id", None)),
    },
    "response": BOTH
    | {
        "outcomes in other words": in_cohort(lambda f: f.assign(pcr=f["pcr"].map(WORDS))),
    },
    "segmentation": {name: in_mask(change) for name, change in (FILES | GRIDS).items()}
    | {
        "a truncated truth": lambda files: cut(files.cohort.parent / "truth" / "S3.nii.gz"),
        "a truth that is not there": lambda files: (files.cohort.parent / "truth" / "S3.nii.gz").unlink(),
        "a case without a truth": in_cohort(cell("mask", None)),
        "two masks of one case": lambda files: write_nifti(
            box_mask((6, 10, 12), (1, 2, 2), (4, 7, 8)), files.predictions / "S3.nii", (2, 1, 1)
        ),
        "no mask": lambda files: [file.unlink() for file in files.predictions.iterdir()],
        "masks of other cases": lambda files: [
            file.rename(file.with_name(f"X{file.name}")) for file in files.predictions.iterdir()
        ],
    },
    "detection": {
        "a row without a score": in_predictions(cell("Score", None)),
        "a word for a score": in_predictions(cell("Score", "high")),
        "a negative size": in_predictions(cell("Width", -5)),
        "a box outside its volume": in_predictions(cell("Z", 400)),
        "no score column": in_predictions(lambda f: f.drop(columns="Score")),
        "volumes of another cohort": in_predictions(lambda f: f.assign(StudyUID="X" + f["StudyUID"])),
    },
    "slides": {
        "a stage that is none": in_predictions(cell("stage", "huge")),
        "a slide twice": in_predictions(lambda f: pd.concat([f, f[:1]])),
        "slides of another cohort": in_predictions(lambda f: f.assign(case_id="X" + f["case_id"])),
        "a truth that is no stage": in_cohort(cell("stage", "riesig")),
    },
    "slide masks": {
        "truncated": lambda files: cut(files.predictions / "s2.png"),
        "another size": lambda files: Image.new("L", (30, 40)).save(files.predictions / "s2.png"),
        "no image at all": lambda files: (files.predictions / "s2.png").write_text("no"),
        "a truncated truth": lambda files: cut(files.cohort.parent / "truth" / "s1.png"),
        "no resolution": in_cohort(lambda f: f.drop(columns="microns_per_pixel")),
    },
}


def make(task, folder):
    return slide_masks(folder) if task == "slide masks" else MAKERS[task](folder)


@pytest.mark.parametrize(("task", "bad"), [(task, bad) for task, table in BAD.items() for bad in table])
def test_check_refuses_what_score_refuses(run, tmp_path, task, bad):
    """Each of these ends `score` with 64, and `check` with 64, the same words and the same advice."""
    files = make(task, tmp_path)
    BAD[task][bad](files)
    task = task.split()[0] if task == "slide masks" else task
    task = "slides" if task == "slide" else task
    scored = run(
        "score", task, files.cohort, files.predictions, "--resamples", 0, "--out", tmp_path / "out", "--json"
    )
    assert scored.code == 64, scored.said
    checked = run("check", files.predictions, "--task", task, "--cohort", files.cohort, "--json")
    assert checked.code == 64, checked.said
    if "findings" not in checked.json:
        assert checked.json == scored.json
        return
    found = [f for f in checked.json["findings"] if f["severity"] == "error"]
    assert any(scored.json["error"] in f["message"] and f["fix"] == scored.json["fix"] for f in found), (
        scored.json,
        found,
    )
    assert "cannot be scored" in run("check", files.predictions, "--task", task, "--cohort", files.cohort).out


@pytest.mark.parametrize("task", [*BAD])
def test_check_approves_what_score_takes(run, tmp_path, task):
    files = make(task, tmp_path)
    task = "slides" if task == "slide masks" else task
    done = run("check", files.predictions, "--task", task, "--cohort", files.cohort, "--json")
    assert done.code == 0, done.said
    assert done.json["ok"] is True


def test_outcomes_that_scoring_leaves_out_are_named(run, pair):
    """Some cells in another language: scoring leaves those cases out, and `check` says so beforehand."""
    in_cohort(lambda f: f.assign(label=["Karzinom"] * 3 + list(f["label"][3:])))(pair)
    done = run("check", pair.predictions, "--task", "classification", "--cohort", pair.cohort)
    assert done.code == 0
    assert "'karzinom' (3)" in done.out


def test_an_empty_outcome_column_is_a_participants_copy(run, pair):
    in_cohort(lambda f: f.assign(label=None))(pair)
    done = run("check", pair.predictions, "--task", "classification", "--cohort", pair.cohort)
    assert done.code == 0
    assert "no outcomes" in done.out


def without_truth(files):
    in_cohort(lambda f: f.drop(columns="mask"))(files)


@pytest.mark.parametrize("bad", list(FILES))
@pytest.mark.parametrize("cohort", [True, False])
def test_a_participant_learns_what_is_wrong_with_a_mask(run, mask_pair, bad, cohort):
    """Without the truth, and without a cohort, every mask is still opened."""
    FILES[bad](mask_pair.predictions / "S3.nii.gz")
    without_truth(mask_pair)
    more = ("--cohort", mask_pair.cohort) if cohort else ()
    done = run("check", mask_pair.predictions, "--task", "segmentation", *more, "--json")
    assert done.code == 64, done.said
    assert "S3.nii.gz" in json.dumps(done.json["findings"])
    lenient = run(
        "check", mask_pair.predictions, "--task", "segmentation", *more, "--on-invalid", "worst", "--json"
    )
    assert lenient.code == 0
    assert any("1 masks are invalid" in f["message"] for f in lenient.json["findings"])


@pytest.mark.parametrize("cohort", [True, False])
def test_a_participant_learns_what_is_wrong_with_a_slides_mask(run, tmp_path, cohort):
    files = slide_masks(tmp_path)
    in_cohort(lambda f: f[["case_id", "patient_id"]])(files)
    more = ("--cohort", files.cohort) if cohort else ()
    arguments = ("check", files.predictions, "--task", "slides", *more, "--json")
    assert run(*arguments).code == 0
    cut(files.predictions / "s2.png")
    done = run(*arguments)
    assert done.code == 64
    assert "s2.png" in json.dumps(done.json["findings"])


@pytest.mark.parametrize("bad", list(GRIDS))
@pytest.mark.parametrize("phases", [True, False])
def test_a_participant_learns_that_a_mask_is_not_on_its_images_grid(run, mask_pair, bad, phases):
    """The cohort names the images: a mask must lie on the grid of its own, or scoring will refuse it."""
    folder = mask_pair.cohort.parent
    names = []
    for i in range(8):
        name = f"images/{i}/{i}_0000.nii.gz" if phases else f"images/{i}.nii.gz"
        write_nifti(np.zeros((6, 10, 12), dtype=np.float32), folder / name, (2.0, 1.0, 1.0))
        names.append(f"images/{i}" if phases else name)
    in_cohort(lambda f: f.drop(columns="mask").assign(image=names))(mask_pair)
    arguments = (
        "check",
        mask_pair.predictions,
        "--task",
        "segmentation",
        "--cohort",
        mask_pair.cohort,
        "--json",
    )
    fine = run(*arguments)
    assert fine.code == 0
    assert any("8 of 8 were compared" in f["message"] for f in fine.json["findings"])
    GRIDS[bad](mask_pair.predictions / "S3.nii.gz")
    done = run(*arguments)
    assert done.code == 64
    assert "its image" in json.dumps(done.json["findings"])


def test_every_bad_mask_is_named(run, mask_pair):
    """A participant mends forty files once, and not forty times one."""
    for name in ("S2", "S4", "S6"):
        cut(mask_pair.predictions / f"{name}.nii.gz")
    done = run(
        "check", mask_pair.predictions, "--task", "segmentation", "--cohort", mask_pair.cohort, "--json"
    )
    found = [f["message"] for f in done.json["findings"] if f["severity"] == "error"]
    assert len(found) == 3


def test_a_part_of_the_cohort_is_checked_as_it_is_scored(run, pair, tmp_path):
    """Outcomes in other words in one part of the cohort: `score` refuses that part, and so does `check` with --where."""
    frame = pd.read_csv(pair.cohort)
    part = np.where(frame["label"] == 1, "a", "b")
    label = frame["label"].map({0: "benign", 1: "Karzinom"})
    frame.assign(part=part, label=label).to_csv(pair.cohort, index=False)
    arguments = ("--where", "part=a", "--json")
    scored = run(
        "score", "classification", pair.cohort, pair.predictions, "--out", tmp_path / "o", *arguments
    )
    checked = run("check", pair.predictions, "--task", "classification", "--cohort", pair.cohort, *arguments)
    assert scored.code == checked.code == 64
    assert any(scored.json["error"] in f["message"] for f in checked.json["findings"])
    assert run("check", pair.predictions, "--task", "classification", "--where", "part=a").code == 64


def test_status_words_are_listed_everywhere(run, pair, tmp_path):
    """'technical failure' is counted apart, and every word stands on the console, in the json and in `check`."""
    said = pd.read_csv(pair.predictions)
    said = said.assign(status=["technical failure", "Abbruch"] + ["done"] * (len(said) - 2))
    said.to_csv(pair.predictions, index=False)
    score = ("score", "classification", pair.cohort, pair.predictions, "--resamples", 0)
    done = run(*score, "--out", tmp_path / "a", "--json")
    words = {w["word"]: w["meaning"] for w in done.json["score_extras"]["status_words"]}
    assert words == {
        "done": "score used",
        "technical failure": "could not be analysed",
        "Abbruch": "not known: score used",
    }
    assert done.json["counts"]["not_analysable"] == 1
    text = run(*score, "--out", tmp_path / "b").out
    assert "'technical failure' in 1 row" in text
    assert "--failed-status 'Abbruch'" in text
    checked = run("check", pair.predictions, "--task", "classification", "--cohort", pair.cohort).out
    assert "--failed-status 'Abbruch'" in checked
    declared = run(*score, "--failed-status", "abbruch", "--out", tmp_path / "c", "--json")
    assert declared.json["counts"]["not_analysable"] == 2
    ranked = (
        "rank",
        pair.predictions,
        "--cohort",
        pair.cohort,
        "--task",
        "classification",
        "--resamples",
        50,
    )
    assert "'Abbruch' (1 rows)" in run(*ranked).out
    assert "'Abbruch'" not in run(*ranked, "--failed-status", "Abbruch").out


def test_a_volume_without_boxes_is_an_answer(run, tmp_path):
    files = MAKERS["detection"](tmp_path)
    boxes = pd.read_csv(files.predictions)
    boxes[boxes["StudyUID"] != boxes["StudyUID"][0]].to_csv(files.predictions, index=False)
    result = run("check", files.predictions, "--task", "detection", "--cohort", files.cohort)
    assert result.code == 0
    assert "have no box: in them, nothing was found" in result.out + result.err
    assert "worst" not in result.out + result.err
