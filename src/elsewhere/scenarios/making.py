"""Splits made from a study table, a scenario and a seed; where none exists, the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from elsewhere.cohort.label_scheme import LESIONS, LabelScheme
from elsewhere.scenarios.allocation import (
    FOLD_SHARES,
    INTERNAL_SHARES,
    SOURCE_SHARES,
    allocate,
    allocate_folds,
    shuffled,
)
from elsewhere.scenarios.checks import check_split
from elsewhere.scenarios.groups import BoolArray, IntArray, SourceUnits, StudyGroups
from elsewhere.scenarios.scenario import Scenario
from elsewhere.scenarios.split import LEFT_OUT, PARTS, Skipped, Split, counted, split_hash

TRAIN, VALIDATION, TEST = 0, 1, 2


def make_split(
    table: pd.DataFrame | StudyGroups, scenario: Scenario, seed: int, *, scheme: LabelScheme = LESIONS
) -> Split | Skipped:
    """Make the split of a scenario, checked for leaks; `Skipped` where no split by patient exists (US-08).

    The same table (rows in any order), scenario and seed give the same parts. Where the target is another
    dataset, the source's parts depend on the source and the seed alone, and on which of its patients have
    duplicates in other datasets of the table: those are never used for training (US-30).

    Args:
        table: The study table, or its groups.
        scenario: The sources to train on, and the target to test on.
        seed: The seed of the allocation.
        scheme: The label names of a table; groups have their own.

    Returns:
        The split, or the reason why there is none.

    Raises:
        UserError: The table is not a study table, or has no such dataset.

    Example:
        >>> cases = [f"A/{i}" for i in range(12)]
        >>> table = pd.DataFrame({"case": cases, "dataset": "A", "patient": cases, "group": cases})
        >>> table["label"] = ["benign", "malignant"] * 6
        >>> made = make_split(table, Scenario(name="A", kind="internal", sources=("A",), target="A"), 1)
        >>> {part: len(names) for part, names in made.parts.items()}
        {'train': 8, 'validation': 2, 'test': 2, 'normal': 0}
    """
    study = table if isinstance(table, StudyGroups) else StudyGroups(table, scheme=scheme)
    for dataset in (*scenario.sources, scenario.target):
        study.of(dataset)
    if scenario.kind == "internal":
        return _internal(study, scenario, seed)
    if scenario.kind == "folds":
        return _fold(study, scenario, seed)
    return _across(study, scenario, seed)


def make_partitions(
    table: pd.DataFrame | StudyGroups,
    scenarios: Iterable[Scenario],
    seeds: Sequence[int],
    *,
    scheme: LabelScheme = LESIONS,
) -> list[Split | Skipped]:
    """Make the split of every scenario with every seed, the same seeds for all (US-09).

    The table is read once.

    Args:
        table: The study table, or its groups.
        scenarios: For each, the sources to train on and the target to test on.
        seeds: The seeds of the allocations.
        scheme: The label names of a table; groups have their own.

    Returns:
        For each scenario and seed a split, or the reason why there is none.

    Raises:
        UserError: The table is not a study table, or lacks a dataset of a scenario.
    """
    study = table if isinstance(table, StudyGroups) else StudyGroups(table, scheme=scheme)
    return [make_split(study, scenario, seed) for scenario in scenarios for seed in seeds]


def _internal(study: StudyGroups, scenario: Scenario, seed: int) -> Split | Skipped:
    """Split one dataset 70/10/20 per stratum (US-06)."""
    name = scenario.target
    units = study.lesion_units(name)
    if not units.feasible(3):
        return _too_few(scenario, seed, name, units, 3, "train, validation and test")
    part = allocate(units, INTERNAL_SHARES, seed=seed, dataset=name, purpose="internal")
    by_unit = _by_unit(study, units, part)
    normal, left_out, warnings = _normals_within(study, name, by_unit)
    return _partition(study, scenario, seed, _lesion_parts(study, name, by_unit), normal, left_out, warnings)


def _fold(study: StudyGroups, scenario: Scenario, seed: int) -> Split | Skipped:
    """Split one dataset with one fold for the test; a tenth of the others is for validation.

    Over the folds every lesion and every normal image of the dataset is tested once, and those of one patient
    in one fold.
    """
    name, fold, folds = scenario.target, scenario.fold or 0, scenario.folds or 0
    units = study.lesion_units(name)
    if not units.feasible(folds):
        return _too_few(scenario, seed, name, units, folds, f"each of {folds} folds")
    fold_of = allocate_folds(units, folds, seed=seed, dataset=name)
    if not all(units.only(fold_of != at).feasible(2) for at in range(folds)):
        reason = f"{name}: outside one of the {folds} folds there are not two patients of each class"
        return Skipped(scenario=scenario, seed=seed, reason=reason)
    keep = fold_of != fold - 1
    part = allocate(units, FOLD_SHARES, seed=seed, dataset=name, purpose=f"fold {fold} of {folds}", keep=keep)
    by_unit = _by_unit(study, units, np.where(keep, part, TEST))
    healthy = shuffled(study.normal_units(name), seed=seed, dataset=name, purpose="folds normal")
    tested = np.zeros(study.n_units, dtype=bool)
    tested[healthy[fold - 1 :: folds]] = True
    normal = study.of(name) & study.normal & (tested | (by_unit == TEST))[study.unit]
    warnings = _shared_with_normals(
        study, study.of(name) & ~study.normal & (by_unit == TEST)[study.unit], normal
    )
    none = np.zeros(len(study), dtype=bool)
    return _partition(study, scenario, seed, _lesion_parts(study, name, by_unit), normal, none, warnings)


def _across(study: StudyGroups, scenario: Scenario, seed: int) -> Split | Skipped:
    """Split each source 85/15 by itself, then join them; the target is tested whole (US-07, US-31)."""
    target = study.of(scenario.target)
    test = target & ~study.normal
    classes = np.unique(study.label[test])
    if not test.any() or (classes.size < 2 and study.scheme.both_needed):
        held = f"only {study.scheme.labels[int(classes[0])]}" if classes.size else "no"
        reason = f"{scenario.target}: a target needs both classes, and it has {held} {study.scheme.image}s"
        return Skipped(scenario=scenario, seed=seed, reason=reason)
    train, validation, left_out = (np.zeros(len(study), dtype=bool) for _ in range(3))
    warnings: list[str] = []
    for name in scenario.sources:
        units = study.lesion_units(name)
        keep = ~units.elsewhere
        least = 2 if study.scheme.both_needed or len(scenario.sources) == 1 else 1
        if not units.only(keep).feasible(least):
            return _too_few(scenario, seed, name, units, least, "train and validation", without_spanning=True)
        part = allocate(units, SOURCE_SHARES, seed=seed, dataset=name, purpose="source", keep=keep)
        by_unit = _by_unit(study, units, part)
        lesions = study.of(name) & ~study.normal
        train |= lesions & (by_unit == TRAIN)[study.unit]
        validation |= lesions & (by_unit == VALIDATION)[study.unit]
        left = lesions & study.spanning[study.unit]
        left_out |= left
        if left.any():
            warnings.append(
                f"{name}: {counted(int(left.sum()), 'lesion image')} of {_patients(study, left)} left out of training: "
                "the same pictures, or others of the same patients, are in another dataset"
            )
    normal = target & study.normal
    warnings += _shared_with_normals(study, test, normal)
    return _partition(study, scenario, seed, (train, validation, test), normal, left_out, warnings)


def _by_unit(study: StudyGroups, units: SourceUnits, part: IntArray) -> IntArray:
    """Return the part of every unit of the study; -1 for units that have none."""
    out = np.full(study.n_units, -1, dtype=np.int64)
    out[units.unit] = part
    return out


def _lesion_parts(
    study: StudyGroups, dataset: str, by_unit: IntArray
) -> tuple[BoolArray, BoolArray, BoolArray]:
    lesions = study.of(dataset) & ~study.normal
    train, validation, test = (lesions & (by_unit[study.unit] == part) for part in (TRAIN, VALIDATION, TEST))
    return train, validation, test


def _normals_within(
    study: StudyGroups, dataset: str, by_unit: IntArray
) -> tuple[BoolArray, BoolArray, list[str]]:
    """Separate normal images of patients used for training or validation (US-11) from the others."""
    normals = study.of(dataset) & study.normal
    seen = np.isin(by_unit, (TRAIN, VALIDATION))[study.unit]
    normal, left = normals & ~seen, normals & seen
    warnings = []
    if left.any():
        warnings.append(
            f"{dataset}: {counted(int(left.sum()), 'normal image')} of {_patients(study, left)} left out: "
            "the patients train or validate"
        )
    test = study.of(dataset) & ~study.normal & (by_unit == TEST)[study.unit]
    return normal, left, warnings + _shared_with_normals(study, test, normal)


def _shared_with_normals(study: StudyGroups, test: BoolArray, normal: BoolArray) -> list[str]:
    """Warn where patients have both tested lesion images and tested normal images (US-18)."""
    shared = np.intersect1d(study.unit[test], study.unit[normal])
    if not shared.size:
        return []
    return [
        f"lesion and normal images of the target share {counted(shared.size, 'patient')}: "
        "the two groups are not independent"
    ]


def _patients(study: StudyGroups, rows: BoolArray) -> str:
    return counted(int(np.unique(study.patient_code[rows]).size), "patient")


def _too_few(
    scenario: Scenario,
    seed: int,
    dataset: str,
    units: SourceUnits,
    parts: int,
    where: str,
    *,
    without_spanning: bool = False,
) -> Skipped:
    kept = units.only(~units.elsewhere) if without_spanning else units
    if not units.both_needed:
        reason = f"{dataset}: {counted(len(kept), 'patient')}; {where} need {parts}"
        return Skipped(scenario=scenario, seed=seed, reason=reason)
    reason = (
        f"{dataset}: {counted(int(kept.malignant.sum()), 'patient')} with a malignant and {int(kept.benign.sum())} with a "
        f"benign lesion; both classes in {where} need {parts} of each"
    )
    if len(kept) < len(units):
        reason += f" ({counted(len(units) - len(kept), 'patient')} left out: in another dataset too)"
    return Skipped(scenario=scenario, seed=seed, reason=reason)


def _partition(
    study: StudyGroups,
    scenario: Scenario,
    seed: int,
    lesions: tuple[BoolArray, BoolArray, BoolArray],
    normal: BoolArray,
    left_out: BoolArray,
    warnings: list[str],
) -> Split:
    cases = {
        part: tuple(study.case[rows].tolist())
        for part, rows in zip((*PARTS, LEFT_OUT), (*lesions, normal, left_out), strict=True)
    }
    made = Split(
        scenario=scenario,
        seed=int(seed),
        train=cases["train"],
        validation=cases["validation"],
        test=cases["test"],
        normal=cases["normal"],
        left_out=cases[LEFT_OUT],
        warnings=tuple(warnings),
        hash=split_hash(scenario, seed, cases),
    )
    check_split(study, made)
    return made
