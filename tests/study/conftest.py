"""The tiny world, made once a session and copied for each test that changes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from worlds.drawn_figures import build_without_drawing
from worlds.picture_study import write_world


@pytest.fixture(scope="module", autouse=True)
def _figures_not_drawn(request):
    """For every file of this folder that does not say `DRAWS_FIGURES`: its tests read other things of a report."""
    with pytest.MonkeyPatch.context() as patch:
        if not getattr(request.module, "DRAWS_FIGURES", False):
            build_without_drawing(patch)
        yield


@pytest.fixture(scope="session")
def made_world(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder


@pytest.fixture
def world(made_world, tmp_path) -> Path:
    """The study file of a world of four hospitals, free to be changed."""
    shutil.copytree(made_world, tmp_path / "world")
    return tmp_path / "world" / "tiny.toml"


@pytest.fixture
def trainings(tmp_path, monkeypatch):
    """A function that lists the names of the trainings that the fake trainer did so far."""
    log = tmp_path / "trainings.txt"
    monkeypatch.setenv("TRAININGS", str(log))
    return lambda: log.read_text().splitlines() if log.exists() else []
