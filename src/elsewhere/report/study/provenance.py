"""The last sections: audit, methods of the analysis, what each method was given, provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.blocks import Cell, Facts, Heading, Note, Section, Table, Text, cnt, text
from elsewhere.report.page.numbers import ABSENT, as_float, count
from elsewhere.report.study.cells import first_rows, rows_of
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import section

MOST_LISTED = 30
DUPLICATE_KINDS = ("exact", "near", "near, mirrored")
PARTS = ("train", "validation", "test")


@section("audit", place="audit", whole_study=True)
def audit(page: StudyPage) -> Section | None:
    """Show what was checked, what was left out, and what did not run.

    Args:
        page: The page of the whole study.

    Returns:
        The section; None where it has nothing to show.
    """
    held = page.summary.audit
    blocks: list[Any] = [_leaks(page), *(Note(tone="warn", text=w) for w in page.warnings())]
    left_out = [r for r in held.get("left_out") or [] if isinstance(r, Mapping)]
    if left_out:
        blocks.append(
            Table(
                name="left-out",
                caption="Rows that were left out",
                columns=["Dataset", "Why", "Rows"],
                rows=[
                    [
                        text(r.get("dataset")),
                        text(page.redact.text(str(r.get("reason") or ""))),
                        cnt(r.get("rows")),
                    ]
                    for r in left_out
                ],
            )
        )
    blocks += [*_duplicates(held.get("duplicates")), *_fallbacks(held.get("roi_fallbacks"))]
    blocks += [*_scenario_warnings(page, held.get("scenario_warnings")), *_without_scores(page)]
    return page.section(
        "audit", "Audit", blocks, lead="What was checked, what was left out, and what did not run."
    )


def _leaks(page: StudyPage) -> Note:
    leaked = page.summary.headline.get("leaked_runs")
    if leaked:
        return Note(
            tone="alarm",
            text=f"Data leakage: in {count(leaked)} runs a patient or a group of near-duplicates is both in the validation part "
            "and in the test part.",
        )
    splits = page.summary.audit.get("splits")
    checked = f"{count(len(splits))} splits" if isinstance(splits, Mapping) and splits else "every split"
    return Note(
        text=f"No data leakage: no patient and no group of near-duplicates is in two parts of {checked}. This was checked when "
        "the splits were made and when they were read, and once more for this report."
    )


def _duplicates(held: Any) -> list[Any]:
    """Count pairs of pictures or volumes that show the same, by datasets and relation (US-30)."""
    if not isinstance(held, Mapping):
        return []
    heading = Heading(text="Near-duplicates")
    if not held.get("kept_together"):
        return [
            heading,
            Note(tone="warn", text="Not searched for: the study sets keep_duplicates_together = false."),
        ]
    kinds: dict[tuple[str, str], dict[str, int]] = {}
    for pair in held.get("pairs") or []:
        if len(pair) < 4:
            continue
        a, b, kind, relation = pair[:4]
        datasets = dict.fromkeys(str(case).partition("/")[0] for case in (a, b))
        counts = kinds.setdefault((" and ".join(sorted(datasets)), str(relation)), {})
        counts[str(kind)] = counts.get(str(kind), 0) + 1
    counts_of = held.get("counts")
    if not kinds and isinstance(counts_of, Mapping) and as_float(counts_of.get("pairs")):
        across = (
            f"{count(counts_of.get('pairs_across_patients'))} across patients, "
            f"{count(counts_of.get('pairs_across_datasets'))} across datasets"
        )
        words = f"Pairs of cases with {held.get('what') or 'the same values'}: {count(counts_of['pairs'])} ({across}). "
        return [heading, Note(text=f"{words}No split parts a pair.")]
    if not kinds:
        return [heading, Note(text="Searched for, and none found.")]
    return [
        heading,
        Table(
            name="duplicates",
            caption="Pairs of cases that show the same",
            columns=["Dataset", "Relation", *(kind.capitalize() for kind in DUPLICATE_KINDS)],
            rows=[
                [text(sets), text(relation), *(cnt(counts.get(kind, 0)) for kind in DUPLICATE_KINDS)]
                for (sets, relation), counts in sorted(kinds.items())
            ],
            note="No split parts a pair, and every interval resamples its patients together. Each pair is in study.json; "
            "`elsewhere cohort duplicates` draws pictures side by side.",
        ),
    ]


def _fallbacks(held: Any) -> list[Any]:
    if not isinstance(held, Mapping) or not held:
        return []
    some = {k: v for k, v in held.items() if isinstance(v, Mapping) and any(as_float(n) for n in v.values())}
    if not some:
        return []
    return [
        Table(
            name="fallbacks",
            caption="Lesions without a valid box, whose crop is the whole image",
            columns=["Scenario", *(p.capitalize() for p in PARTS)],
            rows=[[text(k), *(cnt(v.get(p)) for p in PARTS)] for k, v in list(some.items())[:MOST_LISTED]],
            note=f"{count(len(some))} of {count(len(held))} scenarios; the largest number over seeds.",
        )
    ]


def _scenario_warnings(page: StudyPage, held: Any) -> list[Any]:
    if not isinstance(held, Mapping) or not held:
        return []
    rows = [
        [text(name), text(page.redact.text("; ".join(map(str, words))))]
        for name, words in list(held.items())[:MOST_LISTED]
    ]
    return [
        Table(
            name="scenario-warnings",
            caption="Warnings per scenario",
            columns=["Scenario", "Warning"],
            rows=rows,
        )
    ]


def _without_scores(page: StudyPage) -> list[Any]:
    """Scenarios that could not be split, and runs without valid scores."""
    skipped = rows_of(page.of("skipped"))
    runs = page.of("runs")
    invalid = rows_of(runs[runs["status"].isin(["invalid", "skipped"])])
    rows = [
        {
            "scenario": r.get("scenario"),
            "seed": r.get("seed"),
            "method": r.get("method"),
            "reason": r.get("reason"),
        }
        for r in [*skipped, *invalid]
    ]
    if not rows:
        return [Note(text="No scenario was skipped, and no run failed.")]
    shown, cut = first_rows(rows, MOST_LISTED, "skipped")
    cells = [
        [
            text(r["scenario"]),
            text("all" if as_float(r["seed"]) is None else count(r["seed"])),
            text(page.method(r["method"]) if isinstance(r["method"], str) else "all"),
            text(page.redact.text(str(r["reason"] or ""))),
        ]
        for r in shown
    ]
    cut = cut.replace("tables/skipped.csv has", "tables/skipped.csv and runs.csv have")
    return [
        Table(
            name="skipped",
            caption="Scenarios that were skipped, and runs without valid scores",
            columns=["Scenario", "Seed", "Method", "Why"],
            rows=cells,
            note=cut.strip(),
        )
    ]


@section("methods of the analysis", place="audit", whole_study=True)
def how(page: StudyPage) -> Section | None:
    """Describe how the numbers were computed, and what each method was given.

    Args:
        page: The page of the whole study.

    Returns:
        The section; None where it has nothing to show.
    """
    about = page.summary.provenance
    protocols = ", ".join(
        dict.fromkeys(f"{b['protocol']} {b['protocol_version']}" for b in page.summary.headline["boards"])
    )
    paragraphs = [
        f"Every method's predictions were written to files and scored by protocol {protocols}, as `elsewhere score` does. Each "
        "interval over patients resamples patients, and patients who are linked by near-duplicates are one "
        f"({count(about.get('resamples'))} resamples, seed {about.get('seed')}). All methods of a leaderboard share the "
        "resamples. Scenarios of a kind that test no case twice form one leaderboard; every other scenario has its own. The "
        "results of several seeds are averaged within each resample.",
        "A transfer from one dataset is compared with the same method's internal result at its source: other patients. A method "
        "trained on all other datasets is compared with the one trained at the target: the same patients. A verdict over "
        "datasets takes at least four of them; with fewer, each comparison has its own verdict, over patients. Comparisons with "
        "fewer than 10 patients, or 5 of a class, are refused.",
    ]
    if not page.of("summary").empty:
        paragraphs.append(
            "Means over scenarios average the seeds first, so that one scenario is one observation; their intervals are 95 % t "
            "intervals over scenarios and show how transfers differ. Comparisons of inputs and models are paired over scenarios "
            "by the exact Wilcoxon signed-rank test. No p value is corrected for the number of comparisons unless the table says "
            "so."
        )
    if "combined" in page.of("leaderboard").columns:
        paragraphs.append(
            "Performance is (Dice + 1 − NormHD) / 2 of the means, or balanced accuracy; fairness is 1 minus the mean gap over "
            "age, menopausal status and breast density; the combined score weighs both. A group that is empty, or lacks a "
            "class, has no gap. What cannot be estimated is reported as such and not filled in. Internal and external results "
            "are compared in Dice and AUROC, since an interval of a range over groups does not have its stated coverage."
        )
    return page.section(
        "how",
        "Methods of the analysis",
        [Text(paragraphs=paragraphs), *_disclosure(page)],
        short="Methods",
        lead="What each interval and each comparison means.",
    )


def _disclosure(page: StudyPage) -> list[Any]:
    rows = rows_of(page.of("disclosure"))
    if not rows:
        return []
    return [
        Table(
            name="disclosure",
            caption="What each method was given of a tested case, and what it reports of itself",
            columns=["Method", "Given besides the image", "Follows", "Reports"],
            rows=[
                [
                    text(page.method(r["method"])),
                    text(r["given"] or ABSENT),
                    text(r["follows"]),
                    text(r["notes"]),
                ]
                for r in rows
            ],
            note="No method is given the truth of a tested case. A method that is given anything besides the image, such as clinical "
            "columns or the box of the breast, has an easier task.",
        )
    ]


@section("provenance", place="audit", whole_study=True)
def provenance(page: StudyPage) -> Section | None:
    """Show what it takes to make the numbers again: versions, hashes, seeds and devices.

    Args:
        page: The page of the whole study.

    Returns:
        The section; None where it has nothing to show.
    """
    held = page.summary.provenance
    facts: list[tuple[str, Cell]] = [
        ("Elsewhere", text(held.get("elsewhere"))),
        ("Python, numpy, pandas", text(", ".join(str(held.get(k)) for k in ("python", "numpy", "pandas")))),
        ("Cohort", text(str(held.get("cohort_hash"))[:16], kind="code")),
        ("Protocols", text(", ".join(f"{k} {v}" for k, v in (held.get("protocols") or {}).items()))),
        ("Seeds of trainings", text(", ".join(map(str, held.get("seeds") or [])))),
        ("Resamples", cnt(held.get("resamples"))),
        ("Seed of the resamples", cnt(held.get("seed"))),
        ("Trainings", cnt(held.get("trainings"))),
    ]
    if as_float(held.get("training_seconds")):
        facts.append(("Training time", text(_duration(float(held["training_seconds"])))))
    if as_float(held.get("images_seen")):
        facts.append(("Images seen in training", cnt(held["images_seen"])))
    devices = held.get("devices")
    if isinstance(devices, Mapping) and devices:
        facts.append(("Devices", text(", ".join(f"{k} ({count(v)})" for k, v in devices.items()))))
    blocks: list[Any] = [Facts(items=facts)]
    cohorts = held.get("cohorts")
    if isinstance(cohorts, Mapping) and cohorts:
        blocks.append(
            Table(
                name="hashes",
                caption="Cohorts by the hash of their content",
                columns=["Dataset", "Hash"],
                rows=[[text(k), text(str(v)[:16] or ABSENT, kind="code")] for k, v in cohorts.items()],
            )
        )
    return page.section("provenance", "Provenance", blocks, lead="What it takes to make these numbers again.")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
