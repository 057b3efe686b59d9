"""A kept network of a study of pictures at another hospital (US-11 to US-13, US-33).

The label is not asked for. A network of lesion crops is told the annotated box, as in its study, unless its crops
were found: then its finder finds them here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from elsewhere.cohort import Cohort
from elsewhere.engine.job import reason_of
from elsewhere.engine.local import devices_of
from elsewhere.engine.store import Store
from elsewhere.engine.trained_on import check_apart
from elsewhere.engine.training import InputSpec, Outcome, Training, Work
from elsewhere.errors import UserError, name_rows
from elsewhere.files import DAMAGED_ARCHIVE
from elsewhere.inputs import NORMAL, Cases, Pictures
from elsewhere.study.kept_models import Model
from elsewhere.study.pictures import Report, look_at
from elsewhere.study.predicting import Predicted, check_record, patients_of
from elsewhere.study.table import BOX, lesion_boxes, mask_columns, mask_files


def predict_pictures(
    model: Model, store: Store, cohort: Cohort, *, device: str = "auto", progress: Report | None = None
) -> Predicted:
    """A kept network's probability of malignancy, of every picture of `cohort`."""
    if find_spec("torch") is None:
        raise UserError("a network needs torch", fix="pip install 'elsewhere[train]'")
    from elsewhere.training.pictures.prediction import apply_network

    unit = model.unit
    patients = patients_of(cohort)
    check_record(model)
    check_apart(unit, model.trained_on, patients, {})
    finder = _finder(model, store)
    work = _work(cohort, list(patients), progress)
    cases = work.cases
    digest = dict(zip(cases.case, cases.digest, strict=True))
    check_apart(unit, model.trained_on, patients, digest)
    blind = replace(unit, train=(), validation=(), predict=cases.case, keep_weights=False)
    try:
        logits, boxes = apply_network(
            blind, model.outcome.weights or {}, work, device=devices_of(device)[0], finder=finder
        )
    except DAMAGED_ARCHIVE as error:
        raise UserError(
            f"the model could not be applied: {reason_of(error)}",
            where=f"unit {model.name}",
            fix="Nothing was written. Its weights have to be those of its network.",
        ) from error
    import torch

    outcome = Outcome(
        case=cases.case,
        fingerprint=unit.fingerprints(cases),
        logits=logits,
        distance=np.full(len(cases), np.nan, dtype=np.float32),
        probability=np.asarray(expit(logits[:, 1].astype(np.float64) - logits[:, 0]), dtype=np.float64),
        device=devices_of(device)[0],
        versions={"torch": torch.__version__, "numpy": np.__version__},
        notes=_notes(unit.input, cases.box if boxes is None else boxes, found=boxes is not None),
    )
    ids = tuple(cohort.cases["case_id"].astype("str"))
    return Predicted(outcome=outcome, ids=ids, left_out={}, told=_told(unit.input, found=boxes is not None))


def _finder(model: Model, store: Store) -> tuple[Training, Mapping[str, Any]] | None:
    key = model.unit.boxes_from
    if not key:
        return None
    weights = store.load(key).weights if key in store else None
    if weights is None:
        raise UserError(
            "its crops are where a finder sees the lesion, and that finder's weights were not kept",
            where=f"unit {model.name}",
            fix="Run the study again with this version: it keeps both.",
        )
    return store.unit(key), weights


def _work(cohort: Cohort, names: list[str], progress: Report | None) -> Work:
    """The cohort's pictures as a study sees them, without any label."""
    rows = cohort.cases
    if "image" not in rows.columns or rows["image"].isna().any():
        lacking = names if "image" not in rows.columns else list(rows.loc[rows["image"].isna(), "case_id"])
        raise UserError(
            f"{len(lacking)} cases have no picture ({name_rows(list(map(str, lacking)), limit=3)})",
            fix="The column 'image' names each case's file.",
        )
    paths = {name: cohort.file(path).resolve() for name, path in zip(names, rows["image"], strict=True)}
    facts = look_at(paths, progress=progress)
    masks = [mask_files(cohort, row) for row in rows[mask_columns(rows)].itertuples(index=False)]
    pictures = Pictures(
        paths, {name: [Path(p) for p in held] for name, held in zip(names, masks, strict=True) if held}
    )
    frame = pd.DataFrame(
        {
            "case": names,
            "dataset": rows["dataset"].astype("str").to_numpy(),
            "label": "not told",
            "width": [facts[name].width for name in names],
            "height": [facts[name].height for name in names],
            "box_known": all(name in rows.columns for name in BOX),
        }
    )
    for name in BOX:
        told = pd.to_numeric(rows[name], errors="coerce") if name in rows.columns else np.nan
        frame[name] = np.asarray(told, dtype=float)
    patients = patients_of(cohort)
    cases = Cases(
        case=tuple(names),
        dataset=tuple(frame["dataset"]),
        label=np.full(len(names), NORMAL, dtype=np.int8),
        box=lesion_boxes(frame, pictures)[0],
        digest=tuple(facts[name].digest for name in names),
        group=tuple(patients[name].name for name in names),
    )
    return Work(cases=cases, pictures=pictures)


def _notes(spec: InputSpec, boxes: np.ndarray, *, found: bool) -> tuple[str, ...]:
    bare = int((~boxes.any(axis=1)).sum())
    if spec.kind != "roi" or not bare:
        return ()
    how = "its finder saw no lesion" if found else "no box is known"
    return (f"{how} in {bare} of {len(boxes)} pictures: the crop is the whole picture (US-13).",)


def _told(spec: InputSpec, *, found: bool) -> tuple[str, ...]:
    return tuple(
        what
        for what, is_told in (
            ("the annotated box of the lesion", spec.kind == "roi" and not found),
            ("the annotated outline of the lesion", spec.outline),
        )
        if is_told
    )
