"""Training of a volume network beside a plain MONAI loop, and sliding-window prediction beside the network's floor.

On this machine: `python -m benchmarks segmentation`. On a bare GPU machine, from the repository's root, with
MONAI's package on the path: `PYTHONPATH=src:.:carried python3 -m benchmarks.bench_segmentation --device cuda
--out segmentation-gpu.json`; the file goes to benchmarks/results/.

Both sides train the same network on the same prepared volumes, patches of the same size, a third of them on
foreground, Dice + cross-entropy with SGD. The plain loop is what one writes first: CacheDataset, a DataLoader
with worker processes, RandCropByPosNegLabel, random affine, flips, noise, gamma and contrast as MONAI has them,
bf16 autocast on a GPU. The floor of prediction is the forward pass of as many windows out of device memory.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np


def blobs(n: int, shape: tuple[int, int, int], seed: int = 0):
    """Three phases of tissue with a bright ellipsoid, air around: sizes matter here, not anatomy."""
    from elsewhere.inputs.volumes import MemoryVolumes

    rng = np.random.default_rng(seed)
    axes = [np.linspace(-1, 1, edge, dtype=np.float32) for edge in shape]
    x, y, z = axes[0][:, None, None], axes[1][None, :, None], axes[2][None, None, :]
    images, masks = {}, {}
    for case in range(n):
        body = (x**2 / 0.95 + y**2 / 0.7 + z**2 / 1.5) < 1
        c = rng.uniform(-0.5, 0.5, 3)
        r = rng.uniform(0.06, 0.15)
        ball = ((x - c[0]) ** 2 + (y - c[1]) ** 2 + (z - c[2]) ** 2) < r**2
        coarse = rng.normal(1, 0.2, tuple(edge // 8 + 1 for edge in shape)).astype(np.float32)
        for axis in range(3):
            coarse = np.repeat(coarse, 8, axis)
        tissue = coarse[: shape[0], : shape[1], : shape[2]] * body
        name = f"B/{case:03d}"
        images[name] = [
            (300 * tissue * (1 + gain * ball) + rng.rayleigh(8, shape).astype(np.float32)).astype(np.float32)
            for gain in (0.0, 0.9, 0.7)
        ]
        masks[name] = ball & body
    return MemoryVolumes(images=images, masks=masks, spacing_mm=dict.fromkeys(images, (0.7, 0.7, 1.6)))


def now(device: str) -> float:
    """Wall time on a GPU; on a CPU, where all is one thread, the process's own time: neighbours do not count."""
    return time.perf_counter() if device == "cuda" else time.process_time()


def wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def ours(data, plan, *, device, epochs, steps, channels_last=None, compiled=True) -> tuple[float, float]:
    """Seconds a step after the first epoch, and the last epoch's loss."""
    from elsewhere.training.volumes import FitSettings, build_network, fit

    ends: list[float] = []

    def stamp(entry, network):
        wait(device)
        ends.append(now(device))

    network = build_network(plan, seed=0, device=device, channels_last=channels_last)
    settings = FitSettings(epochs=epochs, steps_per_epoch=steps, compiled=compiled)
    done = fit(network, data, plan, settings, seed=0, on_epoch=stamp)
    return (ends[-1] - ends[0]) / ((epochs - 1) * steps), done.history[-1]["train_loss"]


def torch_norms(module):
    """The norm that a plain network has."""
    from torch import nn

    from elsewhere.training.volumes.networks import InstanceNorm

    for name, child in module.named_children():
        if isinstance(child, InstanceNorm):
            setattr(module, name, nn.InstanceNorm3d(len(child.weight), affine=True))
        else:
            torch_norms(child)
    return module


