"""Sections about the lesions of many models: who finds what, groups of lesions, paired comparisons, hit rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elsewhere.analysis.ranking.lesions import paper_and_code_sentence
from elsewhere.report.leaderboard import lesion_plots
from elsewhere.report.page.blocks import (
    Cell,
    Fold,
    Note,
    Pair,
    Section,
    Table,
    cnt,
    estimate,
    num,
    p_cell,
    pct,
    text,
)
from elsewhere.report.page.figures import FigureSpec, Specs, picture
from elsewhere.report.page.numbers import MINUS, as_float, count
from elsewhere.report.result.prepare import Prepared

MOST_DRAWN = 16
_MOST_MODELS_IN_A_TABLE = 10
_MOST_PAIRS = 200
_MOST_SETS = 8
"""Larger sets, and those that find no more than a smaller one, are in the figure alone."""


def lesion_figures(data: Prepared) -> Iterable[FigureSpec]:
    """List the figures about lesions that a ranking can have.

    Args:
        data: The summary as it may be printed.

    Yields:
        Figures of who finds what, and of the hit rules.
    """
    part = data.part("who_finds_what")
    models = [str(row["model"]) for row in _rows(part, "models")]
    if 2 <= len(models) <= MOST_DRAWN:
        adds = _adds(part, models)
        yield FigureSpec(
            name="added-lesions",
            title="Lesions that the model of the column finds and that of the row misses; diagonal: found",
            alt="Matrix: lesions that one model finds and another one misses.",
            build=lambda pal: lesion_plots.added_lesions(models, adds, pal),
        )
    sets = _rows(part, "sets")
    if len(sets) > 1:
        yield FigureSpec(
            name="best-sets",
            title="Lesions that the best set of models finds together",
            alt="; ".join(f"{row['models']} models: {count(row['found'])} lesions" for row in sets),
            build=lambda pal: lesion_plots.union_of_sets(sets, int(part["lesions"]), pal),
        )
    rules = data.part("hit_rules")
    if _rows(rules, "map") and len(_rows(rules, "models")) > 1:
        yield FigureSpec(
            name="hit-rule-map",
            title="Pairs of models in another order than under the protocol's own rule",
            alt=f"Map of {rules.get('rules')} hit rules: how many pairs of models change their order.",
            build=lambda pal: lesion_plots.rule_map(rules, pal),
        )
        yield FigureSpec(
            name="hit-rule-ranks",
            title="Ranks under all hit rules",
            alt="; ".join(
                f"{row['model']}: {row['best_rank']} to {row['worst_rank']}" for row in _rows(rules, "models")
            ),
            build=lambda pal: lesion_plots.rank_ranges(_rows(rules, "models"), pal),
        )


def who_finds_what(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of what models find alone and together.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where it is not known.
    """
    part = data.part("who_finds_what")
    models = _rows(part, "models")
    if not models:
        return None
    blocks: list[Any] = []
    drawn = [one for one in (picture(specs, name) for name in ("added-lesions", "best-sets")) if one]
    if drawn:
        blocks.append(Pair(pictures=drawn))
    blocks.append(
        Table(
            name="lesions-of-models",
            caption="Lesions that each model finds",
            columns=["Model", "Found", "Share", "Found by no other model"],
            rows=[
                [
                    text(row.get("model")),
                    cnt(row.get("found")),
                    pct(row.get("sensitivity")),
                    cnt(row.get("found_by_no_other")),
                ]
                for row in models
            ],
        )
    )
    sets = _rows(part, "sets")
    most = max((as_float(row.get("found")) or 0.0 for row in sets), default=0.0)
    enough = next((at for at, row in enumerate(sets) if as_float(row.get("found")) == most), 0)
    if sets := sets[1 : max(2, min(enough + 1, _MOST_SETS))]:
        blocks.append(
            Table(
                name="best-sets",
                caption="The best set of each size",
                columns=["Models", "Best set", "Found", "More than the best model", "Found, budget shared"],
                rows=[
                    [
                        cnt(row.get("models")),
                        text(", ".join(map(str, row.get("best") or []))),
                        cnt(row.get("found")),
                        cnt(row.get("gain")),
                        cnt(row.get("found_at_shared_budget")),
                    ]
                    for row in sets
                ],
                note="With the budget shared, each of k models may spend 1/k of the false positives; the set that is best "
                "then can be another one. A set is chosen on the same lesions that it is counted on.",
            )
        )
    if 0 < len(pairs := _rows(part, "pairs")) <= _MOST_PAIRS:
        table = Table(
            name="pairs-of-models",
            caption="What two models find together",
            columns=["Models", "Both", "Only the first", "Only the second", "Neither", "Gain"],
            rows=[
                [
                    text(f"{row.get('a')}, {row.get('b')}"),
                    *(cnt(row.get(key)) for key in ("both", "only_a", "only_b", "neither", "gain")),
                ]
                for row in pairs
            ],
            note="Gain: lesions that the better model of the two misses and the other one finds.",
        )
        blocks.append(
            Fold(summary=f"All {len(pairs)} pairs of models", blocks=[table], closed=len(pairs) > 6)
        )
    lead = (
        f"{count(part.get('lesions'))} lesions, each model at {num(part.get('budget_fp_per_volume'), 0).text} false positives "
        f"per volume: {count(part.get('by_all'))} are found by all models, {count(part.get('by_none'))} by none."
    )
    return Section(
        id="who-finds-what", title="Who finds what", short="Who finds what", lead=lead, blocks=blocks
    )


