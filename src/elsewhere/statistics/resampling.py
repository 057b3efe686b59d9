"""Which resamples are drawn: one object in place of a key, a seed and a number that always travel together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Resampling:
    """The resamples of one analysis. The same key, seed and number give every model the same resamples.

    Attributes:
        key: Names the stream of random numbers: the hash of the cohort, so that all models of a cohort share
            it.
        seed: The user's seed.
        resamples: How many; 0 for none.
        threads: How many threads draw and evaluate; None for all processors. They do not change a number.
        progress: Called with the number of resamples that were done since the last call.

    Example:
        >>> Resampling(key="cohort hash", seed=7, resamples=2000).named("here").key
        'cohort hash/here'
    """

    key: str
    seed: int = 42
    resamples: int = 1000
    threads: int | None = None
    progress: Callable[[int], None] | None = None

    def named(self, name: str) -> Resampling:
        """Make a stream of its own for a part of the analysis.

        Args:
            name: The part, such as `here`.

        Returns:
            The same resampling with the name appended to its key.
        """
        return replace(self, key=f"{self.key}/{name}")
