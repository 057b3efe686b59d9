"""Where a step is captured, an operation without ordered sums must stop it, not only warn."""

from __future__ import annotations

import pytest
import torch

from elsewhere.training.pictures.program import ordered_sums


@pytest.fixture(autouse=True)
def as_it_was():
    asked = torch.are_deterministic_algorithms_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    yield
    torch.use_deterministic_algorithms(asked, warn_only=warn)


def unordered() -> None:
    torch.zeros(4).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))


@pytest.mark.filterwarnings("ignore:put_ does not have a deterministic")
def test_inside_an_unordered_sum_is_an_error_and_outside_a_warning_again():
    torch.use_deterministic_algorithms(True, warn_only=True)
    unordered()
    with ordered_sums(), pytest.raises(RuntimeError, match="deterministic"):
        unordered()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    unordered()


def test_nothing_is_ordered_that_nobody_asked_for():
    torch.use_deterministic_algorithms(False)
    with ordered_sums():
        unordered()
        assert not torch.are_deterministic_algorithms_enabled()
