"""A hospital's own slides: a table, a folder, annotations; what fits and what does not is counted (LN-01)."""

from __future__ import annotations

import unicodedata

import pandas as pd
import pytest

from elsewhere.cohort import audit, read_cohort
from elsewhere.cohort.slide_files import find_slide_files
from elsewhere.cohort.slide_stages import SLIDE_STAGES, slide_stage
from elsewhere.errors import UserError
from elsewhere.tables import TableOptions


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"II*\0")
    return folder


def test_a_table_with_own_names_and_a_folder(tmp_path):
    touch(tmp_path, "2021/A 1.svs", "2021/B-2.ndpi", "2022/c3.tif", "2022/extra.svs", "outlines/A 1.xml")
    (tmp_path / "list.csv").write_text(
        "Slide;Patient;Befund;um;Ort\nA 1;p1;Makrometastase;0,25;Nord\nB-2;p1;negativ;;Nord\nC3;p2;ITC;0,5;Süd\nD;p3;;;Süd\n",
        encoding="utf-8",
    )
    cohort = read_cohort(
        "slides",
        tmp_path,
        column_map="case_id=Slide,patient_id=Patient,stage=Befund,mpp=um,site=Ort",
        values="dataset=SMH",
        table=TableOptions(delimiter=";", decimal=","),
        trained_on="nord",
    )
    cases = cohort.cases
    assert cases["slide"].tolist()[:3] == ["2021/A 1.svs", "2021/B-2.ndpi", "2022/c3.tif"]
    assert cases["slide"].isna().tolist() == [False, False, False, True]
    assert cases["stage"].tolist()[:3] == ["macro", "negative", "itc"] and cases["stage"].isna().tolist()[3]
    assert cases["mpp"].tolist()[0] == 0.25 and cases["microns_per_pixel"].tolist()[2] == 0.5
    assert cases["domain"].tolist() == ["ID", "ID", "OOD", "OOD"]
    assert cases["annotation"].tolist()[0] == "outlines/A 1.xml"
    assert set(cases["dataset"]) == {"SMH"} and set(cases["modality"]) == {"histology"}
    assert cohort.counts["slides_found"] == 3 and cohort.counts["without_stage"] == 1
    assert "1 rows have no slide here: D" in cohort.warnings
    assert "1 slides have no row in the table: extra.svs" in cohort.warnings


def test_without_a_table_each_slide_is_a_case(tmp_path):
    touch(tmp_path, "a/1.svs", "b/1.tif", "b/2.tif", "b/2_mask.tif", ".hidden.svs")
    cohort = read_cohort("slides", tmp_path)
    assert cohort.cases["case_id"].tolist() == ["a/1.svs", "b/1.tif", "2"]
    assert cohort.cases["mask"].tolist()[2] == "b/2_mask.tif"
    assert cohort.id_grades["cohort"].grade == "C"
    assert "there is no table" in cohort.warnings[0]


def test_umlauts_blanks_and_dots_match_whatever_the_disk_stores(tmp_path):
    apart = unicodedata.normalize("NFD", "Präparat Müller 1.2")
    touch(tmp_path, f"{apart}.svs")
    (tmp_path / "t.csv").write_text("case_id\npräparat müller 1.2\n", encoding="utf-8")
    assert read_cohort("slides", tmp_path).cases["slide"].notna().all()


def test_linked_files_and_folders_count_and_circles_end(tmp_path):
    store = touch(tmp_path / "store", "deep/s1.svs", "s2.svs")
    work = tmp_path / "work"
    work.mkdir()
    (work / "linked").symlink_to(store)
    (store / "back").symlink_to(store)
    (work / "s3.svs").symlink_to(store / "s2.svs")
    (work / "gone.svs").symlink_to(store / "nowhere.svs")
    cohort = read_cohort("slides", work)
    assert cohort.cases["case_id"].tolist() == ["s1", "s2", "s3"]
    assert "1 links lead to no file: gone.svs" in cohort.warnings


def test_two_files_of_one_name_are_not_guessed_until_a_row_names_one(tmp_path):
    touch(tmp_path, "x/s.svs", "y/s.svs", "y/s.tif")
    (tmp_path / "t.csv").write_text("case_id,patient_id\ns,p\n")
    cohort = read_cohort("slides", tmp_path)
    assert cohort.cases["slide"].isna().all()
    assert cohort.counts["rows_with_several_slides"] == 1 and cohort.counts["slides_without_row"] == 0
    (tmp_path / "t.csv").write_text("slide,patient_id\ny\\s.svs,p\ns.tif,p\n")
    cohort = read_cohort("slides", tmp_path)
    assert cohort.cases["slide"].tolist() == ["y/s.svs", "y/s.tif"]
    assert cohort.cases["case_id"].tolist() == ["y/s.svs", "s.tif"]


