"""docs/reference/coverage.md from the simulated rows: the promise, its domain, and the cells that fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from statistics import median

from elsewhere.promises.coverage import NOMINAL, PROMISE, CoverageRow, binomial_interval
from elsewhere.promises.paired_levels import LevelRow
from elsewhere.promises.sites import SiteRow
from elsewhere.promises.sites_page import site_coverage_section
from elsewhere.statistics.domain import DOMAIN

_DOMAIN_TITLES = {
    "auroc": "AUROC",
    "proportion": "Proportions (sensitivity, specificity, PPV, NPV, accuracy)",
    "mean": "Means by t (Dice)",
    "loss": "NLL and Brier",
    "ratio": "Ratios (F1)",
    "composite": "Composites (balanced accuracy)",
    "precision-recall": "AUPRC",
    "calibration-error": "ECE, both kinds",
    "froc": "FROC sensitivities",
}
_ORDER = (
    "auroc",
    "sensitivity",
    "specificity",
    "ppv",
    "balanced_accuracy",
    "f1",
    "auprc",
    "nll",
    "brier",
    "ece_confidence",
    "ece_malignant",
    "dice",
)
_RULES = {
    "patients": "{} patients",
    "cases": "{} cases",
    "positive_patients": "{} positive patients",
    "rarer_class_patients": "{} patients of the rarer class",
    "events": "{} cases on the rarer side (successes or failures)",
}

_HEAD = """# Coverage of the intervals

Remade by `elsewhere coverage` (`--quick` for a small grid).
Edit the code, not this page.

Every default 95 % interval was made on simulated cohorts whose truth is known, and counted: how often does it
hold the truth? Scores are binormal with a patient effect (correlation 0.5 between two cases of a patient), the
probabilities are over-confident (logit stretched by 1.5), the threshold is 0.3; Dice is logit-normal with 4 % of
failures at 0; boxes have one lesion in 30 % of the volumes. Labels are drawn anew in each cohort, so the number of
positives varies as it does for a hospital. Resampled intervals use {resamples} resamples here (1,000 by default in
use).

