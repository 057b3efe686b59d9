"""Breast Tomosynthesis Images as files, honest or broken in one named way, small enough for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Volume = npt.NDArray[np.uint16]
TOMOSYNTHESIS = "1.2.840.10008.5.1.4.1.1.13.1.3"
SYNTAXES = {
    "implicit": "1.2.840.10008.1.2",
    "explicit": "1.2.840.10008.1.2.1",
    "rle": "1.2.840.10008.1.2.5",
    "jpeg-lossless-14": "1.2.840.10008.1.2.4.57",
    "jpeg-lossless": "1.2.840.10008.1.2.4.70",
    "jpeg-ls": "1.2.840.10008.1.2.4.80",
    "jpeg-2000": "1.2.840.10008.1.2.4.90",
    "jpeg-2000-lossy": "1.2.840.10008.1.2.4.91",
    "htj2k": "1.2.840.10008.1.2.4.201",
}
LOSSLESS = tuple(name for name in SYNTAXES if name != "jpeg-2000-lossy")


def breast(
    rows: int = 96, columns: int = 61, slices: int = 5, *, side: str = "left", seed: int = 0, top: int = 1023
) -> Volume:
    """[slices, rows, columns]: half an ellipse of noise on the side's edge, black around it, no two slices alike."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns]
    inside = ((y - rows / 2) / (0.4 * rows)) ** 2 + (x / (0.62 * columns)) ** 2 < 1
    tissue = rng.normal(0.45, 0.06, (slices, rows, columns)) + 0.1 * np.sin(x / 7) * np.cos(y / 9)
    found = np.where(inside, np.clip(tissue, 0.1, 0.8) * top, 0).astype(np.uint16)
    return found if side == "left" else np.ascontiguousarray(found[..., ::-1])


def encoded(pixels: npt.NDArray[Any], syntax: str) -> bytes:
    """One frame in an encoding of `SYNTAXES`."""
    import imagecodecs

    bits = 8 * pixels.itemsize
    if syntax in ("implicit", "explicit"):
        return pixels.tobytes()
    if syntax == "rle":
        from rle.utils import encode_frame

        rows, columns = pixels.shape
        return bytes(encode_frame(pixels.tobytes(), rows, columns, 1, bits, "<"))
    makers: dict[str, Callable[[], bytes]] = {
        "jpeg-lossless-14": lambda: imagecodecs.jpeg8_encode(
            pixels, lossless=True, predictor=4, bitspersample=bits
        ),
        "jpeg-lossless": lambda: imagecodecs.jpeg8_encode(
            pixels, lossless=True, predictor=1, bitspersample=bits
        ),
        "jpeg-ls": lambda: imagecodecs.jpegls_encode(pixels),
        "jpeg-2000": lambda: imagecodecs.jpeg2k_encode(pixels, codecformat="j2k", reversible=True),
        "jpeg-2000-lossy": lambda: imagecodecs.jpeg2k_encode(
            pixels, level=95, codecformat="j2k", reversible=False
        ),
        "htj2k": lambda: imagecodecs.htj2k_encode(pixels, reversible=True),
    }
    return bytes(makers[syntax]())


@dataclass(kw_only=True)
class Bto:
    """How a file is written; the defaults are an honest file.

    Args:
        syntax: A name of `SYNTAXES`.
        offsets: "basic", "none", "extended" or "wrong".
        fragments: How many fragments each frame is cut into.
        change: Called with the dataset before it is written.
        per_frame: Whether each frame is described, with its position in the stack.
        stack: The position in the stack of each stored frame, from 1; None: as stored.
        heights: The height in mm of each stored frame; None: no positions in space.
        windows: (centre, width) of each window; empty: none.
        window_in: "shared", "per-frame" or "top".
        tags: Further elements by keyword; None removes one.
    """

    syntax: str = "explicit"
    offsets: str = "basic"
    fragments: int = 1
    change: Callable[[Any], None] | None = None
    per_frame: bool = True
    stack: Sequence[int] | None = None
    heights: Sequence[float] | None = None
    windows: Sequence[tuple[float, float]] = ((512.0, 600.0),)
    window_in: str = "shared"
    laterality: str = "L"
    tags: dict[str, Any] = field(default_factory=dict)


