"""The Ray engine: the same predictions as on this machine, also when a node is lost in the middle."""

from __future__ import annotations

import builtins
import contextlib
import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elsewhere.engine.run import run_units
from elsewhere.engine.store import Store
from elsewhere.errors import ElsewhereWarning, UserError
from elsewhere.training.pictures.settings import ClassifierSettings, InputSpec
from worlds import TESTS, tiny_trainer
from worlds.tiny_pictures import logits_of, make_units, packed, with_logits


def need_ray():
    return pytest.importorskip("ray", reason="the extra `cluster` is not installed")


@pytest.fixture(scope="module")
def quiet():
    before = dict(os.environ)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = str(TESTS)  # where the workers of a cluster find tiny_trainer
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def log(quiet, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ELSEWHERE_TINY_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.fixture
def cluster(log):
    """Two nodes on this machine, two (pretended) cores each; the first holds the head."""
    need_ray()
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "object_store_memory": 100 << 20,
        },
    )
    yield made
    made.shutdown()


def run(units, work, store, **options):
    settings = {"device": "cpu", "threads": 2, "trainer": "worlds.tiny_trainer:train"} | options
    return run_units(units, work, store, **settings)


def same_predictions(one: Store, two: Store, units) -> bool:
    pairs = [(one.load(u.key), two.load(u.key)) for u in units]
    return all(
        a.case == b.case
        and packed(a) == packed(b)
        and a.fingerprint.tobytes() == b.fingerprint.tobytes()
        and a.versions == b.versions
        for a, b in pairs
    )


def lose(cluster, node, log: Path, finished) -> bool:
    """Kill a node with its workers, but only when it has a unit in its hands."""
    raylet = node.all_processes["raylet"][0].process.pid
    lines = [line.split() for line in log.read_text().splitlines()]
    workers = {int(pid) for key, pid, parent in lines if int(parent) == raylet and key not in finished}
    if not workers:
        return False
    for pid in (raylet, *workers):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    return True


@pytest.mark.slow
def test_two_nodes_and_one_is_lost(cluster, log, tmp_path, work):
    """Kill a node in the middle: the study ends right, with the predictions of the local engine."""
    import ray

    node = cluster.add_node(num_cpus=2, node_ip_address="127.0.0.1", object_store_memory=100 << 20)
    cluster.wait_for_nodes()
    units = make_units(work, 24, seconds=0.4)
    there = Store(tmp_path / "there")
    lost = []

    def heard(what, done, total):
        if what == "units" and 3 <= done <= 20 and not lost and lose(cluster, node, log, there.keys()):
            lost.append(set(there.keys()))

    report = run(units, work, there, engine="ray", address=cluster.address, progress=heard)
    assert lost, "the second node never had a unit"
    assert Counter(report.done) == Counter(u.key for u in units)
    assert (report.failed, report.left) == ({}, ())
    trainings = Counter(line.split()[0] for line in log.read_text().splitlines())
    again = {key for key, count in trainings.items() if count > 1}
    assert again, "no unit was lost with the node"
    assert not again & lost[0], "a finished unit was trained again"
    assert not ray.is_initialized()
    here = Store(tmp_path / "here")
    quick = make_units(work, 24, seconds=0.4)
    run(quick, work, here, trainer=without_waiting)
    assert same_predictions(here, there, units)


def without_waiting(units, work, *, finished, device, **options):
    for unit in units:
        finished(unit, tiny_trainer.outcome_of(unit, work, device))


