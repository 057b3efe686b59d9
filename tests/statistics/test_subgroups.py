"""Tables over groups, with the rows that cannot be estimated."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.protocols import IntervalRules
from elsewhere.scoring.groups import GroupCodes
from elsewhere.statistics.clusters import Clusters
from elsewhere.statistics.columns import ColumnMeans
from elsewhere.statistics.fairness.subgroups import CaseFacts, comparable_metrics, group_table
from elsewhere.statistics.resampling import Resampling

N = 240


def coded(codes, names=("a", "b", "c"), variable="v"):
    array = np.asarray(codes, dtype=np.int16)
    return GroupCodes(variable, tuple(names), array, int((array < 0).sum()))


def patients(n=N, positive=None):
    return Clusters(
        np.arange(n, dtype=np.int32), tuple(map(str, range(n))), np.zeros(n, np.int32), ("s",), positive
    )


@pytest.fixture(scope="module")
def means():
    rng = np.random.default_rng(5)
    columns = {"dice": rng.beta(5, 2, N), "norm_hd": rng.beta(2, 9, N)}
    return ColumnMeans(columns, np.arange(N, dtype=np.int32), n_clusters=N, lower_is_better=("norm_hd",))


def test_group_table_shows_missing_and_empty_groups(means):
    codes = np.where(np.arange(N) < 10, -1, 0)
    table = group_table(
        means,
        patients(),
        [coded(codes, ("a", "b"))],
        rules=IntervalRules(),
        resampling=Resampling(key="k", seed=1, resamples=0),
        facts=CaseFacts(truth=np.arange(N) % 2),
    )["v"]
    assert list(table) == ["a", "b", "missing"]
    assert table["a"]["cases"] == 230
    assert table["a"]["positives"] == 115
    assert table["a"]["metrics"]["dice"]["lo"] < table["a"]["metrics"]["dice"]["value"]
    assert table["b"]["metrics"]["dice"]["value"] is None
    assert table["b"]["metrics"]["dice"]["undefined_reason"] == "no case"
    assert "never in the range" in table["missing"]["note"]


def test_a_group_called_missing_keeps_its_name(means):
    codes = np.where(np.arange(N) < 10, -1, 0)
    table = group_table(
        means,
        patients(),
        [coded(codes, ("missing",))],
        rules=IntervalRules(),
        resampling=Resampling(key="k", seed=1, resamples=0),
    )["v"]
    assert {name: row["cases"] for name, row in table.items()} == {"missing": 230, "missing (no value)": 10}


def test_a_group_has_no_fairness_of_its_own(means):
    assert comparable_metrics(means) == ("dice", "norm_hd")
    named = ColumnMeans({"fairness": np.ones(N), "x": np.ones(N)}, np.arange(N, dtype=np.int32), n_clusters=N)
    assert comparable_metrics(named) == ("x",)
