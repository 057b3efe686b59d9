"""A package of somebody else's brings a modality; pip installs it, and a study runs to its checked bundle.

`docs/how-to/bring-your-own-modality.md` shows the package. Nothing in `src/` knows its names.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).with_name("elsewhere-signals")
STUDY = """
[study]
name = "events"
clinical = ["age"]
[[cohort]]
source = "cohort.csv"
[scenarios]
kinds = ["internal", "external"]
seeds = [1]
[tasks.event]
verdict_margin = 0.1
[tasks.response]
protocol = "plain"
[recipes.level-crossing]
[recipes.random]
tasks = ["event", "response"]
baseline = true
[recipes.clinical]
settings = { columns = ["age"] }
"""


def write_recordings(folder: Path) -> None:
    """Two hospitals whose devices differ in noise; the event is longer in responders."""
    rng = np.random.default_rng(3)
    rows = []
    for hospital, noise in (("North", 0.3), ("South", 0.8)):
        for number in range(60):
            responder = number % 2
            start = rng.uniform(1, 4)
            end = start + rng.uniform(1, 2) + 2 * responder
            time = np.arange(0, 10, 0.01)
            signal = ((time >= start) & (time < end)) + noise * rng.normal(size=time.size)
            name = f"{hospital[0]}{number:03d}"
            np.save(folder / f"{name}.npy", signal.astype(np.float32))
            rows.append(
                {
                    "case_id": name,
                    "patient_id": f"{hospital[0]}-p{number:03d}",
                    "dataset": hospital,
                    "signal": f"{name}.npy",
                    "start_s": round(start, 3),
                    "end_s": round(end, 3),
                    "pcr": "" if number == 7 else responder,
                    "age": int(rng.normal(60 + 8 * responder, 6)),
                }
            )
    pd.DataFrame(rows).to_csv(folder / "cohort.csv", index=False)
    (folder / "study.toml").write_text(STUDY)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """The recordings, and a folder with the package as pip installs it."""
    folder = tmp_path_factory.mktemp("signals")
    write_recordings(folder)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-q")
    build = folder / "build"
    build.mkdir()
    for file in PACKAGE.iterdir():
        if file.is_file():
            (build / file.name).write_bytes(file.read_bytes())
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder / "site", build]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder


COMMANDS = {
    "plan": "plan study.toml --out planned",
    "run": "run study.toml --out out --bundle bundle --device cpu --json",
    "check-bundle": "check-bundle bundle",
}
RUNNER = """
import contextlib, io, json, shlex, sys
from elsewhere.cli import main
done = {}
for name, command in json.load(sys.stdin).items():
    out, code = io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        try:
            main(shlex.split(command))
        except SystemExit as end:
            code = int(end.code or 0)
    done[name] = [code, out.getvalue()]
print(json.dumps(done))
"""


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str


@pytest.fixture(scope="module")
def done(world) -> dict[str, Done]:
    """The commands in one process of its own, with the other package installed beside this one."""
    paths = [str(world / "site"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    process = subprocess.run(
        [sys.executable, "-c", RUNNER],
        cwd=world,
        input=json.dumps(COMMANDS),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return {name: Done(*found) for name, found in json.loads(process.stdout.splitlines()[-1]).items()}


@pytest.fixture(scope="module")
def ran(done) -> dict:
    assert done["run"].code in (0, 2, 3), done["run"].out
    return json.loads(done["run"].out)


def test_it_is_planned_without_a_line_of_ours(done):
    code, out = done["plan"]
    assert code == 0, out
    assert "North: 29 no pCR, 30 pCR, 1 unknown" in out or "North: 60 cases" in out
    assert "level-crossing" in out and "random" in out


def test_it_is_trained_scored_and_ranked_with_a_built_in_baseline(world, ran):
    assert ran["runs"]["failed"] == 0 and ran["runs"]["done"] == ran["runs"]["planned"]
    board = pd.read_csv(world / "out" / "report" / "tables" / "leaderboard.csv")
    event = board[board["task"] == "event"]
    assert set(event["method"]) == {"level-crossing", "random"}
    lowest = event[event["method"] == "level-crossing"]["overlap"].min()
    assert lowest > 0.6 > event[event["method"] == "random"]["overlap"].max()
    assert set(board.loc[board["task"] == "response", "method"]) == {"level-crossing", "random", "clinical"}


def test_its_own_analysis_and_section_are_in_the_report(world, ran):
    page = (world / "out" / "report" / "report.html").read_text(encoding="utf-8")
    assert "delay of the predicted start" in page.lower() and "Event in a recording" in page
    late = pd.read_csv(world / "out" / "report" / "tables" / "delay.csv")
    assert set(late["method"]) == {"level-crossing", "random"} and late["late_s"].notna().all()


def test_probabilities_of_the_part_that_is_held_out_are_calibrated(world, ran):
    table = pd.read_csv(world / "out" / "report" / "tables" / "run_metrics.csv")
    reasons = table.groupby("method")["validation_cases"].max()
    assert reasons["level-crossing"] > 0 and reasons["clinical"] == 0


def test_a_verdict_has_its_margin_and_smallest_detectable_drop(world, ran):
    table = pd.read_csv(world / "out" / "report" / "tables" / "transfers.csv")
    event = table[(table["task"] == "event") & (table["method"] == "level-crossing")]
    assert event["verdict"].notna().all() and (event["smallest_detectable_drop"] > 0).all()


def test_its_bundle_is_recomputed(done):
    code, out = done["check-bundle"]
    assert code == 0, out
    assert re.search(r"(\d+) of \1 runs have the same scores when they are scored again", out)
    assert re.search(r"(\d+) of \1 tables are the same", out)


@pytest.mark.parametrize("name", ["elsewhere_signals.py", "pyproject.toml"])
def test_the_page_shows_the_package(name):
    page = (ROOT / "docs" / "how-to" / "bring-your-own-modality.md").read_text(encoding="utf-8")
    assert (PACKAGE / name).read_text(encoding="utf-8").rstrip() in page


def test_nothing_of_ours_names_it():
    for file in (ROOT / "src").rglob("*.py"):
        assert not re.search(
            r"elsewhere_signals|level-crossing|\"event\"", file.read_text(encoding="utf-8")
        ), file
