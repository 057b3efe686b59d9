"""The blocks of docs/results/tomosynthesis.md, from the files under benchmarks/results/tomosynthesis/."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from results_pages.tables import RESULTS, Tables, interval, number, table

STUDY = Tables(RESULTS / "tomosynthesis")
SLICES, VENDORS = STUDY.part("slices"), STUDY.part("vendors")
KEPT = ("leaderboard", "against_baseline", "froc")
WORDS = {"from-imagenet": "ImageNet weights", "from-random": "random weights"}
METRICS = {
    "mean_sensitivity_1_to_4": "mean at 1 to 4",
    "sensitivity_at_1_positive": "at 1",
    "sensitivity_at_2_positive": "at 2",
    "sensitivity_at_4_positive": "at 4",
}


def take(study: Path, *, command: str, machine: str) -> None:
    """Copy the tables of the finished study of the slices."""
    tables = study / "report" / "tables"
    for name in KEPT:
        frame = pd.read_csv(tables / f"{name}.csv")
        SLICES.write(frame if name != "froc" else frame[frame["false_positives"] % 0.25 < 1e-9], name)
    trainings = pd.read_csv(study / "trainings.csv")
    content = {
        "command": command,
        "machine": machine,
        "trainings": len(trainings),
        "seconds": float(trainings["seconds"].sum()),
        "resamples": 5000,
    }
    SLICES.write_facts(content, "about")


def take_vendors(study: Path, scores: Path, *, command: str, machine: str) -> None:
    """Copy what is known of detectors on synthetic volumes of two vendors.

    Args:
        study: The study of the vendors; runs may be missing.
        scores: A folder of results by `elsewhere score detection`, one folder per finder, and `compare.json`, what
            `elsewhere compare METHOD blobs --json` printed.
        command: What ran it.
        machine: Where it ran.
    """
    tables = study / "report" / "tables"
    transfers = pd.read_csv(tables / "transfers.csv")
    VENDORS.write(transfers, "transfers")
    curves = pd.read_csv(tables / "froc.csv")
    VENDORS.write(curves[curves["false_positives"] % 0.25 < 1e-9], "froc")
    costs = pd.read_csv(study / "costs.csv").groupby(["method", "scenario"], sort=True)
    VENDORS.write(costs[["seconds", "peak_bytes", "energy_joule"]].median().reset_index(), "costs")
    rows = []
    for folder in sorted(path.parent for path in scores.glob("*/summary.json")):
        summary = json.loads((folder / "summary.json").read_text())
        row = {"finder": folder.name, "volumes": summary["counts"]["cases"]}
        row |= {key: summary["counts"][key] for key in ("positives", "lesions", "patients")}
        for name, one in summary["metrics"].items():
            row |= {name: one["value"], f"{name}_lo": one["lo"], f"{name}_hi": one["hi"]}
        rows.append(row)
    VENDORS.write(pd.DataFrame(rows), "finders")
    compared = json.loads((scores / "compare.json").read_text())
    main = compared["comparison"]["metrics"]["mean_sensitivity_1_to_4"]
    trainings = pd.read_csv(study / "trainings.csv")
    done = trainings[trainings["seconds"].notna()]
    content = {"command": command, "machine": machine, "trainings": len(done)}
    content |= {"seconds": float(done["seconds"].sum())}
    content |= {key: main[key] for key in ("difference", "lo", "hi", "p")}
    VENDORS.write_facts(content, "about")


def vendor_finders() -> str:
    held = VENDORS.read("finders").sort_values("mean_sensitivity_1_to_4", ascending=False)
    words = {"blobs": "blob finder (LoG)", "random": "random boxes"}
    rows = [
        [
            words.get(r["finder"], r["finder"]),
            *(interval(r[name], r[f"{name}_lo"], r[f"{name}_hi"]) for name in METRICS),
            interval(*(r[f"sensitivity_at_2_all{end}"] for end in ("", "_lo", "_hi"))),
        ]
        for r in held.to_dict(orient="records")
    ]
    return table(["finder", *METRICS.values(), "at 2, all volumes"], rows)


def vendor_transfers() -> str:
    held = VENDORS.read("transfers")
    head = [
        "trained on",
        "tested on",
        "method",
        "external",
        "internal",
        "difference, 90 %",
        "verdict at a margin of 0.1",
    ]
    rows = [
        [
            r["source"].removeprefix("Synthetic "),
            r["target"].removeprefix("Synthetic "),
            r["method"],
            interval(r["external"], r["external_lo"], r["external_hi"]),
            number(r["internal"]),
            interval(r["difference"], r["lo90"], r["hi90"], sign=True),
            r["verdict"] + (f": {r['reason']}" if isinstance(r["reason"], str) else ""),
        ]
        for r in held.to_dict(orient="records")
    ]
    return table(head, rows)


def vendor_difference() -> str:
    about = VENDORS.facts("about")
    return (
        f"Faster R-CNN minus the blob finder, paired by patient: {interval(*(about[key] for key in ('difference', 'lo', 'hi')), sign=True)} "
        f"in mean sensitivity, p = {number(about['p'], 4)} (permutation, 5,000 draws)."
    )


def leaderboard() -> str:
    held = SLICES.read("leaderboard").sort_values("rank")
    head = ["initial weights", "rank", *METRICS.values()]
    rows = [
        [
            WORDS.get(r["method"], r["method"]),
            f"{int(r['rank'])} [{int(r['rank_lo'])}, {int(r['rank_hi'])}]",
            *(interval(r[name], r[f"{name}_lo"], r[f"{name}_hi"]) for name in METRICS),
        ]
        for r in held.to_dict(orient="records")
    ]
    return table(head, rows)


def difference() -> str:
    held = SLICES.read("against_baseline")
    one = held[held["metric"] == "mean_sensitivity_1_to_4"].iloc[0]
    found = interval(one["difference"], one["lo"], one["hi"])
    return (
        f"Random weights minus ImageNet weights, paired by patient: {found} in mean sensitivity, p = {number(one['p'], 3)} "
        "(paired bootstrap)."
    )


def statistics() -> str:
    held = STUDY.read("phantom_statistics")
    head = ["statistic", "real", "phantom", "n, real", "n, phantom"]
    rows = []
    for r in held.to_dict(orient="records"):
        digits = 0 if r["real_median"] >= 10 else 2
        cells = [
            f"{number(r[f'{side}_median'], digits)} ({number(r[f'{side}_q25'], digits)} to {number(r[f'{side}_q75'], digits)})"
            if not r["statistic"].startswith("share of distortions")
            else number(r[f"{side}_mean"], 2)
            for side in ("real", "phantom")
        ]
        rows.append([r["statistic"], *cells, f"{int(r['real_n']):,}", f"{int(r['phantom_n']):,}"])
    return table(head, rows)


def finders() -> str:
    held = STUDY.read("phantom_simple_finders")
    head = ["vendors", "finder", "at 1", "at 2", "at 4 false positives per volume"]
    rows = [
        [r["vendors"], r["finder"], *(number(r[f"at_{n}_positive"], 3) for n in (1, 2, 4))]
        for r in held.to_dict(orient="records")
    ]
    return table(head, rows)


def page() -> str:
    about = SLICES.facts("about")
    statistic = STUDY.read("phantom_statistics").set_index("statistic")
    finder = STUDY.read("phantom_simple_finders")
    both = finder[finder["vendors"] == "A+B"].iloc[0]
    vendors = VENDORS.facts("about")
    blocks = {
        "leaderboard": leaderboard,
        "difference": difference,
        "statistics": statistics,
        "finders": finders,
        "resamples": lambda: f"{about['resamples']:,}",
        "trainings": lambda: str(about["trainings"]),
        "minutes": lambda: number(about["seconds"] / 60, 0),
        "machine": lambda: str(about["machine"]),
        "commands": lambda: str(about["command"]),
        "phantom_boxes": lambda: f"{int(statistic.loc['diagonal of a box, real pixels', 'phantom_n']):,}",
        "finder_volumes": lambda: str(int(both["positive_volumes"])),
        "vendor_finders": vendor_finders,
        "vendor_transfers": vendor_transfers,
        "vendor_difference": vendor_difference,
        "vendor_trainings": lambda: str(vendors["trainings"]),
        "vendor_seconds": lambda: number(VENDORS.read("costs")["seconds"].min(), 1),
        "vendor_machine": lambda: str(vendors["machine"]),
        "vendor_commands": lambda: str(vendors["command"]),
        "finder_lesions": lambda: str(int(both["lesions"])),
    }
    return STUDY.fill(blocks)
