"""Sections about how good the model is: discrimination, operating point, calibration, use in the clinic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.blocks import (
    BLANK,
    Facts,
    Note,
    Pair,
    Section,
    Table,
    cnt,
    estimate,
    num,
    pct,
    text,
)
from elsewhere.report.page.figures import Specs, picture, pictures
from elsewhere.report.page.labels import has_two_classes, label, method
from elsewhere.report.page.numbers import as_float, number
from elsewhere.report.result.answered import answered_estimate
from elsewhere.report.result.generic import generic_blocks
from elsewhere.report.result.prepare import Prepared

CALIBRATION_METRICS = ("ece_confidence", "ece_malignant", "nll", "brier", "slope", "intercept")


def discrimination(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of all metrics with their intervals.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without metrics.
    """
    metrics = {k: v for k, v in data.part("metrics").items() if isinstance(v, dict)}
    curves = pictures(specs, "curve-")
    if not metrics and not curves:
        return None
    answered = any(as_float(e.get("answered_only")) is not None for e in metrics.values())
    columns = ["Metric", "Value and interval", "Interval by", "Defined"]
    if answered:
        columns.append("Answered only")
    rows = []
    marks = _repeated_warnings(metrics)
    for name, entry in metrics.items():
        said = [str(w) for w in entry.get("warnings") or []]
        mark = "".join(f" [{marks[w]}]" for w in said if w in marks)
        defined, undefined = entry.get("defined"), entry.get("undefined")
        sub = f"{number(undefined)} undefined" if as_float(undefined) else ""
        row = [
            text(label(name, entry) + mark, sub="; ".join(w for w in said if w not in marks)),
            estimate(entry),
            text(
                method(entry.get("method"))
                if entry.get("lo") is not None or entry.get("hi") is not None
                else "none"
            ),
            cnt(defined, sub=sub),
        ]
        if answered:
            known = as_float(entry.get("answered_only")) is not None
            row.append(estimate(answered_estimate(entry)) if known else BLANK)
        rows.append(row)
    blocks: list[Any] = []
    if curves:
        blocks.append(Pair(pictures=curves))
    if rows:
        note = " ".join(
            [
                *(f"[{mark}] {w}" for w, mark in marks.items()),
                "Hold the pointer over a number for all its digits.",
            ]
        )
        blocks.append(Table(name="metrics", caption="Every metric", columns=columns, rows=rows, note=note))
    confusions = pictures(specs, "confusion-")
    if confusions:
        blocks.append(Pair(pictures=confusions))
    has_bands = any(c.get("lo") for c in data.part("curves").values() if isinstance(c, dict))
    lead = "The bands are pointwise; they are not a band for the curve as a whole." if has_bands else ""
    title = "Discrimination" if has_two_classes(data.data) else "Performance"
    return Section(id="discrimination", title=title, short=title, lead=lead, blocks=blocks)


