"""Phantom hospitals on disk: the published layouts, the truth beside them, what was planted."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import openpyxl
import pandas as pd
import pytest
from PIL import Image, UnidentifiedImageError

from elsewhere.cohort import read_cohort
from elsewhere.errors import UserError
from elsewhere.phantom.ultrasound import LAYOUTS, Hospital, plan
from elsewhere.phantom.ultrasound_layouts import (
    BREAST_COLUMNS,
    BREAST_TABLE,
    MARK,
    make_phantom_cohort,
    write_hospital,
)

SMALL = {"patients": 14, "scale": 0.4}


def truth_of(folder):
    return pd.read_csv(folder / "truth.csv", keep_default_na=False)


def grey_of(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("L"))


def digests(folder):
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.suffix != ".xlsx"
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    base = tmp_path_factory.mktemp("hospitals")
    return {
        layout: write_hospital(Hospital(layout=layout, patients=30, scale=0.4), base / layout)
        for layout in LAYOUTS
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_picture_has_its_row_of_truth(written, layout):
    truth = truth_of(written[layout])
    assert len(truth) == len(plan(Hospital(layout=layout, patients=30)))
    for row in truth.itertuples():
        assert grey_of(written[layout] / row.file).shape == (row.height, row.width)


def test_busi(written):
    root = written["busi"] / "Dataset_BUSI_with_GT"
    assert sorted(p.name for p in root.iterdir()) == ["benign", "malignant", "normal"]
    for row in truth_of(written["busi"]).itertuples():
        image = written["busi"] / row.file
        masks = [grey_of(p) > 0 for p in sorted(image.parent.glob(f"{image.stem}_mask*.png"))]
        assert (image.parent / f"{image.stem}_mask.png").is_file()
        assert len(masks) == max(row.lesions, 1)
        assert sum(int(m.sum()) for m in masks) == row.area_px
    names = sorted((root / "benign").glob("benign (*).png"))
    assert {p.name for p in names} == {f"benign ({n}).png" for n in range(1, len(names) + 1)}


def test_several_masks_are_numbered_as_published(tmp_path):
    folder = write_hospital(Hospital(layout="busi", patients=90, scale=0.25), tmp_path / "h")
    several = [row for row in truth_of(folder).itertuples() if row.lesions > 1]
    assert several
    for row in several:
        image = folder / row.file
        assert (image.parent / f"{image.stem}_mask_1.png").is_file()


def test_bus_bra(written):
    root = written["bus-bra"] / "BUSBRA"
    table = pd.read_csv(root / "bus_data.csv")
    assert list(table.columns) == [
        "ID", "Case", "Histology", "Pathology", "BIRADS", "Device", "Width", "Height", "Side", "BBOX",
    ]  # fmt: skip
    for row in table.itertuples():
        mask = grey_of(root / "Masks" / f"{row.ID.replace('bus', 'mask')}.png") > 0
        assert (root / "Images" / f"{row.ID}.png").is_file()
        ys, xs = np.nonzero(mask)
        assert json.loads(row.BBOX) == [
            xs.min() + 1, ys.min() + 1, xs.max() - xs.min(), ys.max() - ys.min(),
        ]  # fmt: skip
        assert mask.shape == (row.Height, row.Width)
        assert row.ID.endswith({"left": "-l", "right": "-r", "single": "-s"}[row.Side])
    assert set(table.groupby("Case").size()) == {1, 2}
    assert not table[["Case", "Pathology"]].drop_duplicates()["Case"].duplicated().any()


@pytest.mark.real_data
def test_bus_bra_writes_what_the_real_table_writes(written, data_dir):
    real = data_dir / "ultrasound" / "BUS-BRA" / "BUSBRA" / "bus_data.csv"
    if not real.is_file():
        pytest.skip("no BUS-BRA beside the checkout")
    ours = (written["bus-bra"] / "BUSBRA" / "bus_data.csv").read_text().splitlines()[0]
    assert real.read_text().splitlines()[0].strip() == ours


def test_breast(written):
    book = openpyxl.load_workbook(written["breast"] / BREAST_TABLE)
    assert book.sheetnames == ["BrEaST-Lesions-USG clinical dat", "Data Dictionary"]
    rows = list(book.worksheets[0].iter_rows(values_only=True))
    assert rows[0] == BREAST_COLUMNS
    pictures = written["breast"] / "BrEaST-Lesions_USG-images_and_masks"
    for row in (dict(zip(BREAST_COLUMNS, values, strict=True)) for values in rows[1:]):
        assert (pictures / row["Image_filename"]).is_file()
        assert (row["Classification"] == "normal") == (row["Mask_tumor_filename"] is None)
        for name in filter(
            None, [row["Mask_tumor_filename"], *(row["Mask_other_filename"] or "").split("&")]
        ):
            assert (pictures / name).is_file()


def test_bus_uclm(written):
    root = written["bus-uclm"] / "BUS-UCLM"
    raw = (root / "INFO.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbfImage;Resolution;Label;Doppler;Marks;Combined\n")
    table = pd.read_csv(root / "INFO.csv", sep=";", encoding="utf-8-sig")
    assert set(table["Label"]) == {"Benign", "Malignant", "Normal"}
    colour = {"Benign": (0, 255, 0), "Malignant": (255, 0, 0)}
    for row in table.itertuples():
        with Image.open(root / "masks" / row.Image) as image:
            assert row.Resolution == f"{image.width}x{image.height}"
            found = {tuple(c) for c in np.asarray(image.convert("RGB")).reshape(-1, 3)} - {(0, 0, 0)}
        assert found == ({colour[row.Label]} if row.Label in colour else set())
    patients = table["Image"].str[:4]
    assert patients.nunique() == 30
    assert table["Image"].str.fullmatch(r"[A-Z]{4}_\d{3}\.png").all()


def test_bytes_are_those_of_the_specification(tmp_path):
    hospital = Hospital(layout="bus-uclm", patients=6, scale=0.3)
    one = digests(write_hospital(hospital, tmp_path / "a"))
    assert one == digests(write_hospital(hospital, tmp_path / "b"))
    other = digests(
        write_hospital(Hospital(layout="bus-uclm", patients=6, scale=0.3, seed=8), tmp_path / "c")
    )
    images = [{d for name, d in held.items() if "/images/" in name} for held in (one, other)]
    assert len(images[0]) > 6
    assert not images[0] & images[1]


def test_a_phantom_is_drawn_once_and_a_strangers_folder_is_left_alone(tmp_path):
    spec = {"layout": "breast", "patients": 4, "scale": 0.3}
    folder = make_phantom_cohort(spec, tmp_path / "p")
    stamp = (folder / MARK).stat().st_mtime_ns
    assert (make_phantom_cohort(spec, folder) / MARK).stat().st_mtime_ns == stamp
    make_phantom_cohort(spec | {"seed": 9}, folder)
    assert json.loads((folder / MARK).read_text())["hospital"]["seed"] == 9
    other = tmp_path / "own"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="left alone"):
        make_phantom_cohort(spec, other)
    assert (other / "thesis.txt").read_text() == "mine"


def planted(tmp_path, layout, fault):
    folder = write_hospital(Hospital(layout=layout, plant={fault: 1}, **SMALL), tmp_path / "h")
    row = truth_of(folder).query("planted == @fault").iloc[0]
    return folder, row


def test_planted_duplicates(tmp_path):
    for fault, most in (("duplicate", 0.0), ("duplicate-marked", 12.0), ("duplicate-recoded", 25.0)):
        folder = write_hospital(Hospital(layout="busi", plant={fault: 2}, **SMALL), tmp_path / fault)
        truth = truth_of(folder)
        copies = truth[truth["planted"] == fault]
        assert len(copies) == 2
        for row in copies.itertuples():
            first = truth[truth["file"] == row.copy_of].iloc[0]
            assert first["patient"] != row.patient
            assert first["label"] == row.label
            one, other = grey_of(folder / row.copy_of), grey_of(folder / row.file)
            if fault == "duplicate-recoded":
                assert other.shape[0] < one.shape[0]
                other = np.asarray(Image.fromarray(other).resize(one.shape[::-1]))
            difference = np.abs(one.astype(float) - other).mean()
            assert difference <= most
            assert (difference == 0) == (fault == "duplicate")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_planted_defects_of_files(tmp_path, layout):
    folder, row = planted(tmp_path / "t", layout, "truncated")
    with pytest.raises((OSError, UnidentifiedImageError, SyntaxError)):
        grey_of(folder / row["file"])
    for fault in ("missing-mask", "mask-size"):
        folder, row = planted(tmp_path / fault, layout, fault)
        image = folder / row["file"]
        mask = {
            "busi": image.with_name(f"{image.stem}_mask.png"),
            "bus-bra": image.parent.parent / "Masks" / image.name.replace("bus", "mask"),
            "breast": image.with_name(f"{image.stem}_tumor.png"),
            "bus-uclm": image.parent.parent / "masks" / image.name,
        }[layout]
        assert mask.exists() == (fault == "mask-size")
        if fault == "mask-size":
            assert grey_of(mask).shape != grey_of(image).shape


def test_planted_defects_of_tables(tmp_path):
    folder, row = planted(tmp_path / "a", "bus-bra", "patient-id")
    table = pd.read_csv(folder / "BUSBRA" / "bus_data.csv")
    assert list(table.loc[table["Case"].isna(), "ID"]) == [row["file"].split("/")[-1].removesuffix(".png")]
    folder, row = planted(tmp_path / "b", "bus-uclm", "label")
    table = pd.read_csv(folder / "BUS-UCLM" / "INFO.csv", sep=";", encoding="utf-8-sig")
    assert list(table.loc[table["Label"] == "Other", "Image"]) == [row["file"].split("/")[-1]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_readers_of_the_public_sets_read_them(tmp_path, layout):
    hospital = Hospital(name="Birch", layout=layout, patients=24, scale=0.4)
    cohort = read_cohort(layout, make_phantom_cohort(hospital, tmp_path / "h"))
    truth = truth_of(tmp_path / "h")
    truth["case_id"] = truth["file"].str.split("/").str[-1].str.removesuffix(".png")
    cases = cohort.cases.set_index("case_id").loc[truth["case_id"]]
    assert len(cohort.cases) == len(truth)
    assert list(cases["label"]) == list(truth["label"])
    assert list(cases["width"]) == list(truth["width"])
    for name in ("box_x0", "box_y0", "box_x1", "box_y1"):
        assert [None if pd.isna(v) else int(v) for v in cases[name]] == [
            None if v == "" else int(v) for v in truth[name]
        ]
    if layout != "busi":
        assert (cases["patient_id"].to_numpy()[:, None] == cases["patient_id"].to_numpy()[None]).tolist() == (
            truth["patient"].to_numpy()[:, None] == truth["patient"].to_numpy()[None]
        ).tolist()
    assert all(cohort.file(path).is_file() for path in cases["image"])
