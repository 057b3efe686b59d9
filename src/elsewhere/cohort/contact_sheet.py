"""Contact sheets: pairs side by side, with ids, labels and distance, for a person to judge (US-30).

They hold pixels, so they are drawn on request only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from elsewhere.cohort.duplicates import Duplicates
from elsewhere.cohort.duplicates.overviews import SlideOverviews

PICTURE = 168
COLUMNS = 3
ROWS = 6
TEXT = 30
GAP = 10
MOST_PAGES = 20
MOST_TILES = 2 * MOST_PAGES * COLUMNS * ROWS
COMPRESSION = 3
"""The level of zlib. On pages of the public sets, the highest level takes 8 times as long and saves 5 %."""
_INK, _PAPER, _ALARM = (30, 30, 30), (255, 255, 255), (200, 30, 30)


def write_contact_sheets(found: Duplicates, folder: Path) -> tuple[list[Path], int]:
    """Draw the pairs of near-duplicates side by side, for a person to judge (US-30).

    The files are called `contact-sheet-01.png`, `contact-sheet-02.png`, and so on, at most MOST_PAGES of
    them. Pairs stand in the order of `in_order`.

    Args:
        found: The pairs, with the file of every case.
        folder: An existing folder to write into; files of the same name are replaced.

    Returns:
        The files that were written, and how many pairs did not fit on them.
    """
    pairs = in_order(found.pairs)
    each = COLUMNS * ROWS
    pages = [pairs.iloc[at : at + each] for at in range(0, len(pairs), each)]
    files = [folder / f"contact-sheet-{number:02d}.png" for number in range(1, len(pages) + 1)][:MOST_PAGES]
    tile = lru_cache(maxsize=MOST_TILES)(partial(_picture, overviews=found.overviews))

    def write(page: pd.DataFrame, path: Path) -> None:
        _page(page, found, tile).save(path, compress_level=COMPRESSION)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(write, pages[:MOST_PAGES], files))
    return files, max(0, len(pairs) - MOST_PAGES * each)


def in_order(pairs: pd.DataFrame) -> pd.DataFrame:
    """Sort pairs of near-duplicates so that what matters most comes first.

    First the pairs of different patients whose labels differ, then those across datasets, then the other
    pairs of different patients, and the pairs within one patient last; each group by distance.

    Args:
        pairs: One row per pair, with the columns of `duplicates.PAIR_COLUMNS`.

    Returns:
        The same rows and columns, sorted.

    Example:
        >>> pairs = pd.DataFrame({"dataset_a": ["A", "A"], "dataset_b": ["A", "A"], "distance": [0.0, 0.3]})
        >>> pairs = pairs.assign(same_patient=[True, False], same_label=["yes", "no"])
        >>> in_order(pairs)["same_label"].tolist()
        ['no', 'yes']
    """
    same_patient = pairs["same_patient"].astype(bool)
    rank = (
        4 * same_patient.astype(int)
        + 2 * (pairs["same_label"] != "no").astype(int)
        + (pairs["dataset_a"] == pairs["dataset_b"]).astype(int)
    )
    return pairs.assign(rank=rank).sort_values(["rank", "distance"], kind="stable").drop(columns="rank")


def _page(pairs: pd.DataFrame, found: Duplicates, tile: Callable[[Path], Image.Image]) -> Image.Image:
    wide, high = 2 * PICTURE + 2 + GAP, PICTURE + TEXT + GAP
    rows = -(-len(pairs) // COLUMNS)
    page = Image.new("RGB", (COLUMNS * wide + GAP, rows * high + GAP), _PAPER)
    pen = ImageDraw.Draw(page)
    font = ImageFont.load_default(size=11)
    for at, pair in enumerate(pairs.to_dict(orient="records")):
        x, y = GAP + (at % COLUMNS) * wide, GAP + (at // COLUMNS) * high
        for side, left in (("a", x), ("b", x + PICTURE + 2)):
            case = f"{pair[f'dataset_{side}']}/{pair[f'case_{side}']}"
            page.paste(tile(found.files[case]), (left, y + TEXT))
            colour = _ALARM if pair["same_label"] == "no" else _INK
            pen.text((left, y), _short(case), fill=_INK, font=font)
            pen.text((left, y + 14), str(pair[f"label_{side}"]), fill=colour, font=font)
        said = f"{pair['kind']} {pair['distance']:.2f}"
        pen.text((x + 2 * PICTURE, y + 14), said, fill=_INK, font=font, anchor="ra")
    return page


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:14] + "…" + name[-13:]


def _picture(path: Path, *, overviews: SlideOverviews | None = None) -> Image.Image:
    if overviews is not None:
        small = overviews.colours(path)
    else:
        with Image.open(path) as image:
            image.draft("RGB", (2 * PICTURE, 2 * PICTURE))
            small = image.convert("RGB")
    small.thumbnail((PICTURE, PICTURE), Image.Resampling.BILINEAR)
    tile = Image.new("RGB", (PICTURE, PICTURE), (225, 225, 225))
    tile.paste(small, ((PICTURE - small.width) // 2, (PICTURE - small.height) // 2))
    return tile
