"""Segmentation recipes at real size on one GPU: phantoms made there, two sites train, the third is elsewhere.

On a bare machine (torch, numpy, scipy, pandas), from the repository's root, with MONAI's package on the path:

    export PYTHONPATH=src:.:MONAI_FOLDER
    python3 -m benchmarks.mri_on_gpu all --keep KEEP --out OUT --seconds 560

`all` is `probe` (every way that only a GPU takes, tried small; what fails is done without) beside `make` (draw the
patients), `train` (each recipe one fold, then every held-out patient predicted), `bench` (a training step beside a
plain MONAI loop, a prediction beside the network's floor) and `collect` (packed masks, truth, histories, costs,
the probe's words, as at most 8 small zips). Every stage says its seconds, runs in a process of its own, and goes on where
it was cut off: cases in KEEP/mri-world, trainings and their checkpoints in KEEP/mri-store. A stage that fails is
named, a recipe that fails is tried once more in the safest ways, and the others go on. `--seconds` is the whole command's:
trainings end at the last checkpoint before it. Back home: `python -m benchmarks.mri_on_gpu score OUT FOLDER`.

On an H200 with 16 cores: drawing 108 patients takes 45 s, the probe beside it 100 s; a step of the baseline (planned for 5 GB:
patches of 160 x 160 x 48, batch 2) 47 ms, of the breast crop 71 ms; before a recipe's first step go 20 to 37 s into timing and
capturing, and 60 held-out patients are predicted in 65, 85 and 20 s; the benchmark takes 100 s. On a machine of that kind whose commands end after ten
minutes and that takes 64 MiB a command, with MONAI's package (7 MB) in FOLDER:

    PYTHONPATH=src:.:FOLDER python3 -u -m benchmarks.mri_on_gpu all --keep KEEP --out OUT --seconds 420 --no-bench
    --recipes residual-unet --steps 4500

(331 s), then `--recipes subtraction --steps 4500` (318 s) and `--recipes breast-crop --steps 2600` (245 s). mri-probe.json, mri-ways.json
and mri-machine.json of an earlier lease in KEEP save the probe and the choice of ways; without `--steps` a recipe's length follows from a short
timing and `--recipe-seconds`. The response
study's slices go there by `elsewhere plan mri-response --export` and `python -m elsewhere.engine` (eight processes on one GPU: 63
trainings of slice-cnn in 93 s).

Copy what came back after each call into one folder ZIPS (a later mri-world.zip replaces the earlier). Then `python -m
benchmarks.mri_on_gpu score ZIPS FOLDER` and `python docs/make_mri_segmentation.py --take FOLDER`.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mri_children import check_no_cuda, start
from benchmarks.mri_world import SITES, WorldVolumes, cases_of, make_world, split_of, world_specs

RECIPES = ("residual-unet", "subtraction", "breast-crop")
RESERVE_S = 15.0
"""Kept back for collecting."""
LEAST_S = 25.0
"""With less than this no recipe is begun."""
BENCH_S = {"inference": 50.0, "training": 55.0}
"""With less than this a part of the benchmark is left for another call."""
MOST_FILES, MOST_BYTES = 8, 16 * 2**20


@dataclass(kw_only=True)
class Place:
    """Where a run keeps what it has, and says what it does."""

    keep: Path
    began: float
    until: float = float("inf")
    """Seconds since the epoch."""

    @property
    def world(self) -> Path:
        return self.keep / "mri-world"

    @property
    def store(self) -> Path:
        return self.keep / "mri-store"

    @property
    def left(self) -> float:
        return self.until - time.time()

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
    """The patients, their clinical table, and who is trained on. A world that was settled stays as it is."""
    if place.read("split"):
        place.say("the world was there")
        return
    began = time.perf_counter()
    specs = world_specs(patients=given.patients, size=given.size)
    until = min(place.until, time.time() + given.make_seconds)
    names = make_world(
        place.world, specs, processes=given.processes or os.cpu_count() or 1, say=place.say, until=until
    )
    volumes = WorldVolumes.open(place.world, names)
    cases = cases_of(volumes)
    split = split_of(cases, elsewhere=given.elsewhere, folds=given.folds, seed=given.seed)
    _clinical_csv(volumes, place.world / "clinical.csv")
    place.write("world", {"patients": given.patients, "size": given.size, "names": names})
    place.write("split", split)
    counts = {part: len(found) for part, found in split["parts"].items()}
    place.say(
        f"world of {len(names)} patients at {given.size}: {counts}",
        seconds=time.perf_counter() - began,
        drawing=sum(row["seconds"] for row in volumes.told.values()),
    )


def _clinical_csv(volumes: WorldVolumes, file: Path) -> None:
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


def in_child(place: Place, name: str, work: Callable[[Place], object]) -> str:
    """'' or what went wrong; the child sees the same deadline."""
    check_no_cuda()
    wrong = start(name, lambda: work(place), until=place.until).ended()
    if wrong:
        place.say(f"{name}: {wrong}", wrong=wrong)
    return wrong


def run_probe(place: Place, given: argparse.Namespace, volumes: WorldVolumes | None = None) -> None:
    from benchmarks.mri_probe import probe

    if not place.read("probe"):
        probe(place, given)


def train(place: Place, given: argparse.Namespace, volumes: WorldVolumes | None = None) -> int:
    """Each recipe in a process of its own; how many of them are in the store in the end."""
    from benchmarks.mri_training import train_one
    from elsewhere.engine.store import Store
    from elsewhere.training.volumes.ways import SAFEST

    done = 0
    for name in given.recipes.split(","):
        key = place.read("units").get(name)
        if key and key in Store(place.store):
            place.say(f"{name}: was there")
            done += 1
            continue
        volumes = volumes or opened(place, hold=given.hold)
        for ways in (None, SAFEST):
            if place.left < LEAST_S:
                place.say(f"{name}: left for another call, {place.left:.0f} s remain")
                break
            held = volumes

            def work(here: Place, name: str = name, ways: Any = ways, held: Any = held) -> None:
                train_one(here, given, name, held, ways=ways)

            wrong = in_child(place, name, work)
            done += not wrong
            if not wrong.startswith("failed"):
                break
    return done


def bench(place: Place, given: argparse.Namespace, volumes: WorldVolumes | None = None) -> None:
    """Both rows, each in a process of its own; one that is there is not measured again."""
    from benchmarks.mri_training import bench_rows

    there = {row["which"] for row in place.read("bench").get("rows", [])}
    for which, least in BENCH_S.items():
        if which in there:
            continue
        if place.left < least:
            place.say(f"bench {which}: left for another call, {place.left:.0f} s remain")
            continue
        volumes = volumes or opened(place, hold=given.hold)
        held = volumes

        def work(here: Place, which: str = which, held: Any = held) -> None:
            bench_rows(here, given, held, which=which)

        in_child(place, f"bench {which}", work)


def collect(place: Place, given: argparse.Namespace) -> list[Path]:
    """Zips under `--out`: mri-world.zip (truth, cases, split, lengths, stages), mri-unit-RECIPE.zip."""
    from elsewhere.engine.store import Store

    if not given.out:
        return []
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    made = [out / "mri-world.zip"]
    part = place.keep / ".mri-world.zip.part"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        if place.read("world"):
            _truth(archive, place)
        told = place.read("machine") or {"machine": given.device}
        archive.writestr("machine.json", json.dumps(told))
        for file in sorted(place.keep.glob("mri-*.json*")):
            archive.write(file, file.name)
    _bring(part, made[0])
    store = Store(place.store)
    for name, key in place.read("units").items():
        if key in store:
            part = place.keep / f".mri-unit-{name}.zip"
            store.export([key], part)
            made.append(_bring(part, out / f"mri-unit-{name}.zip"))
    place.say("collected " + ", ".join(f"{f.name} {f.stat().st_size / 2**20:.2f} MiB" for f in made))
    large = [f.name for f in made if f.stat().st_size > MOST_BYTES]
    if large or len(made) > MOST_FILES:
        place.say(f"TOO MUCH to bring back: {len(made)} files, too large: {large}")
    return made


def _truth(archive: zipfile.ZipFile, place: Place) -> None:
    from elsewhere.predictions.answers import Masks, answer_kinds

    volumes = opened(place, hold=False)
    packed = io.BytesIO()
    arrays = answer_kinds.get("masks").pack(Masks(masks=tuple(volumes.packed(case) for case in volumes.told)))
    np.savez_compressed(packed, case=np.array(list(volumes.told), dtype=np.str_), **arrays)  # type: ignore[arg-type]
    archive.writestr("truth.npz", packed.getvalue())
    archive.writestr("cases.json", json.dumps(list(volumes.told.values())))
    archive.write(place.world / "clinical.csv", "clinical.csv")


def _bring(part: Path, to: Path) -> Path:
    """Whole or not at all, also from another disk."""
    hidden = to.with_name(f".{to.name}.part")
    hidden.write_bytes(part.read_bytes())
    hidden.replace(to)
    part.unlink()
    return to


def everything(place: Place, given: argparse.Namespace) -> None:
    """Each stage whatever became of the others; what there is is collected after each."""
    making = start("make", lambda: make(place, given), until=place.until)
    _guarded(place, "probe", lambda: run_probe(place, given))
    wrong = making.ended()
    if wrong or not place.read("split"):
        place.say(f"make: {wrong or 'there is no world'}", wrong=wrong or "no world")
        _guarded(place, "collect", lambda: collect(place, given))
        return
    held: list[WorldVolumes] = []

    def volumes() -> WorldVolumes | None:
        """Held for whoever needs them first, and for all after."""
        return held[0] if held else None

    def hold() -> None:
        lacking = [name for name in given.recipes.split(",") if not _there(place, name)]
        if lacking or len(place.read("bench").get("rows", [])) < len(BENCH_S):
            held.append(opened(place, hold=given.hold))

    _guarded(place, "hold", hold)
    for name in given.recipes.split(","):
        one = argparse.Namespace(**(vars(given) | {"recipes": name}))
        _guarded(place, name, lambda one=one: train(place, one, volumes()))  # type: ignore[misc]
        _guarded(place, "collect", lambda: collect(place, given))
    if given.bench:
        _guarded(place, "bench", lambda: bench(place, given, volumes()))
    _guarded(place, "collect", lambda: collect(place, given))


def _there(place: Place, name: str) -> bool:
    from elsewhere.engine.store import Store

    key = place.read("units").get(name)
    return bool(key) and key in Store(place.store)


def _guarded(place: Place, name: str, work: Callable[[], object]) -> None:
    try:
        work()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - named; the other stages go on
        traceback.print_exc()
        place.say(f"{name}: failed: {type(error).__name__}: {error}", wrong=str(error))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("probe", "make", "train", "bench", "collect", "all", "score"))
    parser.add_argument("paths", nargs="*", type=Path, help="score: the folder of zips, the folder to write")
    parser.add_argument("--keep", type=Path, default=Path("/root/keep"))
    parser.add_argument("--out", type=Path, default=os.environ.get("OUT"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--patients", type=int, default=36, help="of each site")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--make-seconds", type=float, default=170.0, help="then the world is what is drawn")
    parser.add_argument("--probe-seconds", type=float, default=90.0, help="no check is begun after")
    parser.add_argument("--check-seconds", type=float, default=45.0, help="of one check at the most")
    parser.add_argument("--elsewhere", choices=SITES, default="SOUTH", help="the site that nothing trains on")
    parser.add_argument("--folds", type=int, default=3, help="one of them is tested at home")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--seconds", type=float, default=560.0, help="of the whole command")
    parser.add_argument(
        "--recipe-seconds", type=float, default=265.0, help="of a recipe: timing, training, predicting"
    )
    parser.add_argument("--steps", type=int, default=0, help="of each training, in place of a time")
    parser.add_argument("--steps-per-epoch", type=int, default=50)
    parser.add_argument("--memory-gb", type=float, default=5.0, help="that patch and batch are planned for")
    parser.add_argument("--mirror", choices=("auto", "yes", "no"), default="auto")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--no-hold", dest="hold", action="store_false", help="read phases as they are needed")
    parser.add_argument("--no-bench", dest="bench", action="store_false", help="of `all`")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipes: NAME=JSON")
    given = parser.parse_args(arguments)
    if given.stage == "score":
        from benchmarks.mri_on_gpu_score import score

        score(*given.paths)
        return
    from elsewhere.engine.threads import let_threads_sleep

    let_threads_sleep()
    # Else a mere question whether there is a GPU begins CUDA, and no child could.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    began = time.time()
    given.keep.mkdir(parents=True, exist_ok=True)
    whole = Place(keep=given.keep, began=began, until=began + given.seconds)
    place = replace(whole, until=whole.until - RESERVE_S) if given.stage != "collect" else whole
    stages: dict[str, Callable[..., object]] = {
        "probe": run_probe, "make": make, "train": train, "bench": bench, "collect": collect,
        "all": everything,
    }  # fmt: skip
    stages[given.stage](place, given)
    if given.stage in ("train", "bench"):
        collect(place, given)
    place.say(f"{given.stage} ended")


if __name__ == "__main__":
    main()
