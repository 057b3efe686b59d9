"""`coverage`: simulate what the intervals and tests promise, and write the tables of the docs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.commands.output import Report
from elsewhere.errors import unknown_name
from elsewhere.files import staged_files
from elsewhere.simulation import grid
from elsewhere.simulation import levels_page as levels
from elsewhere.simulation.coverage import coverage_tables, jobs
from elsewhere.simulation.levels_page import levels_page
from elsewhere.tables import check_out_file, write_text

PAGES = ("coverage.md", "levels.md")


@dataclass(frozen=True, kw_only=True)
class Pages:
    """The pages that were written.

    Args:
        files: The files.
        seconds: How long the simulation took.
    """

    files: tuple[Path, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `files` and `seconds`.
        """
        return {"files": [str(file) for file in self.files], "seconds": self.seconds}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for file in self.files:
            yield f"written: {file}"


PARTS = tuple(dict.fromkeys((*grid.PARTS, *levels.PARTS)))


def coverage(
    out: str | Path,
    *,
    replace: bool = False,
    quick: bool = False,
    replicates: int | None = None,
    only: Sequence[str] | None = None,
    progress: Report | None = None,
) -> Pages:
    """Simulate the intervals and tests, and write coverage.md and levels.md into a folder (ST-04, ST-13).

    Every replicate has a random generator of its own, seeded by its cell: the pages come out the same each
    time.

    Args:
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        quick: Whether to simulate a small grid with few cohorts.
        replicates: How many cohorts per cell; None for the number of each page.
        only: The names of the `PARTS` to simulate; None for all. A page without any of them is not written.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The pages that were written.

    Raises:
        UserError: There is no part of a given name, or a page exists and `replace` is not set.
    """
    for part in only or ():
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
    start = time.perf_counter()
    folder = Path(out)
    of_page = dict(zip(PAGES, (grid.PARTS, levels.PARTS), strict=True))
    wanted = [name for name, parts in of_page.items() if only is None or set(only) & set(parts)]
    for name in wanted:
        check_out_file(folder / name, replace=replace)
    pages: dict[str, str] = {}
    if PAGES[0] in wanted:
        total, done, fresh = len(jobs(quick=quick, replicates=replicates, only=only)), 0, 0

        def cell_done(job: grid.Job) -> None:
            nonlocal done, fresh
            done, fresh = done + (not job.fresh), fresh + job.fresh
            if progress:
                step = ("fresh cohorts", fresh) if job.fresh else ("coverage cells", done)
                progress(*step, total)

        pages[PAGES[0]] = coverage_tables(quick=quick, replicates=replicates, only=only, progress=cell_done)
    if PAGES[1] in wanted:

        def said(what: str) -> None:
            if progress:
                progress(f"levels: {what}", 1, 1)

        count = replicates or (60 if quick else 1000)
        pages[PAGES[1]] = levels_page(replicates=count, quick=quick, only=only, progress=said)
    with staged_files(folder, replace=replace) as staged:
        for name, text in pages.items():
            write_text(text, staged / name)
    return Pages(files=tuple(folder / name for name in pages), seconds=time.perf_counter() - start)


def progress_in_lines() -> Report:
    """Report progress in lines on stderr, for a long run whose output goes to a file.

    Returns:
        A function `progress(what, done, total)`: it prints at a new step, at every 20th count and at the end.
    """
    last = ""

    def say(what: str, done: int, total: int) -> None:
        nonlocal last
        if what != last or done % 20 == 0 or done == total:
            print(what if total <= 1 else f"{what}: {done} of {total}", file=sys.stderr, flush=True)
        last = what

    return say
