"""How a GPU computes a step, where several ways give the same numbers to within rounding.

They are a property of the machine, not of a training: no key holds them, and a machine on which one of them fails or
is slow (another driver, another cuDNN) can do without it. A recipe tells in its details which were used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GpuWays:
    captured: bool = True
    """The training step is one CUDA graph."""
    channels_last: bool = True
    """Maps lie as [batch, x, y, z, channel], as the tensor cores read them."""
    fused_norm: bool = True
    """Instance norm of such maps by torch's batch-norm kernels, a sample at a time."""


SAFEST = GpuWays(captured=False, channels_last=False, fused_norm=False)
_used = GpuWays()


def gpu_ways() -> GpuWays:
    return _used


@contextmanager
def using(ways: GpuWays) -> Iterator[None]:
    """For everything that is built and trained inside."""
    global _used
    before, _used = _used, ways
    try:
        yield
    finally:
        _used = before
