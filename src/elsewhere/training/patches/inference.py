"""Many trained segmenters on the same patches: each patch is read and copied to the device once for all of them (LN-10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.errors import UserError
from elsewhere.networks.segmenters import Segmenter, build_segmenter
from elsewhere.training.cuda import (
    device_name,
    enable_determinism,
    mixed_precision,
    pad_to_cached_batch,
    select_device,
)
from elsewhere.training.patches.augment import to_input, unpack_bits
from elsewhere.training.patches.losses import hard_counts

GPU_BATCH, CPU_BATCH = 256, 16
"""Patches per forward pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedSegmenter:
    """A segmenter that was trained.

    Attributes:
        network: One of `networks.segmenters.SEGMENTERS`.
        weights: Its state dict.
        threshold: A pixel is called tumour above this probability.
    """

    network: str
    weights: Mapping[str, Any]
    threshold: float = 0.5


class SegmenterGroup:
    """Trained segmenters on one device.

    Args:
        models: The segmenters.
        device: "auto", "cpu", "cuda" or "cuda:N".

    Raises:
        UserError: There is no such device, or the weights are not those of the network.
    """

    def __init__(self, models: Sequence[TrainedSegmenter], *, device: str = "auto") -> None:
        self.device = select_device(device)
        enable_determinism()
        self._models = [(self._load(one), one.threshold) for one in models]

    def _load(self, one: TrainedSegmenter) -> Segmenter:
        model = build_segmenter(one.network)
        own = model.state_dict()
        if set(own) != set(one.weights) or any(own[name].shape != one.weights[name].shape for name in own):
            raise UserError(
                f"these weights are not those of a {one.network}",
                fix="Remove the model, and train it again.",
            )
        model.load_state_dict(dict(one.weights))
        model.to(self.device).eval()
        if self.device.type == "cuda":
            model.to(memory_format=torch.channels_last)
        return model

    def __len__(self) -> int:
        return len(self._models)

    @property
    def batch(self) -> int:
        """Patches per forward pass."""
        return GPU_BATCH if self.device.type == "cuda" else CPU_BATCH

    @torch.no_grad()
    def count(self, pixels: npt.NDArray[np.uint8], masks: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Compare the answers of all segmenters to some patches with their masks.

        Args:
            pixels: (n, size, size, 3), 8 bit.
            masks: (n, size * size / 8), one bit per pixel.

        Returns:
            (segmenters, n, 4) true positive, false positive, false negative, true negative pixels.

        Raises:
            UserError: The memory of the GPU is too small.
        """
        try:
            return self._count(pixels, masks)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"no memory left on {device_name(self.device)} for {len(self)} segmenters",
                fix="Free the GPU, or predict on the CPU.",
            ) from error

    def _count(self, pixels: npt.NDArray[np.uint8], masks: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        on_gpu = self.device.type == "cuda"
        size = self.batch
        found = torch.zeros((len(self), len(pixels), 4), dtype=torch.int64, device=self.device)
        for begin in range(0, len(pixels), size):
            held = [
                torch.from_numpy(np.ascontiguousarray(part[begin : begin + size])).to(self.device)
                for part in (pixels, masks)
            ]
            n = len(held[0])
            if on_gpu:
                held = [pad_to_cached_batch(part) for part in held]
            x, truth = to_input(held[0]), unpack_bits(held[1], pixels.shape[1])
            if on_gpu:
                x = x.contiguous(memory_format=torch.channels_last)
            for at, (model, threshold) in enumerate(self._models):
                with mixed_precision(self.device):
                    logits = model(x)
                found[at, begin : begin + n] = hard_counts(logits, truth, threshold)[:n]
        return np.asarray(found.cpu().numpy())

    @torch.no_grad()
    def probabilities(self, pixels: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.float32]]:
        """Compute the probability of tumour in every pixel, by each segmenter in turn.

        Args:
            pixels: (n, size, size, 3), 8 bit; few enough for one forward pass.

        Yields:
            (n, size, size) per segmenter.
        """
        x = to_input(torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device))
        if self.device.type == "cuda":
            x = x.contiguous(memory_format=torch.channels_last)
        for model, _ in self._models:
            with mixed_precision(self.device):
                logits = model(x)
            yield np.asarray(logits[:, 0].sigmoid().cpu().numpy())
