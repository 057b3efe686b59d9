"""The DICOM files of BCS-DBT, joined to the volumes by the tables of file paths (DBT-01). None is opened.

The published tables give two paths per volume, and neither need be the one on disk: the collection is
downloaded into folders named by a manifest, by other tools into other folders, and files are renamed. A series
is therefore found by the name of its folder, the last one of `descriptive_path` or `classic_path`, wherever
it lies below the source. Letter case, Windows separators, the `-NA-` that one version of the download tool
writes into names, and a modality before a UID (`MG_1.3.6...`) do not count. Where several rows have a series
folder of one name, the row with the longest common tail of folders has it. A folder below another patient's
is never taken.

Files that are not in such a folder are joined where they have the name of the series (`1.3.6....dcm`), or
the name that one row alone gives. What was not found, and what is there without a row, is counted and named.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from elsewhere.cohort.readers.bcs_dbt_tables import PublishedTables
from elsewhere.cohort.readers.scans import Notes
from elsewhere.errors import UserError, name_rows
from elsewhere.tables import read_table

PATH_IDS = ("PatientID", "StudyUID", "View")
PATH_COLUMNS = ("descriptive_path", "classic_path")
NAMED = 5
"""How many files or volumes a warning names."""
_ENDINGS = (".dcm", ".dicom", ".volume.json")
_NUMBERED = re.compile(r"(?:im|img|image|i)?[-_]?\d[\d.\-]*", re.IGNORECASE)
_TOOL_NA = re.compile(r"-na(?=-)")
_MODALITY = re.compile(r"^[a-z]{2,4}_(?=\d+\.\d)")
_PATIENT = re.compile(r"dbt-p\d+")

Parts = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SeriesRow:
    """One row of the tables of file paths.

    Args:
        case_id: StudyUID/View, the view in lower case.
        patient: The PatientID.
        paths: The folders and the file of each path that the row gives, plainly spelt.
    """

    case_id: str
    patient: str
    paths: tuple[Parts, ...]


@dataclass(kw_only=True)
class DicomFolder:
    """A folder with DICOM files.

    Args:
        path: Its path below the source.
        plain: The names of the folders of the path, plainly spelt.
        files: The names of its files, sorted.
    """

    path: Path
    plain: Parts
    files: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class JoinedSeries:
    """Which file each row has, and what could not be joined.

    Args:
        file: The file of each row, below the source; empty where there is none.
        twice: Rows whose series is in several places, with the number of places.
        several_files: Series folders with several files, none of which has the name in the table.
        doubtful: Series folders that fit several rows equally well.
        further: Files beside the one that was joined.
        strangers: Files that belong to no row.
    """

    file: list[str]
    twice: list[str] = field(default_factory=list)
    several_files: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    further: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)


def add_volumes(cases: pd.DataFrame, root: Path, tables: PublishedTables) -> Notes:
    """Add the column `image`, the DICOM file of each volume, by the tables of file paths (DBT-01).

    Args:
        cases: One row per volume, with `case_id` and `patient_id`; receives the column.
        root: The folder below which the files are searched.
        tables: The tables that were found in it.

    Returns:
        Counts and warnings: volumes without a row or a file, rows without a volume, series in several places,
        and files without a row.

    Raises:
        UserError: There is no table of file paths or no DICOM file, a volume has two rows, or no file fits.
    """
    notes = Notes()
    sources = [part.paths for part in tables.splits if part.paths is not None]
    if not sources:
        raise UserError(
            "volumes are asked for, and the folder has no table of file paths",
            where=str(root),
            fix="Put the published *file-paths*.csv next to the labels, or read the tables without volumes.",
        )
    rows = _one_row_a_volume(
        [row for path in sources for row in read_path_rows(path, notes)], where=str(root)
    )
    folders = find_dicom_folders(root)
    number = sum(len(folder.files) for folder in folders)
    if not number:
        raise UserError(
            "volumes are asked for, and there is no DICOM file in the folder or below it",
            where=str(root),
            fix="Put the downloaded folders (Breast-Cancer-Screening-DBT or manifest-...) into it, or a link to "
            "them, or read the tables without volumes.",
        )
    joined = join_series(rows, folders, root)
    if not any(joined.file):
        raise UserError(
            f"none of the {number} DICOM files fits one of the {len(rows)} rows of file paths",
            where=str(root),
            fix=f"A series is found by its folder, the last one of descriptive_path or classic_path. A row has "
            f"'{'/'.join(rows[0].paths[0]) if rows and rows[0].paths else ''}', a file is "
            f"'{(folders[0].path / folders[0].files[0]).as_posix()}'.",
        )
    _report(cases, rows, joined, notes)
    return notes


def read_path_rows(path: Path, notes: Notes) -> list[SeriesRow]:
    """Read a table of file paths.

    Args:
        path: The csv file.
        notes: Receives the rows without a path.

    Returns:
        Its rows.

    Raises:
        UserError: A column or an id is missing.
    """
    table = read_table(path, required=PATH_IDS, allow_empty=True)
    given = [name for name in PATH_COLUMNS if name in table.columns]
    if not given:
        raise UserError(
            f"neither a column {PATH_COLUMNS[0]} nor {PATH_COLUMNS[1]}",
            where=str(path),
            fix=f"Use the published table: {', '.join((*PATH_IDS, *PATH_COLUMNS))}.",
        )
    ids = {name: table[name].astype("string").str.strip().fillna("") for name in PATH_IDS}
    for name, values in ids.items():
        empty = [at + 1 for at, value in enumerate(values) if not value]
        if empty:
            raise UserError(
                f"{len(empty)} rows have no {name}",
                where=f"{path}, rows {name_rows(empty)}",
                fix="Fill the ids in: a volume is named by its study and its view.",
            )
    texts = [table[name].astype("string").fillna("").tolist() for name in given]
    rows = [
        SeriesRow(
            case_id=f"{study}/{view.lower()}",
            patient=patient,
            paths=tuple(parts for parts in map(plain_parts, paths) if parts),
        )
        for patient, study, view, *paths in zip(*(ids[name] for name in PATH_IDS), *texts, strict=True)
    ]
    notes.count(
        "path_rows_without_path",
        [row.case_id for row in rows if not row.paths],
        f"rows of {path.name} that give no path",
    )
    return rows


def plain_parts(path: str) -> Parts:
    r"""Split a path into its folders and its file, spelt so that copies of a download compare as equal.

    Args:
        path: The path, with slashes or with backslashes.

    Returns:
        The names, without `.` and `..` and a drive.

    Example:
        >>> plain_parts(r"D:\Breast-Cancer-Screening-DBT\DBT-P1\16214.000000-NA-18959\1-1.dcm")
        ('breast-cancer-screening-dbt', 'dbt-p1', '16214.000000-18959', '1-1.dcm')
    """
    names = (name.strip() for name in path.replace("\\", "/").split("/"))
    return tuple(_plain(name) for name in names if name not in ("", ".", "..") and not name.endswith(":"))


def _plain(name: str) -> str:
    return _TOOL_NA.sub("", _MODALITY.sub("", name.strip().casefold()))


def _is_dicom(name: str) -> bool:
    """By the name alone: DICOM files have an ending, or are numbered without one."""
    if name.startswith((".", "~")):
        return False
    return name.casefold().endswith(_ENDINGS) or _NUMBERED.fullmatch(name) is not None


def find_dicom_folders(root: Path) -> list[DicomFolder]:
    """List the folders below the source that hold DICOM files, by the names of the files.

    Links to folders are followed, each folder once.

    Args:
        root: The source.

    Returns:
        The folders, in the order of their paths.

    Raises:
        UserError: A folder cannot be listed.
    """
    found: list[DicomFolder] = []
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise UserError(
            f"the folder cannot be listed ({error.strerror or error})",
            where=str(error.filename or root),
            fix="Allow reading it, or move it out of the source.",
        ) from error

    for top, below, names in os.walk(root, onerror=refuse, followlinks=True):
        status = Path(top).stat()
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        below[:] = sorted(name for name in below if not name.startswith(".") and _is_text(name))
        files = sorted(name for name in names if _is_dicom(name) and _is_text(name))
        if files:
            path = Path(top).relative_to(root)
            found.append(DicomFolder(path=path, plain=tuple(map(_plain, path.parts)), files=files))
    return sorted(found, key=lambda folder: folder.path.as_posix())


def _is_text(name: str) -> bool:
    """Whether a name is UTF-8: another one cannot stand in a table."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def join_series(rows: Sequence[SeriesRow], folders: Sequence[DicomFolder], root: Path) -> JoinedSeries:
    """Join each row of the file paths to a file.

    Of a series in several places the one whose folders agree best with the row is used, then the larger file,
    then the first by name.

    Args:
        rows: The rows of the tables.
        folders: The folders with DICOM files.
        root: The folder that their paths are relative to.

    Returns:
        One file per row, and what could not be joined.
    """
    joined = JoinedSeries(file=[""] * len(rows))
    of_series: dict[str, set[int]] = defaultdict(set)
    of_file: dict[str, set[int]] = defaultdict(set)
    for at, row in enumerate(rows):
        for parts in row.paths:
            of_file[parts[-1]].add(at)
            if len(parts) > 1:
                of_series[parts[-2]].add(at)
    places: dict[int, list[DicomFolder]] = defaultdict(list)
    loose: list[tuple[DicomFolder, str]] = []
    for folder in folders:
        fitting = _fitting(
            folder.plain, of_series.get(folder.plain[-1], set()) if folder.plain else set(), rows
        )
        if len(fitting) > 1:
            joined.doubtful.append(folder.path.as_posix())
        elif fitting:
            places[fitting[0]].append(folder)
        else:
            loose += [(folder, name) for name in folder.files]
    for at, candidates in sorted(places.items()):
        _take(at, rows[at], candidates, joined, root)
    _join_loose(rows, loose, joined, of_series, of_file)
    return joined


