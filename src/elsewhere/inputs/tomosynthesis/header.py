"""Reads the header of one Breast Tomosynthesis Image (DBT-01): everything that is known before a pixel is decoded.

A header comes from a stranger. It is read with pydicom through a window of bounded size, every value is checked, and
whatever is wrong leaves as a `UserError`: pydicom raises many types, and none of them reaches a user. Nothing is
allocated by a number that a header states.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from elsewhere.errors import UserError
from elsewhere.files.refusals import explained_refusals
from elsewhere.untrusted import check_plain_file, printable

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

TOMOSYNTHESIS = "1.2.840.10008.5.1.4.1.1.13.1.3"
OTHER_OBJECTS = {
    "1.2.840.10008.5.1.4.1.1.13.1.4": "projection images of a tomosynthesis (for presentation)",
    "1.2.840.10008.5.1.4.1.1.13.1.5": "projection images of a tomosynthesis (for processing)",
    "1.2.840.10008.5.1.4.1.1.1.2": "a two-dimensional mammogram",
    "1.2.840.10008.5.1.4.1.1.1.2.1": "a two-dimensional mammogram (for processing)",
    "1.2.840.10008.5.1.4.1.1.1.1": "a digital X-ray image",
    "1.2.840.10008.5.1.4.1.1.1": "a computed radiography image",
    "1.2.840.10008.5.1.4.1.1.2": "one slice of a classic CT series",
    "1.2.840.10008.5.1.4.1.1.4": "one slice of a classic MR series",
    "1.2.840.10008.5.1.4.1.1.7": "a secondary capture",
    "1.2.840.10008.5.1.4.1.1.7.1": "a secondary capture",
    "1.2.840.10008.5.1.4.1.1.7.2": "a secondary capture",
    "1.2.840.10008.5.1.4.1.1.7.3": "a secondary capture",
    "1.2.840.10008.5.1.4.1.1.7.4": "a secondary capture",
}
BIG_ENDIAN, DEFLATED = "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99"
MOST_HEADER_BYTES = 8 << 20
"""What is read of a file before its pixels; the header of 400 frames takes about 1 MB."""
MOST_READS = 400_000
MOST_ITEMS = 40_000
"""Items of the sequences that describe the frames; 400 frames have about 3,000."""
MOST_PIXELS = 1 << 26
MOST_FRAMES = 4096
_ITEM = b"\xfe\xff\x00\xe0"
_SIDES = {"L": "left", "R": "right"}
_PIXEL_GROUP = 0x7FE0
_GROUPS = {"SharedFunctionalGroupsSequence": 0x52009229, "PerFrameFunctionalGroupsSequence": 0x52009230}
_WANTED = (
    "SOPClassUID", "Manufacturer", "ManufacturerModelName", "Laterality", "ImageLaterality", "SamplesPerPixel",
    "PhotometricInterpretation", "NumberOfFrames", "Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit",
    "PixelRepresentation", "WindowCenter", "WindowWidth", "RescaleIntercept", "RescaleSlope", "BreastImplantPresent",
    "LossyImageCompression", "PresentationLUTShape", *_GROUPS, "ExtendedOffsetTable", "ExtendedOffsetTableLengths",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says of its volume. Every value was checked.

    Attributes:
        transfer_syntax: The uid of how the pixels are encoded.
        rows: The height of a slice in pixels.
        columns: The width of a slice.
        frames: The number of slices.
        bits_allocated: 8 or 16.
        bits_stored: As the header states it; the data may use more.
        signed: Whether pixels are stored as signed numbers.
        inverted: Whether low values are bright (MONOCHROME1, or the presentation shape INVERSE).
        window: The first usable window as (low, high) in stored values; None where there is none.
        windows: How many windows the header states, usable or not.
        laterality: "left" or "right" by the tag; "" where there is none.
        order: The stored frame of each slice; empty where frames are stored in the order of the slices.
        implant: Whether the header states that the breast has an implant.
        lossy: Whether the header states that the pixels were compressed with loss before.
        manufacturer: Maker and model, as one text.
        pixels_at: The byte at which the value of the pixel data begins.
        pixels_length: Its length in bytes; None where the frames are encapsulated.
        offsets: The extended offset table, bytes from the first frame; empty where there is none.
        notes: What a reader should know, as sentences.
        maker: The maker of the machine alone.
    """

    transfer_syntax: str
    rows: int
    columns: int
    frames: int
    bits_allocated: int
    bits_stored: int
    signed: bool
    inverted: bool
    window: tuple[float, float] | None
    windows: int
    laterality: str
    order: tuple[int, ...]
    implant: bool
    lossy: bool
    manufacturer: str
    pixels_at: int
    pixels_length: int | None
    offsets: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    maker: str = ""

    @property
    def frame_bytes(self) -> int:
        """The size of one decoded frame as it is stored."""
        return self.rows * self.columns * self.bits_allocated // 8


