"""`--out` and `--replace` of every command: an earlier result and other people's files are never lost unasked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elsewhere.files import MARKER
from worlds.task_files import MAKERS, two_results


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def made_place(tmp_path_factory, run):
    """A cohort, predictions, a claim, and two results of them."""
    return two_results(tmp_path_factory.mktemp("place") / "place", run)


@pytest.fixture
def place(made_place, tmp_path):
    shutil.copytree(made_place, tmp_path / "place")
    return tmp_path / "place"


def commands(place: Path) -> dict[str, list[object]]:
    """Commands that write a folder, without `--out`."""
    pair = [place / "cohort.csv", place / "predictions.csv"]
    few = ["--resamples", 50]
    return {
        "score": ["score", "classification", *pair, *few],
        "accept": ["accept", *pair, "--claim", place / "claim.toml", *few],
        "summarise": ["summarise", "classification", pair[0], place / "a" / "scores.parquet", *few],
        "rank": ["rank", place / "a", place / "b", *few],
        "compare": ["compare", place / "a", place / "b", *few],
        "cohort read": ["cohort", "read", "csv", pair[0]],
        "phantom ultrasound": ["phantom", "ultrasound", "--patients", 4, "--scale", 0.2],
    }


@pytest.mark.parametrize(
    "name", ["score", "accept", "summarise", "rank", "compare", "cohort read", "phantom ultrasound"]
)
def test_a_second_run_asks_before_it_replaces(name, place, run):
    """The earlier verdict and a person's notes went without a word."""
    command = [*commands(place)[name], "--out", place / "out"]
    first = run(*command)
    assert first.code not in (64, 70, 74), first.said
    (place / "out" / "notes.txt").write_text("of a person")
    before = tree(place / "out")
    again = run(*command)
    assert again.code == 64 and "--replace" in again.err
    assert tree(place / "out") == before
    done = run(*command, "--replace")
    assert done.code == first.code, done.said
    assert set(tree(place / "out")) == set(before)
    assert (place / "out" / "notes.txt").read_text() == "of a person"


@pytest.mark.parametrize("name", ["score", "accept", "summarise", "cohort read"])
def test_an_out_that_holds_an_input_is_refused(name, place, run):
    """The cohort and the predictions in it were deleted."""
    (place / "summary.json").write_text("{}")
    before = tree(place)
    for more in ([], ["--replace"]):
        done = run(*commands(place)[name], "--out", place, *more)
        assert done.code == 64 and "reads" in done.err, done.said
    assert tree(place) == before


@pytest.mark.parametrize("name", ["rank", "compare", "summarise"])
def test_a_result_that_is_read_is_not_written_over(name, place, run):
    command = commands(place)[name]
    before = tree(place)
    done = run(*command, "--out", place / "a", "--replace")
    assert done.code == 64 and "reads" in done.err, done.said
    assert tree(place) == before


def test_the_report_is_written_again_but_not_over_remarks(place, run):
    page = place / "a" / "report.html"
    assert run("report", place / "a").code == 0
    page.write_text(page.read_text() + "<!-- my remark -->")
    refused = run("report", place / "a")
    assert refused.code == 64 and "changed" in refused.err
    assert page.read_text().endswith("<!-- my remark -->")
    assert run("report", place / "a", "--replace").code == 0
    assert "my remark" not in page.read_text()
    again = run(*commands(place)["score"], "--out", place / "a", "--replace")
    assert again.code == 0, again.said


def test_tables_and_figures_go_into_a_folder_of_other_things(place, run):
    """As into the folder of a paper; what is there of the same names is not overwritten unasked."""
    (place / "paper").mkdir()
    (place / "paper" / "metrics.csv").write_text("mine")
    command = ("report", place / "a", "--tables", place / "paper")
    refused = run(*command)
    assert refused.code == 64 and "metrics.csv" in refused.err
    assert tree(place / "paper") == {"metrics.csv": b"mine"}
    assert run(*command, "--replace").code == 0
    assert (place / "paper" / "metrics.csv").read_text() != "mine"
    assert (place / "paper" / "metrics.tex").exists()