**How it is judged** (ST-13). A simulated coverage has an error of its own: with 1,000 cohorts its 99 % interval is
about +-1.8 points. A cell *meets the nominal* when that interval holds 95 %; it *keeps the promise* when it meets the
nominal or lies between {low:.0f} and {high:.0f} %. The promise is made inside the domain below, and the program warns
outside it. The domain was drawn after looking at these cells; some cells just inside it still fail, by chance or by a
point or so, and are listed. When it had been drawn, it was checked once on fresh cohorts (each parameter moved by
0.001, other random numbers; FROC, Dice and 4,000 cases left out): 327 of 335 cells inside it kept the promise, the other
eight lay between 92.3 and 97.3 %. So read the promise as 92 to 97.5 % for a single cell.
"""


def _domain_table() -> list[str]:
    out = ["## The domain", "", "| intervals of | promised from |", "|---|---|"]
    for name, domain in DOMAIN.items():
        parts = [
            text.format(getattr(domain, field.name))
            for field in fields(domain)
            if (text := _RULES.get(field.name)) and getattr(domain, field.name)
        ]
        if domain.rarer_class_patients_near_the_end:
            parts.append(
                f"{domain.rarer_class_patients_near_the_end} of the rarer class where the value is beyond "
                f"{domain.near_the_end:g} (or below {1 - domain.near_the_end:g})"
            )
        out.append(f"| {_DOMAIN_TITLES.get(name, name)} | {'; '.join(parts)} |")
    out += ["", "Simulated with 1 to 4 cases a patient; beyond that the program warns.", ""]
    return out


def _cell(row: CoverageRow | None) -> str:
    if row is None:
        return ""
    if row.replicates == 0:
        return "none"
    text = f"{100 * row.coverage:.1f}"
    if not row.in_domain:
        return f"({text})"
    if not row.keeps_promise:
        return f"**{text} fails**"
    return text if row.meets_nominal else f"{text}\\*"


def _metric_table(metric: str, rows: Sequence[CoverageRow]) -> list[str]:
    columns = sorted({(r.prevalence, r.auroc) for r in rows}, key=lambda c: (c[0], c[1] or 0.0))
    lines = sorted({(r.patients, r.cases_per_patient) for r in rows})
    by_place = {(r.patients, r.cases_per_patient, r.prevalence, r.auroc): r for r in rows}
    heads = [
        "coverage, %" if auroc is None else f"{100 * prevalence:.0f} %, {auroc:g}"
        for prevalence, auroc in columns
    ]
    out = [f"### {metric} ({rows[0].method})", ""]
    if columns[0][1] is not None:
        out += ["Columns: positives, AUROC.", ""]
    out.append("| patients | cases a patient | " + " | ".join(heads) + " |")
    out.append("|---:|---:|" + "---:|" * len(columns))
    for n, k in lines:
        cells = [_cell(by_place.get((n, k, *column))) for column in columns]
        out.append(f"| {n} | {k} | " + " | ".join(cells) + " |")
    return [*out, ""]


def _failures(rows: Sequence[CoverageRow]) -> list[str]:
    inside = [r for r in rows if r.in_domain and r.replicates]
    failing = [r for r in inside if not r.keeps_promise]
    nominal = sum(r.meets_nominal for r in inside)
    out = [
        "## The outcome",
        "",
        f"{len(inside)} cells lie inside the domain; {len(inside) - len(failing)} keep the promise of "
        f"{100 * PROMISE[0]:.0f} to {100 * PROMISE[1]:.0f} %, {nominal} meet the nominal {100 * NOMINAL:.0f} %.",
        "",
    ]
    if not failing:
        return [*out, "No cell inside the domain fails.", ""]
    out += ["Cells inside the domain that fail:", ""]
    out += ["| metric | patients | cases a patient | positives | AUROC | coverage, % | 99 % interval |"]
    out += ["|---|---:|---:|---:|---:|---:|---|"]
    for r in sorted(failing, key=lambda r: (r.metric, r.patients, r.cases_per_patient)):
        lo, hi = binomial_interval(r.covered, r.replicates)
        out.append(
            f"| {r.metric} | {r.patients} | {r.cases_per_patient} | {100 * r.prevalence:.0f} % | "
            f"{'' if r.auroc is None else r.auroc} | {100 * r.coverage:.1f} | {100 * lo:.1f} to {100 * hi:.1f} |"
        )
    return [*out, ""]


def _alternatives(rows: Sequence[CoverageRow]) -> list[str]:
    """Why each default is what it is: the other intervals on the same cohorts, inside the domain."""
    out = [
        "## Why these defaults",
        "",
        "The other intervals on the same cohorts and resamples, over the cells inside the domain: median and lowest "
        "coverage, %, and the cells that keep the promise. The default is in bold.",
        "",
        "| metric | method | cells | median | lowest | keep the promise |",
        "|---|---|---:|---:|---:|---:|",
    ]
    with_others = sorted({r.metric for r in rows if not r.default})
    for metric in with_others:
        methods = sorted({(not r.default, r.method) for r in rows if r.metric == metric})
        for other, method in methods:
            found = [
                r
                for r in rows
                if (r.metric, r.method) == (metric, method)
                and r.family == "resampled"
                and r.in_domain
                and r.replicates
            ]
            if not found:
                continue
            values = [100 * r.coverage for r in found]
            name = method if other else f"**{method}**"
            kept = sum(r.keeps_promise for r in found)
            out.append(
                f"| {metric} | {name} | {len(found)} | {median(values):.1f} | {min(values):.1f} | {kept} |"
            )
    return [*out, ""]


def _levels(rows: Sequence[LevelRow]) -> list[str]:
    if not rows:
        return []
    out = [
        "## Levels of the paired tests",
        "",
        "Two models of equal quality on the same patients; share of cohorts rejected at 5 %. A level holds when the "
        "99 % lower bound of that share is at most 5 % (ST-13).",
        "",
        "| metric | test | patients | cases a patient | cohorts | rejected, % | holds |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for r in sorted(rows, key=lambda r: (r.metric, r.test, r.patients, r.cases_per_patient)):
        out.append(
            f"| {r.metric} | {r.test} | {r.patients} | {r.cases_per_patient} | {r.replicates} | "
            f"{100 * r.rate:.1f} | {'yes' if r.holds else '**no**'} |"
        )
    return [*out, ""]


def coverage_page(
    rows: Sequence[CoverageRow],
    levels: Sequence[LevelRow],
    *,
    resamples: int,
    sites: Sequence[SiteRow] = (),
) -> str:
    """The whole page as markdown."""
    head = _HEAD.format(resamples=resamples, low=100 * PROMISE[0], high=100 * PROMISE[1])
    shown = _once(rows)
    out = [head, *_domain_table(), *_failures(shown)]
    out += [
        "## The tables",
        "",
        "Coverage in %. In brackets: outside the domain, where the program warns. \\*: keeps the promise, but its "
        "99 % interval misses 95 %. `none`: no interval could be made.",
        "",
    ]
    for metric in dict.fromkeys(r.metric for r in shown):
        out += _metric_table(metric, [r for r in shown if r.metric == metric])
    out += [*site_coverage_section(sites), *_alternatives(rows), *_levels(levels)]
    return "\n".join(out).rstrip() + "\n"


def _once(rows: Sequence[CoverageRow]) -> list[CoverageRow]:
    """The default rows in the page's order; a cell simulated in two families is shown from the closed one."""
    cells: dict[tuple[object, ...], CoverageRow] = {}
    for r in sorted((r for r in rows if r.default), key=lambda r: r.family):
        cells.setdefault((r.metric, r.patients, r.cases_per_patient, r.prevalence, r.auroc), r)
    place = {name: i for i, name in enumerate(_ORDER)}
    return sorted(cells.values(), key=lambda r: (place.get(r.metric, len(place)), r.metric))
