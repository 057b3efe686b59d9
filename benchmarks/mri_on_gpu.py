"""Segmentation recipes at real size on one GPU: phantoms made there, two sites train, the third is elsewhere.

On a bare machine (torch, numpy, scipy, pandas), from the repository's root, with MONAI's package on the path:

    export PYTHONPATH=src:.:MONAI_FOLDER
    python3 -m benchmarks.mri_on_gpu all --keep KEEP --out OUT --seconds 560

`all` is `make` (draw the patients), `train` (each recipe one fold, then every held-out patient predicted), `bench`
where `--bench-seconds` are kept for it (a training step beside a plain MONAI loop, a prediction beside the
network's floor) and `collect` (packed masks, truth, histories, costs as zips). Every stage says its seconds, and
goes on where it was cut off: cases in KEEP/mri-world, trainings in KEEP/mri-store. Back home:
`python -m benchmarks.mri_on_gpu score OUT FOLDER`.

The length of a training is worked out before it from a short timing, written to KEEP/mri-lengths.json and then
fixed: the schedule is whole, and its seconds are what came of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mri_world import SITES, WorldVolumes, cases_of, make_world, split_of, world_specs

RECIPES = ("residual-unet", "subtraction", "breast-crop")
RESERVE_S = 12.0
"""Kept back for collecting."""
SLACK = 1.08


@dataclass(kw_only=True)
class Place:
    """Where a run keeps what it has, and says what it does."""

    keep: Path
    began: float

    @property
    def world(self) -> Path:
        return self.keep / "mri-world"

    @property
    def store(self) -> Path:
        return self.keep / "mri-store"

    def say(self, text: str, **numbers: Any) -> None:
        at = time.time() - self.began
        print(f"[{at:6.1f} s] {text}", flush=True)
        if numbers:
            self.keep.mkdir(parents=True, exist_ok=True)
            with (self.keep / "mri-stages.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"stage": text, "at": round(at, 2), **numbers}) + "\n")

    def read(self, name: str) -> dict[str, Any]:
        file = self.keep / f"mri-{name}.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def write(self, name: str, content: dict[str, Any]) -> None:
        self.keep.mkdir(parents=True, exist_ok=True)
        part = self.keep / f".mri-{name}.part"
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")
        part.replace(self.keep / f"mri-{name}.json")


def make(place: Place, given: argparse.Namespace) -> None:
    """The patients, their clinical table, and who is trained on."""
    began = time.perf_counter()
    specs = world_specs(patients=given.patients, size=given.size)
    names = make_world(place.world, specs, processes=given.processes or os.cpu_count() or 1, say=place.say)
    volumes = WorldVolumes.open(place.world, names)
    cases = cases_of(volumes)
    split = split_of(cases, elsewhere=given.elsewhere, folds=given.folds, seed=given.seed)
    place.write("world", {"patients": given.patients, "size": given.size, "names": names})
    place.write("split", split)
    _clinical_csv(volumes, place.world / "clinical.csv")
    counts = {part: len(found) for part, found in split["parts"].items()}
    place.say(
        f"world of {len(names)} patients at {given.size}: {counts}",
        seconds=time.perf_counter() - began,
        drawing=sum(row["seconds"] for row in volumes.told.values()),
    )


def _clinical_csv(volumes: WorldVolumes, file: Path) -> None:
    import csv

    rows = [{"case_id": r["case_id"], **r["attributes"]} for r in volumes.told.values()]
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def opened(place: Place, *, hold: bool) -> WorldVolumes:
    names = place.read("world").get("names")
    if not names:
        raise SystemExit(f"there is no world under {place.keep}: run `make` first")
    volumes = WorldVolumes.open(place.world, names)
    if hold:
        began = time.perf_counter()
        volumes.hold(threads=os.cpu_count() or 1)
        place.say(f"{len(names)} cases in memory", seconds=time.perf_counter() - began)
    return volumes


def train(place: Place, given: argparse.Namespace, volumes: WorldVolumes | None = None) -> int:
    """Each recipe's unit through the engine's store; how many of them are there in the end."""
    from elsewhere.engine.run import run_units
    from elsewhere.engine.store import Store
    from elsewhere.engine.unit import RECIPE, RecipeSpec, Unit, Work

    volumes = volumes or opened(place, hold=given.hold)
    cases, split = cases_of(volumes), place.read("split")
    parts = {name: tuple(found) for name, found in split["parts"].items()}
    store = Store(place.store)
    chosen = given.recipes.split(",")
    units = place.read("units")
    done = 0
    for at, name in enumerate(chosen):
        settings = length_of(place, given, name, volumes, parts, left=len(chosen) - at)
        recipe = _recipe(name)
        unit = Unit(
            name=f"rest>{split['target']} | {name} | seed {given.seed}",
            kind=RECIPE,
            train=parts["train"],
            validation=parts["validation"],
            predict=parts["home"] + parts["elsewhere"],
            seed=given.seed,
            job=RecipeSpec(
                name=name,
                version=recipe.version,
                settings=json.loads(json.dumps(settings)),
                tasks=("segmentation",),
                clinical=recipe.uses_clinical,
            ),
        ).with_key(cases)
        units[name] = unit.key
        place.write("units", units)
        began = time.perf_counter()
        report = run_units(
            [unit],
            Work(cases=cases, volumes=volumes),
            store,
            device=given.device,
            threads=1 if given.device == "cpu" else 0,
            progress=_progress(place, name),
        )
        failed = report.failed.get(unit.key, "")
        place.say(
            f"{name}: {failed or ('done' if report.done else 'was there')}",
            seconds=time.perf_counter() - began,
        )
        done += not failed
        _forget(given.device)
        if given.out:
            collect(place, given)
    return done


def _progress(place: Place, name: str) -> Any:
    last = {"what": "", "tenth": -1}

    def tell(what: str, done: int, total: int) -> None:
        tenth = 10 * done // max(1, total)
        if what in ("epoch", "predict", "prepare") and (what, tenth) != (last["what"], last["tenth"]):
            last.update(what=what, tenth=tenth)
            if what == "epoch" or tenth in (0, 5, 10):
                place.say(f"{name}: {what} {done} of {total}")

    return tell


def _recipe(name: str) -> Any:
    from elsewhere.recipes.base import recipes

    return recipes.get(name)


def _forget(device: str) -> None:
    if device.startswith("cuda"):
        import gc

        import torch

        gc.collect()
        torch.cuda.empty_cache()


def _values(given: argparse.Namespace, name: str) -> dict[str, Any]:
    """The settings of the run that a recipe knows; what `--set` says goes last."""
    from dataclasses import fields

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
    known = {f.name for f in fields(_recipe(name).Settings)}
    return {key: value for key, value in told.items() if key in known}


def length_of(
    place: Place,
    given: argparse.Namespace,
    name: str,
    volumes: WorldVolumes,
    parts: dict[str, tuple[str, ...]],
    *,
    left: int,
) -> dict[str, Any]:
    """Every setting of a recipe's training, its length among them: fixed once it is written down."""
    from dataclasses import asdict

    lengths = place.read("lengths")
    if name in lengths:
        return dict(lengths[name]["settings"])
    values, timing = _values(given, name), {}
    if given.steps:
        epochs = max(1, -(-given.steps // given.steps_per_epoch))
    else:
        kept = RESERVE_S + (given.bench_seconds if given.stage == "all" else 0.0)
        share = (place.began + given.seconds - kept - time.time()) / left
        timing = calibrate(place, given, name, values, volumes, parts)
        rest = timing["prepare"] + timing["capture"] + 5 * timing["case"] + 3.0
        mirrored = timing["predict"] * timing["mirrors"]
        if given.mirror == "auto":
            values["mirror"] = bool(mirrored <= 0.3 * share)
        predict = mirrored if values["mirror"] else timing["predict"]
        budget = (
            60 * given.minutes
            if given.minutes
            else share - timing["calibrated_in"] - SLACK * (rest + predict)
        )
        epochs = max(2, int(budget / (timing["step"] * given.steps_per_epoch)))
        timing |= {"share": share, "budget": budget, "predict_planned": predict}
    if "pretrain_epochs" in {*asdict(_recipe(name).Settings())}:
        values["pretrain_epochs"] = epochs // 2
        epochs -= epochs // 2
    values |= {"epochs": epochs, "checkpoint_every": max(1, epochs // 3)}
    settings = asdict(_recipe(name).settings(values, where=name))
    place.write("lengths", lengths | {name: {"settings": settings, "timing": timing}})
    place.say(
        f"{name}: {epochs} epochs of {given.steps_per_epoch} steps, mirror {settings['mirror']}", **timing
    )
    return settings


def calibrate(
    place: Place,
    given: argparse.Namespace,
    name: str,
    values: dict[str, Any],
    volumes: WorldVolumes,
    parts: dict[str, tuple[str, ...]],
) -> dict[str, float]:
    """Seconds of a step (its share of validation in it), of what comes before and of all predictions."""
    from elsewhere.recipes.residual_unet import box_at_test, plan_for
    from elsewhere.training.volumes import FitSettings, build_network, fit, predict, prepare
    from elsewhere.training.volumes.windows import mirrors

    began = time.perf_counter()
    device = given.device
    settings = _recipe(name).settings(values)
    plan, _ = plan_for(volumes, parts["train"], settings)
    few = parts["train"][:4]
    start = time.perf_counter()
    data = prepare(volumes, few, plan, settings.channels, device=device, margin=settings.margin)
    _wait(device)
    prepared = (time.perf_counter() - start) / len(few)
    network = build_network(plan, seed=0, device=device)
    ends: list[float] = []

    def stamp(entry: Any, trained: Any) -> None:
        _wait(device)
        ends.append(time.perf_counter())

    steps = 12
    how = FitSettings(epochs=3, steps_per_epoch=steps, validation_steps=1, compiled=settings.compiled)
    start = time.perf_counter()
    fit(network, data, plan, how, seed=0, validation=data, on_epoch=stamp)
    step = (ends[-1] - ends[0]) / (2 * steps)
    captured = max(0.0, ends[0] - start - steps * step)
    del data
    extents = {case: _extent(volumes, case) for case in parts["home"] + parts["elsewhere"]}
    largest = max(extents, key=lambda case: extents[case])
    job: Any = argparse.Namespace(volumes=volumes)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        found = predict(
            network, volumes, largest, plan, settings.channels, device=device, mirror=False,
            overlap=settings.overlap, batch=settings.window_batch, margin=settings.margin,
            box=box_at_test(job, settings, largest), compiled=settings.compiled,
        )  # fmt: skip
        found.mask(settings.threshold)
        seconds.append(time.perf_counter() - start)
    _forget(device)
    place.say(
        f"{name}: patch {plan.patch}, batch {plan.batch}, spacing {plan.spacing_mm}, {found.windows} windows"
    )
    return {
        "step": step,
        "capture": captured,
        "prepare": prepared * len(parts["train"] + parts["validation"]),
        "case": seconds[-1],
        "predict": seconds[-1] * sum(extents.values()) / extents[largest],
        "mirrors": float(len(mirrors(plan.patch, mirror=True))),
        "windows": float(found.windows),
        "calibrated_in": time.perf_counter() - began,
    }


def _extent(volumes: WorldVolumes, case: str) -> float:
    grid = volumes.grid(case)
    return float(np.prod(grid.shape) * np.prod(grid.spacing_mm))


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def bench(place: Place, given: argparse.Namespace, volumes: WorldVolumes | None = None) -> None:
    """A training step beside a plain MONAI loop, and a whole prediction beside the network's floor, of the
    baseline's plan on these patients; on a GPU without torch.compile unless it is asked for."""
    from benchmarks.bench_segmentation import rows_of
    from elsewhere.recipes.residual_unet import plan_for
    from elsewhere.training.volumes import prepare

    volumes = volumes or opened(place, hold=given.hold)
    parts = place.read("split")["parts"]
    settings = _recipe("residual-unet").settings(_values(given, "residual-unet"))
    plan, _ = plan_for(volumes, parts["train"], settings)
    few = tuple(parts["train"][:8])
    began = time.perf_counter()
    data = prepare(volumes, few, plan, "three", device=given.device)
    _wait(given.device)
    prepared = (time.perf_counter() - began) / len(few)
    every = [*parts["train"], *parts["home"]]
    case = max(every, key=lambda name: (np.prod(volumes.grid(name).shape[:2]), name))
    rows = rows_of(
        volumes, data, plan, case=case, device=given.device, compiled=given.compiled, prepared=prepared,
        epochs=3, steps=20 if given.device != "cpu" else 2,
        workers=min(12, (os.cpu_count() or 1) - 1) if given.device != "cpu" else 0,
        repeats=2, mirror=True, batch=4, what="phantom",
    )  # fmt: skip
    result = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python -m benchmarks.mri_on_gpu bench",
        "machine": machine(given.device),
        "rows": rows,
    }
    place.write("bench", result)
    place.say("bench", seconds=time.perf_counter() - began)


def machine(device: str) -> str:
    import torch

    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor() or "CPU"
    return f"{name}, {os.cpu_count()} cores, torch {torch.__version__}"


def collect(place: Place, given: argparse.Namespace) -> list[Path]:
    """Zips under `--out`: mri-world.zip (truth, cases, split, lengths, stages), mri-unit-RECIPE.zip."""
    import io
    import zipfile

    from elsewhere.engine.packed_masks import to_arrays
    from elsewhere.engine.store import Store

    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    volumes = opened(place, hold=False)
    packed = io.BytesIO()
    arrays = to_arrays([volumes.packed(case) for case in volumes.told])
    np.savez_compressed(packed, case=np.array(list(volumes.told), dtype=np.str_), **arrays)  # type: ignore[arg-type]
    made = [out / "mri-world.zip"]
    with zipfile.ZipFile(made[0], "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("truth.npz", packed.getvalue())
        archive.writestr("cases.json", json.dumps(list(volumes.told.values())))
        archive.write(place.world / "clinical.csv", "clinical.csv")
        archive.writestr(
            "machine.json", json.dumps({"machine": machine(given.device), "python": sys.version})
        )
        for file in sorted(place.keep.glob("mri-*.json*")):
            archive.write(file, file.name)
    store = Store(place.store)
    for name, key in place.read("units").items():
        if key in store:
            made.append(store.export([key], out / f"mri-unit-{name}.zip"))
    place.say("collected " + ", ".join(f"{f.name} {f.stat().st_size / 2**20:.2f} MiB" for f in made))
    return made


def everything(place: Place, given: argparse.Namespace) -> None:
    make(place, given)
    volumes = opened(place, hold=given.hold)
    try:
        train(place, given, volumes)
        if given.bench_seconds and place.began + given.seconds - time.time() > 0.6 * given.bench_seconds:
            bench(place, given, volumes)
    finally:
        collect(place, given)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("make", "train", "bench", "collect", "all", "score"))
    parser.add_argument("paths", nargs="*", type=Path, help="score: the folder of zips, the folder to write")
    parser.add_argument("--keep", type=Path, default=Path("/root/keep"))
    parser.add_argument("--out", type=Path, default=os.environ.get("OUT"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--patients", type=int, default=30, help="of each site")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--elsewhere", choices=SITES, default="SOUTH", help="the site that nothing trains on")
    parser.add_argument("--folds", type=int, default=3, help="one of them is tested at home")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--seconds", type=float, default=560.0, help="of the whole command")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="of each training; 0: what is left, shared"
    )
    parser.add_argument("--steps", type=int, default=0, help="of each training, in place of a time")
    parser.add_argument("--steps-per-epoch", type=int, default=50)
    parser.add_argument("--memory-gb", type=float, default=5.0, help="that patch and batch are planned for")
    parser.add_argument("--mirror", choices=("auto", "yes", "no"), default="auto")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--no-hold", dest="hold", action="store_false", help="read phases as they are needed")
    parser.add_argument(
        "--bench-seconds", type=float, default=0.0, help="kept for bench by `all`; 0: no bench"
    )
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipes: NAME=JSON")
    given = parser.parse_args(arguments)
    place = Place(keep=given.keep, began=time.time())
    if given.stage == "score":
        from benchmarks.mri_on_gpu_score import score

        score(*given.paths)
        return
    stages = {"make": make, "train": train, "bench": bench, "collect": collect, "all": everything}
    stages[given.stage](place, given)
    place.say(f"{given.stage} ended")


if __name__ == "__main__":
    main()
