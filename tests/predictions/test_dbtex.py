"""DBT-07: the challenge's csv is read and written as it is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions.answers import AnswerTarget, answer_kinds
from elsewhere.predictions.boxes import boxes_from_frame, read_boxes, write_dbtex
from elsewhere.predictions.dbtex import DBTEX_COLUMNS, BoxPredictions

HEADER = "PatientID,StudyUID,View,X,Width,Y,Height,Z,Depth,Score"
ROWS = [
    "DBT-P01,DBT-S0001,lmlo,169,137,803,102,8,8,0.9084833264350892",
    "DBT-P01,DBT-S0001,rcc,1333.0,304,1165,280,16,6,1e-3",
    "DBT-P02,DBT-S0002,rmlo1,0,200,-4,248,26.5,5,0.50",
]
PLAIN = "\n".join([HEADER, *ROWS]) + "\n"


def twin(kind: str) -> bytes:
    """Files as different tools write them; none may change by being read."""
    if kind == "counter":
        lines = [f",{HEADER}", *(f"{i},{row}" for i, row in enumerate(ROWS))]
        return ("\n".join(lines) + "\n").encode()
    if kind == "crlf":
        return PLAIN.replace("\n", "\r\n").encode()
    if kind == "no final newline":
        return PLAIN.rstrip("\n").encode()
    if kind == "byte order mark":
        return b"\xef\xbb\xbf" + PLAIN.encode()
    if kind == "quoted":
        rows = [",".join(f'"{cell}"' for cell in row.split(",")) for row in ROWS]
        return "\n".join([HEADER, *rows, ""]).encode()
    if kind == "other order and more columns":
        frame = pd.DataFrame([row.split(",") for row in ROWS], columns=HEADER.split(","))
        frame["Team"] = ["a", "é", ""]
        return frame[["Score", "Team", *frame.columns[:-2][::-1]]].to_csv(index=False).encode()
    if kind == "blank line at the end":
        return (PLAIN + "\n").encode()
    if kind == "header alone":
        return (HEADER + "\n").encode()
    return PLAIN.encode()


TWINS = ["plain", "counter", "crlf", "no final newline", "byte order mark", "quoted", "blank line at the end"]
TWINS += ["other order and more columns", "header alone"]


@pytest.mark.parametrize("kind", TWINS)
def test_written_back_byte_for_byte(kind, tmp_path):
    source = tmp_path / "submission.csv"
    source.write_bytes(twin(kind))
    predictions = read_boxes(source)
    out = write_dbtex(predictions, tmp_path / "again.csv")
    assert out.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("kind", TWINS[:-1])
def test_every_form_says_the_same(kind, tmp_path):
    source = tmp_path / "submission.csv"
    source.write_bytes(twin(kind))
    table = read_boxes(source).table
    assert table["case_id"].tolist() == ["DBT-S0001/lmlo", "DBT-S0001/rcc", "DBT-S0002/rmlo1"]
    assert table["patient_id"].tolist() == ["DBT-P01", "DBT-P01", "DBT-P02"]
    assert table["x"].tolist() == [169.0, 1333.0, 0.0]
    assert table["y"].tolist() == [803.0, 1165.0, -4.0]
    assert table["z"].tolist() == [8.0, 16.0, 26.5]
    assert table["score"].tolist() == [0.9084833264350892, 0.001, 0.5]
    assert table["row"].tolist() == [1, 2, 3]
    assert table["reason"].isna().all()


def test_only_changed_rows_are_written_anew(tmp_path):
    source = tmp_path / "submission.csv"
    source.write_bytes(twin("counter"))
    predictions = read_boxes(source)
    table = predictions.table.copy()
    table.loc[1, "score"] = 0.25
    write_dbtex(dataclasses.replace(predictions, table=table), tmp_path / "again.csv")
    lines = (tmp_path / "again.csv").read_text().splitlines()
    assert lines[1] == f"0,{ROWS[0]}"
    assert lines[2] == "1,DBT-P01,DBT-S0001,rcc,1333,304,1165,280,16,6,0.25"
    assert lines[3] == f"2,{ROWS[2]}"


def test_rows_left_out_or_reordered_keep_their_text(tmp_path):
    source = tmp_path / "submission.csv"
    source.write_bytes(twin("no final newline"))
    predictions = read_boxes(source)
    turned = dataclasses.replace(predictions, table=predictions.table.iloc[[2, 0]])
    write_dbtex(turned, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == "\n".join([HEADER, ROWS[2], ROWS[0], ""])


def test_added_rows_take_the_files_columns(tmp_path):
    source = tmp_path / "submission.csv"
    source.write_bytes(twin("counter"))
    predictions = read_boxes(source)
    new = predictions.table.iloc[[0]].assign(case_id="DBT-S0009/lcc", patient_id="DBT-P09", row=pd.NA)
    more = dataclasses.replace(predictions, table=pd.concat([predictions.table, new], ignore_index=True))
    write_dbtex(more, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text().splitlines()[-1] == (
        ",DBT-P09,DBT-S0009,lcc,169,137,803,102,8,8,0.9084833264350892"
    )


def test_native_boxes_need_a_patient_to_become_dbtex(tmp_path):
    frame = pd.DataFrame(
        {
            "case_id": ["S1/lcc"],
            "x": [1],
            "y": [2],
            "width": [3],
            "height": [4],
            "z": [5],
            "depth": [6],
            "score": [1],
        }
    )
    predictions = boxes_from_frame(frame)
    with pytest.raises(UserError, match="no patient"):
        write_dbtex(predictions, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    cohort = Cohort(cases=pd.DataFrame({"case_id": ["S1/lcc"], "patient_id": ["P1"]}))
    write_dbtex(predictions, tmp_path / "out.csv", cohort=cohort)
    assert (tmp_path / "out.csv").read_text() == f"{HEADER}\nP1,S1,lcc,1,3,2,4,5,6,1.0\n"
    assert read_boxes(tmp_path / "out.csv").table["score"].tolist() == [1.0]


def test_a_case_id_without_view_cannot_be_written(tmp_path):
    frame = pd.DataFrame(
        {"case_id": ["S1"], "patient_id": "P1", **dict.fromkeys(["x", "y", "width", "height", "score"], 1.0)}
    )
    with pytest.raises(UserError, match="StudyUID/View"):
        write_dbtex(boxes_from_frame(frame), tmp_path / "out.csv")


def test_the_real_submission_is_written_back_byte_for_byte(data_dir: Path, tmp_path):
    source = data_dir / "tomosynthesis" / "BCS-DBT" / "dbtex1_test_submission_ucla_mii.csv"
    if not source.exists():
        pytest.skip(f"no {source.name} in shared/data")
    predictions = read_boxes(source)
    assert isinstance(predictions, BoxPredictions)
    assert len(predictions.table) == 1360
    assert predictions.table["case_id"].nunique() > 400
    write_dbtex(predictions, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == source.read_bytes()


def test_views_in_capitals_are_those_of_the_cohort(tmp_path):
    """DBT-07: `RMLO` in a file is the cohort's `rmlo`; the file is written back as it was."""
    file = tmp_path / "said.csv"
    file.write_text(
        "PatientID,StudyUID,View,X,Width,Y,Height,Z,Depth,Score\n"
        "P1,S1,RMLO,1,2,3,4,5,1,0.5\nP1,S1,lcc,1,2,3,4,5,1,0.5\nP1,s1,RMLO,1,2,3,4,5,1,0.5\n"
    )
    cases = {"case_id": ["S1/rmlo", "S1/lcc"], "patient_id": ["P1", "P1"]}
    found = read_boxes(file, cohort=Cohort.from_frame(pd.DataFrame(cases)))
    assert found.table["case_id"].tolist() == ["S1/rmlo", "S1/lcc", "s1/RMLO"]
    assert any("1 boxes were joined" in word for word in found.warnings)
    assert write_dbtex(found, tmp_path / "again.csv").read_bytes() == file.read_bytes()
    both = Cohort.from_frame(pd.DataFrame({"case_id": ["S1/RMLO", "S1/rmlo"], "patient_id": ["P1", "P1"]}))
    assert read_boxes(file, cohort=both).table["case_id"].tolist()[0] == "S1/RMLO"


