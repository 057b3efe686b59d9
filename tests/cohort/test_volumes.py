"""The audit of DICOM reality: each planted fault is named, with its rows, and an honest volume has none."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pydicom", reason="needs the extra 'volumes'")
pytest.importorskip("imagecodecs", reason="needs the extra 'volumes'")

from elsewhere.cohort import Cohort
from elsewhere.cohort.volumes import COLUMNS, audit_volumes
from elsewhere.errors import UserError
from worlds.tomosynthesis_files import Bto, breast, write_bto

LEFT, RIGHT = breast(slices=10), breast(slices=10, side="right", seed=5)
LESION = {"x": 10.0, "y": 40.0, "width": 12.0, "height": 10.0, "slice": 4, "volume_slices": 10}


def audited(folder: Path, files: dict[str, tuple], lesions: dict[str, dict] | None = None, **more):
    """One volume per view name; `files` holds pixels and how they are written."""
    for name, (pixels, how) in files.items():
        write_bto(folder / f"{name}.dcm", pixels, how)
    frame = pd.DataFrame(
        {
            "case_id": list(files),
            "patient_id": [f"P{at}" for at in range(len(files))],
            "view": [name.split("-")[0] for name in files],
            "image": [f"{name}.dcm" for name in files],
        }
    ).assign(**more)
    table = None
    if lesions:
        table = pd.DataFrame([{"case_id": case, **LESION, **row} for case, row in lesions.items()])
    return audit_volumes(Cohort.from_frame(frame, lesions=table, root=folder))


def kinds(audit) -> dict[str, tuple[int, ...]]:
    return {finding.kind: finding.rows for finding in audit.findings}


def test_an_honest_volume_has_no_fault(tmp_path):
    files = {"lcc": (LEFT, Bto(syntax="jpeg-ls")), "rcc": (RIGHT, Bto(laterality="R", syntax="jpeg-2000"))}
    found = audited(tmp_path, files, {"lcc": {}})
    assert list(kinds(found)) == ["volumes"]
    assert "2 of 2 cases have a volume, 2 can be read (1 JPEG-LS, 1 JPEG 2000; 10 to 10 slices)" in (
        found.findings[0].message
    )
    assert list(found.columns) == list(COLUMNS) and len(found.columns) == 2
    row = found.columns.iloc[0]
    assert (row["slices"], row["side_by_pixels"], row["turned"], row["bits_stored"]) == (10, "left", 0, 10)


@pytest.mark.parametrize("tag", ["L", "R"])
@pytest.mark.parametrize("pixels", ["left", "right"])
@pytest.mark.parametrize("name", ["left", "right"])
def test_the_side_by_tag_pixels_and_name(tmp_path, tag, pixels, name):
    found = kinds(
        audited(tmp_path, {f"{name[0]}cc": (LEFT if pixels == "left" else RIGHT, Bto(laterality=tag))})
    )
    side = {"L": "left", "R": "right"}[tag]
    assert ("side-tag-against-pixels" in found) == (side != pixels)
    assert ("side-tag-against-name" in found) == (side != name)
    assert ("side-name-against-pixels" in found) == (name != pixels)


@pytest.mark.parametrize(
    ("kind", "pixels", "how", "lesion"),
    [
        ("side-unknown", np.maximum(LEFT, LEFT[:, :, ::-1]), Bto(), None),
        ("implant", LEFT, Bto(tags={"BreastImplantPresent": "YES"}), None),
        ("frames-unlike-table", LEFT, Bto(), {"volume_slices": 12}),
        ("frames-reordered", LEFT, Bto(stack=list(range(10, 0, -1))), None),
        ("few-slices", LEFT[:2], Bto(), None),
        ("bits-beyond-stored", LEFT * 4, Bto(windows=[(2000, 3000)]), None),
        ("window-missing", LEFT, Bto(windows=()), None),
        ("window-missing", LEFT, Bto(windows=[(512, 0)]), None),
        ("window-implausible", LEFT, Bto(windows=[(40000, 20000)]), None),
        ("several-windows", LEFT, Bto(windows=[(512, 600), (400, 500)]), None),
        ("inverted", 1023 - LEFT, Bto(tags={"PhotometricInterpretation": "MONOCHROME1"}), None),
        ("lossy", LEFT, Bto(tags={"LossyImageCompression": "01"}), None),
        ("box-beyond-volume", LEFT, Bto(), {"slice": 10}),
        ("box-beyond-volume", LEFT, Bto(), {"x": 70.0}),
        ("box-beyond-volume", LEFT, Bto(), {"width": 0.0}),
        ("box-on-background", LEFT, Bto(), {"x": 50.0, "y": 2.0, "width": 8.0, "height": 8.0}),
    ],
)
def test_each_fault_is_named(tmp_path, kind, pixels, how, lesion):
    found = audited(
        tmp_path, {"lcc": (np.ascontiguousarray(pixels), how)}, {"lcc": lesion} if lesion else None
    )
    assert kinds(found).get(kind) == (1,), found.findings
    assert set(kinds(found)) == {kind, "volumes"}


def test_a_turned_volume_is_compared_with_its_boxes_after_repair(tmp_path):
    """The published boxes live in repaired coordinates: on the turned pixels this one would lie on the background."""
    turned = np.ascontiguousarray(LEFT[:, ::-1, ::-1])
    assert turned[4, 40:50, 10:22].max() == 0
    found = kinds(audited(tmp_path, {"lcc": (turned, Bto(laterality="R"))}, {"lcc": {}}))
    assert "box-on-background" not in found and "side-name-against-pixels" in found


def test_volumes_that_cannot_be_read_are_named_with_the_others(tmp_path):
    files = {
        "lcc": (LEFT, Bto()),
        "rcc": (RIGHT, Bto(laterality="R", syntax="rle")),
        "lmlo": (LEFT[:9], Bto()),
    }
    for name, (pixels, how) in files.items():
        write_bto(tmp_path / f"{name}.dcm", pixels, how)
    frame = pd.DataFrame(
        {
            "case_id": ["lcc", "rcc", "lmlo", "none", "missing"],
            "patient_id": list("abcde"),
            "view": ["lcc", "rcc", "lmlo", "lcc", "lcc"],
            "image": ["lcc.dcm", "rcc.dcm", "lmlo.dcm", None, "missing.dcm"],
        }
    )
    (tmp_path / "rcc.dcm").write_bytes((tmp_path / "rcc.dcm").read_bytes()[:-3000])
    seen = []
    found = audit_volumes(Cohort.from_frame(frame, root=tmp_path), progress=lambda *step: seen.append(step))
    first = found.findings[0]
    assert (first.kind, first.severity, first.rows) == ("volume-unreadable", "error", (2, 5))
    assert "the file ends in frame" in first.message
    assert found.columns["slices"].tolist()[0] == 10 and found.columns["slices"].isna().tolist()[1]
    assert seen[-1] == ("looking at volumes", 4, 4)


@pytest.mark.parametrize(
    ("patients", "kind", "severity"),
    [("ab", "same-pixels-two-patients", "error"), ("aa", "same-pixels", "warning")],
)
def test_the_same_pixels_twice(tmp_path, patients, kind, severity):
    files = {
        "lcc": (LEFT, Bto(syntax="rle")),
        "lcc-2": (LEFT, Bto(syntax="jpeg-2000")),
        "lmlo": (breast(slices=10, seed=8), Bto()),
    }
    found = audited(tmp_path, files, patient_id=[*patients, "c"])
    (same,) = (finding for finding in found.findings if finding.kind.startswith("same"))
    assert (same.kind, same.severity, same.rows) == (kind, severity, (1, 2))


def test_without_pydicom_the_extra_is_named_once(tmp_path, monkeypatch):
    frame = pd.DataFrame({"case_id": ["a"], "patient_id": ["p"], "image": ["a.dcm"]})
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(UserError, match=r"elsewhere\[volumes\]"):
        audit_volumes(Cohort.from_frame(frame, root=tmp_path))


def test_a_cohort_without_volumes_has_nothing_to_say(tmp_path):
    frame = pd.DataFrame({"case_id": ["a"], "patient_id": ["p"], "image": ["a.webp"]})
    assert audit_volumes(Cohort.from_frame(frame, root=tmp_path)).findings == ()
