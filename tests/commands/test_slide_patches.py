"""`elsewhere slides patches`: one table of many slides; what is refused, counted and resumed."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from elsewhere.cli import main
from elsewhere.cohort.patch_table import SlideFacts, read_patch_table
from elsewhere.commands.slide_patches import run as slide_patches
from elsewhere.commands.slide_patches.cases import SlideCase, find_cases
from elsewhere.commands.slide_patches.cutting import CutSettings, _Truths, cut_case
from elsewhere.errors import FileSystemError, UserError
from elsewhere.inputs.slides.annotations import Annotations, Outline, write_mask
from elsewhere.inputs.slides.opening import open_slide
from worlds.outline_files import asap_xml, square, write
from worlds.slide_files import APERIO_SECRETS, pyramid, tissue_picture, write_aperio, write_tiff
from worlds.slide_sets import write_slides

pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")


@pytest.fixture(scope="module")
def world(made_once):
    return made_once("slides-to-cut", write_slides)


@pytest.fixture
def copied(world, tmp_path):
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["slides", "patches", *map(str, arguments)])
    out = capsys.readouterr()
    return int(done.value.code or 0), out.out, out.err


def test_a_folder_of_slides_becomes_a_table(world, tmp_path, capsys):
    out = tmp_path / "patches.parquet"
    code, text, _ = run(
        capsys,
        world / "slides",
        "--annotations",
        world / "xml",
        "--without-annotation",
        "normal",
        "--out",
        out,
    )
    assert code == 0
    assert "tumor_001: 1,700 x 1,400 px at 0.5 um, grid of 3 x 2" in text
    assert "annotations: 1 rings that cross or touch themselves" in text
    assert "from the upper left corner of each slide" in text
    assert "patients are not known" in text
    table = read_patch_table(out)
    rows = table.rows
    assert sorted(rows["case_id"].unique()) == ["normal_001", "tumor_001", "tumor_002"]
    assert set(rows.loc[rows["case_id"] == "normal_001", "group"]) == {"NN"}
    assert {"NT", "TT"} >= set(rows.loc[rows["case_id"] == "tumor_001", "group"]) >= {"TT"}
    assert rows.loc[rows["case_id"] == "tumor_002", "x"].max() % 1 != 0
    about = {slide["case_id"]: slide for slide in table.provenance["slides"]}
    assert len(about["tumor_001"]["slide_digest"]) == len(about["tumor_001"]["annotation_digest"]) == 64
    assert about["tumor_002"]["annotation_counts"]["rings that cross themselves"] == 1
    assert table.provenance["settings"]["scale"] == "mpp"
    assert str(world) not in json.dumps(table.provenance)
    assert not out.with_name("patches.parquet.parts").exists()
    code, _, err = run(capsys, world / "slides", "--out", out)
    assert (code, "there is a file of this name already" in err) == (64, True)


def test_the_bytes_depend_on_neither_order_nor_workers(world, tmp_path, capsys):
    slides = sorted((world / "slides").iterdir())
    options = ("--annotations", world / "xml", "--scale", "study", "--tissue", "patch")
    assert run(capsys, *slides, *options, "--out", tmp_path / "a.parquet")[0] == 0
    code, text, _ = run(
        capsys, *reversed(slides), *options, "--out", tmp_path / "b.parquet", "--workers", "2", "--json"
    )
    assert code == 0
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    found = json.loads(text)
    assert found["hash"] == read_patch_table(tmp_path / "a.parquet").hash
    assert found["patches"] == sum(slide["summary"]["patches"] for slide in found["slides"])
    assert found["groups"]["unknown"] > 0
    assert found["peak_memory_bytes"] > 10 << 20
    assert any("tumour is not known in 1 slide," in warning for warning in found["warnings"])


def test_bad_slides_are_listed_and_the_others_are_cut(copied, capsys):
    slides, xml = copied / "slides", copied / "xml"
    (slides / "zip.tif").write_bytes(b"PK\x03\x04 an archive")
    whole = (slides / "tumor_001.tif").read_bytes()
    (slides / "cut.tif").write_bytes(whole[: len(whole) // 2])
    write_tiff(slides / "scale.tif", [tissue_picture(700, 600)], mpp=None)
    shutil.copy(slides / "tumor_001.tif", slides / "another.tif")
    write(xml / "another.xml", asap_xml([(square(50_000, 60_000, 800), "Tumor")]))
    shutil.copy(slides / "tumor_001.tif", slides / "turned.tif")
    write(xml / "turned.xml", asap_xml([(square(100, 1500, 30), "Tumor")]))
    shutil.copy(slides / "tumor_001.tif", slides / "bomb.tif")
    write(xml / "bomb.xml", '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><ASAP_Annotations/>')
    shutil.copy(slides / "tumor_001.tif", slides / "twice.tif")
    for ending in ("xml", "geojson"):
        write(xml / f"twice.{ending}", asap_xml([(square(100, 0, 30), "Tumor")]))
    write(xml / "stray.xml", asap_xml([(square(100, 0, 30), "Tumor")]))
    out = copied / "p.parquet"
    code, text, _ = run(capsys, slides, "--annotations", xml, "--out", out, "--json")
    found = json.loads(text)
    assert code == 5
    reasons = {entry["case_id"]: entry["error"] + str(entry["fix"]) for entry in found["refused"]}
    expected = {
        "zip": "zip archive",
        "cut": "",
        "scale": "does not say how large its pixels are",
        "another": "lie outside of the slide",
        "turned": "when x and y are exchanged",
        "bomb": "declares a document type or an entity",
        "twice": "several annotations have the name",
    }
    assert set(reasons) == set(expected)
    for name, words in expected.items():
        assert words in reasons[name], name
    assert {slide["case_id"] for slide in found["slides"]} == {"tumor_001", "tumor_002", "normal_001"}
    assert any("1 annotations belong to no slide: stray.xml" in warning for warning in found["warnings"])
    assert len(read_patch_table(out).provenance["refused"]) == 7
    assert len(list((copied / "p.parquet.parts").glob("*.parquet"))) == 3
    for name in expected:
        (slides / f"{name}.tif").unlink()
    code, text, _ = run(capsys, slides, "--annotations", xml, "--out", out, "--replace")
    assert code == 0 and not (copied / "p.parquet.parts").exists()


def test_the_only_slide_gives_its_own_error_and_nothing_is_left(tmp_path, capsys):
    (tmp_path / "b.tif").write_bytes(b"PK\x03\x04 an archive")
    code, _, err = run(capsys, tmp_path / "b.tif", "--out", tmp_path / "new/folder/p.parquet")
    assert (code, "zip archive" in err) == (64, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tif"]


def test_a_run_that_was_stopped_resumes(world, tmp_path, monkeypatch, capsys):
    slides = world / "slides"
    assert run(capsys, slides, "--annotations", world / "xml", "--out", tmp_path / "whole.parquet")[0] == 0
    calls = []

    def stopped(case, settings, **more):
        calls.append(case.facts.case_id)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return cut_case(case, settings, **more)

    monkeypatch.setattr(slide_patches, "cut_case", stopped)
    out = tmp_path / "p.parquet"
    assert run(capsys, slides, "--annotations", world / "xml", "--out", out)[0] == 130
    assert not out.exists()
    parts = sorted((tmp_path / "p.parquet.parts").glob("*.parquet"))
    assert len(parts) == 2
    (parts[0].parent / f".elsewhere-{'0' * 16}.partial").write_bytes(b"half")  # of a process that was killed
    parts[0].write_bytes(parts[0].read_bytes()[:-50])  # a part that the disk damaged is made again
    assert run(capsys, slides, "--annotations", world / "xml", "--out", out)[0] == 0
    assert len(calls) == 5
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "p.parquet.parts").exists()


def test_parts_of_other_settings_or_a_changed_annotation_are_not_used(copied, monkeypatch, capsys):
    write_tiff(copied / "slides/zz.tif", [tissue_picture(700, 600)], mpp=None)  # is refused: parts stay
    calls = []
    monkeypatch.setattr(
        slide_patches,
        "cut_case",
        lambda case, *a, **k: (calls.append(case.facts.case_id), cut_case(case, *a, **k))[1],
    )
    base = (copied / "slides", "--annotations", copied / "xml", "--out", copied / "p.parquet", "--replace")
    for more, expected in (((), 4), ((), 1), (("--seed", "7"), 4), (("--threads", "2"), 1)):
        calls.clear()
        assert run(capsys, *base, *more)[0] == 5
        assert len(calls) == expected
    write(copied / "xml/tumor_002.xml", asap_xml([(square(300, 200, 300), "Tumor")]))
    calls.clear()
    run(capsys, *base)
    assert sorted(calls) == ["tumor_002", "zz"]


def test_two_runs_at_one_table(world, tmp_path, capsys):
    parts = tmp_path / "p.parquet.parts"
    parts.mkdir()
    lock = slide_patches.FileLock(parts / "lock")
    assert lock.acquire()
    code, _, err = run(capsys, world / "slides", "--out", tmp_path / "p.parquet")
    assert (code, "another command is cutting slides into this table" in err) == (64, True)
    lock.release()


def test_a_full_disk_ends_the_run_and_a_fault_of_ours_does_not(world, tmp_path, monkeypatch, capsys):
    def broken(case, settings, **more):
        if case.facts.case_id == "normal_001":
            raise ZeroDivisionError("by zero")
        return cut_case(case, settings, **more)

    monkeypatch.setattr(slide_patches, "cut_case", broken)
    out = tmp_path / "p.parquet"
    code, text, _ = run(capsys, world / "slides", "--annotations", world / "xml", "--out", out)
    assert code == 5
    assert "normal_001: not cut: a fault of Elsewhere: ZeroDivisionError: by zero" in text

    def full(*_, **__):
        raise FileSystemError(
            "the file cannot be written (No space left on device)", where="x", fix="Free some space."
        )

    monkeypatch.setattr(slide_patches, "write_patch_table", full)
    code, _, err = run(capsys, world / "slides", "--out", tmp_path / "q.parquet")
    assert (code, "No space left" in err) == (74, True)
    assert not (tmp_path / "q.parquet").exists()


def cohort_table(world, path, **columns):
    frame = pd.DataFrame(
        {
            "case_id": ["s1", "s2", "s3", "s4"],
            "patient_id": ["p1", "p1", "p2", "p3"],
            "dataset": "C17",
            "site": ["RUMC", "RUMC", "UMCU", "UMCU"],
            "domain": ["ID", "ID", "OOD", "OOD"],
            "stage": ["macro", "micro", "negative", "macro"],
            "slide": [str(world / f"slides/{name}.tif") for name in ("tumor_001", "tumor_002", "normal_001")]
            + [None],
            "annotation": [str(world / "xml/Tumor_001.xml"), None, None, None],
        }
    )
    frame.assign(**columns).to_csv(path, index=False)
    return path


def test_a_cohort_brings_stage_site_domain_and_microns(world, tmp_path, capsys):
    table = cohort_table(world, tmp_path / "c.csv", mpp=[0.26, None, "a lot", None])
    code, text, _ = run(capsys, table, "--out", tmp_path / "p.parquet", "--json")
    found = json.loads(text)
    assert code == 5
    assert [
        (entry["case_id"], "'a lot' microns per pixel" in entry["error"]) for entry in found["refused"]
    ] == [("s3", True)]
    assert any("1 cases name no slide: s4" in warning for warning in found["warnings"])
    slides = {slide["case_id"]: slide for slide in found["slides"]}
    assert slides["s1"]["slide_mpp"] == 0.26
    assert slides["s2"]["truth"] == "unknown"
    assert any("stage is micro and there is no annotation" in warning for warning in slides["s2"]["warnings"])
    rows = read_patch_table(tmp_path / "p.parquet").rows
    first = rows[rows["case_id"] == "s1"].iloc[0]
    assert (first["patient_id"], first["dataset"], first["site"], first["domain"], first["stage"]) == (
        "p1", "C17", "RUMC", "ID", "macro",
    )  # fmt: skip
    assert rows.loc[rows["case_id"] == "s2", "group"].isna().all()


def test_stage_and_annotation_that_contradict_each_other(world, tmp_path, capsys):
    empty = write(tmp_path / "empty.xml", asap_xml([]))
    xml = str(world / "xml/Tumor_001.xml")
    table = cohort_table(
        world,
        tmp_path / "c.csv",
        stage=["negative", "itc", "negative", "macro"],
        annotation=[xml, str(empty), str(empty), None],
    )
    run(capsys, table, "--out", tmp_path / "p.parquet")
    table = read_patch_table(tmp_path / "p.parquet")
    slides = {slide["case_id"]: slide for slide in table.provenance["slides"]}
    assert any(
        "stage is negative and the annotation holds tumour" in word for word in slides["s1"]["warnings"]
    )
    assert slides["s1"]["summary"]["groups"]["TT"] > 0
    assert any("stage is itc and the annotation holds no tumour" in word for word in slides["s2"]["warnings"])
    assert slides["s2"]["truth"] == "unknown"
    assert set(table.rows.loc[table.rows["case_id"] == "s3", "group"]) == {"NN"}


def test_a_mask_gives_the_rows_of_its_outlines(world, tmp_path, capsys):
    made = Annotations((Outline(square(300, 200, 800)),), (Outline(square(500, 400, 100)),))
    (tmp_path / "masks").mkdir()
    write_mask(tmp_path / "masks/tumor_001_mask.tif", made, size_px=(1700, 1400), mpp=0.25)
    slide = world / "slides/tumor_001.tif"
    assert run(capsys, slide, "--annotations", tmp_path / "masks", "--out", tmp_path / "m.parquet")[0] == 0
    assert (
        run(capsys, slide, "--annotations", world / "xml/Tumor_001.xml", "--out", tmp_path / "x.parquet")[0]
        == 0
    )
    by_mask, by_xml = (read_patch_table(tmp_path / f"{name}.parquet").rows for name in "mx")
    pd.testing.assert_frame_equal(by_mask, by_xml, atol=1e-6)


def test_outlines_alone(world, tmp_path, capsys):
    out = tmp_path / "p.parquet"
    write(tmp_path / "Normal_1.json", {"positive": [], "negative": []})
    given = (world / "xml", tmp_path / "Normal_1.json", "--outlines-only", "--scale", "study")
    code, text, _ = run(capsys, *given, "--mpp", "0.243", "--out", out)
    assert code == 0
    assert "1 annotation file holds no outlines" in text
    rows = read_patch_table(out).rows
    assert set(rows["group"]) == {"TT"} and rows["tissue"].isna().all()
    with_slides = tmp_path / "s.parquet"
    run(capsys, world / "slides", "--annotations", world / "xml", "--scale", "study", "--out", with_slides)
    whole = read_patch_table(with_slides).rows
    whole = whole[(whole["case_id"] == "tumor_001") & (whole["tumour"] > 0)]
    inside = rows[(rows["case_id"] == "Tumor_001") & (rows["i"] < 3) & (rows["j"] < 2)]
    assert inside["tumour"].tolist() == whole["tumour"].tolist()
    code, text, _ = run(capsys, *given, "--out", tmp_path / "q.parquet")
    assert code == 5
    assert "microns per pixel of the slide are not known" in text
    assert "nothing was written" in text


def test_one_slide_under_two_names_is_noticed(copied, capsys):
    shutil.copy(copied / "slides/tumor_001.tif", copied / "slides/test_049.tif")
    _, text, _ = run(capsys, copied / "slides", "--out", copied / "p.parquet")
    assert "the same pixels under several names: test_049, tumor_001" in text


def test_annotations_that_lie_on_glass_are_doubted(tmp_path, capsys):
    picture = tissue_picture(1600, 1200)
    picture[:, :1100] = 243
    write_tiff(tmp_path / "a.tif", pyramid(picture, 2), mpp=0.25)
    write(tmp_path / "a.xml", asap_xml([(square(100, 100, 700), "Tumor")]))
    _, text, _ = run(
        capsys, tmp_path / "a.tif", "--annotations", tmp_path / "a.xml", "--out", tmp_path / "p.parquet"
    )
    assert (
        "4 of 4 tumour patches hold under 10 % tissue: the annotation may belong to another slide or level"
        in text
    )


def test_a_slide_of_glass_alone_has_no_patches_and_says_so(tmp_path, capsys):
    write_tiff(tmp_path / "a.tif", [np.full((800, 900, 3), 255, np.uint8)], mpp=0.5)
    code, text, _ = run(capsys, tmp_path / "a.tif", "--out", tmp_path / "p.parquet")
    assert code == 0
    assert "no patch has 10 % tissue or any tumour" in text
    assert len(read_patch_table(tmp_path / "p.parquet").rows) == 0


def test_annotations_that_count_from_the_scanned_part(world):
    """MIRAX and some DICOM slides: the file's pixels begin before the scanned part."""
    with open_slide(world / "slides/tumor_001.tif") as slide:
        facts = SimpleNamespace(bounds_px=(200, 100, 1500, 1300))
        scanned = SimpleNamespace(facts=facts, size_px=slide.size_px)
        case = SlideCase(
            facts=SlideFacts(dataset="d", patient_id="p", case_id="c"), annotation=world / "xml/Tumor_001.xml"
        )
        from elsewhere.inputs.slides.grid import lay_grid

        grid = lay_grid(slide)
        whole = _Truths(case, CutSettings(), slide).measure(grid)[0]
        moved = _Truths(case, CutSettings(origin="scanned"), scanned).measure(grid)[0]
    assert whole.sum() != moved.sum() or (whole != moved).any()
    assert moved[0, 0] == pytest.approx(12 * 212 / 512**2, abs=0.001)  # 500..512 by 300..512


