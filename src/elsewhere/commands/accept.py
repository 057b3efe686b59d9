"""`accept`: judge whether a vendor's claim holds here, and record the claim when the verdict is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.analysis.result.acceptance import AcceptOptions, judge_claim
from elsewhere.analysis.result.claim import Claim, read_claim
from elsewhere.analysis.result.claim import write_claim_template as write_template
from elsewhere.analysis.result.claim_lock import check_lock, locked
from elsewhere.analysis.result.inputs import check_choices
from elsewhere.commands.advice import fit_advice
from elsewhere.errors import check_seed
from elsewhere.results import Result
from elsewhere.tables import TableOptions, check_out
from elsewhere.tables.identifiers import remembers_ids


@dataclass(frozen=True, kw_only=True)
class WrittenClaim:
    """A claim template that was written.

    Args:
        path: The file.
    """

    path: Path

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `written`.
        """
        return {"written": str(self.path)}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield f"wrote {self.path}; fill it in, then: elsewhere accept COHORT PREDICTIONS --claim {self.path}"


def write_claim_template(path: Path) -> WrittenClaim:
    """Write a commented claim to fill in; an existing file is never overwritten.

    Args:
        path: The file to write.

    Returns:
        The file, as it is printed.

    Raises:
        UserError: The file exists.
    """
    return WrittenClaim(path=write_template(path))


@remembers_ids
def accept(
    cohort: str | Path,
    predictions: str | Path,
    *,
    claim: str | Path | Claim,
    out: str | Path | None = None,
    replace: bool = False,
    resamples: int | None = None,
    seed: int = 42,
    column_map: Mapping[str, str] | None = None,
    scale: str | None = None,
    normalise_ids: Sequence[str] = (),
    on_invalid: str = "error",
    failed_status: Sequence[str] = (),
    table: TableOptions | None = None,
) -> Result:
    """Judge a claim on the hospital's own cases; options given here override the claim's own.

    The claim is recorded in `CLAIM.lock` when the verdict is known. Where another claim was judged before on
    the same cohort and predictions, the result lists what changed, and its exit code is 6.

    Args:
        cohort: The cohort with its outcomes: a folder, or a table with one row per case.
        predictions: The vendor's predictions.
        claim: The claim, or the path of its file.
        out: The folder to write; None to write nothing but the lock.
        replace: Whether an earlier result in `out` may be replaced; files that Elsewhere did not write stay.
        resamples: The number of resamples; None for the protocol's number.
        seed: The seed of every draw.
        column_map: The names of the vendor's columns by the names that they should have.
        scale: The scale of the scores, such as '0-100'; None for the claim's.
        normalise_ids: Steps that make ids comparable, such as 'zeros'; empty for the claim's.
        on_invalid: 'error' to stop at an invalid score, 'worst' to score it as the worst value.
        failed_status: Words of a status column that mean 'could not be analysed'; empty for the claim's.
        table: How text tables are written; None for the claim's.

    Returns:
        The result with its verdict and exit code.

    Raises:
        UserError: An input cannot be read, or the claim does not fit the cohort.

    Example:
        Judge a claim and write the result::

            elsewhere.accept("cohort.csv", "vendor.csv", claim="claim.toml", out="verdict")
    """
    check_choices(on_invalid=on_invalid, matching=None)
    inputs = (cohort, predictions, claim.source if isinstance(claim, Claim) else claim)
    check_out(out, replace=replace, inputs=inputs)
    check_seed(seed)
    promised = claim if isinstance(claim, Claim) else read_claim(Path(claim))
    check_lock(promised.source)
    options = AcceptOptions(
        resamples=resamples,
        seed=seed,
        column_map=dict(column_map or {}),
        scale=scale,
        normalise_ids=tuple(normalise_ids),
        on_invalid=on_invalid,
        failed_status=tuple(failed_status),
        table=table,
        earlier=out,
        fit_advice=lambda text: fit_advice(text, "accept"),
    )
    judged = judge_claim(cohort, predictions, promised, options)
    result = Result.of(judged.assessment)
    with locked(promised.source, judged.shown):
        return result if out is None else result.save(out, replace=replace, inputs=inputs)
