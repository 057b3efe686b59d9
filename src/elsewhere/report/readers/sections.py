"""The sections of a reader study, in the layout of textbooks: readers, analyses, variance, the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elsewhere.report.page.blocks import (
    Cell,
    Fold,
    Heading,
    Note,
    Pair,
    Section,
    Table,
    cnt,
    estimate,
    num,
    p_cell,
    text,
)
from elsewhere.report.page.figures import Specs, picture
from elsewhere.report.page.numbers import MINUS, as_float, count, number
from elsewhere.report.result.prepare import Prepared

_RANDOM = {
    "readers,cases": "The conclusion reaches to other readers and other cases like these.",
    "cases": "The conclusion is about these readers and reaches to other cases.",
    "readers": "The conclusion is about these cases and reaches to other readers.",
}


def reader_study(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with the readers, and the analysis that leads.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where the summary is of no reader study.
    """
    part = data.part("readers")
    if not part:
        return None
    analyses = part.get("analyses") or {}
    leading = analyses.get(part.get("random")) or {}
    blocks: list[Any] = []
    drawn = [p for p in (picture(specs, name) for name in ("reader-values", "reader-analyses")) if p]
    if drawn:
        blocks.append(Pair(pictures=drawn))
    blocks += _analysis(leading, part, "leading")
    blocks.append(_readers(part))
    figure = part.get("figure") or {}
    about = f"{figure.get('title')}: {figure.get('about')}. " if figure.get("about") else ""
    reach = _RANDOM.get(str(part.get("random")), "").replace("readers", _noun(part))
    lead = f"{about}{leading.get('title', '')}. {reach}"
    return Section(
        id="readers",
        title="Readers and treatments",
        short="Readers",
        lead=lead.strip(),
        blocks=[block for block in blocks if block],
    )


