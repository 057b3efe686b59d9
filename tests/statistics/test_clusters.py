"""Cases become patients in one place (ST-01, US-02, US-05)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.statistics.clusters import FEWEST_PER_STRATUM, Clusters, pool_small_strata


def test_a_patient_is_dataset_and_id():
    table = pd.DataFrame(
        {"patient_id": ["1", "1", "1", "2"], "dataset": ["a", "a", "b", "b"], "site": ["x", "x", "y", "y"]}
    )
    partition = Clusters.from_table(table, positive=[0, 1, 0, 0])
    assert partition.n_clusters == 3
    assert partition.cluster_of_case.tolist() == [0, 0, 1, 2]
    assert partition.positive_cluster.tolist() == [True, False, False]
    assert [partition.site_names[s] for s in partition.site_of_cluster] == ["x", "y", "y"]
    assert partition.cases_per_cluster().tolist() == [2, 1, 1]


def test_without_patients_every_case_is_one():
    partition = Clusters.from_table(pd.DataFrame({"case_id": ["a", "b", "c"]}))
    assert partition.n_clusters == 3
    assert partition.n_sites == 1


def test_strata_are_dense_and_split_by_class():
    k = FEWEST_PER_STRATUM
    ids = [f"{i:04d}" for i in range(4 * k)]
    table = pd.DataFrame({"patient_id": ids, "site": np.repeat(["x", "y"], 2 * k)})
    partition = Clusters.from_table(table, positive=np.tile([1, 0], 2 * k))
    assert partition.strata().tolist() == [0] * 2 * k + [1] * 2 * k
    assert partition.strata(by_class=True).tolist() == [1, 0] * k + [3, 2] * k
    assert set(partition.strata(by_site=False).tolist()) == {0}


def test_small_strata_are_pooled_within_their_class():
    """No stratum is smaller than the least size unless its whole class is, and classes are never mixed."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        n = int(rng.integers(1, 400))
        site = rng.choice(int(rng.integers(1, 60)), n)
        kind = rng.random(n) < rng.random()
        stratum = pool_small_strata(site, kind)
        sizes = np.bincount(stratum)
        assert sizes.min() > 0
        for k in (False, True):
            of_kind = np.unique(stratum[kind == k])
            assert not np.isin(of_kind, stratum[kind != k]).any()
            if of_kind.size > 1:
                assert sizes[of_kind].min() >= FEWEST_PER_STRATUM
            large = np.flatnonzero(np.bincount(site[kind == k], minlength=1) >= FEWEST_PER_STRATUM)
            assert of_kind.size >= large.size  # at most one large site takes the small ones in


def test_large_sites_stay_strata_of_their_own():
    """Two sites of enough patients are resampled apart; a third that is small joins the smaller of them."""
    k = FEWEST_PER_STRATUM
    site = np.repeat([0, 1, 2], [k + 5, k, 3])
    assert pool_small_strata(site).tolist() == [0] * (k + 5) + [1] * (k + 3)
    two_small = np.repeat([0, 1, 2], [k + 5, k - 1, 1])
    assert pool_small_strata(two_small).tolist() == [0] * (k + 5) + [1] * k


def test_patients_are_numbered_by_sorted_id_whatever_the_order_of_rows():
    """Shuffled rows give each patient the same number, site and class: resamples depend on numbers alone."""
    rng = np.random.default_rng(2)
    rows = pd.DataFrame(
        {
            "dataset": rng.choice(["b", "a"], 120),
            "patient_id": rng.choice(list("zyxw10987"), 120),
            "site": rng.choice(["s", "t", "u"], 120),
            "y": rng.random(120) < 0.2,
        }
    )
    first = Clusters.from_table(rows, positive=rows["y"].to_numpy())
    assert list(first.cluster_ids) == sorted(first.cluster_ids)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(rows))
        again = Clusters.from_table(rows.iloc[order], positive=rows["y"].to_numpy()[order])
        assert again.cluster_ids == first.cluster_ids
        assert again.cluster_of_case.tolist() == first.cluster_of_case[order].tolist()
        assert again.site_of_cluster.tolist() == first.site_of_cluster.tolist()
        assert again.positive_cluster.tolist() == first.positive_cluster.tolist()


def test_a_patient_is_resampled_with_the_site_of_most_of_her_cases():
    """Not with the site of the row that happens to stand first; of equally many, the first by name."""
    table = pd.DataFrame({"patient_id": list("aaabb"), "site": ["x", "y", "y", "y", "x"]})
    partition = Clusters.from_table(table)
    assert [partition.site_names[s] for s in partition.site_of_cluster] == ["y", "x"]


def test_an_empty_patient_id_is_an_error_with_its_row():
    with pytest.raises(UserError, match="rows 2"):
        Clusters.from_table(pd.DataFrame({"patient_id": ["a", " ", "b"]}))


def test_a_case_keeps_its_own_site_whatever_her_first_case_says():
    """Values are split by `site_of_case`; `site_of_cluster` is a resampling stratum alone (ST-01b)."""
    table = pd.DataFrame(
        {
            "patient_id": ["a", "a", "b", "c"],
            "site": ["North", "South", "South", "North"],
            "case_id": list("wxyz"),
        }
    )
    partition = Clusters.from_table(table)
    assert [partition.site_names[s] for s in partition.site_of_case] == ["North", "South", "South", "North"]
    at_south = partition.within(partition.site_of_case == 1)
    patients = [partition.cluster_of_case[row] for row in (0, 2, 3)]
    assert [at_south.site_of_cluster[c] for c in patients] == [1, 1, 0]
    assert at_south.site_of_case.tolist() == partition.site_of_case.tolist()
