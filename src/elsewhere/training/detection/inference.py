"""Prediction by a lesion finder: the probability of "lesion" in pictures, and boxes around it (US-33)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from elsewhere.inputs.boxes import Boxes, boxes_of_maps
from elsewhere.networks.finder import Finder
from elsewhere.training.cuda import mixed_precision, pad_to_cached_batch
from elsewhere.training.pictures.augment import plain
from elsewhere.training.pictures.crops import DevicePictures
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec

THRESHOLD = 0.5
"""A pixel at or above this probability is lesion; fixed, never tuned on a target."""
Rows = npt.NDArray[np.int64]


class FinderInference:
    """A finder and the device it runs on.

    Args:
        model: The network; it is moved to the device.
        recipe: `test_mirror`: average over a picture and its mirror image.
        device: A CPU or a GPU.
    """

    def __init__(self, model: Finder, recipe: ClassifierSettings, device: torch.device) -> None:
        self.recipe, self.device = recipe, device
        self.on_gpu = device.type == "cuda"
        self.model = model.to(device)
        if self.on_gpu:
            self.model.to(memory_format=torch.channels_last)

    @torch.no_grad()
    def probability(self, pixels: torch.Tensor, *, mirrored: bool = False) -> torch.Tensor:
        """Return the probability of "lesion" for every second pixel.

        Args:
            pixels: [pictures, size, size] bytes.
            mirrored: Average over the picture and its mirror image.

        Returns:
            [pictures, 1, size / 2, size / 2].
        """
        self.model.eval()
        x = plain(pad_to_cached_batch(pixels) if self.on_gpu else pixels)
        if self.on_gpu:
            x = x.contiguous(memory_format=torch.channels_last)
        with mixed_precision(self.device):
            logits = self.model(x).float()
            if mirrored:
                logits = (logits + self.model(x.flip(3)).flip(3).float()) / 2
        return torch.sigmoid(logits[: len(pixels)])

    def batches(self, rows: Rows) -> tuple[torch.Tensor, ...]:
        """Split rows into batches on the device.

        Args:
            rows: Cases.

        Returns:
            Their batches.
        """
        return torch.from_numpy(rows).to(self.device).split(256 if self.on_gpu else 16)

    def boxes(self, pictures: DevicePictures, spec: InputSpec, rows: Rows) -> Boxes:
        """Find a box in every picture.

        Args:
            pictures: The pictures, on the device.
            spec: The finder's input.
            rows: The cases.

        Returns:
            One box per case in its picture's pixels; zeros where nothing was found.
        """
        boxes = [np.zeros((0, 4), dtype=np.int32)]
        inputs = pictures.cut(spec)
        for batch in self.batches(rows):
            maps = self.probability(inputs.index_select(0, batch), mirrored=self.recipe.test_mirror)
            maps = functional.interpolate(
                maps, size=(spec.size_px, spec.size_px), mode="bilinear", align_corners=False
            )
            cases = batch.cpu().numpy()
            boxes.append(
                boxes_of_maps(
                    maps[:, 0].cpu().numpy(), THRESHOLD, pictures.width[cases], pictures.height[cases]
                )
            )
        return np.concatenate(boxes)
