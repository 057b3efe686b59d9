"""A kept model at another hospital: trained there, tested here (MRI-02, US-11).

What a study hides from a recipe is hidden here too: masks, outcomes, experts' boxes and clinical columns of the tested
unless the recipe says that it reads them. Nobody is tested whom the model was trained on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from elsewhere.cohort import Cohort
from elsewhere.engine.batch import pinned_threads, reason_of, training_threads
from elsewhere.engine.local import devices_of
from elsewhere.engine.store import Store
from elsewhere.engine.trained_on import TOLD, Patient, check_apart
from elsewhere.engine.training import Outcome, Training, Work
from elsewhere.errors import UserError, name_rows
from elsewhere.inputs import Cases
from elsewhere.inputs.source import CaseRow, Source, sources
from elsewhere.recipes.base import Recipe, given_words, sees_clinical
from elsewhere.recipes.running import find_recipe, run_training
from elsewhere.study.case_frame import plain_clinical
from elsewhere.study.case_rows import case_rows
from elsewhere.study.file.sections import CLINICAL, OUTCOMES
from elsewhere.study.kept_models import Model, needed_models
from elsewhere.study.pictures import Report
from elsewhere.study.settings_files import MASKS, digests_of_files


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a model said of a cohort.

    Args:
        outcome: Its answers.
        ids: The cohort's own case ids, in the order of the outcome's cases.
        source: Where the pixels were read; None for a recipe that looks at none.
        left_out: Reason -> cases that were not predicted: they are missing where they are scored.
        given: What the model was given of the tested cases beside their pixels.
    """

    outcome: Outcome
    ids: tuple[str, ...]
    source: Source | None = None
    left_out: Mapping[str, int] | None = None
    given: tuple[str, ...] = ()


def patients_of(cohort: Cohort) -> dict[str, Patient]:
    """List the patients of a cohort's cases.

    Args:
        cohort: The cohort.

    Returns:
        The patient of each case ('DATASET/case_id'), with the id in another dataset where the cohort gives it.
    """
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


def predict_cohort(
    model: Model,
    store: Store,
    cohort: Cohort,
    *,
    device: str = "auto",
    masks: str | Path | None = None,
    progress: Report | None = None,
) -> Predicted:
    """A kept model's answers to every case of a cohort that it can look at.

    Args:
        model: A training with its weights.
        store: Where it is, with the trainings whose answers it uses.
        cohort: The tested cases.
        device: Where it runs.
        masks: For a recipe that was trained with a folder of predicted masks, the folder of these cases'.
        progress: Called with what is done, how much, and how much there is.

    Returns:
        The answers.

    Raises:
        UserError: The model cannot be applied, or a tested patient trained it.
    """
    recipe = find_recipe(model.unit.recipe)
    if not recipe.keeps:
        raise UserError(
            f"recipe '{model.unit.recipe.name}' cannot predict from kept weights",
            where=f"unit {model.name}",
            fix="Its package has to set keeps = True and to write `apply`.",
        )
    patients = patients_of(cohort)
    check_record(model)
    check_apart(model.unit, model.trained_on, patients, {})
    needed = _needed(model, store)
    rows = case_rows(cohort)
    source = sources.get(recipe.reads).of_cases(rows) if recipe.reads else None
    names = [row.name for row in rows if source is None or row.name in source]
    _check_pixels(model, source, names, rows)
    unit = _with_masks(model.unit, recipe, source, masks)
    cases = _cases(model, recipe, cohort, [row for row in rows if row.name in set(names)], source, progress)
    if source is not None:
        identity = _for_each(source.identity, names, "looking for duplicates", progress)
        check_apart(unit, model.trained_on, {name: patients[name] for name in names}, identity)
    found: dict[str, Outcome] = {}
    work = Work(
        cases=cases, sources={} if source is None else {source.name: source}, outcomes=found.__getitem__
    )
    for other in needed:
        found[other.unit.key] = _applied(_blind(other.unit, names), other, work, device, progress)
    outcome = _applied(_blind(unit, names), model, work, device, progress)
    ids = dict(zip(patients, cohort.cases["case_id"].astype("str"), strict=True))
    lost = len(patients) - len(names)
    noun = "" if source is None else source.noun.removesuffix("s")
    return Predicted(
        outcome=outcome,
        ids=tuple(ids[name] for name in names),
        source=source,
        left_out={f"without a {noun}": lost} if lost else {},
        given=given_words(recipe, unit.recipe.settings, tuple(unit.needs)),
    )


def _blind(unit: Training, names: Sequence[str]) -> Training:
    """It has learnt already, and predicts these."""
    return replace(unit, train=(), validation=(), predict=tuple(names), optional=(), keep_weights=False)


