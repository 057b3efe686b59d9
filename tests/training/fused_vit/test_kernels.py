"""Each Triton kernel and the flat optimiser against plain torch in single precision (US-14)."""

from __future__ import annotations

import pytest

CHECKS = [
    "attention single",
    "attention half",
    "attention class single",
    "norm single",
    "norm half",
    "norm class single",
    "class gradient single",
    "gelu single",
    "gelu half",
    "adam single",
    "adam unclipped single",
]
MOST = {"single": 5e-6, "half": 2e-2}
"""Of the largest number: rounding alone, by the precision of the inputs."""


@pytest.fixture(scope="module")
def told(interpreted):
    return interpreted["kernels"]


def test_every_check_ran(told):
    assert sorted(told) == sorted(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_a_kernel_gives_what_torch_gives(told, check):
    most = MOST[check.split()[-1]]
    assert {name: value for name, value in told[check].items() if not value <= most} == {}
