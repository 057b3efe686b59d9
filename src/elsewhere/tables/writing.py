"""Atomic writing: a reader never sees half a file, and a crash leaves the old one."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from elsewhere.errors import UserError
from elsewhere.files import replacing, write_bytes


def write_text(text: str, path: str | Path) -> None:
    """Write text as UTF-8, atomically; a file name in it that is not UTF-8 has its bytes escaped.

    Args:
        text: The text.
        path: The file to write.
    """
    write_bytes(text.encode("utf-8", "backslashreplace"), Path(path))


def write_json(obj: Any, path: str | Path) -> None:
    """Write JSON in full precision; NaN and infinite become null (JSON has no word for them).

    Args:
        obj: Any object that `to_jsonable` converts.
        path: The file to write.
    """
    write_text(json.dumps(to_jsonable(obj), indent=2, ensure_ascii=False, allow_nan=False) + "\n", path)


def to_jsonable(obj: Any) -> Any:
    """Convert an object to plain Python for JSON: numpy, pandas, dataclasses, paths and dates included.

    Args:
        obj: The object. NaN and infinite become None, sets become sorted lists, tables become one mapping per
            row.

    Returns:
        Mappings, lists, text, numbers, truth values and None.

    Raises:
        TypeError: The object, or a part of it, has no JSON form.

    Example:
        >>> to_jsonable({"auroc": np.float64(0.9), "gap": float("nan"), "sites": ("A", "B")})
        {'auroc': 0.9, 'gap': None, 'sites': ['A', 'B']}
    """
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


def write_table(frame: pd.DataFrame, path: str | Path, *, metadata: Mapping[str, str] | None = None) -> None:
    """Write a table as csv or parquet by the file's ending, atomically; the same frame gives the same bytes.

    Args:
        frame: The table.
        path: The file to write: .csv, .tsv, .csv.gz, .tsv.gz, .parquet or .pq.
        metadata: Texts by name that a parquet file carries; None for none. Text formats have no place for them.

    Raises:
        UserError: The file has another ending, or cannot carry metadata.
    """
    path = Path(path)
    lower = path.name.lower()
    if metadata is not None and not lower.endswith((".parquet", ".pq")):
        raise UserError(
            f"a table of the kind '{path.suffix}' cannot carry metadata", where=str(path), fix="Use .parquet."
        )
    if lower.endswith((".parquet", ".pq")):
        # The pandas metadata is dropped: it names versions, and a table's bytes should not.
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(
            dict(metadata) if metadata else None
        )
        with replacing(path) as temporary, temporary.open("wb") as file:
            pq.write_table(table, file, compression="zstd", write_statistics=True)
        return
    if not lower.endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")):
        raise UserError(
            f"tables cannot be written as '{path.suffix}'",
            where=str(path),
            fix="Use .csv, .tsv, .csv.gz or .parquet.",
        )
    text = frame.to_csv(index=False, lineterminator="\n", sep="\t" if ".tsv" in lower else ",").encode(
        "utf-8", "backslashreplace"
    )
    if lower.endswith(".gz"):
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream:
            stream.write(text)
        text = packed.getvalue()
    write_bytes(text, path)
