"""The command tree that the modules of this package fill."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

SECTIONS = {
    "Start": ("demo",),
    "From predictions to a verdict": (
        "score",
        "accept",
        "check",
        "rank",
        "readers",
        "merge",
        "compare",
        "equivalence",
        "generalise",
        "diff",
        "report",
        "carry-threshold",
        "summarise",
        "plan-sample",
    ),
    "From image files to a report": ("curate", "plan", "run", "models", "predict", "explain", "check-bundle"),
    "Who was tested": ("cohort", "phantom", "slides", "annotations"),
    "What can be named": ("tasks", "protocols", "metrics", "recipes"),
}


class WholeSentences(TyperGroup):
    """The help says what a command does without cutting it short."""

    sections: ClassVar[dict[str, tuple[str, ...]]] = {}
    rest = "Commands"

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of the help, each with its whole sentence, under the headings of `sections`.

        Args:
            ctx: The context of the command line; it makes no difference.
            formatter: The formatter that the help is written to.
        """
        placed = {name for names in self.sections.values() for name in names}
        others = tuple(name for name in self.commands if name not in placed)
        for title, names in {**self.sections, self.rest: others}.items():
            known = [name for name in names if name in self.commands]
            rows = [(f"{name:12s}", self.commands[name].get_short_help_str(200)) for name in known]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class InSections(WholeSentences):
    """The commands by what they are for."""

    sections = SECTIONS
    rest = "More"


def _print_version(asked: bool) -> None:
    if asked:
        from elsewhere._version import __version__

        print(f"elsewhere {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="elsewhere",
    cls=InSections,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Start with `elsewhere demo`, or `elsewhere score classification cohort.csv predictions.csv --out result`.",
)


@app.callback()
def elsewhere(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Does this breast-imaging model still work at another hospital? From predictions, or from image files, to a verdict."""


cohort_app = typer.Typer(
    cls=WholeSentences,
    no_args_is_help=True,
    help="Who was tested: read, check and describe cohorts.",
    rich_markup_mode=None,
)
app.add_typer(cohort_app, name="cohort")
