"""Many trainings side by side on one device.

A lane is a stream with its own program. One thread drives all lanes in turn: each unit is a generator that
gives way whenever its stream has work enough, so that no lane waits for another and nothing is shared but
the pictures. On a CPU there is one lane.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from elsewhere.engine.batch import Deadline
from elsewhere.errors import UserError
from elsewhere.networks import NETWORKS, build_network, find_weights, load_state
from elsewhere.training.crops import DevicePictures
from elsewhere.training.distance import class_distance
from elsewhere.training.draws import draw_epoch, steps_of
from elsewhere.training.pictures.settings import (
    Failed,
    Finished,
    PictureOutcome,
    PictureTraining,
    PictureWork,
)
from elsewhere.training.program import Program, program_key, to_known_size

Progress = Callable[[str, int, int], None]
CHUNK_STEPS = 8
SETTLE_IMAGES = 1024
"""At most so many training images give the batch-norm statistics."""
DISTANCE_IMAGES = 512
"""At most so many training images fit the Mahalanobis distance."""
BESIDE_BYTES = 40 * 2**30
"""With so much free memory all networks of a study train beside each other. An EfficientNet-Lite0 and a ViT-B/16 so gained
4 % in a trial on an H200: either fills the card."""


def train_all(
    units: Sequence[PictureTraining],
    work: PictureWork,
    *,
    device: str,
    lanes: int,
    finished: Finished,
    failed: Failed,
    progress: Progress | None,
    stop: Callable[[], bool] | None,
) -> None:
    """See `elsewhere.training.train_units`."""
    if not units:
        return
    where = pick_device(device)
    try:
        _train_all(units, work, where, lanes, finished, failed, progress, stop)
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"no memory left on {device_name(where)}: {str(error).splitlines()[0]}",
            fix="The batch belongs to the study and is not made smaller silently. Use --lanes 1, free the "
            "card, or set a smaller batch in the study file. What is done is kept: run again to go on.",
        ) from error


def pick_device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"unknown device '{device}'", fix="auto, cpu, cuda or cuda:0.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device here", fix="--device cpu, or auto.")
    return chosen


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def be_deterministic() -> None:
    """Same device, same numbers: no algorithm whose sums depend on timing. A warning is not enough for flash
    attention: `program.ordered_sums` is around the capture of a transformer's step."""
    import os

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Deterministic mode also fills every new tensor: a thousand launches a step, for memory that is written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # The backward pass of cuDNN's attention has no ordered sums at all.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def _train_all(
    units: Sequence[PictureTraining],
    work: PictureWork,
    device: torch.device,
    lanes: int,
    finished: Finished,
    failed: Failed,
    progress: Progress | None,
    stop: Callable[[], bool] | None,
) -> None:
    be_deterministic()
    done = 0

    def told(unit: PictureTraining, outcome: PictureOutcome) -> None:
        nonlocal done
        done += 1
        finished(unit, outcome)
        if progress:
            progress("trainings", done, len(units))

    names = {name for unit in units for part in (unit.train, unit.validation, unit.predict) for name in part}
    pictures = DevicePictures(work.cases, work.pictures, device=device, rows=work.cases.rows(sorted(names)))
    starts = Starts(work, device)
    for unit in units:
        pictures.cut(unit.input)
        if unit.input.outline:
            pictures.outline(unit.input)
        starts.load(unit)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    by_network = itertools.groupby(sorted(units, key=_size_order), key=lambda unit: unit.recipe.network)
    groups = [list(group) for _, group in by_network]
    # A person who sets the lanes has a reason, and it is mostly memory.
    beside = not lanes and device.type == "cuda" and torch.cuda.mem_get_info(device)[0] >= BESIDE_BYTES
    for together in [groups] if beside else [[group] for group in groups]:
        _train_side_by_side(together, pictures, work, starts, lanes, told, failed, stop)


