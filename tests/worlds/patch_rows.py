"""Rows of patch tables, features of their patches, and small slides that are cut and packed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from elsewhere.cohort.patch_table import COLUMNS, typed_rows, write_patch_table
from elsewhere.curation.sets import canonical_order
from worlds.patch_stores import write_outline, write_slide


def patch_rows(*, nn: int = 300, nt: int = 300, pt: int = 150, ft: int = 250, seed: int = 0) -> pd.DataFrame:
    """Rows of 48 slides of 24 patients in three hospitals."""
    rng = np.random.default_rng(seed)
    kinds = ["NN"] * nn + ["NT"] * nt + ["PT"] * pt + ["FT"] * ft
    rows = pd.DataFrame({name: [None] * len(kinds) for name in COLUMNS})
    slide = rng.integers(0, 24, len(kinds)) + np.where(np.array(kinds) == "NN", 24, 0)
    rows["case_id"] = [f"slide_{one:02d}" for one in slide]
    rows["patient_id"] = [f"p{one // 2}" for one in slide]
    rows["dataset"], rows["site"] = "A", [f"s{one // 2 % 3}" for one in slide]
    rows["i"], rows["j"] = np.arange(len(kinds)) % 64, np.arange(len(kinds)) // 64
    rows["x"], rows["y"], rows["mpp"], rows["tissue"] = 0.0, 0.0, 0.5, 1.0
    rows["tumour"] = [{"PT": 0.5, "FT": 1.0}.get(kind, 0.0) for kind in kinds]
    rows["group"] = [kind if kind in ("NN", "NT") else "TT" for kind in kinds]
    rows["type"] = [kind if kind in ("PT", "FT") else "FN" for kind in kinds]
    rows["training"] = True
    return canonical_order(typed_rows(rows))


def write_rows(rows: pd.DataFrame, path: Path) -> Path:
    """A patch table of these rows."""
    write_patch_table(rows, path, provenance={"what": "patch table"})
    return path


def write_features(
    rows: pd.DataFrame, path: Path, *, site: float = 0.0, tissue: float = 0.0, seed: int = 0
) -> Path:
    """Features that are the hospital, a kind of tissue, and noise."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(len(rows), 8))
    sites = pd.factorize(rows["site"], sort=True)[0]
    features += site * rng.normal(size=(sites.max() + 1, 8))[sites]
    features += tissue * rng.normal(size=(3, 8))[rng.integers(0, 3, len(rows))]
    frame = rows[["dataset", "case_id", "i", "j"]].reset_index(drop=True)
    frame[[f"f{at}" for at in range(8)]] = features
    frame.sample(frac=1, random_state=1).to_parquet(path)
    return path


def write_slides(folder: Path, *, tumour: int = 2, normal: int = 2) -> Path:
    """Slides of a few patches each, with outlines, in a cohort table."""
    rows = []
    for at in range(tumour + normal):
        name = f"{'tumor' if at < tumour else 'normal'}_{at:03d}"
        write_slide(folder / f"{name}.tif", seed=at)
        row = {
            "case_id": name,
            "patient_id": f"p{at}",
            "dataset": "A",
            "site": f"s{at % 2}",
            "slide": f"{name}.tif",
        }
        row |= {"stage": "macro" if at < tumour else "negative", "annotation": ""}
        if at < tumour:
            row["annotation"] = write_outline(folder / f"{name}.json").name
        rows.append(row)
    pd.DataFrame(rows).to_csv(folder / "cohort.csv", index=False)
    return folder / "cohort.csv"
