"""Ids in text that is shared: near forms, parts of file names, short ids, folders, and what must stay."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.privacy import Redactor, marks_in

IDS = ["ISPY2-000100", "Anna B", "S1/left", "C0042", "0012", "Muñoz", "4711", "12", "A", "P1", "F1"]


@pytest.mark.parametrize(
    "text",
    [
        "mask_ISPY2-000100.nii.gz is empty",
        "ispy2-000100",
        "ISPY2_100_0000.nii",
        "'ISPY2-000100': bad",
        "S1%2Fleft.nii.gz",
        "s1/LEFT",
        "anna b.",
        "c0042",
        "C42",
        "row of 0012",
        unicodedata.normalize("NFD", "Muñoz"),
        "MUÑOZ",
        "Mu\u200bñoz",
        "the id 4711.",
        "case 12 is odd",
        "case_id 7, 12",
        "'12'",
        'patient "A"',
        "P1, then more",
    ],
)
def test_an_id_is_found_in_every_form(text):
    """Whole, in a file name, in other letter case, padded or not, percent-encoded, in another normal form."""
    redactor = Redactor([*IDS, "7"])
    shared = redactor.text(text)
    assert "[id 1]" in shared
    for word in (
        "ISPY",
        "ispy",
        "left",
        "LEFT",
        "nna",
        "0042",
        "42",
        "0012",
        "oz",
        "OZ",
        "4711",
        "'12'",
        '"A"',
    ):
        assert word not in shared
    assert list(redactor.originals) == [f"[id {n + 1}]" for n in range(len(redactor.originals))]
    assert all(original in text for original in redactor.originals.values())


@pytest.mark.parametrize(
    "text",
    [
        "12 cases of 4711 patients",
        "rows 12, 13 and 12 more",
        "AUROC 0.4711 [0.412, 0.512]",
        "4711 resamples",
        "A - B on 12 cases",
        "P12 is another id, and so is ISPY2-0001001",
        "a difference of 12 %",
    ],
)
def test_counts_and_words_stay(text):
    assert Redactor(IDS).text(text) == text


def test_one_id_has_one_mark_and_the_key_tells_whose_it_is():
    redactor = Redactor(["PAT-1", "PAT-2"])
    assert redactor.text("PAT-2 and PAT-1, again PAT-2") == "[id 1] and [id 2], again [id 1]"
    assert redactor.originals == {"[id 1]": "PAT-2", "[id 2]": "PAT-1"}
    assert redactor.removed == 3
    assert redactor.knowing(["PAT-3"]).text("PAT-3 PAT-1") == "[id 3] [id 2]"


def test_marks_that_are_there_already_are_kept():
    """A summary that was shared is rendered again: new marks go on where the old ones end."""
    once = {"warnings": ["[id 4] is odd"], "audit": [{"message": "PAT-1"}]}
    redactor = Redactor(["PAT-1", "4", "id"])
    shared = redactor.summary(once)
    assert shared == {"warnings": ["[id 4] is odd"], "audit": [{"message": "[id 5]"}]}
    assert marks_in(shared) == 2


def test_what_the_program_itself_names_stays():
    """An id may be called like a metric, a task or a field: their names are not the input's."""
    ids = ["f1", "F1", "auroc", "plain", "classification", "cases", "value", "metrics"]
    summary = {
        "task": "classification",
        "protocol": "plain",
        "counts": {"cases": 3},
        "metrics": {"f1": {"value": 0.5}, "auroc": {"value": 0.6}},
    }
    assert Redactor(ids).summary(summary) == summary
    groups = {"groups": {"who": {"auroc": {"cases": 5}, "PAT-1": {"cases": 6}}}}
    assert Redactor([*ids, "PAT-1"]).summary(groups)["groups"]["who"] == {
        "[id 1]": {"cases": 5},
        "[id 2]": {"cases": 6},
    }


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("/home/Anna Berg/in put/sub/a.csv, rows 2: bad", "sub/a.csv, rows 2: bad"),
        ("subs/team.csv: no column", "team.csv: no column"),
        ("/srv/data/berg/b.csv: bad", "b.csv: bad"),
        ("'~/secret/c.csv'", "'c.csv'"),
        ("C:\\Users\\berg\\d.csv", "d.csv"),
        ("under /home/berg", "under [folder]"),
        ("under /Users/berg/", "under [folder]"),
        ("see https://example.org/a/b and N/A and 3 mm/s", "see https://example.org/a/b and N/A and 3 mm/s"),
    ],
)
def test_folders_and_user_names_go(text, shared):
    assert Redactor([], folders=["/home/Anna Berg/in put", "subs"]).text(text) == shared
    assert Redactor(["X-1"], folders=["/home/Anna Berg/in put", "subs"]).tree([text]) == [shared]


LETTERS = st.sampled_from("ABCDEFGHKLMNPQRSTUVWXYZabcdefghkmnpqrstuvwxyzäöüñéßçø")
ID = st.builds(
    lambda start, sep, number, end: f"{start}{sep}{number}{end}",
    st.text(LETTERS, min_size=1, max_size=6),
    st.sampled_from(["", "-", "_", "/", " ", ".", "--"]),
    st.integers(0, 10**7).map(lambda n: f"{n:05d}"),
    st.sampled_from(["", "a", "-L", "/rmlo", ".2"]),
)
FRAMES = ["{}", "'{}'", "mask_{}.nii.gz", "{}, rows 3, 4", "the id '{}' stands in rows 1", "x ({})", "{}."]
FORMS = {
    "as it is": str,
    "upper": str.upper,
    "lower": str.lower,
    "nfd": lambda text: unicodedata.normalize("NFD", text),
    "encoded": lambda text: text.replace("/", "%2F"),
}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(ID, min_size=1, max_size=8, unique=True), st.sampled_from(FRAMES), st.sampled_from(list(FORMS))
)
def test_no_planted_id_survives(ids, frame, form):
    """Any id, in any of these frames and forms, is gone from the text; nothing else is needed to find it."""
    redactor = Redactor(ids)
    for one in ids:
        planted = FORMS[form](one)
        shared = redactor.text(frame.format(planted))
        assert planted not in shared and one not in shared
        assert "[id " in shared


@settings(max_examples=100, deadline=None)
@given(st.lists(ID, max_size=5), st.text(max_size=60))
def test_text_without_an_id_or_a_folder_is_unchanged_and_redaction_is_final(ids, text):
    redactor = Redactor(ids)
    once = redactor.text(text)
    assert redactor.text(once) == once
