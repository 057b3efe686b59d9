"""The patch table: types, groups, the draw for training, and the file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from elsewhere.cohort.patch_table import (
    COLUMNS,
    METADATA_KEY,
    PatchRules,
    SlideFacts,
    compose_rows,
    patch_types,
    read_patch_table,
    summarise_rows,
    write_patch_table,
)
from elsewhere.errors import UserError
from elsewhere.inputs.slides.grid import PatchGrid
from elsewhere.tables import write_table

GRID = PatchGrid(scale="mpp", size_px=256, mpp=0.5, patch_px=526.75, columns=40, rows=30)
SLIDE = SlideFacts(
    dataset="C16", patient_id="p1", case_id="tumor_001", stage="macro", site="RUMC", domain="ID"
)
NORMAL = SlideFacts(dataset="C16", patient_id="p2", case_id="normal_001", stage="negative")


def shares(seed=0):
    rng = np.random.default_rng(seed)
    tissue = rng.uniform(0, 0.5, (30, 40)).astype(np.float32)
    tumour = np.where(rng.random((30, 40)) < 0.2, rng.choice([0.05, 0.1, 0.6, 1.0], (30, 40)), 0.0)
    return tissue, tumour


def test_types():
    assert patch_types(np.array([0.0, 1 / 65536, 0.9999, 1.0])).tolist() == ["FN", "PT", "PT", "FT"]


def test_a_row_per_patch_with_tissue_or_tumour():
    tissue, tumour = shares()
    rows = compose_rows(SLIDE, GRID, tissue, tumour)
    assert tuple(rows.columns) == COLUMNS
    keep = (tissue >= np.float32(0.1)) | (tumour > 0)
    assert len(rows) == keep.sum()
    assert (keep & (tissue < 0.1)).any()  # tumour on little tissue is kept
    np.testing.assert_array_equal(rows["tissue"], tissue[keep])
    np.testing.assert_allclose(rows["tumour"], tumour[keep], atol=1e-7)
    assert rows["x"].tolist() == (rows["i"] * 526.75).tolist()
    assert rows[["j", "i"]].values.tolist() == sorted(rows[["j", "i"]].values.tolist())
    assert set(rows["stage"]) == {"macro"} and set(rows["domain"]) == {"ID"}


def test_groups_and_training():
    tissue, tumour = shares()
    rows = compose_rows(SLIDE, GRID, tissue, tumour)
    assert set(rows.loc[rows["tumour"] > 0, "group"]) == {"TT"}
    assert set(rows.loc[rows["tumour"] == 0, "group"]) == {"NT"}
    little = (rows["tumour"] > 0) & (rows["tumour"] < 0.1)
    assert little.any() and not rows.loc[little, "training"].any()
    enough = rows["tumour"] >= np.float32(0.1)
    assert rows.loc[enough, "training"].all()
    drawn = rows["training"] & (rows["group"] == "NT")
    assert drawn.sum() == enough.sum()
    counts = summarise_rows(rows)
    assert counts["training"] == {"NN": 0, "NT": int(enough.sum()), "TT": int(enough.sum())}
    assert counts["under_least"] == little.sum()
    assert sum(counts["types"].values()) == sum(counts["groups"].values()) == len(rows)


def test_500_of_a_normal_slide_and_all_where_there_are_fewer():
    tissue, tumour = shares()
    rows = compose_rows(NORMAL, GRID, tissue, np.zeros_like(tumour))
    assert set(rows["group"]) == {"NN"}
    assert rows["training"].sum() == 500
    assert compose_rows(
        NORMAL, GRID, tissue[:, :], np.zeros_like(tumour), PatchRules(normals_per_slide=9999)
    )["training"].all()


def test_a_draw_depends_on_the_slide_and_the_seed_alone():
    tissue, tumour = shares()
    nothing = np.zeros_like(tumour)

    def drawn(facts, **rules):
        return compose_rows(facts, GRID, tissue, nothing, PatchRules(**rules))["training"].to_numpy()

    np.testing.assert_array_equal(drawn(NORMAL), drawn(NORMAL))
    other = SlideFacts(dataset="C16", patient_id="p2", case_id="normal_002", stage="negative")
    assert (drawn(NORMAL) != drawn(other)).any()
    assert (drawn(NORMAL) != drawn(NORMAL, seed=7)).any()
    fewer, more = drawn(NORMAL, normals_per_slide=50), drawn(NORMAL, normals_per_slide=60)
    assert fewer.sum() == 50 and not (fewer & ~more).any()


def test_every_normal_patch_is_drawn_equally_often():
    tissue, tumour = shares()
    times = np.zeros(0)
    for seed in range(60):
        found = compose_rows(
            NORMAL, GRID, tissue, np.zeros_like(tumour), PatchRules(seed=seed, normals_per_slide=100)
        )
        times = found["training"].to_numpy() + (times if len(times) else 0.0)
    share = 100 / len(times)
    assert abs(times / 60 - share).max() < 5 * np.sqrt(share * (1 - share) / 60)


def test_tumour_that_is_not_known_has_no_group():
    tissue, _ = shares()
    rows = compose_rows(SLIDE, GRID, tissue, None)
    assert rows[["group", "type", "tumour"]].isna().all(axis=None)
    assert not rows["training"].any()
    assert summarise_rows(rows)["groups"]["unknown"] == len(rows)


def test_outlines_alone_give_tumour_patches_of_unknown_tissue():
    _, tumour = shares()
    rows = compose_rows(SLIDE, GRID, None, tumour)
    assert len(rows) == (tumour > 0).sum()
    assert rows["tissue"].isna().all() and set(rows["group"]) == {"TT"}


def test_the_file_has_its_hash_and_the_same_bytes_again(tmp_path):
    rows = compose_rows(SLIDE, GRID, *shares())
    made = write_patch_table(rows, tmp_path / "a.parquet", provenance={"settings": {"seed": 1}})
    write_patch_table(rows.copy(), tmp_path / "b.parquet", provenance={"settings": {"seed": 1}})
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    read = read_patch_table(tmp_path / "a.parquet")
    assert read.hash == made.hash and read.provenance == {"settings": {"seed": 1}}
    pd.testing.assert_frame_equal(read.rows, rows)
    assert read.rows.dtypes["tumour"] == np.float32


def test_rows_that_were_changed_are_noticed(tmp_path):
    rows = compose_rows(SLIDE, GRID, *shares())
    path = tmp_path / "a.parquet"
    write_patch_table(rows, path, provenance={})
    with path.open("rb") as file:
        text = pq.read_schema(file).metadata[METADATA_KEY.encode()].decode()
    rows.loc[3, "tumour"] = 0.77
    write_table(rows, path, metadata={METADATA_KEY: text})
    with pytest.raises(UserError, match="were changed after it was written"):
        read_patch_table(path)
    write_table(rows, path)  # a table of another program has no hash
    assert read_patch_table(path).provenance == {}
    write_table(rows.drop(columns=["tumour"]), path)
    with pytest.raises(UserError, match="no column 'tumour'"):
        read_patch_table(path)
    write_table(rows, path, metadata={METADATA_KEY: "[1]"})
    with pytest.raises(UserError, match="no object"):
        read_patch_table(path)


def test_what_is_refused(tmp_path):
    with pytest.raises(UserError, match="least_tissue is"):
        PatchRules(least_tissue=1.5)
    with pytest.raises(UserError, match="normals_per_slide"):
        PatchRules(normals_per_slide=-1)
    with pytest.raises(UserError, match="is a parquet file"):
        write_patch_table(compose_rows(SLIDE, GRID, *shares()), tmp_path / "a.csv", provenance={})
    with pytest.raises(UserError, match="cannot carry metadata"):
        write_table(pd.DataFrame({"a": [1]}), tmp_path / "a.csv", metadata={"a": "b"})
