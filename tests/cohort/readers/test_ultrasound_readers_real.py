"""The four real sets: what the files hold, against the publishers' numbers and the study's (US-04)."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.cohort import Cohort, audit, read_cohort

pytestmark = [pytest.mark.real_data, pytest.mark.slow]

SETS = {"BUSI": "busi", "BUS-BRA": "bus-bra", "BrEaST": "breast", "BUS-UCLM": "bus-uclm"}


@pytest.fixture(scope="module")
def cohorts(data_dir) -> dict[str, Cohort]:
    folder = data_dir / "ultrasound"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return {name: read_cohort(reader, folder / name) for name, reader in SETS.items()}


def test_counts_against_the_study(cohorts, reference_dir):
    study = pd.read_csv(reference_dir / "ultrasound_datasets.csv").set_index("dataset")
    ours = pd.DataFrame(
        {
            name: {
                "lesion_images": cohort.counts["lesion_images"],
                "normal_images": cohort.counts["normal_images"],
                "patient_ids": cohort.counts["patients"],
            }
            for name, cohort in cohorts.items()
        }
    ).T
    differ = (ours - study.loc[ours.index]).stack()
    assert differ[differ != 0].to_dict() == {
        ("BUS-BRA", "patient_ids"): 1064 - 1875,
        ("BrEaST", "lesion_images"): 252 - 266,
    }
    assert cohorts["BrEaST"].counts["masks"] + cohorts["BrEaST"].counts["other_masks"] == 266


def test_the_study_counted_pictures_as_patients(data_dir, cohorts):
    cohort = read_cohort("bus-bra", data_dir / "ultrasound" / "BUS-BRA", ids="image")
    assert cohort.counts["patients"] == 1875
    assert cohort.counts["published_ids"] == cohorts["BUS-BRA"].counts["patients"] == 1064
    assert cohort.id_grades["BUS-BRA"].grade == "C"


def test_classes(cohorts):
    found = {
        name: {label: entry["cases"] for label, entry in cohort.counts["classes"].items()}
        for name, cohort in cohorts.items()
    }
    assert found == {
        "BUSI": {"benign": 437, "malignant": 210, "normal": 133},
        "BUS-BRA": {"benign": 1268, "malignant": 607},
        "BrEaST": {"benign": 154, "malignant": 98, "normal": 4},
        "BUS-UCLM": {"benign": 174, "malignant": 90, "normal": 419},
    }


def test_grades(cohorts):
    assert {name: c.id_grades[name].grade for name, c in cohorts.items()} == {
        "BUSI": "C",
        "BUS-BRA": "A",
        "BrEaST": "A",
        "BUS-UCLM": "B",
    }
    assert "CHCO and CHVI" in cohorts["BUS-UCLM"].id_grades["BUS-UCLM"].why


def test_defects_that_were_found(cohorts):
    busi, bra, breast, uclm = (cohorts[name].counts for name in SETS)
    assert (busi["several_masks"], busi["empty_masks"], busi["masks_with_specks"]) == (17, 133, 23)
    assert busi["identical_pictures_with_two_labels"] == 1
    assert (bra["boxes_differ_from_table"], bra["sizes_differ_from_table"]) == (1, 4)
    assert (
        bra["cases_with_two_birads"],
        bra["cases_in_two_of_5_folds"],
        bra["cases_in_two_of_10_folds"],
    ) == (1, 0, 0)
    assert (breast["pictures_with_other_masks"], breast["normals_without_mask"]) == (7, 4)
    assert (uclm["masks_of_other_size"], uclm["lesion_masks_of_other_size"]) == (13, 4)
    assert (uclm["masks_against_label"], uclm["masks_of_unknown_colour"]) == (0, 0)
    assert uclm["mixed_label_patients"] == 5
    assert uclm["identical_pictures_under_two_ids"] == 4
    assert {name: c.counts["lesion_images_with_box"] for name, c in cohorts.items()} == {
        "BUSI": 647,
        "BUS-BRA": 1875,
        "BrEaST": 252,
        "BUS-UCLM": 260,
    }


def test_boxes_by_another_way(cohorts):
    """Every box again, from numpy and the masks' files."""
    for cohort in cohorts.values():
        columns = [c for c in cohort.cases if c == "mask" or (c.startswith("mask_") and c.endswith("_path"))]
        for row in cohort.cases[cohort.cases["box_x0"].notna()].sample(40, random_state=1).to_dict("records"):
            union = np.zeros((row["height"], row["width"]), dtype=bool)
            for column in columns:
                if isinstance(row[column], str):
                    union |= np.asarray(Image.open(cohort.file(row[column])).convert("RGB")).any(axis=2)
            ys, xs = np.nonzero(union)
            assert (row["box_x0"], row["box_y0"], row["box_x1"], row["box_y1"]) == (
                xs.min(), ys.min(), xs.max() + 1, ys.max() + 1,
            )  # fmt: skip


def test_the_audit_of_the_real_sets(cohorts):
    for name, cohort in cohorts.items():
        findings = audit(cohort)
        assert not [f for f in findings if f.severity == "error"], name
        classes = next(f for f in findings if f.kind == "classes")
        assert "as published" in classes.message
        json.dumps([f.to_dict() for f in findings])
