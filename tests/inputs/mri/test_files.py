"""Volumes from their files: what a recipe sees, what goes back to the file, and what is refused by name."""

from __future__ import annotations

import hashlib
import pickle

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from elsewhere.errors import UserError
from elsewhere.inputs.mri.files import FileVolumes, VolumeFiles, file_digest
from elsewhere.inputs.mri.layout import box_to_published, phase_files, published_box
from elsewhere.inputs.mri.packs import PackedVolumes, mask_digest, pack_volumes, volume_digest
from elsewhere.inputs.volumes import MemoryVolumes

CASE = "DUKE/001"
RPI = np.array([[0.7, 0, 0, -5], [0, -0.8, 0, 9], [0, 0, -2.0, 3], [0, 0, 0, 1.0]])
SAGITTAL = np.array([[0, 0, 2.0, -3], [0.7, 0, 0, 5], [0, -0.8, 0, 1], [0, 0, 0, 1.0]])
SHAPE = (6, 5, 4)


def volume(at: int = 0, shape=SHAPE) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) + 1000 * at).astype(np.int16)


def tumour(shape=SHAPE) -> np.ndarray:
    mask = np.zeros(shape, np.uint8)
    mask[1:3, 0:2, 2:4] = 1
    return mask


@pytest.fixture
def made(tmp_path):
    """Three phases and a mask; `affine` of all of them."""

    def make(affine=RPI, ending=".nii.gz", **more) -> FileVolumes:
        paths = []
        for at in range(3):
            paths.append(tmp_path / f"p{at}{ending}")
            nib.save(nib.Nifti1Image(volume(at), affine), paths[-1])
        nib.save(nib.Nifti1Image(tumour(), affine), tmp_path / f"m{ending}")
        told = {"mask": tmp_path / f"m{ending}", "breast_box": (1, 0, 2, 3, 2, 4)} | more
        return FileVolumes({CASE: VolumeFiles(phases=tuple(paths), **told)})

    return make


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize(("affine", "letters"), [(RPI, "LAS"), (SAGITTAL, "PSR")])
def test_axial_is_las_and_sagittal_is_psr(made, affine, letters, ending):
    volumes = made(affine, ending)
    grid = volumes.grid(CASE)
    assert "".join(nib.aff2axcodes(grid.affine)) == letters
    assert volumes.phases(CASE) == 3
    first, last = volumes.phase(CASE, 0), volumes.phase(CASE, -1)
    assert first.shape == grid.shape
    assert min(first.strides) > 0
    assert np.array_equal(last - first, np.full(grid.shape, 2000, np.float32))
    at = np.array([1, 2, 3, 1])
    world = grid.affine @ at
    there = np.rint(np.linalg.inv(affine) @ world).astype(int)[:3]
    assert first[1, 2, 3] == volume()[tuple(there)]


def test_a_given_plane_stands_against_the_third_axis(made):
    grid = made(SAGITTAL, plane="axial").grid(CASE)
    assert "".join(nib.aff2axcodes(grid.affine)) == "LAS"
    assert grid.spacing_mm == pytest.approx((2.0, 0.7, 0.8))


@pytest.mark.parametrize("affine", [RPI, SAGITTAL])
def test_mask_and_box_turn_with_the_volume_and_a_mask_goes_back(made, affine, tmp_path):
    volumes = made(affine)
    mask = volumes.mask(CASE)
    x0, y0, z0, x1, y1, z1 = volumes.breast_box(CASE)
    assert mask.sum() == tumour().sum() == 8
    assert mask[x0:x1, y0:y1, z0:z1].sum() == 8
    assert (x1 - x0) * (y1 - y0) * (z1 - z0) == 8
    written = volumes.write_mask(tmp_path / "out.nii.gz", mask, like=CASE)
    back = nib.load(written)
    assert np.array_equal(np.asarray(back.dataobj), tumour())
    np.testing.assert_allclose(back.affine, affine, atol=1e-6)
    again = volumes.write_mask(tmp_path / "again.nii.gz", mask, like=CASE)
    assert again.read_bytes() == written.read_bytes()
    with pytest.raises(ValueError, match="shape"):
        volumes.write_mask(tmp_path / "x.nii.gz", mask[:-1], like=CASE)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_a_part_is_a_part_of_the_whole(made, ending):
    volumes = made(SAGITTAL, ending)
    whole = volumes.phase(CASE, 1)
    assert np.array_equal(volumes.part(CASE, 1, (1, 0, 2, 4, 3, 4)), whole[1:4, 0:3, 2:4])


