"""The blocks of docs/results/ultrasound.md, from the tables under benchmarks/results/ultrasound/."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd

from results_pages.tables import RESULTS, Tables, interval, number, table

STUDY = Tables(RESULTS / "ultrasound")
TABLES = (
    "abstention",
    "calibration_eligibility",
    "datasets",
    "drop",
    "ensembles",
    "external_scenarios",
    "found_boxes",
    "lesion_against_normal",
    "margins",
    "multi_source",
    "overall",
    "paired",
    "selection",
    "selection_attempts",
    "selection_without_outline",
    "without_dataset",
)
SCENARIO_COLUMNS = [
    "kind",
    "source",
    "target",
    "model",
    "input",
    "seeds",
    "auroc",
    "auroc_lo",
    "auroc_hi",
    "auroc_seed_sd",
    "auprc",
    "sensitivity",
    "specificity",
    "balanced_accuracy",
    "f1",
    "ece_confidence",
    "ece_malignant",
    "nll",
    "ece_confidence_calibrated",
    "nll_calibrated",
    "temperature",
]
RUN_COLUMNS = [
    "scenario",
    "kind",
    "source",
    "target",
    "model",
    "input",
    "seed",
    "auroc",
    "balanced_accuracy",
    "ece_confidence",
    "nll",
    "ece_confidence_calibrated",
    "nll_calibrated",
    "temperature",
]


def take(name: str, study: Path) -> None:
    """Copy a finished study's tables (name: patient, image, sources, ...): no case and no picture."""
    held = STUDY.part(name)
    held.copy(
        study / "report" / "tables", TABLES, {"scenarios": SCENARIO_COLUMNS, "run_metrics": RUN_COLUMNS}
    )
    held.write(
        pd.read_csv(study / "trainings.csv").drop(columns=["training", "notes", "details"]), "trainings"
    )
    summary = json.loads((study / "report" / "summary.json").read_text())
    held.write_facts(summary["provenance"], "provenance")


def take_shape(data: Path) -> None:
    """Measure how much of the label the annotated outlines give away; `data` holds the four sets."""
    from results_pages.ultrasound_shape import shape_alone

    STUDY.part("sources").write(shape_alone(data), "shape")


def take_leak(image: Path, patient: Path) -> None:
    """In the internal runs of the image reading: test pictures whose patient (or duplicate) also trained,
    against those without; groups are the patient reading's.
    """
    from elsewhere.statistics.auroc import auroc

    manifest = pd.read_csv(patient / "manifest.csv")
    group = dict(zip(manifest["case"], manifest["group"], strict=True))
    held = pd.read_parquet(image / "predictions.parquet")
    held = held[held["part"] == "test"]
    rows = []
    for run, part in held.groupby("run", sort=False):
        scenario, method, _, seed = str(run).split("|")
        model, _, input_ = method.partition("-")
        if ">" in scenario:
            continue
        split = pd.read_csv(image / "splits" / f"{scenario}_seed-{seed}.csv")
        seen = set(split.loc[split["part"].isin(["train", "validation"]), "case"].map(group))
        leaked = part["case"].map(group).isin(seen).to_numpy()
        score, label = (part["logit_positive"] - part["logit_negative"]).to_numpy(), part["label"].to_numpy()
        rows.append(
            {
                "dataset": scenario,
                "model": model,
                "input": input_,
                "seed": int(seed),
                "pictures": len(part),
                "leaked": int(leaked.sum()),
                "auroc_leaked": auroc(label[leaked], score[leaked]),
                "auroc_clean": auroc(label[~leaked], score[~leaked]),
            }
        )
    STUDY.part("image").write(pd.DataFrame(rows), "leak")


def shape() -> str:
    held, chosen = STUDY.part("sources").read("shape"), STUDY.part("sources").read("selection")
    if held.empty:
        return ""
    best = dict(zip(chosen["target"], chosen["ensemble_auroc"], strict=True)) if len(chosen) else {}
    rows = [
        [
            r["target"],
            number(r["auroc"]),
            number(r["roughness_auroc"]),
            number(best.get(r["target"], math.nan)),
        ]
        for r in held.to_dict(orient="records")
    ]
    mean = [number(held[c].mean()) for c in ("auroc", "roughness_auroc")]
    rows.append(["mean", *mean, number(best.get("mean over targets", math.nan))])
    head = ["left out", "outline's shape alone", "its roughness alone, nothing trained", "the ensemble"]
    return table(head, rows)


