"""The sections of many models and their ensembles on slides: rates, confusion, random ensembles, published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elsewhere.report.page.blocks import (
    Cell,
    Fold,
    Heading,
    Note,
    Pair,
    Section,
    Table,
    estimate,
    num,
    p_cell,
    text,
)
from elsewhere.report.page.figures import Specs, picture, pictures
from elsewhere.report.page.numbers import count, interval, number
from elsewhere.report.result.prepare import Prepared
from elsewhere.report.slide_ensembles.figures import COMPARED, label_of, scored_rows

Row = Mapping[str, Any]
_RULES = (
    ("left_out", "ITC left out, as the study's tables"),
    ("negative", "ITC as negative, as the study's Figure 8"),
)


def slide_ensembles(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with the rates of every ensemble and model.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where the summary has no ensembles on slides.
    """
    part = data.part("slide_ensembles")
    rows = scored_rows(part)
    if not rows:
        return None
    ensembles = [row for row in rows if row.get("kind") != "model"]
    models = [row for row in rows if row.get("kind") == "model"]
    drawn = [p for p in (picture(specs, f"slide-ensembles-{n}") for n in ("roc", "dice-fpr")) if p]
    blocks: list[Any] = [Pair(pictures=drawn)] if drawn else []
    blocks += [_masks("ensembles", "Ensembles: masks", ensembles)]
    blocks += [_stages("ensembles", f"Ensembles: {words}", ensembles, rule) for rule, words in _RULES[:1]]
    rule, words = _RULES[1]
    other = [_stages("ensembles", f"Ensembles: {words}", ensembles, rule)]
    blocks.append(Fold(summary=f"Ensembles: {words}", blocks=other, closed=True))
    if any(row.get("kind") == "cross-fitted" for row in ensembles):
        blocks.append(Note(text="* Members were chosen on other patients than those that are scored."))
    forest = picture(specs, "slide-ensembles-f1", wide=True)
    if forest:
        blocks.append(forest)
    inside = [
        _masks("models", "Models: masks", models),
        *(_stages("models", f"Models: {words}", models, rule) for rule, words in _RULES),
    ]
    blocks.append(Fold(summary=f"All {len(models)} models", blocks=inside, closed=True))
    blocks.append(Fold(summary="Members of each ensemble", blocks=[_members(ensembles)], closed=True))
    return Section(
        id="slide-ensembles",
        title="Ensembles and models on slides",
        short="Ensembles",
        lead=_lead(data, part),
        blocks=blocks,
    )


def _lead(data: Prepared, part: Row) -> str:
    counts = data.part("counts")
    rule = (
        "A cell is tumour where more than half of the members say so."
        if part.get("rule") == "strict"
        else "A cell is tumour where the members' mean probability is above the threshold."
    )
    stages = ", ".join(
        f"{count(counts.get(f'{name}_slides'))} {name}" for name in ("macro", "micro", "itc", "negative")
    )
    return (
        f"{count(counts.get('models'))} models, {count(counts.get('folds'))} folds, {count(counts.get('slides'))} slides of "
        f"{count(counts.get('patients'))} patients ({stages}). {rule} Means over the folds; 95 % intervals over patients."
    )


def _with_interval(row: Row, name: str) -> Cell:
    return estimate(row["rates"].get(name) or {})


def _with_sd(row: Row, name: str) -> Cell:
    entry = row["rates"].get(name) or {}
    return num(entry.get("value"), sub="" if entry.get("sd") is None else f"± {number(entry['sd'])}")


def _name(row: Row) -> Cell:
    size = row.get("size")
    words = "" if row.get("kind") == "model" else _size(size)
    if row.get("is_and"):
        words += "; the strict vote of two is an AND"
    return text(label_of(row), sub=words)


def _size(size: Any) -> str:
    if isinstance(size, list):
        return f"{' and '.join(map(str, size))} members"
    return f"{size} member{'' if size == 1 else 's'}"


def _masks(kind: str, caption: str, rows: Sequence[Row]) -> Table:
    """Dice, also by stage, and false-positive rates."""
    tissue = any((row["rates"].get("fpr_tissue") or {}).get("value") is not None for row in rows)
    body = []
    for row in rows:
        stages = row.get("dice_by_stage") or {}
        body.append(
            [
                _name(row),
                _with_interval(row, "dice"),
                *(num(stages.get(stage)) for stage in ("macro", "micro", "itc")),
                num(row["rates"]["fpr"].get("value"), 4, sub=interval(row["rates"]["fpr"])),
                *([num(row["rates"]["fpr_tissue"].get("value"), 4)] if tissue else []),
            ]
        )
    return Table(
        name=f"slide-{kind}-masks",
        caption=caption,
        columns=[
            "Name", "Dice", "Macro", "Micro", "ITC", "False-positive rate", *(["Over tissue"] if tissue else [])
        ],
        rows=body,
        stacked=True,
        note="Dice: slides with tumour. False-positive rate: slides without tumour, over all cells of the slide.",
    )  # fmt: skip


def _stages(kind: str, caption: str, rows: Sequence[Row], rule: str) -> Table:
    body = [
        [
            _name(row),
            *(_with_interval(row, f"{name}_{rule}") for name in ("sensitivity", "specificity")),
            *(_with_sd(row, f"{name}_{rule}") for name in ("recall_mean", "precision_mean", "f1_mean")),
        ]
        for row in rows
    ]
    return Table(
        name=f"slide-{kind}-{rule.replace('_', '-')}",
        caption=caption,
        columns=["Name", "Sensitivity", "Specificity", "Recall, mean", "Precision, mean", "F1, mean"],
        rows=body,
        stacked=True,
        note="Positive: macro and micro. Means are over the positive and the negative class, ± SD over the folds; the study "
        "calls the mean recall sensitivity. rates.csv has every interval and SD.",
    )


