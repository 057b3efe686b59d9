"""Train the models of a plan, let them answer on the test patches, and add the answers up (LN-09, LN-10)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from elsewhere.commands.output import Report
from elsewhere.commands.slide_training.models import ModelFolder
from elsewhere.commands.slide_training.plan import (
    ModelPlan,
    TestPatches,
    TrainingSet,
    TrainPlan,
    TrainSettings,
    plan_training,
)
from elsewhere.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from elsewhere.files import human_bytes
from elsewhere.scoring.patch_rows import sum_patches
from elsewhere.tables import write_json, write_table
from elsewhere.training.patches.augment import epoch_steps
from elsewhere.untrusted import read_json

MODELS_AT_ONCE = 32
"""Models that answer on a patch after it is read once."""
PATCHES_AT_ONCE = 1024
"""Test patches that are read in one piece."""
ID, OOD = "ID", "OOD"
_FACTS = ("patient_id", "dataset", "site", "stage", "domain")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where trainings run; no number depends on it but for rounding.

    Attributes:
        device: "auto", "cpu", "cuda" or "cuda:N".
        lanes: Trainings at the same time on a GPU; 0: the default of the network.
    """

    device: str = "auto"
    lanes: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainReport:
    """What is to be trained, or was.

    Attributes:
        out: The folder of the models.
        plan: What was asked for.
        dry_run: Whether nothing was done.
        stored: Models that were there before.
        trained: Models that were trained now.
        failed: Models that could not be trained, with the reason.
        scores: One row per set, with means over the folds; None where nothing was tested.
        domains: How the domain of test slides was found.
    """

    out: Path
    plan: TrainPlan
    dry_run: bool = False
    stored: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    scores: pd.DataFrame | None = None
    domains: str = ""

    @property
    def exit_code(self) -> int:
        """0, or 5 where a model could not be trained or a test patch is missing."""
        lost = self.failed or (self.plan.test is not None and self.plan.test.missing)
        return EXIT_INCOMPLETE if lost else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            Sets, models, failures and scores; no patient.
        """
        plan = self.plan
        return {
            "out": str(self.out),
            "dry_run": self.dry_run,
            "settings": {
                **asdict(plan.settings.training),
                "folds": plan.settings.folds,
                "seed": plan.settings.seed,
            },
            "patches": plan.store.spec.to_dict(),
            "sets": [_set_dict(one) for one in plan.sets],
            "models": len(plan.models),
            "stored_before": list(self.stored),
            "trained": list(self.trained),
            "failed": [{"model": name, "reason": why} for name, why in self.failed],
            "test": None
            if plan.test is None
            else {"hash": plan.test.hash, "patches": len(plan.test.rows), "missing": len(plan.test.missing)},
            "domains": self.domains,
            "scores": None if self.scores is None else self.scores.to_dict("records"),
        }

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        plan = self.plan
        training = plan.settings.training
        spec = plan.store.spec
        yield f"patches: {spec.grid_words()}; stain: {spec.stain_words()}"
        yield (
            f"{training.network} from {'fresh' if training.weights == 'none' else training.weights} weights; focal Tversky "
            f"loss, reading {training.loss}; batches of {training.batch}, at most {training.epochs} epochs"
        )
        for one in plan.sets:
            tumour = int((one.rows["tumour"] > 0).sum())
            yield (
                f"set {one.name}: {len(one.rows):,} patches of {one.slides} slides, {tumour:,} with tumour; slides with tumour "
                f"per fold: {', '.join(map(str, one.folds.tumour_slides))}"
            )
        if plan.test is not None:
            yield f"test: {len(plan.test.rows):,} patches of {plan.test.rows['case_id'].nunique()} slides"
            if plan.test.missing:
                yield (
                    f"warning: {len(plan.test.missing):,} test patches are not in the store and count with the worst value; "
                    f"first reason: {plan.test.missing[min(plan.test.missing)]}"
                )
        if self.dry_run:
            steps = sum(
                epoch_steps(len(model.train), training.batch) * training.epochs for model in plan.models
            )
            pool = len(_pool_positions(plan.models)) * (spec.patch_bytes + spec.mask_bytes)
            yield (
                f"{len(plan.models)} models to train, {len(self.stored)} of them are there; at most {steps:,} steps for all; "
                f"their patches take {human_bytes(pool)} of memory"
            )
            yield "nothing was written"
            return
        yield f"{len(self.trained)} models were trained, {len(self.stored)} were there before"
        for name, why in self.failed:
            yield f"{name}: not trained: {why}"
        if self.scores is not None:
            if self.domains:
                yield self.domains
            for row in self.scores.to_dict("records"):
                parts = [
                    f"{domain or 'all'}: Dice {_number(row[f'dice_{domain}'])}, false-positive rate {_number(row[f'fpr_{domain}'], 4)}"
                    for domain in _domains(self.scores)
                ]
                yield f"{row['model']} ({row['folds']} folds): {'; '.join(parts)}"
            yield f"To judge whether the models generalise: elsewhere generalise {self.out / 'patch-scores.parquet'}"
        yield f"written: {self.out}"


def train_models(
    store: Path,
    sets: Sequence[Path],
    *,
    out: Path,
    test: Path | None = None,
    settings: TrainSettings | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    progress: Report | None = None,
) -> TrainReport:
    """Train a segmenter for each set and fold, and let each answer on the test patches; what is there is not done again.

    Args:
        store: The store of patches, with masks.
        sets: Patch tables; of each, the rows that are for training.
        out: The folder of the models.
        test: The patch table that models are tested on; None: they are not.
        settings: How models are trained; None for the defaults.
        options: Where they are trained; None for the defaults.
        dry_run: Whether only to read, decide and estimate.
        progress: Called with a step, how much of it is done and how much there is; None for no reports.

    Returns:
        What was done.

    Raises:
        UserError: A table, the store or the folder cannot be used; see `plan_training`.
        FileSystemError: The disk is full, or refuses.
    """
    plan = plan_training(store, sets, test=test, settings=settings or TrainSettings())
    folder = ModelFolder(out)
    folder.check()
    stored = _stored(plan, folder)
    if dry_run:
        return TrainReport(out=out, plan=plan, dry_run=True, stored=tuple(stored))
    with folder.locked():
        left = [model for model in plan.models if model.name not in stored]
        trained, failed = _train(left, plan, folder, options or RunOptions(), progress)
        done = [*stored, *trained]
        scores, domains = None, ""
        if plan.test is not None and done:
            domains = _answer(plan, folder, done, options or RunOptions(), progress)
            scores = _add_up(folder)
        _write_tables(plan, folder, done)
    return TrainReport(
        out=out,
        plan=plan,
        stored=tuple(stored),
        trained=tuple(trained),
        failed=tuple(failed),
        scores=scores,
        domains=domains,
    )


def _stored(plan: TrainPlan, folder: ModelFolder) -> list[str]:
    names = []
    for model in plan.models:
        note = folder.note(model.name)
        if note is None:
            continue
        if note["key"] != model.key:
            raise UserError(
                f"the folder holds another model called {model.name}: its patches, settings or seed were others",
                where=str(folder.path),
                fix="Write to another folder, or remove this one.",
            )
        names.append(model.name)
    return names


def _pool_positions(models: Sequence[ModelPlan]) -> npt.NDArray[np.int64]:
    parts = [part for model in models for part in (model.train, model.validation)]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _train(
    models: Sequence[ModelPlan],
    plan: TrainPlan,
    folder: ModelFolder,
    options: RunOptions,
    progress: Report | None,
) -> tuple[list[str], list[tuple[str, str]]]:
    if not models:
        return [], []
    from elsewhere.inputs.patches.store import PatchSet
    from elsewhere.training.patches.concurrent import PatchCallbacks, PatchOptions, train_segmenters
    from elsewhere.training.patches.settings import PatchOutcome, PatchPool, PatchTraining

    positions = _pool_positions(models)
    chosen = PatchSet(store=plan.store, positions=positions)
    # What would not leave room in memory for anything else is mapped from a file, which is removed at the end.
    mapped = folder.path / "pool.npy"
    large = len(positions) * plan.store.spec.patch_bytes > free_memory() / 2
    pool = PatchPool(
        pixels=chosen.lay_out(path=mapped if large else None, progress=progress),
        masks=chosen.lay_out(kind="masks", progress=progress),
    )
    by_key = {model.key: model for model in models}
    units = [
        PatchTraining(
            key=model.key,
            name=model.name,
            train=np.searchsorted(positions, model.train),
            validation=np.searchsorted(positions, model.validation),
            settings=plan.settings.training,
            seed=model.seed,
            checkpoint=folder.checkpoint(model.key),
        )
        for model in models
    ]
    trained: list[str] = []
    failed: list[tuple[str, str]] = []

    def finished(unit: PatchTraining, outcome: PatchOutcome) -> None:
        model = by_key[unit.key]
        folder.save(model.name, _note(model, plan, outcome), outcome.weights or {})
        folder.checkpoint(model.key).unlink(missing_ok=True)
        trained.append(model.name)

    try:
        train_segmenters(
            units,
            pool,
            callbacks=PatchCallbacks(
                finished=finished,
                failed=lambda unit, why: failed.append((unit.name, why)),
                progress=progress,
            ),
            options=PatchOptions(device=options.device, lanes=options.lanes),
        )
    finally:
        mapped.unlink(missing_ok=True)
    return [model.name for model in models if model.name in trained], failed


def free_memory() -> float:
    """Return how much memory of this machine is free.

    Returns:
        Bytes; infinity where the system does not say.

    Example:
        >>> free_memory() > 0
        True
    """
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf


def _note(model: ModelPlan, plan: TrainPlan, outcome: Any) -> dict[str, Any]:
    """What a model is; it names no patient and no slide."""
    return {
        "key": model.key,
        "set": model.set.name,
        "set_hash": model.set.hash,
        "about_set": {
            name: model.set.about[name] for name in ("clustering", "share") if name in model.set.about
        },
        "fold": model.fold,
        "folds": plan.settings.folds,
        "seed": model.seed,
        "settings": asdict(plan.settings.training),
        "patches": plan.store.spec.to_dict(),
        "training_patches": len(model.train),
        "validation_patches": len(model.validation),
        "best_epoch": outcome.best_epoch,
        "patches_seen": outcome.patches,
        "seconds": outcome.seconds,
        "history": list(outcome.history),
    }


def _answer(
    plan: TrainPlan, folder: ModelFolder, names: Sequence[str], options: RunOptions, progress: Report | None
) -> str:
    """Let every model answer on the test patches; each patch is read once for many models."""
    from elsewhere.training.patches.inference import SegmenterGroup, TrainedSegmenter

    test = plan.test
    if test is None:
        return ""
    facts, domains = _with_domain(test.rows, plan.sets)
    by_name = {model.name: model for model in plan.models}
    left = [name for name in names if not _answered(folder, by_name[name], test)]
    threshold = plan.settings.training.threshold
    for begin in range(0, len(left), MODELS_AT_ONCE):
        some = left[begin : begin + MODELS_AT_ONCE]
        group = SegmenterGroup(
            [
                TrainedSegmenter(
                    network=plan.settings.training.network, weights=folder.load(name), threshold=threshold
                )
                for name in some
            ],
            device=options.device,
        )
        counts = np.zeros((len(some), len(test.chosen), 4), np.int64)
        for start in range(0, len(test.chosen), PATCHES_AT_ONCE):
            rows = np.arange(start, min(start + PATCHES_AT_ONCE, len(test.chosen)))
            pixels = test.chosen.batch(rows)
            masks = plan.store.packed_masks(test.chosen.positions[rows])
            counts[:, rows] = group.count(pixels, masks)
            if progress is not None:
                progress(
                    f"test patches, models {begin + 1} to {begin + len(some)}",
                    int(rows[-1]) + 1,
                    len(test.chosen),
                )
        for at, name in enumerate(some):
            model = by_name[name]
            write_table(answer_rows(facts, test.present, counts[at], model), folder.answers_file(name))
            write_json({"key": model.key, "test_hash": test.hash}, _answers_note(folder, name))
    return domains


def _answers_note(folder: ModelFolder, name: str) -> Path:
    return folder.path / "answers" / f"{name}.json"


def _answered(folder: ModelFolder, model: ModelPlan, test: TestPatches) -> bool:
    note = _answers_note(folder, model.name)
    if not note.is_file() or not folder.answers_file(model.name).is_file():
        return False
    content = read_json(note, most=1 << 20, what="note of a model's answers")
    if content.get("test_hash") != test.hash:
        raise UserError(
            "the folder holds answers to other test patches",
            where=str(folder.path),
            fix="Write to another folder, or remove its folders `patches` and `answers`; the models stay.",
        )
    # Patches that were missing may have been packed since.
    return content.get("key") == model.key and not test.missing


def answer_rows(
    facts: pd.DataFrame, present: npt.NDArray[np.bool_], counts: npt.NDArray[np.int64], model: ModelPlan
) -> pd.DataFrame:
    """Make the rows of a model's answers: Dice of a tumour patch, false-positive rate of a normal one (LN-10).

    A patch is a tumour patch where its mask has any tumour. One that is not in the store has no value.

    Args:
        facts: The rows of the test table.
        present: Whether each row was answered.
        counts: (answered rows, 4) pixels: true positive, false positive, false negative, true negative.
        model: The model.

    Returns:
        One row per patch, with the columns that `elsewhere slides patch-scores` reads.
    """
    hit, alarm, miss, rest = counts.T.astype(float)
    tumour = np.asarray(facts["tumour"] > 0, bool).copy()
    tumour[present] = hit + miss > 0
    dice, fpr = np.full(len(facts), np.nan), np.full(len(facts), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        dice[present] = np.where(tumour[present], 2 * hit / (2 * hit + alarm + miss), np.nan)
        fpr[present] = np.where(tumour[present], np.nan, alarm / (alarm + rest))
    out = facts[["case_id", *(name for name in _FACTS if name in facts), "i", "j"]].copy()
    out["patch_type"] = facts["type"]
    out["model"], out["fold"], out["tumour"] = model.set.name, str(model.fold), tumour.astype(int)
    out["dice"], out["fpr"] = dice, fpr
    for at, name in enumerate(("tp", "fp", "fn", "tn")):
        out[name] = pd.array([pd.NA] * len(out), "Int64")
        out.loc[present, name] = counts[:, at]
    return out


def _with_domain(rows: pd.DataFrame, sets: Sequence[TrainingSet]) -> tuple[pd.DataFrame, str]:
    """The test rows with a domain: the table's own, or derived from the sites that trained (LN-01)."""
    domain = rows["domain"].fillna("").astype(str)
    if (domain != "").any():
        return rows, "Domains are those of the test table."
    trained = {str(site) for one in sets for site in one.rows["site"].dropna() if str(site)}
    site = rows["site"].fillna("").astype(str)
    if not trained or (site == "").all():
        return rows, "The tables name no sites: internal and external slides cannot be told apart."
    derived = np.where(site == "", "", np.where(site.isin(trained), ID, OOD))
    words = (
        f"Domains are derived: a test slide is {ID} if slides of its site are in a training set "
        f"({', '.join(sorted(trained))}), else {OOD}."
    )
    return rows.assign(domain=derived), words


