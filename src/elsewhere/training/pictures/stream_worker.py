"""One CUDA stream that trains picture classifiers one after the other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.errors import UserError
from elsewhere.training.cuda import pad_to_cached_batch
from elsewhere.training.loop import EpochLoop, scheduled_rate
from elsewhere.training.pictures.crops import DevicePictures
from elsewhere.training.pictures.distance import class_distance
from elsewhere.training.pictures.draws import draw_epoch, epoch_steps
from elsewhere.training.pictures.initial_weights import InitialWeights
from elsewhere.training.pictures.program import Program, program_key
from elsewhere.training.pictures.settings import PictureOutcome, PictureTraining, PictureWork
from elsewhere.training.turns import DeviceStream

CHUNK_STEPS = 8
"""Training steps launched in one turn."""
BATCHNORM_IMAGES = 1024
"""At most so many training pictures give the batch-norm statistics."""
DISTANCE_IMAGES = 512
"""At most so many training pictures fit the Mahalanobis distance."""
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SharedInputs:
    """What all workers of a device read and none of them writes.

    Attributes:
        device: Where they train.
        pictures: All pictures, on the device.
        work: Cases, labels and files.
        initial_weights: What trainings start with.
    """

    device: torch.device
    pictures: DevicePictures
    work: PictureWork
    initial_weights: InitialWeights


@dataclass(frozen=True, kw_only=True)
class TrainingPart:
    """The training part of one training.

    Attributes:
        rows: The rows of its cases.
        label: 0 or 1 for each.
        group: The source of each, from 0.
    """

    rows: Rows
    label: Rows
    group: Rows


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """All pictures as one training's network sees them."""

    pictures: torch.Tensor
    outlines: torch.Tensor | None


