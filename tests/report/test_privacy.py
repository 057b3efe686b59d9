"""Hashes, the key file, small cells, and ids in free text."""

from __future__ import annotations

import csv
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere import privacy
from elsewhere.errors import UserError
from elsewhere.report.result.prepare import prepare

SALT = "a secret of the hospital"


def test_hashes_need_the_salt_and_are_stable():
    ids = ["001", "1", "P/2"]
    hashed = privacy.hash_ids(ids, SALT)
    assert hashed == privacy.hash_ids(ids, SALT)
    assert len(set(hashed)) == 3
    assert not set(hashed) & set(privacy.hash_ids(ids, SALT + "!"))
    assert all(privacy.looks_hashed(h) for h in hashed)
    with pytest.raises(UserError):
        privacy.hash_ids(ids, "short")


@given(st.integers(min_value=0, max_value=10**12))
def test_a_number_is_never_taken_for_a_hash(number):
    assert not privacy.looks_hashed(str(number))
    assert privacy.looks_hashed(privacy.hash_ids([number], SALT)[0])


def test_key_file_resolves_and_is_private(tmp_path):
    path = privacy.write_key_file(tmp_path / "key.csv", ["007", "x,y", "007"], SALT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["id"] for r in rows] == ["007", "x,y"]
    assert [r["hash"] for r in rows] == privacy.hash_ids(["007", "x,y"], SALT)


def test_new_salts_differ():
    assert privacy.new_salt() != privacy.new_salt()


def test_one_small_cell_needs_a_second():
    assert privacy.suppress_counts({"a": 3, "b": 40, "c": 90}) == {"a": "<5", "b": "≈40", "c": 90}
    assert privacy.suppress_counts({"a": 3, "b": 2, "c": 90}) == {"a": "<5", "b": "<5", "c": 90}
    assert privacy.suppress_counts({"a": 0, "b": 6}) == {"a": 0, "b": 6}
    assert privacy.suppress_counts({"a": 1, "b": 0, "c": None}) == {"a": "<5", "b": 0, "c": None}


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3), st.integers(min_value=0, max_value=200), min_size=2, max_size=6
    )
)
def test_a_small_cell_cannot_be_worked_out_from_the_total(counts):
    shown = privacy.suppress_counts(counts)
    for name, value in counts.items():
        if 0 < value < 5:
            assert shown[name] == "<5"
            others = [n for n in counts if n != name and counts[n] > 0]
            assert not others or any(isinstance(shown[n], str) for n in others)


def test_redactor_takes_whole_words_and_spares_counts():
    redactor = privacy.Redactor(["P1", "12", "4711", "Anna B"])
    assert redactor.text("P1, P12 and 12 cases; 4711: Anna B.") == "[id 1], P12 and 12 cases; [id 2]: [id 3]."
    assert redactor.removed == 3
    assert privacy.Redactor([]).text("P1") == "P1"


def test_positives_that_tell_an_outcome_are_withheld():
    rows = {
        "a": {"cases": 20, "patients": 20, "positives": 2, "metrics": {}},
        "b": {"cases": 20, "patients": 20, "positives": 18, "metrics": {}},
        "c": {"cases": 20, "patients": 20, "positives": 10, "metrics": {}},
    }
    groups = prepare({"groups": {"v": rows}}).data["groups"]["v"]
    assert [groups[g]["positives"] for g in "abc"] == ["<5", ">15", 10]
