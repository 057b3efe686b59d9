"""Fixed windows around the lesion, one size and spacing for all cases (MRI-14).

A window is `size` voxels of `spacing_mm` around the middle of the lesion's box; where a lesion is larger the
window grows with it, so that none is cut. Phases of a case share one mean and deviation unless each has its
own: the rise from phase to phase is what the network shall see. A slice is a window of depth one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from elsewhere.errors import UserError
from elsewhere.inputs.volumes import Volumes
from elsewhere.training.response.lesions import LesionSource

Rows = npt.NDArray[np.int64]
GROW = 1.1
"""A lesion larger than its window is shrunk until it fills 1 / GROW of it."""


@dataclass(frozen=True, kw_only=True)
class CropSpec:
    """What is cut out of a case.

    Attributes:
        size: Voxels of the window.
        spacing_mm: The voxel size of the window in mm.
        phases: "p0" before contrast, "p1".. after, "px" the last, "p1..px" all after. A phase that a case
            lacks is replaced by its last one.
        most_phases: The largest number of phases that "p1..px" stands for.
        each: Every phase has its own z-score: for networks that see one phase at a time.

    Example:
        >>> CropSpec(size=(96, 96, 1)).phases
        ('p0', 'p1', 'p2')
    """

    size: tuple[int, int, int] = (64, 64, 64)
    spacing_mm: tuple[float, float, float] = (1.0, 1.0, 1.0)
    phases: tuple[str, ...] = ("p0", "p1", "p2")
    most_phases: int = 6
    each: bool = False


@dataclass(frozen=True, kw_only=True)
class Crops:
    """Crops on the device.

    Attributes:
        cases: Their names.
        images: [crops, phases, x, y, z] in half precision.
        counts: How many phases a case has of its own; the rest repeat its last.
        notes: What a report should say of them.
    """

    cases: tuple[str, ...]
    images: torch.Tensor
    counts: torch.Tensor
    notes: tuple[str, ...] = ()

    def rows(self, cases: Sequence[str]) -> Rows:
        """Return the rows of cases.

        Args:
            cases: Their names.

        Returns:
            One row per name.
        """
        at = {case: row for row, case in enumerate(self.cases)}
        return np.array([at[case] for case in cases], dtype=np.int64)


def flat(volumes: Volumes, cases: Sequence[str]) -> bool:
    """Say whether every case is a single slice.

    Args:
        volumes: Their grids.
        cases: Which.

    Returns:
        True or False.
    """
    return all(volumes.grid(case).shape[2] == 1 for case in cases)


def case_crop(
    volumes: Volumes, case: str, spec: CropSpec, lesion: LesionSource, *, device: str = "cpu"
) -> tuple[torch.Tensor, int]:
    """Cut one case's window and bring it to mean 0 and deviation 1.

    Args:
        volumes: Where phases are read.
        case: The name of the case.
        spec: Size, spacing and phases.
        lesion: How the lesion's box is found.
        device: Where the crop is made.

    Returns:
        [phases, x, y, z], and how many of the phases are the case's own.

    Raises:
        UserError: Its phases differ in size, or `spec` names an unknown phase.
    """
    have = volumes.phases(case)
    wanted, own = _places(spec, have)
    around = (0, min(1, have - 1))
    read = {at: volumes.phase(case, at) for at in sorted({*wanted, *around})}
    shapes = {np.shape(volume) for volume in read.values()}
    if len(shapes) > 1:
        raise UserError(f"the phases of {case} have different sizes: {sorted(shapes)}", where=case)
    before = read[0] if have > 1 else np.zeros_like(read[0])
    box = lesion.box(volumes, case, before=before, after=read[around[1]])
    grid = volumes.grid(case)
    centre = [0.5 * (box[a] + box[3 + a]) for a in range(3)]
    lesion_mm = [(box[3 + a] - box[a]) * grid.spacing_mm[a] for a in range(3)]
    window_mm = [n * mm for n, mm in zip(spec.size, spec.spacing_mm, strict=True)]
    deep = [axis for axis in range(3) if spec.size[axis] > 1]
    grow = max([1.0, *(GROW * lesion_mm[a] / window_mm[a] for a in deep)]) if lesion.kind != "centre" else 1.0
    parts, lines = [], []
    for axis in range(3):
        step = spec.spacing_mm[axis] * grow / grid.spacing_mm[axis]
        at = centre[axis] + (np.arange(spec.size[axis]) + 0.5 - spec.size[axis] / 2) * step - 0.5
        first = int(np.clip(np.floor(at[0]) - 1, 0, grid.shape[axis] - 1))
        last = int(np.clip(np.ceil(at[-1]) + 2, first + 1, grid.shape[axis]))
        parts.append(slice(first, last))
        if grid.shape[axis] == 1 and spec.size[axis] == 1:
            at = np.zeros(1)
        lines.append(torch.from_numpy((2.0 * (at - first) + 1.0) / (last - first) - 1.0).float().to(device))
    inside = tuple(parts)
    stack = np.stack([np.asarray(read[at][inside], dtype=np.float32) for at in wanted])
    source = torch.from_numpy(np.nan_to_num(stack)).to(device).unsqueeze(0)
    x, y, z = torch.meshgrid(*lines, indexing="ij")
    places = torch.stack([z, y, x], dim=-1).unsqueeze(0)
    cut = functional.grid_sample(source, places, mode="bilinear", padding_mode="zeros", align_corners=False)[
        0
    ]
    over = (1, 2, 3) if spec.each else (0, 1, 2, 3)
    deviation, mean = torch.std_mean(cut, dim=over, keepdim=True, correction=0)
    return ((cut - mean) / deviation.clamp_min(1e-6)).clamp(-20.0, 20.0), own


def load_crops(
    volumes: Volumes,
    cases: Sequence[str],
    spec: CropSpec,
    lesion: LesionSource,
    *,
    device: str = "cpu",
    threads: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
    cache: Path | None = None,
) -> Crops:
    """Cut the windows of many cases.

    Args:
        volumes: Where phases are read.
        cases: Their names.
        spec: Size, spacing and phases.
        lesion: How the lesion's box is found.
        device: Where the crops are put.
        threads: Cases at the same time.
        progress: Called with "lesion crops", how many are done, and how many there are.
        cache: A file that a run that was stopped finds again.

    Returns:
        The crops.
    """
    names = tuple(cases)
    key = hashlib.sha256(repr((names, spec, lesion.kind)).encode()).hexdigest()
    kept = _cached(cache, key)
    if kept is None:
        images = np.empty((len(names), _channels(volumes, names, spec), *spec.size), dtype=np.float16)
        counts = np.zeros(len(names), dtype=np.int64)
        done = 0

        def one(at: int) -> None:
            nonlocal done
            cut, counts[at] = case_crop(volumes, names[at], spec, lesion)
            images[at, : len(cut)] = cut.numpy()
            images[at, len(cut) :] = cut[-1].numpy()
            done += 1
            if progress:
                progress("lesion crops", done, len(names))

        with ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
            list(pool.map(one, range(len(names))))
        if cache is not None:
            _keep(cache, key, images, counts)
    else:
        images, counts = kept
    short = int((counts < images.shape[1]).sum())
    notes = (
        (f"{short} cases lack a phase; their last one is used instead.",) if short and not spec.each else ()
    )
    return Crops(
        cases=names,
        images=torch.from_numpy(images).to(device),
        counts=torch.from_numpy(counts).to(device),
        notes=notes,
    )


def _places(spec: CropSpec, have: int) -> tuple[list[int], int]:
    """Which phases to read, and how many of them the case has of its own."""
    if spec.phases == ("p1..px",):
        first = min(1, have - 1)
        own = list(range(first, have))[: spec.most_phases]
        return own, len(own)
    places, own_count = [], 0
    for token in spec.phases:
        if token == "px":
            at = have - 1
            own_count += 1
        elif token.startswith("p") and token[1:].isdigit():
            at = int(token[1:])
            own_count += at < have
        else:
            raise UserError(f"unknown phase '{token}'", fix="Phases are p0, p1, p2.., px, or p1..px alone.")
        places.append(min(at, have - 1))
    return places, own_count


def _channels(volumes: Volumes, names: Sequence[str], spec: CropSpec) -> int:
    if spec.phases != ("p1..px",):
        return len(spec.phases)
    return max([1, *(min(spec.most_phases, volumes.phases(case) - 1) for case in names)])


def _cached(cache: Path | None, key: str) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.int64]] | None:
    if cache is None or not cache.is_file():
        return None
    try:
        with np.load(cache, allow_pickle=False) as file:
            if str(file["key"]) == key:
                return file["images"], file["counts"]
    except (OSError, ValueError, KeyError):
        return None
    return None


def _keep(cache: Path, key: str, images: npt.NDArray[np.float16], counts: npt.NDArray[np.int64]) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    part = cache.with_name(f"{cache.name}.{os.getpid()}.part.npz")
    np.savez(part, key=np.array(key), images=images, counts=counts)
    part.replace(cache)
