"""Train a finder of lesions and let it find a box in every picture (US-33).

It learns from the masks of the training part alone, so that crops need no annotation where it is used.
Everything random of an epoch is drawn before it; on a GPU the step is a CUDA graph (see `program`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from elsewhere.errors import UserError
from elsewhere.inputs import NORMAL
from elsewhere.inputs.boxes import Boxes, box_iou, box_quality, boxes_of_maps
from elsewhere.networks.finder import Finder, build_finder, check_size
from elsewhere.training.augment import augment, plain
from elsewhere.training.crops import DevicePictures
from elsewhere.training.draws import EpochDraws, draw_epoch, noise_fields, steps_of
from elsewhere.training.pictures.settings import (
    ClassifierSettings,
    Failed,
    Finished,
    InputSpec,
    PictureOutcome,
    PictureTraining,
    PictureWork,
)
from elsewhere.training.program import to_known_size

__all__ = ["box_iou", "box_quality", "boxes_of_maps", "find_all", "find_boxes"]

THRESHOLD = 0.5
"""A pixel at or above this probability is lesion; fixed, never tuned on a target."""
WARM_STEPS = 3
Rows = npt.NDArray[np.int64]


class StoppedError(Exception):
    """The caller asked to stop; nothing of this unit is kept."""


def find_boxes(
    unit: PictureTraining,
    work: PictureWork,
    *,
    device: str = "auto",
    stop: Callable[[], bool] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    pictures: DevicePictures | None = None,
) -> PictureOutcome:
    """Train on the unit's training part, keep the weights of the best Dice on its validation part, and find a
    box in every case of `predict`: `PictureOutcome.box`, in picture pixels, zeros where nothing is found.

    `pictures` may be given where several finders see the same ones, so that they are decoded once. `stop` is
    asked before each epoch; True raises `StoppedError`.
    """
    begin = time.perf_counter()
    check_size(unit.input.size_px)
    where = _device(device)
    train, validation = _teaching(unit.train, work), _teaching(unit.validation, work)
    asked = work.cases.rows(unit.predict)
    if pictures is None:
        rows = np.concatenate([train, validation, asked])
        pictures = DevicePictures(work.cases, work.pictures, device=where, rows=rows)
    spec = replace(unit.input, kind="whole", outline=False)
    train, validation = (_outlined(rows, work, pictures.outline(spec)) for rows in (train, validation))
    if not (work.cases.label[train] != NORMAL).any():
        raise UserError(
            f"no case of the training part of {unit.name or 'this finder'} has a mask, so that no finder can "
            f"be trained ({len(unit.train)} cases)",
            fix="Use a source with lesion masks, or boxes = 'annotated'.",
        )
    seed = int(np.random.SeedSequence([unit.seed, 1]).generate_state(1)[0])
    model = build_finder(unit.recipe.network, weights=unit.recipe.weights, known=work.weights, seed=seed)
    loop = _Loop(model, unit, work, train, where)
    loop.load(pictures.cut(spec), pictures.outline(spec))
    rng = np.random.default_rng(np.random.SeedSequence([unit.seed, 2]))
    best, best_epoch, history = -1.0, 0, []
    for epoch in range(1, unit.recipe.epochs + 1):
        if stop and stop():
            raise StoppedError(unit.name)
        started = time.perf_counter()
        draws = draw_epoch(rng, loop.label, loop.group, unit.recipe, size_px=spec.size_px)
        train_loss = loop.epoch(draws, _rate(unit.recipe, epoch))
        dice = loop.dice(pictures.cut(spec), pictures.outline(spec), validation)
        history.append(
            {
                "epoch": float(epoch),
                "train_loss": train_loss,
                "validation_loss": 1.0 - dice,
                "validation_dice": dice,
                "seconds": time.perf_counter() - started,
            }
        )
        if progress:
            progress(unit.name or "finder", epoch, unit.recipe.epochs)
        if dice > best or epoch == 1:
            best, best_epoch = dice, epoch
            if unit.recipe.keep == "best":
                loop.keep_best()
        elif epoch - best_epoch >= unit.recipe.patience:
            break
    if unit.recipe.keep == "best" and len(validation):
        loop.restore_best()
    else:
        best_epoch = len(history)
    box = loop.boxes(pictures, spec, asked)
    weights = None
    if unit.keep_weights:
        weights = {name: value.cpu().clone() for name, value in loop.model.state_dict().items()}
    return PictureOutcome(
        case=unit.predict,
        logits=np.zeros((len(asked), 0), dtype=np.float32),
        distance=np.full(len(asked), np.nan, dtype=np.float32),
        box=box,
        history=tuple(history),
        best_epoch=best_epoch,
        images=loop.images_seen,
        seconds=time.perf_counter() - begin,
        weights=weights,
    )


def find_all(
    units: Sequence[PictureTraining],
    work: PictureWork,
    *,
    device: str = "auto",
    finished: Finished,
    failed: Failed,
    stop: Callable[[], bool] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Several finders one after the other; their pictures are decoded and sent to the device once."""
    names = {name for unit in units for part in (unit.train, unit.validation, unit.predict) for name in part}
    rows = work.cases.rows([name for name in work.cases.case if name in names])
    pictures = DevicePictures(work.cases, work.pictures, device=_device(device), rows=rows)
    for unit in units:
        try:
            outcome = find_boxes(unit, work, device=device, stop=stop, progress=progress, pictures=pictures)
        except StoppedError:
            return
        except UserError as error:
            failed(unit, str(error))
            continue
        finished(unit, outcome)


