"""Where the shared vectors, reference tables and real data are, and a reason where they are not."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import blas_kernels  # noqa: F401 - before numpy

settings.register_profile("house", deadline=None)  # a busy machine is no fault
settings.load_profile("house")

if "PYTEST_XDIST_WORKER" in os.environ:  # as many processes as cores: more threads would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Properties take two fifths of their examples in `make test`: those of `worlds.examples`, and the default."""
    if config.option.markexpr == "not slow":
        settings.register_profile("quick", parent=settings.get_profile("house"), max_examples=40)
        settings.load_profile("quick")


def _shared() -> Path | None:
    for candidate in (os.environ.get("ELSEWHERE_SHARED"), ROOT.parent / "shared"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return None


def _need(part: str) -> Path:
    shared = _shared()
    if shared is None or not (shared / part).is_dir():
        pytest.skip(
            f"no shared/{part} beside the checkout (set ELSEWHERE_SHARED to the folder that holds it)"
        )
    return shared / part


@pytest.fixture(scope="session")
def vectors_dir() -> Path:
    """Inputs and outputs of evaluators that others wrote."""
    return _need("vectors")


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """The papers' tables as csv."""
    return _need("reference")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real data; never in the repository."""
    return _need("data")


@pytest.fixture(scope="session")
def made_once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """`made_once(name, make)`: the folder that `make(folder)` fills, once in a run and for all its processes.

    Tests only read it: whoever changes something copies the folder first.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made_once"
    shared.mkdir(exist_ok=True)

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        target, complete = shared / name, shared / f"{name}.complete"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                shutil.rmtree(target, ignore_errors=True)
                target.mkdir()
                make(target)
                complete.touch()
        return target

    return folder


@pytest.fixture(scope="session")
def pickled_once(made_once) -> Callable[[str, Callable[[], Any]], Any]:
    """`pickled_once(name, make)`: what `make()` returns, made once in a run and for all its processes.

    Tests only read it: it is the same object for all tests of a process.
    """

    def value(name: str, make: Callable[[], Any]) -> Any:
        folder = made_once(name, lambda folder: (folder / "value.pickle").write_bytes(pickle.dumps(make())))
        return pickle.loads((folder / "value.pickle").read_bytes())

    return value


@pytest.fixture(scope="session")
def mri_results():
    """Results of a small study of published methods, for tests that only read them."""
    from worlds.recipe_results import make_results

    return make_results(margin=0.05, density_known=0.2)


@pytest.fixture(scope="session")
def mri_summary(pickled_once, request):
    """The numbers of that study."""

    def make():
        from elsewhere.analysis.study.summary import analyse

        return analyse(request.getfixturevalue("mri_results"), resamples=120)

    return pickled_once("mri-summary", make)


@pytest.fixture(scope="session")
def picture_summary(pickled_once):
    """The numbers of a small study of pictures: two models, two inputs, three seeds, four datasets."""

    def make():
        from worlds.picture_results import small_summary

        return small_summary()

    return pickled_once("picture-summary", make)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch on one thread: small networks on a shared machine, and bits that do not depend on its cores."""
    import torch

    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before[0])
    torch.use_deterministic_algorithms(before[1])


@pytest.fixture
def install_package(tmp_path: Path) -> Callable[[str, str, str], Path]:
    """Install a one-module package from its text, without network, into a folder of its own; returns the folder."""

    def install(module: str, code: str, project: str) -> Path:
        source, target = tmp_path / "source", tmp_path / "site"
        source.mkdir()
        (source / f"{module}.py").write_text(code)
        (source / "pyproject.toml").write_text(project)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        offline = ["--no-index", "--no-deps", "--no-build-isolation"]
        done = subprocess.run(
            [*pip, *offline, "--target", str(target), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return target

    return install


# One browser for a whole session: two of Playwright's loops cannot run in one thread.
CHROMIUM = Path(os.environ.get("ELSEWHERE_CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def _missing(why: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{why}; the browser tests must run in CI")
    pytest.skip(why)


@pytest.fixture(scope="session")
def browser():
    """Chromium for the page tests: skipped with the reason where it is missing, but never in CI."""
    if not CHROMIUM.exists():
        _missing(f"no chromium at {CHROMIUM}")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield started
        started.close()


class SmallDisk:
    """A file system of its own, of which a test says how many bytes are free."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._filler = root / ".filler"

    def leave(self, free: int) -> None:
        """Fill the disk up to `free` bytes."""
        self._filler.unlink(missing_ok=True)
        state = os.statvfs(self.root)
        size = state.f_bavail * state.f_frsize - free
        with self._filler.open("wb") as file:
            if size > 0:
                os.posix_fallocate(file.fileno(), 0, size)

    def tree(self) -> dict[str, bytes | None]:
        """Every file and folder on it but the filling; None for a folder."""
        found = sorted(path for path in self.root.rglob("*") if path != self._filler)
        return {str(p.relative_to(self.root)): p.read_bytes() if p.is_file() else None for p in found}

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.root)], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A tmpfs of 48 MB, which only root may mount."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("a small disk is mounted, which takes root")
    root = tmp_path / "disk"
    root.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(root)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "-l", str(root)], check=False, capture_output=True)
