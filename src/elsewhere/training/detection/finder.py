"""Train a finder of lesions and let it find a box in every picture (US-33).

It learns from the masks of the training part alone, so that crops need no annotation where it is used.
Everything random of an epoch is drawn before it; on a GPU the step is a CUDA graph (`training.cuda`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from elsewhere.errors import UserError
from elsewhere.inputs import NORMAL
from elsewhere.networks.finder import Finder, build_finder, check_size
from elsewhere.training.cuda import (
    capture_step,
    enable_determinism,
    mixed_precision,
    select_device,
    side_stream,
)
from elsewhere.training.detection.inference import THRESHOLD, FinderInference, Rows
from elsewhere.training.loop import BestWeights, EpochLoop, scheduled_rate
from elsewhere.training.optimiser import RecordableAdam
from elsewhere.training.pictures.augment import augment
from elsewhere.training.pictures.crops import DevicePictures
from elsewhere.training.pictures.draws import EpochDraws, draw_epoch, noise_fields
from elsewhere.training.pictures.settings import (
    Failed,
    Finished,
    PictureOutcome,
    PictureTraining,
    PictureWork,
)


class StoppedError(Exception):
    """The caller asked to stop; nothing of this training is stored."""


def train_finder(
    unit: PictureTraining,
    work: PictureWork,
    *,
    device: str = "auto",
    stop: Callable[[], bool] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    pictures: DevicePictures | None = None,
) -> PictureOutcome:
    """Train a finder, choose the epoch with the best Dice on the validation part, and find boxes.

    Args:
        unit: The training; its network is one of `networks.finder.FINDERS`.
        work: Cases, pictures, masks and files of weights.
        device: "auto", "cpu", "cuda" or "cuda:N".
        stop: Asked before each epoch.
        progress: Called after each epoch with the name, the epoch and the number of epochs.
        pictures: All pictures on the device, where several finders see the same ones; None: they are decoded
            here.

    Returns:
        The outcome. Its `box` has one box per case of `unit.predict` in picture pixels, zeros where nothing
        was found.

    Raises:
        UserError: The network or the size is unknown, or no training case has a mask.
        StoppedError: `stop` answered True.
    """
    begin = time.perf_counter()
    check_size(unit.input.size_px)
    enable_determinism()
    chosen = select_device(device)
    recipe = unit.recipe
    train, validation = _cases_with_truth(unit.train, work), _cases_with_truth(unit.validation, work)
    predicted = work.cases.rows(unit.predict)
    if pictures is None:
        rows = np.concatenate([train, validation, predicted])
        pictures = DevicePictures(work.cases, work.pictures, device=chosen, rows=rows)
    spec = replace(unit.input, kind="whole", outline=False)
    train, validation = (_with_drawn_mask(rows, work, pictures.outline(spec)) for rows in (train, validation))
    if not (work.cases.label[train] != NORMAL).any():
        raise UserError(
            f"no case of the training part of {unit.name or 'this finder'} has a mask, so that no finder can "
            f"be trained ({len(unit.train)} cases)",
            fix="Use a source with lesion masks, or boxes = 'annotated'.",
        )
    seed = int(np.random.SeedSequence([unit.seed, 1]).generate_state(1)[0])
    model = build_finder(recipe.network, weights=recipe.weights, known=work.weights, seed=seed)
    program = _FinderProgram(model, unit, work, train, chosen)
    program.load(pictures.cut(spec), pictures.outline(spec))
    rng = np.random.default_rng(np.random.SeedSequence([unit.seed, 2]))
    loop = EpochLoop(
        model,
        epochs=recipe.epochs,
        keep=recipe.keep if len(validation) else "last",
        patience=recipe.patience,
        higher_is_better=True,
        best=program.best,
    )
    for epoch in loop:
        if stop and stop():
            raise StoppedError(unit.name)
        draws = draw_epoch(rng, program.label, program.group, recipe, size_px=spec.size_px)
        rate = scheduled_rate(recipe.schedule, recipe.learning_rate, epoch, recipe.epochs)
        train_loss = program.epoch(draws, rate)
        dice = program.dice(pictures.cut(spec), pictures.outline(spec), validation)
        loop.record(
            {
                "epoch": float(epoch),
                "train_loss": train_loss,
                "validation_loss": 1.0 - dice,
                "validation_dice": dice,
            },
            score=dice,
        )
        if progress:
            progress(unit.name or "finder", epoch, recipe.epochs)
    best_epoch = loop.finish()
    box = program.boxes(pictures, spec, predicted)
    weights = None
    if unit.keep_weights:
        weights = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    return PictureOutcome(
        case=unit.predict,
        logits=np.zeros((len(predicted), 0), dtype=np.float32),
        distance=np.full(len(predicted), np.nan, dtype=np.float32),
        box=box,
        history=tuple(loop.history),
        best_epoch=best_epoch,
        images=program.images_seen,
        seconds=time.perf_counter() - begin,
        weights=weights,
    )


def train_finders(
    units: Sequence[PictureTraining],
    work: PictureWork,
    *,
    device: str = "auto",
    finished: Finished,
    failed: Failed,
    stop: Callable[[], bool] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Train several finders one after the other; their pictures are decoded and sent to the device once.

    Args:
        units: The trainings.
        work: Cases, pictures, masks and files of weights.
        device: "auto", "cpu", "cuda" or "cuda:N".
        finished: Called with every outcome.
        failed: Called with the reason of every training that could not run.
        stop: Asked before each epoch; True ends all.
        progress: See `train_finder`.
    """
    names = {name for unit in units for part in (unit.train, unit.validation, unit.predict) for name in part}
    rows = work.cases.rows([name for name in work.cases.case if name in names])
    pictures = DevicePictures(work.cases, work.pictures, device=select_device(device), rows=rows)
    for unit in units:
        try:
            outcome = train_finder(unit, work, device=device, stop=stop, progress=progress, pictures=pictures)
        except StoppedError:
            return
        except UserError as error:
            failed(unit, str(error))
            continue
        finished(unit, outcome)


