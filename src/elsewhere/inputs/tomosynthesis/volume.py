"""What is known of one tomosynthesis volume beside its pixels, and what every kind of volume can be asked.

Coordinates are always pixels of the repaired original volume: x counts columns, y rows, z slices from 0. Slices are
stored cropped to the breast's box, and may be stored at a lower resolution: `scale` original pixels are one stored
pixel along each axis.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elsewhere.inputs.tomosynthesis.breast import SAMPLES, block_means, find_breast, side_of
from elsewhere.inputs.tomosynthesis.orientation import repair, repair_box

Box = tuple[int, int, int, int]
Stack = npt.NDArray[np.uint16]
SIDES = ("left", "right", "")
FINDINGS = ("normal", "actionable", "benign", "cancer")


@dataclass(frozen=True, kw_only=True)
class Lesion:
    """An annotated lesion on its central slice.

    Attributes:
        x: The first column of its box, in pixels of the repaired original volume.
        y: The first row.
        width: The columns of the box.
        height: Its rows.
        slice: The central slice, from 0.
        kind: "benign" or "cancer"; "" where it is not known.
        distortion: Whether it is an architectural distortion; None where it is not known.
    """

    x: float
    y: float
    width: float
    height: float
    slice: int
    kind: str = ""
    distortion: bool | None = None

    @property
    def box(self) -> tuple[float, float, float, float]:
        """x0, y0, x1, y1, half-open."""
        return self.x, self.y, self.x + self.width, self.y + self.height


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What the experts say of a volume.

    Attributes:
        lesions: Its annotated lesions, in the order of the table; None where nobody annotated.
        finding: The finding of the whole volume, one of `FINDINGS`; "" where it is not known.
    """

    lesions: tuple[Lesion, ...] | None = None
    finding: str = ""

    def digest(self) -> str:
        """Return what names this truth in a training's key.

        Returns:
            Hexadecimal sha256; "" where nothing is known.
        """
        if self.lesions is None and not self.finding:
            return ""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the truth as plain values.

        Returns:
            For JSON.
        """
        listed = None if self.lesions is None else [asdict(lesion) for lesion in self.lesions]
        return {"lesions": listed, "finding": self.finding}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Truth:
        """Read what `to_dict` made.

        Args:
            content: Plain values.

        Returns:
            The truth.

        Example:
            >>> Truth.from_dict(Truth(finding="normal", lesions=()).to_dict())
            Truth(lesions=(), finding='normal')
        """
        listed = content["lesions"]
        lesions = None if listed is None else tuple(Lesion(**entry) for entry in listed)
        return cls(lesions=lesions, finding=str(content["finding"]))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a volume beside its pixels.

    Attributes:
        shape: Rows, columns and slices of the repaired original volume.
        breast: x0, y0, x1, y1 of the stored part, in original pixels, half-open.
        stored: Slices, rows and columns as they are stored: the breast's box at the stored resolution.
        window: (low, high): the values that are shown black and white.
        window_from: "header", or "percentiles" of the breast where the header has no usable window.
        side: "left" or "right": the edge that the breast touches in the repaired volume; "" where it cannot be told.
        side_by_pixels: The same before repair.
        turned: Whether the pixels were turned by 180 degrees.
        scale: Original pixels per stored pixel along each axis.
        identity: A digest that the same pixels have whatever their header, encoding or orientation.
        notes: What a reader should know, as sentences.
    """

    shape: tuple[int, int, int]
    breast: Box
    stored: tuple[int, int, int]
    window: tuple[float, float]
    window_from: str
    side: str
    side_by_pixels: str
    turned: bool
    scale: float
    identity: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values.

        Returns:
            For JSON.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Facts:
        """Read what `to_dict` made.

        Args:
            content: Plain values.

        Returns:
            The facts.

        Raises:
            ValueError: A value is impossible.
            KeyError: A value is missing.
        """
        rows, columns, slices = (int(number) for number in content["shape"])
        x0, y0, x1, y1 = (int(number) for number in content["breast"])
        depth, tall, wide = (int(number) for number in content["stored"])
        low, high = (float(number) for number in content["window"])
        if not (0 <= x0 < x1 <= columns and 0 <= y0 < y1 <= rows and slices > 0):
            raise ValueError("the box of the breast does not lie in the volume")
        if depth != slices or not 0 < tall <= rows or not 0 < wide <= columns:
            raise ValueError("the stored slices are of another shape than the volume")
        return cls(
            shape=(rows, columns, slices),
            breast=(x0, y0, x1, y1),
            stored=(depth, tall, wide),
            window=(low, high),
            window_from=str(content["window_from"]),
            side=str(content["side"]),
            side_by_pixels=str(content["side_by_pixels"]),
            turned=bool(content["turned"]),
            scale=float(content["scale"]),
            identity=str(content["identity"]),
            notes=tuple(map(str, content["notes"])),
        )


