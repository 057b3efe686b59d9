"""Sections on internal and external results: the drop, each transfer, and each centre against the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from elsewhere.analysis.study.design import configuration
from elsewhere.analysis.study.groups import CENTRES
from elsewhere.analysis.study.overall import OVERALL
from elsewhere.analysis.study.published import other_networks
from elsewhere.analysis.study.transfers import SOURCES_NEEDED, could_be_seen
from elsewhere.privacy import suppress
from elsewhere.report.leaderboard import plots as leaderboard_plots
from elsewhere.report.page.blocks import (
    Cell,
    Fold,
    Note,
    Section,
    Table,
    cnt,
    num,
    p_cell,
    pct,
    text,
)
from elsewhere.report.page.figures import FigureSpec
from elsewhere.report.page.numbers import ABSENT, MINUS, as_float, count, interval, number, signed
from elsewhere.report.result import plots as result_plots
from elsewhere.report.study import plots
from elsewhere.report.study.cells import (
    PUBLISHED_HEAD,
    SHORT,
    Rows,
    any_known,
    configuration_cell,
    group_label,
    kind_label,
    metric_in_sentence,
    metric_label,
    plural,
    published_cell,
    rows_of,
    variable_label,
    with_interval,
)
from elsewhere.report.study.page import StudyPage
from elsewhere.report.study.registry import figure, section

MOST_ROWS = 40
MOST_SITES = 14
OPEN_ROWS = 12
NOTHING = 1e-9
"""A difference of metrics below this is one of rounding."""
_NO_BREAK = "\N{NO-BREAK SPACE}"


@figure("drop", tables=("drop",))
def drop_figure(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the mean change of every method, or the best method's transfers where no mean has an interval.

    Args:
        page: The page of one task.

    Yields:
        One figure, where the study compares internal with external results.
    """
    label = f"{metric_label(page.metric)}, external {MINUS} internal"
    rows = [r for r in page.rows("drop") if as_float(r["lo"]) is not None]
    if rows and page.design.main:
        entries = [(page.method(r["method"]), r) for r in rows if r["method"] != OVERALL]
        overall = next((_ends(r, "lo", "hi") for r in rows if r["method"] == OVERALL), None)
        lines = [(name, _ends(r, "lo", "hi"), None) for name, r in entries]
        words = "; ".join(f"{name}: {number(r['difference'])}" for name, r in entries)
        few = any(int(r["datasets"]) < SOURCES_NEEDED for r in rows)
        bars = "the spread of a few datasets" if few else "95 % intervals"
        yield FigureSpec(
            name="drop",
            title=f"{label}: mean over datasets with {bars}",
            alt=f"{label}. {words}.",
            build=lambda pal: plots.with_zero(
                result_plots.forest([("", lines)], pal, overall=overall, axis_label=label), pal
            ),
        )
        return
    best = page.headline["best"]
    found = [r for r in page.rows("transfers", method=best) if as_float(r.get("difference")) is not None]
    if found:
        named = [
            (_transfer(r), {"difference": r["difference"], "lo": r["lo90"], "hi": r["hi90"]}) for r in found
        ]
        yield FigureSpec(
            name="drop",
            title=f"{page.method(best)}: {label}, 90 % intervals",
            alt=f"{label}. " + "; ".join(f"{n}: {number(r['difference'])}" for n, r in named) + ".",
            build=lambda pal: leaderboard_plots.differences(named[:MOST_ROWS], pal, axis_label=label),
        )


def _ends(row: Mapping[str, Any], lo: str, hi: str) -> dict[str, Any]:
    return {"value": row["difference"], "lo": row[lo], "hi": row[hi]}


def _transfer(row: Mapping[str, Any]) -> str:
    source = row["source"] if row["kind"] == "external" else "all others"
    return f"{source} → {row['target']}"


