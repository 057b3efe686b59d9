"""Synthetic slides on disk, in the folders and names of CAMELYON17 (LN-01).

    centre_0/patient_000_node_0.tif          the slides
    lesion_annotations/patient_000_node_0.xml  the annotator's polygons
    stages.csv                               the stages of patients and slides
    truth.csv, planted.json, phantom.json    what the public layout has no place for

The reader of the public set reads it and knows nothing of phantoms.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere.errors import UserError, unknown_name
from elsewhere.phantom.slides.drawing import TEXTURE, Drawing
from elsewhere.phantom.slides.outlines import polygons_of, write_xml
from elsewhere.phantom.slides.patients import SlideSpec, World, world_from
from elsewhere.phantom.slides.tiff import TILE, Pixels, TiffOptions, write_slide
from elsewhere.tables import staged_directory, to_jsonable, write_json, write_table

MARK = "phantom.json"
"""File with the specification that the world was made from; a folder that has it may be replaced."""
PLANTED = "planted.json"
STAGES_TABLE = "stages.csv"
ANNOTATIONS = "lesion_annotations"
Progress = Callable[[str, int, int], None]
FAULTS = ("wrong-mpp", "copy", "wrong-stage", "missing-tiles", "missing-annotation")
"""Faults that can be planted: resolution tags of twice the size; a slide stored again under another patient's name; a
stage in the table that the annotation contradicts; tiles without data in the middle; a tumour slide without XML."""


@dataclass(frozen=True)
class Faults:
    """The slides that have each fault.

    Args:
        slides: The fault of each slide that has one.
        copies: The slide that each copy was taken from.
    """

    slides: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)


def plan_faults(slides: Sequence[SlideSpec], counts: Mapping[str, int]) -> Faults:
    """Choose the slides that get faults, one fault per slide.

    Args:
        slides: The slides of the world.
        counts: How many slides get each fault.

    Returns:
        The choice; it depends on the slides and the counts alone.

    Raises:
        UserError: A fault is unknown, or there are too few slides for it.
    """
    for name in counts:
        if name not in FAULTS:
            raise unknown_name("fault", name, list(FAULTS))
    rng = np.random.default_rng([slides[0].seed, 90210])
    free = [slides[at] for at in rng.permutation(len(slides))]
    chosen: dict[str, str] = {}
    copies: dict[str, str] = {}

    def take(fault: str, wanted: Callable[[SlideSpec], bool]) -> SlideSpec:
        for at, one in enumerate(free):
            if wanted(one):
                return free.pop(at)
        raise UserError(
            f"too few slides for {counts[fault]} with the fault '{fault}'",
            where="--plant",
            fix="More patients, more nodes, or fewer faults.",
        )

    for fault in FAULTS:
        for _ in range(counts.get(fault, 0)):
            if fault == "copy":
                source = take(fault, lambda one: one.slide_id not in chosen)
                own = source.patient_id
                victim = take(fault, lambda one, own=own: one.patient_id != own)  # type: ignore[misc]
                copies[victim.slide_id] = source.slide_id
                chosen[victim.slide_id] = fault
            elif fault in ("wrong-stage", "missing-annotation"):
                chosen[take(fault, lambda one: one.stage != "negative").slide_id] = fault
            else:
                chosen[take(fault, lambda one: True).slide_id] = fault
    return Faults(chosen, copies)


def write_world(
    world: World,
    folder: str | Path,
    *,
    replace: bool = False,
    plant: Mapping[str, int] | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Path:
    """Write a world under one folder, as CAMELYON17 is downloaded.

    The folder is written whole or not at all. The files do not depend on the number of workers.

    Args:
        world: The specification.
        folder: The folder to write.
        replace: Whether an earlier phantom in the same place may be replaced.
        plant: Faults to plant, with how many slides get each; None for none.
        workers: Number of processes that draw slides.
        progress: Called with the step, how much of it is done and how much there is; None for silence.

    Returns:
        The folder.

    Raises:
        UserError: A fault is unknown or there are too few slides for it, or `folder` exists and may not be replaced.
    """
    slides = world.slides()
    counts = {name: count for name, count in (plant or {}).items() if count}
    faults = plan_faults(slides, counts)
    folder = Path(folder)
    with staged_directory(folder, replace=replace) as staged:
        (staged / ANNOTATIONS).mkdir()
        drawn = [one for one in slides if one.slide_id not in faults.copies]
        for one in slides:
            (staged / f"centre_{one.centre.number}").mkdir(exist_ok=True)
        rows = {}
        write = functools.partial(_write_one, folder=staged, faults=faults)
        for at, row in enumerate(_in_processes(write, drawn, workers, progress)):
            rows[row["slide_id"]] = row
            if progress:
                progress("drawing slides", at + 1, len(drawn))
        by_name = {one.slide_id: one for one in slides}
        for copy, source in faults.copies.items():
            rows[copy] = _write_copy(by_name[copy], by_name[source], rows[source], staged)
        truth = pd.DataFrame([rows[one.slide_id] for one in slides])
        write_table(truth, staged / "truth.csv")
        write_table(_stages(slides, rows, faults), staged / STAGES_TABLE)
        write_json(_planted(world, faults, rows), staged / PLANTED)
        write_json(_specification(world, counts), staged / MARK)
    return folder


def _in_processes(
    write: Callable[..., dict[str, Any]], slides: Sequence[SlideSpec], workers: int, progress: Progress | None
) -> Iterator[dict[str, Any]]:
    if workers <= 1 or len(slides) < 2:
        for one in slides:
            yield write(one, progress=progress)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(slides)), mp_context=context) as pool:
        yield from pool.map(write, slides)


def _write_one(
    spec: SlideSpec, *, folder: Path, faults: Faults, progress: Progress | None = None
) -> dict[str, Any]:
    drawing = Drawing(spec)
    fault = faults.slides.get(spec.slide_id, "")
    path = slide_path(folder, spec)
    options = TiffOptions(
        mpp=spec.mpp * (2.0 if fault == "wrong-mpp" else 1.0),
        quality=int(spec.centre.scanner.quality),
        subsampled=spec.centre.scanner.subsampled >= 0.5,
        description=f"Synthetic slide of Elsewhere, {spec.slide_id}",
        white=tuple(round(value) for value in spec.centre.scanner.white),  # type: ignore[arg-type]
    )
    width, height = spec.size_px
    columns, rows = -(-width // TILE), -(-height // TILE)

    glass: dict[tuple[int, int], Pixels] = {}

    def tile_at(column: int, row: int) -> Pixels | None:
        if fault == "missing-tiles" and _is_middle(column, columns) and _is_middle(row, rows):
            return None
        box = (column * TILE, row * TILE, TILE, TILE)
        if drawing.is_blank(*box):
            place = (column * TILE % TEXTURE, row * TILE % TEXTURE)
            if place not in glass:
                glass[place] = drawing.glass(*box)
                glass[place].flags.writeable = False  # the writer encodes it once
            return glass[place]
        return drawing.region(*box)

    def report(done: int, of: int) -> None:
        if progress and spec.size == "real":
            progress(f"drawing {spec.slide_id}", done, of)

    write_slide(path, (width, height), tile_at, options, progress=report)
    if drawing.disease.lesions and fault != "missing-annotation":
        write_xml(polygons_of(drawing.disease), folder / ANNOTATIONS / f"{spec.slide_id}.xml", spec.mpp)
    return truth_of(drawing, fault)


def _is_middle(at: int, count: int) -> bool:
    return abs(at - count // 2) <= (1 if count > 4 else 0)


def slide_path(folder: Path, spec: SlideSpec) -> Path:
    """Return where a slide lies in a world.

    Args:
        folder: The folder of the world.
        spec: The slide.

    Returns:
        The path of its file.
    """
    return folder / f"centre_{spec.centre.number}" / f"{spec.slide_id}.tif"


def _write_copy(spec: SlideSpec, source: SlideSpec, row: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    shutil.copyfile(slide_path(folder, source), slide_path(folder, spec))
    xml = folder / ANNOTATIONS / f"{source.slide_id}.xml"
    if xml.exists():
        shutil.copyfile(xml, xml.with_name(f"{spec.slide_id}.xml"))
    own = {
        "slide_id": spec.slide_id,
        "patient_id": spec.patient_id,
        "centre": spec.centre.number,
        "centre_name": spec.centre.name,
        "fault": "copy",
    }
    return {**row, **own}


def truth_of(drawing: Drawing, fault: str = "") -> dict[str, Any]:
    """Return the row of `truth.csv` of a slide.

    Args:
        drawing: The slide.
        fault: The fault that is planted in it; empty for none.

    Returns:
        Plain values by column; lengths carry their unit in the name.
    """
    spec, disease, stain = drawing.spec, drawing.disease, drawing.stain
    scanner, mix = spec.centre.scanner, spec.centre.tissue
    width, height = spec.size_px
    row: dict[str, Any] = {
        "slide_id": spec.slide_id,
        "patient_id": spec.patient_id,
        "centre": spec.centre.number,
        "centre_name": spec.centre.name,
        "stage": disease.stage,
        "axis_mm": round(disease.axis_um / 1000, 4),
        "tumour_mm2": round(disease.area_mm2, 5),
        "lesions": len(disease.lesions),
        "growth": disease.lesions[0].growth if disease.lesions else "",
        "nuclear_grade": disease.grade + 1 if disease.lesions else "",
        "generosity_um": round(disease.generosity_um, 2) if disease.lesions else "",
        "width_px": width,
        "height_px": height,
        "mpp": round(spec.mpp, 6),
    }
    for name, vector in (("haematoxylin", stain.haematoxylin), ("eosin", stain.eosin)):
        for channel, value in zip(("red", "green", "blue"), vector, strict=True):
            row[f"{name}_{channel}"] = round(value, 5)
    row["haematoxylin_strength"], row["eosin_strength"] = (round(value, 4) for value in stain.strength)
    for name in ("blur_um", "sharpening", "noise", "quality"):
        row[name] = getattr(scanner, name)
    row["subsampled"] = int(scanner.subsampled >= 0.5)
    for name in ("spacing_um", "gaps", "follicles", "sinus", "histiocytes", "stroma", "fat", "vessels"):
        row[name] = round(getattr(mix, name), 4)
    row["artefacts"] = " ".join(sorted(one.kind for one in drawing.artefacts.artefacts))
    row["fault"] = fault
    return row


def _stages(
    slides: Sequence[SlideSpec], rows: Mapping[str, Mapping[str, Any]], faults: Faults
) -> pd.DataFrame:
    from elsewhere.cohort.readers.camelyon17 import expected_patient_stage

    made = []
    patients: dict[str, list[SlideSpec]] = {}
    for one in slides:
        patients.setdefault(one.patient_id, []).append(one)
    for patient, nodes in patients.items():
        stages = [
            _stated_stage(str(rows[one.slide_id]["stage"]), faults.slides.get(one.slide_id, ""))
            for one in nodes
        ]
        centre = nodes[0].centre.number
        made.append((f"{patient}.zip", expected_patient_stage(stages), centre))
        made += [(f"{one.slide_id}.tif", stage, centre) for one, stage in zip(nodes, stages, strict=True)]
    return pd.DataFrame(made, columns=["patient", "stage", "center"])


def _stated_stage(stage: str, fault: str) -> str:
    if fault != "wrong-stage":
        return stage
    return {"macro": "micro", "micro": "macro", "itc": "micro"}.get(stage, stage)


def _planted(world: World, faults: Faults, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    details = []
    for name, fault in sorted(faults.slides.items()):
        one: dict[str, Any] = {"slide_id": name, "fault": fault}
        if fault == "copy":
            one["copy_of"] = faults.copies[name]
        if fault == "wrong-mpp":
            one["mpp"], one["mpp_in_tags"] = rows[name]["mpp"], rows[name]["mpp"] * 2
        if fault == "wrong-stage":
            true = str(rows[name]["stage"])
            one["stage"], one["stage_in_table"] = true, _stated_stage(true, fault)
        details.append(one)
    return {
        "shift": to_jsonable(world.shift),
        "faults": details,
        "stages": {
            stage: sum(row["stage"] == stage for row in rows.values())
            for stage in ("negative", "itc", "micro", "macro")
        },
    }


def _specification(world: World, counts: Mapping[str, int]) -> Any:
    return json.loads(json.dumps({"world": to_jsonable(world), "plant": dict(counts)}))


def make_phantom_world(spec: Mapping[str, Any], folder: str | Path, *, where: str = "phantom") -> Path:
    """Return the folder of a world for the reader 'camelyon17'; draw it only where it does not exist yet.

    Args:
        spec: The specification as `world_from` reads it, with `plant`, a table of faults.
        folder: The folder of the world; an earlier phantom with another specification is replaced.
        where: The place of the specification, for messages.

    Returns:
        The folder.

    Raises:
        UserError: The specification is not allowed; or `folder` holds something other than a phantom.
    """
    values = dict(spec)
    counts = {str(name): int(count) for name, count in dict(values.pop("plant", {})).items()}
    world = world_from(values, where=where)
    folder = Path(folder)
    try:
        held = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        held = None
    if held == _specification(world, counts):
        return folder
    return write_world(world, folder, replace=True, plant=counts)
