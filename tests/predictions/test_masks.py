"""Folders of masks, and single mask files: one test a rule, and a fuzz test."""

from __future__ import annotations

import gzip
import io

import nibabel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.masks import check_same_grid, mask_file_name, read_mask
from elsewhere.scoring.task import read_predictions

AFFINE = np.diag([0.8, 0.8, 1.5, 1.0])
AFFINE[:3, 3] = (-10.0, 5.0, 3.0)


def box(shape=(12, 10, 6), dtype=np.uint8):
    mask = np.zeros(shape, dtype=dtype)
    mask[3:7, 2:8, 1:4] = 1
    return mask


def save(path, mask=None, affine=AFFINE, kind=nibabel.Nifti1Image):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(kind(box() if mask is None else mask, affine), path)
    return path


def cohort(*ids):
    return Cohort.from_frame(pd.DataFrame({"case_id": list(ids), "patient_id": list(ids)}))


def ids_of(folder, *, options=None, known=None):
    return sorted(read_predictions("segmentation", folder, options, known).table["case_id"])


def test_folder_by_file_name(tmp_path):
    for name in ("a.nii.gz", "b.nii", "c.1.nii.gz"):
        save(tmp_path / name)
    for name in ("d.png", "e.tif"):
        Image.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "._a.nii.gz").write_text("a file of another operating system")
    found = read_predictions("segmentation", tmp_path)
    assert sorted(found.table["case_id"]) == ["a", "b", "c.1", "d", "e"]
    assert found.kind == "masks"
    assert found.flow[0]["n"] == 5
    assert "1 files in the folder are no masks" in found.warnings[0]


def test_slash_in_an_id_is_percent_encoded(tmp_path):
    assert mask_file_name("1.2/rcc") == "1.2%2Frcc.nii.gz"
    save(tmp_path / mask_file_name("1.2/rcc"))
    save(tmp_path / mask_file_name("50%/x"))
    assert ids_of(tmp_path) == ["1.2/rcc", "50%/x"]


def test_a_percent_sign_that_is_part_of_the_id(tmp_path):
    save(tmp_path / "a%20b.nii.gz")
    assert ids_of(tmp_path) == ["a b"]
    assert ids_of(tmp_path, known=cohort("a%20b")) == ["a%20b"]


def test_a_folder_a_case(tmp_path):
    save(tmp_path / "p1" / "p1.nii.gz")
    save(tmp_path / "p2" / "mask.nii.gz")
    save(tmp_path / "study" / "left.nii.gz")
    assert ids_of(tmp_path) == ["p1", "p2", "study/left"]


def test_two_files_of_one_case_are_refused(tmp_path):
    save(tmp_path / "a.nii.gz")
    save(tmp_path / "a.nii")
    with pytest.raises(UserError, match="case 'a' has 2 masks"):
        read_predictions("segmentation", tmp_path)


def test_a_table_of_paths(tmp_path):
    save(tmp_path / "odd" / "name1.nii.gz")
    table = tmp_path / "masks.csv"
    table.write_text("case_id,path\n007,odd/name1.nii.gz\n")
    found = read_predictions("segmentation", table).table
    assert found["case_id"].tolist() == ["007"]
    assert read_mask(found["path"].iloc[0]).array.sum() == box().sum()
    table.write_text("case_id,path\n007,odd/none.nii.gz\n")
    with pytest.raises(UserError, match="not there"):
        read_predictions("segmentation", table)
    table.write_text("case_id,file\n007,odd/name1.nii.gz\n")
    with pytest.raises(UserError, match="no column path"):
        read_predictions("segmentation", table)


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match="no mask found"):
        read_predictions("segmentation", tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        read_predictions("segmentation", tmp_path / "none")


def test_normalised_ids_take_the_cohorts_spelling(tmp_path):
    save(tmp_path / "Case_7.nii.gz")
    options = ReadOptions(normalise_ids=("case", "zeros"))
    assert ids_of(tmp_path, options=options, known=cohort("case_007")) == ["case_007"]


def test_digest_depends_on_content(tmp_path):
    save(tmp_path / "a.nii")
    first = read_predictions("segmentation", tmp_path).digest
    assert read_predictions("segmentation", tmp_path).digest == first
    save(tmp_path / "a.nii", box() * 0)
    assert read_predictions("segmentation", tmp_path).digest != first


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.float32, np.float64, ">i2"]
)
def test_types_and_byte_orders(tmp_path, ending, dtype):
    mask = read_mask(save(tmp_path / f"a{ending}", box().astype(dtype)))
    assert np.array_equal(mask.array > 0, box() > 0)
    assert mask.spacing_mm == pytest.approx((0.8, 0.8, 1.5), rel=1e-6)


