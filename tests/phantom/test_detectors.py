"""Worlds of finders: what is drawn, what is planted, and what the layout's own readers make of it."""

from __future__ import annotations

import dataclasses
import zipfile

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.loading import load_cohort
from elsewhere.cohort.readers.bcs_dbt import read_bcs_dbt
from elsewhere.commands.phantom_detections import detections
from elsewhere.errors import UserError
from elsewhere.phantom.detectors import SPLITS, DetectorWorld, draw_detectors, scores_on_scale
from elsewhere.phantom.detectors_layout import COHORT, PACKED
from elsewhere.predictions.boxes import read_boxes
from elsewhere.protocols.builtin import DBTEX_CODE
from elsewhere.scoring.task import ScoreOptions, tasks

WORLD = DetectorWorld(patients=40, finders=8, seed=5)


@pytest.fixture(scope="module")
def made():
    return draw_detectors(WORLD)


def sensitivity(made, finder, split, keep=None):
    """Mean sensitivity at 1 to 4 false positives over all volumes."""
    task, cohort, boxes = tasks.get("detection"), made.cohort(split), made.boxes(finder, split)
    if keep is not None:
        cohort = cohort.subset(keep(cohort.cases))
        inside = boxes.table["case_id"].isin(cohort.cases["case_id"])
        boxes = dataclasses.replace(boxes, table=boxes.table[inside].reset_index(drop=True))
    scores = task.score(cohort, boxes, DBTEX_CODE, ScoreOptions())
    evaluator = task.evaluator(scores, task.partition(scores), ScoreOptions())
    values = evaluator.evaluate(np.ones((1, evaluator.n_clusters), dtype=np.uint16))[0]
    return values[evaluator.index("mean_sensitivity_1_to_4_all")]


def test_the_finders_differ_and_none_is_perfect_or_useless(made):
    values = [sensitivity(made, finder.name, "test") for finder in made.finders]
    assert max(values) < 0.97 and min(values) > 0.1
    assert max(values) - min(values) > 0.25


def test_scales_and_depths_are_as_in_published_files(made):
    scores = {name: tables["test"]["Score"] for name, tables in made.predictions.items()}
    assert (scores["alpha"] <= 1).all() and scores["beta"].max() > 1
    assert (scores["delta"] < 0).all()
    assert (made.predictions["epsilon"]["test"]["Depth"] == -1).all()
    assert (made.predictions["zeta"]["test"]["Depth"] == 0).all()
    with pytest.raises(UserError, match="no scale"):
        scores_on_scale(np.zeros(1), "stars")


def test_difficulty_is_shared_by_the_finders(made):
    """Which lesions two finders score high agrees beyond chance."""
    best = {}
    for finder in ("alpha", "beta"):
        scores = tasks.get("detection").score(
            made.cohort("test"), made.boxes(finder, "test"), DBTEX_CODE, ScoreOptions()
        )
        hits = scores.events[scores.events["kind"].isin(["tp", "fn"])]
        best[finder] = hits.set_index(["case_id", "lesion_id"])["score"].fillna(-99.0)
    both = pd.DataFrame(best).rank()
    assert both["alpha"].corr(both["beta"]) > 0.3


def test_views_of_one_lesion_are_linked(made):
    """A lesion has one subject number in the CC and in the MLO view of one breast of one patient."""
    of = made.lesions.merge(made.cases[["case_id", "patient_id", "laterality", "view"]], on="case_id")
    views = of.groupby(["patient_id", "subject"]).agg(
        sides=("laterality", "nunique"), views=("view", "nunique")
    )
    assert (views["sides"] == 1).all()
    assert (views["views"] >= 2).mean() > 0.8
    assert (made.lesions["slice"] < made.lesions["volume_slices"]).all()


def test_the_drop_takes_lesions_at_vendor_b_in_dense_breasts_alone(made):
    twin = draw_detectors(dataclasses.replace(WORLD, drop=0.6))
    pd.testing.assert_frame_equal(twin.cases, made.cases)
    pd.testing.assert_frame_equal(twin.lesions, made.lesions)
    cases = made.cases.set_index("case_id")
    for finder in made.finders:
        hit = [case for case, _ in twin.lost[finder.name]]
        assert hit and (cases.loc[hit, "vendor"] == "B").all()
        assert cases.loc[hit, "breast_density"].isin(["C", "D"]).all()
        for split in SPLITS:
            before, after = (t.predictions[finder.name][split] for t in (made, twin))
            lost = before.merge(after, how="outer", indicator=True)["_merge"]
            assert "right_only" not in set(lost) and len(before) - len(after) <= 2 * len(hit)

    def there(cases):
        return ((cases["vendor"] == "B") & cases["breast_density"].isin(["C", "D"])).to_numpy()

    def here(cases):
        return (cases["vendor"] == "A").to_numpy()

    assert sensitivity(twin, "alpha", "test", there) < sensitivity(made, "alpha", "test", there) - 0.3
    assert sensitivity(twin, "alpha", "test", here) == sensitivity(made, "alpha", "test", here)


def test_more_finders_leave_truth_and_the_first_ones_alone(made):
    fewer = draw_detectors(dataclasses.replace(WORLD, finders=2))
    pd.testing.assert_frame_equal(fewer.lesions, made.lesions)
    pd.testing.assert_frame_equal(fewer.predictions["beta"]["test"], made.predictions["beta"]["test"])
    many = draw_detectors(DetectorWorld(patients=4, finders=14, boxless=1))
    assert many.finders[12].name == "finder13" and many.predictions["finder14"]["test"].empty


def test_what_is_written_is_read_by_the_readers_of_the_published_files(tmp_path):
    world = {"patients": 12, "finders": 3, "seed": 5, "boxless": 1}
    shown = detections(tmp_path / "world", **world)
    made = draw_detectors(DetectorWorld(**world))
    assert [split["patients"] for split in shown.splits] == [12, 12]
    read = read_bcs_dbt(tmp_path / "world")
    assert read.synthetic and read.cases["case_id"].tolist() == made.cases["case_id"].tolist()
    for name in ("x", "y", "width", "height", "slice", "volume_slices", "class", "ad"):
        assert (
            read.lesions[name].astype(str) == made.lesions[name].astype(read.lesions[name].dtype).astype(str)
        ).all()
    cohort = load_cohort(tmp_path / "world" / COHORT)
    assert set(cohort.cases["vendor"]) == {"A", "B"} and cohort.hash == made.cohort().hash
    file = tmp_path / "world" / "phase1" / "test" / "beta.csv"
    assert len(read_boxes(file, cohort=cohort).table) == len(made.predictions["beta"]["test"])
    with zipfile.ZipFile(tmp_path / "world" / PACKED) as archive:
        assert archive.read("phase1/test/beta.csv") == file.read_bytes()
    header = (tmp_path / "world" / "phase1" / "test" / "gamma.csv").read_text().splitlines()
    assert header == ["PatientID,StudyUID,View,X,Width,Y,Height,Z,Depth,Score"]
    assert any(
        "loses" in line for line in detections(tmp_path / "world", replace=True, patients=4, drop=0.5).lines()
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"patients": 0}, {"finders": 0}, {"finders": 61}, {"vendors": ("A", "a")}, {"vendors": ()}, {"drop": 1.5},
        {"mix": (1.0, 2.0)}, {"mix": (0.0, 0.0, 0.0, 0.0)}, {"false_positives": -1.0}, {"boxless": 9},
        {"patients": 1}, {"drop": float("nan")},
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(wrong):
    with pytest.raises(UserError):
        DetectorWorld(**wrong)
