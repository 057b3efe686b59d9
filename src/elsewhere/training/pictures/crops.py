"""Pictures on the device: decoded once, stored as bytes, cut and resized there (US-12, US-13)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from elsewhere.inputs import Cases
from elsewhere.inputs.pictures import decode_all
from elsewhere.training.pictures.settings import InputSpec, PictureReader

Window = tuple[int, int, int, int]


def crop_window(
    box: Sequence[int] | npt.NDArray[np.int32], width: int, height: int, margin: float
) -> tuple[Window, bool]:
    """Return the lesion crop, and whether it fell back to the whole picture (US-13).

    The box grows on each side by `margin` times its larger side and is clipped to the picture. A box that is
    empty, or that lies outside the picture, gives the whole picture.

    Args:
        box: x0, y0, x1, y1 in pixels; x1 and y1 are outside.
        width: The width of the picture in pixels.
        height: The height of the picture in pixels.
        margin: Times the box's larger side.

    Returns:
        The window (x0, y0, x1, y1), and True where it is the whole picture.

    Example:
        >>> crop_window((40, 40, 60, 50), 100, 100, 0.1)
        ((38, 38, 62, 52), False)
    """
    x0, y0, x1, y1 = (int(v) for v in box)
    whole = (0, 0, width, height)
    if x1 <= x0 or y1 <= y0 or x0 >= width or y0 >= height or x1 <= 0 or y1 <= 0:
        return whole, True
    grow = margin * max(x1 - x0, y1 - y0)
    window = (
        max(0, math.floor(x0 - grow)),
        max(0, math.floor(y0 - grow)),
        min(width, math.ceil(x1 + grow)),
        min(height, math.ceil(y1 + grow)),
    )
    return window, False


class DevicePictures:
    """All pictures as one flat array of bytes on the device, and what was cut from them.

    Resizing is bilinear with antialiasing, once per picture and input; the training loop only indexes.

    Args:
        cases: Their boxes.
        pictures: Their files and masks.
        device: Where the bytes go.
        threads: That decode; None: as many as the machine has.
        rows: Cases to decode; None: all.

    Attributes:
        height: The height of every case's picture in pixels; 0 where it was not decoded.
        width: Likewise.
    """

    def __init__(
        self,
        cases: Cases,
        pictures: PictureReader,
        *,
        device: torch.device,
        threads: int | None = None,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self.cases = cases
        self.device = device
        self._pictures = pictures
        wanted = np.arange(len(cases)) if rows is None else np.unique(rows)
        decoded = decode_all(pictures.grey, [cases.case[r] for r in wanted], threads=threads)
        self.height = np.zeros(len(cases), dtype=np.int64)
        self.width = np.zeros(len(cases), dtype=np.int64)
        self._start = np.full(len(cases), -1, dtype=np.int64)
        sizes = np.array([picture.size for picture in decoded], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        flat = np.empty(int(starts[-1]), dtype=np.uint8)
        for row, picture, start in zip(wanted, decoded, starts, strict=False):
            self.height[row], self.width[row] = picture.shape
            self._start[row] = start
            flat[start : start + picture.size] = picture.reshape(-1)
        self._flat = torch.from_numpy(flat).to(device)
        self._cut: dict[InputSpec, torch.Tensor] = {}
        self._outline: dict[InputSpec, torch.Tensor] = {}

    def picture(self, row: int) -> torch.Tensor:
        """Return one picture.

        Args:
            row: The case.

        Returns:
            [height, width] bytes on the device.
        """
        h, w, start = int(self.height[row]), int(self.width[row]), int(self._start[row])
        return self._flat[start : start + h * w].view(h, w)

    def window(self, row: int, spec: InputSpec, box: npt.NDArray[np.int32] | None = None) -> Window:
        """Return the part of a picture that a network sees.

        Args:
            row: The case.
            spec: The whole picture, or a crop with a margin.
            box: Another box than the annotated one.

        Returns:
            x0, y0, x1, y1.
        """
        h, w = int(self.height[row]), int(self.width[row])
        if spec.kind != "roi":
            return (0, 0, w, h)
        return crop_window(self.cases.box[row] if box is None else box, w, h, spec.margin)[0]

    def cut(self, spec: InputSpec) -> torch.Tensor:
        """Return every picture as this input; made at the first call and stored.

        Args:
            spec: What the network sees, and its size.

        Returns:
            [cases, size, size] bytes; zeros where a case was not decoded.
        """
        if spec not in self._cut:
            size = spec.size_px
            inputs = torch.zeros((len(self.cases), size, size), dtype=torch.uint8, device=self.device)
            for row in np.flatnonzero(self._start >= 0).tolist():
                inputs[row] = resize(self.picture(row), self.window(row, spec), size)
            self._cut[spec] = inputs
        return self._cut[spec]

    def cut_boxes(
        self, spec: InputSpec, rows: npt.NDArray[np.int64], boxes: npt.NDArray[np.int32]
    ) -> torch.Tensor:
        """Return some pictures as this input, cut at other boxes than the annotated ones (US-33); not stored.

        Args:
            spec: What the network sees, and its size.
            rows: The cases.
            boxes: One per case.

        Returns:
            [rows, size, size] bytes.
        """
        return torch.stack(
            [
                resize(self.picture(row), self.window(row, spec, box), spec.size_px)
                for row, box in zip(rows.tolist(), boxes, strict=True)
            ]
        )

    def outline(self, spec: InputSpec) -> torch.Tensor:
        """Return every lesion mask, cut as `cut` cuts the pictures; made at the first call and stored.

        Args:
            spec: What the network sees, and its size.

        Returns:
            [cases, size, size] bytes; zeros where there is no mask.
        """
        if spec not in self._outline:
            size = spec.size_px
            inputs = torch.zeros((len(self.cases), size, size), dtype=torch.uint8, device=self.device)
            for row in np.flatnonzero(self._start >= 0).tolist():
                name = self.cases.case[row]
                if self._pictures.has_mask(name):
                    mask = self._pictures.mask(name, (int(self.height[row]), int(self.width[row])))
                    on_device = torch.from_numpy(mask.astype(np.uint8) * 255).to(self.device)
                    inputs[row] = resize(on_device, self.window(row, spec), size)
            self._outline[spec] = inputs
        return self._outline[spec]


def resize(picture: torch.Tensor, window: Window, size_px: int) -> torch.Tensor:
    """Return a window of a picture at the network's size; bilinear, antialiased.

    Args:
        picture: [height, width] bytes.
        window: x0, y0, x1, y1.
        size_px: The side of the result.

    Returns:
        [size, size] bytes.
    """
    x0, y0, x1, y1 = window
    part = picture[y0:y1, x0:x1].to(torch.float32)[None, None]
    small = functional.interpolate(
        part, size=(size_px, size_px), mode="bilinear", align_corners=False, antialias=True
    )
    return small[0, 0].round_().clamp_(0, 255).to(torch.uint8)
