"""The sections about one model. Each returns None when the summary has nothing for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.blocks import (
    BLANK,
    Cell,
    Facts,
    FlowChart,
    Note,
    Pair,
    Section,
    Table,
    cnt,
    estimate,
    num,
    text,
)
from elsewhere.report.page.labels import has_two_classes, headline, label, method, task_units
from elsewhere.report.page.numbers import as_float, number
from elsewhere.report.page.pictures import Specs, picture, pictures
from elsewhere.report.result.answered import answered_estimate, without_score
from elsewhere.report.result.generic import generic_blocks
from elsewhere.report.result.prepare import Prepared
from elsewhere.report.result.subgroups import rows_table

CALIBRATION_METRICS = ("ece_confidence", "ece_malignant", "nll", "brier", "slope", "intercept")
_OUTCOMES = (
    ("scored", "scored", ""),
    ("missing", "no prediction", "worst value, and counted"),
    ("invalid", "invalid prediction", "worst value, and counted"),
    ("not_analysable", "could not be analysed", "an outcome of its own"),
    ("undefined", "value undefined", "counted with its reason"),
    ("without_boxes", "without any box", "missing or nothing found: the file cannot tell"),
    ("extra", "predictions of unknown cases", "not in the cohort"),
)


def who(data: Prepared, specs: Specs) -> Section | None:
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
    """Every word of the predictions' status column, and what was done: one word of a vendor may decide a verdict."""
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
        note="A word that is not known is declared with --failed-status if it means that the case could not be analysed.",
    )


def discrimination(data: Prepared, specs: Specs) -> Section | None:
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
    lead = (
        "The bands hold each curve point by point; they are not a band for the curve as a whole."
        if has_bands
        else ""
    )
    title = "Discrimination" if has_two_classes(data.data) else "Performance"
    return Section(id="discrimination", title=title, short=title, lead=lead, blocks=blocks)


def _repeated_warnings(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A warning that three metrics share stands once, below the table, with a letter."""
    counted = Counter(
        str(w) for entry in metrics.values() for w in dict.fromkeys(entry.get("warnings") or [])
    )
    often = [w for w, n in counted.items() if n >= 3]
    return dict(zip(often, "abcdefgh", strict=False))


def operating_point(data: Prepared, specs: Specs) -> Section | None:
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
    lead = "The threshold was not chosen here: it is the one the model came with."
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


def sites(data: Prepared, specs: Specs) -> Section | None:
    rows = {k: v for k, v in data.part("sites").items() if isinstance(v, dict)}
    if not rows:
        return None
    blocks: list[Any] = []
    forest = picture(specs, "forest-sites")
    if forest:
        blocks.append(Pair(pictures=[forest]))
    blocks.append(rows_table("sites", rows, headline(data.data), first="Site"))
    new = data.data.get("new_hospital")
    if isinstance(new, dict) and as_float(new.get("prediction_lo")) is not None:
        expected = {"value": new.get("value"), "lo": new["prediction_lo"], "hi": new.get("prediction_hi")}
        blocks.append(Facts(items=[("What a new hospital would see", estimate(expected))]))
    lead = "Fewer than five sites: what a new hospital would see is not estimable." if len(rows) < 5 else ""
    if isinstance(new, dict) and len(rows) >= 5:
        lead = _sites_left_out(new)
    return Section(id="sites", title="Sites side by side", short="Sites", lead=lead, blocks=blocks)


def _sites_left_out(new: Mapping[str, Any]) -> str:
    """Which sites the prediction for a new hospital does not rest on, in a sentence; empty where on all."""
    left_out = int(as_float(new.get("left_out")) or 0)
    if new.get("undefined_reason"):
        return f"What a new hospital would see is {new['undefined_reason']}."
    if left_out:
        return f"The prediction for a new hospital rests on {new.get('sites')} sites; {left_out} without a standard error (too few cases, or a perfect value) are not in it."
    return ""


def case_mix(data: Prepared, specs: Specs) -> Section | None:
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
    lead = "A drop may be the model, or the patients: here is how these differ from those it came from."
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
    lead = (
        "Cases go by a salted hash. The key file beside the results resolves them, and stays in the hospital."
    )
    unscored = without_score(data.part("counts"))
    if unscored:
        lead += f" Chosen among the answered cases: {cnt(unscored).text} without a usable score are counted apart."
    return Section(id="worst-cases", title="The worst cases", short="Worst cases", lead=lead, blocks=[table])