def monai_loop(data, plan, *, device, epochs, steps, workers) -> tuple[float, float]:
    """The plain loop over the same volumes, which it keeps in memory as CacheDataset does."""
    import torch
    from monai.data import CacheDataset, DataLoader
    from monai.losses import DiceCELoss
    from monai.transforms import (
        Compose,
        FgBgToIndicesd,
        RandAdjustContrastd,
        RandAffined,
        RandCropByPosNegLabeld,
        RandFlipd,
        RandGaussianNoised,
        RandGaussianSmoothd,
        RandScaleIntensityd,
        SelectItemsd,
        SpatialPadd,
    )
    from torch.utils.data import RandomSampler

    from elsewhere.training.volumes import build_network

    items = []
    for case in data.cases:
        image, mask = data.volume(case)
        items.append({"image": image.float().cpu().contiguous(), "label": mask[None].float().cpu()})
    both = ["image", "label"]
    transform = Compose(
        [
            SpatialPadd(both, plan.patch),
            FgBgToIndicesd("label"),
            RandCropByPosNegLabeld(
                both,
                "label",
                plan.patch,
                pos=1,
                neg=2,
                num_samples=1,
                fg_indices_key="label_fg_indices",
                bg_indices_key="label_bg_indices",
            ),
            SelectItemsd(both),
            RandAffined(
                both,
                prob=0.2,
                rotate_range=(0.52,) * 3,
                scale_range=(0.3,) * 3,
                mode=("bilinear", "nearest"),
                padding_mode="zeros",
            ),
            *(RandFlipd(both, prob=0.5, spatial_axis=axis) for axis in range(3)),
            RandGaussianNoised("image", prob=0.1, std=0.3),
            RandGaussianSmoothd(
                "image", prob=0.2, sigma_x=(0.5, 1.0), sigma_y=(0.5, 1.0), sigma_z=(0.5, 1.0)
            ),
            RandScaleIntensityd("image", factors=0.25, prob=0.15),
            RandAdjustContrastd("image", prob=0.3, gamma=(0.7, 1.5)),
        ]
    ).set_random_state(0)
    dataset = CacheDataset(items, transform, cache_rate=1.0, num_workers=None, progress=False)
    # As long as an epoch of ours is: the cases again and again.
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(
        dataset,
        batch_size=plan.batch,
        sampler=RandomSampler(dataset, True, steps * plan.batch, generator),
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device == "cuda",
    )
    network = build_network(plan, seed=0, deep_supervision=False, channels_last=False)
    network = torch_norms(network).to(device).train()
    loss_of = DiceCELoss(sigmoid=True)
    optimiser = torch.optim.SGD(
        network.parameters(), lr=0.01, momentum=0.99, nesterov=True, weight_decay=3e-5
    )
    ends, total = [], 0.0
    for _ in range(epochs):
        total = 0.0
        for batch in loader:
            x, target = batch["image"].to(device).as_tensor(), batch["label"].to(device).as_tensor()
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                out = network(x)
            loss = loss_of(out.float(), target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 12.0)
            optimiser.step()
            total += float(loss.detach())
        wait(device)
        ends.append(now(device))
    return (ends[-1] - ends[0]) / ((epochs - 1) * steps), total / steps


