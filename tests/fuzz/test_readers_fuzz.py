"""Mutated files thrown at every reader: a result or a `UserError`, never another exception, never a hang.

Bytes are flipped, cut, doubled and replaced by words that have broken parsers before. The examples are
derandomised and bounded, so a failure repeats.
"""

from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elsewhere.cohort import audit, describe, load_cohort, read_cohort
from elsewhere.cohort.readers.bcs_dbt_tables import parse_table_name
from elsewhere.errors import UserError
from elsewhere.phantom.tables import (
    write_bcs_dbt_twin,
    write_camelyon16_twin,
    write_camelyon17_twin,
    write_mama_mia_twin,
)
from elsewhere.tables import content_hash, read_table, write_table
from worlds import examples

EXAMPLES = settings(
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
WORDS = [
    b"", b"\0", b"\n", b"\r", b'"', b",", b";", b"\t", b"\xff\xfe", b"\xef\xbb\xbf", b"nan", b"inf", b"-1",
    b"1e999", b"99999999999999999999", b"=1+1", b"\xf0\x28\x8c\x28", b"PK\x03\x04", b"PAR1", b"\x1f\x8b",
    b"patient_id", b"case_id", b"'", b"<!DOCTYPE", b"A1:XFD1048576", b'r="999999999"', b"../..", b" ",
    b"\xed\xa0\x80",
]  # fmt: skip


@st.composite
def mutations(draw):
    """A list of edits by relative position, so that one strategy serves files of any length."""
    edit = st.tuples(
        st.sampled_from(["flip", "cut", "insert", "replace", "double", "truncate", "swap"]),
        st.floats(0, 1),
        st.floats(0, 1),
        st.sampled_from(WORDS),
        st.integers(0, 255),
    )
    return draw(st.lists(edit, min_size=1, max_size=4))


def mutate(data: bytes, edits: list[tuple[str, float, float, bytes, int]]) -> bytes:
    for kind, where, extent, word, byte in edits:
        if not data:
            return word
        at = min(int(where * len(data)), len(data) - 1)
        to = min(at + 1 + int(extent * 40), len(data))
        if kind == "flip":
            data = data[:at] + bytes([byte]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at] + data[to:]
        elif kind == "insert":
            data = data[:at] + word + data[at:]
        elif kind == "replace":
            data = data[:at] + word + data[to:]
        elif kind == "double":
            data = data[:to] + data[at:]
        elif kind == "truncate":
            data = data[:at]
        else:
            data = data[to:] + data[:to]
    return data


def survives(function, *args: object) -> None:
    """Success or a UserError whose text is fit to print."""
    try:
        function(*args)
    except UserError as error:
        assert str(error).strip()
        assert len(str(error)) < 5000


@pytest.fixture(scope="module")
def seeds(tmp_path_factory) -> dict[str, bytes]:
    """One valid file of each kind, as bytes."""
    folder = tmp_path_factory.mktemp("seeds")
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "case_id": [f"c{i:02d}" for i in range(12)],
            "patient_id": [f"p{i // 2}" for i in range(12)],
            "label": rng.integers(0, 2, 12),
            "age": rng.normal(55, 9, 12),
            "site": ["Malmö", "Köln"] * 6,
            "split": ["train"] * 6 + ["test"] * 6,
            "mask": [f"m/{i}.nii" for i in range(12)],
        }
    )
    files = {}
    for name in ("a.csv", "a.tsv", "a.csv.gz", "a.parquet"):
        write_table(frame, folder / name)
        files[name] = (folder / name).read_bytes()
    book = openpyxl.Workbook()
    for row in [list(frame.columns), *frame.values.tolist()]:
        book.active.append(row)
    book.save(folder / "a.xlsx")
    files["a.xlsx"] = (folder / "a.xlsx").read_bytes()
    files["mama"] = write_mama_mia_twin(folder, rng, later_version=True).read_bytes()
    files["mama.csv"] = _as_csv(folder / "clinical_and_imaging_info.xlsx")
    files["camelyon"] = write_camelyon17_twin(folder, rng, patients=4).read_bytes()
    twin = write_bcs_dbt_twin(folder / "dbt", rng, patients=6)
    files["labels"] = (twin / "BCS-DBT-labels-twin.csv").read_bytes()
    files["boxes"] = (twin / "BCS-DBT-boxes-twin.csv").read_bytes()
    return files


def _as_csv(path: Path) -> bytes:
    return read_table(path).to_csv(index=False).encode()


