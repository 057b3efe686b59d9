"""Load a cohort: from a cohort folder, or from one table where that suffices."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elsewhere.cohort.table import Cohort, IdGrade, KnownOfCohort
from elsewhere.errors import UserError
from elsewhere.files import explained_refusals, settle
from elsewhere.tables import TableOptions, is_table, read_table
from elsewhere.tables.bytes_in import neighbours
from elsewhere.tables.identifiers import note_source
from elsewhere.tables.options import DEFAULT
from elsewhere.untrusted import read_json

_TABLE_OPTION = re.compile(r"(?<![\w-])--(encoding|delimiter|decimal|map) ('[^']*'|[^\s;,)]*[^\s;,).])")
ID_COLUMNS = ("patient_id", "exam_id", "case_id", "lesion_id")


def load_cohort(
    path: str | Path,
    *,
    column_map: Mapping[str, str] | str | None = None,
    sheet: str | None = None,
    options: TableOptions = DEFAULT,
) -> Cohort:
    r"""Load a cohort from a folder that `Cohort.save` wrote, or from one table with `case_id`.

    The hash of a folder is verified: a number must not carry the hash of another table.

    Args:
        path: The folder, its cohort.json, or a csv, parquet or xlsx table.
        column_map: For a table: the cohort's name of a column to the table's, as a mapping or as `a=X,b=Y`.
            None: the columns have the cohort's names.
        sheet: For an xlsx file: the sheet; None: the first.
        options: For a text table: its delimiter, decimal mark and encoding.

    Returns:
        The cohort.

    Raises:
        UserError: There is no such cohort, it cannot be read, a table or truth file was changed after
            cohort.json was written, or a column map was given with a folder.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "cases.csv"
        >>> written = path.write_text("ID,patient_id\na,p\nb,p\n")
        >>> load_cohort(path, column_map="case_id=ID").counts["patients"]
        1
    """
    path = Path(path)
    note_source(path)
    if path.is_dir():
        if column_map:
            raise UserError(
                "a column map is for single tables; a cohort folder has its names", where=str(path)
            )
        return _load_folder(path)
    if not path.exists():
        raise UserError(
            "there is no such cohort",
            where=str(path),
            fix=f"{neighbours(path)} A cohort is a folder that `elsewhere cohort read` wrote, or a csv, parquet or xlsx table.",
        )
    if path.name == "cohort.json":
        return _load_folder(path.parent)
    if not is_table(path):
        raise UserError(
            "this is neither a cohort folder nor a table", where=str(path), fix="csv, parquet or xlsx."
        )
    from elsewhere.cohort.readers.csv_table import apply_map

    strings = (*ID_COLUMNS, *_sources_of_ids(column_map))
    try:
        frame = read_table(path, sheet=sheet, strings=strings, options=options)
        frame = apply_map(frame, column_map, where=str(path))
        return Cohort.from_frame(frame, root=path.parent, where=str(path))
    except UserError as error:
        raise _read_it_first(error, path, options) from error


def _read_it_first(error: UserError, path: Path, options: TableOptions) -> UserError:
    """Advise `cohort read`: options of this command are for the predictions, not for a cohort table."""
    wanted = dict(_TABLE_OPTION.findall(re.sub(r"\(and [^)]*\)", "", error.fix or "")))
    if not wanted:
        return error
    given = {"encoding": options.encoding, "delimiter": options.delimiter}
    given |= {"decimal": options.decimal} if options.decimal != "." else {}
    chosen = {name: value for name, value in given.items() if value} | wanted
    words = ["elsewhere", "cohort", "read", "csv", shlex.quote(str(path))]
    for name, value in chosen.items():
        words += [f"--{name}", value if value.startswith("'") else shlex.quote(value)]
    listed = re.search(r"The columns are: .*", error.fix or "", re.DOTALL)
    return UserError(
        error.what,
        where=error.where,
        fix=f"Read it into a cohort folder, and give that folder: `{' '.join([*words, '--out', 'cohort'])}`."
        + (f" {listed.group(0)}" if listed else ""),
    )


def _sources_of_ids(column_map: Mapping[str, str] | str | None) -> tuple[str, ...]:
    from elsewhere.cohort.readers.csv_table import parse_pairs

    return tuple(source for target, source in parse_pairs(column_map).items() if target in ID_COLUMNS)


def _load_folder(folder: Path) -> Cohort:
    with explained_refusals(folder, "the cohort cannot be read"):
        settle(folder)
    meta = _read_meta(folder)
    cases = read_table(folder / "cases.parquet", strings=ID_COLUMNS)
    lesions_path = folder / "lesions.parquet"
    lesions = (
        read_table(lesions_path, strings=ID_COLUMNS, allow_empty=True) if lesions_path.exists() else None
    )
    grades = {
        str(name): IdGrade(grade=str(entry.get("grade")), why=str(entry.get("why")))
        for name, entry in _mapping(meta, "id_grades", folder).items()
        if isinstance(entry, dict)
    }
    root = meta.get("root")
    warnings = meta.get("warnings", [])
    cohort = Cohort.from_frame(
        cases,
        lesions=lesions,
        reader=str(meta.get("reader", "table")),
        root=Path(root) if isinstance(root, str) and Path(root).is_dir() else folder,
        warnings=tuple(str(word) for word in warnings) if isinstance(warnings, list) else (),
        where=str(folder),
        synthetic=meta.get("synthetic") is True,
        known=KnownOfCohort(
            id_grades=grades,
            counts=_mapping(meta, "counts", folder),
            truth_files={str(k): str(v) for k, v in _mapping(meta, "truth_files", folder).items()},
            other_id_column=str(meta["other_id_column"]) if meta.get("other_id_column") else None,
        ),
    )
    if cohort.hash != meta.get("hash"):
        changed = [
            name
            for name, digest in _mapping(meta, "truth_files", folder).items()
            if cohort.truth_files.get(name) != digest
        ]
        what = (
            f"truth file '{changed[0]}'" + (f" and {len(changed) - 1} more" if len(changed) > 1 else "")
            if changed
            else "a table"
        )
        raise UserError(
            f"{what} has changed since this cohort was written: its hash is no longer the one in cohort.json",
            where=str(folder),
            fix="If the change is intended, write the cohort again: elsewhere cohort read csv "
            f"{folder / 'cases.parquet'} --out NEW_DIR.",
        )
    return cohort


def _mapping(meta: Mapping[str, Any], key: str, folder: Path) -> dict[str, Any]:
    value = meta.get(key) or {}
    if not isinstance(value, dict):
        raise UserError(f"'{key}' in cohort.json is not a table", where=str(folder))
    return value


def _read_meta(folder: Path) -> dict[str, Any]:
    path = folder / "cohort.json"
    if not path.is_file() or not (folder / "cases.parquet").is_file():
        raise UserError(
            "this folder is no cohort (it needs cases.parquet and cohort.json)",
            where=str(folder),
            fix="Make one: elsewhere cohort read READER SOURCE --out DIR; or give a single csv or parquet.",
        )
    return read_json(path, what="description of the cohort", any_name=True)
