"""DBT-01: the DICOM files of BCS-DBT, joined by the published file paths, whatever became of them on disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PureWindowsPath

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import load_cohort, read_cohort
from elsewhere.cohort.readers.bcs_dbt_files import plain_parts
from elsewhere.errors import UserError
from elsewhere.phantom.tables import write_bcs_dbt_twin

PATHS = "BCS-DBT-file-paths-train-v2.csv"


@pytest.fixture
def published(tmp_path) -> Path:
    """Twelve volumes of three patients, downloaded as the descriptive paths say."""
    return write_bcs_dbt_twin(tmp_path / "F", np.random.default_rng(1), splits={"train": 3}, with_files=True)


def rows_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / PATHS, dtype=str)


def file_of(folder: Path, row: int, column: str = "descriptive_path") -> Path:
    return folder / rows_of(folder)[column].iloc[row]


def read(folder: Path):
    return read_cohort("bcs-dbt", folder, volumes=True)


def noted(cohort, text: str) -> bool:
    return any(text in note for note in cohort.warnings)


def test_each_volume_has_its_file(published, tmp_path):
    cohort = read(published)
    assert cohort.cases["image"].tolist() == rows_of(published)["descriptive_path"].tolist()
    assert all(cohort.file(name).is_file() for name in cohort.cases["image"])
    assert cohort.counts["volumes_with_file"] == 12
    assert all("volumes with different labels" in note for note in cohort.warnings)
    again = load_cohort(cohort.save(tmp_path / "saved"))
    assert again.hash == cohort.hash
    assert again.file(again.cases["image"].iloc[0]).is_file()


def test_nothing_is_searched_where_volumes_are_not_asked_for(published, monkeypatch):
    (published / PATHS).write_text("this is no table of file paths\n1\n")
    monkeypatch.setattr(os, "walk", lambda *_, **__: pytest.fail("the folder is searched"))
    assert "image" not in read_cohort("bcs-dbt", published).cases.columns


def test_an_empty_cell_where_the_file_is_not_there(published):
    file_of(published, 4).unlink()
    cohort = read(published)
    assert cohort.cases["image"].isna().tolist() == [at == 4 for at in range(12)]
    assert cohort.counts["volumes_without_file"] == 1
    assert noted(cohort, f"volumes whose file was not found, of 12: 1 ({cohort.cases['case_id'].iloc[4]})")


def test_the_classic_folders_are_found_as_well(published):
    rows = rows_of(published)
    for at in range(len(rows)):
        target = file_of(published, at, "classic_path")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(file_of(published, at), target)
    assert read(published).cases["image"].tolist() == rows["classic_path"].tolist()


@pytest.mark.parametrize("below", ["manifest-1617905855234", "disk/DBT data/manifest-1"])
def test_another_folder_above(published, below):
    (published / below).mkdir(parents=True)
    shutil.move(published / "Breast-Cancer-Screening-DBT", published / below)
    cohort = read(published)
    assert cohort.counts["volumes_with_file"] == 12
    assert cohort.cases["image"].str.startswith(f"{below}/").all()


def test_a_link_to_the_folder_on_another_disk(published, tmp_path):
    shutil.move(published / "Breast-Cancer-Screening-DBT", tmp_path / "disk")
    (published / "volumes").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "loop").symlink_to(published)
    cohort = read(published)
    assert cohort.counts["volumes_with_file"] == 12
    assert all(cohort.file(name).is_file() for name in cohort.cases["image"])


@pytest.mark.parametrize("name", ["000000.dcm", "IMG0001.DCM", "1.3.6.1.4.1.77.dcm", "00000001", "a.dicom"])
def test_the_file_is_named_otherwise(published, name):
    old = file_of(published, 2)
    old.rename(old.with_name(name))
    cohort = read(published)
    assert cohort.counts["volumes_with_file"] == 12
    assert cohort.cases["image"].iloc[2].endswith(f"/{name}")


def test_letters_case_separators_and_the_tools_na_do_not_count(published):
    rows = rows_of(published)
    rows["descriptive_path"] = [
        str(PureWindowsPath("D:/Data") / PureWindowsPath(path.replace("-NA-", "-").upper()))
        for path in rows["descriptive_path"]
    ]
    assert rows["descriptive_path"].iloc[0].startswith("D:\\Data\\")
    rows["View"] = rows["View"].str.upper()
    rows.to_csv(published / PATHS, index=False)
    assert read(published).counts["volumes_with_file"] == 12
    assert plain_parts(r"C:\a\.\..\16214.000000-NA-18959\1-1.DCM") == ("a", "16214.000000-18959", "1-1.dcm")


def test_the_modality_before_a_uid_does_not_count(published):
    target = published / "idc" / f"MG_{file_of(published, 0, 'classic_path').parent.name}" / "x.dcm"
    target.parent.mkdir(parents=True)
    shutil.move(file_of(published, 0), target)
    assert read(published).cases["image"].iloc[0] == target.relative_to(published).as_posix()


def test_files_in_one_folder_are_joined_by_the_name_of_the_series(published):
    rows = rows_of(published)
    flat = published / "input"
    flat.mkdir()
    for at, path in enumerate(rows["classic_path"]):
        shutil.move(file_of(published, at), flat / f"{Path(path).parent.name}.dcm")
    cohort = read(published)
    assert cohort.counts["volumes_with_file"] == 12
    assert cohort.cases["image"].iloc[0] == f"input/{Path(rows['classic_path'].iloc[0]).parent.name}.dcm"


def test_files_in_one_folder_are_joined_by_a_name_that_one_row_alone_gives(published):
    rows = rows_of(published)
    rows["classic_path"] = [
        str(Path(path).with_name(f"1.2.3.{at}.dcm")) for at, path in enumerate(rows["classic_path"])
    ]
    rows.to_csv(published / PATHS, index=False)
    flat = published / "all"
    flat.mkdir()
    for at in range(11):
        shutil.move(file_of(published, at), flat / f"1.2.3.{at}.dcm")
    shutil.move(file_of(published, 11), flat / "1-1.dcm")
    cohort = read(published)
    assert cohort.counts["volumes_with_file"] == 11
    assert noted(cohort, "DICOM files that belong to no row of the file paths: 1 (all/1-1.dcm)")


def test_a_series_in_two_places_is_counted_and_the_better_place_is_used(published):
    series = file_of(published, 3).parent
    copy = published / "A copy" / series.name
    shutil.copytree(series, copy)
    cohort = read(published)
    assert cohort.cases["image"].iloc[3] == rows_of(published)["descriptive_path"].iloc[3]
    assert cohort.counts["series_in_several_places"] == 1
    assert cohort.counts["files_without_row"] == 0
    assert noted(
        cohort, f"several places; one of them is used: 1 ({cohort.cases['case_id'].iloc[3]} (2 places))"
    )


def test_of_two_equal_places_the_larger_file_is_used(published):
    top = published / "Breast-Cancer-Screening-DBT"
    (published / "manifest-2").mkdir()
    shutil.copytree(top, published / "manifest-2" / top.name)
    (published / "manifest-1").mkdir()
    shutil.move(top, published / "manifest-1")
    first = rows_of(published)["descriptive_path"].iloc[0]
    with (published / "manifest-2" / first).open("ab") as file:
        file.write(b"more")
    cohort = read(published)
    assert cohort.counts["series_in_several_places"] == 12
    assert cohort.cases["image"].iloc[0].startswith("manifest-2/")
    assert cohort.cases["image"].iloc[1:].str.startswith("manifest-1/").all()


def test_files_without_a_row_are_counted_and_named(published):
    stray = published / "Breast-Cancer-Screening-DBT" / "DBT-P00099" / "study" / "9.000000-NA-1" / "1-1.dcm"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"DICM")
    for name in ("LICENSE", "metadata.csv", "._1-1.dcm", "notes.txt"):
        (stray.parent / name).write_text("no volume")
    cohort = read(published)
    assert cohort.counts["files_without_row"] == 1
    assert noted(cohort, stray.relative_to(published).as_posix())


def test_a_folder_below_another_patient_is_never_taken(published):
    """Names of series folders repeat over a set of 22,032; the folders above tell them apart."""
    series = file_of(published, 0).parent
    other = published / "Breast-Cancer-Screening-DBT" / "DBT-P09999" / series.name
    other.parent.mkdir(parents=True)
    shutil.move(series, other)
    cohort = read(published)
    assert pd.isna(cohort.cases["image"].iloc[0])
    assert cohort.counts["files_without_row"] == 1


def test_one_series_name_for_two_patients_is_told_apart_by_the_folders_above(published):
    rows = rows_of(published)
    name = "1.000000-NA-12345"
    for at in (0, 8):
        old = file_of(published, at)
        old.parent.rename(old.parent.with_name(name))
        rows.loc[at, "descriptive_path"] = (
            (old.parent.with_name(name) / "1-1.dcm").relative_to(published).as_posix()
        )
    rows["classic_path"] = ""
    rows.to_csv(published / PATHS, index=False)
    assert read(published).cases["image"].tolist() == rows["descriptive_path"].tolist()
    shutil.move(file_of(published, 0).parent, published / name)
    cohort = read(published)
    assert pd.isna(cohort.cases["image"].iloc[0])
    assert cohort.counts["doubtful_series"] == 1


def test_a_folder_with_several_files_is_joined_by_the_name_in_the_table(published):
    series = file_of(published, 1).parent
    (series / "1-2.dcm").write_bytes(b"DICM")
    cohort = read(published)
    assert cohort.cases["image"].iloc[1].endswith("/1-1.dcm")
    assert cohort.counts["further_files"] == 1
    (series / "1-1.dcm").rename(series / "1-3.dcm")
    cohort = read(published)
    assert pd.isna(cohort.cases["image"].iloc[1])
    assert noted(cohort, "none or several with the name in the table; not used: 1")


def test_rows_and_volumes_without_each_other_are_counted(published):
    rows = rows_of(published)
    rows.loc[0, "StudyUID"] = "DBT-S77777"
    rows.loc[1, "PatientID"] = "DBT-P00002"
    rows.to_csv(published / PATHS, index=False)
    cohort = read(published)
    assert cohort.counts["volumes_without_path_row"] == 1
    assert cohort.counts["path_rows_without_volume"] == 1
    assert cohort.counts["path_rows_of_another_patient"] == 1
    assert noted(cohort, "since the file paths do not list them, of 12: 1")


def test_a_repeated_row_counts_once_and_a_contradicting_one_is_refused(published):
    rows = rows_of(published)
    pd.concat([rows, rows.iloc[[0]]]).to_csv(published / PATHS, index=False)
    assert read(published).counts["volumes_with_file"] == 12
    other = rows.iloc[[0]].assign(descriptive_path="elsewhere/1-1.dcm")
    pd.concat([rows, other]).to_csv(published / PATHS, index=False)
    with pytest.raises(UserError, match="two rows of file paths that differ"):
        read(published)


def test_a_row_without_a_path_is_counted(published):
    rows = rows_of(published)
    rows.loc[5, ["descriptive_path", "classic_path"]] = ""
    rows.to_csv(published / PATHS, index=False)
    cohort = read(published)
    assert cohort.counts["path_rows_without_path"] == 1
    assert cohort.counts["volumes_without_file"] == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda f: (f / PATHS).unlink(), "no table of file paths"),
        (lambda f: shutil.rmtree(f / "Breast-Cancer-Screening-DBT"), "no DICOM file"),
        (
            lambda f: (f / PATHS).write_text("PatientID,StudyUID,View\nP,S,lcc\n"),
            "neither a column descriptive_path",
        ),
        (lambda f: (f / PATHS).write_text("PatientID,StudyUID\nP,S\n"), "View"),
        (
            lambda f: (f / PATHS).write_text("PatientID,StudyUID,View,classic_path\nP,,lcc,a/b/1-1.dcm\n"),
            "no StudyUID",
        ),
        (
            lambda f: (f / PATHS).write_text("PatientID,StudyUID,View,classic_path\nP,S,lcc,a/b/1-1.dcm\n"),
            "none of the 12 DICOM files fits",
        ),
    ],
)
def test_what_cannot_be_joined_at_all_is_refused(published, change, why):
    change(published)
    with pytest.raises(UserError, match=why):
        read(published)


def test_paths_that_climb_reach_no_file(published, tmp_path):
    outside = tmp_path / "outside" / "1.dcm"
    outside.parent.mkdir()
    outside.write_bytes(b"DICM")
    rows = rows_of(published)
    rows.loc[0, ["descriptive_path", "classic_path"]] = "../outside/1.dcm", "/outside/1.dcm"
    rows.to_csv(published / PATHS, index=False)
    assert pd.isna(read(published).cases["image"].iloc[0])


def test_names_that_are_not_utf8_are_left_out(published):
    folder = os.fsencode(published) + b"/bad\xff"
    os.mkdir(folder)
    with open(folder + b"/1-1.dcm", "wb") as file:
        file.write(b"DICM")
    assert read(published).counts["volumes_with_file"] == 12
