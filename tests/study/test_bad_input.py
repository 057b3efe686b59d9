"""Bad input of a study through the command line: exit 64 with what, where and what to do, or counted; nothing lost.

The trainer is the fake one of `study_world`, or the real one on the smallest network where training matters.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import study_world
from PIL import Image
from study_world import edit

from elsewhere.cli import main
from elsewhere.engine.store import Store
from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK

FAKE = ("--trainer", "study_world:train", "--no-report", "--seeds", "1", "--only-model", "cnn")


def call(*arguments: object) -> tuple[int, str]:
    """Exit code, and both streams."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0), said.getvalue()


def refused(*arguments: object, says: tuple[str, ...]) -> str:
    code, said = call(*arguments)
    assert code == EXIT_BAD_INPUT, said
    for word in says:
        assert word in said
    assert "Traceback" not in said
    return said


@pytest.fixture
def two(tmp_path) -> Path:
    """A study of two hospitals."""
    (tmp_path / "two").mkdir()
    return study_world.write_world(tmp_path / "two", datasets=("Alder", "Birch"))


def test_a_truncated_picture_stops_before_anything_is_written(two, tmp_path):
    path = two.parent / "Birch" / "images" / "b010_0.png"
    path.write_bytes(path.read_bytes()[:120])
    says = ("b010_0", str(path), "is the file whole?", "Fetch the file again")
    refused("run", two, "--out", tmp_path / "out", *FAKE, says=says)
    assert not (tmp_path / "out" / "predictions.parquet").exists()


def test_empty_patients_stop_before_training_and_name_the_rows(two, tmp_path, trainings):
    def lose(frame):
        frame.loc[[3, 8], "patient_id"] = ""

    edit(two, "Alder", lose)
    refused("run", two, "--out", tmp_path / "out", *FAKE, says=("cohort.csv", "rows 4, 9", "Fill them in"))
    assert trainings() == []
    code, said = call("plan", two, "--out", tmp_path / "out", "--set", "study.publication=false")
    assert code == EXIT_OK
    assert "2 rows without a patient id count as a patient each" in said


def test_other_labels_and_missing_boxes_are_counted(two, tmp_path):
    def spoil(frame):
        frame.loc[0, "label"] = "unclear"
        frame.loc[1, ["box_x0", "box_x1"]] = [9, 2]

    edit(two, "Alder", spoil)
    code, said = call("run", two, "--out", tmp_path / "out", *FAKE)
    assert code == EXIT_OK, said
    audit = json.loads((tmp_path / "out" / "study.json").read_text())["audit"]
    assert audit["left_out"] == [
        {"dataset": "Alder", "reason": "label 'unclear' is not in the list", "rows": 1}
    ]
    assert (audit["cohorts"]["Alder"]["invalid_box"], audit["cohorts"]["Alder"]["without_box"]) == (1, 1)
    runs = pd.read_csv(tmp_path / "out" / "runs.csv").set_index("run")
    assert runs.loc["Alder|cnn|roi|1", "roi_fallbacks"] == 1
    assert runs.loc["Birch|cnn|roi|1", "roi_fallbacks"] == 0


def test_a_hospital_of_one_class_is_told_in_plan_run_and_report(two, tmp_path):
    def soften(frame):
        frame["label"] = frame["label"].replace("malignant", "benign")

    edit(two, "Alder", soften)
    out = tmp_path / "out"
    why = "0 patients with a malignant"
    code, said = call("plan", two, "--out", out)
    assert code == EXIT_OK and said.count("skipped: ") == 3 and why in said
    code, said = call("run", two, "--out", out, *[word for word in FAKE if word != "--no-report"])
    assert said.count("skipped: ") == 3 and why in said
    assert why in (out / "report" / "report.html").read_text()
    skipped = json.loads((out / "splits" / "index.json").read_text())["skipped"]
    assert {entry["scenario"]["name"] for entry in skipped} == {"Alder", "Alder>Birch", "Birch>Alder"}
    assert set(pd.read_csv(out / "runs.csv")["status"]) == {"done", "skipped"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--set", "models.cnn.epoch=2"), ("tiny.toml", "unknown key 'models.cnn.epoch'", "epochs")),
        (("--set", "models.cnn.epochs=two"), ("tiny.toml", "models.cnn.epochs", "valid integer")),
        (("--set", "models.cnn.network=tiny-cn"), ("tiny.toml", "unknown network", "tiny-cnn")),
        (("--set", "cohort.0.reader=bus-bar"), ("unknown reader", "bus-bra")),
        (("--only-input", "rio"), ("tiny.toml", "no input 'rio'", "roi")),
        (("--only", "Alder>Brch"), ("unknown scenario", "Alder>Birch")),
        (("--set", "cohort.1.name=Alder"), ("cohort 2", "two cohorts bring the dataset 'Alder'", "name =")),
        (("--set", "models.cnn.weights=no.pt"), ("models.cnn.weights", "no such file of weights")),
    ],
)
def test_a_mistake_in_the_study_file(two, tmp_path, words, says):
    refused("plan", two, "--out", tmp_path / "out", *words, says=says)
    assert not (tmp_path / "out" / "study.json").exists()


