"""`coverage`: simulate what the intervals and tests promise, and write the tables of the docs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.commands.output import Report
from elsewhere.files import staged_files
from elsewhere.promises.coverage import coverage_tables, jobs
from elsewhere.promises.levels_page import levels_page
from elsewhere.tables import check_out_file, write_text

PAGES = ("coverage.md", "levels.md")


@dataclass(frozen=True, kw_only=True)
class Pages:
    """The pages that were written."""

    files: tuple[Path, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {"files": [str(file) for file in self.files], "seconds": self.seconds}

    def lines(self) -> Iterator[str]:
        for file in self.files:
            yield f"written: {file}"


def coverage(
    out: str | Path,
    *,
    replace: bool = False,
    quick: bool = False,
    replicates: int | None = None,
    progress: Report | None = None,
) -> Pages:
    """Write coverage.md and levels.md into `out` (ST-04, ST-13); `quick` is a small grid with few cohorts.

    Every replicate has a generator of its own, made from its cell: the pages come out the same each time.
    """
    start = time.perf_counter()
    folder = Path(out)
    for name in PAGES:
        check_out_file(folder / name, replace=replace)
    total, done = len(jobs(quick=quick, replicates=replicates)), 0

    def cell_done(_: object) -> None:
        nonlocal done
        done += 1
        if progress:
            progress("coverage cells", done, total)

    tables = coverage_tables(quick=quick, replicates=replicates, progress=cell_done)
    levels = levels_page(replicates=replicates or (100 if quick else 1000))
    with staged_files(folder, replace=replace) as staged:
        write_text(tables, staged / PAGES[0])
        write_text(levels, staged / PAGES[1])
    return Pages(files=tuple(folder / name for name in PAGES), seconds=time.perf_counter() - start)