class _FinderProgram(FinderInference):
    """A finder, its optimiser, the training part on the device, and one step."""

    def __init__(
        self, model: Finder, unit: PictureTraining, work: PictureWork, train: Rows, device: torch.device
    ) -> None:
        super().__init__(model, unit.recipe, device)
        self._adam = RecordableAdam(
            self.model.parameters(),
            gradient_norm=self.recipe.gradient_norm,
            weight_decay=self.recipe.weight_decay,
            device=device,
        )
        self._train_rows = train
        self.label = np.clip(work.cases.label[train].astype(np.int64), 0, None)
        groups = {
            name: group for group, name in enumerate(dict.fromkeys(work.cases.dataset[row] for row in train))
        }
        self.group = np.array([groups[work.cases.dataset[row]] for row in train], dtype=np.int64)
        self._noise = noise_fields(unit.input.size_px, device) if self.recipe.noise else None
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        self._loss_sum = torch.zeros((), device=device)
        self._buffers: dict[str, torch.Tensor] = {}
        self._graph: Any = None
        self.images_seen = 0
        self.best = BestWeights(self.model, allocate=True)

    def load(self, cut: torch.Tensor, outline: torch.Tensor) -> None:
        """Take the training part's pictures and masks, as bytes."""
        rows = torch.from_numpy(self._train_rows).to(self.device)
        self._images, self._masks = cut.index_select(0, rows), outline.index_select(0, rows)

    def _step(self) -> None:
        now = {name: values.index_select(0, self._position)[0] for name, values in self._buffers.items()}
        rows = now["order"]
        seen = augment(
            self._images.index_select(0, rows),
            now["affine"],
            now["jitter"],
            self.recipe,
            self._noise,
            self._masks.index_select(0, rows),
        )
        target = functional.avg_pool2d(seen[:, 2:], 2)
        x = seen[:, :1].expand(-1, 3, -1, -1)
        if self.on_gpu:
            x = x.contiguous(memory_format=torch.channels_last)
        with mixed_precision(self.device):
            logits = self.model(x)
        loss = outline_loss(logits.float(), target)
        loss.backward()
        self._adam.step()
        self._loss_sum += loss.detach()
        self._position += 1

    def _reset_step(self) -> None:
        self._adam.zero_gradients()
        self._position.zero_()

    def _fill(self, draws: EpochDraws) -> None:
        for name in ("order", "affine", "jitter"):
            values = torch.from_numpy(np.ascontiguousarray(getattr(draws, name)))
            if name in self._buffers:
                self._buffers[name].copy_(values)
            else:
                self._buffers[name] = values.to(self.device)

    def _capture(self) -> None:
        """Record the step, and put the weights back that the warm-up changed."""
        before = BestWeights(self.model, allocate=True)
        self._graph = capture_step(self._step, reset=self._reset_step, stream=side_stream(self.device))
        before.restore()
        self._adam.reset()

    def epoch(self, draws: EpochDraws, rate: float) -> float:
        """Go once over the training part; return the mean loss."""
        self._fill(draws)
        self.model.train()
        self._adam.set_rate(rate)
        if self.on_gpu and self._graph is None:
            self._capture()
        self._position.zero_()
        self._loss_sum.zero_()
        for _ in range(len(draws.order)):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._adam.zero_gradients()
                self._step()
        self.images_seen += draws.order.size
        return float(self._loss_sum) / len(draws.order)

    def dice(self, cut: torch.Tensor, outline: torch.Tensor, rows: Rows) -> float:
        """Return the mean Dice over cases; 0 where there are none."""
        values = []
        for batch in self.batches(rows):
            found = self.probability(cut.index_select(0, batch))[:, 0] >= THRESHOLD
            mask = outline.index_select(0, batch).unsqueeze(1).float()
            truth = functional.avg_pool2d(mask, 2)[:, 0] >= 127.5
            both, sizes = (found & truth).sum((1, 2)), found.sum((1, 2)) + truth.sum((1, 2))
            values.append(torch.where(sizes > 0, 2.0 * both / sizes.clamp_min(1), torch.ones_like(both)))
        return float(torch.cat(values).mean()) if values and len(rows) else 0.0