def test_a_store_of_another_version_is_left_alone(two, tmp_path):
    call("run", two, "--out", tmp_path / "out", *FAKE)
    for path in (tmp_path / "out" / "store" / "units").glob("*/done.json"):
        path.write_text(path.read_text().replace('"version": 1', '"version": 99'))
    before = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "out" / "store" / "units").rglob("*"))
    says = ("another version", "99", "--store")
    refused("run", two, "--out", tmp_path / "out", *FAKE, says=says)
    assert (
        sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "out" / "store" / "units").rglob("*")) == before
    )


def test_a_damaged_training_is_set_aside_and_done_again(two, tmp_path, trainings):
    call("run", two, "--out", tmp_path / "out", *FAKE)
    before = (tmp_path / "out" / "predictions.parquet").read_bytes()
    path = next((tmp_path / "out" / "store" / "units").glob("*/outputs.npz"))
    path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)
    done = len(trainings())
    code, said = call("run", two, "--out", tmp_path / "out", *FAKE)
    assert code == EXIT_OK and "warning: " in said and "is damaged" in said and "set aside" in said
    assert len(trainings()) == done + 1
    assert (tmp_path / "out" / "predictions.parquet").read_bytes() == before


def test_a_tampered_split_is_made_again(two, tmp_path):
    call("run", two, "--out", tmp_path / "out", *FAKE)
    path = tmp_path / "out" / "splits" / "Alder_seed-1.csv"
    before = path.read_text()
    path.write_text(before.replace(",train\n", ",test\n"))
    assert call("run", two, "--out", tmp_path / "out", *FAKE)[0] == EXIT_OK
    assert path.read_text() == before


def _odd_zip(file: Path, key: str, name: str, content: bytes) -> None:
    """The zip with one file of a unit changed, its digest and size made to fit."""
    with zipfile.ZipFile(file) as archive:
        held = {entry: archive.read(entry) for entry in archive.namelist()}
    held[f"units/{key}/{name}"] = content
    done = json.loads(held[f"units/{key}/done.json"])
    done["digests"][name], done["sizes"][name] = hashlib.sha256(content).hexdigest(), len(content)
    held[f"units/{key}/done.json"] = json.dumps(done).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for entry, data in held.items():
            archive.writestr(entry, data)


def _npz(**arrays) -> bytes:
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


@pytest.mark.parametrize(
    "what",
    ["a key of the future", "no object", "one column", "fewer rows", "an object array", "cut", "stray"],
)
def test_a_bad_zip_is_refused_whole(two, tmp_path, what):
    call("run", two, "--out", tmp_path / "out", *FAKE)
    store = Store(tmp_path / "out" / "store")
    key = store.keys()[0]
    file = store.export(store.keys(), tmp_path / "x.zip")
    unit, found = store.unit(key).to_dict(), store.load(key)
    n, answers = len(found.case), found.answers["classification"]
    arrays = {"case": np.array(found.case), "fingerprint": found.fingerprint, "distance": answers.distance}
    if what == "a key of the future":
        _odd_zip(
            file,
            key,
            "unit.json",
            json.dumps(unit | {"recipe": unit["recipe"] | {"settings": {"wisdom": 1}}}).encode(),
        )
    elif what == "no object":
        _odd_zip(file, key, "unit.json", b"[1]")
    elif what == "one column":
        _odd_zip(file, key, "outputs.npz", _npz(**arrays, logits=np.zeros((n + n % 2 + 1, 1), np.float32)))
    elif what == "fewer rows":
        _odd_zip(file, key, "outputs.npz", _npz(**arrays, logits=answers.logits[:-1]))
    elif what == "an object array":
        _odd_zip(file, key, "outputs.npz", _npz(**arrays, logits=np.array([None, {}], dtype=object)))
    elif what == "cut":
        file.write_bytes(file.read_bytes()[:-300])
    else:
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr("units/../../evil.json", b"{}")
    refused("run", two, "--out", tmp_path / "new", *FAKE, "--import", file, says=(str(file),))
    assert Store(tmp_path / "new" / "store").keys() == []
    assert not list(tmp_path.rglob("evil.json"))


