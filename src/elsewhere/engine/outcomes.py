"""An outcome as files, and back; two outcomes of the same training as one."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.arrays import read_arrays
from elsewhere.engine.files import digest_of, to_json
from elsewhere.engine.kept import WEIGHT_FILES, WEIGHTS_NPZ, WEIGHTS_PT, pack_kept, unpack_kept, wrong_with
from elsewhere.engine.packed_masks import from_arrays, to_arrays
from elsewhere.engine.training import COSTS, Outcome, Training
from elsewhere.errors import UserError
from elsewhere.files import DAMAGED_ARCHIVE, SizeLimitError, check_archive, file_system_error
from elsewhere.untrusted import MAX_JSON_BYTES, parse_json, read_text


def check_outcome(unit: Training, outcome: Outcome) -> str:
    """What is wrong with the shape of an outcome; empty where nothing is."""
    n = len(outcome.case)
    if len(set(outcome.case)) != n:
        return "the trainer predicted a case twice"
    logits, box = np.asarray(outcome.logits), outcome.box
    if unit.job is not None:
        wrong = _check_recipe(unit.job.tasks, outcome)
        if wrong:
            return wrong
    elif unit.kind == "find-boxes":
        if box is None or np.asarray(box).shape != (n, 4):
            return "the trainer gave no box for each predicted case"
    elif logits.shape != (n, 2):
        return f"the trainer gave logits of shape {logits.shape} for {n} cases"
    if np.asarray(outcome.fingerprint).shape != (n,):
        return "the trainer gave no fingerprint for each predicted case"
    if np.asarray(outcome.distance).shape not in ((n,), (0,)):
        return "the trainer gave no distance for each predicted case"
    if unit.keep_weights and not outcome.weights:
        return "the trainer gave no weights, and the unit keeps them"
    if unit.job is not None and outcome.weights and not isinstance(outcome.weights, StoredWeights):
        wrong = wrong_with(outcome.weights)
        return f"the recipe's weights cannot be kept: {wrong}" if wrong else ""
    return ""


def _check_recipe(tasks: tuple[str, ...], outcome: Outcome) -> str:
    """A recipe answers every task for every case, finitely."""
    n = len(outcome.case)
    if ("response" in tasks) != (outcome.probability is not None):
        return "the recipe gave other tasks' answers than it was asked for"
    if ("segmentation" in tasks) != (outcome.masks is not None):
        return "the recipe gave other tasks' answers than it was asked for"
    if outcome.probability is not None:
        p = np.asarray(outcome.probability)
        if p.shape != (n,) or not np.isfinite(p).all() or (p < 0).any() or (p > 1).any():
            return "the recipe gave no probability from 0 to 1 for each predicted case"
    if outcome.masks is not None:
        if len(outcome.masks) != n:
            return "the recipe gave no mask for each predicted case"
        wrong = next((mask.wrong() for mask in outcome.masks if mask.wrong()), "")
        if wrong:
            return wrong
    if outcome.cost is not None and np.asarray(outcome.cost).shape != (n, len(tasks), len(COSTS)):
        return "the recipe's costs are not a number a case, task and kind"
    return ""


def to_files(unit: Training, outcome: Outcome) -> dict[str, bytes | dict[str, Any]]:
    """File name -> bytes; 'done.json' is what the store completes with the digests, and writes last."""
    arrays: dict[str, np.ndarray] = {
        "case": np.array(outcome.case, dtype=np.str_),
        "fingerprint": np.asarray(outcome.fingerprint, dtype=np.uint64),
        "logits": np.asarray(outcome.logits, dtype=np.float32).reshape(-1, 2),
        "distance": np.asarray(outcome.distance, dtype=np.float32),
    }
    if outcome.box is not None:
        arrays["box"] = np.asarray(outcome.box, dtype=np.int32)
    if outcome.probability is not None:
        arrays["probability"] = np.asarray(outcome.probability, dtype=np.float64)
    if outcome.masks is not None:
        arrays |= to_arrays(outcome.masks)
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
        },
    }
    if unit.job is not None:
        told = {"notes": list(map(str, outcome.notes)), "details": plain_json(outcome.details)}
        files["done.json"] = {**files["done.json"], **told}  # type: ignore[dict-item]
    if outcome.weights is not None:
        files[WEIGHTS_PT if unit.job is None else WEIGHTS_NPZ] = _weights_bytes(unit, outcome.weights)
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
        logits=arrays["logits"],
        distance=arrays["distance"],
        box=arrays.get("box"),
        history=tuple({name: _number(value) for name, value in entry.items()} for entry in history),
        best_epoch=int(done["best_epoch"]),
        images=int(done["images"]),
        seconds=float(done["seconds"]),
        device=str(done["device"]),
        versions=dict(done["versions"]),
        weights=weights,
        probability=arrays.get("probability"),
        masks=from_arrays(arrays),
        cost=arrays.get("cost"),
        notes=tuple(map(str, done.get("notes", ()))),
        details=dict(done.get("details", {})),
        trained_on=trained_on,
    )


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
    unlike = any(
        (getattr(old, name) is None) != (getattr(new, name) is None)
        for name in ("box", "probability", "masks", "cost")
    )
    if not len(extra) or unlike:
        return replace(new, weights=weights, trained_on=trained_on)

    def joined(one: np.ndarray, two: np.ndarray) -> np.ndarray:
        if len(one) != len(new.case):
            return one
        fill = two[extra] if len(two) == len(old.case) else np.full((len(extra), *one.shape[1:]), np.nan)
        return np.concatenate([one, fill]).astype(one.dtype)

    return replace(
        new,
        case=(*new.case, *(old.case[at] for at in extra)),
        fingerprint=joined(np.asarray(new.fingerprint), old.fingerprint),
        logits=joined(np.asarray(new.logits), old.logits),
        distance=joined(np.asarray(new.distance), old.distance),
        box=None if new.box is None or old.box is None else joined(np.asarray(new.box), old.box),
        probability=None
        if new.probability is None or old.probability is None
        else joined(np.asarray(new.probability), old.probability),
        masks=None
        if new.masks is None or old.masks is None
        else (*new.masks, *(old.masks[at] for at in extra)),
        cost=None if new.cost is None or old.cost is None else joined(np.asarray(new.cost), old.cost),
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


def _weights_bytes(unit: Training, weights: Mapping[str, Any]) -> bytes:
    if isinstance(weights, StoredWeights):
        return weights.file_bytes()
    if unit.job is not None:
        return pack_kept(weights)
    import torch

    packed = io.BytesIO()
    torch.save(dict(weights), packed)
    return packed.getvalue()


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
