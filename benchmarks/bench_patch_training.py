"""Training a segmenter on patches, compared with a plain PyTorch loop with a DataLoader on the same raw patches.

On this machine: `python -m benchmarks patch_training`. On a bare GPU machine, from the repository's root:
`PYTHONPATH=src:. python3 -m benchmarks.bench_patch_training --device cuda --out patch-training-gpu.json`; the file goes to
benchmarks/results/. It needs torch, torchvision, numpy, pandas, pyarrow and scipy.

The peer reads the patches from a mapped file in worker processes, mirrors and jitters them by torchvision, and trains in
bfloat16 on a GPU. Both train the same network with the same loss and batch. Ours includes validation.
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

BAR, BATCH, SIZE = 5.0, 8, 256
STUDY = "deeplab-mobilenet-v3"


def draw_patches(count: int, seed: int = 0, size: int = SIZE) -> tuple[np.ndarray, np.ndarray]:
    """Pink noise with a dark disc in every second patch; pixels and packed masks."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    pixels = np.empty((count, size, size, 3), np.uint8)
    masks = np.zeros((count, size, size), bool)
    noise = rng.normal([200, 150, 190], 12, (16, size, size, 3)).clip(0, 255)
    for at in range(count):
        picture = noise[at % len(noise)].copy()
        if at % 2:
            middle = rng.uniform(size * 0.2, size * 0.8, 2)
            masks[at] = (y - middle[0]) ** 2 + (x - middle[1]) ** 2 < rng.uniform(size * 0.1, size * 0.3) ** 2
            picture[masks[at]] *= 0.6
        pixels[at] = picture
    return pixels, np.packbits(masks.reshape(count, -1), axis=1)


class MappedPatches:
    """What one writes first: a patch at a time from a mapped file, changed by torchvision."""

    def __init__(self, folder: Path) -> None:
        from torchvision import tv_tensors
        from torchvision.transforms import v2

        self.folder = folder
        self.pixels = np.load(folder / "pixels.npy", mmap_mode="r")
        self.masks = np.load(folder / "masks.npy", mmap_mode="r")
        self.image, self.mask = tv_tensors.Image, tv_tensors.Mask
        self.flips = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()])
        self.colour = v2.Compose(
            [
                v2.RandomApply([v2.ColorJitter(contrast=0.2)], p=0.1),
                v2.RandomApply([v2.ColorJitter(saturation=0.2)], p=0.1),
            ]
        )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, at: int) -> tuple[Any, Any]:
        import torch

        size = self.pixels.shape[1]
        picture = torch.from_numpy(self.pixels[at].copy()).permute(2, 0, 1).float() / 255
        mask = torch.from_numpy(np.unpackbits(self.masks[at]).reshape(1, size, size)).float()
        picture, mask = self.flips(self.image(picture), self.mask(mask))
        return self.colour(picture).as_subclass(torch.Tensor), mask.as_subclass(torch.Tensor)


