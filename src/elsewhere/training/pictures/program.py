"""One picture classifier, its optimiser and its training step on one stream, used by many trainings.

On a GPU the step is recorded once as a CUDA graph. It reads its position in the epoch from a counter on the
device, so that replaying it needs nothing from the host. Between two trainings the weights, the optimiser's
state and the pictures are written into the same memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.networks import NETWORKS
from elsewhere.networks.classifiers import build_network, cross_entropy, mix_style
from elsewhere.training.cuda import capture_step, mixed_precision, pad_to_cached_batch, strict_determinism
from elsewhere.training.fused_vit import FusedTransformerStep, available
from elsewhere.training.loop import BestWeights
from elsewhere.training.pictures.augment import augment, plain
from elsewhere.training.pictures.batchnorm import batchnorm_layers, momentum, statistics_of_first
from elsewhere.training.pictures.draws import JITTERS, EpochDraws, noise_fields
from elsewhere.training.pictures.multi_source import combine_losses
from elsewhere.training.pictures.settings import ClassifierSettings, PictureTraining
from elsewhere.training.pictures.step import AutogradStep, TrainingStep


def program_key(unit: PictureTraining, batch: int) -> tuple[Any, ...]:
    """Return what two trainings must have in common to share a recorded step.

    Args:
        unit: A training.
        batch: Pictures per step.

    Returns:
        A key without everything that the step reads from memory: rates, numbers of epochs, ranges of
        augmentations.
    """
    common = replace(
        unit.recipe,
        weights="",
        weights_digest="",
        learning_rate=0.0,
        epochs=0,
        patience=0,
        mirror=True,
        rotate_degrees=0.0,
        shift_px=0.0,
        scale=(1.0, 1.0),
        oversample=True,
        balance_datasets=False,
        schedule="",
        keep="",
        batch_statistics="",
        test_mirror=False,
        batch=batch,
    )
    return (common, unit.input.size_px, unit.input.outline)


class Program:
    """Static memory, a network, and one training step.

    Args:
        unit: A training that the program is made for; see `program_key` for the others it serves.
        batch: Pictures per step.
        images: PictureTraining pictures at most.
        steps: Steps per epoch at most.
        groups: Sources at most.
        device: Where it trains.

    Attributes:
        model: The classifier.
        best: The weights of the best epoch.
        loss_sum: The sum of the losses of this epoch's steps, on the device.
        images_seen: Pictures that went through a training step since `start`.
        is_conv: A convolutional network, whose maps lie with their channels last.
    """

    def __init__(
        self,
        unit: PictureTraining,
        *,
        batch: int,
        images: int,
        steps: int,
        groups: int,
        device: torch.device,
    ) -> None:
        recipe, size = unit.recipe, unit.input.size_px
        self.recipe: ClassifierSettings = recipe
        self.device = device
        self.on_gpu = device.type == "cuda"
        self.batch = batch
        with torch.device(device):
            self.model = build_network(recipe.network, size_px=size, dropout=recipe.dropout, seed=0)
        self.is_conv = NETWORKS[recipe.network].last_conv is not None
        if self.is_conv:
            self.model.to(memory_format=torch.channels_last)
        self._update = self._training_step()
        self._images = torch.zeros((images, size, size), dtype=torch.uint8, device=device)
        self._outlines = torch.zeros_like(self._images) if unit.input.outline else None
        self._label = torch.zeros(images, dtype=torch.int64, device=device)
        self._group = torch.zeros(images, dtype=torch.int64, device=device)
        self._order = torch.zeros((steps, batch), dtype=torch.int64, device=device)
        self._affine = torch.zeros((steps, batch, 2, 3), device=device)
        self._affine[..., 0, 0] = self._affine[..., 1, 1] = 1.0
        self._jitter = torch.zeros((steps, batch, JITTERS), device=device)
        self._dropout_mask = torch.ones(
            (steps, batch, self.model.features if recipe.dropout else 0), dtype=torch.bool, device=device
        )
        self._mix_partner = torch.zeros((steps, batch), dtype=torch.int64, device=device)
        self._mix_weight = torch.ones((steps, batch), device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._group_weight = torch.full((groups,), 1.0 / groups, device=device)
        self._noise = noise_fields(size, device) if recipe.noise else None
        self._graph: Any = None
        self.loss_sum = torch.zeros((), device=device)
        self.best = BestWeights(self.model, allocate=True)
        self.images_seen = 0

    def _training_step(self) -> TrainingStep:
        rule = {"gradient_norm": self.recipe.gradient_norm, "weight_decay": self.recipe.weight_decay}
        if NETWORKS[self.recipe.network].is_vision_transformer and available(self.device):
            body: Any = self.model.body
            return FusedTransformerStep(body.vit, self.model.head.parameters(), **rule)
        return AutogradStep(self.model, **rule)

    def _step(self) -> None:
        at = self._position
        rows = self._order.index_select(0, at)[0]
        x = augment(
            self._images.index_select(0, rows),
            self._affine.index_select(0, at)[0],
            self._jitter.index_select(0, at)[0],
            self.recipe,
            self._noise,
            None if self._outlines is None else self._outlines.index_select(0, rows),
        )
        if self.is_conv:
            x = x.contiguous(memory_format=torch.channels_last)
        label = self._label.index_select(0, rows)
        mask = self._dropout_mask.index_select(0, at)[0] if self.recipe.dropout else None
        if self.recipe.method == "mixstyle":
            partner = self._mix_partner.index_select(0, at)[0]
            weight = self._mix_weight.index_select(0, at)[0]
            self.model.style = lambda value: mix_style(value, partner, weight)
        with mixed_precision(self.device):
            features = self._update.features(x)
            if mask is not None:
                dropped = features * mask.to(features.dtype) / (1.0 - self.recipe.dropout)
            else:
                dropped = features
            logits = self.model.head(dropped)
        self.model.style = None
        losses = cross_entropy(logits, label, smoothing=self.recipe.label_smoothing)
        group = self._group.index_select(0, rows)
        combine_losses(self.recipe, losses, features, group, self._group_weight).backward()
        self._update.step()
        self.loss_sum += losses.detach().mean()
        self._position += 1

    def _reset_step(self) -> None:
        self._update.zero_gradients()
        self._position.zero_()

    def capture(self, stream: Any) -> None:
        """Record the step on a GPU; do nothing on a CPU. The weights change: `start` writes them again.

        Args:
            stream: The stream that the program trains on.
        """
        if not self.on_gpu or self._graph is not None:
            return
        self.model.train()
        with nullcontext() if self.is_conv else strict_determinism():
            self._graph = capture_step(self._step, reset=self._reset_step, stream=stream)

    def start(
        self,
        state: dict[str, torch.Tensor],
        images: torch.Tensor,
        outlines: torch.Tensor | None,
        label: npt.NDArray[np.int64],
        group: npt.NDArray[np.int64],
    ) -> None:
        """Start a training: its first weights, an optimiser without moments, and its training part.

        Args:
            state: The state dict to start with.
            images: The training pictures, [pictures, size, size] bytes.
            outlines: Their lesion masks, where the input has them.
            label: 0 benign, 1 malignant, one per picture.
            group: The source of every picture, from 0.
        """
        own = self.model.state_dict(keep_vars=False)
        for name, tensor in own.items():
            tensor.copy_(state[name])
        self._update.reset()
        n = len(label)
        self._images[:n].copy_(images)
        if self._outlines is not None and outlines is not None:
            self._outlines[:n].copy_(outlines)
        self._label[:n].copy_(torch.from_numpy(label))
        self._group[:n].copy_(torch.from_numpy(group))
        # The program may be wider than this training: a source that it does not have must weigh nothing.
        groups = int(group.max()) + 1
        self._group_weight.zero_()
        self._group_weight[:groups].fill_(1.0 / groups)
        self.images_seen = 0

    def epoch(
        self, draws: EpochDraws, rate: float, generator: torch.Generator, chunk: int = 8
    ) -> Iterator[None]:
        """Launch the steps of an epoch.

        Args:
            draws: The epoch's order and augmentations.
            rate: The learning rate.
            generator: Draws the dropout masks.
            chunk: Steps between two turns of other streams.

        Yields:
            None after every `chunk` steps.
        """
        steps = len(draws.order)
        for buffer, values in (
            (self._order, draws.order),
            (self._affine, draws.affine),
            (self._jitter, draws.jitter),
            (self._mix_partner, draws.mix_partner),
            (self._mix_weight, draws.mix_weight),
        ):
            buffer[:steps].copy_(torch.from_numpy(np.ascontiguousarray(values)))
        if self.recipe.dropout:
            drawn = torch.rand(
                (steps, *self._dropout_mask.shape[1:]), generator=generator, device=self.device
            )
            self._dropout_mask[:steps].copy_(drawn >= self.recipe.dropout)
        self._position.zero_()
        self.loss_sum.zero_()
        self._update.set_rate(rate)
        self.model.train()
        for step in range(steps):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._update.zero_gradients()
                self._step()
            if step % chunk == chunk - 1:
                yield
        self.images_seen += steps * self.batch

    @torch.no_grad()
    def forward(
        self, images: torch.Tensor, outlines: torch.Tensor | None, *, mirrored: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the answers for a batch of pictures, without gradients.

        Args:
            images: [pictures, size, size] bytes.
            outlines: Their lesion masks, where the input has them.
            mirrored: Mirror the pictures first.

        Returns:
            Logits [pictures, 2] and features [pictures, features], in single precision.
        """
        self.model.eval()
        x = plain(images, outlines)
        if mirrored:
            x = x.flip(3)
        if self.is_conv:
            x = x.contiguous(memory_format=torch.channels_last)
        with mixed_precision(self.device):
            features = self._update.inference_features(x)
            logits = self.model.head(features)
        return logits.float(), features.float()

    @torch.no_grad()
    def recompute_batchnorm(self, rows: torch.Tensor, batch: int) -> Iterator[None]:
        """Replace the running batch-norm statistics by those of training pictures without augmentation.

        Args:
            rows: Rows of the training part.
            batch: Pictures per forward pass; a last batch under half of it is left out.

        Yields:
            None after every batch.
        """
        layers = batchnorm_layers(self.model)
        for turn, start in enumerate(range(0, len(rows), batch), start=1):
            part = rows[start : start + batch]
            if turn > 1 and len(part) < batch // 2:
                break
            self.model.train()
            count = len(part)
            if self.on_gpu:
                part = pad_to_cached_batch(part)
            x = plain(
                self._images.index_select(0, part),
                None if self._outlines is None else self._outlines.index_select(0, part),
            )
            if self.is_conv:
                x = x.contiguous(memory_format=torch.channels_last)
            padded = nullcontext() if count == len(part) else statistics_of_first(layers, count)
            with momentum(layers, 1.0 / turn), mixed_precision(self.device), padded:
                self.model.features_of(x)
            yield

    def weights_changed(self) -> None:
        """Follow weights that were written into the network in the middle of a training."""
        self._update.weights_changed()
