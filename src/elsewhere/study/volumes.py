"""The volumes of a study's cohorts, lazily, and their digests: what names a volume in a training's key.

A digest is of the files' bytes. A file of the same path, size and time of change is the same file, as for
pictures: the second time nothing is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.inputs.mri.files import FileVolumes, file_digest
from elsewhere.inputs.mri.source import MriSource
from elsewhere.study.case_rows import case_rows
from elsewhere.study.pictures import Report
from elsewhere.tables import write_json

SAVED_EVERY = 100
"""Decoding a whole set takes minutes: a plan that is stopped begins where it was."""


def volumes_of(
    cohorts: Cohort | Iterable[Cohort] | Mapping[str, Cohort],
    *,
    named: Callable[[str, str], str] = lambda dataset, case_id: f"{dataset}/{case_id}",
) -> FileVolumes:
    """Find the volumes of every case that has an image. No file is opened yet.

    A row with `mm_per_px` is a slice picture of three phases; any other `image` is a patient's folder of
    NIfTI phases. A case without an image is not in the result (`case in volumes` tells).

    Args:
        cohorts: One cohort or several.
        named: Makes the name of a case from its dataset and id; 'DATASET/case_id' unless it is given.

    Returns:
        The volumes by the names of the cases.

    Raises:
        TypeError: The source of MRI that is registered reads something else than files.
    """
    if isinstance(cohorts, Cohort):
        held: Iterable[Cohort] = [cohorts]
    else:
        held = cohorts.values() if isinstance(cohorts, Mapping) else cohorts
    rows = [row for cohort in held for row in case_rows(cohort, named=named)]
    found = MriSource.of_cases(rows).volumes
    if not isinstance(found, FileVolumes):
        raise TypeError("volumes of a cohort are files")
    return found


def digests(
    volumes: FileVolumes,
    cases: Iterable[str] | None = None,
    *,
    cache: Path | None = None,
    progress: Report | None = None,
) -> dict[str, str]:
    """Compute `volumes.digest` of every case. Files are read in threads, and only those that have changed.

    Args:
        volumes: The volumes.
        cases: The cases to look at; None: all.
        cache: A JSON file that remembers the digests of files by path, size and time of change; None: every
            file is read.
        progress: Called with what is done, how many files were read, and how many there are; None: nobody is
            told.

    Returns:
        The digest of each case.

    Raises:
        UserError: A file does not exist.
    """
    names = list(volumes.cases if cases is None else cases)
    told = _file_digests((path for name in names for path in volumes.files(name).phases), cache, progress)
    return {name: volumes.digest(name, of_file=told.__getitem__) for name in names}


def mask_digests(
    volumes: FileVolumes,
    cases: Iterable[str] | None = None,
    *,
    cache: Path | None = None,
    progress: Report | None = None,
) -> dict[str, str]:
    """Compute `volumes.mask_digest` of every case, with files read as in `digests`.

    Args:
        volumes: The volumes.
        cases: The cases to look at; None: all.
        cache: A JSON file that remembers the digests of files; None: every file is read.
        progress: Called with what is done, how many files were read, and how many there are; None: nobody is
            told.

    Returns:
        The digest of each case's mask.

    Raises:
        UserError: A file does not exist.
    """
    names = list(volumes.cases if cases is None else cases)
    masks = (volumes.files(name).mask for name in names)
    told = _file_digests((path for path in masks if path is not None), cache, progress)
    return {name: volumes.mask_digest(name, of_file=told.__getitem__) for name in names}


def voxel_digests(
    volumes: FileVolumes,
    cases: Iterable[str] | None = None,
    *,
    cache: Path | None = None,
    progress: Report | None = None,
) -> dict[str, str]:
    """Compute `volumes.voxel_digest` of every case: of the voxels, whatever the file's header or packing.

    A volume is decoded once; from then on its digest is known by the bytes of its file.

    Args:
        volumes: The volumes.
        cases: The cases to look at; None: all.
        cache: A JSON file that remembers the digests of voxels; the digests of files are kept beside it in
            volumes.json. None: every volume is decoded.
        progress: Called with what is done, how many volumes were decoded, and how many there are; None:
            nobody is told.

    Returns:
        The digest of each case.

    Raises:
        UserError: A file does not exist or cannot be decoded.
    """
    names = list(volumes.cases if cases is None else cases)
    first = {name: volumes.files(name).phases[0] for name in names}
    of_file = _file_digests(first.values(), cache.with_name("volumes.json") if cache else None, progress)
    known = _read_cache(cache, width=1)
    keys = {name: f"{of_file[first[name]]} {volumes.files(name).slice_spacing is not None}" for name in names}
    todo = list({keys[name]: name for name in names if keys[name] not in known}.values())
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for done, (name, digest) in enumerate(
            zip(todo, pool.map(volumes.voxel_digest, todo), strict=True), start=1
        ):
            known[keys[name]] = [digest]
            if cache is not None and (done % SAVED_EVERY == 0 or done == len(todo)):
                write_json({"version": 1, "files": known}, cache)
            if progress and (done % 50 == 0 or done == len(todo)):
                progress("looking for duplicates", done, len(todo))
    return {name: str(known[keys[name]][0]) for name in names}


def _file_digests(
    files: Iterable[Path], cache: Path | None, progress: Report | None = None
) -> dict[Path, str]:
    paths = list(dict.fromkeys(files))
    known = _read_cache(cache)
    told: dict[Path, str] = {}
    fresh: dict[str, list[int | str]] = {}
    todo: list[tuple[Path, os.stat_result]] = []
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            raise UserError("there is no such file", where=str(path), fix="Fetch it again.") from None
        row = known.get(str(path))
        if row is not None and row[:2] == [state.st_size, state.st_mtime_ns]:
            told[path] = str(row[2])
        else:
            todo.append((path, state))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        digested = pool.map(lambda item: file_digest(item[0]), todo)
        for done, ((path, state), digest) in enumerate(zip(todo, digested, strict=True), start=1):
            told[path] = digest
            fresh[str(path)] = [state.st_size, state.st_mtime_ns, digest]
            if progress and (done % 50 == 0 or done == len(todo)):
                progress("looking at volumes", done, len(todo))
    if fresh and cache is not None:
        write_json({"version": 1, "files": known | fresh}, cache)
    return told


def empty_masks(
    volumes: FileVolumes,
    digest: Mapping[str, str],
    *,
    cache: Path | None = None,
    progress: Report | None = None,
) -> tuple[str, ...]:
    """Find the cases whose expert's mask holds no voxel.

    Each mask is read once; from then on the answer is known by its digest. A mask that cannot be read is
    reported where it is needed, not here.

    Args:
        volumes: The volumes.
        digest: The digest of each mask by case, as from `mask_digests`; these cases are looked at.
        cache: A JSON file that remembers the answers; None: every mask is read.
        progress: Called with what is done, how many masks were read, and how many there are; None: nobody is
            told.

    Returns:
        Those cases, in the order of `digest`.
    """
    names = [name for name in digest if volumes.files(name).mask is not None]
    known = _read_cache(cache, width=1)
    todo = [name for name in names if digest[name] not in known]

    def look(name: str) -> bool | None:
        try:
            mask = volumes.mask(name)
        except UserError:
            return None
        return mask is not None and not mask.any()

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for done, (name, bare) in enumerate(zip(todo, pool.map(look, todo), strict=True), start=1):
            if bare is not None:
                known[digest[name]] = [int(bare)]
            if progress and (done % 50 == 0 or done == len(todo)):
                progress("looking at masks", done, len(todo))
    if todo and cache is not None:
        write_json({"version": 1, "files": known}, cache)
    return tuple(name for name in names if known.get(digest[name]) == [1])


def _read_cache(cache: Path | None, *, width: int = 3) -> dict[str, list[int | str]]:
    """A cache that cannot be read is no cache."""
    if cache is None:
        return {}
    try:
        held = json.loads(cache.read_text(encoding="utf-8"))
        rows = held["files"] if held["version"] == 1 else {}
        return {str(path): row for path, row in rows.items() if isinstance(row, list) and len(row) == width}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
