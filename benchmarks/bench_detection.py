"""Detectors in volumes: prediction next to the network's own passes, training next to a plain loop with a DataLoader.

On this machine, small volumes: `python -m benchmarks detection`. On a bare GPU machine, from the repository's root, on
synthetic volumes of half size: `PYTHONPATH=src:. python3 -m benchmarks.bench_detection --device cuda --out
detection-gpu.json`; the file goes to benchmarks/results/.

The floor of a prediction is the network with its own choice of boxes on batches that were cut beforehand and lie on the
device; ours is everything from the mapped file to boxes in the volume. The plain loop is what one writes first: worker
processes cut a tile out of the mapped file, flip and zoom it, and the same network is trained on the batches.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elsewhere.inputs.tomosynthesis.cache import VolumeCache
from elsewhere.inputs.tomosynthesis.described import DescribedVolume
from elsewhere.inputs.tomosynthesis.source import TomosynthesisSource
from elsewhere.inputs.tomosynthesis.volume import Lesion, Truth
from elsewhere.networks.detectors import build_detector
from elsewhere.networks.detectors.base import Targets
from elsewhere.phantom.tomosynthesis import draw
from elsewhere.phantom.tomosynthesis_on_demand import description_of
from elsewhere.phantom.tomosynthesis_patients import World
from elsewhere.training.cuda import mixed_precision
from elsewhere.training.detection.device_slices import DeviceSlices, StorageSettings, lay_out
from elsewhere.training.detection.fitting import FitOptions, fit_detector
from elsewhere.training.detection.sampling import SamplingSettings, list_slices
from elsewhere.training.detection.volume_inference import (
    InferenceOptions,
    _batches,
    _tiles,
    predict_volume,
    store_volume,
)

NETWORKS = {
    "cuda": ("faster-rcnn-lite0", "retinanet-lite0", "efficientdet", "csp-medium", "dense-one-stage"),
    "cpu": ("faster-rcnn-tiny", "csp-tiny"),
}


TRAINED = {
    "cuda": ("faster-rcnn-lite0", "retinanet-lite0", "csp-medium"),
    "cpu": ("faster-rcnn-tiny", "csp-tiny"),
}


def volumes(folder: Path, n: int, size: str) -> tuple[Any, list[str]]:
    """A view of n synthetic volumes with lesions, in a cache."""
    world = World(patients=n, size=size, mix=(0.0, 0.0, 0.5, 0.5), vendors=("A",), seed=5)
    chosen = world.cases()[:n]
    cache = VolumeCache(folder / "volumes")
    held, truths = {}, {}
    for case in chosen:
        name = f"bench/{case.case_name}"
        held[name] = DescribedVolume(description_of(case), where=folder, cache=cache)
        lesions = tuple(
            Lesion(x=b.x, y=b.y, width=b.width, height=b.height, slice=b.slice, kind=case.finding)
            for b in draw(case).lesions
        )
        truths[name] = Truth(lesions=lesions, finding=case.finding)
    source = TomosynthesisSource(held, truths)
    source.prepare(list(held), threads=os.cpu_count() or 1)
    return source.view(cases=frozenset(held), hidden=frozenset(), sees=frozenset()), list(held)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def clock(device: torch.device) -> float:
    """Seconds; of a CPU those of this process's threads, since other work may run on the machine."""
    wait(device)
    return time.perf_counter() if device.type == "cuda" else time.process_time()


