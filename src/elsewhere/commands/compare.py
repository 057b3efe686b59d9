"""`compare`: two models on the same cases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.analysis.result.comparison import compare_assessments
from elsewhere.analysis.result.lesion_rows import paired_line
from elsewhere.errors import check_seed
from elsewhere.report.page.numbers import format_number
from elsewhere.results import Result, load_result, write_summary_folder
from elsewhere.tables import check_out


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference a - b of every metric, on the same cases and the same resamples.

    Args:
        summary: The content of summary.json.
        path: The folder that was written; None where nothing was written.
    """

    summary: dict[str, Any]
    path: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary of the comparison.
        """
        return self.summary

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        part = self.summary["comparison"]
        yield f"{part['a']} - {part['b']} on {self.summary['counts']['cases']} cases of {self.summary['counts']['patients']} patients"
        for name, row in part["metrics"].items():
            if row["difference"] is None:
                yield f"  {name:32s} undefined ({row.get('undefined_reason') or 'undefined in one of them'})"
                continue
            interval = (
                f"[{format_number(row['lo'])}, {format_number(row['hi'])}]" if row["lo"] is not None else ""
            )
            p = f"p {row['p']:.3g} ({row['p_method']})" if row.get("p") is not None else ""
            yield f"  {name:32s} {row['difference']:+.4f} {interval} {p}"
        for row in (self.summary.get("lesions_paired") or {}).get("pairs", []):
            yield paired_line(row)
        if self.path is not None:
            yield f"report: {self.path / 'report.html'}"


def compare(
    result_a: str | Path | Result,
    result_b: str | Path | Result,
    *,
    metrics: Sequence[str] = (),
    resamples: int | None = None,
    seed: int = 42,
    out: str | Path | None = None,
    replace: bool = False,
    threads: int | None = None,
) -> Comparison:
    """Compare two models on the same cases: bootstrap, permutation, Wilcoxon, t; clustered DeLong for AUROC.

    A difference is paired by case and its interval clustered by patient (ST-02).

    Args:
        result_a: A result, or its folder.
        result_b: Another of the same cases, task and protocol.
        metrics: The metrics to compare; empty for all.
        resamples: The number of resamples; None for the protocol's number.
        seed: The seed of every draw.
        out: The folder to write; None to write nothing.
        replace: Whether an earlier result in `out` may be replaced; files that Elsewhere did not write stay.
        threads: How many threads; None for all processors.

    Returns:
        a - b of every metric, with its interval and tests.

    Raises:
        UserError: The two are not of the same cases, task and rules.

    Example:
        >>> from elsewhere import score_arrays
        >>> y = [0, 1, 0, 1, 0, 1]
        >>> good = score_arrays("classification", label=y, probability=[0, 1, 0, 1, 0, 1], resamples=0)
        >>> poor = score_arrays("classification", label=y, probability=[0, 1, 0, 1, 1, 0], resamples=0)
        >>> found = compare(good, poor, resamples=20).summary["comparison"]["metrics"]["accuracy"]
        >>> round(found["difference"], 3)
        0.333
    """
    inputs = tuple(r.path if isinstance(r, Result) else r for r in (result_a, result_b))
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    a = result_a if isinstance(result_a, Result) else load_result(result_a)
    b = result_b if isinstance(result_b, Result) else load_result(result_b)
    made = compare_assessments(a, b, metrics=metrics, resamples=resamples, seed=seed, threads=threads)
    if out is None:
        return Comparison(summary=made.summary)
    path = write_summary_folder(made.summary, out, made.redactor, replace=replace, inputs=inputs)
    return Comparison(summary=made.summary, path=path)
