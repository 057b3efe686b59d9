"""Contours of the hardest cases, drawn on request, on the slice where the tumour is largest.

The masks are drawn on the first post-contrast phase minus the one before contrast, the image that the
experts drew on (MRI-14). A picture holds pixels of a patient; it is named by the case's hash.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.analysis.study.cases import Chosen
from elsewhere.analysis.study.summary import StudySummary
from elsewhere.errors import UserError
from elsewhere.inputs.mri.files import FileVolumes
from elsewhere.predictions.masks import mask_file_name
from elsewhere.report.page.canvas import drawing
from elsewhere.report.page.numbers import number
from elsewhere.report.study.pictures import CasePictures
from elsewhere.study.results import Results
from elsewhere.study.volumes import volumes_of

MOST_PICTURES = 10
MOST_CONTOURS = 5
"""The best of the leaderboard: more lines than these cannot be told apart."""
BYTES = 110_000
COLOURS = ("#e8a33d", "#4fb3ff", "#ff6f91", "#b98cff", "#7bdcb5")
TRUTH = "#ffffff"
KIND_ORDER = ("leave-one-dataset-out", "folds", "external", "internal")
Mask = npt.NDArray[np.bool_]


def contours(summary: StudySummary, results: Results) -> CasePictures:
    """Draw the hardest cases of every task whose methods predict masks.

    Args:
        summary: The numbers of the study.
        results: The results of the study, with its cohort and its predicted masks.

    Returns:
        The pictures by task; a case that cannot be read has none.
    """
    volumes = volumes_of(results.cohort)
    drawn: dict[str, tuple[tuple[str, bytes | None], ...]] = {}
    for task, chosen in summary.chosen.items():
        board = summary.headline["tasks"][task]["board"]
        ranked = summary.of("leaderboard", task=task, board=board, status="ranked")
        methods = [str(name) for name in ranked["method"]][:MOST_CONTOURS]
        picks = _picks(chosen)
        if not any(prediction_file(results, task, m, p.case) for m in methods for p in picks):
            continue
        shown: list[tuple[str, bytes | None]] = []
        for pick in picks:
            caption = f"{pick.hashed}, {pick.why}: mean Dice {number(pick.mean)}"
            try:
                shown.append((caption, _draw(volumes, results, task, pick.case, methods)))
            except UserError:
                shown.append((caption, None))
        drawn[task] = tuple(shown)
    return CasePictures(contours=drawn)


def _picks(chosen: Sequence[Chosen]) -> list[Chosen]:
    """One of each kind first, then the hardest; no case twice."""
    order = sorted(chosen, key=lambda c: c.why == "hardest")
    seen: dict[str, Chosen] = {}
    for pick in order:
        seen.setdefault(pick.case, pick)
    return list(seen.values())[:MOST_PICTURES]


def _name(results: Results, case_id: str) -> str:
    cases = results.cohort.cases
    row = cases[cases["case_id"].astype(str) == case_id].iloc[0]
    return f"{row['dataset']}/{case_id}"


def _draw(volumes: FileVolumes, results: Results, task: str, case_id: str, methods: Sequence[str]) -> bytes:
    name = _name(results, case_id)
    if name not in volumes:
        raise UserError("the case has no volume")
    truth = volumes.mask(name)
    if truth is None or not truth.any():
        raise UserError("the case has no mask")
    z = int(truth.sum(axis=(0, 1)).argmax())
    after = volumes.phase(name, min(1, volumes.phases(name) - 1))[:, :, z]
    image = after - volumes.phase(name, 0)[:, :, z] if volumes.phases(name) > 1 else after
    held = {}
    for method in methods:
        file = prediction_file(results, task, method, case_id)
        if file is not None:
            files = replace(volumes.files(name), mask=file)
            found = FileVolumes({name: files}).mask(name)
            if found is not None:
                held[method] = found[:, :, z]
    return picture(image, truth[:, :, z], held)


def prediction_file(results: Results, task: str, method: str, case_id: str) -> Path | None:
    """Find the mask that a method predicted for a case.

    Args:
        results: The results of the study.
        task: The task of the prediction.
        method: The method that predicted it.
        case_id: The case.

    Returns:
        The file of the preferred kind of scenario and of the first seed; None where there is none.
    """
    runs = results.runs
    part = runs[(runs["task"] == task) & (runs["method"] == method) & (runs["status"] == "done")]
    part = part.sort_values("seed", kind="stable").sort_values(
        "kind", key=lambda kinds: kinds.map({n: i for i, n in enumerate(KIND_ORDER)}), kind="stable"
    )
    for where in part["predictions"]:
        file = results.predictions_folder / str(where) / mask_file_name(case_id)
        if file.is_file():
            return file
    return None


def picture(image: npt.NDArray[np.float32], truth: Mask, masks: dict[str, Mask]) -> bytes:
    """Draw the whole slice with a frame, and the tumour's surroundings with the contours.

    Args:
        image: The slice.
        truth: The experts' mask of the slice, of the same shape.
        masks: The predicted masks of the slice by method; the first five are drawn.

    Returns:
        A PNG of at most `BYTES`, or at the lowest resolution.
    """
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
            for (method, mask), colour in zip(masks.items(), COLOURS, strict=False):
                _contour(zoom, mask, colour, 1.3)
                lines.append(
                    Line2D(
                        [],
                        [],
                        color=colour,
                        linewidth=1.6,
                        label=method if mask.any() else f"{method}: nothing here",
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
        rows = np.flatnonzero(truth.any(axis=1 - axis))
        middle, size = (rows[0] + rows[-1]) / 2, max(2.0 * (rows[-1] - rows[0] + 1), 24.0)
        low = max(0, int(middle - size / 2))
        ends += [low, min(shape[axis], int(low + size))]
    return ends[0], ends[1], ends[2], ends[3]
