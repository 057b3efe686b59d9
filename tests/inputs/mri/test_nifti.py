"""Our NIfTI reading and orientation against nibabel's, and files that must be refused."""

from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from nibabel.orientations import apply_orientation, axcodes2ornt, io_orientation, ornt_transform

from elsewhere.errors import UserError
from elsewhere.inputs.mri import nifti, unpacking
from elsewhere.inputs.mri.nifti import (
    Expected,
    gzip_bytes,
    mask_bytes,
    plain_placement,
    read_header,
    scaled,
    stored_voxels,
    voxel_pieces,
)
from elsewhere.inputs.mri.orientation import AXIAL, SAGITTAL, TARGETS, axis_letters, plane_of, turn_to

RPI = np.array([[0.7, 0, 0, -5], [0, -0.8, 0, 9], [0, 0, -2.0, 3], [0, 0, 0, 1.0]])
KINDS = ("u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


def turned(angles: tuple[float, float, float]) -> np.ndarray:
    a, b, c = angles
    x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    return x @ y @ z


@st.composite
def affines(draw: st.DrawFn) -> np.ndarray:
    """Any axis order, any signs, a little oblique or much."""
    order = draw(st.permutations([0, 1, 2]))
    signs = [draw(st.sampled_from([-1.0, 1.0])) for _ in range(3)]
    steps = [draw(st.floats(0.3, 4.0)) for _ in range(3)]
    part = np.zeros((3, 3))
    for axis, (world, sign, step) in enumerate(zip(order, signs, steps, strict=True)):
        part[world, axis] = sign * step
    angles = tuple(draw(st.floats(-0.6, 0.6)) for _ in range(3))
    affine = np.eye(4)
    affine[:3, :3] = turned(angles) @ part
    affine[:3, 3] = [draw(st.floats(-200, 200)) for _ in range(3)]
    return affine


def write(path, voxels, affine, *, order="<", version=1, forms="s") -> None:
    kind = nib.Nifti1Image if version == 1 else nib.Nifti2Image
    header = (nib.Nifti1Header if version == 1 else nib.Nifti2Header)(endianness=order)
    header.set_data_dtype(voxels.dtype.newbyteorder(order))
    image = kind(voxels, affine if forms else None, header, dtype=voxels.dtype.newbyteorder(order))
    if forms:
        image.header.set_sform(affine if "s" in forms else None, 1 if "s" in forms else 0)
        image.header.set_qform(affine if "q" in forms else None, 1 if "q" in forms else 0)
    else:
        image.header.set_zooms(nib.affines.voxel_sizes(affine))
    image.header.set_xyzt_units("mm")
    nib.save(image, path)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    order=st.sampled_from("<>"),
    version=st.sampled_from([1, 2]),
    packed=st.booleans(),
    affine=affines(),
    forms=st.sampled_from(["s", "q", "sq", ""]),
    shape=st.tuples(*[st.integers(1, 6)] * 3),
    seed=st.integers(0, 2**16),
)
def test_voxels_and_place_are_nibabels(tmp_path, kind, order, version, packed, affine, forms, shape, seed):
    rng = np.random.default_rng(seed)
    voxels = (rng.random(shape) * 100).astype(kind)
    path = tmp_path / ("v.nii.gz" if packed else "v.nii")
    write(path, voxels, affine, order=order, version=version, forms=forms)
    theirs = nib.load(path)
    header = read_header(path)
    ours = scaled(stored_voxels(path, header), header, where="", what="")
    assert header.shape == theirs.shape
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs.get_fdata(dtype=np.float32), rtol=1e-6)
    if forms:
        np.testing.assert_allclose(header.affine, theirs.affine, atol=1e-4)
        steps = nib.affines.voxel_sizes(theirs.affine)
        np.testing.assert_allclose(header.spacing_mm, steps, rtol=1e-5)
    else:
        assert header.affine is None
        np.testing.assert_allclose(header.spacing_mm, theirs.header.get_zooms()[:3], rtol=1e-5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    slope=st.floats(-5, 5).filter(lambda value: abs(value) > 0.01),
    inter=st.floats(-100, 100),
    packed=st.booleans(),
)
def test_slope_and_intercept(tmp_path, slope, inter, packed):
    path = tmp_path / ("v.nii.gz" if packed else "v.nii")
    stored = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    block = bytearray(plain_placement((1, 1, 1), np.eye(4)))
    struct.pack_into("<8h", block, 40, 3, 2, 3, 4, 1, 1, 1, 1)
    struct.pack_into("<2h", block, 70, 4, 16)
    struct.pack_into("<3f", block, 108, 352.0, slope, inter)
    data = bytes(block) + b"\0" * 4 + stored.tobytes(order="F")
    path.write_bytes(gzip.compress(data) if packed else data)
    header = read_header(path)
    ours = scaled(stored_voxels(path, header), header, where="", what="")
    np.testing.assert_allclose(ours, nib.load(path).get_fdata(), rtol=1e-5, atol=1e-4)


