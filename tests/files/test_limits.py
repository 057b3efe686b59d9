"""Sizes are looked at before the content: parquet, csv, gz, workbooks, npz, JSON; and the option that raises the limit."""

from __future__ import annotations

import gzip
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elsewhere.errors import UserError
from elsewhere.files import LIMIT_VARIABLE, SizeLimitError, check_archive, size_limit
from elsewhere.tables import read_table, reading


def test_the_limit_is_two_gigabytes_or_what_the_variable_says(monkeypatch):
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    assert size_limit() == 2 * 1024**3
    for text, size in {"8GB": 8 * 1024**3, "1.5 mb": 1536 * 1024, "1000": 1000}.items():
        monkeypatch.setenv(LIMIT_VARIABLE, text)
        assert size_limit() == size
    for wrong in ("much", "-1GB", "0", "nan"):
        monkeypatch.setenv(LIMIT_VARIABLE, wrong)
        with pytest.raises(UserError, match="is not a size"):
            size_limit()


@pytest.fixture
def nothing_is_decoded(monkeypatch):
    """A refusal that comes after the decoding is no protection."""

    def decoding(*_, **__):
        raise AssertionError("the file was decoded before its size was looked at")

    monkeypatch.setattr(reading, "_decoded", decoding)


def test_a_parquet_file_of_millions_of_rows_is_refused_by_its_metadata(tmp_path, nothing_is_decoded):
    """60 million rows took 9 GB and 96 s before the refusal; on disk they are small."""
    path = tmp_path / "many.parquet"
    rows = 10_000_000
    table = pa.table(
        {"case_id": pa.array(np.zeros(rows, np.int8)), "probability": pa.nulls(rows, pa.float64())}
    )
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(6):
            writer.write_table(table)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(SizeLimitError, match=r"60,000,000 rows of 2 columns[\s\S]*ELSEWHERE_MAX_BYTES=3GB"):
        read_table(path, strings=("case_id",))
    with pytest.raises(UserError, match="no column 'label'"):
        read_table(path, required=["label"])


def test_the_variable_lets_a_parquet_file_in(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"case_id": [f"c{i}" for i in range(1000)], "x": np.arange(1000.0)}).to_parquet(path)
    monkeypatch.setenv(LIMIT_VARIABLE, "30KB")
    with pytest.raises(SizeLimitError):
        read_table(path)
    monkeypatch.setenv(LIMIT_VARIABLE, "1MB")
    assert read_table(path).shape == (1000, 2)


def test_one_long_text_in_a_dictionary_for_every_row_is_counted_as_it_is_written_out(tmp_path, monkeypatch):
    """The pages hold it once; the data frame would hold it for each row."""
    monkeypatch.setenv(LIMIT_VARIABLE, "20MB")
    long = pa.array(["x" * 100_000])
    coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500, np.int32)), long)
    pq.write_table(pa.table({"text": coded.cast(pa.string())}), tmp_path / "plain.parquet")
    pq.write_table(pa.table({"text": coded}), tmp_path / "coded.parquet")
    before = pa.total_allocated_bytes()
    for name in ("plain.parquet", "coded.parquet"):
        assert (tmp_path / name).stat().st_size < 1_000_000
        with pytest.raises(SizeLimitError):
            read_table(tmp_path / name)
    assert pa.total_allocated_bytes() - before < 20_000_000


def test_texts_read_through_dictionaries_are_the_same(tmp_path, monkeypatch):
    """Also with missing values, several row groups, and a column that is not text."""
    frame = pd.DataFrame({"case_id": [f"c{i}" for i in range(3000)], "site": ["a", None, "b"] * 1000})
    frame["x"] = np.arange(3000.0)
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=700)
    plain = read_table(tmp_path / "a.parquet")
    monkeypatch.setattr(reading, "_risky_columns", lambda *_: ["case_id", "site"])
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.parquet"), plain)


def test_text_tables_and_workbooks(tmp_path, monkeypatch):
    text = b"a,b\n" + b"1,2\n" * 50_000
    (tmp_path / "a.csv").write_bytes(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    book = openpyxl.Workbook()
    for at in range(2000):
        book.active.append(["a", "b"] if at == 0 else [at, at])
    book.save(tmp_path / "a.xlsx")
    monkeypatch.setenv(LIMIT_VARIABLE, "50KB")
    for name in ("a.csv", "a.csv.gz", "a.xlsx"):
        with pytest.raises(SizeLimitError, match=LIMIT_VARIABLE):
            read_table(tmp_path / name)
    monkeypatch.setenv(LIMIT_VARIABLE, "1MB")
    for name in ("a.csv", "a.csv.gz", "a.xlsx"):
        assert read_table(tmp_path / name).shape[1] == 2


def test_an_archive_is_measured_by_its_directory(tmp_path, monkeypatch):
    path = tmp_path / "weights.npz"
    np.savez_compressed(path, a=np.zeros(10_000))
    assert path.stat().st_size < 1000
    check_archive(path)
    monkeypatch.setenv(LIMIT_VARIABLE, "50KB")
    with pytest.raises(SizeLimitError, match=LIMIT_VARIABLE):
        check_archive(path)
    path.write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(ValueError, match="not a whole archive"):
        check_archive(path)


def test_a_zip_that_lies_about_its_sizes_gives_no_more_than_it_says(tmp_path):
    """The directory is believed, because reading an entry stops where the directory says that it ends."""
    path = tmp_path / "lie.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", b"\0" * 1_000_000)
    true, false = (1_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(true, false))
    with zipfile.ZipFile(path) as archive, pytest.raises(zipfile.BadZipFile):
        archive.read("a.npy")
