"""A disk that fills up while a command writes: exit 74, a message with the path, and nothing lost or left behind.

The disk is a tmpfs, so that the refusals are the system's own. Each command is run with ever more space until it
succeeds: somewhere in between, every one of its files meets the end of the disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from elsewhere.files import MARKER
from worlds.task_files import two_results

KB = 1024
SIZES = [0, *(4 * KB * 2**n for n in range(13))]
"""Bytes left on the disk, up to 16 MB."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, run) -> Path:
    """What the commands read, on an ordinary disk."""
    return two_results(tmp_path_factory.mktemp("inputs"), run)


def fills_up(run, disk, command: list[object], *, sizes: list[int], out: Path) -> None:
    """Run with ever more space until it succeeds; every failure before that must have changed nothing."""
    failed = 0
    for free in sizes:
        disk.leave(free)
        before = disk.tree()
        done = run(*command)
        if done.code != 74:
            assert done.code in (0, 2, 3, 4, 5), (free, done.said)
            assert "Traceback" not in done.said
            break
        failed += 1
        assert "No space left on device" in done.err and "Free some space" in done.err, (free, done.said)
        assert str(out) in done.err, (free, done.said)
        assert "Traceback" not in done.said and "Exception ignored" not in done.said
        changed = {n for n, content in disk.tree().items() if before.get(n, "") != content} | (
            set(before) - set(disk.tree())
        )
        assert not changed, (free, changed)
    else:
        raise AssertionError(f"it never succeeded: {done.said}")
    assert failed, "the disk was never full"


def with_an_earlier_result(disk, inputs: Path) -> Path:
    out = disk.root / "out"
    shutil.copytree(inputs / "a", out)
    (out / "notes.txt").write_text("of a person")
    return out


def test_a_result_is_replaced_whole_or_stays(run, small_disk, inputs):
    """The quick one: `score --replace` over an earlier result with a person's notes."""
    out = with_an_earlier_result(small_disk, inputs)
    command = ["score", "classification", inputs / "cohort.csv", inputs / "predictions.csv", "--resamples", 0]
    fills_up(run, small_disk, [*command, "--out", out, "--replace"], sizes=SIZES[::4], out=out)
    assert (out / "notes.txt").read_text() == "of a person"


def test_a_disk_that_may_only_be_read(run, small_disk, inputs):
    """Told before the work, in each command's words: exit 74."""
    out = with_an_earlier_result(small_disk, inputs)
    small_disk.remount("ro")
    command = ["score", "classification", inputs / "cohort.csv", inputs / "predictions.csv", "--resamples", 0]
    for target in (out, small_disk.root / "new", small_disk.root / "deep" / "new"):
        done = run(*command, "--out", target, "--replace")
        assert done.code == 74 and "only be read" in done.err and str(target) in done.err, done.said
    for more in (["--tables", out / "t"], ["--figures", out / "f"], ["--out", out / "p.html"], []):
        done = run("report", out, *more)
        assert done.code == 74 and "Traceback" not in done.said, done.said
    done = run("accept", "--init", "--claim", out / "claim.toml")
    assert done.code == 74, done.said
    small_disk.remount("rw")


