"""Synthetic slides on disk: the public readers read them unchanged, and the planted faults are where they should be."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.readers import read_cohort
from elsewhere.commands.phantom_slides import slides as command
from elsewhere.errors import UserError
from elsewhere.files import MARKER
from elsewhere.inputs.slides.annotations.reading import read_annotations
from elsewhere.inputs.slides.annotations.scanning import Grid, to_mask
from elsewhere.phantom.slides.drawing import Drawing
from elsewhere.phantom.slides.layout import (
    FAULTS,
    MARK,
    make_phantom_world,
    plan_faults,
    slide_path,
    write_world,
)
from elsewhere.phantom.slides.outlines import polygons_of, thinned
from elsewhere.phantom.slides.patients import World
from elsewhere.phantom.slides.tiff import TILE, TiffOptions, halved, level_sizes, write_slide
from elsewhere.scoring.slides.regions import find_regions

WORLD = World(patients=2, nodes=2, centres=(0, 4), size="tiny", seed=6)
PLANT = {"wrong-mpp": 1, "copy": 1, "wrong-stage": 1, "missing-annotation": 1}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write_world(WORLD, tmp_path_factory.mktemp("slides") / "world")


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    return write_world(WORLD, tmp_path_factory.mktemp("slides") / "faulty", plant=PLANT)


def digests(folder):
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != MARKER
    }


def test_the_reader_of_camelyon17_reads_it_unchanged(plain):
    cohort = read_cohort("camelyon17", plain)
    truth = pd.read_csv(plain / "truth.csv").set_index("slide_id")
    frame = cohort.cases.set_index("case_id")
    assert len(frame) == 8
    assert set(frame["site"]) == {"CWZ", "LPON"}
    assert frame["stage"].to_dict() == truth["stage"].to_dict()
    assert frame["slide"].notna().all()
    sick = truth.index[truth["stage"] != "negative"]
    assert sorted(frame.index[frame["annotation"].notna()]) == sorted(sick)
    assert not any("stage that their slides do not give" in text for text in cohort.warnings)


def test_the_stage_of_the_table_follows_from_the_annotation_on_disk(plain):
    truth = pd.read_csv(plain / "truth.csv").set_index("slide_id")
    seen = 0
    for name, row in truth[truth["stage"] != "negative"].iterrows():
        seen += 1
        mpp = row["mpp"]
        annotations = read_annotations(plain / "lesion_annotations" / f"{name}.xml")
        grid = Grid(
            x=0.0,
            y=0.0,
            step_px=4 / mpp,
            columns=int(row["width_px"] * mpp / 4),
            rows=int(row["height_px"] * mpp / 4),
        )
        mask = to_mask(annotations, grid) > 0
        axis = find_regions(mask).major_axis_px.max() * 4 / 1000
        assert axis == pytest.approx(row["axis_mm"], rel=0.06, abs=0.008)
        assert mask.sum() * 16e-6 == pytest.approx(row["tumour_mm2"], rel=0.06)
        assert {"itc": 0 < axis <= 0.2, "micro": 0.2 < axis <= 2}[row["stage"]]
    assert seen >= 3


def test_the_polygons_are_the_drawn_truth(plain):
    spec = next(one for one in WORLD.slides() if one.stage == "micro")
    drawing = Drawing(spec)
    width, height = drawing.size_px
    annotations = read_annotations(plain / "lesion_annotations" / f"{spec.slide_id}.xml")
    mask = to_mask(annotations, Grid(x=0.0, y=0.0, step_px=1.0, columns=width, rows=height)) > 0
    truth = drawing.truth(0, 0, width, height)
    assert truth.mean() > 0.02
    assert (mask & truth).sum() / (mask | truth).sum() > 0.96


def test_the_slides_open_with_their_scale_and_the_pixels_that_were_drawn(plain):
    pytest.importorskip("imagecodecs")
    from elsewhere.inputs.slides.opening import open_slide

    for spec in WORLD.slides()[::5]:
        with open_slide(slide_path(plain, spec)) as slide:
            assert slide.size_px == spec.size_px
            assert slide.mpp == pytest.approx(spec.mpp, rel=1e-6)
            assert [(level.width, level.height) for level in slide.levels] == level_sizes(*spec.size_px)
            x, y = spec.size_px[0] // 2, spec.size_px[1] // 2
            stored = slide.read(x, y, 200, 150).astype(int)
            drawn = Drawing(spec).region(x, y, 200, 150).astype(int)
            assert np.abs(stored - drawn).mean() < 8  # what JPEG costs
            assert np.abs(stored - drawn)[::2, ::2].mean() > 0.2
            assert np.abs(stored.mean((0, 1)) - drawn.mean((0, 1))).max() < 1.5


def test_openslide_reads_the_same_bytes(plain):
    pytest.importorskip("openslide")
    from elsewhere.inputs.slides.opening import open_slide

    path = slide_path(plain, WORLD.slides()[0])
    with open_slide(path) as ours, open_slide(path, backend="openslide") as theirs:
        assert theirs.mpp == pytest.approx(ours.mpp)
        for level in range(len(ours.levels)):
            assert np.array_equal(
                ours.read(30, 20, 300, 200, level=level), theirs.read(30, 20, 300, 200, level=level)
            )


def test_every_fault_is_where_it_was_planted(faulty, plain):
    pytest.importorskip("imagecodecs")
    from elsewhere.inputs.slides.opening import open_slide

    planted = json.loads((faulty / "planted.json").read_text())["faults"]
    by_fault = {one["fault"]: one for one in planted}
    assert set(by_fault) == set(PLANT)
    paths = {path.stem: path for path in faulty.rglob("*.tif")}
    assert len(paths) == 8
    wrong = by_fault["wrong-mpp"]
    with open_slide(paths[wrong["slide_id"]]) as slide:
        assert slide.mpp == pytest.approx(2 * wrong["mpp"]) == pytest.approx(wrong["mpp_in_tags"])
    copy = by_fault["copy"]
    assert paths[copy["slide_id"]].read_bytes() == paths[copy["copy_of"]].read_bytes()
    assert copy["slide_id"][:11] != copy["copy_of"][:11]
    stages = pd.read_csv(faulty / "stages.csv").set_index("patient")["stage"]
    truth = pd.read_csv(faulty / "truth.csv", keep_default_na=False).set_index("slide_id")
    stated = by_fault["wrong-stage"]
    assert stages[stated["slide_id"] + ".tif"] == stated["stage_in_table"] != stated["stage"]
    assert truth.loc[stated["slide_id"], "stage"] == stated["stage"]
    bare = by_fault["missing-annotation"]["slide_id"]
    assert truth.loc[bare, "stage"] != "negative"
    assert not (faulty / "lesion_annotations" / f"{bare}.xml").exists()
    assert {name for name in truth.index if truth.loc[name, "fault"]} == {one["slide_id"] for one in planted}
    # all other slides are those of the world without faults
    whole, broken = digests(plain), digests(faulty)
    touched = {one["slide_id"] for one in planted if one["fault"] in ("wrong-mpp", "copy")}
    for name, digest in whole.items():
        if name.endswith(".tif"):
            assert (broken[name] == digest) == (name.rsplit("/")[-1][:-4] not in touched)


def test_missing_tiles_are_a_hole(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    world = World(patients=1, nodes=1, centres=(0,), size="tiny", seed=6)
    write_world(world, tmp_path / "w", plant={"missing-tiles": 1})
    with tifffile.TiffFile(slide_path(tmp_path / "w", world.slides()[0])) as file:
        counts = np.array(file.pages[0].databytecounts)
    assert 0 < (counts == 0).sum() < len(counts)


def test_the_files_do_not_depend_on_workers_and_come_again(plain, tmp_path):
    small = World(patients=1, nodes=1, centres=(0, 4), size="tiny", seed=6)
    one = write_world(small, tmp_path / "one")
    first, second = digests(one), digests(plain)
    for name in ("centre_0/patient_000_node_0.tif", "centre_4/patient_080_node_0.tif"):
        assert first[name] == second[name]  # and a world of one begins the world of two


@pytest.mark.slow
def test_workers_write_the_same_files(tmp_path):
    world = World(patients=1, nodes=1, centres=(0, 4), size="small", seed=2)
    assert digests(write_world(world, tmp_path / "a")) == digests(
        write_world(world, tmp_path / "b", workers=2)
    )


def test_a_world_that_is_there_is_not_drawn_again(plain, tmp_path):
    spec = {"patients": 1, "nodes": 1, "centres": [0], "size": "tiny", "seed": 6}
    folder = make_phantom_world(spec, tmp_path / "w")
    before = (folder / MARK).stat().st_mtime_ns
    assert make_phantom_world(spec, folder) == folder
    assert (folder / MARK).stat().st_mtime_ns == before
    make_phantom_world({**spec, "seed": 7}, folder)
    assert json.loads((folder / MARK).read_text())["world"]["seed"] == 7
    with pytest.raises(UserError, match="earlier result"):
        write_world(WORLD, folder)


def test_faults_need_slides_that_can_have_them():
    slides = World(patients=1, nodes=1, centres=(0,), size="tiny", seed=6).slides()
    with pytest.raises(UserError, match="too few slides for 1 with the fault 'copy'"):
        plan_faults(slides, {"copy": 1})
    with pytest.raises(UserError, match="unknown fault 'wrong-mmp'"):
        plan_faults(slides, {"wrong-mmp": 1})
    many = World(patients=8, nodes=5, size="tiny").slides()
    plan = plan_faults(many, dict.fromkeys(FAULTS, 3))
    assert sorted(plan.slides.values()) == sorted([name for name in FAULTS for _ in range(3)])
    own = {one.slide_id: one for one in many}
    assert all(own[a].patient != own[b].patient and b not in plan.slides for a, b in plan.copies.items())
    assert len(set(plan.copies.values())) == 3


def test_the_command_says_what_was_written(tmp_path):
    seen = []
    made = command(
        tmp_path / "w", shift={"stain": 1.0}, patients=1, nodes=1, centres=(0,), size="tiny", seed=6,
        progress=lambda *report: seen.append(report),
    )  # fmt: skip
    text = "\n".join(made.lines())
    assert "centre 0 (CWZ): 1 slides of 1 patients" in text
    assert "stain 1, scanner 0, tissue 0, stages 0" in text
    assert f"elsewhere cohort read camelyon17 {tmp_path / 'w'}" in text
    assert made.to_dict()["centres"][0]["mpp"] == pytest.approx(0.486)
    assert seen[-1] == ("drawing slides", 1, 1)


@pytest.mark.parametrize("size", [(1, 1), (512, 512), (513, 700), (2049, 515)])
@pytest.mark.parametrize("subsampled", [True, False])
def test_the_tiff_holds_the_tiles_at_every_size(tmp_path, size, subsampled):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    rng = np.random.default_rng(3)
    columns, rows = -(-size[0] // TILE), -(-size[1] // TILE)
    small = rng.integers(60, 240, (rows * 8, columns * 8, 3), dtype=np.uint8)
    whole = np.repeat(np.repeat(small, 64, 0), 64, 1)
    options = TiffOptions(mpp=0.25, quality=95, subsampled=subsampled, description="a test")
    path = tmp_path / "a.tif"
    write_slide(
        path, size, lambda c, r: whole[r * TILE : (r + 1) * TILE, c * TILE : (c + 1) * TILE].copy(), options
    )
    with tifffile.TiffFile(path) as file:
        assert [page.shape[1::-1] for page in file.pages] == level_sizes(*size)
        assert file.pages[0].description == "a test"
        for number, page in enumerate(file.pages):
            top, bottom = page.tags["XResolution"].value
            assert bottom / top * 1e4 == pytest.approx(0.25 * 2**number)
            step = 2**number
            wide, high = page.shape[1], page.shape[0]
            inner = page.asarray()[: size[1] // step or 1, : size[0] // step or 1].astype(int)
            expected = whole
            for _ in range(number):
                expected = halved(expected)
            assert inner.shape == (size[1] // step or 1, size[0] // step or 1, 3) <= (high, wide, 3)
            assert np.abs(inner - expected[: inner.shape[0], : inner.shape[1]]).mean() < 6


def test_a_tile_given_twice_is_encoded_once(tmp_path, monkeypatch):
    from PIL import Image

    calls = []
    save = Image.Image.save
    monkeypatch.setattr(Image.Image, "save", lambda self, *a, **k: (calls.append(1), save(self, *a, **k))[1])
    tile = np.full((TILE, TILE, 3), 240, np.uint8)
    tile.flags.writeable = False
    options = TiffOptions(mpp=0.25, quality=80, subsampled=True, description="")
    write_slide(tmp_path / "a.tif", (TILE * 4, TILE), lambda c, r: tile, options)
    assert len(calls) == 1 + 2 + 1  # the finest level once, the two tiles and the one tile below it


def test_polygons_are_thinned_within_the_tolerance_and_holes_are_kept():
    turn = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    ring = np.stack([np.cos(turn), np.sin(turn)], axis=1) * 100
    thin = thinned(ring, 1.0)
    assert 8 < len(thin) < 60
    far = np.abs(np.hypot(*((thin + np.roll(thin, -1, 0)) / 2).T) - 100)
    assert far.max() < 1.0
    seeds = (
        World(patients=1, nodes=1, size="small", centres=(2,), seed=seed).slides()[0] for seed in range(1, 30)
    )
    drawings = (Drawing(one) for one in seeds if one.stage == "macro")
    polygons = next(
        found for found in (polygons_of(one.disease) for one in drawings) if any(p.holes for p in found)
    )
    outer = next(one for one in polygons if one.holes)
    hole = outer.holes[0].mean(0)
    assert (outer.outer.min(0) < hole).all()
    assert (hole < outer.outer.max(0)).all()