def _add_up(folder: ModelFolder) -> pd.DataFrame:
    """Write the table of patch scores, and return means over folds per set."""
    summed = sum_patches(folder.path / "patches").table
    write_table(summed, folder.path / "patch-scores.parquet")
    domain = (
        summed["domain"].fillna("").astype(str) if "domain" in summed else pd.Series("", index=summed.index)
    )
    rows = []
    for model, part in summed.assign(domain=domain).groupby("model", sort=True):
        row: dict[str, Any] = {"model": model, "folds": int(part["fold"].nunique())}
        for name in sorted(set(domain)):
            of_domain = (
                part[part["domain"] == name]
                .groupby("fold")[["n_tumour", "sum_dice", "n_normal", "sum_fpr"]]
                .sum()
            )
            for metric, total, count in (("dice", "sum_dice", "n_tumour"), ("fpr", "sum_fpr", "n_normal")):
                has = of_domain[of_domain[count] > 0]
                row[f"{metric}_{name}"] = float((has[total] / has[count]).mean()) if len(has) else math.nan
        rows.append(row)
    return pd.DataFrame(rows)


def _domains(scores: pd.DataFrame) -> list[str]:
    return [str(name).removeprefix("dice_") for name in scores.columns if str(name).startswith("dice_")]


def _write_tables(plan: TrainPlan, folder: ModelFolder, names: Sequence[str]) -> None:
    """`models.csv`, one row per model with what it cost, and `history.csv`, one row per epoch."""
    models, history = [], []
    by_name = {model.name: model for model in plan.models}
    for name in sorted(names):
        note = folder.note(name)
        if note is None:
            continue
        about = note.get("about_set")
        about = about if isinstance(about, Mapping) else {}
        models.append(
            {
                "model": note["set"],
                "fold": note["fold"],
                "clustering": about.get("clustering", ""),
                "partial_share": about.get("share", ""),
                "slides": by_name[name].set.slides,
                **{
                    part: note[part]
                    for part in (
                        "training_patches",
                        "validation_patches",
                        "best_epoch",
                        "patches_seen",
                        "seconds",
                    )
                },
                "epochs": len(note["history"]),
            }
        )
        history += [{"model": note["set"], "fold": note["fold"], **entry} for entry in note["history"]]
    if models:
        write_table(pd.DataFrame(models), folder.path / "models.csv")
        write_table(pd.DataFrame(history), folder.path / "history.csv")


def _set_dict(one: TrainingSet) -> dict[str, Any]:
    return {
        "name": one.name,
        "hash": one.hash,
        "patches": len(one.rows),
        "slides": one.slides,
        "patients_per_fold": list(one.folds.patients),
        "tumour_slides_per_fold": list(one.folds.tumour_slides),
    }


def _number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "not defined"
