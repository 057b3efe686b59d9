"""docs/reference/coverage.md from the simulated rows: promise, domain, and the cells that fail (ST-13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from statistics import median

from elsewhere.simulation.cohorts import EQUAL, HEAVY_FEW
from elsewhere.simulation.coverage import (
    NOMINAL,
    PROMISE,
    CoverageRow,
    binomial_interval,
)
from elsewhere.simulation.grid import FRESH_SHIFT
from elsewhere.simulation.paired_levels import LevelRow
from elsewhere.simulation.sites import SiteRow
from elsewhere.simulation.sites_page import site_coverage_section
from elsewhere.statistics.domain import DOMAIN, TIMES_AN_EVEN_SHARE

_DOMAIN_TITLES = {
    "auroc": "AUROC",
    "localisation": "wAFROC and its family (AFROC, AFROC1, wAFROC1, inferred ROC)",
    "proportion": "Proportions (sensitivity, specificity, PPV, NPV, accuracy)",
    "mean": "Means by t (Dice)",
    "skewed-mean": "Skewed means (distances, rates of rare errors, counts)",
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
    "hausdorff95_mm",
    "slide_false_positive_rate",
    "false_components_per_case",
    "wafroc",
    "wafroc1",
    "afroc",
    "afroc1",
    "inferred_roc",
)
_RULES = {
    "patients": "{} patients",
    "cases": "{} cases",
    "positive_patients": "{} positive patients",
    "rarer_class_patients": "{} patients of the rarer class",
    "events": "{} cases on the rarer side (successes or failures)",
    "carriers": "{} patients that carry the mean (Kish's number over the patients' sums)",
}

_HEAD = """# Coverage of the intervals

Written by `elsewhere coverage` (`--quick` for a small grid).
Edit the code, not this page.

Every default 95 % interval was made on simulated cohorts whose truth is known, and counted: how often does it
contain the truth? Scores are binormal with a patient effect (correlation 0.5 between two cases of a patient), the
probabilities are over-confident (logit stretched by 1.5), the threshold is 0.3; Dice is logit-normal with 4 % of
failures at 0; distances are lognormal, rates of rare errors zero in most cases, counts negative binomial; boxes have
one lesion in 30 % of the volumes, or, for wAFROC, one to three lesions in 10 to 50 % of them, ratings with the same
patient effect, 97 % of the lesions marked and one false mark per volume. Labels are drawn anew in each cohort, so the number of
positives varies as it does for a hospital. Resampled intervals use {resamples} resamples here (1,000 by default in
use).

