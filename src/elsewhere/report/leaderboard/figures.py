"""The figures of many models, by name: differences of two, ranks, and the difficulty of the lesions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elsewhere.report.leaderboard import plots
from elsewhere.report.leaderboard.curves import curve_figures
from elsewhere.report.leaderboard.lesions import lesion_figures
from elsewhere.report.leaderboard.merging import merging_figures
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.labels import label
from elsewhere.report.page.numbers import MINUS, as_float, count
from elsewhere.report.result import plots_cases
from elsewhere.report.result.prepare import Prepared


def leaderboard_figures(data: Prepared) -> list[FigureSpec]:
    """List the figures that a comparison, a ranking or a merge can have, in the order of the page.

    Args:
        data: The summary as it may be printed.

    Returns:
        Figures of the merge, the comparison, the ranks, the difficulty of the lesions, who finds what, and the hit
        rules.
    """
    many = (*_many_models(data), *curve_figures(data))
    return [*merging_figures(data), *many, *_difficulty(data), *lesion_figures(data)]


def _many_models(data: Prepared) -> Iterable[FigureSpec]:
    comparison = data.part("comparison")
    metrics = comparison.get("metrics")
    if isinstance(metrics, dict):
        rows = [(label(n, e), e) for n, e in metrics.items() if isinstance(e, dict)]
        names = f"{comparison.get('a', 'A')} {MINUS} {comparison.get('b', 'B')}"
        if any(as_float(e.get("difference")) is not None for _, e in rows):
            yield FigureSpec(
                name="differences",
                title=f"Differences, {names}",
                alt=f"Paired differences {names} with intervals.",
                build=lambda pal: plots.differences(rows, pal, axis_label=names),
            )
    ranking = data.part("ranking")
    table = [r for r in ranking.get("table") or [] if isinstance(r, dict)]
    if any(as_float(r.get("rank")) is not None for r in table):
        yield FigureSpec(
            name="ranks",
            title="Ranks with intervals",
            alt="; ".join(f"{r.get('model')}: rank {r.get('rank')}" for r in table),
            build=lambda pal: plots.rank_intervals(table, pal),
        )
    frequencies = ranking.get("frequencies")
    if (
        isinstance(frequencies, dict)
        and frequencies
        and all(isinstance(v, list) for v in frequencies.values())
    ):
        yield FigureSpec(
            name="rank-frequencies",
            title="How often each rank was taken",
            alt="Heat map: share of resamples in which each model took each rank.",
            build=lambda pal: plots.rank_frequencies(frequencies, pal),
        )
    stability = ranking.get("fairness_weight")
    if isinstance(stability, dict) and stability.get("weights") and isinstance(stability.get("ranks"), dict):
        yield FigureSpec(
            name="fairness-weight",
            title="Rank over the fairness weight (0: performance alone, 1: fairness alone)",
            alt="Lines: the rank of each model as the weight of fairness goes from 0 to 1.",
            build=lambda pal: plots.weight_stability(stability["weights"], stability["ranks"], pal),
        )


def _difficulty(data: Prepared) -> Iterable[FigureSpec]:
    detected = data.part("difficulty").get("detected_by")
    if isinstance(detected, dict) and detected and all(_is_number(k) for k in detected):
        yield FigureSpec(
            name="difficulty",
            title="Lesions by the number of algorithms that find them",
            alt="; ".join(f"{count(n)} lesions found by {k}" for k, n in detected.items()),
            build=lambda pal: plots_cases.difficulty(detected, pal),
        )


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True
