"""Packing patches into a store, and reading them in random order, compared with a loop that saves PNG files.

The peer reads each patch by OpenSlide and saves it as a PNG file, as tiling scripts do; then it opens the files by
Pillow. One thread each; the slide in CAMELYON's layout is that of `bench_slides`. Packing includes digests and waiting
for the disk. Every patch is compared.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_slides import PATCH, camelyon_like

PACK_BAR, READ_BAR = 5.0, 5.0
BATCH = 8


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = call()
    return time.perf_counter() - begin, found


def save_pngs(slide_path: Path, places: list[tuple[int, int]], folder: Path) -> list[Path]:
    """Read each patch of level 1 by OpenSlide and save it."""
    import openslide

    folder.mkdir()
    files = []
    with openslide.OpenSlide(str(slide_path)) as slide:
        for i, j in places:
            region = slide.read_region((i * PATCH * 2, j * PATCH * 2), 1, (PATCH, PATCH)).convert("RGB")
            files.append(folder / f"{i}_{j}.png")
            region.save(files[-1])
    return files


def run(quick: bool = False) -> list[dict[str, Any]]:
    """A row of packing, and one of reading what was packed."""
    from PIL import Image

    from elsewhere.inputs.patches.packing import pack
    from elsewhere.inputs.patches.slide_packing import SlideRows
    from elsewhere.inputs.patches.spec import StoreSpec
    from elsewhere.inputs.slides.opening import open_slide

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = camelyon_like(folder, 1 if quick else 8)
        with open_slide(path) as slide:
            level = slide.levels[1]
        j, i = (
            side.ravel().astype(np.int64)
            for side in np.mgrid[: level.height // PATCH, : level.width // PATCH]
        )
        places = list(zip(i.tolist(), j.tolist(), strict=True))
        job = SlideRows(dataset="bench", case_id="tumor_001", i=i, j=j, path=path)
        spec = StoreSpec(scale="study", mpp=None, masks=False)
        pack([job], folder / "warm", spec)
        packing = [
            (
                timed(lambda n=n: pack([job], folder / f"store{n}", spec)),
                timed(lambda n=n: save_pngs(path, places, folder / f"png{n}")),
            )
            for n in range(1 if quick else 3)
        ]
        ours, store = min((mine for mine, _ in packing), key=lambda found: found[0])
        theirs, files = min((peer for _, peer in packing), key=lambda found: found[0])
        chosen = store.store.select([job.name] * len(i), i, j)
        order = np.random.default_rng(3).permutation(len(i))

        def read_store() -> int:
            return sum(
                int(chosen.batch(order[at : at + BATCH])[:, 0, 0, 0].sum())
                for at in range(0, len(order), BATCH)
            )

        def read_pngs() -> int:
            total = 0
            for at in range(0, len(order), BATCH):
                batch = np.stack([np.asarray(Image.open(files[n])) for n in order[at : at + BATCH]])
                total += int(batch[:, 0, 0, 0].sum())
            return total

        reading = [(timed(read_store), timed(read_pngs)) for _ in range(2 if quick else 4)]
        fast, slow = min(mine[0] for mine, _ in reading), min(peer[0] for _, peer in reading)
        same = all(
            np.array_equal(chosen.batch([n])[0], np.asarray(Image.open(file))) for n, file in enumerate(files)
        )
        count = len(places)
        png = sum(file.stat().st_size for file in files) / count
        return [
            {
                "job": f"pack {count:,} patches of {PATCH} px of a slide in CAMELYON's layout, level 1",
                "peer": "OpenSlide read_region and PNG files, a plain loop",
                "peer_seconds": theirs,
                "ours_seconds": ours,
                "ratio": theirs / ours,
                "bar": PACK_BAR,
                "notes": f"same pixels: {same}; {count / ours:,.0f} and {count / theirs:,.0f} patches per second; "
                f"{spec.patch_bytes / 1000:,.0f} kB raw and {png / 1000:,.0f} kB as PNG per patch; digests and waiting for the disk included",
            },
            {
                "job": f"read these patches in random order, batches of {BATCH}",
                "peer": "Pillow, one PNG file per patch",
                "peer_seconds": slow,
                "ours_seconds": fast,
                "ratio": slow / fast,
                "bar": READ_BAR,
                "notes": f"same pixels: {same}; {count / fast:,.0f} and {count / slow:,.0f} patches per second, files in the system's cache",
            },
        ]


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
