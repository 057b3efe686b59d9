"""How a GPU computes a step, where several ways give the same numbers to within rounding.

The options are a property of the machine, not of a training: no key holds them, and a machine on which one of them fails
or is slow (another driver, another cuDNN) can do without it. A recipe's details say which were used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CudaOptions:
    """Which of the faster ways a GPU takes.

    Attributes:
        captured: The training step is one CUDA graph.
        channels_last: Maps lie as [batch, x, y, z, channel], as the tensor cores read them.
        fused_norm: Instance norm of such maps by torch's batch-norm kernels, one sample at a time.
    """

    captured: bool = True
    channels_last: bool = True
    fused_norm: bool = True


CONSERVATIVE = CudaOptions(captured=False, channels_last=False, fused_norm=False)
"""None of them."""
_current = CudaOptions()


def cuda_options() -> CudaOptions:
    """Return the options in force.

    Returns:
        Those of the innermost `use_cuda_options`, or all of them.
    """
    return _current


@contextmanager
def use_cuda_options(options: CudaOptions) -> Iterator[None]:
    """Put options in force for all that is built and trained inside.

    Args:
        options: The options.

    Yields:
        Nothing.

    Example:
        >>> with use_cuda_options(CONSERVATIVE):
        ...     cuda_options().captured
        False
    """
    global _current
    before, _current = _current, options
    try:
        yield
    finally:
        _current = before
