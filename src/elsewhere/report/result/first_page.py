"""The first page: the question, the verdict, and what a reader must know before believing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elsewhere.report.page.blocks import Cell, Table, cnt, estimate, num, text
from elsewhere.report.page.labels import (
    compared_with,
    headline,
    in_sentence,
    label,
    method,
    task_title,
    task_units,
)
from elsewhere.report.page.numbers import (
    MINUS,
    as_float,
    count,
    full,
    full_interval,
    interval,
    number,
    signed,
    value_with_interval,
)
from elsewhere.report.result.answered import (
    answered_estimate,
    claim_sentence,
    leading_lost_claim,
    lost_sentence,
    verdict_sentence,
    without_score,
)
from elsewhere.report.result.passing_models import passing_models
from elsewhere.report.result.prepare import Prepared

MOST_WARNINGS = 6
MOST_CHANGES = 8
WORDS = {
    "EQUIVALENT": ("equivalent", "It still works: the difference lies within the margin."),
    "BELOW": ("below", "It works less well here than claimed."),
    "ABOVE": ("above", "It works better here than claimed."),
    "INCONCLUSIVE": ("inconclusive", "These data do not settle it."),
    "NOT ASSESSED": ("not-assessed", "The question could not be put to these data."),
}
ID_GRADES = {
    "A": "verified patients",
    "B": "ids finer than patients, or partly known",
    "C": "no patient ids: intervals may be too narrow",
}


@dataclass(frozen=True, kw_only=True)
class Grade:
    """How well the patient ids of a dataset are known.

    Args:
        dataset: The name of the dataset.
        grade: 'A', 'B' or 'C'; '?' where it is not known.
        meaning: What the grade means.
        why: Why the dataset has this grade.
    """

    dataset: str
    grade: str
    meaning: str
    why: str


@dataclass(frozen=True, kw_only=True)
class FirstPage:
    """All that the template prints above the sections.

    Args:
        title: The title of the page in the browser.
        question: The heading: the question that the result answers.
        masthead: The task, the counts and the protocol, in a few words each.
        word: The verdict; empty where no claim was tested.
        tone: The style of the verdict, such as 'equivalent'; 'none' without a verdict.
        plain: The verdict in plain words.
        sentence: The verdict with its numbers.
        badges: Remarks on the verdict, such as that the claim was changed.
        facts: The numbers of the leading claim.
        claims: Every claim, where there are several; None otherwise.
        figures: The numbers of cases.
        hero: The leading number, where there is no verdict; None otherwise.
        grades: How well the patient ids of each dataset are known.
        alarms: Findings of the audit that put the result in doubt.
        warnings: The first warnings.
        more_warnings: How many further warnings there are.
        answered: The verdict without the cases that have no usable score.
        decided_by_missing: Whether that verdict is another one.
        claim_changes: What changed since the first verdict on the same data; None for nothing.
        extra: Further values for the template, such as the cards of a study.
    """

    title: str
    question: str
    masthead: list[str]
    word: str
    tone: str
    plain: str
    sentence: str
    badges: list[str]
    facts: list[tuple[str, Cell]]
    claims: Table | None
    figures: list[tuple[str, Cell]]
    hero: Mapping[str, str] | None
    grades: list[Grade]
    alarms: list[str]
    warnings: list[str]
    more_warnings: int = 0
    answered: list[str] = field(default_factory=list)
    decided_by_missing: bool = False
    claim_changes: Table | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def first_page(data: Prepared, *, title: str | None = None) -> FirstPage:
    """Make the first page: the question, the verdict or the leading numbers, and the warnings.

    Args:
        data: The summary as it may be printed.
        title: The heading of the page; None for the question that the result answers.

    Returns:
        The first page.
    """
    verdict = data.part("verdict")
    word = str(verdict.get("word") or "")
    claims = [c for c in verdict.get("claims") or [] if isinstance(c, dict)]
    leading = _leading(claims, word)
    tone, plain = WORDS.get(word, ("none", ""))
    if leading and compared_with(leading) == "reference":
        plain = plain.replace("than claimed", "than at the reference")
    alarms = [str(a.get("message") or a.get("kind")) for a in data.rows("audit") if _is_alarm(a)]
    warnings = [str(w) for w in data.rows("warnings")]
    for claim in claims:
        warnings += [str(w) for w in claim.get("warnings") or []]
    warnings = list(dict.fromkeys(warnings))
    room = max(MOST_WARNINGS - len(alarms), 2)
    badges = []
    if leading and leading.get("out_of_reach"):
        badges.append("EQUIVALENT was out of reach: the margin is smaller than these data can prove")
    if verdict.get("non_inferior") and word not in ("EQUIVALENT", "ABOVE"):
        badges.append("Non-inferior as claimed")
    lost = leading_lost_claim(verdict)
    again = verdict.get("answered_only")
    changed = data.part("claim_lock")
    if changed.get("changed"):
        since = changed.get("changed_since") or {}
        badges.append(
            f"The claim was changed after the verdict {since.get('verdict')} of {since.get('when')} on the same cases "
            "and predictions"
        )
    return FirstPage(
        answered=[] if lost is None else [claim_sentence(lost), verdict_sentence(verdict)],
        decided_by_missing=isinstance(again, dict) and bool(again.get("differs")),
        title=title or f"Elsewhere: {task_title(data.data, 'report')}",
        question=title or str(data.data.get("question") or _question(data)),
        masthead=_masthead(data),
        word=word,
        tone=tone,
        plain=plain,
        sentence=_sentence(word, leading, verdict),
        badges=badges,
        facts=_facts(leading) if leading else [],
        claims=_claims(claims) if len(claims) > 1 else None,
        figures=_figures(data),
        hero=None
        if word
        else _hero(data)
        or _best(data)
        or _pair(data)
        or _readers(data)
        or _gain(data)
        or passing_models(data),
        grades=_grades(data),
        alarms=alarms[:MOST_WARNINGS],
        warnings=warnings[:room],
        more_warnings=max(len(warnings) - room, 0) + max(len(alarms) - MOST_WARNINGS, 0),
        claim_changes=_claim_changes(changed),
    )


def _is_alarm(finding: Any) -> bool:
    return isinstance(finding, dict) and str(finding.get("severity", "")).lower() in (
        "error",
        "alarm",
        "high",
        "critical",
    )


def _leading(claims: list[dict[str, Any]], word: str) -> dict[str, Any] | None:
    """Find the claim whose numbers are on the first page: the first primary one that gave the verdict."""
    primary = [c for c in claims if c.get("primary", True)] or claims
    return next((c for c in primary if c.get("word") == word), primary[0] if primary else None)


def _masthead(data: Prepared) -> list[str]:
    counts = data.part("counts")
    unit = task_units(data.data)
    parts = [task_title(data.data)]
    if counts.get("cases") is not None:
        people = f" of {count(counts['patients'])} patients" if counts.get("patients") is not None else ""
        parts.append(f"{count(counts['cases'])} {unit}{people}")
    if data.data.get("protocol"):
        parts.append(f"protocol {data.data['protocol']} {data.data.get('protocol_version') or ''}".strip())
    return [p for p in parts if p]


def claim_name(claim: Mapping[str, Any]) -> str:
    """Name a claim by its metric and group.

    Args:
        claim: A claim of the verdict, with `metric` and, where it has one, `group`.

    Returns:
        The name.

    Example:
        >>> claim_name({"metric": "auroc", "group": "site Cedar"})
        'AUROC (site Cedar)'
    """
    group = f" ({claim['group']})" if claim.get("group") else ""
    return label(str(claim.get("metric", "")), claim) + group


def _sentence(word: str, claim: Mapping[str, Any] | None, verdict: Mapping[str, Any]) -> str:
    """Write the verdict in words and numbers: what was compared, and why the verdict follows (ST-05)."""
    if not word or claim is None:
        return str(verdict.get("reason") or "")
    name = in_sentence(claim_name(claim))
    if claim.get("word") == "NOT ASSESSED" or as_float(claim.get("difference")) is None:
        return f"For {name}: {claim.get('reason') or verdict.get('reason') or 'no reason was given'}."
    alpha = as_float(claim.get("alpha"))
    width = f"{100 * (1 - 2 * alpha):.4g} % " if alpha is not None else ""
    here, claimed = number(claim.get("here")), number(claim.get("claimed"))
    promised = compared_with(claim) == "claimed"
    comparison = (
        "was claimed"
        if promised
        else f"is the reference ({verdict.get('reference') or claim.get('reference')})"
    )
    because = {
        "EQUIVALENT": "lies wholly inside the margin",
        "BELOW": "lies wholly on the worse side of the margin",
        "ABOVE": "lies wholly on the better side of the margin",
        "INCONCLUSIVE": "is neither wholly inside nor wholly beyond the margin",
    }.get(str(claim.get("word")), "was compared with the margin")
    return (
        f"Here {name} is {here}; {claimed} {comparison}. The {width}interval of the difference, "
        f"{interval(claim, sign=True)}, {because}, ±{number(claim.get('margin'))}."
    )


def _facts(claim: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    than = compared_with(claim)
    out: list[tuple[str, Cell]] = [
        ("Here", num(claim.get("here"))),
        (than.capitalize(), num(claim.get("claimed"), sub=str(claim.get("reference") or ""))),
        (
            f"Difference (here {MINUS} {than})",
            Cell(
                text=signed(claim.get("difference")),
                sub=interval(claim, sign=True),
                title=full_interval({**claim, "value": claim.get("difference")}),
                kind="number",
            ),
        ),
        (
            "Margin",
            Cell(
                text="—" if as_float(claim.get("margin")) is None else f"±{number(claim.get('margin'))}",
                sub=str(claim.get("margin_source") or "source not stated"),
                title=full(claim.get("margin")),
                kind="number",
            ),
        ),
        ("Smallest detectable drop", _detectable(claim)),
        (
            "Smallest provable margin",
            num(claim.get("smallest_provable_margin"), sub="if there were no difference"),
        ),
    ]
    if as_float(claim.get("flips_at")) is not None:
        other = f"to {claim['flips_to']}" if claim.get("flips_to") else ""
        out.append(("The verdict changes at a margin of", num(claim["flips_at"], sub=other)))
    again = claim.get("answered_only")
    if isinstance(again, dict):
        ends = interval(again, sign=True)
        difference = f"difference {signed(again.get('difference'))} {ends}: " if ends else ""
        out.append(
            ("Here, answered cases only", num(again.get("here"), sub=f"{difference}{again.get('word')}"))
        )
    if claim.get("non_inferior") is not None:
        out.append(("Non-inferior", text("yes" if claim["non_inferior"] else "no")))
    return out


def _detectable(claim: Mapping[str, Any]) -> Cell:
    if claim.get("drop_out_of_reach"):
        return text("none", sub="no possible drop has 80 % power", title=str(claim.get("power") or ""))
    return num(claim.get("smallest_detectable_drop"), sub="with 80 % power")


def _claims(claims: list[dict[str, Any]]) -> Table:
    rows = [
        [
            text(claim_name(c), sub=_claim_note(c)),
            text(c.get("word"), kind="word"),
            num(c.get("here")),
            num(c.get("claimed")),
            estimate(
                {**c, "value": c.get("difference"), "undefined_reason": c.get("reason") or "no difference"},
                sign=True,
            ),
            num(c.get("margin")),
            num(c.get("smallest_detectable_drop")),
        ]
        for c in claims
    ]
    than = compared_with(claims[0]).capitalize()
    columns = ["Claim", "Word", "Here", than, "Difference", "Margin", "Detectable drop"]
    return Table(
        name="claims",
        caption="Every claim",
        columns=columns,
        rows=rows,
        note="All primary claims must pass; none is corrected for the others.",
    )


def _claim_note(claim: Mapping[str, Any]) -> str:
    """Write the line below a claim's name: whether it is descriptive, and its verdict on answered cases."""
    parts = [] if claim.get("primary", True) else ["descriptive"]
    again = claim.get("answered_only")
    if isinstance(again, dict):
        lost = int(again.get("without_score") or 0) + int(again.get("reference_without_score") or 0)
        cases = int(again.get("cases") or 0) + int(again.get("reference_cases") or 0)
        ends = interval(again, sign=True)
        numbers = f", difference {signed(again.get('difference'))} {ends}" if ends else ""
        parts.append(
            f"{count(lost)} of {count(cases)} cases have no usable score; without them {again.get('word')}{numbers}"
        )
    return "; ".join(parts)


