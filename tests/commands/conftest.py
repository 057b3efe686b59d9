"""Running commands in-process, and a cohort a task."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elsewhere.cli import main
from worlds.task_files import MAKERS, Pair


@dataclass(frozen=True)
class Run:
    """What a command left behind: its exit code, and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """stdout as the one JSON object that it must be, with no NaN in it."""

        def refuse(word: str) -> Any:
            raise AssertionError(f"{word} is not JSON")

        found = json.loads(self.out, parse_constant=refuse)
        assert isinstance(found, dict)
        assert self.out.count("\n") == 1
        return found

    @property
    def said(self) -> str:
        return self.out + self.err


def call(*arguments: object) -> Run:
    """The command line without a process; a way out without an exit code is a failure of the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        else:
            raise AssertionError("the program did not exit")
    assert code is None or isinstance(code, int)
    return Run(code=code or 0, out=out.getvalue(), err=err.getvalue())


@pytest.fixture(autouse=True)
def _figures_not_drawn(request, monkeypatch):
    """Most tests of this folder write reports, and none is about how a figure is drawn.

    A file that reads the texts of figures says `DRAWS_FIGURES = True`: equal ones are drawn once.
    """
    from worlds.drawn_figures import build_without_drawing, draw_once

    drawn = getattr(request.module, "DRAWS_FIGURES", False)
    (draw_once if drawn else build_without_drawing)(monkeypatch)


@pytest.fixture(scope="session")
def run() -> Callable[..., Run]:
    """`run("score", ...)`."""
    return call


@pytest.fixture
def pair(tmp_path) -> Pair:
    """A plain classification cohort, and its predictions."""
    return MAKERS["classification"](tmp_path)


@pytest.fixture
def response_pair(tmp_path) -> Pair:
    return MAKERS["response"](tmp_path)


@pytest.fixture
def mask_pair(tmp_path) -> Pair:
    return MAKERS["segmentation"](tmp_path)


@pytest.fixture
def detection_pair(tmp_path) -> Pair:
    return MAKERS["detection"](tmp_path)


@pytest.fixture
def slide_pair(tmp_path) -> Pair:
    return MAKERS["slides"](tmp_path)


@pytest.fixture(scope="session")
def results(tmp_path_factory) -> Callable[[str], tuple[Pair, Path, Run]]:
    """One result a task, made once: (its files, its folder, what was printed)."""
    from worlds.task_files import options_of_task

    made: dict[str, tuple[Pair, Path, Run]] = {}

    def result(task: str) -> tuple[Pair, Path, Run]:
        if task not in made:
            folder = tmp_path_factory.mktemp(task)
            files = MAKERS[task](folder)
            out = folder / "result"
            done = call(
                "score",
                task,
                files.cohort,
                files.predictions,
                *options_of_task(task),
                "--resamples",
                50,
                "--out",
                out,
                "--json",
            )
            assert done.code == 0, done.said
            made[task] = (files, out, done)
        return made[task]

    return result
