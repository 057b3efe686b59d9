"""docs/reference/levels.md: how often the tests and verdicts are wrong when they should not be (ST-13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from elsewhere.promises.chance import chance_promises
from elsewhere.promises.equivalence_levels import equivalence_levels
from elsewhere.promises.fairness import Promise, fairness_promises

HEAD = """# Levels of the tests and verdicts

Remade by `elsewhere coverage`. Edit the code, not this page.

A test keeps its level when the 99 % lower bound of its simulated rejection rate is at most 5 % (ST-13). Among so many
cells about one in a hundred fails by chance; a cell that fails is shown as it came out, and is not simulated again until
it passes. Coverage, and the paired tests' levels, are on [their own page](coverage.md).
"""


def _yes(value: bool) -> str:
    return "yes" if value else "**no**"


def _equivalence(rows: pd.DataFrame) -> list[str]:
    kept = int(rows["holds"].sum())
    lines = [
        "\n## Equivalence and non-inferiority\n",
        "The truth lies exactly on the margin, so every word but INCONCLUSIVE is wrong there. `nearer`: the rate of claiming "
        "less distance than there is; `further`: of BELOW or ABOVE.\n",
        f"{kept} of {len(rows)} cells hold.\n",
        "| cell | method | nearer, % | further, % | not assessed, % | holds | promised |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    named = [
        c
        for c in rows.columns
        if c not in ("nearer", "further", "equivalent", "holds", "promised", "method", "not_assessed")
    ]
    named = [
        c
        for c in named
        if not c.endswith("lower99") and c not in ("replicates", "resamples", "alpha", "margin")
    ]
    for row in rows.to_dict("records"):
        cell = ", ".join(
            f"{row[name]}" if isinstance(row[name], str) else f"{name} {row[name]:g}" for name in named
        )
        lines.append(
            f"| {cell} | {row['method']} | {100 * row['nearer']:.1f} | {100 * row['further']:.1f} | "
            f"{100 * row['not_assessed']:.1f} | {_yes(bool(row['holds']))} | {'yes' if row.get('promised', True) else 'no'} |"
        )
    return lines


def _promises(title: str, text: str, rows: Sequence[Promise]) -> list[str]:
    lines = [
        f"\n## {title}\n",
        f"{text}\n",
        "| what | where | nominal | simulated, % | 99 % interval | holds |",
        "|---|---|---:|---:|---|---|",
    ]
    for row in rows:
        nominal = "" if row.nominal is None else f"{100 * row.nominal:g}"
        holds = "" if row.nominal is None else _yes(row.holds)
        lines.append(
            f"| {row.event} | {row.setting} | {nominal} | {100 * row.rate:.1f} | {100 * row.lo99:.1f} to {100 * row.hi99:.1f} | {holds} |"
        )
    return lines


def levels_page(*, replicates: int = 1000, progress: Callable[[str], None] | None = None) -> str:
    """Simulate every level and write the page."""

    def say(what: str) -> None:
        if progress:
            progress(what)

    say("equivalence")
    equivalence = equivalence_levels(replicates=replicates)
    say("fairness and ranks")
    fairness = fairness_promises(replicates=replicates)
    say("chance")
    chance = chance_promises(replicates=replicates)
    lines = [
        HEAD,
        f"{replicates:,} replicates a cell.",
        *_equivalence(equivalence),
        *_promises(
            "Fairness, ranks and tiers",
            "Fair models must not be flagged, equal models must not be parted; power is shown beside, nothing is promised of it.",
            fairness,
        ),
        *_promises("Chance", "Balanced accuracy against 1,000 random classifiers (MRI-09).", chance),
    ]
    return "\n".join(lines) + "\n"
