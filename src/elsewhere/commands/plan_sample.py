"""`plan-sample`: compute how many cases and positives are needed before they are collected (ST-07)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elsewhere.statistics.power import SampleDesign, SamplePlan
from elsewhere.statistics.power import plan_sample as plan


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A sample plan, as it is printed.

    Args:
        plan: The numbers of cases and positives, and what they rest on.
    """

    plan: SamplePlan

    def to_dict(self) -> dict[str, Any]:
        """Return what --json prints.

        Returns:
            The plan, as `SamplePlan.to_dict`.
        """
        return self.plan.to_dict()

    def lines(self) -> Iterator[str]:
        """Yield what the terminal shows.

        Yields:
            One line of text at a time.
        """
        for name, value in self.plan.to_dict().items():
            if name == "notes":
                yield from (f"note: {note}" for note in value)
            elif value is not None:
                yield f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}"


def plan_sample(metric: str, **settings: Any) -> Planned:
    """Compute how many cases and positives a study needs before they are collected.

    Args:
        metric: 'auroc', 'sensitivity', 'specificity', 'balanced_accuracy' or 'dice'.
        **settings: The other fields of `elsewhere.statistics.power.SampleDesign`, such as `expected`,
            `margin`, `alpha`, `power` and `prevalence`.

    Returns:
        The plan.

    Raises:
        UserError: A setting is impossible, or no number of cases is enough.

    Example:
        >>> plan_sample("sensitivity", expected=0.9, margin=0.05, prevalence=0.1).plan.cases > 1000
        True
    """
    return Planned(plan=plan(SampleDesign(metric=metric, **settings)))
