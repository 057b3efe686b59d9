"""`slides segment`: masks of whole slides by a saved model, in strips of rows (LN-09, LN-14).

The slide is cut and normalised by the rules of the store that the model learnt from. Patches with under 10 % of tissue are
not looked at, and nothing is tumour there. A row of patches is in memory, never the slide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.cohort.patch_table import LEAST_TISSUE
from elsewhere.commands.output import Report
from elsewhere.commands.slide_patches.cases import SlideCase, find_cases
from elsewhere.commands.slide_training.models import ModelFolder
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError, unknown_name
from elsewhere.inputs.patches.spec import StoreSpec, read_spec
from elsewhere.inputs.slides.annotations.strip_writing import write_strips
from elsewhere.inputs.slides.grid.geometry import PATCH_MPP, PatchGrid, lay_grid
from elsewhere.inputs.slides.grid.tissue_shares import tissue_shares
from elsewhere.inputs.slides.opening import open_slide
from elsewhere.inputs.slides.slide import Patch, Slide
from elsewhere.inputs.slides.stain_target import fit_stain, read_around
from elsewhere.inputs.stain.normalise import normalise
from elsewhere.predictions.recomposition import PatchLayout, PatchPrediction, recompose
from elsewhere.tables import write_json
from elsewhere.training.patches.inference import SegmenterGroup, TrainedSegmenter
from elsewhere.untrusted import printable, read_json

MASKS_FILE = "masks.json"
FORMAT = "elsewhere slide masks"


@dataclass(frozen=True, kw_only=True)
class SegmentedSlide:
    """The mask of a slide.

    Attributes:
        case_id: The slide.
        path: The mask.
        patches: Patches that the model looked at.
        places: Places of the grid.
        tumour_mm2: The area of tumour.
        unreadable: Patches that could not be read: nothing is tumour there.
    """

    case_id: str
    path: Path
    patches: int
    places: int
    tumour_mm2: float
    unreadable: int = 0


@dataclass(frozen=True, kw_only=True)
class SegmentReport:
    """The masks that a model drew.

    Attributes:
        out: The folder of the masks.
        model: The model.
        slides: The slides that have a mask now.
        stored: Slides whose mask was there before.
        refused: Slides without a mask, with the reason.
    """

    out: Path
    model: str
    slides: tuple[SegmentedSlide, ...]
    stored: tuple[str, ...]
    refused: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def exit_code(self) -> int:
        """0, or 5 where a slide has no mask or not all of it could be read."""
        return EXIT_INCOMPLETE if self.refused or any(one.unreadable for one in self.slides) else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The slides with their areas, and those without a mask.
        """
        return {
            "out": str(self.out),
            "model": self.model,
            "slides": [
                {
                    "case_id": one.case_id,
                    "patches": one.patches,
                    "places": one.places,
                    "tumour_mm2": one.tumour_mm2,
                    "unreadable": one.unreadable,
                }
                for one in self.slides
            ],
            "stored_before": list(self.stored),
            "refused": [{"case_id": name, **error} for name, error in self.refused],
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        yield f"model: {self.model}"
        for one in self.slides:
            yield f"{one.case_id}: {one.patches:,} of {one.places:,} patches have tissue; tumour {one.tumour_mm2:.3f} mm2"
            if one.unreadable:
                yield f"  warning: {one.unreadable} patches cannot be read: nothing is tumour there"
        if self.stored:
            yield f"{len(self.stored)} masks were there before"
        for name, error in self.refused:
            yield f"{name}: no mask: {error.get('error', error.get('what', 'it cannot be read'))}"
        yield f"written: {self.out}"


def segment_slides(
    models: Path,
    slides: Sequence[Path],
    *,
    model: str,
    out: Path,
    mpp: float | None = None,
    device: str = "auto",
    progress: Report | None = None,
) -> SegmentReport:
    """Draw the masks of slides by a saved model; masks that are there are not drawn again.

    Args:
        models: The folder that `slides train` wrote.
        slides: Slides, folders of slides, or one cohort.
        model: The name of the model, such as "single-natural-fold1".
        out: The folder of the masks.
        mpp: Microns per pixel of level 0, where neither the files nor the cohort state them.
        device: "auto", "cpu", "cuda" or "cuda:N".
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was drawn.

    Raises:
        UserError: There is no such model, no slide was found, or the folder holds masks of another model.
        FileSystemError: The disk is full, or refuses.
    """
    folder = ModelFolder(models)
    note = _note(folder, model)
    spec = read_spec(note.get("patches"), where=str(folder.note_file(model)))
    settings = note.get("settings")
    if not isinstance(settings, Mapping) or not isinstance(settings.get("network"), str):
        raise UserError("the note of this model names no network", where=str(folder.note_file(model)))
    cases = find_cases(slides)
    _check_names([case.facts.case_id for case in cases.cases])
    _check_out(out, {"format": FORMAT, "model": model, "key": note["key"]})
    group = SegmenterGroup(
        [TrainedSegmenter(network=settings["network"], weights=folder.load(model))], device=device
    )
    done: list[SegmentedSlide] = []
    stored: list[str] = []
    refused: list[tuple[str, Mapping[str, Any]]] = [(name, error.to_dict()) for name, error in cases.refused]
    for number, case in enumerate(cases.cases):
        name = case.facts.case_id
        path = out / f"{name}.tif"
        if path.exists():
            stored.append(name)
        else:
            try:
                done.append(_segment(case, path, spec, group, mpp))
            except UserError as error:
                refused.append((name, error.to_dict()))
        if progress is not None:
            progress("slides", number + 1, len(cases.cases))
    return SegmentReport(
        out=out, model=model, slides=tuple(done), stored=tuple(stored), refused=tuple(refused)
    )


def _note(folder: ModelFolder, model: str) -> Mapping[str, Any]:
    known = sorted(path.stem for path in (folder.path / "models").glob("*.json"))
    if not known:
        raise UserError(
            "there are no models here",
            where=str(folder.path),
            fix="Name the folder that elsewhere slides train wrote.",
        )
    if model not in known:
        raise unknown_name("model", model, known)
    note = folder.note(model)
    if note is None:
        raise UserError(
            "this model is not complete", where=str(folder.weights_file(model)), fix="Train it again."
        )
    return note


def _check_names(names: Sequence[str]) -> None:
    """Masks are called as their cases, as `elsewhere score slides` reads them."""
    odd = [name for name in names if name in ("", ".", "..") or Path(name).name != name or "\0" in name]
    if odd:
        raise UserError(
            f"{len(odd)} case ids cannot be names of files, first {printable(odd[0])!r}",
            fix="Use ids without slashes.",
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(
            f"two slides have the case id {printable(twice)}",
            fix="Draw the masks of one dataset at a time, each into a folder of its own.",
        )


def _check_out(out: Path, about: Mapping[str, Any]) -> None:
    path = out / MASKS_FILE
    if path.is_file():
        if {**read_json(path, most=1 << 20, what="note of the masks")} != {**about}:
            raise UserError(
                "the folder holds masks of another model", where=str(out), fix="Write to another folder."
            )
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            "the folder holds something else than masks of this model",
            where=str(out),
            fix="Name a folder that is empty or does not exist.",
        )
    write_json(about, path)


def _segment(
    case: SlideCase, path: Path, spec: StoreSpec, group: SegmenterGroup, mpp: float | None
) -> SegmentedSlide:
    if case.slide is None:
        raise UserError("there is no file of this slide")
    with open_slide(case.slide, mpp=case.mpp if case.mpp is not None else mpp) as slide:  # type: ignore[arg-type]
        grid = lay_grid(slide, scale=spec.scale, mpp=spec.mpp or PATCH_MPP, size_px=spec.size)
        wanted = tissue_shares(slide, grid).shares >= LEAST_TISSUE
        layout = PatchLayout(
            size_px=slide.size_px, mpp=slide.mpp, pixel_um=grid.mpp, patch=grid.size_px, stride=grid.size_px
        )
        lost: list[tuple[int, int, UserError]] = []
        area = 0

        def strips() -> Iterator[npt.NDArray[np.uint8]]:
            nonlocal area
            for strip in recompose(_predicted(slide, grid, wanted, lost, spec, group), layout):
                area += int((strip > 127).sum())
                yield strip

        write_strips(path, strips(), layout.grid())
        return SegmentedSlide(
            case_id=case.facts.case_id,
            path=path,
            patches=int(wanted.sum()),
            places=grid.rows * grid.columns,
            tumour_mm2=area * grid.mpp**2 / 1e6,
            unreadable=len(lost),
        )


def _predicted(
    slide: Slide,
    grid: PatchGrid,
    wanted: npt.NDArray[np.bool_],
    lost: list[tuple[int, int, UserError]],
    spec: StoreSpec,
    group: SegmenterGroup,
) -> Iterator[PatchPrediction]:
    """The answers, patch by patch; patches are read row by row of the grid."""
    stain = spec.stain
    fit = fit_stain(slide, grid, method=stain.method) if stain is not None and stain.fit == "slide" else None
    patches: Iterator[Patch] = read_around(slide, grid, wanted, lost)
    while part := list(itertools.islice(patches, group.batch)):
        pixels = np.stack([patch.pixels for patch in part])
        if stain is not None:
            changed = normalise(
                list(pixels), stain.target, fit=stain.fit if fit is None else fit, method=stain.method
            )
            pixels = np.stack(list(changed.patches))
        values = next(iter(group.probabilities(pixels)))
        for patch, one in zip(part, values, strict=True):
            yield PatchPrediction(i=patch.i, j=patch.j, values=one)
