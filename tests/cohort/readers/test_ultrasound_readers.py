"""The four ultrasound readers on tiny folders in the published layouts: what is read, and what is refused."""

from __future__ import annotations

import importlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import worlds.ultrasound_sets as sets
from elsewhere.cohort import audit, data_sheet, load_cohort, read_cohort
from elsewhere.commands.cohort import read as read_command
from elsewhere.errors import UserError

NAMES = ("busi", "bus-bra", "breast", "bus-uclm")
MAKE = {"busi": sets.busi, "bus-bra": sets.bus_bra, "breast": sets.breast, "bus-uclm": sets.bus_uclm}
DATASET = {"busi": "BUSI", "bus-bra": "BUS-BRA", "breast": "BrEaST", "bus-uclm": "BUS-UCLM"}


def boxes(cohort):
    columns = ["box_x0", "box_y0", "box_x1", "box_y1"]
    return {
        row.case_id: None if np.isnan(row.box_x0) else tuple(int(getattr(row, name)) for name in columns)
        for row in cohort.cases.itertuples()
    }


def said(cohort, *words):
    """Whether one warning has all the words."""
    return any(all(word in line for word in words) for line in cohort.warnings)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ending", ["png", "webp", "bmp", "JPG"])
def test_any_picture_format_is_matched_by_stem(name, ending, tmp_path):
    MAKE[name](tmp_path, ending=ending)
    cohort = read_cohort(name, tmp_path)
    cases = cohort.cases
    assert cases["image"].str.endswith(f".{ending}").all()
    assert (cases["modality"] == "ultrasound").all()
    assert cases["dataset"].unique().tolist() == [DATASET[name]]
    assert set(cases["label"]) <= {"benign", "malignant", "normal"}
    assert all(cohort.file(path).is_file() for path in cases["image"])
    assert (cases["width"] == sets.WIDTH).all()
    assert (cases["height"] == sets.HEIGHT).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_hash_does_not_depend_on_the_folder_given_and_survives_saving(name, tmp_path):
    inner = MAKE[name](tmp_path / "set")
    outer = read_cohort(name, tmp_path / "set")
    assert read_cohort(name, inner).hash == outer.hash
    outer.save(tmp_path / "out")
    again = load_cohort(tmp_path / "out")
    assert again.hash == outer.hash
    assert again.counts == json.loads(json.dumps(outer.counts))


@pytest.mark.parametrize("name", NAMES)
def test_data_sheets_are_whole(name):
    sheet = data_sheet(name)
    for word in ("licence", "citation", "layout", "labels", "patients", "boxes", "known defects"):
        assert f"{word}:" in sheet, word


def test_busi_one_id_a_picture_and_the_union_of_its_masks(tmp_path):
    sets.busi(tmp_path)
    cohort = read_cohort("busi", tmp_path)
    assert cohort.cases["case_id"].tolist() == ["benign (1)", "benign (2)", "malignant (1)", "normal (1)"]
    assert cohort.cases["patient_id"].tolist() == cohort.cases["case_id"].tolist()
    assert cohort.id_grades["BUSI"].grade == "C"
    assert said(cohort, "publishes no patient ids")
    assert boxes(cohort) == {
        "benign (1)": (5, 2, 30, 16),
        "benign (2)": (5, 6, 15, 16),
        "malignant (1)": (5, 6, 15, 16),
        "normal (1)": None,
    }
    assert cohort.cases["mask_2_path"].tolist()[0] == "benign/benign (1)_mask_1.png"
    assert cohort.counts["several_masks"] == 1
    assert cohort.counts["empty_masks"] == 1
    assert cohort.hash == read_cohort("busi", tmp_path, ids="image").hash


