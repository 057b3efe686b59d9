"""`check-bundle`: whether a study's release bundle is what it says (US-24)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elsewhere.commands.output import Report
from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK
from elsewhere.study.bundle_check import BundleCheck, check_bundle_folder
from elsewhere.study.recipe_bundle import FORMAT

SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class CheckedBundle:
    """A checked bundle, as it is printed."""

    check: BundleCheck
    path: Path

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return EXIT_BAD_INPUT if self.check.wrong else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints."""
        return asdict(self.check) | {"path": str(self.path), "fits": not self.check.wrong}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows."""
        found = self.check
        yield f"study {found.study}: {found.files - len(found.broken_files)} of {found.files} files fit their digests"
        if found.kind != FORMAT:
            yield "scores and tables of a study of pictures are not made again here"
        elif found.broken_files:
            yield "scores and tables were not looked at: the files come first"
        else:
            if found.scored_again:
                same = found.scored_again - len(found.other_scores)
                yield f"{same} of {found.scored_again} runs of the response score the same from their probabilities"
            same = found.metrics - len(found.other_metrics)
            yield f"{same} of {found.metrics} runs have the metrics that follow from the scores of their cases"
            same = found.tables - len(found.other_tables)
            yield f"{same} of {found.tables} tables come out the same from the scores of the cases"
        yield from (f"wrong: {what}" for what in found.wrong[:SHOWN])
        if len(found.wrong) > SHOWN:
            yield f"wrong: and {len(found.wrong) - SHOWN} more"


def check_bundle(folder: str | Path, *, progress: Report | None = None) -> CheckedBundle:
    """Recompute what a release bundle says of itself.

    Args:
        folder: The bundle.
        progress: Called to report how far the work is.

    Returns:
        Hold a release bundle against itself: digests; of a study of recipes also scores of the response from
        the probabilities, and every table from the scores of the cases.
    """
    return CheckedBundle(check=check_bundle_folder(Path(folder), progress=progress), path=Path(folder))
