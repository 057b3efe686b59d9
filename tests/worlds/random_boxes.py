"""Random boxes of a volume: many of them, or few as a hypothesis strategy."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from elsewhere.boxes import Boxes


def many_boxes(n: int, seed: int = 0, *, slices: int = 20, size: float = 100.0) -> Boxes:
    """Random boxes, with equal scores and boxes without an area among them."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, int(size), (n, 2)).astype(float)
    side = rng.integers(0, int(size / 3), (n, 2))
    score = rng.integers(0, 50, n) / 50
    label = rng.integers(0, 2, n)
    return Boxes.on_slice(np.hstack([corner, corner + side]), score, rng.integers(0, slices, n), label)


@st.composite
def few_boxes(draw: st.DrawFn, *, slices: int = 10, most: int = 12) -> Boxes:
    """A few boxes with whole corners; scores are eighths, so that some are equal."""
    whole = st.integers(0, 12)
    rows = draw(st.lists(st.tuples(whole, whole, whole, whole, st.integers(1, 8)), max_size=most))
    z = draw(st.lists(st.integers(0, slices - 1), min_size=len(rows), max_size=len(rows)))
    held = np.array(rows, dtype=float).reshape(-1, 5)
    corner = held[:, :2]
    box = np.hstack([corner, corner + held[:, 2:4] + 1])
    return Boxes.on_slice(box, held[:, 4] / 8, np.array(z, dtype=np.int64))


def as_set(boxes: Boxes) -> set[tuple[float, ...]]:
    """The boxes with their scores, without an order."""
    return {(*row, score) for row, score in zip(boxes.corners().tolist(), boxes.score.tolist(), strict=True)}
