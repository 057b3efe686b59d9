"""What every training loop does around its epochs.

It counts and times them, keeps a history and the best weights, stops early, writes a checkpoint and resumes
from it. Every loop looks like this:

    loop = EpochLoop(network, epochs=10, keep="best", patience=5)
    for epoch in loop:
        train_loss = train_one_epoch(epoch)
        loss = validate()
        loop.record({"epoch": epoch, "train_loss": train_loss, "validation_loss": loss}, score=loss)
    best_epoch = loop.finish()
"""

from __future__ import annotations

import math
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_UNREADABLE = (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError)
"""What reading a checkpoint raises that was cut off, or that another version wrote."""


class BestWeights:
    """A copy of a network's weights, as they were at its best epoch.

    Args:
        network: The network; its state dict must keep its tensors.
        device: The device of the copy; None: that of the weights.
        allocate: Take the memory now instead of with the first `save`.
    """

    def __init__(
        self, network: torch.nn.Module, *, device: torch.device | None = None, allocate: bool = False
    ) -> None:
        self._network, self._device = network, device
        self._copies: dict[str, torch.Tensor] = {}
        if allocate:
            self.save()

    def _weights(self) -> dict[str, torch.Tensor]:
        return dict(self._network.state_dict(keep_vars=False))

    def __bool__(self) -> bool:
        return bool(self._copies)

    def save(self) -> None:
        """Copy the weights as they are now."""
        weights = self._weights()
        if self._copies and self._device is None:
            torch._foreach_copy_(list(self._copies.values()), list(weights.values()))
        elif self._device is None:
            self._copies = {name: value.detach().clone() for name, value in weights.items()}
        else:
            self._copies = {
                name: value.detach().to(self._device, copy=True) for name, value in weights.items()
            }

    def restore(self) -> None:
        """Write the copy into the network."""
        if self._device is None:
            torch._foreach_copy_(list(self._weights().values()), list(self._copies.values()))
        else:
            self._network.load_state_dict(self._copies)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the copy for a checkpoint.

        Returns:
            Tensor by name; empty where nothing was saved.
        """
        return self._copies

    def load(self, copies: Mapping[str, torch.Tensor] | None) -> None:
        """Take over the copy of a checkpoint.

        Args:
            copies: What `state` returned; None or empty: nothing was saved.
        """
        weights = self._weights()
        self._copies = {
            name: value.to(self._device or weights[name].device, copy=True)
            for name, value in (copies or {}).items()
        }


class EpochLoop:
    """The epochs of one training. Iterate over it, and call `record` once per epoch.

    Args:
        network: What is trained.
        epochs: How many at most.
        keep: "best": the weights of the epoch with the best score; "last": the final ones.
        patience: Stop after so many epochs in a row without a better score; None: never.
        higher_is_better: The score is one to maximise (Dice), not one to minimise (a loss).
        best: Where the best weights are stored; None: a new copy on the device of the weights.
        clock: Seconds that only grow; given by tests.

    Attributes:
        epoch: Epochs that were recorded.
        history: One entry per epoch, as it was recorded, with its "seconds".
        best_score: The best score so far; NaN: none.
        best_epoch: The epoch of the best score (from 1); 0: none.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        *,
        epochs: int,
        keep: str = "best",
        patience: int | None = None,
        higher_is_better: bool = False,
        best: BestWeights | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.epochs, self.keep, self.patience = epochs, keep, patience
        self.best = BestWeights(network) if best is None else best
        self.epoch, self.best_epoch, self.best_score = 0, 0, math.nan
        self.history: list[dict[str, float]] = []
        self._sign = 1.0 if higher_is_better else -1.0
        self._stalled = False
        self._clock = clock
        self._began = clock()

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the epochs that are left, from 1; an epoch is timed from here to `record`."""
        while self.epoch < self.epochs and not self._stalled:
            number = self.epoch + 1
            self._began = self._clock()
            yield number
            if self.epoch != number:
                raise RuntimeError(f"epoch {number} was not recorded")

    @property
    def is_last(self) -> bool:
        """Whether the epoch that was just recorded is the last of all."""
        return self.epoch >= self.epochs

    def record(self, entry: Mapping[str, float], *, score: float | None = None) -> dict[str, float]:
        """End an epoch: append it to the history, keep the best weights, and decide whether to continue.

        The first score always counts as the best; after it only a finite one that is better does. NaN is
        better than no score, and worse than every other.

        Args:
            entry: The epoch's entry of the history ("epoch", "train_loss", "validation_loss", ...).
            score: What the best epoch is chosen by; None: this epoch cannot be the best one.

        Returns:
            The entry of the history, with the epoch's "seconds".
        """
        recorded = dict(entry)
        recorded["seconds"] = self._clock() - self._began
        self.history.append(recorded)
        self.epoch += 1
        if score is not None and self._is_better(score):
            self.best_score, self.best_epoch = score, self.epoch
            if self.keep == "best":
                self.best.save()
        elif self.patience is not None and self.epoch - self.best_epoch >= self.patience:
            self._stalled = True
        return recorded

    def _is_better(self, score: float) -> bool:
        if self.best_epoch == 0:
            return True
        if not math.isfinite(score):
            return False
        return not math.isfinite(self.best_score) or self._sign * score > self._sign * self.best_score

    def finish(self) -> int:
        """Write the best weights into the network, where they were asked for and there are any.

        Returns:
            The epoch (from 1) that the network's weights are of.
        """
        if self.keep != "best" or not self.best_epoch:
            return self.epoch
        if self.best:
            self.best.restore()
        return self.best_epoch

    def state(self) -> dict[str, Any]:
        """Return the loop for a checkpoint.

        Returns:
            Its epoch, history and best epoch so far; the best weights under "kept".
        """
        return {
            "epoch": self.epoch,
            "best": self.best_score,
            "best_epoch": self.best_epoch,
            "kept": self.best.state(),
            "history": self.history,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Resume where a checkpoint was written.

        Args:
            state: What `state` returned.
        """
        self.epoch, self.history = state["epoch"], list(state["history"])
        self.best_score, self.best_epoch = state["best"], state["best_epoch"]
        self.best.load(state["kept"])


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint at once or not at all: a training killed meanwhile leaves the one before.

    Args:
        path: The file; its folder is made.
        content: Tensors and plain values.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    torch.save(dict(content), part)
    part.replace(path)


