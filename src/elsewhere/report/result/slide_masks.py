"""Masks of slides against the annotation: Dice near the drawn line and away from it, false positives, lesions (LN-14, LN-26)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.privacy import suppress_counts, suppress_rows
from elsewhere.report.page.blocks import Cell, Note, Pair, Section, Table, cnt, num, text
from elsewhere.report.page.figures import FigureSpec, Specs, picture
from elsewhere.report.page.labels import label
from elsewhere.report.page.numbers import as_float, interval, number, value_with_interval
from elsewhere.report.result import plots
from elsewhere.report.result.prepare import Prepared
from elsewhere.report.result.slide_plots import recall_by_diameter

Row = Mapping[str, Any]
_DICE = {
    "slide_dice": "All of the slide",
    "slide_dice_within_line": "Near the line",
    "slide_dice_beyond_line": "Away from the line",
}
_RATES = {
    "slide_false_positive_rate": "Over all pixels",
    "slide_false_positive_rate_tissue": "Over tissue",
}


def recall_rows(data: Prepared) -> list[dict[str, Any]]:
    """Read lesion recall by diameter as it may be shown: a class of one to four lesions is withheld.

    Args:
        data: The summary as it may be printed.

    Returns:
        The rows, from the smallest diameter.
    """
    rows = data.part("slide_masks").get("lesion_recall_by_diameter")
    known = [dict(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    shown = suppress_counts({str(k): row.get("lesions") for k, row in enumerate(known)})
    for k, row in enumerate(known):
        if isinstance(shown[str(k)], str):
            row |= {"lesions": shown[str(k)], "found": None, "recall": None, "lo": None, "hi": None}
    return known


def slide_mask_figures(data: Prepared) -> list[FigureSpec]:
    """List the figures of masks of slides.

    Args:
        data: The summary as it may be printed.

    Returns:
        Recall by diameter, Dice by distance from the line, false-positive rates; those that have numbers.
    """
    rows = recall_rows(data)
    if not rows:
        return []
    specs = []
    if any(as_float(row.get("recall")) is not None for row in rows):
        spoken = "; ".join(
            f"{row.get('diameter')}: {number(row.get('recall'))} of {row.get('lesions')}" for row in rows
        )
        specs.append(
            FigureSpec(
                name="slide-recall",
                title="Lesions that the mask finds, by diameter",
                alt=f"Share of lesions found by diameter. {spoken}.",
                build=lambda pal: recall_by_diameter(rows, pal),
            )
        )
    for name, title, wanted in (
        ("slide-dice", "Dice of slides with tumour", _DICE),
        ("slide-false-positives", "False-positive rate of slides without tumour", _RATES),
    ):
        lines = _lines(data, wanted)
        if lines:
            specs.append(_forest(name, title, lines))
    return specs


def _forest(name: str, title: str, lines: list[tuple[str, Row, Any]]) -> FigureSpec:
    return FigureSpec(
        name=name,
        title=title,
        alt=f"{title}. {'; '.join(f'{words}: {value_with_interval(entry)}' for words, entry, _ in lines)}.",
        build=lambda pal: plots.forest([("", lines)], pal, axis_label=title.split(" of ")[0]),
    )


def _lines(data: Prepared, wanted: Mapping[str, str]) -> list[tuple[str, Row, Any]]:
    metrics = data.part("metrics")
    return [
        (words, metrics[name], None)
        for name, words in wanted.items()
        if isinstance(metrics.get(name), dict) and as_float(metrics[name].get("value")) is not None
    ]


def slide_masks(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about masks of slides.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where no masks were scored.
    """
    rows = recall_rows(data)
    if not rows:
        return None
    drawn = [
        p
        for name in ("slide-recall", "slide-dice", "slide-false-positives")
        if (p := picture(specs, name)) is not None
    ]
    blocks: list[Any] = [Pair(pictures=drawn)] if drawn else []
    blocks.append(
        Table(
            name="slide-recall",
            caption="Lesions that the mask finds, by diameter",
            columns=["Diameter", "Lesions", "Found", "Share found"],
            rows=[
                [
                    text(row.get("diameter")),
                    cnt(row.get("lesions")),
                    cnt(row.get("found")),
                    Cell(text=number(row.get("recall")), sub=interval(row), kind="number"),
                ]
                for row in rows
            ],
            note="A lesion is found where the prediction touches it. Diameter: the axis by which the stage is told. The 95 % "
            "intervals count lesions of one patient as dependent.",
        )
    )
    stages = data.part("slide_masks").get("slide_scores_by_stage")
    if isinstance(stages, dict) and stages:
        blocks.append(_by_stage(stages))
    metrics = data.part("metrics")
    near, away = (
        as_float((metrics.get(name) or {}).get("value"))
        for name in ("slide_dice_within_line", "slide_dice_beyond_line")
    )
    if near is not None and away is not None and away - near > 0.1:
        blocks.append(
            Note(
                text=f"Dice is {number(near)} near the annotated line and {number(away)} away from it: a good part of the "
                "disagreement lies where annotators differ too."
            )
        )
    line = as_float(data.part("slide_masks").get("boundary_um"))
    band = f"within {line:g} µm of it" if line is not None else "within the protocol's distance of it"
    return Section(
        id="slide-masks",
        title="Masks against the annotation",
        short="Masks",
        lead=f"Near the annotated line means {band}. The rate over all pixels falls with how much glass was scanned; the rate "
        "over tissue does not.",
        blocks=blocks,
    )


def _by_stage(stages: Mapping[str, Any]) -> Table:
    shown, _ = suppress_rows(stages)
    names = [
        name
        for name in (*_DICE, *_RATES)
        if any(name in (row.get("metrics") or {}) for row in shown.values())
    ]
    words = {**_DICE, **_RATES}
    kinds = {name: "Dice" if name in _DICE else "False positives" for name in names}
    return Table(
        name="slide-stages",
        caption="Mean (SD) over the slides of each true stage",
        columns=[
            "Stage",
            "Slides",
            *(f"{kinds[name]}, {words[name][0].lower()}{words[name][1:]}" for name in names),
        ],
        rows=[
            [
                text("ITC" if stage == "itc" else label(stage)),
                cnt(row.get("cases")),
                *(_mean((row.get("metrics") or {}).get(name), name) for name in names),
            ]
            for stage, row in shown.items()
        ],
        stacked=True,
        note="Scored in groups of the column stage, every metric of each stage has its interval.",
    )


def _mean(entry: Any, name: str) -> Cell:
    if not isinstance(entry, dict):
        return text("")
    digits = 3 if name in _DICE else 4
    sd = as_float(entry.get("sd"))
    return num(entry.get("value"), digits, sub="" if sd is None else f"({number(sd, digits)})")
