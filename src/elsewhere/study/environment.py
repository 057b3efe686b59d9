"""Versions of what made a study's numbers."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import elsewhere

_PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "numba",
    "torch",
    "torchvision",
    "timm",
    "monai",
    "xgboost",
    "pillow",
    "nibabel",
)


def environment() -> dict[str, Any]:
    """List the versions of this machine's software.

    Returns:
        Versions of Elsewhere, Python, the system, and the packages that are installed.

    Example:
        >>> sorted(environment())
        ['elsewhere', 'packages', 'python', 'system']
    """
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "elsewhere": elsewhere.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": versions,
    }
