"""What a device reports of its energy, clocks and other users (MRI-12): NVML for a GPU, RAPL for a CPU.

NVML comes with the driver; the package nvidia-ml-py (extra `train`) reads it. Without either there is no
energy, and the cost says why. NVML's energy counter is that of the whole board since the driver was loaded;
RAPL's is that of the whole processor. Both include what other programs use at the same time, so a cost
reports whether any ran.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

POWERCAP = Path("/sys/class/powercap")
LEAST_SECONDS = 0.5
"""NVML's and RAPL's counters move every 1 to 100 ms: over less than this an energy is mostly rounding."""
_SAMPLE_SECONDS = 0.02
_SLOWED = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal slowdown by software",
    0x40: "thermal slowdown by hardware",
    0x80: "power brake",
}


class EnergyCounter(Protocol):
    """A count of joules that only grows; its zero means nothing."""

    source: str

    def joule(self) -> float:
        """Return the count at this moment, in joules.

        Returns:
            The energy since the counter's own zero; only differences have a meaning.
        """
        ...


class SampledPower:
    """Power readings integrated by the trapezoid rule, for a device that reports watts but no energy.

    Args:
        watts: Returns the power at this moment, in watts.
        source: The name of the counter, for reports.
        clock: Returns seconds, for tests.

    Example:
        >>> seconds = iter([0.0, 2.0])
        >>> SampledPower(lambda: 50.0, "test", clock=lambda: next(seconds)).joule()
        100.0
    """

    def __init__(
        self, watts: Callable[[], float], source: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.source = source
        self._watts, self._clock = watts, clock
        self._lock = threading.Lock()
        self._total, self._last, self._at = 0.0, watts(), clock()

    def joule(self) -> float:
        """Take a reading and return the energy so far.

        Between two calls that are far apart `watch` should run.

        Returns:
            Joules.
        """
        with self._lock:
            power, now = self._watts(), self._clock()
            self._total += 0.5 * (power + self._last) * (now - self._at)
            self._last, self._at = power, now
            return self._total

    def watch(self) -> SampledPower:
        """Take a reading every 20 ms, in a thread that ends with the program.

        Returns:
            The same counter.
        """

        def go_on() -> None:
            while True:
                time.sleep(_SAMPLE_SECONDS)
                self.joule()

        threading.Thread(target=go_on, daemon=True).start()
        return self


class Rapl:
    """The energy of the processor's packages, from Linux powercap.

    A counter that has wrapped around is corrected.

    Args:
        root: The folder of powercap; None: that of this machine.

    Raises:
        OSError: The machine has no RAPL counters.
    """

    def __init__(self, root: Path | None = None) -> None:
        root = root or POWERCAP
        zones = sorted(
            zone
            for zone in root.glob("intel-rapl:*")
            if zone.name.count(":") == 1 and (zone / "energy_uj").exists()
        )
        if not zones:
            raise OSError("this machine has no RAPL counters (a virtual machine, or no driver)")
        self._files = [zone / "energy_uj" for zone in zones]
        self._range = [int((zone / "max_energy_range_uj").read_text()) for zone in zones]
        self._last = [int(file.read_text()) for file in self._files]
        self._total = 0
        self.source = f"RAPL, {len(zones)} package{'s' * (len(zones) > 1)}: the whole processor"

    def joule(self) -> float:
        """Return the energy since the counter was opened.

        Returns:
            Joules, of all packages together.
        """
        for i, file in enumerate(self._files):
            now = int(file.read_text())
            self._total += now - self._last[i] + (self._range[i] if now < self._last[i] else 0)
            self._last[i] = now
        return self._total / 1e6


class Gpu:
    """One GPU as NVML sees it.

    Args:
        uuid: The UUID of the GPU, with or without its prefix; None: it is found by its number.
        index: The number that NVML gives it.
        nvml: The module `pynvml` of nvidia-ml-py; None: it is imported.

    Raises:
        OSError: nvidia-ml-py or the driver is missing, or NVML does not know the GPU.
    """

    def __init__(self, uuid: str | None, index: int, nvml: Any = None) -> None:
        self._nvml = _pynvml() if nvml is None else nvml
        self._ask("nvmlInit")
        if uuid:
            name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            self._handle = self._ask("nvmlDeviceGetHandleByUUID", name)
        else:
            self._handle = self._ask("nvmlDeviceGetHandleByIndex", index)

    def _ask(self, name: str, *given: Any) -> Any:
        try:
            return getattr(self._nvml, name)(*given)
        except self._nvml.NVMLError as error:
            raise OSError(f"NVML's {name} answered: {error}") from error

    def _maybe(self, name: str, *given: Any) -> Any:
        try:
            return self._ask(name, self._handle, *given)
        except OSError:
            return None

    def energy(self) -> EnergyCounter:
        """Return the board's own counter, or its power integrated where it has none (before Volta).

        Returns:
            A counter of joules.
        """
        if self._maybe("nvmlDeviceGetTotalEnergyConsumption") is None:
            return SampledPower(self._watts, "NVML, power integrated: the whole board").watch()
        return _BoardEnergy(self)

    def _watts(self) -> float:
        return float(self._ask("nvmlDeviceGetPowerUsage", self._handle)) / 1000.0

    def board_joule(self) -> float:
        """Return the energy of the whole board since the driver was loaded.

        Returns:
            Joules.

        Raises:
            OSError: The board has no such counter.
        """
        return float(self._ask("nvmlDeviceGetTotalEnergyConsumption", self._handle)) / 1000.0

    def temperature(self) -> int | None:
        """Return the temperature of the chip.

        Returns:
            Degrees Celsius; None where the driver does not say.
        """
        return self._maybe("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU)

    def clock_mhz(self) -> int | None:
        """Return the clock of the multiprocessors.

        Returns:
            MHz; None where the driver does not say.
        """
        return self._maybe("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)

    def slowed_by(self) -> tuple[str, ...]:
        """Return what slows the GPU at this moment.

        Returns:
            Reasons in words; empty where there are none.
        """
        bits = self._maybe("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        return tuple(reason for bit, reason in _SLOWED.items() if bits & bit)

    def programs(self) -> int | None:
        """Return how many programs compute on the GPU.

        Returns:
            Their number; None where the driver does not say.
        """
        processes = self._maybe("nvmlDeviceGetComputeRunningProcesses")
        return None if processes is None else len(processes)


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise OSError("nvidia-ml-py is not installed (pip install 'elsewhere[train]')") from error
    return pynvml


class _BoardEnergy:
    source = "NVML's counter of energy: the whole board"

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def joule(self) -> float:
        return self._gpu.board_joule()


def open_gpu(device: str) -> Gpu:
    """Open the GPU that torch calls `device`.

    It is found by its UUID, since torch and NVML may count differently.

    Args:
        device: 'cuda' or 'cuda:1'.

    Returns:
        The GPU as NVML sees it.

    Raises:
        OSError: There is no NVML, or it does not know the device.
    """
    import torch

    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return Gpu(str(uuid) if uuid else None, index)


def energy_counter(device: str) -> tuple[EnergyCounter | None, str]:
    """Return the energy counter of a device, or the reason why there is none.

    Args:
        device: 'cpu', 'cuda' or 'cuda:1'.

    Returns:
        The counter and its name; or None and the reason.
    """
    try:
        counter: EnergyCounter = open_gpu(device).energy() if device.startswith("cuda") else Rapl()
        counter.joule()
    except PermissionError:
        return None, "only the administrator may read the energy counters"
    except (OSError, ValueError) as error:
        return None, str(error) or type(error).__name__
    return counter, counter.source


def busy_with_others(device: str, gpu: Gpu | None) -> str:
    """Say why a device is not used by this program alone.

    Args:
        device: 'cpu', 'cuda' or 'cuda:1'.
        gpu: The GPU as NVML sees it; None: the load of this machine counts.

    Returns:
        The reason in words; empty where nothing else seems to run.
    """
    if gpu is not None:
        programs = gpu.programs()
        if programs is not None and programs > 1:
            return f"{programs - 1} other programs use the GPU"
        return ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"load average {load:.1f} on {cores} cores" if load > 1.0 else ""
