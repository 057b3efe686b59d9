"""The drop from internal to external results over datasets, on differences made by hand (ST-05).

Each transfer brings its difference and is one row; the mean is over sources, and the mean over targets stands beside it.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from elsewhere.analysis.study.overall import OVERALL
from elsewhere.analysis.study.transfers import PREDICTS_BY_CHANCE, drop_over_datasets

INTERNAL = {"A": 0.90, "B": 0.80, "C": 0.85}
EXTERNAL = {
    ("A", "B"): 0.70,
    ("A", "C"): 0.74,
    ("B", "A"): 0.76,
    ("B", "C"): 0.60,
    ("C", "A"): 0.80,
    ("C", "B"): 0.64,
}
FOURTH = (
    {"D": 0.86},
    {("A", "D"): 0.72, ("B", "D"): 0.70, ("C", "D"): 0.69} | {("D", t): 0.73 for t in "ABC"},
)
"""One more dataset, since a verdict takes four."""


def transfers(methods=("cnn-whole", "cnn-roi"), more=({}, {}), gain=0.05):
    """One row per method and transfer. An external value is compared with the internal one of its source."""
    inside, outside = INTERNAL | more[0], EXTERNAL | more[1]
    rows = []
    for method in methods:
        plus = gain if method.endswith("roi") else 0.0
        for (source, target), value in outside.items():
            row = {"task": "classification", "method": method, "kind": "external", "metric": "auroc"}
            row |= {"scenario": f"{source}>{target}", "source": source, "target": target}
            row |= {"internal": inside[source] + plus, "external": value + plus}
            rows.append(row | {"external_compared": value + plus, "difference": value - inside[source]})
    return pd.DataFrame(rows)


def drop(found, method="cnn-whole", *, margin=None, **options):
    table = drop_over_datasets(found, margin=margin, **options)
    return table[table["method"] == method].iloc[0]


def test_the_drop_is_taken_by_source():
    row = drop(transfers())
    by_source = [0.72 - 0.90, 0.68 - 0.80, 0.72 - 0.85]
    assert row["difference"] == pytest.approx(np.mean(by_source))
    lo, hi = stats.t.interval(0.95, 2, np.mean(by_source), stats.sem(by_source))
    assert (row["lo"], row["hi"]) == pytest.approx((lo, hi))
    assert row["smallest_p"] == 0.25
    assert row["internal"] == pytest.approx(np.mean(list(INTERNAL.values())))
    assert row["external"] == pytest.approx(np.mean(list(EXTERNAL.values())))
    assert row["datasets"] == 3 and row["comparisons"] == 6


def test_the_mean_over_targets_stands_beside_it():
    """Each transfer keeps the internal result of its source: a target's own internal result plays no part."""
    row = drop(transfers())
    by_target = [
        np.mean([0.76 - 0.80, 0.80 - 0.85]),
        np.mean([0.70 - 0.90, 0.64 - 0.85]),
        np.mean([0.74 - 0.90, 0.60 - 0.80]),
    ]
    assert row["difference_by_target"] == pytest.approx(np.mean(by_target))
    lo, hi = stats.t.interval(0.95, 2, np.mean(by_target), stats.sem(by_target))
    assert (row["lo_by_target"], row["hi_by_target"]) == pytest.approx((lo, hi))


def test_without_one_dataset_as_source_and_as_target():
    row = drop(transfers())
    without_c = np.mean([0.70 - 0.90, 0.76 - 0.80])
    without_b = np.mean([0.74 - 0.90, 0.80 - 0.85])
    without_a = np.mean([0.60 - 0.80, 0.64 - 0.85])
    assert row["without_one_lo"] == pytest.approx(min(without_a, without_b, without_c))
    assert row["without_one_hi"] == pytest.approx(max(without_a, without_b, without_c))


def test_the_smallest_detectable_drop_is_that_of_the_t_test_over_sources():
    """ST-07: 80 % power of a one-sided test at 5 %."""
    found = transfers(more=FOURTH)
    row = drop(found)
    values = found[found["method"] == "cnn-whole"].groupby("source")["difference"].mean()
    wanted = (stats.t.ppf(0.95, 3) + stats.t.ppf(0.8, 3)) * values.std(ddof=1) / 2
    assert row["smallest_detectable_drop"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("margin", "verdict"), [(0.03, "BELOW"), (0.14, "INCONCLUSIVE"), (0.5, "EQUIVALENT")]
)
def test_the_verdict_follows_from_the_margin(margin, verdict):
    row = drop(transfers(more=FOURTH), margin=margin)
    assert row["verdict"] == verdict and row["margin"] == margin and row["reason"] == ""


def test_without_a_margin_there_is_no_verdict():
    row = drop(transfers(more=FOURTH))
    assert row["verdict"] == "" and math.isnan(row["margin"])


@pytest.mark.parametrize("margin", [0.001, 0.14, 0.5])
@pytest.mark.parametrize("names", ["A", "AB", "ABC"])
def test_few_sources_give_no_verdict_whatever_the_margin(names, margin):
    """Two sources that agree by luck have a tiny t interval, which knows nothing of their patients."""
    found = transfers(more=FOURTH)
    row = drop(found[found["source"].isin(list(names))], margin=margin)
    assert row["verdict"] == "NOT ASSESSED" and row["datasets"] == len(names)
    assert row["reason"].startswith("1 dataset:" if names == "A" else f"{len(names)} datasets:")
    assert math.isfinite(row["lo"]) == (names != "A"), "the spread is still there"


def test_a_difference_ends_at_one():
    found = transfers(methods=("cnn-whole",))
    two = found[found["source"].isin(["A", "B"]) & found["target"].isin(["A", "B"])].copy()
    two.loc[two["scenario"] == "A>B", "difference"] = -0.7
    row = drop(two)
    assert (row["lo"], row["hi"]) == (-1.0, 1.0)


def test_the_overall_row_is_the_mean_of_the_main_methods():
    found = transfers(more=FOURTH)
    found.loc[found["method"] == "cnn-roi", "difference"] += 0.02
    row = drop(found, OVERALL, main=("cnn-whole", "cnn-roi"))
    apart = [drop(found, name)["difference"] for name in ("cnn-whole", "cnn-roi")]
    assert row["difference"] == pytest.approx(np.mean(apart))
    assert OVERALL not in set(drop_over_datasets(found, margin=None, main=("cnn-whole",))["method"])


def test_a_transfer_that_a_main_method_lacks_is_left_out_of_the_overall_row():
    found = transfers(more=FOURTH)
    found.loc[(found["method"] == "cnn-roi") & (found["scenario"] == "D>A"), "difference"] = np.nan
    row = drop(found, OVERALL, main=("cnn-whole", "cnn-roi"))
    assert row["comparisons"] == 11
    assert drop(found)["comparisons"] == 12


def test_a_comparison_that_was_refused_counts_nowhere():
    """ST-05: too few patients give a transfer without a difference; what is left keeps its number of datasets."""
    found = transfers(more=FOURTH)
    found.loc[found["source"] == "D", "difference"] = np.nan
    row = drop(found, margin=0.5)
    assert row["datasets"] == 3 and row["verdict"] == "NOT ASSESSED"
    found["difference"] = np.nan
    assert drop_over_datasets(found, margin=0.5).empty


def test_a_method_that_predicts_by_chance_gets_no_verdict():
    row = drop(transfers(more=FOURTH), margin=0.5, by_chance=frozenset({"cnn-whole"}))
    assert row["verdict"] == "NOT ASSESSED" and row["reason"] == PREDICTS_BY_CHANCE
