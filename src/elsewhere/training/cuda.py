"""The device of a training loop: its choice, precision, reproducibility and CUDA graphs.

A CUDA graph is a training step that was recorded once and is replayed with one launch: a small network's step
has hundreds of kernels, and launching them one by one takes longer than running them. A recorded step must do
the same work at the same addresses every time, so each loop keeps its data in static memory and reads its
position in the epoch from a counter on the device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from elsewhere.errors import UserError

WARM_UP_STEPS = 3
"""Steps run before the recording: libraries choose their algorithms and allocate their workspaces in the
first ones."""
CACHED_BATCHES = (64, 256)
"""Batch sizes that a convolutional network on a GPU is used with outside its training step. The first use of
every other size takes two seconds, in which cuDNN chooses an algorithm for every layer."""


def select_device(name: str) -> torch.device:
    """Return the device of this name.

    Args:
        name: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:N".

    Returns:
        The device.

    Raises:
        UserError: The name is no device, or it is a GPU and this machine has none.

    Example:
        >>> select_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"unknown device '{name}'", fix="auto, cpu, cuda or cuda:0.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("there is no CUDA device here", fix="--device cpu, or auto.")
    return device


def device_name(device: torch.device) -> str:
    """Return the name that a report shows for a device.

    Args:
        device: A CPU or a CUDA device.

    Returns:
        The GPU's product name, or "cpu".
    """
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def enable_determinism() -> None:
    """Make the same training on the same device give the same numbers.

    No algorithm is used whose sums depend on timing.

    An operation without a deterministic algorithm only warns. A warning is not enough for flash attention:
    see `strict_determinism`, which is around the recording of a transformer's step.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Deterministic mode also fills every new tensor: a thousand launches per step, for memory that is written anyway.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # The backward pass of cuDNN's attention has no ordered sums at all.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


@contextmanager
def strict_determinism() -> Iterator[None]:
    """Raise an error for an operation without ordered sums inside, where determinism is enabled.

    The backward pass of flash attention orders its sums only in this mode; a warning alone leaves them
    unordered.

    Yields:
        Nothing.
    """
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(enabled, warn_only=False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


def mixed_precision(device: torch.device, *, cache: bool = False) -> torch.autocast:
    """Return the precision context of a forward pass: bfloat16 on a GPU, single precision on a CPU.

    A CPU without bfloat16 units would be several times slower with it.

    Args:
        device: Where the pass runs.
        cache: Keep the converted weights between the operations inside. Off in a step that is recorded: the
            kept copies would be those of the recording.

    Returns:
        A context manager.
    """
    return torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=device.type == "cuda", cache_enabled=cache
    )


def fixed_shapes(on_gpu: bool) -> AbstractContextManager[None]:
    """Let cuDNN try its algorithms once for every shape, which pays where shapes never change.

    Args:
        on_gpu: False: do nothing.

    Returns:
        A context manager.
    """
    if not on_gpu:
        return nullcontext()
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    return flags


def side_stream(device: torch.device) -> Any:
    """Return a new stream that starts after everything launched so far.

    Work cannot be recorded on the default stream.

    Args:
        device: A CUDA device.

    Returns:
        The stream.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


def capture_step(
    step: Callable[[], None],
    *,
    reset: Callable[[], None],
    stream: Any,
    free_cache: bool = False,
) -> Any:
    """Record one training step as a CUDA graph.

    The step runs `WARM_UP_STEPS` times before, so the weights and the optimiser's state have changed
    afterwards: the caller writes them again or puts them back.

    Args:
        step: Forward pass, backward pass and update, reading and writing static memory only.
        reset: Makes the next step the first one again: no gradients, the position in the epoch 0. A gradient
            that does not exist when the recording starts is allocated in the graph's own memory.
        stream: The stream to record on; not the default one.
        free_cache: Give the memory of the warm-up back to the device before the recording.

    Returns:
        The graph; its `replay()` runs the step on the current stream.
    """
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_STEPS):
            reset()
            step()
        reset()
    stream.synchronize()
    if free_cache:
        torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    return graph


def pad_to_cached_batch(rows: torch.Tensor) -> torch.Tensor:
    """Repeat the last row until the batch has one of the sizes `CACHED_BATCHES`.

    Args:
        rows: Anything with one row per picture: row numbers, or pictures.

    Returns:
        The padded rows; as they are where they are more than the largest cached batch.

    Example:
        >>> len(pad_to_cached_batch(torch.arange(63)))
        64
    """
    size = next((size for size in CACHED_BATCHES if size >= len(rows)), len(rows))
    return torch.cat([rows, rows[-1:].expand(size - len(rows), *rows.shape[1:])])
