"""Sections about many models: two compared, a ranking, and how hard the lesions were for all of them."""

from __future__ import annotations

from typing import Any

from elsewhere.report.leaderboard.lesions import strata_blocks
from elsewhere.report.page.blocks import (
    Pair,
    Section,
    Table,
    cnt,
    estimate,
    num,
    p_cell,
    text,
)
from elsewhere.report.page.figures import Specs, picture
from elsewhere.report.page.labels import label
from elsewhere.report.page.numbers import as_float, count
from elsewhere.report.result.generic import generic_blocks
from elsewhere.report.result.prepare import Prepared

_TESTS = {
    "p": "p",
    "p_delong": "p, DeLong",
    "p_holm": "p, Holm",
    "p_bootstrap": "p, bootstrap",
    "p_permutation": "p, permutation",
    "p_wilcoxon": "p, Wilcoxon",
    "p_t": "p, t",
}


def comparison(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about two models on the same cases.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without a comparison.
    """
    part = dict(data.part("comparison"))
    if not part:
        return None
    metrics = part.pop("metrics", None)
    a, b = str(part.pop("a", "A")), str(part.pop("b", "B"))
    blocks: list[Any] = []
    drawn = picture(specs, "differences")
    if drawn:
        blocks.append(Pair(pictures=[drawn]))
    if isinstance(metrics, dict) and metrics:
        entries = {k: v for k, v in metrics.items() if isinstance(v, dict)}
        ps = list(dict.fromkeys(k for e in entries.values() for k in e if k == "p" or k.startswith("p_")))
        rows = [
            [
                text(label(k, e)),
                estimate(e.get("a")),
                estimate(e.get("b")),
                estimate({**e, "value": e.get("difference")}, sign=True),
                *(p_cell(e.get(p)) for p in ps),
            ]
            for k, e in entries.items()
        ]
        columns = ["Metric", a, b, "Difference", *(_TESTS.get(p, label(p)) for p in ps)]
        blocks.append(
            Table(name="comparison", caption=f"{a} and {b} on the same cases", columns=columns, rows=rows)
        )
    blocks += generic_blocks(part, "comparison")
    return Section(
        id="comparison",
        title="Two models on the same cases",
        short="Comparison",
        lead=f"{a} against {b}.",
        blocks=blocks,
    )


def ranking(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of a ranking.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without a ranking.
    """
    part = dict(data.part("ranking"))
    if not part:
        return None
    table = [r for r in part.pop("table", None) or [] if isinstance(r, dict)]
    part.pop("frequencies", None)
    part.pop("fairness_weight", None)
    failed = part.pop("failed", None)
    metric = str(part.pop("metric", None) or "value")
    blocks: list[Any] = []
    drawn = [p for p in (picture(specs, n) for n in ("ranks", "rank-frequencies", "fairness-weight")) if p]
    if drawn:
        blocks.append(Pair(pictures=drawn))
    if table:
        holm = any(as_float(r.get("p_holm")) is not None for r in table)
        rows = []
        for r in table:
            lo, hi = r.get("rank_lo"), r.get("rank_hi")
            between = f"{count(lo)} to {count(hi)}" if as_float(lo) is not None else ""
            rows.append(
                [
                    text(r.get("model")),
                    num(r.get("rank")),
                    text(between),
                    cnt(r.get("tier")),
                    estimate(r),
                    *([p_cell(r.get("p_holm"))] if holm else []),
                ]
            )
        columns = ["Model", "Rank", "Rank interval", "Tier", label(metric)]
        columns += ["p against baseline (Holm)"] if holm else []
        note = (
            "Models of one tier are not clearly different. "
            "Rank intervals come from simultaneous pairwise differences."
        )
        blocks.append(Table(name="ranking", caption="Ranking", columns=columns, rows=rows, note=note))
    if isinstance(failed, list) and failed:
        blocks += generic_blocks({"could_not_be_ranked": failed}, "failed")
    blocks += generic_blocks(part, "ranking")
    lead = "All models share the same resamples. The heat map is a picture of stability, not an interval."
    return Section(id="ranking", title="Ranking", short="Ranking", lead=lead, blocks=blocks)


def difficulty(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about the difficulty of the lesions.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where it is not known.
    """
    part = dict(data.part("difficulty"))
    if not part:
        return None
    drawn = picture(specs, "difficulty")
    strata = part.pop("strata", None)
    blocks: list[Any] = []
    if drawn:
        part.pop("detected_by", None)
        blocks.append(Pair(pictures=[drawn]))
    blocks += strata_blocks(strata if isinstance(strata, list) else [])
    blocks += generic_blocks(part, "difficulty")
    return Section(id="difficulty", title="Difficulty of the lesions", short="Difficulty", blocks=blocks)
