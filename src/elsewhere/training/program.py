"""One network, its optimiser and its step on one stream: captured once as a CUDA graph, used by many units.

A step reads its place in the epoch from a counter on the device, so that replaying it needs nothing from the
host. Between units the weights, the optimiser's state and the pictures are written into the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.networks import NETWORKS
from elsewhere.networks.classifiers import build_network, cross_entropy, mix_style
from elsewhere.training.augment import augment, plain
from elsewhere.training.draws import JITTERS, EpochDraws, noise_fields
from elsewhere.training.pictures.settings import ClassifierSettings, PictureTraining
from elsewhere.training.transformer import available
from elsewhere.training.updates import PlainAdam, WrittenOut

DRO_STEP = 0.01
CORAL_WEIGHT = 1.0
WARM_STEPS = 3
KNOWN_SIZES = (64, 256)
"""Batches that a convolutional network on a GPU is used with beside its training step: the first use of every other
size takes two seconds, in which cuDNN chooses anew for every layer."""


def program_key(unit: PictureTraining, batch: int) -> tuple[Any, ...]:
    """Units that can share a captured step: what does not change the graph is set aside."""
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


def to_known_size(rows: torch.Tensor) -> torch.Tensor:
    """With the last row (a place, or a picture) repeated up to the next of `KNOWN_SIZES`."""
    size = next((size for size in KNOWN_SIZES if size >= len(rows)), len(rows))
    return torch.cat([rows, rows[-1:].expand(size - len(rows), *rows.shape[1:])])


@contextmanager
def _norms_of_first(norms: Sequence[torch.nn.Module], count: int) -> Iterator[None]:
    """Batch norms whose statistics are those of the first `count` pictures of a batch; the others go through as
    they are."""

    def of_first(norm: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: torch.cat([type(norm).forward(norm, x[:count]), x[count:]])

    for norm in norms:
        norm.forward = of_first(norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


@contextmanager
def ordered_sums() -> Iterator[None]:
    """What is launched or captured here fails rather than sum in any order, where a caller asked for determinism.

    Flash attention's backward pass orders its sums only in this mode; a warning alone leaves them unordered.
    """
    asked, warn = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(asked, warn_only=False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(asked, warn_only=warn)


class Program:
    """Static memory, the model, and one training step."""

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
        written_out = NETWORKS[recipe.network].is_vision_transformer and available(device)
        self.update: PlainAdam | WrittenOut = (WrittenOut if written_out else PlainAdam)(self.model, recipe)
        self.images = torch.zeros((images, size, size), dtype=torch.uint8, device=device)
        self.outlines = torch.zeros_like(self.images) if unit.input.outline else None
        self.label = torch.zeros(images, dtype=torch.int64, device=device)
        self.group = torch.zeros(images, dtype=torch.int64, device=device)
        self.order = torch.zeros((steps, batch), dtype=torch.int64, device=device)
        self.affine = torch.zeros((steps, batch, 2, 3), device=device)
        self.affine[..., 0, 0] = self.affine[..., 1, 1] = 1.0
        self.jitter = torch.zeros((steps, batch, JITTERS), device=device)
        self.keep = torch.ones(
            (steps, batch, self.model.features if recipe.dropout else 0), dtype=torch.bool, device=device
        )
        self.other = torch.zeros((steps, batch), dtype=torch.int64, device=device)
        self.mix = torch.ones((steps, batch), device=device)
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.n_groups = groups
        self.group_weight = torch.full((groups,), 1.0 / groups, device=device)
        self.noise = noise_fields(size, device) if recipe.noise else None
        self.best = [tensor.detach().clone() for tensor in self._state()]
        self.graph: Any = None
        self.images_seen = 0

    def _state(self) -> list[torch.Tensor]:
        return list(self.model.state_dict(keep_vars=False).values())

    def autocast(self) -> torch.autocast:
        """bf16 on a GPU; a CPU without bf16 units is several times slower with it."""
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.on_gpu, cache_enabled=False
        )

    def _step(self) -> None:
        at = self.place
        rows = self.order.index_select(0, at)[0]
        x = augment(
            self.images.index_select(0, rows),
            self.affine.index_select(0, at)[0],
            self.jitter.index_select(0, at)[0],
            self.recipe,
            self.noise,
            None if self.outlines is None else self.outlines.index_select(0, rows),
        )
        if self.is_conv:
            x = x.contiguous(memory_format=torch.channels_last)
        label = self.label.index_select(0, rows)
        keep = self.keep.index_select(0, at)[0] if self.recipe.dropout else None
        if self.recipe.method == "mixstyle":
            other, weight = self.other.index_select(0, at)[0], self.mix.index_select(0, at)[0]
            self.model.style = lambda value: mix_style(value, other, weight)
        with self.autocast():
            features = self.update.features(x)
            if keep is not None:
                dropped = features * keep.to(features.dtype) / (1.0 - self.recipe.dropout)
            else:
                dropped = features
            logits = self.model.head(dropped)
        self.model.style = None
        losses = cross_entropy(logits, label, smoothing=self.recipe.label_smoothing)
        loss = self._combined(losses, features, rows)
        loss.backward()
        self.update.step()
        self.loss_sum += losses.detach().mean()
        self.place += 1

    def _combined(self, losses: torch.Tensor, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """One number from the losses of the cases: the mean, or what a multi-source method makes (US-31)."""
        method = self.recipe.method
        if method in ("plain", "mixstyle"):
            return losses.mean()
        member = torch.nn.functional.one_hot(self.group.index_select(0, rows), self.n_groups).float()
        counts = member.sum(0)
        if method == "group-dro":
            by_group = (member * losses[:, None]).sum(0) / counts.clamp_min(1.0)
            step = self.recipe.strength or DRO_STEP
            updated = self.group_weight * torch.exp(step * by_group.detach())
            self.group_weight.copy_(updated / updated.sum())
            return (self.group_weight.detach().clone() * by_group).sum()
        if method == "coral":
            weight = self.recipe.strength or CORAL_WEIGHT
            return losses.mean() + weight * coral_penalty(features.float(), member)
        raise ValueError(f"unknown method {method}")

    def capture(self, stream: Any) -> None:
        """Warm up and record the step. Weights are spoiled by it: `start` writes them anew."""
        if not self.on_gpu or self.graph is not None:
            return
        self.model.train()
        with nullcontext() if self.is_conv else ordered_sums():
            self._capture(stream)

    def _capture(self, stream: Any) -> None:
        with torch.cuda.stream(stream):
            for _ in range(WARM_STEPS):
                self.update.forget_gradients()
                self.place.zero_()
                self._step()
            self.update.forget_gradients()
            self.place.zero_()
        stream.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self._step()

    def start(
        self,
        state: dict[str, torch.Tensor],
        images: torch.Tensor,
        outlines: torch.Tensor | None,
        label: npt.NDArray[np.int64],
        group: npt.NDArray[np.int64],
    ) -> None:
        """Fresh weights, a fresh optimiser, and this unit's training part."""
        own = self.model.state_dict(keep_vars=False)
        for name, tensor in own.items():
            tensor.copy_(state[name])
        self.update.start()
        n = len(label)
        self.images[:n].copy_(images)
        if self.outlines is not None and outlines is not None:
            self.outlines[:n].copy_(outlines)
        self.label[:n].copy_(torch.from_numpy(label))
        self.group[:n].copy_(torch.from_numpy(group))
        # The program may be wider than this unit: a group that it does not have must weigh nothing.
        here = int(group.max()) + 1
        self.group_weight.zero_()
        self.group_weight[:here].fill_(1.0 / here)
        self.images_seen = 0

    def epoch(
        self, draws: EpochDraws, rate: float, generator: torch.Generator, chunk: int = 8
    ) -> Iterator[None]:
        """The steps of an epoch; gives the turn to other lanes after every `chunk`."""
        steps = len(draws.order)
        for buffer, values in (
            (self.order, draws.order),
            (self.affine, draws.affine),
            (self.jitter, draws.jitter),
            (self.other, draws.other),
            (self.mix, draws.mix),
        ):
            buffer[:steps].copy_(torch.from_numpy(np.ascontiguousarray(values)))
        if self.recipe.dropout:
            drawn = torch.rand((steps, *self.keep.shape[1:]), generator=generator, device=self.device)
            self.keep[:steps].copy_(drawn >= self.recipe.dropout)
        self.place.zero_()
        self.loss_sum.zero_()
        self.update.set_rate(rate)
        self.model.train()
        for step in range(steps):
            if self.graph is not None:
                self.graph.replay()
            else:
                self.update.forget_gradients()
                self._step()
            if step % chunk == chunk - 1:
                yield
        self.images_seen += steps * self.batch

    @torch.no_grad()
    def forward(
        self, images: torch.Tensor, outlines: torch.Tensor | None, *, mirrored: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and features of a batch of bytes, single precision."""
        self.model.eval()
        x = plain(images, outlines)
        if mirrored:
            x = x.flip(3)
        if self.is_conv:
            x = x.contiguous(memory_format=torch.channels_last)
        with self.autocast():
            features = self.update.look(x)
            logits = self.model.head(features)
        return logits.float(), features.float()

    @torch.no_grad()
    def settle(self, rows: torch.Tensor, batch: int) -> Iterator[None]:
        """Batch-norm statistics of these training pictures as they are, in place of the moving averages."""
        norms = [m for m in self.model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        held = [norm.momentum for norm in norms]
        for turn, start in enumerate(range(0, len(rows), batch), start=1):
            part = rows[start : start + batch]
            if turn > 1 and len(part) < batch // 2:
                break
            for norm in norms:
                norm.momentum = 1.0 / turn
            self.model.train()
            count = len(part)
            if self.on_gpu:
                part = to_known_size(part)
            x = plain(
                self.images.index_select(0, part),
                None if self.outlines is None else self.outlines.index_select(0, part),
            )
            if self.is_conv:
                x = x.contiguous(memory_format=torch.channels_last)
            whole = count == len(part)
            with self.autocast(), nullcontext() if whole else _norms_of_first(norms, count):
                self.model.features_of(x)
            for norm, momentum in zip(norms, held, strict=True):
                norm.momentum = momentum
            yield

    def keep_best(self) -> None:
        torch._foreach_copy_(self.best, self._state())

    def restore_best(self) -> None:
        torch._foreach_copy_(self._state(), self.best)
        self.update.follow()


def coral_penalty(features: torch.Tensor, member: torch.Tensor) -> torch.Tensor:
    """How far the datasets' feature means and covariances lie apart, over all pairs that the batch holds."""
    counts = member.sum(0)
    share = member / counts.clamp_min(1.0)
    means = share.T @ features
    total = features.new_zeros(())
    pairs = features.new_zeros(())
    centred = [(features - means[g]) * member[:, g : g + 1] for g in range(member.shape[1])]
    covariances = [c.T @ c / (counts[g] - 1).clamp_min(1.0) for g, c in enumerate(centred)]
    for a in range(member.shape[1]):
        for b in range(a + 1, member.shape[1]):
            both = ((counts[a] > 1) & (counts[b] > 1)).float()
            distance = (means[a] - means[b]).square().mean() + (
                covariances[a] - covariances[b]
            ).square().mean()
            total = total + both * distance
            pairs = pairs + both
    return total / pairs.clamp_min(1.0)
