"""The phantom patients of the GPU run: drawn by many processes, kept as plain arrays, read without a file library.

numpy and scipy alone, as the machine with the GPU has little else. A case is drawn from its own generator, so
that a world that was cut off goes on with the same patients. A patient's volume has as many phases as networks
look at (three); the published row says how many she had.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.cases import Cases
from elsewhere.inputs.volumes import Box, Grid
from elsewhere.phantom.mri import case_rng, make_case
from elsewhere.phantom.mri_sites import CaseSpec, case_specs, hospitals
from elsewhere.predictions.answers import Masks, PackedMask, answer_kinds, pack_mask
from elsewhere.recipes.base import RecipeCase
from elsewhere.recipes.splits import fold_of

SITES = ("NORTH", "SOUTH", "WEST")
"""GE at 3 T, Siemens at 1.5 T, and Philips at 1.5 T, which is sagittal and of one breast."""
PHASES = 3
CLINICAL = ("age", "menopausal_status", "breast_density", "subtype", "vendor", "field_strength")


def world_specs(*, patients: int, size: int, sites: Sequence[str] = SITES, seed: int = 7) -> list[CaseSpec]:
    """`patients` of each site, sites in turn: a world that was cut off holds some of every site."""
    made = hospitals(sites, patients=patients * len(sites), size=size, seed=seed)
    return sorted(case_specs(made), key=lambda spec: spec.number)


def make_world(
    folder: Path,
    specs: Sequence[CaseSpec],
    *,
    processes: int,
    say: Any = lambda text: None,
    until: float = float("inf"),
) -> list[str]:
    """Every case that is not there yet, as far as the time goes (`until`, seconds since the epoch); what is there is
    left as it is. The names of those that are there in the end."""
    folder.mkdir(parents=True, exist_ok=True)

    def there(spec: CaseSpec) -> bool:
        return (folder / f"{spec.patient_id}.json").exists()

    todo = [spec for spec in specs if not there(spec)]
    if todo and processes > 1:
        _drawn_by_many(folder, todo, processes=processes, say=say, until=until)
    else:
        for spec in todo:
            if time.time() < until:
                write_case(spec, folder)
    return [spec.patient_id for spec in specs if there(spec)]


def _drawn_by_many(folder: Path, todo: Sequence[CaseSpec], *, processes: int, say: Any, until: float) -> None:
    import multiprocessing

    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    began = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(todo)), mp_context=context) as pool:
        waiting = [pool.submit(write_case, spec, folder) for spec in todo]
        try:
            ended = as_completed(waiting, timeout=max(1.0, min(1e6, until - time.time())))
            for done, future in enumerate(ended, start=1):
                wrong = future.exception()
                if wrong is not None:
                    say(f"a case could not be drawn: {type(wrong).__name__}: {wrong}")
                if done % 10 == 0 or done == len(todo):
                    say(f"drawn {done} of {len(todo)} cases, {time.perf_counter() - began:.1f} s")
        except TimeoutError:
            say("no time left to draw: the world is what is there")
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def write_case(spec: CaseSpec, folder: Path) -> None:
    """NAME.npy (phases, int16), NAME.npz (mask in bits), and last NAME.json."""
    began = time.perf_counter()
    case = make_case(spec, case_rng(spec, spec.hospital.seed))
    name = case.patient_id
    kept = case.phases[:PHASES]
    phases = folder / f".{name}.npy.part"
    digest = hashlib.sha256()
    stack = np.lib.format.open_memmap(phases, mode="w+", dtype=np.int16, shape=(len(kept), *case.mask.shape))
    for at, phase in enumerate(kept):
        stack[at] = phase
        digest.update(memoryview(np.ascontiguousarray(phase)).cast("B"))
    del stack
    phases.replace(folder / f"{name}.npy")
    mask = pack_mask(case.mask.astype(np.bool_))
    packed = folder / f".{name}.part.npz"
    np.savez_compressed(packed, **answer_kinds.get("masks").pack(Masks(masks=(mask,))))  # type: ignore[arg-type]
    packed.replace(folder / f"{name}.npz")
    told = {
        "case": case.name,
        "case_id": name,
        "dataset": spec.hospital.name,
        "spacing_mm": list(case.spacing_mm),
        "affine": case.affine.tolist(),
        "shape": list(case.mask.shape),
        "breast_box": list(case.breast_box),
        "plane": spec.scanner.plane,
        "digest": digest.hexdigest(),
        "mask_digest": hashlib.sha256(repr(mask.box).encode() + mask.bits).hexdigest(),
        "attributes": case.attributes,
        "lesion": case.notes["lesion"],
        "clip": bool(case.notes["clip"]),
        "implant": bool(case.notes["implant"]),
        "volume_mm3": float(case.notes["volume_mm3"]),
        "seconds": time.perf_counter() - began,
    }
    part = folder / f".{name}.json.part"
    part.write_text(json.dumps(told, default=_plain), encoding="utf-8")
    part.replace(folder / f"{name}.json")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


@dataclass(kw_only=True)
class WorldVolumes:
    """`Volumes` over such a folder. Phases are mapped; `hold` turns them to float32 in memory once, by threads,
    as every recipe reads every phase several times."""

    folder: Path
    told: Mapping[str, Mapping[str, Any]]
    """By 'DATASET/case_id'."""
    held: dict[tuple[str, int], npt.NDArray[np.float32]] = field(default_factory=dict)
    masks: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, names: Sequence[str]) -> WorldVolumes:
        rows = [json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names]
        return cls(folder=folder, told={row["case"]: row for row in rows})

    def hold(self, *, threads: int = 8) -> None:
        wanted = [(case, at) for case in self.told for at in range(self.phases(case))]
        with ThreadPoolExecutor(threads) as pool:
            self.held.update(zip(wanted, pool.map(lambda key: self.phase(*key), wanted), strict=True))
            self.masks.update(zip(self.told, pool.map(self.mask, self.told), strict=True))

    def __contains__(self, case: str) -> bool:
        return case in self.told

    def grid(self, case: str) -> Grid:
        row = self.told[case]
        x, y, z = row["shape"]
        a, b, c = row["spacing_mm"]
        return Grid(shape=(x, y, z), spacing_mm=(a, b, c), affine=np.array(row["affine"]))

    def phases(self, case: str) -> int:
        return int(self._mapped(case).shape[0])

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        place = at if at >= 0 else self.phases(case) + at
        if (case, place) in self.held:
            return self.held[case, place]
        return np.asarray(self._mapped(case)[place], dtype=np.float32)

    def mask(self, case: str) -> npt.NDArray[np.bool_]:
        return self.masks[case] if case in self.masks else self.packed(case).unpack()

    def packed(self, case: str) -> PackedMask:
        with np.load(self.folder / f"{self.told[case]['case_id']}.npz", allow_pickle=False) as file:
            found = answer_kinds.get("masks").unpack(file).masks
        if found is None:
            raise ValueError(f"{case} has no mask")
        return found[0]

    def breast_box(self, case: str) -> Box:
        x0, y0, z0, x1, y1, z1 = self.told[case]["breast_box"]
        return x0, y0, z0, x1, y1, z1

    def _mapped(self, case: str) -> npt.NDArray[np.int16]:
        found: npt.NDArray[np.int16] = np.load(
            self.folder / f"{self.told[case]['case_id']}.npy", mmap_mode="r", allow_pickle=False
        )
        return found


def cases_of(volumes: WorldVolumes) -> Cases:
    """What training knows of them."""
    rows = list(volumes.told.values())
    pcr = [row["attributes"]["pcr"] for row in rows]
    return Cases(
        case=tuple(volumes.told),
        dataset=tuple(row["dataset"] for row in rows),
        label=np.array([-1 if value is None else int(value) for value in pcr], dtype=np.int8),
        box=np.zeros((len(rows), 4), dtype=np.int32),
        digest=tuple(row["digest"] for row in rows),
        mask_digest=tuple(row["mask_digest"] for row in rows),
        group=tuple(row["case"] for row in rows),
        clinical={name: tuple(row["attributes"][name] for row in rows) for name in CLINICAL},
    )


def split_of(cases: Cases, *, elsewhere: str, folds: int, seed: int) -> dict[str, Any]:
    """One fold of `folds` of every site but `elsewhere` is tested at home, a tenth of the rest validates, the
    rest trains; `elsewhere` is tested whole. Patients stay whole; sites and outcomes are dealt evenly."""
    at_home = [
        RecipeCase(
            case=name,
            dataset=cases.dataset[at],
            group=cases.group[at],
            label=int(cases.label[at]),
            clinical={},
        )
        for at, name in enumerate(cases.case)
        if cases.dataset[at] != elsewhere
    ]
    dealt = fold_of(at_home, folds, seed=seed)
    rest = [case for case, fold in zip(at_home, dealt, strict=True) if fold]
    watched = fold_of(rest, max(3, min(10, len(rest) // 2)), seed=seed + 1)
    parts: dict[str, list[str]] = {
        "train": [case.case for case, fold in zip(rest, watched, strict=True) if fold],
        "validation": [case.case for case, fold in zip(rest, watched, strict=True) if not fold],
        "home": [case.case for case, fold in zip(at_home, dealt, strict=True) if not fold],
        "elsewhere": [name for at, name in enumerate(cases.case) if cases.dataset[at] == elsewhere],
    }
    content = {"target": elsewhere, "folds": folds, "fold": 1, "seed": seed, "parts": parts}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return content | {"hash": hashlib.sha256(text.encode()).hexdigest()}
