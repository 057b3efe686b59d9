"""Shards: up to 4,096 patches of one slide in one raw file, their masks in another, and a note that is written last.

    <token>.pixels    uint8 [patches, size, size, 3], raw
    <token>.masks     one bit per pixel [patches, size * size / 8], most significant bit first
    <token>.json      columns and rows of the patches in the grid, digests, counts

A shard exists when its note does. Pixels and masks are on the disk before the note is written, so that a writer that is
killed, or a disk that fills up, leaves files without a note, which nobody reads and the next writer removes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import FileSystemError, UserError
from elsewhere.files import replacing
from elsewhere.inputs.patches.spec import StoreSpec
from elsewhere.untrusted import read_json

SHARD_PATCHES = 4096
VERSION = 1
MOST_GRID = 1 << 20
_TOKEN = re.compile(r"[0-9a-f]{16}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_JSON = 8 << 20
Pixels = npt.NDArray[np.uint8]
Whole = npt.NDArray[np.int64]
GO_ON = "Run the same command again: what is packed already is not packed again."


class StoreWriteError(FileSystemError):
    """The store cannot be written: no later slide would do better."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shard:
    """One shard that is complete.

    Attributes:
        folder: The folder of its slide.
        token: What its files are called.
        i: The column of each patch in the grid.
        j: The row of each patch.
        pixels_sha256: The digest of the pixels.
        masks_sha256: The digest of the masks; "" without masks.
        counts: What happened while it was made: stain, masks.
    """

    folder: Path
    token: str
    i: Whole
    j: Whole
    pixels_sha256: str
    masks_sha256: str
    counts: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.i)

    @property
    def pixels_path(self) -> Path:
        """The file of the pixels."""
        return self.folder / f"{self.token}.pixels"

    @property
    def masks_path(self) -> Path:
        """The file of the masks."""
        return self.folder / f"{self.token}.masks"

    @property
    def note_path(self) -> Path:
        """The file that makes the shard complete."""
        return self.folder / f"{self.token}.json"

    def map_pixels(self, spec: StoreSpec) -> Pixels:
        """Map the pixels into memory.

        Args:
            spec: The settings of the store.

        Returns:
            [patches, size, size, 3], read-only.

        Raises:
            UserError: The file is missing or has another size.
        """
        return _mapped(self.pixels_path, (len(self), spec.size, spec.size, 3))

    def map_masks(self, spec: StoreSpec) -> Pixels:
        """Map the packed masks into memory.

        Args:
            spec: The settings of the store.

        Returns:
            [patches, size * size / 8], read-only.

        Raises:
            UserError: The store has no masks, or the file is missing or has another size.
        """
        if not spec.masks:
            raise UserError("this store holds no masks", where=str(self.folder), fix="Pack it with masks.")
        return _mapped(self.masks_path, (len(self), spec.mask_bytes))

    def problem(self, spec: StoreSpec, *, deep: bool = False) -> str:
        """Find what is wrong with its files.

        Args:
            spec: The settings of the store.
            deep: Whether every byte is read and compared with its digest, or the sizes alone.

        Returns:
            What is wrong, as a clause; "" where nothing is.
        """
        files = [(self.pixels_path, len(self) * spec.patch_bytes, self.pixels_sha256)]
        if spec.masks:
            files.append((self.masks_path, len(self) * spec.mask_bytes, self.masks_sha256))
        for path, size, digest in files:
            try:
                found = path.stat().st_size
                if found != size:
                    return f"{path.suffix[1:]} has {found:,} bytes instead of {size:,}"
                if deep:
                    with path.open("rb") as file:
                        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                            return f"{path.suffix[1:]} differs from what was written"
            except FileNotFoundError:
                return f"{path.suffix[1:]} is missing"
            except OSError as error:
                return f"{path.suffix[1:]} cannot be read ({error.strerror or error})"
        return ""


def read_shard(note: Path, spec: StoreSpec) -> Shard:
    """Read the note of a shard.

    Args:
        note: The file.
        spec: The settings of the store.

    Returns:
        The shard; its pixels are not read.

    Raises:
        UserError: The note is damaged.
    """
    content = read_json(note, most=_MOST_JSON, what="note of a shard")
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content) or content.get("version") != VERSION or not _TOKEN.fullmatch(note.stem):
        raise UserError("the note of a shard is damaged, or of another version", where=str(note), fix=GO_ON)
    i, j = content.get("i"), content.get("j")
    good = isinstance(i, list) and isinstance(j, list) and 0 < len(i) == len(j) <= SHARD_PATCHES
    if not good or not all(isinstance(n, int) and 0 <= n < MOST_GRID for n in [*(i or []), *(j or [])]):
        raise UserError("the note of a shard lists no patches of a grid", where=str(note), fix=GO_ON)
    digests = [content.get("pixels_sha256"), content.get("masks_sha256")]
    wanted = [True, spec.masks]
    if any(
        (not isinstance(d, str)) or bool(_SHA256.fullmatch(d)) != w
        for d, w in zip(digests, wanted, strict=True)
    ):
        raise UserError("the note of a shard has no digests", where=str(note), fix=GO_ON)
    counts = content.get("counts")
    return Shard(
        folder=note.parent,
        token=note.stem,
        i=np.asarray(i, np.int64),
        j=np.asarray(j, np.int64),
        pixels_sha256=str(digests[0]),
        masks_sha256=str(digests[1]),
        counts={str(k): v for k, v in counts.items() if isinstance(v, int)}
        if isinstance(counts, dict)
        else {},
    )


