"""Volumes as a source holds them: a DICOM file through the cache, an array in memory, or a pack that travelled."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elsewhere.errors import UserError
from elsewhere.files.limits import DAMAGED_ARCHIVE
from elsewhere.inputs.tomosynthesis.cache import VERSION, VolumeCache
from elsewhere.inputs.tomosynthesis.dicom import DicomVolume
from elsewhere.inputs.tomosynthesis.volume import Facts, Pixels, Stack, examine, stored_slices

_EPOCH = (1980, 1, 1, 0, 0, 0)


class DicomStored:
    """A volume in a DICOM file. It is decoded once; afterwards its slices are mapped from the cache.

    Args:
        path: The file.
        side_by_name: "left" or "right" by the name of the view; "" where it is not known.
        cache: Where decoded volumes are kept.
        scale: Original pixels per stored pixel: 1, or more to store reduced slices.
    """

    def __init__(self, path: Path, *, side_by_name: str, cache: VolumeCache, scale: int = 1) -> None:
        self.path, self.side_by_name, self.cache, self.scale = path, side_by_name, cache, scale

    def reduced(self, scale: int) -> DicomStored:
        """Return the same volume with smaller stored slices.

        Args:
            scale: Original pixels per stored pixel, along each axis.

        Returns:
            The volume.
        """
        return DicomStored(self.path, side_by_name=self.side_by_name, cache=self.cache, scale=scale)

    def pixels(self) -> Pixels:
        """Open the file.

        Returns:
            How its slices are read.

        Raises:
            UserError: It is no tomosynthesis volume, or it is damaged.
        """
        volume = DicomVolume(self.path)
        return Pixels(
            shape=volume.shape,
            read=volume.read,
            window=volume.window,
            notes=volume.notes,
            threads=1 if volume.codec.family == "jpeg2000" else 2,
        )

    def facts(self) -> Facts:
        """Return what is known of it beside its pixels, from a few slices.

        Returns:
            The facts.

        Raises:
            UserError: The file is no tomosynthesis volume, or it is damaged.
        """
        return self._facts

    @cached_property
    def _facts(self) -> Facts:
        def make() -> Facts:
            return examine(self.pixels(), side_by_name=self.side_by_name, scale=self.scale)

        return self.cache.facts(self._key, make)

    @cached_property
    def _key(self) -> str:
        text = f"elsewhere-volume {VERSION} {self.cache.digest(self.path)} {self.side_by_name} {self.scale}"
        return hashlib.sha256(text.encode()).hexdigest()

    def stack(self) -> Stack:
        """Return the stored slices, mapped from the cache; the first time, the whole volume is decoded.

        Returns:
            [slices, rows, columns], read-only.

        Raises:
            UserError: The file is damaged, or the cache cannot be written.
        """
        facts = self.facts()
        return self.cache.stack(self._key, facts.stored, lambda: stored_slices(self.pixels(), facts))

    def digest(self) -> str:
        """Return what names what a recipe is given of it: the file's bytes, and how they are stored.

        Returns:
            Hexadecimal sha256.
        """
        return self._key


class ArrayVolume:
    """A volume in memory, as phantoms make them.

    Args:
        slices: [slices, rows, columns] of whole slices in the repaired orientation.
        side: "left" or "right"; "" to tell it from the pixels.
        window: (low, high); None to take it from the values of the breast.
        scale: Original pixels per pixel of the array: coordinates are those of a volume that is so much larger.

    Example:
        >>> volume = ArrayVolume(np.zeros((2, 40, 30), dtype=np.uint16), side="left", scale=2)
        >>> volume.facts().shape, volume.stack().shape
        ((80, 60, 2), (2, 40, 30))
    """

    def __init__(
        self,
        slices: npt.NDArray[np.uint16],
        *,
        side: str = "",
        window: tuple[float, float] | None = None,
        scale: int = 1,
    ) -> None:
        self._slices, self._side, self._window, self._scale = slices, side, window, scale

    def facts(self) -> Facts:
        """Return what is known of it beside its pixels.

        Returns:
            The facts.
        """
        return self._facts

    @cached_property
    def _facts(self) -> Facts:
        depth, rows, columns = self._slices.shape
        pixels = Pixels(shape=(rows, columns, depth), read=lambda z: self._slices[z], window=self._window)
        facts = examine(pixels)
        step = self._scale
        x0, y0, x1, y1 = facts.breast
        return replace(
            facts,
            shape=(rows * step, columns * step, depth),
            breast=(x0 * step, y0 * step, x1 * step, y1 * step),
            side=self._side or facts.side,
            scale=float(step),
        )

    def stack(self) -> Stack:
        """Return the part of the array that holds the breast.

        Returns:
            [slices, rows, columns], read-only.
        """
        facts = self.facts()
        x0, y0, x1, y1 = (end // self._scale for end in facts.breast)
        stack = self._slices[:, y0:y1, x0:x1]
        stack.flags.writeable = False
        return stack

    def digest(self) -> str:
        """Return what names its pixels.

        Returns:
            Hexadecimal sha256.
        """
        whole = hashlib.sha256(f"elsewhere-volume-array {self._slices.shape} {self._side} ".encode())
        whole.update(f"{self._window} {self._scale}".encode())
        for one in self._slices:
            whole.update(np.ascontiguousarray(one, dtype="<u2").tobytes())
        return whole.hexdigest()


class PackedVolume:
    """A volume in a pack, a zip file with one member per slice; it is unpacked into the cache when it is read.

    Args:
        path: The pack.
        facts: What is known of the volume.
        digest: What named it where it was packed.
        cache: Where it is unpacked.
    """

    def __init__(self, path: Path, *, facts: Facts, digest: str, cache: VolumeCache) -> None:
        self.path, self._facts, self._digest, self.cache = path, facts, digest, cache

    def facts(self) -> Facts:
        """Return what is known of it beside its pixels.

        Returns:
            The facts.
        """
        return self._facts

    def stack(self) -> Stack:
        """Return the stored slices, mapped from the cache.

        Returns:
            [slices, rows, columns], read-only.

        Raises:
            UserError: The pack is damaged, or the cache cannot be written.
        """
        key = hashlib.sha256(f"elsewhere-pack {VERSION} {self._digest}".encode()).hexdigest()
        return self.cache.stack(key, self._facts.stored, self._unpacked)

    def _unpacked(self) -> Iterator[Stack]:
        depth, rows, columns = self._facts.stored
        try:
            with zipfile.ZipFile(self.path) as archive:
                for z in range(depth):
                    member = archive.getinfo(f"{z:04d}")
                    if member.file_size != 2 * rows * columns:
                        raise ValueError(f"slice {z} has another size")
                    yield np.frombuffer(archive.read(member), dtype="<u2").reshape(rows, columns)
        except (OSError, *DAMAGED_ARCHIVE) as error:
            raise UserError(
                f"the pack cannot be read ({error})", where=str(self.path), fix="Pack the volumes again."
            ) from error

    def digest(self) -> str:
        """Return what named it where it was packed: a training has one key on both machines.

        Returns:
            Hexadecimal sha256.
        """
        return self._digest


def write_pack(path: Path, stack: Stack) -> None:
    """Write slices as a pack; the same slices give the same bytes.

    Args:
        path: The file.
        stack: [slices, rows, columns].
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for z, one in enumerate(stack):
            member = zipfile.ZipInfo(f"{z:04d}", _EPOCH)
            archive.writestr(
                member, np.ascontiguousarray(one, dtype="<u2").tobytes(), zipfile.ZIP_DEFLATED, 1
            )


def write_index(path: Path, content: dict[str, object]) -> None:
    """Write what is known of packed volumes.

    Args:
        path: The file.
        content: Plain values.
    """
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
