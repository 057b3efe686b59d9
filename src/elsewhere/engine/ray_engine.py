"""Engine 'ray': runs trainings as tasks of a Ray cluster (the extra `cluster`).

What recipes read is put into the cluster's object store once. Tasks return outcomes, and only the driver
writes to the store of units, so that a lost node costs its present trainings and nothing more: the driver
submits them again. A task on a CPU gets as many cores and torch threads as the local engine uses, so that the
same kind of CPU gives the same bits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from elsewhere.engine.batch import Deadline, TrainingBatch, all_cores, train
from elsewhere.engine.files import GO_ON, write_atomically
from elsewhere.engine.plan import batches
from elsewhere.engine.pool import portable
from elsewhere.engine.registry import engines, recipes
from elsewhere.engine.threads import let_threads_sleep
from elsewhere.engine.training import Training, Work
from elsewhere.errors import ElsewhereWarning, UserError
from elsewhere.inputs import Cases

CRASHES = 4
"""A training whose worker died this many times is recorded as failed."""
NODE_LOSSES = 20
"""A training whose node was lost this many times is recorded as failed; it is seldom the cause."""
PATIENCE_SECONDS = 120.0
"""For how many seconds a cluster may have no node that can train."""
MIB = 1 << 20
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@engines.register("ray")
def run_ray(batch: TrainingBatch) -> None:
    """Run a batch on a Ray cluster.

    Args:
        batch: The trainings and how they are run. `batch.address` names the cluster; None starts one on this
            machine for the time of the run.

    Raises:
        UserError: Ray is not installed, no cluster answers, no node can train, or the trainer raised it.
    """
    ray = import_ray()
    pack = _packed(batch)
    with connected(ray, batch.address, held_bytes=pack.size):
        _Driver(ray, batch, pack).run()


def import_ray() -> ModuleType:
    """Import Ray, which is an optional dependency (the extra `cluster`).

    Returns:
        The module.

    Raises:
        UserError: It is not installed.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UserError(
            "the engine 'ray' needs the package 'ray', which is not installed",
            fix="pip install 'elsewhere[cluster]', or use the engine 'local'.",
        ) from error
    return ray


@contextlib.contextmanager
def connected(ray: ModuleType, address: str | None, *, held_bytes: int = 0) -> Iterator[None]:
    """Connect to a Ray cluster for the time of the block.

    A connection that the caller has made already is used, and left open.

    Args:
        ray: The module, from `import_ray`.
        address: 'host:port', 'auto' or 'ray://host:10001'; None: start a cluster on this machine, which only
            this machine can reach.
        held_bytes: The size of what will be put into the object store; it decides how large the store of a
            cluster on this machine is.

    Yields:
        Nothing.

    Raises:
        UserError: No cluster answers at the address, or none can be started.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        paths = os.pathsep.join(path for path in sys.path if path)
        options |= {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": all_cores(),
            "object_store_memory": 256 * MIB + 2 * held_bytes,
            "_node_ip_address": "127.0.0.1",
            "runtime_env": {"env_vars": {"PYTHONPATH": paths}},
        }
    else:
        _see_that_it_answers(ray, address)
        # The package travels with the job: every node runs this code, whatever is installed there.
        options |= {"address": address, "runtime_env": {"py_modules": [_package()]}}
    term = signal.getsignal(signal.SIGTERM) if _in_main_thread() else None
    try:
        with _loopback(ray) if address is None or _on_loopback(ray, address) else contextlib.nullcontext():
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, OSError, ray.exceptions.RayError) as error:
        ray.shutdown()
        raise _no_cluster(address, _first_line(error)) from error
    try:
        yield
    finally:
        ray.shutdown()
        if term is not None:
            # Ray installs its own handler, and leaves it in place.
            signal.signal(signal.SIGTERM, term)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _no_cluster(address: str | None, why: str) -> UserError:
    return UserError(
        f"no Ray cluster can be used ({why})",
        where=address or "this machine",
        fix="Check with `ray status --address ...`; an address is host:port, 'auto', or ray://host:10001."
        if address
        else "Use the engine 'local'.",
    )


def _see_that_it_answers(ray: ModuleType, address: str) -> None:
    """Refuse an address at which nothing answers; Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return
    here = host in LOOPBACK and _answers(ray.util.get_node_ip_address(), int(port))
    if not here and not _answers(host, int(port)):
        raise _no_cluster(address, "nothing answers there")


