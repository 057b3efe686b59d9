"""Triton kernels that are compiled when they are first launched, so that importing them needs no triton."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

LEAST_CAPABILITY = (8, 0)
"""The first GPUs with bf16 matrix units."""


def available(device: torch.device) -> bool:
    """Whether the kernels can run there: a CUDA device that computes in bf16, and triton installed."""
    return (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
        and importlib.util.find_spec("triton") is not None
    )


class Kernel:
    """A function in Triton's language. Its module names `tl` for the type checker alone; here it gets it."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self._compiled: Any = None

    def launch(self, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        """On the current stream; `options` are the kernel's constants, `num_warps` and `num_stages`."""
        if self._compiled is None:
            import triton
            import triton.language

            self.function.__globals__["tl"] = triton.language
            self._compiled = triton.jit(self.function)
        self._compiled[grid](*arguments, **options)


def power_of_two(count: int, least: int = 1) -> int:
    """The smallest power of two that is at least `count` and `least`."""
    return max(least, 1 << max(count - 1, 0).bit_length())


def blocks_of(count: int, block: int) -> int:
    return -(-count // block)
