"""The first page of a study's report: for each task, the result at other hospitals and the verdict.

Every verdict comes with the margin and its source, the protocol with its version, and the smallest drop
that the comparisons could have detected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.analysis.study.transfers import SOURCES_NEEDED
from elsewhere.report.page.blocks import Cell, cnt, num
from elsewhere.report.page.numbers import MINUS, as_float, count, full_interval, interval, number, signed
from elsewhere.report.result.first_page import ID_GRADES, MOST_WARNINGS, WORDS, FirstPage, Grade
from elsewhere.report.study.cells import (
    joined,
    kind_label,
    metric_label,
    plural,
    rows_of,
    sentence,
    task_label,
)
from elsewhere.report.study.page import StudyPage

QUESTION = "Does it still work elsewhere?"
_INTERVAL_POSITION = {
    "EQUIVALENT": "lies inside the margin",
    "BELOW": "lies below the margin",
    "ABOVE": "lies above the margin",
    "INCONCLUSIVE": "is neither inside nor beyond the margin",
}
_PLAIN = {
    "BELOW": "It works less well at other hospitals.",
    "ABOVE": "It works better at other hospitals.",
}
_UNSETTLED = ("", "NOT ASSESSED")
Numbers = list[tuple[str, Cell]]


def first_page(page: StudyPage, *, drawn: Mapping[str, str], title: str | None) -> FirstPage:
    """Write the first page.

    Args:
        page: The page of the whole study.
        drawn: The figures as elements of the page, by name.
        title: A title; None for the study's name.

    Returns:
        What the template prints above the sections.
    """
    head = page.summary.headline
    cards = [_card(page, task, headline, drawn) for task, headline in head["tasks"].items()]
    tones = {card["tone"] for card in cards}
    warnings = page.warnings()
    return FirstPage(
        title=title or f"Elsewhere: {page.summary.name}",
        question=title or QUESTION,
        masthead=_masthead(head),
        word="",
        tone=tones.pop() if len(tones) == 1 else "none",
        plain="",
        sentence="",
        badges=[],
        facts=[],
        claims=None,
        figures=_figures(page),
        hero=None,
        grades=_grades(page),
        alarms=_alarms(head),
        warnings=warnings[:MOST_WARNINGS],
        more_warnings=max(0, len(warnings) - MOST_WARNINGS),
        extra={"cards": cards},
    )


def _masthead(head: Mapping[str, Any]) -> list[str]:
    parts = [
        f"Study {head['study']}",
        f"{count(head['datasets'])} datasets, {count(head['methods'])} methods",
        f"{count(head['runs'])} of {count(head['planned'])} runs",
    ]
    return [*parts, "every picture counts as a patient"] if head["ids"] == "image" else parts


def _figures(page: StudyPage) -> Numbers:
    head = page.summary.headline
    found = [
        ("Patients", cnt(head["patients"])),
        ("Cases", cnt(head["cases"])),
        ("Datasets", cnt(head["datasets"])),
        ("Methods", cnt(head["methods"])),
        ("Scenarios", cnt(head["scenarios"])),
        *(
            [("Scenarios to choose by", cnt(head["choosing_scenarios"]))]
            if head["choosing_scenarios"]
            else []
        ),
        ("Trainings", cnt(_trained(page))),
        ("Runs", cnt(head["runs"])),
    ]
    return [*found, ("Runs that failed", cnt(head["failed"]))] if head["failed"] else found


def _trained(page: StudyPage) -> Any:
    """Count the trainings that are done; the study may name more."""
    devices = page.summary.provenance.get("devices")
    done = sum(devices.values()) if isinstance(devices, Mapping) else 0
    return done or page.summary.provenance.get("trainings")


def _grades(page: StudyPage) -> list[Grade]:
    return [
        Grade(
            dataset=str(row["dataset"]),
            grade=str(row["id_grade"] or "?"),
            meaning=ID_GRADES.get(str(row["id_grade"]), ""),
            why=page.redact.text(str(row["id_grade_why"] or "")),
        )
        for row in rows_of(page.of("datasets"))
    ]


def _alarms(head: Mapping[str, Any]) -> list[str]:
    if not head.get("leaked_runs"):
        return []
    return [
        f"In {count(head['leaked_runs'])} runs a patient, or patients linked by near-duplicates, are both in the "
        "validation part and in the test part: the numbers of these runs are too good."
    ]


def _card(page: StudyPage, task: str, told: Mapping[str, Any], drawn: Mapping[str, str]) -> dict[str, Any]:
    verdict = str(told.get("verdict") or "")
    tone, plain = WORDS.get(verdict, ("none", ""))
    plain = _PLAIN.get(verdict, plain)
    if verdict in _UNSETTLED:
        plain = _without_verdict(page, told)
    if told.get("too_few"):
        plain = f"Too few to say: {told['too_few']}."
    return {
        "title": task_label(task),
        "word": verdict,
        "tone": tone,
        "plain": plain,
        "numbers": _numbers(told),
        "lines": [line for line in _lines(page, told) if line],
        "figure": drawn.get(f"{task}-drop", "")
        .replace(f'"{task}-drop-', f'"first-{task}-drop-')
        .replace(f"#{task}-drop-", f"#first-{task}-drop-"),
        "caption": page.specs[f"{task}-drop"].title if f"{task}-drop" in page.specs else "",
    }


def _without_verdict(page: StudyPage, told: Mapping[str, Any]) -> str:
    """Say in one sentence, where there is no verdict, how large the drop is or who leads."""
    if as_float(told.get("difference")) is not None:
        return _change(told)
    return f"{page.method(told['best'])} leads{_tied(told)}."


def _change(told: Mapping[str, Any]) -> str:
    internal, external = as_float(told.get("internal")), as_float(told.get("external"))
    if internal is None or external is None:
        return ""
    if number(internal) == number(external):
        return f"{metric_label(told['metric'])} stays at {number(internal)}."
    verb = "falls" if external < internal else "rises"
    return f"{metric_label(told['metric'])} {verb} from {number(internal)} internally to {number(external)} externally."


def _tied(told: Mapping[str, Any]) -> str:
    more = int(told.get("tied") or 1) - 1
    if more <= 0:
        return ""
    return f"; {more} other method{'s are' if more > 1 else ' is'} not clearly worse"


def _entry(told: Mapping[str, Any], value: str, lo: str, hi: str) -> dict[str, Any]:
    return {"value": told.get(value), "lo": as_float(told.get(lo)), "hi": as_float(told.get(hi))}


def _cell(entry: Mapping[str, Any], *, sign: bool = False, more: str = "") -> Cell:
    shown = signed(entry["value"]) if sign else number(entry["value"])
    return Cell(text=shown, sub=interval(entry, sign=sign) + more, title=full_interval(entry), kind="number")


def _numbers(told: Mapping[str, Any]) -> Numbers:
    metric = metric_label(told["metric"])
    if told.get("too_few"):
        return [(metric, Cell(text="too few patients", sub=str(told["too_few"])))]
    found: Numbers = []
    if as_float(told.get("difference")) is not None:
        spread = ", spread" if int(told.get("datasets") or 0) < SOURCES_NEEDED else ", 95 %"
        ends = _entry(told, "difference", "lo", "hi")
        found += [
            (f"{metric}, internal", num(told["internal"])),
            (f"{metric}, external", num(told["external"])),
            (
                f"External {MINUS} internal",
                _cell(ends, sign=True, more=spread if as_float(told.get("lo")) is not None else ""),
            ),
        ]
    elif as_float(told.get("chosen")) is not None:
        found.append(
            (f"{metric} at hospitals left out", _cell(_entry(told, "chosen", "chosen_lo", "chosen_hi")))
        )
    elif told.get("found_boxes"):
        ends = _entry(told["found_boxes"], "difference", "lo", "hi")
        found.append((f"{metric}, found {MINUS} annotated boxes", _cell(ends, sign=True)))
    else:
        found.append((metric, _cell(_entry(told, "value", "value_lo", "value_hi"))))
    if told["ranked_by"] != told["metric"]:
        ends = _entry(told, "score", "score_lo", "score_hi")
        found.append((f"{metric_label(told['ranked_by'])}, best method", _cell(ends)))
    return [*found, *_conditions(told)]


def _conditions(told: Mapping[str, Any]) -> Numbers:
    """List the margin, the smallest detectable drop and the protocol: they go with every verdict."""
    margin = as_float(told.get("margin"))
    low, high = told.get("smallest_detectable_drop") or (None, None)
    detectable = Cell(text="none" if told.get("detecting_none") else "—", sub="80 % power at 5 %")
    if as_float(low) is not None:
        shown = number(low) if low == high else f"{number(low)} to {number(high)}"
        detectable = Cell(text=shown, sub="80 % power at 5 %", kind="number")
    return [
        (
            "Margin",
            Cell(text="none declared")
            if margin is None
            else Cell(text=f"±{number(margin)}", sub="declared in the study file", kind="number"),
        ),
        ("Smallest detectable drop", detectable),
        ("Protocol", Cell(text=str(told["protocol"]), sub=f"version {told['protocol_version']}")),
    ]


def _lines(page: StudyPage, told: Mapping[str, Any]) -> list[str]:
    verdict, reason = str(told.get("verdict") or ""), str(told.get("reason") or "")
    lines: list[str] = []
    if verdict in _INTERVAL_POSITION:
        ends = {"lo": told.get("lo90"), "hi": told.get("hi90")}
        lines.append(
            f"{_change(told)} The 90 % interval of the difference over {told['datasets']} datasets, "
            f"{interval(ends, sign=True)}, {_INTERVAL_POSITION[verdict]}."
        )
        if told.get("changes_at") is not None and told.get("changes_to"):
            lines.append(
                f"The verdict changes to {told['changes_to']} at a margin of {number(told['changes_at'])}."
            )
    elif verdict == "NOT ASSESSED":
        lines.append(f"There is no verdict: {reason}.")
    elif as_float(told.get("difference")) is None and reason:
        lines.append(f"A drop cannot be estimated: {reason}.")
    else:
        lines.append("The study declares no margin, so there is no verdict." + _with_a_margin(told))
        if reason:
            lines.append(sentence(reason))
    lines += [
        _over(told),
        *_each(page, told),
        _leader(page, told),
        *_chance(page, told),
        *_places(told),
        *_chosen(told),
    ]
    return lines


def _over(told: Mapping[str, Any]) -> str:
    if as_float(told.get("difference")) is None:
        return ""
    low, high = told.get("without_one") or (None, None)
    left_out = ""
    if as_float(low) is not None:
        left_out = f" Without one dataset it lies between {signed(low)} and {signed(high)}."
    return (
        f"The difference is the mean over {plural(told['datasets'], 'dataset')} and "
        f"{plural(told['comparisons'], 'comparison')} ({kind_label(told['kind'])}).{left_out}"
    )


def _with_a_margin(told: Mapping[str, Any]) -> str:
    """Say what a margin would have given, where it could have given anything."""
    low, high = as_float(told.get("one_sided_below_margin")), as_float(told.get("equivalent_from"))
    if high is None:
        return ""
    if low is None:
        return f" A margin above {number(high)}, declared in advance, would have given EQUIVALENT; a smaller one INCONCLUSIVE."
    return (
        f" Declared in advance, a margin below {number(low)} would have given {told.get('one_sided_verdict')}, one above "
        f"{number(high)} EQUIVALENT, and one between them INCONCLUSIVE."
    )


def _each(page: StudyPage, told: Mapping[str, Any]) -> list[str]:
    lines = []
    verdicts = told.get("verdicts") or {}
    if verdicts:
        shown = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items())
        lines.append(f"Each comparison by itself, over patients: {shown}.")
    worst = told.get("worst")
    if worst and float(worst["difference"]) < 0:
        lines.append(
            f"The largest drop is {signed(worst['difference'])}, at {worst['where']} ({page.method(worst['method'])})."
        )
    blind = int(told.get("detecting_none") or 0)
    if blind:
        lines.append(
            f"In {count(blind)} of {count(told['compared'])} comparisons not even a fall to "
            f"{number(told.get('floor'), 1)} would have been detected."
        )
    return lines


def _leader(page: StudyPage, told: Mapping[str, Any]) -> str:
    return f"{page.method(told['best'])} leads{_tied(told)} ({told['label']})."


def _chance(page: StudyPage, told: Mapping[str, Any]) -> list[str]:
    if "beats_chance" not in told:
        return []
    found = [page.method(name) for name in told["beats_chance"]]
    if not found:
        return ["No method is better than chance after Holm's correction."]
    return [f"Better than chance after Holm's correction: {joined(found)}."]


def _places(told: Mapping[str, Any]) -> list[str]:
    if not told.get("lowest"):
        return []
    low, high = told["lowest"], told["highest"]
    return [
        f"Lowest at {low['where']} ({number(low['value'])}), highest at {high['where']} ({number(high['value'])})."
    ]


def _chosen(told: Mapping[str, Any]) -> list[str]:
    if as_float(told.get("chosen")) is None:
        return []
    plain = as_float(told.get("chosen_without_outline"))
    more = (
        ""
        if plain is None
        else f" Some candidates see the lesion's outline as a person drew it; without these it is {number(plain)}."
    )
    return [
        f"Chosen on the sources alone, the method reaches {number(told['chosen'])} on average at "
        f"{count(told['chosen_targets'])} hospitals, each left out of everything.{more}"
    ]
