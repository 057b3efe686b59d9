"""What a device says of its energy, clocks and other users (MRI-12): NVML for a GPU, RAPL for a CPU.

NVML comes with the driver and is called through ctypes, so a bare machine needs no package for it. Its counter
of energy is the whole board's since the driver was loaded; RAPL's is the whole processor's: both hold what other
programs use at the same time, which is why a cost says whether it was alone.
"""

from __future__ import annotations

import ctypes
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
_NVML_OK = 0
_SM_CLOCK = 1
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

    def joule(self) -> float: ...


class SampledPower:
    """Power readings integrated by the trapezoid rule, for a device that tells watts and no energy."""

    def __init__(
        self, watts: Callable[[], float], source: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.source = source
        self._watts, self._clock = watts, clock
        self._lock = threading.Lock()
        self._total, self._last, self._at = 0.0, watts(), clock()

    def joule(self) -> float:
        """Also takes a reading: between two calls that are far apart `watch` should run."""
        with self._lock:
            power, now = self._watts(), self._clock()
            self._total += 0.5 * (power + self._last) * (now - self._at)
            self._last, self._at = power, now
            return self._total

    def watch(self) -> SampledPower:
        """Reads on, every 20 ms, in a thread that ends with the program."""

        def go_on() -> None:
            while True:
                time.sleep(_SAMPLE_SECONDS)
                self.joule()

        threading.Thread(target=go_on, daemon=True).start()
        return self


class Rapl:
    """The packages of the processor, from Linux powercap; a counter that has come round is put right."""

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
        for i, file in enumerate(self._files):
            now = int(file.read_text())
            self._total += now - self._last[i] + (self._range[i] if now < self._last[i] else 0)
            self._last[i] = now
        return self._total / 1e6


class Gpu:
    """One GPU as NVML sees it. Any call that the driver refuses raises OSError, or gives None where said."""

    def __init__(self, uuid: str | None, index: int, library: Any = None) -> None:
        self._nvml = library if library is not None else ctypes.CDLL("libnvidia-ml.so.1")
        self._ask("nvmlInit_v2")
        self._handle = ctypes.c_void_p()
        if uuid:
            name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            self._ask("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(self._handle))
        else:
            self._ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._handle))

    def _ask(self, name: str, *given: Any) -> None:
        call = getattr(self._nvml, name, None)
        code = call(*given) if call is not None else "nothing: this driver does not know it"
        if code != _NVML_OK:
            raise OSError(f"NVML's {name} answered {code}")

    def _number(self, name: str, kind: Any, *given: Any) -> int:
        value = kind()
        self._ask(name, self._handle, *given, ctypes.byref(value))
        return int(value.value)

    def _maybe(self, name: str, kind: Any, *given: Any) -> int | None:
        try:
            return self._number(name, kind, *given)
        except OSError:
            return None

    def energy(self) -> EnergyCounter:
        """The board's own counter, or its power integrated where it has none (before Volta)."""
        try:
            self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)
        except OSError:
            return SampledPower(self._watts, "NVML, power integrated: the whole board").watch()
        return _BoardEnergy(self)

    def _watts(self) -> float:
        return self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint) / 1000.0

    def board_joule(self) -> float:
        return self._number("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong) / 1000.0

    def temperature(self) -> int | None:
        return self._maybe("nvmlDeviceGetTemperature", ctypes.c_uint, 0)

    def clock_mhz(self) -> int | None:
        return self._maybe("nvmlDeviceGetClockInfo", ctypes.c_uint, _SM_CLOCK)

    def slowed_by(self) -> tuple[str, ...]:
        bits = self._maybe("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong) or 0
        return tuple(word for bit, word in _SLOWED.items() if bits & bit)

    def programs(self) -> int | None:
        """How many programs hold a context; with room for none NVML says how many there are."""
        count = ctypes.c_uint(0)
        try:
            code = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), None)
        except AttributeError:
            return None
        enough, insufficient = _NVML_OK, 7
        return int(count.value) if code in (enough, insufficient) else None


class _BoardEnergy:
    source = "NVML's counter of energy: the whole board"

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def joule(self) -> float:
        return self._gpu.board_joule()


def open_gpu(device: str) -> Gpu:
    """The GPU that torch calls `device`; found by its UUID, since the two may count differently. OSError where
    there is no NVML or it does not know the device."""
    import torch

    index = torch.device(device).index
    index = torch.cuda.current_device() if index is None else index
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return Gpu(str(uuid) if uuid else None, index)


def energy_counter(device: str) -> tuple[EnergyCounter | None, str]:
    """The counter of a device and its name, or None and why there is none."""
    try:
        counter: EnergyCounter = open_gpu(device).energy() if device.startswith("cuda") else Rapl()
        counter.joule()
    except PermissionError:
        return None, "the energy counters may be read by the administrator alone"
    except (OSError, ValueError) as error:
        return None, str(error) or type(error).__name__
    return counter, counter.source


def busy_with_others(device: str, gpu: Gpu | None) -> str:
    """Why this device is not ours alone, in words; empty where it seems to be."""
    if gpu is not None:
        programs = gpu.programs()
        if programs is not None and programs > 1:
            return f"{programs - 1} other programs hold the GPU"
        return ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"load average {load:.1f} on {cores} cores" if load > 1.0 else ""
