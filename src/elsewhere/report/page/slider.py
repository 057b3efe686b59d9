"""A table that a reader reorders by a weight (MRI-10).

Every step is computed beforehand, and the page only shows it. Without JavaScript the table shows the
reference weight, and the page says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, kw_only=True)
class WeightedModel:
    """One row of the table: the two parts of the score, and score, rank and bootstrap ranks at every step.

    Args:
        name: The name of the model.
        note: A remark behind the name, such as 'baseline'; empty for none.
        performance: The performance, in [0, 1].
        fairness: The fairness, in [0, 1].
        scores: The weighted score at every step.
        ranks: The rank at every step, 1 for the best.
        rank_lo: The lower end of the bootstrap ranks at every step.
        rank_hi: The upper end of the bootstrap ranks at every step.
    """

    name: str
    note: str
    performance: float
    fairness: float
    scores: Sequence[float]
    ranks: Sequence[int]
    rank_lo: Sequence[int]
    rank_hi: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class WeightSlider:
    """A table that a reader reorders by moving a weight.

    Args:
        name: The id of the table on the page, unique there.
        caption: A noun phrase above the table.
        performance_label: The heading of the column of performance.
        models: The rows.
        reference: The step at which the page opens: the protocol's own weight.
        note: A note below the table; empty for none.
        type: The kind of block, by which the template finds how it is set.
    """

    name: str
    caption: str
    performance_label: str
    models: Sequence[WeightedModel]
    reference: int
    note: str = ""
    type: str = "weights"

    @property
    def steps(self) -> int:
        """How many steps the slider has."""
        return len(self.models[0].ranks) - 1

    @property
    def at_reference(self) -> list[WeightedModel]:
        """The models at the protocol's own weight."""
        return sorted(self.models, key=lambda m: (m.ranks[self.reference], m.name))

    @property
    def data(self) -> str:
        """The table as JSON that may stand inside a script element."""
        held: dict[str, Any] = {
            "reference": self.reference,
            "steps": self.steps,
            "models": [
                {
                    "name": m.name,
                    "scores": [round(float(s), 4) for s in m.scores],
                    "ranks": [int(r) for r in m.ranks],
                    "lo": [int(r) for r in m.rank_lo],
                    "hi": [int(r) for r in m.rank_hi],
                }
                for m in self.at_reference
            ],
        }
        return json.dumps(held, separators=(",", ":")).replace("<", "\\u003c")


def script() -> str:
    """Read the script that moves the tables; a page without a slider has no script at all.

    Returns:
        The JavaScript.
    """
    return resources.files("elsewhere.report").joinpath("templates", "weights.js").read_text(encoding="utf-8")
