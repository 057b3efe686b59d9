"""Chooses the decoder of a compressed frame by its transfer syntax, explicitly.

pydicom takes its plugins in alphabetical order, which is the slowest of them; here each encoding names its libraries,
fastest first. (HTJ2K is decoded by OpenJPEG: OpenJPH is three times as fast, but only prints that a frame is damaged,
and on some damaged frames it never ends.) The size that a compressed frame states of itself is compared with the header's before anything is
decoded: a frame of 100 bytes can claim 65,535 x 65,535 pixels. Values are returned as they were stored: nothing is
shifted or masked by the number of bits that a header states.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.untrusted import printable

Array = npt.NDArray[Any]
EXTRA = "Install the extra: pip install 'elsewhere[volumes]'."
NATIVE = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1")
MOST_TILES = 65535
MOST_EDGE = 1 << 17
_END_OF_IMAGE = b"\xff\xd9"
_START_OF_FRAME = {0xC0, 0xC1, 0xC2, 0xC3, 0xF7}
_STANDALONE = {0x01, *range(0xD0, 0xD9)}
_J2K_START = b"\xff\x4f\xff\x51"


class BadFrameError(Exception):
    """A compressed frame that cannot be decoded.

    Args:
        why: The reason, as a clause.

    Example:
        >>> str(BadFrameError("it is not JPEG-LS"))
        'it is not JPEG-LS'
    """


@dataclass(frozen=True, kw_only=True)
class FrameSize:
    """What a decoded frame must be.

    Attributes:
        rows: Its height in pixels.
        columns: Its width.
        bits_allocated: 8 or 16.
    """

    rows: int
    columns: int
    bits_allocated: int


@dataclass(frozen=True, kw_only=True)
class Codec:
    """How frames of one encoding are decoded.

    Attributes:
        name: What the encoding is called.
        family: "jpeg", "jpeg2000", "rle" or "raw": how a frame states its size.
        libraries: (module, function) of each decoder, fastest first.
        lossy: Whether the encoding may lose information.
    """

    name: str
    family: str
    libraries: tuple[tuple[str, str], ...] = ()
    lossy: bool = False


_J2K = (("imagecodecs", "jpeg2k_decode"), ("openjpeg", "decode"))
_LS = (("imagecodecs", "jpegls_decode"), ("jpeg_ls", "decode"))
_LOSSLESS = (
    ("imagecodecs", "jpeg8_decode"),
    ("imagecodecs", "ljpeg_decode"),
    ("imagecodecs", "jpegsof3_decode"),
)
_RLE = (("imagecodecs", "dicomrle_decode"), ("rle.utils", "decode_frame"))
CODECS: Mapping[str, Codec] = {
    "1.2.840.10008.1.2": Codec(name="raw, implicit little endian", family="raw"),
    "1.2.840.10008.1.2.1": Codec(name="raw, explicit little endian", family="raw"),
    "1.2.840.10008.1.2.5": Codec(name="RLE", family="rle", libraries=_RLE),
    "1.2.840.10008.1.2.4.57": Codec(name="JPEG lossless (process 14)", family="jpeg", libraries=_LOSSLESS),
    "1.2.840.10008.1.2.4.70": Codec(name="JPEG lossless (SV1)", family="jpeg", libraries=_LOSSLESS),
    "1.2.840.10008.1.2.4.80": Codec(name="JPEG-LS", family="jpeg", libraries=_LS),
    "1.2.840.10008.1.2.4.81": Codec(name="JPEG-LS near-lossless", family="jpeg", libraries=_LS, lossy=True),
    "1.2.840.10008.1.2.4.90": Codec(name="JPEG 2000", family="jpeg2000", libraries=_J2K),
    "1.2.840.10008.1.2.4.91": Codec(name="JPEG 2000 (lossy)", family="jpeg2000", libraries=_J2K, lossy=True),
    "1.2.840.10008.1.2.4.201": Codec(name="HTJ2K", family="jpeg2000", libraries=_J2K),
    "1.2.840.10008.1.2.4.202": Codec(name="HTJ2K (RPCL)", family="jpeg2000", libraries=_J2K),
    "1.2.840.10008.1.2.4.203": Codec(name="HTJ2K (lossy)", family="jpeg2000", libraries=_J2K, lossy=True),
}
"""The encodings that are read, by transfer syntax."""


def codec_of(transfer_syntax: str, *, where: str = "") -> Codec:
    """Choose the codec of a transfer syntax.

    Args:
        transfer_syntax: Its uid.
        where: The file, for messages.

    Returns:
        The codec.

    Raises:
        UserError: The encoding is not read.

    Example:
        >>> codec_of("1.2.840.10008.1.2.4.80").name
        'JPEG-LS'
    """
    codec = CODECS.get(transfer_syntax)
    if codec is None:
        raise UserError(
            f"its pixels have an encoding that is not read (transfer syntax {printable(transfer_syntax)[:64]})",
            where=where or None,
            fix="Convert it to JPEG-LS or JPEG 2000 lossless. Read are: "
            + ", ".join(codec.name for codec in CODECS.values())
            + ".",
        )
    return codec


def decoder(codec: Codec, size: FrameSize) -> Callable[[bytes], Array]:
    """Make the function that decodes a frame, with the first library that is installed.

    Args:
        codec: The encoding.
        size: What every frame must be.

    Returns:
        A function from the bytes of a frame to [rows, columns] of 8 or 16 bits; it raises `BadFrameError`.

    Raises:
        UserError: No library for the encoding is installed.
    """
    check = {"jpeg": _jpeg_size, "jpeg2000": _j2k_size}.get(codec.family)
    decode = _installed(codec)

    def call(content: bytes) -> Array:
        claimed = check(content) if check is not None else (size.rows, size.columns)
        if claimed != (size.rows, size.columns):
            raise BadFrameError(
                f"the frame states {claimed[0]} x {claimed[1]} pixels, the header {size.rows} x {size.columns}"
            )
        if codec.family == "rle":
            _check_rle(content, size)
        try:
            pixels = decode(content, size)
        except BadFrameError:
            raise
        except Exception as error:  # four libraries, each with errors of its own
            raise BadFrameError(printable(error)[:160] or type(error).__name__) from error
        if pixels.ndim == 3 and 1 in (pixels.shape[0], pixels.shape[-1]):
            pixels = pixels.reshape(pixels.shape[1:] if pixels.shape[0] == 1 else pixels.shape[:2])
        if pixels.shape != (size.rows, size.columns) or pixels.dtype.kind not in "iu" or pixels.itemsize > 2:
            raise BadFrameError(
                f"{'x'.join(map(str, pixels.shape))} values of type {pixels.dtype} came of the frame"
            )
        return pixels

    return call


def _installed(codec: Codec) -> Callable[[bytes, FrameSize], Array]:
    for module, name in codec.libraries:
        try:
            function = getattr(importlib.import_module(module), name, None)
        except ImportError:
            continue
        if function is not None and _is_available(module, name):
            return _adapted(module, name, function)
    raise UserError(
        f"{codec.name} cannot be decoded on this machine: its library is not installed", fix=EXTRA
    )


def _is_available(module: str, name: str) -> bool:
    """Whether a codec was built into imagecodecs on this machine."""
    if module != "imagecodecs":
        return True
    part = getattr(importlib.import_module(module), name.removesuffix("_decode").upper(), None)
    return bool(getattr(part, "available", False))


def _adapted(module: str, name: str, function: Callable[..., Any]) -> Callable[[bytes, FrameSize], Array]:
    def whole(plain: bytes, size: FrameSize) -> Array:
        kind = np.dtype(f"<u{size.bits_allocated // 8}")
        return np.frombuffer(plain, dtype=kind).reshape(size.rows, size.columns)

    if module == "rle.utils":
        return lambda content, size: whole(
            _panics_caught(function, content, size.rows * size.columns, size.bits_allocated, "<"), size
        )
    if name == "dicomrle_decode":

        def from_rle(content: bytes, size: FrameSize) -> Array:
            most = size.rows * size.columns * size.bits_allocated // 8
            return whole(function(content, dtype=f"<u{size.bits_allocated // 8}", out=most), size)

        return from_rle
    if module == "jpeg_ls":
        return lambda content, _: np.asarray(function(np.frombuffer(content, dtype=np.uint8)))
    return lambda content, _: np.asarray(function(content))


def _panics_caught(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function that is written in Rust: what it panics with is no `Exception` in Python."""
    try:
        return function(*given)
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise BadFrameError("the decoder failed on it") from error
        raise


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Rows and columns that a JPEG or JPEG-LS frame states, from its first markers.

    A frame without its end marker is refused here: one decoder fills what is missing, another looks for it for seconds.
    """
    if content[:2] != b"\xff\xd8":
        raise BadFrameError("it does not begin as JPEG does")
    if _END_OF_IMAGE not in content[-64:]:
        raise BadFrameError("it is cut off")
    offset = 2
    for _ in range(1000):
        if offset + 4 > len(content) or content[offset] != 0xFF:
            break
        marker = content[offset + 1]
        if marker == 0xFF or marker in _STANDALONE:
            offset += 1 if marker == 0xFF else 2
            continue
        if marker in _START_OF_FRAME:
            part = content[offset + 4 : offset + 10]
            if len(part) < 6 or part[5] != 1 or part[0] > 16:
                raise BadFrameError("it is not one grey value of at most 16 bits per pixel")
            return int.from_bytes(part[1:3], "big"), int.from_bytes(part[3:5], "big")
        offset += 2 + int.from_bytes(content[offset + 2 : offset + 4], "big")
    raise BadFrameError("it states no size")


def _j2k_size(content: bytes) -> tuple[int, int]:
    """Rows and columns that a JPEG 2000 frame states, from its SIZ marker."""
    offset = content.find(_J2K_START, 0, 4096)
    if offset < 0 or len(content) < offset + 44:
        raise BadFrameError("it does not begin as JPEG 2000 does")
    numbers = [int.from_bytes(content[offset + n : offset + n + 4], "big") for n in range(8, 40, 4)]
    width, height, left, top, tile_width, tile_height, tile_left, tile_top = numbers
    components = int.from_bytes(content[offset + 40 : offset + 42], "big")
    if components != 1 or not tile_width or not tile_height or content[offset + 42] & 0x7F > 15:
        raise BadFrameError("it is not one grey value of at most 16 bits per pixel")
    if tile_left > left or tile_top > top or left >= width or top >= height:
        raise BadFrameError("its tiles do not cover it")
    if max(numbers) > MOST_EDGE:
        raise BadFrameError(f"it states edges of {max(numbers):,} pixels")
    across = -(-max(width - tile_left, 0) // tile_width)
    down = -(-max(height - tile_top, 0) // tile_height)
    if across * down > MOST_TILES:
        raise BadFrameError(f"it states {across * down:,} tiles")
    return height - top, width - left


def _check_rle(content: bytes, size: FrameSize) -> None:
    segments = int.from_bytes(content[:4], "little")
    if len(content) < 64 or segments != size.bits_allocated // 8:
        raise BadFrameError(f"it has {segments} parts, one per byte of a pixel are needed")
