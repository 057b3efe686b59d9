"""`plan-sample`: how many cases and positives, before they are collected (ST-07)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elsewhere.statistics.power import SamplePlan
from elsewhere.statistics.power import plan_sample as plan


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A sample plan, as it is printed."""

    plan: SamplePlan

    def to_dict(self) -> dict[str, Any]:
        return self.plan.to_dict()

    def lines(self) -> Iterator[str]:
        for name, value in self.plan.to_dict().items():
            if name == "notes":
                yield from (f"note: {note}" for note in value)
            elif value is not None:
                yield f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}"


def plan_sample(**settings: Any) -> Planned:
    """See `elsewhere.statistics.power.plan_sample`."""
    return Planned(plan=plan(**settings))
