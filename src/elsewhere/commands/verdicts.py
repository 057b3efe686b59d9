"""Verdicts over sites: each other hospital against the one where the model is at home (ST-05)."""

from __future__ import annotations

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


def site_verdicts(
    scores: Scores,
    options: ScoreOptions,
    reference_site: str | None,
    margin: float | None,
    *,
    alpha: float,
    key: str,
    seed: int,
    resamples: int | None,
    metric: str | None = None,
) -> dict[str, Any]:
    """`verdict` of a summary: one claim a site, the reference site being what is claimed."""
    if reference_site is None and margin is None:
        return {}
    if reference_site is None or margin is None:
        raise UserError(
            "a verdict over sites needs both a reference site and a margin",
            fix="Give --reference-site NAME --margin D.",
        )
    ready = prepare(scores, options)
    every = list(ready.partition.site_names)
    names = [name for name in every if name != UNKNOWN_SITE]
    if reference_site not in names:
        raise unknown_name("site", reference_site, names)
    if len(names) < 2:
        raise UserError(
            f"the cohort has one site only, {names[0]}",
            fix="Compare with another result: `elsewhere equivalence HERE REFERENCE`.",
        )
    chosen = metric or primary_metric(ready.evaluator, scores.protocol)
    of_case = np.array(every, dtype=object)[ready.partition.site_of_case]
    answered = answered_cases(scores)
    reference = of_case == reference_site
    claims = []
    for site in names:
        if site == reference_site:
            continue

        def judge(among: npt.NDArray[np.bool_], site: str = site) -> ClaimVerdict:
            difference = difference_subsets(
                ready.evaluator,
                ready.partition,
                (of_case == site) & among,
                reference & among,
                chosen,
                alpha=alpha,
                resampling=Resampling(
                    key=key,
                    seed=seed,
                    resamples=scores.protocol.interval.resamples if resamples is None else resamples,
                ),
            )
            return assess_claim(
                difference, margin=margin, margin_source="declared on the command line", group=f"site {site}"
            )

        judged = judge(np.ones(of_case.size, dtype=bool))
        claims.append(with_answered_only(judged, judge, answered, here=of_case == site, reference=reference))
    return {"verdict": {**overall(claims).to_dict(), "reference": f"site {reference_site}"}}