def answers_written(found, folder, ids):
    kind = answer_kinds.get("boxes")
    answers = kind.gather([kind.one(one) for one in found])
    patients = tuple(f"P{at}" for at in range(len(ids)))
    folder.mkdir(exist_ok=True)
    name = kind.write(answers, AnswerTarget(folder=folder, ids=ids, patients=patients))
    return kind, answers, folder / name


def test_answers_in_volumes_are_written_as_the_challenges_csv_and_read_back(tmp_path):
    ids = ("S1/lcc", "S2/rmlo", "S3/lcc")
    box = np.array([[10.25, 5.0, 3.0, 40.75, 30.5, 4.0], [0.0, 0.0, 0.0, 9.0, 9.0, 12.0]])
    kind, answers, file = answers_written(
        [(box, [0.9, 0.123456789012345]), (np.zeros((0, 6)), []), (box[:1], [0.5])], tmp_path / "some", ids
    )
    assert file.read_text().splitlines()[0] == ",".join(DBTEX_COLUMNS)
    read = read_boxes(file)
    assert read.table["patient_id"].tolist() == ["P0", "P0", "P2"]
    plain = kind.table(answers, ids)
    for name in ("case_id", "x", "y", "width", "height", "z", "depth", "score"):
        assert read.table[name].tolist() == plain[name].tolist(), name


def test_answers_without_any_box_are_a_header_alone(tmp_path):
    empty = (np.zeros((0, 6)), [])
    _, _, file = answers_written([empty, empty], tmp_path / "none", ("S1/lcc", "S2/lcc"))
    assert file.read_text() == ",".join(DBTEX_COLUMNS) + "\n"
    assert read_boxes(file).table.empty


def test_answers_in_pictures_and_of_other_ids_keep_our_columns(tmp_path):
    plane, volume = np.array([[1.0, 2, 3, 4]]), np.array([[1.0, 2, 0, 3, 4, 1]])
    for name, box, case in (("plane", plane, "S1/lcc"), ("volume", volume, "scan-1")):
        _, _, file = answers_written([(box, [0.5])], tmp_path / name, (case,))
        assert file.read_text().startswith("case_id,"), name
