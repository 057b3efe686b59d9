"""One recipe of the GPU run: how long it may train, its unit through the engine's store, and where it was cut off.

The length is worked out before a training from a short timing, written to KEEP/mri-lengths.json and then fixed: the
schedule is whole, whatever number of calls it takes, and its seconds are what came of it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from benchmarks.mri_children import TimeUpError
from benchmarks.mri_probe import candidates, ways_of
from benchmarks.mri_world import WorldVolumes, cases_of

SLACK = 1.08
CHECKPOINT_S = 40.0
"""Between two checkpoints, about; one takes a second or two."""
CHECKPOINTS = 6
"""Of a training whose number of steps is given."""
CALIBRATED_STEPS = 12
MIRRORED_SHARE = 0.3
"""Mirrored copies are predicted where that takes no more of a recipe's time than this."""


def train_one(place: Any, given: argparse.Namespace, name: str, volumes: WorldVolumes, *, ways: Any) -> None:
    """`name`'s unit into the store, from where it was cut off; TimeUpError where it is cut off again."""
    from elsewhere.engine.run import run_units
    from elsewhere.engine.store import Store
    from elsewhere.engine.training import RecipeSpec, Training, Work
    from elsewhere.inputs.mri.source import MriSource
    from elsewhere.recipes.base import sees_clinical
    from elsewhere.training.volumes.ways import using

    cases, split = cases_of(volumes), place.read("split")
    parts = {part: tuple(found) for part, found in split["parts"].items()}
    settings = length_of(place, given, name, volumes, parts, ways=ways)
    ways = ways or ways_of(place)
    recipe = recipe_of(name)
    unit = Training(
        name=f"rest>{split['target']} | {name} | seed {given.seed}",
        train=parts["train"],
        validation=parts["validation"],
        predict=parts["home"] + parts["elsewhere"],
        seed=given.seed,
        recipe=RecipeSpec(
            name=name,
            version=recipe.version,
            settings=json.loads(json.dumps(settings)),
            tasks=("segmentation",),
            clinical=sees_clinical(recipe),
        ),
    ).with_key(cases)
    place.write("units", place.read("units") | {name: unit.key})
    began = time.perf_counter()
    watch = Watch(place, name, settings, place.read("lengths")[name]["timing"])
    with using(ways):
        report = run_units(
            [unit],
            Work(cases=cases, sources={"mri": MriSource(volumes)}),
            Store(place.store),
            device=given.device,
            threads=1 if given.device == "cpu" else 0,
            progress=watch,
        )
    failed = report.failed.get(unit.key, "")
    place.say(
        f"{name}: {failed or ('done' if report.done else 'was there')}", seconds=time.perf_counter() - began
    )
    if failed:
        raise RuntimeError(f"{name}: {failed}")


class Watch:
    """Says how far a training is, and ends it at a checkpoint that the next would come too late after."""

    def __init__(self, place: Any, name: str, settings: dict[str, Any], timing: dict[str, float]) -> None:
        self.place, self.name = place, name
        self.every = int(settings["checkpoint_every"])
        self.predicting = timing.get("predict_planned", 0.0)
        self.said = ("", -1)
        self.first: tuple[float, int] | None = None
        """When the first epoch of this call had ended, and which that was."""

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in ("epoch", "predict", "prepare", "pretraining"):
            return
        tenth = 10 * done // max(1, total)
        if (what, tenth) != self.said:
            self.said = (what, tenth)
            if what in ("epoch", "pretraining") or tenth in (0, 5, 10):
                self.place.say(f"{self.name}: {what} {done} of {total}")
        now = time.time()
        if now + (self._needs(now, done, total) if what == "epoch" else 0.0) > self.place.until:
            raise TimeUpError(f"{what} {done} of {total}")

    def _needs(self, now: float, done: int, total: int) -> float:
        """Seconds until there is more to keep than at this checkpoint; 0 between two."""
        if self.first is None:
            self.first = (now, done)
        if done == total:
            return self.predicting
        if done % self.every or done == self.first[1]:
            return 0.0
        return self.every * (now - self.first[0]) / (done - self.first[1])


def recipe_of(name: str) -> Any:
    from elsewhere.recipes.base import recipes

    return recipes.get(name)


