"""A threshold set at one hospital and used at another: what it gives, in numbers and in words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elsewhere.analysis.result.thresholds import (
    HERE,
    HOME,
    carried_threshold,
    joined_scores,
    operating_thresholds,
)
from elsewhere.errors import UserError
from elsewhere.phantom.detectors import DetectorWorld, draw_detectors
from elsewhere.protocols import protocols
from elsewhere.scoring.detection import DetectionTask
from elsewhere.scoring.task import ScoreOptions, Scores
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.resampling import Resampling

TASK = DetectionTask()
RESAMPLING = Resampling(key="test", resamples=300, threads=1)


def scored(*, drop: float = 0.0, patients: int = 120, seed: int = 1) -> Scores:
    """The first finder of a world, on its test split."""
    made = draw_detectors(DetectorWorld(patients=patients, finders=1, drop=drop, seed=seed))
    return TASK.score(
        made.cohort("test"),
        made.boxes("alpha", "test"),
        protocols.get("dbtex-code"),
        ScoreOptions(group_by=("vendor",)),
    )


@pytest.fixture(scope="module")
def dropped() -> Scores:
    return scored(drop=0.5)


@pytest.fixture(scope="module")
def twin() -> Scores:
    return scored()


def louder_at(scores: Scores, vendor: str, factor: float) -> Scores:
    """The same boxes, with higher scores at one vendor: another calibration."""
    events = scores.events.copy()
    here = set(scores.cases.loc[scores.cases["vendor"] == vendor, "case_id"])
    inside = events["case_id"].isin(here).to_numpy(dtype=bool)
    events.loc[inside, "score"] = events.loc[inside, "score"] * factor
    return dataclasses.replace(scores, events=events)


def test_a_drop_in_sensitivity_is_seen_and_its_twin_is_not(dropped, twin):
    here = carried_threshold(dropped, "vendor", "A", resampling=RESAMPLING)
    there = carried_threshold(twin, "vendor", "A", resampling=RESAMPLING)
    assert list(here.rows) == ["A", "B"]
    assert here.threshold["value"] == there.threshold["value"], "nothing was planted at home"
    assert here.threshold["lo"] < here.threshold["value"] < here.threshold["hi"]
    assert here.rows["B"]["words"]["sensitivity"] == "lower"
    assert here.rows["B"]["words"]["false_positives"] == "no difference shown"
    assert there.rows["B"]["words"]["sensitivity"] == "no difference shown"
    lost = here.rows["B"]["metrics"]["lesion_difference"]
    assert lost["hi"] < 0 and lost["value"] == pytest.approx(
        here.rows["B"]["metrics"]["lesion"]["value"] - here.rows["A"]["metrics"]["lesion"]["value"]
    )
    home = here.rows["A"]["metrics"]["false_positives"]
    assert home["value"] <= 1.0 and home["lo"] is None, "set by construction"


def test_another_calibration_drifts_the_false_positives(twin):
    made = carried_threshold(louder_at(twin, "B", 1.6), "vendor", "A", resampling=RESAMPLING)
    ratio = made.rows["B"]["metrics"]["false_positives_ratio"]
    assert ratio["lo"] > 1.1 and made.rows["B"]["words"]["false_positives"] == "more"
    assert f"{ratio['value']:.2f}" in made.rows["B"]["words"]["sentence"]
    quiet = carried_threshold(louder_at(twin, "B", 0.4), "vendor", "A", resampling=RESAMPLING)
    assert quiet.rows["B"]["words"] == quiet.rows["B"]["words"] | {
        "false_positives": "fewer",
        "sensitivity": "lower",
    }


def test_the_interval_holds_the_uncertainty_of_the_threshold(twin):
    """With the threshold refitted the ratio varies more than with it held."""
    made = carried_threshold(twin, "vendor", "A", resampling=RESAMPLING)
    wide = made.rows["B"]["metrics"]["false_positives_ratio"]
    alone = made.rows["B"]["metrics"]["false_positives"]
    width = (wide["hi"] - wide["lo"]) / wide["value"]
    assert width > 0 and (alone["hi"] - alone["lo"]) / alone["value"] == pytest.approx(width, rel=0.25)


def test_rates_at_the_ends(twin):
    every = carried_threshold(twin, "vendor", "A", rate=1e6, resampling=RESAMPLING)
    assert every.threshold["value"] is None and "every box counts" in every.threshold["undefined_reason"]
    assert "every box counts" in every.rows["B"]["words"]["sentence"]
    silent = dataclasses.replace(
        twin, events=twin.events.assign(score=twin.events["score"].where(twin.events["kind"] == "fn", 0.5))
    )
    none = carried_threshold(silent, "vendor", "A", rate=0.01, resampling=RESAMPLING)
    assert none.threshold["value"] is None and "no box counts" in none.threshold["undefined_reason"]
    sensitivity = none.rows["B"]["metrics"]["lesion"]
    assert (
        sensitivity["value"] == 0.0 and sensitivity["method"] == "one-sided-bound" and sensitivity["hi"] > 0
    )
    assert none.rows["B"]["metrics"]["false_positives_ratio"]["undefined_reason"]


def test_without_resamples_there_are_values_and_no_intervals(twin):
    made = carried_threshold(twin, "vendor", "A", resampling=Resampling(key="x", resamples=0))
    metrics = made.rows["B"]["metrics"]
    assert all(entry["value"] is not None and entry["lo"] is None for entry in metrics.values())
    assert made.rows["B"]["words"]["false_positives"] == "not assessed"


def test_volumes_without_a_value_and_boxes_without_a_volume_are_counted(twin):
    cases = twin.cases.copy()
    cases.loc[cases.index[:7], "vendor"] = None
    counts = twin.counts | {"extra": 3}
    made = carried_threshold(
        dataclasses.replace(twin, cases=cases, counts=counts), "vendor", "A", resampling=RESAMPLING
    )
    assert any("7 volumes without a value of vendor" in text for text in made.warnings)
    assert any("3 boxes in volumes that the cohort does not list" in text for text in made.warnings)
    assert sum(row["cases"] for row in made.rows.values()) == len(cases) - 7


def test_two_results_are_joined_and_shared_patients_are_counted(twin, dropped):
    other = scored(seed=2, patients=40)
    both = joined_scores(other, twin)
    assert len(both.cases) == len(other.cases) + len(twin.cases)
    made = carried_threshold(both, "result", HOME, resampling=RESAMPLING)
    alone = carried_threshold(twin.take(np.arange(len(twin.cases))), "vendor", "A", resampling=RESAMPLING)
    assert list(made.rows) == [HOME, HERE] and made.threshold["value"] != alone.threshold["value"]
    assert not any("on both sides" in text for text in made.warnings)
    same = carried_threshold(joined_scores(dropped, twin), "result", HOME, resampling=RESAMPLING)
    assert any("120 patients have volumes on both sides" in text for text in same.warnings)
    drift = same.rows[HERE]["metrics"]["false_positives_ratio"]
    assert drift["value"] == pytest.approx(1.0, abs=0.01), "the same false positives in both worlds"
    with pytest.raises(UserError, match="different protocols"):
        joined_scores(twin, dataclasses.replace(twin, protocol=protocols.get("plain")))


@pytest.mark.parametrize(
    ("column", "reference", "rate", "words"),
    [
        ("vendour", "A", 1.0, "unknown column"),
        ("vendor", "Z", 1.0, "unknown value of vendor"),
        ("dataset", "BCS-DBT", 1.0, "applied nowhere else"),
        ("patient_id", "DBT-P00121", 1.0, "values"),
        ("vendor", "A", 0.0, "a rate of 0"),
        ("vendor", "A", float("nan"), "a rate of nan"),
    ],
)
def test_what_cannot_be_carried_is_refused(twin, column, reference, rate, words):
    with pytest.raises(UserError, match=words):
        carried_threshold(twin, column, reference, rate=rate, resampling=RESAMPLING)


def test_each_rate_has_its_threshold_and_three_sensitivities(twin):
    partition = TASK.partition(twin)
    stream = WeightStream(partition, key="x", seed=1, resamples=200)
    made = operating_thresholds(twin, partition, stream)
    points = made["points"]
    assert [(p["volumes"], p["rate"]) for p in points[:5]] == [
        *(("positive volumes", float(x)) for x in (1, 2, 3, 4)),
        ("all volumes", 1.0),
    ]
    values = [p["metrics"]["threshold"]["value"] for p in points[:4]]
    assert values == sorted(values, reverse=True)
    for point in points:
        found = {name: point["metrics"][name] for name in ("lesion", "breast", "patient")}
        assert all(entry["lo"] <= entry["value"] <= entry["hi"] for entry in found.values())
        assert found["lesion"]["value"] <= found["breast"]["value"]
    evaluator = TASK.evaluator(twin, partition, ScoreOptions())
    curve = evaluator.values()["sensitivity_at_2_positive"]
    assert points[1]["metrics"]["lesion"]["value"] == pytest.approx(curve, abs=0.01)
    assert made["units"]["lesion"] > made["units"]["breast"] >= made["units"]["patient"]
    nobody = dataclasses.replace(twin, cases=twin.cases.assign(n_lesions=0))
    assert operating_thresholds(nobody, partition, None) is None
    assert operating_thresholds(dataclasses.replace(twin, events=None), partition, None) is None
