"""Near-duplicates among 3,500 pictures, from the files to the pairs.

Ours beside imagehash (`phash`, then every pair of hashes compared), in the same run on the same files:
synthetic speckle that fades to black, 400 x 300, with planted copies (cropped, brighter, mirrored, marked,
resized). Reading and decoding the files counts on both sides, in every row. imagehash reads one file after the
other and compares hash objects in a loop, as its documentation shows; that row has the bar. Beside it, without
one: the same with uncompressed files, and with a matrix product in the place of the loop. Ours runs once on 60
pictures before, so that nothing is compiled in the measured time; then all sides are measured in turn, five times, and
the fastest time of each stands, so that a slow spell of the machine meets all of them. The loop's turns are over the
pairs of the first 1,000 pictures, scaled to all. Ours also lays the candidates over each other, calibrates the threshold and finds mirrored
copies. The notes say what each found at its threshold, 10 of 64 bits for imagehash.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw, ImageOps

from elsewhere.cohort import Cohort
from elsewhere.cohort.duplicates import find_duplicates

BITS = 10
BAR = 10.0
TURNS = 5
LOOPED = 1000


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


def in_turn(calls: dict[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, Any]]:
    """The fastest of five turns of each, and what it gave."""
    seconds = dict.fromkeys(calls, float("inf"))
    given = {}
    for _ in range(TURNS):
        for name, call in calls.items():
            begin = time.perf_counter()
            given[name] = call()
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return seconds, given


def one_format(count: int, ending: str) -> dict[str, Any]:
    """Seconds from the files to the pairs: ours, imagehash with a loop, with a product; and what was found."""
    import imagehash

    with tempfile.TemporaryDirectory() as folder:
        files, planted = write(Path(folder), count, count // 50, ending)
        ours(files[:60])

        def hashes() -> list[Any]:
            made = []
            for file in files:
                with Image.open(file) as image:
                    made.append(imagehash.phash(image))
            return made

        def loop(most: int) -> set[tuple[int, int]]:
            some = enumerate(made[:most])
            return {(a, b) for (a, one), (b, two) in combinations(some, 2) if one - two <= BITS}

        def product() -> set[tuple[int, int]]:
            bits = np.stack([h.hash.ravel() for h in made]).astype(np.float32)
            near = bits.sum(1)[:, None] + bits.sum(1)[None, :] - 2 * bits @ bits.T <= BITS
            a, b = np.nonzero(np.triu(near, 1))
            return set(zip(a.tolist(), b.tolist(), strict=True))

        made = hashes()
        theirs = loop(count)
        seconds, given = in_turn(
            {
                "ours": lambda: ours(files),
                "hashes": hashes,
                "loop": lambda: loop(LOOPED),
                "product": product,
            }
        )
    found, same = given["ours"], given["product"]
    looped = min(count, LOOPED)
    loop_seconds = seconds["loop"] * count * (count - 1) / (looped * (looped - 1))
    if theirs != same:
        raise RuntimeError("the loop and the product found different pairs")
    return {
        "ours": seconds["ours"],
        "loop": seconds["hashes"] + loop_seconds,
        "product": seconds["hashes"] + seconds["product"],
        "told": f"of {len(planted)} planted pairs ours found {len(found & planted)} with {len(found - planted)} "
        f"false ones, imagehash at {BITS} bits {len(theirs & planted)} with {len(theirs - planted)} false; "
        f"imagehash hashed for {seconds['hashes']:.1f} s; five turns each",
    }


def run(quick: bool = False) -> list[dict[str, Any]]:
    count = 600 if quick else 3500
    jpeg, plain = one_format(count, ".jpg"), one_format(count, ".bmp")
    rows = []
    for got, what, peer, bar in (
        (jpeg, "JPEG files", "loop", BAR),
        (jpeg, "JPEG files", "product", None),
        (plain, "uncompressed files", "loop", None),
    ):
        word = "pairs in a loop" if peer == "loop" else "pairs by a matrix product"
        rows.append(
            {
                "job": f"near-duplicates among {count:,} pictures, {what}",
                "peer": f"imagehash phash, {word}",
                "peer_seconds": got[peer],
                "ours_seconds": got["ours"],
                "ratio": got[peer] / got["ours"],
                "bar": bar,
                "notes": got["told"] if peer == "loop" else "the same pictures",
            }
        )
    return rows
