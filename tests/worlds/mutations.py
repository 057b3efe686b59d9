"""Mutations of valid files: bytes, the values inside JSON, TOML, tables and zips, and what stands in a file's place."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

ALLOWED = (0, 2, 3, 4, 5, 6, 64, 74)
SECONDS = 30
MORE_MEMORY = 1 << 30
WORDS = (
    b"", b"\0", b"\n", b'"', b",", b"{", b"[", b"}", b"\xff\xfe", b"nan", b"NaN", b"-Infinity", b"1e999", b"9" * 5000,
    b"\xed\xa0\x80", b"\\ud800", b"\x1b[2J", b"../..", b"[" * 3000, b'{"a":' * 3000, b"a." * 3000, b"-1", b"null", b"PK\x03\x04",
    b"\xe2\x80\xae", b"'''", b"= inf",
)  # fmt: skip
SWAPS = ("directory", "fifo", "zeros", "dangling", "loop", "empty", "missing", "random", "other", "large")


def nested(depth: int, *, of_lists: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if of_lists else {"a": value}
    return value


VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3.5, -0.5, 1e308, -1e308, 1e-320, 10**18, 10**25, 10**400, float("nan"), float("inf"), "", "x", "../../x", "/etc/x",
    "\x1b[31mred\x1b[0m", "a\nb", "\u202eabc", "\0", "\ud800", "auroc", "classification", "x" * 5000, "<script>alert(1)</script>", "{{7*7}}",
    "$x^2", "$\\frac{", [], {}, [1], [None], ["x"], [[]], [{}], {"a": 1}, {"": {}}, {"../../x": {"value": 1}}, {"value": "x"}, {"x": [1], "y": ["a"]},
    {"x": [], "y": []}, {"x": [1, 2], "y": [1]}, [0.1] * 5, list(range(50)), nested(30, of_lists=True), nested(30, of_lists=False),
    nested(500, of_lists=True), nested(500, of_lists=False), {"labels": ["a", "b"], "matrix": [[1, 2], [3, "x"]]},
)  # fmt: skip
NAMES = (
    "",
    "../../x",
    "a/b",
    "\x1b]0;t\x07",
    "x" * 300,
    "value",
    "metrics",
    "\u202e",
    "con",
    ".",
    "..",
    "a\nb",
    "1",
)

positions = st.floats(0, 1, exclude_max=True)
byte_edits = st.lists(
    st.tuples(st.sampled_from(("flip", "cut", "insert", "replace", "double", "truncate")), positions, positions, st.sampled_from(WORDS), st.integers(0, 255)),
    min_size=1, max_size=3,
)  # fmt: skip
tree_edits = st.lists(
    st.tuples(
        st.sampled_from(("delete", "replace", "replace", "replace", "rename", "add", "wrap", "repeat")),
        st.lists(positions, min_size=1, max_size=7),
        st.integers(0, len(VALUES) - 1),
        st.sampled_from(NAMES),
    ),
    min_size=1, max_size=3,
)  # fmt: skip
table_edits = st.lists(
    st.tuples(
        st.sampled_from(("drop", "rename", "text", "nan", "inf", "huge", "negative", "nulls", "repeat", "empty", "value", "lists", "bools", "times")),
        positions,
        positions,
        st.integers(0, len(VALUES) - 1),
    ),
    min_size=1, max_size=2,
)  # fmt: skip


def mutated_bytes(data: bytes, edits: list[tuple[str, float, float, bytes, int]]) -> bytes:
    for kind, where, extent, word, byte in edits:
        if not data:
            return word
        at = int(where * len(data))
        to = min(at + 1 + int(extent * 40), len(data))
        data = {
            "flip": data[:at] + bytes([byte]) + data[at + 1 :],
            "cut": data[:at] + data[to:],
            "insert": data[:at] + word + data[at:],
            "replace": data[:at] + word + data[to:],
            "double": data[:to] + data[at:],
            "truncate": data[:at],
        }[kind]
    return data


def mutated_tree(tree: Any, edits: list[tuple[str, list[float], int, str]]) -> Any:
    """`tree` changed in place (a list or a dict), or what takes its place."""
    for kind, steps, value, name in edits:
        held, key = _place(tree, steps)
        if held is None:
            return copy.deepcopy(VALUES[value])
        new = copy.deepcopy(VALUES[value])
        if kind == "delete":
            del held[key]
        elif kind == "replace":
            held[key] = new
        elif kind == "rename":
            old = held[key]
            if isinstance(held, dict):
                del held[key]
                held[name] = old
            else:
                held[key] = {name: old}
        elif kind == "add" and isinstance(held, dict):
            held[name] = new
        elif kind == "add":
            held.insert(key, new)
        elif kind == "wrap":
            held[key] = [held[key]]
        elif isinstance(held, list):
            held.extend([held[key]] * 50)
    return tree


def _place(tree: Any, steps: list[float]) -> tuple[Any, Any]:
    """A container and a key in it, that many steps down; (None, None) where the tree itself is meant."""
    held, key = None, None
    for step in steps:
        if not isinstance(tree, dict | list) or not tree:
            break
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        held, key = tree, keys[int(step * len(keys))]
        tree = tree[key]
    return held, key


def write_json(tree: Any, path: Path) -> None:
    path.write_text(json.dumps(tree), encoding="utf-8")


def mutated_json(path: Path, edits: list[tuple[str, list[float], int, str]]) -> None:
    tree = mutated_tree(json.loads(path.read_text(encoding="utf-8")), edits)
    write_json(tree, path)


def mutated_table(frame: pd.DataFrame, edits: list[tuple[str, float, float, int]]) -> pd.DataFrame:
    frame = frame.copy()
    for kind, where, row, value in edits:
        if not len(frame.columns) or not len(frame):
            break
        name = frame.columns[int(where * len(frame.columns))]
        at = int(row * len(frame))
        if kind == "drop":
            frame = frame.drop(columns=[name])
        elif kind == "rename":
            new = NAMES[value % len(NAMES)]
            frame = frame if new in frame.columns else frame.rename(columns={name: new})
        elif kind == "repeat":
            frame = pd.concat([frame, frame.iloc[[at]]], ignore_index=True)
        elif kind == "empty":
            frame = frame.iloc[:0]
        elif kind == "text":
            frame[name] = frame[name].astype("str")
        elif kind == "lists":
            frame[name] = [[1, 2]] * len(frame)
        elif kind == "bools":
            frame[name] = [n % 2 == 0 for n in range(len(frame))]
        elif kind == "times":
            frame[name] = pd.Timestamp("2024-01-01")
        elif kind == "nulls":
            frame[name] = None
        elif kind == "value":
            column = frame[name].astype("object")
            column.iloc[at] = str(VALUES[value])[:200].encode("utf-8", "replace").decode()
            frame[name] = column.astype("str")
        elif pd.api.types.is_numeric_dtype(frame[name]):
            column = frame[name].astype("float64")
            column.iloc[at] = {"nan": np.nan, "inf": np.inf, "huge": 1e300, "negative": -7.0}[kind]
            frame[name] = column
        else:
            column = frame[name].astype("object")
            column.iloc[at] = {"nan": None, "inf": "inf", "huge": "x" * 5000, "negative": "\x1b[2J\u202e"}[
                kind
            ]
            frame[name] = column.astype("str")
    return frame


_VALUE = re.compile(r"(?m)^(?P<key>[\w.]+ = )(?P<value>[^\n#]*)$")


def mutated_toml(text: str, edits: list[tuple[str, list[float], int, str]]) -> str:
    """The same for TOML, whose values are exchanged line by line."""
    for kind, steps, value, name in edits:
        lines = list(_VALUE.finditer(text))
        if not lines:
            break
        line = lines[int(steps[0] * len(lines))]
        new = toml_value(VALUES[value])
        with_key = {
            "delete": "",
            "replace": f"{line['key']}{new}",
            "rename": f"{json.dumps(name)} = {line['value']}",
            "add": f"{line[0]}\n{json.dumps(name)} = {new}",
            "wrap": f"{line['key']}[{line['value']}]",
            "repeat": f"{line[0]}\n{line[0]}",
        }[kind]
        text = text[: line.start()] + with_key + text[line.end() :]
    return text


def toml_value(value: Any) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | int):
        return repr(value).replace("e+", "e").replace("infinity", "inf")
    if isinstance(value, str):
        return json.dumps(value)
    if value == nested(500, of_lists=True):
        return "[" * 500 + "1" + "]" * 500
    if value == nested(500, of_lists=False):
        return "{a = " * 500 + "1" + "}" * 500
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return "{" + ", ".join(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items()) + "}"


def removed(path: Path) -> None:
    """Nothing is there any more; a link goes, and not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def swapped(path: Path, how: str, other: Path) -> None:
    """Something else in the file's place."""
    removed(path)
    if how == "directory":
        path.mkdir()
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "zeros":
        path.symlink_to("/dev/zero")
    elif how == "dangling":
        path.symlink_to(path.with_name("nowhere"))
    elif how == "loop":
        path.symlink_to(path)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "random":
        path.write_bytes(np.random.default_rng(1).bytes(3000))
    elif how == "other":
        shutil.copy(other, path)
    elif how == "large":
        with path.open("wb") as file:
            file.truncate(20 << 30)


def mutated_zip(path: Path, part: float, change: Any) -> None:
    """One member of the zip changed by `change(name, bytes)`, packed again so that the zip is sound."""
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        names = source.namelist()
        chosen = names[int(part * len(names))]
        for name in names:
            content = source.read(name)
            target.writestr(name, change(name, content) if name == chosen else content)
    path.write_bytes(packed.getvalue())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Hang(BaseException):
    """The command did not come to an end."""


@contextmanager
def guarded(seconds: int = SECONDS, more_memory: int = MORE_MEMORY) -> Iterator[None]:
    """An alarm against hangs, and a limit on how much address space the command may add.

    `seconds` are of this process's own work, as others may use the machine too; one that only waits is stopped
    after ten times as long.
    """

    def ring(*_: object) -> None:
        raise Hang(f"not done within {seconds} s")

    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 1 << 40
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    alarms = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(alarm, ring) for alarm in alarms]
    resource.setrlimit(resource.RLIMIT_AS, (now + more_memory, hard))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for alarm, handler in zip(alarms, before, strict=True):
            signal.signal(alarm, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
