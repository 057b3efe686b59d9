"""The sections on many and small sites, in docs/reference/coverage.md and docs/reference/levels.md."""

from __future__ import annotations

from collections.abc import Sequence

from elsewhere.simulation.sites import PATIENTS, RANKED, SiteRow
from elsewhere.statistics.clusters import FEWEST_PER_STRATUM

_COVERAGE = f"""Sites are the strata of the resampling. A stratum of m patients keeps only (m - 1)/m of its variance, so strata with
fewer than {FEWEST_PER_STRATUM} patients (of a class, where the metric is resampled within classes) are pooled with the other small ones.
{PATIENTS} patients, one case per patient, at 1 to 50 sites of equal size or of sizes that fall off as 1, 1/2, 1/3...; and 420 patients at 20
sites, each just large enough to be resampled by itself. The sites do not differ, which is the hard case: a difference between
pooled sites widens the interval. In brackets: the program warns in most of these cohorts."""
_LEVELS = f"""Models of equal quality. Ranks: the share of cohorts of {RANKED[0]} patients in which any two of {RANKED[1]} models are separated. Comparisons: the
share of cohorts in which the 95 % interval of the difference of two models does not contain 0. 30 % of the patients are positive; sites as on
[the page of coverage](coverage.md#many-and-small-sites)."""


def _layout(row: SiteRow) -> str:
    job = row.job
    if job.sites == 1:
        return f"{job.patients} patients, 1 site"
    return f"{job.patients} patients, {job.sites} {'equal' if job.equal else 'unequal'} sites"


def _percent(row: SiteRow | None) -> str:
    if row is None:
        return ""
    text = f"{100 * row.rate:.1f}"
    if not row.in_domain:
        return f"({text})"
    return text if row.holds else f"**{text} fails**"


def _table(rows: Sequence[SiteRow]) -> list[str]:
    """Write one line per layout, one column per metric (and share of positives, where it matters)."""
    several = {r.metric for r in rows if len({q.job.positives for q in rows if q.metric == r.metric}) > 1}

    def column(row: SiteRow) -> str:
        return f"{row.metric}, {100 * row.job.positives:.0f} %" if row.metric in several else row.metric

    ordered = sorted(rows, key=lambda r: (r.job.what, r.metric, r.job.positives))
    columns = list(dict.fromkeys(column(row) for row in ordered))
    lines = sorted(
        rows, key=lambda r: (r.job.patients != PATIENTS, r.job.patients, r.job.sites, not r.job.equal)
    )
    layouts = list(dict.fromkeys(_layout(row) for row in lines))
    cells = {(_layout(row), column(row)): row for row in rows}
    out = ["| cohort | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for layout in layouts:
        found = [_percent(cells.get((layout, name))) for name in columns]
        out.append(f"| {layout} | " + " | ".join(found) + " |")
    return [*out, ""]


def _outcome(rows: Sequence[SiteRow], what: str) -> str:
    inside = [row for row in rows if row.in_domain]
    kept = sum(row.holds for row in inside)
    runs = max((row.runs for row in rows), default=0)
    return f"{kept} of {len(inside)} cells {what}; {runs:,} cohorts per cell."


def site_coverage_section(rows: Sequence[SiteRow]) -> list[str]:
    """Write the section on coverage in % by number of sites.

    Args:
        rows: The rows of `sites.coverage_jobs`.

    Returns:
        Lines of markdown; none without rows.
    """
    if not rows:
        return []
    return [
        "## Many and small sites",
        "",
        _COVERAGE,
        "",
        _outcome(rows, "keep the promise"),
        "",
        *_table(rows),
    ]


def site_level_section(rows: Sequence[SiteRow]) -> list[str]:
    """Write the section on how often equal models are separated, in %, by number of sites.

    Ranks come first, then comparisons of two models.

    Args:
        rows: The rows of `sites.level_jobs`.

    Returns:
        Lines of markdown; none without rows.
    """
    if not rows:
        return []
    out = ["\n## Ranks and comparisons at many sites\n", _LEVELS, "", _outcome(rows, "hold"), ""]
    for what, title in (("ranking", "Ranks"), ("comparison", "Comparisons of two models")):
        part = [row for row in rows if row.job.what == what]
        if part:
            out += [f"### {title}", "", *_table(part)]
    return out
