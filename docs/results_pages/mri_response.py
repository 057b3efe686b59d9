"""The blocks of docs/results/mri-response.md, from the tables under benchmarks/results/mri-response/."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from results_pages.tables import RESULTS, Tables, interval, number, table

STUDY = Tables(RESULTS / "mri-response")
TABLES = (
    "chance", "drop", "fairness", "groups", "minimum_detectable_effects", "transfers",
)  # fmt: skip
LEADERBOARD = [
    "board", "kind", "method", "baseline", "seeds", "cases", "patients", "rank", "rank_lo", "rank_hi", "status",
    "reason",
    *(f"{m}{end}" for m in ("auroc", "balanced_accuracy", "sensitivity", "specificity", "fairness", "combined")
      for end in ("", "_lo", "_hi")),
    "seconds",
]  # fmt: skip
WORDS = {
    "random": "random classifier",
    "clinical": "clinical columns alone",
    "radiomics": "radiomics",
    "radiomics-clinical": "radiomics and clinical",
    "segmentation-xgboost": "segmented region, XGBoost",
    "slice-cnn": "slice CNN",
}
DATASETS = ("DUKE", "ISPY1", "ISPY2")
LEFT_OUT = "leave-one-dataset-out"


def take(study: Path, *, command: str, machine: str) -> None:
    """Copy a finished study's tables: no patient and no single site."""
    STUDY.copy(study / "report" / "tables", TABLES, {"leaderboard": LEADERBOARD})
    summary = json.loads((study / "report" / "summary.json").read_text())
    about = {"command": command, "machine": machine, "provenance": summary.get("provenance", {})}
    STUDY.write_facts(about, "about")


def take_regions(data: Path) -> None:
    """The automatic region against the area of the publisher's mask, where there is one."""
    from scipy.stats import spearmanr

    from elsewhere.cohort.readers.breast_dcedl import read_breast_dcedl
    from elsewhere.radiomics.region import automatic_region
    from elsewhere.study.volumes import volumes_of

    cohort = read_breast_dcedl(data / "BreastDCEDL")
    volumes = volumes_of(cohort)
    rows = []
    for case in cohort.cases.to_dict(orient="records"):
        name = f"{case['dataset']}/{case['case_id']}"
        x, y, _ = volumes.grid(name).spacing_mm
        found = automatic_region(volumes.phase(name, 0), volumes.phase(name, 1), (x, y, 1.0), centred=True)
        x0, y0, x1, y1 = (int(case[f"box_{end}"]) for end in ("x0", "y0", "x1", "y1"))
        rows.append(
            {
                "dataset": case["dataset"],
                "area": found.sum() * x * y,
                "expert": case["tumor_area_mm2"] if case["tumor_area_mm2"] > 0 else float("nan"),
                "inside": found[x0:x1, y0:y1].sum() / found.sum(),
            }
        )
    held = pd.DataFrame(rows)
    out = []
    for dataset, part in held.groupby("dataset"):
        known = part.dropna(subset=["expert"])
        out.append(
            {
                "dataset": dataset,
                "slices": len(part),
                "with_area": len(known),
                "spearman": spearmanr(known["area"], known["expert"]).statistic if len(known) > 2 else None,
                "median_ratio": (known["area"] / known["expert"]).median() if len(known) else None,
                "median_inside_box": part["inside"].median(),
            }
        )
    STUDY.write(pd.DataFrame(out), "regions")


def word(recipe: str) -> str:
    return WORDS.get(recipe, recipe)


def smallest_effects() -> str:
    held = STUDY.read("minimum_detectable_effects")
    held = held[held["task"] == "response"]
    rows = [
        [
            "all three" if r["dataset"] == "all" else str(r["dataset"]),
            str(r["patients"]),
            str(r["positives"]),
            number(r["smallest_auroc"]),
            number(r["smallest_balanced_accuracy"]),
        ]
        for r in held.to_dict(orient="records")
    ]
    head = ["cohort", "known outcomes", "responders", "smallest AUC", "smallest balanced accuracy"]
    return table(head, rows)


def tested_of() -> pd.DataFrame:
    """The chance test that stands in each board: of the model that says the mean of the seeds' probabilities."""
    held = STUDY.read("chance")
    return held[held["in_board"].astype(str) == "True"].set_index(["board", "method"])


def board(name: str) -> str:
    """One leaderboard, by AUC."""
    tested = tested_of()
    held = STUDY.read("leaderboard")
    held = held[held["board"] == name].sort_values("auroc", ascending=False)
    rows = []
    for r in held.to_dict(orient="records"):
        if r["status"] != "ranked":
            rows.append([word(r["method"]), "", "", "", "", str(r["reason"])])
            continue
        rows.append(
            [
                word(r["method"]),
                str(int(r["seeds"])),
                interval(r["auroc"], r["auroc_lo"], r["auroc_hi"]),
                interval(r["balanced_accuracy"], r["balanced_accuracy_lo"], r["balanced_accuracy_hi"]),
                _p(tested, name, r["method"]),
                interval(r["fairness"], r["fairness_lo"], r["fairness_hi"]),
            ]
        )
    return table(["recipe", "seeds", "AUC", "balanced accuracy", "p, chance (Holm)", "fairness"], rows)


def _p(tested: pd.DataFrame, name: str, recipe: str) -> str:
    if (name, recipe) not in tested.index:
        return ""
    row = tested.loc[(name, recipe)]
    return f"{row['p']:.3f} ({row['p_holm']:.3f})"


