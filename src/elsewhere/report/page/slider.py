"""A table that is reordered by a weight (MRI-10): every step is computed beforehand, the page only shows it.

Without JavaScript the table stands at the reference weight, and the page says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, kw_only=True)
class WeightedModel:
    """One row: the parts that are weighed, and its score, rank and bootstrap ranks at every step."""

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
    """`reference` is the step at which the page opens, the protocol's own weight."""

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
        """JSON that may stand inside a script element."""
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
    """What moves the tables; a page without a slider has no script at all."""
    return resources.files("elsewhere.report").joinpath("templates", "weights.js").read_text(encoding="utf-8")