def strata_blocks(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Set the groups of lesions of the difficulty as tables.

    Args:
        rows: The groups, each with the numbers of its lesions and of each model.

    Returns:
        A table of the groups, and one of the models in each.
    """
    if not rows:
        return []
    blocks: list[Any] = [
        Table(
            name="lesion-groups",
            caption="Groups of lesions",
            columns=["Group", "Lesions", "Patients", "Found by any", "Found by all", "Mean share of models"],
            rows=[
                [
                    _group(row),
                    *(cnt(row.get(key)) for key in ("lesions", "patients", "found_by_any", "found_by_all")),
                    pct(row.get("mean_share_of_models")),
                ]
                for row in rows
            ],
            note="Sizes are thirds of the diagonals of the lesions' boxes. The threshold of a model is that of the whole "
            "set. Groups of fewer than 5 patients are not shown.",
        )
    ]
    names = next(([str(m["model"]) for m in row["models"]] for row in rows if row.get("models")), [])
    if 0 < len(names) <= _MOST_MODELS_IN_A_TABLE:
        shares = [
            [
                _group(row),
                *(
                    [pct(m.get("sensitivity")) for m in row["models"]]
                    if row.get("models")
                    else [text("")] * len(names)
                ),
            ]
            for row in rows
        ]
        table = Table(
            name="lesion-groups-of-models",
            caption="Share of the lesions that each model finds",
            columns=["Group", *names],
            rows=shares,
        )
        blocks.append(Fold(summary="Each model in these groups", blocks=[table], closed=True))
    return blocks


def lesions_paired(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of models compared lesion by lesion.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None without such a comparison.
    """
    part = data.part("lesions_paired")
    pairs = _rows(part, "pairs")
    if not pairs:
        return None
    several = len(pairs) > 1
    blocks: list[Any] = [
        Table(
            name="lesions-paired",
            caption="Lesions that only one of two models finds",
            columns=_paired_columns(several),
            rows=[[_pair(row), *_paired_cells(row, several=several)] for row in pairs],
            note="p: exchange of the two models by patient, both thresholds found anew after each exchange; the interval is "
            "of resampled patients." + (" Holm: corrected for all pairs of this table." if several else ""),
        )
    ]
    if others := _rows(part, "other_budgets"):
        table = Table(
            name="lesions-paired-budgets",
            caption="The same at other budgets",
            columns=["False positives per volume", *_paired_columns(several)],
            rows=[
                [
                    num(row.get("budget_fp_per_volume"), 0),
                    _pair(row),
                    *_paired_cells(row, several=several),
                ]
                for row in others
            ],
        )
        blocks.append(Fold(summary="Other budgets of false positives", blocks=[table], closed=True))
    if strata := _rows(part, "strata"):
        table = Table(
            name="lesions-paired-groups",
            caption="The same in groups of lesions",
            columns=["Group", *_paired_columns(several=True)],
            rows=[[_group(row), _pair(row), *_paired_cells(row, several=True)] for row in strata],
            note="Holm: corrected for all groups of one pair of models. Groups of fewer than 5 patients are not shown.",
        )
        blocks.append(Fold(summary="Groups of lesions", blocks=[table], closed=several))
    if part.get("baseline_is_the_first_model"):
        blocks.append(
            Note(
                text=f"With so many models each is compared with the first of the ranking, {part.get('baseline')}. It was chosen "
                "on the same cases, which favours it."
            )
        )
    budget = num(part.get("budget_fp_per_volume"), 0).text
    lead = (
        f"Each model at {budget} false positives per volume over all volumes; a box takes the nearest lesion. Lesions that both "
        "find, or both miss, say nothing about which model finds more."
    )
    return Section(
        id="lesions-paired", title="Lesion by lesion", short="Lesion by lesion", lead=lead, blocks=blocks
    )


def hit_rules(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of the hit rules.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where models were ranked under one rule alone.
    """
    part = data.part("hit_rules")
    models = _rows(part, "models")
    if not models:
        return None
    blocks: list[Any] = []
    drawn = [one for one in (picture(specs, name) for name in ("hit-rule-map", "hit-rule-ranks")) if one]
    if drawn:
        blocks.append(Pair(pictures=drawn))
    blocks.append(
        Table(
            name="hit-rule-models",
            caption="Values and ranks under all hit rules",
            columns=["Model", "Value", "Lowest to highest", "Rank", "Ranks", "Beyond the rank interval"],
            rows=[
                [
                    text(row.get("model")),
                    num(row.get("value")),
                    text(f"{num(row.get('lowest_value')).text} to {num(row.get('highest_value')).text}"),
                    cnt(row.get("rank")),
                    text(_from_to(row.get("best_rank"), row.get("worst_rank"))),
                    text("yes" if row.get("beyond_rank_interval") else "no"),
                ]
                for row in models
            ],
            note="A rank that stays within the rank interval of the ranking could as well change by chance.",
        )
    )
    if pairs := _rows(part, "changing_pairs"):
        blocks.append(
            Table(
                name="hit-rule-pairs",
                caption="Models that change their order",
                columns=["Ahead under the protocol's own rule", "Behind", "Rules in the other order"],
                rows=[
                    [
                        text(row.get("ahead")),
                        text(row.get("behind")),
                        cnt(row.get("rules_in_other_order"), sub=f"of {count(part.get('rules'))}"),
                    ]
                    for row in pairs
                ],
            )
        )
    changes = Table(
        name="hit-rule-changes",
        caption="Boxes and lesions whose state depends on the rule",
        columns=[
            "Model",
            "Boxes",
            "hits by every rule",
            "hits by some rules",
            "Lesions hit by every rule",
            "by some rules",
            "by none",
        ],
        rows=[
            [
                text(row.get("model")),
                *(
                    cnt(row.get(key))
                    for key in (
                        "boxes",
                        "boxes_always_hits",
                        "boxes_that_change",
                        "lesions_always_hit",
                        "lesions_that_change",
                        "lesions_never_hit",
                    )
                ),
            ]
            for row in models
        ],
    )
    blocks.append(Fold(summary="Boxes and lesions that change", blocks=[changes], closed=True))
    between = part.get("paper_and_code")
    if isinstance(between, Mapping):
        blocks += _paper_and_code(between)
    lead = (
        f"The models were ranked under {count(part.get('rules'))} rules of a hit: {len(part.get('in_plane') or [])} in the plane, "
        f"{len(part.get('slice_tolerances') or [])} slice tolerances, {len(part.get('matchings') or [])} matchings. Under "
        f"{count(part.get('rules_with_another_leader'))} of them another model leads; under "
        f"{count(part.get('rules_with_another_order'))} two models stand in another order than under the protocol's own rule."
    )
    return Section(id="hit-rules", title="Hit rules", short="Hit rules", lead=lead, blocks=blocks)


def _paper_and_code(part: Mapping[str, Any]) -> list[Any]:
    return [
        Note(text=paper_and_code_sentence(part)),
        Table(
            name="paper-and-code",
            caption="The rule of the challenge's paper and that of its code",
            columns=["Model", "Paper (50 px)", "Code (100 px)", "Lesions hit by one alone", "Boxes"],
            rows=[
                [
                    text(row.get("model")),
                    num(row.get("paper")),
                    num(row.get("code")),
                    cnt(row.get("lesions_hit_by_one_rule_alone")),
                    cnt(row.get("boxes_that_hit_by_one_rule_alone")),
                ]
                for row in _rows(part, "models")
            ],
            note="The smallest radius is given in brackets; slice tolerance and matching are those of the ranking.",
        ),
    ]


def published(data: Prepared, specs: Specs) -> Section | None:
    """Make the section of the printed table of the challenge.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where nothing printed is compared.
    """
    part = data.part("published")
    rows = _rows(part, "rows")
    if not rows:
        return None
    printed = [
        {**row, "value": row.get("printed_value"), "lo": row.get("printed_lo"), "hi": row.get("printed_hi")}
        for row in rows
    ]
    blocks: list[Any] = []
    if not part.get("same_number_of_patients_and_volumes"):
        blocks.append(
            Note(
                text="The cohort has another number of patients or volumes than the challenge's test set (418 patients, "
                "1,721 volumes): the printed values are of other volumes.",
                tone="warn",
            )
        )
    blocks.append(
        Table(
            name="published",
            caption="Sensitivity at 2 false positives per volume, all volumes",
            columns=["Model", "Rank", "Printed rank", "Ours", "Printed", "Difference"],
            rows=[
                [
                    text(row.get("model")),
                    cnt(row.get("rank")),
                    text(row.get("printed_rank")),
                    estimate(row),
                    estimate(other) if other["value"] is not None else text(""),
                    estimate(row.get("difference"), sign=True)
                    if as_float(row.get("difference")) is not None
                    else text(""),
                ]
                for row, other in zip(rows, printed, strict=True)
            ],
            note=f"Printed: {part.get('source')}. The printed rank is that of the challenge's primary metric.",
        )
    )
    if missing := part.get("printed_without_a_file"):
        blocks.append(Note(text=f"Printed, without a file here: {', '.join(map(str, missing))}."))
    lead = f"Phase {part.get('phase')} of the DBTex challenge, test set. A difference is a finding to explain, not an error."
    return Section(
        id="published",
        title="Comparison with the printed table",
        short="Printed table",
        lead=lead,
        blocks=blocks,
    )


def _from_to(low: Any, high: Any) -> str:
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def _paired_columns(several: bool) -> list[str]:
    columns = ["Models", "Both", "Only the first", "Only the second", "Neither", "Difference", "p"]
    return [*columns, "p, Holm"] if several else columns


def _paired_cells(row: Mapping[str, Any], *, several: bool) -> list[Cell]:
    counts = [cnt(row.get(key)) for key in ("both", "only_a", "only_b", "neither")]
    if as_float(row.get("difference")) is None:
        gap = text(row.get("note"))
    else:
        gap = estimate({**row, "value": row["difference"]}, sign=True)
    tests = [p_cell(row.get("p"))] + ([p_cell(row.get("p_holm"))] if several else [])
    return [*counts, gap, *tests]


def _pair(row: Mapping[str, Any]) -> Cell:
    return text(f"{row.get('a')} {MINUS} {row.get('b')}")


def _group(row: Mapping[str, Any]) -> Cell:
    return text(f"{row.get('attribute')}: {row.get('level')}")


def _rows(part: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    rows = part.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _adds(part: Mapping[str, Any], models: Sequence[str]) -> list[list[int]]:
    number = {name: k for k, name in enumerate(models)}
    adds = [[0] * len(models) for _ in models]
    for row in _rows(part, "models"):
        adds[number[str(row["model"])]][number[str(row["model"])]] = int(row["found"])
    for row in _rows(part, "pairs"):
        a, b = number[str(row["a"])], number[str(row["b"])]
        adds[a][b], adds[b][a] = int(row["only_b"]), int(row["only_a"])
    return adds
