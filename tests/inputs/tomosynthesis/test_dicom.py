"""Volumes read slice by slice (DBT-01): every encoding, every way to index frames, and files that are wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydicom", reason="needs the extra 'volumes'")
pytest.importorskip("imagecodecs", reason="needs the extra 'volumes'")

from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis import codecs
from elsewhere.inputs.tomosynthesis.codecs import BadFrameError, FrameSize, codec_of, decoder
from elsewhere.inputs.tomosynthesis.dicom import DicomVolume
from worlds.tomosynthesis_files import LOSSLESS, SYNTAXES, Bto, breast, write_bto

COMPRESSED = [name for name in SYNTAXES if name not in ("implicit", "explicit")]


def slices_of(path: Path) -> np.ndarray:
    volume = DicomVolume(path)
    return np.stack([volume.read(z) for z in range(volume.shape[2])])


@pytest.mark.parametrize("syntax", LOSSLESS)
@pytest.mark.parametrize("shape", [(96, 61), (65, 48)])
def test_every_lossless_encoding_gives_the_same_pixels(tmp_path, syntax, shape):
    made = breast(*shape, slices=4)
    volume = DicomVolume(write_bto(tmp_path / "1-1.dcm", made, Bto(syntax=syntax)))
    assert volume.shape == (*shape, 4)
    assert volume.window == (212.0, 812.0)
    assert volume.notes == ()
    for z in range(4):
        found = volume.read(z)
        assert found.dtype == np.uint16
        np.testing.assert_array_equal(found, made[z])


def test_lossy_jpeg_2000_is_read_and_said(tmp_path):
    made = breast()
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", made, Bto(syntax="jpeg-2000-lossy")))
    assert volume.notes == ("the encoding may lose information (JPEG 2000 (lossy))",)
    assert np.abs(volume.read(2).astype(int) - made[2]).max() < 60


@pytest.mark.parametrize("syntax", ["rle", "jpeg-ls", "jpeg-2000"])
@pytest.mark.parametrize("offsets", ["basic", "none", "extended", "wrong"])
def test_frames_are_found_with_any_offset_table(tmp_path, syntax, offsets):
    made = breast(48, 33)
    path = write_bto(tmp_path / "a.dcm", made, Bto(syntax=syntax, offsets=offsets))
    np.testing.assert_array_equal(slices_of(path), made)


@pytest.mark.parametrize("syntax", COMPRESSED)
@pytest.mark.parametrize("offsets", ["basic", "none", "extended", "wrong"])
def test_a_frame_in_several_fragments(tmp_path, syntax, offsets):
    """Joined by a table, else by where codestreams begin; a frame of RLE says nothing of itself."""
    made = breast(48, 33)
    path = write_bto(tmp_path / "a.dcm", made, Bto(syntax=syntax, offsets=offsets, fragments=3))
    if syntax == "rle" and offsets in ("none", "wrong"):
        with pytest.raises(UserError, match="15 fragments belong to which of 5 frames"):
            slices_of(path)
    elif syntax != "jpeg-2000-lossy":
        np.testing.assert_array_equal(slices_of(path), made)


@pytest.mark.parametrize("syntax", ["explicit", "jpeg-ls", "jpeg-2000", "rle", "htj2k"])
@pytest.mark.parametrize("kind", ["u1", "u2"])
def test_values_are_never_cut_to_the_bits_stored(tmp_path, syntax, kind):
    """8 to 16 bits stored; 10 stated and values up to 65,535 are values up to 65,535."""
    top = 255 if kind == "u1" else 65535
    made = breast(40, 32, top=top).astype(kind)
    assert made.max() > top // 2
    path = write_bto(tmp_path / "a.dcm", made, Bto(syntax=syntax))
    np.testing.assert_array_equal(slices_of(path), made)


@pytest.mark.parametrize("syntax", ["explicit", "jpeg-ls", "rle"])
@pytest.mark.parametrize(
    "how", [{"PhotometricInterpretation": "MONOCHROME1"}, {"PresentationLUTShape": "INVERSE"}]
)
def test_inverted_values_are_inverted_once(tmp_path, syntax, how):
    made = breast(40, 32)
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", 1023 - made, Bto(syntax=syntax, tags=how)))
    np.testing.assert_array_equal(volume.read(1), made[1])
    assert volume.window == (1023 - 812.0, 1023 - 212.0)
    assert any("inverted once" in note for note in volume.notes)


def test_inversion_loses_nothing_where_values_are_wider_than_stated(tmp_path):
    made = breast(40, 32, top=4000)
    tags = {"PhotometricInterpretation": "MONOCHROME1"}
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", made, Bto(tags=tags)))
    assert volume.top == made.max() > 1023
    np.testing.assert_array_equal(volume.top - volume.read(0).astype(int), made[0])


def test_both_inversions_are_one(tmp_path):
    made = breast(40, 32)
    tags = {"PhotometricInterpretation": "MONOCHROME1", "PresentationLUTShape": "INVERSE"}
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", 1023 - made, Bto(tags=tags)))
    np.testing.assert_array_equal(volume.read(0), made[0])


def test_signed_pixels_are_read_and_negative_ones_refused(tmp_path):
    made = breast(40, 32).astype("<i2")
    np.testing.assert_array_equal(slices_of(write_bto(tmp_path / "a.dcm", made)), made)
    made[3, 0, 0] = -5
    volume = DicomVolume(write_bto(tmp_path / "b.dcm", made))
    volume.read(2)
    with pytest.raises(UserError, match=r"frame 4 has negative values \(down to -5\)"):
        volume.read(3)


@pytest.mark.parametrize("syntax", ["explicit", "jpeg-ls", "rle"])
def test_a_file_that_was_cut_off_names_the_frame(tmp_path, syntax):
    whole = write_bto(tmp_path / "a.dcm", breast(64, 40, slices=9), Bto(syntax=syntax)).read_bytes()
    cut = tmp_path / "cut.dcm"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(UserError, match=r"the file ends in frame [4-8] of 9") as error:
        DicomVolume(cut).read(0)
    assert "cut off" in str(error.value)


@pytest.mark.parametrize("syntax", ["explicit", "jpeg-ls"])
def test_fewer_frames_than_stated(tmp_path, syntax):
    path = write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(syntax=syntax, tags={"NumberOfFrames": 6}))
    with pytest.raises(
        UserError, match=r"(the header states 6 frames and the file has 5)|(ends in frame 6 of 6)"
    ):
        DicomVolume(path).read(0)


def test_more_plain_frames_than_stated_are_left_alone(tmp_path):
    made = breast(40, 32)
    path = write_bto(tmp_path / "a.dcm", made, Bto(per_frame=False, tags={"NumberOfFrames": 3}))
    np.testing.assert_array_equal(slices_of(path), made[:3])


@pytest.mark.parametrize("syntax", COMPRESSED)
def test_a_damaged_frame_is_named(tmp_path, syntax):
    made = breast(64, 40)

    def damage(ds):
        content = bytearray(ds.PixelData)
        middle = content.index(b"\xfe\xff\x00\xe0", len(content) // 2) + 8
        content[middle : middle + 60] = b"\0" * 60
        ds.PixelData = bytes(content)

    path = write_bto(tmp_path / "a.dcm", made, Bto(syntax=syntax, change=damage))
    with pytest.raises(UserError, match=r"frame \d of 5 cannot be decoded"):
        slices_of(path)


def test_a_frame_that_claims_another_size_is_not_decoded():
    from worlds.tomosynthesis_files import encoded

    for syntax in ("jpeg-ls", "jpeg-lossless", "jpeg-2000", "htj2k"):
        decode = decoder(codec_of(SYNTAXES[syntax]), FrameSize(rows=40, columns=32, bits_allocated=16))
        assert decode(encoded(breast(40, 32)[0], syntax)).shape == (40, 32)
        with pytest.raises(BadFrameError, match="states 41 x 32 pixels, the header 40 x 32"):
            decode(encoded(breast(41, 32)[0], syntax))


def test_a_bomb_of_tiles_is_not_decoded():
    from worlds.tomosynthesis_files import encoded

    content = bytearray(encoded(breast(400, 320)[0], "jpeg-2000"))
    at = content.index(b"\xff\x4f\xff\x51") + 4 + 4 + 16
    content[at : at + 8] = (1).to_bytes(4, "big") * 2
    decode = decoder(codec_of(SYNTAXES["jpeg-2000"]), FrameSize(rows=400, columns=320, bits_allocated=16))
    with pytest.raises(BadFrameError, match="128,000 tiles"):
        decode(bytes(content))


def test_an_encoding_that_is_not_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"1\.2\.840\.10008\.1\.2\.4\.50"):
        codec_of("1.2.840.10008.1.2.4.50")


def test_a_codec_that_is_not_installed_names_the_extra(tmp_path, monkeypatch):
    path = write_bto(tmp_path / "a.dcm", breast(40, 32), Bto(syntax="jpeg-2000"))
    absent = codecs.importlib.import_module
    monkeypatch.setattr(
        codecs.importlib,
        "import_module",
        lambda name: (
            (_ for _ in ()).throw(ImportError(name)) if name in ("imagecodecs", "openjpeg") else absent(name)
        ),
    )
    with pytest.raises(
        UserError, match=r"JPEG 2000 cannot be decoded on this machine.*\n.*elsewhere\[volumes\]"
    ):
        DicomVolume(path).read(0)


@pytest.mark.parametrize("syntax", ["jpeg-ls", "jpeg-2000", "rle"])
def test_the_second_library_gives_the_same_pixels(tmp_path, monkeypatch, syntax):
    made = breast(48, 33)
    path = write_bto(tmp_path / "a.dcm", made, Bto(syntax=syntax))
    found = codec_of(SYNTAXES[syntax])
    for library in found.libraries:
        one = codecs.Codec(name=found.name, family=found.family, libraries=(library,))
        monkeypatch.setitem(codecs.CODECS, SYNTAXES[syntax], one)
        np.testing.assert_array_equal(slices_of(path), made)


def test_a_slice_that_is_not_there(tmp_path):
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", breast(40, 32)))
    for z in (-1, 5):
        with pytest.raises(UserError, match=f"has 5 slices, slice {z} was requested"):
            volume.read(z)


@pytest.mark.parametrize("slices", [1, 2, 400])
def test_volumes_of_few_and_many_slices(tmp_path, slices):
    made = breast(24, 16, slices=slices)
    path = write_bto(tmp_path / "a.dcm", made, Bto(syntax="jpeg-ls"))
    np.testing.assert_array_equal(slices_of(path), made)


def test_a_large_slice_is_read(tmp_path):
    made = np.zeros((1, 8000, 6000), dtype=np.uint16)
    made[0, 3000:3100, :500] = np.arange(500)
    volume = DicomVolume(write_bto(tmp_path / "a.dcm", made, Bto(syntax="jpeg-ls")))
    np.testing.assert_array_equal(volume.read(0), made[0])


READ = """
import sys
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
alone = peak()
path, cache = sys.argv[1:]
if cache:
    from pathlib import Path
    from elsewhere.inputs.tomosynthesis.cache import VolumeCache
    from elsewhere.inputs.tomosynthesis.stored import DicomStored
    DicomStored(Path(path), side_by_name="right", cache=VolumeCache(cache)).stack()
