"""Synthetic inputs that several tests share: tables, pictures, volumes, studies, results, and fake trainers.

`pythonpath = ["tests"]` in pyproject.toml makes the package importable; another process needs `child_environment`.
"""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).resolve().parent.parent


def child_environment(**more: str) -> dict[str, str]:
    """Make the environment of a process that imports `worlds` by name.

    Args:
        more: Variables to set beside those of this process.

    Returns:
        The environment of this process with `tests` first on `PYTHONPATH`.

    Example:
        >>> child_environment(TRAININGS="log.txt")["TRAININGS"]
        'log.txt'
    """
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), **more}


def examples(whole: int) -> int:
    """Number the examples of a property: `tests/conftest.py` lowers Hypothesis' own default in `make test`.

    Args:
        whole: Examples in `make test-all`.

    Returns:
        That many, or two fifths of them where the slow tests are left out.

    Example:
        >>> examples(100) in (40, 100)
        True
    """
    return whole * settings.default.max_examples // 100
