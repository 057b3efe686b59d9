"""The pictures of one model: verdict, curves, reliability, forests. Each takes the prepared summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from elsewhere.report.page.axes import shorten, to_array, use_minus_sign
from elsewhere.report.page.canvas import Palette, new_figure, style
from elsewhere.report.page.labels import label
from elsewhere.report.page.numbers import MINUS, as_float, number, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FALSE_POSITIVES = 10.0
MOST_CLAIMS = 8


def verdict(
    claims: Sequence[Mapping[str, Any]],
    pal: Palette,
    *,
    more_is_better: bool = True,
    named: bool = True,
    than: str = "claimed",
) -> Figure:
    """Draw the interval of (here - reference) against the margin, one strip per claim (ST-05).

    Args:
        claims: The claims of the verdict; those without a difference are left out.
        pal: The colours.
        more_is_better: Whether a higher value is better for every claim; the axis then has a direction.
        named: Whether each strip has the claim's name.
        than: What the claims are compared with: 'claimed' or 'reference'.

    Returns:
        The figure.
    """
    shown = [c for c in claims if as_float(c.get("difference")) is not None][:MOST_CLAIMS]
    figure, axes = new_figure(1.0 + 0.6 * len(shown), pal, width=4.4)
    style(axes, pal, grid="none")
    margins = [as_float(c.get("margin")) or 0.0 for c in shown]
    ends = [abs(as_float(c.get(k)) or 0.0) for c in shown for k in ("lo", "hi", "margin", "difference")]
    middles = [abs(as_float(c.get("difference")) or 0.0) for c in shown]
    reach = min(1.2 * max([*ends, 1e-3]), max([7 * max(margins), 1.3 * max(middles), 1e-3]))
    for i, claim in enumerate(shown):
        y = len(shown) - 1 - i
        if margins[i]:
            _margin(axes, y, margins[i], pal, name=i == 0, narrow=margins[i] / reach < 0.22)
        _difference(axes, y, claim, pal, reach)
    axes.axvline(0, color=pal.ink, linewidth=0.9)
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-0.55, len(shown) - 0.05)
    axes.set_yticks(range(len(shown))[::-1], _claim_names(shown) if named else [""] * len(shown))
    for tick in axes.get_yticklabels():
        tick.set_color(pal.ink)
    words = f"here {MINUS} {than}"
    axes.set_xlabel(f"worse  ←  {words}  →  better" if more_is_better else words)
    axes.locator_params(axis="x", nbins=6)
    use_minus_sign(axes)
    return figure


def _claim_names(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the group alone where every claim is of one metric, else the metric and its group."""
    names = [label(str(c.get("metric", "")), c) for c in claims]
    groups = [str(c.get("group") or "") for c in claims]
    if len(set(names)) == 1 and all(groups):
        return [shorten(group, 18) for group in groups]
    return [
        shorten(f"{name}, {group}" if group else name, 20) for name, group in zip(names, groups, strict=True)
    ]


def _margin(axes: Axes, y: float, margin: float, pal: Palette, *, name: bool, narrow: bool) -> None:
    axes.fill_between([-margin, margin], y - 0.36, y + 0.36, color=pal.muted, alpha=0.15, linewidth=0)
    for edge in (-margin, margin):
        axes.plot([edge, edge], [y - 0.36, y + 0.36], color=pal.muted, linewidth=1, linestyle=(0, (3, 2)))
        if name and not narrow:
            axes.text(edge, y + 0.43, signed(edge), ha="center", va="bottom", color=pal.muted, fontsize=10)
    if name and narrow:
        axes.text(
            margin, y + 0.43, f"  ±{number(margin)}", ha="left", va="bottom", color=pal.muted, fontsize=10
        )


def _difference(axes: Axes, y: float, claim: Mapping[str, Any], pal: Palette, reach: float) -> None:
    """Draw one interval; an end beyond the picture is an arrow and not a cap."""
    lo, hi, middle = (as_float(claim.get(k)) for k in ("lo", "hi", "difference"))
    colour = pal.verdict(str(claim.get("word", "")))
    if lo is not None and hi is not None:
        axes.plot(
            [max(lo, -reach), min(hi, reach)], [y, y], color=colour, linewidth=3.4, solid_capstyle="butt"
        )
        for end in (lo, hi):
            if abs(end) <= reach:
                axes.plot([end, end], [y - 0.11, y + 0.11], color=colour, linewidth=1.6)
            else:
                at, mark = (reach * 0.985, ">") if end > 0 else (-reach * 0.985, "<")
                axes.plot([at], [y], marker=mark, markersize=7, color=colour)
    if middle is not None:
        axes.plot(
            [middle],
            [y],
            marker="o",
            markersize=7,
            color=colour,
            markeredgecolor=pal.paper,
            markeredgewidth=1.4,
        )


