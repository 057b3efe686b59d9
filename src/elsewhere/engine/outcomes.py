"""An outcome as files, and back; two outcomes of the same training as one."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.arrays import read_arrays
from elsewhere.engine.earlier_layout import answers_of
from elsewhere.engine.files import digest_of, to_json
from elsewhere.engine.kept import WEIGHT_FILES, WEIGHTS_NPZ, pack_kept, unpack_kept, wrong_with
from elsewhere.engine.training import COSTS, Outcome, Training
from elsewhere.errors import UserError
from elsewhere.files import DAMAGED_ARCHIVE, SizeLimitError, check_archive, file_system_error
from elsewhere.predictions.answers import answer_kinds
from elsewhere.untrusted import MAX_JSON_BYTES, parse_json, read_text

ANSWERS, SEPARATOR = "answers", "/"
"""Of the outputs: which answer kind each task has, and what parts a task's name from that of an array."""


class NotInstalledError(UserError):
    """A stored outcome that a package which is not installed here would understand. It is left as it is."""


def check_outcome(unit: Training, outcome: Outcome) -> str:
    """Say what is wrong with the shape of an outcome.

    Args:
        unit: The training.
        outcome: What it gave.

    Returns:
        A sentence; empty where nothing is wrong.
    """
    n = len(outcome.case)
    if len(set(outcome.case)) != n:
        return "the trainer predicted a case twice"
    if set(outcome.answers) != set(unit.recipe.tasks):
        return "the recipe gave other tasks' answers than it was asked for"
    for task, answers in outcome.answers.items():
        kind = getattr(answers, "kind", "")
        if kind not in answer_kinds:
            return f"its answers to {task} are of {type(answers).__name__}, which is no answer kind"
        wrong = answer_kinds.get(kind).check(answers, n)
        if wrong:
            return wrong
    if np.asarray(outcome.fingerprint).shape != (n,):
        return "the trainer gave no fingerprint for each predicted case"
    if outcome.cost is not None and np.asarray(outcome.cost).shape != (n, len(unit.recipe.tasks), len(COSTS)):
        return "the recipe's costs are not a number a case, task and kind"
    if unit.keep_weights and not outcome.weights:
        return "the trainer gave no weights, and the unit keeps them"
    if outcome.weights and not isinstance(outcome.weights, StoredWeights):
        wrong = wrong_with(outcome.weights)
        return f"the recipe's weights cannot be kept: {wrong}" if wrong else ""
    return ""


def to_files(unit: Training, outcome: Outcome) -> dict[str, bytes | dict[str, Any]]:
    """File name -> bytes; 'done.json' is what the store completes with the digests, and writes last."""
    arrays: dict[str, np.ndarray] = {
        "case": np.array(outcome.case, dtype=np.str_),
        "fingerprint": np.asarray(outcome.fingerprint, dtype=np.uint64),
        ANSWERS: np.array(json.dumps({task: answers.kind for task, answers in outcome.answers.items()})),
    }
    for task, answers in outcome.answers.items():
        packed_answers = answer_kinds.get(answers.kind).pack(answers)
        arrays |= {f"{task}{SEPARATOR}{name}": array for name, array in packed_answers.items()}
    if outcome.cost is not None:
        arrays["cost"] = np.asarray(outcome.cost, dtype=np.float64)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    history = [{name: _plain(value) for name, value in entry.items()} for entry in outcome.history]
    files: dict[str, bytes | dict[str, Any]] = {
        "unit.json": to_json(unit.to_dict()),
        "outputs.npz": packed.getvalue(),
        "history.json": to_json(history),
        "done.json": {
            "name": unit.name,
            "seconds": float(outcome.seconds),
            "device": str(outcome.device),
            "versions": {str(name): str(value) for name, value in outcome.versions.items()},
            "images": int(outcome.images),
            "epochs": len(outcome.history),
            "best_epoch": int(outcome.best_epoch),
            "notes": list(map(str, outcome.notes)),
            "details": plain_json(outcome.details),
        },
    }
    if outcome.weights is not None:
        name, content = _weights_file(outcome.weights)
        files[name] = content
        if outcome.trained_on is not None:
            files["done.json"] = {**files["done.json"], "trained_on": plain_json(outcome.trained_on)}  # type: ignore[dict-item]
    return files


def from_files(folder: Path, done: Mapping[str, Any]) -> Outcome:
    """The outcome that `to_files` wrote; one of `files.DAMAGED_ARCHIVE`, or a UserError, where the files hold something else."""
    arrays = read_arrays(folder / "outputs.npz")
    history = parse_json(
        read_text(folder / "history.json", most=MAX_JSON_BYTES), where=str(folder), what="history.json"
    )
    weights = None
    for name in WEIGHT_FILES:
        if name in done["digests"]:
            weights = StoredWeights(folder / name, done["digests"][name])
    trained_on = done.get("trained_on")
    if trained_on is not None:
        _check_record(trained_on)
    if arrays["case"].ndim != 1 or not isinstance(done["device"], str):
        raise ValueError("the outputs are no table")
    return Outcome(
        case=tuple(map(str, arrays["case"])),
        fingerprint=arrays["fingerprint"],
        answers=_answers(arrays),
        cost=arrays.get("cost"),
        history=tuple({name: _number(value) for name, value in entry.items()} for entry in history),
        best_epoch=int(done["best_epoch"]),
        images=int(done["images"]),
        seconds=float(done["seconds"]),
        device=str(done["device"]),
        versions=dict(done["versions"]),
        weights=weights,
        notes=tuple(map(str, done.get("notes", ()))),
        details=dict(done.get("details", {})),
        trained_on=trained_on,
    )


