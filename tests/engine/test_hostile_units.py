"""Units and model files that somebody made up: nothing in them runs, nothing unpacks without end, nobody gets a traceback."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from elsewhere.cli import main
from elsewhere.engine.arrays import read_arrays
from elsewhere.engine.kept import pack_kept
from elsewhere.engine.outcomes import StoredWeights
from elsewhere.engine.store import DamagedUnitError, Store
from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from worlds import tiny_trainer


class Runs:
    """What a pickle may hold: a call."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def stored(path: Path) -> StoredWeights:
    return StoredWeights(path, hashlib.sha256(path.read_bytes()).hexdigest())


def fit(folder: Path) -> None:
    """Digests and sizes as they would be of what lies there."""
    done = json.loads((folder / "done.json").read_text())
    for name in done["digests"]:
        content = (folder / name).read_bytes()
        done["digests"][name], done["sizes"][name] = hashlib.sha256(content).hexdigest(), len(content)
    (folder / "done.json").write_text(json.dumps(done))


@pytest.fixture
def unit_folder(tmp_path, work, units_of) -> Path:
    store = Store(tmp_path / "store")
    (unit,) = units_of(1)
    store.save(unit, tiny_trainer.outcome_of(unit, work, "cpu"))
    return store.path / "units" / unit.key


def test_a_pickle_in_a_networks_weights_is_not_run_and_is_refused_in_words(tmp_path):
    """It was not run before either, and ended in a traceback."""
    torch = pytest.importorskip("torch")
    path = tmp_path / "weights.pt"
    torch.save({"head": Runs(tmp_path / "ran")}, path)
    with pytest.raises(UserError, match=r"saved weights cannot be read .*"):
        dict(stored(path))
    path.write_bytes(pickle.dumps(Runs(tmp_path / "ran")))
    with pytest.raises(UserError, match="saved weights cannot be read"):
        dict(stored(path))
    assert not (tmp_path / "ran").exists()


def test_a_pickle_in_a_recipes_weights_is_not_run(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, tree=np.array([Runs(tmp_path / "ran")], dtype=object))
    with pytest.raises(UserError, match="pickled objects, which are not read"):
        dict(stored(path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "tree",
    [
        "[" * 50_000,
        "[1]",
        '{"map": {"a": {"array": "none", "shape": []}}}',
        '{"map": {"a": {"tensor": "tree", "kind": "x", "shape": [9]}}}',
        "{",
        '{"list": 1}',
    ],
)
def test_a_tree_that_does_not_fit_its_arrays_is_refused(tmp_path, tree):
    path = tmp_path / "weights.npz"
    np.savez(path, tree=np.array(tree))
    with pytest.raises(UserError, match="weights"):
        dict(stored(path))


def test_what_was_kept_is_read_as_before(tmp_path):
    path = tmp_path / "weights.npz"
    path.write_bytes(pack_kept({"a": 1.5, "deep": {"b": [None, np.arange(3)]}, "c": b"x", "d": float("nan")}))
    held = dict(stored(path))
    assert held["a"] == 1.5 and held["deep"]["b"][1].tolist() == [0, 1, 2] and held["c"] == b"x"


def claimed(path: Path, shape: tuple[int, ...]) -> None:
    """An array whose header claims more than its bytes hold."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", header.getvalue() + b"\0" * 16)


def test_an_array_that_claims_more_than_it_has_makes_no_room(tmp_path):
    """numpy makes room by the claim: a file of 200 bytes asked for terabytes."""
    claimed(tmp_path / "x.npz", (10**13,))
    with pytest.raises(ValueError, match="does not fit its bytes"):
        read_arrays(tmp_path / "x.npz")
    claimed(tmp_path / "x.npz", (2,))
    assert read_arrays(tmp_path / "x.npz")["a"].tolist() == [0, 0]


def test_a_file_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ELSEWHERE_MAX_BYTES", "200MB")
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w") as file,
    ):
        for _ in range(300):
            file.write(b"\0" * (1 << 20))
    with pytest.raises(UserError, match="unpacks to"):
        read_arrays(tmp_path / "x.npz")
    with pytest.raises(UserError, match="unpacks to"):
        Store(tmp_path / "store").add(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("unit.json", "[" * 50_000),
        ("unit.json", "[1]"),
        ("unit.json", '{"key": 5}'),
        ("unit.json", '{"train": [1, 2]}'),
        ("unit.json", '{"recipe": {"network": ["x"]}}'),
        ("unit.json", '{"job": {"name": ["x"]}}'),
        ("history.json", "[" * 50_000),
        ("history.json", "5"),
        ("history.json", '[{"epoch": "one"}]'),
        ("outputs.npz", "no zip"),
    ],
)
def test_files_of_a_unit_that_fit_their_digests_and_hold_something_else(unit_folder, name, content):
    """Deep JSON and other types ended in a traceback where the digests fitted."""
    (unit_folder / name).write_text(content)
    fit(unit_folder)
    store = Store(unit_folder.parents[1])
    with pytest.raises(
        UserError, match=r"cannot be understood|damaged|not hold a JSON object|nested too deeply"
    ):
        store.unit(unit_folder.name)


@pytest.mark.parametrize("how", [{"digests": []}, {"sizes": None}, {"name": ["x"]}, {"versions": 5}, {"best_epoch": "x"}, {"trained_on": {"datasets": 5}}, {"trained_on": "all"}])  # fmt: skip
def test_a_done_file_of_another_shape_is_damage(unit_folder, how):
    done = json.loads((unit_folder / "done.json").read_text())
    (unit_folder / "done.json").write_text(json.dumps(done | how))
    with pytest.raises(DamagedUnitError):
        Store(unit_folder.parents[1]).load(unit_folder.name)


def test_a_unit_is_what_it_was(work, units_of):
    (unit,) = units_of(1)
    assert Training.from_dict(json.loads(json.dumps(unit.to_dict()))) == unit


def test_names_from_a_model_file_are_printed_without_their_escapes(unit_folder, tmp_path):
    """A model's name could clear the screen of whoever listed it."""
    pytest.importorskip("torch")
    store = Store(unit_folder.parents[1])
    unit, outcome = store.unit(unit_folder.name), store.load(unit_folder.name)
    from dataclasses import replace

    import torch

    about = {name: [] for name in ("patients", "ids", "also", "pixels", "clinical")}
    about |= {
        "study": "x",
        "cohorts": {},
        "datasets": {"A\x1b[31m": 4},
        "n_patients": 4,
        "train": 4,
        "validation": 0,
    }
    evil = Store(tmp_path / "evil")
    evil.save(
        replace(unit, name="\x1b[2J\u202emodel\r", keep_weights=True),
        replace(outcome, weights={"head": torch.zeros(2)}, trained_on=about),
    )
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as end:
        main(["models", str(tmp_path / "evil")])
    assert not end.value.code
    assert "\\x1b[2J\\u202emodel\\x0d" in said.getvalue() and "\x1b" not in said.getvalue()
    with contextlib.redirect_stdout(as_json := io.StringIO()), pytest.raises(SystemExit):
        main(["models", str(tmp_path / "evil"), "--json"])
    assert json.loads(as_json.getvalue())["models"][0]["name"] == "\x1b[2J\u202emodel\r"
    assert "\u202e" not in as_json.getvalue()