def reader_panel(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with the comparison of a model and the readers.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where there is no model.
    """
    part = data.part("readers")
    panels = [panel for panel in part.get("panel") or [] if isinstance(panel, dict)]
    if not panels:
        return None
    rows = []
    for panel in panels:
        for random, row in (panel.get("analyses") or {}).items():
            rows.append(
                [
                    text(panel.get("treatment"), sub=str(row.get("title", random))),
                    num(panel.get("value")),
                    num(panel.get("mean_of_readers"), sub=f"{count(panel.get('readers'))} readers"),
                    estimate({**row, "undefined_reason": row.get("reason")}, sign=True),
                    _df(row),
                    num(row.get("t"), 2),
                    p_cell(row.get("p")),
                ]
            )
    model = str(part.get("model") or "Model")
    table = Table(
        name="reader-panel",
        caption=f"{model} and the mean of the readers",
        columns=["Treatment", model, "Readers", f"{model} {MINUS} readers", "df", "t", "p"],
        rows=rows,
        note="The analysis of a single treatment on the differences between the model and each reader. The model is one "
        "model, not a sample of models.",
    )
    above = "; ".join(
        f"{panel.get('treatment')}: {count(panel.get('readers_above'))} of {count(panel.get('readers'))} readers are above "
        f"{model}"
        for panel in panels
    )
    notes = [Note(text=str(note)) for panel in panels for note in panel.get("notes") or []]
    return Section(
        id="reader-panel",
        title="The model and the readers",
        short="Model",
        lead=f"{above}.",
        blocks=[table, *notes],
    )


def reader_variance(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with the analysis of variance, the error covariances and the other two analyses.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where the summary is of no reader study.
    """
    part = data.part("readers")
    if not part:
        return None
    anova = [row for row in part.get("anova") or [] if isinstance(row, dict)]
    blocks: list[Any] = []
    if anova:
        blocks.append(
            Table(
                name="reader-anova",
                caption="Analysis of variance of the figures of merit",
                columns=["Source", "df", "Sum of squares", "Mean square"],
                rows=[
                    [
                        text(row.get("source")),
                        cnt(row.get("df")),
                        num(row.get("sum_of_squares"), 6),
                        num(row.get("mean_square"), 6),
                    ]
                    for row in anova
                ],
            )
        )
    blocks.append(_covariances(part))
    blocks += [Note(text=str(note)) for note in part.get("notes") or []]
    folded: list[Any] = []
    for random, one in (part.get("analyses") or {}).items():
        if random != part.get("random"):
            folded += [
                Heading(text=str(one.get("title", random))),
                *_analysis(one, part, random.replace(",", "-")),
            ]
    if folded:
        blocks.append(Fold(summary="The other two analyses", blocks=folded))
    unit = str(part.get("left_out") or "case")
    return Section(
        id="reader-variance",
        title="Analysis of variance and error covariance",
        short="Variance",
        lead=f"The covariance of the errors is the jackknife's, which leaves out each {unit} in turn.",
        blocks=blocks,
    )


def _noun(part: Mapping[str, Any]) -> str:
    return str(part.get("readers_are") or "readers")


def _analysis(one: Mapping[str, Any], part: Mapping[str, Any], name: str) -> list[Any]:
    blocks: list[Any] = []
    level = f"{100 * (as_float(part.get('level')) or 0.95):g} %"
    test = one.get("test") or {}
    treatments = part.get("treatments") or []
    if len(treatments) > 1:
        df2 = "infinite" if test.get("distribution") else number(test.get("df2"), 2)
        undefined = as_float(test.get("f")) is None
        blocks.append(
            Table(
                name=f"reader-test-{name}",
                caption="Test that all treatments are equal",
                columns=["F", "df", "p"],
                rows=[
                    [
                        text("undefined", sub=str(test.get("reason") or ""), kind="undefined")
                        if undefined
                        else num(test.get("f")),
                        text(f"{count(test.get('df1'))} and {df2}"),
                        p_cell(test.get("p")),
                    ]
                ],
            )
        )
    means = one.get("means") or []
    if means:
        blocks.append(
            Table(
                name=f"reader-means-{name}",
                caption=f"Mean of the {_noun(part)}, {level} intervals",
                columns=["Treatment", str((part.get("figure") or {}).get("title") or "Value"), "SE", "df"],
                rows=[
                    [
                        text(row.get("treatment"), sub=str(row.get("reason") or "")),
                        estimate(row),
                        num(row.get("se"), 4),
                        _df(row),
                    ]
                    for row in means
                ],
            )
        )
    differences = one.get("differences") or []
    if differences:
        holm = len(differences) > 1
        blocks.append(
            Table(
                name=f"reader-differences-{name}",
                caption=f"Differences of treatments, {level} intervals",
                columns=["Difference", "Value", "SE", "df", "t", "p", *(["p, Holm"] if holm else [])],
                rows=[
                    [
                        text(
                            f"{row.get('first')} {MINUS} {row.get('second')}",
                            sub=str(row.get("reason") or ""),
                        ),
                        estimate(row, sign=True),
                        num(row.get("se"), 4),
                        _df(row),
                        num(row.get("t"), 2),
                        p_cell(row.get("p")),
                        *([p_cell(row.get("p_holm"))] if holm else []),
                    ]
                    for row in differences
                ],
            )
        )
    return blocks


def _df(row: Mapping[str, Any]) -> Cell:
    return text("infinite", kind="number") if row.get("distribution") else num(row.get("df"), 1)


def _readers(part: Mapping[str, Any]) -> Table:
    """One row per reader; in a nested study one row per reader and treatment."""
    rows = [row for row in part.get("per_reader") or [] if isinstance(row, dict)]
    title = str((part.get("figure") or {}).get("title") or "Value")
    note = "SE is the standard error over the cases."
    if part.get("design") == "nested":
        return Table(
            name="reader-values",
            caption=f"{title} of each {_noun(part)[:-1]}",
            columns=["Treatment", _noun(part)[:-1].capitalize(), title],
            rows=[[text(r.get("treatment")), text(r.get("reader")), _value(r)] for r in rows],
            note=note,
        )
    treatments = [str(name) for name in part.get("treatments") or []]
    by_reader: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_reader.setdefault(str(row.get("reader")), {})[str(row.get("treatment"))] = row
    differences = {
        (str(r.get("reader")), f"{r.get('first')} {MINUS} {r.get('second')}"): r
        for r in part.get("reader_differences") or []
    }
    pairs = list(dict.fromkeys(pair for _, pair in differences)) if len(treatments) == 2 else []
    body = [
        [
            text(reader),
            *(_value(values.get(name) or {}) for name in treatments),
            *(
                cell
                for pair in pairs
                for cell in (
                    estimate(differences.get((reader, pair)) or {}, sign=True),
                    p_cell((differences.get((reader, pair)) or {}).get("p")),
                )
            ),
        ]
        for reader, values in by_reader.items()
    ]
    if pairs:
        note += " Differences are of the reader alone: the cases are random."
    return Table(
        name="reader-values",
        caption=f"{title} of each {_noun(part)[:-1]}",
        columns=["Reader", *treatments, *(name for pair in pairs for name in (pair, "p"))],
        rows=body,
        note=note,
    )


def _value(row: Mapping[str, Any]) -> Cell:
    error = as_float(row.get("se"))
    return num(row.get("value"), sub="" if error is None else f"SE {number(error)}")


def _covariances(part: Mapping[str, Any]) -> Table:
    errors = part.get("covariances") or {}
    meaning = {
        "var": ("Var", "one reader, one treatment"),
        "cov1": ("Cov1", "one reader, two treatments"),
        "cov2": ("Cov2", "two readers, one treatment"),
        "cov3": ("Cov3", "two readers, two treatments"),
    }
    rows = [
        [text(name, sub=words), num(errors.get(key), 6), num(errors.get(f"correlation{key[-1]}"), 2)]
        for key, (name, words) in meaning.items()
        if as_float(errors.get(key)) is not None
    ]
    components = part.get("variance_components") or {}
    for key, name in (
        ("reader", "Variance of readers"),
        ("treatment_reader", "Variance of treatment x reader"),
    ):
        if as_float(components.get(key)) is not None:
            rows.append([text(name, sub="beside the errors"), num(components[key], 6), text("")])
    return Table(
        name="reader-covariances",
        caption="Covariance of the errors, and variance components",
        columns=["Term", "Estimate", "Correlation"],
        rows=rows,
    )
