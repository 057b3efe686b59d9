"""`check-bundle`: check a study's release bundle, its files and its numbers (US-24)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.study.summary import analyse
from elsewhere.commands.output import Report
from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK
from elsewhere.report.study.page import PRIVATE
from elsewhere.study.bundle.checking import BundleCheck, check_bundle_folder
from elsewhere.study.bundle.seal import FORMAT
from elsewhere.study.results import Results

SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class CheckedBundle:
    """A checked bundle, as it is printed.

    Args:
        check: What was checked, and what does not agree.
        path: The folder of the bundle.
    """

    check: BundleCheck
    path: Path

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_BAD_INPUT if self.check.wrong else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The fields of the check by name, `path`, and `fits` (whether nothing is wrong).
        """
        return asdict(self.check) | {"path": str(self.path), "fits": not self.check.wrong}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        found = self.check
        fitting = found.files - len(found.broken_files)
        yield f"study {found.study}: {fitting} of {found.files} files agree with their digests"
        if found.kind != FORMAT:
            yield "An earlier version of Elsewhere wrote this bundle: scores and tables are not computed again."
        elif found.broken_files:
            yield "Scores and tables were not checked, because files have changed."
        else:
            if found.scored_again:
                same = found.scored_again - len(found.other_scores)
                yield f"{same} of {found.scored_again} runs have the same scores when they are scored again"
            same = found.metrics - len(found.other_metrics)
            yield f"{same} of {found.metrics} runs have the metrics that follow from the scores of their cases"
            same = found.tables - len(found.other_tables)
            yield f"{same} of {found.tables} tables are the same when they are computed again"
        yield from (f"wrong: {what}" for what in found.wrong[:SHOWN])
        if len(found.wrong) > SHOWN:
            yield f"wrong: and {len(found.wrong) - SHOWN} more"


def check_bundle(folder: str | Path, *, progress: Report | None = None) -> CheckedBundle:
    """Check a release bundle: files by their digests, scores from predictions, tables from scores.

    Args:
        folder: The folder that `run --bundle` wrote.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was checked, and what does not agree; `exit_code` is 0 where everything agrees.

    Raises:
        UserError: The folder is no bundle.

    Example:
        Check a published study::

            elsewhere.check_bundle("bundle").exit_code
    """

    def make_tables(results: Results) -> dict[str, pd.DataFrame]:
        tables = analyse(results, progress=progress).tables
        return {name: table for name, table in tables.items() if name not in PRIVATE}

    return CheckedBundle(check=check_bundle_folder(Path(folder), make_tables), path=Path(folder))
