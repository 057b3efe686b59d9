"""docs/reference/levels.md: how often tests and verdicts are wrong, by simulation (ST-13, MRI-09)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from elsewhere.simulation.chance import chance_promises
from elsewhere.simulation.fairness import Promise, fairness_promises, odds_promises
from elsewhere.simulation.generalise import CELLS as DOMAIN_CELLS
from elsewhere.simulation.generalise import domain_promises
from elsewhere.simulation.new_hospital import new_hospital_promises
from elsewhere.simulation.planted_gaps import planted_promises
from elsewhere.simulation.power import drop_promises, plan_promises
from elsewhere.simulation.readers import CELLS as READER_CELLS
from elsewhere.simulation.readers import reader_promises
from elsewhere.simulation.sites import level_jobs, site_rows
from elsewhere.simulation.sites_page import site_level_section
from elsewhere.simulation.type1_error import DEFAULT_CELLS, equivalence_levels
from elsewhere.statistics.bootstrap_weights import thread_count

HEAD = """# Levels of the tests and verdicts

Written by `elsewhere coverage`. Edit the code, not this page.

A test keeps its level when the 99 % lower bound of its simulated rejection rate is at most 5 %. Among so many
cells about one in a hundred fails by chance; a promised cell that fails is shown as it came out, and then once more with ten times
the replicates and fresh draws. Coverage, and the paired tests' levels, are on [their own page](coverage.md).
"""

_AGAIN = 10
_WORLDS_SHARE = 5
"""A planted world passes through the whole report, so only a fifth of the replicates are made."""
PLANTED = (
    "A subgroup gap planted in the scores and analysed as the report does it: a cohort with the groups of the MAMA-MIA test set "
    "(densities A to D about 10, 36, 39 and 15 %), one group worse by 0.12 Dice and 0.08 NormHD, or by 0.25 TPR and 0.20 FPR. Covered: the "
    "interval of the gap (`gap_lo`, `gap_hi`) holds the population's gap over the groups that have an interval. Flagged: a variable's "
    "permutation p after Holm's correction over the three variables; in fair worlds, of any of them. {worlds} worlds per setting."
)
ODDS = (
    "Simultaneous 95 % intervals of the differences between all groups' balanced accuracies (the score of equalised odds), in groups "
    "of 10 to 400 cases. They hold where 93 % or more of the cohorts have all true differences inside at once; near 100 % where rates near 1 "
    "and few cases leave nothing to see. A cohort without two groups of both classes has no pair and is not counted."
)
DROPS = (
    "Studies without any drop state the smallest detectable drop and the smallest provable margin (the median is shown). Then studies "
    "with exactly that drop: detected when the whole 90 % interval of the difference lies below 0, promised in 75 to 85 %. And studies "
    "without a drop: proved when the interval lies inside that margin, promised in 75 to 90 % (whole counts make proportions jump)."
)
PLANS = (
    "Studies of the size that `plan-sample` asks for at 80 % power, judged by the verdict's own interval against a claimed constant: "
    "promised in 78 to 83 %. A mean Dice is planned with the default allowance for skewness: 78 to 90 %, since symmetric values need fewer."
)
NEW_HOSPITAL = (
    "The 95 % prediction interval of one more site, from sites drawn of one distribution: promised to hold the next site's true value in "
    "93 % or more. With few sites or a spread near 0 it holds more often: what the sites do not exclude is inside."
)
READER_STUDIES = (
    "Treatments that do not differ, tested by the method of Obuchowski and Rockette with the degrees of freedom of Hillis. Ratings "
    "follow the model of Roe and Metz, marks a search model; readers differ, and differ from treatment to treatment, unless they are alike. "
    "Rows without a nominal level promise nothing: fewer than five readers with two treatments, where the command warns; and controls, "
    "in which a test takes as fixed what is random, or leaves out cases where patients have several."
)
DOMAINS = (
    "One model with five folds on internal and external slides, of which 45 % have tumour; a few slides hold most tumour patches (at 169 + 68 "
    "slides, five hold about 40 %). Intervals of external - internal, 90 %: by patient (what `elsewhere generalise` leads with), the percentile "
    "bootstrap of patients, and the lymph-node study's interval by fold, which measures retraining and not patients. Rows without a nominal "
    "level promise nothing: a false-positive rate that a few slides carry (the command warns). In the last worlds the external "
    "slides are better, and any BELOW is a mistake."
)
_FRESH_SEED = 777


def _yes(value: bool) -> str:
    return "yes" if value else "**no**"


def _cell_name(row: dict[str, Any]) -> str:
    side = f"{row['side']} side" if "side" in row else ""
    parts = [str(row["metric"]), f"against a {row['against']}" if "against" in row else "", side]
    size = (
        f"{row['patients']:g} patients x {row['cases_per_patient']:g} cases"
        if "cases_per_patient" in row
        else ""
    )
    return ", ".join(part for part in (*parts, size, str(row.get("setting", ""))) if part)


def _rows(rows: pd.DataFrame) -> list[str]:
    lines = [
        "| cell | method | nearer, % | further, % | not assessed, % | warned, % | holds | promised |",
        "|---|---|---:|---:|---:|---:|---|---|",
    ]
    for row in rows.to_dict("records"):
        numbers = " | ".join(f"{100 * row.get(name, 0.0):.1f}" for name in _SHARES)
        promised = "yes" if row.get("promised", True) else "no"
        named = {str(key): value for key, value in row.items()}
        lines.append(
            f"| {_cell_name(named)} | {row['method']} | {numbers} | {_yes(bool(row['holds']))} | {promised} |"
        )
    return lines


_SHARES = ("nearer", "further", "not_assessed", "warned")


def _count(rows: pd.DataFrame) -> str:
    text = f"{int(rows['holds'].sum())} of {len(rows)} cells hold"
    if "promised" in rows:
        inside = rows[rows["promised"]]
        text += f"; of the {len(inside)} that are promised, {int(inside['holds'].sum())}"
    return f"{text}.\n"


def _equivalence(rows: pd.DataFrame, again: pd.DataFrame | None, replicates: int) -> list[str]:
    lines = [
        "\n## Equivalence and non-inferiority\n",
        "The truth lies exactly on the margin, so every verdict but INCONCLUSIVE is wrong there. `nearer`: the rate of claiming "
        "less distance than there is; `further`: of BELOW or ABOVE.\n",
        "`warned`: the share of the studies whose verdict carries a warning that it lies outside the domain; a cell with more than "
        "half of them is not promised.\n",
        _count(rows),
        *_rows(rows),
    ]
    if again is not None and len(again):
        lines += [
            f"\nThe promised cells that failed, with {replicates:,} fresh replicates each:\n",
            *_rows(again),
        ]
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


PARTS = (
    "claims",
    "fairness",
    "sites",
    "odds",
    "power",
    "new-hospital",
    "planted",
    "chance",
    "readers",
    "domains",
)
"""Parts of this page that `elsewhere coverage --only` can run."""


def levels_page(
    *,
    replicates: int = 1000,
    quick: bool = False,
    only: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> str:
    """Simulate every level and write the page of docs/reference/levels.md.

    Args:
        replicates: Number of replicates per cell; planted worlds have a fifth of them, at least 20.
        quick: Whether to simulate every third cell of equivalence only, and no failed cell again.
        only: The `PARTS` to simulate; None simulates all of them.
        progress: Called with what is done next; None for silence.

    Returns:
        The page as markdown.
    """

    def say(what: str) -> None:
        if progress:
            progress(what)

    def wanted(part: str) -> bool:
        return only is None or part in only

    lines = [HEAD, f"{replicates:,} replicates per cell."]
    if only is not None:
        lines.append(f"\n**A part of the page**: {', '.join(only)}.")
    if wanted("claims"):
        cells = tuple(DEFAULT_CELLS[::3] if quick else DEFAULT_CELLS)
        done = iter(range(1, len(cells) + 1))

        def cell_done(_: object) -> None:
            say(f"equivalence, cell {next(done)} of {len(cells)}")

        equivalence = equivalence_levels(
            cells=cells, replicates=replicates, processes=thread_count(), progress=cell_done
        )
        judged = zip(cells, equivalence["holds"], equivalence["promised"], strict=True)
        failed = [cell for cell, holds, promised in judged if promised and not holds]
        again = None
        if failed and not quick:
            say(f"equivalence, {len(failed)} cells once more")
            again = equivalence_levels(
                cells=failed, replicates=_AGAIN * replicates, seed=_FRESH_SEED, processes=thread_count()
            )
        lines += _equivalence(equivalence, again, _AGAIN * replicates)
    if wanted("fairness"):
        say("fairness and ranks")
        lines += _promises(
            "Fairness, ranks and tiers",
            "Fair models must not be flagged, and equal models must not be separated. Power is shown as well; nothing is promised about it.",
            fairness_promises(replicates=replicates),
        )
    if wanted("sites"):
        say("sites")
        lines += site_level_section(site_rows(level_jobs(replicates=replicates)))
    if wanted("odds"):
        say("equalised odds")
        lines += _promises("Pairwise intervals of equalised odds", ODDS, odds_promises(replicates=replicates))
    if wanted("power"):
        say("power")
        lines += _promises("The two power numbers", DROPS, drop_promises(replicates=replicates))
        lines += _promises("The planner", PLANS, plan_promises(replicates=replicates))
    if wanted("new-hospital"):
        say("new hospital")
        lines += _promises("A new hospital", NEW_HOSPITAL, new_hospital_promises(replicates=replicates))
    if wanted("planted"):
        say("planted gaps")
        worlds = max(20, replicates // _WORLDS_SHARE)
        lines += _promises("Planted gaps", PLANTED.format(worlds=worlds), planted_promises(replicates=worlds))
    if wanted("chance"):
        say("chance")
        lines += _promises(
            "Chance",
            "Balanced accuracy compared with 499 random classifiers (studies use 1,000).",
            chance_promises(replicates=replicates),
        )
    if wanted("readers"):
        studies = READER_CELLS[::4] if quick else READER_CELLS
        finished = iter(range(1, len(studies) + 1))

        def reader_cell_done(_: object) -> None:
            say(f"reader studies, cell {next(finished)} of {len(studies)}")

        lines += _promises(
            "Reader studies",
            READER_STUDIES,
            reader_promises(
                replicates=replicates, cells=studies, processes=thread_count(), progress=reader_cell_done
            ),
        )
    if wanted("domains"):
        domains = DOMAIN_CELLS[::3] if quick else DOMAIN_CELLS
        simulated = iter(range(1, len(domains) + 1))

        def domain_cell_done(_: object) -> None:
            say(f"two domains, cell {next(simulated)} of {len(domains)}")

        lines += _promises(
            "Many models at two domains",
            DOMAINS,
            domain_promises(
                replicates=replicates, cells=domains, processes=thread_count(), progress=domain_cell_done
            ),
        )
    return "\n".join(lines) + "\n"
