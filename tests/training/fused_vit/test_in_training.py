"""A study's training of a transformer with the passes written out gives what autograd gives (US-14)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from worlds import child_environment

pytest.importorskip("triton", reason="triton is not installed")


@pytest.mark.slow
def test_both_ways_train_the_same_networks():
    script = Path(__file__).with_name("trained.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        env=child_environment(TRITON_INTERPRET="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    # one program serves both units: weights, moments and the products' copy start anew
    assert told["bodies"] == 1
    for plain, ours in zip(told["plain"], told["written out"], strict=True):
        np.testing.assert_allclose(ours["losses"], plain["losses"], rtol=2e-4)
        np.testing.assert_allclose(ours["checks"], plain["checks"], rtol=2e-4)
        np.testing.assert_allclose(ours["logits"], plain["logits"], atol=2e-3)
        assert ours["norm"] == pytest.approx(plain["norm"], rel=1e-4)
    one, two = (unit["losses"] for unit in told["plain"])
    assert one != two
