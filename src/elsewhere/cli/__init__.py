"""The command line: parses, calls a typed function of the same name, prints.

Nothing heavy is imported before a command runs, so that `elsewhere --help` answers at once. Exit codes:
0 done (or equivalent, above, non-inferior as claimed); 2 below; 3 inconclusive; 4 not assessed; 5 some of
several inputs could not be used; 6 the claim was changed after a verdict; 64 bad input or wrong usage; 70 a
fault of ours; 74 the operating system refused to read or write a file, or to take what is printed. Where a
reader of the output stops early (`| head`), the code is that of the result.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from elsewhere.cli import (
    carrying,
    cohorts,
    curation,
    explain,
    generalise,
    judging,
    merging,
    models,
    phantom_slides,
    phantoms,
    readers,
    scoring,
    slide_annotations,
    slide_masks,
    slide_outlines,
    slide_patches,
    slide_shift,
    slide_stain,
    slide_store,
    slide_training,
    slides,
    studies,
)
from elsewhere.cli.apps import app
from elsewhere.engine.threads import let_threads_sleep
from elsewhere.errors import (
    EXIT_BAD_INPUT,
    EXIT_FILE_SYSTEM,
    EXIT_OK,
    EXIT_OUR_FAULT,
    ElsewhereWarning,
    UserError,
)
from elsewhere.files.refusals import file_system_error
from elsewhere.untrusted import printable, printable_json

__all__ = [
    "app",
    "carrying",
    "cohorts",
    "curation",
    "explain",
    "generalise",
    "judging",
    "main",
    "merging",
    "models",
    "phantom_slides",
    "phantoms",
    "readers",
    "scoring",
    "slide_annotations",
    "slide_masks",
    "slide_outlines",
    "slide_patches",
    "slide_shift",
    "slide_stain",
    "slide_store",
    "slide_training",
    "slides",
    "studies",
]


def main(argv: list[str] | None = None) -> None:
    """Run the program; every way out has its exit code.

    Args:
        argv: The arguments; None for those of the process.
    """
    let_threads_sleep()
    _print_any_name()
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        _run(sys.argv[1:] if argv is None else argv)


@functools.cache
def _commands() -> Callable[..., Any]:
    """Every command with its options: built once per process, as building takes longer than many a command."""
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> None:
    as_json = "--json" in arguments
    try:
        code = _commands()(arguments, standalone_mode=False, prog_name="elsewhere")
    except UserError as given:
        from elsewhere.commands.advice import fit_error

        _end(fit_error(given, _command(arguments)), as_json=as_json)
    except BrokenPipeError:
        _discard_output()
        sys.exit(EXIT_FILE_SYSTEM)
    except OSError as refused:
        _end(file_system_error(refused, "the operating system refused"), as_json=as_json)
    except UnicodeEncodeError as odd:
        if "surrogates" not in odd.reason:
            _our_fault(odd, as_json=as_json)
        _end(file_system_error(odd, "a file cannot be used"), as_json=as_json)
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
            sys.exit(_flushed(EXIT_BAD_INPUT))
        _our_fault(problem, as_json=as_json)
    sys.exit(_flushed(code if isinstance(code, int) else EXIT_OK))


def _end(mistake: UserError, *, as_json: bool) -> NoReturn:
    _print_mistake(mistake.to_dict(), str(mistake), as_json=as_json)
    sys.exit(_flushed(mistake.exit_code))


def _our_fault(problem: Exception, *, as_json: bool) -> NoReturn:
    import traceback

    traceback.print_exception(problem)
    _print_mistake(
        {"error": f"{type(problem).__name__}: {problem}", "where": None, "fix": None},
        "This is a fault of ours, not of your input. Please report it with the lines above.",
        as_json=as_json,
    )
    sys.exit(_flushed(EXIT_OUR_FAULT))


def _print_any_name() -> None:
    """A file name that is not UTF-8 is printed with its odd bytes escaped, as JSON and terminals can take it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _flushed(code: int) -> int:
    """`code`, once what was printed has left; else the code for a system that did not take it."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as refused:
        _discard_output()
        _print_mistake({}, str(file_system_error(refused, "the output cannot be written")), as_json=False)
        return EXIT_FILE_SYSTEM
    except ValueError:  # the stream is closed
        pass
    return code


def _discard_output() -> None:
    """What could not be printed is forgotten: Python would try once more at its end, and complain."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _command(arguments: list[str]) -> str:
    """The command that was called: its name, with its group's where it is in one."""
    names = [word for word in arguments if not word.startswith("-")]
    return " ".join(names[: 2 if names[:1] == ["cohort"] else 1])


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