def test_single_files_are_not_overwritten_unasked(place, run):
    out = place / "verdict.json"
    out.write_text("mine")
    command = ("equivalence", place / "a", place / "b", "--margin", 0.1, "--resamples", 50, "--out", out)
    refused = run(*command)
    assert refused.code == 64 and "--replace" in refused.err and out.read_text() == "mine"
    assert run(*command, "--replace").code in (0, 3)
    assert "verdict" in json.loads(out.read_text())
    page = place / "page.html"
    page.write_text("mine")
    assert run("report", place / "a", "--out", page).code == 64
    assert page.read_text() == "mine"


def test_from_python_too(place):
    import elsewhere
    from elsewhere.errors import UserError

    ask = {"out": place / "a", "resamples": 0}
    with pytest.raises(UserError, match="replace=True"):
        elsewhere.score("classification", place / "cohort.csv", place / "predictions.csv", **ask)
    made = elsewhere.score(
        "classification", place / "cohort.csv", place / "predictions.csv", replace=True, **ask
    )
    with pytest.raises(UserError, match="replace=True"):
        made.save(place / "a")
    assert made.save(place / "a", replace=True).path == place / "a"


def test_a_result_of_an_earlier_version_is_refused_with_what_to_do(place, run):
    """It has no marker, so that nobody can say which files in it are ours."""
    (place / "a" / MARKER).unlink()
    done = run(*commands(place)["score"], "--out", place / "a", "--replace")
    assert done.code == 64 and "earlier version" in done.err and "move" in done.err


def program(*arguments: object, cwd: Path, **options) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "elsewhere", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        check=False,
        **options,
    )


TWICE = """
import sys
from elsewhere.cli import main
for more in (["--json"], []):
    try:
        main([*sys.argv[1:], *more])
    except SystemExit as end:
        if end.code:
            raise
"""


