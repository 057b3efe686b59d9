"""PCam: pictures with a table of labels, and the publisher's h5 files."""

from __future__ import annotations

import sys
import types

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import audit, read_cohort
from elsewhere.errors import UserError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for name in ("a1", "b2", "zz"):
        (tmp_path / "images" / f"{name}.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "labels.csv").write_text("id,label\na1,0\nb2,1\nc3,1\n")
    return tmp_path


def test_pictures_and_labels(folder):
    cohort = read_cohort("pcam", folder)
    assert cohort.cases["label"].tolist() == [0, 1, 1]
    assert cohort.cases["image"].tolist()[:2] == ["images/a1.jpg", "images/b2.jpg"]
    assert cohort.id_grades["PCam"].grade == "C" and cohort.counts["tumour_in_the_middle"] == 2
    told = "\n".join(cohort.warnings)
    assert "1 patches have no picture here: c3" in told and "1 pictures have no row in the table: zz" in told
    assert "slides of the patches are not known" in told


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ("id,label\na1,2\n", r"neither 0 nor 1: rows 1 \(2\)"),
        ("id,label\na1,0\na1.tif,1\n", r"share an id: rows 1 \(a1\), 2 \(a1\)"),
        ("name,label\na1,0\n", "no column 'id'"),
    ],
)
def test_mistakes(folder, table, word):
    (folder / "labels.csv").write_text(table)
    with pytest.raises(UserError, match=word):
        read_cohort("pcam", folder)


def test_neither_layout(tmp_path):
    with pytest.raises(UserError, match="neither a table of labels"):
        read_cohort("pcam", tmp_path)


class H5:
    """As much of h5py as the reader uses, on a .npy file."""

    def __init__(self, path, mode):
        self.held = {"y": np.load(path, allow_pickle=False)}

    def __enter__(self):
        return self.held

    def __exit__(self, *_):
        return None


def write_h5(folder, labels, slides=None, split="valid"):
    path = folder / f"camelyonpatch_level_2_split_{split}_y.h5"
    with path.open("wb") as file:
        np.save(file, np.asarray(labels, dtype=np.uint8).reshape(-1, 1, 1, 1))
    if slides is not None:
        pd.DataFrame({"coord_y": 0, "wsi": slides}).to_csv(
            folder / f"camelyonpatch_level_2_split_{split}_meta.csv", index=False
        )


def test_h5_files_with_the_slides_of_their_patches(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=H5))
    slides = ["camelyon16_train_normal_033", "camelyon16_train_tumor_7", "camelyon16_train_tumor_7"]
    write_h5(tmp_path, [0, 1, 1], slides)
    write_h5(tmp_path, [1], None, split="test")
    cohort = read_cohort("pcam", tmp_path)
    cases = cohort.cases.set_index("case_id")
    assert cases.loc["valid_000001", ["patient_id", "split", "label"]].tolist() == [
        "tumor_007",
        "validation",
        1,
    ]
    assert cases.loc["test_000000", "patient_id"] == "test_000000"
    assert "image" not in cases.columns and any("pixels in h5" in word for word in cohort.warnings)
    assert not [finding for finding in audit(cohort) if finding.kind == "leak"]


@pytest.mark.parametrize(
    ("labels", "slides", "word"),
    [([0, 3], None, "neither 0 nor 1"), ([0, 1], ["camelyon16_test_001"], "1 rows for 2 labels")],
)
def test_damaged_h5_files(tmp_path, monkeypatch, labels, slides, word):
    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=H5))
    write_h5(tmp_path, labels, slides)
    with pytest.raises(UserError, match=word):
        read_cohort("pcam", tmp_path)


def test_without_h5py_the_message_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    write_h5(tmp_path, [0, 1])
    with pytest.raises(UserError, match="labels in h5 need h5py") as caught:
        read_cohort("pcam", tmp_path)
    assert caught.value.fix == "pip install h5py"


@pytest.mark.real_data
def test_the_real_patches(data_dir):
    cohort = read_cohort("pcam", data_dir / "lymph-nodes" / "PCam")
    assert cohort.cases["label"].value_counts().to_dict() == {0: 350, 1: 250}
    assert cohort.cases["image"].notna().all()
