"""What the audit finds, one planted defect a test."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import Cohort, audit, describe
from elsewhere.cohort.describe import describe_lines
from elsewhere.cohort.grades import grade_dataset, worst_grade
from elsewhere.cohort.table import IdGrade


def table(n: int = 12, **columns: object) -> pd.DataFrame:
    base = {
        "case_id": [f"c{i:02d}" for i in range(n)],
        "patient_id": [f"p{i // 2:02d}" for i in range(n)],
        "label": [i // 2 % 2 for i in range(n)],
        "site": ["north"] * n,
    }
    return pd.DataFrame(base | columns)


def kinds(frame: pd.DataFrame) -> dict[str, object]:
    return {finding.kind: finding for finding in audit(Cohort.from_frame(frame))}


def test_a_clean_table_has_nothing_but_its_counts():
    assert set(kinds(table())) == {"counts"}


def test_contradictory_labels():
    finding = kinds(table(label=[0, 1] + [0] * 10))["contradictory-labels"]
    assert finding.severity == "warning"
    assert finding.ids == ("p00",)
    assert finding.rows == (1, 2)


def test_ids_that_are_file_names():
    found = kinds(table(patient_id=[f"benign ({i}).png" for i in range(12)]))
    assert "ids-are-file-names" in found
    assert found["ids-are-file-names"].severity == "warning"


def test_file_names_are_counted_as_ids_not_as_rows():
    """Two rows of one id that is a file name are one such id (line: '1 of 6', never '2 of 12')."""
    ids = ["scan.png", "scan.png", *(f"p{i // 2:02d}" for i in range(10))]
    cohort = Cohort.from_frame(table(patient_id=ids))
    (finding,) = [f for f in audit(cohort) if f.kind == "ids-are-file-names"]
    assert finding.message == "1 of 6 patient ids are file names"
    assert finding.ids == ("scan.png",)
    assert all(g.why.startswith("1 of 6 patient ids are file names") for g in cohort.id_grades.values())


def test_cases_without_a_site_are_counted():
    found = kinds(table(site=["A"] * 6 + ["B"] * 3 + [None, " ", "nan"]))
    assert found["site-missing"].message.startswith("3 of 12 cases have no site")
    assert found["site-missing"].rows == (10, 11, 12)


def test_one_id_a_case():
    assert "one-id-a-case" in kinds(table(patient_id=[f"p{i}" for i in range(12)]))


def test_no_ids_at_all():
    found = kinds(table().drop(columns="patient_id"))
    assert "no-patient-ids" in found
    assert "one-id-a-case" not in found


def test_ids_shared_by_two_sites_and_two_datasets():
    assert kinds(table(site=["north", "south"] + ["north"] * 10))["ids-at-two-sites"].ids == ("p00",)
    assert "ids-in-two-datasets" in kinds(table(dataset=["a", "b"] + ["a"] * 10))


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("North Clinic", "north clinic", True),
        ("AAI", "Site AAI", True),
        ("Karolinska", "Karolinksa", True),
        ("St. Mary's", "St Marys", True),
        ("north", "south", False),
        ("center_1", "center_2", False),
        ("hospital12", "hospital13", False),
    ],
)
def test_a_site_spelt_two_ways(a, b, same):
    assert ("site-spelt-two-ways" in kinds(table(site=[a] * 6 + [b] * 6))) is same


def test_a_total_row_and_a_mean_row():
    frame = table(n=8, age=[40.0, 50, 60, 70, 45, 55, 65, 35], size=[1.0, 2, 3, 4, 5, 6, 7, 9])
    total = pd.DataFrame(
        [{"case_id": "Total", "patient_id": "Total", "label": 4, "site": "north", "age": 420.0, "size": 37.0}]
    )
    finding = kinds(pd.concat([frame, total]))["row-is-no-case"]
    assert finding.severity == "error"
    assert finding.rows == (9,)
    sneaky = total.assign(case_id="c99", patient_id="p99", label=0, age=52.5, size=4.625)
    assert kinds(pd.concat([frame, sneaky]).drop(columns="label"))["row-is-no-case"].rows == (9,)


def test_attributes_mostly_empty():
    found = kinds(
        table(breast_density=["A"] + [None] * 11, note=["x"] + [None] * 11, age=[50.0] * 11 + [np.nan])
    )
    assert found["mostly-empty"].message.endswith("1 of 12 cases")
    assert "partly-empty" in found
    cohort = Cohort.from_frame(table(breast_density=["A"] + [None] * 11))
    severities = {f.message.split("'")[1]: f.severity for f in audit(cohort) if f.kind == "mostly-empty"}
    assert severities == {"breast_density": "warning"}


def test_a_leak_is_an_error():
    finding = kinds(table(split=["train", " Test"] + ["train"] * 10))["leak"]
    assert finding.severity == "error"
    assert finding.ids == ("p00",)
    assert "leak" not in kinds(table(split=["train"] * 6 + ["test"] * 6))
    assert "leak" not in kinds(table(split=["train", "TRAIN "] + ["train"] * 10))
    two_sets = table(dataset=["a"] + ["b"] * 11, split=["train"] + ["test"] * 11)
    assert "leak" not in kinds(two_sets), "one id in two sets is two people"


def test_duplicates():
    rng = np.random.default_rng(1)
    values = {f"x{j}": rng.normal(size=12).tolist() for j in range(4)}
    for column in values.values():
        column[7] = column[0]
    found = kinds(table(label=[0] * 12, **values))
    assert found["duplicate-rows"].rows == (1, 8)
    assert "one-file-twice" in kinds(table(image=["a.png", "a.png"] + [f"{i}.png" for i in range(10)]))


def test_published_counts():
    rows = pd.DataFrame(
        {"patient_id": [f"{i}" for i in range(1875)], "case_id": [f"{i}" for i in range(1875)]}
    )
    assert grade_dataset(rows, "BUS-BRA").grade == "B"
    assert "more-ids-than-patients" in kinds(rows.assign(dataset="bus_bra"))
    assert grade_dataset(rows.assign(patient_id=[str(i % 1064) for i in range(1875)]), "BUS-BRA").grade == "A"
    exact = rows.assign(dataset="bus_bra", patient_id=[str(i % 1064) for i in range(1875)])
    assert not {"more-ids-than-patients", "not-the-published-count"} & set(kinds(exact))
    one_more = exact.assign(patient_id=["new", *exact["patient_id"][1:]])
    assert "more-ids-than-patients" in kinds(one_more)
    assert grade_dataset(rows.head(780), "BUSI").grade == "C"
    assert grade_dataset(rows.head(100).assign(patient_id="x.png"), "mine").grade == "B"
    assert "not-the-published-count" in kinds(rows.head(60).assign(dataset="NACT"))
    assert grade_dataset(rows.head(60), "NACT").grade == "A"


def test_the_worst_grade_speaks_for_all():
    grades = {"a": IdGrade(grade="A", why="x"), "b": IdGrade(grade="C", why="y")}
    assert worst_grade(grades).grade == "C"
    assert worst_grade(grades).why == "b: y"


def test_findings_without_ids_in_their_dict_and_errors_first():
    frame = table(split=["train", "test"] + ["train"] * 10, label=[0, 1] + [0] * 10)
    found = audit(Cohort.from_frame(frame))
    assert found[0].kind == "leak"
    told = found[0].to_dict()
    assert "ids" not in told
    assert "p00" not in str(told)


def test_describe_counts_and_prints():
    cohort = Cohort.from_frame(
        table(age=[float(40 + i) + 0.5 for i in range(11)] + [np.nan], pcr=[1.0, np.nan] + [0.0] * 10)
    )
    told = describe(cohort)
    assert told["datasets"] == {"cohort": {"cases": 12, "patients": 6}}
    assert told["classes"]["pcr"]["(missing)"]["cases"] == 1
    assert told["classes"]["pcr"]["1"]["cases"] == 1
    assert told["attributes"]["age"]["missing"] == 1
    assert told["attributes"]["age"]["levels"]["40.5"] == 1
    lines = list(describe_lines(told))
    assert "pcr (missing): 1 cases of 1 patients" in lines
    assert any(line.startswith("age: ") and line.endswith(", 1 missing") for line in lines)