def leak() -> str:
    held = STUDY.part("image").read("leak")
    if held.empty:
        return ""
    rows = []
    for (dataset, input_), part in held.groupby(["dataset", "input"], sort=False):
        known = part.dropna(subset=["auroc_leaked", "auroc_clean"])
        share = part["leaked"].sum() / part["pictures"].sum()
        gap = known["auroc_leaked"] - known["auroc_clean"]
        rows.append(
            [
                f"{dataset}, {word(str(input_))}",
                f"{100 * share:.0f} %",
                number(float(known["auroc_leaked"].mean())) if len(known) else "",
                number(float(known["auroc_clean"].mean())) if len(known) else "",
                f"{number(float(gap.mean()), sign=True)} ({number(float(gap.min()), sign=True)} to {number(float(gap.max()), sign=True)})"
                if len(known)
                else "",
            ]
        )
    head = [
        "test pictures, image ids",
        "patient or copy also in training",
        "AUROC of these",
        "of the others",
        "difference (over seeds)",
    ]
    return table(head, rows)


WORDS = {"cnn": "CNN", "vit": "ViT", "roi": "crop", "whole": "whole image"}


def word(name: str) -> str:
    return WORDS.get(name, name)


def table_3(name: str) -> str:
    """Internal and external AUROC and balanced accuracy, ECE and NLL, next to the paper's table 3."""
    overall = STUDY.part(name).read("overall")
    parts = []
    for metric, title in (("auroc", "AUROC"), ("bacc", "Balanced accuracy")):
        rows = []
        for r in overall.to_dict(orient="records"):
            if not isinstance(r["input"], str):
                continue
            row = [f"{word(r['model'])}, {word(r['input'])}"]
            for kind in ("internal", "external"):
                row.append(
                    interval(r[f"{kind}_{metric}"], r[f"{kind}_{metric}_lo"], r[f"{kind}_{metric}_hi"])
                )
                paper = r.get(f"published_{kind}_{metric}", math.nan)
                lo, hi = (
                    r.get(f"published_{kind}_{metric}_lo", math.nan),
                    r.get(f"published_{kind}_{metric}_hi", math.nan),
                )
                row.append(interval(paper, lo, hi))
            rows.append(row)
        head = [title, "internal, ours", "internal, paper", "external, ours", "external, paper"]
        parts.append(table(head, rows))
    rows = []
    for r in overall.to_dict(orient="records"):
        if not isinstance(r["input"], str):
            continue
        for kind in ("internal", "external"):
            cells = [f"{word(r['model'])}, {word(r['input'])}, {kind}"]
            for metric in ("ece", "nll"):
                for state in ("raw", "cal"):
                    ours = r.get(f"{kind}_{metric}_{state}", math.nan)
                    paper = r.get(f"published_{kind}_{metric}_{state}", math.nan)
                    cells.append(number(ours) + (f" ({number(paper)})" if number(paper) else ""))
            rows.append(cells)
    head = ["ours (paper)", "ECE raw", "ECE calibrated", "NLL raw", "NLL calibrated"]
    parts.append(table(head, rows))
    return "\n".join(parts)


def matrix(name: str, input_: str) -> str:
    """Train x test AUROC, seeds averaged."""
    held = STUDY.part(name).read("scenarios")
    held = held[(held["input"] == input_) & held["kind"].isin(["internal", "external"])]
    order = [d for d in ("BUSI", "BUS-BRA", "BrEaST", "BUS-UCLM") if d in set(held["target"])]
    rows = []
    for source in order:
        cells = [source]
        for target in order:
            one = held[(held["source"] == source) & (held["target"] == target)]
            text = number(float(one["auroc"].iloc[0])) if len(one) else ""
            cells.append(f"**{text}**" if source == target else text)
        rows.append(cells)
    return table([f"trained on (AUROC, {word(input_)})", *order], rows)