OBLIQUE = np.eye(4)
OBLIQUE[:3, :3] = [[-0.742, 0.468, -0.479], [-0.662, -0.620, 0.421], [0.100, -0.630, -0.770]]


@settings(max_examples=200, deadline=None)
@example(affine=OBLIQUE, plane=AXIAL, shape=(2, 3, 4))
@given(affine=affines(), plane=st.sampled_from([AXIAL, SAGITTAL]), shape=st.tuples(*[st.integers(1, 5)] * 3))
def test_turning_is_nibabels_and_goes_back(affine, plane, shape):
    letters = axis_letters(affine)
    assert tuple(letters) == nib.aff2axcodes(affine)
    turn = turn_to(letters, TARGETS[plane])
    voxels = np.arange(np.prod(shape)).reshape(shape)
    theirs = ornt_transform(io_orientation(affine), axcodes2ornt(tuple(TARGETS[plane])))
    ours = turn.volume(voxels)
    assert np.array_equal(ours, apply_orientation(voxels, theirs))
    assert np.array_equal(turn.back(ours), voxels)
    there = turn.affine(affine, shape)
    np.testing.assert_allclose(there, affine @ nib.orientations.inv_ornt_aff(theirs, shape), atol=1e-9)
    assert "".join(nib.aff2axcodes(there)) == TARGETS[plane]


@given(
    affine=affines(),
    shape=st.tuples(*[st.integers(2, 6)] * 3),
    data=st.data(),
)
def test_a_box_turns_with_its_voxels(affine, shape, data):
    ends = [
        sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True))) for n in shape
    ]
    box = (*(low for low, _ in ends), *(high for _, high in ends))
    turn = turn_to(axis_letters(affine), "PSR")
    voxels = np.zeros(shape, dtype=bool)
    voxels[tuple(slice(low, high) for low, high in ends)] = True
    x0, y0, z0, x1, y1, z1 = turn.box(box, shape)
    ours = np.zeros(turn.three(shape), dtype=bool)
    ours[x0:x1, y0:y1, z0:z1] = True
    assert np.array_equal(turn.volume(voxels), ours)
    assert turn.box_back(turn.box(box, shape), shape) == box


def test_the_plane_is_where_the_third_axis_points():
    assert [plane_of(letters) for letters in ("LAS", "RPI", "PSR", "AIL", "LSA")] == [
        AXIAL, AXIAL, SAGITTAL, SAGITTAL, AXIAL,
    ]  # fmt: skip


def test_units_of_a_metre_and_a_micron(tmp_path):
    for unit, factor in (("meter", 1000.0), ("micron", 0.001), ("mm", 1.0)):
        image = nib.Nifti1Image(np.zeros((2, 2, 2), np.int16), np.diag([2.0, 3.0, 4.0, 1.0]))
        image.header.set_xyzt_units(unit)
        nib.save(image, tmp_path / "v.nii")
        header = read_header(tmp_path / "v.nii")
        np.testing.assert_allclose(header.spacing_mm, np.array([2, 3, 4]) * factor)
        np.testing.assert_allclose(header.affine[:3, :3], np.diag([2, 3, 4]) * factor)


def test_a_file_that_is_not_packed_is_mapped_and_never_changed(tmp_path):
    voxels = np.random.default_rng(1).random((4, 5, 6)).astype(np.float32)
    write(tmp_path / "v.nii", voxels, np.eye(4))
    before = (tmp_path / "v.nii").read_bytes()
    header = read_header(tmp_path / "v.nii")
    held = stored_voxels(tmp_path / "v.nii", header)
    values = scaled(held, header, where="", what="")
    assert isinstance(held, np.memmap)
    assert np.shares_memory(held, values)
    values[:] = 7
    del held, values
    assert (tmp_path / "v.nii").read_bytes() == before


def test_several_gzip_members_are_one_file(tmp_path):
    write(tmp_path / "v.nii", np.arange(60, dtype=np.int16).reshape(3, 4, 5), np.eye(4))
    data = (tmp_path / "v.nii").read_bytes()
    (tmp_path / "v.nii.gz").write_bytes(gzip.compress(data[:400]) + gzip.compress(data[400:]))
    header = read_header(tmp_path / "v.nii.gz")
    assert np.array_equal(
        stored_voxels(tmp_path / "v.nii.gz", header), np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    )


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("cut", [1, 8, 300, 5000])
def test_a_file_that_breaks_off_says_so(tmp_path, monkeypatch, cut, slow):
    import zlib

    if slow:
        monkeypatch.setattr(unpacking, "fast_zlib", zlib)
    voxels = np.random.default_rng(2).integers(0, 2000, (24, 24, 24)).astype(np.int16)
    write(tmp_path / "v.nii.gz", voxels, np.eye(4))
    whole = (tmp_path / "v.nii.gz").read_bytes()
    (tmp_path / "v.nii.gz").write_bytes(whole[:-cut])
    header = read_header(tmp_path / "v.nii.gz")
    with pytest.raises(UserError, match=r"cut off|unpacked") as caught:
        stored_voxels(tmp_path / "v.nii.gz", header)
    assert "v.nii.gz" in str(caught.value)
    assert caught.value.fix


