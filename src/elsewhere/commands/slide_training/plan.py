"""What `slides train` reads and decides before anything trains: sets, folds, test patches, and the key of every model."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.cohort.patch_table import PatchTable, read_patch_table
from elsewhere.errors import UserError, check_seed, name_rows
from elsewhere.inputs.patches.store import PatchSet, PatchStore
from elsewhere.networks.segmenters import segmenter_weights_digest
from elsewhere.training.patches.folds import PatientFolds, patient_folds
from elsewhere.training.patches.settings import PatchSettings
from elsewhere.untrusted import printable

VERSION = 1
"""Goes up when the same sets and settings would give other weights: it is part of every key."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How segmenters are trained and tested.

    Attributes:
        training: The network, its loss and its optimiser.
        folds: Folds by patient; one model each.
        seed: Seed of folds and trainings.
    """

    training: PatchSettings = field(default_factory=PatchSettings)
    folds: int = 5
    seed: int = 42

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.folds < 2:
            raise UserError(f"{self.folds} folds were asked for", fix="Give 2 or more.")


def train_settings(values: Mapping[str, Any], *, folds: int, seed: int) -> TrainSettings:
    """Make settings of plain values.

    Args:
        values: Fields of `PatchSettings`.
        folds: Folds by patient.
        seed: Seed of folds and trainings.

    Returns:
        The settings.

    Raises:
        UserError: A value is out of range.

    Example:
        >>> train_settings({"loss": "smp"}, folds=5, seed=1).training.exponent
        0.5
    """
    return TrainSettings(training=PatchSettings(**values), folds=folds, seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSet:
    """A set of patches to train on.

    Attributes:
        name: The stem of its file.
        hash: The hash of its table.
        about: What its manifest states about it; empty for a plain patch table.
        rows: Its rows that are for training.
        positions: Their patches in the store.
        folds: Their folds.
    """

    name: str
    hash: str
    about: Mapping[str, Any]
    rows: pd.DataFrame
    positions: Whole
    folds: PatientFolds

    @property
    def slides(self) -> int:
        """How many slides it has patches of."""
        return len(self.rows[["dataset", "case_id"]].drop_duplicates())


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelPlan:
    """A model that is to be trained.

    Attributes:
        name: The set and the fold.
        key: What its weights depend on, as a digest.
        set: Its set.
        fold: The fold that is held out, from 1.
        train: Patches of the store that it learns from.
        validation: Patches of the store of the fold that is held out.
        seed: Its seed.
    """

    name: str
    key: str
    set: TrainingSet
    fold: int
    train: Whole
    validation: Whole
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class TestPatches:
    """The patches that every model is tested on.

    Attributes:
        rows: Rows of the table.
        chosen: Those that are in the store.
        missing: Rows that are not, with the reason.
        hash: The hash of the table.
    """

    __test__ = False
    rows: pd.DataFrame
    chosen: PatchSet
    hash: str

    @property
    def missing(self) -> Mapping[int, str]:
        """Rows that are not in the store, with the reason."""
        return self.chosen.missing

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        """Whether each row is in the store."""
        there = np.ones(len(self.rows), bool)
        there[list(self.missing)] = False
        return there


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainPlan:
    """All that is to be done.

    Attributes:
        store: The store.
        settings: How models are trained.
        sets: The sets.
        models: The models, set by set.
        test: The test patches; None: models are trained only.
    """

    store: PatchStore
    settings: TrainSettings
    sets: tuple[TrainingSet, ...]
    models: tuple[ModelPlan, ...]
    test: TestPatches | None


def plan_training(
    store: Path, sets: Sequence[Path], *, test: Path | None, settings: TrainSettings
) -> TrainPlan:
    """Read the sets and the test patches, and decide what each model learns from.

    Args:
        store: The store of patches, with masks.
        sets: Patch tables; of each, the rows that are for training.
        test: The patch table that models are tested on; None: they are not.
        settings: How models are trained.

    Returns:
        The plan.

    Raises:
        UserError: A table or the store cannot be used, a patch of a set is not in the store, a fold has no slide with
            tumour, or a patient or a slide is both trained and tested on.
    """
    held = PatchStore(store)
    if not held.spec.masks:
        raise UserError(
            "this store holds no masks, which segmenters learn from",
            where=str(store),
            fix="Pack the slides with their annotations.",
        )
    if held.spec.size % 16:
        raise UserError(
            f"patches of {held.spec.size} pixels cannot be segmented",
            where=str(store),
            fix="Their side is a multiple of 16.",
        )
    if not sets:
        raise UserError("no training set was given", fix="Name one patch table or more.")
    names = [_set_name(path) for path in sets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"two sets are called {printable(twice[0])}",
            fix="The name of a set is that of its file: rename one.",
        )
    digest = segmenter_weights_digest(settings.training.network, settings.training.weights)
    found = [_read_set(path, name, held, settings) for path, name in zip(sets, names, strict=True)]
    tested = None if test is None else _read_test(test, held)
    if tested is not None:
        for one in found:
            _check_leaks(one, tested, held)
    models = [model for one in found for model in _models(one, held, settings, digest)]
    return TrainPlan(store=held, settings=settings, sets=tuple(found), models=tuple(models), test=tested)


def _set_name(path: Path) -> str:
    name = path.name.removesuffix(path.suffix)
    if not _NAME.fullmatch(name):
        raise UserError(
            "a set is called as its file, and this name cannot be that of a model",
            where=printable(str(path)),
            fix="Use letters, digits, '.', '_' and '-'.",
        )
    return name


def _slide_names(rows: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(rows["dataset"].fillna("").astype(str), rows["case_id"].astype(str), strict=True))


def _patients(rows: pd.DataFrame) -> list[str]:
    """Patients by dataset; a slide without a patient stands for one of its own."""
    patient = rows["patient_id"].fillna("").astype(str)
    dataset = rows["dataset"].fillna("").astype(str)
    own = "\0slide\0" + rows["case_id"].astype(str)
    return list(dataset + "\0" + patient.where(patient != "", own))


def _read_set(path: Path, name: str, store: PatchStore, settings: TrainSettings) -> TrainingSet:
    table = read_patch_table(path)
    rows = table.rows[table.rows["training"]].reset_index(drop=True)
    if rows.empty:
        raise UserError(
            "no row of this table is for training",
            where=str(path),
            fix="Give a table whose column `training` is true for the patches to learn from.",
        )
    slides = _slide_names(rows)
    chosen = store.select(slides, rows["i"], rows["j"])
    tumour = (rows["tumour"] > 0).to_numpy(bool)
    try:
        folds = patient_folds(
            _patients(rows),
            ["\0".join(one) for one in slides],
            tumour,
            folds=settings.folds,
            seed=settings.seed,
        )
    except UserError as error:
        raise UserError(error.what, where=str(path), fix=error.fix) from error
    return TrainingSet(
        name=name, hash=table.hash, about=_about(table), rows=rows, positions=chosen.positions, folds=folds
    )


def _about(table: PatchTable) -> Mapping[str, Any]:
    about = table.provenance.get("set")
    return about if isinstance(about, Mapping) else {}


def _read_test(path: Path, store: PatchStore) -> TestPatches:
    table = read_patch_table(path)
    rows = table.rows.reset_index(drop=True)
    unknown = int(rows["tumour"].isna().sum())
    if rows.empty or unknown == len(rows):
        raise UserError(
            "no patch of this table has a known tumour share", where=str(path), fix="Cut it with annotations."
        )
    rows = rows[rows["tumour"].notna()].reset_index(drop=True)
    chosen = store.select(_slide_names(rows), rows["i"], rows["j"], missing="leave out")
    if not len(chosen):
        raise UserError(
            "no patch of this table is in the store",
            where=str(path),
            fix="Pack them with elsewhere slides pack.",
        )
    return TestPatches(rows=rows, chosen=chosen, hash=table.hash)


def _check_leaks(one: TrainingSet, test: TestPatches, store: PatchStore) -> None:
    """No patient and no file of a slide is trained and tested on."""
    shared = sorted(set(_patients(one.rows)) & set(_patients(test.rows)))
    if shared:
        slides = test.rows["case_id"][np.isin(_patients(test.rows), shared)].astype(str)
        raise UserError(
            f"{len(shared)} patients are both in the set {one.name} and among the test patches",
            where=f"slides {name_rows(sorted(set(slides)), limit=3)}",
            fix="Cut the test patches from other patients: all slides of a patient are on one side.",
        )
    digests = [
        {
            str(store.slides[name].facts.get("slide_sha256") or name): name[1]
            for name in sorted(set(_slide_names(rows)))
            if name in store.slides
        }
        for rows in (one.rows, test.rows)
    ]
    if same := sorted(set(digests[0]) & set(digests[1])):
        raise UserError(
            f"{len(same)} slides of the set {one.name} are among the test patches under another name",
            where=f"slides {printable(digests[0][same[0]])} and {printable(digests[1][same[0]])}",
            fix="Leave one of them out.",
        )


def _models(
    one: TrainingSet, store: PatchStore, settings: TrainSettings, weights_digest: str
) -> list[ModelPlan]:
    used = sorted(set(_slide_names(one.rows)))
    content = {
        "version": VERSION,
        "settings": {
            **asdict(settings.training),
            "weights": settings.training.weights if not weights_digest else "",
            "weights_digest": weights_digest,
        },
        "folds": settings.folds,
        "seed": settings.seed,
        "set": one.hash,
        "patches": store.spec.to_dict(),
        "slides": [
            [
                *name,
                *(str(store.slides[name].facts.get(part)) for part in ("slide_sha256", "annotation_sha256")),
            ]
            for name in used
        ],
    }
    made = []
    for fold in range(1, settings.folds + 1):
        text = json.dumps({**content, "fold": fold}, sort_keys=True)
        seed = int(np.random.SeedSequence([settings.seed, fold]).generate_state(1)[0])
        held_out = one.folds.fold == fold
        made.append(
            ModelPlan(
                name=f"{one.name}-fold{fold}",
                key=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
                set=one,
                fold=fold,
                train=one.positions[~held_out],
                validation=one.positions[held_out],
                seed=seed,
            )
        )
    return made
