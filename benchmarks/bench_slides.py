"""Reading whole slides patch by patch, compared with OpenSlide and pyvips; tissue, compared with scikit-image.

Every reader has one thread and shows the same patches of 256 pixels; each row states whether the pixels are equal.
The readers take turns and the best turn of each counts, in processor time, which others on the machine do not change.
The slide in CAMELYON's layout is synthetic: tiles of 512 pixels, JPEG YCbCr, levels that halve. The real svs is
CMU-1-Small-Region, in the folder `shared` next to the repository; its rows are left out where it is absent. It is small: the caches of all three
readers hold it whole.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PATCH = 256
GRID_BAR, REAL_BAR, RANDOM_BAR, VIPS_BAR, TISSUE_BAR = 5.0, 3.0, 2.5, 0.8, 15.0
MEMORY_BAR_GB = 2.0
SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
REAL = "data/lymph-nodes/CMU-1-Small-Region.svs"

Patches = Iterator[np.ndarray]
MEMORY_CHILD = """
import sys, time
import numpy as np, openslide
from elsewhere.inputs.slides.opening import open_slide
mpp = float(sys.argv[2]) or None
peer = openslide.OpenSlide(sys.argv[1])
checked, same, seconds, rows = 0, True, 0.0, 0
with open_slide(sys.argv[1]) as slide:
    width, height = slide.size_px if mpp is None else slide.size_at(mpp)
    factor = 1 if mpp is None else round(mpp / slide.mpp)
    strips = slide.strips(mpp, 256)
    while True:
        begin = time.process_time()
        strip = next(strips, None)
        seconds += time.process_time() - begin
        if strip is None:
            break
        rows += strip.pixels.shape[0]
        if strip.y // 256 % 20 == 0:
            x, count = int(width * 0.7), strip.pixels.shape[0]
            corner, size = (x * factor, strip.y * factor), (512 * factor, count * factor)
            stored = np.asarray(peer.read_region(corner, 0, size).convert("RGB")).astype(int)
            sums = stored.reshape(count, factor, 512, factor, 3).sum(axis=(1, 3))
            mean = (sums + factor * factor // 2) // (factor * factor)
            same &= bool(np.array_equal(mean, strip.pixels[:, x : x + 512]))
            checked += 1
assert rows == height
lines = open("/proc/self/status").read().splitlines()
peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20
print(seconds, peak, width, height, same, checked)
"""

TABLE_CHILD = """
import json, sys, time
from pathlib import Path
import numpy as np, openslide
from elsewhere.cohort.patch_table import SlideFacts, read_patch_table, write_patch_table
from elsewhere.commands.slide_patches.cases import SlideCase
from elsewhere.commands.slide_patches.cutting import CutSettings, cut_case
from elsewhere.inputs.slides.tissue import saturation
path, outlines = Path(sys.argv[1]), Path(sys.argv[2])
facts = SlideFacts(dataset="benchmark", patient_id="p", case_id="large", stage="macro")
begin = time.process_time()
rows, about = cut_case(SlideCase(facts=facts, slide=path, annotation=outlines), CutSettings(scale=sys.argv[3]))
write_patch_table(rows, path.with_suffix(".parquet"), provenance=about)
seconds = time.process_time() - begin
lines = open("/proc/self/status").read().splitlines()
peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20
peer = openslide.OpenSlide(str(path))
chosen = rows.iloc[:: max(1, len(rows) // 50)]
same = True
for row in chosen.itertuples():
    side = round(about["patch_px"])
    stored = np.asarray(peer.read_region((round(row.x), round(row.y)), 0, (side, side)).convert("RGB")).astype(int)
    factor = side // 256
    sums = stored.reshape(256, factor, 256, factor, 3).sum(axis=(1, 3))
    mean = ((sums + factor * factor // 2) // (factor * factor)).astype(np.uint8)
    same &= np.float32((saturation(mean) > about["tissue_threshold"]).mean()) == np.float32(row.tissue)
found = about["summary"]
print(json.dumps([seconds, peak, bool(same), len(chosen), found["patches"], found["groups"], found["types"]]))
"""


def boxes_of(size: tuple[int, int], *, random: int = 0) -> list[tuple[int, int]]:
    """The corners of all whole patches of a grid, row by row; or of as many random ones."""
    columns, rows = size[0] // PATCH, size[1] // PATCH
    if not random:
        return [(x * PATCH, y * PATCH) for y in range(rows) for x in range(columns)]
    rng = np.random.default_rng(5)
    x, y = (rng.integers(0, side - PATCH, random) for side in size)
    return list(zip(x.tolist(), y.tolist(), strict=True))


def ours_by_grid(path: Path, level: int) -> Patches:
    from elsewhere.inputs.slides.opening import open_slide

    with open_slide(path) as slide:
        for patch in slide.patches(PATCH, level=level):
            yield patch.pixels


def ours_by_patch(path: Path, level: int, boxes: list[tuple[int, int]]) -> Patches:
    from elsewhere.inputs.slides.opening import open_slide

    with open_slide(path) as slide:
        for x, y in boxes:
            yield slide.read(x, y, PATCH, PATCH, level=level)


def by_openslide(path: Path, level: int, boxes: list[tuple[int, int]]) -> Patches:
    import openslide

    with openslide.OpenSlide(str(path)) as slide:
        factor = round(slide.level_downsamples[level])
        for x, y in boxes:
            region = slide.read_region((x * factor, y * factor), level, (PATCH, PATCH))
            yield np.asarray(region.convert("RGB"))


def by_pyvips(path: Path, level: int, boxes: list[tuple[int, int]]) -> Patches:
    """pyvips' TIFF loader, the only one in its wheel, fetched by region."""
    import pyvips

    pyvips.cache_set_max(0)
    region = pyvips.Region.new(pyvips.Image.tiffload(str(path), access="random", page=level))
    for x, y in boxes:
        yield np.frombuffer(region.fetch(x, y, PATCH, PATCH), np.uint8).reshape(PATCH, PATCH, 3)


def digest(patches: Patches) -> str:
    found = hashlib.sha256()
    for patch in patches:
        found.update(np.ascontiguousarray(patch))
    return found.hexdigest()


def drained(make: Callable[[], Patches]) -> float:
    """Processor seconds to make all patches."""
    gc.collect()
    begin = time.process_time()
    for patch in make():
        patch[0, 0, 0]
    return time.process_time() - begin


def reading_rows(
    job: str,
    ours: Callable[[], Patches],
    peers: dict[str, tuple[Callable[[], Patches], float | None]],
    count: int,
    rounds: int,
) -> list[dict[str, Any]]:
    """A row per peer: all take turns, the best turn counts."""
    expected = digest(ours())
    same = {name: digest(make()) == expected for name, (make, _) in peers.items()}
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, make in (("ours", ours), *((name, make) for name, (make, _) in peers.items())):
            best[name] = min(best.get(name, np.inf), drained(make))
    return [
        {
            "job": job,
            "peer": name,
            "peer_seconds": best[name],
            "ours_seconds": best["ours"],
            "ratio": best[name] / best["ours"],
            "bar": bar,
            "notes": f"same pixels: {same[name]}; {count:,} patches; {count / best['ours']:,.0f} and "
            f"{count / best[name]:,.0f} per second of processor time",
        }
        for name, (_, bar) in peers.items()
    ]


def camelyon_like(folder: Path, repeats: int) -> Path:
    """A tiled TIFF of synthetic tissue that is repeated across: 32,768 pixels, where CAMELYON's have 60,000 to 100,000."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from worlds.slide_files import pyramid, tissue_picture, write_tiff

    picture = np.tile(tissue_picture(4096, 3072), (1, repeats, 1))
    path = folder / "tumor_001.tif"
    return write_tiff(path, pyramid(picture, 3), mpp=0.25, tile=512, subsampling=(2, 2), bigtiff=True)


def gigapixel(folder: Path, side: int) -> Path:
    """A slide of side x side pixels of which most tiles share their bytes, so that it is made in seconds."""
    import tifffile

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from worlds.slide_files import tissue_picture

    path = folder / f"large_{side}.tif"
    picture = tissue_picture(2048, 2048, seed=1)
    with tifffile.TiffWriter(folder / "tiles.tif") as file:
        file.write(
            picture, tile=(512, 512), compression="jpeg", photometric="rgb", compressionargs={"level": 80}
        )
    with tifffile.TiffFile(folder / "tiles.tif") as file:
        page = file.pages[0]
        tables = page.tags[347].value if 347 in page.tags else None
        handle = file.filehandle
        tiles = []
        for offset, length in zip(page.dataoffsets, page.databytecounts, strict=True):
            handle.seek(offset)
            tiles.append(handle.read(length))
    count = -(-side // 512)
    options: dict[str, Any] = {"extratags": [(347, 7, len(tables), tables, True)]} if tables else {}
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        # libtiff's subsampling is that of the tiles: 4:4:4 as tifffile writes it.
        file.write(
            (tiles[(n * 7) % len(tiles)] for n in range(count * count)),
            shape=(side, side, 3),
            dtype=np.uint8,
            tile=(512, 512),
            compression="jpeg",
            photometric="rgb",
            metadata=None,
            resolution=(4e4, 4e4),
            resolutionunit="CENTIMETER",
            **options,
        )
    return path


def tissue_row(rounds: int, picture: np.ndarray) -> dict[str, Any]:
    from skimage.color import rgb2hsv
    from skimage.filters import threshold_otsu

    from elsewhere.inputs.slides.tissue import tissue_mask

    def peer() -> tuple[np.ndarray, int]:
        # Halves are rounded up: the small number makes good what division leaves out.
        values = np.floor(rgb2hsv(picture)[..., 1] * 255 + 0.5 + 1e-9).astype(np.uint8)
        threshold = int(threshold_otsu(values))
        return values > threshold, threshold

    def timed(call: Callable[[], Any]) -> tuple[float, Any]:
        begin = time.process_time()
        found = call()
        return time.process_time() - begin, found

    ours, theirs = np.inf, np.inf
    for _ in range(rounds):
        seconds, (mask, otsu) = timed(lambda: tissue_mask(picture))
        ours = min(ours, seconds)
    for _ in range(max(1, rounds - 1)):
        seconds, (expected, threshold) = timed(peer)
        theirs = min(theirs, seconds)
    same = bool(np.array_equal(mask, expected)) and threshold == otsu.threshold
    side = picture.shape[0]
    return {
        "job": f"tissue of {side} x {side}: saturation, Otsu, mask",
        "peer": "scikit-image rgb2hsv, threshold_otsu",
        "peer_seconds": theirs,
        "ours_seconds": ours,
        "ratio": theirs / ours,
        "bar": TISSUE_BAR,
        "notes": f"same pixels: {same}; threshold {otsu.threshold}, tissue {100 * otsu.share:.1f} %",
    }


def streaming_row(path: Path, mpp: float) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_CHILD, str(path), str(mpp)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    seconds, peak, width, height, same, checked = done.stdout.split()
    what = f"at {mpp:g} um" if mpp else "as stored"
    return {
        "job": f"stream a slide of {side_of(path):,} x {side_of(path):,} px in strips, {what}",
        "peer": "",
        "ours_seconds": float(seconds),
        "bar": f"{MEMORY_BAR_GB:g} GB",
        "bar_met": float(peak) <= MEMORY_BAR_GB,
        "notes": f"same pixels: {same} (as OpenSlide's, in {checked} windows); peak resident {float(peak):.2f} GB in a fresh process, libraries included; {int(width):,} x "
        f"{int(height):,} px came out; processor time of one thread",
    }


def table_row(path: Path) -> dict[str, Any]:
    """From a slide and its outlines to its patch table, in a fresh process whose peak memory is measured."""
    side = side_of(path)
    outlines = path.with_suffix(".geojson")
    angle = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    polygons = []
    for x, y, radius in ((0.3, 0.4, 0.15), (0.7, 0.6, 0.08), (0.2, 0.8, 0.01)):
        wave = side * radius * (1 + 0.1 * np.sin(40 * angle))
        ring = np.stack([x * side + wave * np.cos(angle), y * side + wave * np.sin(angle)], axis=1)
        polygons.append([[*ring.tolist(), ring[0].tolist()]])
    outlines.write_text(json.dumps({"type": "MultiPolygon", "coordinates": polygons}))
    done = subprocess.run(
        [sys.executable, "-c", TABLE_CHILD, str(path), str(outlines), "mpp"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    seconds, peak, same, checked, patches, groups, types = json.loads(done.stdout.splitlines()[-1])
    counts = ", ".join(f"{name} {number:,}" for name, number in (groups | types).items() if number)
    return {
        "job": f"patch table of a slide of {side:,} x {side:,} px: tissue, tumour, groups, parquet, digest",
        "peer": "",
        "ours_seconds": seconds,
        "bar": f"{MEMORY_BAR_GB:g} GB",
        "bar_met": peak <= MEMORY_BAR_GB,
        "notes": f"same pixels: {same} (tissue of {checked} patches from OpenSlide's pixels); peak resident {peak:.2f} GB in a "
        f"fresh process, libraries included; {patches:,} patches ({counts}); {patches / seconds:,.0f} per second of "
        "processor time of one thread",
    }


def side_of(path: Path) -> int:
    return int(path.stem.split("_")[1])


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Rows of a slide in CAMELYON's layout, of the real svs, of tissue, and of the memory that streaming takes."""
    from elsewhere.inputs.slides.opening import open_slide

    rounds, repeats = (2, 1) if quick else (5, 8)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = camelyon_like(Path(folder), repeats)
        for level in (0, 1):
            with open_slide(path) as slide:
                found = slide.levels[level]
            boxes = boxes_of((found.width, found.height))
            rows += reading_rows(
                f"{PATCH} px grid of a slide in CAMELYON's layout, 512 px JPEG tiles, level {level}",
                lambda level=level: ours_by_grid(path, level),
                {
                    "OpenSlide read_region": (
                        lambda level=level, boxes=boxes: by_openslide(path, level, boxes),
                        GRID_BAR,
                    ),
                    "pyvips Region.fetch": (
                        lambda level=level, boxes=boxes: by_pyvips(path, level, boxes),
                        VIPS_BAR,
                    ),
                },
                len(boxes),
                rounds,
            )
        real = Path(os.environ.get("ELSEWHERE_SHARED", SHARED)) / REAL
        if real.exists():
            with open_slide(real) as slide:
                size = slide.size_px
            for name, boxes, bar in (
                ("grid", boxes_of(size), REAL_BAR),
                ("random patches", boxes_of(size, random=100), RANDOM_BAR),
            ):
                ours = (
                    (lambda: ours_by_grid(real, 0))
                    if name == "grid"
                    else (lambda boxes=boxes: ours_by_patch(real, 0, boxes))
                )
                rows += reading_rows(
                    f"{PATCH} px {name} of a real svs, 240 px JPEG tiles (never aligned)",
                    ours,
                    {
                        "OpenSlide read_region": (lambda boxes=boxes: by_openslide(real, 0, boxes), bar),
                        "pyvips Region.fetch": (
                            lambda boxes=boxes: by_pyvips(real, 0, boxes),
                            VIPS_BAR,
                        ),
                    },
                    len(boxes),
                    rounds,
                )
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
        from worlds.slide_files import tissue_picture

        rows.append(tissue_row(2 if quick else 3, tissue_picture(*(1024, 1024) if quick else (4096, 4096))))
        large = gigapixel(Path(folder), 20_000 if quick else 100_000)
        rows.append(streaming_row(large, 0.0))
        if not quick:
            rows.append(streaming_row(large, 0.5))
        rows.append(table_row(large))
    return rows


if __name__ == "__main__":
    print(json.dumps(run(), indent=1))