class _BadHeader(Exception):  # noqa: N818 - never leaves this module
    """A header that cannot be used: what is wrong, and what to do."""

    def __init__(self, what: str, fix: str | None = None) -> None:
        self.what, self.fix = what, fix
        super().__init__(what)


class _Window:
    """A file of which only a bounded part can be read, in a bounded number of steps."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._bytes, self._reads = file, MOST_HEADER_BYTES, MOST_READS
        self.name = getattr(file, "name", "")

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            raise _BadHeader("the whole file would have to be unpacked to read its header")
        self._reads -= 1
        content = self._file.read(min(size, self._bytes + 1))
        self._bytes -= len(content)
        if self._bytes < 0 or self._reads < 0:
            raise _BadHeader(f"its header has more than {MOST_HEADER_BYTES >> 20} MiB, or too many parts")
        return content

    def seek(self, to: int, whence: int = 0) -> int:
        return self._file.seek(to, whence)

    def tell(self) -> int:
        return self._file.tell()


def read_header(path: str | Path) -> Header:
    """Read and check the header of a file; its pixels are not touched.

    Args:
        path: A Breast Tomosynthesis Image. Its name does not matter.

    Returns:
        The header.

    Raises:
        UserError: There is no such file, it is not DICOM, it is another kind of image, or its header is damaged or
            impossible.
    """
    path = Path(path)
    where = str(path)
    with explained_refusals(path, "the volume cannot be read"):
        check_plain_file(path, what="volume")
    pydicom = load_pydicom()
    try:
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _header(pydicom, file)
    except _BadHeader as error:
        raise UserError(error.what, where=where, fix=error.fix) from None
    except OSError as error:
        raise UserError(f"the volume cannot be read ({error.strerror or error})", where=where) from error
    except Exception as error:  # pydicom raises many types on damaged files
        if isinstance(error, pydicom.errors.InvalidDicomError):
            raise UserError(
                "this is not a DICOM file", where=where, fix="Fetch it again, or name the volume's .dcm file."
            ) from error
        why = printable(error)[:120] or type(error).__name__
        raise UserError(
            f"its header is damaged ({why})", where=where, fix="Fetch or export the file again."
        ) from error


def load_pydicom() -> Any:
    """Import pydicom.

    Returns:
        The module.

    Raises:
        UserError: It is not installed; the message names the extra.
    """
    try:
        import pydicom
        import pydicom.errors
        import pydicom.filereader
    except ImportError as error:
        raise UserError(
            "DICOM volumes are read with pydicom, which is not installed",
            fix="Install it: pip install 'elsewhere[volumes]'.",
        ) from error
    return pydicom


def _header(pydicom: Any, file: BinaryIO) -> Header:
    _refuse_unreadable_syntaxes(file)
    element: dict[str, Any] = {}
    window = _Window(file)

    def at_pixels(tag: int, vr: str | None, length: int) -> bool:
        if int(tag) >> 16 != _PIXEL_GROUP or int(tag) & 0xFFFF in (1, 2):
            return False
        element.update(tag=int(tag) & 0xFFFF, length=length, at=window.tell())
        return True

    wanted = [pydicom.datadict.tag_for_keyword(name) for name in _WANTED]
    data = pydicom.filereader.read_partial(window, stop_when=at_pixels, specific_tags=wanted)
    syntax = str(getattr(data.file_meta, "TransferSyntaxUID", "") or "")
    _check_object(str(_value(data, "SOPClassUID") or ""))
    if element.get("tag") != 0x10:
        raise _BadHeader(
            "it has no pixel data of whole numbers", "Fetch the file again: it may have been cut off."
        )
    if not syntax:
        raise _BadHeader("its header does not say how the pixels are encoded", "Export the file again.")
    for keyword in _GROUPS:
        _check_groups(data, keyword)
    rows, columns = _whole(data, "Rows", 1, 65535), _whole(data, "Columns", 1, 65535)
    frames = _whole(data, "NumberOfFrames", 1, MOST_FRAMES, missing=1)
    if rows * columns > MOST_PIXELS:
        raise _BadHeader(f"a slice of {rows} x {columns} pixels is larger than any that is read")
    if _whole(data, "SamplesPerPixel", 1, 4, missing=1) != 1:
        raise _BadHeader("its pixels are colours, not one grey value each")
    allocated, stored, notes = _bits(data)
    shared, per_frame = _groups(data, frames, notes)
    scale = _rescale(data, shared)
    window_of, count = _window_of(data, shared, per_frame, scale, notes)
    photometric = str(_value(data, "PhotometricInterpretation") or "MONOCHROME2").strip().upper()
    if photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise _BadHeader(f"its pixels are {printable(photometric)[:20]}, not one grey value each")
    shape = str(_value(data, "PresentationLUTShape") or "").strip().upper()
    inverted = photometric == "MONOCHROME1" or shape == "INVERSE"
    if inverted:
        notes.append("low values are bright (MONOCHROME1 or INVERSE): the values were inverted once")
    lossy = str(_value(data, "LossyImageCompression") or "").strip() == "01"
    if lossy:
        notes.append("the pixels were compressed with loss before they were published")
    length = int(element["length"])
    maker, model = (
        str(_value(data, name) or "").strip() for name in ("Manufacturer", "ManufacturerModelName")
    )
    return Header(
        transfer_syntax=syntax,
        rows=rows,
        columns=columns,
        frames=frames,
        bits_allocated=allocated,
        bits_stored=stored,
        signed=_whole(data, "PixelRepresentation", 0, 1, missing=0) == 1,
        inverted=inverted,
        window=window_of,
        windows=count,
        laterality=_laterality(data, shared, per_frame),
        order=_order(per_frame, notes),
        implant=str(_value(data, "BreastImplantPresent") or "").strip().upper() == "YES",
        lossy=lossy,
        manufacturer=printable(" ".join(filter(None, (maker, model))))[:80],
        pixels_at=int(element["at"]),
        pixels_length=None if length == 0xFFFFFFFF else length,
        offsets=_extended_offsets(data, frames),
        notes=tuple(notes),
        maker=printable(maker)[:80],
    )


def _refuse_unreadable_syntaxes(file: BinaryIO) -> None:
    """Refuse two retired encodings before pydicom sees the file: it would unpack a deflated one as a whole."""
    head = file.read(4096)
    file.seek(0)
    if head[128:132] != b"DICM":
        raise _BadHeader("this is not a DICOM file", "Fetch it again, or name the volume's .dcm file.")
    start = head.find(b"\x02\x00\x10\x00UI", 132)
    length = int.from_bytes(head[start + 6 : start + 8], "little") if start >= 0 else 0
    syntax = head[start + 8 : start + 8 + length].rstrip(b"\0 ").decode("ascii", "replace")
    if syntax in (DEFLATED, BIG_ENDIAN):
        kind = "deflated" if syntax == DEFLATED else "big-endian"
        raise _BadHeader(
            f"it is a {kind} DICOM file, an encoding that is not read",
            "Convert it to explicit little endian (for example: dcmconv +te IN OUT).",
        )


def _check_object(uid: str) -> None:
    if uid == TOMOSYNTHESIS:
        return
    kind = OTHER_OBJECTS.get(uid)
    if kind is None:
        kind = f"another kind of object (SOP class {printable(uid)[:64]})" if uid else "of no stated kind"
    raise _BadHeader(
        f"this file is {kind}, not a tomosynthesis volume",
        f"Give the multi-frame Breast Tomosynthesis Image (SOP class {TOMOSYNTHESIS}) of this view.",
    )


def _check_groups(data: Dataset, keyword: str) -> None:
    """Refuse frame descriptions with more parts than frames can have, before they become objects."""
    raw = data.get_item(_GROUPS[keyword])
    value = getattr(raw, "value", None)
    if isinstance(value, bytes) and value.count(_ITEM) > MOST_ITEMS:
        raise _BadHeader(f"the description of its frames has more than {MOST_ITEMS:,} parts")


def _value(data: Any, keyword: str) -> Any:
    """The first value of an element; None where it is absent or empty."""
    value = getattr(data, keyword, None)
    if value is None or isinstance(value, str | int | float):
        return value
    values = list(value) if hasattr(value, "__iter__") else [value]
    return values[0] if values else None


def _whole(data: Any, keyword: str, least: int, most: int, *, missing: int | None = None) -> int:
    value = _value(data, keyword)
    if value is None or value == "":
        if missing is None:
            raise _BadHeader(f"its header has no {keyword}", "Fetch or export the file again.")
        return missing
    number = int(value)
    if number != float(value) or not least <= number <= most:
        raise _BadHeader(
            f"its header states {keyword} = {printable(value)[:24]}; {least} to {most:,} are possible"
        )
    return number


def _bits(data: Any) -> tuple[int, int, list[str]]:
    allocated = _whole(data, "BitsAllocated", 1, 64)
    if allocated not in (8, 16):
        raise _BadHeader(f"its pixels take {allocated} bits each; 8 and 16 are read")
    stored = _whole(data, "BitsStored", 1, 64, missing=allocated)
    notes = []
    if not 8 <= stored <= allocated:
        raise _BadHeader(f"its header states {stored} bits stored of {allocated}; 8 to {allocated} are read")
    high = _whole(data, "HighBit", 0, 63, missing=stored - 1)
    if high != stored - 1:
        notes.append(
            f"the highest bit is {high} for {stored} bits stored: values are read as they are, unshifted"
        )
    return allocated, stored, notes


def _groups(data: Any, frames: int, notes: list[str]) -> tuple[Any, list[Any]]:
    """The description that all frames share (or None), and one description per frame (or none)."""
    shared = list(getattr(data, "SharedFunctionalGroupsSequence", None) or [])
    per_frame = list(getattr(data, "PerFrameFunctionalGroupsSequence", None) or [])
    if per_frame and len(per_frame) != frames:
        notes.append(f"the header describes {len(per_frame)} frames and states {frames}")
        per_frame = []
    return (shared[0] if shared else None), per_frame


def _part(group: Any, keyword: str) -> Any:
    """The only item of a sequence in a frame's description; None where it is absent."""
    items = getattr(group, keyword, None) if group is not None else None
    return items[0] if items else None


