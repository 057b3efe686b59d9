"""The unweighted mean sensitivity is that of `FrocEvaluator` with every weight 1, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.protocols import DetectionRules
from elsewhere.scoring.detection.froc import FrocEvaluator, FrocEvents
from elsewhere.scoring.detection.unweighted import mean_sensitivity

RULES = DetectionRules()


def by_evaluator(score, lesion, case, lesions_of_case):
    volumes = lesions_of_case.size
    evaluator = FrocEvaluator(
        rules=RULES,
        cluster_of_case=np.arange(volumes, dtype=np.int32),
        n_clusters=volumes,
        lesions_of_case=lesions_of_case,
        events=FrocEvents(case=case, cluster=case, lesion=lesion, score=score),
    )
    return evaluator.evaluate(np.ones((1, volumes), dtype=np.uint16))[0, -1]


@pytest.mark.parametrize("boxes_per_volume", [0, 1, 3, 6, 40])
@pytest.mark.parametrize("levels", [3, 30, 10**6])
@pytest.mark.parametrize("hits", [0.0, 0.05, 0.5])
def test_equal_to_the_evaluator(boxes_per_volume, levels, hits):
    rng = np.random.default_rng(boxes_per_volume + levels)
    for _ in range(20):
        lesions_of_case = rng.integers(0, 3, 15)
        first = np.cumsum(lesions_of_case) - lesions_of_case
        n = boxes_per_volume * 15
        case = rng.integers(0, 15, n)
        score = rng.integers(0, levels, n) / levels
        hit = (rng.random(n) < hits) & (lesions_of_case[case] > 0)
        lesion = np.where(hit, first[case] + rng.integers(0, 9, n) % np.maximum(lesions_of_case[case], 1), -1)
        ours = mean_sensitivity(
            score,
            lesion,
            volumes=15,
            lesions=int(lesions_of_case.sum()),
            points=RULES.positive_operating_points,
        )
        theirs = by_evaluator(score, lesion, case, lesions_of_case)
        assert ours == theirs or (np.isnan(ours) and np.isnan(theirs))


def test_no_lesion_has_no_sensitivity():
    assert np.isnan(mean_sensitivity(np.ones(2), np.array([-1, -1]), volumes=2, lesions=0, points=(1.0,)))
