"""Reads arrays of a .npz file from a stranger: no pickles, and no more than its bytes and the limit allow."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from elsewhere.files import check_zip_size
from elsewhere.untrusted import check_plain_file


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read every array of a .npz file.

    The sizes that the file declares are checked before anything is unpacked, and pickled objects are never
    read: the file may come from a stranger.

    Args:
        path: The .npz file.

    Returns:
        The arrays by name.

    Raises:
        SizeLimitError: It unpacks to more than the limit.
        UserError: There is no such file, or it is not a plain file.
        ValueError: It contains something other than arrays of plain values, or an array claims another size
            than its bytes have.
        zipfile.BadZipFile: It is no zip file, or it is damaged.
    """
    check_plain_file(path)
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        check_zip_size(archive, path)
        names = [entry.filename for entry in entries]
        if len(set(names)) != len(names) or not all(name.endswith(".npy") for name in names):
            raise ValueError(f"{path.name} contains something other than arrays")
        for entry in entries:
            with archive.open(entry) as stream:
                _check_header(stream, entry)
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def _check_header(stream: IO[bytes], entry: zipfile.ZipInfo) -> None:
    """Check that the shape an array claims fits its bytes: numpy allocates memory by the claim."""
    version = np.lib.format.read_magic(stream)
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"{entry.filename} has a header of version {version}")
    shape, _, kind = readers[version](stream)
    if kind.hasobject:
        raise ValueError(f"{entry.filename} contains pickled objects, which are not read")
    if math.prod(shape) * kind.itemsize != entry.file_size - stream.tell():
        raise ValueError(f"{entry.filename} declares the shape {shape}, which does not fit its bytes")
