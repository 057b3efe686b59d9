"""Lesion recall by diameter with its interval, and scores by stage (LN-26)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.protocols import protocols
from elsewhere.scoring.slides.breakdown import recall_by_diameter, scores_by_stage
from elsewhere.statistics.clusters import Clusters

RULES = protocols.get("lymph-nodes").slides


def clusters(patients) -> Clusters:
    rows = {
        "case_id": [str(k) for k in range(len(patients))],
        "patient_id": patients,
        "dataset": "Set",
        "site": "A",
    }
    return Clusters.from_table(pd.DataFrame(rows))


def test_recall_with_wilson_where_every_slide_is_a_patient():
    """8 of 10 lesions in 10 patients: Wilson with the t quantile of 9 degrees of freedom."""
    cases = pd.DataFrame({f"n_mask_lesions_{k}": [0] * 10 for k in range(1, 7)})
    for k in range(1, 7):
        cases[f"n_mask_lesions_found_{k}"] = 0
    cases["n_mask_lesions_2"] = 1
    cases["n_mask_lesions_found_2"] = [1] * 8 + [0] * 2
    rows = recall_by_diameter(cases, RULES, clusters(list("abcdefghij")))
    assert [row["lesions"] for row in rows] == [0, 10, 0, 0, 0, 0]
    assert rows[0]["recall"] is None and rows[0]["lo"] is None
    assert rows[1]["recall"] == 0.8 and rows[1]["diameter"] == "0.2 to 0.5 mm"
    assert 0.40 < rows[1]["lo"] < 0.49 and 0.95 < rows[1]["hi"] < 0.97


def test_lesions_of_one_patient_widen_the_interval():
    cases = pd.DataFrame({"n_mask_lesions_1": [1] * 12, "n_mask_lesions_found_1": [1] * 6 + [0] * 6})
    apart = recall_by_diameter(cases, RULES, clusters([str(k) for k in range(12)]))[0]
    together = recall_by_diameter(cases, RULES, clusters([str(k // 3) for k in range(12)]))[0]
    assert apart["recall"] == together["recall"] == 0.5
    assert together["hi"] - together["lo"] > 1.3 * (apart["hi"] - apart["lo"])


def test_means_and_deviations_by_stage():
    cases = pd.DataFrame(
        {
            "stage_true": ["negative", "negative", "macro", "macro", "macro"],
            "slide_dice": [np.nan, np.nan, 0.6, 0.8, np.nan],
            "slide_dice_within_line": np.nan,
            "slide_dice_beyond_line": np.nan,
            "slide_false_positive_rate": [0.01, 0.03, np.nan, np.nan, np.nan],
            "slide_false_positive_rate_tissue": np.nan,
        }
    )
    made = scores_by_stage(cases, clusters(list("aabcd")))
    assert list(made) == ["negative", "macro"]
    assert made["negative"]["patients"] == 1 and made["negative"]["cases"] == 2
    assert set(made["negative"]["metrics"]) == {"slide_false_positive_rate"}
    dice = made["macro"]["metrics"]["slide_dice"]
    assert dice["value"] == pytest.approx(0.7) and dice["sd"] == pytest.approx(0.1 * np.sqrt(2))
    assert dice["slides"] == 2
    assert scores_by_stage(cases.drop(columns="slide_dice"), clusters(list("aabcd"))) == {}
