"""The section about a merge: what it gains on other volumes, how it was chosen, and what each team adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from elsewhere.report.leaderboard import merge_plots
from elsewhere.report.page.blocks import (
    Cell,
    Facts,
    Fold,
    Note,
    Pair,
    Section,
    Table,
    Text,
    cnt,
    estimate,
    num,
    p_cell,
    text,
)
from elsewhere.report.page.figures import FigureSpec, Specs, picture
from elsewhere.report.page.labels import in_sentence, label
from elsewhere.report.page.numbers import MINUS, as_float, count, interval, number, signed
from elsewhere.report.result.generic import generic_blocks
from elsewhere.report.result.prepare import Prepared

_ROLES = {"validation": "Validation", "test": "Test", "all": "All volumes"}
_PARTS = {
    "normalisation": "Score normalisation",
    "iou": "Boxes are of one place above an IoU of",
    "distance": "Largest distance in slices",
    "score": "Score of a fused box",
    "votes": "Fewest boxes of a place",
    "vote": "Vote",
}


def merging(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of a merge.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without a merge.
    """
    part = data.part("merging")
    if not part:
        return None
    roles = [role for role in _ROLES if role in (part.get("merged") or {})]
    blocks: list[Any] = [Text(paragraphs=[sentence for sentence in _sentences(part) if sentence])]
    drawn = [p for p in (picture(specs, name) for name in ("merge-teams", "merge-settings")) if p]
    if drawn:
        blocks.append(Pair(pictures=drawn))
    if part.get("metric"):
        blocks += [_values(part, roles), _gains(part, roles)]
    blocks += [_setting(part), _teams(part, roles), *_without_one(part, roles)]
    blocks += _search(part)
    notes = part.get("normalisation_notes") or []
    blocks += [Note(text=f"{note}.") for note in notes]
    if part.get("failed"):
        blocks += generic_blocks({"could_not_be_merged": part["failed"]}, "failed")
    lead = "Setting, score scales and thresholds come from the validation volumes; nothing is fitted to the test."
    return Section(
        id="merging",
        title="The detectors merged",
        short="Merge",
        lead=lead if "test" in roles and "validation" in roles else "",
        blocks=blocks,
    )


def _sentences(part: Mapping[str, Any]) -> Iterable[str]:
    best = str((part.get("best_single") or {}).get("team") or "")
    gains, optimism = part.get("gain") or {}, (part.get("optimism") or {}).get("merged") or {}
    test, validation = gains.get("test") or {}, gains.get("validation") or {}
    if as_float(test.get("difference")) is not None and interval(test):
        lo, hi = float(test["lo"]), float(test["hi"])
        verdict = (
            "the merge finds more than the best single team"
            if lo > 0
            else "the merge finds less than the best single team"
            if hi < 0
            else "these data do not show that the merge finds more or less than the best single team"
        )
        yield (
            f"On the test volumes the merge has {number(test.get('a'))} and {best} {number(test.get('b'))}: "
            f"a difference of {signed(test['difference'])} {interval(test, sign=True)}, paired by patient. So {verdict}."
        )
    if as_float(validation.get("difference")) is not None and part.get("chosen_by") == "search":
        yield (
            f"On the validation volumes, which chose the setting and the single team, the difference is "
            f"{signed(validation['difference'])}; that number is too good to be reported alone."
        )
    if as_float(optimism.get("difference")) is not None:
        yield (
            f"The value of the merge on validation minus that on test is {signed(optimism['difference'])} "
            f"{interval(optimism, sign=True)}. Part of such a difference is that two sets of patients are not equally hard: the "
            "same difference of the single team, which was chosen among far fewer, is in the table below."
        )
    if not part.get("metric"):
        yield "No cohort was given, so that nothing is said about how good the merge is."


def _with_value(entry: Any) -> Any:
    """A difference as an estimate that a cell can show."""
    if not isinstance(entry, Mapping):
        return None
    return {**entry, "value": entry.get("difference")}


