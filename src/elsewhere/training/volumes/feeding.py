"""Where a step finds its cases: all of them on the device, or those of this step copied there in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.training.volumes.patches import PatchDraws
from elsewhere.training.volumes.preparing import Prepared

SLOTS = 2


class Feed:
    """The cases of a step on the device, where all of them lie or those of the step are copied in time.

    `images` and `masks` are on the device either way, so that a captured step knows its addresses. From
    pinned memory the whole cases of the next step travel on a stream of their own while this step computes:
    two of 140 MB take 6 ms, a step ten times that.

    Args:
        data: The cases.
        batch: Patches per step.
    """

    def __init__(self, data: Prepared, batch: int) -> None:
        self.data, self.batch = data, batch
        self.streamed = not data.resident
        self.images, self.masks = data.images, data.masks
        if self.streamed:
            rows = SLOTS * batch * data.largest
            self.images = torch.zeros(
                (rows, data.images.shape[1]), dtype=data.images.dtype, device=data.device
            )
            self.masks = torch.zeros(rows, dtype=data.masks.dtype, device=data.device)
            self.stream: Any = torch.cuda.Stream(data.device)
            self.copied: list[Any] = [torch.cuda.Event() for _ in range(SLOTS)]
            self.used: list[Any] = [torch.cuda.Event() for _ in range(SLOTS)]
        self.draws: PatchDraws | None = None

    def offsets(self, draws: PatchDraws) -> npt.NDArray[np.int64]:
        """Return where each patch's case begins in `images`.

        Args:
            draws: The epoch's patches.

        Returns:
            [steps, batch].
        """
        if not self.streamed:
            return draws.offset
        places = np.arange(len(draws))[:, None] % SLOTS * self.batch + np.arange(self.batch)
        return places.astype(np.int64) * self.data.largest

    def start(self, draws: PatchDraws) -> None:
        """Start an epoch: the cases of its first step are copied.

        Args:
            draws: The epoch's patches.
        """
        self.draws = draws
        if self.streamed:
            self.stream.wait_stream(torch.cuda.current_stream(self.data.device))
            self._copy(0)

    def ready(self, step: int) -> None:
        """Wait until the cases of a step are on the device, and send the next ones.

        Args:
            step: The number of the step, from 0.
        """
        if not self.streamed or self.draws is None:
            return
        torch.cuda.current_stream(self.data.device).wait_event(self.copied[step % SLOTS])
        if step + 1 < len(self.draws):
            self._copy(step + 1)

    def done(self, step: int) -> None:
        """Mark that a step was launched, so that its memory may be written again after it.

        Args:
            step: The number of the step, from 0.
        """
        if self.streamed:
            self.used[step % SLOTS].record(torch.cuda.current_stream(self.data.device))

    def _copy(self, step: int) -> None:
        draws = self.draws
        if draws is None:
            return
        slot = step % SLOTS
        with torch.cuda.stream(self.stream):
            if step >= SLOTS:
                self.stream.wait_event(self.used[slot])
            for at in range(self.batch):
                start = int(draws.offset[step, at])
                size = int(draws.shape[step, at].prod())
                to = (slot * self.batch + at) * self.data.largest
                self.images[to : to + size].copy_(self.data.images[start : start + size], non_blocking=True)
                self.masks[to : to + size].copy_(self.data.masks[start : start + size], non_blocking=True)
            self.copied[slot].record(self.stream)
