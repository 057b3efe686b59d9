"""Workbooks with wrong cells, rows and columns: an analysis or a `UserError`, never another exception."""

from __future__ import annotations

import datetime
import json
import random

import openpyxl
import pytest

from elsewhere.commands.readers import reader_study
from elsewhere.errors import UserError

CELLS = (
    None, "", "0", 0, 1, 2, -1, 1.5, "NaN", "inf", "1e400", 1e308, "=1+1", "\u00e9\u202e", "0,1", "1 2", "FROC", "ROC", "FCTRL",
    True, datetime.datetime(2020, 1, 1), " d1 ", "D1", "x" * 5000, 10**18, "1/2", "50%", "3,5",
)  # fmt: skip
SHEETS = {
    "Truth": [
        ["CaseID", "LesionID", "Weight", "ReaderID", "ModalityID", "Paradigm"],
        *([f"n{at}", 0, 0, "1,2", "A,B", None] for at in range(4)),
        *([f"d{at}", 1, 1, "1,2", "A,B", None] for at in range(4)),
    ],
    "TP": [
        ["ReaderID", "ModalityID", "CaseID", "LesionID", "TP_Rating"],
        *([reader, name, f"d{at}", 1, at + reader] for reader in (1, 2) for name in "AB" for at in range(3)),
    ],
    "FP": [
        ["ReaderID", "ModalityID", "CaseID", "FP_Rating"],
        *([reader, name, f"n{at}", at] for reader in (1, 2) for name in "AB" for at in range(2)),
    ],
}


def mutated(rng):
    sheets = {title: [list(row) for row in rows] for title, rows in SHEETS.items()}
    for _ in range(rng.randint(1, 4)):
        rows = sheets[rng.choice(list(sheets))]
        kind = rng.random()
        if kind < 0.7:
            row = rng.choice(rows)
            row[rng.randrange(len(row))] = rng.choice(CELLS)
        elif kind < 0.8:
            del rows[rng.randrange(len(rows))]
        elif kind < 0.9:
            rows.insert(rng.randrange(len(rows) + 1), [rng.choice(CELLS) for _ in range(rng.randint(1, 8))])
        else:
            rows.append(list(rng.choice(rows)))
    return sheets


def analyse(path, rng):
    book = openpyxl.Workbook(write_only=True)
    for title, rows in mutated(rng).items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    try:
        made = reader_study(
            path,
            figure=rng.choice([None, "wafroc1", "hr-auc", "max-nlf", "max-llf"]),
            leave_out=rng.choice(["case", "patient"]),
            on_invalid=rng.choice(["error", "skip"]),
        )
    except UserError:
        return 0
    assert list(made.lines())
    json.dumps(made.to_dict(), allow_nan=False)
    return 1


@pytest.mark.parametrize("files", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_workbook_is_analysed_or_refused(tmp_path, files):
    rng = random.Random(files)
    analysed = sum(analyse(tmp_path / "study.xlsx", rng) for _ in range(files))
    assert 0 < analysed < files
