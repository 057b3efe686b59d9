"""Decodes single tiles of a TIFF picture into RGB, into memory of a size that is known before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.inputs.slides.tiff import MOST_TILE_BYTES, Directory
from elsewhere.untrusted import printable

Pixels = npt.NDArray[np.uint8]
Decode = Callable[[bytes, Pixels], None]
"""Decodes the bytes of a tile into [rows, columns, 3]."""
EXTRA = "Install the extra 'slides': pip install 'elsewhere[slides]'."
RAW, LZW, JPEG, DEFLATE, OLD_DEFLATE, APERIO_YCBCR, APERIO_RGB = 1, 5, 7, 8, 32946, 33003, 33005
RGB, YCBCR, BLACK_IS_ZERO = 2, 6, 1
NAMES = {
    RAW: "not compressed",
    2: "CCITT",
    3: "CCITT",
    4: "CCITT",
    LZW: "LZW",
    6: "old JPEG",
    JPEG: "JPEG",
    DEFLATE: "deflate",
    OLD_DEFLATE: "deflate",
    32773: "PackBits",
    APERIO_YCBCR: "JPEG 2000 YCbCr",
    APERIO_RGB: "JPEG 2000 RGB",
    34712: "JPEG 2000",
    50000: "Zstandard",
    50001: "WebP",
    22610: "JPEG XR",
    34933: "PNG",
    34934: "JPEG XR",
}


class BadTileError(Exception):
    """The bytes of a tile are not what the file states; the message says what is wrong with them."""


def compression_name(directory: Directory) -> str:
    """Name how the tiles of a picture are coded.

    Args:
        directory: The picture.

    Returns:
        The compression and, for JPEG, the colour space: "JPEG RGB".
    """
    name = NAMES.get(directory.compression, f"compression {directory.compression}")
    if directory.compression == JPEG:
        name += {RGB: " RGB", YCBCR: " YCbCr", BLACK_IS_ZERO: " grey"}.get(directory.photometric, "")
    return name


def refusal(directory: Directory) -> str:
    """Tell why the tiles of a picture are not decoded directly.

    Args:
        directory: The picture.

    Returns:
        The reason as a clause; empty where they are.
    """
    colours = {JPEG: (RGB, YCBCR, BLACK_IS_ZERO), APERIO_RGB: (RGB,)}.get(
        directory.compression, (RGB, BLACK_IS_ZERO)
    )
    if directory.bits != 8 or "sample format" in directory.marks:
        return f"its values have {directory.bits} bits or are not whole numbers"
    if directory.compression not in (RAW, LZW, JPEG, DEFLATE, OLD_DEFLATE, APERIO_RGB):
        return f"its tiles are coded as {compression_name(directory)}"
    if directory.planar or "extra samples" in directory.marks:
        return "its colours lie apart, or have transparency"
    if directory.photometric not in colours or directory.samples != (
        1 if directory.photometric == BLACK_IS_ZERO else 3
    ):
        return f"its colours ({directory.samples} values per pixel, kind {directory.photometric}) are not plain RGB"
    if directory.predictor not in (1, 2):
        return f"its predictor {directory.predictor} is not known"
    if directory.tile_width * directory.tile_height * 3 > MOST_TILE_BYTES:
        return f"its tiles of {directory.tile_width:,} x {directory.tile_height:,} pixels are too large"
    return ""


def decoder(directory: Directory) -> Decode:
    """Make the function that decodes the tiles of a picture.

    Args:
        directory: The picture; `refusal` has no reason against it.

    Returns:
        A function from the bytes of a tile to the pixels that it fills; it raises `BadTileError`.

    Raises:
        UserError: imagecodecs is not installed.
    """
    inner = _decoder(directory)

    def decode(content: bytes, out: Pixels) -> None:
        try:
            inner(content, out)
        except BadTileError:
            raise
        except MemoryError:
            raise
        except Exception as error:  # the codecs have errors of their own
            raise BadTileError(printable(error)[:160] or type(error).__name__) from error

    return decode


def _decoder(directory: Directory) -> Decode:
    if directory.compression == RAW:
        return _unpacked(lambda content, out: content, directory)
    try:
        import imagecodecs
    except ImportError as error:
        raise UserError("the slide cannot be decoded: imagecodecs is not installed", fix=EXTRA) from error
    if directory.compression == JPEG:
        return _jpeg(directory, imagecodecs.jpeg8_decode)
    if directory.compression == APERIO_RGB:
        return lambda content, out: _whole_jpeg2000(content, out, imagecodecs.jpeg2k_decode)
    decompress = imagecodecs.lzw_decode if directory.compression == LZW else imagecodecs.zlib_decode
    return _unpacked(lambda content, out: decompress(content, out=out), directory)


def _jpeg(directory: Directory, decode: Callable[..., Any]) -> Decode:
    tables = directory.jpeg_tables or None
    stored = {RGB: "RGB", YCBCR: "YCBCR", BLACK_IS_ZERO: "GRAYSCALE"}[directory.photometric]

    def call(content: bytes, out: Pixels) -> None:
        # libjpeg fills a picture that is cut off with grey and says nothing.
        if b"\xff\xd9" not in content[-64:]:
            raise BadTileError("the JPEG picture has no end")
        if directory.photometric == BLACK_IS_ZERO:
            grey = np.empty(out.shape[:2], np.uint8)
            decode(content, tables=tables, colorspace=stored, outcolorspace=stored, out=grey)
            out[:] = grey[..., None]
        else:
            decode(content, tables=tables, colorspace=stored, outcolorspace="RGB", out=out)

    return call


def _whole_jpeg2000(content: bytes, out: Pixels, decode: Callable[..., Any]) -> None:
    decode(content, numthreads=1, out=out)


def _unpacked(decompress: Callable[[bytes, Any], Any], directory: Directory) -> Decode:
    samples = directory.samples

    def call(content: bytes, out: Pixels) -> None:
        flat = np.zeros(out.shape[0] * out.shape[1] * samples, np.uint8)
        if directory.compression == RAW:
            got = len(content)
            if got >= flat.size:
                flat[:] = np.frombuffer(content, np.uint8, flat.size)
        else:
            got = len(decompress(content, flat))
        if got < flat.size:
            raise BadTileError(f"it holds {got:,} bytes of pixels, {flat.size:,} are needed")
        pixels = flat.reshape(out.shape[0], out.shape[1], samples)
        if directory.predictor == 2:
            pixels = np.cumsum(pixels, axis=1, dtype=np.uint8)
        out[:] = pixels

    return call
