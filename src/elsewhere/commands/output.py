"""Print results as one JSON object or as a few lines of text; progress goes to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from elsewhere.tables import to_jsonable
from elsewhere.untrusted import printable, printable_json

Report = Callable[[str, int, int], None]


def print_json(content: dict[str, Any]) -> None:
    """Print exactly one JSON object on stdout; an undefined number is null.

    Args:
        content: The object.
    """
    text = json.dumps(to_jsonable(content), ensure_ascii=False, allow_nan=False)
    print(printable_json(text))


def print_text(result: Any) -> None:
    """Print the lines of a result, without control characters that a name in a file may hold.

    Args:
        result: Anything with `lines()`.
    """
    for line in result.lines():
        print(printable(line, lines=True))


@contextmanager
def progress_bar(*, enabled: bool) -> Iterator[Report]:
    """Draw a progress bar on stderr; on a pipe, or with --json, it is silent.

    Args:
        enabled: Whether a bar is drawn at all.

    Yields:
        A function `progress(what, done, total)`.
    """
    if not enabled or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        known: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in known:
                known[what] = bars.add_task(printable(what), total=total)
            bars.update(known[what], completed=done, total=total)

        yield report