PAIR = ["cohort.csv", "predictions.csv"]
FEW = ["--resamples", 0]
FOLDERS = {
    "score": ["score", "classification", *PAIR, *FEW],
    "accept": ["accept", *PAIR, "--claim", "claim.toml", "--resamples", 50],
    "summarise": ["summarise", "classification", "cohort.csv", "a/scores.parquet", *FEW],
    "summarise --by": ["summarise", "classification", "cohort.csv", "a/scores.parquet", "--by", "site"],
    "rank": ["rank", "a", "b", *FEW],
    "compare": ["compare", "a", "b", *FEW],
    "cohort read": ["cohort", "read", "csv", "cohort.csv"],
    "phantom ultrasound": ["phantom", "ultrasound", "--patients", 4, "--scale", 0.3],
    "duplicates": ["cohort", "duplicates", "pictures/alder"],
}
FILES = {
    "equivalence": ["equivalence", "a", "b", "--margin", 0.1, *FEW, "--out"],
    "report --out": ["report", "a", "--out"],
    "claim": ["accept", "--init", "--claim"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("replace", [False, True], ids=["new", "replaced"])
def test_every_command_that_writes_a_folder(name, replace, run, small_disk, inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    if name == "duplicates" and not (inputs / "pictures").exists():
        made = ["phantom", "ultrasound", "--patients", 4, "--scale", 0.3, "--plant", "duplicate=1"]
        assert run(*made, "--hospitals", "Alder", "--out", "pictures/phantom").code == 0
        assert run("cohort", "read", "busi", "pictures/phantom/Alder", "--out", "pictures/alder").code == 0
    out = small_disk.root / ("out" if replace else "deep/er/out")
    more = []
    if replace:
        with_an_earlier_result(small_disk, inputs)
        more = ["--replace"]
    if name == "summarise --by":
        (inputs / "scores").mkdir(exist_ok=True)
        monkeypatch.setattr("elsewhere.commands.summarise._MEANS", ("probability",))
    fills_up(run, small_disk, [*FOLDERS[name], "--out", out, *more], sizes=SIZES, out=out)
    assert (out / MARKER).exists()
    assert not replace or (out / "notes.txt").read_text() == "of a person"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_command_that_writes_a_file(name, run, small_disk, inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    out = small_disk.root / "deep" / "file"
    fills_up(run, small_disk, [*FILES[name], out], sizes=SIZES, out=out)
    assert out.stat().st_size


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--tables", "--figures", None])
def test_the_report_of_a_result_on_the_disk(option, run, small_disk, inputs):
    out = with_an_earlier_result(small_disk, inputs)
    target = out / "exported"
    more = [] if option is None else [option, target]
    fills_up(run, small_disk, ["report", out, *more], sizes=SIZES, out=out)
    assert option is None or list(target.iterdir())


def test_the_pages_of_the_simulations_are_both_new_or_both_old(run, small_disk, monkeypatch):
    """The simulations are left out: how their pages are written is what is looked at."""
    import elsewhere.commands.coverage as command

    for made, old in (("coverage_tables", "x" * 40_000), ("levels_page", "y" * 40_000)):
        monkeypatch.setattr(command, made, lambda text=old, **_: text)
    out = small_disk.root / "pages"
    out.mkdir()
    for name in command.PAGES:
        (out / name).write_text("old")
    assert run("coverage", "--out", out).code == 64
    fills_up(run, small_disk, ["coverage", "--out", out, "--replace"], sizes=SIZES, out=out)
    assert [(out / name).stat().st_size for name in command.PAGES] == [40_000, 40_000]


@pytest.mark.slow
def test_a_phantom_of_volumes(run, small_disk):
    out = small_disk.root / "mri"
    fills_up(
        run,
        small_disk,
        ["phantom", "mri", out, "--patients", 2, "--size", 32, "--sites", 1],
        sizes=SIZES[::2],
        out=out,
    )


@pytest.mark.slow
def test_the_demo(run, small_disk):
    """Its tasks are results of their own: those that were finished stay, and none is half-written."""
    small_disk.leave(300 * KB)
    done = run("demo", "--no-study", "--out", small_disk.root / "demo")
    assert done.code == 74 and "No space left on device" in done.err, done.said
    for folder in (small_disk.root / "demo").iterdir():
        inside = [folder] if folder.name != "data" else list(folder.iterdir())
        assert all((one / MARKER).exists() for one in inside)
    assert not [name for name in small_disk.tree() if ".elsewhere-" in name and not name.endswith(MARKER)]
    small_disk.leave(16 * KB * KB)
    again = run("demo", "--no-study", "--out", small_disk.root / "demo")
    assert again.code == 0, again.said