def test_what_an_svs_says_of_people_reaches_no_output(tmp_path, capsys):
    write_aperio(tmp_path / "a.svs", tissue_picture(1300, 1100))
    code, text, err = run(capsys, tmp_path / "a.svs", "--out", tmp_path / "p.parquet", "--json")
    assert code == 0
    content = (tmp_path / "p.parquet").read_bytes().decode("latin-1") + text + err
    assert not any(secret in content for secret in APERIO_SECRETS)


def test_what_is_named_wrongly(world, tmp_path, capsys):
    out = ("--out", tmp_path / "p.parquet")
    for arguments, words in (
        ((tmp_path, *out), "there is no slide here"),
        ((world / "slides", "--out", tmp_path / "p.csv"), "a patch table is a parquet file"),
        ((world / "slides", *out, "--scale", "studi"), "Did you mean study?"),
        ((world / "slides", *out, "--origin", "top"), "unknown origin of annotations"),
        ((world / "slides", *out, "--without-annotation", "x"), "unknown kind of slides"),
        ((world / "slides", *out, "--annotations", tmp_path), "no annotations in this folder"),
        ((world / "slides", *out, "--annotations", world / "xml/tumor_002.xml"), "one annotation file is given and 3 slides"),
        ((world / "slides/tumor_001.tif", *out, "--annotations", tmp_path / "no.xml"), "no such annotation file"),
        ((world / "slides", world / "slides/../slides/tumor_001.tif", *out), "two files have the name"),
    ):  # fmt: skip
        code, _, err = run(capsys, *arguments)
        assert code == 64, words
        assert words in err
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="no slide was named"):
        find_cases([])


def test_an_umlaut_is_the_same_whichever_way_the_disk_stores_it(tmp_path):
    """Some disks store an umlaut as one sign and others as two; a linked folder counts."""
    from elsewhere.commands.slide_patches.cases import find_cases

    for folder, name in (("slides", "Pr\u00fcfung 1.svs"), ("elsewhere", "Pru\u0308fung 1.xml")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).touch()
    (tmp_path / "xml").mkdir()
    (tmp_path / "xml" / "linked").symlink_to(tmp_path / "elsewhere")
    (case,) = find_cases([tmp_path / "slides"], annotations=tmp_path / "xml").cases
    assert case.annotation == tmp_path / "xml" / "linked" / "Pru\u0308fung 1.xml"
