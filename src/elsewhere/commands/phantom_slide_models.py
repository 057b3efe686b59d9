"""`phantom slide-models`: synthetic masks of many models and folds on small slides with a known truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsewhere.commands.output import Report
from elsewhere.errors import check_seed
from elsewhere.files import staged_directory

_PIXELS = 32
_MPP = 0.25


@dataclass(frozen=True, kw_only=True)
class SlideModelsPhantom:
    """Synthetic masks that were written.

    Args:
        path: The folder.
        slides: How many slides there are.
        masks: How many masks of models.
        steady: The models that stay as good on external slides.
        stages: Slides by their true stage.
    """

    path: Path
    slides: int
    masks: int
    steady: tuple[str, ...]
    stages: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The fields by name.
        """
        return {**vars(self), "path": str(self.path), "steady": list(self.steady)}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        stages = ", ".join(f"{count} {stage}" for stage, count in self.stages.items())
        yield f"{self.slides} slides ({stages}), {self.masks:,} masks"
        yield f"as good on external slides: {', '.join(self.steady) or 'none'}"
        yield f"written: {self.path}"
        yield f"next: elsewhere slides ensemble {self.path}/slides.csv {self.path}/masks --out {self.path}-ensembles"


def slide_models(
    out: str | Path,
    *,
    replace: bool = False,
    seed: int = 1,
    probabilities: bool = False,
    progress: Report | None = None,
    **world: Any,
) -> SlideModelsPhantom:
    """Write synthetic masks of many models and folds, with slides.csv, truth and tissue masks.

    Args:
        out: The folder to write.
        replace: Whether what an earlier run wrote there may be replaced.
        seed: The seed of every draw.
        probabilities: Whether probabilities are written as tiled TIFF, in place of masks as PNG.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.
        **world: Fields of `ModelWorld`, such as `internal`, `models` and `drop`.

    Returns:
        What was written.

    Raises:
        UserError: A value is not allowed, or the folder may not be replaced.

    Example:
        Write the masks of three models::

            slide_models("world", models=3, steady=1)
    """
    import numpy as np
    import pandas as pd
    from PIL import Image

    from elsewhere.inputs.slides.annotations import MaskGrid, write_strips
    from elsewhere.phantom.patch_scores import model_names
    from elsewhere.phantom.slide_models import CELL_UM, ModelWorld, draw_slide_models, steady_models
    from elsewhere.scoring.slides.masks import stage_of_objects
    from elsewhere.scoring.slides.objects import measure_objects

    check_seed(seed)
    spec = ModelWorld(**world)
    names = model_names(spec.models)
    count = spec.internal + spec.external
    rows = []
    grid = MaskGrid(columns=spec.side, rows=spec.side, pixel_um=CELL_UM, probability=True)

    def write(mask: Any, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(path, compress_level=1)

    with staged_directory(out, replace=replace) as folder:
        for slide in draw_slide_models(spec, seed):
            case = f"slide_{slide.number + 1:03d}"
            found = measure_objects(slide.truth)
            stage = stage_of_objects(found, CELL_UM, _rules()).stage
            if slide.truth.any():
                write(slide.truth, folder / "truth" / f"{case}.png")
            write(slide.tissue, folder / "tissue" / f"{case}.png")
            for m, model in enumerate(names):
                for f in range(spec.folds):
                    place = folder / "masks" / model / str(f + 1)
                    score = slide.scores[m, f]
                    if probabilities:
                        place.mkdir(parents=True, exist_ok=True)
                        values = 255.0 / (1.0 + np.exp(np.clip(-score, -30.0, 30.0)))
                        as_bytes = np.where(score > 0, np.maximum(values, 128), np.minimum(values, 127))
                        write_strips(place / f"{case}.tif", [as_bytes.astype(np.uint8)], grid)
                    else:
                        write(score > 0, place / f"{case}.png")
            rows.append(
                {
                    "case_id": case,
                    "patient_id": f"patient_{slide.number + 1:03d}",
                    "domain": "OOD" if slide.external else "ID",
                    "stage": stage,
                    "mask": f"truth/{case}.png" if slide.truth.any() else "",
                    "tissue_mask": f"tissue/{case}.png",
                    "microns_per_pixel": _MPP,
                    "width_px": spec.side * _PIXELS,
                    "height_px": spec.side * _PIXELS,
                    "mask_downsample": _PIXELS,
                }
            )
            if progress is not None:
                progress("slides", slide.number + 1, count)
        table = pd.DataFrame(rows)
        table.to_csv(folder / "slides.csv", index=False)
    stages = table["stage"].value_counts().to_dict()
    return SlideModelsPhantom(
        path=Path(out),
        slides=count,
        masks=count * spec.models * spec.folds,
        steady=tuple(names[m] for m in steady_models(spec)),
        stages={name: int(stages[name]) for name in ("macro", "micro", "itc", "negative") if name in stages},
    )


def _rules() -> Any:
    from elsewhere.protocols import SlideRules

    return SlideRules()
