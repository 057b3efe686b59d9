"""Caches volumes on the disk: one memory-mapped .npy file per volume, written once, whole or not at all.

    FOLDER/<key>.npy            slices as recipes read them: uint16, repaired, cropped to the breast
    FOLDER/facts/<key>.json     what is known of the volume beside its pixels
    FOLDER/digests/<name>.json  the sha256 of a source file, for as long as its size and time of change stay

A key is made of the source file's digest and of how it is stored, so that a replaced source is another volume. A file
gets its name when it is complete: a writer that is killed leaves a temporary file, which nobody reads and the next
writer removes. Processes that want the same volume wait for the first of them. When the cache would grow above its
limit, the volumes that were not used for longest go first.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elsewhere.errors import FileSystemError, UserError
from elsewhere.files import explained_refusals, human_bytes, replacing, write_bytes
from elsewhere.inputs.digests import FileDigests, read_note
from elsewhere.inputs.tomosynthesis.volume import Facts, Stack

try:
    import fcntl
except (
    ImportError
):  # pragma: no cover - Windows has no flock: two processes may both write, one after another wins
    fcntl = None  # type: ignore[assignment]

FOLDER_VARIABLE, LIMIT_VARIABLE = "ELSEWHERE_VOLUME_CACHE", "ELSEWHERE_VOLUME_CACHE_BYTES"
DEFAULT_LIMIT = 100 * 1024**3
VERSION = 1
ABANDONED_SECONDS = 3600.0
"""A temporary file that nobody has written to for so long belongs to a writer that was killed."""
_UNITS = {"": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(KB|MB|GB|TB|)\s*", re.IGNORECASE)


class VolumeCache:
    """A folder of volumes that were decoded once.

    Args:
        folder: The folder; it is made when the first volume is written.
        most_bytes: The most that its volumes may take together.

    Example:
        >>> import tempfile
        >>> cache = VolumeCache(tempfile.mkdtemp())
        >>> slices = [np.full((3, 2), z, dtype=np.uint16) for z in range(4)]
        >>> stack = cache.stack("0" * 64, (4, 3, 2), lambda: slices)
        >>> stack.shape, int(stack[3, 0, 0]), stack.flags.writeable
        ((4, 3, 2), 3, False)
    """

    def __init__(self, folder: str | Path, *, most_bytes: int = DEFAULT_LIMIT) -> None:
        self.folder, self.most_bytes = Path(folder), most_bytes

    def digest(self, path: Path) -> str:
        """Return the sha256 of a file; it is read again only where its size or its time of change differ.

        Args:
            path: The file.

        Returns:
            Hexadecimal.

        Raises:
            UserError: The file cannot be read.
        """
        return FileDigests(self.folder / "digests").digest(path, what="volume")

    def facts(self, key: str, make: Callable[[], Facts]) -> Facts:
        """Return what is known of a volume, found out once.

        Args:
            key: What names the volume and how it is stored.
            make: Finds it out.

        Returns:
            The facts.
        """
        note = self.folder / "facts" / f"{key}.json"
        noted = read_note(note)
        if noted.get("version") == VERSION:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                return Facts.from_dict(noted["facts"])
        facts = make()
        self._note(note, {"version": VERSION, "facts": facts.to_dict()})
        return facts

    def stack(
        self, key: str, shape: tuple[int, int, int], slices: Callable[[], Iterable[npt.NDArray[np.uint16]]]
    ) -> Stack:
        """Return the slices of a volume, mapped from their file, which is written where it does not exist.

        Args:
            key: What names the volume and how it is stored.
            shape: Slices, rows and columns.
            slices: Reads them one after another.

        Returns:
            [slices, rows, columns], read-only.

        Raises:
            UserError: The volume cannot be read, the disk is full, or the volume alone is above the limit.
        """
        path = self.folder / f"{key}.npy"
        stack = _opened(path, shape)
        if stack is not None:
            return stack
        with _waiting_turn(self.folder / f".{key}.lock"):
            stack = _opened(path, shape)
            if stack is None:
                self._write(path, shape, slices())
                stack = _opened(path, shape)
        if stack is None:
            raise UserError("the cached volume vanished while it was opened", where=str(path), fix=_MORE)
        return stack

    def clear_abandoned(self, *, older_than: float = ABANDONED_SECONDS) -> int:
        """Remove what killed writers left.

        Args:
            older_than: Only temporary files without a change for so many seconds.

        Returns:
            How many were removed.
        """
        removed = 0
        for path in self.folder.glob(".elsewhere-*.partial"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > older_than:
                    path.unlink()
                    removed += 1
        return removed

    def _write(self, path: Path, shape: tuple[int, int, int], slices: Iterable[Any]) -> None:
        needed = int(np.prod(shape)) * 2 + 256
        if needed > self.most_bytes:
            raise UserError(
                f"a volume of {human_bytes(needed)} does not fit into a cache of {human_bytes(self.most_bytes)}",
                where=str(self.folder),
                fix=_MORE,
            )
        self.clear_abandoned()
        self._make_room(needed)
        try:
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "<u2", "fortran_order": False, "shape": shape}
                )
                count = 0
                for one in slices:
                    if one.shape != shape[1:]:
                        raise ValueError(f"slice {count} has the shape {one.shape}, not {shape[1:]}")
                    file.write(np.ascontiguousarray(one, dtype="<u2").data)
                    count += 1
                if count != shape[0]:
                    raise ValueError(f"{count} slices came of a volume of {shape[0]}")
                file.flush()
                os.fsync(file.fileno())
        except FileSystemError as error:
            raise FileSystemError(
                error.what, where=error.where, fix=f"{error.fix or ''} {_MORE}".strip()
            ) from error

    def _make_room(self, needed: int) -> None:
        volumes = []
        for path in self.folder.glob("*.npy"):
            with contextlib.suppress(OSError):
                state = path.stat()
                volumes.append((state.st_mtime, state.st_size, path))
        over = sum(size for _, size, _ in volumes) + needed - self.most_bytes
        for _, size, path in sorted(volumes):
            if over <= 0:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                over -= size

    def _note(self, path: Path, content: Mapping[str, Any]) -> None:
        """Write what was found out; where nothing can be written, it is found out again next time."""
        with contextlib.suppress(FileSystemError):
            write_bytes(json.dumps(content).encode(), path)


def default_cache() -> VolumeCache:
    """Return the cache that sources use: `ELSEWHERE_VOLUME_CACHE`, or the user's own cache folder.

    `ELSEWHERE_VOLUME_CACHE_BYTES` is the most that it may take, such as 200GB; 100 GB by default.

    Returns:
        The cache.

    Raises:
        UserError: The limit is not a size.
    """
    given = os.environ.get(FOLDER_VARIABLE, "").strip()
    base = os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
    folder = Path(given).expanduser() if given else Path(base).expanduser() / "elsewhere" / "volumes"
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return VolumeCache(folder)
    size = _SIZE.fullmatch(text)
    limit = int(float(size[1]) * _UNITS[size[2].upper()]) if size else 0
    if limit < 1:
        raise UserError(
            f"'{text}' is not a size", where=LIMIT_VARIABLE, fix="Write a number of bytes, or e.g. 200GB."
        )
    return VolumeCache(folder, most_bytes=limit)


_MORE = f"{FOLDER_VARIABLE} names a folder on another disk, {LIMIT_VARIABLE} how much it may take (such as 200GB)."


def _opened(path: Path, shape: tuple[int, int, int]) -> Stack | None:
    """A complete file of this shape, mapped, and marked as used; None where there is none."""
    try:
        stack = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.EACCES):
            with explained_refusals(path, "the cached volume cannot be read"):
                raise
        return None
    if stack.shape != shape or stack.dtype != np.uint16:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return np.asarray(stack)


@contextlib.contextmanager
def _waiting_turn(lock: Path) -> Iterator[None]:
    """Hold a lock that the system gives back when the process ends, however it ends."""
    with contextlib.ExitStack() as resources:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a disk without locks: both processes write the same bytes
                lock.parent.mkdir(parents=True, exist_ok=True)
                file = resources.enter_context(lock.open("wb"))
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
        with contextlib.suppress(OSError):
            lock.unlink(missing_ok=True)
