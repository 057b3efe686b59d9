"""The slices of a training, on the device as bytes: no step waits for the host or a file.

Slices differ in size, so that all of them lie one after the other in one flat tensor. A step takes a tile of each by four
reads per pixel (bilinear), through a matrix that places, turns and zooms it: cutting out and augmenting are one pass.

Right breasts are mirrored when they are stored, so that a detector sees breasts from one side alone, and boxes are
mirrored back exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from elsewhere.training.cuda_options import cuda_options
from elsewhere.training.detection.views import VolumeView

FloatArray = npt.NDArray[np.float64]
_RAW_BYTES = {torch.uint8: 255.0, torch.int16: 32767.0}


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """How slices are stored.

    Args:
        pixel: Pixels of the volume per pixel that a detector sees: 2 is half size. Stored pixels are never
            larger than that, unless the view's own are.
        deep: Two bytes per pixel instead of one.
        mirror: Right breasts are mirrored.
        memory_share: The largest share of the device's free memory; with more, slices stay in the host's memory.
    """

    pixel: float = 2.0
    deep: bool = False
    mirror: bool = True
    memory_share: float = 0.6


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Where the stored pixels of a case lie in its volume.

    Args:
        x: The breast's left edge in the volume.
        y: The breast's upper edge in the volume.
        width: Columns of the volume that the stored slices cover.
        pixel: Pixels of the volume per stored pixel.
        mirrored: Whether stored columns run from right to left.
    """

    x: float
    y: float
    width: float
    pixel: float
    mirrored: bool

    def to_stored(self, box: npt.ArrayLike) -> FloatArray:
        """Return boxes of the volume in stored pixels.

        Args:
            box: (..., 4) x0, y0, x1, y1.

        Returns:
            As `box`.

        Example:
            >>> frame = Frame(x=10, y=0, width=100, pixel=2, mirrored=True)
            >>> frame.to_stored([10, 4, 30, 8]).tolist()
            [40.0, 2.0, 50.0, 4.0]
        """
        moved = (np.asarray(box, dtype=np.float64) - [self.x, self.y, self.x, self.y]) / self.pixel
        return self._mirror(moved)

    def to_volume(self, box: npt.ArrayLike) -> FloatArray:
        """Return boxes of stored pixels in pixels of the volume.

        Args:
            box: (..., 4) x0, y0, x1, y1.

        Returns:
            As `box`.
        """
        moved = self._mirror(np.asarray(box, dtype=np.float64)) * self.pixel
        moved += [self.x, self.y, self.x, self.y]
        return moved

    def _mirror(self, box: FloatArray) -> FloatArray:
        if not self.mirrored:
            return box.copy()
        out = box.copy()
        out[..., 0], out[..., 2] = (
            self.width / self.pixel - box[..., 2],
            self.width / self.pixel - box[..., 0],
        )
        return out