def check_record(model: Model) -> None:
    """Check that a model says whom it was trained on; one that does not is used on nobody.

    Args:
        model: The model.

    Raises:
        UserError: Its record is missing or incomplete, so that no tested patient can be compared with it.
    """
    if not all(isinstance(model.trained_on.get(part), list) for part in TOLD):
        raise UserError(
            "the model does not list the patients it was trained on, so they cannot be left out",
            where=f"unit {model.name}",
            fix="Run its study again with this version: it adds what is lacking, and trains nothing twice.",
        )


def _needed(model: Model, store: Store) -> list[Model]:
    """The models whose answers it uses, all of them with their weights."""
    found = needed_models(model, store)
    lacking = set(model.unit.needs.values()) - {other.unit.key for other in found}
    if lacking:
        role = next(role for role, key in model.unit.needs.items() if key in lacking)
        raise UserError(
            f"it uses the {role} that another training finds, and that training's weights were not kept",
            where=f"unit {model.name}",
            fix="Run the study again with this version: it keeps both.",
        )
    return found


def _check_pixels(model: Model, source: Source | None, names: Sequence[str], rows: Sequence[CaseRow]) -> None:
    if source is None:
        return
    noun = source.noun.removesuffix("s")
    lacking = [str(row.values["case_id"]) for row in rows if row.name not in source]
    if lacking and source.complete:
        raise UserError(
            f"{len(lacking)} cases have no {noun} ({name_rows(lacking, limit=3)})",
            fix="The column 'image' names each case's file.",
        )
    if not names:
        raise UserError(
            f"no case of the cohort has a {noun}, and recipe '{model.unit.recipe.name}' looks at {source.noun}",
            fix="Read the folder with its images: elsewhere cohort read mama-mia FOLDER --out DIR.",
        )
    wrong = source.problems(names)
    if wrong:
        first, why = next(iter(wrong.items()))
        others = list(wrong)[1:]
        more = f" (likewise {name_rows(others)})" if others else ""
        raise UserError(
            f"the {noun} of case '{first}' cannot be used: {why}{more}",
            fix="Fetch the file again, or take the case out of the cohort.",
        )


def _with_masks(
    unit: Training, recipe: type[Recipe], source: Source | None, masks: str | Path | None
) -> Training:
    """Settings that name a folder of predicted masks name this cohort's; never the experts' (MRI-02)."""
    settings = recipe.settings(unit.recipe.settings, where=f"recipe '{unit.recipe.name}'")
    wants = MASKS in recipe.files(settings)
    if wants and masks is None:
        raise UserError(
            f"recipe '{unit.recipe.name}' was trained with crops found by predicted masks, and has none of this cohort",
            where=f"unit {unit.name}",
            fix="Give --masks DIR: a folder of masks that a segmentation predicted for these cases.",
        )
    if masks is None:
        return unit
    if not wants:
        raise UserError(f"recipe '{unit.recipe.name}' takes no masks", where="--masks", fix="Leave it out.")
    digests_of_files({MASKS: Path(masks)}, source.truth_files() if source else (), where="--masks")
    return replace(unit, recipe=replace(unit.recipe, settings={**unit.recipe.settings, MASKS: str(masks)}))


def _cases(
    model: Model,
    recipe: type[Recipe],
    cohort: Cohort,
    rows: Sequence[CaseRow],
    source: Source | None,
    progress: Report | None,
) -> Cases:
    """Without labels and masks; clinical columns for a recipe that says it reads them, never an outcome."""
    names = [row.name for row in rows]
    digest = {} if source is None else _for_each(source.digest, names, f"looking at {source.noun}", progress)
    recorded = model.trained_on.get("clinical") or list(CLINICAL)
    columns = [name for name in recorded if name in cohort.cases.columns and name.casefold() not in OUTCOMES]
    patients = patients_of(cohort)
    return Cases(
        case=tuple(names),
        dataset=tuple(str(row.values["dataset"]) for row in rows),
        label=np.full(len(names), -1, dtype=np.int8),
        box=np.zeros((len(names), 4), dtype=np.int32) if source is None else source.boxes(rows),
        digest=tuple(digest.get(name, "") for name in names),
        group=tuple(patients[name].name for name in names),
        clinical={name: tuple(plain_clinical(row.values[name]) for row in rows) for name in columns}
        if sees_clinical(recipe)
        else {},
    )


def _for_each(
    ask: Callable[[str], str], names: Sequence[str], what: str, progress: Report | None
) -> dict[str, str]:
    """A digest of each case; files are read in threads."""
    found = {}
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for done, (name, digest) in enumerate(zip(names, pool.map(ask, names), strict=True), start=1):
            found[name] = digest
            if progress and (done % 50 == 0 or done == len(names)):
                progress(what, done, len(names))
    return found


def _applied(unit: Training, model: Model, work: Work, device: str, progress: Report | None) -> Outcome:
    chosen = devices_of(device)[0]
    threads = training_threads()
    try:
        with pinned_threads(threads):
            return run_training(
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
            fix="Nothing was written. Its recipe, its version and the pixels have to be those it was made for.",
        ) from error
