"""The arrays of a .npz that may have come from elsewhere: no pickles, and no larger than what its file holds and the limit allows."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from elsewhere.files import check_zip_size
from elsewhere.untrusted import check_plain_file


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of the file. What it unpacks to is looked at before any of it is unpacked.

    Raises:
        SizeLimitError: it unpacks to more than the limit.
        ValueError: it holds something else than arrays of plain values, or claims more than its bytes can hold.
        zipfile.BadZipFile: it is no zip, or damaged.
    """
    check_plain_file(path)
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        check_zip_size(archive, path)
        names = [entry.filename for entry in entries]
        if len(set(names)) != len(names) or not all(name.endswith(".npy") for name in names):
            raise ValueError(f"{path.name} holds other things than arrays")
        for entry in entries:
            with archive.open(entry) as stream:
                _check_header(stream, entry)
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def _check_header(stream: IO[bytes], entry: zipfile.ZipInfo) -> None:
    """The shape that an array claims is what its bytes hold: numpy makes room by the claim."""
    version = np.lib.format.read_magic(stream)
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"{entry.filename} has a header of version {version}")
    shape, _, kind = readers[version](stream)
    if kind.hasobject:
        raise ValueError(f"{entry.filename} holds pickled objects, which are not read")
    if math.prod(shape) * kind.itemsize != entry.file_size - stream.tell():
        raise ValueError(f"{entry.filename} claims {shape}, and its bytes are others")