class Volume(Protocol):
    """A volume that a source holds, whatever it comes from."""

    def facts(self) -> Facts:
        """Return what is known of it beside its pixels.

        Returns:
            The facts.
        """

    def stack(self) -> Stack:
        """Return the stored slices.

        Returns:
            [slices, rows, columns] of the breast's box, read-only; mapped from a file where it can be.
        """

    def digest(self) -> str:
        """Return what names what a recipe is given of it.

        Returns:
            Hexadecimal sha256.
        """


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """How the slices of a volume are read, in the orientation of their file.

    Attributes:
        shape: Rows, columns and slices.
        read: A function from the number of a slice to its pixels, [rows, columns], bright where dense.
        window: The window that the file states; None where it states no usable one.
        notes: What a reader should know, as sentences.
        threads: How many slices may be decoded at one time, so that a volume takes less than 150 MB.
    """

    shape: tuple[int, int, int]
    read: Callable[[int], Stack]
    window: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    threads: int = 1


def examine(pixels: Pixels, *, side_by_name: str = "", scale: int = 1) -> Facts:
    """Find out what is known of a volume from a few of its slices: side, repair, box of the breast, window, identity.

    The volume is turned where the side that the pixels show differs from the one that the view's name states (DBT-01a);
    where one of them is not known, it stays as it is.

    Args:
        pixels: How its slices are read.
        side_by_name: "left" or "right" by the name of the view; "" where it is not known.
        scale: Original pixels per stored pixel.

    Returns:
        The facts.
    """
    rows, columns, slices = pixels.shape
    middle = {slices // 2, (slices - 1) // 2}
    prints = []
    side = ""

    def samples() -> Iterator[Stack]:
        nonlocal side
        for z in sorted(middle | {min(slices - 1, int(share * slices)) for share in SAMPLES}):
            one = pixels.read(z)
            if z in middle:
                prints.append(_value_counts(one))
            if z == slices // 2:
                side = side_of(one)
            yield one

    breast = find_breast(samples())
    turned = bool(side and side_by_name and side != side_by_name)
    box = repair_box(breast.box, rows=rows, columns=columns) if turned else breast.box
    box = box_on_grid(box, rows=rows, columns=columns, step=scale)
    notes = list(pixels.notes)
    if pixels.window is None:
        notes.append("the header states no usable window: it was taken from the percentiles of the breast")
    if not side:
        notes.append("on which side the breast lies cannot be told from the pixels")
    if turned:
        notes.append(
            f"the pixels show a {side} breast and the view is a {side_by_name} one: turned by 180 degrees"
        )
    tall, wide = -(-(box[3] - box[1]) // scale), -(-(box[2] - box[0]) // scale)
    return Facts(
        shape=pixels.shape,
        breast=box,
        stored=(slices, tall, wide),
        window=pixels.window or (breast.low, breast.high),
        window_from="header" if pixels.window else "percentiles",
        side=side_by_name if turned else side,
        side_by_pixels=side,
        turned=turned,
        scale=float(scale),
        identity=_identity(pixels.shape, prints),
        notes=tuple(notes),
    )


def stored_slices(pixels: Pixels, facts: Facts) -> Iterator[Stack]:
    """Read all slices one after another as they are stored: repaired, cropped to the breast, reduced.

    Args:
        pixels: How its slices are read.
        facts: What `examine` found.

    Yields:
        [rows, columns] of each slice.
    """
    x0, y0, x1, y1 = facts.breast
    step = round(facts.scale)

    def one(z: int) -> Stack:
        part = pixels.read(z)
        part = (repair(part) if facts.turned else part)[y0:y1, x0:x1]
        return np.rint(block_means(part, step)).astype(np.uint16) if step > 1 else part

    yield from _ahead(one, facts.shape[2], pixels.threads)


def _ahead(read: Callable[[int], Stack], count: int, threads: int) -> Iterator[Stack]:
    """Read slices in threads, which decoders allow, with no more of them in memory than there are threads."""
    if threads == 1 or count < 2 * threads:
        yield from map(read, range(count))
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting = deque(pool.submit(read, z) for z in range(threads))
        try:
            for z in range(count):
                slice_ = waiting.popleft().result()
                if z + threads < count:
                    waiting.append(pool.submit(read, z + threads))
                yield slice_
        finally:
            for future in waiting:
                future.cancel()


def _value_counts(pixels: Stack) -> str:
    """A digest of how often each value occurs; rows are counted in parts, since counting widens the values."""
    counts = np.zeros(1 << 16, dtype="<i8")
    for row in range(0, len(pixels), 256):
        counts += np.bincount(pixels[row : row + 256].ravel(), minlength=1 << 16)
    return hashlib.sha256(counts.tobytes()).hexdigest()


def _identity(shape: tuple[int, int, int], prints: Iterable[str]) -> str:
    """The values of the middle slices, whatever their order and orientation (US-30)."""
    text = f"elsewhere-tomosynthesis-pixels-1 {shape} {sorted(prints)}"
    return hashlib.sha256(text.encode()).hexdigest()


def box_on_grid(box: Box, *, rows: int, columns: int, step: int) -> Box:
    """Widen a box so that it starts at a multiple of a step, and has a multiple of it as its size unless the edge cuts.

    Args:
        box: x0, y0, x1, y1, half-open.
        rows: Rows of the slice.
        columns: Columns of the slice.
        step: Original pixels per stored pixel.

    Returns:
        The box.

    Example:
        >>> box_on_grid((3, 4, 10, 9), rows=9, columns=30, step=4)
        (0, 4, 12, 9)
    """
    x0, y0 = box[0] // step * step, box[1] // step * step
    return x0, y0, min(columns, -(-box[2] // step) * step), min(rows, -(-box[3] // step) * step)