def write_bto(path: Path, volume: npt.NDArray[Any], how: Bto | None = None) -> Path:
    """Write [slices, rows, columns] as one multi-frame file."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import UID, generate_uid

    how = how or Bto()
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.TransferSyntaxUID = UID(SYNTAXES[how.syntax])
    ds.file_meta.MediaStorageSOPClassUID = UID(TOMOSYNTHESIS)
    ds.SOPClassUID = UID(TOMOSYNTHESIS)
    ds.SOPInstanceUID = ds.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    ds.PatientID, ds.Modality, ds.Manufacturer = "DBT-P1", "MG", "TEST"
    ds.StudyInstanceUID, ds.SeriesInstanceUID = generate_uid(), generate_uid()
    frames, rows, columns = volume.shape
    ds.Rows, ds.Columns, ds.NumberOfFrames = rows, columns, frames
    bits = 8 * volume.itemsize
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.BitsAllocated, ds.BitsStored, ds.HighBit = bits, min(bits, 10), min(bits, 10) - 1
    ds.PixelRepresentation = int(volume.dtype.kind == "i")
    shared = Dataset()
    anatomy = Dataset()
    anatomy.FrameLaterality = how.laterality
    shared.FrameAnatomySequence = [anatomy]
    ds.SharedFunctionalGroupsSequence = [shared]
    each = [Dataset() for _ in range(frames)] if how.per_frame else []
    for at, group in enumerate(each):
        content = Dataset()
        content.InStackPositionNumber = at + 1 if how.stack is None else how.stack[at]
        group.FrameContentSequence = [content]
        if how.heights is not None:
            del group.FrameContentSequence[0].InStackPositionNumber
            place = Dataset()
            place.ImagePositionPatient = [0.0, 0.0, float(how.heights[at])]
            group.PlanePositionSequence = [place]
    if each:
        ds.PerFrameFunctionalGroupsSequence = each
    holders = {"shared": [shared], "per-frame": each, "top": [ds]}[how.window_in]
    for holder in holders if how.windows else ():
        window = ds if holder is ds else Dataset()
        window.WindowCenter = [centre for centre, _ in how.windows]
        window.WindowWidth = [width for _, width in how.windows]
        if holder is not ds:
            holder.FrameVOILUTSequence = [window]
    for keyword, value in how.tags.items():
        if value is None:
            delattr(ds, keyword)
        else:
            setattr(ds, keyword, value)
    different: dict[bytes, bytes] = {}  # compressing takes long: slices that are the same are compressed once
    for frame in volume:
        pixels = frame.tobytes()
        if pixels not in different:
            different[pixels] = encoded(np.ascontiguousarray(frame), how.syntax)
    contents = [different[frame.tobytes()] for frame in volume]
    if how.syntax in ("implicit", "explicit"):
        ds.PixelData = b"".join(contents)
        ds["PixelData"].VR = "OW" if bits == 16 else "OB"
    else:
        _encapsulate(ds, contents, how)
    if how.change is not None:
        how.change(ds)
    path.parent.mkdir(parents=True, exist_ok=True)
    ds.save_as(path, enforce_file_format=True, implicit_vr=how.syntax == "implicit", little_endian=True)
    return path


def _encapsulate(ds: Any, contents: list[bytes], how: Bto) -> None:
    from pydicom.encaps import itemize_fragment

    pieces = [_cut(content, how.fragments) for content in contents]
    offsets, at = [], 0
    for parts in pieces:
        offsets.append(at)
        at += sum(8 + len(part) for part in parts)
    table = b""
    if how.offsets in ("basic", "wrong"):
        stated = offsets if how.offsets == "basic" else [value + 6 for value in offsets]
        table = np.array(stated, dtype="<u4").tobytes()
    if how.offsets == "extended":
        ds.ExtendedOffsetTable = np.array(offsets, dtype="<u8").tobytes()
        lengths = [sum(len(part) for part in parts) for parts in pieces]
        ds.ExtendedOffsetTableLengths = np.array(lengths, dtype="<u8").tobytes()
    head = b"\xfe\xff\x00\xe0" + len(table).to_bytes(4, "little") + table
    body = b"".join(itemize_fragment(part) for parts in pieces for part in parts)
    ds.PixelData = head + body
    ds["PixelData"].VR = "OB"
    ds["PixelData"].is_undefined_length = True


def _cut(content: bytes, parts: int) -> list[bytes]:
    content += b"\0" * (len(content) % 2)
    step = -(-len(content) // parts)
    step += step % 2
    return [content[at : at + step] for at in range(0, len(content), step)]
