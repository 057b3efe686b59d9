"""The command tree that the modules of this package fill."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="elsewhere",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Does this breast-imaging model still work at another hospital? From predictions, or from image files, "
    "to a verdict.",
    epilog="Start with `elsewhere demo`, or `elsewhere score classification cohort.csv predictions.csv --out result`.",
)
cohort_app = typer.Typer(
    no_args_is_help=True, help="Who was tested: read, check and describe cohorts.", rich_markup_mode=None
)
app.add_typer(cohort_app, name="cohort")
