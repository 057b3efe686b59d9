"""How long a plan will take: from trainings of the same kind on the same device in the store, else from
rough constants of their recipes. What another device took is told beside it, and never taken for this one's."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elsewhere.engine.store import Store
from elsewhere.engine.threads import physical_cores, usable_cpus
from elsewhere.engine.training import Training
from elsewhere.errors import UserError
from elsewhere.inputs import Cases
from elsewhere.recipes.base import recipe_of
from elsewhere.tables import write_json

Rates = dict[str, float]
"""Seconds for each effort, by what trainings are alike (`Recipe.alike`)."""
LOOKED_AT = 60
"""Of trainings that are alike, about so many are looked at."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long trainings will take, and what the number rests on.

    Args:
        seconds: The time of all trainings together, in seconds; NaN where it is not known.
        images: How many images the trainings go through, summed over their epochs.
        device: The device that the estimate is for: 'cpu', or the name of the GPU.
        basis: Where the number comes from, in words: trainings in the store, a rough guess, or both.
        measured_on: The seconds by other device, as trainings in the store suggest; empty where the estimate
            is measured on this device.

    Example:
        >>> Estimate(seconds=5400, images=100_000, device="cpu", basis="a rough guess").text()
        'about 1.5 h on cpu (a rough guess)'
    """

    seconds: float
    images: int
    device: str
    basis: str
    measured_on: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Convert the estimate to data for JSON.

        Returns:
            seconds (None where they are not known), training_images, device, basis and measured_on.
        """
        return {
            "seconds": round(self.seconds, 1) if math.isfinite(self.seconds) else None,
            "training_images": self.images,
            "device": self.device,
            "basis": self.basis,
            "measured_on": {name: round(seconds, 1) for name, seconds in self.measured_on.items()},
        }

    def text(self) -> str:
        """Say the estimate in one line, as `elsewhere plan` prints it.

        Returns:
            The time on this device, and where the store has them, the times on other devices.
        """
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
    """Write a duration in the unit that suits it.

    Args:
        seconds: The duration, in seconds; less than one second is written as one.

    Returns:
        Whole seconds below 90 s, whole minutes below 90 min, hours with one decimal below three days, then
        whole days.

    Example:
        >>> [in_words(seconds) for seconds in (40, 720, 12600, 518400)]
        ['40 s', '12 min', '3.5 h', '6 days']
    """
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


def guess_device(device: str) -> str:
    """Tell the kind of device that a run would use, without importing torch.

    Args:
        device: As a run is given it: 'auto', 'cpu', 'cuda', 'cuda:1', or several with commas.

    Returns:
        'cuda' or 'cpu'. For 'auto' it is 'cuda' where an NVIDIA driver is loaded.

    Example:
        >>> guess_device("cuda:1"), guess_device("cpu")
        ('cuda', 'cpu')
    """
    if device.startswith("cuda"):
        return "cuda"
    if device != "auto":
        return "cpu"
    return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"


def device_here(device: str) -> str:
    """Name the device that a run would use on this machine, as the store names it.

    Args:
        device: As a run is given it; of several, the first counts.

    Returns:
        'cpu', or the name of the GPU; 'cuda' where the name cannot be found without torch.

    Example:
        >>> device_here("cpu")
        'cpu'
    """
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
    """Estimate how long these trainings take on this device. Trainings of another device are counted apart.

    Args:
        units: The trainings that are still to do.
        cases: Of the study.
        store: With trainings that are done.
        device: As a run is given it.

    Returns:
        The estimate; its seconds are NaN where a recipe is among them of which nothing is known.
    """
    units = list(units)
    kind, here = guess_device(device), device_here(device)
    cores = physical_cores(usable_cpus())
    known, overlap = _known_rates(store), _read(store)
    seconds, images = 0.0, 0
    sources: set[str] = set()
    unknown: set[str] = set()
    others = {name: 0.0 for name in known if name != here}
    for unit in units:
        recipe = recipe_of(unit.recipe.name)
        effort, alike = recipe.effort(unit, cases), recipe.alike(unit.recipe)
        side_by_side = recipe.together(unit.recipe)
        images += recipe.samples(unit, cases)
        rate = known.get(here, {}).get(alike)
        rough = recipe.rough_seconds(unit.recipe, kind, cores) if rate is None else None
        if rate is not None:
            sources.add("measured")
            seconds += effort * rate * _together(here, side_by_side, overlap)
        elif rough is not None:
            sources.add("rough")
            seconds += effort * rough
        else:
            unknown.add(unit.method)
        for other in others:
            there = known[other].get(alike, math.nan)
            others[other] += effort * there * _together(other, side_by_side, overlap)
    basis = {
        frozenset(): "nothing to do",
        frozenset({"measured"}): "from trainings in the store",
        frozenset({"rough"}): "a rough guess: no such training is in the store yet",
    }.get(frozenset(sources), "partly from trainings in the store, partly a rough guess")
    guessed = bool(unknown) or "rough" in sources
    measured_on = {name: s for name, s in others.items() if math.isfinite(s)} if guessed else {}
    if unknown:
        seconds, basis = math.nan, f"no training yet of {', '.join(sorted(unknown))}"
    elif measured_on and "measured" not in sources:
        basis = "a rough guess"
    return Estimate(seconds=seconds, images=images, device=here, basis=basis, measured_on=measured_on)


def _together(device: str, side_by_side: int, overlap: Mapping[str, float]) -> float:
    """Trainings side by side: how much of each one's own time the study takes."""
    if side_by_side == 1:
        return 1.0
    if device in overlap:
        return overlap[device]
    return 1.0 if device == "cpu" else 1 / side_by_side


def note_speed(store: Store, keys: Iterable[str], wall_seconds: float) -> None:
    """Record the time that trainings took side by side, as a part of the sum of each one's own time.

    The ratio, at most 1, is kept by device in the cache of the store, and `estimate` uses it. Nothing is
    recorded where the trainings ran on several devices.

    Args:
        store: The store that holds the trainings.
        keys: The keys of the trainings that ran together; those that the store cannot read do not count.
        wall_seconds: How long all of them took by the clock, in seconds.
    """
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
    """From stored trainings, a device apart from another."""
    stored: dict[str, list[Training]] = defaultdict(list)
    keys = store.keys()
    for key in keys:
        with contextlib.suppress(UserError, OSError, ValueError, TypeError, KeyError):
            file = store.path / "units" / key / "unit.json"
            unit = Training.from_dict(json.loads(file.read_text("utf-8")))
            stored[recipe_of(unit.recipe.name).alike(unit.recipe)].append(unit)
    seconds: dict[str, Rates] = defaultdict(lambda: defaultdict(float))
    effort: dict[str, Rates] = defaultdict(lambda: defaultdict(float))
    for alike, units in stored.items():
        for unit in units[:: max(1, len(units) // LOOKED_AT)]:
            try:
                info = store.info(unit.key)
            except UserError:
                continue
            done = recipe_of(unit.recipe.name).effort_done(unit, info)
            if done:
                device = str(info.get("device") or "cpu")
                seconds[device][alike] += float(info["seconds"])
                effort[device][alike] += done
    return {
        device: {alike: spent / effort[device][alike] for alike, spent in held.items()}
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
