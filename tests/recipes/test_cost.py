"""Arithmetic of the cost a case with a made clock and made counters; and one real measurement on this CPU."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from elsewhere.errors import UserError
from elsewhere.recipes import Prediction, power
from elsewhere.recipes.cost import ON_CPU, CostMeter, controlled_cost, measure_cost
from elsewhere.recipes.power import Gpu, Rapl, SampledPower, energy_counter


class Times:
    """A clock that has moved by the next of `steps` at each look."""

    def __init__(self, *steps: float) -> None:
        self.steps, self.now = iter(steps), 0.0

    def __call__(self) -> float:
        self.now += next(self.steps)
        return self.now


class Joules:
    source = "made"

    def __init__(self, *readings: float) -> None:
        self.readings = iter(readings)

    def joule(self) -> float:
        return next(self.readings)


def test_median_and_quartiles_of_the_repeats_and_the_energy_of_one():
    calls = itertools.count()
    cost = measure_cost(
        lambda: next(calls),
        repeats=5,
        warmup=2,
        clock=Times(100.0, 3.0, 1.0, 2.0, 5.0, 4.0),
        counter=Joules(1000.0, 1750.0),
    )
    assert next(calls) == 7
    assert (cost.seconds_q1, cost.seconds, cost.seconds_q3) == (2.0, 3.0, 4.0)
    assert cost.energy_joule == pytest.approx(750.0 / 5)
    assert cost.energy_source == "made" and cost.repeats == 5
    assert not any("energy" in note for note in cost.notes)
    assert json.loads(json.dumps(cost.to_dict()))["seconds"] == 3.0


def test_several_cases_are_one_distribution():
    seen: list[str] = []
    cost = controlled_cost(
        seen.append,
        ["a", "b"],
        repeats=2,
        warmup=1,
        clock=Times(0.0, 1.0, 3.0, 1.0, 3.0),
        counter=Joules(0.0, 8.0),
    )
    assert seen == ["a", "b"] * 3
    assert (cost.seconds, cost.repeats, cost.energy_joule) == (2.0, 4, 2.0)


def test_too_short_a_run_says_that_its_energy_is_coarse():
    cost = measure_cost(lambda: None, repeats=2, clock=Times(0.0, 0.01, 0.01), counter=Joules(0.0, 1.0))
    assert any("hardly resolves" in note for note in cost.notes)


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"warmup": -1}])
def test_nothing_to_measure_is_refused(wrong):
    with pytest.raises(UserError, match="cannot be measured"):
        measure_cost(lambda: None, **wrong)


def test_a_meter_fills_a_prediction_and_forgets_the_case_before():
    meter = CostMeter(clock=Times(1.0, 2.5, 1.0, 0.1), counter=Joules(10.0, 40.0, 50.0))
    with meter:
        pass
    first = Prediction(case="a", probability=0.5, **meter.fields())
    assert (first.seconds, first.energy_joule) == (2.5, 30.0)
    with meter:
        pass
    assert meter.seconds == pytest.approx(0.1)
    assert math.isnan(meter.energy_joule), "a tenth of a second is below the counters' grain"


def test_a_counter_that_fails_does_not_end_the_prediction():
    class Failing:
        source = "made"

        def joule(self):
            raise OSError("gone")

    meter = CostMeter(clock=Times(1.0, 2.5), counter=Failing())
    with meter:
        pass
    assert meter.seconds == 2.5 and math.isnan(meter.energy_joule)
    cost = measure_cost(lambda: None, repeats=1, clock=Times(0.0, 1.0), counter=Failing())
    assert cost.energy_joule is None and any("failed during the measurement" in note for note in cost.notes)


def test_a_failed_prediction_has_no_cost():
    meter = CostMeter(clock=Times(1.0, 2.5), energy=False)
    with pytest.raises(ZeroDivisionError), meter:
        _ = 1 / 0
    assert math.isnan(meter.seconds) and meter.peak_bytes == 0


PEAKS = """
import numpy as np
from elsewhere.recipes.cost import measure_cost
size = 64 * 2**20
large = measure_cost(lambda: np.ones(size, dtype=np.uint8).sum(), repeats=2, warmup=0)
small = measure_cost(lambda: None, repeats=2, warmup=0)
print(size, large.peak_bytes, small.peak_bytes, large.seconds, large.peak_kind, sep="|")
"""


def test_peak_memory_of_a_cpu_prediction_is_what_it_touched():
    """In a process of its own: memory that others give back meanwhile would hide it."""
    told = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True).stdout
    size, large, small, seconds, kind = told.strip().split("|")
    if kind != ON_CPU:
        pytest.skip(kind)
    assert 0.9 * int(size) < int(large) < 2 * int(size)
    assert float(seconds) > 0
    assert int(small) < int(size) / 8, "the peak of an earlier prediction is forgotten"


def test_without_a_counter_energy_is_none_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(power, "POWERCAP", tmp_path)
    counter, why = energy_counter("cpu")
    assert counter is None and "RAPL" in why
    cost = measure_cost(lambda: None, repeats=1)
    assert cost.energy_joule is None
    assert any(note.startswith("no energy: ") and "RAPL" in note for note in cost.notes)


def rapl_zone(folder, name, micro, *, most=1_000_000):
    zone = folder / name
    zone.mkdir()
    (zone / "energy_uj").write_text(f"{micro}\n")
    (zone / "max_energy_range_uj").write_text(f"{most}\n")
    return zone / "energy_uj"


def test_rapl_sums_packages_leaves_their_parts_out_and_comes_round(tmp_path):
    first = rapl_zone(tmp_path, "intel-rapl:0", 900_000)
    second = rapl_zone(tmp_path, "intel-rapl:1", 0)
    rapl_zone(tmp_path, "intel-rapl:0:0", 123)
    counter = Rapl(tmp_path)
    assert counter.joule() == 0.0
    first.write_text("950000\n")
    second.write_text("10000\n")
    assert counter.joule() == pytest.approx(0.06)
    first.write_text("50000\n")
    assert counter.joule() == pytest.approx(0.16)
    assert "2 packages" in counter.source


def test_sampled_power_is_integrated_by_the_trapezoid_rule():
    watts = iter([100.0, 200.0, 0.0])
    counter = SampledPower(lambda: next(watts), "made", clock=Times(0.0, 2.0, 1.0))
    assert counter.joule() == pytest.approx(300.0)
    assert counter.joule() == pytest.approx(400.0)


class Nvml:
    """The functions of `pynvml` that are used."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    class NVMLError(Exception):
        pass

    def __init__(self, *, has_counter: bool = True, programs: int = 1, has_driver: bool = True) -> None:
        self.millijoule, self.programs = 5_000, programs
        self.has_counter, self.has_driver = has_counter, has_driver
        self.asked: list[str] = []

    def nvmlInit(self):  # noqa: N802
        if not self.has_driver:
            raise self.NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetHandleByUUID(self, name):  # noqa: N802
        self.asked.append(name)
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
        if not self.has_counter:
            raise self.NVMLError("Not Supported")
        return self.millijoule

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return 250_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        return 0x01 | 0x40

    def nvmlDeviceGetTemperature(self, handle, sensor):  # noqa: N802
        return 61

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return [object()] * self.programs


