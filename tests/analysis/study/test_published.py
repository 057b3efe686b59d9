"""The paper's printed numbers: transcribed whole, and consistent with each other as far as they say (US-25)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.study.published import published_input, published_model, reference
from elsewhere.errors import UserError
from elsewhere.statistics.scenario import paired_scenarios

PAPER = reference("ultrasound")


def rounded(value, digits=3):
    """The paper rounds numbers that it does not print: half a unit of the last digit and its own rounding."""
    return pytest.approx(value, abs=1.01 * 10**-digits)


def test_the_tables_are_there():
    assert {n: len(t) for n, t in PAPER.tables.items()} == {
        "datasets": 4,
        "overall": 4,
        "paired_roi_minus_whole": 4,
        "roi_margin": 8,
        "transfers": 10,
        "without_busuclm": 4,
        "stated": 18,
    }
    assert "10.3390/diagnostics16101537" in PAPER.source


@pytest.mark.parametrize("kind", ["internal", "external"])
@pytest.mark.parametrize("name", ["auroc", "bacc", "ece_raw", "ece_cal", "nll_raw", "nll_cal"])
def test_its_overall_row_is_the_unweighted_mean(kind, name):
    assert PAPER.stated(f"{kind}_{name}") == rounded(PAPER.table("overall")[f"{kind}_{name}"].mean())


def test_its_table_5_repeats_table_3_and_its_text():
    overall = PAPER.table("overall").set_index(["model", "input"])
    without = PAPER.table("without_busuclm").set_index(["model", "input"])
    for short in ("auroc", "bacc"):
        pd.testing.assert_series_equal(
            without[f"{short}_all"], overall[f"external_{short}"], check_names=False
        )
        assert PAPER.stated(f"external_{short}_without") == rounded(without[f"{short}_without"].mean())
    assert PAPER.stated("external_auroc_without") == 0.761


def test_its_paired_gains_are_the_differences_of_table_3():
    overall = PAPER.table("overall").set_index(["model", "input"])
    for row in PAPER.table("paired_roi_minus_whole").itertuples():
        column = overall[f"external_{row.metric}"]
        assert row.mean_gain == rounded(column[row.model, "roi"] - column[row.model, "whole"])
        assert (row.lo + row.hi) / 2 == rounded(row.mean_gain)


def test_its_intervals_are_t_intervals_around_the_mean():
    """Symmetric but where they were cut at 1: CNN, whole image, internal."""
    table = PAPER.table("overall")
    for kind in ("internal", "external"):
        for short in ("auroc", "bacc"):
            for row in table.to_dict(orient="records"):
                value, lo, hi = (row[f"{kind}_{short}{end}"] for end in ("", "_lo", "_hi"))
                if hi < 1:
                    assert (lo + hi) / 2 == rounded(value)
                else:
                    assert 2 * value - lo > 1


def test_its_margin_p_values_are_those_four_scenarios_can_give():
    """Exact two-sided Wilcoxon over four differences: multiples of 1/8, none below 0.125."""
    p = PAPER.table("roi_margin")[["auroc_p_vs_12", "bacc_p_vs_12"]].to_numpy().ravel()
    p = p[~np.isnan(p)]
    assert p.min() == 0.125 and np.allclose(p * 8, np.round(p * 8))
    made = paired_scenarios(np.array([0.2, 0.3, 0.4, 0.5]), np.zeros(4))
    assert made.p == 0.125 and made.smallest_p == 0.125 and "0.125" in made.note


def test_its_eligible_runs_by_its_own_counts():
    """External: a source's validation part is 15 %, so that whole sources are in or out: 180 = three of four."""
    assert PAPER.stated("external_eligible") == 3 * 60 and PAPER.stated("internal_eligible") == 44
    assert PAPER.stated("no such thing") is None


def test_names():
    assert (
        published_model("EfficientNet-B0") == "cnn"
        and published_model("vit") == "vit"
        and published_model("resnet") is None
    )
    assert published_input("roi") == "roi" and published_input("roi-20") is None
    with pytest.raises(UserError, match="ultrasound"):
        reference("ultrasond")
