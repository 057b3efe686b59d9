"""Threads that sleep while they wait, and how many there are."""

import os
import subprocess
import sys

import pytest

from elsewhere.engine.threads import SLEEP, let_threads_sleep, physical_cores, usable_cpus

STEPS = """
import hashlib, torch
torch.set_num_threads(2)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(2))
x = torch.randn(8, 3, 24, 24)
for _ in range(3):
    net.zero_grad()
    net(x).square().mean().backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest())
"""


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if k not in (*SLEEP, "GOMP_SPINCOUNT")}
    return clean | more


@pytest.mark.parametrize(
    "entry",
    [
        "from elsewhere.cli import main\ntry:\n    main(['--version'])\nexcept SystemExit:\n    pass",
        "from elsewhere.engine.__main__ import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass",
        "from elsewhere.engine.batch import find_trainer\nfind_trainer('elsewhere.recipes.running:train_all')",
    ],
)
def test_every_way_in_lets_threads_sleep(entry):
    said = "\nimport os\nprint('said', os.environ.get('OMP_WAIT_POLICY'), os.environ.get('KMP_BLOCKTIME'))"
    done = subprocess.run(
        [sys.executable, "-c", entry + said], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "said PASSIVE 0"


def test_torch_is_not_there_yet_when_a_command_starts():
    """OpenMP reads the environment once, when torch loads it."""
    code = "import sys, elsewhere.cli, elsewhere.engine.__main__, elsewhere.engine.run\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_the_environment_says_stands(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    let_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    assert os.environ["KMP_BLOCKTIME"] == "0"
    monkeypatch.delenv("KMP_BLOCKTIME")


@pytest.mark.slow
def test_how_threads_wait_changes_no_bit():
    pytest.importorskip("torch")
    prints = {
        subprocess.run(
            [sys.executable, "-c", STEPS],
            env=environment(OMP_WAIT_POLICY=policy),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for policy in ("ACTIVE", "PASSIVE")
    }
    assert len(prints) == 1


def test_siblings_are_one_core(tmp_path):
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert physical_cores([0, 1, 2, 3], tree=tmp_path) == 2
    assert physical_cores([0, 2], tree=tmp_path) == 1
    assert physical_cores([0, 1], tree=tmp_path) == 2


def test_each_counts_where_nothing_is_said(tmp_path):
    assert physical_cores([0, 1, 2], tree=tmp_path) == 3
    assert physical_cores([], tree=tmp_path) == 1
    assert 1 <= physical_cores(usable_cpus()) <= len(usable_cpus())