def _values(part: Mapping[str, Any], roles: list[str]) -> Table:
    metric, best = str(part["metric"]), part.get("best_single") or {}
    merged = {role: part["merged"][role]["metrics"][metric] for role in roles}
    rows = [("Merged", merged, (part.get("optimism") or {}).get("merged"))]
    if part.get("published"):
        rows.append(("Merged by the published setting", part["published"], None))
    rows.append((f"{best.get('team')}, the best single team on {best.get('chosen_on')}", {r: best[r][metric] for r in roles}, (part.get("optimism") or {}).get("best_single")))  # fmt: skip
    both = len(roles) > 1
    return Table(
        name="merge_values",
        caption=str(part.get("label") or label(metric)),
        columns=["", *(_ROLES[role] for role in roles), *([f"Validation {MINUS} test"] if both else [])],
        rows=[
            [
                text(name),
                *(estimate(values[role]) for role in roles),
                *([estimate(_with_value(lost), sign=True) if lost else text("")] if both else []),
            ]
            for name, values, lost in rows
        ],
        note=f"Validation {MINUS} test is the optimism; its interval is that of two independent sets of patients."
        if both
        else "",
    )


def _gains(part: Mapping[str, Any], roles: list[str]) -> Table:
    gains = part.get("gain") or {}
    return Table(
        name="merge_gain",
        caption=f"Merged {MINUS} best single team, paired by patient",
        columns=["Volumes", "Difference", "p"],
        rows=[
            [
                text(
                    _ROLES[role],
                    sub="chose the setting" if role == "validation" and part.get("search") else "",
                ),
                estimate(_with_value(gains[role]), sign=True),
                p_cell(gains[role].get("p")),
            ]
            for role in roles
            if isinstance(gains.get(role), Mapping)
        ],
    )


def _setting(part: Mapping[str, Any]) -> Facts:
    setting = part.get("setting") or {}
    words = {
        "capped": "mean score x min(boxes, teams)/teams",
        "overflow": "mean score x boxes/teams",
    }
    how = "chosen by the search" if part.get("chosen_by") == "search" else "given"
    items: list[tuple[str, Cell]] = [("Method", text(part.get("method"))), ("Setting", text(how))]
    for name, title in _PARTS.items():
        if name in setting:
            value = setting[name]
            items.append(
                (title, text(words.get(str(value), f"{value:g}" if isinstance(value, float) else value)))
            )
    if as_float(part.get("floor")):
        below = part.get("boxes_below_floor") or {}
        sub = ", ".join(f"{count(number)} boxes below it, {role}" for role, number in below.items())
        items.append(("Score floor", num(part["floor"], sub=sub)))
    weights = part.get("weights") or {}
    if weights:
        items.append(("Weights", text(", ".join(f"{name} {float(w):g}" for name, w in weights.items()))))
    return Facts(items=items)


def _teams(part: Mapping[str, Any], roles: list[str]) -> Table:
    teams = [row for row in part.get("teams") or [] if isinstance(row, Mapping)]
    judged = bool(part.get("metric"))
    columns = ["Team"]
    for role in roles:
        columns += [f"{_ROLES[role]}: boxes", "Volumes with boxes", *(["Value"] if judged else [])]
    rows = []
    for row in teams:
        cells = [text(row.get("team"))]
        for role in roles:
            one = row.get(role) or {}
            cells += [cnt(one.get("boxes")), cnt(one.get("volumes_with_boxes"))]
            cells += [estimate(one)] if judged else []
        rows.append(cells)
    return Table(name="merge_teams", caption="Teams in the merge", columns=columns, rows=rows, stacked=True)