def _members(rows: Sequence[Row]) -> Table:
    body = [
        [
            text(label_of(row)),
            text(row.get("rule")),
            text(", ".join(str(m) for m in row.get("members") or [])),
        ]
        for row in rows
    ]
    return Table(
        name="slide-ensemble-members", caption="Members", columns=["Ensemble", "Rule", "Members"], rows=body
    )


def slide_confusion(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with two-class and four-class confusion matrices.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where there are none.
    """
    blocks: list[Any] = []
    for kind, title in (("two", "Two classes"), ("four", "Four stages")):
        drawn = [p for p in pictures(specs, "slide-ensembles-confusion-") if p.name.endswith(kind)]
        if drawn:
            blocks += [
                Heading(text=title),
                *(Pair(pictures=drawn[i : i + 2]) for i in range(0, len(drawn), 2)),
            ]
    if not blocks:
        return None
    return Section(
        id="slide-confusion",
        title="Confusion of stages",
        short="Confusion",
        lead="The best model, and up to three ensembles; confusion.csv has all of them. Negative holds slides with ITC alone in the "
        "two classes.",
        blocks=blocks,
    )


def slide_random(data: Prepared, specs: Specs) -> Section | None:
    """Make the section that compares ensembles with random ones.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where there was no such comparison.
    """
    part = data.part("slide_ensembles")
    found = [row for row in part.get("null") or [] if isinstance(row, dict)]
    if not found:
        return None
    drawn = pictures(specs, "slide-ensembles-random-")
    rows = []
    for row in found:
        how = f"all {count(row.get('random'))}" if row.get("exact") else f"{count(row.get('random'))} random"
        cells = [text(label_of(row), sub=f"{_size(row.get('size'))}; {how}")]
        for rate in COMPARED:
            entry = row["rates"][rate]
            cells += [
                num(entry.get("value"), 4 if rate == "fpr" else 3),
                num(entry.get("random"), 4 if rate == "fpr" else 3, sub=_between(entry)),
                p_cell(entry.get("p")),
            ]
        rows.append(cells)
    table = Table(
        name="slide-random",
        caption=f"Ensembles and random ones of the same size: {'; '.join(COMPARED.values())}",
        columns=[
            "Ensemble",
            "F1",
            "Random",
            "p",
            "Dice",
            "Random",
            "p",
            "False-positive rate",
            "Random",
            "p",
        ],
        rows=rows,
        stacked=True,
        note="p: the share of random ensembles that are at least as good. Members that were chosen on the patients that are then "
        "scored are favoured by that choice; rows with a star are not. Each p stands for itself.",
    )
    pairs = [Pair(pictures=drawn[i : i + 2]) for i in range(0, len(drawn), 2)]
    return Section(
        id="slide-random",
        title="Ensembles compared with random ones",
        short="Random ensembles",
        lead="Is the choice of members worth anything? Random ensembles of the same size vote by the same rule on the same slides.",
        blocks=[*pairs, table],
    )


def _between(entry: Row) -> str:
    return f"{number(entry.get('lo'))} to {number(entry.get('hi'))}"


def slide_published(data: Prepared, specs: Specs) -> Section | None:
    """Make the section with the numbers that the lymph-node study prints.

    Args:
        data: The summary as it may be printed.
        specs: The figures of the page.

    Returns:
        The section, or None where no model has a name of the study.
    """
    part = data.part("slide_ensembles").get("published") or {}
    found = [row for row in part.get("rows") or [] if isinstance(row, dict)]
    if not found:
        return None

    def both(row: Row, name: str, sd: bool = True) -> list[Cell]:
        return [
            num(row.get(name), sub=f"± {number(row.get(f'{name}_sd'))}" if sd else ""),
            num(row.get(f"{name}_printed"), sub=f"± {number(row.get(f'{name}_printed_sd'))}" if sd else ""),
        ]

    rows = [
        [
            text(row.get("name")),
            *(cell for name in ("sensitivity", "precision", "f1") for cell in both(row, name)),
        ]
        for row in found
    ]
    blocks: list[Any] = [
        Table(
            name="slide-published",
            caption="Class averages, ITC left out: ours and printed, mean and SD over the folds",
            columns=["Name", "Recall", "Printed", "Precision", "Printed", "F1", "Printed"],
            rows=rows,
            stacked=True,
            note=str(part.get("source") or ""),
        )
    ]
    figure = [row for row in found if row.get("positive_sensitivity_printed") is not None]
    if figure:
        blocks.append(
            Table(
                name="slide-published-figure",
                caption="Positive slides, ITC as negative: ours and printed in the study's Figure 8",
                columns=["Name", "Sensitivity", "Printed", "Specificity", "Printed"],
                rows=[
                    [
                        text(row.get("name")),
                        *both(row, "positive_sensitivity", sd=False),
                        *both(row, "positive_specificity", sd=False),
                    ]
                    for row in figure
                ],
            )
        )
    return Section(
        id="slide-published",
        title="Published numbers of the lymph-node study",
        short="Published",
        lead="The models have the study's names. Other slides and other trainings give other numbers: a difference is a finding to "
        "explain and no error.",
        blocks=blocks,
    )
