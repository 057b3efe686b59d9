"""`models` and `predict`: a model that a study kept, and what it says at another hospital."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere._version import __version__
from elsewhere.cohort import Cohort
from elsewhere.cohort.private_ids import ids_in
from elsewhere.commands.output import Report
from elsewhere.commands.score import CohortLike, as_cohort
from elsewhere.commands.where import choose_part
from elsewhere.engine.training import COSTS
from elsewhere.errors import UserError
from elsewhere.predictions.masks import mask_file_name
from elsewhere.privacy import Redactor, nameless
from elsewhere.study.kept_models import (
    Model,
    choose_model,
    choose_models,
    export_models,
    models_in,
    open_models,
)
from elsewhere.study.predicting import Predicted, predict_volumes
from elsewhere.study.predicting_pictures import predict_pictures
from elsewhere.tables import check_out, check_out_file, file_digest, staged_directory, write_json, write_table

SUMMARY = "predictions.json"
MASKS, PROBABILITIES = "masks", "probabilities.csv"


@dataclass(frozen=True, kw_only=True)
class KeptModels:
    """The kept models of a study, or of a model file."""

    models: tuple[dict[str, Any], ...]
    not_kept: int
    exported: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "models": list(self.models),
            "not_kept": self.not_kept,
            "exported": None if self.exported is None else str(self.exported),
        }

    def lines(self) -> Iterator[str]:
        for model in self.models:
            told = model["trained_on"]
            yield f"{model['unit'][:12]}  {model['name']}"
            where = ", ".join(f"{name} {n}" for name, n in (told.get("datasets") or {}).items())
            yield f"              {told.get('n_patients')} patients of {where}; for {' and '.join(model['tasks'])}"
        if not self.models:
            yield 'no weights were kept: write keep_weights = ["all"] under [study], and run the study again'
        elif self.not_kept:
            yield f"{self.not_kept} finished trainings kept no weights"
        if self.exported is not None:
            yield f"model file: {self.exported}"


def list_models(
    source: str | Path, *, model: str = "", export: str | Path | None = None, replace: bool = False
) -> KeptModels:
    """The kept models behind a folder of results, a store, or a model file; `model` picks by name or key.

    `export` writes them as one file for another hospital: weights, settings and whom they were trained on as hashes; no
    prediction of the study, and no name of a case.
    """
    check_out_file(export, replace=replace, inputs=(source,))
    with open_models(source) as store:
        kept, bare = models_in(store)
        if model or export is not None:
            kept = choose_models(store, model, where=str(source))
        out = export_models(kept, store, export) if export is not None else None
    return KeptModels(models=tuple(one.about() for one in kept), not_kept=len(bare), exported=out)


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What was predicted, and where it lies."""

    summary: dict[str, Any]
    path: Path
    cohort: str

    def to_dict(self) -> dict[str, Any]:
        return self.summary | {"path": str(self.path)}

    def lines(self) -> Iterator[str]:
        told = self.summary
        trained = told["model"]["trained_on"]
        yield (
            f"{told['model']['name']}: trained on {trained['n_patients']} patients, none of whom is among the "
            f"{told['tested']['patients']} here"
        )
        yield f"{told['tested']['predicted']} of {told['tested']['cases']} cases predicted"
        for why, n in told["tested"]["left_out"].items():
            yield f"  {n} {why}: missing where they are scored"
        for what in told["told_beside_images"]:
            yield f"  it was told {what} of the tested cases"
        for note in told["notes"]:
            yield f"  note: {note}"
        for task, place in told["files"].items():
            yield f"{task}: {self.path / place}"
            part = "".join(f" --where {name}={value}" for name, value in told["tested"]["where"].items())
            yield f"  elsewhere score {task} {self.cohort} {self.path / place}{part} --out result"


