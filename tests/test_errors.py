"""What an error says, and how long it may get."""

from __future__ import annotations

from elsewhere.errors import UserError


def test_a_message_has_three_parts():
    error = UserError("the seed is -1", where="study.toml", fix="Give 0 or more.")
    assert str(error) == "study.toml: the seed is -1\nGive 0 or more."
    assert error.to_dict() == {"error": "the seed is -1", "where": "study.toml", "fix": "Give 0 or more."}


def test_names_of_any_length_do_not_fill_the_screen():
    error = UserError("no column 'x'", where="a.csv", fix="the columns are: " + "a." * 500_000)
    assert len(str(error)) < 7_000
    assert "994,017 more characters" in str(error)
