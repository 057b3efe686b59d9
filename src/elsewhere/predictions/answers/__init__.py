"""Answer kinds: what models say of cases, from the recipe to the file that is scored.

One file per kind. These modules import with numpy alone, so that a machine without pandas can pack what it
predicted. Another package adds a kind by the entry-point group 'elsewhere.answer_kinds'.
"""

from __future__ import annotations

from elsewhere.predictions.answers.base import AnswerKind, AnswerTarget, answer_kinds
from elsewhere.predictions.answers.boxes import FoundBoxes
from elsewhere.predictions.answers.masks import Masks, PackedMask, pack_mask
from elsewhere.predictions.answers.probability import Probabilities, ProbabilityAnswer

__all__ = [
    "AnswerKind",
    "AnswerTarget",
    "FoundBoxes",
    "Masks",
    "PackedMask",
    "Probabilities",
    "ProbabilityAnswer",
    "answer_kinds",
    "pack_mask",
]