class Looker:
    """A finder in use: what it sees in pictures, and the boxes around it."""

    def __init__(self, model: Finder, recipe: ClassifierSettings, device: torch.device) -> None:
        self.recipe, self.device = recipe, device
        self.on_gpu = device.type == "cuda"
        self.model = model.to(device)
        if self.on_gpu:
            self.model.to(memory_format=torch.channels_last)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.on_gpu, cache_enabled=False
        )

    @torch.no_grad()
    def probability(self, pixels: torch.Tensor, *, mirrored: bool = False) -> torch.Tensor:
        """Bytes [n, size, size] to the probability of 'lesion' at half the size."""
        self.model.eval()
        x = plain(to_known_size(pixels) if self.on_gpu else pixels)
        if self.on_gpu:
            x = x.contiguous(memory_format=torch.channels_last)
        with self._autocast():
            logits = self.model(x).float()
            if mirrored:
                logits = (logits + self.model(x.flip(3)).flip(3).float()) / 2
        return torch.sigmoid(logits[: len(pixels)])

    def _batches(self, rows: Rows) -> tuple[torch.Tensor, ...]:
        return torch.from_numpy(rows).to(self.device).split(256 if self.on_gpu else 16)

    def boxes(self, pictures: DevicePictures, spec: InputSpec, rows: Rows) -> Boxes:
        """A box a case, in its picture's pixels."""
        found = [np.zeros((0, 4), dtype=np.int32)]
        cut = pictures.cut(spec)
        for part in self._batches(rows):
            maps = self.probability(cut.index_select(0, part), mirrored=self.recipe.test_mirror)
            maps = functional.interpolate(
                maps, size=(spec.size_px, spec.size_px), mode="bilinear", align_corners=False
            )
            at = part.cpu().numpy()
            found.append(
                boxes_of_maps(maps[:, 0].cpu().numpy(), THRESHOLD, pictures.width[at], pictures.height[at])
            )
        return np.concatenate(found)


