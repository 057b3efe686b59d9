"""Gradient clipping and Adam over flat memory in a few launches (US-14: the optimiser of the trainings).

The same rule as `torch.nn.utils.clip_grad_norm_` followed by `torch.optim.Adam` with L2 weight decay. Step
counter, norm and learning rate live on the device, so a step can be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from elsewhere.training.fused_vit.flat import FlatParameters
from elsewhere.training.fused_vit.lazy import Kernel, blocks_of, power_of_two

if TYPE_CHECKING:
    import triton.language as tl

NORM_PROGRAMS = 528
"""Programs that each square and add their share of the body's gradient, in order."""
NORM_BLOCK = 4096
NORM_WARPS = 8
ADAM_BLOCK = 1024
WARPS = 4
NORM_EPS = 1e-6
"""What `clip_grad_norm_` adds to the norm."""


@Kernel
def _square_sums(
    gradient: tl.tensor,
    parts: tl.tensor,
    count: tl.tensor,
    PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
    TURNS: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for turn in range(TURNS):
        at = (turn * PROGRAMS + program) * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(gradient + at, mask=at < count, other=0.0).to(tl.float32)
        total += g * g
    tl.store(parts + program, tl.sum(total, 0))


@Kernel
def _advance(
    parts: tl.tensor,
    progress: tl.tensor,
    rate: tl.tensor,
    factors: tl.tensor,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    MAX_NORM: tl.constexpr,
    NORM_EPS: tl.constexpr,
) -> None:
    at = tl.arange(0, BLOCK)
    norm = tl.sqrt(tl.sum(tl.load(parts + at, mask=at < PARTS, other=0.0), 0))
    clip = tl.minimum(MAX_NORM / (norm + NORM_EPS), 1.0)
    first_power = tl.load(progress) * tl.load(progress + 2)
    second_power = tl.load(progress + 1) * tl.load(progress + 3)
    tl.store(progress, first_power)
    tl.store(progress + 1, second_power)
    first_correction = (1 - first_power).to(tl.float32)
    second_correction = (1 - second_power).to(tl.float32)
    tl.store(factors, clip)
    tl.store(factors + 1, tl.load(rate) / first_correction)
    tl.store(factors + 2, 1.0 / tl.sqrt(second_correction))
    tl.store(factors + 3, norm)


@Kernel
def _adam(
    values: tl.tensor,
    copy: tl.tensor,
    gradient: tl.tensor,
    mean: tl.tensor,
    square: tl.tensor,
    factors: tl.tensor,
    count: tl.tensor,
    DECAY: tl.constexpr,
    BETA_MEAN: tl.constexpr,
    REST_MEAN: tl.constexpr,
    BETA_SQUARE: tl.constexpr,
    REST_SQUARE: tl.constexpr,
    EPS: tl.constexpr,
    HAS_COPY: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    clip = tl.load(factors)
    step = tl.load(factors + 1)
    unbias = tl.load(factors + 2)
    p = tl.load(values + at, mask=inside, other=0.0)
    g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32) * clip + DECAY * p
    m = tl.load(mean + at, mask=inside, other=0.0) * BETA_MEAN + REST_MEAN * g
    s = tl.load(square + at, mask=inside, other=0.0) * BETA_SQUARE + REST_SQUARE * g * g
    p = p - step * m / (tl.sqrt(s) * unbias + EPS)
    tl.store(values + at, p, mask=inside)
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, s, mask=inside)
    if HAS_COPY:
        tl.store(copy + at, p.to(copy.dtype.element_ty), mask=inside)


