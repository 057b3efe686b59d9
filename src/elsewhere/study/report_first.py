"""The first page of a study's report: does it still work elsewhere, and what to know before believing it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.blocks import Cell, cnt, num
from elsewhere.report.page.numbers import MINUS, as_float, count, full_interval, interval, number, signed
from elsewhere.report.result.first_page import MOST_WARNINGS, WORDS, FirstPage, Grade
from elsewhere.study.analysis_drop import SOURCES_NEEDED
from elsewhere.study.report_sections import rows_of

if TYPE_CHECKING:
    from elsewhere.study.analysis import StudySummary

_NAMES = re.compile(r": (\d+) \(.*\)$")
_WEIGHTY = (" runs ", " seeds", "label", "network", "same pixels", "intervals")
QUESTION = "Does it still work elsewhere?"
GRADES = {
    "A": "verified patients",
    "B": "ids finer than patients, or partly known",
    "C": "no patient ids: intervals may be too narrow",
}


def told_warnings(summary: StudySummary, clean: Callable[[str], str]) -> list[str]:
    """The study's warnings for the page: counts stay, the lists of names go (they are in `study.json`), and what
    bears on every number comes before what was odd about a file."""
    told = [clean(_NAMES.sub(r": \1", one)) for one in summary.warnings]
    ranked = sorted(told, key=lambda one: not any(word in one for word in _WEIGHTY))
    return [one[:1].upper() + one[1:] for one in ranked]


def first_page(summary: StudySummary, *, title: str | None, clean: Callable[[str], str]) -> FirstPage:
    head = summary.headline
    warnings = told_warnings(summary, clean)
    word = str(head.get("word") or "")
    told = "margin" in head and head["margin"] is not None
    tone, plain = WORDS.get(word, ("none", "")) if told else ("none", "")
    if told and word == "NOT ASSESSED" and head.get("difference") is not None:
        plain = "Too few hospitals for a word."
    elif word == "BELOW":
        plain = "It works less well elsewhere than at home."
    elif word == "ABOVE":
        plain = "It works better elsewhere than at home."
    return FirstPage(
        title=title or f"Elsewhere: {summary.name}",
        question=title or QUESTION,
        masthead=_masthead(summary),
        word=word if told else "",
        tone=tone,
        plain=plain,
        sentence=_sentence(head) if told else "",
        badges=[],
        facts=_facts(head) if told else [],
        claims=None,
        figures=_figures(summary),
        hero=None if told else _hero(summary),
        grades=_grades(summary, clean),
        alarms=_alarms(head),
        warnings=warnings[:MOST_WARNINGS],
        more_warnings=max(0, len(warnings) - MOST_WARNINGS),
    )


def _alarms(head: Mapping[str, Any]) -> list[str]:
    if not head.get("leaked_runs"):
        return []
    return [
        f"In {count(head['leaked_runs'])} runs a patient or duplicate group stands in validation and in test: "
        "their numbers are too good (US-11)."
    ]


def _masthead(summary: StudySummary) -> list[str]:
    head = summary.headline
    parts = [
        f"Study {summary.name}",
        f"{count(head['datasets'])} datasets, {count(head['scenarios'])} scenarios{_choosing(head)}",
        f"{count(head['runs'])} of {count(head['planned'])} runs",
    ]
    if summary.design.ids == "image":
        parts.append("every picture a patient")
    return parts


def _choosing(head: Mapping[str, Any]) -> str:
    more = head.get("choosing_scenarios")
    return (
        f" and {count(more)} to choose by" if more and as_float(head.get("chosen_auroc")) is not None else ""
    )


def _falls(head: Mapping[str, Any]) -> str:
    home, away = as_float(head.get("internal")), as_float(head.get("external"))
    if home is None or away is None:
        return ""
    step = "falls" if away < home else "rises"
    return f"Mean AUROC {step} from {number(home)} at home to {number(away)} elsewhere"


def _over(head: Mapping[str, Any]) -> str:
    return (
        f"each source's mean transfer less its value at home, {count(head.get('sources'))} sources and "
        f"{count(head.get('transfers'))} transfers"
    )


def _sentence(head: Mapping[str, Any]) -> str:
    because = {
        "EQUIVALENT": "lies wholly inside the margin",
        "BELOW": "lies wholly below the margin",
        "ABOVE": "lies wholly above the margin",
        "INCONCLUSIVE": "is neither wholly inside nor wholly beyond the margin",
    }.get(str(head.get("word")), "")
    if not because:
        more = f" {_falls(head)}. Each transfer below has its own word." if head.get("transfers") else ""
        return f"{_capital(head.get('reason'))}.{more}"
    ends = {"lo": head.get("lo90"), "hi": head.get("hi90")}
    return (
        f"{_falls(head)}. The 90 % interval of the difference over sources, {interval(ends, sign=True)}, "
        f"{because}, ±{number(head.get('margin'))}."
    )


def _capital(reason: Any) -> str:
    said = str(reason or "")
    return said[:1].upper() + said[1:]


def _is_spread(head: Mapping[str, Any]) -> bool:
    """Over so few sources an interval is told as what it is: how far they lie apart."""
    return (head.get("sources") or 0) < SOURCES_NEEDED


def _would(head: Mapping[str, Any]) -> str:
    """What a margin would have given, in words for a clinician; nothing where there could be no word."""
    low, high = as_float(head.get("word_below_margin")), as_float(head.get("equivalent_from"))
    if high is None:
        return ""
    if low is None:
        return (
            f" Declared in advance, a margin above {number(high)} would give EQUIVALENT. At a smaller one the "
            "study cannot tell."
        )
    return (
        f" Declared in advance, a margin below {number(low)} would give {head.get('word_below')}, one above "
        f"{number(high)} EQUIVALENT. Between them the study cannot tell."
    )


def _hero(summary: StudySummary) -> Mapping[str, str]:
    head = summary.headline
    difference = as_float(head.get("difference"))
    if difference is None and as_float(head.get("chosen_auroc")) is not None:
        return _chosen(head)
    wanted = {"what": "boxes", "kind": "external", "metric": "auroc"}
    found = [r for r in rows_of(summary.tables.get("paired")) if all(r[k] == v for k, v in wanted.items())]
    if difference is None and len(found) == 1:
        return _boxes(found[0])
    if difference is None:
        return {
            "label": "Internal against external",
            "value": "not assessed",
            "interval": "",
            "title": "",
            "method": _capital(head.get("reason")),
            "sentence": "",
            "spoken": "Not assessed",
        }
    entry = {"value": difference, "lo": head.get("lo"), "hi": head.get("hi"), "method": "t over sources"}
    shown = "A spread, no interval to judge by" if _is_spread(head) else "95 % interval over sources"
    few = f" {_capital(head.get('reason'))}." if _is_spread(head) else ""
    return {
        "label": f"AUROC elsewhere {MINUS} at home",
        "value": signed(difference),
        "interval": interval(entry, sign=True),
        "title": full_interval(entry),
        "method": f"{_falls(head)}. {shown}: {_over(head)}",
        "sentence": f"No margin is declared, so there is no verdict.{few}{_would(head)}",
        "spoken": f"AUROC elsewhere less at home {signed(difference)}",
    }


def _chosen(head: Mapping[str, Any]) -> Mapping[str, str]:
    entry = {
        "value": head["chosen_auroc"],
        "lo": head.get("chosen_lo"),
        "hi": head.get("chosen_hi"),
        "method": "t over targets",
    }
    return {
        "label": "AUROC at hospitals left out",
        "value": number(entry["value"]),
        "interval": interval(entry),
        "title": full_interval(entry),
        "method": f"Mean over {count(head.get('chosen_targets'))} targets, each left out of everything, 95 % t interval over them",
        "sentence": f"The method was chosen on the sources alone, and looked at once on the target (ST-12).{_outline(head)}",
        "spoken": f"AUROC at hospitals left out {number(entry['value'])}",
    }


def _outline(head: Mapping[str, Any]) -> str:
    plain = as_float(head.get("chosen_without_outline"))
    if plain is None:
        return ""
    return (
        " Some of the candidates see the lesion's outline as a person drew it; "
        f"the same choice without them gives {number(plain)}."
    )


def _boxes(row: Mapping[str, Any]) -> Mapping[str, str]:
    """A study of found boxes answers what they cost (US-33)."""
    entry = {"value": row["difference"], "lo": row["lo"], "hi": row["hi"], "method": "t over scenarios"}
    return {
        "label": f"AUROC with found boxes {MINUS} with annotated ones",
        "value": signed(row["difference"]),
        "interval": interval(entry, sign=True),
        "title": full_interval(entry),
        "method": f"Mean over {count(row['pairs'])} external scenarios, 95 % t interval over them",
        "sentence": "At another hospital nobody has drawn a box; this is what it costs that a model finds it (US-33).",
        "spoken": f"AUROC with found boxes less with annotated ones {signed(row['difference'])}",
    }


def _facts(head: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    if as_float(head.get("difference")) is None:
        return []
    ends = {
        "value": head["difference"],
        "lo": head.get("lo"),
        "hi": head.get("hi"),
        "method": "t over sources",
    }
    low, high = head.get("without_one") or (None, None)
    return [
        ("AUROC at home", num(head.get("internal"))),
        ("AUROC elsewhere", num(head.get("external"))),
        (
            f"Difference (elsewhere {MINUS} home)",
            Cell(
                text=signed(head["difference"]),
                sub=interval(ends, sign=True) + (", spread over sources" if _is_spread(head) else ", 95 %"),
                title=full_interval(ends),
                kind="number",
            ),
        ),
        (
            "Margin",
            Cell(
                text=f"±{number(head.get('margin'))}",
                sub="declared in the study file",
                title=str(head.get("margin")),
                kind="number",
            ),
        ),
        (
            "Without one dataset",
            Cell(
                text=f"{signed(low)} to {signed(high)}",
                sub="the difference again without each",
                kind="number",
            ),
        ),
    ]


def _figures(summary: StudySummary) -> list[tuple[str, Cell]]:
    head = summary.headline
    out = [
        ("Datasets", cnt(head["datasets"])),
        ("Images", cnt(head["images"])),
        ("Patient ids", cnt(head["patients"])),
        ("Scenarios", cnt(head["scenarios"])),
        ("Runs", cnt(head["runs"])),
        ("Trainings", cnt(_trained(summary))),
    ]
    words = _words(summary)
    if words:
        out.append(
            (
                "Transfers: " + ", ".join(w for w, _ in words),
                Cell(text=" · ".join(count(n) for _, n in words)),
            )
        )
    if head.get("failed"):
        out.append(("Runs not done", cnt(head["failed"])))
    return out


def _trained(summary: StudySummary) -> Any:
    """Those that are done; the study may name more."""
    devices = summary.provenance.get("devices")
    done = sum(devices.values()) if isinstance(devices, Mapping) else 0
    return done or summary.provenance.get("trainings")


def _words(summary: StudySummary) -> list[tuple[str, int]]:
    """How many transfers of each word, where the study declares a margin."""
    table = summary.tables.get("transfers")
    if table is None or "word" not in table.columns:
        return []
    held = table["word"].value_counts()
    return [(str(w), int(n)) for w, n in held.items() if w]


def _grades(summary: StudySummary, clean: Callable[[str], str]) -> list[Grade]:
    table = summary.tables.get("datasets")
    if table is None:
        return []
    return [
        Grade(
            dataset=str(row["dataset"]),
            grade=str(row["id_grade"] or "?"),
            meaning=GRADES.get(str(row["id_grade"]), ""),
            why=clean(str(row["id_grade_why"] or "")),
        )
        for row in table.to_dict(orient="records")
    ]