@contextlib.contextmanager
def _loopback(ray: ModuleType) -> Iterator[None]:
    """Keep a cluster of one run on 127.0.0.1, where nobody else can reach it.

    Ray replaces 127.0.0.1 by this machine's outer address unless its setting for clusters is off.
    """
    from ray._private import ray_constants

    name, constant = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "ENABLE_RAY_CLUSTER"
    before, known = os.environ.get(name), getattr(ray_constants, constant, None)
    os.environ[name] = "0"
    if known is not None:
        setattr(ray_constants, constant, False)
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
        if known is not None:
            setattr(ray_constants, constant, known)


def _on_loopback(ray: ModuleType, address: str) -> bool:
    """Say whether a cluster listens only on this machine's inner address."""
    host, _, port = address.rpartition(":")
    if host not in LOOPBACK or not port.isdigit():
        return False
    return not _answers(ray.util.get_node_ip_address(), int(port)) and _answers(host, int(port))


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def _package() -> str:
    import elsewhere

    return str(Path(elsewhere.__file__).parent)


@dataclass(frozen=True, kw_only=True)
class _Pack:
    """What the workers need of the work.

    Args:
        cases: The cases of the study.
        sources: The pixels by name of their source. Sources that read files travel as paths, which every node
            must be able to read.
        weights: Published weights by name: the file's name and content.
        size: The bytes of pixels and weights in memory.
    """

    cases: Cases
    sources: dict[str, Any]
    weights: dict[str, tuple[str, bytes]]
    size: int


def _packed(batch: TrainingBatch) -> _Pack:
    work = batch.work
    sources, held = {}, 0
    for name, source in work.sources.items():
        reading = [unit for unit in batch.units if recipes.get(unit.recipe.name).reads == name]
        names = dict.fromkeys(case for unit in reading for case in unit.cases if case in source)
        if names:
            sources[name] = source.portable(names)
            held += sources[name].nbytes()
    weights = {name: (file.name, Path(file).read_bytes()) for name, file in work.weights.items()}
    size = held + sum(len(content) for _, content in weights.values())
    return _Pack(cases=work.cases, sources=sources, weights=weights, size=size)


