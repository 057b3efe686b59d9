"""The first page of a recipe study's report: for each task, the best recipe at home and elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.blocks import Cell, cnt, num
from elsewhere.report.page.numbers import MINUS, as_float, count, full_interval, interval, number, signed
from elsewhere.report.result.first_page import MOST_WARNINGS, WORDS, FirstPage, Grade
from elsewhere.study.recipe_figures import METRIC_WORDS
from elsewhere.study.recipe_report_board import TASK_WORDS
from elsewhere.study.report_first import GRADES, QUESTION
from elsewhere.study.report_sections import rows_of

if TYPE_CHECKING:
    from elsewhere.study.recipe_analysis import RecipeSummary


def first_page(summary: RecipeSummary, *, title: str | None, warnings: list[str]) -> FirstPage:
    head = summary.headline
    cards = [_card(task, told) for task, told in head["tasks"].items()]
    tones = {c["tone"] for c in cards}
    return FirstPage(
        title=title or f"Elsewhere: {summary.name}",
        question=title or QUESTION,
        masthead=[
            f"Study {summary.name}",
            f"{count(head['datasets'])} datasets, {count(head['recipes'])} recipes",
            f"{count(head['runs'])} of {count(head['planned'])} runs",
        ],
        word="",
        tone=tones.pop() if len(tones) == 1 else "none",
        plain="",
        sentence="",
        badges=[],
        facts=[],
        claims=None,
        figures=[
            ("Patients", cnt(head["patients"])),
            ("Datasets", cnt(head["datasets"])),
            ("Recipes", cnt(head["recipes"])),
            ("Trainings", cnt(summary.provenance.get("trainings"))),
            ("Runs", cnt(head["runs"])),
        ],
        hero=None,
        grades=_grades(summary),
        alarms=[],
        warnings=warnings[:MOST_WARNINGS],
        more_warnings=max(0, len(warnings) - MOST_WARNINGS),
        extra={"cards": cards},
    )


def _card(task: str, told: Mapping[str, Any]) -> dict[str, Any]:
    word = str(told.get("word") or "")
    tone, plain = WORDS.get(word, ("none", ""))
    if word == "BELOW":
        plain = "It works less well elsewhere than at home."
    elif word == "ABOVE":
        plain = "It works better elsewhere than at home."
    elif word in ("", "NOT ASSESSED"):
        plain = f"{told['best']} leads{_tied(told)}."
    if told.get("too_few"):
        plain = f"Too few to say: {told['too_few']}."
    return {
        "title": TASK_WORDS[task],
        "word": word,
        "tone": tone,
        "plain": plain,
        "numbers": _numbers(told),
        "lines": [line for line in _lines(task, told) if line],
    }


def _tied(told: Mapping[str, Any]) -> str:
    more = int(told.get("tied") or 1) - 1
    return f", {more} other{'s' if more > 1 else ''} not surely worse" if more > 0 else ""


def _numbers(told: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    metric = METRIC_WORDS[told["metric"]]
    if told.get("too_few"):
        return [(metric, Cell(text="too few patients", sub=str(told["too_few"])))]
    score = METRIC_WORDS.get(told["ranked_by"], told["ranked_by"])
    ends = {"value": told["score"], "lo": as_float(told["score_lo"]), "hi": as_float(told["score_hi"])}
    out = [
        (
            score,
            Cell(text=number(told["score"]), sub=interval(ends), title=full_interval(ends), kind="number"),
        )
    ]
    if as_float(told.get("difference")) is not None:
        ends = {"value": told["difference"], "lo": as_float(told["lo"]), "hi": as_float(told["hi"])}
        change = Cell(
            text=signed(told["difference"]),
            sub=interval(ends, sign=True),
            title=full_interval(ends),
            kind="number",
        )
        return [
            (f"{metric} at home", num(told["home"])),
            (f"{metric} elsewhere", num(told["elsewhere"])),
            (f"Elsewhere {MINUS} home", change),
            *out,
        ]
    ends = {"value": told["value"], "lo": as_float(told["value_lo"]), "hi": as_float(told["value_hi"])}
    here = Cell(text=number(told["value"]), sub=interval(ends), title=full_interval(ends), kind="number")
    return [(metric, here), *out]


def _lines(task: str, told: Mapping[str, Any]) -> list[str]:
    lines = [f"Board: {told['words']}."]
    if told.get("word") not in ("", "NOT ASSESSED", None):
        lines = [f"{told['best']} leads{_tied(told)} ({told['words']})."]
    if "beats_chance" in told:
        found = told["beats_chance"]
        lines.append(
            f"Surely better than a coin, after Holm: {', '.join(found)}."
            if found
            else "No recipe is surely better than a coin, after Holm."
        )
    reason = str(told.get("reason") or "")
    if told.get("word") == "NOT ASSESSED" and reason:
        lines.append(f"No word: {reason}.")
    elif as_float(told.get("margin")) is not None and told.get("word"):
        lines.append(
            f"Margin ±{number(told['margin'])}, declared in the study file; the 90 % interval over datasets is held against it."
        )
    elif as_float(told.get("difference")) is None and reason:
        lines.append(f"A drop cannot be told: {reason}.")
    elif reason:
        lines.append("No margin is declared, so there is no verdict.")
    each = told.get("words_of_each") or {}
    if each:
        lines.append(
            f"{told['comparisons']} comparison{'s' if told['comparisons'] != 1 else ''} by themselves, over patients: "
            + ", ".join(f"{n} {w}" for w, n in each.items())
            + "."
        )
    if told.get("worst"):
        worst = told["worst"]
        lines.append(f"Worst: {worst['where']}, {signed(worst['difference'])} against home.")
    if told.get("lowest"):
        low, high = told["lowest"], told["highest"]
        lines.append(
            f"Lowest at {low['where']} ({number(low['value'])}), highest at {high['where']} ({number(high['value'])})."
        )
    lines.append(_seen(told))
    return lines


def _seen(told: Mapping[str, Any]) -> str:
    """What this evidence could have seen."""
    low, high = told.get("smallest_drop") or (None, None)
    blind, places = int(told.get("blind") or 0), int(told.get("places") or 0)
    if as_float(low) is None or as_float(high) is None:
        floor = f"not even a fall to {number(told.get('floor'), 1)} would be found with 80 % power at 5 %"
        return f"What it could have seen: none; {floor}." if blind else ""
    span = number(low) if low == high else f"{number(low)} at the best place and {number(high)} at the worst"
    rest = f"; at {count(blind)} of {count(places)} places none" if blind else ""
    return f"What it could have seen: a drop of {span}, with 80 % power at 5 %{rest}."


def _grades(summary: RecipeSummary) -> list[Grade]:
    return [
        Grade(
            dataset=str(r["dataset"]),
            grade=str(r["id_grade"] or "?"),
            meaning=GRADES.get(str(r["id_grade"]), ""),
            why=str(r["id_grade_why"] or ""),
        )
        for r in rows_of(summary.of("datasets"))
    ]
