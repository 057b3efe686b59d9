"""CAMELYON17: centres by name, scanner, domain by who trained, and the 50 slides that are outlined (LN-01)."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.cohort import audit, read_cohort
from elsewhere.cohort.readers.camelyon17 import OUTLINED
from elsewhere.phantom.tables import write_camelyon17_twin
from elsewhere.tables import read_table, write_table


@pytest.fixture
def table(tmp_path):
    return write_camelyon17_twin(tmp_path, np.random.default_rng(5))


def test_centres_by_name(table):
    cohort = read_cohort("camelyon17", table)
    first = cohort.cases.drop_duplicates("site").set_index("site")
    assert first["scanned_at"].to_dict() == {
        "CWZ": "RUMC", "RST": "RUMC", "UMCU": "UMCU", "RUMC": "RUMC", "LPON": "LPON",
    }  # fmt: skip
    assert first["microns_per_pixel"].tolist() == [0.24, 0.24, 0.23, 0.24, 0.25]
    assert first["domain"].tolist() == ["ID", "ID", "ID", "ID", "OOD"]
    assert first.loc["LPON", "scanner"] == "Philips IntelliSite Ultra Fast Scanner"
    rule = next(f.message for f in audit(cohort) if f.kind == "domain")
    assert rule == (
        "domain: 40 ID, 10 OOD. Rule: a slide is ID if it was scanned at a centre whose slides trained the model (RUMC, "
        "UMCU), else OOD; CWZ sent its slides to the scanner of RUMC, RST sent its slides to the scanner of RUMC"
    )


def test_another_training_gives_another_domain(table):
    cases = read_cohort("camelyon17", table, trained_on="umcu, LPON").cases
    assert cases.groupby("site", sort=False)["domain"].first().to_dict() == {
        "CWZ": "OOD", "RST": "OOD", "UMCU": "ID", "RUMC": "OOD", "LPON": "ID",
    }  # fmt: skip


def test_a_sixth_centre_and_a_missing_one(table):
    frame = read_table(table)
    frame.loc[frame.index[:6], "center"] = "7"
    frame.loc[frame.index[6:12], "center"] = None
    write_table(frame, table)
    cases = read_cohort("camelyon17", table).cases.set_index("case_id")
    assert cases.loc["patient_000_node_0", ["site", "domain"]].tolist() == ["center_7", "OOD"]
    assert cases["scanner"].isna()["patient_000_node_0"]
    assert cases[["site", "domain"]].isna().loc["patient_001_node_0"].all()


def test_slides_and_annotations_in_the_published_folders(table):
    root = table.parent
    for name in ("training/center_0/patient_004_node_4.tif", "lesion_annotations/patient_004_node_4.xml",
                 "masks/patient_004_node_4_mask.tif", "more/patient_099_node_0.tif"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"II*\0")
    cohort = read_cohort("camelyon17", root)
    row = cohort.cases.set_index("case_id").loc["patient_004_node_4"]
    assert row[["slide", "annotation", "mask", "outlined"]].tolist() == [
        "training/center_0/patient_004_node_4.tif",
        "lesion_annotations/patient_004_node_4.xml",
        "masks/patient_004_node_4_mask.tif",
        1,
    ]
    told = "\n".join(cohort.warnings)
    assert "49 of 50 slides have no file here" in told
    assert "1 slide files belong to no row of the table: patient_099_node_0" in told


@pytest.mark.real_data
def test_the_outlined_slides_are_those_of_tables_1_and_2(data_dir):
    """Golden: 17 macro, 17 micro and 16 ITC; ten slides of each centre, those of LPON out of domain."""
    cases = read_cohort("camelyon17", data_dir / "lymph-nodes" / "CAMELYON17").cases
    outlined = cases[cases["case_id"].isin(OUTLINED)]
    assert len(outlined) == len(OUTLINED) == 50 and (outlined["outlined"] == 1).all()
    assert outlined["stage"].value_counts().to_dict() == {"macro": 17, "micro": 17, "itc": 16}
    assert set(outlined["site"].value_counts()) == {10} and outlined["site"].nunique() == 5
    assert outlined["domain"].value_counts().to_dict() == {"ID": 40, "OOD": 10}
    shown = list(audit(read_cohort("camelyon17", data_dir / "lymph-nodes" / "CAMELYON17")))
    assert sum(f.kind == "published-figures" for f in shown) == 6
    assert not [f for f in shown if f.kind == "not-the-published-figures"]
