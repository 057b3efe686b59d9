"""The section that shows the hardest lesions and the highest-scoring false positives in their slices."""

from __future__ import annotations

from collections.abc import Sequence

from elsewhere.analysis.result.pictured import (
    TRUTH,
    DrawnBox,
    ModelLine,
    PicturedDetections,
    PicturedPlace,
)
from elsewhere.report.page.blocks import Note, Section
from elsewhere.report.page.numbers import number
from elsewhere.report.page.strips import LOW, TRUTH_COLOUR, StripBox, StripView, StripViewer, colour_of

MOST_MODELS_WITH_LOW_BOXES = 4
"""Of more models, boxes below the thresholds are hidden at first: they would cover the slice."""
_TRUTH = "truth"


def pictures_section(pictured: PicturedDetections) -> Section | None:
    """Make the section of pictured detections.

    Args:
        pictured: The pictures as they may be shown: `PicturedDetections.shared`.

    Returns:
        The section, or None without any picture and any note.
    """
    if not pictured.places and not pictured.notes:
        return None
    layers = [(_TRUTH, "", "Annotated lesion", TRUTH_COLOUR)]
    layers += [(str(k), str(k + 1), name, colour_of(k)) for k, name in enumerate(pictured.models)]
    low = any(not box.full for one in pictured.places for box in one.boxes)
    off = (LOW,) if low and len(pictured.models) > MOST_MODELS_WITH_LOW_BOXES else ()
    if low:
        layers.append((LOW, "", "Boxes below their model's threshold", "transparent"))
    groups = [
        (heading, [_view(pictured, one, hide_low=bool(off)) for one in places])
        for heading, places in (
            ("Hardest lesions", pictured.lesions),
            ("Highest-scoring false positives", pictured.false_positives),
        )
        if places
    ]
    blocks: list[object] = []
    if pictured.bytes:
        blocks.append(
            Note(
                text=f"This page holds parts of patients' images ({_size(pictured.bytes)}). Share it only where you may share "
                "the images.",
                tone="warn",
            )
        )
    blocks += [Note(text=note) for note in pictured.notes]
    if groups:
        blocks.append(StripViewer(name="detections", layers=layers, groups=groups, off=off))
    lead = (
        "Each strip can be scrolled by the arrow keys, the buttons or the slider. What it is about has a thick line. The annotation is dashed on slices other "
        f"than the annotated one. Boxes below a model's threshold of {pictured.budget:g} false positives per volume are dashed. "
        "Slices are numbered from 0. case_key.csv, which stays with the data, says which case a number is."
    )
    return Section(
        id="pictures",
        title="Lesions and false positives in their slices",
        short="Pictures",
        lead=lead,
        blocks=blocks,
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.0f} kB"


def _view(pictured: PicturedDetections, one: PicturedPlace, *, hide_low: bool) -> StripView:
    return StripView(
        name=one.title.lower().replace(" ", "-"),
        title=f"{one.title} ({one.volume})",
        facts=", ".join([*one.facts, *([f"{one.depth} slices"] if one.depth > 1 else [])]),
        slices=one.slices,
        first=one.first,
        start=one.start,
        depth=one.depth,
        size=one.size,
        boxes=[_box(box, hide_low=hide_low) for box in _lowest_first(one.boxes)],
        lines=[_line(pictured, line) for line in one.models],
        problem=f"No pictures: {one.problem}" if one.problem else "",
    )


def _lowest_first(boxes: Sequence[DrawnBox]) -> list[DrawnBox]:
    """The annotation first, then rising scores, and what the strip is about last: later ones are drawn above."""
    return sorted(boxes, key=lambda box: (box.subject, box.model != TRUTH, box.full, box.score or 0.0))


def _box(box: DrawnBox, *, hide_low: bool) -> StripBox:
    truth = box.model == TRUTH
    return StripBox(
        layer=_TRUTH if truth else str(box.model),
        x=box.x,
        y=box.y,
        width=box.width,
        height=box.height,
        first=box.first,
        last=box.last,
        colour=TRUTH_COLOUR if truth else colour_of(box.model),
        label="" if truth else f"{box.model + 1}: {number(box.score, 2)}",
        full=box.full or box.subject,
        hidden=hide_low and not box.full and not box.subject,
        centre=box.centre,
        subject=box.subject,
    )


def _line(pictured: PicturedDetections, line: ModelLine) -> tuple[str, str, str, str]:
    said = [line.says]
    if line.score is not None:
        said.append(f"score {number(line.score, 3)}")
    if line.first is not None and line.last is not None:
        said.append(
            f"slice {line.first}" if line.first == line.last else f"slices {line.first} to {line.last}"
        )
    if line.cost is not None:
        said.append(f"{number(line.cost, 2)} false positives per volume at this score")
    return str(line.model + 1), colour_of(line.model), pictured.models[line.model], ", ".join(said)
