"""Packing while unpacking gives the bits of packing the whole volume, for every kind of file and any cut."""

from __future__ import annotations

import nibabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.inputs.mri import nifti
from elsewhere.predictions import mask_file
from elsewhere.predictions.mask_file import is_nifti, read_mask, stream_mask
from elsewhere.scoring.segmentation.hausdorff import measure_packed, measure_pair
from elsewhere.scoring.segmentation.surface import pack, pack_pieces


def same(one, other):
    assert one.shape == other.shape and one.n_voxels == other.n_voxels
    assert np.array_equal(one.occupied, other.occupied)
    assert np.array_equal(one.packed, other.packed)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 150), st.integers(1, 9), st.integers(1, 5)),
    st.integers(1, 7),
    st.floats(0.0, 1.0),
    st.integers(0, 2**32 - 1),
)
def test_pieces_of_whole_rows_are_the_whole(shape, rows_a_piece, share, seed):
    rng = np.random.default_rng(seed)
    mask = np.asarray(rng.random(shape) < share * rng.random(), dtype=np.uint8, order="F")
    flat, step = mask.reshape(-1, order="F"), rows_a_piece * shape[0]
    pieces = (flat[first : first + step] for first in range(0, flat.size, step))
    same(pack_pieces(shape, pieces), pack(np.ascontiguousarray(mask.T)))


def write(path, array, **header):
    image = nibabel.Nifti1Image(array, np.diag([0.7, 0.8, 2.0, 1.0]))
    if header:
        image.header.set_slope_inter(**header)
    nibabel.save(image, path)
    return path


def blob(shape=(70, 50, 20), dtype=np.uint8):
    mask = np.zeros(shape, dtype=dtype, order="F")
    mask[20:41, 10:30, 5:15] = 1
    mask[60:, 40:, 18:] = 2
    return mask


@pytest.mark.parametrize("piece", [64, 1000, 2**20])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
def test_a_streamed_file_is_the_file_read_whole(monkeypatch, tmp_path, piece, ending, dtype):
    path = write(tmp_path / f"m{ending}", blob(dtype=dtype))
    whole = read_mask(path)
    monkeypatch.setattr(nifti, "_PIECE", piece)
    monkeypatch.setattr(mask_file, "_CHUNK", piece)
    grid, packed = stream_mask(path, pack_pieces)
    same(packed, pack(np.ascontiguousarray(whole.array.T)))
    assert (grid.shape, grid.spacing_mm, grid.placed) == (whole.shape, whole.spacing_mm, whole.placed)
    assert np.array_equal(grid.affine, whole.affine)
    assert np.array_equal(read_mask(path).array, whole.array)
    assert np.array_equal(whole.array > 0, blob() > 0)


def test_a_pair_measured_from_streams_is_the_pair_measured_from_arrays(tmp_path):
    rng = np.random.default_rng(3)
    truth, moved = blob(), np.roll(blob(), (2, -1, 1), axis=(0, 1, 2))
    moved[rng.random(moved.shape) < 0.001] = 1
    files = [write(tmp_path / f"{name}.nii.gz", mask) for name, mask in (("a", truth), ("b", moved))]
    (grid, a), (_, b) = (stream_mask(file, pack_pieces) for file in files)
    x, y, z = grid.spacing_mm
    whole = measure_pair(read_mask(files[0]).array, read_mask(files[1]).array, (x, y, z), contour=True)
    assert measure_packed(a, b, (z, y, x), contour=True) == whole
    assert a.emptied().n_voxels == 0 and a.emptied().shape == a.shape


def test_a_flat_mask_and_a_picture(tmp_path):
    flat = np.zeros((40, 30), dtype=np.uint8)
    flat[3:9, 4:20] = 1
    grid, packed = stream_mask(write(tmp_path / "f.nii.gz", flat), pack_pieces)
    assert grid.shape == (40, 30) and packed.shape == (1, 30, 40) and packed.n_voxels == 6 * 16
    assert is_nifti(tmp_path / "f.nii.gz") and not is_nifti("x.png")


@pytest.mark.parametrize("keep", [0.3, 0.95])
def test_a_file_that_is_cut_off_is_an_error_that_names_it(tmp_path, keep):
    rng = np.random.default_rng(0)
    path = write(tmp_path / "m.nii.gz", (rng.random((64, 64, 16)) < 0.5).astype(np.uint8))
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(UserError, match=r"cut off|cannot be read"):
        stream_mask(path, pack_pieces)


def test_a_probability_map_is_refused_in_a_stream_too(tmp_path):
    path = write(tmp_path / "p.nii.gz", np.full((9, 8, 7), 0.25, dtype=np.float32))
    with pytest.raises(UserError, match="not whole numbers"):
        stream_mask(path, pack_pieces)