@figure("internal and external bars", tables=("summary",))
def bars(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the mean of each configuration, internal and external.

    Args:
        page: The page of one task.

    Yields:
        One figure per metric.
    """
    table, published = page.of("summary"), page.of("overall")
    for metric, short in SHORT.items():
        part = table[(table["metric"] == metric) & table["kind"].isin(["internal", "external"])]
        rows = []
        for model, input_ in page.design.configurations:
            one = part[(part["model"] == model) & (part["input"] == input_)].set_index("kind")
            if one.empty:
                continue
            row: dict[str, Any] = {"name": configuration(model, input_)}
            for kind in one.index:
                row |= {kind: float(one["value"][kind]), f"{kind}_sd": float(one["sd_over_seeds"][kind])}
                column = f"published_{kind}_{short}"
                if column in published.columns:
                    held = published[(published["model"] == model) & (published["input"] == input_)][column]
                    row[f"{kind}_published"] = float(held.iloc[0]) if len(held) else float("nan")
            rows.append(row)
        if rows:
            words = "; ".join(
                f"{r['name']}: internal {number(r.get('internal'))}, external {number(r.get('external'))}"
                for r in rows
            )
            name = metric_in_sentence(metric)
            yield FigureSpec(
                name=f"internal-external-{short}",
                title=f"Mean {name}, internal and external",
                alt=f"Bars of mean {name}. {words}. Error bars: standard deviation over seeds.",
                build=partial(plots.bars, rows, axis=name),
            )


@figure("centres", tables=("groups",))
def centres_figure(page: StudyPage) -> Iterator[FigureSpec]:
    """Draw the best method's main metric at each dataset and site.

    Args:
        page: The page of one task.

    Yields:
        One figure, where there are two datasets or sites, or more.
    """
    yield from group_forest(page, "centres", CENTRES, "by dataset and site")


def group_forest(page: StudyPage, name: str, variables: Sequence[str], where: str) -> Iterator[FigureSpec]:
    """Draw the best method's main metric group by group.

    Args:
        page: The page of one task.
        name: The name of the figure within the task.
        variables: The grouping variables, each a block of rows.
        where: The end of the title, such as 'by dataset and site'.

    Yields:
        The figure, where some variable has between two and `MOST_SITES` groups.
    """
    head, metric = page.headline, page.metric
    groups = page.of("groups", board=page.board["board"], method=head["best"])
    if groups.empty or metric not in groups.columns:
        return
    blocks = []
    for variable in variables:
        part = groups[(groups["variable"] == variable) & (groups["cases"].astype(str) != "0")]
        if 2 <= len(part) <= MOST_SITES:
            rows = [
                (
                    group_label(r["group"]),
                    {"value": r[metric], "lo": r[f"{metric}_lo"], "hi": r[f"{metric}_hi"]},
                    r["patients"],
                )
                for r in rows_of(part)
            ]
            blocks.append((variable_label(variable), rows))
    if blocks:
        overall = {"value": head["value"], "lo": head["value_lo"], "hi": head["value_hi"]}
        label = metric_label(metric)
        words = "; ".join(f"{n}: {number(e['value'])}" for _, rows in blocks for n, e, _ in rows)
        yield FigureSpec(
            name=name,
            title=f"{label} of {page.method(head['best'])} {where}",
            alt=f"{label} by group. {words}.",
            build=lambda pal: result_plots.forest(blocks, pal, overall=overall, axis_label=label),
        )


@section(
    "internal and external",
    place="transfer",
    tables=("overall", "drop", "transfers", "centres", "new_hospital"),
)
def internal_and_external(page: StudyPage) -> Section | None:
    """Show the drop from internal to external results, each transfer, and each centre against the others.

    Args:
        page: The page of one task.

    Returns:
        The section; None where it has nothing to show.
    """
    blocks: list[Any] = []
    overall, drop = page.rows("overall"), page.rows("drop")
    if len(page.design.main) and overall:
        blocks += page.pair(*page.figures_like("internal-external-"))
        blocks.append(
            Note(
                text="Bars are means over scenarios, seeds averaged first. Error bars are standard deviations over seeds, "
                "pooled within scenarios: they show what another training changes, not how certain the mean is."
            )
        )
        blocks += [_overall(page, overall, short, metric) for metric, short in SHORT.items()]
    if drop:
        blocks.append(_drops(page, drop))
    blocks += page.pair("drop", "centres")
    transfers = page.rows("transfers")
    if transfers:
        blocks.append(_transfers(page, transfers))
        if not drop:
            blocks.append(
                Note(text="The study has no internal scenario to compare with, so no drop is estimated.")
            )
    blocks += [*_new_hospital(page), *_centres(page)]
    return page.section(
        "transfers",
        "Internal and external results",
        blocks,
        short="Internal and external",
        lead="Internal: trained and tested at one hospital or dataset. External: tested at another one.",
    )


def _overall(page: StudyPage, rows: Rows, short: str, metric: str) -> Table:
    kinds = [k for k in ("internal", "external") if any(f"{k}_{short}" in r for r in rows)]
    printed = [k for k in kinds if any_known(rows, f"published_{k}_{short}")]
    columns = ["Configuration"]
    for kind in kinds:
        columns += [kind_label(kind).capitalize()] + ([PUBLISHED_HEAD] if kind in printed else [])
    cells = []
    for r in rows:
        line = [configuration_cell(r)]
        for kind in kinds:
            key = f"{kind}_{short}"
            line.append(with_interval(r.get(key), r.get(f"{key}_lo"), r.get(f"{key}_hi")))
            if kind in printed:
                line.append(published_cell(r.get(key), r.get(f"published_{key}")))
        cells.append(line)
    note = (
        "Brackets: 95 % t interval over scenarios, cut to [0, 1]. Transfers that share a dataset are not independent, so "
        "read it as the spread between transfers."
    )
    if printed:
        note += "".join(f" {one}" for one in other_networks(page.design.network, page.design.weights))
    return Table(
        name=page.name(f"overall-{short}"),
        caption=f"{metric_label(metric)}, mean over scenarios",
        columns=columns,
        rows=cells,
        note=note,
    )


def _drops(page: StudyPage, rows: Rows) -> Table:
    judged = any(r.get("verdict") for r in rows)
    enough = any(int(r["datasets"]) >= SOURCES_NEEDED for r in rows)
    by_target = enough and any_known(rows, "lo_by_target")
    tested = enough and any_known(rows, "p")
    columns = ["Method", "Internal", "External", f"External {MINUS} internal"]
    columns += ["p"] if tested else []
    columns += ["Without one dataset", "Smallest detectable"] + (["Verdict"] if judged else [])
    cells = []
    for r in rows:
        line = [
            text(
                page.method(r["method"]), sub=f"{kind_label(r['kind'])}, {plural(r['datasets'], 'dataset')}"
            ),
            num(r["internal"]),
            num(r["external"]),
            with_interval(r["difference"], r["lo"], r["hi"], sign=True),
        ]
        if tested:
            line.append(p_cell(r["p"]))
        known = as_float(r.get("without_one_lo")) is not None
        ends = (signed(r["without_one_lo"]), f"to {signed(r['without_one_hi'])}") if known else (ABSENT, "")
        line.append(text(ends[0], sub=ends[1], kind="number"))
        line.append(_detectable(r["smallest_detectable_drop"], r["internal"], page.metric))
        if judged:
            line.append(Cell(text=str(r["verdict"]), kind="word"))
        cells.append(line)
    few = min(int(r["datasets"]) for r in rows) < SOURCES_NEEDED
    brackets = (
        f"a spread, where there are fewer than {SOURCES_NEEDED} datasets: too few for a confidence interval"
        if few
        else "95 % t interval over datasets, each one observation"
    )
    note = (
        "One difference per source: its mean external result minus its internal one (for models trained on all other "
        f"datasets, one per target). Brackets: {brackets}."
    )
    if tested:
        note += " p: exact Wilcoxon signed-rank test."
        least = as_float(rows[0].get("smallest_p"))
        if least is not None:
            note += f" With {rows[0]['datasets']} datasets its smallest possible value is {number(least)}."
    if by_target:
        note += " The same over targets, with its interval, is in tables/drop.csv."
    reasons = sorted({str(r["reason"]) for r in rows if r.get("reason")})
    if judged and reasons:
        note += f" Not assessed: {reasons[0]}."
    margin = as_float(rows[0].get("margin"))
    if margin is not None:
        note += f" Margin: ±{number(margin)}, declared in the study file."
    return Table(
        name=page.name("drops"),
        caption=f"{metric_label(page.metric)}: the mean change from internal to external",
        columns=columns,
        rows=cells,
        note=note,
        stacked=True,
    )


def _transfers(page: StudyPage, rows: Rows) -> Any:
    """Show every transfer of the best method and the baseline; of all methods where these are few."""
    shown = {page.headline["best"], page.board["baseline"]}
    part = rows if len(rows) <= OPEN_ROWS else [r for r in rows if r["method"] in shown]
    judged = any(r.get("verdict") for r in part)
    cells = []
    for r in part:
        difference = (
            with_interval(r["difference"], r["lo90"], r["hi90"], sign=True)
            if as_float(r.get("difference")) is not None
            else text(ABSENT, sub=_text(r.get("reason")), kind="undefined")
        )
        line = [
            text(page.method(r["method"])),
            text(_transfer(r).replace(" ", _NO_BREAK), sub=_text(r.get("compared"))),
            num(r.get("internal")),
            with_interval(r["external"], r.get("external_lo"), r.get("external_hi")),
            difference,
            _detectable(r.get("smallest_detectable_drop"), r.get("internal"), page.metric),
        ]
        cells.append(
            [*line, Cell(text=_text(r["verdict"]), kind="word", sub=_answered(r))] if judged else line
        )
    columns = ["Method", "Trained → tested", "Internal", "External", "Difference", "Smallest detectable"]
    table = Table(
        name=page.name("transfers"),
        caption=f"{metric_label(page.metric)}, transfer by transfer",
        columns=[*columns, *(["Verdict"] if judged else [])],
        rows=cells,
        stacked=True,
        note=f"External: 95 % interval over patients. Difference: 90 % interval, which is compared with the margin "
        f"(protocol {page.board['protocol']} {page.board['protocol_version']}). Other patients: compared with the same method's internal result at its "
        "source. Same patients: compared with the method trained at the target, on the patients that both tested. Smallest "
        "detectable: the smallest drop found with 80 % power at 5 %. Every method is in tables/transfers.csv.",
    )
    if len(cells) > OPEN_ROWS:
        return Fold(summary=f"{len(cells)} transfers", blocks=[table], closed=True)
    return table


def _text(value: Any) -> str:
    """Return the text of a cell of a table that may be empty: NaN is no text."""
    return value if isinstance(value, str) else ""


def _answered(row: Mapping[str, Any]) -> str:
    """Say what the verdict is without the cases that have no usable score, where there are such cases."""
    lost = as_float(row.get("without_score"))
    if not lost:
        return ""
    verdict = _text(row.get("verdict_answered")) or "no verdict"
    return f"{verdict} without {suppress(int(lost))} cases that have no usable score"


def _detectable(drop: Any, level: Any, metric: str) -> Cell:
    """Show the smallest detectable drop; 'none' where it lies below the smallest value of the metric."""
    found = as_float(drop)
    if found is not None and found < NOTHING:
        return num(0.0)
    if found is None or could_be_seen(found, as_float(level), metric):
        return num(drop)
    return text("none", kind="number", title=str(drop))


def _new_hospital(page: StudyPage) -> list[Any]:
    rows = page.rows("new_hospital")
    if not rows:
        return []
    if not any_known(rows, "value"):
        reason = str(rows[0]["reason"]).removeprefix("not estimable: ")
        return [Note(text=f"The result to expect at one more hospital is not estimated: {reason}.")]
    cells = [
        [
            configuration_cell(r),
            text(kind_label(r["kind"])),
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
            name=page.name("new-hospital"),
            caption="AUROC at one more hospital",
            columns=[
                "Configuration",
                "Scenarios",
                "Mean over targets",
                "95 % prediction interval",
                "Targets",
            ],
            rows=cells,
            note="Random effects over targets on the logit scale: where the AUROC of one more hospital may lie. The interval "
            "averages over all spreads between hospitals that these targets allow.",
        )
    ]


def _centres(page: StudyPage) -> list[Any]:
    best = page.headline["best"]
    every = page.on_board("centres", method=best)
    datasets = {r["centre"] for r in every if r["by"] == "dataset"}
    rows = [r for r in every if as_float(r.get("difference")) is not None]
    rows = [r for r in rows if r["by"] == "dataset" or r["centre"] not in datasets]
    found: list[Any] = []
    if rows:
        lost = sum(as_float(r.get("difference")) is None for r in every)
        judged = any(r.get("verdict") for r in rows)
        cells = []
        for r in rows[:MOST_ROWS]:
            line = [
                text(r["centre"], sub=str(r["by"])),
                cnt(r["patients"]),
                num(r.get("value")),
                num(r.get("others")),
                with_interval(r["difference"], r["lo90"], r["hi90"], sign=True),
                _detectable(r.get("smallest_detectable_drop"), r.get("others"), page.metric),
            ]
            cells.append(
                [*line, Cell(text=_text(r["verdict"]), kind="word", sub=_answered(r))] if judged else line
            )
        note = "Brackets: 90 % interval of the difference."
        if len(rows) > MOST_ROWS:
            note += f" {len(rows) - MOST_ROWS} more centres are in tables/centres.csv."
        if lost:
            note += f" {count(lost)} centres are too small, or lack a class, and are not compared."
        columns = [
            "Centre",
            "Patients",
            metric_label(page.metric),
            "All others",
            "Difference",
            "Smallest detectable",
        ]
        found.append(
            Table(
                name=page.name("centres"),
                caption=f"{page.method(best)} at each centre, compared with all the others",
                columns=[*columns, *(["Verdict"] if judged else [])],
                rows=cells,
                note=f"{note} Every method is in tables/centres.csv.",
            )
        )
    return [*found, *_size_mix(page)]


def _size_mix(page: StudyPage) -> list[Any]:
    mix = page.rows("size_mix")
    if not mix:
        return []
    edges = f"{number(mix[0]['edge_low_ml'], 2)} and {number(mix[0]['edge_high_ml'], 2)} ml"
    return [
        Table(
            name=page.name("size-mix"),
            caption="Tumour sizes of each dataset",
            columns=["Dataset", "Cases", "Small", "Moderate", "Large", "Share small"],
            rows=[
                [
                    text(r["dataset"]),
                    cnt(r["cases"]),
                    *(cnt(r[k]) for k in ("small", "moderate", "large")),
                    text(ABSENT) if isinstance(r["small"], str) else pct(r["small_share"]),
                ]
                for r in mix
            ],
            note=f"Cut at the 20th and 80th percentile of the volumes of this leaderboard, {edges}. A dataset with more small "
            "tumours has a lower Dice without any drop of the model.",
        )
    ]
