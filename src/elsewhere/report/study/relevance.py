"""The section on relevance maps: how much of a map's relevance lies in the lesion (US-23)."""

from __future__ import annotations

from typing import Any

from elsewhere.report.page.blocks import Heading, Note, Pair, Picture, Section, Table, cnt, num, pct, text
from elsewhere.report.page.numbers import count
from elsewhere.report.study.cells import sentence
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.pictures import RunMaps, map_name
from elsewhere.report.study.registry import section


@section("relevance", place="cases")
def relevance(page: StudyPage) -> Section | None:
    """Show relevance maps of the runs with saved weights, where pictures were asked for (US-23).

    Args:
        page: The page of one task.

    Returns:
        The section; None where the page has no maps of the task.
    """
    runs = [run for run in page.pictures.maps if run.task == page.task]
    if not runs:
        return None
    blocks: list[Any] = [_numbers(page, runs)]
    for run in runs:
        check = run.summary["sanity"]
        blocks.append(Heading(text=run.name))
        if not check["passed"]:
            blocks.append(
                Note(text=f"The sanity check failed: {check['reason']}. Do not read these maps.", tone="warn")
            )
        blocks += [Note(text=sentence(warning), tone="warn") for warning in run.summary["warnings"]]
        blocks.append(
            Pair(
                pictures=[
                    Picture(name=map_name(run, number), caption=caption, alt=caption)
                    for number, (caption, _) in enumerate(run.pictures)
                ]
            )
        )
    if page.pictures.runs_left:
        left = count(page.pictures.runs_left)
        blocks.append(
            Note(text=f"{left} more runs have saved weights: `elsewhere explain` draws their maps.")
        )
    return page.section(
        "relevance",
        "Relevance maps",
        blocks,
        lead="Grad-CAM for a CNN, occlusion for a transformer; first seed. The cases are chosen by rule: the most certain right "
        "and the most certain wrong answer on a lesion of each class. The maps show pixels of patients.",
    )


def _numbers(page: StudyPage, runs: list[RunMaps]) -> Table:
    cells = [
        [
            text(run.name, sub=run.summary["method"]),
            cnt(run.summary["with_region"]),
            pct(run.summary["share_inside"], 0),
            pct(run.summary["area_inside"], 0),
            pct(run.summary["hits"], 0),
            num(run.summary["sanity"]["rank_correlation"], 2),
            text("passed" if run.summary["sanity"]["passed"] else "failed"),
        ]
        for run in runs
    ]
    return Table(
        name=page.name("relevance"),
        caption="Share of the relevance that lies in the lesion",
        columns=[
            "Run",
            "Cases",
            "Relevance inside",
            "Lesion's share of the input",
            "Largest value inside",
            "Correlation with random weights",
            "Sanity check",
        ],
        rows=cells,
        note="A map without information has as much relevance inside as the lesion covers. Correlation: rank correlation with the "
        "maps of networks with random weights; from 0.5 the check fails. Flat maps have no share and are not counted. A map "
        "shows what changed one answer of one network; it is no evidence that the answer is right.",
    )
