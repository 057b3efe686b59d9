"""Where a temperature could be fitted, reliability, and lesions against normal cases (US-16 to US-18)."""

from __future__ import annotations

import pandas as pd

from elsewhere.analysis.study.calibration import eligibility_table
from elsewhere.analysis.study.warnings import study_warnings
from elsewhere.privacy import SMALLEST_CELL
from worlds.picture_results import TASK, context_of, make_results, tables_of


def test_eligibility_is_counted_by_kind(picture_summary):
    table = picture_summary.tables["calibration_eligibility"]
    total = table[table["source"] == "all"].set_index("kind")
    assert total.loc["internal", "runs"] == 48 and total.loc["external", "runs"] == 144
    runs = picture_summary.tables["run_metrics"]
    external = runs.loc[runs["kind"] == "external", "calibration_eligible"]
    assert total.loc["external", "eligible"] == external.sum()


def test_reasons_stand_beside_the_sources_that_are_not_eligible(half):
    runs = pd.DataFrame(
        {
            "kind": "internal",
            "source": ["A", "A", "B"],
            "calibration_eligible": [True, True, False],
            "calibration_reason": ["", "", "not eligible: 30 cases"],
            "temperature_bound": ["", "upper", ""],
            "temperature": [1.5, 5.0, 1.0],
        }
    )
    table = eligibility_table(runs, context_of(half).design, None).set_index("source")
    assert table.loc["A", ["eligible", "runs", "at_a_bound"]].tolist() == [2, 2, 1]
    assert table.loc["B", "reason"] == "not eligible: 30 cases" and table.loc["B", "share"] == 0.0
    assert table.loc["A", "median_temperature"] == 3.25


def test_the_reliability_curve_has_both_states_and_no_small_bin():
    made = make_results(models=("cnn",), inputs=("roi",), seeds=(1,), kinds=("external",))
    curves = tables_of(made, "calibration")["calibration_curves"]
    assert set(curves["state"]) == {"raw", "calibrated"} and set(curves["kind"]) == {"external"}
    assert (curves["cases"] >= SMALLEST_CELL).all()
    assert curves["predicted"].between(0, 1).all() and curves["observed"].between(0, 1).all()


def test_normals_too_few_are_unavailable_and_shared_patients_warn(half):
    context = context_of(half)
    context.made["run_metrics"] = context.judged_runs
    table = tables_of(half, "lesion against normal")["lesion_against_normal"].set_index("target")
    assert table.loc["BrEaST", "auroc"].isna().all()
    assert "4 normal images" in table.loc["BrEaST", "unavailable"].iloc[0]
    assert table.loc["BUSI", "auroc"].notna().all()
    warnings = study_warnings(half, {TASK: context})
    assert any("Lesion against normal at BUS-UCLM" in w for w in warnings)


def test_a_study_without_normals_has_no_such_table():
    sizes = {"Harbour": (40, 30, 0, 60), "Hill": (40, 30, 0, 60)}
    made = make_results(sizes=sizes, models=("cnn",), inputs=("roi",), seeds=(1,), analyses={})
    assert tables_of(made, "lesion against normal") == {}
