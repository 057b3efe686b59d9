"""Writing: whole or not at all. A reader never sees half a file, and a crash leaves the old one."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import gzip
import io
import json
import math
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from elsewhere.errors import UserError

RESULT_MARKS = ("summary.json", "cohort.json")


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary sibling that takes the name at the end, or vanishes."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise UserError(
            f"the file cannot be written ({error.strerror or error})",
            where=str(path),
            fix="Free some space, and run the same command again." if full else None,
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(text: str, path: str | Path) -> None:
    """`text` as UTF-8, atomically."""
    with _replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(obj: Any, path: str | Path) -> None:
    """`obj` as JSON in full precision; NaN and infinite become null (JSON has no word for them)."""
    write_text(json.dumps(to_jsonable(obj), indent=2, ensure_ascii=False, allow_nan=False) + "\n", path)


def to_jsonable(obj: Any) -> Any:
    """Plain Python for JSON: numpy, pandas, dataclasses, paths and dates included."""
    if obj is None or isinstance(obj, str | bool):
        return obj
    if obj is pd.NA or obj is pd.NaT:
        return None
    if isinstance(obj, int | np.integer):
        return int(obj)
    if isinstance(obj, float | np.floating):
        return float(obj) if math.isfinite(obj) else None
    if isinstance(obj, np.bool_):
        return bool(obj)
    if isinstance(obj, Mapping):
        return {str(key): to_jsonable(value) for key, value in obj.items()}
    if isinstance(obj, pd.DataFrame):
        return [to_jsonable(row) for row in obj.to_dict(orient="records")]
    if isinstance(obj, np.ndarray | pd.Series | pd.Index):
        return [to_jsonable(value) for value in obj.tolist()]
    if isinstance(obj, list | tuple):
        return [to_jsonable(value) for value in obj]
    if isinstance(obj, set | frozenset):
        return sorted((to_jsonable(value) for value in obj), key=str)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {f.name: to_jsonable(getattr(obj, f.name)) for f in dataclasses.fields(obj)}
    if isinstance(obj, Path):
        return obj.as_posix()
    if isinstance(obj, datetime.datetime | datetime.date | datetime.time):
        return obj.isoformat()
    raise TypeError(f"{type(obj).__name__} has no JSON form")


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """csv (.csv, .tsv, .gz) or parquet by the ending; atomic; the same frame gives the same bytes."""
    path = Path(path)
    lower = path.name.lower()
    if lower.endswith((".parquet", ".pq")):
        # The pandas metadata is dropped: it names versions, and a table's bytes should not.
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        with _replacing(path) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_statistics=True)
        return
    if not lower.endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")):
        raise UserError(
            f"tables cannot be written as '{path.suffix}'",
            where=str(path),
            fix="Use .csv, .tsv, .csv.gz or .parquet.",
        )
    text = frame.to_csv(index=False, lineterminator="\n", sep="\t" if ".tsv" in lower else ",").encode(
        "utf-8"
    )
    if lower.endswith(".gz"):
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream:
            stream.write(text)
        text = packed.getvalue()
    with _replacing(path) as temporary:
        temporary.write_bytes(text)


def check_out(out: str | Path | None, *, marks: tuple[str, ...] = RESULT_MARKS) -> None:
    """Refuse a folder that must not be replaced, before any work is done; None is no folder."""
    if out is None:
        return
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise UserError("there is a file of this name", where=str(out), fix="Give another --out.")
    if out.is_dir() and any(out.iterdir()) and not any((out / mark).is_file() for mark in marks):
        raise UserError(
            "the folder holds other things and is no earlier result, so it is left alone",
            where=str(out),
            fix="Give a new or empty --out.",
        )


@contextlib.contextmanager
def staged_directory(out: str | Path, *, marks: tuple[str, ...] = RESULT_MARKS) -> Iterator[Path]:
    """A temporary sibling of `out`, renamed to `out` when the block ends well, removed when it does not.

    An `out` that exists is replaced only if it is empty or an earlier result of ours (holds one of
    `marks`); anything else is refused before any work is done.
    """
    out = Path(out)
    check_out(out, marks=marks)
    target = out.resolve()
    staged = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        staged.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"the folder cannot be made ({error.strerror or error})", where=str(out)) from error
    try:
        yield staged
        _swap(staged, target, out)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _swap(staged: Path, target: Path, shown: Path) -> None:
    try:
        if target.is_dir() and any(target.iterdir()):
            old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
            target.replace(old)
            try:
                staged.replace(target)
            except OSError:
                old.replace(target)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            staged.replace(target)
    except OSError as error:
        raise UserError(
            f"the result cannot be put in place ({error.strerror or error})", where=str(shown)
        ) from error