def _answers(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The answers by task."""
    if ANSWERS not in arrays:
        return answers_of(arrays)
    kinds = parse_json(str(arrays[ANSWERS][()]), where="outputs.npz", what="list of answers")
    if not isinstance(kinds, dict) or not all(isinstance(kind, str) for kind in kinds.values()):
        raise ValueError("the list of answers names no kinds")
    found = {}
    for task, kind in kinds.items():
        if kind not in answer_kinds:
            raise NotInstalledError(
                f"the answers to {task} are of the kind '{kind}', which is not known here",
                fix="Install the package that brings it.",
            )
        head = f"{task}{SEPARATOR}"
        own = {name.removeprefix(head): array for name, array in arrays.items() if name.startswith(head)}
        found[task] = answer_kinds.get(kind).unpack(own)
    return found


def _check_record(record: Any) -> None:
    """Whom kept weights were trained on (`engine.trained_on`): where a part is there, it is of its type."""
    if not isinstance(record, Mapping):
        raise ValueError("trained_on is no mapping")
    for name in ("patients", "ids", "also", "pixels", "clinical"):
        part = record.get(name, [])
        if not isinstance(part, list) or not all(isinstance(text, str) for text in part):
            raise ValueError(f"trained_on.{name} holds something else than names")
    for name in ("n_patients", "train", "validation"):
        if not isinstance(record.get(name, 0), int):
            raise ValueError(f"trained_on.{name} is no count")
    for name, kind in (("datasets", int), ("cohorts", str)):
        part = record.get(name, {})
        if not isinstance(part, Mapping) or not all(isinstance(value, kind) for value in part.values()):
            raise ValueError(f"trained_on.{name} is no list of datasets")
    if not isinstance(record.get("study", ""), str):
        raise ValueError("trained_on.study is no name")


def merged(old: Outcome, new: Outcome) -> Outcome:
    """The newer training, with the rows of cases that only the older one (of the same key) predicted: those
    belong to another study. A case whose pixels or box changed is the newer one's.
    """
    have = set(new.case)
    extra = np.array([at for at, name in enumerate(old.case) if name not in have], dtype=np.int64)
    kept = new if new.weights is not None else old
    weights, trained_on = kept.weights, kept.trained_on
    kinds = {task: answers.kind for task, answers in new.answers.items()}
    alike = kinds == {task: answers.kind for task, answers in old.answers.items()}
    if not len(extra) or not alike or (old.cost is None) != (new.cost is None):
        return replace(new, weights=weights, trained_on=trained_on)
    answers = {}
    for task, kind in kinds.items():
        by = answer_kinds.get(kind)
        answers[task] = by.join(new.answers[task], by.take(old.answers[task], extra))
    return replace(
        new,
        case=(*new.case, *(old.case[at] for at in extra)),
        fingerprint=np.concatenate([new.fingerprint, old.fingerprint[extra]]).astype(np.uint64),
        answers=answers,
        cost=None if new.cost is None or old.cost is None else np.concatenate([new.cost, old.cost[extra]]),
        weights=weights,
        trained_on=trained_on,
    )


class StoredWeights(Mapping[str, Any]):
    """Kept weights, checked when they are first used, and read without any code in them: a state dict with
    `weights_only=True`, what a recipe kept as arrays and JSON."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path, self._digest = path, digest
        self._state: dict[str, Any] | None = None

    def check(self) -> None:
        if not self.path.is_file() or digest_of(self.path) != self._digest:
            raise UserError(
                "the kept weights differ from what was written",
                where=str(self.path),
                fix=f"Remove the folder {self.path.parent.name} of the store and run again.",
            )

    def _read(self) -> dict[str, Any]:
        if self._state is None:
            self.check()
            try:
                self._state = self._unpacked()
            except OSError as error:
                raise file_system_error(error, "the kept weights cannot be read", where=self.path) from error
            except SizeLimitError:
                raise
            except (UserError, *DAMAGED_ARCHIVE, pickle.PickleError) as error:
                raise UserError(
                    f"the kept weights cannot be read ({type(error).__name__}: {str(error)[:150]})",
                    where=str(self.path),
                    fix="Fetch the model file again; weights that hold code are never read.",
                ) from error
        return self._state

    def _unpacked(self) -> dict[str, Any]:
        if self.path.name == WEIGHTS_NPZ:
            return unpack_kept(self.path)
        import torch

        check_archive(self.path)
        return dict(torch.load(self.path, map_location="cpu", weights_only=True))

    def __getitem__(self, name: str) -> Any:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __bool__(self) -> bool:
        return True

    def file_bytes(self) -> bytes:
        return self.path.read_bytes()


def _weights_file(weights: Mapping[str, Any]) -> tuple[str, bytes]:
    """Its name and content. What is stored already stays as it is."""
    if isinstance(weights, StoredWeights):
        return weights.path.name, weights.file_bytes()
    return WEIGHTS_NPZ, pack_kept(weights)


def _plain(value: float) -> float | int | str | None:
    """JSON has no word for what is not finite: NaN is null, an infinity its name."""
    if isinstance(value, int):
        return value
    value = float(value)
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def plain_json(value: Any) -> Any:
    """Whatever a recipe tells, as JSON: numpy's numbers as Python's, what is not finite by `_plain`."""
    if isinstance(value, Mapping):
        return {str(name): plain_json(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | list | tuple | set | frozenset):
        return [plain_json(part) for part in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return _plain(float(value))
    return value if value is None or isinstance(value, str) else str(value)


def _number(value: float | int | str | None) -> float:
    return math.nan if value is None else value if isinstance(value, int) else float(value)