def test_a_file_that_does_not_say_where_it_lies_stays_as_it_is(tmp_path):
    image = nib.Nifti1Image(volume(), None)
    image.header.set_zooms((0.5, 0.6, 3.0))
    nib.save(image, tmp_path / "v.nii.gz")
    volumes = FileVolumes({CASE: VolumeFiles(phases=(tmp_path / "v.nii.gz",))})
    grid = volumes.grid(CASE)
    assert grid.affine is None
    assert grid.spacing_mm == pytest.approx((0.5, 0.6, 3.0))
    assert np.array_equal(volumes.phase(CASE, 0), volume())
    assert volumes.mask(CASE) is None
    assert volumes.breast_box(CASE) is None


def test_a_mask_in_another_orientation_is_brought_to_the_same(made, tmp_path):
    volumes = made(RPI)
    expected = volumes.mask(CASE)
    las = nib.as_closest_canonical(nib.load(tmp_path / "m.nii.gz"))
    nib.save(las, tmp_path / "m.nii.gz")
    assert not np.array_equal(np.asarray(las.dataobj), tumour())
    assert np.array_equal(made(RPI, mask=tmp_path / "m.nii.gz").mask(CASE), expected)
    nib.save(las, tmp_path / "other.nii.gz")
    assert np.array_equal(made(RPI, mask=tmp_path / "other.nii.gz").mask(CASE), expected)


def test_phases_of_other_sizes_or_places(made, tmp_path):
    volumes = made()
    nib.save(nib.Nifti1Image(volume(2, (6, 5, 3)), RPI), tmp_path / "p2.nii.gz")
    with pytest.raises(
        UserError, match=r"phase 2 of case 'DUKE/001' has 6 x 5 x 3 voxels, phase 0 has 6 x 5 x 4"
    ):
        volumes.grid(CASE)
    moved = RPI.copy()
    moved[0, 3] += 2.0
    nib.save(nib.Nifti1Image(volume(2), moved), tmp_path / "p2.nii.gz")
    with pytest.raises(UserError, match=r"phase 2 .* lies elsewhere than phase 0: a corner is 2 mm away"):
        volumes.phase(CASE, 0)
    assert "p2.nii.gz" in volumes.problems()[CASE]


def test_a_mask_on_another_grid(made, tmp_path):
    volumes = made()
    nib.save(nib.Nifti1Image(tumour((6, 5, 3)), RPI), tmp_path / "m.nii.gz")
    with pytest.raises(UserError, match="the mask of case 'DUKE/001' has 6 x 5 x 3 voxels") as caught:
        volumes.mask(CASE)
    assert "m.nii.gz" in str(caught.value)
    wide = RPI.copy()
    wide[:3, :3] *= 1.1
    nib.save(nib.Nifti1Image(tumour(), wide), tmp_path / "m.nii.gz")
    with pytest.raises(UserError, match=r"spacing 0.77 x 0.88 x 2.2 mm instead of 0.7 x 0.8 x 2 mm"):
        volumes.grid(CASE)
    near = RPI.copy()
    near[0, 3] += 0.01
    nib.save(nib.Nifti1Image(tumour(), near), tmp_path / "m.nii.gz")
    assert volumes.mask(CASE).sum() == 8


def test_a_missing_phase_is_named(made, tmp_path):
    volumes = made(missing=("phase 0001 (x_0001.nii.gz)",))
    with pytest.raises(UserError, match=r"case 'DUKE/001' lacks phase 0001 \(x_0001.nii.gz\)"):
        volumes.phases(CASE)
    whole = made()
    (tmp_path / "p1.nii.gz").unlink()
    with pytest.raises(UserError, match="no such file"):
        whole.grid(CASE)
    with pytest.raises(UserError, match="Did you mean DUKE/001"):
        whole.grid("DUKE/01")


def test_a_phase_that_is_not_there_is_no_index_error(made):
    with pytest.raises(UserError, match="has 3 phases, phase 5 was requested"):
        made().phase(CASE, 5)