def predict(
    model_source: str | Path,
    cohort: CohortLike,
    *,
    out: str | Path,
    replace: bool = False,
    model: str = "",
    where: Mapping[str, str] | None = None,
    masks: str | Path | None = None,
    device: str = "auto",
    progress: Report | None = None,
) -> Predictions:
    """Apply a kept model to another hospital's cohort, and write predictions that `score` takes.

    `model_source`: a study's results, its store, or a model file; `model`: which of its models, by the beginning of its name or key. A
    patient (or a volume, under whatever name) that the model was trained on is refused. Masks, outcomes and, unless the
    recipe says that it reads them, clinical columns of the cohort are hidden from it.
    """
    inputs = (model_source, cohort, masks)
    check_out(out, replace=replace, inputs=inputs)
    with open_models(model_source) as store:
        chosen = choose_model(store, model, where=str(model_source))
        part = choose_part(as_cohort(cohort), where)
        if chosen.unit.job is None:
            if masks is not None:
                raise UserError("a network of pictures takes no masks", where="--masks", fix="Leave it out.")
            found = predict_pictures(chosen, store, part.cohort, device=device, progress=progress)
        else:
            found = predict_volumes(chosen, part.cohort, device=device, masks=masks, progress=progress)
        summary = _summary(chosen, part.cohort, found, where or {})
        with staged_directory(out, replace=replace, inputs=inputs) as folder:
            summary["files"] = _write(chosen, found, folder)
            summary["sha256"] = {
                str(file.relative_to(folder)): file_digest(file)
                for file in sorted(folder.rglob("*"))
                if file.is_file()
            }
            write_json(summary, folder / SUMMARY)
    shown = str(cohort) if isinstance(cohort, str | Path) else "COHORT"
    return Predictions(summary=summary, path=Path(out), cohort=shown)


def _write(model: Model, found: Predicted, folder: Path) -> dict[str, str]:
    """Masks on each case's own grid, a table of probabilities, and what each case cost."""
    outcome, files = found.outcome, {}
    tasks = model.unit.job.tasks if model.unit.job is not None else ()
    if outcome.masks is not None and found.volumes is not None:
        (folder / MASKS).mkdir()
        for name, case_id, mask in zip(outcome.case, found.ids, outcome.masks, strict=True):
            file = folder / MASKS / mask_file_name(case_id)
            found.volumes.write_mask(file, mask.unpack(), like=name)
        files["segmentation"] = MASKS
    if outcome.probability is not None:
        table = pd.DataFrame({"case_id": list(found.ids), "probability": outcome.probability})
        write_table(table, folder / PROBABILITIES)
        files["classification" if model.unit.job is None else "response"] = PROBABILITIES
    if outcome.cost is not None:
        rows = [
            pd.DataFrame(np.asarray(outcome.cost)[:, at], columns=list(COSTS)).assign(
                case_id=list(found.ids), task=task
            )[["case_id", "task", *COSTS]]
            for at, task in enumerate(tasks)
        ]
        write_table(pd.concat(rows, ignore_index=True), folder / "costs.csv")
    return files


def _summary(model: Model, cohort: Cohort, found: Predicted, where: Mapping[str, str]) -> dict[str, Any]:
    redact = Redactor(ids_in(cohort))
    outcome = found.outcome
    return {
        "elsewhere": __version__,
        "model": model.about(),
        "tested": {
            "cohort_hash": cohort.hash,
            "reader": cohort.reader,
            "where": dict(where),
            "cases": len(cohort.cases),
            "patients": int(cohort.counts["patients"]),
            "predicted": len(outcome.case),
            "left_out": dict(found.left_out or {}),
        },
        "apart": {
            "patients_in_common": 0,
            "images_in_common": 0,
            "checked_by": "patient ids of the same dataset, ids that one set tells of another, and the pixels or voxels",
        },
        "told_beside_images": list(found.told),
        "device": outcome.device,
        "versions": dict(outcome.versions),
        "notes": [nameless(note, redact) for note in outcome.notes],
    }
