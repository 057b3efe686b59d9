"""The cohort table: levels, ids and a hash of content."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.cohort import Cohort, load_cohort
from elsewhere.cohort.table import KnownOfCohort
from elsewhere.errors import UserError
from elsewhere.tables import write_table


def frame(**columns: list[object]) -> pd.DataFrame:
    base: dict[str, list[object]] = {
        "case_id": ["01", "02", "03", "04"],
        "patient_id": ["001", "001", "002", "003"],
        "label": ["1", "0", "0", "1"],
        "age": ["51", None, "62.5", "40"],
    }
    return pd.DataFrame(base | columns)


def test_ids_keep_zeros_and_attributes_get_plain_types():
    cohort = Cohort.from_frame(frame())
    assert cohort.cases["case_id"].tolist() == ["01", "02", "03", "04"]
    assert cohort.cases["label"].dtype == "int64"
    assert cohort.cases["age"].dtype == "float64"
    assert cohort.cases["dataset"].tolist() == ["cohort"] * 4
    assert cohort.cases["site"].tolist() == ["cohort"] * 4
    assert cohort.counts["patients"] == 3
    assert cohort.id_grades["cohort"].grade == "A"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"case_id": ["01", "01", "03", "04"]}, ["share a case_id", "1 (01), 2 (01)"]),
        ({"case_id": ["01", None, "03", "  "]}, ["'case_id' is empty in rows 2, 4"]),
        ({"patient_id": ["001", None, "002", ""]}, ["'patient_id' is empty in rows 2, 4", "graded C"]),
        ({"dataset": ["a", None, "a", "a"]}, ["'dataset' is empty in row 2"]),
        (
            {"exam_id": ["e1", "e2", "e1", "e3"]},
            ["exams belong to more than one patient", "'e1'", "rows 1, 3"],
        ),
    ],
)
def test_broken_ids_are_refused_with_their_rows(change, words):
    with pytest.raises(UserError) as caught:
        Cohort.from_frame(frame(**change), where="x.csv")
    assert all(word in str(caught.value) for word in ["x.csv", *words]), str(caught.value)


def test_no_case_id_and_no_rows():
    with pytest.raises(UserError, match="--map case_id=COL"):
        Cohort.from_frame(frame().drop(columns="case_id"))
    with pytest.raises(UserError, match="no cases"):
        Cohort.from_frame(frame().iloc[:0])


def test_a_row_of_totals_is_named_as_what_it_is():
    rows = frame(case_id=["01", "02", "03", None], age=["30", "40", "50", "40"])
    with pytest.raises(UserError, match="'age' holds the column's mean"):
        Cohort.from_frame(rows)


def test_without_patient_ids_the_grade_is_c():
    cohort = Cohort.from_frame(frame().drop(columns="patient_id"))
    assert cohort.id_grades["cohort"].grade == "C"
    assert any("grade C" in word for word in cohort.warnings)
    assert cohort.cases["patient_id"].tolist() == cohort.cases["case_id"].tolist()


def test_an_exam_number_may_return_in_another_dataset():
    cohort = Cohort.from_frame(frame(exam_id=["1", "1", "1", "2"], dataset=["a", "a", "b", "b"]))
    assert cohort.counts["exams"] == 3


def test_lesions_belong_to_cases():
    lesions = pd.DataFrame({"case_id": ["01", "01", "03"], "x": ["1", "2", "3"]})
    cohort = Cohort.from_frame(frame(), lesions=lesions)
    assert cohort.lesions is not None
    assert cohort.lesions["lesion_id"].tolist() == ["0", "1", "0"]
    assert cohort.counts["lesions"] == 3
    with pytest.raises(UserError, match=r"2 \(99\)"):
        Cohort.from_frame(frame(), lesions=pd.DataFrame({"case_id": ["01", "99"]}))
    with pytest.raises(UserError, match="repeats lesion_id"):
        Cohort.from_frame(frame(), lesions=pd.DataFrame({"case_id": ["01", "01"], "lesion_id": ["a", "a"]}))


def test_save_and_load(tmp_path):
    lesions = pd.DataFrame({"case_id": ["01"], "lesion_id": ["a"], "x": [1.5], "class": ["cancer"]})
    cohort = Cohort.from_frame(frame(), lesions=lesions, reader="csv", warnings=("mind",))
    cohort.save(tmp_path / "c")
    meta = json.loads((tmp_path / "c" / "cohort.json").read_text())
    assert meta["hash"] == cohort.hash
    assert meta["id_grade"] == "A"
    assert meta["reader"] == "csv"
    back = load_cohort(tmp_path / "c")
    assert back.hash == cohort.hash
    assert back.warnings == ("mind",)
    pd.testing.assert_frame_equal(back.cases, cohort.cases)
    assert load_cohort(tmp_path / "c" / "cohort.json").hash == cohort.hash


def test_a_changed_table_is_stale(tmp_path):
    Cohort.from_frame(frame()).save(tmp_path / "c")
    cases = pd.read_parquet(tmp_path / "c" / "cases.parquet")
    write_table(cases.assign(label=1 - cases["label"]), tmp_path / "c" / "cases.parquet")
    with pytest.raises(UserError, match="a table has changed") as caught:
        load_cohort(tmp_path / "c")
    assert "elsewhere cohort read csv" in str(caught.value)


def test_a_changed_truth_file_is_stale_and_an_absent_one_warns(tmp_path):
    (tmp_path / "m").mkdir()
    for name in ("01", "02"):
        (tmp_path / "m" / f"{name}.nii").write_bytes(name.encode())
    masks = ["m/01.nii", str(tmp_path / "m" / "02.nii"), "m\\03.nii", None]
    cohort = Cohort.from_frame(frame(mask=masks), root=tmp_path)
    assert cohort.cases["mask"].tolist()[:3] == ["m/01.nii", "m/02.nii", "m/03.nii"]
    assert sorted(cohort.truth_files) == ["m/01.nii", "m/02.nii"]
    assert cohort.file("m/01.nii").read_bytes() == b"01"
    cohort.save(tmp_path / "c")
    assert load_cohort(tmp_path / "c").hash == cohort.hash
    (tmp_path / "m" / "02.nii").unlink()
    back = load_cohort(tmp_path / "c")
    assert back.hash == cohort.hash
    assert any("stored digests" in word for word in back.warnings)
    (tmp_path / "m" / "01.nii").write_bytes(b"other")
    with pytest.raises(UserError, match=r"truth file 'm/01.nii' has changed"):
        load_cohort(tmp_path / "c")


def test_the_hash_does_not_know_the_folder(tmp_path):
    hashes = set()
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "m.nii").write_bytes(b"mask")
        hashes.add(
            Cohort.from_frame(frame(mask=[str(tmp_path / place / "m.nii")] * 4), root=tmp_path / place).hash
        )
    assert len(hashes) == 1
    (tmp_path / "b" / "m.nii").write_bytes(b"another")
    hashes.add(Cohort.from_frame(frame(mask=["m.nii"] * 4), root=tmp_path / "b").hash)
    assert len(hashes) == 2


@st.composite
def cohorts(draw):
    n = draw(st.integers(1, 7))
    ids = draw(st.lists(st.text("0123ab", min_size=1, max_size=4), min_size=n, max_size=n, unique=True))
    return pd.DataFrame(
        {
            "case_id": ids,
            "patient_id": [f"{draw(st.integers(0, 4)):03d}" for _ in ids],
            "label": draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)),
            "age": draw(st.lists(st.one_of(st.none(), st.floats(18, 99)), min_size=n, max_size=n)),
            "scanner": draw(
                st.lists(
                    st.one_of(st.none(), st.sampled_from(["GE", "Ö;1", "007", "7"])), min_size=n, max_size=n
                )
            ),
        }
    )


@settings(max_examples=25, deadline=None)
@given(table=cohorts(), seed=st.integers(0, 99))
def test_the_hash_survives_format_row_order_and_column_order(tmp_path_factory, table, seed):
    folder = tmp_path_factory.mktemp("c")
    rng = np.random.default_rng(seed)
    expected = Cohort.from_frame(table).hash
    other = table.iloc[rng.permutation(len(table))][list(rng.permutation(table.columns))]
    write_table(other, folder / "a.csv")
    write_table(table, folder / "a.parquet")
    assert load_cohort(folder / "a.csv").hash == expected
    assert load_cohort(folder / "a.parquet").hash == expected
    load_cohort(folder / "a.csv").save(folder / "saved")
    assert load_cohort(folder / "saved").hash == expected
    changed = table.assign(label=1 - table["label"])
    assert Cohort.from_frame(changed).hash != expected


def test_a_parquet_with_number_ids_has_the_hash_of_its_csv(tmp_path):
    table = pd.DataFrame({"case_id": [1, 2, 3], "patient_id": [7, 7, 8]})
    write_table(table, tmp_path / "a.csv")
    write_table(table, tmp_path / "a.parquet")
    assert load_cohort(tmp_path / "a.csv").hash == load_cohort(tmp_path / "a.parquet").hash
    assert load_cohort(tmp_path / "a.parquet").cases["patient_id"].tolist() == ["7", "7", "8"]


def test_loading_what_is_no_cohort(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.nii").write_bytes(b"x")
    for path, word in (("empty", "no cohort"), ("nothing.csv", "no such cohort"), ("a.nii", "neither")):
        with pytest.raises(UserError, match=word):
            load_cohort(tmp_path / path)
    Cohort.from_frame(frame()).save(tmp_path / "c")
    (tmp_path / "c" / "cohort.json").write_text("[1]")
    with pytest.raises(UserError, match="not hold a JSON object"):
        load_cohort(tmp_path / "c")
    (tmp_path / "c" / "cohort.json").write_text("{")
    with pytest.raises(UserError, match="cannot be understood"):
        load_cohort(tmp_path / "c")


def test_subset_is_a_cohort_of_its_own():
    cohort = Cohort.from_frame(frame(), lesions=pd.DataFrame({"case_id": ["01", "03"]}))
    part = cohort.subset(cohort.cases["patient_id"] == "001")
    assert part.cases["case_id"].tolist() == ["01", "02"]
    assert part.lesions is not None
    assert part.lesions["case_id"].tolist() == ["01"]
    assert part.hash != cohort.hash
    assert (
        part.hash
        == Cohort.from_frame(
            frame().iloc[:2], lesions=pd.DataFrame({"case_id": ["01"], "lesion_id": ["0"]})
        ).hash
    )


def test_the_column_with_the_ids_of_another_dataset_is_named_by_the_reader(tmp_path):
    """A study once looked for the column of one dataset by its name."""
    frame = pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["p", "q"], "elsewhere_id": ["X1", None]})
    cohort = Cohort.from_frame(frame, known=KnownOfCohort(other_id_column="elsewhere_id"))
    assert cohort.other_ids().tolist() == ["X1", ""]
    assert load_cohort(cohort.save(tmp_path / "c")).other_ids().tolist() == ["X1", ""]
    assert cohort.subset([False, True]).other_ids().tolist() == [""]
    assert Cohort.from_frame(frame).other_ids().tolist() == ["", ""]
    plain = Cohort.from_frame(frame.rename(columns={"elsewhere_id": "other_patient_id"}))
    assert load_cohort(plain.save(tmp_path / "d")).other_ids().tolist() == ["X1", ""]
