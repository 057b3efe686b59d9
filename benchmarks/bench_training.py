"""Training images a second beside a plain PyTorch loop with a DataLoader, on the same picture files.

On this machine: `python -m benchmarks training`. On a bare GPU machine, from the repository's root:
`PYTHONPATH=src:. python3 -m benchmarks.bench_training --device cuda --out training-gpu.json`; the file goes
to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np


def write_pictures(folder: Path, n: int, seed: int = 0) -> tuple[list[Path], list[list[int]], np.ndarray]:
    """Speckle of ultrasound size, as png files, a dark lesion in each; the label is its shape."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    files, boxes, labels = [], [], np.arange(n) % 2
    for at in range(n):
        h, w = int(rng.integers(350, 500)), int(rng.integers(400, 600))
        coarse = rng.rayleigh(60, (h // 2 + 1, w // 2 + 1))
        pixels = np.repeat(np.repeat(coarse, 2, 0), 2, 1)[:h, :w]
        bh, bw = (60, 120) if labels[at] == 0 else (100, 80)
        y, x = int(rng.integers(20, h - bh - 20)), int(rng.integers(20, w - bw - 20))
        pixels[y : y + bh, x : x + bw] *= 0.3
        path = folder / f"{at:05d}.png"
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
        files.append(path)
        boxes.append([x, y, x + bw, y + bh])
    return files, boxes, labels


class LoaderPictures:
    """What one writes first: open, crop, resize and augment a picture at a time, in worker processes."""

    def __init__(self, files, boxes, labels, size):
        from torchvision.transforms import v2

        self.files, self.boxes, self.labels = files, boxes, labels
        import torch

        self.transform = v2.Compose(
            [
                v2.Resize((size, size), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.RandomAffine(10, translate=(10 / size, 10 / size), scale=(0.9, 1.1)),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return len(self.files)

    def __getitem__(self, at):
        from PIL import Image

        with Image.open(self.files[at]) as image:
            x0, y0, x1, y1 = self.boxes[at]
            grow = 0.12 * max(x1 - x0, y1 - y0)
            crop = image.convert("RGB").crop((x0 - grow, y0 - grow, x1 + grow, y1 + grow))
            return self.transform(crop), int(self.labels[at])


def plain_loop(files, boxes, labels, *, network, size, batch, epochs, device) -> float:
    """Images a second over the epochs after the first."""
    import torch
    from torch.utils.data import DataLoader

    from elsewhere.networks import build_network

    model = build_network(network, size_px=size, seed=0).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-4)
    loader = DataLoader(
        LoaderPictures(files, boxes, labels, size),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=min(8, os.cpu_count() or 1) if device == "cuda" else max(0, (os.cpu_count() or 1) - 1),
        persistent_workers=device == "cuda" or (os.cpu_count() or 1) > 1,
        generator=torch.Generator().manual_seed(0),
    )
    start, images = 0.0, 0
    for epoch in range(epochs + 1):
        if epoch == 1:
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimiser.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
            images += len(y) if epoch else 0
    if device == "cuda":
        torch.cuda.synchronize()
    return images / (time.perf_counter() - start)


def ours(files, boxes, labels, *, network, size, batch, epochs, device, units, lanes) -> float:
    """Images a second of several trainings side by side, after one that warms up; decoding included."""
    from elsewhere.inputs import Cases, Pictures
    from elsewhere.training import train_units
    from elsewhere.training.pictures.settings import (
        ClassifierSettings,
        InputSpec,
        PictureTraining,
        PictureWork,
    )

    names = [f"bench/{file.stem}" for file in files]
    pictures = Pictures(dict(zip(names, files, strict=True)))
    cases = Cases(
        case=tuple(names),
        dataset=("bench",) * len(names),
        label=labels.astype(np.int8),
        box=np.array(boxes, np.int32),
        digest=tuple(pictures.digest(name) for name in names),
    )
    work = PictureWork(cases=cases, pictures=pictures)
    check = names[: 2 * batch]

    def unit(seed: int, epochs: int) -> PictureTraining:
        recipe = ClassifierSettings(network=network, weights="none", batch=batch, epochs=epochs, patience=99)
        if network == "vit-b-16":
            recipe = ClassifierSettings(
                network=network,
                weights="none",
                batch=batch,
                epochs=epochs,
                patience=99,
                dropout=0.0,
                shift_px=0,
            )
        return PictureTraining(
            key=str(seed),
            name=str(seed),
            train=tuple(names),
            validation=tuple(check),
            predict=tuple(check),
            input=InputSpec(kind="roi", size_px=size),
            recipe=recipe,
            seed=seed,
        )

    def train(units: list[PictureTraining]) -> float:
        seen = []
        start = time.perf_counter()
        train_units(
            units,
            work,
            device=device,
            lanes=lanes,
            finished=lambda u, o: seen.append(o.images),
            failed=lambda u, why: print(why),
        )
        return sum(seen) / (time.perf_counter() - start)

    train([unit(0, 1)])
    return train([unit(seed, epochs) for seed in range(1, units + 1)])


def measure(device: str, *, quick: bool = False) -> list[dict]:
    n = 160 if device == "cpu" else 1024
    jobs = [("efficientnet-lite0", 224, 16, 3, 1 if device == "cpu" else 24, 0)]
    if device == "cuda":
        jobs.append(("vit-b-16", 384, 12, 1, 2 if quick else 4, 2))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files, boxes, labels = write_pictures(Path(folder), n)
        for network, size, batch, epochs, units, lanes in jobs:
            kwargs = {"network": network, "size": size, "batch": batch, "device": device}
            peer = plain_loop(files, boxes, labels, epochs=epochs, **kwargs)
            mine = ours(files, boxes, labels, epochs=epochs, units=units, lanes=lanes, **kwargs)
            rows.append(
                {
                    "job": f"training {network} at {size} px, batch {batch}, 10,000 images, {device}",
                    "peer": "plain PyTorch loop with a DataLoader"
                    + (" and bf16 autocast" if device == "cuda" else ""),
                    "peer_seconds": 10_000 / peer,
                    "ours_seconds": 10_000 / mine,
                    "ratio": mine / peer,
                    "notes": f"{peer:.0f} and {mine:.0f} images/s; {n} png pictures of about 500 x 425 px; ours: {units} trainings, "
                    "decoding, validation and prediction included; peer: after its first epoch",
                }
            )
    return rows


def run(quick: bool = False) -> list[dict]:
    return measure("cpu", quick=quick)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    import torch

    rows = measure(given.device, quick=given.quick)
    name = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    result = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python3 -m benchmarks.bench_training --device {given.device}",
        "machine": f"{name}, {os.cpu_count()} cores, torch {torch.__version__}",
        "rows": rows,
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(row["job"], row["notes"], f"{row['ratio']:.2f}x", flush=True)


if __name__ == "__main__":
    main()