@torch.no_grad()
def prediction(
    view: Any, cases: list[str], network: str, device: torch.device, pixel: float
) -> dict[str, Any]:
    """One row: volumes per network, everything included, next to its passes on the same batches."""
    model = lay_out(build_detector(network, seed=1).to(device)).eval()
    options = InferenceOptions(tiles=None, batch=16, neighbours=True, storage=StorageSettings(pixel=pixel))
    predict_volume(model, view, cases[0], options)
    ours = floor = 0.0
    slices = 0
    for case in cases:
        predict_volume(model, view, case, options)  # sizes that are new to cuDNN
        start = clock(device)
        predict_volume(model, view, case, options)
        ours += clock(device) - start
        stored, positions = store_volume(model, view, case, options)
        cut = [
            batch
            for tile in _tiles(stored, case, model.multiple, options)
            for batch, _ in _batches(stored, case, list(positions), tile, options.batch)
        ]
        start = clock(device)
        for pictures in cut:
            with mixed_precision(device):
                model.detect(pictures, options.detect)
        floor += clock(device) - start
        slices += len(positions)
    n = len(cases)
    return {
        "job": f"find boxes in a volume of {slices // n} slices, {network}, {device.type}",
        "peer": "the network's own forward passes on batches that are cut already",
        "peer_seconds": floor / n,
        "ours_seconds": ours / n,
        "ratio": floor / ours,
        "bar": "1.3 times its passes" if device.type == "cuda" else None,
        "bar_met": ours <= 1.3 * floor if device.type == "cuda" else None,
        "notes": f"{ours / floor:.2f} times the passes; {1000 * ours / slices:.2f} ms per slice, from the mapped file to "
        f"boxes in the volume; mean of {n} volumes, random weights",
    }


class LoaderTiles(torch.utils.data.Dataset):
    """What one writes first: a tile of a slice at a time, around its lesion, flipped and zoomed, in worker processes."""

    def __init__(self, view: Any, table: Any, size: tuple[int, int], pixel: float, epochs: int) -> None:
        self.view, self.table, self.size, self.pixel, self.epochs = view, table, size, pixel, epochs

    def __len__(self) -> int:
        return self.epochs * len(self.table)

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        row = at % len(self.table)
        rng = np.random.default_rng(at)
        case, z = self.table.case[row], int(self.table.z[row])
        last = self.view.shape(case)[2] - 1
        low, high = self.view.window(case)
        x0, y0 = self.view.breast(case)[:2]
        planes = [self.view.slice(case, min(max(z + step, 0), last)) for step in (-1, 0, 1)]
        picture = torch.from_numpy(np.stack([np.asarray(one, dtype=np.float32) for one in planes]))
        picture = ((picture - low) / (high - low)).clamp(0, 1)
        zoom = float(rng.uniform(0.9, 1.1)) / self.pixel
        scaled = [max(32, round(side * zoom)) for side in picture.shape[1:]]
        picture = torch.nn.functional.interpolate(
            picture[None], size=scaled, mode="bilinear", antialias=True, align_corners=False
        )[0]
        box = torch.from_numpy(self.table.box[row]).float()
        box = (box - torch.tensor([x0, y0, x0, y0], dtype=torch.float32)) * zoom
        height, width = self.size
        centre = (box[0, :2] + box[0, 2:]) / 2
        left = int(np.clip(centre[0] - rng.uniform(0.2, 0.8) * width, 0, max(0, scaled[1] - width)))
        top = int(np.clip(centre[1] - rng.uniform(0.2, 0.8) * height, 0, max(0, scaled[0] - height)))
        tile = torch.zeros(3, height, width)
        part = picture[:, top : top + height, left : left + width]
        tile[:, : part.shape[1], : part.shape[2]] = part
        box = box - torch.tensor([left, top, left, top], dtype=torch.float32)
        if rng.random() < 0.5:
            tile = tile.flip(2)
            box = torch.stack([width - box[:, 2], box[:, 1], width - box[:, 0], box[:, 3]], dim=1)
        box[:, 0::2] = box[:, 0::2].clamp(0, width)
        box[:, 1::2] = box[:, 1::2].clamp(0, height)
        return tile, box, torch.from_numpy(self.table.label[row])