def paired(name: str) -> str:
    held = STUDY.part(name).read("paired")
    held = held[(held["what"] == "input")]
    rows = []
    for r in held.to_dict(orient="records"):
        rows.append(
            [
                f"{word(r['a_model'])}, {r['kind']}, {r['metric'].replace('_', ' ')}",
                interval(r["difference"], r["lo"], r["hi"], sign=True),
                f"{r['p']:.2g}",
                interval(r["published_difference"], r["published_lo"], r["published_hi"], sign=True),
                "" if pd.isna(r["published_p"]) else str(r["published_p"]),
            ]
        )
    return table(["crop minus whole image", "ours", "p", "paper", "p"], rows)


def without(name: str) -> str:
    held = STUDY.part(name).read("without_dataset")
    held = held[(held["without"] == "BUS-UCLM") & (held["kind"] == "external") & held["input"].notna()]
    rows = [
        [
            f"{word(r['model'])}, {word(r['input'])}, {r['metric'].replace('_', ' ')}",
            number(r["all"]),
            interval(r["value"], r["lo"], r["hi"]),
            number(r["published_value"]),
        ]
        for r in held.to_dict(orient="records")
        if r["metric"] in ("auroc", "balanced_accuracy")
    ]
    return table(["external", "all 12 transfers", "without BUS-UCLM", "paper, without"], rows)


def eligibility(name: str) -> str:
    held = STUDY.part(name).read("calibration_eligibility")
    rows = [
        [f"{r['kind']}, {r['source']}", f"{r['eligible']} of {r['runs']}", number(r["median_temperature"], 2)]
        for r in held.to_dict(orient="records")
    ]
    return table(["runs, by source", "eligible", "median temperature"], rows)


def ids() -> str:
    a, b = STUDY.part("patient").read("scenarios"), STUDY.part("image").read("scenarios")
    if a.empty or b.empty:
        return ""
    keys = ["kind", "source", "target", "model", "input"]
    both = a.merge(b, on=keys, suffixes=("_patient", "_image"))
    rows = []
    for r in both[both["kind"] == "internal"].to_dict(orient="records"):
        gain = r["auroc_image"] - r["auroc_patient"]
        rows.append(
            [
                f"{r['target']}, {word(r['input'])}",
                number(r["auroc_patient"]),
                number(r["auroc_image"]),
                number(gain, sign=True),
            ]
        )
    for kind in ("internal", "external"):
        part = both[both["kind"] == kind]
        rows.append(
            [
                f"mean, {kind}",
                number(part["auroc_patient"].mean()),
                number(part["auroc_image"].mean()),
                number((part["auroc_image"] - part["auroc_patient"]).mean(), sign=True),
            ]
        )
    return table(
        ["AUROC", "ids of patients, duplicates together", "every picture a patient", "difference"], rows
    )


def nested() -> str:
    """Every configuration on every scenario among sources, seeds averaged."""
    held = STUDY.part("nested").read("scenarios")
    held = held[held["kind"] == "nested"] if not held.empty else held
    if held.empty:
        return ""
    held = held.assign(config=held["model"] + ", " + held["input"].map(word))
    wide = held.pivot_table(index="config", columns="target", values="auroc", aggfunc="mean")
    wide = wide.assign(mean=held.groupby("config")["auroc"].mean()).sort_values("mean", ascending=False)
    rows = [
        [str(name), *(number(float(v)) for v in row)]
        for name, row in zip(wide.index, wide.to_numpy(), strict=True)
    ]
    return table(
        [
            "configuration (AUROC, mean of three scenarios)",
            *(f"tested on {c}" if c != "mean" else "mean of 12" for c in wide.columns),
        ],
        rows,
    )


