"""One stream that trains segmenters one after the other."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.errors import UserError
from elsewhere.networks.segmenters import build_segmenter, find_segmenter_weights
from elsewhere.training.cuda import pad_to_cached_batch
from elsewhere.training.loop import EpochLoop, read_checkpoint, write_checkpoint
from elsewhere.training.patches.augment import draw_epoch
from elsewhere.training.patches.losses import focal_tversky
from elsewhere.training.patches.program import DevicePool, PatchProgram, most_steps, program_key
from elsewhere.training.patches.settings import PatchOutcome, PatchSettings, PatchTraining, Rows
from elsewhere.training.turns import DeviceStream

CHUNK_STEPS = 8
"""Training steps launched in one turn."""
CHECKPOINT_SECONDS = 30.0
"""A checkpoint is written after the first epoch that ends so long after the one before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedPatches:
    """What all workers of a device read and none of them writes.

    Attributes:
        device: Where they train.
        pool: The patches, on the device.
        weights: Files of published weights by 'network/imagenet'.
        checkpoint_seconds: Seconds between two checkpoints of a training.
    """

    device: torch.device
    pool: DevicePool
    weights: Mapping[str, Path]
    checkpoint_seconds: float = CHECKPOINT_SECONDS


class PatchWorker(DeviceStream):
    """A stream, its program, and the trainings that it runs one after the other.

    Args:
        shared: What it reads.
        units: All trainings that it may be given: its memory is sized for the largest.
    """

    def __init__(self, shared: SharedPatches, units: Sequence[PatchTraining]) -> None:
        super().__init__(shared.device)
        self.shared = shared
        self._units = list(units)
        self._program: tuple[PatchSettings, PatchProgram] | None = None
        self._published: dict[tuple[str, str], Path | None] = {}

    def _program_for(self, unit: PatchTraining) -> PatchProgram:
        key = program_key(unit.settings)
        if self._program is None or self._program[0] != key:
            self._program = None
            program = PatchProgram(
                unit, pool=self.shared.pool, steps=most_steps(self._units, key), device=self.device
            )
            if self.stream is not None:
                program.capture(self.stream)
            self._program = (key, program)
        return self._program[1]

    def _first_weights(self, unit: PatchTraining) -> dict[str, torch.Tensor]:
        settings = unit.settings
        name = (settings.network, settings.weights)
        if name not in self._published:
            self._published[name] = find_segmenter_weights(*name, self.shared.weights)
        seed = int(np.random.SeedSequence([unit.seed, 1]).generate_state(1)[0])
        fresh = build_segmenter(settings.network, path=self._published[name], seed=seed)
        return dict(fresh.state_dict())

    def train(self, unit: PatchTraining, /) -> Iterator[PatchOutcome | None]:
        """Train one segmenter and let it predict.

        Args:
            unit: The training.

        Yields:
            None whenever the stream has work enough, and the outcome at the end.

        Raises:
            UserError: A part is empty or without tumour, weights are missing, or no epoch gave a finite loss.
        """
        begin = time.perf_counter()
        self._check(unit)
        program = self._program_for(unit)
        program.start(self._first_weights(unit))
        loop = EpochLoop(
            program.model,
            epochs=unit.settings.epochs,
            patience=unit.settings.patience,
            best=program.best,
        )
        self._resume(unit, loop, program)
        yield from self._epochs(loop, program, unit)
        if not math.isfinite(loop.best_score):
            raise UserError(
                f"{unit.name or unit.key}: no epoch had a finite validation loss",
                fix="Set a smaller learning rate.",
            )
        best_epoch = loop.finish()
        _, counts = yield from self._measure(program, unit.predict)
        weights = None
        if unit.keep_weights:
            weights = {name: value.cpu().clone() for name, value in program.model.state_dict().items()}
        yield PatchOutcome(
            counts=counts,
            history=tuple(loop.history),
            best_epoch=best_epoch,
            patches=program.patches_seen,
            seconds=time.perf_counter() - begin,
            weights=weights,
        )

    def _check(self, unit: PatchTraining) -> None:
        name = unit.name or unit.key
        for part, rows in (("training", unit.train), ("validation", unit.validation)):
            if not len(rows):
                raise UserError(f"the {part} part of {name} is empty", fix="Give it patches.")
            on_device = torch.from_numpy(np.asarray(rows, np.int64)).to(self.device)
            if not bool(self.shared.pool.has_tumour.index_select(0, on_device).any()):
                raise UserError(
                    f"the {part} part of {name} has no patch with tumour in its mask",
                    fix="Ask for fewer folds, or take more slides with tumour into the set.",
                )

    def _resume(self, unit: PatchTraining, loop: EpochLoop, program: PatchProgram) -> None:
        content = read_checkpoint(unit.checkpoint)
        if content is None or content.get("key") != unit.key:
            return
        program.load(content["program"])
        loop.load(content["loop"])

    def _epochs(self, loop: EpochLoop, program: PatchProgram, unit: PatchTraining) -> Iterator[None]:
        settings = unit.settings
        has_tumour = self.shared.pool.has_tumour.cpu().numpy()[unit.validation]
        saved = time.perf_counter()
        for epoch in loop:
            # Every epoch has generators of its own, so that a resumed training draws what it would have drawn.
            rng = np.random.default_rng(np.random.SeedSequence([unit.seed, 2, epoch]))
            dropout = torch.Generator(self.device).manual_seed(
                int(np.random.SeedSequence([unit.seed, 3, epoch]).generate_state(1)[0])
            )
            draws = draw_epoch(rng, unit.train, settings)
            rate = settings.learning_rate * settings.decay ** (epoch - 1)
            marks: deque[Any] = deque()
            for _ in program.epoch(draws, rate, dropout, CHUNK_STEPS):
                yield from self.wait(marks)
            total = yield from self.fetch(program.loss_sum / len(draws.order))
            soft, counts = yield from self._measure(program, unit.validation)
            loss = float(focal_tversky(torch.from_numpy(soft.sum(axis=0)), settings))
            dice, fpr = patch_means(counts, has_tumour)
            loop.record(
                {
                    "epoch": epoch,
                    "train_loss": float(total),
                    "validation_loss": loss,
                    "validation_dice": dice,
                    "validation_fpr": fpr,
                },
                score=loss,
            )
            now = time.perf_counter()
            if (
                unit.checkpoint is not None
                and not loop.is_last
                and now - saved >= self.shared.checkpoint_seconds
            ):
                saved = now
                content = {"key": unit.key, "program": program.state(), "loop": loop.state()}
                write_checkpoint(unit.checkpoint, content)

    def _measure(
        self, program: PatchProgram, rows: Rows
    ) -> Generator[None, None, tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]]:
        """Soft counts and pixel counts of some patches."""
        size = 16 if self.stream is None else 64
        soft, hard = [torch.zeros((0, 3), dtype=torch.float64)], [torch.zeros((0, 4), dtype=torch.int64)]
        marks: deque[Any] = deque()
        on_device = torch.from_numpy(np.asarray(rows, np.int64)).to(self.device)
        for start in range(0, len(rows), size):
            batch = on_device[start : start + size]
            count = len(batch)
            if self.stream is not None:
                batch = pad_to_cached_batch(batch)
            these, counts = program.measure(batch)
            soft.append(these[:count])
            hard.append(counts[:count])
            yield from self.wait(marks)
        if len(soft) == 1:
            return soft[0].numpy(), hard[0].numpy()
        first = yield from self.fetch(torch.cat(soft[1:]))
        second = yield from self.fetch(torch.cat(hard[1:]))
        return first, second


def patch_means(counts: npt.NDArray[np.int64], tumour: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Compute the mean Dice of tumour patches and the mean false-positive rate of normal ones (LN-10).

    Args:
        counts: (patches, 4) true positive, false positive, false negative, true negative pixels.
        tumour: Whether each patch has any tumour.

    Returns:
        Both; NaN where there is no such patch.

    Example:
        >>> patch_means(np.array([[3, 1, 1, 11], [0, 4, 0, 12]]), np.array([True, False]))
        (0.75, 0.25)
    """
    hit, alarm, miss, rest = counts.T.astype(float)
    dice = [2 * hit[tumour] / (2 * hit[tumour] + alarm[tumour] + miss[tumour])]
    fpr = [alarm[~tumour] / (alarm[~tumour] + rest[~tumour])]
    means = [float(one[0].mean()) if len(one[0]) else math.nan for one in (dice, fpr)]
    return means[0], means[1]
