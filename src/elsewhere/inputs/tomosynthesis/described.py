"""Volumes that a few plain values describe: their slices are made when they are first read, and cached like those of files.

A cohort names such a volume by a file `NAME.volume.json`, whose `format` says who makes the slices. Formats are
registered; other packages add theirs by the entry-point group 'elsewhere.volumes'. A pack holds the values alone, so that
thousands of volumes travel in a few kilobytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elsewhere.errors import UserError
from elsewhere.inputs.tomosynthesis.cache import VERSION, VolumeCache
from elsewhere.inputs.tomosynthesis.volume import Box, Facts, Pixels, Stack, box_on_grid, stored_slices
from elsewhere.registry import Registry, function
from elsewhere.untrusted import read_json

SUFFIX = ".volume.json"
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How large a volume is, and where the breast lies in it.

    Attributes:
        shape: Rows, columns and slices, in the orientation that boxes refer to.
        breast: x0, y0, x1, y1 of the breast, half-open; what lies outside is not stored.
        side: "left" or "right": the edge that the breast touches.
        window: (low, high): the values that are shown black and white.
    """

    shape: tuple[int, int, int]
    breast: Box
    side: str
    window: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a format knows of a volume before its slices are made.

    Attributes:
        digest: What names its pixels: it is another one whenever the same values give other pixels.
        maker: The maker of the machine; "" where it is not known.
        extent: Finds out how large it is. The answer is kept with the cached slices.
        open: Prepares the volume, and returns a function from a slice's number to its pixels, [rows, columns].
    """

    digest: str
    maker: str
    extent: Callable[[], Extent]
    open: Callable[[], Callable[[int], Stack]]


Describe = Callable[[Mapping[str, Any]], Described]
"""A function of the values of a file. It raises `UserError` where one of them is missing or impossible."""
formats: Registry[Describe] = Registry(
    "volume format",
    group="elsewhere.volumes",
    builtin_modules=("elsewhere.phantom.tomosynthesis_on_demand",),
    check=function,
)
"""The formats of described volumes, by name."""


class DescribedVolume:
    """A volume that plain values describe. Its slices are made once; afterwards they are mapped from the cache.

    Args:
        content: The values; None where they stand in the file.
        where: The file, also for messages.
        cache: Where slices are kept.
        scale: Original pixels per stored pixel: 1, or more to store reduced slices.
    """

    def __init__(
        self, content: Mapping[str, Any] | None, *, where: Path, cache: VolumeCache, scale: int = 1
    ) -> None:
        self._given, self.where, self.cache, self.scale = content, where, cache, scale

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_described"}

    def reduced(self, scale: int) -> DescribedVolume:
        """Return the same volume with smaller stored slices.

        Args:
            scale: Original pixels per stored pixel, along each axis.

        Returns:
            The volume.
        """
        return DescribedVolume(self._given, where=self.where, cache=self.cache, scale=scale)

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """The values that describe it."""
        if self._given is not None:
            return self._given
        return read_json(self.where, most=_MOST_BYTES, what="description of a volume")

    @cached_property
    def _described(self) -> Described:
        name = self.content.get("format")
        if not isinstance(name, str):
            raise UserError(
                "the description of a volume does not say its format",
                where=str(self.where),
                fix=f'Write "format": one of {", ".join(formats.names())}.',
            )
        try:
            return formats.get(name)(self.content)
        except UserError as error:
            raise UserError(error.what, where=error.where or str(self.where), fix=error.fix) from error

    @cached_property
    def _facts(self) -> Facts:
        return self.cache.facts(self.digest(), self._examine)

    def _examine(self) -> Facts:
        extent, step = self._described.extent(), self.scale
        rows, columns, slices = extent.shape
        x0, y0, x1, y1 = box_on_grid(extent.breast, rows=rows, columns=columns, step=step)
        return Facts(
            shape=extent.shape,
            breast=(x0, y0, x1, y1),
            stored=(slices, -(-(y1 - y0) // step), -(-(x1 - x0) // step)),
            window=extent.window,
            window_from="header",
            side=extent.side,
            side_by_pixels=extent.side,
            turned=False,
            scale=float(step),
            identity=self._described.digest,
        )

    @property
    def maker(self) -> str:
        """The maker of the machine; "" where it is not known."""
        return self._described.maker

    def facts(self) -> Facts:
        """Return what is known of it beside its pixels.

        Returns:
            The facts; no slice is made for them.

        Raises:
            UserError: The file cannot be read, or a value is impossible.
        """
        return self._facts

    def stack(self) -> Stack:
        """Return the stored slices, mapped from the cache; the first time, all of them are made.

        Returns:
            [slices, rows, columns], read-only.

        Raises:
            UserError: The description is wrong, or the cache cannot be written.
        """
        facts = self.facts()

        def made() -> Any:
            pixels = Pixels(shape=facts.shape, read=self._described.open(), window=facts.window)
            return stored_slices(pixels, facts)

        return self.cache.stack(self.digest(), facts.stored, made)

    def digest(self) -> str:
        """Return what names its stored pixels.

        Returns:
            Hexadecimal sha256.
        """
        text = f"elsewhere-described-volume {VERSION} {self._described.digest} {self.scale}"
        return hashlib.sha256(text.encode()).hexdigest()
