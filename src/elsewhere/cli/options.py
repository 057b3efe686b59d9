"""The options that several commands share, and how a result is shown."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsewhere.errors import EXIT_OK, UserError

if TYPE_CHECKING:
    from elsewhere.tables.options import TableOptions

TaskArg = Annotated[
    str, typer.Argument(help="A task, such as classification (`elsewhere tasks` lists them).")
]
CohortArg = Annotated[
    Path, typer.Argument(help="Cohort folder, or a csv, parquet or xlsx with one row per case.")
]
PredictionsArg = Annotated[Path, typer.Argument(help="Prediction file, or a folder of masks or points.")]
OutOpt = Annotated[
    Path, typer.Option("--out", help="Folder to write; made at once when all is done, or not at all.")
]
ReplaceOpt = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Replace what Elsewhere wrote in --out before; files that it did not write stay.",
    ),
]
ProtocolOpt = Annotated[
    str | None, typer.Option(help="Scoring rules by name (`elsewhere protocols` lists them).")
]
GroupOpt = Annotated[str, typer.Option("--group-by", help="Cohort columns, comma-separated: a,b.")]
WhereOpt = Annotated[
    list[str] | None,
    typer.Option("--where", help="Only cases with this value: split=test (may be repeated)."),
]
ResamplesOpt = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Resamples; 0 leaves resampled intervals out. Default: the protocol's (1,000; DBTex 5,000).",
    ),
]
SeedOpt = Annotated[int, typer.Option(min=0, help="Seed of every random draw.")]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
MapOpt = Annotated[
    list[str] | None, typer.Option("--map", help="Whose column is what: score=COL (may be repeated).")
]
ScaleOpt = Annotated[str, typer.Option(help="Scale of the scores: 0-1, 0-100, MIN-MAX, logit or birads.")]
UnitOpt = Annotated[
    str,
    typer.Option(
        help="What the cohort's cases are, where the file has finer rows: case, exam, breast, patient."
    ),
]
CombineOpt = Annotated[str, typer.Option(help="How finer rows become one: max, mean, noisy-or.")]
IdsOpt = Annotated[
    str,
    typer.Option(
        "--normalise-ids", help="Compare ids after: zeros,case,unicode,blanks,paths (never guessed)."
    ),
]
InvalidOpt = Annotated[
    str, typer.Option(help="A bad case among many: error (stop), or worst (score it worst, and count it).")
]
FailedOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--failed-status",
        help="A value of the status column that means 'could not be analysed' (may be repeated).",
    ),
]
PicturesOpt = Annotated[
    bool,
    typer.Option(
        "--pictures",
        help="Detection: show the hardest lesions and the highest false positives in their slices. Slides: show the worst, median "
        "and best masks. The report then holds parts of patients' images, which the cohort names in its column `image` "
        "(slides: `slide`).",
    ),
]
PictureCountOpt = Annotated[
    int | None,
    typer.Option("--picture-count", min=1, max=50, help="With --pictures: how many of each; default 6."),
]
EncodingOpt = Annotated[
    str | None,
    typer.Option("--encoding", help="Encoding of text tables that are not UTF-8: latin-1, cp1252..."),
]
DelimiterOpt = Annotated[
    str | None, typer.Option("--delimiter", help="The separator of columns in text tables: ; or tab or |.")
]
DecimalOpt = Annotated[str, typer.Option("--decimal", help="The decimal mark of text tables: . or ,")]
ThreadsOpt = Annotated[int | None, typer.Option(help="Threads; default all cores.")]
ThresholdOpt = Annotated[
    float | None, typer.Option(help="Malignant at or above this probability; default the protocol's.")
]


def picture_count_of(pictures: bool, count: int | None, out: Path | None) -> int | None:
    """Combine --pictures and --picture-count, which belong to a report.

    Args:
        pictures: Whether pictures are wanted.
        count: How many of each; None for the default.
        out: The folder of the report; None where none is written.

    Returns:
        How many of each; None for no pictures.

    Raises:
        UserError: A count without pictures, or pictures without a report.
    """
    if not pictures:
        if count is not None:
            raise UserError(
                "--picture-count says how many pictures there are, and none are asked for",
                where="--picture-count",
                fix="Give --pictures too: the report then holds parts of patients' images.",
            )
        return None
    if out is None:
        raise UserError(
            "pictures stand in the report, and no report is written",
            where="--pictures",
            fix="Give --out DIR.",
        )
    return 6 if count is None else count


def split_list(text: str) -> tuple[str, ...]:
    """Split an option at its commas.

    Args:
        text: The option.

    Returns:
        The parts without blanks.
    """
    return tuple(part.strip() for part in text.split(",") if part.strip())


def pairs(items: list[str] | None, *, option: str = "--map") -> dict[str, str]:
    """Read NAME=VALUE options.

    Args:
        items: The options as given.
        option: The name of the option, for errors.

    Returns:
        The values by name.

    Raises:
        UserError: An option is not NAME=VALUE.
    """
    pairs: dict[str, str] = {}
    for item in items or []:
        for part in item.split(","):
            name, sign, value = part.partition("=")
            if not sign or not name.strip() or not value.strip():
                raise UserError(
                    f"'{part}' is not NAME=COLUMN", where=option, fix=f"Write e.g. {option} score=ai_score."
                )
            pairs[name.strip()] = value.strip()
    return pairs


def table_options(encoding: str | None, delimiter: str | None, decimal: str) -> TableOptions:
    """Read how text tables are written.

    How text tables are written, as declared; a cohort that reads plainly is read plainly.

    Args:
        encoding: The encoding, or None.
        delimiter: The delimiter, or None.
        decimal: The decimal mark.

    Returns:
        The options.

    Raises:
        UserError: The decimal mark is neither a point nor a comma.
    """
    from elsewhere.tables.options import TableOptions

    if decimal == ".":
        return TableOptions(encoding=encoding, delimiter=delimiter)
    if decimal == ",":
        return TableOptions(encoding=encoding, delimiter=delimiter, decimal=",")
    raise UserError(f"'{decimal}' cannot be a decimal mark", where="--decimal", fix="Use . or ,")


def show(result: Any, *, as_json: bool) -> int:
    """Print a result: its JSON alone, or its text; return its exit code, also where the reader stops early.

    Args:
        result: Anything with `lines()` and `to_dict()`.
        as_json: Whether its JSON is printed.

    Returns:
        The exit code.
    """
    from elsewhere.commands.output import print_json, print_text

    with contextlib.suppress(BrokenPipeError):
        if as_json:
            print_json(result.to_dict())
        else:
            print_text(result)
    return int(getattr(result, "exit_code", EXIT_OK))


def width_and_height(text: str) -> tuple[int, int] | None:
    """Read the size of a slide, such as 97792x221184.

    Args:
        text: What was given to --size; empty for nothing.

    Returns:
        Width and height; None for nothing.

    Raises:
        UserError: It is not two whole numbers.
    """
    if not text:
        return None
    parts = text.lower().replace(",", "x").split("x")
    if len(parts) != 2 or not all(part.strip().isdecimal() and len(part.strip()) < 10 for part in parts):
        raise UserError(f"--size is '{text}'", fix="Give width and height, such as --size 97792x221184.")
    return int(parts[0]), int(parts[1])
