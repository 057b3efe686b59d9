"""Which slides and annotations lie in and below a folder, whatever their names, links and depth."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from elsewhere.files.refusals import explained_refusals

SLIDE_ENDINGS = (
    ".svs",
    ".tif",
    ".tiff",
    ".ndpi",
    ".mrxs",
    ".vms",
    ".vmu",
    ".scn",
    ".bif",
    ".svslide",
    ".dcm",
)
"""Of the formats that OpenSlide knows."""
OUTLINE_ENDINGS = (".xml", ".geojson", ".json")
MASK_ENDINGS = (".tif", ".tiff", ".png")
MASK_WORDS = ("_mask", "-mask", " mask")
"""How the name of a mask ends, after that of its slide."""


def fold_name(name: str) -> str:
    """Bring the name of a slide to one form, so that a table and a disk agree on it.

    Args:
        name: A name without its ending.

    Returns:
        The name without letter case and with letters and accents joined: some disks store an umlaut as two signs.

    Example:
        >>> fold_name("Pru\u0308fung 3") == fold_name("PR\u00dcFUNG 3")
        True
    """
    return unicodedata.normalize("NFC", name).strip().casefold()


@dataclass(frozen=True, kw_only=True)
class SlideFiles:
    """The files of a folder, by the folded name of the slide.

    Attributes:
        slides: Slides; several files may have one name.
        outlines: Annotations as outlines.
        masks: Annotations as mask pictures.
        links_without_file: Links whose file does not exist.
    """

    slides: dict[str, list[Path]] = field(default_factory=dict)
    outlines: dict[str, list[Path]] = field(default_factory=dict)
    masks: dict[str, list[Path]] = field(default_factory=dict)
    links_without_file: list[Path] = field(default_factory=list)


def find_slide_files(root: Path, *, annotations: Path | None = None) -> SlideFiles:
    """Search a folder, and those below it, for slides and their annotations; linked files and folders count.

    A folder of .dcm files is one slide by the name of the folder. A picture whose name ends with 'mask', or that lies
    in the folder of annotations, is a mask and no slide.

    Args:
        root: The folder of slides.
        annotations: A folder of annotations elsewhere; None: they are searched in `root`.

    Returns:
        The files.

    Raises:
        UserError: A folder cannot be read.
    """
    found = SlideFiles()
    known = annotations.resolve() if annotations is not None else None
    for path in files_below(root):
        inside = known is not None and path.parent.resolve().is_relative_to(known)
        _take(found, path, slides=not inside, outlines=annotations is None)
    if annotations is not None:
        for path in files_below(annotations):
            _take(found, path, slides=False, outlines=True)
    return found


def _take(found: SlideFiles, path: Path, *, slides: bool, outlines: bool) -> None:
    ending, stem = path.suffix.lower(), path.stem
    if path.name.startswith((".", "~$")):
        return
    if path.is_symlink() and not path.exists():
        if ending in (*SLIDE_ENDINGS, *OUTLINE_ENDINGS):
            found.links_without_file.append(path)
        return
    if ending in OUTLINE_ENDINGS:
        if outlines:
            found.outlines.setdefault(fold_name(stem), []).append(path)
        return
    folded = fold_name(stem)
    marked = next((word for word in MASK_WORDS if folded.endswith(word)), "")
    if ending in MASK_ENDINGS and (marked or not slides):
        if outlines:
            found.masks.setdefault(folded.removesuffix(marked), []).append(path)
    elif slides and ending == ".dcm":
        found.slides.setdefault(fold_name(path.parent.name), [path])
    elif slides and ending in SLIDE_ENDINGS:
        found.slides.setdefault(folded, []).append(path)


def files_below(root: Path) -> Iterator[Path]:
    """List all files in and below a folder, in order of name; linked folders are entered, each once.

    Args:
        root: The folder.

    Yields:
        Paths below `root`, as the links spell them.

    Raises:
        UserError: A folder cannot be read.
    """
    seen: set[tuple[int, int]] = set()
    with explained_refusals(root, "the folder cannot be read"):
        for folder, folders, names in os.walk(root, followlinks=True, onerror=_raise):
            about = Path(folder).stat()
            if (about.st_dev, about.st_ino) in seen:
                folders.clear()
                continue
            seen.add((about.st_dev, about.st_ino))
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                yield Path(folder) / name


def _raise(error: OSError) -> None:
    raise error
