"""Mutated tomosynthesis files: slices or a `UserError`, never another exception, a hang or much memory.

pydicom and the decoders raise many types of their own. Bytes, lengths and whole elements of small valid files are
changed with fixed seeds, headers more often than pixels.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pydicom", reason="needs the extra 'volumes'")
pytest.importorskip("imagecodecs", reason="needs the extra 'volumes'")

from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis.audit import audit_volume
from elsewhere.inputs.tomosynthesis.codecs import BadFrameError, FrameSize, codec_of, decoder
from elsewhere.inputs.tomosynthesis.dicom import DicomVolume
from worlds.mutations import guarded
from worlds.tomosynthesis_files import SYNTAXES, Bto, breast, encoded, write_bto

WORDS = (
    b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\xfe\xff\x00\xe0", b"\xfe\xff\x0d\xe0", b"\xfe\xff\xdd\xe0",
    b"SQ\0\0\xff\xff\xff\xff", b"UN\0\0\xff\xff\xff\xff", b"999999999999", b"nan ", b"1e999", b"-1", b"\\", b"\xff\x4f\xff\x51",
    b"ISO 2022 IR 87", b"\xe0\x7f\x10\x00OW", b"\x28\x00\x10\x00US\x02\x00\xff\xff", b"\x28\x00\x08\x00IS\x0a\x001000000000",
)  # fmt: skip
FILES = 1200
FRAMES = 400


def mutated(content: bytes, rng: random.Random, head: int) -> bytes:
    made = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        end = len(made) if rng.random() < 0.35 else min(len(made), head)
        at = rng.randrange(min(132, end - 1), end)
        what, word = rng.random(), rng.choice(WORDS)
        if what < 0.35:
            made[at] = rng.randrange(256)
        elif what < 0.6:
            made[at : at + len(word)] = word
        elif what < 0.75:
            made[at:at] = word
        elif what < 0.85:
            del made[at : at + rng.randrange(1, 60)]
        elif what < 0.93:
            made[at:at] = made[at : at + rng.randrange(1, 200)]
        else:
            del made[max(at, 140) :]
    return bytes(made)


def valid_files(folder: Path) -> Iterator[tuple[bytes, int]]:
    """The bytes of valid files, and where their headers end."""
    ways = ({}, {"offsets": "extended", "fragments": 2}, {"window_in": "per-frame", "heights": [0, 2, 1, 3]})
    for syntax in SYNTAXES:
        for way in ways:
            content = write_bto(
                folder / "whole.dcm", breast(24, 16, 4), Bto(syntax=syntax, **way)
            ).read_bytes()
            yield content, content.index(b"\xe0\x7f\x10\x00") + 40


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_end_in_slices_or_in_a_user_error(tmp_path, seed):
    rng = random.Random(seed)
    whole = list(valid_files(tmp_path))
    outcomes = {"read": 0, "refused": 0}
    with guarded(seconds=120), warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(FILES // 4):
            content, head = rng.choice(whole)
            path = tmp_path / "mutated.dcm"
            path.write_bytes(mutated(content, rng, head))
            try:
                volume = DicomVolume(path)
                for z in range(min(volume.shape[2], 6)):
                    assert volume.read(z).shape == volume.shape[:2]
                outcomes["read"] += 1
            except UserError as error:
                assert str(path) in str(error)
                assert str(error).isprintable() or "\n" in str(error)
                outcomes["refused"] += 1
            if number % 10 == 0:
                audit_volume(path, side_by_name="left")
    assert min(outcomes.values()) > 20, outcomes


@pytest.mark.parametrize("syntax", [name for name in SYNTAXES if name not in ("implicit", "explicit")])
def test_mutated_frames_end_in_pixels_or_in_one_error(syntax):
    rng = random.Random(7)
    made = breast(120, 90, 1)[0]
    whole = encoded(made, syntax)
    decode = decoder(codec_of(SYNTAXES[syntax]), FrameSize(rows=120, columns=90, bits_allocated=16))
    refused = 0
    with guarded(seconds=120):
        for _ in range(FRAMES):
            content = mutated(whole, rng, 200)
            try:
                assert decode(content).shape == made.shape
            except BadFrameError:
                refused += 1
    assert refused > FRAMES // 10
    assert np.array_equal(decode(whole), made) or syntax == "jpeg-2000-lossy"
