"""Studies on a disk that fills up: nothing that was finished is lost, and the exports are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from elsewhere.commands.plan import plan_study
from elsewhere.commands.predict import list_models, predict
from elsewhere.commands.run import run_study
from elsewhere.engine.store import Store
from elsewhere.errors import FileSystemError
from elsewhere.files import MARKER
from worlds import fake_recipes  # noqa: F401 - registers 'threshold' and those that keep
from worlds.mri_study import STUDY, make_study, make_world
from worlds.picture_study import train

KB = 1024
SIZES = [0, *(4 * KB * 2**n for n in range(13))]


def fills_up(disk, call, *, out: Path, sizes: list[int]) -> None:
    """Call with ever more space until it succeeds; every failure before that must have changed nothing."""
    failed = 0
    for free in sizes:
        disk.leave(free)
        before = disk.tree()
        try:
            call()
            break
        except FileSystemError as error:
            failed += 1
            assert error.exit_code == 74
            assert "no space left" in str(error).lower() and "Free some space" in str(error)
            assert str(out) in str(error)
            assert disk.tree() == before, free
    else:
        raise AssertionError("it never succeeded")
    assert failed, "the disk was never full"


def test_a_study_on_a_full_disk_resumes_and_loses_nothing(world, small_disk, trainings):
    """The store keeps what was finished; the same command with more space trains only the rest."""
    out, held = small_disk.root / "out", 0
    ended = False
    for free in (0, 100 * KB, 300 * KB, 300 * KB, 16 * KB * KB):
        small_disk.leave(free)
        try:
            done = run_study(world, out=out, trainer=train, report=False, seeds=[1])
        except FileSystemError as error:
            assert error.exit_code == 74 and "no space left" in str(error).lower()
            now = len(Store(out / "store").keys())
            assert now >= held, "a finished training was lost"
            held = now
            continue
        ended = True
        assert (
            done.to_dict()["trainings"] | {"reused": held, "trained": 32 - held}
            == (done.to_dict()["trainings"])
        )
    assert ended and held > 0
    assert not [name for name in small_disk.tree() if name.endswith((".partial", ".new", ".old"))]


@pytest.mark.slow
@pytest.mark.parametrize("replace", [False, True], ids=["new", "replaced"])
def test_the_work_of_a_study_as_a_folder(replace, world, tmp_path, small_disk):
    plan = {"out": tmp_path / "study", "seeds": [1], "replace": replace}
    for option in ("splits", "export"):
        out = small_disk.root / option
        if replace:
            small_disk.leave(16 * KB * KB)
            plan_study(world, **plan, **{option: out})
            (out / "notes.txt").write_text("of a person")
        fills_up(
            small_disk,
            lambda option=option, out=out: plan_study(world, **plan, **{option: out}),
            out=out,
            sizes=SIZES,
        )
        assert (out / MARKER).exists()
        assert not replace or (out / "notes.txt").read_text() == "of a person"


@pytest.mark.slow
def test_models_and_predictions(tmp_path, small_disk):
    keeping = STUDY.replace('name = "tiny"', 'name = "tiny"\nkeep_weights = ["rest>DUKE"]')
    (tmp_path / "study").mkdir()
    study = make_study(tmp_path / "study", keeping + '\n[recipes.keeper]\nrecipe = "kept-threshold"\n')
    data = make_world(tmp_path / "world")
    ran = run_study(study, data=data, out=tmp_path / "out", device="cpu", report=False)
    results, model = ran.run.paths.out, "rest>DUKE|keeper"
    file = small_disk.root / "keeper.zip"
    fills_up(
        small_disk,
        lambda: list_models(results, model=model, export=file),
        out=file,
        sizes=[0, 1024, 512 * KB],
    )
    from elsewhere.cohort import read_cohort

    cohort = read_cohort("mama-mia", data)
    out = small_disk.root / "said"

    def apply():
        predict(results, cohort, out=out, model=model, where={"dataset": "DUKE"}, device="cpu")

    fills_up(small_disk, apply, out=out, sizes=SIZES[::2])
    assert (out / MARKER).exists()
