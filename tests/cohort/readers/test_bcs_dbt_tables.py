"""DBT-01, DBT-02: the nine published tables in one folder, their names and versions, and splits by patient."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import elsewhere
from elsewhere.cohort import audit, load_cohort, read_cohort
from elsewhere.cohort.readers.bcs_dbt_tables import find_tables, parse_table_name
from elsewhere.errors import UserError
from elsewhere.phantom.tables import BCS_DBT_NAMES, write_bcs_dbt_twin

SPLITS = {"train": 6, "validation": 4, "test": 5}
LABELS = "PatientID,StudyUID,View,Normal,Actionable,Benign,Cancer"
BOXES = "PatientID,StudyUID,View,Subject,Slice,X,Y,Width,Height,Class,AD,VolumeSlices"


@pytest.fixture
def nine(tmp_path) -> Path:
    return write_bcs_dbt_twin(tmp_path / "published", np.random.default_rng(3), splits=SPLITS)


def write(folder: Path, name: str, *rows: str) -> Path:
    folder.mkdir(exist_ok=True)
    header = LABELS if "labels" in name.lower() else BOXES
    (folder / name).write_text("\n".join([header, *rows]) + "\n")
    return folder


def split_of(folder: Path, split: str, patient: str, *, views: str = "lcc") -> None:
    write(folder, f"BCS-DBT-labels-{split}.csv", f"{patient},S-{split},{views},1,0,0,0")
    write(folder, f"BCS-DBT-boxes-{split}.csv")


@pytest.mark.parametrize(
    ("name", "kind", "split", "marks"),
    [
        ("BCS-DBT-labels-train-v2.csv", "labels", "train", (1, 2, 0)),
        ("BCS-DBT labels-train.csv", "labels", "train", (1, 1, 0)),
        ("BCS-DBT boxes-train-v2.csv", "boxes", "train", (1, 2, 0)),
        ("bcs-dbt-file-paths-train-V2.CSV", "paths", "train", (1, 2, 0)),
        ("BCS-DBT file-paths-validation-v2.csv", "paths", "validation", (1, 2, 0)),
        (
            "BCS-DBT-labels-validation-PHASE-2-Jan-2024.csv",
            "labels",
            "validation",
            (2, 1, 2024 * 12 + 1),
        ),
        ("BCS-DBT-boxes-test-v2-PHASE-2-Jan-2024.csv", "boxes", "test", (2, 2, 2024 * 12 + 1)),
        ("BCS-DBT-labels-test-PHASE-2.csv", "labels", "test", (2, 1, 0)),
        ("BCS_DBT_Boxes_Val.csv", "boxes", "validation", (1, 1, 0)),
        ("labels.csv", "labels", "", (1, 1, 0)),
    ],
)
def test_published_names(name, kind, split, marks):
    found = parse_table_name(Path(name))
    assert found is not None
    assert (found.kind, found.split, found.marks) == (kind, split, marks)


def test_other_files_are_no_tables():
    assert parse_table_name(Path("dbtex1_test_submission_ucla_mii.csv")) is None


@pytest.mark.parametrize("name", ["labels-and-boxes-train.csv", "BCS-DBT-labels-train-test.csv"])
def test_a_name_of_two_tables_or_two_splits_is_refused(name):
    with pytest.raises(UserError, match="has the words of two"):
        parse_table_name(Path(name))


def test_nine_tables_are_one_cohort_with_a_split(nine):
    """Issue 14, 'Must show' 4: counts per split, patients disjoint."""
    cohort = read_cohort("bcs-dbt", nine)
    assert cohort.cases["split"].value_counts().to_dict() == {"train": 24, "validation": 16, "test": 20}
    assert {name: part["patients"] for name, part in cohort.counts["splits"].items()} == SPLITS
    assert sum(part["lesions"] for part in cohort.counts["splits"].values()) == len(cohort.lesions)
    assert list(cohort.counts["splits"]) == list(SPLITS)
    messages = [finding.message for finding in audit(cohort)]
    assert (
        "split: train 24 cases of 6 patients, validation 16 cases of 4 patients, test 20 cases of 5 patients; "
        "no patient is in more than one part"
    ) in messages
    assert not [finding for finding in audit(cohort) if finding.kind == "more-ids-than-patients"]
    assert all("volumes with different labels" in note for note in cohort.warnings)


def test_the_split_survives_saving(nine, tmp_path):
    cohort = read_cohort("bcs-dbt", nine)
    again = load_cohort(cohort.save(tmp_path / "saved"))
    assert again.hash == cohort.hash
    assert again.counts["splits"] == cohort.counts["splits"]


@pytest.mark.parametrize("left", [("train",), ("validation", "test"), ("test",)])
def test_any_subset_of_the_splits_is_read(nine, left):
    for split in set(SPLITS) - set(left):
        for name in BCS_DBT_NAMES[split]:
            (nine / f"{name}.csv").unlink()
    cohort = read_cohort("bcs-dbt", nine)
    assert tuple(cohort.cases["split"].unique()) == left


def test_a_split_without_volumes_is_named(nine):
    for name in BCS_DBT_NAMES["validation"]:
        table = nine / f"{name}.csv"
        table.write_text(table.read_text().splitlines()[0] + "\n")
    cohort = read_cohort("bcs-dbt", nine)
    assert set(cohort.counts["splits"]) == {"train", "test"}
    assert any(
        "labels-validation-PHASE-2-Jan-2024.csv has a header and no rows" in w for w in cohort.warnings
    )
    for split in ("train", "test"):
        for name in BCS_DBT_NAMES[split]:
            table = nine / f"{name}.csv"
            table.write_text(table.read_text().splitlines()[0] + "\n")
    with pytest.raises(UserError, match="no cases"):
        read_cohort("bcs-dbt", nine)


def test_one_split_without_a_name_has_no_column(tmp_path):
    write(tmp_path, "labels.csv", "P1,S1,lcc,1,0,0,0")
    write(tmp_path, "boxes.csv")
    assert "split" not in read_cohort("bcs-dbt", tmp_path).cases.columns


def test_a_table_without_a_split_belongs_to_the_only_one(tmp_path):
    write(tmp_path, "labels-train.csv", "P1,S1,lcc,1,0,0,0")
    write(tmp_path, "boxes.csv")
    assert read_cohort("bcs-dbt", tmp_path).cases["split"].tolist() == ["train"]


def test_a_table_without_a_split_beside_several_is_refused(nine):
    shutil.copy(nine / "BCS-DBT-labels-train-v2.csv", nine / "labels.csv")
    with pytest.raises(UserError, match=r"no split in the name of labels\.csv"):
        read_cohort("bcs-dbt", nine)


@pytest.mark.parametrize(("kind", "why"), [(0, "no table of labels"), (1, "no table of boxes")])
def test_a_split_without_labels_or_boxes_is_refused_with_the_reason(nine, kind, why):
    (nine / f"{BCS_DBT_NAMES['test'][kind]}.csv").unlink()
    with pytest.raises(UserError, match=why) as error:
        read_cohort("bcs-dbt", nine)
    assert "'test'" in str(error.value)
    assert BCS_DBT_NAMES["test"][1 - kind] in str(error.value)


def test_file_paths_of_a_split_without_labels_are_not_read(nine):
    for name in BCS_DBT_NAMES["test"][:2]:
        (nine / f"{name}.csv").unlink()
    cohort = read_cohort("bcs-dbt", nine)
    assert set(cohort.cases["split"]) == {"train", "validation"}
    assert any("BCS-DBT-file-paths-test-v2.csv is not read" in note for note in cohort.warnings)


def test_the_newer_of_two_versions_is_read_and_named(tmp_path):
    write(tmp_path, "BCS-DBT labels-train.csv", "P1,S1,lcc,1,0,0,0")
    write(tmp_path, "BCS-DBT-labels-train-v2.csv", "P1,S1,lcc,0,0,0,1", "P2,S2,rcc,1,0,0,0")
    write(tmp_path, "BCS-DBT-boxes-train.csv")
    write(tmp_path, "BCS-DBT-boxes-train-v2.csv", "P1,S1,lcc,0,20,5,6,10,12,cancer,0,60")
    cohort = read_cohort("bcs-dbt", tmp_path)
    assert len(cohort.cases) == 2
    assert len(cohort.lesions) == 1
    assert any(
        "BCS-DBT-labels-train-v2.csv is read; not read: BCS-DBT labels-train.csv (older" in note
        for note in cohort.warnings
    )


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("labels-test-PHASE-2.csv", "labels-test.csv"),
        ("labels-test-PHASE-2.csv", "labels-test-v1.csv"),
        ("labels-test-PHASE-2-Jan-2024.csv", "labels-test-PHASE-2.csv"),
        ("labels-test-v2-PHASE-2-Jan-2024.csv", "labels-test-v2.csv"),
        ("labels-test-v10.csv", "labels-test-v9.csv"),
        ("labels-test-Mar-2024.csv", "labels-test-Dec-2023.csv"),
    ],
)
def test_marks_of_the_version_are_compared_one_by_one(newer, older, tmp_path):
    write(tmp_path, newer, "P1,S1,lcc,1,0,0,0")
    write(tmp_path, older, "P2,S2,lcc,1,0,0,0")
    write(tmp_path, "boxes-test.csv")
    assert find_tables(tmp_path).splits[0].labels.name == newer


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("labels-test-v2.csv", "labels-test-PHASE-2.csv"),
        ("labels-test.csv", "labels-test (1).csv"),
        ("labels-test-v2.csv", "my-labels-test.csv"),
        ("labels-test.csv", "labels test.csv"),
    ],
)
def test_versions_that_cannot_be_told_apart_are_refused(one, other, tmp_path):
    write(tmp_path, one, "P1,S1,lcc,1,0,0,0")
    write(tmp_path, other, "P2,S2,lcc,1,0,0,0")
    write(tmp_path, "boxes-test.csv")
    with pytest.raises(UserError) as error:
        read_cohort("bcs-dbt", tmp_path)
    assert one in str(error.value)
    assert other in str(error.value)


def test_two_copies_of_one_table_are_one(tmp_path):
    write(tmp_path, "labels-test.csv", "P1,S1,lcc,1,0,0,0")
    write(tmp_path, "labels-test (1).csv", "P1,S1,lcc,1,0,0,0")
    write(tmp_path, "boxes-test.csv")
    cohort = read_cohort("bcs-dbt", tmp_path)
    assert len(cohort.cases) == 1
    assert any("the same content" in note for note in cohort.warnings)


def test_hidden_files_of_other_systems_are_left_out(nine):
    (nine / "._BCS-DBT-labels-train-v2.csv").write_bytes(b"\x00\x05\x16\x07")
    assert len(read_cohort("bcs-dbt", nine).cases) == 60


def test_a_patient_in_two_splits_is_an_error_of_the_audit(tmp_path):
    """DBT-02: the tables stand as published, and the leak is the first thing that the audit says."""
    split_of(tmp_path / "f", "train", "P1")
    split_of(tmp_path / "f", "test", "P1")
    first = audit(read_cohort("bcs-dbt", tmp_path / "f"))[0]
    assert (first.kind, first.severity) == ("leak", "error")


def test_a_volume_in_two_splits_is_refused_with_both_rows(tmp_path):
    for split in ("train", "test"):
        write(tmp_path, f"labels-{split}.csv", "P1,S1,lcc,1,0,0,0")
        write(tmp_path, f"boxes-{split}.csv")
    with pytest.raises(UserError, match="more than one split") as error:
        read_cohort("bcs-dbt", tmp_path)
    assert "row 1 of labels-train.csv and row 1 of labels-test.csv" in str(error.value)


def test_a_study_of_two_patients_is_refused_with_both_rows(tmp_path):
    write(tmp_path, "labels-train.csv", "P1,S1,lcc,1,0,0,0", "P3,S3,lcc,1,0,0,0")
    write(tmp_path, "labels-test.csv", "P2,S1,rcc,1,0,0,0")
    for split in ("train", "test"):
        write(tmp_path, f"boxes-{split}.csv")
    with pytest.raises(UserError, match="more than one patient") as error:
        read_cohort("bcs-dbt", tmp_path)
    assert "P1 in row 1 of labels-train.csv and P2 in row 1 of labels-test.csv" in str(error.value)


def test_boxes_of_another_split_are_refused(tmp_path):
    write(tmp_path, "labels-train.csv", "P1,S1,lcc,1,0,0,0")
    write(tmp_path, "labels-test.csv", "P2,S2,rcc,0,0,0,1")
    write(tmp_path, "boxes-train.csv", "P2,S2,rcc,0,7,10,20,30,40,cancer,1,50")
    write(tmp_path, "boxes-test.csv")
    with pytest.raises(UserError, match="same split"):
        read_cohort("bcs-dbt", tmp_path)


def test_the_grade_compares_every_split_with_the_published_counts(nine):
    assert "no published split" in read_cohort("bcs-dbt", nine).id_grades["BCS-DBT"].why


def test_the_real_training_tables_beside_the_other_splits(data_dir, tmp_path):
    source = data_dir / "tomosynthesis" / "BCS-DBT"
    if not source.is_dir():
        pytest.skip("no BCS-DBT tables in shared/data")
    for name in ("BCS-DBT-labels-train-v2.csv", "BCS-DBT-boxes-train-v2.csv"):
        shutil.copy(source / name, tmp_path / name)
    cohort = read_cohort("bcs-dbt", tmp_path)
    assert set(cohort.cases["split"]) == {"train"}
    split_of(tmp_path, "test", "P-of-the-test-set")
    both = read_cohort("bcs-dbt", tmp_path)
    assert both.counts["splits"]["train"] == {
        "patients": 4362,
        "studies": 4838,
        "volumes": 19148,
        "lesions": 224,
    }
    part = elsewhere.Cohort.subset(both, both.cases["split"] == "train")
    assert part.hash == cohort.hash
    json.dumps(both.counts)