def test_a_folder_of_dicom_files_is_one_slide_and_masks_are_none(tmp_path):
    touch(tmp_path, "S1/0.dcm", "S1/1.dcm", "S2.svs", "S2-mask.png", "truth/S1.tif", "truth/S2.geojson")
    files = find_slide_files(tmp_path, annotations=tmp_path / "truth")
    assert (
        sorted(files.slides) == ["s1", "s2"]
        and sorted(files.masks) == ["s1"]
        and sorted(files.outlines) == ["s2"]
    )
    cohort = read_cohort("slides", tmp_path, annotations=tmp_path / "truth")
    assert cohort.cases["slide"].tolist() == ["S1/0.dcm", "S2.svs"]
    assert cohort.cases["mask"].tolist()[0] == "truth/S1.tif"


@pytest.mark.parametrize(
    ("table", "options", "word"),
    [
        ("case_id,stage\na,pos\n", {}, r"unknown slide stage in row 1 \(pos\)"),
        ("case_id,stage\na,pos\n", {"stage_words": {"pos": "huge"}}, "given the stage 'huge'"),
        ("case_id,mpp\na,250\n", {}, "250.0 microns per pixel were stated"),
        ("case_id,mpp\na,0\n", {}, "0.0 microns per pixel were stated"),
        ("case_id,mpp\na,-0.25\n", {}, "microns per pixel were stated"),
        ("case_id,mpp\na,20x\n", {}, "not numbers|not a number|is '20x'"),
        ("PID,Glas\n1,a\n", {}, "no column 'case_id' and no column 'slide'"),
        ("case_id\na\na\n", {}, "share a case_id"),
        ("case_id,patient_id\na,\nb,p\n", {}, "'patient_id' is empty in row 1"),
        ("case_id\na\n", {"trained_on": "RUMC"}, "no slide has a centre"),
        ("case_id,site\na,X\n", {"trained_on": " , "}, "no centre of the training is named"),
        ("case_id,dataset\na,X\n", {"values": "dataset=Y"}, "overwrite"),
        ("case_id\na\n", {"annotations": "nowhere"}, "no such folder of annotations"),
    ],
)
def test_mistakes(tmp_path, table, options, word):
    (tmp_path / "t.csv").write_text(table)
    with pytest.raises(UserError, match=word):
        read_cohort("slides", tmp_path, **options)


def test_the_message_about_microns_guesses_the_unit_and_names_the_row(tmp_path):
    (tmp_path / "t.csv").write_text("case_id,mpp\na,0.25\nb,250\n")
    with pytest.raises(UserError) as caught:
        read_cohort("slides", tmp_path)
    assert "nanometres: 0.25 microns" in str(caught.value) and "row 2" in str(caught.value)


def test_an_own_word_for_a_stage(tmp_path):
    (tmp_path / "t.csv").write_text("case_id,stage\na,pos (groß)\nb,Normal\n", encoding="utf-8")
    cohort = read_cohort("slides", tmp_path, stage_words={"POS (GROSS)": "macro"})
    assert cohort.cases["stage"].tolist() == ["macro", "negative"]


@pytest.mark.parametrize(
    ("word", "stage"),
    [("Macro-metastasis", "macro"), ("ISOLATED TUMOR CELLS", "itc"), ("pN1mi", "micro"), ("none", "negative"),
     ("Mikrometastasen", "micro"), ("tumor-free", "negative"), ("0", "negative"), ("-", "negative"), ("macro?", None),
     ("", None), ("positive", None)],
)  # fmt: skip
def test_words_for_stages(word, stage):
    assert slide_stage(word) == stage
    assert stage is None or stage in SLIDE_STAGES


def test_a_patient_in_two_parts_is_a_leak(tmp_path):
    (tmp_path / "t.csv").write_text("case_id,patient_id,split\na,p,train\nb,p,test\n")
    found = {finding.kind: finding for finding in audit(read_cohort("slides", tmp_path))}
    assert found["leak"].rows == (1, 2) and found["leak"].severity == "error"


def test_an_excel_table(tmp_path):
    touch(tmp_path, "S-1.svs")
    pd.DataFrame({"Slide": ["S-1.svs"], "PID": ["007"], "mpp": [0.2528]}).to_excel(
        tmp_path / "t.xlsx", index=False
    )
    cohort = read_cohort("slides", tmp_path, column_map="slide=Slide,patient_id=PID")
    assert cohort.cases[["case_id", "patient_id", "slide", "mpp"]].iloc[0].tolist() == [
        "S-1",
        "007",
        "S-1.svs",
        0.2528,
    ]


def test_nothing_at_all_is_an_error(tmp_path):
    with pytest.raises(UserError, match="neither a table nor a slide"):
        read_cohort("slides", tmp_path)
