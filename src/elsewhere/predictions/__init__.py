"""What models said: one table per answer kind, keyed by id. `read_answers(kind, path, options, cohort)`.

Names are imported at first use, so that a machine without pandas can import the modules that do not need it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elsewhere.predictions.join import Join, join_by_id
    from elsewhere.predictions.readers import AnswerReader, answer_readers, read_answers
    from elsewhere.predictions.table import Predictions, ReadOptions

_WHERE = {
    "AnswerReader": "readers",
    "Join": "join",
    "Predictions": "table",
    "ReadOptions": "table",
    "answer_readers": "readers",
    "join_by_id": "join",
    "read_answers": "readers",
}

__all__ = [
    "AnswerReader",
    "Join",
    "Predictions",
    "ReadOptions",
    "answer_readers",
    "join_by_id",
    "read_answers",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'elsewhere.predictions' has no attribute '{name}'")
    return getattr(import_module(f"elsewhere.predictions.{_WHERE[name]}"), name)
