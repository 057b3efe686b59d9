"""Tiny folders in the published layouts of the four ultrasound sets, for the tests of their readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

WIDTH, HEIGHT = 40, 30
GREEN, RED, BLUE = (0, 255, 0), (255, 0, 0), (0, 0, 255)


def save_picture(path: Path, seed: int = 0, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0]), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def save_mask(
    path: Path,
    box: tuple[int, int, int, int] | None = (5, 6, 15, 16),
    *,
    colour: tuple[int, int, int] | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB" if colour else "L", size)
    if box:
        image.paste(colour or 255, box)
    image.save(path)
    return path


def busi(root: Path, ending: str = "png") -> Path:
    """benign (1) with two masks, benign (2), malignant (1), normal (1); returns the class folders' parent."""
    top = root / "Dataset_BUSI_with_GT"
    for at, name in enumerate(("benign (1)", "benign (2)", "malignant (1)", "normal (1)")):
        folder = top / name.split()[0]
        save_picture(folder / f"{name}.{ending}", at)
        save_mask(folder / f"{name}_mask.png", None if name.startswith("normal") else (5, 6, 15, 16))
    save_mask(top / "benign" / "benign (1)_mask_1.png", (20, 2, 30, 9))
    return top


def bra_table() -> list[dict[str, Any]]:
    """Two cases of two views, one of a single view; BBOX as published: from 1, and a distance."""
    rows = []
    for case, side, label in ((1, "l", "benign"), (1, "r", "benign"), (2, "l", "malignant"), (2, "r", "malignant"), (3, "s", "benign")):  # fmt: skip
        rows.append(
            {
                "ID": f"bus_{case:04d}-{side}",
                "Case": str(case),
                "Histology": "fibroadenoma" if label == "benign" else "invasive ductal carcinoma",
                "Pathology": label,
                "BIRADS": "4",
                "Device": "GE Logiq 7 @10-14MHz",
                "Width": str(WIDTH),
                "Height": str(HEIGHT),
                "Side": {"l": "left", "r": "right", "s": "single"}[side],
                "BBOX": "[6,7,9,9]",
            }
        )
    return rows


def bus_bra(root: Path, rows: list[dict[str, Any]] | None = None, ending: str = "png") -> Path:
    top = root / "BUSBRA"
    for at, row in enumerate(bra_table()):
        save_picture(top / "Images" / f"{row['ID']}.{ending}", at)
        save_mask(top / "Masks" / f"{row['ID'].replace('bus', 'mask')}.png")
    pd.DataFrame(rows or bra_table()).to_csv(top / "bus_data.csv", index=False)
    return top


def uclm_table() -> list[dict[str, str]]:
    names = (
        ("AAAA_000", "Benign"),
        ("AAAA_001", "Normal"),
        ("BBBB_000", "Benign"),
        ("BBBB_001", "Malignant"),
    )
    return [
        {"Image": f"{name}.png", "Resolution": f"{WIDTH}x{HEIGHT}", "Label": label, "Doppler": "No", "Marks": "No", "Combined": "No"}
        for name, label in names
    ]  # fmt: skip


def bus_uclm(root: Path, rows: list[dict[str, str]] | None = None, ending: str = "png") -> Path:
    top = root / "BUS-UCLM"
    for at, row in enumerate(uclm_table()):
        stem = row["Image"].removesuffix(".png")
        save_picture(top / "images" / f"{stem}.{ending}", at)
        colour = {"Benign": GREEN, "Malignant": RED, "Normal": GREEN}[row["Label"]]
        save_mask(
            top / "masks" / f"{stem}.png", None if row["Label"] == "Normal" else (5, 6, 15, 16), colour=colour
        )
    pd.DataFrame(rows or uclm_table()).to_csv(top / "INFO.csv", sep=";", index=False, encoding="utf-8-sig")
    return top


def breast_table() -> list[dict[str, str | None]]:
    rows: list[dict[str, str | None]] = []
    for number, label, others in ((1, "benign", 0), (2, "malignant", 2), (3, "normal", 0)):
        stem = f"case{number:03d}"
        rows.append(
            {
                "CaseID": str(number),
                "Image_filename": f"{stem}.png",
                "Mask_tumor_filename": None if label == "normal" else f"{stem}_tumor.png",
                "Mask_other_filename": "&".join(f"{stem}_other{at + 1}.png" for at in range(others)) or None,
                "Pixel_size": "0.0078125",
                "Age": "not available" if number == 1 else "57",
                "BIRADS": "1" if label == "normal" else "4b",
                "Classification": label,
            }
        )
    return rows


def breast(root: Path, rows: list[dict[str, str | None]] | None = None, ending: str = "png") -> Path:
    folder = root / "BrEaST-Lesions_USG-images_and_masks"
    for at, row in enumerate(breast_table()):
        save_picture(folder / f"{str(row['Image_filename']).removesuffix('.png')}.{ending}", at)
        if row["Mask_tumor_filename"]:
            save_mask(folder / str(row["Mask_tumor_filename"]))
        for name in str(row["Mask_other_filename"] or "").split("&"):
            if name:
                save_mask(folder / name, (30, 20, 38, 28))
    table = root / "BrEaST-Lesions-USG-clinical-data-Dec-15-2023.xlsx"
    pd.DataFrame(rows or breast_table()).to_excel(table, index=False)
    return root
