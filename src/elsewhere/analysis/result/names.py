"""What results and entries are called where several stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def names_of(paths: Sequence[Path]) -> list[str]:
    """Name each file or folder without its ending; with its folder's name where two would be the same.

    A home directory is called like its user, so its name is never shown: such entries are numbered.

    Args:
        paths: Files and folders.

    Returns:
        A name for each, all different.

    Example:
        >>> names_of([Path("teams/a.csv"), Path("teams/b.csv")])
        ['a', 'b']
    """
    short = [
        path.name if path.is_dir() else path.stem.removesuffix(".csv").removesuffix(".nii") for path in paths
    ]
    out: list[str] = []
    for name, path in zip(short, paths, strict=True):
        if name and short.count(name) == 1:
            out.append(name)
            continue
        whole = path.resolve()
        parent = whole.parent
        at_home = parent == Path.home() or parent.parent == Path.home().parent
        own = name or whole.name
        out.append(f"{own} ({len(out) + 1})" if at_home else f"{parent.name}/{own}")
    return [name if out.count(name) == 1 else f"{name} ({number + 1})" for number, name in enumerate(out)]
