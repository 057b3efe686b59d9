"""How long a plan will take: from trainings of the same network on the same device in the store, else from
rough constants. What another device took is told beside it, and never taken for this one's."""

from __future__ import annotations

import json
import math
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elsewhere.engine.store import Store
from elsewhere.engine.threads import physical_cores, usable_cpus
from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from elsewhere.inputs import Cases
from elsewhere.tables import write_json

Rates = dict[tuple[str, str, int], float]
ROUGH_SECONDS = {
    "cpu": {
        "efficientnet-b0": 0.20,
        "efficientnet-lite0": 0.20,
        "efficientnet-lite1": 0.30,
        "efficientnet-lite2": 0.45,
        "vit-b-16": 4.5,
        "tiny-cnn": 0.003,
        "": 0.30,
    },
    "cuda": {
        "efficientnet-b0": 5e-4,
        "efficientnet-lite0": 3.6e-4,
        "efficientnet-lite1": 5e-4,
        "efficientnet-lite2": 6e-4,
        "vit-b-16": 1.25e-3,
        "tiny-cnn": 5e-5,
        "": 5e-4,
    },
}
"""Seconds a training image at the network's own size, checks and predictions included: of one core, and of a
GPU with its lanes filled. Measured: Lite0 and ViT-B/16 on an H200 (2,600 and 750 images a second over a whole
study), Lite0 (0.11 to 0.16 s a step), B0 and ViT-B/16 (3.9 s) on one core of a server; the others by their
GFLOP. A guess for any other machine."""
OWN_SIZE = {"vit-b-16": 384, "efficientnet-lite1": 240, "efficientnet-lite2": 260, "tiny-cnn": 64}
MOST_CORES = 16
"""More cores than this do not make one training faster."""
PREDICTING = 0.35
"""What predicting an image costs, as a part of training on it."""
LANES = {"vit-b-16": 2, "": 6}
"""Trainings side by side on a GPU, where the store does not say what that was worth."""
LOOKED_AT = 60


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Seconds for the units to do, and what the number rests on. `measured_on`: what trainings in the store
    say of other devices."""

    seconds: float
    images: int
    device: str
    basis: str
    measured_on: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "seconds": round(self.seconds, 1) if math.isfinite(self.seconds) else None,
            "training_images": self.images,
            "device": self.device,
            "basis": self.basis,
            "measured_on": {name: round(seconds, 1) for name, seconds in self.measured_on.items()},
        }

    def text(self) -> str:
        if math.isnan(self.seconds):
            elsewhere = "".join(f"; {in_words(s)} on {name}" for name, s in self.measured_on.items())
            return f"not known on {self.device} ({self.basis}{elsewhere})"
        if self.measured_on:
            elsewhere = ", ".join(f"{in_words(s)} on {name}" for name, s in self.measured_on.items())
            return (
                f"about {elsewhere} (from trainings in the store); on this {self.device}, {self.basis}: "
                f"about {in_words(self.seconds)}"
            )
        return f"about {in_words(self.seconds)} on {self.device} ({self.basis})"


def in_words(seconds: float) -> str:
    """'40 s', '12 min', '3.5 h', '6 days'."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


def training_images(unit: Training, cases: Cases) -> int:
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


def device_here(device: str) -> str:
    """As the store names it: 'cpu', or the GPU's name; 'cuda' where that cannot be told without torch."""
    if guess_device(device) == "cpu":
        return "cpu"
    names = _gpu_names()
    at = device.split(",")[0].partition(":")[2]
    place = int(at) if at.isdigit() else 0
    return names[place] if place < len(names) else "cuda"


def _gpu_names() -> list[str]:
    held = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        held += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    if held:
        return held
    try:
        words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        told = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in told.stdout.splitlines() if line.strip()]


def estimate(units: Iterable[Training], cases: Cases, store: Store, *, device: str = "auto") -> Estimate:
    """For these units on this device. Trainings of another device are counted apart."""
    units = list(units)
    if any(unit.job is not None for unit in units):
        return _estimate_recipes(units, store, device=device)
    kind, here = guess_device(device), device_here(device)
    known, overlap = _known_rates(store), _read(store)
    work = [(unit, training_images(unit, cases)) for unit in units]
    seconds, sources = 0.0, set()
    others = {name: 0.0 for name in known if name != here}
    for unit, count in work:
        effort = count + PREDICTING * len(unit.predict)
        name = (unit.recipe.network, unit.input.kind, unit.input.size_px)
        rate = known.get(here, {}).get(name)
        sources.add("rough" if rate is None else "measured")
        if rate is None:
            seconds += effort * _rough(unit, kind)
        else:
            seconds += effort * rate * _together(here, unit, overlap)
        for other in others:
            there = known[other].get(name, math.nan)
            others[other] += effort * there * _together(other, unit, overlap)
    basis = {
        frozenset(): "nothing to do",
        frozenset({"measured"}): "from trainings in the store",
        frozenset({"rough"}): "a rough guess: no such training is in the store yet",
    }.get(frozenset(sources), "partly from trainings in the store, partly a rough guess")
    told = {name: s for name, s in others.items() if math.isfinite(s)} if "rough" in sources else {}
    if told and "measured" not in sources:
        basis = "a rough guess"
    return Estimate(
        seconds=seconds, images=sum(n for _, n in work), device=here, basis=basis, measured_on=told
    )