def plain_loop(folder: Path, *, network: str, steps: int, device: str) -> float:
    """Patches per second, after a fifth of the steps."""
    import torch
    from torch.utils.data import DataLoader

    from elsewhere.networks.segmenters import build_segmenter

    model = build_segmenter(network).to(device).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    cores = os.cpu_count() or 1
    loader = DataLoader(
        MappedPatches(folder),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=min(8, cores) if device == "cuda" else max(0, cores - 1),
        persistent_workers=device == "cuda" or cores > 1,
        pin_memory=device == "cuda",
        generator=torch.Generator().manual_seed(0),
    )
    done, start, warm = 0, 0.0, max(2, steps // 5)
    while done < steps + warm:
        for x, truth in loader:
            if done == warm:
                if device == "cuda":
                    torch.cuda.synchronize()
                start = time.perf_counter()
            x, truth = x.to(device, non_blocking=True), truth.to(device, non_blocking=True)
            optimiser.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                logits = model(x)
            p = logits.float().sigmoid()
            hit = (p * truth).sum()
            lost = 0.3 * (truth.sum() - hit) + 0.7 * (p.sum() - hit)
            loss = (lost / (hit + lost + 1.0)) ** 2
            loss.backward()
            optimiser.step()
            done += 1
            if done == steps + warm:
                break
    if device == "cuda":
        torch.cuda.synchronize()
    return steps * BATCH / (time.perf_counter() - start)


def ours(folder: Path, *, network: str, epochs: int, device: str, units: int, lanes: int) -> dict[str, float]:
    """Patches per second of several trainings at the same time; one of an epoch before warms up."""
    from elsewhere.training.patches.concurrent import PatchCallbacks, PatchOptions, train_segmenters
    from elsewhere.training.patches.settings import PatchPool, PatchSettings, PatchTraining

    pool = PatchPool(
        pixels=np.load(folder / "pixels.npy", mmap_mode="r"),
        masks=np.load(folder / "masks.npy", mmap_mode="r"),
    )
    held = len(pool) // 8
    failures: list[str] = []

    def train(count: int, epochs: int) -> tuple[float, float, float]:
        seen, validated = [], []
        settings = PatchSettings(network=network, weights="none", batch=BATCH, epochs=epochs, patience=epochs)
        trainings = [
            PatchTraining(
                key=str(seed),
                train=np.arange(held, len(pool)),
                validation=np.arange(held),
                settings=settings,
                seed=seed,
                keep_weights=False,
            )
            for seed in range(count)
        ]

        def finished(_: Any, outcome: Any) -> None:
            seen.append(outcome.patches)
            validated.append(held * len(outcome.history))

        start = time.perf_counter()
        train_segmenters(
            trainings,
            pool,
            callbacks=PatchCallbacks(finished=finished, failed=lambda _, why: failures.append(why)),
            options=PatchOptions(device=device, lanes=lanes),
        )
        return time.perf_counter() - start, float(sum(seen)), float(sum(validated))

    train(1, 1)
    seconds, patches, validated = train(units, epochs)
    if failures:
        raise RuntimeError(failures[0])
    return {"patches_per_second": patches / seconds, "validated": validated, "seconds": seconds}


def measure(device: str, *, quick: bool = False) -> list[dict[str, Any]]:
    """A row per number of trainings at the same time."""
    on_gpu = device == "cuda"
    network = STUDY if on_gpu else "deeplab-tiny"
    count = 4096 if on_gpu else 96
    jobs = [(1, 1), (8, 4), (12, 6)] if on_gpu else [(1, 1)]
    if quick:
        count, jobs = (1024, jobs[:2]) if on_gpu else (48, jobs)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pixels, masks = draw_patches(count, size=SIZE if on_gpu else 64)
        np.save(folder / "pixels.npy", pixels)
        np.save(folder / "masks.npy", masks)
        peer = plain_loop(folder, network=network, steps=400 if on_gpu else 24, device=device)
        for units, lanes in jobs:
            found = ours(folder, network=network, epochs=3, device=device, units=units, lanes=lanes)
            mine = found["patches_per_second"]
            rows.append(
                {
                    "job": f"training {network} on 10,000 patches of {pixels.shape[1]} px, batch {BATCH}, {lanes} at the same "
                    f"time, {device}",
                    "peer": "plain PyTorch loop with a DataLoader" + (" and bf16 autocast" if on_gpu else ""),
                    "peer_seconds": 10_000 / peer,
                    "ours_seconds": 10_000 / mine,
                    "ratio": mine / peer,
                    **({"bar": BAR} if on_gpu else {}),
                    "notes": f"{peer:,.0f} and {mine:,.0f} patches/s ({peer / BATCH:,.1f} and {mine / BATCH:,.1f} steps/s); "
                    f"{count:,} patches; ours: {units} trainings of 3 epochs, copying, recording and validation on "
                    f"{found['validated']:,.0f} patches included; peer: training alone, after its first steps",
                }
            )
    return rows


def run(quick: bool = False) -> list[dict[str, Any]]:
    """The rows of this machine's CPU."""
    return measure("cpu", quick=quick)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    import torch

    rows = measure(given.device, quick=given.quick)
    name = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    result = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python3 -m benchmarks.bench_patch_training --device {given.device}",
        "machine": f"{name}, {os.cpu_count()} cores, torch {torch.__version__}",
        "rows": rows,
    }
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(row["job"], row["notes"], f"{row['ratio']:.2f}x", flush=True)


if __name__ == "__main__":
    main()
