"""Training one network on prepared volumes: SGD with Nesterov momentum on a poly schedule (MRI-13).

On a GPU the whole step (cut, change, forward, backward, update) is captured once as a CUDA graph and replayed:
it reads its place in the epoch from a counter on the device. Everything random is drawn before an epoch from
(seed, epoch), so a training that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elsewhere.errors import TrainingError, UserError
from elsewhere.training.cuda_options import gpu_ways
from elsewhere.training.volumes.feeding import Feed
from elsewhere.training.volumes.losses import Objective, baseline_objective
from elsewhere.training.volumes.networks import fastest, layout_of
from elsewhere.training.volumes.patches import (
    JITTERS,
    PLAIN,
    PatchDraws,
    change,
    cut,
    draw_patches,
    noise_values,
)
from elsewhere.training.volumes.planning import Plan
from elsewhere.training.volumes.preparing import Prepared
from elsewhere.training.volumes.windows import forward_of

OnEpoch = Callable[[Mapping[str, float], torch.nn.Module], "Mapping[str, float] | None"]
"""After every epoch, with its entry of the history; it may hand over new weights of cases."""
WARM_STEPS = 3
SMOOTHED = 0.9
"""The validation Dice that chooses is a moving average, as one epoch's is noisy."""


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    epochs: int = 1000
    steps_per_epoch: int = 250
    batch: int = 0
    """0: the plan's."""
    optimiser: str = "sgd"
    """'sgd' or 'adamw'."""
    learning_rate: float = 0.01
    weight_decay: float = 3e-5
    momentum: float = 0.99
    gradient_norm: float = 12.0
    foreground: float = 1 / 3
    augment: bool = True
    keep: str = "last"
    """'last' (nnU-Net's) or 'best', by the smoothed Dice of validation patches."""
    validation_steps: int = 50
    checkpoint_every: int = 25
    """Epochs."""
    compiled: bool = True
    """torch.compile on a GPU; a CPU runs the plain step."""

    def __post_init__(self) -> None:
        for name in ("epochs", "steps_per_epoch", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.keep not in ("last", "best"):
            raise UserError(f"keep must be 'last' or 'best', not '{self.keep}'")
        if self.optimiser not in ("sgd", "adamw"):
            raise UserError(f"optimiser must be 'sgd' or 'adamw', not '{self.optimiser}'")
        if not 0 <= self.foreground <= 1:
            raise UserError(f"foreground must lie in 0 to 1, not {self.foreground}")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    history: tuple[dict[str, float], ...]
    best_epoch: int
    patches: int
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of cases, as they were at the end."""


def rate_at(settings: FitSettings, epoch: int) -> float:
    """The poly schedule."""
    return settings.learning_rate * (1 - epoch / settings.epochs) ** 0.9


def fit(
    network: torch.nn.Module,
    data: Prepared,
    plan: Plan,
    settings: FitSettings,
    *,
    seed: int,
    validation: Prepared | None = None,
    sample_weights: Mapping[str, float] | None = None,
    on_epoch: OnEpoch | None = None,
    objective: Objective | None = None,
    checkpoint: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Fitted:
    """Train `network` in place. With `checkpoint` (a file) a killed training goes on from there."""
    program = StepProgram(network, data, plan, settings, objective or baseline_objective(plan))
    program.set_weights(_weights(data, sample_weights))
    watched = validation if validation is not None and len(validation.cases) else None
    try:
        state = _epochs(program, data, watched, seed, on_epoch, objective, checkpoint, progress)
    finally:
        program.release()
    if settings.keep == "best" and state.kept:
        network.load_state_dict(state.kept)
    network.eval()
    return Fitted(
        history=tuple(state.history),
        best_epoch=state.best_epoch if settings.keep == "best" and state.kept else settings.epochs,
        patches=settings.epochs * settings.steps_per_epoch * program.batch,
        weights=dict(zip(data.cases, program.case_weight.tolist(), strict=True)),
    )


def _epochs(
    program: StepProgram,
    data: Prepared,
    watched: Prepared | None,
    seed: int,
    on_epoch: OnEpoch | None,
    own: Objective | None,
    checkpoint: Path | None,
    progress: Callable[[str, int, int], None] | None,
) -> _State:
    """From the checkpoint, where there is one, to the end."""
    network, plan, settings = program.network, program.plan, program.settings
    state = _State()
    if checkpoint is not None and checkpoint.exists():
        state = program.load(checkpoint)
    if state.epoch < settings.epochs:
        program.capture()
    while state.epoch < settings.epochs:
        began = time.perf_counter()
        epoch = state.epoch
        rng = np.random.default_rng([seed, 1, epoch])
        draws = draw_patches(
            rng,
            data,
            plan,
            steps=settings.steps_per_epoch,
            batch=program.batch,
            foreground=settings.foreground,
            augment=settings.augment,
        )
        loss = program.epoch(draws, rate_at(settings, epoch))
        if not np.isfinite(loss):
            raise TrainingError(
                f"the training loss is {loss} in epoch {epoch + 1}", fix="Try a smaller learning_rate."
            )
        entry: dict[str, float] = {"epoch": epoch + 1, "train_loss": loss}
        if watched is not None:
            entry |= validate(program, watched, plan, settings, seed=seed, own=own)
            dice = entry.get("validation_dice", float("nan"))
            if np.isfinite(dice):
                state.smoothed = (
                    dice if np.isnan(state.smoothed) else SMOOTHED * state.smoothed + (1 - SMOOTHED) * dice
                )
                if settings.keep == "best" and not state.smoothed <= state.best:
                    state.best, state.best_epoch = state.smoothed, epoch + 1
                    state.kept = {k: v.detach().cpu().clone() for k, v in network.state_dict().items()}
        entry["seconds"] = time.perf_counter() - began
        state.history.append(entry)
        state.epoch = epoch + 1
        if on_epoch is not None:
            changed = on_epoch(entry, network)
            if changed is not None:
                program.set_weights(_weights(data, changed))
        last = state.epoch == settings.epochs
        if checkpoint is not None and (last or state.epoch % settings.checkpoint_every == 0):
            program.save(checkpoint, state)
        if progress is not None:
            progress("epoch", state.epoch, settings.epochs)
    return state


@dataclass
class _State:
    epoch: int = 0
    smoothed: float = float("nan")
    best: float = float("nan")
    best_epoch: int = 0
    kept: dict[str, torch.Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


def forget_compiled(device: str) -> None:
    """Between networks: dynamo keeps eight graphs of one code and then falls back to the plain step."""
    if device.startswith("cuda"):
        torch.compiler.reset()
        torch.cuda.empty_cache()


def _weights(data: Prepared, weights: Mapping[str, float] | None) -> np.ndarray:
    given = weights or {}
    out = np.array([float(given.get(case, 1.0)) for case in data.cases], dtype=np.float32)
    if not np.isfinite(out).all() or (out < 0).any() or out.sum() <= 0:
        raise ValueError("weights of cases must be finite, not negative, and not all 0")
    return out


class StepProgram:
    """Static memory and one training step."""

    def __init__(
        self,
        network: torch.nn.Module,
        data: Prepared,
        plan: Plan,
        settings: FitSettings,
        objective: Objective,
    ) -> None:
        self.network, self.plan, self.settings, self.objective = network, plan, settings, objective
        self.device = data.device
        self.on_gpu = self.device.type == "cuda"
        self.batch = settings.batch or plan.batch
        self.feed = Feed(data, self.batch)
        self.parameters = [p for p in network.parameters() if p.requires_grad]
        self.rate = torch.zeros((), device=self.device)
        self.optimiser = self._optimiser()
        steps, batch, device = settings.steps_per_epoch, self.batch, self.device
        self.rows = torch.zeros((steps, batch), dtype=torch.int64, device=device)
        self.offset = torch.zeros_like(self.rows)
        self.shape = torch.ones((steps, batch, 3), dtype=torch.int64, device=device)
        self.matrix = torch.zeros((steps, batch, 3, 4), device=device)
        self.jitter = torch.zeros((steps, batch, plan.channels, JITTERS), device=device)
        self.shift = torch.zeros_like(self.rows)
        self.case_weight = torch.ones(len(data.cases), device=device)
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.loss_sum = torch.zeros((), device=device)
        self.noise = noise_values(device)
        compiled = self.on_gpu and settings.compiled
        self.layout = layout_of(network)
        self._forward: Any = torch.compile(network, dynamic=False) if compiled else network
        self._patches: Any = torch.compile(self._make, dynamic=False) if compiled else self._make
        self._active: list[list[bool]] = []
        self.graph: Any = None

    def _optimiser(self) -> torch.optim.Optimizer:
        settings = self.settings
        rate: Any = self.rate if self.on_gpu else 0.0
        if settings.optimiser == "sgd":
            return torch.optim.SGD(
                self.parameters,
                lr=rate,
                momentum=settings.momentum,
                nesterov=settings.momentum > 0,
                weight_decay=settings.weight_decay,
                fused=self.on_gpu,
            )
        return torch.optim.AdamW(
            self.parameters,
            lr=rate,
            weight_decay=settings.weight_decay,
            fused=self.on_gpu,
            capturable=self.on_gpu,
        )

    def autocast(self) -> torch.autocast:
        """bf16 on a GPU; a CPU without bf16 units is several times slower with it."""
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.on_gpu, cache_enabled=False
        )

    def _make(
        self,
        offset: torch.Tensor,
        shape: torch.Tensor,
        matrix: torch.Tensor,
        jitter: torch.Tensor,
        shift: torch.Tensor,
        active: list[bool] | None = None,
        whole: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, target = cut(
            self.feed.images, self.feed.masks, offset, shape, matrix, self.plan.patch, whole=whole
        )
        if self.settings.augment:
            x = change(x, jitter, shift, self.noise, active=active)
        return x, target

    def _step(self, active: list[bool] | None = None, whole: bool = False) -> None:
        at = self.place
        with torch.no_grad():
            x, target = self._patches(
                *(
                    table.index_select(0, at)[0]
                    for table in (self.offset, self.shape, self.matrix, self.jitter, self.shift)
                ),
                active,
                whole,
            )
            x = x.contiguous(memory_format=self.layout)
            weight = self.case_weight.index_select(0, self.rows.index_select(0, at)[0])
        with self.autocast():
            loss = self.objective(self._forward, x, target, weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.gradient_norm, foreach=True)
        self.optimiser.step()
        self.loss_sum += loss.detach()
        self.place += 1

    def capture(self) -> None:
        """Warm up and record the step on a GPU; weights and the optimiser's state are put back after."""
        if not self.on_gpu or self.graph is not None or not gpu_ways().captured:
            return
        state = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        held = self.optimiser_state()
        self.network.train()
        self.matrix[:, :, :, :3] = torch.eye(3, device=self.device)
        self.jitter.copy_(torch.from_numpy(np.broadcast_to(PLAIN, self.jitter.shape).copy()))
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream), fastest(True):
            for _ in range(WARM_STEPS):
                self.optimiser.zero_grad(set_to_none=True)
                self.place.zero_()
                self._step()
            self.optimiser.zero_grad(set_to_none=True)
            self.place.zero_()
        stream.synchronize()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with fastest(True), torch.cuda.graph(graph, stream=stream):
            self._step()
        self.graph = graph
        with torch.no_grad():
            for name, value in self.network.state_dict().items():
                value.copy_(state[name])
        self._restore(held)

    def epoch(self, draws: PatchDraws, rate: float) -> float:
        """Its steps; the mean loss."""
        steps = len(draws)
        tables: tuple[tuple[torch.Tensor, np.ndarray], ...] = (
            (self.rows, draws.row),
            (self.offset, self.feed.offsets(draws)),
            (self.shape, draws.shape),
            (self.matrix, draws.matrix),
            (self.jitter, draws.jitter),
            (self.shift, draws.shift),
        )
        for table, values in tables:
            table[:steps].copy_(torch.from_numpy(np.ascontiguousarray(values)))
        self.place.zero_()
        self.loss_sum.zero_()
        self.rate.fill_(rate)
        if not self.on_gpu:
            for group in self.optimiser.param_groups:
                group["lr"] = rate
        self.network.train()
        self.feed.start(draws)
        with fastest(self.on_gpu):
            for step in range(steps):
                self.feed.ready(step)
                if self.graph is not None:
                    self.graph.replay()
                else:
                    self.optimiser.zero_grad(set_to_none=True)
                    self._step(*((None, False) if self.on_gpu else _needed(draws, step)))
                self.feed.done(step)
        return float(self.loss_sum) / steps

    def release(self) -> None:
        """Gradients and the captured step's memory go, whoever still holds the network."""
        self.optimiser.zero_grad(set_to_none=True)
        self.graph = self._patches = self._forward = None

    def set_weights(self, weights: np.ndarray) -> None:
        self.case_weight.copy_(torch.from_numpy(weights))

    def optimiser_state(self) -> list[dict[str, torch.Tensor]]:
        return [
            {k: v.detach().clone() for k, v in self.optimiser.state.get(p, {}).items() if v is not None}
            for p in self.parameters
        ]

    def _restore(self, held: list[dict[str, torch.Tensor]]) -> None:
        """In place where the state is there (a captured step keeps its addresses): zeros where none is held."""
        for p, values in zip(self.parameters, held, strict=True):
            own = self.optimiser.state[p]
            if not own:
                own.update({k: v.to(self.device if v.ndim else v.device).clone() for k, v in values.items()})
                continue
            for name, tensor in own.items():
                if name in values:
                    tensor.copy_(values[name])
                else:
                    tensor.zero_()

    def save(self, file: Path, state: _State) -> None:
        content = {
            "network": {k: v.detach().cpu() for k, v in self.network.state_dict().items()},
            "optimiser": [{k: v.cpu() for k, v in entry.items()} for entry in self.optimiser_state()],
            "weights": self.case_weight.cpu(),
            "epoch": state.epoch,
            "smoothed": state.smoothed,
            "best": state.best,
            "best_epoch": state.best_epoch,
            "kept": state.kept,
            "history": state.history,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        torch.save(content, part)
        part.replace(file)

    def load(self, file: Path) -> _State:
        """Where a killed training stopped; a file that cannot be read is as good as none."""
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
            self.network.load_state_dict(content["network"])
        except (OSError, RuntimeError, KeyError, EOFError, pickle.UnpicklingError):
            file.unlink(missing_ok=True)
            return _State()
        for p, values in zip(self.parameters, content["optimiser"], strict=True):
            if values:
                self.optimiser.state[p].update({k: v.to(self.device) for k, v in values.items()})
        self.case_weight.copy_(content["weights"])
        return _State(
            epoch=content["epoch"],
            smoothed=content["smoothed"],
            best=content["best"],
            best_epoch=content["best_epoch"],
            kept=content["kept"],
            history=content["history"],
        )


def _needed(draws: PatchDraws, step: int) -> tuple[list[bool], bool]:
    """Which changes any patch of a step has, and whether none is turned or scaled: a CPU leaves out the rest."""
    active = (draws.jitter[step] != PLAIN).any(axis=(0, 1)).tolist()
    return active, bool((np.abs(draws.matrix[step, :, :, :3]) == np.eye(3)).all())


@torch.no_grad()
def validate(
    program: StepProgram,
    data: Prepared,
    plan: Plan,
    settings: FitSettings,
    *,
    seed: int,
    own: Objective | None = None,
) -> dict[str, float]:
    """Loss and Dice over the same unchanged patches of the validation part every epoch."""
    network, device = program.network, program.device
    draws = draw_patches(
        np.random.default_rng([seed, 2]),
        data,
        plan,
        steps=settings.validation_steps,
        batch=program.batch,
        foreground=settings.foreground,
        augment=False,
    )
    objective = own or baseline_objective(plan)
    feed = Feed(data, program.batch)
    feed.start(draws)
    network.eval()
    tables = [torch.from_numpy(v).to(device) for v in (feed.offsets(draws), draws.shape, draws.matrix)]
    counts = torch.zeros(3, dtype=torch.int64, device=device)
    total = torch.zeros((), device=device)
    weight = torch.ones(program.batch, device=device)
    run = forward_of(network, program.on_gpu and settings.compiled)
    for step in range(len(draws)):
        feed.ready(step)
        offset, shape, matrix = (table[step] for table in tables)
        x, target = cut(feed.images, feed.masks, offset, shape, matrix, plan.patch, whole=True)
        x = x.contiguous(memory_format=program.layout)
        seen: list[torch.Tensor] = []

        def forward(image: torch.Tensor, seen: list[torch.Tensor] = seen) -> Any:
            out = run(image)
            seen.append(out)
            return out

        with program.autocast(), fastest(program.on_gpu):
            total += objective(forward, x, target, weight)
        if own is None:
            found = seen[0] > 0
            truth = target > 0.5
            counts += torch.stack([(found & truth).sum(), found.sum(), truth.sum()])
        feed.done(step)
    network.train()
    both, found_n, truth_n = (float(value) for value in counts)
    dice = 2 * both / (found_n + truth_n) if found_n + truth_n else float("nan")
    return {"validation_loss": float(total) / len(draws), "validation_dice": dice}