def test_a_damaged_checksum_is_noticed(tmp_path):
    write(
        tmp_path / "v.nii.gz",
        np.random.default_rng(2).integers(0, 2000, (9, 9, 9)).astype(np.int16),
        np.eye(4),
    )
    data = bytearray((tmp_path / "v.nii.gz").read_bytes())
    data[-6] ^= 0xFF
    (tmp_path / "v.nii.gz").write_bytes(bytes(data))
    with pytest.raises(UserError, match="unpacked"):
        stored_voxels(tmp_path / "v.nii.gz", read_header(tmp_path / "v.nii.gz"))


def test_an_uncompressed_file_that_breaks_off(tmp_path):
    write(tmp_path / "v.nii", np.zeros((5, 5, 5), np.int16), np.eye(4))
    data = (tmp_path / "v.nii").read_bytes()
    (tmp_path / "v.nii").write_bytes(data[:-10])
    with pytest.raises(UserError, match="240 of 250 bytes"):
        stored_voxels(tmp_path / "v.nii", read_header(tmp_path / "v.nii"))


def test_what_is_no_volume_is_refused(tmp_path):
    nib.save(nib.Nifti1Image(np.zeros((3, 4, 5, 2), np.int16), np.eye(4)), tmp_path / "four.nii.gz")
    with pytest.raises(UserError, match="three axes, this file is 3 x 4 x 5 x 2"):
        read_header(tmp_path / "four.nii.gz")
    nib.save(nib.Nifti1Image(np.zeros((3, 4, 5, 1), np.int16), np.eye(4)), tmp_path / "one.nii.gz")
    assert read_header(tmp_path / "one.nii.gz").shape == (3, 4, 5)
    nib.save(nib.Nifti1Image(np.zeros((3, 4, 5), np.complex64), np.eye(4)), tmp_path / "c.nii")
    with pytest.raises(UserError, match="not plain numbers"):
        read_header(tmp_path / "c.nii")
    (tmp_path / "text.nii.gz").write_bytes(b"not a volume at all" * 100)
    with pytest.raises(UserError, match="not a NIfTI file"):
        read_header(tmp_path / "text.nii.gz")
    (tmp_path / "empty.nii").write_bytes(b"")
    with pytest.raises(UserError, match="not a NIfTI file"):
        read_header(tmp_path / "empty.nii")
    with pytest.raises(UserError, match="no such file"):
        read_header(tmp_path / "absent.nii")


def test_axes_that_lie_on_one_another_are_refused(tmp_path):
    block = bytearray(
        plain_placement((1, 1, 1), np.array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]))
    )
    struct.pack_into("<8h", block, 40, 3, 2, 2, 2, 1, 1, 1, 1)
    struct.pack_into("<2h", block, 70, 2, 8)
    (tmp_path / "v.nii").write_bytes(bytes(block) + b"\0" * 12)
    with pytest.raises(UserError, match="lie in one plane"):
        read_header(tmp_path / "v.nii")


