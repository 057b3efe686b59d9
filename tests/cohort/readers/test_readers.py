"""Readers on synthetic twins in the published layout, and on the real tables where they are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import audit, data_sheet, describe, load_cohort, read_cohort, readers
from elsewhere.cohort.readers.camelyon17 import expected_patient_stage
from elsewhere.cohort.readers.csv_table import parse_pairs
from elsewhere.errors import UserError
from elsewhere.phantom.tables import write_bcs_dbt_twin, write_camelyon17_twin, write_mama_mia_twin
from elsewhere.tables import read_table, write_table


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_the_registry_knows_its_readers_and_their_data_sheets():
    assert {"csv", "mama-mia", "camelyon17", "bcs-dbt"} <= set(readers.names())
    for name in ("csv", "mama-mia", "camelyon17", "bcs-dbt"):
        sheet = data_sheet(name)
        assert all(
            word in sheet for word in ("licence", "citation", "patients", "labels", "known defects")
        ), name


def test_a_wrong_reader_and_a_wrong_option_offer_neighbours(tmp_path):
    with pytest.raises(UserError, match="mama-mia"):
        read_cohort("mamamia", tmp_path)
    with pytest.raises(UserError, match="column_map"):
        read_cohort("csv", tmp_path, colum_map="a=b")
    with pytest.raises(UserError, match="no such file"):
        read_cohort("csv", tmp_path / "x.csv")


def test_csv_with_a_map(tmp_path):
    (tmp_path / "h.csv").write_text("PID,Img,Dx,Alter\n007,a,1,50\n007,b,0,51\n08,c,0,\n")
    cohort = read_cohort(
        "csv",
        tmp_path / "h.csv",
        column_map="patient_id=PID,case_id=Img,label=Dx,age=Alter",
        values="dataset=Nord,site=Nord",
    )
    assert cohort.cases["patient_id"].tolist() == ["007", "007", "08"]
    assert cohort.cases["dataset"].unique().tolist() == ["Nord"]
    assert cohort.counts["patients"] == 2
    assert cohort.reader == "csv"
    same = load_cohort(
        tmp_path / "h.csv", column_map={"patient_id": "PID", "case_id": "Img", "label": "Dx", "age": "Alter"}
    )
    assert same.cases["age"].tolist()[:2] == [50.0, 51.0]


def test_csv_map_mistakes(tmp_path):
    (tmp_path / "h.csv").write_text("ID,label,Dx\n1,0,1\n2,1,1\n")
    with pytest.raises(UserError, match="no column 'Dxx'"):
        read_cohort("csv", tmp_path / "h.csv", column_map="case_id=ID,label=Dxx")
    with pytest.raises(UserError, match="already has a column 'label'"):
        read_cohort("csv", tmp_path / "h.csv", column_map="case_id=ID,label=Dx")
    with pytest.raises(UserError, match="overwrite"):
        read_cohort("csv", tmp_path / "h.csv", column_map="case_id=ID", values="label=1")
    moved = read_cohort(
        "csv", tmp_path / "h.csv", column_map="case_id=ID,patient_id=ID,label=Dx,label_old=label"
    )
    assert moved.cases["label"].tolist() == [1, 1]
    assert moved.cases["label_old"].tolist() == [0, 1]
    with pytest.raises(UserError, match="NAME=COLUMN"):
        parse_pairs("a")
    with pytest.raises(UserError, match="twice"):
        parse_pairs("a=b,a=c")


def test_csv_in_another_dialect(tmp_path):
    (tmp_path / "h.csv").write_bytes("case_id;age;ort\n1,5;50,5;Köln\n".encode("latin-1"))
    cohort = read_cohort("csv", tmp_path, encoding="latin-1", delimiter=";", decimal=",")
    assert cohort.cases.loc[0, ["case_id", "age", "ort"]].tolist() == ["1,5", 50.5, "Köln"]


def test_mama_mia_first_version(tmp_path, rng):
    write_mama_mia_twin(tmp_path, rng)
    cohort = read_cohort("mama-mia", tmp_path)
    cases = cohort.cases
    assert cohort.counts["patients"] == 23
    assert set(cases["dataset"]) == {"DUKE", "ISPY1", "ISPY2", "NACT"}
    assert set(cases["menopausal_status"].dropna()) <= {"pre", "post"}
    assert cases.loc[cases["dataset"].isin(["ISPY1", "NACT"]), "menopausal_status"].isna().all()
    assert (cases.loc[cases["dataset"] == "DUKE", "site"] == "DUKE").all()
    assert cases["pcr"].isna().sum() == 1
    assert cases["spacing_row_mm"].between(0.6, 0.9).all()
    assert not cases["site"].str.endswith(" ").any()
    found = {finding.kind for finding in audit(cohort)}
    assert "site-spelt-two-ways" in found
    assert "not-the-published-count" in found


def test_mama_mia_later_version_has_rows_that_are_no_case(tmp_path, rng):
    write_mama_mia_twin(tmp_path, rng, later_version=True)
    cohort = read_cohort("mama-mia", tmp_path)
    assert cohort.counts["patients"] == 23
    assert cohort.counts["rows_in_table"] == 25
    left_out = [finding for finding in audit(cohort) if finding.kind == "row-is-no-case"]
    assert [finding.rows for finding in left_out] == [(24,), (25,)]
    assert "'pcr' holds the column's mean" in left_out[1].message
    assert set(cohort.cases["breast_density"].dropna()) <= set("ABCD")


def test_mama_mia_files_by_folder(tmp_path, rng):
    write_mama_mia_twin(tmp_path, rng, patients={"DUKE": 3, "NACT": 2}, with_files=True)
    (tmp_path / "images" / "DUKE_001").rename(tmp_path / "images" / "duke_001")
    (tmp_path / "segmentations" / "expert" / "NACT_002.nii.gz").unlink()
    cohort = read_cohort("mama-mia", tmp_path)
    assert cohort.cases["image"].tolist()[0] == "images/duke_001"
    assert cohort.cases["phases_found"].tolist() == [3] * 5
    assert cohort.cases["mask"].isna().tolist() == [False] * 4 + [True]
    assert len(cohort.truth_files) == 4
    assert any("1 of 5 patients have no expert mask" in word for word in cohort.warnings)
    cohort.save(tmp_path / "cohort")
    assert load_cohort(tmp_path / "cohort").hash == cohort.hash


@pytest.mark.parametrize(
    ("column", "value", "word"),
    [
        ("menopause", "maybe", "row 2 is 'maybe'"),
        ("breast_density", "e", "row 2 is 'e'"),
        ("pcr", "2", "is 2"),
        ("age", "old", "not numbers"),
    ],
)
def test_mama_mia_strange_values(tmp_path, rng, column, value, word):
    frame = read_table(write_mama_mia_twin(tmp_path / "x", rng, later_version=True)).iloc[:5]
    frame.loc[1, column] = value
    write_table(frame, tmp_path / "clinical_and_imaging_info.csv")
    with pytest.raises(UserError, match=word):
        read_cohort("mama-mia", tmp_path)


def test_two_clinical_tables_are_a_question(tmp_path, rng):
    write_mama_mia_twin(tmp_path, rng)
    write_table(pd.DataFrame({"a": [1]}), tmp_path / "clinical_and_imaging_info.csv")
    with pytest.raises(UserError, match="2 files could be"):
        read_cohort("mama-mia", tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="no clinical table"):
        read_cohort("mama-mia", tmp_path / "none")


def test_camelyon17_twin(tmp_path, rng):
    write_camelyon17_twin(tmp_path, rng)
    (tmp_path / "patient_003_node_2.xml").write_text("<x/>")
    cohort = read_cohort("camelyon17", tmp_path)
    assert cohort.counts["cases"] == 50
    assert cohort.counts["patients"] == 10
    assert cohort.counts["sites"] == 5
    assert cohort.cases["case_id"].tolist()[0] == "patient_000_node_0"
    assert cohort.cases["annotation"].notna().sum() == 1
    assert not any("stage that their slides" in word for word in cohort.warnings)


def test_camelyon17_odd_tables(tmp_path, rng):
    path = write_camelyon17_twin(tmp_path, rng)
    frame = read_table(path)
    write_table(frame.drop(index=[1]).drop(columns="center"), path)
    cohort = read_cohort("camelyon17", path)
    assert any("do not have 5 slides" in word for word in cohort.warnings)
    assert any("no column center" in word for word in cohort.warnings)
    wrong = frame.copy()
    wrong.loc[0, "stage"] = "pN2" if wrong.loc[0, "stage"] != "pN2" else "pN0"
    write_table(wrong, path)
    assert any(
        "stage that their slides do not give: patient_000" in word
        for word in read_cohort("camelyon17", path).warnings
    )
    for row, column, value, word in (
        (2, "stage", "huge", r"rows 3 \(huge\)"),
        (0, "stage", "pN9", "unknown stage 'pN9'"),
        (4, "patient", "slide_1.tif", r"5 \(slide_1.tif\)"),
        (2, "patient", "patient_000_node_0.tif", "share a case_id"),
    ):
        bad = frame.copy()
        bad.loc[row, column] = value
        write_table(bad, path)
        with pytest.raises(UserError, match=word):
            read_cohort("camelyon17", path)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (["negative"] * 5, "pN0"),
        (["itc"] + ["negative"] * 4, "pN0(i+)"),
        (["micro", "itc"] + ["negative"] * 3, "pN1mi"),
        (["micro"] * 5, "pN1mi"),
        (["macro", "micro", "micro", "itc", "negative"], "pN1"),
        (["macro", "micro", "micro", "micro", "negative"], "pN2"),
    ],
)
def test_the_patients_stage_from_its_nodes(stages, expected):
    assert expected_patient_stage(stages) == expected


def test_bcs_dbt_twin(tmp_path, rng):
    cohort = read_cohort("bcs-dbt", write_bcs_dbt_twin(tmp_path, rng))
    assert cohort.counts["cases"] == 80
    assert cohort.counts["patients"] == 20
    assert cohort.lesions is not None
    assert {"case_id", "lesion_id", "x", "y", "width", "height", "slice", "volume_slices", "class"} <= set(
        cohort.lesions.columns
    )


@pytest.mark.real_data
@pytest.mark.parametrize("version", [".", "later_version"])
def test_the_real_mama_mia_tables(data_dir, version):
    cohort = read_cohort("mama-mia", data_dir / "mri" / "MAMA-MIA" / version)
    cases = cohort.cases
    assert cohort.counts["patients"] == 1506
    assert cases["dataset"].value_counts().to_dict() == {"ISPY2": 980, "DUKE": 291, "ISPY1": 171, "NACT": 64}
    assert (
        int((cases["pcr"] == 1).sum()),
        int((cases["pcr"] == 0).sum()),
        int(cases["pcr"].isna().sum()),
    ) == (440, 1051, 15)
    status = cases["menopausal_status"]
    assert (status == "pre").sum() == 678
    assert (status == "post").sum() == 420
    assert status.isna().sum() == 408
    assert cases["age"].isna().sum() == 3
    assert cases["field_strength"].value_counts().to_dict() == {1.5: 1086, 3.0: 420}
    assert {grade.grade for grade in cohort.id_grades.values()} == {"A"}
    found = {finding.kind: finding for finding in audit(cohort)}
    if version == "later_version":
        assert cases["breast_density"].value_counts().to_dict() == {"C": 31, "B": 14, "D": 12, "A": 3}
        assert [entry["row"] for entry in cohort.counts["left_out"]] == [1507, 1508]
        assert "'pcr' holds the column's mean" in cohort.counts["left_out"][1]["why"]
        assert len(found["site-in-two-datasets"].ids) == 7
    else:
        assert "breast_density" not in cases.columns
        assert cohort.counts["left_out"] == []
        assert len(found["site-spelt-two-ways"].ids) == 14
    assert describe(cohort)["classes"]["pcr"]["1"]["patients"] == 440


@pytest.mark.real_data
def test_the_real_camelyon17_table(data_dir):
    cohort = read_cohort("camelyon17", data_dir / "lymph-nodes" / "CAMELYON17")
    cases = cohort.cases
    assert cohort.counts["patients"] == 100
    assert cases.groupby("patient_id").size().unique().tolist() == [5]
    assert cases["stage"].value_counts().to_dict() == {"negative": 318, "macro": 87, "micro": 59, "itc": 36}
    patients = cases.drop_duplicates("patient_id")
    assert patients["patient_stage"].value_counts().to_dict() == {
        "pN1": 30,
        "pN0": 24,
        "pN1mi": 21,
        "pN2": 14,
        "pN0(i+)": 11,
    }
    assert patients["site"].value_counts().unique().tolist() == [20]
    assert cohort.warnings == ()
    assert cases["annotation"].notna().sum() == 1


@pytest.mark.real_data
def test_the_real_bcs_dbt_tables(data_dir):
    cohort = read_cohort("bcs-dbt", data_dir / "tomosynthesis" / "BCS-DBT")
    assert (cohort.counts["cases"], cohort.counts["patients"], cohort.counts["exams"]) == (19148, 4362, 4838)
    assert cohort.counts["lesions"] == 224