@pytest.mark.slow
def test_a_cluster_of_ones_own(tmp_path, work, quiet):
    """Everything else in one start of a cluster: failures, box finders, crashes, batches, late nodes."""
    ray = need_ray()
    units = make_units(work, 5)
    (finder,) = make_units(work, 1, finder=True, name="finder")
    (user,) = make_units(work, 1, input=InputSpec(kind="roi"), boxes=finder.key, name="user")
    bad = {m: make_units(work, 1, recipe=ClassifierSettings(method=m))[0] for m in ("fail", "raise", "die")}
    everything = [user, *units, *bad.values(), finder]
    store, here = Store(tmp_path / "there"), Store(tmp_path / "here")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
             _node_ip_address="127.0.0.1", object_store_memory=100 << 20)  # fmt: skip
    try:
        report = run(everything, work, store, engine="ray", batch=3)
        assert ray.is_initialized(), "the caller's connection is the caller's"
        assert set(report.done) == {u.key for u in (*units, finder, user)}
        assert report.failed[bad["fail"].key] == "it would not learn"
        assert "ZeroDivisionError" in report.failed[bad["raise"].key]
        assert "the worker that trained it died 4 times" in report.failed[bad["die"].key]
        run([user, finder, *units], work, here)
        assert same_predictions(here, store, [*units, finder, user])
        again = run(everything[:6], work, store, engine="ray")
        assert set(again.reused) == {u.key for u in everything[:6]}
        stopping = make_units(work, 1, recipe=ClassifierSettings(method="user-error"))
        with pytest.raises(UserError, match="no memory left"):
            run(stopping, work, store, engine="ray")
        with pytest.raises(UserError, match="no node of the Ray cluster has a GPU"):
            run(make_units(work, 9)[8:], work, store, engine="ray", device="cuda")
        with pytest.warns(ElsewhereWarning, match="largest node has 2 CPUs, fewer than the 64"):
            run(make_units(work, 7)[6:], work, store, engine="ray", threads=64)
        with pytest.raises(UserError, match="no_such"):
            run(make_units(work, 9)[8:], work, store, engine="ray", trainer="no_such:f")
        late = run(make_units(work, 9), work, store, engine="ray", deadline=1.0)
        assert len(late.left) == 3
        files = replace(work, weights={"net/imagenet": tmp_path / "w.pt"})
        (tmp_path / "w.pt").write_bytes(b"the weights")
        (last,) = make_units(work, 1, seconds=0.001)
        assert run([last], files, store, engine="ray", trainer=with_weights).done == (last.key,)
    finally:
        ray.shutdown()


def with_weights(units, work, *, finished, **options):
    for unit in units:
        (file,) = work.weights.values()
        if file.read_bytes() != b"the weights" or list(work.weights) != ["net/imagenet"]:
            raise ValueError("the weights did not travel")
        finished(unit, tiny_trainer.outcome_of(unit, work, "cpu"))


@pytest.mark.slow
def test_started_and_ended_by_us(tmp_path, work, quiet):
    """Without an address, a cluster on this machine alone, gone at the end."""
    ray = need_ray()
    units = make_units(work, 3)
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    assert len(run(units, work, there, engine="ray", threads=1).done) == 3
    assert not ray.is_initialized()
    run(units, work, here, threads=1)
    assert same_predictions(here, there, units)
    with pytest.raises(UserError, match="no Ray cluster can be used"):
        run(make_units(work, 5), work, there, engine="ray", address="127.0.0.1:1")
    assert not ray.is_initialized()


def test_without_ray_the_extra_is_named(tmp_path, work, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"needs the package 'ray'(.|\n)*elsewhere\[cluster\]"):
        run(make_units(work, 1), work, Store(tmp_path / "s"), engine="ray")


def test_both_engines_have_names():
    from elsewhere.engine.registry import engines

    assert engines.names() == ["local", "ray"]


def test_the_comparison_can_fail(tmp_path, work):
    one, two = Store(tmp_path / "1"), Store(tmp_path / "2")
    (unit,) = make_units(work, 1)
    outcome = tiny_trainer.outcome_of(unit, work, "cpu")
    one.save(unit, outcome)
    two.save(unit, with_logits(outcome, np.nextafter(logits_of(outcome), np.float32(9))))
    assert same_predictions(one, one, [unit])
    assert not same_predictions(one, two, [unit])