**How it is judged.** A simulated coverage has an error of its own: with 1,000 cohorts its 99 % interval is
about +-1.8 points. A cell *meets the nominal* when that interval contains 95 %; it *keeps the promise* when it meets the
nominal or lies between {low:.0f} and {high:.0f} %. The promise is made inside the domain below, and the program warns
outside it. The domain was drawn after looking at these cells; some cells just inside it still fail, by chance or by a
point or so, and are listed. The result on cohorts that were not looked at is at the end, under
[checked on fresh cohorts](#checked-on-fresh-cohorts).
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
        if domain.carriers_of_verdicts:
            parts.append(
                f"{domain.carriers_of_verdicts} of them for a verdict, where one limit is compared with a margin"
            )
        if domain.value_up_to < 1.0:
            parts.append(f"values up to {domain.value_up_to:g}, or exactly 1")
        out.append(f"| {_DOMAIN_TITLES.get(name, name)} | {'; '.join(parts)} |")
    shares = sorted({domain.largest_share for domain in DOMAIN.values()})
    out += [
        "",
        "Patients are counted by Kish's effective number, (sum of k)^2 / sum of k^2 over the patients' numbers of cases k, "
        "which is the number of patients where all have equally many; and no patient may hold more than "
        f"{' or '.join(f'{100 * share:g}' for share in shares)} % of the cases, or {TIMES_AN_EVEN_SHARE:g} times an even share "
        "where that is more.",
        "",
    ]
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


_IN_SECTIONS = frozenset({"skewed", "uneven", "uneven-means", "perfect"})


def _listed(title: str, text: str, rows: Sequence[CoverageRow]) -> list[str]:
    """Write a section with one line per metric and cell, for families whose cells fit no grid of AUROCs."""
    if not rows:
        return []
    out = [
        f"## {title}",
        "",
        text,
        "",
        "| metric | method | cohort | patients | cases per patient | count as | coverage, % | below the interval, % | above it, % |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        made = max(1, r.replicates)
        cohort = r.setting or (
            "" if r.auroc is None else f"{100 * r.prevalence:g} % positive, AUROC {r.auroc:g}"
        )
        weight = r.measures.effective_patients if r.measures.carriers is None else r.measures.carriers
        cases = f"{r.cases_per_patient}" if r.counts == EQUAL else f"{r.measures.cases_per_patient:.1f}"
        out.append(
            f"| {r.metric} | {r.method} | {cohort} | {r.patients} | {cases} | {weight or 0.0:.0f} | {_cell(r)} | "
            f"{100 * r.above / made:.1f} | {100 * r.below / made:.1f} |"
        )
    return [*out, ""]


def _sections(rows: Sequence[CoverageRow]) -> list[str]:
    def of(*families: str) -> list[CoverageRow]:
        found = [r for r in rows if r.default and r.family in families]
        return sorted(
            found,
            key=lambda r: (
                r.metric,
                r.setting,
                r.prevalence,
                r.auroc or 0.0,
                r.patients,
                r.cases_per_patient,
            ),
        )

    return [
        *_listed(
            "Skewed means",
            "Distances, rates of rare errors and counts, by the bootstrap-t. 'Count as': Kish's number over the patients' sums, "
            "that is how many patients carry the mean. A truth above the interval is an error that flatters the model.",
            of("skewed"),
        ),
        *_listed(
            "Unequal numbers of cases per patient",
            f"{HEAVY_FEW.capitalize()}. 'Count as': Kish's effective number of patients.",
            of("uneven", "uneven-means"),
        ),
        *_listed(
            "Nearly perfect models",
            "Many of these cohorts are perfect samples, whose interval is a one-sided bound. A bound holds for any distribution and "
            "so covers more than 95 %; here a cell fails only where it covers too little.",
            of("perfect"),
        ),
    ]


def _fresh(rows: Sequence[CoverageRow]) -> list[str]:
    """Write the outcome on cohorts that nobody looked at while the domain was drawn."""
    shown = [r for r in _once(rows) if r.in_domain and r.replicates]
    out = ["## Checked on fresh cohorts", ""]
    if not shown:
        return [*out, "No cell inside the domain was simulated.", ""]
    failing = [r for r in shown if not r.keeps_promise]
    text = (
        f"The cells inside the domain were simulated once more with other random numbers, prevalence and AUROC moved by "
        f"{FRESH_SHIFT:g} (and means moved as little): {len(shown) - len(failing)} of {len(shown)} kept the promise."
    )
    if failing:
        off = [100 * r.coverage for r in failing]
        text += f" The other {len(failing)} lay between {min(off):.1f} and {max(off):.1f} %:"
    out += [text, ""]
    return [*out, *(_failing_table(failing) if failing else [])]


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
        what = (
            "volumes with a lesion, true wAFROC" if rows[0].family == "localisation" else "positives, AUROC"
        )
        out += [f"Columns: {what}.", ""]
    out.append("| patients | cases per patient | " + " | ".join(heads) + " |")
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
    return [*out, "Cells inside the domain that fail:", "", *_failing_table(failing)]


def _failing_table(failing: Sequence[CoverageRow]) -> list[str]:
    out = [
        "| metric | patients | cases per patient | positives | AUROC, or values | coverage, % | 99 % interval |"
    ]
    out += ["|---|---:|---:|---:|---|---:|---|"]
    for r in sorted(failing, key=lambda r: (r.metric, r.patients, r.cases_per_patient)):
        lo, hi = binomial_interval(r.covered, r.replicates)
        cases = (
            f"{r.cases_per_patient}" if r.counts == EQUAL else f"{r.measures.cases_per_patient:.1f}, unequal"
        )
        positives = "" if r.auroc is None else f"{100 * r.prevalence:.0f} %"
        out.append(
            f"| {r.metric} | {r.patients} | {cases} | {positives} | "
            f"{r.setting if r.auroc is None else r.auroc} | {100 * r.coverage:.1f} | {100 * lo:.1f} to {100 * hi:.1f} |"
        )
    return [*out, ""]


def _alternatives(rows: Sequence[CoverageRow]) -> list[str]:
    """Write why each default was chosen: the other intervals on the same cohorts, inside the domain."""
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
                and r.family in ("resampled", "skewed")
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
        "99 % lower bound of that share is at most 5 %.",
        "",
        "| metric | test | patients | cases per patient | cohorts | rejected, % | holds |",
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
    fresh: Sequence[CoverageRow] = (),
    only: Sequence[str] | None = None,
) -> str:
    """Write the page of docs/reference/coverage.md.

    Args:
        rows: The rows of all cells of the grid.
        levels: The levels of the paired tests; empty leaves the section out.
        resamples: Number of resamples of the resampled intervals, which the page states.
        sites: The coverage at many and small sites; empty leaves the section out.
        fresh: The rows of the cells that were simulated on fresh cohorts.
        only: The parts that were run; None where all were.

    Returns:
        The page as markdown.
    """
    head = _HEAD.format(resamples=resamples, low=100 * PROMISE[0], high=100 * PROMISE[1])
    shown = _once(rows)
    out = [head]
    if only is not None:
        out += [f"**A part of the page**: {', '.join(only)}.", ""]
    out += [*_domain_table(), *_failures(shown)]
    out += [
        "## The tables",
        "",
        "Coverage in %. In brackets: outside the domain, where the program warns. \\*: keeps the promise, but its "
        "99 % interval misses 95 %. `none`: no interval could be made.",
        "",
    ]
    in_tables = [r for r in shown if r.family not in _IN_SECTIONS]
    for metric in dict.fromkeys(r.metric for r in in_tables):
        out += _metric_table(metric, [r for r in in_tables if r.metric == metric])
    out += [
        *_sections(rows),
        *site_coverage_section(sites),
        *_alternatives(rows),
        *_levels(levels),
        *_fresh(fresh),
    ]
    return "\n".join(out).rstrip() + "\n"


def _once(rows: Sequence[CoverageRow]) -> list[CoverageRow]:
    """Sort the default rows for the page; a cell simulated in two families is shown from the closed one."""
    cells: dict[tuple[object, ...], CoverageRow] = {}
    for r in sorted((r for r in rows if r.default), key=lambda r: r.family):
        place_of = (r.metric, r.patients, r.cases_per_patient, r.prevalence, r.auroc, r.counts, r.setting)
        cells.setdefault(place_of, r)
    place = {name: i for i, name in enumerate(_ORDER)}
    return sorted(cells.values(), key=lambda r: (place.get(r.metric, len(place)), r.metric))