def _estimate_recipes(units: list[Training], store: Store, *, device: str) -> Estimate:
    """From trainings of the same recipe and settings, by the cases that they train on and predict. A recipe
    of which nothing is in the store is not guessed at: it may be a coin or a week on a GPU.
    """
    here = device_here(device)
    rates = _recipe_rates(store)
    seconds, unknown = 0.0, set()
    others = {name: 0.0 for name in rates if name != here}
    for unit in units:
        effort = len(unit.train) + PREDICTING * len(unit.predict)
        rate = rates.get(here, {}).get(_recipe_kind(unit))
        if rate is None:
            unknown.add(unit.method)
        else:
            seconds += effort * rate
        for other in others:
            others[other] += effort * rates[other].get(_recipe_kind(unit), math.nan)
    told = {name: s for name, s in others.items() if math.isfinite(s)} if unknown else {}
    basis = "nothing to do" if not units else "from trainings in the store"
    if unknown:
        seconds, basis = math.nan, f"no training yet of {', '.join(sorted(unknown))}"
    return Estimate(
        seconds=seconds,
        images=sum(len(unit.train) for unit in units),
        device=here,
        basis=basis,
        measured_on=told,
    )


def _recipe_kind(unit: Training) -> str:
    return json.dumps(unit.job.to_dict(), sort_keys=True) if unit.job is not None else ""


def _recipe_rates(store: Store) -> dict[str, dict[str, float]]:
    """Seconds a case by recipe and settings, a device apart from another."""
    spent: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    keys = store.keys()
    for key in keys:
        try:
            unit = Training.from_dict(
                json.loads((store.path / "units" / key / "unit.json").read_text("utf-8"))
            )
            if unit.job is None:
                continue
            info = store.info(key)
        except (UserError, OSError, ValueError, TypeError):
            continue
        effort = len(unit.train) + PREDICTING * len(unit.predict)
        device = str(info.get("device") or "cpu")
        spent[device][_recipe_kind(unit)].append(float(info["seconds"]) / max(effort, 1.0))
    return {
        device: {kind: float(np.mean(rates)) for kind, rates in held.items()}
        for device, held in spent.items()
    }


def _rough(unit: Training, kind: str) -> float:
    """Seconds an image on a machine of this kind of which nothing is known."""
    table = ROUGH_SECONDS[kind]
    own = OWN_SIZE.get(unit.recipe.network, 224)
    a_core = table.get(unit.recipe.network, table[""]) * (unit.input.size_px / own) ** 2
    return a_core / (min(physical_cores(usable_cpus()), MOST_CORES) if kind == "cpu" else 1)


def _together(device: str, unit: Training, overlap: Mapping[str, float]) -> float:
    """Trainings side by side: how much of each one's own time the study takes."""
    if device in overlap:
        return overlap[device]
    return 1.0 if device == "cpu" else 1 / LANES.get(unit.recipe.network, LANES[""])


def note_speed(store: Store, keys: Iterable[str], wall_seconds: float) -> None:
    """Trainings run side by side: what they took together, against the sum of what each took."""
    total: dict[str, float] = defaultdict(float)
    for key in keys:
        try:
            info = store.info(key)
        except UserError:
            continue
        total[str(info.get("device") or "cpu")] += float(info.get("seconds") or 0)
    if len(total) != 1:
        return
    device, summed = next(iter(total.items()))
    if summed > 0:
        held = _read(store)
        held[device] = min(1.0, wall_seconds / summed)
        write_json(held, _file(store))


def _known_rates(store: Store) -> dict[str, Rates]:
    """Seconds an image by network, input and size, from stored units, a device apart from another."""
    seconds: dict[str, Rates] = defaultdict(lambda: defaultdict(float))
    effort: dict[str, Rates] = defaultdict(lambda: defaultdict(float))
    keys = store.keys()
    for key in keys[:: max(1, len(keys) // LOOKED_AT)]:
        try:
            info = store.info(key)
            unit = Training.from_dict(
                json.loads((store.path / "units" / key / "unit.json").read_text("utf-8"))
            )
        except (UserError, OSError, ValueError, TypeError):
            continue
        if unit.job is not None or not info.get("images"):
            continue
        device = str(info.get("device") or "cpu")
        name = (unit.recipe.network, unit.input.kind, unit.input.size_px)
        seconds[device][name] += float(info["seconds"])
        effort[device][name] += int(info["images"]) + PREDICTING * len(unit.predict)
    return {
        device: {name: spent / effort[device][name] for name, spent in held.items() if effort[device][name]}
        for device, held in seconds.items()
    }


def _file(store: Store) -> Path:
    return store.path / "cache" / "side_by_side.json"


def _read(store: Store) -> dict[str, float]:
    try:
        held = json.loads(_file(store).read_text(encoding="utf-8"))
        return {str(k): float(v) for k, v in held.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
