"""Packs volumes for a machine without their files: one .npz file per case, read by the same protocol.

Phases that are whole numbers of 16 bits are saved as such, others as float32, so that a pack is the same
volume. With `exact=False` they are float16, scaled to its range, and the digest records that. Masks are
packed bits. A case's arrays are read one by one, when asked for.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError, near_matches
from elsewhere.inputs.volumes import Box, Grid, Volumes

INDEX = "volumes.json"
_HALF = 30000.0
"""The largest value of a phase is scaled to this number, where float16 still has steps of 16."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def volume_digest(volumes: Volumes, case: str) -> str:
    """Return what names a volume in a training's key: of its files where it has files, else of its voxels.

    Args:
        volumes: Where the volume is read.
        case: "DATASET/case_id".

    Returns:
        Hexadecimal sha256.

    Example:
        >>> from elsewhere.inputs.volumes import MemoryVolumes
        >>> volumes = MemoryVolumes(images={"a": [np.zeros((2, 2, 1), dtype=np.float32)]})
        >>> len(volume_digest(volumes, "a"))
        64
    """
    told = getattr(volumes, "digest", None)
    if told is not None:
        return str(told(case))
    whole = hashlib.sha256(b"elsewhere-voxels-2\n")
    grid = volumes.grid(case)
    whole.update(repr((grid.shape, grid.spacing_mm, volumes.breast_box(case))).encode())
    for at in range(volumes.phases(case)):
        whole.update(np.ascontiguousarray(volumes.phase(case, at), dtype="<f4").tobytes())
    return whole.hexdigest()


def mask_digest(volumes: Volumes, case: str) -> str:
    """Return the digest of the expert's mask, which counts for cases that train, not for predicted ones.

    Args:
        volumes: Where the mask is read.
        case: "DATASET/case_id".

    Returns:
        Hexadecimal sha256; "" where there is no mask.

    Example:
        >>> from elsewhere.inputs.volumes import MemoryVolumes
        >>> mask_digest(MemoryVolumes(images={"a": [np.zeros((2, 2, 1), dtype=np.float32)]}), "a")
        ''
    """
    told = getattr(volumes, "mask_digest", None)
    if told is not None:
        return str(told(case))
    mask = volumes.mask(case)
    return (
        "" if mask is None else hashlib.sha256(np.packbits(np.ascontiguousarray(mask)).tobytes()).hexdigest()
    )


