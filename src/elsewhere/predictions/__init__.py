"""What the model said: one table a task, keyed by id. `read_predictions(task, path, options, cohort)`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elsewhere.errors import UserError, unknown_name

if TYPE_CHECKING:
    from elsewhere.cohort import Cohort
    from elsewhere.predictions.join import Join, join_by_id
    from elsewhere.predictions.table import Predictions, ReadOptions

_READERS = {
    "classification": ("elsewhere.predictions.probability", "read_probabilities"),
    "response": ("elsewhere.predictions.probability", "read_probabilities"),
    "detection": ("elsewhere.predictions.boxes", "read_boxes"),
    "segmentation": ("elsewhere.predictions.masks", "read_masks"),
    "slides": ("elsewhere.predictions.slides", "read_slides"),
}


def read_predictions(
    task: str, path: str | Path, options: ReadOptions | None = None, cohort: Cohort | None = None
) -> Predictions:
    """The predictions of `task` from a file or folder; the reader is imported only now."""
    if task not in _READERS:
        raise unknown_name("task", task, list(_READERS))
    if options is not None and options.failed_status and task not in ("classification", "response"):
        raise UserError(
            f"--failed-status is about the status column of a table of scores, which {task} does not have",
            fix="Leave it out.",
        )
    from elsewhere.predictions.table import ReadOptions

    module, name = _READERS[task]
    read = getattr(import_module(module), name)
    found: Predictions = read(Path(path), options or ReadOptions(), cohort)
    return found


__all__ = [
    "Join",
    "Predictions",
    "ReadOptions",
    "join_by_id",
    "read_predictions",
]

_WHERE = {"Join": "join", "Predictions": "table", "ReadOptions": "table", "join_by_id": "join"}
"""Imported at first use: a bare machine packs answers without pandas."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'elsewhere.predictions' has no attribute '{name}'")
    return getattr(import_module(f"elsewhere.predictions.{_WHERE[name]}"), name)
