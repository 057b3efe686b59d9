"""Macenko against its rules in plain numpy, and outlines to 8 um masks against scikit-image; one thread, results compared.

On this machine: `python -m benchmarks stain`. Batches of 8 patches on a bare GPU machine (torch, torchvision, numpy,
scipy), against a training step of the published network at the same batch size, from the repository's root:
`PYTHONPATH=src:. python3 -m benchmarks.bench_stain --device cuda --out stain-gpu.json`; the file goes to
benchmarks/results/.

The peer of Macenko is written with tables where numpy profits from them. The outlines are the 110 public files of CAMELYON16
with tumour where the folder `shared` lies next to the repository, else as many synthetic ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

MPP = 0.243
PIXEL_UM = 8.0
MOST_WORK = 2e9
"""The peer tests every pixel of a ring's box against every edge: files up to this many tests take part."""


def density(picture: np.ndarray) -> np.ndarray:
    return np.maximum(-np.log(np.where(picture == 0, 1, picture) / 255.0), 1e-6)


def rules_fit(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """TIAToolbox's rules: tissue by luminosity after a contrast stretch, the plane, two percentiles, least squares."""
    low, high = np.percentile(picture, (2, 98))
    values = np.floor((np.clip(np.arange(256.0), low, high) - low) / (high - low) * 255.0) / 255.0
    linear = np.where(values > 0.04045, ((values + 0.055) / 1.055) ** 2.4, values / 12.92)
    light = linear[picture] @ np.array([0.212671, 0.715160, 0.072169])
    lightness = np.where(light > 0.008856, 116 * np.cbrt(light) - 16, 903.3 * light)
    od = density(picture)
    tissue = od[np.rint(lightness * 2.55) / 255.0 < 0.8]
    plane = np.linalg.eigh(np.cov(tissue, rowvar=False))[1][:, [2, 1]]
    plane = plane * np.where(plane[0] < 0, -1, 1)
    projected = tissue @ plane
    angles = np.arctan2(projected[:, 1], projected[:, 0])
    ends = [plane @ (np.cos(a), np.sin(a)) for a in np.percentile(angles, (1, 99))]
    matrix = np.array(ends if ends[0][0] > ends[1][0] else ends[::-1])
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    amounts = np.linalg.lstsq(matrix.T, od.reshape(-1, 3).T, rcond=-1)[0]
    return matrix, np.percentile(amounts, 99, axis=1)


def rules_transform(
    picture: np.ndarray, matrix: np.ndarray, strength: np.ndarray, target: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    amounts = np.linalg.lstsq(matrix.T, density(picture).reshape(-1, 3).T, rcond=-1)[0].T
    made = 255 * np.exp(-(amounts * (target[1] / strength)) @ target[0])
    return np.clip(made, 0, 255).reshape(picture.shape).astype(np.uint8)


def patches(number: int) -> list[np.ndarray]:
    """H&E-like patches: two stains by Beer and Lambert, smooth structures, glass."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(5)
    stains = np.array([[0.53, 0.74, 0.42], [0.24, 0.83, 0.50]])
    stains /= np.linalg.norm(stains, axis=1, keepdims=True)
    made = []
    for _ in range(number):
        fields = [gaussian_filter(rng.normal(size=(256, 256)), s) * s * 3.5 for s in (3, 6, 20)]
        amounts = np.stack([np.clip(fields[0], 0, 2) + 0.1, np.clip(0.6 + 0.3 * fields[1], 0.05, 2)], axis=-1)
        amounts[fields[2] > 1.0] = 0.0
        od = np.maximum(amounts @ stains + rng.normal(0, 0.02, (256, 256, 3)), 0)
        made.append(np.rint(245 * np.exp(-od)).astype(np.uint8))
    return made


def best(function: Callable[[], Any], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def macenko_rows(quick: bool) -> list[dict[str, Any]]:
    from elsewhere.inputs.stain import macenko
    from elsewhere.inputs.stain.fits import TARGETS

    study = TARGETS["study"]
    target = (study.matrix, np.asarray(study.concentrations))
    pictures, rounds = patches(4 if quick else 20), 2 if quick else 5

    def ours() -> list[np.ndarray]:
        return [macenko.transform(p, macenko.fit(p), study, background="transform") for p in pictures]

    def rules() -> list[np.ndarray]:
        return [rules_transform(p, *rules_fit(p), target) for p in pictures]

    slide = macenko.fit(np.stack(pictures))
    matrix, strength = slide.matrix, np.asarray(slide.concentrations)

    def ours_slide() -> list[np.ndarray]:
        return [macenko.transform(p, slide, study, background="transform") for p in pictures]

    def rules_slide() -> list[np.ndarray]:
        return [rules_transform(p, matrix, strength, target) for p in pictures]

    rows = []
    for job, mine, peer, bar in (
        ("Macenko, one 256 px patch, fit and transform", ours, rules, 5),
        ("Macenko, one 256 px patch, the slide's matrix given", ours_slide, rules_slide, 20),
    ):
        same = all((a == b).all() for a, b in zip(mine(), peer(), strict=True))
        fast, slow = best(mine, rounds) / len(pictures), best(peer, rounds) / len(pictures)
        rows.append(
            {
                "job": job,
                "peer": "the same rules in plain numpy",
                "peer_seconds": slow,
                "ours_seconds": fast,
                "ratio": slow / fast,
                "bar": bar,
                "notes": f"one thread; same pixels: {same}",
            }
        )
    return rows


def outline_files(quick: bool, folder: Path) -> tuple[list[Any], str]:
    """Annotations with tumour: public ones where they are, else synthetic ones."""
    import tarfile

    from elsewhere.inputs.slides.annotations import Annotations, Outline
    from elsewhere.inputs.slides.annotations.reading import json_annotations

    archive = folder / "data/lymph-nodes/CAMELYON16/polygons_json.tar.xz"
    if archive.exists():
        made = []
        with tarfile.open(archive) as tar:
            for member in tar:
                if not member.isfile() or "Tumor" not in member.name:
                    continue
                content = tar.extractfile(member)
                if content is None:
                    continue
                read = json_annotations(json.load(content), where=member.name)
                if read.outlines:
                    made.append(read)
        return made[:10] if quick else made, "public outline files"
    rng = np.random.default_rng(1)
    made = []
    for _ in range(10 if quick else 110):
        outlines = []
        for _ in range(int(rng.integers(1, 40))):
            n = int(rng.integers(30, 600))
            angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
            length = rng.gamma(2.0, 400.0) * (1 + 0.05 * rng.standard_normal(n))
            centre = rng.uniform(5_000, 90_000, 2)
            outlines.append(
                Outline(centre + np.stack([np.cos(angle), np.sin(angle)], axis=1) * length[:, None])
            )
        made.append(Annotations(tuple(outlines)))
    return made, "synthetic outline files"


def outline_rows(quick: bool) -> list[dict[str, Any]]:
    try:
        from skimage.draw import polygon, polygon2mask
    except ImportError:
        return []
    from elsewhere.inputs.slides.annotations import Grid, to_mask
    from elsewhere.inputs.slides.annotations.mending import resolve

    shared = Path(os.environ.get("ELSEWHERE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    made, kind = outline_files(quick, shared)
    step = PIXEL_UM / MPP
    grids = []
    for one in made:
        _, _, right, bottom = one.box
        grids.append(
            Grid(x=0.0, y=0.0, step_px=step, columns=int(right / step) + 2, rows=int(bottom / step) + 2)
        )

    def corners(ring: np.ndarray) -> np.ndarray:
        return ring[:, ::-1] / step - 0.5

    Pair = tuple[Any, Grid]

    def ours(pairs: list[Pair]) -> list[np.ndarray]:
        return [to_mask(one, grid) for one, grid in pairs]

    def whole(pairs: list[Pair]) -> list[np.ndarray]:
        out = []
        for one, grid in pairs:
            mask = np.zeros((grid.rows, grid.columns), dtype=bool)
            for outline in one.outlines:
                mask |= polygon2mask(mask.shape, corners(outline.ring))
            for outline in one.exclusions:
                mask &= ~polygon2mask(mask.shape, corners(outline.ring))
            out.append(mask)
        return out

    def in_place(pairs: list[Pair]) -> list[np.ndarray]:
        out = []
        for one, grid in pairs:
            mask = np.zeros((grid.rows, grid.columns), dtype=bool)
            for value, outlines in ((True, one.outlines), (False, one.exclusions)):
                for outline in outlines:
                    points = corners(outline.ring)
                    mask[polygon(points[:, 0], points[:, 1], mask.shape)] = value
            out.append(mask)
        return out

    def work(one: Any, grid: Grid) -> float:
        boxes = [np.prod(np.ptp(ring, axis=0) / step + 1) * len(ring) for ring in one.rings]
        return float(sum(boxes)) + 0.5 * len(one.rings) * grid.rows * grid.columns

    every = list(zip(made, grids, strict=True))
    few = [pair for pair in every if work(*pair) <= MOST_WORK][: 3 if quick else None]
    ours(few)
    rows = []
    for name, peer, pairs, bar in (
        ("skimage.draw.polygon2mask, a mask per ring", whole, few, 20),
        ("skimage.draw.polygon, into one mask", in_place, few, None),
    ):
        fast = best(lambda pairs=pairs: ours(pairs), 2 if quick else 5)
        mine = ours(pairs)
        begin = time.perf_counter()
        theirs = peer(pairs)
        slow = time.perf_counter() - begin
        plain = [not any(resolve(one).counts.values()) for one, _ in pairs]
        differ = [int((a.astype(bool) != b).sum()) for a, b in zip(mine, theirs, strict=True)]
        same = all(d == 0 for d, p in zip(differ, plain, strict=True) if p)
        crossing = sum(d for d, p in zip(differ, plain, strict=True) if not p)
        scope = (
            f" of {len(every)} (the others would take the peer minutes)" if len(pairs) < len(every) else ""
        )
        rows.append(
            {
                "job": f"{len(pairs)}{scope} {kind} to masks of 8 um",
                "peer": name,
                "peer_seconds": slow,
                "ours_seconds": fast,
                "ratio": slow / fast,
                "bar": bar,
                "notes": f"same pixels: {same} in the {sum(plain)} files whose rings do not cross; in the others {crossing:,} of "
                f"{sum(int(a.sum()) for a in mine):,} tumour pixels differ: scikit-image leaves gaps where a ring crosses itself",
            }
        )
    return rows


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Two rows of Macenko, and two of outlines where scikit-image is installed."""
    return macenko_rows(quick) + outline_rows(quick)


BATCH = 8
STEP_BAR = 10.0
"""A batch takes under 10 % of a training step."""


def timed(call: Callable[[], Any], device: str, rounds: int) -> float:
    """The median of several rounds in seconds, after as many that do not count, each ended by the device."""
    import torch

    times = []
    for _ in range(2 * rounds):
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[rounds:])


def training_step(device: str) -> Callable[[], Any]:
    """One step of DeepLabV3 on MobileNetV3-Large from random weights: batch 8, 256 px, bf16 on a GPU, Adam."""
    import torch
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    torch.manual_seed(0)
    network = deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=1).to(device)
    network = network.to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4, capturable=device == "cuda")
    pictures = torch.rand(BATCH, 3, 256, 256, device=device).to(memory_format=torch.channels_last)
    truth = (torch.rand(BATCH, 1, 256, 256, device=device) > 0.5).float()
    loss_of = torch.nn.BCEWithLogitsLoss()

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda", cache_enabled=False):
            found = network(pictures)["out"]
        loss_of(found.float(), truth).backward()
        optimiser.step()

    return step