class _Driver:
    def __init__(self, ray: ModuleType, batch: TrainingBatch, pack: _Pack) -> None:
        self.ray, self.batch, self.pack = ray, batch, pack
        self.on_gpu = self._wants_gpu()
        self.threads = self._threads()
        self.losses: dict[str, float] = {}
        """By key, the share of its tries that a training has used up; at 1 it has failed."""
        self.queue: deque[list[Training]] = deque(batches(batch.units, self._batch()))
        self.pending: dict[Any, list[Training]] = {}
        self.last_fit = time.monotonic()

    # What the cluster has

    def _nodes(self) -> list[dict[str, float]]:
        """List the resources of the living nodes that can train."""
        alive = [dict(node["Resources"]) for node in self.ray.nodes() if node["Alive"]]
        if self.on_gpu:
            return [node for node in alive if node.get("GPU", 0) >= 1]
        return [node for node in alive if node.get("CPU", 0) >= self.threads]

    def _slots(self) -> int:
        nodes = self._nodes()
        if self.on_gpu:
            return sum(int(node["GPU"]) for node in nodes)
        return sum(int(node["CPU"] // self.threads) for node in nodes)

    def _wants_gpu(self) -> bool:
        gpus = sum(node["Resources"].get("GPU", 0) for node in self.ray.nodes() if node["Alive"])
        kind = self.batch.device.partition(":")[0]
        if kind not in ("auto", "cpu", "cuda"):
            raise UserError(f"unknown device '{self.batch.device}'", fix="Use auto, cpu or cuda.")
        if kind == "cuda" and gpus < 1:
            raise UserError("no node of the Ray cluster has a GPU", fix="Use --device cpu, or add a node.")
        return kind != "cpu" and gpus >= 1

    def _threads(self) -> int:
        """Choose the threads of a task: those of the local engine, or what the largest node has.

        Another number of threads gives other last bits.
        """
        if self.on_gpu:
            shares = [node.get("CPU", 1.0) // node["GPU"] for node in self._nodes()]
            return int(max(1, min(self.batch.threads, *shares)))
        cpus = [int(node["Resources"].get("CPU", 0)) for node in self.ray.nodes() if node["Alive"]]
        most = max(cpus, default=0)
        if most < 1:
            raise UserError("no node of the Ray cluster has a CPU")
        if most < self.batch.threads:
            warnings.warn(
                f"the largest node has {most} CPUs, fewer than the {self.batch.threads} threads of the local"
                " engine: results may differ from local ones in their last digits",
                ElsewhereWarning,
                stacklevel=2,
            )
        return min(self.batch.threads, most)

    def _batch(self) -> int:
        if self.batch.batch:
            return self.batch.batch
        wanted = self.batch.lanes or (8 if self.on_gpu else 1)
        return max(1, min(wanted, -(-len(self.batch.units) // max(1, self._slots()))))

    def _options(self) -> dict[str, Any]:
        smallest = min((node.get("memory", 0.0) for node in self._nodes()), default=0.0)
        need = 1024 * MIB + 3 * self.pack.size
        asked: dict[str, Any] = {"max_retries": 0, "num_cpus": self.threads}
        if self.on_gpu:
            asked["num_gpus"] = 1
        if smallest:
            asked["memory"] = int(min(need, 0.7 * smallest))
        return asked

    # The run

    def run(self) -> None:
        put = self.ray.put
        held = {
            "token": os.urandom(8).hex(),
            "cases": put(self.pack.cases),
            "sources": {name: put(source) for name, source in self.pack.sources.items()},
            "weights": {name: (file, put(content)) for name, (file, content) in self.pack.weights.items()},
        }
        task = self.ray.remote(_run_batch).options(**self._options())
        ahead = 2 if self.batch.stop.at is None else 1
        slots, looked = self._slots(), time.monotonic()
        try:
            while self.queue or self.pending:
                while self.queue and len(self.pending) < max(1, slots * ahead) and not self.batch.stop():
                    units = self.queue.popleft()
                    self.pending[self._submit(task, held, units)] = units
                if not self.pending:
                    break
                ready, _ = self.ray.wait(list(self.pending), num_returns=1, timeout=2.0)
                if time.monotonic() - looked > 2.0:
                    slots, looked = self._slots(), time.monotonic()
                    self._see_that_someone_lives(slots)
                for reference in ready:
                    self._take(reference, self.pending.pop(reference))
        finally:
            for reference in self.pending:
                with contextlib.suppress(Exception):
                    self.ray.cancel(reference, force=True)

    def _submit(self, task: Any, held: dict[str, Any], units: Sequence[Training]) -> Any:
        needed = {key for unit in units for key in unit.needs.values()}
        outcomes = self.batch.work.outcomes
        order = {
            "units": list(units),
            "trainer": self.batch.trainer,
            "device": "cuda" if self.on_gpu else "cpu",
            "lanes": self.batch.lanes,
            "threads": self.threads,
            "scratch": self.batch.work.scratch,
            "needed": {key: portable(outcomes(key)) for key in needed} if outcomes else {},
            "seconds": None if self.batch.stop.at is None else self.batch.stop.at - time.time(),
            "longest": self.batch.stop.longest,
        }
        return task.remote(held, order)

    def _take(self, reference: Any, units: list[Training]) -> None:
        from ray import exceptions

        left = {unit.key: unit for unit in units}
        try:
            messages = self.ray.get(reference)
        except exceptions.RuntimeEnvSetupError as error:
            raise UserError(
                f"a node of the cluster cannot set up the package ({_first_line(error)})",
                fix="Every node needs the same Python and ray versions as this machine.",
            ) from error
        except exceptions.RayError as error:
            if isinstance(error, exceptions.RayTaskError) and not _is_loss(error, exceptions):
                raise UserError(
                    f"a node of the cluster cannot run a unit ({_last_line(error)})",
                    fix="Every node needs the same versions of Python, ray, torch and numpy as this machine.",
                ) from error
            self._again(left, _first_line(error), innocent=isinstance(error, exceptions.NodeDiedError))
            return
        for kind, *rest in messages:
            if kind == "finished":
                unit = left.pop(rest[0])
                self.batch.stop.heard(unit, rest[1].seconds)
                self.batch.finished(unit, rest[1])
            elif kind == "failed":
                self.batch.failed(left.pop(rest[0]), rest[1])
            elif kind == "stop":
                raise UserError(rest[0]["error"], where=rest[0]["where"], fix=rest[0]["fix"])
        # The trainings that are left now were not begun, because the time was up.

    def _again(self, units: dict[str, Training], why: str, *, innocent: bool) -> None:
        """Submit the trainings of a lost task again, one by one, before all others."""
        for unit in units.values():
            self.losses[unit.key] = self.losses.get(unit.key, 0.0) + 1 / (
                NODE_LOSSES if innocent else CRASHES
            )
            if self.losses[unit.key] > 0.999:
                many = NODE_LOSSES if innocent else CRASHES
                self.batch.failed(unit, f"the worker that trained it died {many} times ({why})")
            else:
                self.queue.appendleft([unit])

    def _see_that_someone_lives(self, slots: int) -> None:
        if slots:
            self.last_fit = time.monotonic()
        elif time.monotonic() - self.last_fit > PATIENCE_SECONDS:
            what = "a GPU" if self.on_gpu else f"{self.threads} CPUs"
            raise UserError(
                f"no node with {what} has been in the Ray cluster for {PATIENCE_SECONDS:.0f} s", fix=GO_ON
            )


def _is_loss(error: BaseException, exceptions: ModuleType) -> bool:
    """Say whether a task ended because its inputs are lost with the node that held them."""
    lost = exceptions.ObjectLostError | exceptions.NodeDiedError | exceptions.WorkerCrashedError
    return isinstance(error, lost) or isinstance(getattr(error, "cause", None), lost)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]


# In the worker

_HELD: dict[str, Work] = {}


def _run_batch(held: dict[str, Any], order: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Train a batch in a worker of the cluster, and return what `finished` and `failed` were called with."""
    messages: list[tuple[Any, ...]] = []
    seconds = order["seconds"]
    let_threads_sleep()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(order["threads"])
    batch = TrainingBatch(
        units=order["units"],
        work=replace(
            _work_of(held), outcomes=order["needed"].__getitem__, scratch=_scratch(order["scratch"])
        ),
        trainer=order["trainer"],
        finished=lambda unit, outcome: messages.append(("finished", unit.key, portable(outcome))),
        failed=lambda unit, reason: messages.append(("failed", unit.key, reason)),
        progress=lambda what, done, total: None,
        stop=Deadline(None if seconds is None else time.time() + seconds, order["longest"]),
        device=order["device"],
        lanes=order["lanes"],
        threads=order["threads"],
    )
    try:
        train(batch, batch.units)
    except UserError as error:
        messages.append(("stop", error.to_dict()))
    return messages


def _work_of(held: dict[str, Any]) -> Work:
    """Build the work once per worker process and run, so that a trainer's caches for it stay useful."""
    import ray

    if held["token"] not in _HELD:
        _HELD.clear()
        weights = {name: _kept_file(file, ray.get(part)) for name, (file, part) in held["weights"].items()}
        _HELD[held["token"]] = Work(
            cases=ray.get(held["cases"]),
            sources={name: ray.get(part) for name, part in held["sources"].items()},
            weights=weights,
        )
    return _HELD[held["token"]]


def _scratch(wanted: Path | None) -> Path | None:
    """Return the store's scratch folder where this node can write to it; else None (a temporary one)."""
    if wanted is None or not wanted.parent.is_dir() or not os.access(wanted.parent, os.W_OK):
        return None
    return wanted


def _kept_file(name: str, content: bytes) -> Path:
    """Write published weights to a folder of the node that only this user can read, named by digest."""
    folder = Path(tempfile.gettempdir()) / f"elsewhere-weights-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        folder = Path(tempfile.mkdtemp(prefix="elsewhere-weights-"))
    digest = sha256(content).hexdigest()
    file = folder / f"{digest[:32]}-{Path(name).name}"
    if not file.is_file() or sha256(file.read_bytes()).hexdigest() != digest:
        write_atomically(file, content)
    return file