def test_a_changed_second_mask_changes_the_hash(tmp_path):
    top = sets.busi(tmp_path)
    before = read_cohort("busi", tmp_path)
    image = Image.open(top / "benign" / "benign (1)_mask_1.png").copy()
    image.putpixel((25, 5), 0)
    image.save(top / "benign" / "benign (1)_mask_1.png")
    after = read_cohort("busi", tmp_path)
    assert boxes(before) == boxes(after)
    assert before.hash != after.hash


def test_bus_bra_patients_are_the_cases(tmp_path):
    sets.bus_bra(tmp_path)
    cohort = read_cohort("bus-bra", tmp_path)
    assert cohort.cases["patient_id"].tolist() == ["1", "1", "2", "2", "3"]
    assert cohort.id_grades["BUS-BRA"].grade == "A"
    assert cohort.warnings == ()
    assert set(boxes(cohort).values()) == {(5, 6, 15, 16)}
    assert "from 1" in cohort.counts["table_boxes_convention"]
    assert cohort.cases["side"].tolist() == ["left", "right", "left", "right", "single"]


@pytest.mark.parametrize("name", ["bus-bra", "breast", "bus-uclm"])
def test_ids_image_reads_as_the_study_did(name, tmp_path):
    MAKE[name](tmp_path)
    real = read_cohort(name, tmp_path)
    cohort = read_cohort(name, tmp_path, ids="image")
    assert cohort.cases["patient_id"].tolist() == cohort.cases["case_id"].tolist()
    assert cohort.id_grades[DATASET[name]].grade == "C"
    assert said(cohort, "ids = image", "too narrow")
    assert cohort.cases["published_patient_id"].tolist() == real.cases["patient_id"].tolist()
    assert cohort.counts["published_ids"] == real.counts["patients"]
    assert cohort.hash != real.hash
    assert any(finding.kind == "no-patient-ids" for finding in audit(cohort))


def test_a_wrong_value_of_ids_offers_its_neighbour(tmp_path):
    sets.busi(tmp_path)
    with pytest.raises(UserError, match="Did you mean image"):
        read_cohort("busi", tmp_path, ids="images")


@pytest.mark.parametrize(
    ("name", "table", "column"),
    [("bus-bra", sets.bra_table, "Case"), ("breast", sets.breast_table, "CaseID")],
)
def test_an_empty_patient_id_names_its_row(name, table, column, tmp_path):
    rows = table()
    rows[1][column] = "" if name == "bus-bra" else None
    MAKE[name](tmp_path, rows)
    with pytest.raises(UserError, match=rf"{column} is empty in row 2 \(1 of {len(rows)}\)") as told:
        read_cohort(name, tmp_path)
    assert "--ids image" in str(told.value.fix)
    assert read_cohort(name, tmp_path, ids="image").counts["patients"] == len(rows)


def test_a_name_without_a_code_is_an_empty_patient_id(tmp_path):
    rows = sets.uclm_table()
    rows[2]["Image"] = "scan7.png"
    top = sets.bus_uclm(tmp_path, rows)
    (top / "images" / "BBBB_000.png").rename(top / "images" / "scan7.png")
    (top / "masks" / "BBBB_000.png").rename(top / "masks" / "scan7.png")
    with pytest.raises(UserError, match="empty in row 3"):
        read_cohort("bus-uclm", tmp_path)


def test_breast_boxes_are_of_tumours_alone(tmp_path):
    sets.breast(tmp_path)
    cohort = read_cohort("breast", tmp_path)
    assert boxes(cohort) == {"case001": (5, 6, 15, 16), "case002": (5, 6, 15, 16), "case003": None}
    assert cohort.counts["other_masks"] == 2
    assert cohort.counts["pictures_with_other_masks"] == 1
    assert cohort.counts["normals_without_mask"] == 1
    assert cohort.cases["other_mask_2_path"].notna().tolist() == [False, True, False]
    assert "mask_2_path" not in cohort.cases
    assert cohort.cases["age"].isna().tolist() == [True, False, False]
    assert cohort.cases["pixel_mm"].tolist() == pytest.approx([0.078125] * 3)
    assert cohort.warnings == ()


