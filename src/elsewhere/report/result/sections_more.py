"""The sections about many models, the clinic, the data's audit, and where every number came from."""

from __future__ import annotations

from typing import Any

from elsewhere.report.page.blocks import (
    Facts,
    Fold,
    Heading,
    Note,
    Pair,
    Section,
    Table,
    Text,
    cnt,
    estimate,
    num,
    p_cell,
    pct,
    text,
)
from elsewhere.report.page.labels import label
from elsewhere.report.page.numbers import as_float, count
from elsewhere.report.page.pictures import Specs, picture
from elsewhere.report.result.checklist import NOT_ANSWERABLE, checklist_rows
from elsewhere.report.result.generic import generic_blocks
from elsewhere.report.result.methods import methods_paragraph
from elsewhere.report.result.prepare import Prepared
from elsewhere.report.result.subgroups import rows_table

_KNOWN = """elsewhere task protocol protocol_version created provenance counts flow metrics curves groups
fairness sites calibration operating_point difficulty size_strata case_mix worst_cases verdict audit warnings
methods comparison ranking clinical confusion question title headline score_extras notes new_hospital
case_mix_reference"""
KNOWN_KEYS = frozenset(_KNOWN.split())

_TESTS = {
    "p": "p",
    "p_delong": "p, DeLong",
    "p_holm": "p, Holm",
    "p_bootstrap": "p, bootstrap",
    "p_permutation": "p, permutation",
    "p_wilcoxon": "p, Wilcoxon",
    "p_t": "p, t",
}


def comparison(data: Prepared, specs: Specs) -> Section | None:
    part = dict(data.part("comparison"))
    if not part:
        return None
    metrics = part.pop("metrics", None)
    a, b = str(part.pop("a", "A")), str(part.pop("b", "B"))
    blocks: list[Any] = []
    drawn = picture(specs, "differences")
    if drawn:
        blocks.append(Pair(pictures=[drawn]))
    if isinstance(metrics, dict) and metrics:
        entries = {k: v for k, v in metrics.items() if isinstance(v, dict)}
        ps = list(dict.fromkeys(k for e in entries.values() for k in e if k == "p" or k.startswith("p_")))
        rows = [
            [
                text(label(k, e)),
                estimate(e.get("a")),
                estimate(e.get("b")),
                estimate({**e, "value": e.get("difference")}, sign=True),
                *(p_cell(e.get(p)) for p in ps),
            ]
            for k, e in entries.items()
        ]
        columns = ["Metric", a, b, "Difference", *(_TESTS.get(p, label(p)) for p in ps)]
        blocks.append(
            Table(name="comparison", caption=f"{a} and {b} on the same cases", columns=columns, rows=rows)
        )
    blocks += generic_blocks(part, "comparison")
    return Section(
        id="comparison",
        title="Two models on the same cases",
        short="Comparison",
        lead=f"{a} against {b}.",
        blocks=blocks,
    )


def ranking(data: Prepared, specs: Specs) -> Section | None:
    part = dict(data.part("ranking"))
    if not part:
        return None
    table = [r for r in part.pop("table", None) or [] if isinstance(r, dict)]
    part.pop("frequencies", None)
    part.pop("fairness_weight", None)
    failed = part.pop("failed", None)
    metric = str(part.pop("metric", None) or "value")
    blocks: list[Any] = []
    drawn = [p for p in (picture(specs, n) for n in ("ranks", "rank-frequencies", "fairness-weight")) if p]
    if drawn:
        blocks.append(Pair(pictures=drawn))
    if table:
        holm = any(as_float(r.get("p_holm")) is not None for r in table)
        rows = []
        for r in table:
            lo, hi = r.get("rank_lo"), r.get("rank_hi")
            between = f"{count(lo)} to {count(hi)}" if as_float(lo) is not None else ""
            rows.append(
                [
                    text(r.get("model")),
                    num(r.get("rank")),
                    text(between),
                    cnt(r.get("tier")),
                    estimate(r),
                    *([p_cell(r.get("p_holm"))] if holm else []),
                ]
            )
        columns = ["Model", "Rank", "Rank interval", "Tier", label(metric)]
        columns += ["p against baseline (Holm)"] if holm else []
        note = (
            "Models of one tier are not surely different. "
            "Rank intervals come from simultaneous pairwise differences."
        )
        blocks.append(Table(name="ranking", caption="Ranking", columns=columns, rows=rows, note=note))
    if isinstance(failed, list) and failed:
        blocks += generic_blocks({"could_not_be_ranked": failed}, "failed")
    blocks += generic_blocks(part, "ranking")
    lead = "All models share the same resamples. The heat map is a picture of stability, not an interval."
    return Section(id="ranking", title="Ranking", short="Ranking", lead=lead, blocks=blocks)


def difficulty(data: Prepared, specs: Specs) -> Section | None:
    part = dict(data.part("difficulty"))
    if not part:
        return None
    drawn = picture(specs, "difficulty")
    blocks: list[Any] = []
    if drawn:
        part.pop("detected_by", None)
        blocks.append(Pair(pictures=[drawn]))
    blocks += generic_blocks(part, "difficulty")
    return Section(id="difficulty", title="Difficulty of the lesions", short="Difficulty", blocks=blocks)


