"""Devices, determinism and batches that every training shares."""

from __future__ import annotations

import pytest
import torch

from elsewhere.errors import UserError
from elsewhere.training.cuda import (
    CACHED_BATCHES,
    device_name,
    mixed_precision,
    pad_to_cached_batch,
    select_device,
    strict_determinism,
)


@pytest.fixture
def as_it_was():
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    yield
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


def unordered() -> None:
    torch.zeros(4).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))


@pytest.mark.usefixtures("as_it_was")
@pytest.mark.filterwarnings("ignore:put_ does not have a deterministic")
def test_inside_an_unordered_sum_is_an_error_and_outside_a_warning_again():
    torch.use_deterministic_algorithms(True, warn_only=True)
    unordered()
    with strict_determinism(), pytest.raises(RuntimeError, match="deterministic"):
        unordered()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    unordered()


@pytest.mark.usefixtures("as_it_was")
def test_nothing_is_ordered_that_nobody_asked_for():
    torch.use_deterministic_algorithms(False)
    with strict_determinism():
        unordered()
        assert not torch.are_deterministic_algorithms_enabled()


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(UserError, match="unknown device"):
        select_device("gpu-of-my-dreams")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="no CUDA device"):
            select_device("cuda")
        assert select_device("auto") == torch.device("cpu")
    assert device_name(select_device("cpu")) == "cpu"


def test_a_cpu_trains_in_single_precision():
    with mixed_precision(torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize("count", [1, 63, 64, 65, 256])
def test_the_last_row_pads_a_batch_to_a_cached_size(count):
    rows = torch.arange(count)
    padded = pad_to_cached_batch(rows)
    assert len(padded) in CACHED_BATCHES
    assert torch.equal(padded[:count], rows)
    assert set(padded[count:].tolist()) <= {count - 1}
    pictures = torch.rand(count, 2, 3)
    assert torch.equal(pad_to_cached_batch(pictures)[:count], pictures)


def test_more_than_the_largest_cached_batch_stays_as_it_is():
    rows = torch.arange(max(CACHED_BATCHES) + 1)
    assert torch.equal(pad_to_cached_batch(rows), rows)
