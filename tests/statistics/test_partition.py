"""Cases become patients in one place (ST-01, US-02, US-05)."""

from __future__ import annotations

import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.statistics.partition import Partition


def test_a_patient_is_dataset_and_id():
    table = pd.DataFrame(
        {"patient_id": ["1", "1", "1", "2"], "dataset": ["a", "a", "b", "b"], "site": ["x", "x", "y", "y"]}
    )
    partition = Partition.from_table(table, positive=[0, 1, 0, 0])
    assert partition.n_clusters == 3
    assert partition.cluster_of_case.tolist() == [0, 0, 1, 2]
    assert partition.positive_cluster.tolist() == [True, False, False]
    assert [partition.site_names[s] for s in partition.site_of_cluster] == ["x", "y", "y"]
    assert partition.cases_per_cluster().tolist() == [2, 1, 1]


def test_without_patients_every_case_is_one():
    partition = Partition.from_table(pd.DataFrame({"case_id": ["a", "b", "c"]}))
    assert partition.n_clusters == 3
    assert partition.n_sites == 1


def test_strata_are_dense_and_split_by_class():
    table = pd.DataFrame({"patient_id": list("abcd"), "site": ["x", "x", "y", "y"]})
    partition = Partition.from_table(table, positive=[1, 0, 1, 1])
    assert partition.strata().tolist() == [0, 0, 1, 1]
    assert partition.strata(by_class=True).tolist() == [1, 0, 2, 2]
    assert partition.strata(by_site=False).tolist() == [0, 0, 0, 0]


def test_an_empty_patient_id_is_an_error_with_its_row():
    with pytest.raises(UserError, match="rows 2"):
        Partition.from_table(pd.DataFrame({"patient_id": ["a", " ", "b"]}))


def test_a_case_keeps_its_own_site_whatever_her_first_case_says():
    """Values are split by `site_of_case`; `site_of_cluster` is a resampling stratum alone (ST-01b)."""
    table = pd.DataFrame(
        {
            "patient_id": ["a", "a", "b", "c"],
            "site": ["North", "South", "South", "North"],
            "case_id": list("wxyz"),
        }
    )
    partition = Partition.from_table(table)
    assert [partition.site_names[s] for s in partition.site_of_case] == ["North", "South", "South", "North"]
    at_south = partition.within(partition.site_of_case == 1)
    patients = [partition.cluster_of_case[row] for row in (0, 2, 3)]
    assert [at_south.site_of_cluster[c] for c in patients] == [1, 1, 0]
    assert at_south.site_of_case.tolist() == partition.site_of_case.tolist()