def plain_loop(
    view: Any,
    table: Any,
    network: str,
    device: torch.device,
    *,
    size: tuple[int, int],
    batch: int,
    epochs: int,
    pixel: float,
) -> float:
    """Tiles per second after the first epoch."""
    model = build_detector(network, seed=1).to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-4)
    workers = min(12, os.cpu_count() or 1) if device.type == "cuda" else 0
    loader = torch.utils.data.DataLoader(
        LoaderTiles(view, table, size, pixel, epochs + 1),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator().manual_seed(0),
    )
    first = max(1, len(table) // batch)
    start, tiles = 0.0, 0
    for step, (pictures, box, label) in enumerate(loader):
        if step == first:
            start = clock(device)
        pictures = pictures.to(device, non_blocking=True)
        targets = Targets(box=box.to(device), label=label.to(device))
        optimiser.zero_grad(set_to_none=True)
        with mixed_precision(device):
            parts = model.losses(pictures, targets)
            loss = torch.stack([part.float() for part in parts.values()]).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        tiles += len(label) if step >= first else 0
    return tiles / (clock(device) - start)


def training(
    view: Any, cases: list[str], network: str, device: torch.device, *, pixel: float, epochs: int
) -> dict[str, Any]:
    """One row: tiles per second of both loops, after an epoch that warms up."""
    size = (512, 384) if device.type == "cuda" else (128, 96)
    batch = 16 if device.type == "cuda" else 8
    sampling = SamplingSettings(reach=3, neighbours=True)
    table = list_slices(view, cases, sampling, rng=np.random.default_rng(0))
    stored = DeviceSlices(
        view, list(zip(table.case, table.z.tolist(), strict=True)), StorageSettings(pixel=pixel), device
    )
    ticks: list[float] = []
    options = FitOptions(
        epochs=epochs + 1,
        batch=batch,
        size=size,
        learning_rate=5e-4,
        sampling=sampling,
        progress=lambda what, done, total: ticks.append(clock(device)),
    )
    model = build_detector(network, seed=1).to(device)
    fitted = fit_detector(model, stored, train=table, validation=None, options=options)
    ours = fitted.tiles * epochs / (epochs + 1) / (ticks[-1] - ticks[0])
    peer = plain_loop(view, table, network, device, size=size, batch=batch, epochs=epochs, pixel=pixel)
    return {
        "job": f"train {network} on 10,000 tiles of {size[0]} x {size[1]} px, batch {batch}, {device.type}",
        "peer": "plain loop: DataLoader, tiles from mapped files, same network"
        + (", 12 worker processes, bf16" if device.type == "cuda" else ""),
        "peer_seconds": 10_000 / peer,
        "ours_seconds": 10_000 / ours,
        "ratio": ours / peer,
        "bar": "3x" if device.type == "cuda" else "0.9x",
        "bar_met": ours >= (3.0 if device.type == "cuda" else 0.9) * peer,
        "notes": f"{peer:.0f} and {ours:.0f} tiles per second after the first epoch; {len(table)} slices with a lesion of "
        f"{len(cases)} volumes, slices z-1, z, z+1 as channels; ours flips and zooms on the device",
    }


def measure(device: str, *, n: int, size: str, pixel: float, epochs: int) -> list[dict[str, Any]]:
    """All rows of a device."""
    where = torch.device(device)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        view, cases = volumes(Path(name), n, size)
        for network in NETWORKS[where.type]:
            rows.append(prediction(view, cases[:6], network, where, pixel))
            print(rows[-1]["job"], rows[-1]["notes"], flush=True)
        for network in TRAINED[where.type]:
            rows.append(training(view, cases, network, where, pixel=pixel, epochs=epochs))
            print(rows[-1]["job"], rows[-1]["notes"], flush=True)
    return rows


def run(quick: bool = False) -> list[dict[str, Any]]:
    """The rows of this machine: small volumes on a CPU."""
    return measure("cpu", n=6 if quick else 12, size="small", pixel=1.0, epochs=1 if quick else 3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", default="half", choices=("small", "half"))
    parser.add_argument("--volumes", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", default="detection-gpu.json")
    given = parser.parse_args()
    pixel = 2.0 if given.size == "half" else 1.0
    rows = measure(given.device, n=given.volumes, size=given.size, pixel=pixel, epochs=given.epochs)
    gpu = torch.cuda.get_device_name(0) if given.device == "cuda" else "CPU"
    content = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python3 -m benchmarks.bench_detection --device {given.device}",
        "machine": f"{gpu}, {os.cpu_count()} cores, torch {torch.__version__}",
        "rows": rows,
    }
    Path(given.out).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
