"""SimCLR's loss by hand, and its weight over the epochs."""

from __future__ import annotations

import math

import pytest
import torch

from elsewhere.training.response.contrast import Contrast, nt_xent


def test_nt_xent_by_hand():
    """Two cases, views at right angles: each view has its partner at cosine 1 and two negatives at 0."""
    z = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    for temperature in (0.5, 1.0):
        own = math.exp(1 / temperature)
        assert float(nt_xent(z, z, temperature=temperature)) == pytest.approx(-math.log(own / (own + 2)))


def test_nt_xent_by_hand_where_views_differ():
    """Anchor (1,0): partner at 60 degrees, negatives at 90 and 180; and so on for the other three."""
    half, root = 0.5, math.sqrt(3) / 2
    first = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    second = torch.tensor([[half, root], [-1.0, 0.0]])
    names = [(1.0, 0.0), (0.0, 1.0), (half, root), (-1.0, 0.0)]
    partner = [2, 3, 0, 1]
    losses = []
    for i, a in enumerate(names):
        cosines = [a[0] * b[0] + a[1] * b[1] for b in names]
        below = sum(math.exp(c / 0.2) for j, c in enumerate(cosines) if j != i)
        losses.append(-math.log(math.exp(cosines[partner[i]] / 0.2) / below))
    assert float(nt_xent(first, second, temperature=0.2)) == pytest.approx(sum(losses) / 4, rel=1e-5)


def test_the_contrastive_weight_gives_way():
    weights = [Contrast(hold=0.2, gone=0.6).weight(epoch, 10) for epoch in range(1, 11)]
    assert weights == pytest.approx([1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0])