def _inside_the_zip(data: bytes, edits: list[tuple[str, float, float, bytes, int]], part: str) -> bytes:
    """The workbook with one of its parts mutated and packed again, so that the zip itself is sound."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, mutate(content, edits) if part in name else content)
    return packed.getvalue()


def _use(path: Path) -> None:
    frame = read_table(path)
    content_hash(frame)
    cohort = load_cohort(path)
    audit(cohort)
    describe(cohort)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.parquet", "a.xlsx"])
@EXAMPLES
@given(edits=mutations())
def test_mutated_tables(tmp_path, seeds, name, edits):
    path = tmp_path / name
    path.write_bytes(mutate(seeds[name], edits))
    survives(_use, path)


@EXAMPLES
@given(edits=mutations())
def test_mutated_text_inside_gzip(tmp_path, seeds, edits):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(mutate(seeds["a.csv"], edits)))
    survives(_use, path)


@pytest.mark.parametrize("part", ["sheet1.xml", "workbook.xml", "styles.xml", "[Content_Types]", "_rels"])
@settings(EXAMPLES, max_examples=examples(60))
@given(edits=mutations())
def test_mutated_xml_inside_a_workbook(tmp_path, seeds, part, edits):
    path = tmp_path / "a.xlsx"
    path.write_bytes(_inside_the_zip(seeds["a.xlsx"], edits, part))
    survives(_use, path)


@EXAMPLES
@given(edits=mutations())
def test_mutated_mama_mia(tmp_path, seeds, edits):
    path = tmp_path / "clinical_and_imaging_info.csv"
    path.write_bytes(mutate(seeds["mama.csv"], edits))
    survives(lambda: audit(read_cohort("mama-mia", tmp_path)))


@settings(EXAMPLES, max_examples=25)
@given(edits=mutations())
def test_mutated_mama_mia_workbook(tmp_path, seeds, edits):
    path = tmp_path / "clinical_and_imaging_info.xlsx"
    path.write_bytes(_inside_the_zip(seeds["mama"], edits, "sheet1.xml"))
    survives(lambda: audit(read_cohort("mama-mia", tmp_path)))


@EXAMPLES
@given(edits=mutations())
def test_mutated_camelyon17(tmp_path, seeds, edits):
    path = tmp_path / "stages_with_center.csv"
    path.write_bytes(mutate(seeds["camelyon"], edits))
    survives(lambda: audit(read_cohort("camelyon17", tmp_path)))


@EXAMPLES
@given(name=st.sampled_from(["reference.csv", "metadata.csv", "labels.csv"]), edits=mutations())
def test_mutated_camelyon16(tmp_path, name, edits):
    folder = tmp_path / "set"
    shutil.rmtree(folder, ignore_errors=True)
    write_camelyon16_twin(folder, np.random.default_rng(1), each=1)
    (folder / name).write_bytes(mutate((folder / name).read_bytes(), edits))
    survives(lambda: audit(read_cohort("camelyon16", folder)))


@EXAMPLES
@given(edits=mutations())
def test_mutated_table_of_slides(tmp_path, edits):
    content = b"case_id,patient_id,stage,mpp,site,slide\nA 1,p,macro,0.25,X,a/A 1.svs\nB,q,negativ,,Y,\n"
    (tmp_path / "A 1.svs").write_bytes(b"II*\0")
    (tmp_path / "t.csv").write_bytes(mutate(content, edits))
    survives(lambda: audit(read_cohort("slides", tmp_path, trained_on="X")))


@pytest.mark.parametrize("which", ["labels", "boxes"])
@EXAMPLES
@given(edits=mutations())
def test_mutated_bcs_dbt(tmp_path, seeds, which, edits):
    for part in ("labels", "boxes"):
        data = seeds[part]
        (tmp_path / f"BCS-DBT-{part}.csv").write_bytes(mutate(data, edits) if part == which else data)
    survives(lambda: audit(read_cohort("bcs-dbt", tmp_path)))


@EXAMPLES
@given(edits=mutations())
def test_mutated_file_paths_of_bcs_dbt(tmp_path, edits):
    if not (tmp_path / "twin").exists():
        write_bcs_dbt_twin(tmp_path / "twin", np.random.default_rng(2), splits={"train": 3}, with_files=True)
    path = tmp_path / "twin" / "BCS-DBT-file-paths-train-v2.csv"
    whole = tmp_path / "whole.csv"
    if not whole.exists():
        whole.write_bytes(path.read_bytes())
    path.write_bytes(mutate(whole.read_bytes(), edits))
    survives(lambda: audit(read_cohort("bcs-dbt", tmp_path / "twin", volumes=True)))


@EXAMPLES
@given(
    name=st.text(alphabet="vV-_ .012phaseJnltrivdboxg", max_size=40),
    kind=st.sampled_from(["labels", "boxes", "paths"]),
)
def test_any_name_of_a_table_is_read_or_refused(name, kind):
    survives(lambda: parse_table_name(Path(f"{name}{kind}{name}.csv")))


@EXAMPLES
@given(edits=mutations())
def test_mutated_tables_through_the_csv_reader(tmp_path, seeds, edits):
    path = tmp_path / "a.csv"
    path.write_bytes(mutate(seeds["a.csv"], edits))
    for options in (
        {},
        {"delimiter": ";"},
        {"encoding": "latin-1"},
        {"encoding": "utf-16"},
        {"decimal": ","},
    ):
        survives(lambda options=options: audit(read_cohort("csv", path, **options)))


@settings(EXAMPLES, max_examples=examples(100))
@given(edits=mutations(), which=st.sampled_from(["cases.parquet", "cohort.json"]))
def test_mutated_cohort_folder(tmp_path, seeds, edits, which):
    (tmp_path / "a.csv").write_bytes(seeds["a.csv"])
    folder = tmp_path / "cohort"
    shutil.rmtree(folder, ignore_errors=True)
    load_cohort(tmp_path / "a.csv").save(folder)
    part = folder / which
    part.write_bytes(mutate(part.read_bytes(), edits))
    survives(load_cohort, folder)


@settings(EXAMPLES, max_examples=40)
@given(
    data=st.binary(max_size=300),
    name=st.sampled_from(["a.csv", "a.csv.gz", "a.parquet", "a.xlsx", "a.txt", "a.tsv"]),
)
def test_garbage(tmp_path, data, name):
    path = tmp_path / name
    path.write_bytes(data)
    survives(_use, path)