def _claim_changes(lock: Mapping[str, Any]) -> Table | None:
    """List what differs from the first verdict on the same data: claim, descriptions, reading options."""
    kinds = {
        "changes": "claim",
        "description_changes": "description",
        "reading_changes": "reading option",
    }
    rows = [
        [
            text(kind),
            text(entry.get("field")),
            text("not set" if entry.get("before") is None else str(entry["before"])),
            text("not set" if entry.get("now") is None else str(entry["now"])),
        ]
        for key, kind in kinds.items()
        for entry in lock.get(key) or []
        if isinstance(entry, dict)
    ]
    if not rows:
        return None
    rest = len(rows) - MOST_CHANGES
    return Table(
        name="claim_changes",
        caption="What changed since the first verdict on these data",
        columns=["Kind", "Field", "Then", "Now"],
        rows=rows[:MOST_CHANGES],
        note="Compared with the first verdict on the same cohort and predictions that a lock file records. The "
        "verdict follows from the claim; reading options can change it too."
        + (f" {rest} more changes are in summary.json (claim_lock)." if rest > 0 else ""),
    )


def _figures(data: Prepared) -> list[tuple[str, Cell]]:
    counts = data.part("counts")
    chosen = [
        ("cases", "Cases"),
        ("slides", "Slides"),
        ("patients", "Patients"),
        ("internal_patients", "Internal patients"),
        ("external_patients", "External patients"),
        ("positives", "Positive"),
        ("readers", "Readers"),
        ("treatments", "Treatments"),
        ("missing", "Without prediction"),
    ]
    out = [(words, cnt(counts[key])) for key, words in chosen if counts.get(key) is not None]
    if as_float(counts.get("invalid")):
        out.append(("Invalid prediction", cnt(counts["invalid"])))
    if as_float(counts.get("not_analysable")):
        out.append(("Not analysable", cnt(counts["not_analysable"])))
    return out


