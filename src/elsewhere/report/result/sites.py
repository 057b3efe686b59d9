"""Sections about parts of the cohort: sites, what to expect of a new one, sizes of lesions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.blocks import (
    Facts,
    Pair,
    Section,
    estimate,
)
from elsewhere.report.page.figures import Specs, picture
from elsewhere.report.page.labels import headline
from elsewhere.report.page.numbers import as_float
from elsewhere.report.result.generic import generic_blocks
from elsewhere.report.result.prepare import Prepared
from elsewhere.report.result.subgroups import rows_table


def sites(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about the sites.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None with one site.
    """
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
    """Name the sites that the prediction for a new hospital leaves out; empty where it uses all."""
    left_out = int(as_float(new.get("left_out")) or 0)
    if new.get("undefined_reason"):
        return f"What a new hospital would see is {new['undefined_reason']}."
    if left_out:
        return f"The prediction for a new hospital rests on {new.get('sites')} sites; {left_out} without a standard error (too few cases, or a perfect value) are not in it."
    return ""


def size_strata(data: Prepared, specs: Specs) -> Section | None:
    """Make the section about the sizes of lesions.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where they are not known.
    """
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
