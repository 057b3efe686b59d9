"""Tomosynthesis phantoms on disk: the published files and tables, and the faults that an audit has to find."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.files import MARKER
from elsewhere.phantom.tomosynthesis import draw
from elsewhere.phantom.tomosynthesis_dicom import BTO, SYNTAXES, check_libraries, write_dicom
from elsewhere.phantom.tomosynthesis_layout import MARK, make_phantom_world, write_world
from elsewhere.phantom.tomosynthesis_patients import World, world_from
from elsewhere.phantom.tomosynthesis_tables import FILE_NAMES, MANIFESTS, Faults, paths_of, stated, tables_of

pydicom = pytest.importorskip("pydicom")
imagecodecs = pytest.importorskip("imagecodecs")
WORLD = World(patients=7, seed=2)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_world(WORLD, tmp_path_factory.mktemp("dbt") / "world", faults=True)


@pytest.fixture(scope="module")
def planted(written):
    return json.loads((written / "planted.json").read_text())


def file_of(folder, case):
    return folder / MANIFESTS[case.patient.split] / paths_of(case)[0]


def case_id(case):
    return f"{case.patient.study_id}/{case.view}"


def digests(folder):
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != MARKER
    }


def frames(path):
    data = pydicom.dcmread(path)
    parts = pydicom.encaps.generate_frames(data.PixelData, number_of_frames=data.NumberOfFrames)
    return data, [imagecodecs.jpegls_decode(part) for part in parts]


def test_the_nine_tables_have_the_published_names_and_columns(written):
    assert sorted(p.name for p in written.glob("BCS-DBT-*.csv")) == sorted(FILE_NAMES.values())
    for (content, _), name in FILE_NAMES.items():
        columns = list(pd.read_csv(written / name).columns)
        assert columns[:3] == ["PatientID", "StudyUID", "View"]
        assert (
            columns[3:]
            == {
                "labels": ["Normal", "Actionable", "Benign", "Cancer"],
                "boxes": ["Subject", "Slice", "X", "Y", "Width", "Height", "Class", "AD", "VolumeSlices"],
                "file-paths": ["descriptive_path", "classic_path"],
            }[content]
        )


def test_rows_and_files_belong_together(written):
    patients = {}
    for split, manifest in MANIFESTS.items():
        labels, boxes, paths = (
            pd.read_csv(written / FILE_NAMES[content, split]) for content in ("labels", "boxes", "file-paths")
        )
        assert len(labels) == len(paths)
        assert all((written / manifest / path).is_file() for path in paths["descriptive_path"])
        assert paths["classic_path"].is_unique and paths["descriptive_path"].is_unique
        keys = set(zip(labels["StudyUID"], labels["View"], strict=True))
        assert set(zip(boxes["StudyUID"], boxes["View"], strict=True)) <= keys
        positive = labels[(labels["Benign"] + labels["Cancer"]) > 0]
        assert set(zip(positive["StudyUID"], positive["View"], strict=True)) == set(
            zip(boxes["StudyUID"], boxes["View"], strict=True)
        )
        patients[split] = set(labels["PatientID"])
    assert not patients["train"] & patients["test"] and not patients["train"] & patients["validation"]
    assert sum(len(p) for p in patients.values()) == 14


def test_files_hold_what_was_drawn(written, planted):
    for case in WORLD.cases()[::5]:
        data, planes = frames(file_of(written, case))
        phantom = draw(case)
        turned = case_id(case) in planted["faults"]["turned"]
        assert len(planes) == phantom.shape[0] == data.NumberOfFrames
        for z, plane in enumerate(planes):
            want = phantom.slice(z)
            assert np.array_equal(plane, want[::-1, ::-1] if turned else want)


def test_the_header_has_what_published_ones_have(written):
    for case in WORLD.cases()[::6]:
        data = pydicom.dcmread(file_of(written, case), stop_before_pixels=True)
        assert data.SOPClassUID == data.file_meta.MediaStorageSOPClassUID == BTO
        assert (data.BitsAllocated, data.BitsStored, data.HighBit) == (
            16,
            case.vendor.bits,
            case.vendor.bits - 1,
        )
        shared = data.SharedFunctionalGroupsSequence[0]
        window = shared.FrameVOILUTSequence[0]
        assert (float(window.WindowCenter), float(window.WindowWidth)) == case.vendor.window
        assert "PixelSpacing" not in data and "PixelMeasuresSequence" not in shared
        assert len(data.PerFrameFunctionalGroupsSequence) == data.NumberOfFrames
        assert data.PatientID == case.patient.patient_id
        assert paths_of(case)[1].split("/")[-2] == data.SeriesInstanceUID


def test_vendor_a_tags_every_series_as_left(written, planted):
    wrong = set(planted["faults"]["wrong_tags"])
    for case in WORLD.cases():
        data = pydicom.dcmread(file_of(written, case), stop_before_pixels=True)
        tag = data.SharedFunctionalGroupsSequence[0].FrameAnatomySequence[0].FrameLaterality
        side = case.view[0].upper()
        if case.patient.vendor == "A":
            assert tag == "L"
        else:
            assert (tag != side) == (case_id(case) in wrong)
    assert wrong and set(planted["faults"]["left_tags_as_published"]).isdisjoint(wrong)


def test_planted_faults_are_in_the_files_and_listed(written, planted):
    faults = planted["faults"]
    cases = {case_id(case): case for case in WORLD.cases()}
    for name in faults["turned"]:
        _, planes = frames(file_of(written, cases[name]))
        middle = planes[len(planes) // 2]
        assert (middle[:, 0].sum() > middle[:, -1].sum()) != cases[name].view.startswith("l")
    boxes = pd.concat([pd.read_csv(written / FILE_NAMES["boxes", split]) for split in MANIFESTS])
    boxes["case_id"] = boxes["StudyUID"] + "/" + boxes["View"]
    on_air = []
    for row in boxes.drop_duplicates("case_id").itertuples():
        phantom = draw(cases[row.case_id])
        part = phantom.slice(row.Slice)[row.Y : row.Y + row.Height, row.X : row.X + row.Width]
        assert part.size
        if not part.any():
            on_air.append(row.case_id)
    assert on_air == faults["box_on_background"] and len(on_air) == 1
    counts = boxes.set_index("case_id")["VolumeSlices"].to_dict()
    wrong = [name for name, stated_slices in counts.items() if stated_slices != draw(cases[name]).shape[0]]
    assert wrong == [fault["case_id"] for fault in faults["wrong_frame_count"]] and len(wrong) == 1


def test_without_faults_nothing_is_wrong_but_the_tags_of_vendor_a(tmp_path):
    folder = write_world(World(patients=3, seed=2), tmp_path / "w")
    faults = json.loads((folder / "planted.json").read_text())["faults"]
    assert faults.pop("left_tags_as_published")
    assert not any(faults.values())


def test_processes_and_repetition_change_no_byte(tmp_path):
    world = World(patients=2, seed=4)
    one = write_world(world, tmp_path / "one", faults=True)
    two = write_world(world, tmp_path / "two", faults=True, workers=2)
    assert digests(one) == digests(two)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_every_encoding_gives_back_the_same_pixels(syntax, tmp_path):
    case = World(patients=1, vendors=("B",), seed=1).cases()[1]
    phantom = draw(case)
    path = tmp_path / "1-1.dcm"
    write_dicom(phantom, stated(phantom, Faults(turned=(case.case_name,))), path, syntax)
    data = pydicom.dcmread(path)
    assert data.file_meta.TransferSyntaxUID == SYNTAXES[syntax]
    if syntax == "jpeg-lossless":
        parts = pydicom.encaps.generate_frames(data.PixelData, number_of_frames=data.NumberOfFrames)
        found = np.stack([imagecodecs.jpeg8_decode(part) for part in parts])
    else:
        found = data.pixel_array
    assert np.array_equal(found, phantom.volume()[:, ::-1, ::-1])


def test_a_missing_library_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    with pytest.raises(UserError) as error:
        check_libraries("jpeg-ls")
    assert "imagecodecs" in str(error.value) and "elsewhere[volumes]" in str(error.value)
    check_libraries("raw")
    with pytest.raises(UserError) as error:
        check_libraries("jpg")
    assert "transfer syntax" in str(error.value)


def test_a_world_is_made_once_and_only_over_its_own(tmp_path):
    spec = {"layout": "bcs-dbt", "vendors": ["B"], "patients": 1, "syntax": "raw"}
    folder = make_phantom_world(spec, tmp_path / "w")
    before = (folder / MARK).stat().st_mtime_ns
    assert (make_phantom_world(spec, tmp_path / "w") / MARK).stat().st_mtime_ns == before
    make_phantom_world({**spec, "seed": 8}, tmp_path / "w")
    assert (folder / MARK).stat().st_mtime_ns != before
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("keep")
    with pytest.raises(UserError):
        make_phantom_world(spec, other)
    assert (other / "thesis.txt").read_text() == "keep"


def test_nothing_is_left_of_a_world_that_failed(tmp_path):
    def stop(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_world(World(patients=1, vendors=("A",)), tmp_path / "w", progress=stop)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "told"),
    [({"patiens": 3}, "patients"), ({"patients": "many"}, "specification"), ({"vendors": ["C"]}, "vendor")],
)
def test_mistakes_in_a_study_file_are_named(words, told):
    with pytest.raises(UserError) as error:
        world_from({"layout": "bcs-dbt", **words}, where="study.toml, cohort 1")
    assert told in str(error.value)


def test_a_split_without_volumes_has_no_tables_and_one_without_lesions_has_no_boxes():
    world = World(patients=1, vendors=("A",), mix=(1.0, 0.0, 0.0, 0.0))
    tables = tables_of([stated(draw(case), Faults()) for case in world.cases()])
    assert set(tables) == {FILE_NAMES[content, "validation"] for content in ("labels", "boxes", "file-paths")}
    assert (
        len(tables[FILE_NAMES["boxes", "validation"]]) == 0
        and len(tables[FILE_NAMES["labels", "validation"]]) == 2
    )