def _hero(data: Prepared) -> Mapping[str, str] | None:
    head = headline(data.data)
    entry = data.part("metrics").get(head) if head else None
    if not isinstance(entry, dict) or head is None:
        return None
    defined = as_float(entry.get("value")) is not None
    sentence = "No claim was tested, so there is no verdict: this is a measurement."
    if without_score(data.part("counts")):
        sentence += f" {lost_sentence(data.part('counts'))}"
    if as_float(entry.get("answered_only")) is not None:
        again = value_with_interval(answered_estimate(entry))
        sentence += f" On the answered cases alone it is {again}."
    return {
        "label": label(head, entry),
        "value": number(entry.get("value")) if defined else "undefined",
        "interval": interval(entry) if defined else str(entry.get("undefined_reason") or ""),
        "method": f"95 % interval, {method(entry.get('method'))}" if interval(entry) else "no interval",
        "title": full_interval(entry),
        "spoken": f"{label(head, entry)} {value_with_interval(entry)}",
        "sentence": sentence,
    }


def _question(data: Prepared) -> str:
    if not data.part("metrics") and data.part("ranking"):
        return "Which model works best here?"
    if not data.part("metrics") and data.part("comparison"):
        return "Is one of the two models better?"
    return "Does the model still work elsewhere?"


