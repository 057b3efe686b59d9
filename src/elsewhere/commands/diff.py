"""`diff`: compare two results of what should be the same, and report what changed and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from elsewhere.analysis.result import changes
from elsewhere.results import Result, load_result


class Changes(changes.Changes):
    """What differs between two results, causes first, as it is printed."""

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        if self.to_dict()["same"]:
            yield "nothing changed"
            return
        for cause in self.causes:
            yield f"why: {cause['why']} ({cause['a']} -> {cause['b']})"
        for row in self.counts:
            yield f"count {row['name']}: {row['a']} -> {row['b']}"
        cases = self.cases
        yield f"cases: {cases['only_a']} only in the first, {cases['only_b']} only in the second, {cases['changed']} of {cases['both']} scored differently"
        for row in self.metrics:
            move = "" if row["change"] is None else f" ({row['change']:+.6g})"
            yield f"  {row['name']:32s} {row['a']} -> {row['b']}{move}" + (
                " interval only" if row["interval_only"] else ""
            )
        if self.unexplained:
            yield "warning: numbers changed although no input changed; please report this as a defect"


def diff(a: str | Path | Result, b: str | Path | Result) -> Changes:
    """Compare two results: provenance first, then counts, cases and metrics.

    Args:
        a: A result, or its folder.
        b: Another result of what should be the same, or its folder.

    Returns:
        What went in differently, and what came out differently; no case is named.

    Raises:
        UserError: One of them cannot be read.

    Example:
        >>> from elsewhere import score_arrays
        >>> said = [0.1, 0.8, 0.4, 0.9]
        >>> one = score_arrays("classification", label=[0, 1, 0, 1], probability=said, resamples=0)
        >>> print(*diff(one, one).lines())
        nothing changed
    """
    first = a if isinstance(a, Result) else load_result(a)
    second = b if isinstance(b, Result) else load_result(b)
    found = changes.find_changes(first, second)
    return Changes(**{f.name: getattr(found, f.name) for f in fields(found)})
