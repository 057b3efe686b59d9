"""Sections about trust: audit, methods, reporting checklist, provenance, and further parts of a run."""

from __future__ import annotations

from typing import Any

from elsewhere.report.page.blocks import (
    Facts,
    Fold,
    Heading,
    Note,
    Section,
    Table,
    Text,
    cnt,
    text,
)
from elsewhere.report.page.figures import Specs
from elsewhere.report.page.labels import label
from elsewhere.report.result.checklist import NOT_ANSWERABLE, checklist_rows
from elsewhere.report.result.generic import generic_blocks
from elsewhere.report.result.methods import methods_paragraph
from elsewhere.report.result.prepare import Prepared

_KNOWN = """elsewhere task protocol protocol_version protocol_counterpart created provenance counts flow metrics
curves groups fairness sites calibration operating_point difficulty size_strata case_mix worst_cases verdict
audit warnings methods comparison ranking merging clinical confusion question title headline score_extras notes
new_hospital case_mix_reference thresholds carried_threshold readers who_finds_what lesions_paired hit_rules published
ranking_curves generalise slide_ensembles slide_masks shift"""
KNOWN_KEYS = frozenset(_KNOWN.split())


def audit(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of the audit and the warnings.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where there are none.
    """
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
    """Make the section of what no other section knows.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where there is nothing.
    """
    rest = {k: v for k, v in data.data.items() if k not in KNOWN_KEYS and v not in (None, "", [], {})}
    blocks: list[Any] = []
    for key, value in rest.items():
        inner = generic_blocks(value, key)
        if inner and not (len(inner) == 1 and isinstance(inner[0], Table)):
            blocks.append(Heading(text=label(key)))
        blocks += inner
    return Section(id="more", title="More from this run", short="More", blocks=blocks) if blocks else None


def provenance(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about where every number comes from.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without provenance.
    """
    part = data.part("provenance")
    facts = [("Elsewhere", text(data.data.get("elsewhere")))] if data.data.get("elsewhere") else []
    if data.data.get("protocol"):
        facts.append(
            ("Protocol", text(f"{data.data['protocol']} {data.data.get('protocol_version') or ''}".strip()))
        )
    if data.data.get("protocol_counterpart"):
        facts.append(("The challenge's other rules", text(f"protocol {data.data['protocol_counterpart']}")))
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
        cuts.append(f"{data.removed_ids} ids were removed from messages")
    blocks.append(Heading(text="What was cut from this page"))
    blocks += [Note(text=c) for c in cuts] or [Note(text="Nothing.")]
    return Section(id="provenance", title="Provenance", short="Provenance", blocks=blocks)


def checklist(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of the reporting guidelines.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section.
    """
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
    """Make the section of the methods paragraph.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without one.
    """
    words = methods_paragraph(data)
    if not words:
        return None
    lead = "Written from the run, to be pasted and edited."
    notes = [Note(text=str(n)) for n in data.rows("notes")]
    blocks: list[Any] = [Text(paragraphs=[words]), *notes]
    return Section(id="methods", title="Methods", short="Methods", lead=lead, blocks=blocks)
