"""Digests of every table that a study writes, so that a change of the code cannot change a number unseen.

A net is a csv with one row per table and column: the number of rows, and a digest of the values. A column that was
renamed or moved to another table passes as long as its values are there; a value that changed does not.

    python tests/golden/nets.py                        compare with the stored nets
    python tests/golden/nets.py --write                rewrite them, after a change on purpose
    python tests/golden/nets.py --tables DIR           also save full copies of the tables as csv
    python tests/golden/nets.py demo mri --write       only these studies

With `ELSEWHERE_GOLDEN_TABLES=DIR`, full copies saved earlier, a difference is shown with its first rows.
The studies on public data need `ELSEWHERE_SHARED` or `../shared`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import blas_kernels  # noqa: F401 - before numpy

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
NETS = HERE / "nets"
COLUMNS = ["table", "column", "rows", "kind", "digest", "sorted"]
DIGITS = 9
SHOWN_ROWS = 5

MACHINE = re.compile(
    r"(^|[._ ])(seconds\w*|\w+_seconds|peak\w*|energy\w*|\w*bytes|device|devices|versions?|python|numpy|pandas|scipy|"
    r"torch|elsewhere|code_version|environment|command|path|created|locked_at|time|seal|"
    r"predictions_digest|scores_digest)($|[._\[ ])"
)
"""Columns that depend on the machine, the time, or the version of a package; digests hang on the last bit of a float."""
KEY = "case_key.csv"
"""Pseudonyms and ids; the pseudonyms are drawn anew for every result, so that the nets hold the ids' digests."""
_SKIPPED_FOLDERS = {"store"}


def tables_of(folder: Path) -> dict[str, pd.DataFrame]:
    """Read every table under a result folder.

    Split files become one table, and so do prediction files of the same name; predicted masks become a table of
    their digests. The numbers of a `summary.json` become a table with one column per path of keys.

    Args:
        folder: What a run wrote.

    Returns:
        The tables by their path in the folder; columns that depend on the machine are left out.
    """
    tables: dict[str, pd.DataFrame] = {}
    parts: dict[str, list[pd.DataFrame]] = {}
    masks: list[dict[str, Any]] = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        relative = file.relative_to(folder)
        name = relative.as_posix()
        if _SKIPPED_FOLDERS & set(relative.parts[:-1]) or file.name.startswith("."):
            continue
        if file.name.endswith(".nii.gz") and "predictions" in relative.parts:
            masks.append({"file": name, **_mask(file)})
        elif file.name in ("summary.json", "index.json"):
            tables[name] = leaves(json.loads(file.read_text()))
        elif file.suffix in (".csv", ".parquet"):
            group = _group(relative)
            table = _read(file)
            if group is None:
                tables[name] = table
            else:
                parts.setdefault(group, []).append(
                    table.assign(file=relative.as_posix().removesuffix(file.suffix))
                )
    for group, frames in parts.items():
        tables[group] = pd.concat(frames, ignore_index=True)
    for name in [name for name in tables if name.split("/")[-1] == KEY]:
        pseudonyms = tables[name].iloc[:, 0]
        ids = dict(zip(pseudonyms, tables[name].iloc[:, 1], strict=True))
        beside = name.removesuffix(KEY)
        tables |= {other: _with_ids(tables[other], ids) for other in tables if other.startswith(beside)}
        tables[name] = tables[name].iloc[:, 1:]
    if masks:
        tables["predictions/masks"] = pd.DataFrame(masks)
    return {name: table.loc[:, ~_of_machine(table)] for name, table in sorted(tables.items())}


