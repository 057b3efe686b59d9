"""Result folders: nothing is replaced that Elsewhere did not write, and a replacement is whole or undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elsewhere.errors import ElsewhereWarning, FileSystemError, UserError
from elsewhere.files import (
    JOURNAL,
    MARKER,
    check_out,
    check_out_file,
    rewritten,
    settle,
    staged_directory,
    staged_files,
)


def write(out: Path, files: dict[str, str], **options) -> None:
    with staged_directory(out, **options) as staged:
        for name, text in files.items():
            (staged / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / name).write_text(text)


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


OLD = {"summary.json": "old", "report.html": "old page", "tables/a.csv": "1"}
NEW = {"summary.json": "new", "report.html": "new page", "panels/b.png": "2"}


def test_only_what_was_written_is_replaced_and_the_rest_stays(tmp_path):
    """Data loss: a person's notes and pictures beside a result went with it."""
    out = tmp_path / "result"
    write(out, OLD)
    (out / "notes.txt").write_text("mine")
    (out / "tables" / "mine.csv").write_text("also mine")
    (out / "link").symlink_to(tmp_path)
    write(out, NEW, replace=True)
    left = {name: content.decode() for name, content in tree(out).items() if name != MARKER}
    assert left == NEW | {"notes.txt": "mine", "tables/mine.csv": "also mine"}
    assert (out / "link").is_symlink()
    assert set(json.loads((out / MARKER).read_text())["files"]) == set(NEW)
    assert [p.name for p in tmp_path.iterdir()] == ["result"]


def test_an_earlier_result_is_refused_without_replace(tmp_path):
    write(tmp_path / "out", OLD)
    before = tree(tmp_path)
    with pytest.raises(UserError, match=r"holds an earlier result[\s\S]*--replace"):
        write(tmp_path / "out", NEW)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["summary.json", "cohort.json", "phantom.json", "predictions.json"])
def test_a_file_of_a_known_name_makes_no_result(tmp_path, name):
    """A folder was taken for a result of ours because a file in it had one of these names."""
    (tmp_path / name).write_text("{}")
    (tmp_path / "cohort.csv").write_text("a hospital's own")
    before = tree(tmp_path)
    for replace in (False, True):
        with pytest.raises(UserError, match=r"not marked as a result of Elsewhere[\s\S]*earlier version"):
            write(tmp_path, NEW, replace=replace)
    assert tree(tmp_path) == before


def test_a_file_that_somebody_changed_is_not_replaced(tmp_path):
    write(tmp_path / "out", OLD)
    (tmp_path / "out" / "report.html").write_text("with my remarks")
    before = tree(tmp_path)
    with pytest.raises(UserError, match=r"report\.html was changed after"):
        write(tmp_path / "out", NEW, replace=True)
    assert tree(tmp_path) == before


def test_a_strangers_file_is_not_replaced_by_a_new_one(tmp_path):
    write(tmp_path / "out", OLD)
    (tmp_path / "out" / "panels").write_text("a file where a folder is needed")
    before = tree(tmp_path)
    with pytest.raises(UserError, match="holds panels, which Elsewhere did not write"):
        write(tmp_path / "out", NEW, replace=True)
    assert tree(tmp_path) == before


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path):
    """Files would have been written to where the link leads."""
    write(tmp_path / "out", {"summary.json": "old"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "panels").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="holds panels"):
        write(tmp_path / "out", NEW, replace=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_out_that_holds_an_input_is_refused(tmp_path):
    write(tmp_path / "out", OLD)
    (tmp_path / "out" / "cohort.csv").write_text("case_id,label")
    for source in (tmp_path / "out" / "cohort.csv", str(tmp_path / "out"), tmp_path / "out" / "deep" / "x"):
        with pytest.raises(UserError, match="holds what this command reads"):
            check_out(tmp_path / "out", replace=True, inputs=(None, source))
    (tmp_path / "link").symlink_to(tmp_path / "out" / "cohort.csv")
    with pytest.raises(UserError, match="holds what this command reads"):
        check_out(tmp_path / "out", replace=True, inputs=[tmp_path / "link"])
    check_out(tmp_path / "out", replace=True, inputs=[tmp_path / "other.csv", object()])


def test_a_marker_from_elsewhere_cannot_point_out_of_its_folder(tmp_path):
    """A crafted marker named a file beside the folder."""
    (tmp_path / "mine.txt").write_text("mine")
    write(tmp_path / "out", {"a": "mine"})
    marker = tmp_path / "out" / MARKER
    for name in ("../mine.txt", str(tmp_path / "mine.txt"), "a/../../mine.txt", ".."):
        content = json.loads(marker.read_text())
        content["files"] = {name: next(iter(content["files"].values()))}
        marker.write_text(json.dumps(content))
        with pytest.raises(UserError, match="not marked"):
            write(tmp_path / "out", NEW, replace=True)
        marker.write_text(json.dumps({"format": 1, "files": content["files"]}))
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"format": 9, "files": {}}', '{"format": 1, "files": {"a": 3}}', "[" * 99999]
)
def test_a_broken_marker_marks_nothing(tmp_path, content):
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(UserError, match="not marked"):
        check_out(tmp_path, replace=True)


