"""The MAMA-MIA layout: boxes, gaps among phases, files of nobody, and tables that must be refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import Cohort, audit, read_cohort
from elsewhere.cohort.published.figures import compare_figures
from elsewhere.errors import UserError
from elsewhere.inputs.mri.layout import box_to_published
from elsewhere.phantom.tables import write_mama_mia_twin
from elsewhere.study.volumes import digests, volumes_of
from elsewhere.tables import read_table, write_table

PATIENTS = {"DUKE": 3, "NACT": 2}


@pytest.fixture
def twin(tmp_path):
    folder = tmp_path / "twin"
    write_mama_mia_twin(folder, np.random.default_rng(5), patients=PATIENTS, with_files=True)
    return folder


def add_info(folder, patient: str, box) -> None:
    info = folder / "patient_info_files"
    info.mkdir(exist_ok=True)
    held = {
        "patient_id": patient,
        "primary_lesion": {"breast_coordinates": box_to_published(box)} if box else {},
    }
    (info / f"{patient.lower()}.json").write_text(json.dumps(held))


def said(cohort: Cohort, words: str) -> bool:
    return any(words in warning for warning in cohort.warnings)


def rewrite(folder, change) -> None:
    """The clinical table with one change, as csv."""
    path = folder / "clinical_and_imaging_info.xlsx"
    frame = read_table(path)
    path.unlink()
    write_table(change(frame), folder / "clinical_and_imaging_info.csv")


def test_boxes_of_the_published_files(twin):
    add_info(twin, "DUKE_001", (2, 1, 0, 12, 15, 8))
    add_info(twin, "DUKE_002", None)
    add_info(twin, "DUKE_777", (0, 0, 0, 4, 4, 4))
    cohort = read_cohort("mama-mia", twin)
    row = cohort.cases.iloc[0]
    names = ("x0", "y0", "z0", "x1", "y1", "z1")
    assert [row[f"breast_box_{name}"] for name in names] == [2, 1, 0, 12, 15, 8]
    assert cohort.cases["breast_box_x0"].isna().tolist() == [False, True, True, True, True]
    assert cohort.counts["without_breast_box"] == 4
    assert said(cohort, "1 files of patient_info_files hold no breast box: duke_002")
    assert said(cohort, "1 breast boxes belong to no patient in the table: duke_777")
    volumes = volumes_of(cohort)
    assert len(volumes) == 5
    x0, y0, z0, x1, y1, z1 = volumes.breast_box("DUKE/DUKE_001")
    assert (x1 - x0, y1 - y0, z1 - z0) == (10, 14, 8)
    assert volumes.breast_box("DUKE/DUKE_003") is None
    assert volumes.problems() == {}


def test_boxes_of_a_csv(twin):
    (twin / "breast_boxes.csv").write_text(
        "patient_id,x_min,x_max,y_min,y_max,z_min,z_max\nduke_002,0,8,1,15,2,12\n"
    )
    cohort = read_cohort("mama-mia", twin)
    assert cohort.cases["breast_box_x0"].tolist()[1] == 2
    assert cohort.cases["breast_box_z1"].tolist()[1] == 8
    (twin / "breast_boxes.csv").write_text(
        "patient_id,breast_box_x0,breast_box_y0,breast_box_z0,breast_box_x1,breast_box_y1,breast_box_z1\n"
        "DUKE_002,2,1,0,12,15,8\n"
    )
    assert read_cohort("mama-mia", twin).hash == cohort.hash
    (twin / "breast_boxes.csv").write_text("patient_id,x_min,x_max,y_min,y_max,z_min\nDUKE_002,0,8,1,15,2\n")
    with pytest.raises(UserError, match="no column 'z_max'"):
        read_cohort("mama-mia", twin)
    (twin / "breast_boxes.csv").write_text(
        "patient_id,x_min,x_max,y_min,y_max,z_min,z_max\nDUKE_002,9,8,1,5,2,3\n"
    )
    with pytest.raises(UserError, match=r"row 1: the breast box .* is empty"):
        read_cohort("mama-mia", twin)
    add_info(twin, "DUKE_001", (2, 1, 0, 12, 15, 8))
    assert said(read_cohort("mama-mia", twin), "breast_boxes.csv is not read")


def test_a_box_in_another_order_is_noticed_against_the_table(twin):
    add_info(twin, "DUKE_001", (0, 1, 2, 8, 15, 12))
    cohort = read_cohort("mama-mia", twin)
    assert said(cohort, "1 breast boxes reach beyond the volume's size in the table: DUKE_001")
    with pytest.raises(UserError, match="its axes are in another order"):
        volumes_of(cohort).breast_box("DUKE/DUKE_001")


def test_a_broken_info_file(twin):
    add_info(twin, "DUKE_001", (2, 1, 0, 12, 15, 8))
    path = twin / "patient_info_files" / "duke_001.json"
    path.write_text(path.read_text()[:20])
    with pytest.raises(UserError, match=r"duke_001.json"):
        read_cohort("mama-mia", twin)
    path.write_text('{"primary_lesion": {"breast_coordinates": {"x_min": "a", "x_max": 1, "y_min": 1, "y_max": 2, '
                    '"z_min": 1, "z_max": 2}}}')  # fmt: skip
    with pytest.raises(UserError, match="Six whole numbers"):
        read_cohort("mama-mia", twin)


def test_a_missing_phase_is_named_and_the_patient_kept(twin):
    (twin / "images" / "DUKE_002" / "DUKE_002_0001.nii.gz").unlink()
    cohort = read_cohort("mama-mia", twin)
    assert cohort.counts["cases"] == 5
    assert cohort.counts["patients_with_a_missing_phase"] == 1
    assert said(cohort, "DUKE_002 (without 0001)")
    assert cohort.cases["phases_missing"].tolist()[1] == "0001"
    assert said(
        cohort, "1 patients have another number of phase files than the table says: DUKE_002 (2, table 3)"
    )
    with pytest.raises(UserError, match="lacks phase 0001"):
        volumes_of(cohort).grid("DUKE/DUKE_002")
    assert list(volumes_of(cohort).problems()) == ["DUKE/DUKE_002"]


def test_files_of_nobody_are_named(twin):
    (twin / "segmentations" / "expert" / "DUKE_009.nii.gz").touch()
    (twin / "images" / "ISPY2_5").mkdir()
    (twin / "images" / "NACT_001").rename(twin / "images" / "elsewhere")
    cohort = read_cohort("mama-mia", twin)
    assert said(cohort, "1 expert masks belong to no patient in the table and are not used: DUKE_009.nii.gz")
    assert said(
        cohort, "2 image folders belong to no patient in the table and are not used: ISPY2_5, elsewhere"
    )
    assert said(cohort, "1 of 5 patients have no image folder: NACT_001")
    assert "NACT/NACT_001" not in volumes_of(cohort)
    (twin / "segmentations" / "expert" / "duke_001.nii").touch()
    with pytest.raises(UserError, match="two files are the mask of one patient"):
        read_cohort("mama-mia", twin)


def test_an_xlsx_without_a_needed_column_offers_its_neighbours(twin):
    rewrite(twin, lambda frame: frame.rename(columns={"menopause": "menopausal"}))
    with pytest.raises(UserError, match=r"no column 'menopause'") as caught:
        read_cohort("mama-mia", twin)
    assert "perhaps 'menopausal'" in str(caught.value)
    assert "--map" not in str(caught.value)


@pytest.mark.parametrize(("gone", "left"), [("pcr", "pr"), ("age", "nac_agent"), ("dataset", "data")])
def test_a_doubtful_neighbour_is_not_proposed(twin, gone, left):
    rewrite(twin, lambda frame: frame.drop(columns=gone).assign(**{left: "1"}))
    with pytest.raises(UserError, match=f"no column '{gone}'") as caught:
        read_cohort("mama-mia", twin)
    assert "perhaps" not in str(caught.value)


@pytest.mark.parametrize("age", [400, -3])
def test_an_age_that_nobody_has_names_its_row(twin, age):
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame.loc[1, "age"] = str(age)
        return frame

    rewrite(twin, change)
    with pytest.raises(UserError, match=f"age in row 2 is {age}"):
        read_cohort("mama-mia", twin)


def test_text_in_the_age_column_names_its_row(twin):
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame.loc[2, "age"] = "forty"
        blank = pd.DataFrame([dict.fromkeys(frame.columns)])
        return pd.concat([frame.iloc[:1], blank, frame.iloc[1:]], ignore_index=True)

    rewrite(twin, change)
    with pytest.raises(UserError, match=r"column 'age'.*row 4") as caught:
        read_cohort("mama-mia", twin)
    assert "forty" in str(caught.value)


@pytest.mark.parametrize("word", ["unknown", "N/A", "not available", ""])
def test_unknown_menopausal_status_is_no_mistake(twin, word):
    rewrite(twin, lambda frame: frame.assign(menopause=[word, "pre", "Post", "peri (6-12 months)", None]))
    cohort = read_cohort("mama-mia", twin)
    status = cohort.cases["menopausal_status"]
    assert status.isna().tolist() == [True, False, False, False, True]
    assert status.dropna().tolist() == ["pre", "post", "pre"]
    assert cohort.counts["without_menopausal_status"] == 2
    assert said(cohort, "2 of 5 patients have no menopausal status (DUKE 1, NACT 1)")


@pytest.mark.parametrize("word", ["unknown", "N/A", ""])
def test_an_unknown_age_or_density_is_no_mistake_either(twin, word):
    rewrite(twin, lambda f: f.assign(age=[word, "40", "51", "62", "73"], breast_density=[*"abcd", word]))
    cohort = read_cohort("mama-mia", twin)
    assert cohort.cases["age"].isna().tolist() == [True, False, False, False, False]
    assert cohort.cases["breast_density"].tolist()[:4] == ["A", "B", "C", "D"]
    assert cohort.counts["without_age"] == cohort.counts["without_breast_density"] == 1


def test_a_table_without_densities_says_so(twin):
    rewrite(twin, lambda frame: frame.drop(columns="breast_density", errors="ignore"))
    cohort = read_cohort("mama-mia", twin)
    assert said(cohort, "the table has no column of breast density: no patient is in any of its groups")
    assert cohort.counts["without_breast_density"] == 5


def test_a_wrong_word_for_menopausal_status_is(twin):
    rewrite(twin, lambda frame: frame.assign(menopause=["pre", "postt", "maybe", None, None]))
    with pytest.raises(UserError, match=r"menopause in row 2 is 'postt' \(2 rows have such a word\)"):
        read_cohort("mama-mia", twin)


def test_a_patient_without_outcome_is_kept_and_counted(twin):
    cohort = read_cohort("mama-mia", twin)
    assert cohort.cases["pcr"].isna().tolist() == [True, False, False, False, False]
    assert cohort.counts["without_outcome"] == 1
    assert said(cohort, "1 of 5 patients have no outcome (pcr) (DUKE 1)")
    rewrite(twin, lambda frame: frame.assign(pcr=["", "1", "0.5", "0", "1"]))
    with pytest.raises(UserError, match=r"pcr of 'DUKE_003' \(row 3\) is 0.5"):
        read_cohort("mama-mia", twin)


def test_a_synthetic_set_is_not_held_against_the_paper(twin):
    cohort = read_cohort("mama-mia", twin)
    assert compare_figures(cohort) == ()
    (twin / "phantom.json").write_text(json.dumps({"hospitals": ["north"]}))
    made = read_cohort("mama-mia", twin)
    assert made.synthetic
    assert not any("published" in finding.kind for finding in audit(made))


def test_digests_are_read_once(twin, tmp_path, monkeypatch):
    volumes = volumes_of(read_cohort("mama-mia", twin))
    cache = tmp_path / "seen.json"
    first = digests(volumes, cache=cache)
    assert first == {case: volumes.digest(case) for case in volumes.cases}
    assert len(set(first.values())) == 5

    def never(path) -> str:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr("elsewhere.study.volumes.file_digest", never)
    assert digests(volumes, cache=cache) == first
    cache.write_text("{")
    with pytest.raises(AssertionError):
        digests(volumes, cache=cache)
    monkeypatch.undo()
    file = twin / "images" / "DUKE_001" / "DUKE_001_0000.nii.gz"
    file.write_bytes(file.read_bytes() + b"\0")
    again = digests(volumes, cache=cache)
    assert [case for case in first if first[case] != again[case]] == ["DUKE/DUKE_001"]
    file.unlink()
    with pytest.raises(UserError, match="no such file"):
        digests(volumes, cache=cache)
