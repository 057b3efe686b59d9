"""Sections about the cases of a result: who was tested, how they differ between sites, which went worst."""

from __future__ import annotations

from typing import Any

from elsewhere.report.page.blocks import (
    BLANK,
    Cell,
    Facts,
    FlowChart,
    Pair,
    Section,
    Table,
    cnt,
    num,
    text,
)
from elsewhere.report.page.figures import Specs, pictures
from elsewhere.report.page.labels import label, task_units
from elsewhere.report.page.numbers import as_float, number
from elsewhere.report.result.answered import without_score
from elsewhere.report.result.generic import generic_blocks
from elsewhere.report.result.prepare import Prepared

_OUTCOMES = (
    ("scored", "scored", ""),
    ("missing", "no prediction", "worst value, and counted"),
    ("invalid", "invalid prediction", "worst value, and counted"),
    ("not_analysable", "could not be analysed", "an outcome of its own"),
    ("undefined", "value undefined", "counted with its reason"),
    ("without_boxes", "without any box", "missing, or nothing found: the file does not show which"),
    ("extra", "predictions of unknown cases", "not in the cohort"),
)


def who(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about who was tested.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without cases.
    """
    counts = data.part("counts")
    steps = [s for s in data.rows("flow") if isinstance(s, dict)]
    if not counts and not steps:
        return None
    outcomes = [
        {"n": counts[key], "name": name, "why": why}
        for key, name, why in _OUTCOMES
        if as_float(counts.get(key)) or (key == "scored" and counts.get(key) is not None)
    ]
    if not steps and not outcomes:
        return None
    known = {key for key, _, _ in _OUTCOMES} | {"cases", "patients", "positives"}
    rest = [(label(k), cnt(v)) for k, v in counts.items() if k not in known and as_float(v)]
    blocks: list[Any] = [FlowChart(steps=steps, outcomes=outcomes)]
    if rest:
        blocks.append(Facts(items=rest))
    words = _status_words(data)
    if words is not None:
        blocks.append(words)
    unit = task_units(data.data)
    lead = (
        f"The rows of the prediction file, and the {unit} of the cohort. Each step is the one before it less what is "
        "lost there, with the reason."
    )
    return Section(id="who", title="Who was tested", short="Who was tested", lead=lead, blocks=blocks)


def _status_words(data: Prepared) -> Table | None:
    """List every value of the predictions' status column and how it was read: it may decide a verdict."""
    words = [w for w in data.part("score_extras").get("status_words") or [] if isinstance(w, dict)]
    if not words:
        return None
    return Table(
        name="status_words",
        caption="Status words of the prediction file",
        columns=["Word", "Rows", "With a score", "What was done"],
        rows=[
            [text(w.get("word")), cnt(w.get("rows")), cnt(w.get("rows_with_a_score")), text(w.get("meaning"))]
            for w in words
        ],
        note="Declare an unknown status value with --failed-status if it means that the case could not be analysed.",
    )


def case_mix(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about the case mix of the sites.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where it is not known.
    """
    part = data.part("case_mix")
    if not part:
        return None
    known = {
        v: e
        for v, e in part.items()
        if isinstance(e, dict) and (isinstance(e.get("levels"), dict) or isinstance(e.get("here"), dict))
    }
    blocks: list[Any] = []
    drawn = pictures(specs, "case-mix-")
    if drawn:
        blocks.append(Pair(pictures=drawn))
    rows: list[list[Cell]] = []
    for variable, entry in known.items():
        levels = entry.get("levels")
        smd = num(entry.get("smd")) if as_float(entry.get("smd")) is not None else BLANK
        if isinstance(levels, dict):
            rows.append([text(label(variable)), BLANK, BLANK, smd])
            for level, counts in levels.items():
                sides = counts if isinstance(counts, dict) else {"here": counts}
                rows.append(
                    [text(level, kind="indent"), cnt(sides.get("reference")), cnt(sides.get("here")), BLANK]
                )
        else:
            rows.append(
                [text(label(variable)), _spread(entry.get("reference")), _spread(entry.get("here")), smd]
            )
    if rows:
        columns = ["Attribute", "Reference", "Here", "Standardised difference"]
        if not any(row[3].text for row in rows):
            columns, rows = columns[:3], [row[:3] for row in rows]
        note = "Above about 0.1 in size, the two populations differ in this attribute."
        blocks.append(Table(name="case-mix", caption="Case mix", columns=columns, rows=rows, note=note))
    blocks += generic_blocks({k: v for k, v in part.items() if k not in known}, "case_mix")
    source = data.data.get("case_mix_reference")
    lead = "A drop may come from the model or from the patients: how the patients here differ from those of the reference."
    lead += f" Reference: {source}." if isinstance(source, str) else ""
    return Section(id="case-mix", title="Shift of the case mix", short="Case mix", lead=lead, blocks=blocks)


def _spread(side: Any) -> Cell:
    if not isinstance(side, dict):
        return num(side) if as_float(side) is not None else BLANK
    spread = f"± {number(side['sd'], 2)}" if as_float(side.get("sd")) is not None else ""
    missing = f"{number(side['missing'])} missing" if as_float(side.get("missing")) else ""
    mean = side.get("mean", side.get("value", side.get("share")))
    return num(mean, sub=", ".join(s for s in (spread, missing) if s))


def worst_cases(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about the cases that went worst.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where it is not known.
    """
    rows = [r for r in data.rows("worst_cases") if isinstance(r, dict)]
    if not rows:
        return None
    columns = list(dict.fromkeys(k for r in rows for k in r))
    body = [
        [
            text(r.get(c), kind="code")
            if c == "case"
            else num(r[c])
            if as_float(r.get(c)) is not None
            else text(r.get(c))
            for c in columns
        ]
        for r in rows
    ]
    table = Table(name="worst-cases", caption="Worst first", columns=[label(c) for c in columns], rows=body)
    lead = "Cases are named by salted hashes. The key file in the result folder resolves them; it stays in the hospital."
    unscored = without_score(data.part("counts"))
    if unscored:
        lead += f" Chosen among the answered cases: {cnt(unscored).text} without a usable score are counted apart."
    return Section(id="worst-cases", title="The worst cases", short="Worst cases", lead=lead, blocks=[table])
