"""Who chooses how a GPU computes."""

from __future__ import annotations

import pytest

from elsewhere.training.cuda_options import CONSERVATIVE, CudaOptions, cuda_options, use_cuda_options


def test_options_are_in_force_inside_alone():
    assert cuda_options() == CudaOptions()
    with pytest.raises(KeyError), use_cuda_options(CONSERVATIVE):
        assert not cuda_options().captured
        raise KeyError
    assert cuda_options() == CudaOptions()
