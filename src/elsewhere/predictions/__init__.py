"""What the model said: one table for each answer kind, keyed by id. `read_answers(kind, path, options, cohort)`."""

from __future__ import annotations

from elsewhere.predictions.join import Join, join_by_id
from elsewhere.predictions.readers import AnswerReader, read_answers, readers
from elsewhere.predictions.table import Predictions, ReadOptions

__all__ = [
    "AnswerReader",
    "Join",
    "Predictions",
    "ReadOptions",
    "join_by_id",
    "read_answers",
    "readers",
]
