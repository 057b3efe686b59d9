"""Opens a whole slide by the fastest reader that shows the right pixels."""

from __future__ import annotations

from pathlib import Path

from elsewhere.errors import UserError, unknown_name
from elsewhere.inputs.slides.files import StretchReader
from elsewhere.inputs.slides.openslide_slide import OpenSlideSlide, openslide_module
from elsewhere.inputs.slides.picture_slide import PictureSlide
from elsewhere.inputs.slides.scale import check_mpp
from elsewhere.inputs.slides.slide import Slide
from elsewhere.inputs.slides.tiff import read_directories, read_tile_table
from elsewhere.inputs.slides.tiff_formats import TiffFormat, describe_tiff
from elsewhere.inputs.slides.tiled_slide import NotDirectError, TiledSlide
from elsewhere.untrusted import check_plain_file

BACKENDS = ("auto", "direct", "openslide", "picture")
_TIFF = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"RIFF")
_MOST_OPENSLIDE_TILE_BYTES = 256 << 20
_SEVERAL_FILES = (".mrxs", ".vms", ".vmu", ".dcm")


def open_slide(path: str | Path, *, mpp: float | None = None, backend: str = "auto") -> Slide:
    """Open a whole slide.

    Aperio, Philips and plain tiled TIFF files are read directly; other formats, and TIFF files with an unusual
    coding, through OpenSlide. Label and overview pictures in the file are never read.

    Args:
        path: The file; a link is followed.
        mpp: Microns per pixel at level 0, where those of the file are missing or wrong; None for the file's.
        backend: "auto", "direct", "openslide" or "picture".

    Returns:
        The slide; close it, or use it in a `with` block.

    Raises:
        UserError: There is no such file, it is no slide or damaged, or its microns per pixel are missing, absurd or
            contradicted.

    Example:
        >>> import tempfile, numpy, PIL.Image
        >>> folder = tempfile.TemporaryDirectory()
        >>> PIL.Image.fromarray(numpy.zeros((40, 60, 3), "u1")).save(folder.name + "/a.png")
        >>> with open_slide(folder.name + "/a.png", mpp=0.5) as slide:
        ...     slide.size_px, slide.mpp, slide.read(50, 30, 20, 20)[0, ::10, 0].tolist()
        ((60, 40), 0.5, [0, 255])
        >>> folder.cleanup()
    """
    if backend not in BACKENDS:
        raise unknown_name("backend of slides", backend, BACKENDS)
    path = Path(path)
    if path.is_dir():
        raise UserError(
            "this is a folder, and a slide is a file",
            where=str(path),
            fix="Name the file: for MIRAX the .mrxs file next to the folder, for DICOM one of the .dcm files in it.",
        )
    check_plain_file(path, what="slide")
    if mpp is not None:
        mpp = check_mpp(mpp, where=str(path))
    if backend == "picture":
        return PictureSlide(path, mpp)
    if backend == "openslide":
        return OpenSlideSlide(path, mpp, tiff=_tiff_of(path))
    if backend == "direct":
        try:
            return TiledSlide(path, mpp)
        except NotDirectError as reason:
            raise UserError(
                f"the slide cannot be read directly: {reason}", where=str(path), fix="Use the backend auto."
            ) from reason
    return _open_auto(path, mpp)


def reopen(path: str, mpp: float | None, backend: str) -> Slide:
    """Open a slide again as it was opened in another process.

    Args:
        path: The file.
        mpp: Microns per pixel that the user had stated.
        backend: The reader that was used.

    Returns:
        The slide.

    Raises:
        UserError: It cannot be opened any more.
    """
    return open_slide(path, mpp=mpp, backend=backend)


def _open_auto(path: Path, mpp: float | None) -> Slide:
    start = _start(path)
    if start.startswith(_PICTURES) and path.suffix.lower() not in _SEVERAL_FILES:
        return PictureSlide(path, mpp)
    if start[:4] in _TIFF:
        try:
            return TiledSlide(path, mpp)
        except NotDirectError as reason:
            return OpenSlideSlide(path, mpp, tiff=_tiff_of(path), reason=str(reason))
        except UserError:
            if path.suffix.lower() != ".ndpi":
                raise
            # Hamamatsu's files of more than 4 GB break the rules of TIFF in a way that OpenSlide knows.
            return OpenSlideSlide(path, mpp, reason="it is a Hamamatsu file")
    if path.suffix.lower() not in _SEVERAL_FILES and not _is_known_to_openslide(path):
        reader = StretchReader(path)
        try:
            read_directories(reader)  # says what the file is instead
        finally:
            reader.close()
    return OpenSlideSlide(path, mpp, reason="it is no TIFF file")


def _start(path: Path) -> bytes:
    reader = StretchReader(path)
    try:
        return reader.read(0, min(16, reader.size))
    finally:
        reader.close()


def _is_known_to_openslide(path: Path) -> bool:
    library = openslide_module()
    try:
        return library.OpenSlide.detect_format(str(path)) is not None
    except library.OpenSlideError:
        return False


def _tiff_of(path: Path) -> TiffFormat | None:
    """What the TIFF directories of a file say, checked before OpenSlide sees them; None where it has none."""
    if _start(path)[:4] not in _TIFF or path.suffix.lower() == ".ndpi":
        return None
    reader = StretchReader(path)
    try:
        directories = read_directories(reader)
        for directory in directories:
            if not directory.tiled:
                continue
            # OpenSlide ends the process where it gets no memory for a tile, or for the bytes of one.
            read_tile_table(reader, directory)
            if directory.tile_width * directory.tile_height * 4 > _MOST_OPENSLIDE_TILE_BYTES:
                raise UserError(
                    f"the file states tiles of {directory.tile_width:,} x {directory.tile_height:,} pixels",
                    where=f"{path}, picture {directory.index}",
                    fix="Save the slide with tiles of 256 or 512 pixels.",
                )
        return describe_tiff(directories)
    finally:
        reader.close()