def test_nifti2_and_a_trailing_axis_of_one(tmp_path):
    assert read_mask(save(tmp_path / "a.nii.gz", kind=nibabel.Nifti2Image)).shape == (12, 10, 6)
    assert read_mask(save(tmp_path / "b.nii.gz", box()[..., None])).shape == (12, 10, 6)
    with pytest.raises(UserError, match="two or three axes"):
        read_mask(save(tmp_path / "c.nii.gz", np.stack([box(), box()], axis=-1)))


def test_scaled_values_are_unscaled_first(tmp_path):
    image = nibabel.Nifti1Image(box().astype(np.int16) * 10, AFFINE)
    image.header.set_slope_inter(0.1, 0.0)
    path = tmp_path / "a.nii.gz"
    nibabel.save(image, path)
    assert read_mask(path).array.sum() == box().sum()


def test_labels_above_zero_are_tumour(tmp_path):
    assert read_mask(save(tmp_path / "a.nii.gz", box() * 255)).array.astype(bool).sum() == box().sum()
    assert read_mask(save(tmp_path / "b.nii.gz", box().astype(np.int16) * 3)).array.sum() == box().sum()


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (box(dtype=np.float32) * 0.7, "not whole numbers"),
        (np.where(box() > 0, np.nan, 0).astype(np.float32), "NaN"),
        (box(dtype=np.int16) * -1, "below 0"),
        (box().astype(np.complex64), "type complex64"),
    ],
)
def test_values_that_are_no_mask(tmp_path, mask, words):
    with pytest.raises(UserError, match=words) as caught:
        read_mask(save(tmp_path / "a.nii.gz", mask))
    assert "a.nii.gz" in str(caught.value)


def test_units_of_the_header(tmp_path):
    image = nibabel.Nifti1Image(box(), np.diag([800.0, 800.0, 1500.0, 1.0]))
    image.header.set_xyzt_units("micron")
    nibabel.save(image, tmp_path / "a.nii.gz")
    assert read_mask(tmp_path / "a.nii.gz").spacing_mm == pytest.approx((0.8, 0.8, 1.5))


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.999])
def test_truncated(tmp_path, ending, share):
    rng = np.random.default_rng(1)
    path = save(tmp_path / f"a{ending}", rng.integers(0, 2, (30, 30, 20)).astype(np.uint8))
    data = path.read_bytes()
    path.write_bytes(data[: max(1, min(int(len(data) * share), len(data) - 4))])
    with pytest.raises(UserError, match=r"cut off|unpacked"):
        read_mask(path)


def test_a_damaged_byte_in_gzip_is_found(tmp_path):
    path = save(tmp_path / "a.nii.gz")
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match="cannot be unpacked"):
        read_mask(path)


def test_several_gzip_members(tmp_path):
    plain = save(tmp_path / "a.nii").read_bytes()
    path = tmp_path / "b.nii.gz"
    path.write_bytes(gzip.compress(plain[:400]) + gzip.compress(plain[400:]))
    assert read_mask(path).array.sum() == box().sum()


def test_empty_absent_and_unknown_files(tmp_path):
    (tmp_path / "a.nii.gz").write_bytes(b"")
    (tmp_path / "b.nii.gz").write_bytes(b"no gzip at all")
    (tmp_path / "c.png").write_bytes(b"no png at all")
    (tmp_path / "d.npy").write_bytes(b"x")
    for name, words in (
        ("a.nii.gz", "empty"),
        ("b.nii.gz", "not a NIfTI file"),
        ("c.png", "cannot be read"),
        ("d.npy", "known"),
        ("e.nii", "no such mask"),
    ):
        with pytest.raises(UserError, match=words):
            read_mask(tmp_path / name)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    header = nibabel.Nifti1Header()
    header.set_data_shape((30000, 30000, 30000))
    header.set_data_dtype(np.uint8)
    header["magic"] = b"n+1"
    header["vox_offset"] = 352
    stream = io.BytesIO()
    header.write_to(stream)
    path = tmp_path / "a.nii.gz"
    path.write_bytes(gzip.compress(stream.getvalue() + bytes(2**20)))
    with pytest.raises(UserError, match="GiB"):
        read_mask(path)
    with pytest.raises(UserError, match="GiB"):
        read_mask(save(tmp_path / "b.nii"), most_bytes=700)