def chosen_table(name: str) -> str:
    """What was chosen for each set left out, and what it reached there."""
    rows = [
        [
            str(r["target"]),
            "" if pd.isna(r["members"]) else str(r["members"]),
            number(r["nested_auroc"]),
            number(r["auroc"]),
            interval(r["ensemble_auroc"], r["lo"], r["hi"]),
        ]
        for r in STUDY.part("sources").read(name).to_dict(orient="records")
    ]
    head = ["left out", "chosen on the other three", "AUROC on sources (nested)", "mean of seeds", "ensemble"]
    return table(head, rows)


def attempts() -> str:
    """Every configuration that was trained for a set left out."""
    held = STUDY.part("sources").read("selection_attempts")
    if held.empty:
        return ""
    held["config"] = held["model"] + ", " + held["input"].map(word)
    rows = []
    for config, part in held.groupby("config", sort=False):
        by = part.set_index("target")
        cells = [str(config), number(part["nested_auroc"].mean())]
        for target in dict.fromkeys(held["target"]):
            row = by.loc[target] if target in by.index else None
            text = "" if row is None else number(row["ensemble_auroc"])
            if text:
                text += f" ({int(row['seeds'])})" + (" *" if bool(row["chosen"]) else "")
            cells.append(text)
        whole = part["ensemble_auroc"]
        cells.append(number(whole.mean()) if whole.notna().all() else "")
        rows.append(cells)
    rows.sort(key=lambda cells: cells[1], reverse=True)
    head = ["configuration", "nested, mean", *dict.fromkeys(held["target"]), "mean"]
    note = (
        "AUROC of the mean over seeds on the set left out; in brackets how many seeds; * chosen for that target. "
        "A configuration that was not chosen may not be claimed; it is listed because every attempt is reported.\n"
    )
    return table(head, rows) + "\n" + note


def found() -> str:
    """What a box that a model found costs, and how good the boxes were (US-33)."""
    held, boxes = STUDY.part("found").read("scenarios"), STUDY.part("found").read("found_boxes")
    if held.empty:
        return ""
    boxes = boxes.set_index(["source", "target"])
    wide = held.pivot_table(index=["source", "target"], columns="input", values="auroc", sort=False)
    rows = [
        [
            f"{source} to {target}",
            number(row["roi"]),
            number(row["found"]),
            number(row["found"] - row["roi"], sign=True),
            number(float(boxes.loc[(source, target), "median_iou"]), 2),
            f"{100 * float(boxes.loc[(source, target), 'found']):.0f} %",
            f"{100 * float(boxes.loc[(source, target), 'none']):.1f} %",
        ]
        for (source, target), row in wide.iterrows()
    ]
    told = STUDY.part("found").read("paired")
    told = told[(told["what"] == "boxes") & (told["metric"] == "auroc")].iloc[0]
    mean = [number(wide["roi"].mean()), number(wide["found"].mean())]
    rows.append(["mean", *mean, interval(told["difference"], told["lo"], told["hi"], sign=True), "", "", ""])
    head = [
        "AUROC",
        "annotated box",
        "found box",
        "difference",
        "median IoU",
        "IoU of 0.5 and more",
        "no box",
    ]
    return table(head, rows)


def times() -> str:
    held = STUDY.read("times")
    if held.empty:
        return ""
    rows = [
        [
            str(r["stage"]),
            f"{r['seconds']:.0f}",
            "" if pd.isna(r["machine"]) else str(r["machine"]),
            "" if pd.isna(r["what"]) else str(r["what"]),
        ]
        for r in held.to_dict(orient="records")
    ]
    return table(["stage", "seconds", "machine", ""], rows)


def page() -> str:
    """The whole page."""
    blocks = {
        "table_3": lambda: table_3("patient"),
        "vit": lambda: table_3("vit"),
        "matrix_roi": lambda: matrix("patient", "roi"),
        "matrix_whole": lambda: matrix("patient", "whole"),
        "paired": lambda: paired("patient"),
        "without": lambda: without("patient"),
        "eligibility": lambda: eligibility("patient"),
        "ids": ids,
        "leak": leak,
        "nested": nested,
        "selection": lambda: chosen_table("selection"),
        "selection_without_outline": lambda: chosen_table("selection_without_outline"),
        "attempts": attempts,
        "found": found,
        "shape": shape,
        "times": times,
    }
    return STUDY.fill(blocks)
