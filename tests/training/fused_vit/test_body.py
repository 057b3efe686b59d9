"""The written-out forward and backward pass against autograd on torchvision's own network (US-14)."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from elsewhere.training.fused_vit import available

CHECKS = ["body single", "body half", "body of one layer single", "state single"]
MOST = {"single": 2e-5, "half": 6e-2}
"""Of the largest number: rounding alone, by the products' precision."""


@pytest.fixture(scope="module")
def told(interpreted):
    return interpreted["body"]


def test_every_check_ran(told):
    assert sorted(told) == sorted(CHECKS)
    assert len(told["body single"]) > 30, "a parameter's gradient was not looked at"


@pytest.mark.parametrize("check", CHECKS)
def test_the_body_gives_what_autograd_gives(told, check):
    most = MOST[check.split()[-1]]
    assert {name: value for name, value in told[check].items() if not value <= most} == {}


def test_half_precision_is_what_was_asked_for(told):
    assert told["body half"]["features"] > MOST["single"]


def test_a_cpu_cannot_use_it():
    assert not available(torch.device("cpu"))


def test_it_imports_without_triton():
    code = (
        "import importlib.util, sys\n"
        "sys.modules['triton'] = None\n"
        "import elsewhere.training.fused_vit as fused_vit\n"
        "import elsewhere.training.fused_vit.attention, elsewhere.training.fused_vit.layer_norm\n"
        "print(len(fused_vit.__all__))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
