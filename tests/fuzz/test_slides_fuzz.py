"""Mutated slide masks and tables: read, or refused with a message; never another exception."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.slide_masks import SlideGeometry, open_slide_mask
from elsewhere.predictions.slides import read_slides
from worlds import examples

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")


def read_mask(file):
    with open_slide_mask(file, SlideGeometry(mpp=0.25)) as mask:
        return np.concatenate(list(mask.strips()))


def picture(kind: str) -> bytes:
    image = np.zeros((16, 20), np.uint8)
    image[4:9, 5:12] = 255
    out = io.BytesIO()
    Image.fromarray(image).save(out, format=kind)
    return out.getvalue()


SEEDS = {".png": picture("PNG"), ".tif": picture("TIFF")}
POINTS = b"case_id,x,y,score\ns1,10,20,0.5\ns2,11,21,0.25\n"
STAGES = b"case_id,stage\ns1,macro\ns2,negative\n"


@st.composite
def mutations(draw, content: bytes):
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 6))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                data[at] = draw(st.integers(0, 255))
            case 1:
                del data[at:]
            case 2:
                data[at:at] = draw(st.binary(min_size=1, max_size=12))
            case _:
                del data[at : at + draw(st.integers(1, 40))]
    return bytes(data)


def tiled(folder):
    """A pyramid with scale, offset and description, as Elsewhere writes it."""
    from elsewhere.inputs.slides.annotations import MaskGrid, write_strips

    grid = MaskGrid(columns=1100, rows=600, pixel_um=0.5, offset_px=(8.0, 16.0), probability=True)
    pixels = np.random.default_rng(0).integers(0, 256, (60, 110)).repeat(10, 0).repeat(10, 1).astype(np.uint8)
    return write_strips(folder / "seed.tif", [pixels], grid).read_bytes()


def test_a_mutated_pyramid_is_read_or_refused(tmp_path):
    pytest.importorskip("tifffile", reason="needs the extra 'slides'")
    content = tiled(tmp_path)

    @settings(
        max_examples=examples(150), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(mutations(content[:1200]), st.booleans())
    def throw(head, whole):
        file = tmp_path / "case.tif"
        file.write_bytes(head + (content[1200:] if whole else b""))
        try:
            read_mask(file)
        except UserError as refused:
            assert "case" in str(refused)

    throw()


@pytest.mark.parametrize("ending", SEEDS)
def test_a_mutated_mask_is_read_or_refused(ending, tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")

    @settings(
        max_examples=examples(120), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(mutations(SEEDS[ending]))
    def throw(content):
        file = folder / f"case{ending}"
        file.write_bytes(content)
        try:
            read_mask(file)
        except UserError as refused:
            assert "case" in str(refused)

    throw()


@pytest.mark.parametrize("seed", [POINTS, STAGES], ids=["points", "stages"])
@pytest.mark.parametrize("on_invalid", ["error", "worst"])
def test_a_mutated_slide_table_is_read_or_refused(seed, on_invalid, tmp_path_factory):
    file = tmp_path_factory.mktemp("slides") / "said.csv"

    @settings(
        max_examples=examples(80), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(mutations(seed))
    def throw(content):
        file.write_bytes(content)
        try:
            read_slides(file, ReadOptions(on_invalid=on_invalid))
        except UserError as refused:
            assert str(refused)

    throw()


def test_the_unmutated_files_are_read(tmp_path):
    for ending, content in SEEDS.items():
        file = tmp_path / f"case{ending}"
        file.write_bytes(content)
        assert read_mask(file).any()


def test_a_mutated_array_of_patches_is_read_or_refused(tmp_path):
    pytest.importorskip("tifffile", reason="needs the extra 'slides'")
    from elsewhere.commands.slide_masks import recompose_patches

    (tmp_path / "patches.csv").write_text("i,j\n0,0\n1,0\n")
    out = io.BytesIO()
    np.save(out, np.random.default_rng(0).random((2, 16, 16)).astype(np.float16))

    @settings(
        max_examples=examples(150), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(mutations(out.getvalue()[:160]))
    def throw(head):
        (tmp_path / "probabilities.npy").write_bytes(head + out.getvalue()[160:])
        options = {"size_px": (64, 32), "mpp": 0.25, "patch": 16, "replace": True}
        try:
            recompose_patches(tmp_path, out=tmp_path / "m.tif", **options)
        except UserError as refused:
            assert str(refused)

    throw()