class ShardWriter:
    """Writes one shard: patches are added, and `finish` makes it complete.

    Args:
        folder: The folder of the slide, which exists.
        spec: The settings of the store.

    Raises:
        StoreWriteError: The system refuses: no space, no right.
    """

    def __init__(self, folder: Path, spec: StoreSpec) -> None:
        self._folder, self._spec = folder, spec
        self._token = secrets.token_hex(8)
        self._files = contextlib.ExitStack()
        self._i: list[int] = []
        self._j: list[int] = []
        self._counts: dict[str, int] = {}
        self._open: dict[str, tuple[IO[bytes], Any]] = {}
        for kind in ("pixels", *(("masks",) if spec.masks else ())):
            self._open[kind] = (self._begin(kind), hashlib.sha256())

    def __len__(self) -> int:
        return len(self._i)

    def add(
        self,
        places: Sequence[tuple[int, int]],
        pixels: Sequence[Pixels],
        masks: Sequence[npt.NDArray[Any]],
        counts: Mapping[str, int],
    ) -> None:
        """Write patches.

        Args:
            places: Column and row of each patch in the grid.
            pixels: The pixels of each, [size, size, 3].
            masks: Whether each pixel is tumour, [size, size]; empty in a store without masks.
            counts: What happened while they were made; it is added up.

        Raises:
            StoreWriteError: The system refuses.
        """
        for pixel in pixels:
            if pixel.shape != (self._spec.size, self._spec.size, 3) or pixel.dtype != np.uint8:
                raise ValueError(f"a patch has the shape {pixel.shape} and the type {pixel.dtype}")
            self._write("pixels", np.ascontiguousarray(pixel).data)
        if self._spec.masks:
            if len(masks) != len(pixels):
                raise ValueError(f"{len(pixels)} patches came with {len(masks)} masks")
            for mask in masks:
                self._write("masks", np.packbits(np.ascontiguousarray(mask, dtype=bool)).data)
        self._i += [i for i, _ in places]
        self._j += [j for _, j in places]
        for name, number in counts.items():
            self._counts[name] = self._counts.get(name, 0) + int(number)

    def finish(self, *, before_note: Callable[[], None] | None = None) -> Shard:
        """Complete the shard.

        Args:
            before_note: Called when pixels and masks are in place and the note is not; for tests.

        Returns:
            The shard.

        Raises:
            StoreWriteError: The system refuses; the shard does not exist then.
        """
        digests = {}
        with as_write_error(self._folder):
            for kind, (file, digest) in self._open.items():
                file.flush()
                os.fsync(file.fileno())
                file.close()
                digests[kind] = digest.hexdigest()
            self._files.close()
            if before_note is not None:
                before_note()
            content: dict[str, Any] = {
                "version": VERSION,
                "i": self._i,
                "j": self._j,
                "pixels_sha256": digests["pixels"],
                "masks_sha256": digests.get("masks", ""),
                "counts": self._counts,
            }
            note = self._folder / f"{self._token}.json"
            write_note({**content, "checksum": _checksum(content)}, note)
        return read_shard(note, self._spec)

    def discard(self, error: BaseException | None = None) -> None:
        """Remove what was written of a shard that is not finished.

        Args:
            error: Why it is not; None where that is of no interest.
        """
        stop = error if error is not None else RuntimeError("discarded")
        for file, _ in self._open.values():
            with contextlib.suppress(OSError):
                file.close()
        with contextlib.suppress(BaseException):
            self._files.__exit__(type(stop), stop, stop.__traceback__)

    def _begin(self, kind: str) -> IO[bytes]:
        with as_write_error(self._folder):
            temporary = self._files.enter_context(replacing(self._folder / f"{self._token}.{kind}"))
            return self._files.enter_context(temporary.open("wb"))

    def _write(self, kind: str, content: memoryview) -> None:
        file, digest = self._open[kind]
        with as_write_error(self._folder):
            file.write(content)
        digest.update(content)


@contextlib.contextmanager
def as_write_error(folder: Path) -> Any:
    """Turn what the system refuses in the block into a `StoreWriteError`.

    Args:
        folder: What the message names.

    Yields:
        Nothing.

    Raises:
        StoreWriteError: The block raised `OSError` or `FileSystemError`.
    """
    from elsewhere.files import file_system_error

    try:
        yield
    except StoreWriteError:
        raise
    except (OSError, FileSystemError) as error:
        known = (
            error
            if isinstance(error, FileSystemError)
            else file_system_error(error, "the store cannot be written", where=folder)
        )
        raise StoreWriteError(
            known.what,
            where=known.where,
            fix=f"{known.fix or ''} {GO_ON}".replace(
                "Free some space, and run the same command again.", "Free some space."
            ).strip(),
        ) from error


def write_note(content: Mapping[str, Any], path: Path) -> None:
    """Write a small JSON file, whole or not at all, and wait until it is on the disk.

    Args:
        content: Plain values.
        path: The file; an existing one is replaced.

    Raises:
        FileSystemError: The system refuses.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(json.dumps(content).encode())
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(OSError):  # a system that cannot do this for folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _mapped(path: Path, shape: tuple[int, ...]) -> Pixels:
    try:
        return np.memmap(path, dtype=np.uint8, mode="r", shape=shape)
    except (OSError, ValueError) as error:
        raise UserError(
            "a shard of the store is missing or cut off",
            where=str(path),
            fix="Run elsewhere slides verify on the store; it names what must be packed again.",
        ) from error


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
