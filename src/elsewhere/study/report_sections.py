"""The sections of a study's report, who was tested, home and away, transfers (US-24)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere.report.page.blocks import (
    BLANK,
    Cell,
    Heading,
    Note,
    Pair,
    Picture,
    Section,
    Table,
    cnt,
    estimate,
    num,
    p_cell,
    text,
)
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import ABSENT, MINUS, as_float, count, interval, number, signed
from elsewhere.study.analysis_design import KIND_WORDS, configuration
from elsewhere.study.analysis_drop import OVERALL, SOURCES_NEEDED
from elsewhere.study.analysis_tables import EXTREMES
from elsewhere.study.figures import METRIC_WORDS
from elsewhere.study.reference import other_networks

if TYPE_CHECKING:
    from elsewhere.study.analysis import StudySummary

Specs = Mapping[str, FigureSpec]
Rows = list[dict[str, Any]]
PAPER_HEAD = f"Paper (ours {MINUS} paper)"


def rows_of(table: pd.DataFrame | None) -> Rows:
    if table is None or table.empty:
        return []
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def picture(specs: Specs, name: str, *, caption: str | None = None) -> Picture | None:
    spec = specs.get(name)
    return None if spec is None else Picture(name=name, caption=caption or spec.title, alt=spec.alt)


def pair(specs: Specs, *names: str) -> list[Pair]:
    made = [p for p in (picture(specs, n) for n in names) if p is not None]
    return [Pair(pictures=made)] if made else []


def like(specs: Specs, start: str) -> list[str]:
    return [name for name in specs if name.startswith(start)]


def named(row: Mapping[str, Any]) -> Cell:
    if row["model"] == OVERALL:
        return text("Overall", sub="unweighted mean")
    return text(configuration(str(row["model"]), str(row["input"])))


def with_interval(value: Any, lo: Any, hi: Any, *, sign: bool = False) -> Cell:
    ends = {"value": value, "lo": as_float(lo), "hi": as_float(hi)}
    if as_float(value) is None:
        return text(ABSENT)
    return estimate(ends, sign=sign)


def beside(ours: Any, theirs: Any, *, digits: int = 3) -> Cell:
    """The paper's value with ours less it."""
    if as_float(theirs) is None:
        return BLANK
    difference = (as_float(ours) or math.nan) - float(theirs)
    shown = signed(round(difference, 6), digits) if math.isfinite(difference) else ABSENT
    return Cell(
        text=number(theirs, digits), sub=f"({shown})", title=f"ours {ours!r}, paper {theirs!r}", kind="number"
    )


def who(summary: StudySummary, specs: Specs) -> Section:
    rows = rows_of(summary.tables.get("datasets"))
    paper = any("paper_patients" in r for r in rows)
    columns = [
        "Dataset",
        "Lesion images",
        "Benign",
        "Malignant",
        "Normal",
        "Patient ids",
        "Both labels",
        "Id grade",
    ]
    if paper:
        columns += ["Paper: lesion", "normal", "ids"]
    cells = [
        [
            text(r["dataset"]), cnt(r["lesion_images"]), cnt(r["benign"]), cnt(r["malignant"]), cnt(r["normal"]),
            cnt(r["patients"]), cnt(r["both_labels"]), text(r["id_grade"]),
            *([cnt(_whole(r.get(f"paper_{k}"))) for k in ("lesion_images", "normal", "patients")] if paper else []),
        ]
        for r in rows
    ]  # fmt: skip
    note = "Both labels: patient ids with benign and malignant images; each is one indivisible unit (US-03)."
    if paper:
        note += (
            " The paper counts one id an image in BUS-BRA and BUSI, and masks instead of images in BrEaST."
        )
    return Section(
        id="who",
        title="Who was tested",
        short="Who was tested",
        lead="Images by label, and the ids that stand for patients. A split never parts a patient.",
        blocks=[
            *pair(specs, "cohorts"),
            Table(name="datasets", caption="Datasets", columns=columns, rows=cells, note=note),
        ],
    )


def _whole(value: Any) -> Any:
    number_ = as_float(value)
    return None if number_ is None else round(number_)


