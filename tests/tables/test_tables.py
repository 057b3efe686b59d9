"""A stranger's table: read as it is, or refused with the place and the remedy."""

from __future__ import annotations

import errno
import gzip
import json
import math
import warnings
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.errors import ElsewhereWarning, UserError
from elsewhere.files.limits import SizeLimitError
from elsewhere.tables import (
    TableOptions,
    content_hash,
    file_digest,
    infer_types,
    read_table,
    staged_directory,
    to_number,
    write_json,
    write_table,
    write_text,
)
from elsewhere.tables.workbook import sheet_titles


def put(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(path: Path, *words: str, **kwargs: object) -> UserError:
    with pytest.raises(UserError) as caught:
        read_table(path, **kwargs)
    text = str(caught.value)
    for word in words:
        assert word in text, text
    return caught.value


def test_csv_cells_are_strings_and_zeros_stay(tmp_path):
    frame = read_table(put(tmp_path / "a.csv", "case_id,age\n007,51\n08,\n"))
    assert frame["case_id"].tolist() == ["007", "08"]
    assert frame["age"].tolist()[0] == "51"
    assert frame["age"].isna().tolist() == [False, True]
    assert all(isinstance(dtype, pd.StringDtype) for dtype in frame.dtypes)


def test_the_words_nan_and_na_stay_text(tmp_path):
    frame = read_table(put(tmp_path / "a.csv", "a,b\nNA,nan\n,x\n"))
    assert frame["a"].tolist()[0] == "NA"
    assert frame["b"].tolist() == ["nan", "x"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marked_encodings_are_recognised(tmp_path, encoding):
    frame = read_table(put(tmp_path / "a.csv", "id,name\n1,Malmö\n".encode(encoding)))
    assert frame.columns.tolist() == ["id", "name"]
    assert frame["name"].tolist() == ["Malmö"]


def test_latin_1_is_refused_with_its_line_and_read_when_declared(tmp_path):
    path = put(tmp_path / "a.csv", "id,name\n1,x\n2,Malmö\n".encode("latin-1"))
    refused(path, "0xf6", "line 3", "--encoding latin-1")
    assert read_table(path, options=TableOptions(encoding="latin-1"))["name"].tolist() == ["x", "Malmö"]
    for strange in ("martian", "base64", "rot13", "a\0b"):
        refused(path, "unknown text encoding", options=TableOptions(encoding=strange))


def test_semicolons_are_refused_and_read_when_declared(tmp_path):
    path = put(tmp_path / "a.csv", "case_id;probability\n1;0,25\n2;1\n")
    refused(path, "semicolons", "--delimiter ';'", "--decimal ','")
    frame = read_table(path, options=TableOptions(delimiter=";", decimal=","))
    assert to_number(frame["probability"], column="probability", where="a").tolist() == [0.25, 1.0]


def test_tabs_in_a_csv_and_sep_line(tmp_path):
    refused(put(tmp_path / "a.csv", "a\tb\n1\t2\n"), "tabs", "--delimiter 'tab'")
    assert read_table(put(tmp_path / "a.tsv", "a\tb\n1\t2\n")).shape == (1, 2)
    assert read_table(put(tmp_path / "a.txt", "a\tb\n1\t2\n")).shape == (1, 2)
    refused(put(tmp_path / "b.csv", "sep=;\na;b\n1;2\n"), "sep=")


def test_decimal_option_leaves_named_strings_alone(tmp_path):
    path = put(tmp_path / "a.csv", "case_id;p\n1,5;2,5\n")
    frame = read_table(path, strings=["case_id"], options=TableOptions(delimiter=";", decimal=","))
    assert frame.iloc[0].tolist() == ["1,5", "2.5"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ["empty"]),
        ("\n\n  \n", ["empty"]),
        ("a,b\n", ["header but no rows"]),
        ("a,b,a\n1,2,3\n", ["two columns are called 'a'", "columns 1 and 3"]),
        ("a,b\n1,2\n3\n", ["header has 2 columns", "line 3 has 1"]),
        ("a,b\n1,0,5\n2,0,7\n", ["line 2 has 3", "decimal commas"]),
        ('a,b\n1,"x\n2,y\n', ["double quote", "line 2"]),
        (b"a,b\n1,\x002\n", ["NUL byte", "line 2"]),
        (b"PK\x03\x04rest", ["zip archive"]),
        (b"\x1f\x8brest", ["gzip"]),
        (b"\x89PNG\r\n\x1a\n\0\0\xff", ["PNG"]),
    ],
)
def test_bad_text_tables(tmp_path, content, words):
    refused(put(tmp_path / "a.csv", content), *words)