def test_a_gpu_by_its_uuid_its_energy_in_joule_and_what_slows_it():
    nvml = Nvml(programs=3)
    gpu = Gpu("1234-abcd", 0, nvml)
    assert nvml.asked == ["GPU-1234-abcd"]
    counter = gpu.energy()
    before = counter.joule()
    nvml.millijoule += 42_500
    assert counter.joule() - before == pytest.approx(42.5)
    assert gpu.slowed_by() == ("thermal slowdown by hardware",), "idle is no slowdown"
    assert (gpu.temperature(), gpu.clock_mhz(), gpu.programs()) == (61, None, 3)
    assert power.busy_with_others("cuda", gpu) == "2 other programs use the GPU"
    assert power.busy_with_others("cuda", Gpu("x", 0, Nvml(programs=1))) == ""


def test_a_gpu_without_a_counter_has_its_power_integrated():
    assert "power integrated" in Gpu("x", 0, Nvml(has_counter=False)).energy().source


def test_without_a_driver_or_the_package_there_is_a_reason_and_no_energy(monkeypatch):
    with pytest.raises(OSError, match="Library Not Found"):
        Gpu(None, 0, Nvml(has_driver=False))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(OSError, match="nvidia-ml-py is not installed"):
        Gpu(None, 0)


def test_the_package_has_what_is_asked_of_it():
    """Names only: there is no driver here."""
    pynvml = pytest.importorskip("pynvml")
    names = [name for name in vars(Nvml) if name.startswith(("nvml", "NVML"))]
    assert [name for name in [*names, "nvmlDeviceGetHandleByIndex"] if not hasattr(pynvml, name)] == []


def test_a_real_prediction_on_this_cpu():
    rng = np.random.default_rng(0)
    volume = rng.normal(size=(64, 64, 32))
    meter = CostMeter()
    with meter:
        mask = volume > np.quantile(volume, 0.99)
    got = Prediction(case="a", mask=mask, **meter.fields())
    assert got.seconds > 0
    cost = measure_cost(lambda: volume > np.quantile(volume, 0.99), repeats=5)
    assert 0 < cost.seconds_q1 <= cost.seconds <= cost.seconds_q3
    assert cost.peak_bytes >= 0 and (cost.energy_joule is None) == (not cost.energy_source)
