"""Cuts many slides, a part per slide, and puts the parts together.

OUT.parquet           the table, written when every slide was tried
OUT.parquet.parts/    a part per slide that is done; it stays until all slides are, and a run resumes from it
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere._version import __version__
from elsewhere.cohort.patch_table import (
    PatchTable,
    check_ending,
    read_patch_table,
    summarise_rows,
    write_patch_table,
)
from elsewhere.commands.output import Report
from elsewhere.commands.slide_patches.cases import SlideCase, SlideCases, find_cases
from elsewhere.commands.slide_patches.cutting import CutSettings, cut_case
from elsewhere.commands.slide_patches.workers import run_each
from elsewhere.engine.files import FileLock
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, FileSystemError, UserError, name_rows
from elsewhere.files import check_out_file, explained_refusals, human_bytes
from elsewhere.files.writing import make_folders, remove_empty
from elsewhere.inputs.slides.annotations.outlines import COUNTED
from elsewhere.untrusted import printable

FORMAT = 1
_PART = re.compile(r"[0-9a-f]{64}\.parquet")
_NOT_WRONG = ("outlines", "holes")
_MOST_SHOWN = 40


@dataclass(frozen=True, kw_only=True)
class CutTask:
    """One slide to cut.

    Attributes:
        case: The slide.
        settings: How it is cut.
        part: The file of its part.
    """

    case: SlideCase
    settings: CutSettings
    part: Path


@dataclass(frozen=True, kw_only=True)
class PatchesReport:
    """What was cut.

    Attributes:
        out: The table; None where no slide could be cut.
        hash: The hash of its rows; empty without a table.
        slides: What is known of each slide, as in the table's metadata.
        refused: The name and the error of each slide that could not be cut.
        summary: Counts of all patches.
        counts: What was met in the annotations, over all slides.
        warnings: What a reader should know of all slides together, as sentences.
        parts: The folder of the parts, where it stays; None where it was removed.
        settings: How slides were cut.
        peak_bytes: The most memory that one process took, libraries included; None where it is not known.
    """

    out: Path | None
    hash: str
    slides: tuple[Mapping[str, Any], ...]
    refused: tuple[tuple[str, Mapping[str, Any]], ...]
    summary: Mapping[str, Any]
    counts: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    parts: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    peak_bytes: int | None = None

    @property
    def exit_code(self) -> int:
        """0, or 5 where some slides could not be cut."""
        return EXIT_INCOMPLETE if self.refused else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The counts, the slides, and what was refused.
        """
        return {
            "out": str(self.out) if self.out else None,
            "hash": self.hash or None,
            "settings": dict(self.settings),
            **self.summary,
            "annotations": {name: number for name, number in self.counts.items() if number},
            "slides": [dict(slide) for slide in self.slides],
            "refused": [{"case_id": name, **error} for name, error in self.refused],
            "warnings": list(self.warnings),
            "parts": str(self.parts) if self.parts else None,
            "peak_memory_bytes": self.peak_bytes,
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        shown = [slide for slide in self.slides if slide["size_px"] or slide["rows"] or slide["warnings"]]
        for slide in shown[:_MOST_SHOWN]:
            yield from _slide_lines(slide)
        if len(shown) > _MOST_SHOWN:
            yield f"... and {len(shown) - _MOST_SHOWN} more slides (--json lists all)"
        if without := len(self.slides) - len(shown):
            yield (
                "1 annotation file holds no outlines"
                if without == 1
                else f"{without} annotation files hold no outlines"
            )
        for name, number in self.counts.items():
            if number:
                yield f"annotations: {number:,} {COUNTED.get(name, name)}"
        for name, error in self.refused:
            yield f"{name}: not cut: {error['error']}" + (f"\n  {error['fix']}" if error["fix"] else "")
        yield from _total_lines(self.summary, len(self.slides), self.settings)
        for warning in self.warnings:
            yield f"warning: {warning}"
        if self.refused:
            yield f"{len(self.refused)} of {len(self.refused) + len(self.slides)} slides could not be cut"
        if self.parts is not None:
            yield f"the parts of the slides that are done stay in {self.parts}: a further run uses them"
        if self.peak_bytes is not None:
            yield f"most memory of one process: {human_bytes(self.peak_bytes)}"
        yield f"written: {self.out}" if self.out else "nothing was written"


def _slide_lines(slide: Mapping[str, Any]) -> Iterator[str]:
    found, size = slide["summary"], slide["size_px"]
    where = f"{size[0]:,} x {size[1]:,} px" if size else "slide not read"
    groups = ", ".join(f"{name} {n:,}" for name, n in found["groups"].items() if n)
    types = ", ".join(f"{name} {n:,}" for name, n in found["types"].items() if n and name != "unknown")
    detail = f" ({groups}; {types})" if types else f" ({groups})" if groups else ""
    yield (
        f"{slide['case_id']}: {where} at {slide['mpp']:.4g} um, grid of {slide['columns']:,} x {slide['rows']:,}; "
        f"{found['patches']:,} patches{detail}"
    )
    for warning in slide["warnings"]:
        yield f"  warning: {warning}"


def _total_lines(summary: Mapping[str, Any], slides: int, settings: Mapping[str, Any]) -> Iterator[str]:
    groups, types, drawn = summary["groups"], summary["types"], summary["training"]
    yield (
        f"{summary['patches']:,} patches of {slides:,} slide{'' if slides == 1 else 's'}, from the upper left corner of each slide"
    )
    yield f"  groups: NN {groups['NN']:,}, NT {groups['NT']:,}, TT {groups['TT']:,}" + _unknown(groups)
    least = 100 * float(settings.get("least_tumour", 0.1))
    partial = types["PT"] - summary["under_least"]
    yield (
        f"  types: FT {types['FT']:,}, PT {types['PT']:,} ({partial:,} with at least {least:g} % tumour, "
        f"{summary['under_least']:,} with less), FN {types['FN']:,}" + _unknown(types)
    )
    yield f"  for training: NN {drawn['NN']:,}, NT {drawn['NT']:,}, TT {drawn['TT']:,}"


def _unknown(counts: Mapping[str, int]) -> str:
    return f", not known {counts['unknown']:,}" if counts["unknown"] else ""


def cut_patches(
    paths: Sequence[Path],
    *,
    out: str | Path,
    settings: CutSettings | None = None,
    annotations: Path | None = None,
    workers: int = 1,
    replace: bool = False,
    progress: Report | None = None,
) -> PatchesReport:
    """Cut slides into patches and write one table; a slide that cannot be cut does not end the others.

    Args:
        paths: Slides, folders of slides, or one cohort.
        out: The parquet file to write.
        settings: How slides are cut; None for the defaults.
        annotations: A folder of annotations with the names of the slides, or the annotation of the only slide.
        workers: Processes; with 1, slides are cut one after the other in this one.
        replace: Whether a file that exists may be replaced.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was cut.

    Raises:
        UserError: Nothing was named, the only slide cannot be cut, `out` may not be written, or another command cuts into it.
        FileSystemError: The disk is full or refuses.
    """
    settings = settings or CutSettings()
    out = Path(out)
    check_ending(out)
    if workers < 1:
        raise UserError(f"{workers} workers were asked for", fix="Give 1 or more.")
    check_out_file(out, replace=replace, inputs=[*paths, annotations])
    found = find_cases(paths, annotations=annotations, outlines_only=settings.outlines_only)
    folder = out.with_name(f"{out.name}.parts")
    with _parts_folder(folder) as stays:
        tasks = [_task(case, settings, folder) for case in found.cases]
        results = _results(tasks, workers, progress)
        table, report = _put_together(found, tasks, results, settings)
        if table is not None:
            made = write_patch_table(table, out, provenance=report["provenance"])
            report["hash"] = made.hash
        done = not report["refused"]
        if not done and len(found.cases) + len(found.refused) == 1:
            name, error = report["refused"][0]
            raise UserError(error["error"], where=error["where"] or name, fix=error["fix"])
        stays.append(not done and table is not None)
    return PatchesReport(
        out=out if table is not None else None,
        hash=report["hash"],
        slides=tuple(report["provenance"]["slides"]),
        refused=tuple(report["refused"]),
        summary=report["summary"],
        counts=report["counts"],
        warnings=tuple(report["warnings"]),
        parts=None if done or table is None else folder,
        settings=settings.stated(),
        peak_bytes=_peak_bytes(),
    )


def _peak_bytes() -> int | None:
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return unit * max(resource.getrusage(kind).ru_maxrss for kind in kinds)


@contextlib.contextmanager
def _parts_folder(folder: Path) -> Iterator[list[bool]]:
    """Make and lock the folder of parts; remove it at the end, unless an error ends the block or it is asked to stay."""
    with explained_refusals(folder, "the parts of the table cannot be written"):
        created = make_folders(folder)
        lock = FileLock(folder / "lock")
        taken = lock.acquire()
    if not taken:
        raise UserError(
            "another command is cutting slides into this table",
            where=str(folder),
            fix="Wait until it ends, or name another --out.",
        )
    stays: list[bool] = []
    try:
        yield stays
        if not any(stays):
            for part in list(folder.iterdir()):
                if _PART.fullmatch(part.name):
                    part.unlink(missing_ok=True)
    finally:
        for partial in folder.glob(".elsewhere-*.partial"):  # of a run that was killed
            partial.unlink(missing_ok=True)
        lock.release(remove=True)
        remove_empty([*created, folder] if folder not in created else created)


def _state(path: Path | None) -> Any:
    """What tells whether a file is still the same without reading it."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return [str(path)]
    return [str(path.absolute()), found.st_size, found.st_mtime_ns]


def _task(case: SlideCase, settings: CutSettings, folder: Path) -> CutTask:
    content = [
        FORMAT, __version__, settings.stated(), asdict(case.facts), case.mpp, _state(case.slide), _state(case.annotation)
    ]  # fmt: skip
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return CutTask(case=case, settings=settings, part=folder / f"{key}.parquet")


def _read_part(path: Path) -> PatchTable | None:
    """A part that an earlier run finished; None where there is none, or it is damaged."""
    if not path.exists():
        return None
    try:
        found = read_patch_table(path)
    except UserError:
        return None
    return found if found.provenance.get("case_id") else None


def _results(
    tasks: Sequence[CutTask], workers: int, progress: Report | None
) -> dict[Path, Mapping[str, Any] | None]:
    """Cut what is not cut yet: by part, None or the error."""
    waiting = [task for task in tasks if _read_part(task.part) is None]
    results: dict[Path, Mapping[str, Any] | None] = {task.part: None for task in tasks}
    done = len(tasks) - len(waiting)
    if progress is not None:
        progress("slides", done, len(tasks))
    for task, error in run_each(_cut, waiting, workers=workers, progress=progress):
        if error is not None and error.get("ends_the_run"):
            raise FileSystemError(error["error"], where=error["where"], fix=error["fix"])
        results[task.part] = error
        done += 1
        if progress is not None:
            progress("slides", done, len(tasks))
    return results


def _cut(task: CutTask, progress: Report | None = None) -> dict[str, Any] | None:
    """Cut one slide into its part; None, or why it cannot be cut."""
    try:
        rows, about = cut_case(task.case, task.settings, progress=progress)
    except UserError as error:
        return error.to_dict()
    except MemoryError:
        return UserError(
            "there is not enough memory for this slide", fix="Use fewer workers or threads."
        ).to_dict()
    except Exception as fault:  # noqa: BLE001 - one bad slide must not end a run of many
        return UserError(
            f"a fault of Elsewhere: {type(fault).__name__}: {printable(str(fault))[:300]}",
            fix="Please report it, with the kind of the file.",
        ).to_dict()
    try:
        write_patch_table(rows, task.part, provenance=about)
    except UserError as error:
        return error.to_dict() | {"ends_the_run": True}
    return None


def _put_together(
    found: SlideCases,
    tasks: Sequence[CutTask],
    results: Mapping[Path, Mapping[str, Any] | None],
    settings: CutSettings,
) -> tuple[pd.DataFrame | None, dict[str, Any]]:
    """The rows of all slides that were cut, and what is known of them."""
    refused: list[tuple[str, Mapping[str, Any]]] = [(name, error.to_dict()) for name, error in found.refused]
    frames: list[pd.DataFrame] = []
    slides: list[Mapping[str, Any]] = []
    counts: dict[str, int] = {}
    for task in tasks:
        error = results[task.part]
        part = _read_part(task.part) if error is None else None
        if part is None:
            error = error or {
                "error": "its part disappeared while the others were cut",
                "where": None,
                "fix": None,
            }
            refused.append((task.case.facts.case_id, error))
            continue
        frames.append(part.rows)
        slides.append(part.provenance)
        for name, number in part.provenance.get("annotation_counts", {}).items():
            counts[name] = counts.get(name, 0) + int(number)
    rows = pd.concat(frames, ignore_index=True) if frames else None
    provenance = {
        "what": "patch table",
        "format": FORMAT,
        "elsewhere": __version__,
        "settings": settings.stated(),
        "slides": slides,
        "refused": [{"case_id": name, "reason": error["error"]} for name, error in refused],
    }
    return rows, {
        "provenance": provenance,
        "hash": "",
        "refused": refused,
        "summary": summarise_rows(rows, least_tumour=settings.least_tumour) if rows is not None else _NOTHING,
        "counts": counts,
        "warnings": [*found.warnings, *_remarks(slides), *_of_fill(settings, counts)],
    }


def _of_fill(settings: CutSettings, counts: Mapping[str, int]) -> list[str]:
    if settings.outline_fill == "exact" or not counts.get("rings that cross themselves"):
        return []
    return ["by the rule 'boundary', parts that a ring winds around twice are outside, as OpenCV draws them"]


_NOTHING: Mapping[str, Any] = {
    "patches": 0,
    "groups": {"NN": 0, "NT": 0, "TT": 0, "unknown": 0},
    "types": {"FT": 0, "PT": 0, "FN": 0, "unknown": 0},
    "under_least": 0,
    "training": {"NN": 0, "NT": 0, "TT": 0},
}


def _remarks(slides: Sequence[Mapping[str, Any]]) -> list[str]:
    """What only all slides together show."""
    remarks = []
    for key, what in (("slide_digest", "the same pixels"), ("annotation_digest", "the same annotation")):
        names: dict[str, list[str]] = {}
        for slide in slides:
            empty = key == "annotation_digest" and not slide["summary"]["groups"]["TT"]
            if slide.get(key) and not empty:
                names.setdefault(slide[key], []).append(slide["case_id"])
        remarks += [
            f"{what} under several names: {name_rows(same)}" for same in names.values() if len(same) > 1
        ]
    unknown = [slide["case_id"] for slide in slides if slide["truth"] == "unknown"]
    if unknown:
        remarks.append(
            f"tumour is not known in {len(unknown)} slide{'' if len(unknown) == 1 else 's'}, whose patches have no group and "
            f"no type: {name_rows(unknown)}"
        )
    return remarks
