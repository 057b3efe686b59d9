"""A kept model at another hospital: trained there, tested here (MRI-02, US-11).

What a study hides from a recipe is hidden here too: masks, outcomes, experts' boxes and clinical columns of the tested
unless the recipe says that it reads them. Nobody is tested whom the model was trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.cohort import Cohort
from elsewhere.engine.job import pinned_threads, reason_of, training_threads
from elsewhere.engine.local import devices_of
from elsewhere.engine.trained_on import TOLD, Patient, check_apart
from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.errors import UserError
from elsewhere.inputs import Cases
from elsewhere.inputs.mri.files import FileVolumes
from elsewhere.recipes.base import Recipe
from elsewhere.recipes.running import find_recipe, run_unit
from elsewhere.study.kept_models import Model
from elsewhere.study.pictures import Report
from elsewhere.study.recipe_files import MASKS, digests_of_files
from elsewhere.study.recipe_table import check_volumes, plain_clinical
from elsewhere.study.sections import CLINICAL, OUTCOMES
from elsewhere.study.volumes import digests, volumes_of, voxel_digests


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a model said of a cohort. `ids` are the cohort's own, in the order of the outcome's cases."""

    outcome: Outcome
    ids: tuple[str, ...]
    volumes: FileVolumes | None = None
    left_out: Mapping[str, int] | None = None
    """Reason -> cases that were not predicted: they are missing where they are scored."""
    told: tuple[str, ...] = ()
    """What the model was told of the tested cases beside their pictures or volumes."""


def patients_of(cohort: Cohort) -> dict[str, Patient]:
    """Case ('DATASET/case_id') -> whom it shows."""
    rows = cohort.cases
    return {
        f"{dataset}/{case}": Patient(name=f"{dataset}/{patient}", also=other)
        for dataset, case, patient, other in zip(
            rows["dataset"].astype("str"),
            rows["case_id"].astype("str"),
            rows["patient_id"].astype("str"),
            cohort.other_ids(),
            strict=True,
        )
    }


def predict_volumes(
    model: Model,
    cohort: Cohort,
    *,
    device: str = "auto",
    masks: str | Path | None = None,
    progress: Report | None = None,
) -> Predicted:
    """A kept recipe's predictions of every case of `cohort` that it can look at. `masks`: for a recipe that was
    trained with a folder of predicted masks, the folder of these cases'."""
    unit = model.unit
    if unit.job is None:
        raise ValueError("not a recipe's unit")
    recipe = find_recipe(unit.job)
    if not recipe.keeps:
        raise UserError(
            f"recipe '{unit.job.name}' cannot predict from kept weights",
            where=f"unit {model.name}",
            fix="Its package has to set keeps = True and to write `apply`.",
        )
    patients = patients_of(cohort)
    check_record(model)
    check_apart(unit, model.trained_on, patients, {})
    volumes = volumes_of(cohort)
    names = [name for name in patients if name in volumes or not recipe.uses_volumes]
    if not names:
        raise UserError(
            f"no case of the cohort has a volume, and recipe '{unit.job.name}' looks at volumes",
            fix="Read the folder with its images: elsewhere cohort read mama-mia FOLDER --out DIR.",
        )
    seen = [name for name in names if name in volumes]
    check_volumes(volumes, seen)
    unit = _with_masks(unit, recipe, volumes, masks)
    cases = _cases(model, recipe, cohort, names, digest=digests(volumes, seen, progress=progress))
    check_apart(
        unit,
        model.trained_on,
        {name: patients[name] for name in names},
        voxel_digests(volumes, seen, progress=progress),
    )
    blind = replace(unit, train=(), validation=(), predict=tuple(names), keep_weights=False)
    outcome = _applied(blind, model, Work(cases=cases, volumes=volumes), device, progress)
    ids = dict(zip(patients, cohort.cases["case_id"].astype("str"), strict=True))
    lost = len(patients) - len(names)
    return Predicted(
        outcome=outcome,
        ids=tuple(ids[name] for name in names),
        volumes=volumes,
        left_out={"without a volume": lost} if lost else {},
        told=_told(recipe, unit),
    )


