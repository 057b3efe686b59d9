"""Triton kernels that are compiled when they are first launched, so that importing them needs no triton."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

LEAST_CAPABILITY = (8, 0)
"""The first GPUs with bf16 matrix units."""


def available(device: torch.device) -> bool:
    """Say whether the kernels can run on a device: it computes in bf16, and triton is installed.

    Args:
        device: Any device.

    Returns:
        True or False.

    Example:
        >>> available(torch.device("cpu"))
        False
    """
    return (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
        and importlib.util.find_spec("triton") is not None
    )


class Kernel:
    """A function in Triton's language, compiled when it is first launched.

    Its module names `tl` for the type checker alone; the function gets it here.

    Args:
        function: The kernel.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self._compiled: Any = None

    def launch(self, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        """Launch the kernel on the current stream.

        Args:
            grid: How many programs, along up to three axes.
            *arguments: Tensors and numbers.
            **options: The kernel's constants, `num_warps` and `num_stages`.
        """
        if self._compiled is None:
            import triton
            import triton.language

            self.function.__globals__["tl"] = triton.language
            self._compiled = triton.jit(self.function)
        self._compiled[grid](*arguments, **options)


def power_of_two(count: int, least: int = 1) -> int:
    """Return the smallest power of two that is at least `count` and `least`.

    Args:
        count: A number.
        least: A power of two.

    Returns:
        The power.

    Example:
        >>> power_of_two(5), power_of_two(5, 16)
        (8, 16)
    """
    return max(least, 1 << max(count - 1, 0).bit_length())


def blocks_of(count: int, block: int) -> int:
    """Return how many blocks hold a number of elements.

    Args:
        count: Elements.
        block: The size of a block.

    Returns:
        Blocks; the last one may be partly empty.

    Example:
        >>> blocks_of(9, 4)
        3
    """
    return -(-count // block)