def _train_side_by_side(
    groups: Sequence[Sequence[PictureTraining]],
    pictures: DevicePictures,
    work: PictureWork,
    starts: Starts,
    lanes: int,
    finished: Finished,
    failed: Failed,
    stop: Callable[[], bool] | None,
) -> None:
    """Each group the units of one network, in as many lanes as suit it."""
    device = starts.device
    running: list[tuple[list[PictureTraining], Lane]] = []
    for units in groups:
        queue = list(units)
        count = lanes or (default_lanes(units) if device.type == "cuda" else 1)
        running += [(queue, Lane(device, pictures, work, starts, units)) for _ in range(count)]
    active: dict[int, tuple[PictureTraining, Iterator[PictureOutcome | None]]] = {}
    while active or any(queue for queue, _ in running):
        for at, (queue, lane) in enumerate(running):
            if at not in active:
                ready = next((unit for unit in queue if not _too_late(stop, unit)), None)
                if ready is None:
                    continue
                queue.remove(ready)
                active[at] = (ready, lane.train(ready))
            unit, steps = active[at]
            try:
                with lane.turn():
                    outcome = next(steps)
            except UserError as error:
                failed(unit, str(error))
                del active[at]
                continue
            if outcome is not None:
                del active[at]
                finished(unit, outcome)
        if not active and all(_too_late(stop, unit) for queue, _ in running for unit in queue):
            return


def _too_late(stop: Callable[[], bool] | None, unit: PictureTraining) -> bool:
    if isinstance(stop, Deadline):
        return stop.too_late_for(unit)
    return stop is not None and stop()


def _size_order(unit: PictureTraining) -> tuple[Any, ...]:
    """Programs together, the long trainings first, so that the lanes end together."""
    return (unit.recipe.network, unit.recipe.method, unit.input.size_px, -len(unit.train))


def default_lanes(units: Sequence[PictureTraining]) -> int:
    """Small networks leave a large GPU idle between kernels: more lanes fill it."""
    heaviest = max(NETWORKS[u.recipe.network].training_gflop * u.recipe.batch for u in units)
    return 2 if heaviest > 1000 else 6


class Starts:
    """Where a training starts: the published weights, read once, or a draw from the unit's seed."""

    def __init__(self, work: PictureWork, device: torch.device) -> None:
        self.work, self.device = work, device
        self._bodies: dict[tuple[str, str, int], dict[str, torch.Tensor]] = {}

    def load(self, unit: PictureTraining) -> None:
        """Read the unit's weights before any lane starts."""
        recipe, size = unit.recipe, unit.input.size_px
        name = (recipe.network, recipe.weights, size)
        if recipe.weights == "none" or name in self._bodies:
            return
        path = find_weights(recipe.network, recipe.weights, self.work.weights)
        model = build_network(recipe.network, size_px=size, dropout=recipe.dropout, seed=0)
        if path is not None:
            load_state(model, path)
        self._bodies[name] = {key: value.to(self.device) for key, value in model.state_dict().items()}

    def state(self, unit: PictureTraining) -> dict[str, torch.Tensor]:
        """The weights that this unit's training starts with; the head is always drawn from its seed."""
        recipe, size = unit.recipe, unit.input.size_px
        seed = int(np.random.SeedSequence([unit.seed, 1]).generate_state(1)[0])
        if recipe.weights == "none":
            with torch.device(self.device):
                fresh = build_network(recipe.network, size_px=size, dropout=recipe.dropout, seed=seed)
            return fresh.state_dict()
        state = dict(self._bodies[recipe.network, recipe.weights, size])
        generator = torch.Generator().manual_seed(seed)
        width = state["head.weight"].shape[1]
        bound = 1.0 / math.sqrt(width)
        for key in ("head.weight", "head.bias"):
            drawn = torch.empty(state[key].shape).uniform_(-bound, bound, generator=generator)
            state[key] = drawn.to(self.device)
        return state