def _fitting(folders: Parts, candidates: Iterable[int], rows: Sequence[SeriesRow]) -> list[int]:
    """The rows that agree best with the folders of a series, none of another patient."""
    own = {name for name in folders if _PATIENT.fullmatch(name)}
    tails = {
        at: max(_tail(folders, parts[:-1]) for parts in rows[at].paths)
        for at in candidates
        if not own or rows[at].patient.casefold() in own
    }
    best = max(tails.values(), default=0)
    return sorted(at for at, tail in tails.items() if tail == best)


def _tail(folders: Parts, other: Parts) -> int:
    """How many folders agree, from the last one upwards."""
    common = 0
    for a, b in zip(reversed(folders), reversed(other), strict=False):
        if a != b:
            break
        common += 1
    return common


def _take(
    at: int, row: SeriesRow, candidates: Sequence[DicomFolder], joined: JoinedSeries, root: Path
) -> None:
    """Choose the file of a row among the folders of its series."""
    names = {parts[-1] for parts in row.paths}
    ranked: list[tuple[int, int, str, DicomFolder]] = []
    for folder in candidates:
        listed = [name for name in folder.files if _plain(name) in names]
        chosen = folder.files if len(folder.files) == 1 else listed
        if len(chosen) != 1:
            joined.several_files.append(f"{folder.path.as_posix()} ({len(folder.files)} files)")
            continue
        file = (folder.path / chosen[0]).as_posix()
        tail = max(_tail(folder.plain, parts[:-1]) for parts in row.paths)
        size = (root / file).stat().st_size if len(candidates) > 1 else 0
        ranked.append((-tail, -size, file, folder))
        joined.further += [(folder.path / name).as_posix() for name in folder.files if name != chosen[0]]
    if len(candidates) > 1:
        joined.twice.append(f"{row.case_id} ({len(candidates)} places)")
    if ranked:
        joined.file[at] = min(ranked, key=lambda entry: entry[:3])[2]


