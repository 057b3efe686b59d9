"""Pictures of chosen cases, on request alone: the slice where the tumour is largest, with every recipe's contour.

The masks are drawn on the first post-contrast phase less the one before contrast, the image that the experts
drew on (MRI-14). A picture holds pixels of a patient; it is named by the case's hash.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.mri.files import FileVolumes
from elsewhere.predictions.masks import mask_file_name
from elsewhere.report.page.canvas import drawing
from elsewhere.report.page.numbers import number
from elsewhere.study.volumes import volumes_of

if TYPE_CHECKING:
    from elsewhere.study.recipe_analysis import RecipeSummary
    from elsewhere.study.recipe_analysis_cases import Chosen
    from elsewhere.study.recipe_results import RecipeResults

MOST_PICTURES = 10
MOST_CONTOURS = 5
"""The best of the board: more lines than these cannot be told apart."""
BYTES = 110_000
COLOURS = ("#e8a33d", "#4fb3ff", "#ff6f91", "#b98cff", "#7bdcb5")
TRUTH = "#ffffff"
Mask = npt.NDArray[np.bool_]


def gallery(summary: RecipeSummary, results: RecipeResults, *, task: str = "segmentation") -> dict[str, str]:
    """{caption: <img>}; where a volume cannot be read, that is said without its name."""
    out: dict[str, str] = {}
    picks = _picks(summary.chosen.get(task, ()))
    volumes = volumes_of(results.cohort)
    board = summary.headline["tasks"][task]["board"]
    ranked = summary.of("leaderboard", task=task, board=board, status="ranked")
    recipes = [str(r) for r in ranked["recipe"]][:MOST_CONTOURS]
    for pick in picks:
        name = _name(results, pick.case)
        caption = f"{pick.hashed}, {pick.why}: mean Dice {number(pick.mean)}"
        try:
            drawn = _draw(volumes, results, name, pick.case, recipes)
        except UserError:
            out[caption] = '<p class="note">No picture: its volume or mask cannot be read.</p>'
            continue
        data = base64.b64encode(drawn).decode()
        out[caption] = f'<img alt="{escape(caption, quote=True)}" src="data:image/png;base64,{data}">'
    return out


def _picks(chosen: Sequence[Chosen]) -> list[Chosen]:
    """One of each kind first, then the hardest; no case twice."""
    order = sorted(chosen, key=lambda c: c.why == "hardest")
    seen: dict[str, Chosen] = {}
    for pick in order:
        seen.setdefault(pick.case, pick)
    return list(seen.values())[:MOST_PICTURES]


def _name(results: RecipeResults, case_id: str) -> str:
    cases = results.cohort.cases
    row = cases[cases["case_id"].astype(str) == case_id].iloc[0]
    return f"{row['dataset']}/{case_id}"


def _draw(
    volumes: FileVolumes, results: RecipeResults, name: str, case_id: str, recipes: Sequence[str]
) -> bytes:
    if name not in volumes:
        raise UserError("the case has no volume")
    truth = volumes.mask(name)
    if truth is None or not truth.any():
        raise UserError("the case has no mask")
    z = int(truth.sum(axis=(0, 1)).argmax())
    after = volumes.phase(name, min(1, volumes.phases(name) - 1))[:, :, z]
    image = after - volumes.phase(name, 0)[:, :, z] if volumes.phases(name) > 1 else after
    held = {}
    for recipe in recipes:
        file = prediction_file(results, recipe, case_id)
        if file is not None:
            files = replace(volumes.files(name), mask=file)
            found = FileVolumes({name: files}).mask(name)
            if found is not None:
                held[recipe] = found[:, :, z]
    return picture(image, truth[:, :, z], held)


def prediction_file(results: RecipeResults, recipe: str, case_id: str) -> Path | None:
    """The mask that a recipe handed over for a case, where it was not trained on it."""
    runs = results.runs
    part = runs[(runs["task"] == "segmentation") & (runs["recipe"] == recipe) & (runs["status"] == "done")]
    order = ("leave-one-dataset-out", "folds", "external", "internal")
    part = part.sort_values("seed", kind="stable").sort_values(
        "kind", key=lambda k: k.map({n: i for i, n in enumerate(order)}), kind="stable"
    )
    for where in part["predictions"] if "predictions" in part.columns else ():
        file = results.predictions_folder / str(where) / mask_file_name(case_id)
        if file.is_file():
            return file
    return None


def picture(image: npt.NDArray[np.float32], truth: Mask, masks: dict[str, Mask]) -> bytes:
    """PNG: the whole slice with a frame, and the tumour's surroundings with truth and contours."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    x0, x1, y0, y1 = _frame(truth, image.shape)
    low, high = np.percentile(image, [1.0, 99.7])
    for dpi in (110, 80, 55):
        with drawing():
            figure = Figure(figsize=(6.4, 3.5), layout="constrained", facecolor="#11141a")
            canvas = FigureCanvasAgg(figure)
            whole, zoom = figure.subplots(1, 2)
            for axes in (whole, zoom):
                axes.imshow(
                    image.T, cmap="gray", vmin=low, vmax=max(high, low + 1e-6), interpolation="nearest"
                )
                axes.set_axis_off()
            whole.add_patch(
                Rectangle(
                    (x0 - 0.5, y0 - 0.5), x1 - x0, y1 - y0, fill=False, edgecolor="#e8a33d", linewidth=1.1
                )
            )
            zoom.set_xlim(x0 - 0.5, x1 - 0.5)
            zoom.set_ylim(y1 - 0.5, y0 - 0.5)
            lines: list[Any] = []
            for (recipe, mask), colour in zip(masks.items(), COLOURS, strict=False):
                _contour(zoom, mask, colour, 1.3)
                lines.append(
                    Line2D(
                        [],
                        [],
                        color=colour,
                        linewidth=1.6,
                        label=recipe if mask.any() else f"{recipe}: nothing here",
                    )
                )
            _contour(zoom, truth, "#000000", 2.8)
            _contour(zoom, truth, TRUTH, 1.4, dashed=True)
            lines.append(Line2D([], [], color=TRUTH, linewidth=1.6, linestyle=(0, (3, 2)), label="truth"))
            figure.legend(
                handles=lines,
                loc="outside lower center",
                ncols=3,
                frameon=False,
                fontsize=8.5,
                labelcolor="#e9e6dd",
            )
            buffer = io.BytesIO()
            figure.set_dpi(dpi)
            canvas.print_png(buffer)
        if len(buffer.getvalue()) <= BYTES:
            break
    return buffer.getvalue()


def _contour(axes: Any, mask: Mask, colour: str, width: float, *, dashed: bool = False) -> None:
    if mask.any() and not mask.all():
        axes.contour(
            mask.T.astype(float), levels=[0.5], colors=[colour], linewidths=width,
            linestyles=[(0, (3, 2))] if dashed else "solid",
        )  # fmt: skip


def _frame(truth: Mask, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The tumour with half its size around it, at least 24 voxels, inside the slice."""
    ends = []
    for axis in (0, 1):
        at = np.flatnonzero(truth.any(axis=1 - axis))
        middle, size = (at[0] + at[-1]) / 2, max(2.0 * (at[-1] - at[0] + 1), 24.0)
        low = max(0, int(middle - size / 2))
        ends += [low, min(shape[axis], int(low + size))]
    return ends[0], ends[1], ends[2], ends[3]
