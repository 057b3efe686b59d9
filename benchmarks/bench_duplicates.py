"""Near-duplicates among 3,500 pictures, from the files to the pairs.

Ours beside imagehash (`phash`, then every pair of hashes compared), in the same run on the same files:
synthetic speckle that fades to black, 400 x 300, with planted copies (cropped, brighter, mirrored, marked,
resized). The first row, with the bar, is hashing and comparing alone: the files are uncompressed, and what
decoding them takes is measured apart and taken off both sides. In the others they are JPEG, and decoding counts.
imagehash reads one file after the other and compares hash objects in a loop, as its documentation shows; in the
last row a matrix product stands in for that loop. Ours also lays the candidates over each other, calibrates the threshold and finds mirrored
copies. The notes say what each found at its threshold, 10 of 64 bits for imagehash.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw, ImageOps

from elsewhere.cohort import Cohort
from elsewhere.cohort.duplicates import find_duplicates
from elsewhere.cohort.duplicates_pictures import decode_grey

BITS = 10
BAR = 10.0


def picture(rng: np.random.Generator) -> Image.Image:
    """Layers, a lesion, speckle; bright above, black below."""
    layers = Image.fromarray(rng.uniform(0.2, 1.0, (24, 6)).astype(np.float32))
    tissue = np.asarray(layers.resize((400, 300), Image.Resampling.BICUBIC))
    grain = Image.fromarray(rng.rayleigh(size=(150, 200)).astype(np.float32))
    speckle = np.asarray(grain.resize((400, 300), Image.Resampling.BICUBIC))
    light = 150 * tissue * speckle * np.exp(-np.arange(300) / 120)[:, None]
    image = Image.fromarray(np.clip(light, 0, 255).astype(np.uint8))
    x, y, w, h = rng.uniform(80, 280), rng.uniform(50, 120), rng.uniform(15, 50), rng.uniform(12, 35)
    ImageDraw.Draw(image).ellipse((x - w, y - h, x + w, y + h), fill=8)
    return image


def copy(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """What people do to a picture before they publish it again."""
    match rng.integers(5):
        case 0:
            return image.crop((12, 6, 390, 288))
        case 1:
            return image.point([min(255, round(1.4 * v)) for v in range(256)])
        case 2:
            return ImageOps.mirror(image)
        case 3:
            return image.resize((256, 256))
    marked = image.copy()
    pen = ImageDraw.Draw(marked)
    pen.line((150, 60, 220, 90), fill=255, width=3)
    pen.text((30, 250), "RT UOQ", fill=255)
    return marked


def write(folder: Path, count: int, copies: int, ending: str) -> tuple[list[Path], set[tuple[int, int]]]:
    """The files, and the pairs that are copies of one another."""
    rng = np.random.default_rng(7)
    files, of = [], {}
    for at in range(count):
        file = folder / f"{at:05d}{ending}"
        if at < count - copies:
            image, of[at] = picture(rng), at
        else:
            of[at] = int(rng.integers(count - copies))
            with Image.open(files[of[at]]) as source:
                image = copy(source.convert("L"), rng)
        image.save(file, quality=90)
        files.append(file)
    late = range(count - copies, count)
    alike = {(of[at], at) for at in late} | {(a, b) for a, b in combinations(late, 2) if of[a] == of[b]}
    return files, alike


def ours(files: list[Path]) -> set[tuple[int, int]]:
    table = pd.DataFrame({"case_id": [f.stem for f in files], "image": [f.name for f in files]})
    pairs = find_duplicates([Cohort.from_frame(table, root=files[0].parent)]).pairs
    return {(int(a), int(b)) for a, b in zip(pairs["case_a"], pairs["case_b"], strict=True)}


def decode(files: list[Path], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(
            pool.map(
                lambda part: [decode_grey(f) for f in part], np.array_split(np.array(files), 4 * threads)
            )
        )


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def one_format(count: int, ending: str) -> dict[str, Any]:
    """Seconds of ours, of the hashes, of the loop over their pairs and of the product; and what was found."""
    import imagehash

    with tempfile.TemporaryDirectory() as folder:
        files, planted = write(Path(folder), count, count // 50, ending)
        ours(files[:60])
        seconds, found = timed(lambda: ours(files))
        decode_seconds, _ = timed(lambda: decode(files, os.cpu_count() or 1))
        decode_alone_seconds, _ = timed(lambda: decode(files, 1))

        def hashes() -> list[Any]:
            made = []
            for file in files:
                with Image.open(file) as image:
                    made.append(imagehash.phash(image))
            return made

        hash_seconds, made = timed(hashes)
    rows = min(200, count - 1)
    loop_seconds, _ = timed(
        lambda: sum(made[a] - made[b] <= BITS for a in range(rows) for b in range(a + 1, count))
    )
    compared = sum(count - 1 - a for a in range(rows))

    def product() -> set[tuple[int, int]]:
        bits = np.stack([h.hash.ravel() for h in made]).astype(np.float32)
        near = bits.sum(1)[:, None] + bits.sum(1)[None, :] - 2 * bits @ bits.T <= BITS
        a, b = np.nonzero(np.triu(near, 1))
        return set(zip(a.tolist(), b.tolist(), strict=True))

    product_seconds, theirs = timed(product)
    return {
        "decode": (decode_seconds, decode_alone_seconds),
        "ours": seconds,
        "loop": hash_seconds + loop_seconds * count * (count - 1) / 2 / compared,
        "product": hash_seconds + product_seconds,
        "told": f"of {len(planted)} planted pairs ours found {len(found & planted)} with {len(found - planted)} "
        f"false ones, imagehash at {BITS} bits {len(theirs & planted)} with {len(theirs - planted)} false; the "
        f"loop timed on {rows} rows and scaled",
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    count = 600 if quick else 3500
    plain, jpeg = one_format(count, ".bmp"), one_format(count, ".jpg")
    rows = []
    for got, what, peer, less in (
        (plain, "decoding taken off", "loop", True),
        (jpeg, "JPEG files", "loop", False),
        (jpeg, "JPEG files", "product", False),
    ):
        word = "pairs in a loop" if peer == "loop" else "pairs by a matrix product"
        here = got["ours"] - (got["decode"][0] if less else 0.0)
        there = got[peer] - (got["decode"][1] if less else 0.0)
        rows.append(
            {
                "job": f"near-duplicates among {count:,} pictures, {what}",
                "peer": f"imagehash phash, {word}",
                "peer_seconds": there,
                "ours_seconds": here,
                "ratio": there / here,
                "bar": BAR if less else None,
                "notes": got["told"] if peer == "loop" else "the same pictures",
            }
        )
    return rows
