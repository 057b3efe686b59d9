"""The sections of many models at two domains: verdicts, the study's test, operating points, ensembles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.analysis.generalise.operating_point import operating_point
from elsewhere.report.generalise.labels import LABELS, SHORT
from elsewhere.report.generalise.tables import (
    difference_cell,
    power_table,
    ratio_table,
    same_mix_table,
    verdict_table,
)
from elsewhere.report.page.blocks import (
    Cell,
    Fold,
    Note,
    Pair,
    Section,
    Table,
    num,
    p_cell,
    pct,
    text,
)
from elsewhere.report.page.figures import Specs, picture
from elsewhere.report.page.numbers import MINUS, as_float, count, number
from elsewhere.report.result.prepare import Prepared

Row = Mapping[str, Any]


def model_verdicts(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with every model's verdict by patient.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where the summary is of no such comparison.
    """
    part = data.part("generalise")
    rows = _rows(part)
    if not rows:
        return None
    blocks: list[Any] = []
    metrics = dict.fromkeys(str(row.get("metric")) for row in rows)
    overall = {
        metric: [row for row in rows if row.get("metric") == metric and not row.get("stratum_of")]
        for metric in metrics
    }
    for kind in ("", "-mix", "-ratio"):
        drawn = [p for metric in metrics if (p := picture(specs, f"generalise-{metric}{kind}"))]
        if drawn:
            blocks.append(Pair(pictures=drawn))
    for metric, mine in overall.items():
        label, name = LABELS.get(metric, metric), f"generalise-{metric}"
        blocks.append(verdict_table(name, label, mine))
        further = (
            ratio_table(f"{name}-ratio", f"{label}: ratio of the hospitals", mine),
            same_mix_table(f"{name}-mix", f"{label}: at the internal mix of cases", mine),
            power_table(f"{name}-power", f"{label}: power, all models at once, bootstrap", mine),
        )
        blocks += [
            Fold(summary=table.caption, blocks=[table], closed=True) for table in further if table is not None
        ]
    if part.get("multiplicity"):
        blocks.append(Note(text=str(part["multiplicity"])))
    level = f"{100 * (1 - 2 * (as_float(part.get('alpha')) or 0.05)):g} %"
    counted = "Each patch counts once." if part.get("weight") != "slides" else "Each slide counts once."
    lead = (
        f"External {MINUS} internal, averaged over {count(part.get('folds'))} folds, with {level} intervals over patients. "
        f"{counted} {_size(data)} Domains: {str(part.get('domains')).replace('`', '')}. Circle: equivalent, triangle: above or below, "
        "diamond: inconclusive."
    )
    return Section(id="generalise", title="Verdicts by patient", short="Verdicts", lead=lead, blocks=blocks)


def _size(data: Prepared) -> str:
    counts = data.part("counts")
    sides = [
        f"{side}: {count(counts.get(f'{side}_slides'))} slides of {count(counts.get(f'{side}_patients'))} patients"
        for side in ("internal", "external")
    ]
    return f"{count(counts.get('models'))} models; {'; '.join(sides)}."


def _rows(part: Row) -> list[Row]:
    return [row for row in part.get("rows") or [] if isinstance(row, dict)]