def test_a_study_that_grew_while_time_is_up_tells_which_runs_are_not_done(two, tmp_path):
    """The store's trainings do not know the new hospital: its runs wait, the others stand."""
    study_world.write_hospital(two.parent, "Cedar")
    store = tmp_path / "store"
    call("run", two, "--out", tmp_path / "out", "--store", store, *FAKE)
    before = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    two.write_text(
        two.read_text().replace("[scenarios]", '[[cohort]]\nsource = "Cedar/cohort.csv"\n[scenarios]')
    )
    words = ("--out", tmp_path / "out", "--store", store, *FAKE)
    _, said = call("run", two, *words, "--minutes", 0)
    assert "Traceback" not in said
    runs = pd.read_csv(tmp_path / "out" / "runs.csv").set_index("run")
    assert runs.loc["Alder>Birch|cnn|whole|1", "status"] == "done"
    assert runs.loc["Alder>Cedar|cnn|whole|1", "status"] == "failed"
    assert "not been done again yet" in runs.loc["Alder>Cedar|cnn|whole|1", "reason"]
    after = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert set(before["run"]) == set(after["run"])
    assert call("run", two, *words)[0] == EXIT_OK
    assert set(pd.read_csv(tmp_path / "out" / "runs.csv")["status"]) == {"done"}


def test_answers_to_a_picture_that_changed_since_are_not_taken(two, tmp_path):
    out = tmp_path / "out"
    call("run", two, "--out", out, *FAKE)
    changed = two.parent / "Birch" / "images" / "b010_0.png"
    Image.fromarray(np.zeros((20, 24), np.uint8)).save(changed)
    call("run", two, "--out", out, *FAKE, "--minutes", 0)
    runs = pd.read_csv(out / "runs.csv").set_index("run")
    assert runs.loc["Alder>Birch|cnn|whole|1", "status"] == "failed"
    assert runs.loc["Alder|cnn|whole|1", "status"] == "done"


REAL = """
[study]
name = "real"
[[cohort]]
source = "Alder/cohort.csv"
[[cohort]]
source = "Birch/cohort.csv"
[scenarios]
seeds = [1, 2]
keep_duplicates_together = false
[inputs.whole]
kind = "whole"
[models.tiny]
network = "tiny-cnn"
weights = "none"
size_px = 32
epochs = 2
"""


@pytest.fixture
def real(two) -> Path:
    path = two.parent / "real.toml"
    path.write_text(REAL)
    return path


def test_no_memory_left_on_the_device(real, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from elsewhere.training.program import Program

    epoch, begun = Program.epoch, []

    def full(program, *arguments):
        begun.append(True)
        if len(begun) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return epoch(program, *arguments)

    monkeypatch.setattr(Program, "epoch", full)
    out = tmp_path / "out"
    refused("run", real, "--out", out, "--no-report", says=("no memory left", "--lanes 1", "run again"))
    assert len(Store(out / "store").keys()) == 2
    monkeypatch.setattr(Program, "epoch", epoch)
    code, said = call("run", real, "--out", out, "--no-report")
    assert code == EXIT_OK and "2 were in the store" in said


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")
def test_killed_in_the_middle_of_real_training_it_ends_with_the_same_bits(real, tmp_path):
    pytest.importorskip("torch")
    program = "import sys; from elsewhere.cli import main; main(sys.argv[1:])"

    def start(out):
        words = [sys.executable, "-c", program, "run", str(real), "--out", str(out), "--no-report"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole).wait() == EXIT_OK
    first = start(killed)
    store = Store(killed / "store")
    deadline = time.monotonic() + 120
    while len(store.keys()) < 2 and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert 0 < len(store.keys()) < len(Store(whole / "store").keys())
    again = start(killed)
    said, _ = again.communicate()
    assert again.returncode == EXIT_OK, said
    assert (killed / "predictions.parquet").read_bytes() == (whole / "predictions.parquet").read_bytes()