def size_strata(data: Prepared, specs: Specs) -> Section | None:
    part = dict(data.part("size_strata"))
    if not part:
        return None
    inner = part.pop("strata", None)
    source = inner if isinstance(inner, dict) else part
    rows = {k: v for k, v in source.items() if isinstance(v, dict) and isinstance(v.get("metrics"), dict)}
    rest = {k: v for k, v in part.items() if k not in rows}
    blocks: list[Any] = []
    drawn = picture(specs, "forest-size")
    if drawn:
        blocks.append(Pair(pictures=[drawn]))
    if rows:
        blocks.append(rows_table("by_size", rows, "dice", first="Size"))
    blocks += generic_blocks(rest, "size_strata")
    return Section(id="size", title="By size of the lesion", short="By size", blocks=blocks)


def clinical(data: Prepared, specs: Specs) -> Section | None:
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


def audit(data: Prepared, specs: Specs) -> Section | None:
    rows = [r for r in data.rows("audit") if isinstance(r, dict)]
    warnings = [str(w) for w in data.rows("warnings")]
    if not rows and not warnings:
        return None
    blocks: list[Any] = []
    if rows:
        body = [
            [
                text(r.get("severity") or "note", kind="severity"),
                text(r.get("kind")),
                text(r.get("message")),
                cnt(len(r["rows"]) if isinstance(r.get("rows"), list) else r.get("rows")),
            ]
            for r in rows
        ]
        blocks.append(
            Table(
                name="audit",
                caption="Audit of the data",
                columns=["Severity", "Finding", "What", "Rows"],
                rows=body,
            )
        )
    if warnings:
        blocks.append(Heading(text="Warnings"))
        blocks += [Note(text=w, tone="warn") for w in warnings]
    return Section(id="audit", title="What the audit found", short="Audit", blocks=blocks)


def more(data: Prepared, specs: Specs) -> Section | None:
    rest = {k: v for k, v in data.data.items() if k not in KNOWN_KEYS and v not in (None, "", [], {})}
    blocks: list[Any] = []
    for key, value in rest.items():
        inner = generic_blocks(value, key)
        if inner and not (len(inner) == 1 and isinstance(inner[0], Table)):
            blocks.append(Heading(text=label(key)))
        blocks += inner
    return Section(id="more", title="More from this run", short="More", blocks=blocks) if blocks else None


def provenance(data: Prepared, specs: Specs) -> Section | None:
    part = data.part("provenance")
    facts = [("Elsewhere", text(data.data.get("elsewhere")))] if data.data.get("elsewhere") else []
    if data.data.get("protocol"):
        facts.append(
            ("Protocol", text(f"{data.data['protocol']} {data.data.get('protocol_version') or ''}".strip()))
        )
    if data.data.get("created"):
        facts.append(("Made", text(str(data.data["created"]).replace("T", " ")[:19])))
    for key, value in part.items():
        if key == "id_grades" or isinstance(value, dict | list) or value is None:
            continue
        kind = "code" if key == "command" or key.endswith(("hash", "digest")) else "text"
        facts.append((label(key), text(cnt(value).text if isinstance(value, int) else value, kind=kind)))
    if not facts:
        return None
    blocks: list[Any] = [Facts(items=facts)]
    cuts = list(data.cuts)
    if data.suppressed:
        cuts.append(
            f"{data.suppressed} cells or rows of one to four people were withheld, "
            "with those that would give them away"
        )
    if data.removed_ids:
        cuts.append(f"{data.removed_ids} ids were taken out of messages")
    blocks.append(Heading(text="What was cut from this page"))
    blocks += [Note(text=c) for c in cuts] or [Note(text="Nothing.")]
    return Section(id="provenance", title="Provenance", short="Provenance", blocks=blocks)


def checklist(data: Prepared, specs: Specs) -> Section | None:
    rows = checklist_rows(data)
    answered = sum(r["answer"] != NOT_ANSWERABLE for r in rows)
    body = [
        [
            text(r["guideline"]),
            text(r["item"]),
            text(r["question"]),
            text(r["answer"], kind="muted" if r["answer"] == NOT_ANSWERABLE else "text"),
        ]
        for r in rows
    ]
    table = Table(
        name="checklist",
        caption="Reporting guidelines",
        columns=["Guideline", "Item", "It asks", "From this run"],
        rows=body,
        note="Short wordings of our own; item numbers of TRIPOD+AI (2024). The rest is for the authors.",
    )
    lead = f"TRIPOD+AI, CLAIM and FUTURE-AI: this run alone answers {answered} of {len(rows)} points."
    fold = Fold(summary=f"The {len(rows)} points", blocks=[table])
    return Section(id="checklist", title="Reporting checklist", short="Checklist", lead=lead, blocks=[fold])


def methods(data: Prepared, specs: Specs) -> Section | None:
    words = methods_paragraph(data)
    if not words:
        return None
    lead = "Written from the run, to be pasted and edited."
    notes = [Note(text=str(n)) for n in data.rows("notes")]
    blocks: list[Any] = [Text(paragraphs=[words]), *notes]
    return Section(id="methods", title="Methods", short="Methods", lead=lead, blocks=blocks)
