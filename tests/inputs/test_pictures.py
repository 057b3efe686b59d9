"""Pictures from files and from packs: the same bytes, the same pixels, and errors that name the case."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from elsewhere.inputs import BadPictureError, Pictures


def encoded(array: np.ndarray, kind: str = "png", mode: str | None = None) -> bytes:
    held = io.BytesIO()
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(held, kind)
    return held.getvalue()


def grey(seed: int, shape: tuple[int, int] = (7, 9)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def test_a_grey_picture_is_read_as_it_is(tmp_path):
    picture = grey(1)
    path = tmp_path / "a.png"
    path.write_bytes(encoded(picture))
    pictures = Pictures({"A/1": path, "A/2": encoded(picture)})
    assert np.array_equal(pictures.grey("A/1"), picture)
    assert np.array_equal(pictures.grey("A/2"), picture)
    assert pictures.digest("A/1") == pictures.digest("A/2")
    assert pictures.grey("A/1").dtype == np.uint8
    assert (len(pictures), "A/1" in pictures, "A/3" in pictures) == (2, True, False)


def test_colour_becomes_luminance():
    colour = np.zeros((2, 4, 3), dtype=np.uint8)
    colour[:, 0], colour[:, 1], colour[:, 2], colour[:, 3] = (
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
        (90, 90, 90),
    )
    read = Pictures({"A/1": encoded(colour)}).grey("A/1")
    assert read[0].tolist() == [76, 150, 29, 90]  # ITU-R 601: 0.299, 0.587, 0.114


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA", "1"])
def test_other_modes_give_the_same_grey(mode):
    picture = np.where(grey(2) > 127, 255, 0).astype(np.uint8)
    assert np.array_equal(Pictures({"A/1": encoded(picture, mode=mode)}).grey("A/1"), picture)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_picture_is_named_with_its_file(tmp_path, share):
    whole = encoded(grey(3, (64, 64)))
    path = tmp_path / "cut.png"
    path.write_bytes(whole[: int(len(whole) * share)])
    pictures = Pictures({"A/ok": encoded(grey(1)), "A/cut": path})
    with pytest.raises(BadPictureError, match=r"A/cut \(.*cut\.png\)") as caught:
        pictures.decode_all(["A/ok", "A/cut"])
    assert caught.value.case == "A/cut"
    with pytest.raises(BadPictureError, match="packed"):
        Pictures({"A/cut": path.read_bytes()}).grey("A/cut")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadPictureError, match="no such file"):
        Pictures({"A/1": tmp_path / "none.png"}).grey("A/1")


def test_masks_are_joined_and_one_of_another_size_does_not_count():
    first, second = np.zeros((6, 8), dtype=np.uint8), np.zeros((6, 8), dtype=np.uint8)
    first[1, 1], second[4, 6] = 255, 1
    wrong = np.full((6, 7), 255, dtype=np.uint8)
    pictures = Pictures(
        {"A/1": encoded(grey(1, (6, 8))), "A/2": encoded(grey(2, (6, 8)))},
        {"A/1": [encoded(first), encoded(second), encoded(wrong)], "A/2": []},
    )
    mask = pictures.mask("A/1", (6, 8))
    assert sorted(zip(*np.nonzero(mask), strict=True)) == [(1, 1), (4, 6)]
    assert pictures.has_mask("A/1")
    assert not pictures.has_mask("A/2")
    assert not pictures.mask("A/2", (6, 8)).any()
    assert not pictures.mask("unknown", (6, 8)).any()


def test_a_coloured_mask_counts_wherever_it_is_not_black():
    colour = np.zeros((3, 4, 3), dtype=np.uint8)
    colour[0, 0], colour[1, 1], colour[2, 2] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    pictures = Pictures({"A/1": encoded(grey(1, (3, 4)))}, {"A/1": [encoded(colour)]})
    assert pictures.mask("A/1", (3, 4)).sum() == 3


def test_decoding_keeps_the_order_and_tells_of_each():
    pictures = Pictures({f"A/{i}": encoded(grey(i, (3 + i, 4))) for i in range(12)})
    order = [f"A/{i}" for i in (5, 0, 11, 3)]
    told = []
    shapes = [p.shape for p in pictures.decode_all(order, threads=4, each=lambda: told.append(1))]
    assert shapes == [(8, 4), (3, 4), (14, 4), (6, 4)]
    assert len(told) == 4
    assert pictures.decode_all([]) == []


def test_a_subset_has_its_own_masks():
    mask = np.ones((2, 2), dtype=np.uint8)
    both = {"A/1": encoded(grey(1, (2, 2))), "A/2": encoded(grey(2, (2, 2)))}
    part = Pictures(both, {"A/1": [encoded(mask)], "A/2": [encoded(mask)]}).subset(["A/2"])
    assert part.cases == ("A/2",)
    assert part.has_mask("A/2")
    assert not part.has_mask("A/1")


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).map(
    lambda s: f"A/{s}"
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        names, st.tuples(st.binary(max_size=60), st.lists(st.binary(max_size=30), max_size=3)), max_size=6
    )
)
def test_packs_hold_the_same_bytes(tmp_path_factory, content):
    """Whatever a file holds, also nothing: a pack never looks inside."""
    folder = tmp_path_factory.mktemp("packs")
    content = {name.rstrip("\x00"): value for name, value in content.items()}
    before = Pictures(
        {name: blob for name, (blob, _) in content.items()},
        {name: parts for name, (_, parts) in content.items()},
    )
    path = before.pack_file(folder / "all.npz", with_masks=True)
    after = Pictures.from_packs([path])
    assert after.cases == before.cases
    for name, (blob, parts) in content.items():
        assert after.encoded(name) == blob
        assert after.digest(name) == before.digest(name)
        assert after.has_mask(name) == bool(parts)
        assert after._masks.get(name, ()) == tuple(parts)
    assert [file.name for file in folder.iterdir()] == ["all.npz"], "a partial file was left behind"


def test_a_pack_without_masks_and_several_packs(tmp_path):
    mask = np.ones((7, 9), dtype=np.uint8)
    first = Pictures({"A/1": encoded(grey(1))}, {"A/1": [encoded(mask)]})
    second = Pictures({"B/1": encoded(grey(2))})
    one, two = first.pack_file(tmp_path / "a.npz"), second.pack_file(str(tmp_path / "b.npz"), with_masks=True)
    both = Pictures.from_packs([one, str(two)])
    assert both.cases == ("A/1", "B/1")
    assert not both.has_mask("A/1")
    assert np.array_equal(both.grey("B/1"), grey(2))
    with pytest.raises(ValueError, match="A/1 is in another pack"):
        Pictures.from_packs([one, one])
    empty = Pictures({}).pack_file(tmp_path / "none.npz", with_masks=True)
    assert len(Pictures.from_packs([empty])) == 0


def test_files_are_packed_byte_for_byte(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(grey(4, (40, 30))).save(path, quality=60)
    packed = Pictures.from_packs([Pictures({"A/1": path}).pack_file(tmp_path / "p.npz")])
    assert packed.encoded("A/1") == Path(path).read_bytes()
    assert np.array_equal(packed.grey("A/1"), Pictures({"A/1": path}).grey("A/1"))