def curve(name: str, data: Mapping[str, Any], pal: Palette) -> Figure:
    """Draw a ROC, PR or FROC curve with its band.

    Args:
        name: The name of the curve in the summary, such as 'roc'.
        data: The curve, with `x`, `y` and, where known, `lo` and `hi`.
        pal: The colours.

    Returns:
        The figure.
    """
    x, y = to_array(data.get("x")), to_array(data.get("y"))
    lo, hi = to_array(data.get("lo")), to_array(data.get("hi"))
    is_froc = name.startswith("froc")
    figure, axes = new_figure(3.9 if not is_froc else 3.4, pal)
    if is_froc and x.size and np.nanmax(x) > MOST_FALSE_POSITIVES:
        inside = x <= MOST_FALSE_POSITIVES
        x, y = x[inside], y[inside]
        lo, hi = (a[inside] if a.size == inside.size else a for a in (lo, hi))
    if lo.size == x.size and hi.size == x.size and np.isfinite(lo).any():
        axes.fill_between(x, lo, hi, color=pal.accent, alpha=0.18, linewidth=0)
    if name.startswith("roc"):
        axes.plot([0, 1], [0, 1], color=pal.muted, linewidth=0.9, linestyle=(0, (4, 3)))
    prevalence = as_float(data.get("prevalence"))
    if name.startswith("pr") and prevalence is not None:
        axes.axhline(prevalence, color=pal.muted, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.text(0.01, prevalence + 0.015, "prevalence", color=pal.muted, fontsize=10, va="bottom")
    axes.plot(x, y, color=pal.accent, linewidth=2)
    point = data.get("operating_point")
    if isinstance(point, Mapping) and as_float(point.get("x")) is not None:
        px, py = float(point["x"]), float(point["y"])
        axes.plot(
            [px],
            [py],
            marker="o",
            markersize=7,
            color=pal.second,
            markeredgecolor=pal.paper,
            markeredgewidth=1.4,
        )
        axes.annotate(
            str(point.get("label") or _at_threshold(point)),
            (px, py),
            xytext=(9, -11),
            textcoords="offset points",
            color=pal.second,
            fontsize=10.5,
        )
    if is_froc:
        axes.set_xlim(0, min(MOST_FALSE_POSITIVES, float(np.nanmax(x)) if x.size else 1.0) or 1.0)
    else:
        axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.005)
    axes.set_xlabel(str(data.get("x_label") or ""))
    axes.set_ylabel(str(data.get("y_label") or ""))
    return figure


def _at_threshold(point: Mapping[str, Any]) -> str:
    threshold = as_float(point.get("threshold"))
    return "operating point" if threshold is None else f"threshold {threshold:.3g}"


def reliability(curves: Mapping[str, Mapping[str, Any]], pal: Palette) -> Figure:
    """Draw the reliability curve before and after calibration; the area of a point is its number of cases.

    Args:
        curves: The curves `reliability` and `reliability_calibrated`, of which one may be absent.
        pal: The colours.

    Returns:
        The figure.
    """
    figure, axes = new_figure(3.9, pal)
    axes.plot([0, 1], [0, 1], color=pal.muted, linewidth=0.9, linestyle=(0, (4, 3)))
    series = [
        ("reliability", pal.accent, "as it came", "o"),
        ("reliability_calibrated", pal.second, "calibrated", "D"),
    ]
    for name, colour, words, marker in series:
        data = curves.get(name)
        if not data:
            continue
        x, y = to_array(data.get("x")), to_array(data.get("y"))
        lo, hi = to_array(data.get("lo")), to_array(data.get("hi"))
        n = to_array(data.get("n") or data.get("count") or data.get("counts"))
        ok = np.isfinite(x) & np.isfinite(y)
        if lo.size == x.size and hi.size == x.size and name == "reliability":
            axes.fill_between(x[ok], lo[ok], hi[ok], color=colour, alpha=0.16, linewidth=0)
        axes.plot(x[ok], y[ok], color=colour, linewidth=1.6)
        area = 22 + 90 * n[ok] / np.nanmax(n) if n.size == x.size and n.size and np.nanmax(n) > 0 else 36
        axes.scatter(
            x[ok], y[ok], s=area, color=colour, marker=marker, edgecolor=pal.paper, linewidth=1, zorder=3
        )
        if ok.any() and "reliability_calibrated" in curves:
            at = 0.96 if name == "reliability" else 0.89
            axes.text(
                0.03, at, ("● " if marker == "o" else "◆ ") + words, color=colour, fontsize=10.5, va="top"
            )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.005)
    first = curves.get("reliability") or next(iter(curves.values()))
    axes.set_xlabel(str(first.get("x_label") or "Predicted probability"))
    axes.set_ylabel(str(first.get("y_label") or "Observed fraction"))
    return figure


