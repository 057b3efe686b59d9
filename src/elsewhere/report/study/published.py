"""The section that compares a study's numbers with those of a published study (US-25)."""

from __future__ import annotations

from elsewhere.report.page.blocks import Cell, Facts, Fold, Note, Section, Table, cnt, num, text
from elsewhere.report.page.numbers import MINUS, as_float, interval, signed
from elsewhere.report.study.cells import first_rows
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import section

MOST_ROWS = 80


@section("published comparison", place="published", tables=("published_comparison",))
def published(page: StudyPage) -> Section | None:
    """Compare every number that the published study prints and this study also has (US-25).

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    rows = page.rows("published_comparison")
    sizes = sorted(abs(r["difference"]) for r in rows)
    known = [r for r in rows if r["inside"] is not None and r["inside"] == r["inside"]]
    difference = f"ours {MINUS} published"
    facts: list[tuple[str, Cell]] = [
        ("Numbers compared", cnt(len(rows))),
        (f"Median |{difference}|", num(sizes[len(sizes) // 2])),
        ("Largest", num(sizes[-1])),
        (
            "Published value inside our interval",
            text(f"{sum(bool(r['inside']) for r in known)} of {len(known)}", kind="number"),
        ),
    ]
    means = [r["difference"] for r in rows if r["metric"] == "AUROC" and r["table"] == "overall"]
    if means:
        mean = sum(means) / len(means)
        facts.append((f"Mean {difference}, AUROC over scenarios", Cell(text=signed(mean), kind="number")))
    shown, cut = first_rows(rows, MOST_ROWS, "published_comparison")
    table = Table(
        name=page.name("published"),
        caption="Our values and the published ones",
        columns=["Number", "Metric", "Ours", "Published", f"Ours {MINUS} published"],
        rows=[
            [
                text(r["what"]),
                text(r["metric"]),
                num(r["value"], sub=interval({"lo": as_float(r["lo"]), "hi": as_float(r["hi"])})),
                num(r["published"]),
                Cell(text=signed(round(r["difference"], 6)), title=repr(r["difference"]), kind="number"),
            ]
            for r in shown
        ],
        note=f"Brackets: 95 % interval, over scenarios for means and over patients for single transfers.{cut}",
    )
    return page.section(
        "published",
        "Comparison with published numbers",
        [
            Facts(items=facts),
            *(Note(text=n) for n in page.summary.notes),
            Fold(summary="All numbers", blocks=[table], closed=len(rows) > 40),
        ],
        short="Published numbers",
        lead="Every number that the published study prints and this study also has. Seeds, framework and the reading of patient "
        "ids differ.",
    )
