"""What a case costs: latency, peak memory, energy (MRI-12, which the study asks for and has not measured).

There are two ways. `CostMeter` measures each prediction as it happens: cheap, but it includes warming up for
the first cases, and other programs on the device. `measure_cost` repeats one prediction under control
(warm-up, waiting for the device before and after, quartiles, other programs, temperature and clocks); a
recipe calls it after its last case, while its network is still in memory, and puts `Cost.to_dict()` into
`Trained.details["cost"]`.

**Seconds** are wall time from a device that has nothing left to do to one that again has nothing left to do.
**Peak memory** on CUDA is torch's largest allocation, the network's weights included; on a CPU the largest
resident memory above what was resident at the start, so the weights are not in it. **Energy** is the device's
own counter over all repeats, divided by them; it includes idle power and other programs on the device.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from elsewhere.errors import UserError
from elsewhere.recipes.power import (
    LEAST_SECONDS,
    EnergyCounter,
    Gpu,
    busy_with_others,
    energy_counter,
    open_gpu,
)

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_WARM_GPU_DEGREES = 5
ON_CUDA = "largest allocation of torch on the device, weights included"
ON_CPU = "largest resident memory of the process above the start of the prediction"
ON_CPU_EVER = "largest resident memory of the process ever: this system cannot reset it"
LOST = "the device's energy counter failed during the measurement"
NOT_KNOWN = "this system does not report the resident memory"


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of one prediction, from repeated measurements.

    Args:
        seconds: Median wall time of a prediction, in seconds.
        seconds_q1: First quartile of the wall time.
        seconds_q3: Third quartile of the wall time.
        repeats: How many predictions were timed.
        peak_bytes: Peak memory in bytes.
        peak_kind: What the peak memory counts, in words.
        energy_joule: Mean energy of a prediction in joules; None where it could not be measured: `notes` say
            why.
        energy_source: The counter that gave the energy; empty for none.
        device: The name of the GPU or the processor.
        exclusive: Whether nothing else ran on the device.
        notes: Conditions that a reader must know, such as other programs on the device.
    """

    seconds: float
    seconds_q1: float
    seconds_q3: float
    repeats: int
    peak_bytes: int
    peak_kind: str
    energy_joule: float | None
    energy_source: str
    device: str
    exclusive: bool
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as plain JSON.

        Returns:
            The fields by name.
        """
        return asdict(self) | {"notes": list(self.notes)}


class PeakMemory:
    """The peak memory of a CUDA device or of this process, since the last `reset`.

    Args:
        device: 'cpu', 'cuda' or 'cuda:1'.
    """

    def __init__(self, device: str) -> None:
        self.kind = NOT_KNOWN
        self._device = device
        self._start = 0
        if device.startswith("cuda"):
            self.kind = ON_CUDA
        elif _STATUS.exists():
            try:
                _CLEAR.write_text(_RESET_PEAK)
                self.kind = ON_CPU
            except OSError:
                self.kind = ON_CPU_EVER

    def reset(self) -> None:
        """Start a new measurement."""
        if self.kind == ON_CUDA:
            import torch

            torch.cuda.reset_peak_memory_stats(self._device)
        elif self.kind == ON_CPU:
            _CLEAR.write_text(_RESET_PEAK)
            self._start = _resident("VmRSS")

    def peak(self) -> int:
        """Return the peak since the last `reset`.

        Returns:
            Bytes, as `kind` says in words; 0 where the system does not report memory.
        """
        if self.kind == ON_CUDA:
            import torch

            return int(torch.cuda.max_memory_allocated(self._device))
        return max(0, _resident("VmHWM") - self._start) if self.kind != NOT_KNOWN else 0


def _resident(what: str) -> int:
    found = re.search(rf"^{what}:\s+(\d+) kB", _STATUS.read_text(), flags=re.MULTILINE)
    return 1024 * int(found.group(1)) if found else 0


def wait_for(device: str) -> None:
    """Wait until the device has done all the work it was given; a CPU always has.

    Args:
        device: 'cpu', 'cuda' or 'cuda:1'.
    """
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def device_name(device: str) -> str:
    """Return the name of a device, as a reader knows it.

    Args:
        device: 'cpu', 'cuda' or 'cuda:1'.

    Returns:
        The GPU's name, such as 'NVIDIA H200'; or the processor's name and how many threads torch uses.
    """
    if device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    model, info = "CPU", Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(errors="replace").splitlines()
        model = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model
        )
    try:
        import torch
    except ImportError:
        return model
    return f"{model}, {torch.get_num_threads()} threads"


class CostMeter:
    """Measure the cost of each case's prediction as it happens; one meter is reused from case to case.

        meter = CostMeter(job.device)
        with meter:
            mask = predict(case)
        job.emit(Prediction(case=case, mask=mask, **meter.fields()))

    A case costs two waits for the device and two readings of its counters: under a millisecond. A case that
    took less than half a second has no energy of its own: the counters are coarser than that.

    Args:
        device: 'cpu', 'cuda' or 'cuda:1'.
        clock: Returns seconds, for tests.
        counter: The energy counter; None: the device's own where it has one.
        energy: Whether energy is measured.

    Example:
        >>> with CostMeter(energy=False) as meter:
        ...     total = sum(range(1000))
        >>> sorted(meter.fields()), meter.seconds > 0
        (['energy_joule', 'peak_bytes', 'seconds'], True)
    """

    def __init__(
        self,
        device: str = "cpu",
        *,
        clock: Callable[[], float] = time.perf_counter,
        counter: EnergyCounter | None = None,
        energy: bool = True,
    ) -> None:
        self.device = device
        self.seconds, self.peak_bytes, self.energy_joule = math.nan, 0, math.nan
        self._clock = clock
        self._memory = PeakMemory(device)
        self._counter = counter if counter is not None or not energy else energy_counter(device)[0]
        self._began, self._joule = 0.0, 0.0

    def __enter__(self) -> CostMeter:
        self.seconds, self.peak_bytes, self.energy_joule = math.nan, 0, math.nan
        wait_for(self.device)
        self._memory.reset()
        self._joule = _joule(self._counter)
        self._began = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return
        wait_for(self.device)
        self.seconds = self._clock() - self._began
        self.peak_bytes = self._memory.peak()
        if self._counter and self.seconds >= LEAST_SECONDS:
            self.energy_joule = _joule(self._counter) - self._joule

    def fields(self) -> dict[str, Any]:
        """Return what the last block cost, as fields of a `Prediction`.

        Returns:
            `seconds`, `peak_bytes` and `energy_joule`.
        """
        return {
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
            "energy_joule": self.energy_joule,
        }


def measure_cost(
    predict_one: Callable[[], Any],
    *,
    device: str = "cpu",
    repeats: int = 5,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    counter: EnergyCounter | None = None,
) -> Cost:
    """Measure one prediction again and again under control.

    The energy is that of all repeats together, divided by them: a counter that moves every 100 ms still
    measures the energy of a prediction of 50 ms when there are enough of them. Quartiles are the inclusive
    ones.

    Args:
        predict_one: Makes the prediction.
        device: 'cpu', 'cuda' or 'cuda:1'.
        repeats: How many predictions are timed.
        warmup: How many predictions come first and are not timed.
        clock: Returns seconds, for tests.
        counter: The energy counter; None: the device's own where it has one.

    Returns:
        The cost.

    Raises:
        UserError: `repeats` is less than 1, or `warmup` is negative.

    Example:
        >>> measure_cost(lambda: sum(range(1000)), repeats=3).repeats
        3
    """
    return controlled_cost(
        lambda _: predict_one(),
        ("",),
        device=device,
        repeats=repeats,
        warmup=warmup,
        clock=clock,
        counter=counter,
    )


def controlled_cost(
    predict: Callable[[Any], Any],
    cases: Sequence[Any],
    *,
    device: str = "cpu",
    repeats: int = 5,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    counter: EnergyCounter | None = None,
) -> Cost:
    """Measure the predictions of several cases under control, as one distribution over all of them.

    A recipe calls it at the end of its job, with a few of the cases it predicted.

    Args:
        predict: Predicts one of `cases`.
        cases: What `predict` is called with, each `repeats` times.
        device: 'cpu', 'cuda' or 'cuda:1'.
        repeats: How many times each case is timed.
        warmup: How many times each case is predicted first without being timed.
        clock: Returns seconds, for tests.
        counter: The energy counter; None: the device's own where it has one.

    Returns:
        The cost.

    Raises:
        UserError: There is no case, `repeats` is less than 1, or `warmup` is negative.

    Example:
        >>> controlled_cost(lambda size: sum(range(size)), [10, 1000], repeats=2).repeats
        4
    """
    if repeats < 1 or warmup < 0 or not cases:
        raise UserError(
            f"{repeats} repeats, {warmup} to warm up and {len(cases)} cases cannot be measured",
            fix="Ask for at least one case and one repeat.",
        )
    why_none = "a counter given by the caller"
    if counter is None:
        counter, why_none = energy_counter(device)
    gpu = _gpu(device)
    before = busy_with_others(device, gpu)
    for _ in range(warmup):
        for case in cases:
            predict(case)
    wait_for(device)
    degrees = gpu.temperature() if gpu else None
    memory = PeakMemory(device)
    memory.reset()
    joule = _joule(counter)
    began = clock()
    seconds, last = [], began
    for _ in range(repeats):
        for case in cases:
            predict(case)
            wait_for(device)
            now = clock()
            seconds.append(now - last)
            last = now
    spent = (_joule(counter) - joule) / len(seconds)
    energy = None if math.isnan(spent) else spent
    others = before or (busy_with_others(device, gpu) if gpu else "")
    low, middle, high = _quartiles(seconds)
    return Cost(
        seconds=middle,
        seconds_q1=low,
        seconds_q3=high,
        repeats=len(seconds),
        peak_bytes=memory.peak(),
        peak_kind=memory.kind,
        energy_joule=energy,
        energy_source=counter.source if counter else "",
        device=device_name(device),
        exclusive=not others,
        notes=tuple(
            [f"not alone on the device: {others}"] * bool(others)
            + ([] if energy is not None else [f"no energy: {why_none if counter is None else LOST}"])
            + _coarse(counter, last - began)
            + _conditions(gpu, degrees)
        ),
    )


def _joule(counter: EnergyCounter | None) -> float:
    """Read the counter; NaN without one, or where it fails: a prediction matters more than its cost."""
    try:
        return counter.joule() if counter else math.nan
    except (OSError, ValueError):
        return math.nan


def _gpu(device: str) -> Gpu | None:
    if not device.startswith("cuda"):
        return None
    try:
        return open_gpu(device)
    except OSError:
        return None


def _quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    if len(seconds) == 1:
        return seconds[0], seconds[0], seconds[0]
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return low, middle, high


def _coarse(counter: EnergyCounter | None, total: float) -> list[str]:
    if counter is None or total >= LEAST_SECONDS:
        return []
    return [f"energy over {total:.2g} s in all, which its counter hardly resolves: ask for more repeats"]


def _conditions(gpu: Gpu | None, degrees_before: int | None) -> list[str]:
    """Report temperature and clocks at the end, and what slowed the device: a hot GPU is slower."""
    if gpu is None:
        return []
    notes = []
    degrees, clock = gpu.temperature(), gpu.clock_mhz()
    if degrees is not None and degrees_before is not None:
        notes.append(f"GPU at {degrees_before} to {degrees} degrees C, SM clock {clock} MHz at the end")
        if degrees - degrees_before > _WARM_GPU_DEGREES:
            notes.append("the GPU was still warming up: later repeats may be slower")
    slowed = gpu.slowed_by()
    return [*notes, *([f"clocks held back by {', '.join(slowed)}"] if slowed else [])]