def captured(step: Callable[[], Any]) -> Callable[[], Any]:
    """The same step as a CUDA graph."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def batch_rows(device: str, quick: bool = False) -> list[dict[str, Any]]:
    """Batches of patches on a device, compared with numpy pixel by pixel and with a training step in time."""
    import torch

    from elsewhere.inputs.stain import macenko
    from elsewhere.inputs.stain.batches import fit_batch, transfer_matrices, transform_batch

    rounds = 1 if quick else 30
    pictures = patches(BATCH if quick else 4 * BATCH)
    slide = macenko.fit(np.stack(pictures))
    each = [macenko.transform(p, macenko.fit(p), "study") for p in pictures]
    shared = [macenko.transform(p, slide, "study") for p in pictures]
    batches = [
        torch.from_numpy(np.stack(pictures[at : at + BATCH])).to(device)
        for at in range(0, len(pictures), BATCH)
    ]
    matrices = transfer_matrices([slide] * BATCH, "study").to(device)

    def fit_and_transform(batch: Any) -> Any:
        return transform_batch(batch, transfer_matrices(fit_batch(batch), "study"))

    def transform(batch: Any) -> Any:
        return transform_batch(batch, matrices)

    step = training_step(device)
    step_seconds = timed(step, device, rounds)
    replayed = (
        f"; the step as a CUDA graph {1e3 * timed(captured(step), device, rounds):.2f} ms"
        if device == "cuda"
        else ""
    )
    rows = []
    for job, call, expected in (
        ("the slide's matrix given", transform, shared),
        ("fit and transform of each patch", fit_and_transform, each),
    ):
        found = np.concatenate([call(batch).cpu().numpy() for batch in batches]).astype(int)
        off = np.abs(found - np.stack(expected).astype(int))
        seconds = timed(lambda call=call: call(batches[0]), device, rounds)
        rows.append(
            {
                "job": f"Macenko, a batch of {BATCH} patches of 256 px on {device}, {job}",
                "peer": "a training step of DeepLabV3-MobileNetV3-Large at batch 8, bf16, eager",
                "peer_seconds": step_seconds,
                "ours_seconds": seconds,
                "ratio": step_seconds / seconds,
                "bar": STEP_BAR,
                "notes": f"{100 * seconds / step_seconds:.1f} % of a training step; {1 / seconds:,.0f} batches per second; largest "
                f"difference from numpy {off.max()} grey level, {100 * (off > 0).mean():.2f} % of values differ{replayed}",
            }
        )
        if off.max() > 1:
            rows[-1]["bar_met"] = False
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    import torch

    rows = batch_rows(given.device, quick=given.quick)
    name = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    result = {
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python3 -m benchmarks.bench_stain --device {given.device}",
        "machine": f"{name}, {os.cpu_count()} cores, torch {torch.__version__}",
        "rows": rows,
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(row["job"], row["notes"], f"{row['ratio']:.2f}x", flush=True)


if __name__ == "__main__":
    main()
