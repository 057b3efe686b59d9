"""Hostile and broken TIFF files end in a message, in little time and memory."""

from __future__ import annotations

import contextlib
import io
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.opening import open_slide
from worlds.slide_files import philips_description, pyramid, tissue_picture, write_aperio, write_tiff

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")
pytest.importorskip("openslide")
LONG, LONG8, SHORT = 4, 16, 3
MOST_MEMORY = 96 << 20


def tiff(
    directories: list[dict[int, tuple[int, list[int]]]], *, links: list[int] | None = None, tail: bytes = b""
) -> bytes:
    """A classic TIFF of the given tags; `links` says which directory follows each (-1: none)."""
    blocks: list[bytes] = []
    starts, position = [], 8
    for tags in directories:
        starts.append(position)
        extra_at = position + 2 + 12 * len(tags) + 4
        entries, extra = b"", b""
        for tag, (kind, values) in sorted(tags.items()):
            body = struct.pack(f"<{len(values)}{'H' if kind == SHORT else 'I'}", *values)
            if len(body) > 4:
                field, extra = struct.pack("<I", extra_at + len(extra)), extra + body
            else:
                field = body.ljust(4, b"\x00")
            entries += struct.pack("<HHI", tag, kind, len(values)) + field
        blocks.append(struct.pack("<H", len(tags)) + entries + b"NEXT" + extra)
        position = extra_at + len(extra)
    order = links if links is not None else [*range(1, len(directories)), -1]
    for number, target in enumerate(order):
        at = starts[target] if target >= 0 else 0
        blocks[number] = blocks[number].replace(b"NEXT", struct.pack("<I", at), 1)
    return b"II*\x00" + struct.pack("<I", starts[0]) + b"".join(blocks) + tail


def tags(
    width: int = 256, height: int = 256, **other: tuple[int, list[int]]
) -> dict[int, tuple[int, list[int]]]:
    """The tags of a picture that is not compressed, of one tile at byte 4096."""
    found = {
        256: (LONG, [width]), 257: (LONG, [height]), 258: (SHORT, [8, 8, 8]), 259: (SHORT, [1]), 262: (SHORT, [2]),
        277: (SHORT, [3]), 322: (SHORT, [256]), 323: (SHORT, [256]), 324: (LONG, [4096]), 325: (LONG, [256 * 256 * 3]),
    }  # fmt: skip
    return found | {int(name[1:]): value for name, value in other.items()}


def refusal(path: Path, content: bytes, **options) -> str:
    """The message that opening and reading a file ends in; its memory and time are bounded."""
    path.write_bytes(content)
    tracemalloc.start()
    begin = time.perf_counter()
    try:
        with pytest.raises(UserError) as caught, open_slide(path, mpp=0.25, **options) as slide:
            slide.read(0, 0, *(min(side, 600) for side in slide.size_px))
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_MEMORY, peak
    assert time.perf_counter() - begin < 5
    assert str(path) in str(caught.value)
    assert caught.value.fix
    return str(caught.value)


def test_the_plain_file_is_read(tmp_path):
    (tmp_path / "a.tif").write_bytes(tiff([tags()], tail=bytes(1 << 18)))
    with open_slide(tmp_path / "a.tif", mpp=0.25) as slide:
        assert slide.read(0, 0, 256, 256).shape == (256, 256, 3)


def test_directories_that_lead_back_are_refused(tmp_path):
    assert "lead back" in refusal(tmp_path / "a.tif", tiff([tags()], links=[0], tail=bytes(1 << 18)))
    loop = tiff([tags(), tags(), tags()], links=[1, 2, 1], tail=bytes(1 << 18))
    assert "lead back" in refusal(tmp_path / "a.tif", loop)


def test_more_directories_than_any_slide_has_are_refused(tmp_path):
    many = tiff([tags()] * 1200, tail=bytes(1 << 18))
    assert "more than 1,000 picture directories" in refusal(tmp_path / "a.tif", many)


