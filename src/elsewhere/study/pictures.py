"""Every picture of a study looked at once: whole, its digest, its size. What was seen is kept.

A truncated picture is found here, before any training, and named with its case and file. The second time
nothing is read: a file with the same path, size and time of change is the same file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from elsewhere.errors import UserError
from elsewhere.tables import write_json

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class PictureFacts:
    """What a plan needs to know of a picture.

    Args:
        digest: The SHA-256 of the file.
        width: In pixels.
        height: In pixels.
    """

    digest: str
    width: int
    height: int


def look_at(
    paths: Mapping[str, Path], *, cache: Path | None = None, progress: Report | None = None
) -> dict[str, PictureFacts]:
    """Decode every case's picture once, to find its digest and size and the files that cannot be used.

    Args:
        paths: The file of each case's picture.
        cache: A JSON file that remembers what was seen: a file of the same path, size and time of change is not
            read again. None: every file is read.
        progress: Called with what is done, how many files were read, and how many there are; None: nobody is
            told.

    Returns:
        The facts of each case, in the order of `paths`.

    Raises:
        UserError: Some pictures are missing or cannot be decoded; the message names the first cases.
    """
    known = _read_cache(cache)
    found: dict[str, PictureFacts] = {}
    fresh: dict[str, list[int | str]] = {}
    todo: list[tuple[str, Path, os.stat_result]] = []
    bad: list[tuple[str, Path, str]] = []
    for case, path in paths.items():
        try:
            state = path.stat()
        except OSError:
            bad.append((case, path, "there is no such file"))
            continue
        row = known.get(str(path))
        if row is not None and row[:2] == [state.st_size, state.st_mtime_ns]:
            found[case] = PictureFacts(digest=str(row[2]), width=int(row[3]), height=int(row[4]))
        else:
            todo.append((case, path, state))
    done = 0
    with ThreadPoolExecutor(min(32, os.cpu_count() or 1)) as pool:
        for (case, path, state), seen in zip(todo, pool.map(lambda item: _look(item[1]), todo), strict=True):
            done += 1
            if progress and (done % 50 == 0 or done == len(todo)):
                progress("looking at pictures", done, len(todo))
            if isinstance(seen, str):
                bad.append((case, path, seen))
            else:
                found[case] = seen
                fresh[str(path)] = [state.st_size, state.st_mtime_ns, seen.digest, seen.width, seen.height]
    if fresh and cache is not None:
        write_json({"version": 1, "pictures": known | fresh}, cache)
    if bad:
        case, path, why = bad[0]
        others = [name for name, _, _ in bad[1:6]]
        more = f"; likewise {', '.join(others)}" if others else ""
        more += f" and {len(bad) - 6} more" if len(bad) > 6 else ""
        raise UserError(
            f"the picture of case '{case}' cannot be used: {why}{more}",
            where=str(path),
            fix="Fetch the file again, or take the row out of the cohort.",
        )
    return {case: found[case] for case in paths}


def _look(path: Path) -> PictureFacts | str:
    from PIL import Image, UnidentifiedImageError

    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as image:
            image.load()
            width, height = image.size
    except UnidentifiedImageError:
        return "it is no picture"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return f"it cannot be decoded ({error}); is the file whole?"
    return PictureFacts(digest=hashlib.sha256(content).hexdigest(), width=width, height=height)


def _read_cache(cache: Path | None) -> dict[str, list[int | str]]:
    """A cache that cannot be read is no cache."""
    if cache is None:
        return {}
    try:
        held = json.loads(cache.read_text(encoding="utf-8"))
        rows = held["pictures"] if held["version"] == 1 else {}
        return {str(path): row for path, row in rows.items() if isinstance(row, list) and len(row) == 5}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
