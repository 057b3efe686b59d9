"""Mutated box files: a reader answers with boxes or with a UserError, never with another exception."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.boxes import read_boxes, write_dbtex

SOUND = (
    b",PatientID,StudyUID,View,X,Width,Y,Height,Z,Depth,Score\n"
    b"0,DBT-P1,DBT-S1,lmlo,169,137,803,102,8,8,0.9084833264350892\n"
    b"1,DBT-P1,DBT-S1,rcc,1333,304,1165,280,16,6,0.8889023661613464\n"
    b"2,DBT-P2,DBT-S2,rcc,1795,200,860,248,26,5,0.9307135343551636\n"
)
PIECES = [
    b"",
    b",",
    b"\n",
    b"\r\n",
    b'"',
    b";",
    b"nan",
    b"inf",
    b"-",
    b"1e999",
    b"\x00",
    b"\xff",
    b"\t",
    b"0,5",
    b"\xef\xbb\xbf",
    b"Score",
]

mutations = st.lists(
    st.tuples(
        st.integers(0, len(SOUND)), st.integers(0, 12), st.sampled_from(PIECES) | st.binary(max_size=4)
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("on_invalid", ["error", "worst"])
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=mutations)
def test_boxes_or_a_user_error(changes, on_invalid, tmp_path):
    data = SOUND
    for at, length, piece in changes:
        data = data[:at] + piece + data[at + length :]
    path = tmp_path / "boxes.csv"
    path.write_bytes(data)
    try:
        predictions = read_boxes(path, ReadOptions(on_invalid=on_invalid))
    except UserError as error:
        assert error.what
        return
    table = predictions.table
    assert table["case_id"].notna().all()
    if on_invalid == "error":
        assert table["reason"].isna().all()
    write_dbtex(predictions, tmp_path / "again.csv")
    if predictions.layout is not None and predictions.layout.lines_are_rows:
        assert (tmp_path / "again.csv").read_bytes() == data
