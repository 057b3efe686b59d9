"""Writes an outcome as files, reads it back, and joins two outcomes of the same training."""

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
"""The array with the answer kind of each task, and what stands between a task's name and that of an array."""


class NotInstalledError(UserError):
    """A stored outcome needs a package that is not installed here; the files are left as they are."""


def check_outcome(unit: Training, outcome: Outcome) -> str:
    """Say what is wrong with the shape of an outcome.

    Args:
        unit: The training.
        outcome: What the trainer handed over for it.

    Returns:
        A sentence; empty where nothing is wrong.
    """
    n = len(outcome.case)
    if len(set(outcome.case)) != n:
        return "the trainer predicted a case twice"
    if set(outcome.answers) != set(unit.recipe.tasks):
        return "the recipe answered other tasks than it was asked for"
    for task, answers in outcome.answers.items():
        kind = getattr(answers, "kind", "")
        if kind not in answer_kinds:
            return f"its answers to {task} are of {type(answers).__name__}, which is not an answer kind"
        wrong = answer_kinds.get(kind).check(answers, n)
        if wrong:
            return wrong
    if np.asarray(outcome.fingerprint).shape != (n,):
        return "the trainer gave no fingerprint for each predicted case"
    if outcome.cost is not None and np.asarray(outcome.cost).shape != (n, len(unit.recipe.tasks), len(COSTS)):
        return "the recipe's costs are not one number per case, task and kind"
    if unit.keep_weights and not outcome.weights:
        return "the trainer gave no weights, although the unit saves them"
    if outcome.weights and not isinstance(outcome.weights, StoredWeights):
        wrong = wrong_with(outcome.weights)
        return f"the recipe's weights cannot be saved: {wrong}" if wrong else ""
    return ""


def to_files(unit: Training, outcome: Outcome) -> dict[str, bytes | dict[str, Any]]:
    """Encode an outcome as the files of a folder of the store.

    Args:
        unit: The training that gave it.
        outcome: The outcome, checked by `check_outcome`.

    Returns:
        Bytes by file name. 'done.json' is a mapping instead: the store adds the digests and writes it last.

    Raises:
        TypeError: The weights cannot be saved as plain data.
        ValueError: A number that has to be finite is not.

    Example:
        >>> from elsewhere.engine.training import RecipeSpec
        >>> outcome = Outcome(case=("A/1",), fingerprint=np.zeros(1, dtype=np.uint64))
        >>> sorted(to_files(Training(recipe=RecipeSpec(name="coin")), outcome))
        ['done.json', 'history.json', 'outputs.npz', 'unit.json']
    """
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
    """Read the outcome that `to_files` wrote. Weights are opened when they are first used.

    Args:
        folder: The folder of the training in the store.
        done: The content of its 'done.json', with the digests of the files.

    Returns:
        The outcome.

    Raises:
        NotInstalledError: Its answers are of a kind that no installed package knows.
        UserError: A file is missing, or is no JSON within the limits.
        ValueError: The files hold something other than an outcome. Other errors of `files.DAMAGED_ARCHIVE`
            (such as KeyError and zipfile.BadZipFile) are possible too.
    """
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
        raise ValueError("the outputs are not a table")
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
    """Read the answers by task."""
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
    """Check the types in the record of who trained the weights (`engine.trained_on`)."""
    if not isinstance(record, Mapping):
        raise ValueError("trained_on is not a mapping")
    for name in ("patients", "ids", "also", "pixels", "clinical"):
        part = record.get(name, [])
        if not isinstance(part, list) or not all(isinstance(text, str) for text in part):
            raise ValueError(f"trained_on.{name} contains something other than names")
    for name in ("n_patients", "train", "validation"):
        if not isinstance(record.get(name, 0), int):
            raise ValueError(f"trained_on.{name} is not a count")
    for name, kind in (("datasets", int), ("cohorts", str)):
        part = record.get(name, {})
        if not isinstance(part, Mapping) or not all(isinstance(value, kind) for value in part.values()):
            raise ValueError(f"trained_on.{name} is not a list of datasets")
    if not isinstance(record.get("study", ""), str):
        raise ValueError("trained_on.study is not a name")


def merged(old: Outcome, new: Outcome) -> Outcome:
    """Join two outcomes of the same training: the newer one, with cases that only the older one predicted.

    Such cases belong to another study. A case whose pixels or box have changed is taken from the newer
    outcome. Where the kinds of answers differ, or only one has costs, the newer outcome stays as it is.
    Weights are the newer ones where there are any.

    Args:
        old: The outcome in the store.
        new: The outcome of the same training (the same key), done again.

    Returns:
        The joined outcome.
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
    """Saved weights: checked when they are first used, and read without running any code that they contain.

    A file of torch is read with `weights_only=True`, and what a recipe saved as arrays and JSON.

    Args:
        path: The file, weights.pt or weights.npz.
        digest: The sha256 that the file had when it was written, hexadecimal.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self.path, self._digest = path, digest
        self._state: dict[str, Any] | None = None

    def check(self) -> None:
        """Compare the file with its digest.

        Raises:
            UserError: The file is missing, or differs from what was written.
        """
        if not self.path.is_file() or digest_of(self.path) != self._digest:
            raise UserError(
                "the saved weights differ from what was written",
                where=str(self.path),
                fix=f"Remove the folder {self.path.parent.name} of the store and run again.",
            )

    def _read(self) -> dict[str, Any]:
        if self._state is None:
            self.check()
            try:
                self._state = self._unpacked()
            except OSError as error:
                raise file_system_error(error, "the saved weights cannot be read", where=self.path) from error
            except SizeLimitError:
                raise
            except (UserError, *DAMAGED_ARCHIVE, pickle.PickleError) as error:
                raise UserError(
                    f"the saved weights cannot be read ({type(error).__name__}: {str(error)[:150]})",
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
        """Return the bytes of the file, unchecked.

        Returns:
            The bytes.
        """
        return self.path.read_bytes()


def _weights_file(weights: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the name and the content of the file of weights; stored weights stay as they are."""
    if isinstance(weights, StoredWeights):
        return weights.path.name, weights.file_bytes()
    return WEIGHTS_NPZ, pack_kept(weights)


def _plain(value: float) -> float | int | str | None:
    """Write a number as JSON can hold it: NaN as null, an infinity as its name."""
    if isinstance(value, int):
        return value
    value = float(value)
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)


def plain_json(value: Any) -> Any:
    """Convert what a recipe reports to values that JSON can hold.

    Numbers of numpy become Python's, NaN becomes None, an infinity its name, sets and arrays become lists,
    and anything else its text.

    Args:
        value: Any value.

    Returns:
        Mappings with text as keys, lists, text, numbers, True, False and None.

    Example:
        >>> plain_json({"dice": np.float32(0.5), "empty": float("nan"), 2: (1,)})
        {'dice': 0.5, 'empty': None, '2': [1]}
    """
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