def values_of(given: argparse.Namespace, name: str) -> dict[str, Any]:
    """The settings of the run that a recipe knows; what `--set` says goes last."""
    told = {
        "folds": 1,
        "memory_gb": given.memory_gb,
        "compiled": given.compiled,
        "steps_per_epoch": given.steps_per_epoch,
        "validation_steps": max(1, given.steps_per_epoch // 12),
        "window_batch": 4,
        "cost_repeats": 3,
        "mirror": given.mirror == "yes",
    }
    for text in given.set:
        key, _, value = text.partition("=")
        told[key.strip()] = json.loads(value)
    known = {f.name for f in fields(recipe_of(name).Settings)}
    return {key: value for key, value in told.items() if key in known}


def length_of(
    place: Any,
    given: argparse.Namespace,
    name: str,
    volumes: WorldVolumes,
    parts: dict[str, tuple[str, ...]],
    *,
    ways: Any = None,
) -> dict[str, Any]:
    """Every setting of a recipe's training, its length among them: fixed once it is written down."""
    lengths = place.read("lengths")
    if name in lengths:
        return dict(lengths[name]["settings"])
    values, timing = values_of(given, name), {}
    if given.steps:
        epochs = max(1, -(-given.steps // given.steps_per_epoch))
        every = max(1, epochs // CHECKPOINTS)
    else:
        timing = calibrate(place, given, name, values, volumes, parts, ways=ways)
        rest = timing["prepare"] + timing["capture"] + 5 * timing["case"] + 3.0
        mirrored = timing["predict"] * timing["mirrors"]
        if given.mirror == "auto":
            # The first recipe's answer is everybody's, so that they are compared alike.
            before = [entry["settings"]["mirror"] for entry in lengths.values()]
            values["mirror"] = before[0] if before else mirrored <= MIRRORED_SHARE * given.recipe_seconds
        predicting = mirrored if values["mirror"] else timing["predict"]
        budget = given.recipe_seconds - timing["calibrated_in"] - SLACK * (rest + predicting)
        epoch_s = timing["step"] * given.steps_per_epoch
        epochs = max(2, int(budget / SLACK / epoch_s))
        every = max(1, min(epochs, round(CHECKPOINT_S / epoch_s)))
        timing |= {"budget": budget, "predict_planned": predicting}
    if "pretrain_epochs" in {f.name for f in fields(recipe_of(name).Settings)}:
        values["pretrain_epochs"] = epochs // 2
        epochs -= epochs // 2
    values |= {"epochs": epochs, "checkpoint_every": every}
    settings = asdict(recipe_of(name).settings(values, where=name))
    place.write("lengths", lengths | {name: {"settings": settings, "timing": timing}})
    place.say(
        f"{name}: {epochs} epochs of {given.steps_per_epoch} steps, mirror {settings['mirror']}",
        **{key: value for key, value in timing.items() if key != "ways"},
    )
    return settings


def calibrate(
    place: Any,
    given: argparse.Namespace,
    name: str,
    values: dict[str, Any],
    volumes: WorldVolumes,
    parts: dict[str, tuple[str, ...]],
    *,
    ways: Any = None,
) -> dict[str, Any]:
    """Seconds of a step (its share of validation in it), of what comes before and of all predictions. The first
    one on a GPU also times the candidate ways and writes down which is fastest."""
    from elsewhere.recipes.mri.residual_unet import box_at_test, plan_for
    from elsewhere.training.volumes import predict, prepare
    from elsewhere.training.volumes.ways import using
    from elsewhere.training.volumes.windows import mirrors

    began = time.perf_counter()
    device = given.device
    settings = recipe_of(name).settings(values)
    plan, _ = plan_for(volumes, parts["train"], settings)
    place.say(f"{name}: patch {plan.patch}, batch {plan.batch}, spacing {plan.spacing_mm}")
    few = parts["train"][:4]
    start = time.perf_counter()
    data = prepare(volumes, few, plan, settings.channels, device=device, margin=settings.margin)
    wait(device)
    prepared = (time.perf_counter() - start) / len(few)
    tried = [ways] if ways else [ways_of(place)]
    if not ways and device.startswith("cuda") and not place.read("ways"):
        tried = candidates(place)
    found: dict[Any, tuple[float, float, Any]] = {}
    for way in tried:
        try:
            found[way] = _steps(place, plan, data, settings, way, device)
        except Exception as error:  # noqa: BLE001 - another way may do
            place.say(f"{name}: {way} FAILED: {type(error).__name__}: {str(error)[:200]}")
    if not found:
        raise RuntimeError(f"{name}: no way of a step works here")
    best = min(found, key=lambda way, timed=found: timed[way][0])  # type: ignore[misc]
    if len(tried) > 1:
        told = {str(way): found[way][0] if way in found else None for way in tried}
        place.write("ways", {"ways": asdict(best), "seconds_a_step": told})
    step, captured, network = found[best]
    place.say(f"{name}: {best}, {step:.4f} s a step", step=step, capture=captured)
    del data, found
    extents = {case: _extent(volumes, case) for case in parts["home"] + parts["elsewhere"]}
    largest = max(extents, key=lambda case: extents[case])
    job: Any = argparse.Namespace(volumes=volumes)
    seconds = []
    with using(best):
        for _ in range(2):
            start = time.perf_counter()
            one = predict(
                network, volumes, largest, plan, settings.channels, device=device, mirror=False,
                overlap=settings.overlap, batch=settings.window_batch, margin=settings.margin,
                box=box_at_test(job, settings, largest), compiled=settings.compiled,
            )  # fmt: skip
            one.mask(settings.threshold)
            seconds.append(time.perf_counter() - start)
    del network
    forget(device)
    place.say(f"{name}: {one.windows} windows, {seconds[-1]:.2f} s the largest case, not mirrored")
    return {
        "step": step,
        "capture": captured,
        "prepare": prepared * len(parts["train"] + parts["validation"]),
        "case": seconds[-1],
        "predict": seconds[-1] * sum(extents.values()) / extents[largest],
        "mirrors": float(len(mirrors(plan.patch, mirror=True))),
        "windows": float(one.windows),
        "calibrated_in": time.perf_counter() - began,
    }


def _steps(
    place: Any, plan: Any, data: Any, settings: Any, way: Any, device: str
) -> tuple[float, float, Any]:
    """Seconds a step, seconds until the first, and the network."""
    from elsewhere.training.volumes import FitSettings, build_network, fit
    from elsewhere.training.volumes.ways import using

    ends: list[float] = []

    def stamp(entry: Any, trained: Any) -> None:
        wait(device)
        ends.append(time.perf_counter())
        if time.time() > place.until:
            raise TimeUpError("timing a step")

    how = FitSettings(
        epochs=3, steps_per_epoch=CALIBRATED_STEPS, validation_steps=1, compiled=settings.compiled
    )
    start = time.perf_counter()
    with using(way):
        network = build_network(plan, seed=0, device=device)
        fit(network, data, plan, how, seed=0, validation=data, on_epoch=stamp)
    step = (ends[-1] - ends[0]) / (2 * CALIBRATED_STEPS)
    forget(device)
    return step, max(0.0, ends[0] - start - CALIBRATED_STEPS * step), network


def _extent(volumes: WorldVolumes, case: str) -> float:
    grid = volumes.grid(case)
    return float(np.prod(grid.shape) * np.prod(grid.spacing_mm))


def wait(device: str) -> None:
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def forget(device: str) -> None:
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


def bench_rows(place: Any, given: argparse.Namespace, volumes: WorldVolumes, *, which: str) -> None:
    """'training': a step beside a plain MONAI loop; 'inference': a whole prediction of a largest volume beside the
    network's floor. Of the baseline's plan, into KEEP/mri-bench.json."""
    from benchmarks.bench_segmentation import inference_row, training_row
    from elsewhere.recipes.mri.residual_unet import plan_for
    from elsewhere.training.volumes import prepare
    from elsewhere.training.volumes.ways import using

    began = time.perf_counter()
    parts = place.read("split")["parts"]
    settings = recipe_of("residual-unet").settings(values_of(given, "residual-unet"))
    plan, _ = plan_for(volumes, parts["train"], settings)
    every = [*parts["train"], *parts["home"]]
    case = max(every, key=lambda name: (np.prod(volumes.grid(name).shape[:2]), name))
    on_gpu = given.device != "cpu"
    with using(ways_of(place)):
        if which == "inference":
            row = inference_row(
                volumes, plan, case=case, device=given.device, compiled=given.compiled, repeats=2,
                mirror=True, batch=4, what="phantom",
            )  # fmt: skip
        else:
            few = tuple(parts["train"][:8])
            data = prepare(volumes, few, plan, "three", device=given.device)
            wait(given.device)
            prepared = (time.perf_counter() - began) / len(few)
            row = training_row(
                volumes, data, plan, case=case, device=given.device, compiled=given.compiled,
                prepared=prepared, epochs=3, steps=20 if on_gpu else 2,
                workers=min(12, (os.cpu_count() or 1) - 1) if on_gpu else 0, what="phantom",
            )  # fmt: skip
    held = place.read("bench")
    rows = [held_row for held_row in held.get("rows", []) if held_row.get("which") != which]
    rows = sorted([*rows, row | {"which": which}], key=lambda entry: entry["which"], reverse=True)
    place.write(
        "bench",
        {
            "measured": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            "command": "python -m benchmarks.mri_on_gpu bench",
            "machine": place.read("machine").get("machine", given.device),
            "rows": rows,
        },
    )
    place.say(f"bench {which}", seconds=time.perf_counter() - began)
