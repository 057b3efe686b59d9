"""Ids are joined exactly, diagnosed kindly, and never guessed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.predictions.join import join_by_id, normalise_id


def test_joins_by_id_and_not_by_position():
    join = join_by_id(["a", "b", "c"], ["c", "x", "a"])
    assert join.row_of_case.tolist() == [2, -1, 0]
    assert join.extra == ("x",)
    assert join.extra_rows.tolist() == [1]
    assert (join.n_matched, join.n_missing) == (2, 1)


def test_flow_accounts_for_every_row():
    join = join_by_id(["a", "b", "c"], ["c", "x", "y", "a"])
    rows, found, everyone, cases = join.flow
    assert rows["n"] == 4
    assert found["n"] + found["lost"] == rows["n"]
    assert "not in the cohort" in found["why"]
    assert cases["n"] + cases["lost"] == everyone["n"] == 3
    assert "no row" in cases["why"]


@pytest.mark.parametrize(
    ("ours", "theirs", "option"),
    [
        ("007", "7", "zeros"),
        ("P007-01", "P7-1", "zeros"),
        ("Case1", "CASE1", "case"),
        ("p 1", "p\u00a01 ", "blanks"),
        ("p1", "\ufeffp1\u200b", "unicode"),
        ("p1", "p1\n", "unicode"),
        ("p1", "p\u202e1", "unicode"),
        ("Jos\u00e9", "Jose\u0301", "unicode"),
        ("p12", "p\uff11\uff12", "unicode"),
        ("p 1", "p 1 ", "blanks"),
        ("p1", "out/p1.nii.gz", "paths"),
        ("p1", "C:\\images\\p1.PNG", "paths"),
        ("Case007", "case7 ", "zeros,case,blanks"),
    ],
)
def test_look_alikes_are_offered_not_joined(ours, theirs, option):
    join = join_by_id(["same", ours], ["same", theirs])
    assert join.row_of_case.tolist() == [0, -1]
    assert any(f"--normalise-ids {option}" in text for text in join.warnings)
    assert join.diagnosis is not None
    assert join.diagnosis.example == (ours, theirs)
    mended = join_by_id(["same", ours], ["same", theirs], normalise=option.split(","))
    assert mended.row_of_case.tolist() == [0, 1]
    assert not mended.warnings


@pytest.mark.parametrize(
    ("theirs", "which"),
    [
        ("p1\n", "U+000A control character"),
        ("p1\u200b", "U+200B zero width space"),
        ("p\u202e1", "U+202E right-to-left override"),
        ("p\uff11", "another Unicode normal form"),
    ],
)
def test_which_characters_keep_ids_apart_is_said(theirs, which):
    """Both sides look the same on the screen: the message names what nobody sees."""
    join = join_by_id(["same", "p1"], ["same", theirs])
    assert join.diagnosis is not None and which in join.diagnosis.sentence(masked=True)
    assert "the predictions' has" in join.warnings[0]


def test_a_form_that_joins_two_people_is_refused():
    with pytest.raises(UserError, match="the same"):
        join_by_id(["p1", "p\u200b1"], ["p1"], normalise=["unicode"])


def test_what_goes_into_a_report_names_nobody():
    join = join_by_id(["same", "Smith007"], ["same", "smith7", "Jones"])
    told = " ".join([*join.warnings, *(step["why"] for step in join.flow)])
    assert "mith" not in told
    assert "Jones" not in told
    assert "'Aaaaa009'" in told


def test_different_ids_are_not_called_alike():
    join = join_by_id(["a1", "b2"], ["a1", "c3"])
    assert join.diagnosis is None
    assert not any("normalise" in text for text in join.warnings)


def test_normalising_that_joins_two_people_is_an_error_naming_them():
    with pytest.raises(UserError, match=r"'007'.*'7'"):
        join_by_id(["007", "7"], ["7"], normalise=["zeros"])
    with pytest.raises(UserError, match=r"'A'.*'a'"):
        join_by_id(["a"], ["A", "a"], normalise=["case"])


def test_ambiguous_look_alikes_are_not_offered():
    assert join_by_id(["x", "7"], ["x", "07", "007"]).diagnosis is None


def test_repeated_ids_name_their_rows():
    with pytest.raises(UserError, match=r"'b' is in rows 2, 4"):
        join_by_id(["a", "b"], ["a", "b", "c", "b"], source="vendor.csv")
    with pytest.raises(UserError, match="the cohort"):
        join_by_id(["a", "a"], ["a"])


def test_no_match_at_all_shows_both_sides():
    with pytest.raises(UserError) as caught:
        join_by_id(["s1", "s2"], ["t1", "t2"], source="vendor.csv")
    assert "'t1'" in str(caught.value)
    assert "'s1'" in str(caught.value)
    assert "--map case_id" in str(caught.value)
    with pytest.raises(UserError, match="--normalise-ids zeros"):
        join_by_id(["001", "002"], ["1", "2"])


@pytest.mark.parametrize("blank", [None, "", np.nan])
def test_an_empty_id_names_its_row(blank):
    with pytest.raises(UserError, match="rows 2"):
        join_by_id(["a", "b"], ["a", blank, "b"])


def test_numeric_ids_keep_their_face():
    assert join_by_id(["1", "2"], np.array([2.0, 1.0])).row_of_case.tolist() == [1, 0]
    assert join_by_id(["1", "2"], np.array([2, 1])).row_of_case.tolist() == [1, 0]


def test_a_bad_normalisation_offers_its_neighbours():
    with pytest.raises(UserError, match="zeros"):
        join_by_id(["a"], ["a"], normalise=["zero"])


def test_no_predictions_is_all_missing():
    join = join_by_id(["a", "b"], [])
    assert join.row_of_case.tolist() == [-1, -1]


ids = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6),
    unique=True,
    max_size=12,
)


@given(ours=ids, theirs=ids)
def test_a_join_is_exact_and_complete(ours, theirs):
    if ours and theirs and not set(ours) & set(theirs):
        with pytest.raises(UserError):
            join_by_id(ours, theirs)
        return
    join = join_by_id(ours, theirs)
    for case, row in zip(ours, join.row_of_case, strict=True):
        assert (row >= 0) == (case in theirs)
        assert row < 0 or theirs[row] == case
    assert set(join.extra) == set(theirs) - set(ours)


@given(st.text(max_size=20))
def test_one_unicode_form_is_reached_at_once(text):
    once = normalise_id(text, ("unicode",))
    assert normalise_id(once, ("unicode",)) == once and "\n" not in once and "\u200b" not in once


@given(st.text(max_size=20))
def test_normalising_twice_changes_nothing(text):
    rules = ("blanks", "case", "zeros")
    once = normalise_id(text, rules)
    assert normalise_id(once, ("blanks", "zeros")) == once