def test_a_block_that_fails_leaves_nothing_behind(tmp_path):
    """Neither staged files nor the folders that were made for them."""
    with pytest.raises(RuntimeError), staged_directory(tmp_path / "a" / "b" / "out") as staged:
        (staged / "half").write_text("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "out", OLD)
    before = tree(tmp_path)
    with pytest.raises(RuntimeError), staged_directory(tmp_path / "out", replace=True) as staged:
        (staged / "summary.json").write_text("x")
        raise RuntimeError
    assert tree(tmp_path) == before
    assert not [p for p in (tmp_path / "out").iterdir() if p.is_dir() and p.name != "tables"]


def test_the_system_refusing_inside_the_block_names_the_file_as_it_would_be_called(tmp_path):
    with (
        pytest.raises(FileSystemError, match=r"out/deep/a") as caught,
        staged_directory(tmp_path / "out") as s,
    ):
        (s / "deep" / "a").write_text("there is no folder 'deep'")
    assert caught.value.exit_code == 74
    assert "partial" not in str(caught.value) and ".new" not in str(caught.value)
    with (
        pytest.raises(UserError, match=r"out/a: too large") as caught,
        staged_directory(tmp_path / "out") as s,
    ):
        raise UserError("too large", where=str(s / "a"))
    with pytest.raises(FileSystemError, match="too long"):
        check_out(tmp_path / ("x" * 300))
    with pytest.raises(FileSystemError, match="too long"):
        check_out_file(tmp_path / ("x" * 300 + ".csv"))


def test_the_longest_name_that_the_system_takes_can_be_written(tmp_path):
    """The name of the temporary folder was the folder's own and more."""
    write(tmp_path / ("x" * 255), OLD)
    assert (tmp_path / ("x" * 255) / "summary.json").read_text() == "old"


KILLED = """
import os, sys
from pathlib import Path
from elsewhere.files import folders

count, at = 0, int(sys.argv[2])
def dying(real):
    def step(*arguments, **options):
        global count
        count += 1
        if count > at:
            os._exit(9)
        return real(*arguments, **options)
    return step
for name in ("_move", "write_bytes", "_prune"):
    setattr(folders, name, dying(getattr(folders, name)))
Path.unlink = dying(Path.unlink)
with folders.staged_directory(Path(sys.argv[1]), replace=True) as staged:
    for name, text in {new!r}.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_text(text)
"""


def test_killed_at_any_step_the_folder_is_the_old_result_or_the_new(tmp_path):
    """A kill between two renames left a mix, or no result at all."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED.replace("{new!r}", repr(NEW)))
    ended = []
    for step in range(20):
        out = tmp_path / f"out{step}"
        write(out, OLD)
        (out / "notes.txt").write_text("mine")
        before = tree(out)
        code = subprocess.run([sys.executable, str(script), str(out), str(step)], check=False).returncode
        assert code in (0, 9)
        interrupted = (out / JOURNAL).exists()
        if interrupted:
            with pytest.warns(ElsewhereWarning, match="earlier result was put back"):
                settle(out)
            assert tree(out) == before
        after = {
            k: v.decode() for k, v in tree(out).items() if not k.startswith(".elsewhere-") or k == MARKER
        }
        after.pop(MARKER)
        assert after in (OLD | {"notes.txt": "mine"}, NEW | {"notes.txt": "mine"})
        ended.append((code, interrupted))
        write(out, NEW, replace=True)
        assert not [p.name for p in out.iterdir() if p.name.startswith(".elsewhere-") and p.name != MARKER]
        if code == 0:
            break
    assert ended[-1] == (0, False)
    assert sum(interrupted for _, interrupted in ended) >= 5


def test_an_interrupted_undoing_can_be_undone_again(tmp_path):
    """Killed while the earlier result is put back: the second attempt must not take it for the new one."""
    from elsewhere.files import folders

    for step in range(12):
        out = tmp_path / f"out{step}"
        write(out, OLD)
        before = tree(out)
        child = os.fork()
        if child == 0:  # killed after every old file has stepped aside and two new ones are in place
            _die_after(folders, len(OLD) + 1 + 2)
            write(out, NEW, replace=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        child = os.fork()
        if child == 0:
            _die_after(folders, step)
            settle(out)
            os._exit(0)
        os.waitpid(child, 0)
        if (out / JOURNAL).exists():
            with pytest.warns(ElsewhereWarning):
                settle(out)
        assert tree(out) == before


def _die_after(folders, steps: int) -> None:
    real, count = folders._move, [0]

    def move(*arguments):
        if count[0] == steps:
            os._exit(9)
        count[0] += 1
        real(*arguments)

    folders._move = move


def test_a_failure_while_files_are_put_in_place_restores_the_old_ones(tmp_path, monkeypatch):
    from elsewhere.files import folders

    real = folders._move
    for fail_at in range(len(OLD) + len(NEW) + 2):
        out = tmp_path / f"out{fail_at}"
        write(out, OLD)
        before, count = tree(out), [0]

        def failing(source, target, count=count, fail_at=fail_at):
            count[0] += 1
            if count[0] == fail_at + 1:
                raise OSError(28, "No space left on device", str(target))
            real(source, target)

        monkeypatch.setattr(folders, "_move", failing)
        with pytest.raises(FileSystemError, match="No space left"):
            write(out, NEW, replace=True)
        monkeypatch.setattr(folders, "_move", real)
        assert tree(out) == before
        assert {p.name for p in out.iterdir()} == {MARKER, "summary.json", "report.html", "tables"}


def test_two_writers_do_not_undo_each_other(tmp_path):
    """What a living writer has staged is not swept, its journal is not rolled back, and what another finished first
    stays."""
    write(tmp_path / "out", OLD)
    changed = pytest.raises(UserError, match="another command changed this folder")
    with changed, staged_directory(tmp_path / "out", replace=True) as one:
        (one / "a").write_text("1")
        write(tmp_path / "out", NEW, replace=True)
        assert (one / "a").exists()
        token = one.name.split("-")[1].split(".")[0]
        (tmp_path / "out" / JOURNAL).write_text(json.dumps({"token": token, "old": [], "new": []}))
        with pytest.raises(UserError, match="another command is writing"):
            check_out(tmp_path / "out", replace=True)
        (tmp_path / "out" / JOURNAL).unlink()
    left = {k: v.decode() for k, v in tree(tmp_path / "out").items() if k != MARKER}
    assert left == NEW


@pytest.mark.parametrize(
    "journal",
    ["", "{}", "[]", '{"token": "x", "old": [], "new": []}', '{"token": 1, "old": ["../a"], "new": []}'],
)
def test_a_journal_that_cannot_be_followed_is_refused(tmp_path, journal):
    write(tmp_path / "out", OLD)
    (tmp_path / "out" / JOURNAL).write_text(journal)
    with pytest.raises(UserError, match="journal cannot be followed"):
        check_out(tmp_path / "out", replace=True)


def test_files_are_added_to_a_folder_of_other_things(tmp_path):
    (tmp_path / "paper.tex").write_text("mine")
    with staged_files(tmp_path) as staged:
        (staged / "a.csv").write_text("1")
    with pytest.raises(UserError, match=r"already holds a\.csv[\s\S]*--replace"), staged_files(tmp_path) as s:
        (s / "a.csv").write_text("2")
        (s / "b.csv").write_text("2")
    assert {k: v.decode() for k, v in tree(tmp_path).items()} == {"paper.tex": "mine", "a.csv": "1"}
    with staged_files(tmp_path, replace=True) as staged:
        (staged / "a.csv").write_text("3")
    assert {k: v.decode() for k, v in tree(tmp_path).items()} == {"paper.tex": "mine", "a.csv": "3"}


def test_a_page_is_written_again_while_it_is_ours(tmp_path):
    write(tmp_path / "out", OLD)
    page = tmp_path / "out" / "report.html"
    with rewritten(page) as temporary:
        temporary.write_text("again")
    assert page.read_text() == "again"
    check_out(tmp_path / "out", replace=True)
    page.write_text("with my remarks")
    with pytest.raises(UserError, match="changed after Elsewhere wrote it"), rewritten(page):
        pass
    assert page.read_text() == "with my remarks"
    with rewritten(page, replace=True) as temporary:
        temporary.write_text("once more")
    check_out(tmp_path / "out", replace=True)
    (tmp_path / "page.html").write_text("mine")
    with pytest.raises(UserError, match="already"), rewritten(tmp_path / "page.html"):
        pass


def test_a_single_file_is_not_overwritten_unasked(tmp_path):
    (tmp_path / "a.json").write_text("mine")
    with pytest.raises(UserError, match="--replace"):
        check_out_file(tmp_path / "a.json")
    check_out_file(tmp_path / "a.json", replace=True)
    with pytest.raises(UserError, match="read by the same command"):
        check_out_file(tmp_path / "a.json", replace=True, inputs=[tmp_path / "a.json"])
    with pytest.raises(UserError, match="a folder of this name"):
        check_out_file(tmp_path)


def test_names_that_are_not_utf8_are_written_and_marked(tmp_path):
    out = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    write(out, {os.fsdecode(b"a\xff"): "1", "b": "2"})
    write(out, {"b": "3"}, replace=True)
    assert {k: v.decode() for k, v in tree(out).items() if k != MARKER} == {"b": "3"}
