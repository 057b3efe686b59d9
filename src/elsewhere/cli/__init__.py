"""The command line: parses, calls a typed function of the same name, prints.

Nothing heavy is imported before a command runs, so that `elsewhere --help` answers at once. Exit codes:
0 done (or equivalent, above, non-inferior as claimed); 2 below; 3 inconclusive; 4 not assessed; 5 some of
several inputs could not be used; 6 the claim was changed after a verdict; 64 bad input or wrong usage; 70 a
fault of ours; 74 the operating system refused to read or write a file.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

from elsewhere.cli import cohorts, explain, judging, models, phantoms, scoring, studies
from elsewhere.cli.apps import app
from elsewhere.engine.threads import let_threads_sleep
from elsewhere.errors import EXIT_BAD_INPUT, EXIT_OK, EXIT_OUR_FAULT, ElsewhereWarning, UserError
from elsewhere.untrusted import printable, printable_json

__all__ = ["app", "cohorts", "explain", "judging", "main", "models", "phantoms", "scoring", "studies"]


def main(argv: list[str] | None = None) -> None:
    """Run the program; every way out has its exit code."""
    let_threads_sleep()
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        _run(sys.argv[1:] if argv is None else argv)


def _run(arguments: list[str]) -> None:
    as_json = "--json" in arguments
    try:
        code = app(arguments, standalone_mode=False, prog_name="elsewhere")
    except UserError as mistake:
        _print_mistake(mistake.to_dict(), str(mistake), as_json=as_json)
        sys.exit(EXIT_BAD_INPUT)
    except typer.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as problem:  # noqa: BLE001 - the last net: usage errors of the library, and faults of ours
        message = getattr(problem, "format_message", None)
        if message is not None:
            show = getattr(problem, "show", None)
            if show is not None and not as_json:
                show()
            else:
                _print_mistake(
                    {"error": message(), "where": None, "fix": "elsewhere --help"}, message(), as_json=as_json
                )
            sys.exit(EXIT_BAD_INPUT)
        import traceback

        traceback.print_exc()
        _print_mistake(
            {"error": f"{type(problem).__name__}: {problem}", "where": None, "fix": None},
            "This is a fault of ours, not of your input. Please report it with the lines above.",
            as_json=as_json,
        )
        sys.exit(EXIT_OUR_FAULT)
    sys.exit(code if isinstance(code, int) else EXIT_OK)


def _print_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """What a reader must know, as a sentence; what libraries remark, as Python prints it."""
    if issubclass(category, ElsewhereWarning):
        print(printable(f"warning: {message}", lines=True), file=sys.stderr)
    else:
        sys.stderr.write(printable(warnings.formatwarning(message, category, *where[:2]), lines=True))


def _print_mistake(content: dict[str, str | None], text: str, *, as_json: bool) -> None:
    if as_json:
        import json

        print(printable_json(json.dumps(content)))
    else:
        print(printable(f"elsewhere: {text}", lines=True), file=sys.stderr)