class Lane:
    """A stream, its programs, and the units it trains one after the other."""

    def __init__(
        self,
        device: torch.device,
        pictures: DevicePictures,
        work: PictureWork,
        starts: Starts,
        units: Sequence[PictureTraining],
    ) -> None:
        self.device, self.pictures, self.work, self.starts = device, pictures, work, starts
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._program: tuple[Any, Program] | None = None
        self._units = units

    def turn(self) -> Any:
        """The context in which this lane's work is launched."""
        if self.stream is None:
            from contextlib import nullcontext

            return nullcontext()
        return torch.cuda.stream(self.stream)

    def _parts(
        self, unit: PictureTraining
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        cases = self.work.cases
        rows = cases.rows(unit.train)
        label = cases.label[rows].astype(np.int64)
        names = {name: at for at, name in enumerate(dict.fromkeys(cases.dataset[r] for r in rows))}
        group = np.array([names[cases.dataset[r]] for r in rows], dtype=np.int64)
        return rows, label, group

    def program(self, unit: PictureTraining, batch: int) -> Program:
        """The captured step that fits this unit; the last one is kept."""
        key = program_key(unit, batch)
        if self._program is None or self._program[0] != key:
            self._program = None
            images = steps = groups = 1
            for other in self._units:
                _, label, group = self._parts(other)
                count, size = steps_of(label, group, other.recipe)
                if program_key(other, size) == key:
                    images = max(images, len(label))
                    steps = max(steps, count)
                    groups = max(groups, int(group.max()) + 1)
            made = Program(unit, batch=batch, images=images, steps=steps, groups=groups, device=self.device)
            if self.stream is not None:
                made.capture(self.stream)
            self._program = (key, made)
        return self._program[1]

    def train(self, unit: PictureTraining) -> Iterator[PictureOutcome | None]:
        """Gives None at every turn, and the outcome at the end."""
        begin = time.perf_counter()
        rows, label, group = self._parts(unit)
        if len(set(label.tolist())) < 2 or -1 in label:
            raise UserError(f"the training part of {unit.name} does not hold both classes")
        if not unit.validation:
            raise UserError(f"the validation part of {unit.name} is empty")
        _, batch = steps_of(label, group, unit.recipe)
        program = self.program(unit, batch)
        cut = self.pictures.cut(unit.input)
        outline = self.pictures.outline(unit.input) if unit.input.outline else None
        on_device = torch.from_numpy(rows).to(self.device)
        program.start(
            self.starts.state(unit),
            cut.index_select(0, on_device),
            None if outline is None else outline.index_select(0, on_device),
            label,
            group,
        )
        rng = np.random.default_rng(np.random.SeedSequence([unit.seed, 2]))
        dropout = torch.Generator(self.device).manual_seed(
            int(np.random.SeedSequence([unit.seed, 3]).generate_state(1)[0])
        )
        check_rows = self.work.cases.rows(unit.validation)
        truth = torch.from_numpy(self.work.cases.label[check_rows].astype(np.int64)).to(self.device)
        settle_rows = torch.from_numpy(
            np.random.default_rng(np.random.SeedSequence([unit.seed, 4])).permutation(len(rows))[
                :SETTLE_IMAGES
            ]
        ).to(self.device)
        best, best_epoch, history = math.inf, 0, []
        for epoch in range(1, unit.recipe.epochs + 1):
            started = time.perf_counter()
            draws = draw_epoch(rng, label, group, unit.recipe, size_px=unit.input.size_px)
            marks: deque[Any] = deque()
            for _ in program.epoch(draws, rate_at(unit, epoch), dropout, CHUNK_STEPS):
                yield from self._wait(marks, most=2)
            if unit.recipe.batch_statistics == "population" and program.is_conv:
                for _ in program.settle(settle_rows, 256 if self.stream else 64):
                    yield from self._wait(marks, most=2)
            logits = yield from self._logits(program, unit, check_rows, cut, outline)
            losses = torch.nn.functional.cross_entropy(logits[0], truth)
            told = torch.stack([program.loss_sum / len(draws.order), losses.detach()])
            values = yield from self._fetch(told)
            train_loss, loss = float(values[0]), float(values[1])
            history.append(
                {
                    "epoch": epoch,
                    "train_loss": train_loss,
                    "validation_loss": loss,
                    "seconds": time.perf_counter() - started,
                }
            )
            if loss < best or (epoch == 1 and not math.isfinite(loss)):
                best, best_epoch = loss if math.isfinite(loss) else math.inf, epoch
                if unit.recipe.keep == "best":
                    program.keep_best()
            elif epoch - best_epoch >= unit.recipe.patience:
                break
        if unit.recipe.keep == "best":
            program.restore_best()
        else:
            best_epoch = len(history)
        yield from self._predicted(program, unit, rows, label, cut, outline, history, best_epoch, begin)

    def _predicted(
        self,
        program: Program,
        unit: PictureTraining,
        rows: npt.NDArray[np.int64],
        label: npt.NDArray[np.int64],
        cut: torch.Tensor,
        outline: torch.Tensor | None,
        history: list[dict[str, float]],
        best_epoch: int,
        begin: float,
    ) -> Iterator[PictureOutcome | None]:
        cases = self.work.cases
        asked = cases.rows(unit.predict)
        source, places = cut, asked
        if unit.boxes is not None:
            boxes = np.array([unit.boxes[name] for name in unit.predict], dtype=np.int32).reshape(-1, 4)
            source = self.pictures.cut_boxes(unit.input, asked, boxes)
            places = np.arange(len(asked))
        logits, features = yield from self._logits(
            program, unit, places, source, outline, mirrored=unit.recipe.test_mirror
        )
        some = rows[np.linspace(0, len(rows) - 1, min(len(rows), DISTANCE_IMAGES)).astype(int)]
        _, seen = yield from self._logits(program, unit, some, cut, outline)
        told = torch.from_numpy(cases.label[some].astype(np.int64)).to(self.device)
        distance = class_distance(seen, told, features)
        both = yield from self._fetch(torch.cat([logits, distance[:, None]], dim=1))
        weights = None
        if unit.keep_weights:
            weights = {name: value.cpu().clone() for name, value in program.model.state_dict().items()}
        yield PictureOutcome(
            case=unit.predict,
            logits=both[:, :2].astype(np.float32),
            distance=both[:, 2].astype(np.float32),
            history=tuple(history),
            best_epoch=best_epoch,
            images=program.images_seen,
            seconds=time.perf_counter() - begin,
            weights=weights,
        )

    def _logits(
        self,
        program: Program,
        unit: PictureTraining,
        rows: npt.NDArray[np.int64],
        cut: torch.Tensor,
        outline: torch.Tensor | None,
        *,
        mirrored: bool = False,
    ) -> Generator[None, None, tuple[torch.Tensor, torch.Tensor]]:
        size = 32 if self.stream is None else (96 if unit.input.size_px >= 320 else 256)
        logits, features = [], []
        marks: deque[Any] = deque()
        places = torch.from_numpy(rows).to(self.device)
        for start in range(0, len(rows), size):
            part = places[start : start + size]
            count = len(part)
            if self.stream is not None and program.is_conv:
                part = to_known_size(part)
            pixels = cut.index_select(0, part)
            mask = None if outline is None else outline.index_select(0, part)
            one, seen = program.forward(pixels, mask)
            if mirrored:
                other, seen_too = program.forward(pixels, mask, mirrored=True)
                one, seen = (one + other) / 2, (seen + seen_too) / 2
            logits.append(one[:count])
            features.append(seen[:count])
            yield from self._wait(marks, most=2)
        return torch.cat(logits), torch.cat(features)

    def _wait(self, marks: deque[Any], *, most: int) -> Iterator[None]:
        """Give the turn; come back when at most `most` pieces are under way on this stream."""
        if self.stream is None:
            yield None
            return
        mark = torch.cuda.Event()
        mark.record(self.stream)
        marks.append(mark)
        yield None
        while len(marks) > most:
            if marks[0].query():
                marks.popleft()
            else:
                yield None

    def _fetch(self, values: torch.Tensor) -> Generator[None, None, npt.NDArray[np.float32]]:
        """To the host without holding the other lanes."""
        if self.stream is None:
            return values.detach().numpy()
        held = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        held.copy_(values.detach(), non_blocking=True)
        mark = torch.cuda.Event()
        mark.record(self.stream)
        while not mark.query():
            yield None
        return held.numpy().copy()


def rate_at(unit: PictureTraining, epoch: int) -> float:
    """The learning rate of an epoch (from 1)."""
    recipe = unit.recipe
    if recipe.schedule == "cosine":
        return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / recipe.epochs))
    return recipe.learning_rate