def test_a_header_that_claims_too_much_is_refused_before_it_is_unpacked(tmp_path):
    block = bytearray(plain_placement((1, 1, 1), np.eye(4)))
    struct.pack_into("<8h", block, 40, 3, 30000, 30000, 30000, 1, 1, 1, 1)
    struct.pack_into("<2h", block, 70, 64, 64)
    (tmp_path / "v.nii.gz").write_bytes(gzip.compress(bytes(block) + b"\0" * 4))
    with pytest.raises(UserError, match="GiB"):
        read_header(tmp_path / "v.nii.gz")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_voxels_that_are_no_number_are_counted_and_refused(tmp_path, value):
    voxels = np.ones((3, 3, 3), np.float32)
    voxels[0, 1, :2] = value
    write(tmp_path / "v.nii.gz", voxels, np.eye(4))
    header = read_header(tmp_path / "v.nii.gz")
    with pytest.raises(UserError, match="2 of 27 voxels of phase 1 of case 'A/1' are not finite"):
        scaled(stored_voxels(tmp_path / "v.nii.gz", header), header, where="v", what="phase 1 of case 'A/1'")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    affine=affines(), order=st.sampled_from("<>"), version=st.sampled_from([1, 2]), seed=st.integers(0, 99)
)
def test_a_written_mask_lies_where_the_image_lies(tmp_path, affine, order, version, seed):
    voxels = np.zeros((4, 5, 6), np.float64)
    write(tmp_path / "v.nii", voxels, affine, order=order, version=version, forms="sq")
    mask = np.random.default_rng(seed).random((4, 5, 6)) < 0.3
    content = gzip_bytes(mask_bytes(mask, read_header(tmp_path / "v.nii").placement))
    (tmp_path / "m.nii.gz").write_bytes(content)
    found, like = nib.load(tmp_path / "m.nii.gz"), nib.load(tmp_path / "v.nii")
    assert found.get_data_dtype() == np.uint8
    assert np.array_equal(np.asarray(found.dataobj), mask)
    np.testing.assert_allclose(found.affine, like.affine)
    np.testing.assert_allclose(found.header.get_zooms(), like.header.get_zooms())
    assert content == gzip_bytes(mask_bytes(mask.copy(order="F"), read_header(tmp_path / "v.nii").placement))
    assert content[4:8] == b"\0\0\0\0"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    version=st.sampled_from([1, 2]),
    packed=st.booleans(),
    edits=st.lists(st.tuples(st.integers(0, 560), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 200),
)
def test_a_damaged_file_is_a_user_error_or_a_volume(tmp_path, version, packed, edits, cut):
    write(tmp_path / "seed.nii", np.arange(60, dtype=np.int16).reshape(3, 4, 5), RPI, version=version)
    data = bytearray((tmp_path / "seed.nii").read_bytes())
    for at, value in edits:
        data[at % len(data)] = value
    path = tmp_path / "v.nii"
    content = gzip.compress(bytes(data)) if packed else bytes(data)
    path.write_bytes(content[: len(content) - cut])
    try:
        header = read_header(path)
        values = scaled(stored_voxels(path, header), header, where="", what="")
        if header.affine is not None:
            turn_to(axis_letters(header.affine), "LAS")
    except UserError as error:
        assert str(error)
    else:
        assert values.shape == header.shape
        assert np.isfinite(values).all()


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_pieces_are_the_volume_in_the_order_of_the_file(tmp_path, ending, monkeypatch):
    monkeypatch.setattr(nifti, "_PIECE", 100)
    voxels = np.arange(7 * 5 * 4, dtype=np.int16).reshape(7, 5, 4)
    path = tmp_path / f"v.{ending}"
    write(path, voxels, np.eye(4))
    header = read_header(path)
    pieces = list(voxel_pieces(path, header))
    assert len(pieces) > 1 and all(piece.size % 7 == 0 for piece in pieces)
    assert np.array_equal(np.concatenate(pieces).reshape(7, 5, 4, order="F"), voxels)


def test_two_axes_are_refused_in_a_volume_and_read_in_a_mask(tmp_path):
    nib.save(nib.Nifti1Image(np.ones((3, 4), np.uint8), np.diag([0.5, 2, 1, 1])), tmp_path / "m.nii.gz")
    with pytest.raises(UserError, match="a volume has three axes, this file is 3 x 4"):
        read_header(tmp_path / "m.nii.gz")
    header = read_header(tmp_path / "m.nii.gz", Expected(what="mask", axes=(2, 3)))
    assert header.shape == (3, 4, 1) and header.axes == 2 and header.spacing_mm[:2] == (0.5, 2.0)


def test_another_number_type_is_called_by_its_name(tmp_path):
    nib.save(nib.Nifti1Image(np.zeros((3, 4, 5), np.complex64), np.eye(4)), tmp_path / "c.nii")
    with pytest.raises(UserError, match="voxels of type complex64"):
        read_header(tmp_path / "c.nii")


def test_one_module_reads_nifti_files():
    """Everything else calls it, so that no file is opened without the checks of size, type and damage."""
    source = Path(nifti.__file__).parents[2]
    writers = {"phantom/mri_layout.py", "phantom/tables.py", "recipes/mri/nnunet.py"}
    reads = re.compile(r"nibabel(\.\w+)*\.load\(|from_filename|nib\.load\(|get_fdata|dataobj")
    users = {
        path.relative_to(source).as_posix(): path.read_text()
        for path in source.rglob("*.py")
        if re.search(r"^\s*(import|from) nibabel", path.read_text(), re.MULTILINE)
    }
    assert set(users) == writers
    assert not [name for name, text in users.items() if reads.search(text)]
    flat = np.diag([2.0, 3.0, 4.0, 1.0])
    flat[:3, 2] = [1e-17, 4.0, 0.0]
    letters = axis_letters(flat)
    assert {frozenset(pair) for pair in ("LR", "AP", "IS") if set(pair) & set(letters)} == {
        frozenset("LR"), frozenset("AP"), frozenset("IS")
    }  # fmt: skip
    assert sorted(turn_to(letters, "LAS").order) == [0, 1, 2]
