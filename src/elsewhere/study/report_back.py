"""The last sections: beside the paper, audit, how the numbers were made, provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from elsewhere.report.page.blocks import (
    Cell,
    Facts,
    Fold,
    Heading,
    Note,
    Section,
    Table,
    Text,
    cnt,
    num,
    text,
)
from elsewhere.report.page.numbers import ABSENT, MINUS, as_float, count, interval, signed
from elsewhere.study.report_first import told_warnings
from elsewhere.study.report_sections import Specs, rows_of

if TYPE_CHECKING:
    from elsewhere.study.analysis import StudySummary

MOST_BESIDE = 80
MOST_LISTED = 25
DUPLICATE_KINDS = ("exact", "near", "near, mirrored")


def paper(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("beside_paper"))
    if not rows:
        return None
    aurocs = [r for r in rows if r["metric"] == "AUROC" and r["table"] == "overall"]
    sizes = sorted(abs(r["difference"]) for r in rows)
    known = [r for r in rows if r["inside"] is not None and r["inside"] == r["inside"]]
    facts: list[tuple[str, Cell]] = [
        ("Numbers compared", cnt(len(rows))),
        (f"Median |ours {MINUS} paper|", num(sizes[len(sizes) // 2])),
        ("Largest", num(sizes[-1])),
        (
            "Paper inside our interval",
            text(f"{sum(bool(r['inside']) for r in known)} of {len(known)}", kind="number"),
        ),
    ]
    if aurocs:
        mean = sum(r["difference"] for r in aurocs) / len(aurocs)
        facts.append((f"Mean ours {MINUS} paper, AUROC of table 3", Cell(text=signed(mean), kind="number")))
    cells = [
        [
            text(r["what"]),
            text(r["metric"]),
            num(r["ours"], sub=interval({"lo": as_float(r["lo"]), "hi": as_float(r["hi"])})),
            num(r["paper"]),
            Cell(text=signed(round(r["difference"], 6)), title=repr(r["difference"]), kind="number"),
        ]
        for r in rows[:MOST_BESIDE]
    ]
    cut = (
        f" {MOST_BESIDE} of {count(len(rows))} rows; all are in tables/beside_paper.csv."
        if len(rows) > MOST_BESIDE
        else ""
    )
    return Section(
        id="paper",
        title="Beside the paper",
        short="Beside the paper",
        lead="Every number that the paper prints and this study also has. Seeds, framework and the reading of patient ids differ.",
        blocks=[
            Facts(items=facts),
            *[Note(text=n) for n in summary.notes],
            Fold(
                summary="All numbers side by side",
                blocks=[
                    Table(
                        name="beside", caption="Ours and the paper's", rows=cells,
                        columns=["Number", "Metric", "Ours", "Paper", f"Ours {MINUS} paper"],
                        note="Brackets: 95 % interval, over scenarios for means and over patients for single transfers." + cut,
                    )
                ],
            ),
        ],
    )  # fmt: skip


def audit(summary: StudySummary, specs: Specs, clean: Callable[[Any], Any]) -> Section:
    held = summary.audit
    blocks: list[Any] = []
    splits = held.get("splits")
    checked = f"{count(len(splits))} splits" if isinstance(splits, Mapping) and splits else "every split"
    leaked = summary.headline.get("leaked_runs")
    blocks.append(
        Note(
            tone="alarm",
            text=f"Leaks: {count(leaked)} runs share a patient or duplicate group between validation and test.",
        )
        if leaked
        else Note(
            text=f"Leaks: none. No patient and no duplicate group stands in two parts of {checked}, checked when made "
            "and when read (US-11); validation and test were compared once more for this report."
        )
    )
    blocks += [Note(tone="warn", text=told) for told in told_warnings(summary, clean)]
    left = [r for r in held.get("left_out") or [] if isinstance(r, Mapping)]
    if left:
        blocks.append(
            Table(
                name="left-out",
                caption="Rows left out",
                columns=["Dataset", "Why", "Rows"],
                rows=[
                    [text(r.get("dataset")), text(clean(str(r.get("reason") or ""))), cnt(r.get("rows"))]
                    for r in left
                ],
            )
        )
    blocks += _duplicates(held.get("duplicates"))
    blocks += _fallbacks(held.get("roi_fallbacks"))
    told = held.get("scenario_warnings")
    if isinstance(told, Mapping) and told:
        rows = [
            [text(name), text(clean("; ".join(map(str, words))))]
            for name, words in list(told.items())[:MOST_LISTED]
        ]
        blocks.append(
            Table(
                name="scenario-warnings",
                caption="Warnings a scenario",
                columns=["Scenario", "Warning"],
                rows=rows,
            )
        )
    blocks += _skipped(summary, clean)
    return Section(
        id="audit",
        title="Audit",
        short="Audit",
        lead="What was checked, what was left out, and what did not run.",
        blocks=blocks,
    )


def _duplicates(held: Any) -> list[Any]:
    """Pictures that show one scene, by datasets and by what a pair crosses (US-30)."""
    if not isinstance(held, Mapping):
        return []
    heading = Heading(text="Near-duplicates")
    if not held.get("kept_together"):
        return [heading, Note(tone="warn", text="Nobody looked: keep_duplicates_together = false.")]
    kinds: dict[tuple[str, str], dict[str, int]] = {}
    for a, b, kind, relation, *_ in held.get("pairs") or []:
        sets = dict.fromkeys(str(case).partition("/")[0] for case in (a, b))
        counts = kinds.setdefault((" and ".join(sorted(sets)), str(relation)), {})
        counts[str(kind)] = counts.get(str(kind), 0) + 1
    if not kinds:
        return [heading, Note(text="Looked for, and none found.")]
    rows = [
        [text(sets), text(relation), *(cnt(counts.get(kind, 0)) for kind in DUPLICATE_KINDS)]
        for (sets, relation), counts in sorted(kinds.items())
    ]
    return [
        heading,
        Table(
            name="duplicates",
            caption="Pairs of pictures that show one scene",
            columns=["Dataset", "The pair lies", *(kind.capitalize() for kind in DUPLICATE_KINDS)],
            rows=rows,
            note="No split parts a pair. Each pair is in study.json; `elsewhere cohort duplicates` draws them side by side.",
        ),
    ]


def _fallbacks(held: Any) -> list[Any]:
    if not isinstance(held, Mapping) or not held:
        return []
    some = {k: v for k, v in held.items() if isinstance(v, Mapping) and any(as_float(n) for n in v.values())}
    if not some:
        return [
            Note(
                text=f"Lesion crops: every lesion has a valid box in all {count(len(held))} scenarios, none fell back to the whole image (US-13)."
            )
        ]
    rows = [
        [text(k), *[cnt(v.get(p)) for p in ("train", "validation", "test")]]
        for k, v in list(some.items())[:MOST_LISTED]
    ]
    return [
        Table(
            name="fallbacks",
            caption="Lesions without a valid box, whose crop is the whole image",
            columns=["Scenario", "Train", "Validation", "Test"],
            rows=rows,
            note=f"{count(len(some))} of {count(len(held))} scenarios; the largest number over seeds (US-13).",
        )
    ]


def _skipped(summary: StudySummary, clean: Callable[[Any], Any]) -> list[Any]:
    rows = rows_of(summary.tables.get("skipped"))
    if not rows:
        return [Note(text="No scenario was skipped, and no run failed.")]
    cells = [
        [
            text(r.get("scenario")),
            text("all" if as_float(r.get("seed")) is None else count(r["seed"])),
            text(clean(str(r.get("reason") or ""))),
        ]
        for r in rows[:MOST_LISTED]
    ]
    note = (
        f"{MOST_LISTED} of {count(len(rows))}; all are in tables/skipped.csv."
        if len(rows) > MOST_LISTED
        else ""
    )
    return [
        Table(
            name="skipped",
            caption="Scenarios skipped and runs that failed",
            columns=["Scenario", "Seed", "Why"],
            rows=cells,
            note=note,
        )
    ]


def how(summary: StudySummary, specs: Specs) -> Section:
    resamples = summary.provenance.get("resamples")
    paragraphs = [
        "Each run is judged on its test part: malignant at a probability of 0.5 or more, fixed beforehand. Seeds are averaged "
        "first, so that one scenario is one observation; means are over scenarios.",
        "Three intervals stand in this report, and each says which it is. Over scenarios: a 95 % t interval of the mean over "
        "transfers, the study's own; it shows how transfers differ. Over patients: what another sample of the target's patients "
        f"would give, with the networks as they were trained (clustered DeLong; {count(resamples)} resamples of patients within "
        "class for the rest). Over seeds: the standard deviation of training again with another split.",
        "Comparisons are paired over scenarios by the exact Wilcoxon signed-rank test; the smallest p that so few scenarios can "
        "give is printed where it matters. No p is corrected for the number of comparisons.",
        "The drop is averaged over the main configurations and taken by source, since transfers of one source share one home value.",
    ]
    return Section(
        id="how", title="How the numbers were made", short="How it was made", lead="What each interval means.",
        blocks=[Text(paragraphs=paragraphs)],
    )  # fmt: skip


def provenance(summary: StudySummary, specs: Specs) -> Section:
    held = summary.provenance
    facts: list[tuple[str, Cell]] = [
        ("Elsewhere", text(held.get("elsewhere"))),
        ("Python, numpy, pandas", text(", ".join(str(held.get(k)) for k in ("python", "numpy", "pandas")))),
        ("Study table", text(str(held.get("study_table"))[:16], kind="code")),
        ("Seeds", text(", ".join(map(str, held.get("seeds") or [])))),
        ("Resamples", cnt(held.get("resamples"))),
        ("Trainings", cnt(held.get("trainings"))),
    ]
    if as_float(held.get("training_seconds")):
        facts.append(("Training time", text(_duration(float(held["training_seconds"])))))
    if as_float(held.get("images_seen")):
        facts.append(("Images seen in training", cnt(held["images_seen"])))
    devices = held.get("devices")
    if isinstance(devices, Mapping) and devices:
        facts.append(("Devices", text(", ".join(f"{k} ({count(v)})" for k, v in devices.items()))))
    cohorts = held.get("cohorts")
    blocks: list[Any] = [Facts(items=facts)]
    if isinstance(cohorts, Mapping) and cohorts:
        rows = [[text(k), text(str(v)[:16] or ABSENT, kind="code")] for k, v in cohorts.items()]
        blocks.append(
            Table(
                name="hashes",
                caption="Cohorts by the hash of their content",
                columns=["Dataset", "Hash"],
                rows=rows,
            )
        )
    return Section(
        id="provenance", title="Provenance", short="Provenance", lead="What it takes to make these numbers again.", blocks=blocks
    )  # fmt: skip


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
