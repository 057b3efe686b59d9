"""A work folder, and the engine on a bare machine."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import elsewhere.engine
from elsewhere.engine.__main__ import main
from elsewhere.engine.store import Store
from elsewhere.engine.work import load_work, save_work
from elsewhere.errors import UserError
from elsewhere.inputs import Pictures
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec
from worlds import child_environment, tiny_trainer
from worlds.tiny_pictures import BARE, boxes_of, logits_of, make_units, make_work


@pytest.fixture
def folder(tmp_path, work) -> Path:
    return save_work(make_units(work, 4), work, tmp_path / "work")


def bare(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", BARE, *map(str, arguments)],
        env=child_environment(),
        capture_output=True,
        text=True,
        **options,
    )


def test_a_work_folder_comes_back_the_same(tmp_path, work):
    weights = tmp_path / "efficientnet.pth"
    weights.write_bytes(b"weights")
    pictures = work.sources["pictures"]
    masks = {name: (pictures.encoded(name),) for name in work.cases.case[:3]}
    given = replace(
        work,
        sources={"pictures": Pictures({name: pictures.encoded(name) for name in pictures.cases}, masks)},
        weights={"efficientnet-b0/imagenet": weights},
    )
    (finder,) = make_units(work, 1, finder=True)
    (user,) = make_units(work, 1, input=InputSpec(kind="roi"), boxes="f" * 32)
    given = replace(given, outcomes=lambda key: tiny_trainer.outcome_of(finder, work, "cpu"))
    units = [*make_units(work, 2), finder, user]
    save_work(units, given, tmp_path / "w")
    save_work(units, given, tmp_path / "w", replace=True)
    again, held = load_work(tmp_path / "w")
    assert again == units
    assert held.cases.case == work.cases.case
    assert np.array_equal(held.cases.box, work.cases.box)
    there = held.sources["pictures"]
    assert there.encoded("A/000") == pictures.encoded("A/000")
    assert there.has_mask("A/002")
    assert not there.has_mask("A/003")
    assert {name: path.read_bytes() for name, path in held.weights.items()} == {
        "efficientnet-b0/imagenet": b"weights"
    }
    assert boxes_of(held.outcomes("f" * 32)).tolist()[0] == [1, 2, 5, 6]
    assert sorted(p.name for p in (tmp_path / "w" / "sources" / "pictures").iterdir()) == [
        "00-A.npz",
        "01-B.npz",
    ]


def test_only_the_cases_that_units_name_travel(tmp_path, work):
    (unit,) = make_units(work, 1, predict=("B/009",))
    save_work([unit], work, tmp_path / "w")
    (again,), held = load_work(tmp_path / "w")
    assert again.key == unit.key
    assert held.cases.case == (*work.cases.case[:6], "B/009")
    assert len(held.sources["pictures"]) == 7


def test_a_folder_of_other_things_is_left_alone(tmp_path, work):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years")
    with pytest.raises(UserError, match="left alone"):
        save_work(make_units(work, 1), work, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years"


@pytest.mark.parametrize("damage", ["no units", "no cases", "version", "key", "weights", "not json"])
def test_a_bad_work_folder_is_a_clear_error(folder, damage):
    file = folder / "units.json"
    content = json.loads(file.read_text())
    if damage == "no units":
        file.unlink()
    elif damage == "no cases":
        (folder / "cases.npz").unlink()
    elif damage == "version":
        content["version"] = 99
    elif damage == "key":
        content["units"][0]["seed"] = 77
    elif damage == "weights":
        content["weights"] = {"x": "../../etc/passwd"}
    if damage in ("version", "key", "weights"):
        file.write_text(json.dumps(content))
    if damage == "not json":
        file.write_text("{")
    with pytest.raises(UserError, match=str(folder)):
        load_work(folder)


def test_on_a_bare_machine(folder, tmp_path, work):
    """With numpy and Pillow alone (and torch, for Elsewhere's own trainer)."""
    options = ("--store", tmp_path / "s", "--device", "cpu", "--trainer", "worlds.tiny_trainer:train")
    first = bare(folder, *options, "--only", "A seed 1", "--zip", tmp_path / "one.zip")
    assert first.returncode == 0, first.stderr
    assert "1 trained, 0 already in the store, 0 failed, 0 left" in first.stdout
    second = bare(folder, *options, "--zip", tmp_path / "all.zip")
    assert second.returncode == 0, second.stderr
    lines = second.stdout.splitlines()
    assert lines[0] == "4 units, 12 pictures, device cpu"
    assert re.fullmatch(r"\[2/4\] A seed 0: 0\.0 s, 1 epochs, best 1, 6 predicted", lines[1])
    assert "3 trained, 1 already in the store, 0 failed, 0 left for another run" in lines
    assert re.search(
        r"s: decode \d+\.\d s, train 0\.0 s, predict 0\.0 s \(summed over lanes\)", second.stdout
    )
    home = Store(tmp_path / "home")
    assert len(home.add(tmp_path / "one.zip")) == 1
    assert len(home.add(tmp_path / "all.zip")) == 3
    for unit in make_units(work, 4):
        assert home.has(unit, work.cases)
        assert np.array_equal(
            logits_of(home.load(unit.key)), logits_of(tiny_trainer.outcome_of(unit, work, "cpu"))
        )


def test_the_default_trainer_needs_no_table_library(tmp_path):
    """Elsewhere's own trainer imports on such a machine too."""
    pytest.importorskip("torch")
    code = (
        BARE.partition("import runpy")[0]
        + "from elsewhere.engine.batch import *; find_trainer(DEFAULT_TRAINER)\n"
        + "import elsewhere.training.pictures.concurrent, elsewhere.training.detection.finder"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_failures_and_mistakes_have_exit_codes(tmp_path, work, capsys):
    units = [
        *make_units(work, 1),
        *make_units(work, 1, recipe=ClassifierSettings(method="fail"), name="bad one"),
    ]
    folder = save_work(units, work, tmp_path / "w")
    options = ["--store", str(tmp_path / "s"), "--device", "cpu", "--trainer", "worlds.tiny_trainer:train"]
    assert main([str(folder), *options]) == 1
    assert "bad one: FAILED: it would not learn" in capsys.readouterr().out
    assert main([str(folder), *options, "--only", "A seed"]) == 0
    assert main([str(folder), *options, "--only", "none such"]) == 64
    assert main([str(folder), *options, "--only-recipe", "none such"]) == 64
    assert "no unit's name or key starts with 'none such'" in capsys.readouterr().err
    assert main([str(tmp_path), *options]) == 64


def test_out_of_time_it_stops_and_writes_the_zip(folder, tmp_path, capsys):
    options = ["--store", str(tmp_path / "s"), "--device", "cpu", "--trainer", "worlds.tiny_trainer:train"]
    assert main([str(folder), *options, "--only", "A seed 0"]) == 0
    assert main([str(folder), *options, "--limit-seconds", "0", "--zip", str(tmp_path / "z.zip")]) == 0
    out = capsys.readouterr().out
    assert "0 trained, 1 already in the store, 0 failed, 3 left for another run" in out
    assert f"zip: {tmp_path / 'z.zip'} (1 units)" in out


def test_a_polite_kill_still_writes_the_zip(tmp_path):
    work = make_work()
    folder = save_work(make_units(work, 30, seconds=0.2), work, tmp_path / "w")
    command = [sys.executable, "-c", BARE, folder, "--store", tmp_path / "s", "--device", "cpu"]
    command += ["--trainer", "worlds.tiny_trainer:train", "--zip", tmp_path / "z.zip"]
    process = subprocess.Popen(
        list(map(str, command)), env=child_environment(), stdout=subprocess.PIPE, text=True
    )
    while "[2/30]" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "interrupted; finished units are saved" in out
    found = Store(tmp_path / "home").add(tmp_path / "z.zip")
    assert 2 <= len(found) < 30
    assert sorted(found) == Store(tmp_path / "s").keys()


def test_a_limit_far_away_changes_nothing(folder, tmp_path):
    options = ["--store", str(tmp_path / "s"), "--device", "cpu", "--trainer", "worlds.tiny_trainer:train"]
    assert main([str(folder), *options, "--limit-seconds", "3600"]) == 0
    assert len(Store(tmp_path / "s").keys()) == 4


def test_the_engine_uses_no_room_that_needs_tables():
    rooms = set()
    for file in Path(elsewhere.engine.__file__).parent.glob("*.py"):
        rooms |= set(re.findall(r"^\s*(?:from|import) elsewhere\.(\w+)", file.read_text(), re.MULTILINE))
    assert rooms <= {"engine", "errors", "files", "inputs", "predictions", "registry", "untrusted"}