def _best(data: Prepared) -> Mapping[str, str] | None:
    """Describe the model that leads a ranking, and those that are not clearly worse (ST-09)."""
    table = [row for row in data.part("ranking").get("table") or [] if isinstance(row, dict)]
    if not table:
        return None
    first = table[0]
    metric = label(str(data.part("ranking").get("metric") or ""))
    tier = [str(row.get("model")) for row in table if row.get("tier") == first.get("tier")]
    alone = len(tier) < 2
    return {
        "label": f"First of {len(table)} by {in_sentence(metric)}",
        "value": str(first.get("model")),
        "interval": value_with_interval(first),
        "method": f"95 % interval, {method(first.get('method'))}" if interval(first) else "no interval",
        "title": full_interval(first),
        "spoken": f"{first.get('model')} leads",
        "sentence": "It is clearly better than every other model."
        if alone
        else f"{len(tier)} of {len(table)} share the first tier, not clearly worse than the best: {', '.join(tier[:8])}.",
    }


def _pair(data: Prepared) -> Mapping[str, str] | None:
    """Describe the first difference of a comparison, and whether its interval contains 0."""
    part = data.part("comparison")
    metrics = part.get("metrics")
    name = next(iter(metrics), None) if isinstance(metrics, dict) else None
    entry = metrics.get(name) if isinstance(metrics, dict) and name is not None else None
    if not isinstance(entry, dict) or as_float(entry.get("difference")) is None:
        return None
    lo, hi = as_float(entry.get("lo")), as_float(entry.get("hi"))
    open_ = lo is None or hi is None or lo <= 0 <= hi
    answer = "includes 0: neither is clearly better" if open_ else "leaves out 0"
    return {
        "label": f"{label(str(name), entry)}: {part.get('a')} {MINUS} {part.get('b')}",
        "value": signed(entry["difference"]),
        "interval": interval(entry, sign=True),
        "method": f"95 % interval, {method(entry.get('method'))}" if interval(entry) else "no interval",
        "title": full_interval({**entry, "value": entry["difference"]}),
        "spoken": f"difference {signed(entry['difference'])}",
        "sentence": f"The interval of the difference on the same cases {answer}." if interval(entry) else "",
    }


