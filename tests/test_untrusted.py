"""Files that others wrote: what is read of them, what is refused, and how their names are shown and used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.untrusted import (
    file_name,
    is_plain_name,
    parse_json,
    parse_toml,
    printable,
    printable_json,
    read_json,
    read_plain_file,
    read_toml,
)


def put_fifo(path):
    os.mkfifo(path)


def put_device(path):
    path.symlink_to("/dev/zero")


def put_folder(path):
    path.mkdir()


def put_dangling(path):
    path.symlink_to(path.with_name("nowhere"))


def put_loop(path):
    path.symlink_to(path)


def put_large(path):
    with path.open("wb") as file:
        file.truncate(10 << 30)


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (put_fifo, "a pipe"),
        (put_device, "a device"),
        (put_folder, "a folder"),
        (put_dangling, "there is no such claim"),
        (put_loop, "there is no such claim"),
        (put_large, "at most 100 are read"),
    ],
)
def test_only_plain_files_of_bounded_size_are_read(put, message, tmp_path):
    """A pipe must not make the program wait, nor a device or a large file fill its memory."""
    put(tmp_path / "x")
    with pytest.raises(UserError, match=message):
        read_plain_file(tmp_path / "x", most=100, what="claim")


def test_a_plain_file_is_read_also_through_a_link(tmp_path):
    (tmp_path / "a").write_text('{"b": 1}')
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert read_json(tmp_path / "link") == {"b": 1}
    (tmp_path / "t.toml").write_text("a.b = 1.5\n")
    assert read_toml(tmp_path / "t.toml") == {"a": {"b": 1.5}}


def test_a_zero_byte_in_a_path_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be the name"):
        read_plain_file(f"{tmp_path}/a\0b", most=10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" * 60 + "]" * 60, "levels deep"),
        ('{"a": ' + "9" * 5000 + "}", "5000 digits"),
        ('{"a": 1e999}', "too large"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "is not a number"),
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ('{"a": "\\ud800"}', "half a character"),
        ('{"\\ud800": 1}', "not text"),
        ("[" + "0," * 5_000_001 + "0]", "more than 5,000,000 values"),
        ("{", "cannot be understood"),
    ],
)
def test_json_outside_of_the_bounds_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        parse_json(text, where="x.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = " + "[" * 60 + "]" * 60, "levels deep"),
        ("a = inf", "a is inf, which is not a finite number"),
        ("[b]\nc = [1.0, nan]", "b.c.1 is nan"),
        ("a = " + "9" * 5000, "not valid TOML|digits"),
        ("a = 99999999999999999999", "too many digits"),
        ("a." * 100_000 + "a = 1", "over 40 parts"),
        ("x = {" + "'a'. " * 100_000 + "a = 1}", "over 40 parts"),
        ("#" + "x" * (1 << 20), "over 1,048,576"),
        ("a = 1\na = 2", "not valid TOML"),
    ],
)
def test_toml_outside_of_the_bounds_is_refused(text, message):
    """A dotted key of many parts took the standard library's reader minutes."""
    with pytest.raises(UserError, match=message):
        parse_toml(text, where="x.toml")


def test_ordinary_toml_is_no_long_key():
    text = 'a = "' + "one. two. three. " * 100 + '"\nb = """\n' + "...................." * 10 + '\n"""\n'
    assert set(parse_toml(text, where="x")) == {"a", "b"}


@given(st.text())
def test_what_is_shown_holds_no_control_character(text):
    """A terminal acts on escape sequences, and reorders text at direction marks."""
    shown = printable(text)
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or c == "\t" for c in shown)
    assert "\n" not in shown
    assert printable(text, lines=True).count("\n") == text.count("\n")


@given(st.dictionaries(st.text(), st.text()))
def test_json_is_shown_without_control_characters_and_means_the_same(tree):
    shown = printable_json(json.dumps(tree, ensure_ascii=False))
    assert json.loads(shown) == tree
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs") for c in shown)


@given(
    st.one_of(
        st.text(),
        st.sampled_from(["..", ".", "", "../../x", "/etc/x", "a/b", "con", "x" * 400, "a\\b", "~", ".x"]),
    )
)
def test_a_file_name_stays_in_its_folder(name):
    """Names of exported tables come from the summary: one called '../../x' left the folder."""
    safe = file_name(name)
    assert re.fullmatch(r"[\w.+=,@ -]+", safe) and not safe.startswith((".", " "))
    assert len(safe.encode()) <= 140


def test_two_names_stay_two_files_and_a_plain_one_stays_as_it_is():
    assert file_name("a/b") != file_name("a_b") != file_name("a:b")
    assert file_name("confusion_four_class") == "confusion_four_class"


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", ".x", "x.", "x" * 101, "a b", "a\n"])
def test_names_that_are_no_folder_of_their_own(name):
    assert not is_plain_name(name)
    assert is_plain_name("BUS-BRA_1.5")


BOMB = r"""
import re, sys
from pathlib import Path
from elsewhere.cli import main
try:
    main(["accept", "cohort.csv", "predictions.csv", "--claim", sys.argv[1], "--out", "out"])
except SystemExit as end:
    print(end.code, re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.parametrize(
    "put", [put_device, *(pytest.param(put, marks=pytest.mark.slow) for put in (put_large, put_fifo))]
)
def test_a_claim_that_is_none_takes_no_memory(put, tmp_path):
    """/dev/zero as a claim took 5 GB, a pipe waited for ever; a fresh process stays under 1 GB."""
    put(tmp_path / "claim.toml")
    done = subprocess.run(
        [sys.executable, "-c", BOMB, "claim.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    code, peak = map(int, done.stdout.split()[-2:])
    assert code == 64 and peak < 1 << 20, done.stderr