def by_fold(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with the study's test by fold, or with what a study's printed numbers decide.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where there is neither.
    """
    part = data.part("generalise")
    if part.get("printed"):
        return _printed(part, specs)
    tests = [row for row in part.get("by_fold") or [] if isinstance(row, dict) and row.get("tested")]
    if not tests:
        return None
    names = [f"generalise-{metric}-fold" for metric in dict.fromkeys(str(row.get("metric")) for row in tests)]
    drawn = [p for p in (picture(specs, name) for name in names) if p]
    rows = [
        [
            text(
                SHORT.get(str(row.get("metric")), str(row.get("metric"))),
                sub=f"{row.get('stratum_of')} {row.get('stratum')}" if row.get("stratum_of") else "",
            ),
            num(row.get("margin"), 4),
            text(f"{len(row.get('equivalent') or [])} of {row.get('tested')}", kind="number"),
            text(f"{len(row.get('non_inferior') or [])} of {row.get('tested')}", kind="number"),
            text(", ".join(map(str, row.get("equivalent") or [])) or "none"),
        ]
        for row in tests
    ]
    table = Table(
        name="generalise-by-fold",
        caption="Welch's two one-sided tests on the means of the folds",
        columns=["Metric", "Margin", "Equivalent", "Non-inferior", "Equivalent models"],
        rows=rows,
        note="Non-inferior: no worse externally than the margin. A two-sided test also fails models that are better "
        "externally.",
    )
    return Section(
        id="generalise-by-fold",
        title="The study's test by fold",
        short="By fold",
        lead=f"Internal {MINUS} external, as in the lymph-node study. It measures retraining and not patients: its intervals cover the "
        "true difference about half of the time, or less.",
        blocks=[*([Pair(pictures=drawn)] if drawn else []), table],
    )


def _printed(part: Row, specs: Specs) -> Section:
    blocks: list[Any] = []
    kinds = [kind for kind in part.get("printed") or [] if isinstance(kind, dict)]
    drawn = [p for p in (picture(specs, f"generalise-{kind.get('kind')}") for kind in kinds) if p]
    if drawn:
        blocks.append(Pair(pictures=drawn))
    for kind in kinds:
        rows = [
            [
                text(row.get("model"), sub="undecidable within rounding" if row.get("undecidable") else ""),
                difference_cell(row, "difference", "lo", "hi", 3),
                text(f"<{number(row.get('p'))}", kind="number")
                if row.get("p_is_bound")
                else p_cell(row.get("p")),
                text("yes" if row.get("equivalent") else "no"),
                text("yes" if row.get("non_inferior") else "no"),
            ]
            for row in kind.get("rows") or []
        ]
        n = kind.get("models")
        blocks.append(
            Table(
                name=f"printed-{kind.get('kind')}",
                caption=f"{kind.get('kind')}: margin {number(kind.get('margin'))}, {len(kind.get('equivalent') or [])} of {n} "
                f"equivalent, {len(kind.get('non_inferior') or [])} of {n} non-inferior",
                columns=["Model", f"Internal {MINUS} external", "p", "Equivalent", "Non-inferior"],
                rows=rows,
                note="By the printed p where there is one. Undecidable: an end of the printed interval stands on the margin.",
            )
        )
    return Section(
        id="generalise-printed",
        title="What the printed numbers decide",
        short="Printed",
        lead="Margins, passing models and what rounding leaves open, from a study's own table.",
        blocks=blocks,
    )


def operating_points(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with the thresholds that were carried over.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without thresholds.
    """
    found = [row for row in data.part("generalise").get("operating_points") or [] if isinstance(row, dict)]
    if not found:
        return None
    rows = [
        [
            text(row.get("model")),
            text(operating_point(row)),
            pct(row.get("chosen_again"), 0),
            text(operating_point(row, "best_external_")),
            num(row.get("cost_dice")),
            num(row.get("cost_fpr"), 4),
            _refitted(row, "dice"),
            _refitted(row, "fpr"),
        ]
        for row in found
    ]
    table = Table(
        name="generalise-thresholds",
        caption="Operating points fixed on internal slides",
        columns=[
            "Model",
            "Operating point",
            "Chosen again",
            "Best external",
            "Dice lost",
            "False positives gained",
            "Dice, refitted interval",
            "False-positive rate, refitted interval",
        ],
        rows=rows,
        note=f"Chosen: {found[0].get('criterion')}. Chosen again: in how many resamples of the patients. The refitted intervals "
        "(percentile) choose the threshold in every resample; the verdicts take it as fixed.",
    )
    return Section(
        id="generalise-thresholds",
        title="Operating point carried over",
        short="Thresholds",
        lead="What it costs that the threshold of another hospital's slides is not known.",
        blocks=[table],
    )


def _refitted(row: Row, metric: str) -> Cell:
    lo, hi = as_float(row.get(f"{metric}_refitted_lo")), as_float(row.get(f"{metric}_refitted_hi"))
    return text("" if lo is None or hi is None else f"{number(lo)} to {number(hi)}", kind="number")


def model_ensembles(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with ensembles and random ones of the same size.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where none were asked for.
    """
    part = data.part("generalise").get("ensembles") or {}
    found = [row for row in part.get("rows") or [] if isinstance(row, dict)]
    if not found:
        return None
    rows = []
    for row in found:
        other = row.get("members_scored") == "other patients"
        rule = f"{row.get('rule')}" + ("; the strict vote of two is an AND" if row.get("is_and") else "")
        rows.append(
            [
                text(row.get("name"), sub=rule),
                text("chosen twice" if other else str(len(row.get("members") or [])), kind="number"),
                num(row.get("dice")),
                _random(row, "dice"),
                p_cell(row.get("dice_p")),
                num(row.get("fpr"), 4),
                _random(row, "fpr"),
                p_cell(row.get("fpr_p")),
            ]
        )
    table = Table(
        name="generalise-ensembles",
        caption=f"Ensembles and {count(part.get('random_ensembles'))} random ones of the same size",
        columns=["Ensemble", "Members", "Dice", "Random", "p", "False-positive rate", "Random", "p"],
        rows=rows,
        note=str(part.get("note") or ""),
    )
    return Section(
        id="generalise-ensembles",
        title="Ensembles",
        short="Ensembles",
        lead="Members by the lymph-node study's rules, and chosen on other patients than those that are scored.",
        blocks=[table],
    )


def _random(row: Row, metric: str) -> Cell:
    return num(
        row.get(f"{metric}_random"),
        3 if metric == "dice" else 4,
        sub=f"{number(row.get(f'{metric}_random_lo'))} to {number(row.get(f'{metric}_random_hi'))}",
    )
