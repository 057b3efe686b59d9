"""`slides shift`: why a model is worse at another laboratory, from its predictions of rendered patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from elsewhere.analysis.generalise.shift import DividedDrop, ShiftOptions, divide_drop, score_versions
from elsewhere.commands.output import Report
from elsewhere.errors import EXIT_OK, UserError, check_seed
from elsewhere.predictions.rendered_patches import open_rendered, read_predictions
from elsewhere.report.page.numbers import format_number
from elsewhere.results import write_summary_folder
from elsewhere.statistics.limits import check_alpha
from elsewhere.statistics.shift import ALL, ALONE, DROP, LEFT, PART
from elsewhere.tables import check_out
from elsewhere.tables.identifiers import remembers_ids

_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class ShiftSettings:
    """The options of `shift` that have a usual value.

    Args:
        thresholds: What is called tumour: above this probability. Of several, the one that is best on internal patches.
        standardise: Columns of patches whose mix is made equal, to compare with what is left over.
        alpha: The level of each one-sided limit.
        resamples: Resamples of patients; 0 for none.
        seed: The seed of every draw.
    """

    thresholds: Sequence[str | float] = (0.5,)
    standardise: Sequence[str] = ()
    alpha: float = 0.05
    resamples: int = 1000
    seed: int = 42

    def options(self) -> ShiftOptions:
        """Check the options.

        Returns:
            The options of the analysis.

        Raises:
            UserError: One cannot be used.

        Example:
            >>> ShiftSettings(thresholds=["0.3", "0.5"]).options().thresholds
            (0.3, 0.5)
        """
        check_seed(self.seed)
        check_alpha(self.alpha)
        try:
            thresholds = tuple(float(value) for value in self.thresholds)
        except ValueError as error:
            raise UserError(
                f"the thresholds are {', '.join(map(str, self.thresholds))}",
                where="--thresholds",
                fix="Give numbers, such as 0.5 or 0.3,0.5,0.7.",
            ) from error
        return ShiftOptions(
            thresholds=thresholds, standardise=tuple(self.standardise), alpha=self.alpha, resamples=self.resamples,
            seed=self.seed,
        )  # fmt: skip


_WORDS = {DROP: "drop", ALL: "all together", LEFT: "left over"}


@dataclass(frozen=True, kw_only=True)
class ShiftReport:
    """A drop that was divided.

    Args:
        summary: The content of summary.json; it names no slide and no patient.
        tables: The tables of the result, by the name of their csv file.
        path: The folder that was written; None where nothing was written.
        exit_code: 0.
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    path: Path | None = None
    exit_code: int = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary; with `path` where it was written.
        """
        return self.summary if self.path is None else {**self.summary, "path": str(self.path)}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        part, counts = self.summary["shift"], self.summary["counts"]
        yield (
            f"{_count(counts['models'], 'model')}; internal: {counts['internal_patches']:,} patches of {counts['internal_patients']} "
            f"patients, external: {counts['external_patches']:,} patches of {counts['external_patients']} patients; "
            f"{counts['versions']} versions"
        )
        for one in part["interventions"]:
            yield f"{one['name']}: {one['what']}"
        for row in part["operating_points"][:_SHOWN]:
            if row["of"] > 1:
                yield f"operating point of {row['model']}: threshold {row['threshold']:g}, fixed on internal patches as they are"
        models = list(dict.fromkeys(row["model"] for row in part["rows"]))
        for metric in part["metrics"]:
            for model in models[:_SHOWN]:
                rows = [r for r in part["rows"] if r["model"] == model and r["metric"] == metric["name"]]
                yield from _lines(model, metric["label"], rows, part)
        if len(models) > _SHOWN:
            yield f"... and {len(models) - _SHOWN} more models (--out writes all)"
        for warning in self.summary["warnings"]:
            yield f"warning: {warning}"
        yield f"note: {part['note']}"
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _lines(model: str, label: str, rows: list[Mapping[str, Any]], part: Mapping[str, Any]) -> Iterator[str]:
    if not rows:
        return
    metric = str(rows[0]["metric"])
    sides = {
        row["side"]: row["value"]
        for row in part["versions"]
        if row["model"] == model and row["metric"] == metric and not row["applied"]
    }
    yield (
        f"{model}, {label}: internal {format_number(sides['internal'])}, external {format_number(sides['external'])}"
    )
    alone = {row["intervention"]: row for row in rows if row["quantity"] == ALONE}
    for row in rows:
        if row["quantity"] == ALONE:
            continue
        name = str(row["intervention"]) if row["quantity"] == PART else _WORDS[row["quantity"]]
        if row["direction"] == "not applied":
            yield f"  {name:14s} not applied"
            continue
        text = f"  {name:14s} {_interval(row)}"
        if row["share"] is not None and row["quantity"] != DROP:
            text += f"; {100 * row['share']:.0f} % of the drop"
            if row["share_lo"] is not None:
                text += f" [{100 * row['share_lo']:.0f}, {100 * row['share_hi']:.0f}]"
        other = alone.get(row["intervention"])
        if row["quantity"] == PART and other is not None and len(alone) > 1:
            text += f"; alone {_interval(other)}"
        if row["direction"] == "internal to external":
            text += "; internal patches degraded"
        yield text
    for row in part["standardised"]:
        if row["model"] == model and row["metric"] == metric and row["standardised"] is not None:
            name = "drop" if row["quantity"] == DROP else "left over"
            yield (
                f"  {name} at the internal mix of {', '.join(part['standardised_by'])}: {row['standardised']:+.3f}"
                + ("" if row["lo"] is None else f" [{row['lo']:+.3f}, {row['hi']:+.3f}]")
            )


def _interval(row: Mapping[str, Any]) -> str:
    if row["value"] is None:
        return "undefined"
    if row["lo"] is None:
        return f"{row['value']:+.3f}"
    return f"{row['value']:+.3f} [{row['lo']:+.3f}, {row['hi']:+.3f}]"


@remembers_ids
def shift(
    folder: Path,
    predictions: Path,
    *,
    settings: ShiftSettings | None = None,
    out: Path | None = None,
    replace: bool = False,
    progress: Report | None = None,
) -> ShiftReport:
    """Divide a model's drop at another laboratory over stain, sharpness, compression and scale (LN-22).

    Args:
        folder: The rendered patches.
        predictions: The predictions: one folder per model, with one array per version.
        settings: Thresholds, levels, and the columns whose mix is made equal; None for the usual ones.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier result in `out` may be replaced.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        The divided drop.

    Raises:
        UserError: The patches or the predictions cannot be used, or do not fit each other.
    """
    chosen = (settings or ShiftSettings()).options()
    inputs = [folder, predictions]
    check_out(out, replace=replace, inputs=inputs)
    held = open_rendered(folder)
    found = read_predictions(held, predictions)
    scores = score_versions(held, found, chosen, progress=progress)
    made: DividedDrop = divide_drop(held, scores, chosen)
    path = None
    if out is not None:
        path = write_summary_folder(
            made.summary, out, made.redactor, replace=replace, inputs=inputs, tables=made.tables
        )
    return ShiftReport(summary=made.summary, tables=made.tables, path=path)