def digests(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Make the net of some tables: one row per table and column.

    Args:
        tables: Tables by name.

    Returns:
        `table`, `column`, `rows`, `kind` (number or text), the `digest` of the values as they stand, and `sorted`,
        the digest of the sorted values: two tables that differ in the order of their rows share it.
    """
    rows = []
    for name, table in tables.items():
        for column in sorted(table.columns.astype("str")):
            values = [plain(value) for value in _column(table, column)]
            rows.append(
                {
                    "table": name,
                    "column": column,
                    "rows": len(values),
                    "kind": "number" if all(_is_number(value) for value in values) else "text",
                    "digest": _sha(values),
                    "sorted": _sha(sorted(values)),
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def plain(value: Any) -> str:
    """Write a cell so that equal values are equal text: floats to 9 significant digits, missing as nothing.

    Args:
        value: A cell of a table: a number, a text, a list, or nothing.

    Returns:
        The text.
    """
    if isinstance(value, list | tuple | np.ndarray):
        return "[" + ",".join(plain(item) for item in value) + "]"
    if isinstance(value, dict):
        return json.dumps({str(key): plain(item) for key, item in value.items()}, sort_keys=True)
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | float | np.integer | np.floating):
        number = float(value)
        if math.isnan(number):
            return ""
        if number == 0:
            return "0"
        whole = number.is_integer() and abs(number) < 1e15
        return str(int(number)) if whole else f"{number:.{DIGITS}g}"
    return str(value)


def compare(stored: pd.DataFrame, found: dict[str, pd.DataFrame], *, copies: Path | None = None) -> list[str]:
    """Name every stored column whose values are no longer there.

    Args:
        stored: A net, as `digests` made it earlier.
        found: The tables as they are now.
        copies: A folder with full copies of the earlier tables (`save_tables`), for the first rows that differ.

    Returns:
        One message per changed table and column; none where every stored column is found, under whatever name.
    """
    now = digests(found)
    by_name = {(row.table, row.column): row for row in now.itertuples()}
    anywhere = set(zip(now["rows"], now["digest"], strict=True))
    messages = []
    for old in stored.itertuples():
        new = by_name.get((old.table, old.column))
        if new is None:
            if (old.rows, old.digest) not in anywhere:
                where = "the table" if old.table not in found else "the column"
                messages.append(
                    f"{old.table}: {old.column}: {where} is gone, and no column has its {old.rows} values"
                )
            continue
        if (old.rows, old.digest) == (new.rows, new.digest):
            continue
        if old.rows != new.rows:
            change = f"{old.rows} rows became {new.rows}"
        elif old.sorted == new.sorted:
            change = f"the same {old.rows} values in another order"
        else:
            change = f"{old.kind} values changed"
        rows = _first_rows(copies, old.table, old.column, found[old.table])
        messages.append(f"{old.table}: {old.column}: {change}{rows}")
    return messages


def leaves(tree: Any) -> pd.DataFrame:
    """Lay out a JSON tree as one column per path of keys; the rows are the values along lists and names.

    `*` stands for the names of entries that are alike (metrics, groups, sites), `[]` for every place in a list.
    A study's `tables` are left out: they are the csv files.

    Args:
        tree: What `summary.json` holds.

    Returns:
        The values, padded with nothing to the longest column.
    """
    columns: dict[str, list[Any]] = {}
    for path, _, value in sorted(_walk(tree), key=lambda leaf: leaf[1]):
        if not path.startswith("tables."):
            columns.setdefault(path, []).append(value)
    return pd.DataFrame({path: pd.Series(values, dtype="object") for path, values in columns.items()})


def key_paths(tree: Any) -> list[str]:
    """List the paths of keys in a JSON tree, sorted; `[]` stands for every place in a list.

    Where entries are alike, the outermost names are listed, and what is in each once, under `*`.

    Args:
        tree: What `summary.json` holds.

    Returns:
        Paths such as `verdict.claims[].margin`, `metrics.auroc` and `metrics.*.value`.
    """
    return sorted({path for path, _, _ in _walk(tree, inner=True) if path})


def save_tables(tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write full copies of tables as csv.

    Args:
        tables: Tables by name.
        folder: Where; made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / _copy_name(name), index=False)


def stored_net(name: str) -> pd.DataFrame:
    """Read a stored net.

    Args:
        name: Of the study.

    Returns:
        The net as `digests` made it.
    """
    table = pd.read_csv(NETS / f"{name}.csv", dtype={"digest": "str", "sorted": "str"}, keep_default_na=False)
    return table.sort_values(["table", "column"], ignore_index=True)


def copies_of(name: str) -> Path | None:
    """Find the full copies of a study's earlier tables, under `ELSEWHERE_GOLDEN_TABLES`.

    Args:
        name: Of the study.

    Returns:
        The folder, or None.
    """
    folder = os.environ.get("ELSEWHERE_GOLDEN_TABLES")
    return Path(folder) / name if folder and (Path(folder) / name).is_dir() else None


_Leaf = tuple[str, tuple[str, ...], Any]


def _walk(
    tree: Any, path: str = "", real: tuple[str, ...] = (), *, inner: bool = False, named: bool = True
) -> Iterator[_Leaf]:
    """Every leaf: its path, the path with its names and places for sorting, and the value; `inner`: every node."""
    if isinstance(tree, dict):
        if inner:
            yield path, real, None
        alike = _alike(tree)
        for key, value in tree.items():
            below = f"{path}.{key}" if path else str(key)
            if alike and inner and named:
                yield below, real, None
            if alike:
                below = f"{path}.*" if path else "*"
            yield from _walk(value, below, (*real, str(key)), inner=inner, named=named and not alike)
    elif isinstance(tree, list):
        if inner:
            yield path, real, None
        for place, value in enumerate(tree):
            yield from _walk(value, f"{path}[]", (*real, f"{place:06d}"), inner=inner, named=named)
    elif not (inner and path.endswith("[]")):
        yield path, real, tree


def _alike(tree: dict[str, Any]) -> bool:
    """Whether the entries are of one kind under names that are data, such as metrics or groups."""
    if len(tree) < 2 or not all(isinstance(value, dict) and value for value in tree.values()):
        return False
    keys = [set(value) for value in tree.values()]
    return 2 * len(set.intersection(*keys)) >= len(set.union(*keys))


def _group(relative: Path) -> str | None:
    """The table that a file is a part of; None for a table of its own."""
    if "splits" in relative.parts[:-1]:
        return relative.parent.as_posix()
    if "predictions" in relative.parts[:-1]:
        return f"predictions/{relative.name}"
    return None


def _read(file: Path) -> pd.DataFrame:
    if file.suffix == ".parquet":
        return pd.read_parquet(file)
    return pd.read_csv(file, low_memory=False, keep_default_na=False, na_values=[""])


def _mask(file: Path) -> dict[str, Any]:
    import nibabel

    bits = np.asarray(nibabel.load(file).dataobj) > 0
    return {
        "shape": "x".join(map(str, bits.shape)),
        "voxels": int(bits.sum()),
        "mask": hashlib.sha256(np.packbits(bits).tobytes()).hexdigest()[:16],
    }


def _with_ids(table: pd.DataFrame, ids: dict[str, str]) -> pd.DataFrame:
    """The table with every pseudonym replaced by its id."""
    columns = [name for name in table.columns if table[name].map(lambda value: str(value) in ids).any()]
    return table.assign(**{name: table[name].map(lambda value: ids.get(value, value)) for name in columns})


def _of_machine(table: pd.DataFrame) -> np.ndarray:
    return np.array([bool(MACHINE.search(str(column))) for column in table.columns], dtype=bool)


def _column(table: pd.DataFrame, name: str) -> list[Any]:
    place = [str(column) for column in table.columns].index(name)
    return list(table.iloc[:, place].astype("object"))


def _is_number(text: str) -> bool:
    try:
        float(text or "nan")
    except ValueError:
        return False
    return True


def _sha(values: list[str]) -> str:
    return hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]


def _copy_name(table: str) -> str:
    stem = table.replace("/", "__")
    return stem if stem.endswith(".csv") else f"{stem}.csv"


def _first_rows(copies: Path | None, table: str, column: str, found: pd.DataFrame) -> str:
    """The first rows in which an earlier copy differs; nothing without a copy."""
    if copies is None or not (copies / _copy_name(table)).is_file():
        return ""
    earlier = _read(copies / _copy_name(table))
    if column not in earlier.columns:
        return ""
    old = [plain(value) for value in _column(earlier, column)]
    new = [plain(value) for value in _column(found, column)]
    differing = [row for row, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]]
    lines = [f"\n    row {row}: {old[row]!r} -> {new[row]!r}" for row in differing[:SHOWN_ROWS]]
    rest = len(differing) - SHOWN_ROWS
    return "".join(lines) + (f"\n    and {rest} more" if rest > 0 else "")


def main(arguments: list[str] | None = None) -> int:
    """Compare, rewrite or copy the tables of the studies.

    Args:
        arguments: Of the command line; None for the program's own.

    Returns:
        1 where a table changed and was not rewritten, else 0.
    """
    from golden.golden_studies import STUDIES, write_keys

    parser = argparse.ArgumentParser(description="Digests of every table that a study writes.")
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(STUDIES)}; default: all")
    parser.add_argument("--write", action="store_true", help="rewrite the stored nets and lists of keys")
    parser.add_argument("--tables", type=Path, metavar="DIR", help="save full copies of the tables there")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="run in this folder and leave it there")
    options = parser.parse_args(arguments)
    changed = False
    for name in options.studies or list(STUDIES):
        run: Callable[[Path], dict[str, Path]] = STUDIES[name]
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.keep or Path(temporary)) / name
            summaries = run(folder)
            tables = tables_of(folder / "out")
            if options.tables:
                save_tables(tables, options.tables / name)
            if options.write:
                digests(tables).to_csv(NETS / f"{name}.csv", index=False)
                write_keys(name, folder / "out", summaries)
                print(f"{name}: {len(tables)} tables written")
            else:
                messages = compare(stored_net(name), tables, copies=copies_of(name))
                changed |= bool(messages)
                print(
                    "\n".join([f"{name}: {len(tables)} tables, {len(messages)} changed columns", *messages])
                )
    return int(changed)


if __name__ == "__main__":
    raise SystemExit(main())
