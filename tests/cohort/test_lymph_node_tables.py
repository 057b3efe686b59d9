"""Tables 1 and 2 of the lymph-node study next to what a cohort holds (LN-01)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from elsewhere.cohort import Cohort
from elsewhere.cohort.published.lymph_nodes import STAGES, TABLE_1, TABLE_2, compare_lymph_nodes


def sixteen(**changes):
    """A set that agrees with the printed tables, but for the stages of training slides, which nobody publishes."""
    train = ["negative"] * 159 + [None] * 111
    test = [stage for stage, n in zip(STAGES, TABLE_1["CAMELYON16 test"], strict=True) for _ in range(n)]
    site = ["RUMC"] * 171 + ["UMCU"] * 99 + ["RUMC"] * 74 + ["UMCU"] * 55
    frame = pd.DataFrame(
        {
            "case_id": [f"s{n}" for n in range(399)],
            "patient_id": [f"s{n}" for n in range(399)],
            "dataset": "CAMELYON16",
            "split": ["train"] * 270 + ["test"] * 129,
            "stage": train + test,
            "site": site,
            "domain": "ID",
            "microns_per_pixel": np.where(np.array(site) == "RUMC", 0.24, 0.23),
        }
    )
    return Cohort.from_frame(frame.assign(**changes))


def test_the_printed_totals_are_consistent():
    """Golden: 507 slides; 169 in-domain and 68 out-of-domain slides for tests (the study's text)."""
    assert sum(map(sum, TABLE_1.values())) == 507
    assert [sum(column) for column in zip(*TABLE_1.values(), strict=True)] == [101, 115, 22, 269]
    tests = {name: sum(row[3] for row in TABLE_2.values() if row[1] == name) for name in ("ID", "OOD")}
    assert tests == {"ID": 169, "OOD": 68} and sum(row[2] for row in TABLE_2.values()) == 270


def test_what_agrees_and_what_does_not():
    rows = {row.what: row for row in compare_lymph_nodes(sixteen())}
    assert rows["CAMELYON16 test, macro/micro/itc/negative"].agrees
    assert rows["CAMELYON16 at RUMC"].agrees and rows["CAMELYON16 at UMCU"].agrees
    train = rows["CAMELYON16 train, macro/micro/itc/negative"]
    assert not train.agrees and train.counted == "0/0/0/159 and 111 without a stage" and train.note == ""


def test_measured_axes_stand_next_to_the_printed_stages():
    measured = [None] * 159 + ["macro"] * 44 + ["micro"] * 63 + ["itc"] * 3 + [None] * 130
    rows = compare_lymph_nodes(sixteen(annotated_stage=pd.Series(measured, dtype="str")))
    assert "gives 44/63/3 (macro/micro/itc) of 110 outlined slides" in rows[0].sentence()


def test_another_domain_or_hospital_does_not_agree():
    assert not any(row.agrees for row in compare_lymph_nodes(sixteen(domain="OOD")) if " at " in row.what)
    moved = compare_lymph_nodes(sixteen(site="RUMC"))
    assert [row.agrees for row in moved if row.what == "CAMELYON16 at RUMC"] == [False]


def test_parts_of_the_set_and_other_sets_are_not_compared():
    cohort = sixteen()
    assert compare_lymph_nodes(cohort.subset(np.arange(399) > 0)) == ()
    assert compare_lymph_nodes(sixteen(dataset="OURS")) == ()