def home_and_away(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("overall"))
    if not rows:
        return None
    blocks: list[Any] = [*pair(specs, *like(specs, "home-and-away"))]
    blocks.append(
        Note(
            text="Bars are means over scenarios, seeds averaged first. Error bars are seed-level standard "
            "deviations, pooled within scenarios: they show what training again moves, not how sure the mean is."
        )
    )
    for short, name in (("auroc", "AUROC"), ("bacc", "Balanced accuracy")):
        blocks.append(
            _overall(rows, short, name, other_networks(summary.design.network, summary.design.weights))
        )
    drop = rows_of(summary.tables.get("drop"))
    if drop:
        blocks.append(_drop([r for r in drop if r["metric"] == "auroc" or r["model"] == OVERALL]))
    blocks += _new_hospital(summary)
    return Section(
        id="home-and-away",
        title="At home and elsewhere",
        short="Home and elsewhere",
        lead="Internal: trained and tested within one dataset. External: trained on one, tested on all of another.",
        blocks=blocks,
    )


def _overall(rows: Rows, short: str, name: str, others: list[str]) -> Table:
    kinds = [k for k in ("internal", "external") if any(f"{k}_{short}" in r for r in rows)]
    paper = [k for k in kinds if any(as_float(r.get(f"paper_{k}_{short}")) is not None for r in rows)]
    columns = ["Configuration"]
    for kind in kinds:
        columns += [KIND_WORDS[kind].capitalize()] + ([PAPER_HEAD] if kind in paper else [])
    cells = []
    for r in rows:
        line = [named(r)]
        for kind in kinds:
            key = f"{kind}_{short}"
            line.append(with_interval(r.get(key), r.get(f"{key}_lo"), r.get(f"{key}_hi")))
            if kind in paper:
                line.append(beside(r.get(key), r.get(f"paper_{key}")))
        cells.append(line)
    return Table(
        name=f"overall-{short}",
        caption=f"{name}, mean over scenarios",
        columns=columns,
        rows=cells,
        note="Brackets: 95 % t interval over scenarios, cut to [0, 1] (US-19). Twelve transfers among four datasets "
        "are not twelve independent ones, so read it as a spread between transfers."
        + "".join(f" {told}" for told in others if paper),
    )


def _drop(rows: Rows) -> Table:
    cells = []
    for r in rows:
        cells.append(
            [
                text(named(r).text, sub="" if r["metric"] == "auroc" else METRIC_WORDS[r["metric"]]),
                num(r["internal"]),
                num(r["external"]),
                with_interval(r["by_source"], r["by_source_lo"], r["by_source_hi"], sign=True),
                with_interval(r["by_target"], r["by_target_lo"], r["by_target_hi"], sign=True),
                p_cell(r["by_source_p"]),
                text(f"{signed(r['without_one_lo'])} to {signed(r['without_one_hi'])}"),
            ]
        )
    fewest = min(int(rows[0]["by_source_n"]), int(rows[0]["by_target_n"]))
    means = "Brackets: 95 % t interval."
    if fewest < SOURCES_NEEDED:
        means = f"Brackets: a spread (t over {fewest}), not an interval to judge by: with so few, agreement is luck."
    least = as_float(rows[0].get("by_source_smallest_p"))
    small = (
        f" With {rows[0]['by_source_n']} sources the smallest p this test can give is {number(least)}."
        if least is not None
        else ""
    )
    return Table(
        name="drop",
        caption=f"The drop in AUROC, external {MINUS} internal",
        columns=[
            "Configuration",
            "Internal",
            "External",
            "Over sources",
            "Over targets",
            "p, over sources",
            "Without one dataset",
        ],
        rows=cells,
        note="Over sources: each source's mean transfer less its value at home; over targets: the mean foreign model at a "
        f"target less the one made there. {means} p: exact Wilcoxon signed-rank.{small}",
    )


def _new_hospital(summary: StudySummary) -> list[Any]:
    rows = rows_of(summary.tables.get("new_hospital"))
    if not rows:
        return []
    if all(as_float(r["value"]) is None for r in rows):
        return [Note(text=f"What one more hospital would see is {rows[0]['reason']} (ST-10).")]
    cells = [
        [
            named(r),
            text(KIND_WORDS.get(str(r["kind"]), str(r["kind"]))),
            with_interval(r["value"], r["lo"], r["hi"]),
            text(
                interval({"lo": as_float(r["prediction_lo"]), "hi": as_float(r["prediction_hi"])})
                or r["reason"]
            ),
            cnt(r["targets"]),
        ]
        for r in rows
    ]
    return [
        Table(
            name="new-hospital",
            caption="AUROC at one more hospital",
            columns=[
                "Configuration",
                "Scenarios",
                "Mean over targets",
                "95 % prediction interval",
                "Targets",
            ],
            rows=cells,
            note="Random effects over targets, on the logit scale: where the AUROC of one more hospital may lie. The interval averages over all spreads "
            "between hospitals that these targets allow.",
        )
    ]


