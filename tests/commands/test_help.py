"""Help: an example a command, and nothing heavy imported for it; the real console script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from elsewhere.cli import app


def commands(group=None, before=()):
    """Every command of the program, by its words."""
    found = (group or typer.main.get_command(app)).commands.items()
    for name, command in found:
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name)


COMMANDS = list(commands())
SCRIPT = Path(sys.executable).parent / "elsewhere"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_and_json(run, command):
    done = run(*command, "--help")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "Example" in text
    assert f"elsewhere {' '.join(command)}" in text
    assert "--json" in text


def test_the_list_of_commands(run):
    text = run("--help").out
    for command in COMMANDS:
        assert command[0] in text


def test_no_arguments_show_the_help(run):
    done = run()
    assert done.code in (0, 64)
    assert "score" in done.said


def test_the_version(run):
    from elsewhere import __version__

    assert run("--version").out == f"elsewhere {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["score", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys\nfrom elsewhere.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'matplotlib', 'pandas', 'numpy', 'scipy', 'numba', 'pyarrow', 'nibabel'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def script(*arguments: object, **named: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        [str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, check=False, env=environment
    )


def test_the_console_script(pair, tmp_path):
    out = tmp_path / "result"
    done = script(
        "score", "classification", pair.cohort, pair.predictions, "--resamples", 0, "--out", out, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["cases"] == 90
    assert done.stdout.count("\n") == 1
    bad = script("no-such-command")
    assert bad.returncode == 64
    assert bad.stdout == ""
    assert "Traceback" not in bad.stderr
