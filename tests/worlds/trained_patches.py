"""A store of small patches of ten slides with discs of tumour in some, and the patch tables that name them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from elsewhere.cohort.patch_table import patch_types, typed_rows, write_patch_table
from elsewhere.inputs.patches.packing import pack
from elsewhere.inputs.patches.store import PatchStore
from worlds.patch_stores import SPEC_32, rows_of, write_outline, write_slide

SLIDES = 10
TUMOUR = (0, 1, 2, 3, 6, 8)
"""The slides with an outline; 6 to 9 are those that tests are cut from, 8 and 9 of another hospital."""


@dataclass(frozen=True, kw_only=True)
class PatchWorld:
    """Where everything lies.

    Attributes:
        folder: The folder.
        store: The store.
        train: The patch table of the first six slides.
        test: That of the other four.
    """

    folder: Path
    store: Path
    train: Path
    test: Path


def make_patch_world(folder: Path) -> PatchWorld:
    """Ten slides of 24 patches of 32 pixels."""
    jobs = []
    for at in range(SLIDES):
        slide = write_slide(folder / f"s{at}.tif", seed=at)
        left = 40 + 10 * at
        outline = (
            write_outline(folder / f"s{at}.json", (left, 40, left + 190, 230))
            if at in TUMOUR
            else empty_outline(folder / f"s{at}.json")
        )
        jobs.append(rows_of(slide, case_id=f"s{at}", annotation=outline))
    store = pack(jobs, folder / "store", SPEC_32).store
    rows = pd.concat([slide_rows(store, job.case_id, at) for at, job in enumerate(jobs)], ignore_index=True)
    held = [f"s{at}" for at in range(6, SLIDES)]
    test = rows["case_id"].isin(held)
    world = PatchWorld(
        folder=folder,
        store=folder / "store",
        train=folder / "plain.parquet",
        test=folder / "test.parquet",
    )
    write_patch_table(
        rows[~test], world.train, provenance={"set": {"clustering": "single", "share": "natural"}}
    )
    write_patch_table(rows[test], world.test, provenance={})
    return world


def empty_outline(path: Path) -> Path:
    """An annotation without an outline."""
    path.write_text(json.dumps({"positive": [], "negative": []}))
    return path


def slide_rows(store: PatchStore, case_id: str, at: int) -> pd.DataFrame:
    """The rows of a slide, with the tumour share that its masks have."""
    shard = store.slides["A", case_id].shards[0]
    chosen = store.select([("A", case_id)] * len(shard.i), shard.i, shard.j)
    tumour = chosen.masks(np.arange(len(chosen))).mean(axis=(1, 2))
    return typed_rows(
        pd.DataFrame(
            {
                "dataset": "A",
                "patient_id": f"p{at}",
                "case_id": case_id,
                "i": shard.i,
                "j": shard.j,
                "x": shard.i * 64.0,
                "y": shard.j * 64.0,
                "mpp": 0.5,
                "tissue": 1.0,
                "tumour": tumour,
                "group": np.where(tumour > 0, "TT", "NT" if at in TUMOUR else "NN"),
                "type": patch_types(tumour),
                "stage": "macro" if at in TUMOUR else "negative",
                "site": "Hospital 2" if at >= 8 else "Hospital 1",
                "domain": None,
                "training": (tumour == 0) | (tumour >= 0.1),
            }
        )
    )