else:
    from elsewhere.inputs.tomosynthesis.dicom import DicomVolume
    volume = DicomVolume(path)
    values = sum(int(volume.read(z).max()) for z in range(volume.shape[2]))
print(peak() - alone)
"""


IN_QUICK = {("explicit", True), ("jpeg-2000", False)}
"""Plain and compressed, cached and not; the slow tests have the other encodings."""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux' /proc")
@pytest.mark.parametrize(
    ("syntax", "cached"),
    [
        pytest.param(syntax, cached, marks=[] if (syntax, cached) in IN_QUICK else pytest.mark.slow)
        for syntax in ("explicit", "rle", "jpeg-lossless", "jpeg-ls", "jpeg-2000", "htj2k")
        for cached in (False, True)
    ],
)
def test_a_volume_of_real_size_takes_less_than_150_mb(made_once, tmp_path, syntax, cached):
    """Of the process above the bare interpreter, libraries included, while every slice is read, or read and cached."""

    def make(folder: Path) -> None:
        made = breast(2457, 1996, slices=2)
        for name in ("explicit", "rle", "jpeg-lossless", "jpeg-ls", "jpeg-2000", "htj2k"):
            write_bto(folder / f"{name}.dcm", np.concatenate([made] * 4), Bto(syntax=name))

    path = made_once("real-size-volumes", make) / f"{syntax}.dcm"
    given = [str(path), str(tmp_path / "cache") if cached else ""]
    done = subprocess.run([sys.executable, "-c", READ, *given], capture_output=True, text=True, check=True)
    used = float(done.stdout)
    print(f"{syntax}{', cached' if cached else ''}: {used:.0f} MB above the interpreter")
    assert used < 150
