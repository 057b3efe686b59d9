"""`report`: write the HTML page of a result again, and every table and figure as files; also of folders without scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.analysis.result.assessment import ids_of_result
from elsewhere.analysis.result.storage import load_summary
from elsewhere.errors import UserError
from elsewhere.files import rewritten
from elsewhere.results import load_result


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files that were written.

    Args:
        files: Their paths, the page first.
    """

    files: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `files`.
        """
        return {"files": [str(file) for file in self.files]}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for file in self.files:
            yield str(file)


def report(
    result: str | Path,
    *,
    out: str | Path | None = None,
    tables: str | Path | None = None,
    figures: str | Path | None = None,
    replace: bool = False,
) -> Written:
    """Render a result folder again, or the folder of a comparison of many models.

    The page in the result folder is written again if it is still as Elsewhere wrote it. Every other file
    that exists, and a page that somebody has changed, is replaced only with `replace`.

    Args:
        result: A result folder, or one that `generalise`, `rank`, `merge` or `readers` wrote.
        out: The page to write; None for `report.html` in the result folder.
        tables: A folder for every table as csv and LaTeX; None for no tables.
        figures: A folder for every figure as SVG, PDF and PNG; None for no figures.
        replace: Whether files that exist may be replaced.

    Returns:
        The files that were written.

    Raises:
        UserError: The folder holds no result, or a file exists and `replace` is not set.

    Example:
        Write the page of a result again, and its figures as files::

            elsewhere.write_report("result", figures="figures")
    """
    from elsewhere.report import write_figures, write_report, write_tables
    from elsewhere.report.result.prepare import prepare

    page = Path(out) if out is not None else Path(result) / "report.html"
    summary = load_summary(result)
    if summary is None:
        found = load_result(result)
        shown = prepare(found.summary, redact=ids_of_result(found))
    else:
        shown = prepare(summary)
    files = [page]
    try:
        with rewritten(page, replace=replace) as temporary:
            write_report(shown, temporary)
            if tables is not None:
                files += write_tables(shown, Path(tables), replace=replace)
            if figures is not None:
                files += write_figures(shown, Path(figures), replace=replace)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as problem:
        if summary is None:
            raise
        raise UserError(
            f"summary.json holds something else than it was written with ({type(problem).__name__}: {problem})",
            where=str(result),
            fix="Make the folder again with the command that it names under provenance.",
        ) from problem
    return Written(files=tuple(files))