def _without_one(part: Mapping[str, Any], roles: list[str]) -> list[Any]:
    rows = [row for row in part.get("without_one_team") or [] if isinstance(row, Mapping)]
    if not rows:
        return []
    last = roles[-1]
    rows.sort(key=lambda row: -(as_float((row.get(last) or {}).get("difference")) or 0.0))
    return [
        Table(
            name="merge_without_one_team",
            caption=f"What each team adds: the merge of all {MINUS} the merge without it",
            columns=["Without", *(_ROLES[role] for role in roles)],
            rows=[
                [text(row.get("team")), *(estimate(_with_value(row.get(role)), sign=True) for role in roles)]
                for row in rows
            ],
            note="Paired by patient, by the same setting and score scales. Teams that find the same lesions add little each, "
            "however good they are alone. The intervals hold for each team by itself.",
        )
    ]


def _search(part: Mapping[str, Any]) -> list[Any]:
    search = part.get("search") or {}
    if not search:
        return []
    blocks: list[Any] = []
    published = ""
    if as_float(search.get("published_rank")) is not None:
        published = f" The published setting has rank {count(search['published_rank'])} with {number(search.get('published_value'))}."
    equal = search.get("equal_to_best")
    blocks.append(
        Text(
            paragraphs=[
                f"{count(search.get('settings'))} settings were tried on the validation volumes, from {count(search.get('fusions'))} "
                f"fusions; {count(equal)} {'has' if equal == 1 else 'have'} the highest value, {number(search.get('chosen_value'))}."
                + published
            ]
        )
    )
    levels = [row for row in search.get("levels") or [] if isinstance(row, Mapping)]
    if levels:
        blocks.append(
            Table(
                name="merge_levels",
                caption="What each part of the setting makes of it, on validation",
                columns=["Part", "Value", "Settings", "Best", "Median"],
                rows=[
                    [
                        text(_PARTS.get(str(row["part"]), row["part"])),
                        text(row["level"]),
                        cnt(row["settings"]),
                        num(row["best"]),
                        num(row["median"]),
                    ]
                    for row in levels
                ],
            )
        )
    best = [row for row in search.get("best") or [] if isinstance(row, Mapping)]
    if best:
        names = [name for name in _PARTS if name in best[0]]
        table = Table(
            name="merge_best",
            caption="The best settings on validation (all are in grid.csv)",
            columns=[
                "Rank",
                *(name.capitalize() if name != "iou" else "IoU" for name in names),
                "Value",
                "Boxes",
            ],
            rows=[
                [
                    text(count(row["rank"])),
                    *(
                        text(f"{row[name]:g}" if isinstance(row[name], float) else row[name])
                        for name in names
                    ),
                    num(row["value"]),
                    cnt(row["boxes"]),
                ]
                for row in best
            ],
        )
        blocks.append(Fold(summary="The best settings", blocks=[table], closed=True))
    return blocks


def merging_figures(data: Prepared) -> Iterable[FigureSpec]:
    """List the figures of a merge.

    Args:
        data: The summary as it may be printed.

    Yields:
        The teams beside the merge, and the values of all settings.
    """
    part = data.part("merging")
    if not part.get("metric"):
        return
    metric = in_sentence(str(part.get("label") or part["metric"]))
    rows = merge_plots.team_rows(part)
    if rows:
        yield FigureSpec(
            name="merge-teams",
            title="The merge beside its teams",
            alt="; ".join(f"{row.name}: {number(row.last.get('value'))}" for row in rows),
            build=lambda pal: merge_plots.teams_beside_merge(rows, pal, axis_label=_short(metric)),
        )
    search = part.get("search") or {}
    values = [v for v in search.get("values") or [] if as_float(v) is not None]
    if values:
        best = (part.get("best_single") or {}).get("validation") or {}
        single = as_float((best.get(part["metric"]) or {}).get("value"))
        yield FigureSpec(
            name="merge-settings",
            title=f"All {count(len(values))} settings on validation, best first",
            alt=f"Values from {number(max(values))} to {number(min(values))}; best single team {number(single)}.",
            build=lambda pal: merge_plots.settings_in_order(search, single, pal, axis_label=_short(metric)),
        )


def _short(metric: str) -> str:
    """The metric without the words that the caption of the table has."""
    short = metric.split(" at ")[0]
    return short[:1].upper() + short[1:]
