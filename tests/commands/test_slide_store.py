"""`slides pack` and `slides verify`: what is printed, refused, listed and resumed."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.cohort.patch_table import read_patch_table, write_patch_table
from elsewhere.commands.slide_patches import CutSettings, cut_patches
from elsewhere.inputs.patches.store import PatchStore
from worlds.patch_stores import write_outline, write_slide

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")
SIZE = 64


def make_world(folder):
    """Two slides with outlines and one without tumour, and their table of small patches."""
    (folder / "slides").mkdir()
    (folder / "json").mkdir()
    for seed, name in enumerate(("tumor_001", "tumor_002", "normal_001")):
        write_slide(folder / "slides" / f"{name}.tif", seed=seed)
        if name.startswith("tumor"):
            write_outline(folder / "json" / f"{name}.json")
    settings = CutSettings(size_px=SIZE, without_annotation="normal", normals_per_slide=3)
    cut_patches([folder / "slides"], annotations=folder / "json", out=folder / "p.parquet", settings=settings)


@pytest.fixture(scope="module")
def world(made_once):
    return made_once("patches-to-pack", make_world)


def pack(run, world, out, *more, table="p.parquet"):
    return run(
        "slides",
        "pack",
        world / table,
        "--slides",
        world / "slides",
        "--annotations",
        world / "json",
        "--out",
        out,
        *more,
    )


def test_a_table_is_packed_with_its_own_settings(run, world, tmp_path):
    rows = read_patch_table(world / "p.parquet").rows
    done = pack(run, world, tmp_path / "s", "--json")
    assert done.code == 0, done.said
    found = done.json
    assert found["patches"] == {"size": SIZE, "scale": "mpp", "mpp": 0.5, "stain": None, "masks": True}
    assert found["packed_now"] == found["stored"] == len(rows) > 10 and found["missing"] == 0
    store = PatchStore(tmp_path / "s")
    chosen = store.select(list(zip(rows["dataset"], rows["case_id"], strict=True)), rows["i"], rows["j"])
    shares = chosen.masks(np.arange(len(rows))).mean(axis=(1, 2))
    assert np.allclose(shares, rows["tumour"], atol=1e-6), "the table's shares are those of the masks"
    again = pack(run, world, tmp_path / "s")
    assert "0 patches were packed" in again.out and f"{len(rows)} were in the store before" in again.out


def test_training_rows_alone(run, world, tmp_path):
    rows = read_patch_table(world / "p.parquet").rows
    done = pack(run, world, tmp_path / "s", "--training", "--json")
    assert done.json["packed_now"] == int(rows["training"].sum()) < len(rows)


def test_a_dry_run_writes_nothing_and_opens_every_slide(run, world, tmp_path):
    shutil.copytree(world, tmp_path / "w")
    (tmp_path / "w" / "slides" / "tumor_002.tif").write_bytes(b"no slide")
    done = pack(run, tmp_path / "w", tmp_path / "s", "--dry-run")
    assert done.code == 5 and "tumor_002: cannot be opened" in done.out and "nothing was written" in done.out
    assert not (tmp_path / "s").exists()
    assert pack(run, tmp_path / "w", tmp_path / "s", "--dry-run", "--json").json["fits"] is True


def test_slides_that_are_missing_or_another_are_listed(run, world, tmp_path):
    shutil.copytree(world, tmp_path / "w")
    rows = read_patch_table(world / "p.parquet").rows["case_id"].value_counts()
    (tmp_path / "w" / "slides" / "normal_001.tif").unlink()
    write_slide(tmp_path / "w" / "slides" / "tumor_002.tif", seed=9)
    done = pack(run, tmp_path / "w", tmp_path / "s")
    assert done.code == 5
    assert "normal_001: not packed: no file of this slide was found among --slides" in done.out
    assert (
        "tumor_002: not packed: the slide is another file than the one that the table was cut from"
        in done.out
    )
    missing = rows["normal_001"] + rows["tumor_002"]
    assert f"2 of 3 slides could not be packed as a whole: {missing} patches are missing" in done.out
    found = pack(run, tmp_path / "w", tmp_path / "s", "--json").json
    assert {one["case_id"]: one["rows"] for one in found["refused"]} == {
        "normal_001": rows["normal_001"],
        "tumor_002": rows["tumor_002"],
    }
    shown = run("slides", "verify", tmp_path / "s")
    assert shown.code == 0 and "normal_001: could not be packed" in shown.out


def test_slides_of_another_table(run, world, tmp_path):
    write_slide(tmp_path / "other.tif")
    done = run("slides", "pack", world / "p.parquet", "--slides", tmp_path, "--out", tmp_path / "s")
    assert done.code == 64 and "none of the 3 slides of the table is among --slides" in done.err
    assert not (tmp_path / "s").exists()


def test_a_target_of_ones_own(run, world, tmp_path):
    Image.fromarray(np.full((40, 40, 3), 245, np.uint8)).save(tmp_path / "glass.png")
    done = pack(run, world, tmp_path / "s", "--stain", tmp_path / "glass.png")
    assert done.code == 64 and "no stains were found" in done.err
    assert "neither a stain target nor a file" in pack(run, world, tmp_path / "s", "--stain", "studdy").err
    assert not (tmp_path / "s").exists()
    target = world / "slides" / "tumor_001.tif"
    for method in ("macenko", "reinhard"):
        done = pack(run, world, tmp_path / method, "--stain", target, "--stain-method", method)
        # The slide holds no whole patch of 256 pixels at 0.5 um.
        assert done.code == 64 and "no whole patch" in done.err
    picture = world / "tile.png"
    Image.fromarray(np.random.default_rng(1).integers(60, 230, (80, 80, 3), np.uint8)).save(picture)
    done = pack(run, world, tmp_path / "r", "--stain", picture, "--stain-method", "reinhard", "--json")
    assert done.code == 0 and done.json["counts"]["normalised"] > 0, done.said
    assert done.json["patches"]["stain"]["target_name"] == "file" and "tile" not in json.dumps(
        done.json["patches"]
    )
    assert pack(run, world, tmp_path / "r", "--stain", picture, "--stain-method", "reinhard").code == 0
    other = pack(run, world, tmp_path / "r", "--stain", "study")
    assert other.code == 64 and "reinhard to 'file'" in other.err


def test_a_table_of_many_scales_needs_its_name(run, world, tmp_path):
    rows = read_patch_table(world / "p.parquet").rows
    rows["mpp"] = np.where(rows["case_id"] == "tumor_001", 0.46, 0.5)
    write_patch_table(rows, tmp_path / "q.parquet", provenance={})
    shutil.copytree(world, tmp_path / "w")
    shutil.copy(tmp_path / "q.parquet", tmp_path / "w" / "q.parquet")
    done = pack(run, tmp_path / "w", tmp_path / "s", table="q.parquet")
    assert done.code == 64 and "0.46 to 0.5 microns per pixel" in done.err and "--scale study" in done.err
    wrong = pack(run, world, tmp_path / "s", "--scale", "study")
    assert wrong.code == 64 and "cut at the scale 'mpp'" in wrong.err


def test_what_is_damaged_is_found_set_aside_and_packed_again(run, world, tmp_path):
    pack(run, world, tmp_path / "s")
    store = PatchStore(tmp_path / "s")
    flipped, cut, noted = store.shards
    content = bytearray(flipped.pixels_path.read_bytes())
    content[1000] ^= 1
    flipped.pixels_path.write_bytes(content)
    cut.masks_path.write_bytes(cut.masks_path.read_bytes()[:-1])
    noted.note_path.write_text(noted.note_path.read_text().replace('"j": [0', '"j": [1', 1))
    done = run("slides", "verify", tmp_path / "s")
    assert done.code == 5 and done.out.count("differs from what was written") == 1
    assert (
        "masks has" in done.out
        and "note of a shard is damaged" in done.out
        and "3 cannot be used" in done.out
    )
    assert len(PatchStore(tmp_path / "s")) == len(flipped), "what is known to be damaged is not read"
    assert run("slides", "verify", tmp_path / "s", "--set-aside", "--json").json["set_aside"] == 3
    again = pack(run, world, tmp_path / "s", "--json").json
    assert again["packed_now"] == len(store) and run("slides", "verify", tmp_path / "s").code == 0
    assert len(list((tmp_path / "s" / "damaged").iterdir())) == 3


def test_a_shard_that_lost_its_end_is_packed_again_by_itself(run, world, tmp_path):
    pack(run, world, tmp_path / "s")
    shard = PatchStore(tmp_path / "s").shards[0]
    shard.pixels_path.unlink()
    done = pack(run, world, tmp_path / "s")
    assert done.code == 0 and "1 damaged shards were moved to" in done.out
    assert run("slides", "verify", tmp_path / "s").code == 0


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"format": "elsewhere patch store", "version": 9}',
        '{"format": "elsewhere patch store", "version": 1}',
    ],
)
def test_a_folder_that_is_no_store(run, tmp_path, content):
    assert run("slides", "verify", tmp_path / "none").code == 64
    (tmp_path / "store.json").write_text(content)
    done = run("slides", "verify", tmp_path)
    assert done.code == 64 and "Traceback" not in done.said


def test_hostile_notes_are_damage_and_no_traceback(run, world, tmp_path):
    pack(run, world, tmp_path / "s")
    folder = next((tmp_path / "s" / "slides").iterdir())
    for name, content in (
        ("0" * 16 + ".json", '{"i": [1]}'),
        ("..json", "x"),
        ("1" * 16 + ".json", "[" * 5000),
        ("2" * 16 + ".json", json.dumps({"version": 1, "i": [10**30], "j": [0], "checksum": "0"})),
    ):
        (folder / name).write_text(content)
    other = tmp_path / "s" / "slides" / "copy"
    shutil.copytree(folder, other)
    done = run("slides", "verify", tmp_path / "s")
    assert done.code == 5 and "Traceback" not in done.said
    assert "names no case" in done.out, "a copied folder is not the slide a second time"


def test_tables_with_other_names(run, world, tmp_path):
    rows = pd.read_parquet(world / "p.parquet").drop(columns=["i"])
    rows.to_parquet(tmp_path / "p.parquet")
    done = run(
        "slides", "pack", tmp_path / "p.parquet", "--slides", world / "slides", "--out", tmp_path / "s"
    )
    assert done.code == 64 and "'i'" in done.err
    done = run("slides", "pack", world / "p.parquet", "--slides", tmp_path, "--out", tmp_path / "s")
    assert done.code == 64 and "there is no slide here" in done.err