def read_checkpoint(path: Path | None) -> dict[str, Any] | None:
    """Read a checkpoint to the CPU; one that cannot be read is removed, and the training starts again.

    Args:
        path: The file; None: the training has none.

    Returns:
        What was written, or None where there is nothing to resume from.
    """
    if path is None or not path.is_file():
        return None
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE:
        path.unlink(missing_ok=True)
        return None
    return content


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float, on_device: torch.Tensor) -> None:
    """Set the learning rate of the next steps.

    Args:
        optimiser: Made with `on_device` as its rate where it trains on a GPU.
        rate: The new learning rate.
        on_device: The tensor that a recorded step reads the rate from.
    """
    on_device.fill_(rate)
    if not on_device.is_cuda:
        for group in optimiser.param_groups:
            group["lr"] = rate


def copy_optimiser_state(
    optimiser: torch.optim.Optimizer, parameters: Sequence[torch.Tensor]
) -> list[dict[str, torch.Tensor]]:
    """Copy what an optimiser remembers.

    Args:
        optimiser: The optimiser.
        parameters: Its parameters.

    Returns:
        Tensors by name, one entry per parameter.
    """
    return [
        {k: v.detach().clone() for k, v in optimiser.state.get(p, {}).items() if v is not None}
        for p in parameters
    ]


def restore_optimiser_state(
    optimiser: torch.optim.Optimizer,
    parameters: Sequence[torch.Tensor],
    copies: Sequence[Mapping[str, torch.Tensor]],
) -> None:
    """Write a copied state into an optimiser: in place where it has one, as a recorded step keeps its addresses.

    Args:
        optimiser: The optimiser.
        parameters: Its parameters.
        copies: What `copy_optimiser_state` returned; what it lacks becomes zero.
    """
    for p, values in zip(parameters, copies, strict=True):
        own = optimiser.state[p]
        if not own:
            own.update({k: v.to(p.device if v.ndim else v.device).clone() for k, v in values.items()})
            continue
        for name, tensor in own.items():
            if name in values:
                tensor.copy_(values[name])
            else:
                tensor.zero_()


def scheduled_rate(schedule: str, rate: float, epoch: int, epochs: int) -> float:
    """Return the learning rate of an epoch.

    Args:
        schedule: "constant", or "cosine" from `rate` to nearly 0.
        rate: The rate of the first epoch.
        epoch: The number of the epoch, from 1.
        epochs: How many there are.

    Returns:
        The rate.

    Example:
        >>> scheduled_rate("cosine", 0.1, 1, 10)
        0.1
    """
    if schedule == "cosine":
        return rate * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / epochs))
    return rate