def pack_volumes(
    volumes: Volumes,
    cases: Iterable[str],
    folder: str | Path,
    *,
    exact: bool = True,
    with_masks: bool = True,
    digest: Callable[[str], str] | None = None,
    digest_of_mask: Callable[[str], str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Write cases as a folder for `PackedVolumes`.

    A case that is there already, with the same digest of its volume and of its mask, is not packed again.

    Args:
        volumes: Where they are read.
        cases: The names of the cases.
        folder: The folder to write; it is made where it does not exist.
        exact: Whether every value is saved as it is; False: as float16, and the digest records that.
        with_masks: Whether masks and lesion boxes are packed too.
        digest: A function from a case to the digest of its volume; None: `volume_digest`.
        digest_of_mask: A function from a case to the digest of its mask; None: `mask_digest`.
        progress: Called with "packing volumes", how many are done, and how many there are.

    Returns:
        The folder.

    Raises:
        UserError: The folder's list of volumes cannot be read, or a volume cannot.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    held = _index(folder)
    names = list(dict.fromkeys(cases))
    for done, case in enumerate(names, start=1):
        name = digest(case) if digest else volume_digest(volumes, case)
        name += "" if exact else ":float16"
        drawn = (digest_of_mask(case) if digest_of_mask else mask_digest(volumes, case)) if with_masks else ""
        entry = held.get(case)
        file = f"{quote(case, safe='')}.npz"
        if (
            entry is None
            or entry["digest"] != name
            or (with_masks and entry.get("mask_digest", "") != drawn)
            or entry["masked"] < with_masks
            or not (folder / file).is_file()
        ):
            content, facts = _packed(volumes, case, exact=exact, with_mask=with_masks)
            _write(folder / file, content)
            held[case] = {**facts, "digest": name, "masked": int(with_masks), "file": file}
            held[case]["mask_digest"] = drawn
        if progress:
            progress("packing volumes", done, len(names))
    text = json.dumps({"version": 1, "cases": held}, indent=1, sort_keys=True)
    _write(folder / INDEX, text.encode())
    return folder


class PackedVolumes:
    """Volumes over a folder that `pack_volumes` wrote.

    Args:
        folder: The folder.

    Raises:
        UserError: There are no packed volumes in it.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._cases = _index(self._folder)
        if not self._cases:
            raise UserError("this folder has no packed volumes", where=str(folder))

    def __len__(self) -> int:
        return len(self._cases)

    def __contains__(self, case: object) -> bool:
        return case in self._cases

    @property
    def cases(self) -> tuple[str, ...]:
        """The names of all cases."""
        return tuple(self._cases)

    def grid(self, case: str) -> Grid:
        """Return the size and the place of a case's volume, from the headers alone.

        Args:
            case: "DATASET/case_id".

        Returns:
            Its grid.
        """
        facts = self._facts(case)
        x, y, z = facts["shape"]
        a, b, c = facts["spacing_mm"]
        affine = facts["affine"]
        return Grid(
            shape=(x, y, z),
            spacing_mm=(a, b, c),
            affine=np.array(affine, dtype=np.float64) if affine is not None else None,
        )

    def phases(self, case: str) -> int:
        """Return how many phases a case has; phase 0 is before the contrast agent.

        Args:
            case: "DATASET/case_id".

        Returns:
            At least 1.

        Raises:
            UserError: The case is unknown.
        """
        return int(self._facts(case)["phases"])

    def phase(self, case: str, at: int) -> npt.NDArray[np.float32]:
        """Read one phase.

        Args:
            case: "DATASET/case_id".
            at: Which phase; negative numbers count from the end.

        Returns:
            [x, y, z].

        Raises:
            UserError: The case is unknown or lacks the phase, or its pack is broken.
        """
        count = self.phases(case)
        if not -count <= at < count:
            raise UserError(f"case '{case}' has {count} phases, phase {at} was requested")
        stored = self._array(case, f"phase_{at % count}")
        values = np.array(stored, dtype=np.float32, order="K")
        scale = self._facts(case)["scale"][at % count]
        return values if scale == 1 else values * np.float32(scale)

    def mask(self, case: str) -> npt.NDArray[np.bool_] | None:
        """Return the expert's mask on the volume's grid.

        Args:
            case: "DATASET/case_id".

        Returns:
            [x, y, z]; None where there is none.
        """
        facts = self._facts(case)
        if not facts["has_mask"]:
            return None
        shape = tuple(facts["shape"])
        bits = np.unpackbits(self._array(case, "mask"), count=int(np.prod(shape)))
        return bits.reshape(shape).view(np.bool_)

    def breast_box(self, case: str) -> Box | None:
        """Return the box of the affected breast.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, z0, x1, y1, z1, half-open; None where it is not known.
        """
        return _box(self._facts(case)["breast_box"])

    def lesion_box(self, case: str) -> Box | None:
        """Return the publisher's box of the lesion, which is truth as the mask is.

        Args:
            case: "DATASET/case_id".

        Returns:
            x0, y0, z0, x1, y1, z1, half-open; None where there is none.
        """
        return _box(self._facts(case)["lesion_box"])

    def digest(self, case: str) -> str:
        """Return the digest of the volume that was packed: a training has one key on both machines.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256.
        """
        return str(self._facts(case)["digest"])

    def mask_digest(self, case: str) -> str:
        """Return the digest of the mask that was packed.

        Args:
            case: "DATASET/case_id".

        Returns:
            Hexadecimal sha256; "" of a pack without masks.
        """
        return str(self._facts(case).get("mask_digest", ""))

    def _facts(self, case: str) -> dict[str, Any]:
        try:
            return self._cases[case]
        except KeyError:
            near = near_matches(case, self._cases)
            hint = f"Did you mean {' or '.join(near)}?" if near else None
            raise UserError(
                f"case '{case}' is not among the packed volumes", where=str(self._folder), fix=hint
            ) from None

    def _array(self, case: str, name: str) -> npt.NDArray[Any]:
        path = self._folder / self._facts(case)["file"]
        try:
            with np.load(path, allow_pickle=False) as held:
                array: npt.NDArray[Any] = held[name]
                return array
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(
                f"the pack of case '{case}' cannot be read ({error})", where=str(path), fix="Pack it again."
            ) from error


def _packed(volumes: Volumes, case: str, *, exact: bool, with_mask: bool) -> tuple[bytes, dict[str, Any]]:
    grid = volumes.grid(case)
    arrays: dict[str, npt.NDArray[Any]] = {}
    scales: list[float] = []
    for at in range(volumes.phases(case)):
        arrays[f"phase_{at}"], scale = _narrow(volumes.phase(case, at), exact=exact)
        scales.append(scale)
    mask = volumes.mask(case) if with_mask else None
    if mask is not None:
        arrays["mask"] = np.packbits(np.ascontiguousarray(mask))
    lesion = getattr(volumes, "lesion_box", lambda _: None)(case)
    facts = {
        "shape": list(grid.shape),
        "spacing_mm": list(grid.spacing_mm),
        "affine": grid.affine.tolist() if grid.affine is not None else None,
        "phases": len(scales),
        "scale": scales,
        "has_mask": mask is not None,
        "breast_box": volumes.breast_box(case),
        "lesion_box": lesion if with_mask else None,
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            archive.writestr(
                zipfile.ZipInfo(f"{name}.npy", _EPOCH), member.getvalue(), zipfile.ZIP_DEFLATED, 1
            )
    return content.getvalue(), facts


def _narrow(values: npt.NDArray[np.float32], *, exact: bool) -> tuple[npt.NDArray[Any], float]:
    low, high = float(values.min()), float(values.max())
    for kind in (np.uint8, np.int16, np.uint16):
        limits = np.iinfo(kind)
        if limits.min <= low and high <= limits.max:
            whole = values.astype(kind)
            if np.array_equal(whole, values):
                return whole, 1.0
    if exact:
        return values, 1.0
    largest = max(abs(low), abs(high))
    scale = largest / _HALF if largest > 0 else 1.0
    return (values / np.float32(scale)).astype(np.float16), scale


def _box(ends: list[int] | None) -> Box | None:
    return (ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]) if ends is not None else None


def _index(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        held = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(
            f"it cannot be read ({error})", where=str(folder / INDEX), fix="Pack again."
        ) from error
    return dict(held["cases"])


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)
