"""How long a plan will take: from trainings of the same network in the store, else from rough constants."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.store import Store
from elsewhere.engine.unit import Unit
from elsewhere.errors import UserError
from elsewhere.inputs import Cases
from elsewhere.tables import write_json

ROUGH_SECONDS = {
    "cpu": {"efficientnet-b0": 0.12, "efficientnet-lite0": 0.06, "vit-b-16": 2.5, "": 0.10},
    "cuda": {"efficientnet-b0": 3e-4, "efficientnet-lite0": 2e-4, "vit-b-16": 3e-3, "": 5e-4},
}
"""Seconds a training image at the network's own size: orders of magnitude, not promises."""
OWN_SIZE = {"vit-b-16": 384}
PREDICTING = 0.35
"""What predicting an image costs, as a part of training on it."""
LOOKED_AT = 60


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Seconds for the units to do, and what the number rests on."""

    seconds: float
    images: int
    device: str
    basis: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 1),
            "training_images": self.images,
            "device": self.device,
            "basis": self.basis,
        }

    def text(self) -> str:
        return f"about {in_words(self.seconds)} on {self.device} ({self.basis})"


def in_words(seconds: float) -> str:
    """'40 s', '12 min', '3.5 h'."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def training_images(unit: Unit, cases: Cases) -> int:
    """At most: every epoch, with the rarer class drawn as often as the other."""
    label = cases.label[cases.rows(unit.train)]
    counts = np.bincount(label[label >= 0], minlength=2)
    an_epoch = 2 * int(counts.max()) if unit.recipe.oversample and unit.kind == "classify" else len(label)
    return an_epoch * unit.recipe.epochs


def guess_device(device: str) -> str:
    """'cuda' or 'cpu', without importing torch."""
    if device.startswith("cuda"):
        return "cuda"
    if device != "auto":
        return "cpu"
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


def estimate(units: Iterable[Unit], cases: Cases, store: Store, *, device: str = "auto") -> Estimate:
    """For these units on this kind of device."""
    kind = guess_device(device)
    known = _known_rates(store, kind)
    overlap = _overlap(store, kind)
    seconds, images, sources = 0.0, 0, set()
    for unit in units:
        count = training_images(unit, cases)
        images += count
        effort = count + PREDICTING * len(unit.predict)
        rate = known.get((unit.recipe.network, unit.input.kind, unit.input.size_px))
        if rate is not None:
            sources.add("measured")
            seconds += effort * rate * overlap
        else:
            sources.add("rough")
            table = ROUGH_SECONDS[kind]
            own = OWN_SIZE.get(unit.recipe.network, 224)
            seconds += effort * table.get(unit.recipe.network, table[""]) * (unit.input.size_px / own) ** 2
    basis = {
        frozenset(): "nothing to do",
        frozenset({"measured"}): "from trainings in the store",
        frozenset({"rough"}): "a rough guess: no such training is in the store yet",
    }.get(frozenset(sources), "partly from trainings in the store, partly a rough guess")
    return Estimate(seconds=seconds, images=images, device=kind, basis=basis)


def note_speed(store: Store, keys: Iterable[str], wall_seconds: float) -> None:
    """Trainings run side by side: what they took together, against the sum of what each took."""
    total: dict[str, float] = defaultdict(float)
    for key in keys:
        try:
            info = store.info(key)
        except UserError:
            continue
        total["cuda" if "cuda" in str(info.get("device")) else "cpu"] += float(info.get("seconds") or 0)
    if len(total) != 1:
        return
    kind, summed = next(iter(total.items()))
    if summed > 0:
        held = _read(store)
        held[kind] = min(1.0, wall_seconds / summed)
        write_json(held, _file(store))


def _known_rates(store: Store, kind: str) -> dict[tuple[str, str, int], float]:
    """Seconds an image by network, input and size, from stored units of this kind of device."""
    seconds: dict[tuple[str, str, int], float] = defaultdict(float)
    effort: dict[tuple[str, str, int], float] = defaultdict(float)
    keys = store.keys()
    for key in keys[:: max(1, len(keys) // LOOKED_AT)]:
        try:
            info = store.info(key)
            unit = Unit.from_dict(json.loads((store.path / "units" / key / "unit.json").read_text("utf-8")))
        except (UserError, OSError, ValueError, TypeError):
            continue
        if ("cuda" in str(info.get("device"))) != (kind == "cuda") or not info.get("images"):
            continue
        name = (unit.recipe.network, unit.input.kind, unit.input.size_px)
        seconds[name] += float(info["seconds"])
        effort[name] += int(info["images"]) + PREDICTING * len(unit.predict)
    return {name: seconds[name] / effort[name] for name in seconds if effort[name] > 0}


def _overlap(store: Store, kind: str) -> float:
    return float(_read(store).get(kind, 1.0))


def _file(store: Store) -> Path:
    return store.path / "cache" / "overlap.json"


def _read(store: Store) -> dict[str, float]:
    try:
        held = json.loads(_file(store).read_text(encoding="utf-8"))
        return {str(k): float(v) for k, v in held.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