def outline_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy per pixel plus 1 - Dice per picture.

    With the Dice, small lesions count as much as large ones.

    Args:
        logits: [pictures, 1, height, width].
        target: The share of lesion in each pixel, 0 to 1, of the same shape.

    Returns:
        One number.
    """
    pixel = functional.binary_cross_entropy_with_logits(logits, target)
    probability = torch.sigmoid(logits)
    both = (probability * target).sum((1, 2, 3))
    sizes = probability.sum((1, 2, 3)) + target.sum((1, 2, 3))
    return pixel + (1.0 - (2.0 * both + 1.0) / (sizes + 1.0)).mean()


def _cases_with_truth(names: tuple[str, ...], work: PictureWork) -> Rows:
    """Cases with a mask, and normal ones, where nothing is to be found."""
    cases = work.cases
    rows = [
        row
        for row in cases.rows(names)
        if cases.label[row] == NORMAL or work.pictures.has_mask(cases.case[row])
    ]
    return np.array(rows, dtype=np.int64)


def _with_drawn_mask(rows: Rows, work: PictureWork, outline: torch.Tensor) -> Rows:
    """Leave out lesions whose mask is empty, or of another size than the picture: they would teach that
    there is nothing.
    """
    drawn = outline.flatten(1).amax(1).cpu().numpy() > 0
    return rows[(work.cases.label[rows] == NORMAL) | drawn[rows]]
