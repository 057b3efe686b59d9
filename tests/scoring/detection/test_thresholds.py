"""Thresholds of given rates and what they find at three levels, against counting by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import Cohort
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.boxes import boxes_from_frame
from elsewhere.protocols import protocols
from elsewhere.scoring.detection import DetectionTask
from elsewhere.scoring.detection.thresholds import (
    LEVELS,
    RatePoint,
    ThresholdEvaluator,
    joins_views,
    lesion_rows,
)
from elsewhere.scoring.task import ScoreOptions

TASK = DetectionTask()
PLAIN = protocols.get("plain")


def tables(seed: int = 1, *, patients: int = 12):
    """Two views of two breasts per patient; lesions in some breasts, in both views; ties of scores."""
    rng = np.random.default_rng(seed)
    cases, lesions, boxes = [], [], []
    for p in range(patients):
        for side in ("left", "right"):
            sick = rng.random() < 0.5
            places = rng.integers(1, 3) if sick else 0
            for view in ("cc", "mlo"):
                case = f"P{p}/{side[0]}{view}"
                cases.append(
                    {"case_id": case, "patient_id": f"P{p}", "laterality": side, "site": "ab"[p % 2]}
                )
                for k in range(places):
                    x = 500 + 1000 * k
                    lesions.append(
                        {
                            "case_id": case,
                            "lesion_id": f"{case}#{k}",
                            "x": x,
                            "y": 500,
                            "width": 200,
                            "height": 200,
                            "finding_id": f"P{p}{side}{k}",
                        }
                    )
                    if rng.random() < 0.6:
                        boxes.append((case, x + 10, 510, 180, 180, round(rng.normal(1.0), 1)))
                for _ in range(rng.poisson(2.0)):
                    boxes.append((case, 5000 + rng.integers(0, 500), 5000, 50, 50, round(rng.normal(), 1)))
    said = pd.DataFrame(boxes, columns=["case_id", "x", "y", "width", "height", "score"])
    return pd.DataFrame(cases), pd.DataFrame(lesions), said


def drawn(seed: int = 1, *, findings: bool = False, sides: bool = True):
    """The scores of such a world; without `findings` and `sides` their columns are left out."""
    cases, truth, said = tables(seed)
    if not findings:
        truth = truth.drop(columns="finding_id")
    if not sides:
        cases = cases.drop(columns="laterality")
    return TASK.score(
        Cohort.from_frame(cases, lesions=truth),
        boxes_from_frame(said, ReadOptions()),
        PLAIN,
        ScoreOptions(),
    )


def evaluator_of(scores, *, by_site: bool = False):
    partition = TASK.partition(scores)
    part = (
        (scores.cases["site"] == "b").to_numpy(dtype=int)
        if by_site
        else np.zeros(len(scores.cases), dtype=int)
    )
    made = ThresholdEvaluator(
        scores,
        partition.cluster_of_case,
        n_clusters=partition.n_clusters,
        part_of_case=part,
        n_parts=2 if by_site else 1,
    )
    return made, partition


def counted(scores, home, rate, weights, cluster):
    """The threshold by trying every score, and the false positives per volume there."""
    events = scores.events[scores.events["kind"] != "fn"]
    row = pd.Index(scores.cases["case_id"]).get_indexer(events["case_id"])
    w = weights[cluster[row]]
    volumes = weights[cluster[home]].sum()
    inside = home[row] & (w > 0)
    score, false = events["score"].to_numpy(dtype=float), (events["kind"] == "fp").to_numpy(dtype=bool)
    best = np.inf
    if w[inside & false].sum() <= rate * volumes:
        return -np.inf
    for t in np.unique(score[inside]):
        if w[inside & false & (score >= t)].sum() <= rate * volumes:
            return float(t)
    return best


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rate", [0.25, 1.0, 1.7, 50.0])
def test_thresholds_are_those_of_trying_every_score(seed, rate):
    scores = drawn(seed)
    evaluator, partition = evaluator_of(scores)
    home = (scores.cases["site"] == "a").to_numpy(dtype=bool)
    weights = np.random.default_rng(seed).integers(0, 3, (5, partition.n_clusters)).astype(np.uint16)
    got = evaluator.rates(weights, RatePoint(rate=rate, volumes=home))
    for row, w in zip(got.threshold, weights, strict=True):
        assert row == counted(scores, home, rate, w, partition.cluster_of_case)


def test_what_a_threshold_gives_in_each_part():
    scores = drawn(4)
    evaluator, partition = evaluator_of(scores, by_site=True)
    ones = np.ones((1, partition.n_clusters), dtype=np.uint16)
    got = evaluator.at(ones, np.array([0.5]))
    events = scores.events.merge(scores.cases[["case_id", "site"]], on="case_id")
    for part, site in enumerate("ab"):
        here = events[events["site"] == site]
        volumes = (scores.cases["site"] == site).sum()
        wrong = ((here["kind"] == "fp") & (here["score"] >= 0.5)).sum()
        assert got.false_positives[0, part] == pytest.approx(wrong / volumes)
        truth = here[here["kind"].isin(["tp", "fn"])]
        assert got.found["lesion"][0, part] == pytest.approx((truth["score"] >= 0.5).mean())
        patients = truth.assign(found=truth["score"] >= 0.5, p=truth["case_id"].str.split("/").str[0])
        assert got.found["patient"][0, part] == pytest.approx(patients.groupby("p")["found"].any().mean())
        breasts = patients.assign(b=patients["case_id"].str.slice(0, -2).str.rstrip("cml"))
        assert got.found["breast"][0, part] == pytest.approx(breasts.groupby("b")["found"].any().mean())


def test_a_finding_seen_in_two_views_counts_once():
    by_side, by_finding = drawn(5), drawn(5, findings=True)
    sizes = {}
    for name, scores in (("side", by_side), ("finding", by_finding)):
        evaluator, _ = evaluator_of(scores)
        sizes[name] = {level: evaluator.units[level].score.size for level in LEVELS}
    lesions = len(lesion_rows(by_side))
    assert sizes["side"]["lesion"] == sizes["finding"]["lesion"] == lesions
    assert sizes["finding"]["breast"] == lesions // 2, "each finding lies in both views"
    assert sizes["side"]["breast"] < sizes["finding"]["breast"]
    assert sizes["side"]["patient"] < sizes["side"]["breast"]
    assert "finding_id" in by_finding.events.columns and "finding_id" not in by_side.events.columns
    assert "finding_id" in joins_views(by_finding) and "finding_id" not in joins_views(by_side)


def test_volumes_without_a_side_stay_apart_and_are_counted():
    scores = drawn(6, sides=False)
    evaluator, _ = evaluator_of(scores)
    with_lesion = int((scores.cases["n_lesions"] > 0).sum())
    assert evaluator.units["breast"].score.size == with_lesion
    assert f"{len(lesion_rows(scores))} lesions lie in volumes without a side" in joins_views(scores)


def test_no_volume_no_box_and_no_lesion():
    scores = drawn(7)
    evaluator, partition = evaluator_of(scores)
    ones = np.ones((1, partition.n_clusters), dtype=np.uint16)
    nowhere = np.zeros(len(scores.cases), dtype=bool)
    got = evaluator.rates(ones, RatePoint(rate=1.0, volumes=nowhere))
    assert np.isnan(got.threshold[0]) and np.isnan(got.false_positives[0, 0])
    assert all(np.isnan(found[0, 0]) for found in got.found.values())
    silent = dataclasses.replace(scores, events=scores.events[scores.events["kind"] == "fn"].iloc[:0])
    empty, _ = evaluator_of(silent)
    got = empty.rates(ones, RatePoint(rate=1.0, volumes=~nowhere))
    assert got.threshold[0] == -np.inf and got.false_positives[0, 0] == 0.0
    assert np.isnan(got.found["lesion"][0, 0])


def test_a_missed_lesion_is_not_found_where_every_box_counts():
    scores = drawn(8)
    evaluator, partition = evaluator_of(scores)
    ones = np.ones((1, partition.n_clusters), dtype=np.uint16)
    everything = evaluator.at(ones, np.array([-np.inf]))
    found = scores.cases["n_detected"].sum() / scores.cases["n_lesions"].sum()
    assert everything.found["lesion"][0, 0] == pytest.approx(found) and found < 1


def test_findings_come_back_from_saved_events():
    scores = drawn(9, findings=True)
    cases, truth, _ = tables(9)
    again = TASK.from_table(
        Cohort.from_frame(cases, lesions=truth),
        scores.cases[["case_id", "status", "n_lesions"]],
        scores.events.astype(object),
        PLAIN,
        ScoreOptions(),
    )
    before, after = evaluator_of(scores)[0], evaluator_of(again)[0]
    for level in LEVELS:
        assert np.array_equal(before.units[level].score, after.units[level].score), level