def test_pictures(tmp_path):
    mask = np.zeros((8, 9), dtype=np.uint8)
    mask[2:4, 3:6] = 255
    Image.fromarray(mask).save(tmp_path / "a.png")
    Image.fromarray(mask).convert("1").save(tmp_path / "b.png")
    Image.fromarray(mask).convert("RGB").save(tmp_path / "c.png")
    for name in "abc":
        read = read_mask(tmp_path / f"{name}.png")
        assert np.array_equal(read.array > 0, mask > 0)
        assert read.spacing_mm is None
    pages = [Image.fromarray(mask) for _ in range(5)]
    pages[0].save(tmp_path / "d.tif", save_all=True, append_images=pages[1:])
    assert read_mask(tmp_path / "d.tif").shape == (5, 8, 9)


def test_pictures_that_are_no_mask(tmp_path):
    grey = np.arange(72, dtype=np.uint8).reshape(8, 9)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(np.dstack([grey, grey * 0, grey])).save(tmp_path / "colour.png")
    Image.fromarray((grey / 100).astype(np.float32)).save(tmp_path / "share.tif")
    for name, words in (
        ("grey.png", "grey values"),
        ("colour.png", "colour"),
        ("share.tif", "whole numbers"),
    ):
        with pytest.raises(UserError, match=words):
            read_mask(tmp_path / name)


def grid_error(tmp_path, mask, affine):
    truth = read_mask(save(tmp_path / "truth.nii.gz"))
    check_same_grid(read_mask(save(tmp_path / "same.nii.gz")), truth)
    with pytest.raises(UserError) as caught:
        check_same_grid(read_mask(save(tmp_path / "other.nii.gz", mask, affine)), truth)
    assert "other.nii.gz" in str(caught.value)
    return str(caught.value)


def test_another_shape(tmp_path):
    assert "shape (12, 10, 5)" in grid_error(tmp_path, box()[..., :5], AFFINE)
    assert "another order" in grid_error(tmp_path, box().transpose(2, 1, 0), AFFINE)


def test_another_spacing(tmp_path):
    other = AFFINE.copy()
    other[2, 2] = 1.6
    assert "spacing is 0.8 x 0.8 x 1.6 mm, the truth's 0.8 x 0.8 x 1.5" in grid_error(tmp_path, box(), other)


def test_another_orientation_is_said_to_be_one(tmp_path):
    flipped = AFFINE.copy()
    flipped[0, 0] *= -1
    flipped[0, 3] = AFFINE[0, 3] + 0.8 * 11
    assert "oriented LAS, the truth RAS" in grid_error(tmp_path, box(), flipped)


def test_another_place(tmp_path):
    moved = AFFINE.copy()
    moved[0, 3] += 0.8
    assert "at another place in space: a corner is 0.8 mm" in grid_error(tmp_path, box(), moved)


def test_rounding_of_an_affine_is_no_difference(tmp_path):
    truth = read_mask(save(tmp_path / "truth.nii.gz"))
    near = AFFINE.copy()
    near[:3] += 1e-4
    check_same_grid(read_mask(save(tmp_path / "near.nii.gz", affine=near)), truth)


def test_a_file_without_a_place_is_compared_by_spacing_alone(tmp_path):
    truth = read_mask(save(tmp_path / "truth.nii.gz"))
    image = nibabel.Nifti1Image(box(), None)
    image.header.set_zooms((0.8, 0.8, 1.5))
    nibabel.save(image, tmp_path / "bare.nii.gz")
    bare = read_mask(tmp_path / "bare.nii.gz")
    assert not bare.placed
    check_same_grid(bare, truth)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    save(folder / "a.nii.gz")
    save(folder / "a.nii")
    save(folder / "b.nii", box().astype(np.float32), kind=nibabel.Nifti2Image)
    Image.fromarray(box()[:, :, 2] * 255).save(folder / "a.png")
    pages = [Image.fromarray(box()[:, :, k] * 255) for k in range(6)]
    pages[0].save(folder / "a.tif", save_all=True, append_images=pages[1:])
    return [
        (file.suffix if file.suffix != ".gz" else ".nii.gz", file.read_bytes())
        for file in sorted(folder.iterdir())
    ]


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_mutated_files_are_read_or_refused(seeds, tmp_path_factory, data):
    ending, original = data.draw(st.sampled_from(seeds))
    raw = bytearray(original)
    header = min(len(raw), 400)
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    path = tmp_path_factory.getbasetemp() / f"mutated{ending}"
    path.write_bytes(bytes(raw))
    try:
        mask = read_mask(path, most_bytes=2**24)
    except UserError as error:
        assert "mutated" in str(error)
    else:
        assert mask.array.ndim in (2, 3)
