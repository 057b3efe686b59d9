"""The sections of a recipe study's report about patients: who was tested, sizes, reliability, hardest cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elsewhere.report.page.blocks import Heading, Note, Section, Table, cnt, num, text
from elsewhere.report.page.numbers import as_float, count, number
from elsewhere.study.recipe_analysis_groups import SIZE
from elsewhere.study.recipe_report_board import SHORT_WORDS, TASK_WORDS, Specs, about
from elsewhere.study.report_sections import like, pair, rows_of, with_interval

if TYPE_CHECKING:
    from elsewhere.study.recipe_analysis import RecipeSummary


def who(summary: RecipeSummary, specs: Specs) -> Section:
    rows = rows_of(summary.of("datasets"))
    outcome = any("outcome_known" in r for r in rows)
    columns = ["Dataset", "Patients", "Sites", *(["Outcome known", "pCR", "No pCR"] if outcome else [])]
    columns += ["Age known", "Menopausal status", "Density", "Subtype", "Id grade"]
    cells = [
        [
            text(r["dataset"]),
            cnt(r["patients"]),
            cnt(r["sites"]),
            *([cnt(r.get(k)) for k in ("outcome_known", "pcr", "no_pcr")] if outcome else []),
            *(cnt(r[f"{k}_known"]) for k in ("age", "menopausal_status", "breast_density", "subtype")),
            text(r["id_grade"]),
        ]
        for r in rows
    ]
    blocks: list[Any] = [
        Table(
            name="datasets",
            caption="Patients of each dataset, and for how many each attribute is known",
            columns=columns,
            rows=cells,
            note="Cells of one to four patients are withheld.",
        )
    ]
    blocks += _could_see(summary)
    return Section(
        id="who",
        title="Who was tested, and what they could show",
        short="Who was tested",
        lead="Before any result: the smallest effect that this many patients can show (ST-07).",
        blocks=blocks,
    )


def _could_see(summary: RecipeSummary) -> list[Any]:
    out: list[Any] = []
    response = rows_of(summary.of("could_see", task="response"))
    if response:
        out.append(
            Table(
                name="could-see-response",
                caption="Response: the smallest effect above chance that would be found with 80 % power",
                columns=["Dataset", "Patients", "pCR", "AUC from", "Balanced accuracy from"],
                rows=[
                    [
                        text(_all(r["dataset"])),
                        cnt(r["patients"]),
                        cnt(r["positives"]),
                        num(r["smallest_auroc"], 2),
                        num(r["smallest_balanced_accuracy"], 2),
                    ]
                    for r in response
                ],
                note="One-sided 5 % test against 0.5, from the numbers of patients alone. For comparison: the challenge's best AUC was 0.57.",
            )
        )
    dice = [r for r in rows_of(summary.of("could_see", task="segmentation")) if r["dataset"] != "all"]
    if dice:
        out.append(
            Table(
                name="could-see-dice",
                caption="Segmentation: the smallest drop of Dice against the other datasets that would be found with 80 % power",
                columns=["Dataset", "Patients", "Sd of Dice", "Drop from"],
                rows=[
                    [text(r["dataset"]), cnt(r["patients"]), num(r["sd_dice"]), num(r["smallest_dice_drop"])]
                    for r in dice
                ],
            )
        )
    return out


def _all(name: str) -> str:
    return "All together" if name == "all" else name


def sizes(summary: RecipeSummary, specs: Specs, task: str) -> Section | None:
    told = about(summary, task)
    best = summary.headline["tasks"][task]["best"]
    rows = rows_of(summary.of("groups", task=task, board=told["board"], variable=SIZE))
    top = rows_of(summary.of("top_and_bottom", task=task, board=told["board"]))
    blocks: list[Any] = []
    if rows:
        names = list(dict.fromkeys(str(r["group"]) for r in rows if str(r["cases"]) != "0"))
        held = {(r["recipe"], str(r["group"])): r for r in rows}
        cells = []
        for recipe in dict.fromkeys(r["recipe"] for r in rows):
            line = [text(recipe)]
            for name in names:
                r = held[recipe, name]
                line.append(with_interval(r.get("dice"), r.get("dice_lo"), r.get("dice_hi")))
            cells.append(line)
        blocks.append(
            Table(
                name=f"{task}-sizes",
                caption="Dice by tumour size",
                columns=["Recipe", *(f"{n.capitalize()} ({held[best, n]['patients']})" for n in names)],
                rows=cells,
                note="In brackets above: patients. Small and large: below the 20th and above the 80th percentile of volume (MRI-11).",
            )
        )
    if top:
        blocks += pair(specs, f"{task}-top-bottom")
        blocks.append(
            Note(
                text=f"Best: {top[0]['top']}. Worst: {top[0]['bottom']}. Both are chosen on these cases, so that their gap is descriptive, and "
                "optimistic; its intervals are in tables/top_and_bottom.csv."
            )
        )
    if not blocks:
        return None
    return Section(
        id=f"{task}-sizes",
        title=f"{TASK_WORDS[task]}: "
        + ("small tumours, and the best against the worst" if rows else "the best against the worst"),
        short=f"{SHORT_WORDS[task]}: " + ("sizes" if rows else "best and worst"),
        blocks=blocks,
    )


def reliability(summary: RecipeSummary, specs: Specs) -> Section | None:
    recall = rows_of(summary.of("recall"))
    if not recall:
        return None
    blocks: list[Any] = [*pair(specs, "response-recall")]
    blocks.append(
        Table(
            name="recall",
            caption="Recall of each class, and the gap",
            columns=["Recipe", "Recall, pCR", "Recall, no pCR", "Gap"],
            rows=[
                [
                    text(r["recipe"]),
                    with_interval(r["pcr"], r["pcr_lo"], r["pcr_hi"]),
                    with_interval(r["no_pcr"], r["no_pcr_lo"], r["no_pcr_hi"]),
                    with_interval(r["gap"], r["gap_lo"], r["gap_hi"], sign=True),
                ]
                for r in recall
            ],
            note="A negative gap: the recipe prefers to say 'no pCR'. Brackets: percentile bootstrap over patients; with several seeds, "
            "of their mean, as in the board.",
        )
    )
    names = like(specs, "response-reliability")
    if names:
        blocks += pair(specs, *names)
        told_seeds = max((int(r["seeds"]) for r in rows_of(summary.of("reliability"))), default=1)
        slopes = {r["recipe"]: r["slope"] for r in rows_of(summary.of("reliability"))}
        told = ", ".join(f"{n} {number(v, 2)}" for n, v in slopes.items() if as_float(v) is not None)
        blocks.append(
            Note(
                text="Quantile bins with their numbers of patients; dashed: perfect; dotted: the share of pCR."
                + (
                    f" Up to {told_seeds} seeds lie in the bins together, a patient once a seed."
                    if told_seeds > 1
                    else ""
                )
                + (f" Calibration slope (1 is ideal, below it too extreme): {told}." if told else "")
            )
        )
    return Section(
        id="response-reliability",
        title="Response: recall and reliability",
        short="Response: reliability",
        lead="Whom it finds, and whether its probabilities can be believed (MRI-11).",
        blocks=blocks,
    )


def _several(summary: RecipeSummary, task: str) -> bool:
    return bool((summary.of("leaderboard", task=task, status="ranked")["seeds"] > 1).any())


def hardest(summary: RecipeSummary, task: str, pictures: list[Any]) -> Section | None:
    rows = rows_of(summary.of("hardest", task=task))
    if not rows:
        return None
    told = about(summary, task)
    ranked = summary.of("leaderboard", task=task, board=told["board"])
    recipes = [r for r in ranked["recipe"] if r in rows[0] and as_float(rows[0][r]) is not None][:6]
    cells = [
        [
            text(r["case"], kind="code"),
            text(r["why"], sub=str(r["size"]) if isinstance(r.get("size"), str) else ""),
            num(r["mean"]),
            *(num(r.get(n)) for n in recipes),
        ]
        for r in rows
    ]
    what = "Dice" if task == "segmentation" else "Nearness of the probability to the outcome (1 is right)"
    blocks: list[Any] = [
        Table(
            name=f"{task}-hardest",
            caption=f"{what} of the hardest cases",
            columns=["Case", "Chosen as", "Mean", *recipes],
            rows=cells,
            note="Cases are named by salted hashes; the key file beside the report resolves them, and stays with the data.",
        )
    ]
    if pictures:
        drew = Note(text="With several seeds, the first seed's contour.")
        blocks += [
            Heading(text="What the recipes drew"),
            *([drew] if _several(summary, task) else []),
            *pictures,
        ]
    elif task == "segmentation":
        blocks.append(
            Note(text="Pictures of these cases come on request (--pictures): they hold pixels of patients.")
        )
    return Section(
        id=f"{task}-hardest",
        title=f"{TASK_WORDS[task]}: the hardest cases",
        short=f"{SHORT_WORDS[task]}: hardest cases",
        lead=f"Worst for all recipes together (with several seeds by their mean), of {count(told['cases'])} cases; and the worst of each kind that the cohort marks.",
        blocks=blocks,
    )