def _rescale(data: Any, shared: Any) -> tuple[float, float]:
    """Slope and intercept from stored to real values, in which windows are stated."""
    for holder in (_part(shared, "PixelValueTransformationSequence"), data):
        slope, intercept = _value(holder, "RescaleSlope"), _value(holder, "RescaleIntercept")
        if slope is not None or intercept is not None:
            scale = float(slope if slope is not None else 1), float(intercept or 0)
            return scale if scale[0] > 0 else (1.0, 0.0)
    return 1.0, 0.0


def _windows_in(holder: Any) -> Iterator[tuple[float, float]]:
    """Centre and width of every window that a part of a header states."""

    def listed(keyword: str) -> list[Any]:
        value = getattr(holder, keyword, None)
        if value is None or value == "":
            return []
        return list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else [value]

    for centre, width in zip(listed("WindowCenter"), listed("WindowWidth"), strict=False):
        yield float(centre), float(width)


def _window_of(
    data: Any, shared: Any, per_frame: Sequence[Any], scale: tuple[float, float], notes: list[str]
) -> tuple[tuple[float, float] | None, int]:
    """The first usable window, in stored values, by the challenge's formula: centre +- half the width."""
    middle = per_frame[len(per_frame) // 2] if per_frame else None
    parts = (_part(shared, "FrameVOILUTSequence"), _part(middle, "FrameVOILUTSequence"), data)
    windows = next((listed for part in parts if part is not None and (listed := list(_windows_in(part)))), [])
    slope, intercept = scale
    usable = [
        ((centre - width / 2 - intercept) / slope, (centre + width / 2 - intercept) / slope)
        for centre, width in windows
        if width >= 1 and abs(centre) < 1e9 and width < 1e9
    ]
    if len(windows) > 1:
        notes.append(f"the header states {len(windows)} windows: the first usable one is taken")
    if windows and not usable:
        notes.append("the header states no window with a width of 1 or more")
    if usable and _part(shared, "FrameVOILUTSequence") is None and len(per_frame) > 1:
        each = {next(_windows_in(_part(frame, "FrameVOILUTSequence")), None) for frame in per_frame}
        if len(each) > 1:
            notes.append("the window differs between the frames: that of the middle frame is taken")
    return (usable[0] if usable else None), len(windows)


def _laterality(data: Any, shared: Any, per_frame: Sequence[Any]) -> str:
    first = per_frame[0] if per_frame else None
    for holder, keyword in (
        (_part(shared, "FrameAnatomySequence"), "FrameLaterality"),
        (_part(first, "FrameAnatomySequence"), "FrameLaterality"),
        (data, "ImageLaterality"),
        (data, "Laterality"),
    ):
        side = _SIDES.get(str(_value(holder, keyword) or "").strip().upper(), "")
        if side:
            return side
    return ""


def _order(per_frame: Sequence[Any], notes: list[str]) -> tuple[int, ...]:
    """The stored frame of each slice, where the header states another order than the stored one.

    The position in the stack is the order where every frame has its own. Positions in space give one where they are
    neither rising nor falling as stored: then they are sorted in the direction that most neighbours have.
    """
    if len(per_frame) < 2:
        return ()
    stored = tuple(range(len(per_frame)))
    stack = [_value(_part(frame, "FrameContentSequence"), "InStackPositionNumber") for frame in per_frame]
    heights = [_height(frame) for frame in per_frame]
    if all(position is not None for position in stack) and len(set(stack)) == len(stack):
        order = tuple(sorted(stored, key=lambda frame: int(stack[frame])))
        why = "their positions in the stack"
    else:
        levels = [height for height in heights if height is not None]
        if len(levels) < len(heights) or len(set(levels)) < len(levels):
            return ()
        steps = [b - a for a, b in itertools.pairwise(levels)]
        falling = sum(step < 0 for step in steps) > len(steps) / 2
        order = tuple(sorted(stored, key=lambda frame: -levels[frame] if falling else levels[frame]))
        why = "their positions in space"
    if order == stored:
        return ()
    moved = sum(a != b for a, b in zip(order, stored, strict=True))
    kind = "in reverse" if order == stored[::-1] else "unsorted"
    notes.append(f"the frames are stored {kind}: {moved} of {len(stored)} were put in the order of {why}")
    return order


def _height(frame: Any) -> float | None:
    """The position of a frame along the stack, in mm."""
    position = getattr(_part(frame, "PlanePositionSequence"), "ImagePositionPatient", None)
    return float(position[2]) if position is not None and len(position) == 3 else None


def _extended_offsets(data: Any, frames: int) -> tuple[int, ...]:
    raw = getattr(data, "ExtendedOffsetTable", None)
    if not isinstance(raw, bytes) or len(raw) != 8 * frames:
        return ()
    return tuple(int.from_bytes(raw[first : first + 8], "little") for first in range(0, len(raw), 8))
