"""DBTex files that somebody could hand in by mistake: a clear error, or a counted warning; nothing lost."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.boxes import read_boxes
from elsewhere.protocols import protocols
from elsewhere.scoring.task import ScoreOptions, tasks

LESION = {"x": 500, "y": 500, "width": 200, "height": 200, "slice": 20, "volume_slices": 60}


@pytest.fixture(scope="module")
def cohort():
    ids = [f"DBT-S{i:05d}/lcc" for i in range(8)]
    cases = pd.DataFrame({"case_id": ids, "patient_id": [f"DBT-P{i:05d}" for i in range(8)]})
    lesions = pd.DataFrame([{"case_id": name, "lesion_id": "1", **LESION} for name in ids[:5]])
    return Cohort.from_frame(cases, lesions=lesions.assign(**{"class": "cancer"}))


def boxes():
    rng = np.random.default_rng(4)
    n = 40
    study = np.arange(n) % 8
    return pd.DataFrame(
        {
            "PatientID": [f"DBT-P{i:05d}" for i in study],
            "StudyUID": [f"DBT-S{i:05d}" for i in study],
            "View": "lcc",
            "X": np.where(np.arange(n) < 8, 510.0, rng.integers(0, 1500, n)),
            "Width": 180.0,
            "Y": 510.0,
            "Height": 180.0,
            "Z": 18.0,
            "Depth": 4.0,
            "Score": rng.random(n),
        }
    )


def scored(table, cohort, path, **options):
    table.to_csv(path / "team.csv", index=False)
    said = read_boxes(path / "team.csv", ReadOptions(**options), cohort)
    task = tasks.get("detection")
    scores = task.score(cohort, said, protocols.get("dbtex-code"), ScoreOptions(**options))
    evaluator = task.evaluator(scores, task.partition(scores), ScoreOptions())
    return scores, evaluator.evaluate(np.ones((1, evaluator.n_clusters), dtype=np.uint16))[0, 0]


@pytest.mark.parametrize("column", ["Score", "X", "Depth"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none(cohort, tmp_path, column, value):
    table = boxes()
    table.loc[[3, 20], column] = value
    with pytest.raises(UserError, match=r"2 of 40 boxes: .* missing or not a finite number") as problem:
        scored(table, cohort, tmp_path)
    assert "rows 4, 21" in str(problem.value)
    scores, _ = scored(table, cohort, tmp_path, on_invalid="worst")
    assert scores.counts["invalid_boxes"] == 2 and scores.counts["boxes"] == 40


def test_scores_over_1_and_below_0_are_scores(cohort, tmp_path):
    _, plain = scored(boxes(), cohort, tmp_path)
    for change in (lambda s: 100 * s, lambda s: s - 5, lambda s: np.log(s)):
        table = boxes()
        table["Score"] = change(table["Score"])
        scores, value = scored(table, cohort, tmp_path)
        assert value == plain and scores.warnings == ()


def test_a_header_alone(cohort, tmp_path):
    scores, value = scored(boxes().iloc[:0], cohort, tmp_path)
    assert value == 0.0
    assert scores.counts["without_boxes"] == 8 and "finds nothing in any volume" in scores.warnings[0]


def test_one_score_for_all_boxes(cohort, tmp_path):
    scores, value = scored(boxes().assign(Score=0.5), cohort, tmp_path)
    assert 0.0 < value < 1.0
    assert "All 40 boxes have the score 0.5" in scores.warnings[0]


def test_a_study_under_two_patients(cohort, tmp_path):
    _, plain = scored(boxes(), cohort, tmp_path)
    table = boxes()
    table.loc[2, "PatientID"] = "DBT-P99999"
    scores, value = scored(table, cohort, tmp_path)
    assert value == plain
    assert scores.warnings[0].startswith("1 study is under more than one PatientID")
    assert "DBT" not in scores.warnings[0]
    table.loc[3, "PatientID"] = "DBT-P99999"
    assert scored(table, cohort, tmp_path)[0].warnings[0].startswith("2 studies are under")


def test_boxes_of_volumes_that_the_cohort_does_not_list(cohort, tmp_path):
    table = boxes()
    table.loc[[10, 11], "StudyUID"] = "DBT-S77777"
    scores, _ = scored(table, cohort, tmp_path)
    assert scores.counts["extra"] == 2 and scores.counts["extra_volumes"] == 1
    assert any("1 volumes with boxes are not in the cohort" in warning for warning in scores.warnings)


def test_a_file_of_other_volumes_alone(cohort, tmp_path):
    with pytest.raises(UserError):
        scored(boxes().assign(StudyUID="DBT-S77777"), cohort, tmp_path)


@pytest.mark.slow
def test_a_million_rows(cohort, tmp_path):
    many = pd.concat([boxes()] * 25_000, ignore_index=True)
    scores, _ = scored(many, cohort, tmp_path)
    assert scores.counts["boxes"] == 1_000_000
