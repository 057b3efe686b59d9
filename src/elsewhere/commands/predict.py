"""`models` and `predict`: list the models that a study saved, and apply one at another hospital."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from elsewhere._version import __version__
from elsewhere.analysis.result.inputs import CohortLike, as_cohort
from elsewhere.analysis.result.part import choose_part
from elsewhere.cohort import Cohort
from elsewhere.cohort.private_ids import ids_in
from elsewhere.commands.output import Report
from elsewhere.engine.training import COSTS
from elsewhere.predictions.answers import AnswerTarget, answer_kinds
from elsewhere.privacy import Redactor, nameless
from elsewhere.study.kept_models import (
    Model,
    choose_model,
    choose_models,
    export_models,
    models_in,
    open_models,
)
from elsewhere.study.predicting import Predicted, predict_cohort
from elsewhere.tables import check_out, check_out_file, file_digest, staged_directory, write_json, write_table

SUMMARY = "predictions.json"


@dataclass(frozen=True, kw_only=True)
class KeptModels:
    """The saved models of a study, or of a model file.

    Args:
        models: The provenance of each model: its name, recipe, settings and training data.
        not_kept: How many finished trainings saved no weights.
        exported: The model file that was written; None where none was asked for.
    """

    models: tuple[dict[str, Any], ...]
    not_kept: int
    exported: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            A dictionary with `models`, `not_kept` and `exported`.
        """
        return {
            "models": list(self.models),
            "not_kept": self.not_kept,
            "exported": None if self.exported is None else str(self.exported),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for model in self.models:
            told = model["trained_on"]
            yield f"{model['unit'][:12]}  {model['name']}"
            where = ", ".join(f"{name} {n}" for name, n in (told.get("datasets") or {}).items())
            yield f"              {told.get('n_patients')} patients of {where}; for {' and '.join(model['tasks'])}"
        if not self.models:
            yield 'no weights were saved: write keep_weights = ["all"] under [study], and run the study again'
        elif self.not_kept:
            yield f"{self.not_kept} finished trainings saved no weights"
        if self.exported is not None:
            yield f"model file: {self.exported}"


def list_models(
    source: str | Path, *, model: str = "", export: str | Path | None = None, replace: bool = False
) -> KeptModels:
    """List the saved models behind a folder of results, a store, or a model file.

    `export` writes them as one file for another hospital: weights, settings, and the training patients as
    hashes; no prediction of the study, and no name of a case.

    Args:
        source: A folder of results, a store, or a model file.
        model: The beginning of a model's name or key; empty for all models.
        export: A model file to write; None to write nothing.
        replace: Whether that file may be replaced.

    Returns:
        The models.

    Raises:
        UserError: The source holds no trainings, no model has this name, or the file exists.

    Example:
        List the models of a study, and write one of them to a file::

            elsewhere.list_models("results", model="cnn", export="model.zip")
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
    """What was predicted, and where it was written.

    Args:
        summary: The content of predictions.json.
        path: The folder that was written.
        cohort: The path of the cohort; 'COHORT' where an object was given.
    """

    summary: dict[str, Any]
    path: Path
    cohort: str

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The summary of the predictions, and `path`.
        """
        return self.summary | {"path": str(self.path)}

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
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
            yield f"  the model was given {what} of the tested cases"
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
    """Apply a saved model to another hospital's cohort, and write predictions that `score` takes.

    A patient (or a volume, under whatever name) that the model was trained on is refused. Masks, outcomes
    and, unless the recipe says that it reads them, clinical columns of the cohort are hidden from the model.

    Args:
        model_source: A folder of results, a store, or a model file.
        cohort: The cohort, or its folder.
        out: The folder to write.
        replace: Whether files that exist may be replaced.
        model: The beginning of the model's name or key; empty where there is one model only.
        where: Only cases whose columns have these values are predicted ({"split": "test"}).
        masks: The folder of predicted masks of these cases, for a recipe that was trained with such masks;
            None for none.
        device: 'auto', 'cpu', 'cuda' or 'cuda:N'.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was predicted and written.

    Raises:
        UserError: No model or several models have this name, the cohort does not fit the model, or it holds
            a patient that the model was trained on.

    Example:
        Predict a cohort with a saved model::

            elsewhere.predict("model.zip", "cohort", out="predictions")
    """
    inputs = (model_source, cohort, masks)
    check_out(out, replace=replace, inputs=inputs)
    with open_models(model_source) as store:
        chosen = choose_model(store, model, where=str(model_source))
        part = choose_part(as_cohort(cohort), where)
        found = predict_cohort(chosen, store, part.cohort, device=device, masks=masks, progress=progress)
        summary = _summary(chosen, part.cohort, found, where or {})
        with staged_directory(out, replace=replace, inputs=inputs) as folder:
            summary["files"] = _write(chosen, found, part.cohort, folder)
            summary["sha256"] = {
                str(file.relative_to(folder)): file_digest(file)
                for file in sorted(folder.rglob("*"))
                if file.is_file()
            }
            write_json(summary, folder / SUMMARY)
    shown = str(cohort) if isinstance(cohort, str | Path) else "COHORT"
    return Predictions(summary=summary, path=Path(out), cohort=shown)


def _write(model: Model, found: Predicted, cohort: Cohort, folder: Path) -> dict[str, str]:
    """Write the answers to each task in the format of a submission, and the cost of each case."""
    outcome, files = found.outcome, {}
    tasks = model.unit.recipe.tasks
    kinds = [answers.kind for answers in outcome.answers.values()]
    for task, answers in outcome.answers.items():
        kind = answer_kinds.get(answers.kind)
        own = kind.name if kind.own_folder else ""
        inside = f"{task}-{own}".rstrip("-") if kinds.count(answers.kind) > 1 else own
        (folder / inside).mkdir(exist_ok=True)
        target = AnswerTarget(
            folder=folder / inside,
            ids=found.ids,
            names=outcome.case,
            source=found.source,
            patients=cohort.patient_ids(found.ids),
        )
        files[task] = (Path(inside) / kind.write(answers, target)).as_posix()
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
            "checked_by": "patient ids of the same dataset, ids that one dataset lists of another, and the pixels or voxels",
        },
        "told_beside_images": list(found.given),
        "device": outcome.device,
        "versions": dict(outcome.versions),
        "notes": [nameless(note, redact) for note in outcome.notes],
    }