def _join_loose(
    rows: Sequence[SeriesRow],
    loose: Sequence[tuple[DicomFolder, str]],
    joined: JoinedSeries,
    of_series: dict[str, set[int]],
    of_file: dict[str, set[int]],
) -> None:
    """Join files outside the series' folders by their own names, where a name is that of one row alone."""
    found: dict[int, list[str]] = defaultdict(list)
    for folder, name in loose:
        path = (folder.path / name).as_posix()
        stem = _plain(re.sub(r"\.(dcm|dicom)$", "", name, flags=re.IGNORECASE))
        candidates = of_series.get(stem, set()) or of_file.get(_plain(name), set())
        own = {part for part in folder.plain if _PATIENT.fullmatch(part)}
        at = next(iter(candidates)) if len(candidates) == 1 else None
        if at is None or joined.file[at] or (own and rows[at].patient.casefold() not in own):
            joined.strangers.append(path)
        else:
            found[at].append(path)
    for at, files in sorted(found.items()):
        joined.file[at] = min(files)
        if len(files) > 1:
            joined.twice.append(f"{rows[at].case_id} ({len(files)} places)")


def _one_row_a_volume(rows: Sequence[SeriesRow], *, where: str) -> list[SeriesRow]:
    """Leave out repetitions of a row; two different rows of one volume are a mistake."""
    first: dict[str, SeriesRow] = {}
    for row in rows:
        if first.setdefault(row.case_id, row) != row:
            raise UserError(
                f"the volume {row.case_id} has two rows of file paths that differ",
                where=where,
                fix="Keep one row per volume.",
            )
    return list(first.values())


