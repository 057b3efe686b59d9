"""Claims and locks from elsewhere: plain files of bounded size and known shape, or refused in words."""

from __future__ import annotations

import os

import pytest

from elsewhere.analysis.result.claim import TEMPLATE, read_claim
from elsewhere.analysis.result.claim_lock import check_lock
from elsewhere.errors import UserError


@pytest.fixture
def claim(tmp_path):
    (tmp_path / "claim.toml").write_text(TEMPLATE)
    return read_claim(tmp_path / "claim.toml")


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_claim_is_a_plain_file(put, tmp_path):
    """`--claim` on a pipe hung, and on /dev/zero took 5 GB."""
    put(tmp_path / "claim.toml")
    with pytest.raises(UserError, match="the claim must be a plain file"):
        read_claim(tmp_path / "claim.toml")


def test_a_claim_that_is_not_there_says_how_to_write_one(tmp_path):
    with pytest.raises(UserError, match="there is no such claim") as refused:
        read_claim(tmp_path / "claim.toml")
    assert "--init" in str(refused.value.fix)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 50_000,
        "{}",
        '{"history": 5}',
        '{"history": ["x"]}',
        '{"history": [{}]}',
        '{"history": [{"digest": 5, "time": "now"}]}',
        '{"history": [{"digest": "abc"}]}',
    ],
)
def test_a_lock_of_another_shape_is_refused(claim, text):
    """A history of words, or of states without a digest, ended in a traceback."""
    lock = claim.source.with_name("claim.toml.lock")
    lock.write_text(text)
    with pytest.raises(UserError, match="lock file of the claim") as refused:
        check_lock(claim.source)
    assert refused.value.where == str(lock)


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_lock_is_a_plain_file(claim, put):
    put(claim.source.with_name("claim.toml.lock"))
    with pytest.raises(UserError, match="must be a plain file"):
        check_lock(claim.source)
