"""The figures of docs/results/ultrasound.md, drawn from the csv files by the report's own plots.

`python docs/make_results.py` writes them to docs/images/ with the page.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from elsewhere.report.page import canvas
from elsewhere.report.result import plots
from elsewhere.report.study.plots import bars, heat

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETS = ("BUSI", "BUS-BRA", "BrEaST", "BUS-UCLM")
CONFIGURATIONS = (
    ("patient", "cnn", "whole", "CNN, whole image"),
    ("patient", "cnn", "roi", "CNN, crop"),
    ("vit", "vit", "whole", "ViT (scratch), whole image"),
    ("vit", "vit", "roi", "ViT (scratch), crop"),
)


def write_figures(results: Path, images: Path) -> list[Path]:
    """One SVG per figure, on white, so that a dark page shows it too."""
    written = []
    for name, draw in FIGURES.items():
        with canvas.drawing():
            figure = draw(results)
            figure.patch.set_alpha(1.0)
            figure.patch.set_facecolor("white")
            path = images / f"ultrasound-{name}.svg"
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        written.append(path)
    return written


def internal_and_external(results: Path) -> Figure:
    """Mean internal and external AUROC with the paper's values, for what was trained here."""
    rows: list[dict[str, Any]] = []
    for folder, model, input_, name in CONFIGURATIONS:
        table = pd.read_csv(results / folder / "overall.csv")
        held = table[(table["model"] == model) & (table["input"] == input_)].iloc[0]
        row: dict[str, Any] = {"name": name}
        for kind in ("internal", "external"):
            row[kind] = float(held[f"{kind}_auroc"])
            row[f"{kind}_published"] = float(held[f"published_{kind}_auroc"])
        rows.append(row)
    return bars(rows, canvas.LIGHT, axis="mean AUROC")


def transfers(input_: str) -> Callable[[Path], Figure]:
    def draw(results: Path) -> Figure:
        table = pd.read_csv(results / "patient" / "scenarios.csv")
        part = table[(table["input"] == input_) & table["kind"].isin(["internal", "external"])]
        cells = {(str(r["source"]), str(r["target"])): float(r["auroc"]) for _, r in part.iterrows()}
        return heat(SETS, SETS, cells, canvas.LIGHT)

    return draw


def left_out(results: Path) -> Figure:
    """What each way of learning from three sets reaches on the fourth, with 95 % intervals over its patients
    (the outline alone is a point: a logistic regression of its shape, run once).
    """
    ways = (
        ("outline and pixels", pd.read_csv(results / "sources" / "selection.csv"), "ensemble_auroc"),
        ("box and pixels", pd.read_csv(results / "sources" / "selection_without_outline.csv"), "ensemble_auroc"),
        ("outline alone", pd.read_csv(results / "sources" / "shape.csv"), "auroc"),
    )  # fmt: skip
    blocks = []
    for target in SETS:
        rows = []
        for name, table, column in ways:
            held = table[table["target"] == target].iloc[0]
            value = held[column]
            entry = {"value": value, "lo": held.get("lo", value), "hi": held.get("hi", value)}
            rows.append((name, entry, None))
        blocks.append((f"{target} left out", rows))
    return plots.forest(blocks, canvas.LIGHT, axis_label="AUROC on the set left out")


FIGURES: dict[str, Callable[[Path], Figure]] = {
    "internal-and-external": internal_and_external,
    "transfers-crop": transfers("roi"),
    "transfers-whole": transfers("whole"),
    "left-out": left_out,
}
