"""`carry-threshold`: set a detector's threshold at one hospital, and see what it gives at another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.analysis.result.thresholds import HOME, LEVELS, carried_threshold, joined_scores
from elsewhere.errors import EXIT_OK, UserError, check_seed
from elsewhere.results import Result, load_result
from elsewhere.statistics.resampling import Resampling
from elsewhere.tables import check_out_file, to_jsonable, write_json

_NAMES = {"lesion": "lesions", "breast": "breasts", "patient": "patients"}


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A threshold that was carried over.

    Args:
        summary: What `carried_threshold` of a summary holds.
        exit_code: The exit code of the command; there is no verdict.
    """

    summary: dict[str, Any]
    exit_code: int = EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The threshold, and what it gives in each part.
        """
        return self.summary

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        made = self.summary
        threshold = made["threshold"]
        yield (
            f"threshold {_estimate(threshold, 4)}, set at {made['reference']} for at most {made['rate']:g} false "
            f"positive{'' if made['rate'] == 1 else 's'} per volume"
        )
        if threshold.get("undefined_reason"):
            yield f"  {threshold['undefined_reason']}"
        width = max(len(name) for name in made["rows"])
        for name, row in made["rows"].items():
            metrics = row["metrics"]
            found = "; ".join(f"{_NAMES[level]} {_estimate(metrics[level])}" for level in LEVELS)
            yield (
                f"  {name:{width}s}  {row['cases']} volumes: {_estimate(metrics['false_positives'])} false positives per "
                f"volume; found: {found}"
            )
        for name, row in made["rows"].items():
            if "words" in row:
                words = row["words"]
                yield (
                    f"{name}: false positives: {words['false_positives']}; sensitivity: {words['sensitivity']}. "
                    f"{words['sentence']}"
                )
        yield made["note"]
        for warning in made["warnings"]:
            yield f"warning: {warning}"


def _estimate(entry: dict[str, Any], digits: int = 3) -> str:
    if entry["value"] is None:
        return "undefined"
    shown = f"{entry['value']:.{digits}f}"
    if entry["lo"] is None and entry["hi"] is None:
        return shown
    lo, hi = ("-" if end is None else f"{end:.{digits}f}" for end in (entry["lo"], entry["hi"]))
    return f"{shown} [{lo}, {hi}]"


def carry_threshold(
    results: Sequence[str | Path | Result],
    *,
    split_by: str | None = None,
    reference: str | None = None,
    rate: float = 1.0,
    resamples: int = 1000,
    seed: int = 42,
    out: str | Path | None = None,
    replace: bool = False,
) -> Carried:
    """Set a threshold at the reference for a rate of false positives, and apply it elsewhere (DBT-21).

    Args:
        results: One result with `split_by` and `reference`; or two: here, and the reference that sets the
            threshold.
        split_by: The column that divides the volumes of one result.
        reference: The value of that column whose volumes set the threshold.
        rate: False positives per volume that the threshold may give at the reference.
        resamples: The number of resamples; 0 for no intervals.
        seed: The seed of every draw.
        out: The JSON file to write; None to write nothing.
        replace: Whether that file may be replaced.

    Returns:
        The threshold with false positives and sensitivity in each part.

    Raises:
        UserError: The results have no boxes or do not belong together, or the reference is not there.

    Example:
        >>> carry_threshold([])
        Traceback (most recent call last):
            ...
        elsewhere.errors.UserError: 0 results were given
        Give one with --split-by and --reference, or two: here, and the reference.
    """
    check_seed(seed)
    check_out_file(out, replace=replace, inputs=tuple(results))
    if resamples < 0:
        raise UserError(f"{resamples} resamples cannot be drawn", fix="Use 0 for none, or 1,000 and more.")
    loaded = [r if isinstance(r, Result) else load_result(r) for r in results]
    if len(loaded) not in (1, 2) or (len(loaded) == 1 and (split_by is None or reference is None)):
        given = f"{len(loaded)} result{'s were' if len(loaded) != 1 else ' was'} given"
        raise UserError(
            given, fix="Give one with --split-by and --reference, or two: here, and the reference."
        )
    if len(loaded) == 2 and (split_by or reference):
        raise UserError(
            "two results were given with --split-by or --reference",
            fix="The second result is the reference: leave both options out.",
        )
    scores = loaded[0].scores if len(loaded) == 1 else joined_scores(loaded[0].scores, loaded[1].scores)
    key = "".join(one.provenance["cohort_hash"] for one in loaded)
    made = carried_threshold(
        scores,
        split_by or "result",
        reference or HOME,
        rate=rate,
        resampling=Resampling(key=key, seed=seed, resamples=resamples),
    )
    summary = json.loads(json.dumps(to_jsonable(made.to_dict())))
    if out is not None:
        write_json(summary, Path(out))
    return Carried(summary=summary)
