"""Mutated annotation files and masks: annotations or a `UserError`, never another exception, a hang or much memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.inputs.slides.annotations import (
    Annotations,
    Outline,
    check_inside,
    geojson,
    open_mask,
    read_annotations,
    resolve,
    tumour_shares,
    write_mask,
)
from worlds.mutations import guarded
from worlds.outline_files import asap_xml, star, tangled, write

WORDS = (
    b"", b"\0", b"<", b">", b'"', b"&a;", b"<!DOCTYPE x>", b"<![CDATA[", b"<!--", b"nan", b"inf", b"-inf", b"1e999", b"1e20", b"-1", b"1,5", b"1_0",
    b"9" * 400, b"\xff\xfe", b"\xed\xa0\x80", b"[" * 300, b'{"a":' * 300, b"]", b"}", b"null", b"true", b'"Exclusion"', b"Tumor", b"<Annotation>" * 90,
    b"\x1b[2J", b"PK\x03\x04", b"Infinity", b"NaN",
)  # fmt: skip
TIFF_WORDS = (
    b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x08\0\0\0", b"\xff\xff\xff\x7f", b"\x01\0", b"\x07\0", b"\0\x80", b"\x2b\0", b"MM", b"\x10\0\0\0\0\0\0\0",
)  # fmt: skip
TEXTS, MASKS = 250, 250


def mutated(
    content: bytes, rng: random.Random, words: tuple[bytes, ...], *, insert: bool, head: int
) -> bytes:
    made = bytearray(content)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(min(len(made), head) if rng.random() < 0.6 else len(made)) if made else 0
        word = rng.choice(words)
        how = rng.random()
        if how < 0.45:
            made[at : at + (rng.choice((0, 1, 8)) if insert else len(word))] = word
        elif how < 0.6:
            made[at : at + 1] = bytes([rng.randrange(256)])
        elif how < 0.7 and insert:
            del made[at : at + rng.randint(1, 200)]
        elif how < 0.8:
            del made[at:]
        elif insert:
            begin = rng.randrange(len(made) or 1)
            made[at:at] = made[begin : begin + rng.randint(1, 300)]
    return bytes(made)


def use(read: Annotations) -> None:
    """What follows after reading must stand whatever was read."""
    check_inside(read, (1 << 30, 1 << 30)) if not any((r < 0).any() for r in read.rings) else None
    tumour_shares(read, patch_px=128, shape=(4, 4), samples=16)
    region = resolve(read)
    assert np.isfinite(region.area_px) and region.area_px >= 0
    geojson(region)


def texts() -> dict[str, bytes]:
    import json

    made = tangled(np.random.default_rng(0))
    shapes = [
        (star(np.random.default_rng(k), points=12), group)
        for k, group in enumerate(("Tumor", "Exclusion", "_1"))
    ]
    ncrf = {"positive": [{"name": "a", "vertices": o.ring.tolist()} for o in made.outlines], "negative": []}
    return {
        "xml": asap_xml(shapes).encode(),
        "geojson": json.dumps(geojson(made)).encode(),
        "ncrf": json.dumps(ncrf).encode(),
    }


def attempt(function: Callable[[], object]) -> bool:
    try:
        function()
    except UserError:
        return False
    return True


@pytest.mark.parametrize("kind", ["xml", "geojson", "ncrf"])
def test_mutated_texts(kind, tmp_path):
    content = texts()[kind]
    path = tmp_path / "annotations"
    path.write_bytes(content)
    use(read_annotations(path))
    rng = random.Random(kind)
    usable = 0
    with guarded():
        for _ in range(TEXTS):
            path.write_bytes(mutated(content, rng, WORDS, insert=True, head=len(content)))
            usable += attempt(lambda: use(read_annotations(path)))
    assert 0 < usable < TEXTS


def test_mutated_masks(tmp_path):
    pytest.importorskip("tifffile", reason="needs the extra 'slides'")
    path = tmp_path / "mask.tif"
    write_mask(path, tangled(np.random.default_rng(0)), size_px=(1500, 900), mpp=0.25)
    content = path.read_bytes()
    rng = random.Random(3)
    usable = 0

    def look() -> None:
        with open_mask(path) as mask:
            mask.read(0, 0, 600, 600)
            mask.tumour_shares(patch_px=256, shape=(4, 6), size_px=(1500, 900))

    look()
    with guarded():
        for _ in range(MASKS):
            path.write_bytes(mutated(content, rng, TIFF_WORDS, insert=False, head=600))
            usable += attempt(look)
    assert 0 < usable < MASKS


def test_a_text_of_many_points_is_read_and_a_long_one_refused(tmp_path, monkeypatch):
    from elsewhere.inputs.slides.annotations import reading

    angle = np.linspace(0, 2 * np.pi, 40_000, endpoint=False)
    ring = 5000 + 4000 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    path = write(Path(tmp_path) / "a.xml", asap_xml([(ring, "Tumor")]))
    with guarded():
        read = read_annotations(path)
        assert len(read.outlines[0].ring) == 40_000
        resolve(Annotations((Outline(ring),)))
    monkeypatch.setattr(reading, "MOST_POINTS", 1000)
    with pytest.raises(UserError, match="more than 1,000 points"):
        read_annotations(path)
    monkeypatch.setattr(reading, "MOST_XML_BYTES", 1000)
    with pytest.raises(UserError, match="more than 1,000 bytes"):
        read_annotations(path)