class StreamWorker(DeviceStream):
    """A stream, its program, and the trainings it runs one after the other. On a CPU there is no stream.

    Args:
        shared: What it reads.
        units: All trainings that it may be given: its memory is sized for the largest.
    """

    def __init__(self, shared: SharedInputs, units: Sequence[PictureTraining]) -> None:
        super().__init__(shared.device)
        self.shared = shared
        self._program: tuple[Any, Program] | None = None
        self._units = units

    def _training_part(self, unit: PictureTraining) -> TrainingPart:
        cases = self.shared.work.cases
        rows = cases.rows(unit.train)
        groups = {name: group for group, name in enumerate(dict.fromkeys(cases.dataset[row] for row in rows))}
        return TrainingPart(
            rows=rows,
            label=cases.label[rows].astype(np.int64),
            group=np.array([groups[cases.dataset[row]] for row in rows], dtype=np.int64),
        )

    def program(self, unit: PictureTraining, batch: int) -> Program:
        """Return the recorded step that fits a training; only the last one is stored.

        Args:
            unit: The training.
            batch: Pictures per step.

        Returns:
            The program, large enough for all trainings that can share it.
        """
        key = program_key(unit, batch)
        if self._program is None or self._program[0] != key:
            self._program = None
            images = steps = groups = 1
            for other in self._units:
                part = self._training_part(other)
                count, size = epoch_steps(part.label, part.group, other.recipe)
                if program_key(other, size) == key:
                    images = max(images, len(part.label))
                    steps = max(steps, count)
                    groups = max(groups, int(part.group.max()) + 1)
            program = Program(
                unit, batch=batch, images=images, steps=steps, groups=groups, device=self.device
            )
            if self.stream is not None:
                program.capture(self.stream)
            self._program = (key, program)
        return self._program[1]

    def train(self, unit: PictureTraining) -> Iterator[PictureOutcome | None]:
        """Train one classifier and let it predict.

        Args:
            unit: The training.

        Yields:
            None whenever the stream has work enough, and the outcome at the end.

        Raises:
            UserError: The training part lacks a class, the validation part is empty, or boxes are missing.
        """
        begin = time.perf_counter()
        part = self._training_part(unit)
        if len(set(part.label.tolist())) < 2 or -1 in part.label:
            raise UserError(f"the training part of {unit.name} does not hold both classes")
        if not unit.validation:
            raise UserError(f"the validation part of {unit.name} is empty")
        _, batch = epoch_steps(part.label, part.group, unit.recipe)
        program = self.program(unit, batch)
        pictures = self.shared.pictures
        inputs = _Inputs(
            pictures=pictures.cut(unit.input),
            outlines=pictures.outline(unit.input) if unit.input.outline else None,
        )
        rows = torch.from_numpy(part.rows).to(self.device)
        program.start(
            self.shared.initial_weights.state(unit),
            inputs.pictures.index_select(0, rows),
            None if inputs.outlines is None else inputs.outlines.index_select(0, rows),
            part.label,
            part.group,
        )
        loop = EpochLoop(
            program.model,
            epochs=unit.recipe.epochs,
            keep=unit.recipe.keep,
            patience=unit.recipe.patience,
            best=program.best,
        )
        yield from self._epochs(loop, program, unit, part, inputs)
        best_epoch = loop.finish()
        program.weights_changed()
        answers = yield from self._answers(program, unit, part, inputs)
        weights = None
        if unit.keep_weights:
            weights = {name: value.cpu().clone() for name, value in program.model.state_dict().items()}
        yield PictureOutcome(
            case=unit.predict,
            logits=answers[:, :2].astype(np.float32),
            distance=answers[:, 2].astype(np.float32),
            history=tuple(loop.history),
            best_epoch=best_epoch,
            images=program.images_seen,
            seconds=time.perf_counter() - begin,
            weights=weights,
        )

    def _epochs(
        self, loop: EpochLoop, program: Program, unit: PictureTraining, part: TrainingPart, inputs: _Inputs
    ) -> Iterator[None]:
        recipe, cases = unit.recipe, self.shared.work.cases
        rng = np.random.default_rng(np.random.SeedSequence([unit.seed, 2]))
        dropout = torch.Generator(self.device).manual_seed(
            int(np.random.SeedSequence([unit.seed, 3]).generate_state(1)[0])
        )
        validation_rows = cases.rows(unit.validation)
        truth = torch.from_numpy(cases.label[validation_rows].astype(np.int64)).to(self.device)
        shuffled = np.random.default_rng(np.random.SeedSequence([unit.seed, 4])).permutation(len(part.rows))
        batchnorm_rows = torch.from_numpy(shuffled[:BATCHNORM_IMAGES]).to(self.device)
        for epoch in loop:
            draws = draw_epoch(rng, part.label, part.group, recipe, size_px=unit.input.size_px)
            rate = scheduled_rate(recipe.schedule, recipe.learning_rate, epoch, recipe.epochs)
            marks: deque[Any] = deque()
            for _ in program.epoch(draws, rate, dropout, CHUNK_STEPS):
                yield from self.wait(marks)
            if recipe.batch_statistics == "population" and program.is_conv:
                for _ in program.recompute_batchnorm(batchnorm_rows, 256 if self.stream else 64):
                    yield from self.wait(marks)
            logits, _ = yield from self._forward(program, unit, validation_rows, inputs)
            loss = torch.nn.functional.cross_entropy(logits, truth)
            losses = torch.stack([program.loss_sum / len(draws.order), loss.detach()])
            train_loss, validation_loss = (float(value) for value in (yield from self.fetch(losses)))
            loop.record(
                {"epoch": epoch, "train_loss": train_loss, "validation_loss": validation_loss},
                score=validation_loss,
            )

    def _answers(
        self, program: Program, unit: PictureTraining, part: TrainingPart, inputs: _Inputs
    ) -> Generator[None, None, npt.NDArray[np.float32]]:
        """Two logits and the distance from the training part for every predicted case."""
        cases = self.shared.work.cases
        predicted = positions = cases.rows(unit.predict)
        source = inputs
        if unit.boxes is not None:
            boxes = np.array([unit.boxes[name] for name in unit.predict], dtype=np.int32).reshape(-1, 4)
            cut = self.shared.pictures.cut_boxes(unit.input, predicted, boxes)
            source = _Inputs(pictures=cut, outlines=inputs.outlines)
            positions = np.arange(len(predicted))
        logits, features = yield from self._forward(
            program, unit, positions, source, mirrored=unit.recipe.test_mirror
        )
        spread = np.linspace(0, len(part.rows) - 1, min(len(part.rows), DISTANCE_IMAGES)).astype(int)
        reference = part.rows[spread]
        _, seen = yield from self._forward(program, unit, reference, inputs)
        label = torch.from_numpy(cases.label[reference].astype(np.int64)).to(self.device)
        distance = class_distance(seen, label, features)
        return (yield from self.fetch(torch.cat([logits, distance[:, None]], dim=1)))

    def _forward(
        self, program: Program, unit: PictureTraining, rows: Rows, inputs: _Inputs, *, mirrored: bool = False
    ) -> Generator[None, None, tuple[torch.Tensor, torch.Tensor]]:
        """Logits and features of some rows; mirrored: the mean over the pictures and their mirror images."""
        size = 32 if self.stream is None else (96 if unit.input.size_px >= 320 else 256)
        logits, features = [], []
        marks: deque[Any] = deque()
        on_device = torch.from_numpy(rows).to(self.device)
        for start in range(0, len(rows), size):
            batch = on_device[start : start + size]
            count = len(batch)
            if self.stream is not None and program.is_conv:
                batch = pad_to_cached_batch(batch)
            pixels = inputs.pictures.index_select(0, batch)
            mask = None if inputs.outlines is None else inputs.outlines.index_select(0, batch)
            batch_logits, batch_features = program.forward(pixels, mask)
            if mirrored:
                other_logits, other_features = program.forward(pixels, mask, mirrored=True)
                batch_logits = (batch_logits + other_logits) / 2
                batch_features = (batch_features + other_features) / 2
            logits.append(batch_logits[:count])
            features.append(batch_features[:count])
            yield from self.wait(marks)
        return torch.cat(logits), torch.cat(features)
