"""The blocks of docs/results/mri-segmentation.md, from the files under benchmarks/results/mri-segmentation/."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from results_pages.tables import RESULTS, Tables, interval, number, table

STUDY = Tables(RESULTS / "mri-segmentation")
BENCH = RESULTS / "segmentation-gpu.json"
WORDS = {
    "residual-unet": "residual-encoder U-Net (baseline)",
    "subtraction": "subtraction, largest component",
    "breast-crop": "breast crop",
    "masked-autoencoder": "masked-autoencoder pretraining",
}
ALLOWED_S = 300
"""Seconds per case that the challenge allows (MRI-17)."""


def word(recipe: str) -> str:
    return WORDS.get(recipe, recipe)


def _own(row: dict[str, Any], metric: str) -> str:
    """With the interval that keeps its own point, where the metric holds a range over groups."""
    lo, hi = (row.get(f"{metric}_t_{end}", row[f"{metric}_{end}"]) for end in ("lo", "hi"))
    return interval(row[metric], lo, hi)


def board(kind: str) -> str:
    held = STUDY.read("leaderboard")
    held = held[(held["kind"] == kind) & (held["status"] == "ranked")].sort_values("rank")
    head = ["rank", "recipe", "Dice", "HD, mm", "NormHD", "fairness", "combined", "median s a case"]
    rows = [
        [
            f"{int(r['rank'])} [{int(r['rank_lo'])}, {int(r['rank_hi'])}]",
            word(r["method"]),
            interval(r["dice"], r["dice_lo"], r["dice_hi"]),
            f"{r['hausdorff_mm']:.1f} [{r['hausdorff_mm_lo']:.1f}, {r['hausdorff_mm_hi']:.1f}]",
            interval(r["norm_hd"], r["norm_hd_lo"], r["norm_hd_hi"]),
            _own(r, "fairness"),
            _own(r, "combined"),
            number(r["seconds"], 2),
        ]
        for r in held.to_dict(orient="records")
    ]
    return table(head, rows)


def cases(kind: str) -> str:
    held = STUDY.read("leaderboard")
    return str(int(held[held["kind"] == kind]["cases"].iloc[0]))


def drop() -> str:
    head = [
        "recipe",
        "internal Dice",
        "external Dice",
        "difference, 90 %",
        "smallest detectable drop",
        "verdict",
    ]
    rows = [
        [
            word(r["method"]),
            number(r["internal"]),
            interval(r["external"], r["external_lo"], r["external_hi"]),
            interval(*(r.get(part) for part in ("difference", "lo90", "hi90")), sign=True),
            number(r.get("smallest_detectable_drop")),
            str(r["verdict"]),
        ]
        for r in STUDY.read("transfers").to_dict(orient="records")
    ]
    return table(head, rows)


def cases_by_site() -> pd.DataFrame:
    held = STUDY.read("cases")
    return held.assign(site=held["case_id"].str.partition("_")[0])


def sites() -> str:
    held = cases_by_site()
    shown = list(dict.fromkeys(held["method"]))
    rows = []
    for site, part in held.groupby("site"):
        cells = [str(site), str(part["case_id"].nunique())]
        for recipe in shown:
            mine = part[part["method"] == recipe]
            cells.append(f"{mine['dice'].mean():.3f} ({int((mine['dice'] < 0.1).sum())})")
        rows.append(cells)
    return table(["site", "patients", *(word(r) for r in shown)], rows)


def in_vain() -> str:
    """Medians over patients, in volumes of the tumour."""
    held = cases_by_site()
    rows = [
        [
            word(str(recipe)),
            str(site),
            number(part["in_vain"].median(), 2),
            number(part["in_vain_elsewhere"].median(), 2),
            number(part["missed"].median(), 2),
        ]
        for (recipe, site), part in held.groupby(["method", "site"], sort=False)
    ]
    head = [
        "recipe",
        "site",
        "false positives",
        "of these outside the affected breast's box",
        "false negatives",
    ]
    return table(head, rows)


def attempts() -> str:
    """The attempt before this one, since every attempt is reported (ST-12)."""
    head = [
        "recipe",
        "attempt",
        "steps",
        "internal Dice",
        "external Dice",
        "external NormHD",
        "external combined",
    ]
    rows = []
    for recipe in dict.fromkeys(STUDY.read("trainings")["method"]):
        for attempt, folder in (("first", "first/"), ("this", "")):
            steps = STUDY.read(f"{folder}trainings").set_index("method").loc[recipe, "steps"]
            held = STUDY.read(f"{folder}leaderboard").set_index(["kind", "method"])
            internal, external = held.loc["internal", recipe], held.loc["external", recipe]
            rows.append(
                [
                    word(recipe),
                    attempt,
                    str(int(steps)),
                    interval(internal["dice"], internal["dice_lo"], internal["dice_hi"]),
                    interval(external["dice"], external["dice_lo"], external["dice_hi"]),
                    interval(external["norm_hd"], external["norm_hd_lo"], external["norm_hd_hi"]),
                    number(external["combined"]),
                ]
            )
    return table(head, rows)


def trainings() -> str:
    head = [
        "recipe",
        "patch at spacing, mm",
        "batch",
        "steps",
        "weights, M",
        "training, s",
        "steps/s",
        "validation Dice, by sixth of the schedule",
    ]
    rows = [
        [
            word(r["method"]),
            f"{r['patch']} at {r['spacing_mm']}",
            str(int(r["batch"])),
            str(int(r["steps"])),
            number(r["parameters"] / 1e6, 1),
            number(r["training_seconds"], 0),
            number(r["steps"] / r["training_seconds"], 1),
            str(r["validation_dice_by_sixth"]),
        ]
        for r in STUDY.read("trainings").to_dict(orient="records")
    ]
    return table(head, rows)


def costs() -> str:
    head = [
        "recipe",
        "mirrored",
        "s per case under control (quartiles)",
        "slowest case, s",
        "peak, GB",
        "J per case",
    ]
    rows = [
        [
            word(r["method"]),
            "yes" if str(r["mirror"]) == "True" else "no",
            f"{number(r['controlled_seconds'], 2)} ({number(r['controlled_q1'], 2)} to {number(r['controlled_q3'], 2)})",
            number(r["case_seconds_most"], 2),
            number(r["case_peak_gb"], 1),
            number(r["controlled_joule"], 0),
        ]
        for r in STUDY.read("trainings").to_dict(orient="records")
    ]
    return table(head, rows)


def limit() -> str:
    most = float(STUDY.read("trainings")["case_seconds_most"].max())
    return f"The slowest case of all took {most:.1f} s of the {ALLOWED_S} s that the challenge allows."


def bench() -> str:
    if not BENCH.exists():
        return ""
    rows = [
        [
            r["job"],
            r["peer"],
            f"{r['ours_seconds']:.3g} s",
            f"{r['peer_seconds']:.3g} s",
            f"{r['ratio']:.2f}",
            r["notes"],
        ]
        for r in json.loads(BENCH.read_text())["rows"]
    ]
    return table(["job", "compared with", "ours", "theirs", "theirs / ours", "notes"], rows)


def made() -> str:
    """How long each stage took."""
    rows = [
        [str(s["stage"]), number(s["seconds"], 1)]
        for s in STUDY.facts("stages")
        if s.get("seconds") is not None
    ]
    return table(["stage", "s"], rows)


def page() -> str:
    """The whole page."""
    blocks = {
        "internal": lambda: board("internal"),
        "external": lambda: board("external"),
        "n_internal": lambda: cases("internal"),
        "n_external": lambda: cases("external"),
        "drop": drop,
        "sites": sites,
        "in_vain": in_vain,
        "attempts": attempts,
        "trainings": trainings,
        "costs": costs,
        "limit": limit,
        "bench": bench,
        "stages": made,
        "machine": lambda: str(STUDY.facts("about").get("machine", "")),
        "split": lambda: str(STUDY.facts("about").get("split", ""))[:12],
    }
    return STUDY.fill(blocks)
