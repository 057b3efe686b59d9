"""The engines by name. Another package brings its own by the entry point group 'elsewhere.engines'."""

from __future__ import annotations

from collections.abc import Callable

from elsewhere.engine.job import Job
from elsewhere.registry import Registry

engines: Registry[Callable[[Job], None]] = Registry(
    "engine",
    group="elsewhere.engines",
    builtin_modules=("elsewhere.engine.local", "elsewhere.engine.ray_engine"),
)