def _report(cases: pd.DataFrame, rows: Sequence[SeriesRow], joined: JoinedSeries, notes: Notes) -> None:
    """Fill the column `image`, and count what has no counterpart."""
    file_of_case: dict[str, str] = {}
    for row, file in zip(rows, joined.file, strict=True):
        file_of_case[row.case_id] = file_of_case.get(row.case_id) or file
    patient_of_case = dict(zip(cases["case_id"], cases["patient_id"], strict=True))
    ids = cases["case_id"].tolist()
    cases["image"] = pd.Series(
        [file_of_case.get(name) or None for name in ids], index=cases.index, dtype="str"
    )
    total = len(ids)
    notes.counts["volumes_with_file"] = sum(bool(file_of_case.get(name)) for name in ids)
    notes.count(
        "volumes_without_path_row",
        [name for name in ids if name not in file_of_case],
        f"volumes without a file, since the file paths do not list them, of {total}",
    )
    notes.count(
        "volumes_without_file",
        [name for name in ids if file_of_case.get(name) == ""],
        f"volumes whose file was not found, of {total}",
    )
    strange = [row.case_id for row in rows if row.case_id not in patient_of_case]
    named_files: list[str] = []
    notes.count(
        "path_rows_without_volume",
        strange,
        "volumes of the file paths that the labels do not list, not used",
    )
    notes.count(
        "path_rows_of_another_patient",
        [row.case_id for row in rows if patient_of_case.get(row.case_id, row.patient) != row.patient],
        "rows of the file paths that name another patient than the labels do; the labels' is used",
    )
    for name, what, listed in (
        ("series_in_several_places", "series that are in several places; one of them is used", joined.twice),
        (
            "series_with_several_files",
            "series folders with several files, none or several with the name in the table; not used",
            joined.several_files,
        ),
        ("doubtful_series", "series folders that fit several rows equally well; not used", joined.doubtful),
        ("further_files", "files beside the file of a volume, in its folder; not used", joined.further),
        ("files_without_row", "DICOM files that belong to no row of the file paths", joined.strangers),
    ):
        notes.count(name, listed, what)
        if name != "series_in_several_places":
            named_files += [re.sub(r" \(\d+ files\)$", "", text) for text in listed[:NAMED]]
    if named_files:
        notes.counts["named_files"] = named_files
    if strange:
        notes.counts["named_ids"] = [part for name in strange[:NAMED] for part in (name, name.split("/")[0])]
