"""The section with class averages of slides from printed rates."""

from __future__ import annotations

from elsewhere.report.page.blocks import Section, Table, num, text
from elsewhere.report.page.figures import Specs
from elsewhere.report.result.prepare import Prepared

_SHOWN = ("left_out_precision", "left_out_f1", "negative_precision", "negative_f1")


def printed_rates(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with precision and F1 under both rules for isolated tumour cells.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without printed rates.
    """
    found = [row for row in data.part("generalise").get("printed_rates") or [] if isinstance(row, dict)]
    if not found:
        return None
    rows = [
        [
            text(row.get("name")),
            num(row.get("sensitivity")),
            num(row.get("specificity")),
            *(num(row.get(key)) for key in _SHOWN),
        ]
        for row in found
    ]
    table = Table(
        name="generalise-printed-rates",
        caption="Means of both classes from printed rates",
        columns=[
            "Name",
            "Sensitivity",
            "Specificity",
            "Precision, ITC left out",
            "F1, ITC left out",
            "Precision, ITC negative",
            "F1, ITC negative",
        ],
        rows=rows,
        note="Sensitivity and specificity are as printed and the same under both rules; more negative slides change the rest.",
    )
    return Section(
        id="generalise-printed-rates",
        title="Slides",
        short="Slides",
        lead="Slides with isolated tumour cells (ITC) alone count as negative, or are left out: what that does to the means.",
        blocks=[table],
    )