def forest(
    blocks: Sequence[tuple[str, Sequence[tuple[str, Mapping[str, Any], Any]]]],
    pal: Palette,
    *,
    overall: Mapping[str, Any] | None = None,
    axis_label: str = "",
) -> Figure:
    """Draw rows with their intervals under a heading for each variable.

    A row that cannot be estimated is marked as such. A one-sided bound runs to the edge; a value that has
    no interval is a mark alone.

    Args:
        blocks: (heading, rows), where a row is (name, estimate, number of patients or None).
        pal: The colours.
        overall: The estimate over all cases, drawn behind the rows; None for none.
        axis_label: The label of the horizontal axis.

    Returns:
        The figure.
    """
    lines: list[tuple[str, str, Mapping[str, Any] | None, Any]] = []
    for heading, rows in blocks:
        if heading:
            lines.append(("head", heading, None, None))
        lines += [("row", name, entry, n) for name, entry, n in rows]
    height = 0.8 + 0.275 * (len(lines) + (1 if overall else 0))
    figure, axes = new_figure(height, pal)
    style(axes, pal, grid="x")
    y = len(lines)
    ends = [as_float(e.get(k)) for _, _, e, _ in lines if e for k in ("value", "lo", "hi")]
    if overall:
        ends += [as_float(overall.get(k)) for k in ("value", "lo", "hi")]
        y += 1
    finite = [e for e in ends if e is not None]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    pad = 0.06 * max(high - low, 1e-6)
    axes.set_xlim(low - pad, high + pad)
    ticks: list[tuple[float, str, bool]] = []
    trans = axes.get_yaxis_transform()
    if overall:
        y -= 1
        value, lo, hi = (as_float(overall.get(k)) for k in ("value", "lo", "hi"))
        if value is not None:
            axes.axvline(value, color=pal.accent, linewidth=0.9, linestyle=(0, (4, 3)))
            if lo is not None and hi is not None:
                axes.fill([lo, value, hi, value], [y, y + 0.3, y, y - 0.3], color=pal.accent, linewidth=0)
            axes.text(
                1.02,
                y,
                number(value),
                transform=trans,
                va="center",
                color=pal.ink,
                fontsize=10.5,
                weight="bold",
            )
        ticks.append((y, "All", True))
    for kind, name, entry, n in lines:
        y -= 1
        if kind == "head" or entry is None:
            ticks.append((y - 0.1, name, True))
            continue
        size = f"  ({number(n)})" if n is not None else ""
        ticks.append((y, f"{shorten(name)}{size}", False))
        _forest_row(axes, y, entry, pal, low, high)
    axes.set_yticks([t[0] for t in ticks], [t[1] for t in ticks])
    for tick, (_, _, bold) in zip(axes.get_yticklabels(), ticks, strict=True):
        tick.set_color(pal.ink)
        tick.set_fontweight("bold" if bold else "normal")
    axes.set_ylim(-0.7, len(lines) + (0.8 if overall else -0.2))
    axes.set_xlabel(axis_label)
    use_minus_sign(axes)
    return figure


def _forest_row(
    axes: Axes, y: float, entry: Mapping[str, Any], pal: Palette, low: float, high: float
) -> None:
    value, lo, hi = (as_float(entry.get(k)) for k in ("value", "lo", "hi"))
    trans = axes.get_yaxis_transform()
    if value is None:
        axes.text(
            0.5,
            y,
            "not estimable",
            transform=trans,
            ha="center",
            va="center",
            color=pal.muted,
            fontsize=10,
            style="italic",
        )
        axes.text(1.02, y, "—", transform=trans, va="center", color=pal.muted, fontsize=10.5)
        return
    if lo is not None or hi is not None:
        axes.plot(
            [low if lo is None else lo, high if hi is None else hi], [y, y], color=pal.accent, linewidth=1.6
        )
    axes.plot(
        [value],
        [y],
        marker="s",
        markersize=5.5,
        color=pal.accent,
        markeredgecolor=pal.paper,
        markeredgewidth=0.8,
    )
    axes.text(1.02, y, number(value), transform=trans, va="center", color=pal.ink, fontsize=10.5)