def test_a_box_of_another_grid_is_refused_and_one_voxel_over_is_cut(made):
    with pytest.raises(UserError, match=r"the breast box \(1, 0, 2, 3, 2, 9\) .* 6 x 5 x 4 voxels"):
        made(breast_box=(1, 0, 2, 3, 2, 9)).breast_box(CASE)
    x0, y0, z0, x1, y1, z1 = made(breast_box=(0, 0, 0, 7, 5, 4)).breast_box(CASE)
    assert (x0, y0, z0, x1, y1, z1) == (0, 0, 0, 6, 5, 4)


def test_a_slice_picture_is_three_phases_of_depth_one(tmp_path):
    rgb = np.random.default_rng(3).integers(0, 255, (8, 12, 3)).astype(np.uint8)
    Image.fromarray(rgb).save(tmp_path / "s.png")
    files = VolumeFiles(
        phases=(tmp_path / "s.png",), slice_spacing=(0.4, 0.4, 2.0), lesion_box=(2, 3, 0, 9, 7, 1)
    )
    volumes = FileVolumes({CASE: files})
    grid = volumes.grid(CASE)
    assert grid.shape == (12, 8, 1)
    assert grid.spacing_mm == (0.4, 0.4, 2.0)
    assert volumes.phases(CASE) == 3
    assert np.array_equal(volumes.phase(CASE, -1)[:, :, 0].T, rgb[:, :, 2])
    assert np.array_equal(volumes.part(CASE, 0, (2, 3, 0, 9, 7, 1))[:, :, 0].T, rgb[3:7, 2:9, 0])
    assert volumes.mask(CASE) is None
    assert volumes.lesion_box(CASE) == (2, 3, 0, 9, 7, 1)
    assert volumes.breast_box(CASE) is None
    mask = np.zeros((12, 8, 1), dtype=bool)
    mask[2:9, 3:7] = True
    back = nib.load(volumes.write_mask(tmp_path / "m.nii.gz", mask, like=CASE))
    assert np.array_equal(np.asarray(back.dataobj) > 0, mask)
    assert back.header.get_zooms() == pytest.approx((0.4, 0.4, 2.0))
    Image.fromarray(rgb[:, :, 0]).save(tmp_path / "s.png")
    with pytest.raises(UserError, match="three channels"):
        FileVolumes({CASE: files}).grid(CASE)
    (tmp_path / "s.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match="cannot be decoded"):
        FileVolumes({CASE: files}).grid(CASE)


def test_the_digest_is_of_the_bytes_and_of_the_boxes(made, tmp_path):
    volumes = made()
    first = volumes.digest(CASE)
    assert first == made().digest(CASE)
    assert first != made(breast_box=None).digest(CASE)
    assert first == made(mask=None).digest(CASE)
    assert volumes.mask_digest(CASE) == file_digest(volumes.files(CASE).mask)
    assert made(mask=None).mask_digest(CASE) == ""
    assert pickle.loads(pickle.dumps(volumes)).digest(CASE) == first
    nib.save(nib.Nifti1Image(volume(7), RPI), tmp_path / "p1.nii.gz")
    assert volumes.digest(CASE) != first


def test_digests_of_slices_are_what_they_were(tmp_path):
    """Results of real slices are found by keys that rest on them."""
    Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(tmp_path / "s.png")
    files = VolumeFiles(
        phases=(tmp_path / "s.png",), slice_spacing=(0.5, 0.5, 2.0), lesion_box=(1, 1, 0, 3, 3, 1)
    )
    told = f"elsewhere-volume-1\nphase {file_digest(tmp_path / 's.png')}\nmask \n"
    told += repr((None, (1, 1, 0, 3, 3, 1), (0.5, 0.5, 2.0), "", ()))
    assert FileVolumes({CASE: files}).digest(CASE) == hashlib.sha256(told.encode()).hexdigest()


def test_phases_of_a_folder_in_their_order_with_their_gaps(tmp_path):
    folder = tmp_path / "ISPY2_7"
    folder.mkdir()
    for name in (
        "ispy2_7_0000.nii.gz",
        "ispy2_7_0003.nii",
        "ISPY2_7_0001.nii.gz",
        "other_0002.nii.gz",
        "notes.txt",
    ):
        (folder / name).touch()
    found, gone = phase_files(folder)
    assert [path.name for path in found] == ["ispy2_7_0000.nii.gz", "ISPY2_7_0001.nii.gz", "ispy2_7_0003.nii"]
    assert len(gone) == 1
    assert gone[0].startswith("phase 0002")
    (folder / "ispy2_7_0003.nii.gz").touch()
    with pytest.raises(UserError, match="two files are phase 0003"):
        phase_files(folder)


def test_the_published_box_counts_slices_first():
    told = {"x_min": 1, "x_max": 158, "y_min": 6, "y_max": 276, "z_min": 2, "z_max": 176}
    assert published_box(told) == (2, 6, 1, 176, 276, 158)
    assert box_to_published(published_box(told)) == told


def test_a_pack_is_the_same_volume(made, tmp_path):
    volumes = made(SAGITTAL, lesion_box=(1, 0, 2, 3, 2, 4))
    packed = PackedVolumes(pack_volumes(volumes, [CASE], tmp_path / "pack"))
    assert CASE in packed
    assert packed.cases == (CASE,)
    assert packed.grid(CASE).shape == volumes.grid(CASE).shape
    np.testing.assert_array_equal(packed.grid(CASE).affine, volumes.grid(CASE).affine)
    for at in range(-3, 3):
        assert np.array_equal(packed.phase(CASE, at), volumes.phase(CASE, at))
        assert packed.phase(CASE, at).dtype == np.float32
    assert np.array_equal(packed.mask(CASE), volumes.mask(CASE))
    assert packed.breast_box(CASE) == volumes.breast_box(CASE)
    assert packed.lesion_box(CASE) == volumes.lesion_box(CASE)
    assert packed.digest(CASE) == volume_digest(packed, CASE) == volumes.digest(CASE)
    with pytest.raises(UserError, match="Did you mean DUKE/001"):
        packed.grid("DUKE/002")
    with pytest.raises(UserError, match="has 3 phases"):
        packed.phase(CASE, 3)


def test_packs_are_made_once_and_bytes_are_the_same(made, tmp_path):
    volumes = made()
    folder = pack_volumes(volumes, [CASE], tmp_path / "pack")
    file = folder / "DUKE%2F001.npz"
    first, when = file.read_bytes(), file.stat().st_mtime_ns
    pack_volumes(volumes, [CASE], folder)
    assert file.stat().st_mtime_ns == when
    nib.save(nib.Nifti1Image(volume(5), RPI), tmp_path / "p1.nii.gz")
    pack_volumes(FileVolumes({CASE: volumes.files(CASE)}), [CASE], folder)
    assert file.read_bytes() != first
    mask = volumes.files(CASE).mask
    nib.save(nib.Nifti1Image(1 - tumour(), RPI), mask)
    again = PackedVolumes(pack_volumes(FileVolumes({CASE: volumes.files(CASE)}), [CASE], folder))
    assert np.array_equal(again.mask(CASE), volumes.mask(CASE))
    assert again.mask_digest(CASE) == mask_digest(again, CASE) == file_digest(mask)
    pack_volumes(made(), [CASE], tmp_path / "other")
    assert (tmp_path / "other" / "DUKE%2F001.npz").read_bytes() == first
    without = PackedVolumes(pack_volumes(made(), [CASE], tmp_path / "blind", with_masks=False))
    assert without.mask(CASE) is None
    assert without.lesion_box(CASE) is None


@pytest.mark.parametrize("exact", [True, False])
def test_packs_of_fractions(tmp_path, exact):
    rng = np.random.default_rng(4)
    phase = (rng.normal(size=(5, 6, 7)) * 1e5).astype(np.float32)
    volumes = MemoryVolumes(images={"a": [phase, phase * 0]}, spacing_mm={"a": (1.0, 1.0, 2.0)})
    packed = PackedVolumes(pack_volumes(volumes, ["a"], tmp_path / "pack", exact=exact))
    if exact:
        assert np.array_equal(packed.phase("a", 0), phase)
        assert packed.digest("a") == volume_digest(volumes, "a")
    else:
        assert np.abs(packed.phase("a", 0) - phase).max() < 1e-3 * np.abs(phase).max()
        assert packed.digest("a") != volume_digest(volumes, "a")
    assert not packed.phase("a", 1).any()
    assert packed.mask("a") is None
    assert packed.grid("a").affine is None


def test_a_pack_that_is_damaged_or_absent(made, tmp_path):
    folder = pack_volumes(made(), [CASE], tmp_path / "pack")
    packed = PackedVolumes(folder)
    file = folder / "DUKE%2F001.npz"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(UserError, match="Pack it again"):
        packed.phase(CASE, 0)
    with pytest.raises(UserError, match="no packed volumes"):
        PackedVolumes(tmp_path / "nowhere")