def test_bus_uclm_codes_labels_and_mixed_patients(tmp_path):
    sets.bus_uclm(tmp_path)
    cohort = read_cohort("bus-uclm", tmp_path)
    assert cohort.cases["patient_id"].tolist() == ["AAAA", "AAAA", "BBBB", "BBBB"]
    assert cohort.cases["label"].tolist() == ["benign", "normal", "benign", "malignant"]
    assert cohort.counts["mixed_label_patients"] == 1
    assert cohort.counts["patients_with_lesion_and_normal"] == 1
    found = {finding.kind: finding for finding in audit(cohort)}
    assert found["contradictory-labels"].ids == ("BBBB",)
    assert "both benign and malignant" in found["contradictory-labels"].message
    assert found["lesion-and-normal"].ids == ("AAAA",)


def test_bus_uclm_with_commas_is_read_too(tmp_path):
    top = sets.bus_uclm(tmp_path)
    first = read_cohort("bus-uclm", tmp_path)
    pd.DataFrame(sets.uclm_table()).to_csv(top / "INFO.csv", index=False)
    assert read_cohort("bus-uclm", tmp_path).hash == first.hash


def test_a_folder_without_the_layout_says_what_it_should_hold(tmp_path):
    for name in NAMES:
        with pytest.raises(UserError, match=r"no .* in this folder"):
            read_cohort(name, tmp_path)


def test_two_copies_below_one_folder_are_a_question(tmp_path):
    sets.busi(tmp_path / "a")
    sets.busi(tmp_path / "b")
    with pytest.raises(UserError, match="2 folders here hold"):
        read_cohort("busi", tmp_path)


def test_two_pictures_of_one_stem_are_a_question(tmp_path):
    top = sets.busi(tmp_path)
    sets.save_picture(top / "benign" / "benign (2).webp")
    with pytest.raises(UserError, match=r"two pictures are called 'benign \(2\)'"):
        read_cohort("busi", tmp_path)


def test_junk_beside_the_pictures_is_passed_over(tmp_path):
    top = sets.busi(tmp_path)
    before = read_cohort("busi", tmp_path).hash
    (top / "benign" / "Thumbs.db").write_bytes(b"x")
    (top / "benign" / "._benign (1).png").write_bytes(b"x")
    (tmp_path / "__MACOSX" / "benign").mkdir(parents=True)
    (tmp_path / "__MACOSX" / "malignant").mkdir(parents=True)
    assert read_cohort("busi", tmp_path).hash == before


def test_the_command_passes_ids_and_progress(tmp_path, monkeypatch):
    pictures = importlib.import_module("elsewhere.cohort.readers.pictures")
    sets.bus_bra(tmp_path)
    monkeypatch.setattr(pictures, "QUIET_SECONDS", -1.0)
    calls = []
    report = read_command(
        "bus-bra",
        tmp_path,
        out=tmp_path / "out",
        ids="image",
        progress=lambda what, done, total: calls.append((what, done, total)),
    )
    assert report.cohort.counts["ids"] == "image"
    assert ("pictures", 5, 5) in calls
    assert ("masks", 5, 5) in calls
    pd.DataFrame({"case_id": ["a", "b"]}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError, match="no option 'ids'"):
        read_command("csv", tmp_path / "t.csv", out=tmp_path / "o2", ids="image", progress=lambda *a: None)


def test_published_counts_that_differ_are_said(tmp_path):
    sets.busi(tmp_path)
    found = [f for f in audit(read_cohort("busi", tmp_path)) if f.kind == "not-the-published-count"]
    assert any("published: 647 and 133" in finding.message for finding in found)
    shutil.rmtree(tmp_path / "Dataset_BUSI_with_GT" / "normal")
    assert read_cohort("busi", tmp_path).counts["normal_images"] == 0