def check_record(model: Model) -> None:
    """A model that does not say whom it was trained on is used on nobody."""
    if not all(isinstance(model.trained_on.get(part), list) for part in TOLD):
        raise UserError(
            "the model does not say whom it was trained on, so that nobody can be kept apart from them",
            where=f"unit {model.name}",
            fix="Run its study again with this version: it adds what is lacking, and trains nothing twice.",
        )


def _with_masks(
    unit: Training, recipe: type[Recipe], volumes: FileVolumes, masks: str | Path | None
) -> Training:
    """Settings that name a folder of predicted masks name this cohort's; never the experts' (MRI-02)."""
    if unit.job is None:
        raise ValueError("not a recipe's unit")
    settings = recipe.settings(unit.job.settings, where=f"recipe '{unit.job.name}'")
    wants = MASKS in recipe.files(settings)
    if wants and masks is None:
        raise UserError(
            f"recipe '{unit.job.name}' was trained with crops found by predicted masks, and has none of this cohort",
            where=f"unit {unit.name}",
            fix="Give --masks DIR: a folder of masks that a segmentation predicted for these cases.",
        )
    if masks is None:
        return unit
    if not wants:
        raise UserError(f"recipe '{unit.job.name}' takes no masks", where="--masks", fix="Leave it out.")
    digests_of_files({MASKS: Path(masks)}, volumes, where="--masks")
    return replace(unit, job=replace(unit.job, settings={**unit.job.settings, MASKS: str(masks)}))


def _cases(
    model: Model, recipe: type[Recipe], cohort: Cohort, names: list[str], *, digest: Mapping[str, str]
) -> Cases:
    """Without labels and masks; clinical columns for a recipe that says it reads them, never an outcome."""
    rows = cohort.cases
    place = {
        f"{dataset}/{case}": at
        for at, (dataset, case) in enumerate(rows[["dataset", "case_id"]].astype("str").to_numpy())
    }
    at = [place[name] for name in names]
    told = model.trained_on.get("clinical") or list(CLINICAL)
    columns = [name for name in told if name in rows.columns and name.casefold() not in OUTCOMES]
    patients = patients_of(cohort)
    return Cases(
        case=tuple(names),
        dataset=tuple(rows["dataset"].astype("str").iloc[at]),
        label=np.full(len(names), -1, dtype=np.int8),
        box=np.zeros((len(names), 4), dtype=np.int32),
        digest=tuple(digest.get(name, "") for name in names),
        group=tuple(patients[name].name for name in names),
        clinical={name: tuple(map(plain_clinical, rows[name].iloc[at].tolist())) for name in columns}
        if recipe.uses_clinical
        else {},
    )


def _applied(unit: Training, model: Model, work: Work, device: str, progress: Report | None) -> Outcome:
    chosen = devices_of(device)[0]
    threads = training_threads()
    try:
        with pinned_threads(threads):
            return run_unit(
                unit,
                work,
                device=chosen,
                threads=threads,
                progress=progress,
                weights=model.outcome.weights,
            )
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(
            f"the model needs the package '{(error.name or '').partition('.')[0]}', which is not installed",
            where=f"unit {model.name}",
            fix="pip install 'elsewhere[train]'",
        ) from error
    except Exception as error:
        raise UserError(
            f"the model could not be applied: {reason_of(error)}",
            where=f"unit {model.name}",
            fix="Nothing was written. Its recipe, its version and the volumes have to be those it was made for.",
        ) from error


def _told(recipe: type[Recipe], unit: Training) -> tuple[str, ...]:
    settings: Any = recipe.settings(unit.job.settings if unit.job else {})
    found = [
        ("clinical columns", recipe.uses_clinical),
        ("the publisher's box of the lesion", recipe.uses_lesion_box),
        ("the expert's box of the affected breast", recipe.asks_breast_box(settings)),
    ]
    return tuple(what for what, is_told in found if is_told)