def test_header_only_can_be_allowed(tmp_path):
    frame = read_table(put(tmp_path / "a.csv", "a,b\n"), allow_empty=True)
    assert frame.shape == (0, 2)


def test_quoted_newlines_crlf_and_missing_last_newline(tmp_path):
    with pytest.warns(ElsewhereWarning, match="no line end"):
        frame = read_table(put(tmp_path / "a.csv", 'a,b\r\n"x\r\ny",1\r\n"say ""hi""",2'))
    assert frame["a"].tolist() == ["x\r\ny", 'say "hi"']


def test_a_file_cut_in_the_middle_of_a_row_is_noticed(tmp_path):
    """Cut inside the last cell, 0.87 became 0.8 without a word; cut before it, the fix was to add a cell."""
    whole = "case_id,score\nc1,0.91\nc2,0.87\n"
    with pytest.warns(ElsewhereWarning, match=r"a\.csv: the last line has no line end.*row 2"):
        assert read_table(put(tmp_path / "a.csv", whole[:-2]))["score"].tolist() == ["0.91", "0.8"]
    refused(put(tmp_path / "b.csv", whole[:-6]), "line 3 has 1", "it was cut off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_table(put(tmp_path / "c.csv", whole))) == 2


def test_unnamed_columns(tmp_path):
    frame = read_table(put(tmp_path / "a.csv", ",a,\n0,x,\n1,y,\n"))
    assert frame.columns.tolist() == ["Unnamed: 0", "a"]


def test_missing_columns_offer_neighbours(tmp_path):
    error = refused(put(tmp_path / "a.csv", "PatientID,score\n1,2\n"), required=["patient_id", "age"])
    assert "'patient_id', 'age'" in error.what
    assert error.fix is not None
    assert "'patient_id': perhaps 'PatientID'" in error.fix and "'age'" not in error.fix


def test_no_file_a_folder_and_a_strange_ending(tmp_path):
    put(tmp_path / "cohort.csv", "a\n1\n")
    refused(tmp_path / "cohrt.csv", "no such file", "cohort.csv")
    (tmp_path / "d.csv").mkdir()
    refused(tmp_path / "d.csv", "folder")
    refused(put(tmp_path / "a.xls", "x"), ".xlsx")
    refused(tmp_path / ("x" * 5000 + ".csv"), "cannot be reached")


def test_a_device_is_no_table(tmp_path):
    if not Path("/dev/zero").exists():
        pytest.skip("no /dev/zero here")
    (tmp_path / "a.csv").symlink_to("/dev/zero")
    refused(tmp_path / "a.csv", "regular file")


def test_gzip_reads_and_a_damaged_one_is_refused(tmp_path):
    good = put(tmp_path / "a.csv.gz", gzip.compress(b"a,b\n1,2\n"))
    assert read_table(good).shape == (1, 2)
    refused(put(tmp_path / "b.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 999)[:-9]), "damaged")
    refused(put(tmp_path / "c.csv.gz", b"a,b\n1,2\n"), "damaged")


def test_a_gzip_that_unpacks_without_end_is_stopped(tmp_path):
    path = put(tmp_path / "bomb.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 3_000_000))
    small = TableOptions(ratio_from_bytes=1_000_000)
    refused(path, "unpacks to over", "times the packed size", options=small)
    refused(path, "unpacks to over", options=TableOptions(max_bytes=5_000_000))
    refused(put(tmp_path / "a.csv", "a\n" * 99), "the limit is 10 bytes", options=TableOptions(max_bytes=10))


def workbook(path: Path, rows: list[list[object]], *, formats: dict[str, str] | None = None) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cell, form in (formats or {}).items():
        book.active[cell].number_format = form
    book.save(path)
    return path


def test_xlsx_cells_as_a_person_sees_them(tmp_path):
    path = workbook(
        tmp_path / "a.xlsx",
        [
            ["id", "x", "flag", "day", None],
            [7, 1.5, True, pd.Timestamp("2020-01-02"), None],
            ["007", 2.0, None, None, None],
        ],
        formats={"A2": "0000"},
    )
    frame = read_table(path)
    assert frame.columns.tolist() == ["id", "x", "flag", "day"]
    assert frame.iloc[0].tolist() == ["0007", "1.5", "TRUE", "2020-01-02"]
    assert frame.loc[1, "id"] == "007"
    assert frame["x"].tolist() == ["1.5", "2"]
    refused(path, "unknown sheet", "Sheet", sheet="nope")


def test_an_xlsx_with_two_sheets_says_which_was_read(tmp_path):
    path = tmp_path / "a.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame({"case_id": ["first"]}).to_excel(book, sheet_name="scores", index=False)
        pd.DataFrame({"case_id": ["second"]}).to_excel(book, sheet_name="again", index=False)
        pd.DataFrame({"field": ["case_id"]}).to_excel(book, sheet_name="legend", index=False)
    with pytest.warns(ElsewhereWarning, match="sheet 'scores' is read; the workbook also has 'again'$"):
        assert read_table(path)["case_id"].tolist() == ["first"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(path, sheet="again")["case_id"].tolist() == ["second"]
    assert sheet_titles(path) == ["scores", "again", "legend"]
    with pytest.raises(SizeLimitError):
        sheet_titles(path, TableOptions(max_bytes=100))
    path.write_bytes(b"no workbook")
    with pytest.raises(UserError, match="not a zip archive"):
        sheet_titles(path)


def test_a_wrong_path_names_its_neighbours(tmp_path):
    put(tmp_path / "predictions.csv", "a\n1\n")
    refused(tmp_path / "prediction.csv", "there is no such file", "Did you mean predictions.csv?")
    refused(tmp_path / "no" / "a.csv", "there is no such file", "There is no folder")
    refused(tmp_path, "this is a folder", "Name the file: predictions.csv.")


def test_xlsx_that_is_none_and_formulas_without_result(tmp_path):
    refused(put(tmp_path / "a.xlsx", "a,b\n1,2\n"), "not an .xlsx workbook")
    refused(
        workbook(tmp_path / "b.xlsx", [["a"], ["=1+1"]]), "formula without a stored result", "row 2, column 1"
    )
    refused(workbook(tmp_path / "c.xlsx", []), "empty")
    refused(workbook(tmp_path / "d.xlsx", [["a", "b"]]), "no rows")


def test_parquet_typed_and_ids_as_text(tmp_path):
    ids = pd.array([2**60 + 1, None], dtype="Int64")
    frame = pd.DataFrame({"case_id": ids, "x": [1.5, np.nan], "c": pd.Categorical(["u", "v"])})
    write_table(frame, tmp_path / "a.parquet")
    back = read_table(tmp_path / "a.parquet", strings=["case_id"])
    assert back["case_id"].tolist()[0] == str(2**60 + 1)
    assert back["x"].dtype == "float64"
    assert back["c"].tolist() == ["u", "v"]
    refused(put(tmp_path / "b.parquet", b"PAR1 no"), "parquet file cannot be read")
    write_table(pd.DataFrame({"a": [[1, 2]]}), tmp_path / "n.parquet")
    refused(tmp_path / "n.parquet", "lists or structures")


def number(values: list[str | None], **kwargs: object) -> list[float]:
    return to_number(pd.Series(values, dtype="str"), column="p", where="f.csv", **kwargs).tolist()


def test_to_number_takes_plain_numbers_only():
    got = number(["1", " 0.25 ", "1e-3", "+2", None, ".5", ""])
    assert got[:4] == [1.0, 0.25, 0.001, 2.0]
    assert math.isnan(got[4])
    assert math.isnan(got[6])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1", "0,5"], ["row 2 ('0,5')", "decimal commas"]),
        (["85 %", "1"], ["row 1", "percentages"]),
        (["1,234.5", "2"], ["thousands"]),
        (["1", "NA", "nan"], ["row 2", "row 3", "empty"]),
        (["x"] * 9, ["and 5 more"]),
        (["1", "inf"], ["infinite", "row 2"]),
        (["1_000"], ["not numbers"]),
        (["0x10"], ["not numbers"]),
    ],
)
def test_to_number_refuses(values, words):
    with pytest.raises(UserError) as caught:
        number(values)
    assert all(word in str(caught.value) for word in ["f.csv", *words]), str(caught.value)


def test_to_number_rules_by_argument():
    with pytest.raises(UserError, match="row 2"):
        number(["1", None], missing="error")
    assert number(["inf"], infinite="keep") == [math.inf]
    assert math.isnan(number(["inf"], infinite="nan")[0])
    assert [math.isnan(v) for v in number(["x", "inf", "1"], on_invalid="nan")] == [True, True, False]
    assert math.isnan(number(["NA", "2"], na_values={"NA"})[0])
    assert to_number(pd.Series([1, 2]), column="p", where="f").tolist() == [1.0, 2.0]
    with pytest.raises(UserError, match="infinite"):
        to_number(pd.Series([1.0, np.inf]), column="p", where="f")


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_to_number_is_exact(values):
    assert number([repr(v) for v in values]) == values


CELLS = {
    "age": st.one_of(st.none(), st.integers(18, 99), st.floats(0, 99)),
    "name": st.one_of(st.none(), st.text("ab07 é,;\"'", min_size=1, max_size=6)),
    "flag": st.booleans(),
    "count": st.integers(-5, 5),
}


@st.composite
def frames(draw):
    n = draw(st.integers(1, 8))
    ids = draw(st.lists(st.text("0123ab", min_size=1, max_size=4), min_size=n, max_size=n, unique=True))
    data = {"case_id": ids}
    for name, cell in CELLS.items():
        if draw(st.booleans()):
            data[name] = draw(st.lists(cell, min_size=n, max_size=n))
    return pd.DataFrame(data)


@settings(max_examples=60, deadline=None)
@given(frame=frames(), seed=st.integers(0, 99))
def test_the_hash_is_of_content(tmp_path_factory, frame, seed):
    folder = tmp_path_factory.mktemp("h")
    write_table(frame, folder / "a.csv")
    write_table(frame, folder / "a.parquet")
    expected = content_hash(frame)
    assert content_hash(read_table(folder / "a.csv")) == expected
    assert content_hash(read_table(folder / "a.parquet")) == expected
    rng = np.random.default_rng(seed)
    shuffled = frame.iloc[rng.permutation(len(frame))][list(rng.permutation(frame.columns))]
    assert content_hash(shuffled) == expected


def test_the_hash_sees_every_change():
    base = pd.DataFrame({"case_id": ["a", "b"], "x": [1.0, 2.0], "s": ["u", None]})
    seen = {content_hash(base)}
    for change in (
        base.assign(x=[1.0, 2.0000000000000004]),
        base.assign(s=["u", "v"]),
        base.assign(s=[None, "u"]),
        base.assign(x=[2.0, 1.0]),
        base.rename(columns={"s": "t"}),
        base.assign(case_id=["a", "c"]),
        base.assign(case_id=["01", "1"]),
        base.assign(case_id=["1", "01"]),
        base.iloc[:1],
    ):
        digest = content_hash(change)
        assert digest not in seen
        seen.add(digest)


def test_rows_with_the_same_id_are_ordered_by_content():
    frame = pd.DataFrame({"case_id": ["a", "a", "b"], "x": [3.0, 1.0, 2.0]})
    assert content_hash(frame) == content_hash(frame.iloc[[2, 1, 0]])


def test_infer_types_keeps_ids_and_zero_padded_text():
    frame = pd.DataFrame(
        {"case_id": ["1", "2"], "zip": ["01", "2"], "n": ["1", "2"], "x": ["1", None], "f": ["True", "false"]}
    )
    plain = infer_types(frame)
    assert plain["case_id"].tolist() == ["1", "2"]
    assert plain["zip"].tolist() == ["01", "2"]
    assert plain["n"].dtype == "int64"
    assert plain["x"].dtype == "float64"
    assert plain["f"].tolist() == [True, False]
    numbers = infer_types(pd.DataFrame({"patient_id": [7.0, np.nan]}))
    assert numbers["patient_id"].tolist()[0] == "7"


def test_written_bytes_are_the_same_twice(tmp_path):
    frame = pd.DataFrame({"a": ["x", None], "b": [0.1, np.nan]})
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        write_table(frame, tmp_path / name)
        first = file_digest(tmp_path / name)
        write_table(frame, tmp_path / name)
        assert file_digest(tmp_path / name) == first
    with pytest.raises(UserError, match="xlsx"):
        write_table(frame, tmp_path / "a.xlsx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.csv.gz", "a.parquet"]


def test_json_has_null_for_nan(tmp_path):
    write_json(
        {"a": np.float64("nan"), "b": np.int64(3), "c": (Path("x/y"), math.inf), "d": np.array([0.1])},
        tmp_path / "a.json",
    )
    assert json.loads((tmp_path / "a.json").read_text()) == {
        "a": None,
        "b": 3,
        "c": ["x/y", None],
        "d": [0.1],
    }
    with pytest.raises(TypeError):
        write_json({"a": object()}, tmp_path / "b.json")
    assert not (tmp_path / "b.json").exists()


def test_staged_directory_appears_whole_or_not_at_all(tmp_path):
    out = tmp_path / "deep" / "out"
    with staged_directory(out) as staged:
        (staged / "summary.json").write_text("1")
        assert not out.exists()
    assert (out / "summary.json").read_text() == "1"
    with pytest.raises(RuntimeError), staged_directory(out, replace=True) as staged:
        (staged / "summary.json").write_text("2")
        raise RuntimeError
    assert (out / "summary.json").read_text() == "1"
    with staged_directory(out, replace=True) as staged:
        (staged / "summary.json").write_text("3")
    assert [p.name for p in out.parent.iterdir()] == ["out"]
    assert (out / "summary.json").read_text() == "3"


def test_staged_directory_leaves_strangers_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.docx").write_text("x")
    with pytest.raises(UserError, match="left alone"), staged_directory(tmp_path / "mine"):
        pass
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="a file of this name"), staged_directory(tmp_path / "file"):
        pass
    (tmp_path / "empty").mkdir()
    with staged_directory(tmp_path / "empty") as staged:
        (staged / "a").write_text("x")
    assert (tmp_path / "empty" / "a").exists()


def test_a_full_disk_says_what_to_do_and_leaves_the_old_file(tmp_path, monkeypatch):
    write_text("old", tmp_path / "a.txt")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"No space left on device[\s\S]*Free some space"):
        write_text("new", tmp_path / "a.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_column_whose_name_begins_with_a_dot_is_a_column():
    """Arrow reads such a name as a path into a nested one."""
    frame = pd.DataFrame({"../..case_id": ["b", "a"], ".x": [1.0, 2.0]})
    assert content_hash(frame) == content_hash(frame.iloc[::-1])
    assert content_hash(frame) != content_hash(frame.assign(**{".x": [2.0, 1.0]}))