def test_sizes_that_cannot_be_are_refused(tmp_path):
    path = tmp_path / "a.tif"
    assert "2,000,000,000" in refusal(
        path, tiff([tags(width=2_000_000_000, height=2_000_000_000)], tail=bytes(1 << 18))
    )
    assert "0 x 256" in refusal(path, tiff([tags(width=0)], tail=bytes(1 << 18)))
    assert "its table lists 1" in refusal(
        path, tiff([tags(width=200_000, height=200_000)], tail=bytes(1 << 18))
    )
    assert "tiles of 0 x 256" in refusal(path, tiff([tags(t322=(SHORT, [0]))], tail=bytes(1 << 18)))
    assert "more than" in refusal(
        path, tiff([tags(width=1 << 20, height=1 << 20, t322=(SHORT, [16]))], tail=bytes(9))
    )
    one_row = tags(width=1 << 20, height=1 << 20, t322=(LONG, [1 << 20]), t323=(LONG, [1 << 20]))
    for backend in ("auto", "openslide"):  # OpenSlide would end the process where it gets no memory
        assert "tiles of 1,048,576" in refusal(path, tiff([one_row], tail=bytes(1 << 18)), backend=backend)
    assert "too large" in refusal(path, tiff([one_row], tail=bytes(1 << 18)), backend="direct")


def test_a_million_tiles_of_no_bytes_are_refused(tmp_path):
    count = 1_000_000
    empty = tags(width=256_000, height=256_000, t324=(LONG, [4096] * count), t325=(LONG, [0] * count))
    assert "no tile of level 0 has any pixels" in refusal(tmp_path / "a.tif", tiff([empty]))
    # The same without the bytes of the table.
    path = tmp_path / "b.tif"
    short = bytearray(tiff([tags(width=256_000, height=256_000)]))
    at = short.index(struct.pack("<HHI", 324, LONG, 1))
    short[at + 4 : at + 8] = struct.pack("<I", count)
    short[at + 16 : at + 20] = struct.pack("<I", count)
    assert "cut off" in refusal(path, bytes(short))


def test_a_private_tag_of_gigabytes_is_refused_before_openslide_takes_memory_for_it(tmp_path):
    content = bytearray(tiff([tags(t50000=(LONG, [7]))], tail=bytes(1 << 18)))
    at = content.index(struct.pack("<HHI", 50000, LONG, 1))
    content[at + 4 : at + 8] = struct.pack("<I", 1_000_000_000)
    for backend in ("auto", "openslide"):
        assert "tag 50000" in refusal(tmp_path / "a.tif", bytes(content), backend=backend)


def test_tiles_behind_the_end_of_the_file_are_counted(tmp_path):
    text = refusal(tmp_path / "a.tif", tiff([tags()], tail=bytes(100)))
    assert "1 of 1 tiles lie behind the end" in text
    large = tiff([tags(t325=(LONG, [4_000_000_000]))], tail=bytes(1 << 18))
    for backend in ("auto", "openslide"):  # OpenSlide would end the process where it gets no memory
        assert "behind the end" in refusal(tmp_path / "a.tif", large, backend=backend)


def test_other_files_by_the_name_of_a_slide_are_told_by_what_they_are(tmp_path):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("tumor_001.tif", bytes(1000))
    kinds = {
        "a zip archive": archive.getvalue(),
        "a gzip archive": b"\x1f\x8b" + bytes(100),
        "a PDF document": b"%PDF-1.7" + bytes(100),
        "the error page of a web site": b"<html><body>404</body></html>",
        "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\n",
        "the file is empty": b"",
        "begins with zeros only": bytes(1000),
        "this is no TIFF file": b"hello, world, this is a text",
    }
    for kind, content in kinds.items():
        assert kind in refusal(tmp_path / "tumor_001.tif", content)
    for backend in ("auto", "direct", "openslide"):
        refusal(tmp_path / "tumor_001.tif", archive.getvalue(), backend=backend)


def test_folders_pipes_and_missing_files_are_refused(tmp_path):
    for name in ("absent.tif", ".", "a\x00b.tif"):
        with pytest.raises(UserError):
            open_slide(tmp_path / name)


