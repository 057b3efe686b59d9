"""Verdicts over sites: each other hospital against the one where the model was developed (ST-05)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, unknown_name
from elsewhere.scoring.prepared import answered_cases, prepare, primary_metric
from elsewhere.scoring.task import ScoreOptions, Scores
from elsewhere.statistics.answered import with_answered_only
from elsewhere.statistics.clusters import UNKNOWN_SITE
from elsewhere.statistics.differences import difference_subsets
from elsewhere.statistics.resampling import Resampling
from elsewhere.statistics.verdict import ClaimVerdict, assess_claim, overall


@dataclass(frozen=True, kw_only=True)
class SiteClaim:
    """The claim that a model works at every other site as at its own.

    Attributes:
        reference: The site where the model was developed.
        margin: The largest difference that would not matter.
        alpha: The level of each one-sided test.
    """

    reference: str
    margin: float
    alpha: float = 0.05


def site_claim(reference: str | None, margin: float | None, *, alpha: float = 0.05) -> SiteClaim | None:
    """Read a claim over sites from two options that belong together.

    Args:
        reference: The site where the model was developed, or None.
        margin: The largest difference that would not matter, or None.
        alpha: The level of each one-sided test.

    Returns:
        The claim; None where neither option was given.

    Raises:
        UserError: If only one of the two was given.

    Example:
        >>> site_claim("North", 0.05)
        SiteClaim(reference='North', margin=0.05, alpha=0.05)
    """
    if reference is None and margin is None:
        return None
    if reference is None or margin is None:
        raise UserError(
            "a verdict over sites needs both a reference site and a margin",
            fix="Give --reference-site NAME --margin D.",
        )
    return SiteClaim(reference=reference, margin=margin, alpha=alpha)


def site_verdicts(
    scores: Scores,
    options: ScoreOptions,
    claim: SiteClaim | None,
    resampling: Resampling,
    *,
    metric: str | None = None,
) -> dict[str, Any]:
    """Judge every other site against the reference site, one claim per site.

    Args:
        scores: The scores of the model.
        options: What was set when the predictions were scored.
        claim: The reference site and the margin; None for no verdict.
        resampling: The resamples of the differences.
        metric: The metric that is judged; default, the protocol's primary metric.

    Returns:
        {"verdict": ...} for the summary; empty without a claim.

    Raises:
        UserError: The reference site is not there, or the cohort has one site only.
    """
    if claim is None:
        return {}
    ready = prepare(scores, options)
    every = list(ready.partition.site_names)
    names = [name for name in every if name != UNKNOWN_SITE]
    if claim.reference not in names:
        raise unknown_name("site", claim.reference, names)
    if len(names) < 2:
        raise UserError(
            f"the cohort has one site only, {names[0]}",
            fix="Compare with another result: `elsewhere equivalence HERE REFERENCE`.",
        )
    chosen = metric or primary_metric(ready.evaluator, scores.protocol)
    of_case = np.array(every, dtype=object)[ready.partition.site_of_case]
    answered = answered_cases(scores)
    reference = of_case == claim.reference
    claims = []
    for site in names:
        if site == claim.reference:
            continue

        def judge(among: npt.NDArray[np.bool_], site: str = site) -> ClaimVerdict:
            difference = difference_subsets(
                ready.evaluator,
                ready.partition,
                (of_case == site) & among,
                reference & among,
                chosen,
                alpha=claim.alpha,
                resampling=resampling,
            )
            return assess_claim(
                difference,
                margin=claim.margin,
                margin_source="declared on the command line",
                group=f"site {site}",
            )

        judged = judge(np.ones(of_case.size, dtype=bool))
        claims.append(with_answered_only(judged, judge, answered, here=of_case == site, reference=reference))
    return {"verdict": {**overall(claims).to_dict(), "reference": f"site {claim.reference}"}}
