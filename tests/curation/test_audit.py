"""What clusters are: planted hospitals are found and said, and absent ones are not (must show 4 of the study)."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score, normalized_mutual_info_score

from elsewhere.curation.audit import (
    adjusted_rand,
    audit_group,
    count_pairs,
    hospital_sentence,
    judge_stability,
    mutual_information,
    shared_information,
    split_by_rank,
)
from elsewhere.curation.clusters import ClusterSettings, GroupClusters, cluster_group
from elsewhere.curation.projection import without_site_means


def world(
    seed: int = 0,
    *,
    sites: int = 4,
    patients: int = 6,
    patches: int = 40,
    site: float = 0.0,
    tissue: float = 0.0,
):
    """Features of patches: the hospital, the kind of tissue, and noise."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(sites * patients), patches)
    hospital = patient // patients
    kind = rng.integers(0, 3, len(patient))
    features = rng.normal(size=(len(patient), 16))
    features += site * rng.normal(size=(sites, 16))[hospital]
    features += tissue * rng.normal(size=(3, 16))[kind]
    return features, hospital, patient, kind


def row_of(clusters, hospital, patient, name="site"):
    return audit_group(clusters, {name: hospital}, patients=patient, seed=1)[0]


def test_features_that_are_the_hospital_and_noise_are_called_hospitals():
    features, hospital, patient, _ = world(site=8.0)
    row = row_of(cluster_group(features, "TT"), hospital, patient)
    assert row.normalised > 0.95 and row.information > 0.98 and row.purity > 0.99
    assert row.chance < 0.5 and row.p_value == 0.001 and row.guessing == 0.25
    sentence = hospital_sentence(row)
    assert sentence.startswith(
        "The clusters of TT (tumour patches) are hospitals: knowing the cluster, the hospital of 100%"
    )


@pytest.mark.parametrize("seed", range(5))
def test_features_without_the_hospital_are_not(seed):
    features, hospital, patient, kind = world(seed, tissue=6.0)
    clusters = cluster_group(features, "NN", ClusterSettings(most=6))
    row = row_of(clusters, hospital, patient)
    assert row.information < 0.05
    assert "(normal patches of normal slides) are not hospitals" in hospital_sentence(row)
    assert row_of(clusters, kind, patient, "stain").information > 0.95


def test_after_the_site_mean_is_removed_the_clusters_are_the_tissue():
    features, hospital, patient, kind = world(3, site=8.0, tissue=4.0)
    before = cluster_group(features, "NN")
    after = cluster_group(without_site_means(features, hospital), "NN")
    assert row_of(before, hospital, patient).information > 0.9
    assert row_of(after, hospital, patient).information < 0.05
    assert row_of(after, kind, patient, "stain").information > 0.9


def test_two_hospitals_that_are_split_further_are_hospitals_too():
    labels = np.repeat([0, 1, 2, 3], 60)
    hospital, patient = labels // 2, np.arange(240) // 10
    row = row_of(GroupClusters(group="NT", labels=labels, shares=np.ones(240)), hospital, patient)
    assert row.information == pytest.approx(1) and row.normalised == pytest.approx(2 / 3)
    assert "are hospitals" in hospital_sentence(row)


def test_few_patients_are_not_taken_for_hospitals():
    patient = np.repeat(np.arange(4), 50)
    labels, hospital = patient.copy(), patient // 2
    row = row_of(GroupClusters(group="TT", labels=labels, shares=np.ones(200)), hospital, patient)
    assert row.information == pytest.approx(1) and row.p_value > 0.05
    assert "no more surely than patients given to hospitals at random" in hospital_sentence(row)


def test_the_test_of_hospitals_keeps_its_level():
    """Clusters follow patients, hospitals mean nothing: 5 % of the tests say otherwise, within simulation error."""
    rejected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        patient = np.repeat(np.arange(20), 10)
        labels = (rng.integers(0, 3, 20)[patient] + (rng.random(200) < 0.2)) % 3
        hospital = rng.permutation(np.arange(20) % 3)[patient]
        rejected += (
            row_of(GroupClusters(group="TT", labels=labels, shares=np.ones(200)), hospital, patient).p_value
            <= 0.05
        )
    # Binomial(200, 0.05): 10 +- 3 standard deviations of 3.1.
    assert 1 <= rejected <= 19


@pytest.mark.parametrize(
    ("hospital", "words"),
    [(np.zeros(20, np.int64), "come from one"), (np.full(20, -1), "no patch has a known hospital")],
)
def test_one_hospital_or_none_cannot_be_compared(hospital, words):
    clusters = GroupClusters(group="NN", labels=np.arange(20) % 2, shares=np.ones(20))
    assert words in hospital_sentence(row_of(clusters, hospital, np.arange(20)))
    single = GroupClusters(group="NN", labels=np.zeros(20, np.int64), shares=np.ones(20))
    assert "there is one cluster" in hospital_sentence(row_of(single, np.arange(20) % 2, np.arange(20)))


def test_information_and_rand_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(5):
        one, two = rng.integers(0, 4, 300), rng.integers(0, 6, 300)
        two[one == 1] = 1
        counts = count_pairs(one, two)
        row = row_of(GroupClusters(group="NN", labels=one, shares=np.ones(300)), two, None, "slide")
        assert row.normalised == pytest.approx(normalized_mutual_info_score(one, two), abs=1e-12)
        assert adjusted_rand(one, two) == pytest.approx(adjusted_rand_score(one, two), abs=1e-12)
        assert shared_information(counts) >= row.normalised - 1e-12
        # What remains after chance agrees with the adjustment by the exact expectation.
        rest = (row.information - row.chance) / (1 - row.chance)
        assert rest == pytest.approx(adjusted_mutual_info_score(one, two, average_method="min"), abs=0.01)
    assert mutual_information(np.zeros((2, 2), np.int64)) == 0.0


def test_parts_of_equal_size():
    values = np.random.default_rng(0).normal(size=301)
    assert np.bincount(split_by_rank(values)).tolist() == [101, 100, 100]
    assert split_by_rank(np.full(9, 2.0)).tolist() == [0] * 9


def test_real_clusters_are_stable_and_those_of_noise_are_not():
    features, _, patient, _ = world(2, tissue=6.0)
    found = cluster_group(features, "NN", ClusterSettings(fixed={"NN": 3}))
    real = judge_stability(found, patient, seed=42, seeds=3)
    assert real.over_seeds > 0.98 and real.over_halves > 0.98 and "are found again" in real.sentence()
    noise, _, patient, _ = world(2)
    found = cluster_group(noise, "NN", ClusterSettings(fixed={"NN": 6}))
    none = judge_stability(found, patient, seed=42, seeds=3)
    assert none.over_halves < 0.5 and "not surely the same" in none.sentence()


def test_one_patient_has_no_halves_and_one_cluster_no_stability():
    features, _, patient, _ = world(tissue=6.0, sites=1, patients=1, patches=200)
    found = cluster_group(features, "NN", ClusterSettings(fixed={"NN": 3}))
    one = judge_stability(found, patient, seed=1, seeds=2)
    assert np.isnan(one.over_halves) and "were not compared" in one.sentence()
    assert (
        judge_stability(cluster_group(features, "NN", ClusterSettings(fixed={"NN": 1})), patient, seed=1)
        is None
    )