def test_a_name_that_is_not_utf8_is_scored_printed_and_parsed(place, run):
    """The table could not be opened, and printing the path ended in a traceback and exit 70."""
    odd = Path(os.fsdecode(os.fsencode(place) + b"/caf\xe9"))
    odd.mkdir()
    for name in ("cohort.csv", "predictions.csv"):
        (odd / name).write_bytes((place / name).read_bytes())
    tables = run("cohort", "read", "csv", odd / "cohort.csv", "--out", odd / "cohort")
    assert tables.code == 0, tables.said
    command = ["score", "classification", odd / "cohort", odd / "predictions.csv", "--resamples", 0]
    command += ["--out", odd / "out", "--replace"]
    both = [sys.executable, "-c", TWICE, *map(str, command)]
    done = subprocess.run(both, cwd=place, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    as_json, plain = done.stdout.split(b"\n", 1)
    assert os.fsdecode(b"caf\xe9") in json.loads(as_json)["path"]
    assert b"caf\\udce9" in plain, done.stderr


def test_a_path_over_the_systems_limit_ends_with_74(place, run):
    for name in ("x" * 300, "/".join(["y" * 200] * 25)):
        done = run(*commands(place)["score"], "--out", place / name)
        assert done.code == 74 and "too long" in done.err, done.said
        done = run("score", "classification", place / name / "c.csv", place / "predictions.csv", "--out", "o")
        assert done.code == 74 and "too long" in done.err, done.said
        assert run("report", place / "a", "--tables", place / name).code == 74


def test_a_mask_whose_name_is_not_utf8_ends_with_74(tmp_path, run):
    """The name of the file is the id of the case, and no table can hold it."""
    files = MAKERS["segmentation"](tmp_path)
    odd = Path(os.fsdecode(os.fsencode(files.predictions) + b"/caf\xe9.nii.gz"))
    odd.write_bytes(next(files.predictions.glob("*.nii.gz")).read_bytes())
    done = run("score", "segmentation", files.cohort, files.predictions, "--out", tmp_path / "out")
    assert done.code == 74 and "caf" in done.err and "not valid UTF-8" in done.err, done.said


def test_by_reads_parquet_alone(tmp_path, run):
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    for name in ("a.parquet", "none.parquet"):
        done = run(
            "summarise", "segmentation", "c.csv", tmp_path / name, "--by", "model", "--out", tmp_path / "o"
        )
        assert done.code == 64 and name in done.err, done.said


def test_what_reads_the_output_may_stop_early(place):
    """`elsewhere ... | head -1`: the code stays that of the result, and nothing is complained about."""
    line = f"{sys.executable} -m elsewhere protocols | head -c 1 > /dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=place, capture_output=True, check=False)
    assert done.returncode == 0 and done.stderr == b""
    closed = f"{sys.executable} -m elsewhere protocols --json >&-"
    done = subprocess.run(["bash", "-c", closed], cwd=place, capture_output=True, check=False)
    assert done.returncode == 0 and b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_takes_nothing_ends_with_74(place):
    line = f"{sys.executable} -m elsewhere protocols > /dev/full"
    done = subprocess.run(["bash", "-c", line], cwd=place, capture_output=True, check=False)
    assert done.returncode == 74 and b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(5, "Input/output error", "/data/a.csv"), 74, ["/data/a.csv", "Check it, or use another"]),
        (OSError(28, "No space left on device"), 74, ["No space left", "Free some space"]),
        (PermissionError(13, "Permission denied", "/data/a.csv"), 74, ["/data/a.csv", "Permission denied"]),
        (OSError("Error writing bytes to file. Detail: [errno 122] Disk quota exceeded"), 74, ["quota"]),
        (
            UnicodeEncodeError("utf-8", "caf\udce9", 3, 4, "surrogates not allowed"),
            74,
            ["caf", "plain letters"],
        ),
        (UnicodeEncodeError("ascii", "\u00e9", 0, 1, "ordinal not in range"), 70, ["a fault of ours"]),
        (ValueError("no file has to do with it"), 70, ["a fault of ours"]),
    ],
)
def test_the_last_net_under_every_command(error, code, words, run, monkeypatch):
    """What the system refuses anywhere is the user's to mend; only what is left is a fault of ours."""
    import elsewhere.commands.listing as listing

    def fail():
        raise error

    monkeypatch.setattr(listing, "list_protocols", fail)
    done = run("protocols")
    assert done.code == code and all(word in done.err for word in words), done.said
    assert ("Traceback" in done.err) == (code == 70)
    as_json = run("protocols", "--json")
    assert as_json.code == code and set(as_json.json) == {"error", "where", "fix"}


@pytest.mark.parametrize("what", ["result", "cohort"])
def test_a_replacement_that_was_killed_is_undone_by_whoever_reads_the_folder(what, place, run, monkeypatch):
    """A mix of two results was read as if it were one."""
    from elsewhere.files import folders

    if what == "result":
        out, read = place / "a", ["report", place / "a"]
        write = [*commands(place)["score"], "--out", out, "--replace"]
    else:
        out, read = place / "cohort", ["cohort", "describe", place / "cohort"]
        write = [*commands(place)["cohort read"], "--out", out, "--replace"]
        assert run(*write).code == 0
    before, real, moves = tree(out), folders._move, []

    def killed(source, target):
        moves.append(target)
        if len(moves) == len(before) + 2:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(folders, "_move", killed)
        patched.setattr(folders, "_roll_back", lambda *_: None)
        patched.setattr(folders.shutil, "rmtree", lambda *_, **__: None)
        assert run(*write).code == 130
    assert tree(out) != before
    done = run(*read)
    assert done.code == 0 and "the earlier result was put back" in done.err, done.said
    if what == "cohort":
        assert tree(out) == before
    assert run(*write).code == 0