def _readers(data: Prepared) -> Mapping[str, str] | None:
    """Describe a reader study: its model, its first difference, or the mean of its readers."""
    part = data.part("readers")
    random = str(part.get("random") or "")
    leading = (part.get("analyses") or {}).get(random) or {}
    panels = [panel for panel in part.get("panel") or [] if isinstance(panel, dict)]
    title = str((part.get("figure") or {}).get("title") or "")
    if panels:
        row = (panels[0].get("analyses") or {}).get(random) or {}
        name = f"{title}: {panels[0].get('model')} {MINUS} readers, {panels[0].get('treatment')}"
    elif leading.get("differences"):
        row = leading["differences"][0]
        name = f"{title}: {row.get('first')} {MINUS} {row.get('second')}"
    elif leading.get("means"):
        row = leading["means"][0]
        return _reader_hero(row, f"{title}: {row.get('treatment')}", part, leading, sign=False)
    else:
        return None
    return _reader_hero(row, name, part, leading, sign=True)


def _reader_hero(
    row: Mapping[str, Any], name: str, part: Mapping[str, Any], leading: Mapping[str, Any], *, sign: bool
) -> Mapping[str, str]:
    lo, hi = as_float(row.get("lo")), as_float(row.get("hi"))
    how = in_sentence(str(leading.get("title") or ""))
    if lo is None or hi is None:
        sentence = f"There is no interval: {row.get('reason')}."
    elif not sign:
        sentence = "No claim was tested, so there is no verdict: this is a measurement."
    else:
        answer = "includes 0: no difference is shown" if lo <= 0 <= hi else "leaves out 0"
        sentence = f"With {how}, the interval of the difference {answer}."
    show = signed if sign else number
    return {
        "label": name,
        "value": show(row.get("value")),
        "interval": interval(row, sign=sign),
        "method": f"{100 * (as_float(part.get('level')) or 0.95):g} % interval, {how}"
        if lo is not None
        else "no interval",
        "title": full_interval(row),
        "spoken": f"{name} {value_with_interval(row, sign=sign)}",
        "sentence": sentence,
    }


def _gain(data: Prepared) -> Mapping[str, str] | None:
    """Describe what a merge gains over the best single team, on the volumes that did not choose it."""
    part = data.part("merging")
    gains = part.get("gain")
    if not isinstance(gains, dict) or not gains:
        return None
    role = "test" if "test" in gains else next(iter(gains))
    entry = gains[role]
    if not isinstance(entry, dict) or as_float(entry.get("difference")) is None:
        return None
    team = str((part.get("best_single") or {}).get("team") or "the best single team")
    lo, hi = as_float(entry.get("lo")), as_float(entry.get("hi"))
    open_ = lo is None or hi is None or lo <= 0 <= hi
    answer = "includes 0: the merge is not clearly better or worse" if open_ else "leaves out 0"
    caution = "" if role == "test" else " The same volumes chose the setting, so that the number is too good."
    return {
        "label": f"Merged {MINUS} {team}, {role} volumes: {in_sentence(str(part.get('label') or ''))}",
        "value": signed(entry["difference"]),
        "interval": interval(entry, sign=True),
        "method": f"95 % interval, {method(entry.get('method'))}" if interval(entry) else "no interval",
        "title": full_interval({**entry, "value": entry["difference"]}),
        "spoken": f"difference {signed(entry['difference'])}",
        "sentence": (f"The interval {answer}.{caution}" if interval(entry) else caution.strip()),
    }


def _grades(data: Prepared) -> list[Grade]:
    grades = data.part("provenance").get("id_grades")
    out = []
    for dataset, entry in grades.items() if isinstance(grades, dict) else ():
        grade = str(entry.get("grade", "?")) if isinstance(entry, dict) else str(entry)
        why = str(entry.get("why") or "") if isinstance(entry, dict) else ""
        out.append(Grade(dataset=str(dataset), grade=grade, meaning=ID_GRADES.get(grade, ""), why=why))
    return out
