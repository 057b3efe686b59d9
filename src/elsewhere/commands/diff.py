"""`diff`: two results of what should be the same thing. What changed, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from elsewhere.analysis.result import changes
from elsewhere.results import Result, load_result


class Changes(changes.Changes):
    """Causes and effects, as they are printed."""

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows."""
        if self.to_dict()["same"]:
            yield "nothing changed"
            return
        for cause in self.causes:
            yield f"why: {cause['why']} ({cause['a']} -> {cause['b']})"
        for row in self.counts:
            yield f"count {row['name']}: {row['a']} -> {row['b']}"
        cases = self.cases
        yield f"cases: {cases['only_a']} only in the first, {cases['only_b']} only in the second, {cases['changed']} of {cases['both']} scored otherwise"
        for row in self.metrics:
            move = "" if row["change"] is None else f" ({row['change']:+.6g})"
            yield f"  {row['name']:32s} {row['a']} -> {row['b']}{move}" + (
                " interval only" if row["interval_only"] else ""
            )
        if self.unexplained:
            yield "warning: numbers changed although nothing that went in did; report this as a fault"


def diff(a: str | Path | Result, b: str | Path | Result) -> Changes:
    """Compare two results: provenance first, then counts, cases and metrics.

    Args:
        a: A result, or its folder.
        b: Another.

    Returns:
        What went in differently, and what came out differently; no case is named.

    Raises:
        UserError: One of them cannot be read.

    Example:
        >>> print(*elsewhere.diff("result_2025", "result_2026").lines(), sep="\\n")  # doctest: +SKIP
    """
    first = a if isinstance(a, Result) else load_result(a)
    second = b if isinstance(b, Result) else load_result(b)
    found = changes.find_changes(first, second)
    return Changes(**{f.name: getattr(found, f.name) for f in fields(found)})