def transfers(summary: StudySummary, specs: Specs) -> Section | None:
    rows = rows_of(summary.tables.get("transfers"))
    maps = pair(specs, *like(specs, "transfer-auroc"))
    if not rows and not maps:
        return None
    blocks: list[Any] = [Heading(text="AUROC"), *maps] if maps else []
    if blocks:
        blocks.append(
            Note(
                text="Mean AUROC over seeds. Framed: internal. The deeper the colour, the further above chance."
            )
        )
    if rows:
        best, worst = rows[:EXTREMES], rows[-EXTREMES:] if len(rows) > EXTREMES else []
        shown = best + [r for r in worst if r not in best]
        blocks.append(_extremes(shown, f"Best and worst of {count(len(rows))} transfers"))
        printed = [r for r in rows if r.get("paper_rank")]
        if printed:
            order = sorted(printed, key=lambda r: (r["paper_rank"].startswith("lowest"), r["paper_rank"]))
            blocks.append(
                _printed(order, len(rows), other_networks(summary.design.network, summary.design.weights))
            )
    if like(specs, "transfer-bacc"):
        blocks += [Heading(text="Balanced accuracy"), *pair(specs, *like(specs, "transfer-bacc"))]
        blocks.append(Note(text="Mean balanced accuracy at the fixed threshold of 0.5 (US-15)."))
    return Section(
        id="transfers",
        title="From each to each",
        short="Transfers",
        lead="Rows are what a model was trained on, columns where it was tested. Transfer is rarely symmetric.",
        blocks=blocks,
    )


def _transfer_name(r: Mapping[str, Any]) -> Cell:
    return text(f"{r['source']} → {r['target']}", sub=configuration(str(r["model"]), str(r["input"])))


def _extremes(rows: Rows, caption: str) -> Table:
    changes = any(as_float(r.get("change")) is not None for r in rows)
    words = any(r.get("word") for r in rows)
    columns = ["Transfer", "Rank", "AUROC", "s.d. over seeds"]
    columns += ["Less home"] if changes else []
    columns += ["Word"] if words else []
    cells = []
    for r in rows:
        line = [
            _transfer_name(r),
            cnt(r["rank"]),
            with_interval(r["auroc"], r.get("auroc_lo"), r.get("auroc_hi")),
            num(r.get("auroc_seed_sd")),
        ]
        if changes:
            line.append(with_interval(r["change"], r["change_lo90"], r["change_hi90"], sign=True))
        if words:
            line.append(text(r["word"], kind="word"))
        else:
            line.append(
                with_interval(
                    r["balanced_accuracy"], r.get("balanced_accuracy_lo"), r.get("balanced_accuracy_hi")
                )
            )
        cells.append(line)
    columns += [] if words else ["Balanced accuracy"]
    note = (
        "Brackets: 95 % interval when other patients had come to the target, the trained networks as they are "
        "(AUROC: clustered DeLong of the seeds' mean; balanced accuracy: patients resampled)."
    )
    if changes:
        note += " Less home: the source's internal value taken away (the same recipe, trained on 70 % of the source), 90 % interval, patients of both sides."
    return Table(
        name="transfers",
        caption=caption,
        columns=columns,
        rows=cells,
        note=note + " All are in tables/transfers.csv.",
    )


def _printed(rows: Rows, transfers_: int, others: list[str]) -> Table:
    cells = [
        [
            _transfer_name(r),
            text(r["paper_rank"]),
            cnt(r["rank"]),
            num(r["auroc"]),
            beside(r["auroc"], r["paper_auroc"]),
            num(r["balanced_accuracy"]),
            beside(r["balanced_accuracy"], r["paper_balanced_accuracy"]),
        ]
        for r in rows
    ]
    return Table(
        name="transfers-paper",
        caption="The transfers that the paper lists",
        columns=[
            "Transfer",
            "Paper's rank",
            f"Our rank of {transfers_}",
            "AUROC",
            PAPER_HEAD,
            "Bal. accuracy",
            PAPER_HEAD,
        ],
        rows=cells,
        note=" ".join(others),
    )
