"""The sections on trust: calibration, lesion against normal, abstention (US-16 to US-18, US-32)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elsewhere.report.page.blocks import BLANK, Cell, Note, Section, Table, cnt, num, pct, text
from elsewhere.report.page.numbers import as_float, count, number, signed
from elsewhere.study.analysis_abstention import SCORE_WORDS
from elsewhere.study.analysis_design import KIND_WORDS, configuration
from elsewhere.study.report_sections import Rows, Specs, like, named, pair, rows_of

if TYPE_CHECKING:
    from elsewhere.study.analysis import StudySummary


def _kind(value: Any) -> str:
    return KIND_WORDS.get(str(value), str(value))


def calibration(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("overall"))
    eligibility = rows_of(summary.tables.get("calibration_eligibility"))
    if not rows:
        return None
    blocks: list[Any] = [
        *pair(specs, "calibration-ece", "calibration-nll"),
        *pair(specs, *like(specs, "reliability")),
    ]
    if like(specs, "reliability"):
        blocks.append(
            Note(
                text="Reliability of the malignant probability, all main runs pooled; bands: Wilson by patient, before calibration."
            )
        )
    for short, name in (("ece", "ECE"), ("nll", "NLL")):
        blocks.append(_measure(rows, short, name))
    blocks.append(_eligible(eligibility))
    return Section(
        id="calibration",
        title="Do the probabilities mean what they say",
        short="Calibration",
        lead="A temperature fitted on the source's validation part alone, where that part is large enough (US-16).",
        blocks=blocks,
    )


def _measure(rows: Rows, short: str, name: str) -> Table:
    kinds = [k for k in ("internal", "external") if any(f"{k}_{short}_raw" in r for r in rows)]
    paper = [k for k in kinds if any(as_float(r.get(f"paper_{k}_{short}_raw")) is not None for r in rows)]
    columns = ["Configuration"]
    for kind in kinds:
        for state in ("raw", "calibrated"):
            columns += [f"{_kind(kind).capitalize()}, {state}"] + (["Paper"] if kind in paper else [])
    cells = []
    for r in rows:
        line = [text(named(r).text)]
        for kind in kinds:
            for state in ("raw", "cal"):
                key = f"{kind}_{short}_{state}"
                line.append(num(r.get(key)))
                if kind in paper:
                    line.append(
                        num(r[f"paper_{key}"]) if as_float(r.get(f"paper_{key}")) is not None else BLANK
                    )
        cells.append(line)
    note = ""
    if short == "ece":
        note += (
            " ECE over ten equal bins of the predicted class's confidence, our reading of an ambiguous definition; "
            "the one of the malignant probability is in tables/summary.csv."
        )
    return Table(
        name=f"calibration-{short}",
        caption=f"{name}, mean over scenarios",
        columns=columns,
        rows=cells,
        note=note.strip(),
    )


def _eligible(rows: Rows) -> Table:
    paper = any(as_float(r.get("paper_eligible")) is not None for r in rows)
    columns = ["Runs", "Trained on", "Eligible", "Share", "At a bound", "Median temperature"] + (
        ["Paper"] if paper else []
    )
    cells = []
    for r in rows:
        line = [
            text(_kind(r["kind"])), text("all sources" if r["source"] == "all" else r["source"]),
            text(f"{count(r['eligible'])} of {count(r['runs'])}", kind="number"), pct(r["share"], 0),
            cnt(r["at_a_bound"]), num(r["median_temperature"], 2),
        ]  # fmt: skip
        if paper:
            has = as_float(r.get("paper_eligible")) is not None
            line.append(
                text(f"{count(r['paper_eligible'])} of {count(r['paper_runs'])}", kind="number")
                if has
                else BLANK
            )
        cells.append(line)
    return Table(
        name="eligibility",
        caption="In how many runs a temperature could be fitted",
        columns=columns,
        rows=cells,
        note="Eligible: at least 40 validation images with 10 of each class; otherwise the temperature is 1. Bounds: 0.5 and 5.",
    )


def normal(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("lesion_against_normal"))
    if not rows:
        return None
    shown = [r for r in rows if as_float(r["auroc"]) is not None]
    blocks: list[Any] = pair(specs, *like(specs, "normal-"))
    if shown:
        blocks.append(_normal(shown))
    gone = {str(r["target"]): str(r["unavailable"]) for r in rows if r["unavailable"]}
    blocks += [Note(text=f"{target}: unavailable ({why}).") for target, why in gone.items()]
    mixed = sorted({str(r["target"]) for r in shown if r["shared_patients"] > 0})
    if mixed:
        blocks.append(
            Note(
                tone="warn",
                text=f"Lesion and normal images of {', '.join(mixed)} share patients: the two sides are not independent.",
            )
        )
    return Section(
        id="normal",
        title="Does it know a normal image",
        short="Lesion against normal",
        lead="Trained on lesions alone, a model should be less sure of a normal image. Score: 1 less the largest probability (US-18).",
        blocks=blocks,
    )


def _normal(rows: Rows) -> Table:
    targets = sorted({str(r["target"]) for r in rows})
    held = {(str(r["kind"]), str(r["model"]), str(r["input"]), str(r["target"])): r for r in rows}
    columns = ["Configuration"]
    for target in targets:
        columns += [f"{target}: AUROC", "AUPRC (by chance)"]
    cells = []
    for kind, model, input_ in dict.fromkeys(key[:3] for key in held):
        line = [text(configuration(model, input_), sub=_kind(kind))]
        for target in targets:
            r = held.get((kind, model, input_, target))
            line += (
                [num(r["auroc"]), num(r["auprc"], sub=f"({number(r['share_normal'], 2)})")]
                if r
                else [BLANK, BLANK]
            )
        cells.append(line)
    return Table(
        name="normal",
        caption="Uncertainty of normal images against that of lesions",
        columns=columns,
        rows=cells,
        note="By chance the AUPRC is the share of normal images. Normals have no box: the whole image in both inputs.",
    )


def abstention(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("abstention"))
    if not rows:
        return None
    blocks: list[Any] = pair(specs, *like(specs, "risk-"))
    kinds = list(dict.fromkeys(str(r["kind"]) for r in rows))
    shown = "external" if "external" in kinds else kinds[0]
    blocks.append(_scores([r for r in rows if r["kind"] == shown], shown))
    others = [k for k in kinds if k != shown]
    if others:
        blocks.append(
            Note(
                text=f"The same for {' and '.join(_kind(k) for k in others)} scenarios: tables/abstention.csv."
            )
        )
    ensembles = rows_of(summary.tables.get("ensembles"))
    if ensembles:
        blocks.append(_ensembles(ensembles))
    return Section(
        id="abstention",
        title="When not to answer",
        short="Abstention",
        lead="Answer the surest cases only: how many errors remain, and does a score find the errors (US-32).",
        blocks=blocks,
    )


def _scores(rows: Rows, kind: str) -> Table:
    cells = []
    last = ""
    for r in rows:
        name = configuration(r["model"], r["input"])
        cells.append(
            [
                text(name) if name != last else BLANK,
                text(SCORE_WORDS[r["score"]]),
                pct(r["error_rate"]),
                pct(r["error_at_80"]),
                num(r["aurc"]),
                num(r["excess_aurc"]),
                num(r["error_detection"]),
                num(r["normal_auroc"]),
            ]
        )
        last = name
    return Table(
        name="abstention",
        caption=f"Scores of uncertainty, {_kind(kind)} scenarios",
        columns=[
            "Configuration",
            "Score",
            "Error, all",
            "Surest 80 %",
            "AURC",
            "Above best",
            "AUROC, errors",
            "AUROC, normals",
        ],
        rows=cells,
        note="Means over scenarios, seeds first. AURC: mean error over all coverages; above best: what a perfect order of "
        "the same errors would save. AUROC, errors: does the score tell wrong answers from right ones; normals: normal images "
        "from lesions. An error rate moves with the share of malignant cases: compare within one column.",
    )


def _ensembles(rows: Rows) -> Table:
    held: dict[tuple[str, str, str], Rows] = {}
    for r in rows:
        held.setdefault((str(r["kind"]), str(r["model"]), str(r["input"])), []).append(r)
    cells = []
    for (kind, model, input_), part in held.items():
        ours = sum(r["auroc"] for r in part) / len(part)
        single = sum(r["mean_of_seeds"] for r in part) / len(part)
        cells.append(
            [
                text(configuration(model, input_)),
                text(_kind(kind)),
                num(single),
                num(ours),
                Cell(text=signed(ours - single), kind="number"),
                cnt(part[0]["seeds"]),
            ]
        )
    return Table(
        name="ensembles",
        caption="The seeds as one model: AUROC of their mean probability",
        columns=["Configuration", "Scenarios", "Mean of the seeds", "Ensemble", "Gain", "Seeds"],
        rows=cells,
    )