def inference(volumes, plan, *, case, device, repeats, mirror, batch, compiled) -> dict[str, float]:
    """Seconds of one whole prediction, of its parts, and of the network alone on as many windows."""
    import torch

    from elsewhere.training.cuda import fixed_shapes
    from elsewhere.training.volumes import build_network, predict
    from elsewhere.training.volumes.networks import layout_of
    from elsewhere.training.volumes.preparing import standardise
    from elsewhere.training.volumes.windows import forward_of, mirrors

    network = build_network(plan, seed=0, device=device).eval()
    gpu = device == "cuda"

    def whole():
        found = predict(
            network,
            volumes,
            case,
            plan,
            "three",
            device=device,
            mirror=mirror,
            batch=batch,
            compiled=compiled,
        )
        found.mask()
        return found

    found = whole()
    times: dict[str, list[float]] = {"whole": [], "prepare": [], "floor": []}
    forward = forward_of(network, compiled)
    x = torch.randn((batch, plan.channels, *plan.patch), device=device)
    x = x.contiguous(memory_format=layout_of(network))
    turns = len(mirrors(plan.patch, mirror=mirror))
    passes = -(-found.windows // batch) * turns
    for _ in range(repeats):
        wait(device)
        began = now(device)
        whole()
        wait(device)
        times["whole"].append(now(device) - began)
        began = now(device)
        standardise(volumes, case, plan, "three", device=device, with_mask=False)
        wait(device)
        times["prepare"].append(now(device) - began)
        began = now(device)
        with (
            torch.no_grad(),
            torch.autocast(device, dtype=torch.bfloat16, enabled=gpu),
            fixed_shapes(gpu),
        ):
            for _ in range(passes):
                forward(x)
        wait(device)
        times["floor"].append(now(device) - began)
    out = {name: float(np.median(values)) for name, values in times.items()}
    return out | {"windows": found.windows, "skipped": found.skipped, "mirrors": turns}


def run(
    *, quick: bool = False, device: str = "cpu", full: bool = False, variants: bool = False
) -> list[dict]:
    import torch

    from elsewhere.training.volumes import fingerprint, make_plan, prepare

    gpu = device == "cuda"
    if not gpu:
        torch.set_num_threads(1)
    shape = (512, 512, 110) if full else (256, 256, 64) if gpu else (64, 64, 40)
    n = 8 if gpu else 4
    small = {} if gpu else {"patch": (32, 32, 24), "widths": (8, 16, 32), "blocks": (1, 1, 1), "batch": 2}
    volumes = blobs(n, shape)
    cases = list(volumes.images)
    plan = make_plan(fingerprint(volumes, cases, "three"), "three", **small)
    began = now(device)
    data = prepare(volumes, cases, plan, "three", device=device)
    wait(device)
    prepared = (now(device) - began) / n
    return rows_of(
        volumes,
        data,
        plan,
        case=cases[0],
        device=device,
        compiled=gpu,
        prepared=prepared,
        epochs=3,
        steps=20 if gpu else 4 if quick else 12,
        workers=min(12, (os.cpu_count() or 1) - 1) if gpu else 0,
        repeats=3 if gpu else 1,
        mirror=gpu,
        batch=4 if gpu else 2,
        variants=variants,
    )


def rows_of(
    volumes,
    data,
    plan,
    *,
    case: str,
    device: str,
    compiled: bool,
    prepared: float,
    epochs: int,
    steps: int,
    workers: int,
    repeats: int,
    mirror: bool,
    batch: int,
    variants: bool = False,
) -> list[dict]:
    """The two rows: a training step on `data`, and a whole prediction of `case`."""
    shared = {"case": case, "device": device, "compiled": compiled}
    training = training_row(
        volumes,
        data,
        plan,
        **shared,
        prepared=prepared,
        epochs=epochs,
        steps=steps,
        workers=workers,
        variants=variants,
    )
    return [training, inference_row(volumes, plan, **shared, repeats=repeats, mirror=mirror, batch=batch)]


def _clock(device: str, compiled: bool) -> str:
    if device == "cuda":
        return "" if compiled else "without torch.compile; "
    return "process time of one thread; "


def _where(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def training_row(
    volumes,
    data,
    plan,
    *,
    case: str,
    device: str,
    compiled: bool,
    prepared: float,
    epochs: int,
    steps: int,
    workers: int,
    variants: bool = False,
    what: str = "",
) -> dict:
    import torch

    step, loss = ours(data, plan, device=device, epochs=epochs, steps=steps, compiled=compiled)
    print(f"ours {step:.4f} s a step, loss {loss:.3f}", flush=True)
    others = []
    for last, built in ((False, True), (True, False), (False, False)) if variants else ():
        torch.compiler.reset()
        seconds, _ = ours(
            data, plan, device=device, epochs=2, steps=steps, channels_last=last, compiled=built
        )
        how = f"channels {'last' if last else 'first'}, {'compiled' if built else 'plain'}"
        others.append(f"{how}: {seconds:.4g} s")
        print(others[-1], flush=True)
    plain, plain_loss = monai_loop(data, plan, device=device, epochs=epochs, steps=steps, workers=workers)
    print(f"plain MONAI {plain:.4f} s a step, loss {plain_loss:.3f}", flush=True)
    size = " x ".join(map(str, volumes.grid(case).shape))
    kind = f"{what} " if what else ""
    return {
        "job": f"a training step of a 3D residual-encoder U-Net, patch {plan.patch}, batch {plan.batch}, "
        f"on {_where(device)}",
        "peer": "plain MONAI loop (CacheDataset, DataLoader, RandCropByPosNegLabel, DiceCE), same network",
        "ours_seconds": step,
        "peer_seconds": plain,
        "ratio": plain / step,
        "notes": f"{_clock(device, compiled)}{len(data.cases)} {kind}volumes, up to {size}; ours with deep supervision "
        f"and all augmentations in the step; the plain loop has {workers} worker processes; preparing takes "
        f"{prepared:.2g} s a case" + "".join(f"; {other}" for other in others),
    }


def inference_row(
    volumes,
    plan,
    *,
    case: str,
    device: str,
    compiled: bool,
    repeats: int,
    mirror: bool,
    batch: int,
    what: str = "",
) -> dict:
    found = inference(
        volumes,
        plan,
        case=case,
        device=device,
        repeats=repeats,
        mirror=mirror,
        batch=batch,
        compiled=compiled,
    )
    size = " x ".join(map(str, volumes.grid(case).shape))
    kind = f"{what} " if what else ""
    return {
        "job": f"sliding-window prediction of a {size} three-phase {kind}volume to its own grid, on {_where(device)}",
        "peer": "the network's own forward passes on as many windows",
        "ours_seconds": found["whole"],
        "peer_seconds": found["floor"],
        "ratio": found["floor"] / found["whole"],
        "notes": f"{_clock(device, compiled)}{found['windows']} windows ({found['skipped']} of air skipped) x "
        f"{found['mirrors']} mirrors; {found['prepare']:.2g} s of it read, z-score and resample",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true", help="volumes of 512 x 512 x 110")
    parser.add_argument("--variants", action="store_true", help="our step in other layouts too")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = run(quick=given.quick, device=given.device, full=given.full, variants=given.variants)
    import torch

    name = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    result = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python -m benchmarks.bench_segmentation --device {given.device}"
        + (" --full" if given.full else ""),
        "machine": f"{name}, torch {torch.__version__}, {os.cpu_count()} cores",
        "rows": rows,
    }
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
