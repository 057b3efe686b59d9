"""The four public sets: what stands in them twice (US-30)."""

from __future__ import annotations

import pytest

from elsewhere.cohort import read_cohort
from elsewhere.cohort.duplicates import find_duplicates

pytestmark = [pytest.mark.real_data, pytest.mark.slow]

SETS = {"BUSI": "busi", "BUS-BRA": "bus-bra", "BrEaST": "breast", "BUS-UCLM": "bus-uclm"}


@pytest.fixture(scope="module")
def found(data_dir):
    folder = data_dir / "ultrasound"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return find_duplicates([read_cohort(reader, folder / name) for name, reader in SETS.items()])


def test_pictures_that_are_the_same_file(found):
    exact = found.pairs[found.pairs["kind"] == "exact"]
    assert set(zip(exact["case_a"], exact["case_b"], strict=True)) == {
        ("benign (433)", "malignant (145)"),
        ("CHCO_000", "CHVI_005"),
        ("CHCO_001", "CHVI_008"),
        ("CHCO_002", "CHVI_009"),
        ("CHCO_003", "CHVI_013"),
    }


def test_busi_repeats_itself_and_contradicts_itself(found):
    """Seen by eye on the contact sheets: every listed pair of BUSI is one scene."""
    busi = found.pairs[(found.pairs["dataset_a"] == "BUSI") & (found.pairs["dataset_b"] == "BUSI")]
    assert 200 <= len(busi) <= 280
    conflicts = busi[busi["same_label"] == "no"]
    assert {("benign (399)", "malignant (93)"), ("benign (406)", "malignant (94)")} <= set(
        zip(conflicts["case_a"], conflicts["case_b"], strict=True)
    )
    assert len(conflicts) == 11


def test_no_two_sets_share_a_picture_and_one_uclm_patient_has_two_ids(found):
    assert found.counts()["pairs_across_datasets"] == 0
    across = found.pairs[~found.pairs["same_patient"] & (found.pairs["dataset_a"] != "BUSI")]
    assert set(zip(across["patient_a"], across["patient_b"], strict=True)) == {("CHCO", "CHVI")}
    group = found.groups.set_index("case")["group"]
    assert group["BUS-UCLM/CHCO_000"] == group["BUS-UCLM/CHVI_020"]