class FlatAdam:
    """Adam for a flat body and a few ordinary parameters (the head), clipped by their common norm.

    `others` become views of one buffer and keep their `.grad` from autograd, in single precision.

    Args:
        body: The body's parameters and gradients.
        others: The parameters outside the flat body.
        rate: The learning rate, a scalar on the device.
        max_norm: Gradients of a larger norm are scaled down to it.
        weight_decay: Added to the gradient, times the weight.
        betas: How slowly the two moments follow.
        eps: Added to the root of the second moment.
    """

    def __init__(
        self,
        body: FlatParameters,
        others: Sequence[nn.Parameter],
        *,
        rate: torch.Tensor,
        max_norm: float,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.body, self.others, self.rate = body, list(others), rate
        self.max_norm, self.weight_decay, self.betas, self.eps = max_norm, weight_decay, betas, eps
        device = body.values.device
        count = sum(p.numel() for p in self.others)
        self._values = torch.zeros(count, device=device)
        self._gradient = torch.zeros(count, device=device)
        self._gradient_views: list[torch.Tensor] = []
        at = 0
        with torch.no_grad():
            for parameter in self.others:
                part = slice(at, at + parameter.numel())
                self._values[part].copy_(parameter.flatten())
                self._gradient_views.append(self._gradient[part].view(parameter.shape))
                parameter.data = self._values[part].view(parameter.shape)
                at = part.stop
        self._moments = [
            (torch.zeros_like(body.values), torch.zeros_like(body.values)),
            (torch.zeros_like(self._values), torch.zeros_like(self._values)),
        ]
        self._parts = torch.zeros(NORM_PROGRAMS + 1, device=device)
        self._factors = torch.zeros(4, device=device)
        self._fresh = torch.tensor([1.0, 1.0, *betas], dtype=torch.float64, device=device)
        self._progress = self._fresh.clone()
        """The betas' powers so far, and the betas, in double precision: 1 - 0.999 ** n loses digits in
        single."""

    def reset(self) -> None:
        """Forget all moments and steps: a new training starts."""
        for mean, square in self._moments:
            mean.zero_()
            square.zero_()
        self._progress.copy_(self._fresh)

    def zero_grad(self) -> None:
        """Forget the other parameters' gradients; the body's are overwritten by every backward pass."""
        for parameter in self.others:
            parameter.grad = None

    @property
    def norm(self) -> torch.Tensor:
        """The norm of all gradients at the last step, before clipping."""
        return self._factors[3]

    @torch.no_grad()
    def step(self) -> None:
        """Clip and update (US-14). A parameter without a gradient counts as one with zeros."""
        for view, parameter in zip(self._gradient_views, self.others, strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
        for gradient, at, programs in (
            (self.body.gradient, 0, NORM_PROGRAMS),
            (self._gradient, NORM_PROGRAMS, 1),
        ):
            _square_sums.launch(
                (programs,),
                *(gradient, self._parts[at:], gradient.numel()),
                PROGRAMS=programs,
                BLOCK=NORM_BLOCK,
                TURNS=blocks_of(gradient.numel(), programs * NORM_BLOCK),
                num_warps=NORM_WARPS,
            )
        _advance.launch(
            (1,),
            *(self._parts, self._progress, self.rate, self._factors),
            PARTS=NORM_PROGRAMS + 1,
            BLOCK=power_of_two(NORM_PROGRAMS + 1),
            MAX_NORM=self.max_norm,
            NORM_EPS=NORM_EPS,
            num_warps=WARPS,
        )
        self._update(self.body.values, self.body.copy, self.body.gradient, 0)
        self._update(self._values, None, self._gradient, 1)

    def _update(
        self, values: torch.Tensor, copy: torch.Tensor | None, gradient: torch.Tensor, which: int
    ) -> None:
        count = values.numel()
        _adam.launch(
            (blocks_of(count, ADAM_BLOCK),),
            *(values, values if copy is None else copy, gradient, *self._moments[which]),
            *(self._factors, count),
            DECAY=self.weight_decay,
            BETA_MEAN=self.betas[0],
            REST_MEAN=1.0 - self.betas[0],
            BETA_SQUARE=self.betas[1],
            REST_SQUARE=1.0 - self.betas[1],
            EPS=self.eps,
            HAS_COPY=copy is not None,
            BLOCK=ADAM_BLOCK,
            num_warps=WARPS,
        )