class _Loop(Looker):
    """The model, its optimiser, the training part on the device, and one step."""

    def __init__(
        self, model: Finder, unit: PictureTraining, work: PictureWork, train: Rows, device: torch.device
    ) -> None:
        super().__init__(model, unit.recipe, device)
        self.parameters = list(self.model.parameters())
        self.rate = torch.zeros((), device=device)
        self.optimiser = torch.optim.Adam(
            self.parameters,
            lr=self.rate if self.on_gpu else 0.0,
            weight_decay=self.recipe.weight_decay,
            fused=self.on_gpu,
            capturable=self.on_gpu,
            foreach=None if self.on_gpu else True,
        )
        self.train_rows = train
        self.label = np.clip(work.cases.label[train].astype(np.int64), 0, None)
        names = {name: at for at, name in enumerate(dict.fromkeys(work.cases.dataset[r] for r in train))}
        self.group = np.array([names[work.cases.dataset[r]] for r in train], dtype=np.int64)
        self.steps, self.batch = steps_of(self.label, self.group, self.recipe)
        self.noise = noise_fields(unit.input.size_px, device) if self.recipe.noise else None
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.buffers: dict[str, torch.Tensor] = {}
        self.graph: Any = None
        self.images_seen = 0
        self.best = [tensor.detach().clone() for tensor in self._state()]

    def _state(self) -> list[torch.Tensor]:
        return list(self.model.state_dict(keep_vars=False).values())

    def load(self, cut: torch.Tensor, outline: torch.Tensor) -> None:
        """Take the training part's pictures and masks, as bytes."""
        rows = torch.from_numpy(self.train_rows).to(self.device)
        self.images, self.masks = cut.index_select(0, rows), outline.index_select(0, rows)

    def _step(self) -> None:
        now = {name: values.index_select(0, self.place)[0] for name, values in self.buffers.items()}
        rows = now["order"]
        seen = augment(
            self.images.index_select(0, rows),
            now["affine"],
            now["jitter"],
            self.recipe,
            self.noise,
            self.masks.index_select(0, rows),
        )
        target = functional.avg_pool2d(seen[:, 2:], 2)
        x = seen[:, :1].expand(-1, 3, -1, -1)
        if self.on_gpu:
            x = x.contiguous(memory_format=torch.channels_last)
        with self._autocast():
            logits = self.model(x)
        loss = outline_loss(logits.float(), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.gradient_norm, foreach=True)
        self.optimiser.step()
        self.loss_sum += loss.detach()
        self.place += 1

    def _fill(self, draws: EpochDraws) -> None:
        for name in ("order", "affine", "jitter"):
            values = torch.from_numpy(np.ascontiguousarray(getattr(draws, name)))
            if name in self.buffers:
                self.buffers[name].copy_(values)
            else:
                self.buffers[name] = values.to(self.device)

    def _capture(self) -> None:
        """Record the step. It is run a few times before, on weights that are put back afterwards."""
        before = [tensor.detach().clone() for tensor in self._state()]
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_STEPS):
                self.optimiser.zero_grad(set_to_none=True)
                self.place.zero_()
                self._step()
            self.optimiser.zero_grad(set_to_none=True)
            self.place.zero_()
        stream.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self._step()
        torch._foreach_copy_(self._state(), before)
        for entry in self.optimiser.state.values():
            for tensor in entry.values():
                tensor.zero_()

    def epoch(self, draws: EpochDraws, rate: float) -> float:
        """One pass over the training part; the mean loss."""
        self._fill(draws)
        self.model.train()
        self.rate.fill_(rate)
        if not self.on_gpu:
            for entry in self.optimiser.param_groups:
                entry["lr"] = rate
        elif self.graph is None:
            self._capture()
        self.place.zero_()
        self.loss_sum.zero_()
        for _ in range(len(draws.order)):
            if self.graph is not None:
                self.graph.replay()
            else:
                self.optimiser.zero_grad(set_to_none=True)
                self._step()
        self.images_seen += draws.order.size
        return float(self.loss_sum) / len(draws.order)

    def dice(self, cut: torch.Tensor, outline: torch.Tensor, rows: Rows) -> float:
        """Mean Dice over the cases; 0 where there are none."""
        values = []
        for part in self._batches(rows):
            ours = self.probability(cut.index_select(0, part))[:, 0] >= THRESHOLD
            mask = outline.index_select(0, part).unsqueeze(1).float()
            truth = functional.avg_pool2d(mask, 2)[:, 0] >= 127.5
            both, sizes = (ours & truth).sum((1, 2)), ours.sum((1, 2)) + truth.sum((1, 2))
            values.append(torch.where(sizes > 0, 2.0 * both / sizes.clamp_min(1), torch.ones_like(both)))
        return float(torch.cat(values).mean()) if values and len(rows) else 0.0

    def keep_best(self) -> None:
        torch._foreach_copy_(self.best, self._state())

    def restore_best(self) -> None:
        torch._foreach_copy_(self._state(), self.best)


def outline_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy a pixel, and 1 - Dice a picture, so that small lesions count as much as large ones."""
    pixel = functional.binary_cross_entropy_with_logits(logits, target)
    ours = torch.sigmoid(logits)
    both = (ours * target).sum((1, 2, 3))
    sizes = ours.sum((1, 2, 3)) + target.sum((1, 2, 3))
    return pixel + (1.0 - (2.0 * both + 1.0) / (sizes + 1.0)).mean()


def _teaching(names: tuple[str, ...], work: PictureWork) -> Rows:
    """Cases that can teach: those with a mask, and normal ones, where nothing is to be found."""
    cases = work.cases
    kept = [r for r in cases.rows(names) if cases.label[r] == NORMAL or work.pictures.has_mask(cases.case[r])]
    return np.array(kept, dtype=np.int64)


def _outlined(rows: Rows, work: PictureWork, outline: torch.Tensor) -> Rows:
    """Without the lesions whose mask is empty, or of another size than the picture: they would teach that
    there is nothing.
    """
    drawn = outline.flatten(1).amax(1).cpu().numpy() > 0
    return rows[(work.cases.label[rows] == NORMAL) | drawn[rows]]


def _device(device: str) -> torch.device:
    from elsewhere.training.lanes import be_deterministic, pick_device

    be_deterministic()
    return pick_device(device)


def _rate(recipe: ClassifierSettings, epoch: int) -> float:
    if recipe.schedule == "cosine":
        return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / recipe.epochs))
    return recipe.learning_rate