def _repeated_warnings(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Print a warning that three metrics share once, below the table, with a letter."""
    counted = Counter(
        str(w) for entry in metrics.values() for w in dict.fromkeys(entry.get("warnings") or [])
    )
    often = [w for w, n in counted.items() if n >= 3]
    return dict(zip(often, "abcdefgh", strict=False))


def operating_point(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about the threshold.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where it is not known.
    """
    part = dict(data.part("operating_point"))
    if not part:
        return None
    here, reference = part.pop("here", None), part.pop("reference", None)
    restoring, confusion = part.pop("restoring", None), part.pop("confusion", None)
    blocks: list[Any] = []
    threshold = part.pop("threshold", None)
    if as_float(threshold) is not None:
        source = part.pop("threshold_source", None) or part.pop("source", None) or ""
        blocks.append(Facts(items=[("Threshold", num(threshold, sub=str(source)))]))
    here = here if isinstance(here, dict) else {}
    reference = reference if isinstance(reference, dict) else {}
    if not here:
        here = {k: part.pop(k) for k in ("sensitivity", "specificity") if k in part}
    if here:
        rows = [
            [
                text(label(name)),
                estimate(entry),
                *([estimate(reference.get(name)) if name in reference else BLANK] if reference else []),
            ]
            for name, entry in here.items()
        ]
        columns = ["At this threshold", "Here", *(["At the source"] if reference else [])]
        blocks.append(Table(name="operating-point", caption="Carried over", columns=columns, rows=rows))
    if isinstance(restoring, list) and restoring:
        blocks.append(_restoring([r for r in restoring if isinstance(r, dict)]))
        blocks.append(
            Note(
                text="A threshold found on these data flatters itself on these data: confirm it on new ones."
            )
        )
    elif restoring is not None:
        part["threshold_that_would_restore"] = restoring
    if isinstance(confusion, dict) and {"tp", "fp", "fn", "tn"} <= set(confusion):
        rows = [
            [text("Truth positive"), cnt(confusion["tp"]), cnt(confusion["fn"])],
            [text("Truth negative"), cnt(confusion["fp"]), cnt(confusion["tn"])],
        ]
        columns = ["", "Model positive", "Model negative"]
        blocks.append(Table(name="confusion", caption="Decisions", columns=columns, rows=rows))
    blocks += generic_blocks(part, "operating_point")
    lead = "The threshold is the one that the model came with; it was not chosen on these cases."
    return Section(
        id="operating-point", title="Operating point", short="Operating point", lead=lead, blocks=blocks
    )


def _restoring(rows: list[dict[str, Any]]) -> Table:
    body = []
    for r in rows:
        target = (
            f"{r['restores']} {number(r['target'])}"
            if as_float(r.get("target")) is not None
            else r.get("restores")
        )
        at = {"value": r.get("threshold"), "lo": r.get("threshold_lo"), "hi": r.get("threshold_hi")}
        cost = [estimate(r.get(k)) if r.get(k) is not None else BLANK for k in ("sensitivity", "specificity")]
        body.append([text(target), estimate({**at, "undefined_reason": r.get("undefined_reason")}), *cost])
    notes = dict.fromkeys(str(r["note"]) for r in rows if r.get("note"))
    return Table(
        name="restoring",
        caption="The threshold that would restore",
        columns=["Restores", "Threshold", "Sensitivity", "Specificity"],
        rows=body,
        note=" ".join(notes),
    )


def calibration(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about calibration.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where it is not known.
    """
    part = dict(data.part("calibration"))
    metrics = data.part("metrics")
    before = part.pop("before", None)
    after = part.pop("after", None)
    before = dict(before) if isinstance(before, dict) else {}
    after = dict(after) if isinstance(after, dict) else {}
    for name in (*CALIBRATION_METRICS, "calibration_slope", "calibration_intercept"):
        if name not in before and (name in part or isinstance(metrics.get(name), dict)):
            before[name] = part.pop(name, None) or metrics.get(name)
        if name not in after and isinstance(metrics.get(f"{name}_calibrated"), dict):
            after[name] = metrics[f"{name}_calibrated"]
    curve = picture(specs, "reliability", "Reliability; the size of a mark is its number of cases")
    if not (before or after or part or curve):
        return None
    blocks: list[Any] = [Pair(pictures=[curve])] if curve else []
    if before or after:
        names = [*before, *(n for n in after if n not in before)]
        columns = ["Measure", "As it came" if after else "Value", *(["Calibrated"] if after else [])]
        rows = [
            [
                text(label(n, _labelled(before.get(n)))),
                estimate(before[n]) if n in before else BLANK,
                *([estimate(after[n]) if n in after else BLANK] if after else []),
            ]
            for n in names
        ]
        note = "A slope below 1 means predictions that are too extreme; an intercept below 0, too high."
        slope = any("slope" in n for n in names)
        blocks.append(
            Table(
                name="calibration",
                caption="Calibration",
                columns=columns,
                rows=rows,
                note=note if slope else "",
            )
        )
    blocks += generic_blocks(part, "calibration")
    return Section(id="calibration", title="Calibration", short="Calibration", blocks=blocks)


def _labelled(entry: Any) -> Mapping[str, Any] | None:
    return entry if isinstance(entry, dict) else None


def clinical(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about the use in the clinic.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where it is not known.
    """
    part = dict(data.part("clinical"))
    drawn = picture(specs, "net-benefit", "Net benefit by threshold")
    if not part and not drawn:
        return None
    verification = part.pop("verification", None)
    prevalence, source = part.pop("prevalence", None), part.pop("prevalence_source", None)
    if drawn:
        part.pop("net_benefit", None)
    blocks: list[Any] = []
    facts = [
        (
            "How outcomes were verified",
            text(verification or "not stated: selection by verification cannot be excluded"),
        )
    ]
    if isinstance(prevalence, dict):
        prevalence = prevalence.get("value")
    if as_float(prevalence) is not None:
        shown = pct(prevalence, 2)
        facts.append(("Prevalence", text(shown.text, title=shown.title, sub=str(source or ""))))
    blocks.append(Facts(items=facts))
    names = [k for k, v in part.items() if isinstance(v, dict) and "value" in v]
    if names:
        rows = [[text(label(k, part[k])), estimate(part[k])] for k in names]
        blocks.append(
            Table(name="clinical", caption="At this prevalence", columns=["Measure", "Value"], rows=rows)
        )
    if drawn:
        blocks.append(Pair(pictures=[drawn]))
    blocks += generic_blocks({k: v for k, v in part.items() if k not in names}, "clinical")
    return Section(id="clinical", title="In the clinic", short="In the clinic", blocks=blocks)