def matrix(recipe: str) -> str:
    """From each to each: AUC with its interval; internal results, by folds, on the diagonal."""
    held = STUDY.read("leaderboard")
    held = held[held["method"] == recipe]
    found = STUDY.read("transfers")
    found = found[(found["method"] == recipe) & (found["kind"] == "external")]
    rows = []
    for source in DATASETS:
        cells = [source]
        for target in DATASETS:
            if source == target:
                own = found[found["source"] == source]["internal"].dropna()
                cells.append(f"**{number(float(own.iloc[0]))}**" if len(own) else "")
                continue
            one = held[held["board"] == f"{source}>{target}"]
            r = one.iloc[0] if len(one) else None
            cells.append("" if r is None else interval(r["auroc"], r["auroc_lo"], r["auroc_hi"]))
        rows.append(cells)
    rest = ["the other two"]
    lodo = STUDY.read("transfers")
    lodo = lodo[(lodo["method"] == recipe) & (lodo["kind"] == LEFT_OUT)]
    for target in DATASETS:
        one = lodo[lodo["target"] == target]
        rest.append(
            interval(*(float(one[c].iloc[0]) for c in ("external", "external_lo", "external_hi")))
            if len(one)
            else ""
        )
    rows.append(rest)
    return table([f"{word(recipe)}: trained on", *(f"tested on {d}" for d in DATASETS)], rows)


def matrices() -> str:
    held = STUDY.read("leaderboard")
    order = [r for r in WORDS if r in set(held["method"]) and r != "random"]
    return "\n".join(matrix(recipe) for recipe in order)


def chance() -> str:
    """How many of a recipe's boards beat a thousand random classifiers."""
    held = STUDY.read("leaderboard")
    held, tested = held[held["status"] == "ranked"], tested_of().reset_index()
    rows = []
    for recipe in [r for r in WORDS if r in set(held["method"])]:
        pairs = held["board"].str.contains(">")  # the board "external" pools them
        part = held[(held["method"] == recipe) & (held["kind"] == "external") & pairs]
        tests = tested[(tested["method"] == recipe) & tested["board"].isin(part["board"])]
        cells = [word(recipe), number(part["auroc"].mean()), number(part["balanced_accuracy"].mean())]
        cells += [f"{int((tests[c] < 0.05).sum())} of {len(tests)}" for c in ("p", "p_holm")]
        rows.append(cells)
    head = ["recipe", "mean AUC of transfers", "mean balanced accuracy", "p < 0.05", "after Holm"]
    return table(head, rows)


def drop() -> str:
    held = STUDY.read("drop")
    rows = [
        [
            f"{word(r['method'])}, {'one to another' if r['kind'] == 'external' else 'the other two'}",
            number(r["internal"]),
            number(r["external"]),
            interval(r["difference"], r["lo"], r["hi"], sign=True),
        ]
        for r in held.to_dict(orient="records")
        if r["method"] != "random"
    ]
    return table(["recipe", "internal AUC", "external AUC", "difference, 95 % t interval"], rows)


def regions() -> str:
    rows = [
        [
            str(r["dataset"]),
            str(int(r["slices"])),
            str(int(r["with_area"])),
            number(r["spearman"], 2),
            number(r["median_ratio"], 2),
            f"{100 * r['median_inside_box']:.0f} %",
        ]
        for r in STUDY.read("regions").to_dict(orient="records")
    ]
    head = [
        "cohort",
        "slices",
        "with an expert's area",
        "rank correlation",
        "area / expert's",
        "inside the box",
    ]
    return table(head, rows)


def groups() -> str:
    held = STUDY.read("groups")
    if held.empty:
        return ""
    shown = [
        r for r in ("clinical", "radiomics", "segmentation-xgboost", "slice-cnn") if r in set(held["method"])
    ]
    held = held[held["method"].isin(shown) & held["variable"].isin(["age", "menopausal_status", "subtype"])]
    rows = []
    for (variable, group), part in held.groupby(["variable", "group"], sort=False):
        by = {r["method"]: r for r in part.to_dict(orient="records")}
        any_row = next(iter(by.values()))
        cells = [f"{variable.replace('_', ' ')}: {group}", str(any_row["patients"])]
        for recipe in shown:
            r = by.get(recipe)
            cells.append("" if r is None else interval(r.get("auroc"), r.get("auroc_lo"), r.get("auroc_hi")))
        rows.append(cells)
    return table(["group", "patients", *(f"AUC, {word(r)}" for r in shown)], rows)


def flagged() -> str:
    """Whether any scored gap between groups is more than the groups' sizes alone would give."""
    held = STUDY.read("fairness")
    scored = held[
        held["scored"].astype(str).eq("True") & held["variable"].ne("all") & held["method"].ne("random")
    ]
    found = scored[scored["flagged"].astype(str) == "True"]
    names = [f"{word(r['method'])} by {r['variable'].replace('_', ' ')}" for r in found.to_dict("records")]
    told = (
        f"flagged after Holm's correction: {', '.join(names)}"
        if names
        else "none is flagged after Holm's correction"
    )
    return f"Of {len(scored)} gaps between age groups and between pre- and postmenopausal patients (equalised odds), {told}."


def lacking() -> str:
    """Recipes of the study without a run here."""
    held = set(STUDY.read("leaderboard")["method"])
    lost = [word(recipe) for recipe in WORDS if recipe not in held]
    return f"Not run yet: {', '.join(lost)} (it wants a GPU)." if lost else ""


def about() -> str:
    held = STUDY.facts("about")
    return f"`{held['command']}`, {held['machine']}."


def page() -> str:
    """The whole page."""
    blocks = {
        "smallest_effects": smallest_effects,
        "left_out": lambda: board(LEFT_OUT),
        "folds": lambda: board("folds"),
        "matrices": matrices,
        "chance": chance,
        "drop": drop,
        "groups": groups,
        "flagged": flagged,
        "lacking": lacking,
        "regions": regions,
        "about": about,
    }
    return STUDY.fill(blocks)