class DeviceSlices:
    """Slices of several cases, stored on a device.

    Args:
        view: The volumes.
        slices: Case and position of each slice; doubles are stored once.
        settings: How they are stored.
        device: Where.
        neighbours: Store the slices before and after each one too, as its other channels.

    Attributes:
        frame: Where stored pixels lie, by case.
        on_device: Whether they fit on the device.
    """

    def __init__(
        self,
        view: VolumeView,
        slices: Iterable[tuple[str, int]],
        settings: StorageSettings,
        device: torch.device,
        *,
        neighbours: bool = True,
    ) -> None:
        self.settings, self.device, self._neighbours = settings, device, neighbours
        self._dtype = torch.int16 if settings.deep else torch.uint8
        wanted: dict[str, set[int]] = {}
        for case, z in slices:
            last = view.shape(case)[2] - 1
            near = (max(0, z - 1), z, min(last, z + 1)) if neighbours else (z,)
            wanted.setdefault(case, set()).update(near)
        self._turn = 0
        if device.type == "cuda":
            self._buffers = [(torch.empty(0, dtype=torch.int16), torch.cuda.Event()) for _ in range(2)]
        self.frame: dict[str, Frame] = {}
        self._size: dict[str, tuple[int, int]] = {}
        self._step: dict[str, int] = {}
        for case in wanted:
            self._measure(view, case, min(wanted[case]))
        total = sum(len(found) * self._size[case][0] * self._size[case][1] for case, found in wanted.items())
        self.on_device = self._fits(total)
        self._flat = torch.zeros(total + 1, dtype=self._dtype, device=device if self.on_device else "cpu")
        self._row: dict[tuple[str, int], int] = {}
        starts: list[int] = []
        sizes: list[tuple[int, int]] = []
        at = 0
        for case, found in wanted.items():
            rows, columns = self._size[case]
            for z in sorted(found):
                stored = self._read(view, case, z)
                self._flat[at : at + rows * columns] = stored.reshape(-1)
                self._row[case, z] = len(starts)
                starts.append(at)
                sizes.append((rows, columns))
                at += rows * columns
        where = self._flat.device
        self._start = torch.tensor(starts, dtype=torch.int64, device=where)
        self._shape = torch.tensor(sizes, dtype=torch.int64, device=where).reshape(-1, 2)
        self._channels = torch.tensor(self._channel_rows(), dtype=torch.int64, device=where).reshape(-1, 3)

    def _measure(self, view: VolumeView, case: str, z: int) -> None:
        x0, y0, _, _ = view.breast(case)
        scale = float(view.scale(case))
        rows, columns = view.slice(case, z).shape
        step = max(1, int(self.settings.pixel / scale + 1e-6))
        step = max(1, min(step, rows, columns))
        mirrored = self.settings.mirror and view.side(case) == "right"
        self._step[case], self._size[case] = step, (rows // step, columns // step)
        self.frame[case] = Frame(
            x=float(x0), y=float(y0), width=columns * scale, pixel=scale * step, mirrored=mirrored
        )

    def _fits(self, pixels: int) -> bool:
        if self.device.type != "cuda":
            return True
        free = torch.cuda.mem_get_info(self.device)[0]
        return pixels * self._dtype.itemsize <= self.settings.memory_share * free

    def _read(self, view: VolumeView, case: str, z: int) -> torch.Tensor:
        """A slice, windowed, mirrored and reduced, as whole numbers."""
        low, high = view.window(case)
        values = self._upload(view.slice(case, z))
        values = ((values - low) / max(high - low, 1e-6)).clamp(0, 1)
        if self.frame[case].mirrored:
            values = values.flip(1)
        step = self._step[case]
        if step > 1:
            values = functional.avg_pool2d(values[None, None], step)[0, 0]
        return (values * _RAW_BYTES[self._dtype]).round().to(self._dtype).to(self._flat.device)

    def _upload(self, raw: npt.NDArray[Any]) -> torch.Tensor:
        """A slice on the device. On a GPU it goes through one of two pinned buffers, so that reading the next slice
        does not wait for the copy; two bytes per pixel travel."""
        if raw.dtype != np.uint16:
            return torch.from_numpy(np.array(raw, dtype=np.float32)).to(self.device)
        if self.device.type != "cuda":
            return torch.from_numpy(raw.astype(np.float32))
        buffer, copied = self._buffers[self._turn % 2]
        self._turn += 1
        copied.synchronize()
        if buffer.numel() < raw.size:
            buffer = torch.empty(raw.size, dtype=torch.int16, pin_memory=True)
            self._buffers[(self._turn - 1) % 2] = (buffer, copied)
        held = buffer[: raw.size].view(raw.shape)
        np.copyto(held.numpy().view(np.uint16), raw)
        there = held.to(self.device, non_blocking=True)
        copied.record(torch.cuda.current_stream(self.device))
        return (there.to(torch.int32) & 0xFFFF).float()

    def _channel_rows(self) -> list[tuple[int, int, int]]:
        if not self._neighbours:
            return [(row, row, row) for row in self._row.values()]
        return [
            (self._row.get((case, z - 1), row), row, self._row.get((case, z + 1), row))
            for (case, z), row in self._row.items()
        ]

    def rows(self, slices: Sequence[tuple[str, int]]) -> npt.NDArray[np.int64]:
        """Return where slices are stored.

        Args:
            slices: Case and position of each slice.

        Returns:
            (n,) rows.

        Raises:
            KeyError: A slice was not stored.
        """
        return np.array([self._row[case, int(z)] for case, z in slices], dtype=np.int64)

    def size(self, case: str) -> tuple[int, int]:
        """Return how large the stored slices of a case are.

        Args:
            case: The case.

        Returns:
            Rows and columns.
        """
        return self._size[case]

    def zoom(self, case: str) -> float:
        """Return how many stored pixels of a case a detector's pixel covers.

        Args:
            case: The case.

        Returns:
            1 where they are the same; below 1 where stored pixels are larger.
        """
        return self.settings.pixel / self.frame[case].pixel

    def tiles(self, row: torch.Tensor, matrix: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """Take a tile of each of some slices.

        Args:
            row: (n,) rows of slices.
            matrix: (n, 2, 3) from a tile's pixel coordinates (x, y, 1), where a pixel's centre is at its position
                plus a half, to stored coordinates.
            height: Rows of the tiles.
            width: Columns of the tiles.

        Returns:
            (n, 3, height, width) from 0 to 1; 0 outside of the slice.
        """
        where = self._flat.device
        row, matrix = row.to(where), matrix.to(where, torch.float32)
        y = torch.arange(height, device=where, dtype=torch.float32)[:, None] + 0.5
        x = torch.arange(width, device=where, dtype=torch.float32)[None] + 0.5
        place = [
            matrix[:, axis, 0, None, None] * x
            + matrix[:, axis, 1, None, None] * y
            + matrix[:, axis, 2, None, None]
            - 0.5
            for axis in (0, 1)
        ]
        low = [part.floor() for part in place]
        share = [part - whole for part, whole in zip(place, low, strict=True)]
        rows = self._channels[row]
        shape = self._shape[row]
        out = torch.zeros(len(row), 3, height, width, device=where)
        same = not self._neighbours
        for dy in (0, 1):
            for dx in (0, 1):
                at_x, at_y = (low[0] + dx).long(), (low[1] + dy).long()
                inside = (at_x >= 0) & (at_y >= 0)
                inside &= (at_x < shape[:, 1, None, None]) & (at_y < shape[:, 0, None, None])
                weight = (share[0] if dx else 1 - share[0]) * (share[1] if dy else 1 - share[1])
                weight = weight * inside
                index = at_y * shape[:, 1, None, None] + at_x
                for channel in range(1 if same else 3):
                    start = self._start[rows[:, channel]][:, None, None]
                    flat = torch.where(inside, start + index, len(self._flat) - 1)
                    out[:, channel] += weight * self._flat[flat]
        if same:
            out[:, 1:] = out[:, :1]
        return (out / _RAW_BYTES[self._dtype]).to(self.device)


def as_the_device_reads(pictures: torch.Tensor) -> torch.Tensor:
    """Return pictures in the layout that the device's convolutions read.

    Args:
        pictures: (n, channels, height, width).

    Returns:
        The same values; on a GPU with the channels of a pixel next to each other.
    """
    if pictures.is_cuda and cuda_options().channels_last:
        return pictures.contiguous(memory_format=torch.channels_last)
    return pictures


def lay_out(model: torch.nn.Module) -> torch.nn.Module:
    """Bring a network's weights into the layout that goes with `as_the_device_reads`.

    Args:
        model: The network, on its device.

    Returns:
        The same network.
    """
    on_gpu = any(value.is_cuda for value in model.parameters())
    if on_gpu and cuda_options().channels_last:
        model.to(memory_format=torch.channels_last)
    return model
