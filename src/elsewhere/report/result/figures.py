"""The figures of one model's result, by name. Each reads the prepared summary alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.labels import (
    CURVE_TITLES,
    compared_with,
    headline,
    in_sentence,
    label,
    leading_metrics,
)
from elsewhere.report.page.numbers import MINUS, as_float, count, number, value_with_interval
from elsewhere.report.result import plots, plots_cases
from elsewhere.report.result.prepare import Prepared


def result_figures(data: Prepared) -> list[FigureSpec]:
    """List the figures that this result can have, in the order of the page.

    Args:
        data: The summary as it may be printed.

    Returns:
        Figures of the verdict, the flow of cases, curves, groups, case mix, confusion and the clinic.
    """
    return [
        *_verdict(data),
        *_flow(data),
        *_curves(data),
        *_reliability(data),
        *_forests(data),
        *_case_mix(data),
        *_confusion(data),
        *_clinical(data),
    ]


def _verdict(data: Prepared) -> Iterable[FigureSpec]:
    claims = [c for c in data.part("verdict").get("claims") or [] if isinstance(c, dict)]
    drawn = [c for c in claims if as_float(c.get("difference")) is not None]
    if not drawn:
        return
    than = compared_with(drawn[0])
    metrics = data.part("metrics")
    more_is_better = all(
        (metrics.get(str(c.get("metric"))) or {}).get("higher_is_better", True) for c in drawn
    )
    words = "; ".join(
        f"{label(str(c.get('metric', '')), c)}: difference "
        f"{value_with_interval({**c, 'value': c.get('difference')}, sign=True)}, "
        f"margin {number(c.get('margin'))}, {c.get('word', '')}"
        for c in drawn
    )
    yield FigureSpec(
        name="verdict",
        title=f"Difference (here {MINUS} {than}) against the margin",
        alt=f"Interval of the difference against the margin. {words}.",
        build=lambda pal: plots.verdict(
            drawn, pal, more_is_better=more_is_better, named=len(claims) > 1, than=than
        ),
    )


def _flow(data: Prepared) -> Iterable[FigureSpec]:
    steps = [s for s in data.rows("flow") if isinstance(s, dict)]
    if steps:
        words = "; ".join(f"{s.get('step')}: {count(s.get('n'))}" for s in steps)
        yield FigureSpec(
            name="flow", title="Who was tested", alt=words, build=lambda pal: plots_cases.flow(steps, pal)
        )


def _curves(data: Prepared) -> Iterable[FigureSpec]:
    for name, points in data.part("curves").items():
        if name.startswith("reliability") or not isinstance(points, dict):
            continue
        title = CURVE_TITLES.get(name, label(name))
        yield FigureSpec(
            name=_file_name(f"curve-{name}"),
            title=title,
            alt=f"{title}: {points.get('y_label') or 'y'} against {points.get('x_label') or 'x'}.",
            build=partial(plots.curve, name, points),
        )


def _reliability(data: Prepared) -> Iterable[FigureSpec]:
    found = {
        n: c for n, c in data.part("curves").items() if n.startswith("reliability") and isinstance(c, dict)
    }
    if found:
        yield FigureSpec(
            name="reliability",
            title="Reliability",
            alt="Reliability curve: observed fraction against predicted probability, with its band"
            + (", before and after calibration." if len(found) > 1 else "."),
            build=lambda pal: plots.reliability(found, pal),
        )


def _forest_rows(rows: Mapping[str, Any], metric: str) -> list[tuple[str, Mapping[str, Any], Any]]:
    out: list[tuple[str, Mapping[str, Any], Any]] = []
    for name, row in rows.items():
        if isinstance(row, dict):
            entry = (row.get("metrics") or {}).get(metric)
            out.append((str(name), entry if isinstance(entry, dict) else {"value": None}, row.get("cases")))
    return out


def _spoken(rows: Sequence[tuple[str, Mapping[str, Any], Any]]) -> str:
    return "; ".join(
        f"{name}: {value_with_interval(e) if as_float(e.get('value')) is not None else 'not estimable'}"
        for name, e, _ in rows
    )


def _forests(data: Prepared) -> Iterable[FigureSpec]:
    head = headline(data.data)
    groups = {v: rows for v, rows in data.part("groups").items() if isinstance(rows, dict) and rows}
    for variable, rows in groups.items():
        chosen = leading_metrics(rows, head, 1)
        if not chosen:
            continue
        metric = chosen[0]
        lines = _forest_rows(rows, metric)
        overall = data.part("metrics").get(metric)
        name = label(metric, overall if isinstance(overall, dict) else None)
        yield FigureSpec(
            name=_file_name(f"forest-{variable}"),
            title=f"{label(variable)}",
            alt=f"Forest plot of {in_sentence(name)} by {in_sentence(label(variable))}. {_spoken(lines)}.",
            build=partial(
                plots.forest,
                [("", lines)],
                overall=overall if isinstance(overall, dict) else None,
                axis_label=name,
            ),
        )
    sites = data.part("sites")
    chosen = leading_metrics(sites, head, 1)
    if sites and chosen:
        metric = chosen[0]
        lines = _forest_rows(sites, metric)
        overall = data.part("metrics").get(metric)
        name = label(metric, overall if isinstance(overall, dict) else None)
        yield FigureSpec(
            name="forest-sites",
            title="Sites side by side",
            alt=f"Forest plot of {in_sentence(name)} by site. {_spoken(lines)}.",
            build=lambda pal: plots.forest(
                [("", lines)], pal, overall=overall if isinstance(overall, dict) else None, axis_label=name
            ),
        )
    strata = data.part("size_strata")
    inner = strata.get("strata")
    strata = inner if isinstance(inner, dict) else strata
    strata = {k: v for k, v in strata.items() if isinstance(v, dict) and isinstance(v.get("metrics"), dict)}
    chosen = leading_metrics(strata, "dice", 1)
    if strata and chosen:
        rows_of_size = _forest_rows(strata, chosen[0])
        overall_size = data.part("metrics").get(chosen[0])
        yield FigureSpec(
            name="forest-size",
            title="By size",
            alt=f"Forest plot of {label(chosen[0])} by size of the lesion. {_spoken(rows_of_size)}.",
            build=lambda pal: plots.forest(
                [("", rows_of_size)],
                pal,
                overall=overall_size if isinstance(overall_size, dict) else None,
                axis_label=label(chosen[0]),
            ),
        )


def _case_mix(data: Prepared) -> Iterable[FigureSpec]:
    for variable, entry in data.part("case_mix").items():
        levels = entry.get("levels") if isinstance(entry, dict) else None
        if isinstance(levels, dict) and levels and all(isinstance(v, dict) for v in levels.values()):
            yield FigureSpec(
                name=_file_name(f"case-mix-{variable}"),
                title=label(variable),
                alt=f"Share of each level of {in_sentence(label(variable))}, here and in the reference.",
                build=partial(plots_cases.case_mix, levels),
            )


def _confusion(data: Prepared) -> Iterable[FigureSpec]:
    for name, entry in data.part("confusion").items():
        if isinstance(entry, dict) and entry.get("labels") and isinstance(entry.get("matrix"), list):
            yield FigureSpec(
                name=_file_name(f"confusion-{name}"),
                title=f"Confusion matrix, {in_sentence(label(name))}",
                alt=_spoken_matrix(label(name), entry["labels"], entry["matrix"]),
                build=partial(plots_cases.confusion, entry["labels"], entry["matrix"]),
            )


def _spoken_matrix(name: str, labels: Sequence[Any], matrix: Sequence[Sequence[Any]]) -> str:
    columns = ", ".join(str(item) for item in labels)
    rows = "; ".join(
        f"truth {truth}: {', '.join(count(v) for v in row)}"
        for truth, row in zip(labels, matrix, strict=False)
    )
    return f"Confusion matrix of {in_sentence(name)}. The model says {columns}. {rows}."


def _clinical(data: Prepared) -> Iterable[FigureSpec]:
    curve = data.part("clinical").get("net_benefit") or data.part("curves").get("net_benefit")
    if isinstance(curve, dict) and isinstance(
        curve.get("x") or curve.get("threshold") or curve.get("thresholds"), list
    ):
        yield FigureSpec(
            name="net-benefit",
            title="Net benefit",
            alt="Decision curve: net benefit by threshold of the model, of recalling all, of recalling none.",
            build=lambda pal: plots_cases.net_benefit(curve, pal),
        )


def _file_name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in text.lower())