def test_a_mirax_file_without_its_folder_says_so(tmp_path):
    assert "folder of the same name" in refusal(tmp_path / "a.mrxs", b"\xff\xd8\xff\xe0 a preview")


def test_a_dicom_file_that_is_no_slide_says_what_a_dicom_slide_is(tmp_path):
    content = bytes(128) + b"DICM" + bytes(500)
    assert "a folder of files" in refusal(tmp_path / "a.dcm", content)


def test_every_cut_is_a_message(tmp_path):
    """A download that stopped anywhere: before the header's end, within a table, within the last tile."""
    whole = write_tiff(tmp_path / "whole.tif", pyramid(tissue_picture(500, 400), 2)).read_bytes()
    path = tmp_path / "cut.tif"
    for length in [*range(0, 40, 3), *np.linspace(40, len(whole) - 1, 40).astype(int)]:
        refusal(path, whole[:length])


def test_text_bombs_in_descriptions_are_bounded(tmp_path):
    picture = tissue_picture(300, 300)
    entities = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
    )
    for text in (
        entities + "]>" + philips_description(0.25, 1),
        "Aperio |MPP = " + "9" * 100_000,
        "|MPP=" * 200_000,
    ):
        write_tiff(tmp_path / "a.tif", [picture], description=text, software="Philips", mpp=None)
        begin = time.perf_counter()
        with contextlib.suppress(UserError):
            open_slide(tmp_path / "a.tif").close()
        assert time.perf_counter() - begin < 3


def test_bombs_in_tiles_are_refused_before_they_are_unpacked(tmp_path):
    import imagecodecs

    large = imagecodecs.jpeg8_encode(np.zeros((20_000, 20_000, 3), np.uint8), level=10)
    bomb = imagecodecs.zlib_encode(bytes(200 << 20))
    for number, content in ((7, large), (8, bomb)):
        at = 4096
        directory = tags(t259=(SHORT, [number]), t325=(LONG, [len(content)]))
        body = tiff([directory]).ljust(at, b"\x00") + content
        assert "row 0, column 0 of level 0" in refusal(tmp_path / "a.tif", body)


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_files_end_in_a_message_or_in_pixels(tmp_path, seed):
    """Bytes of the header and the directories are changed, doubled, and taken out."""
    rng = np.random.default_rng(seed)
    write = [
        lambda p: write_tiff(p, pyramid(tissue_picture(300, 260), 2), compression=("jpeg", "lzw")[seed % 2]),
        lambda p: write_aperio(p, tissue_picture(300, 260), levels=2),
    ][seed // 2]
    whole = write(tmp_path / "whole.tif").read_bytes()
    path = tmp_path / "fuzzed.tif"
    import tifffile

    with tifffile.TiffFile(tmp_path / "whole.tif") as file:
        spots = [page.offset + extra for page in file.pages for extra in range(0, 250)] + list(range(16))
    outcomes = {"message": 0, "pixels": 0}
    for _ in range(250):
        content = bytearray(whole)
        for at in rng.choice(spots, size=rng.integers(1, 4)):
            if at < len(content):
                content[at] = rng.choice([0, 1, 255, 128, int(rng.integers(256))])
        if rng.random() < 0.2:
            cut = int(rng.integers(len(content)))
            del content[cut : cut + int(rng.integers(1, 60))]
        path.write_bytes(content)
        tracemalloc.start()
        try:
            with open_slide(path, mpp=0.25) as slide:
                for level in range(len(slide.levels)):
                    slide.read(-3, -3, 320, 280, level=level)
            outcomes["pixels"] += 1
        except UserError as error:
            assert error.what
            outcomes["message"] += 1
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < MOST_MEMORY
    assert min(outcomes.values()) > 10, outcomes


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error_and_no_crash(tmp_path):
    path = write_tiff(tmp_path / "a.tif", [tissue_picture(600, 600)])
    with open_slide(path) as slide:
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(UserError, match="became shorter"):
            slide.read(0, 0, 600, 600)
