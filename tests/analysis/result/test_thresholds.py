"""A threshold set at one hospital and used at another: what it gives, in numbers and in words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats

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
from elsewhere.simulation.coverage import binomial_interval
from elsewhere.simulation.marks import FALSE_PER_VOLUME, FOUND_AT_ALL, MarksDesign, simulate_marks
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
    alone = operating_thresholds(twin, TASK.partition(twin), None)["points"][4]
    assert (alone["volumes"], alone["rate"]) == ("all volumes", 1.0)
    assert list(made.rows) == [HOME, HERE]
    assert made.threshold["value"] == alone["metrics"]["threshold"]["value"], "the second result sets it"
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


LOUDER, FAINTER = 0.3, 0.4
"""How much higher false marks, and how much lower true marks, are rated at the second site."""


def two_sites(design: MarksDesign, rng: np.random.Generator) -> Scores:
    """Marks at sites a and b, whose rates at any threshold are known."""
    cases, events = [], []
    for site, moved in (("a", 0.0), ("b", 1.0)):
        marks = simulate_marks(design, rng)
        wrong = marks.box_lesion < 0
        score = marks.box_score + moved * np.where(wrong, LOUDER, -FAINTER)
        n = marks.lesions_of_case.size
        ids = np.char.add(f"{site}-", np.arange(n).astype(str))
        lesion_case = np.repeat(np.arange(n), marks.lesions_of_case)
        missed = np.setdiff1d(np.arange(lesion_case.size), marks.box_lesion)
        cases.append(
            pd.DataFrame(
                {
                    "case_id": ids,
                    "patient_id": np.char.add(f"{site}-", marks.cluster.astype(str)),
                    "site": site,
                    "n_lesions": marks.lesions_of_case,
                }
            )
        )
        events.append(
            pd.DataFrame(
                {
                    "case_id": ids[np.concatenate([marks.box_case, lesion_case[missed]])],
                    "score": np.concatenate([score, np.full(missed.size, np.nan)]),
                    "kind": np.concatenate([np.where(wrong, "fp", "tp"), np.full(missed.size, "fn")]),
                }
            )
        )
    text = {"case_id": "string", "patient_id": "string", "kind": "string"}
    tables = [pd.concat(part, ignore_index=True) for part in (cases, events)]
    whole, marked = (t.astype({k: v for k, v in text.items() if k in t.columns}) for t in tables)
    return Scores(task="detection", protocol=protocols.get("plain"), cases=whole, events=marked)


def covered(design: MarksDesign, *, rate: float, replicates: int) -> None:
    """Count how often the intervals at site b hold the rates of the population."""
    threshold = float(stats.norm.ppf(1 - rate / FALSE_PER_VOLUME))
    false = FALSE_PER_VOLUME * stats.norm.sf(threshold - LOUDER)
    found = FOUND_AT_ALL * stats.norm.sf(threshold - design.separation + FAINTER)
    at_home = FOUND_AT_ALL * stats.norm.sf(threshold - design.separation)
    truth = {
        "false_positives": false,
        "false_positives_ratio": false / rate,
        "false_positives_difference": false - rate,
        "lesion": found,
        "lesion_difference": found - at_home,
    }
    rng = np.random.default_rng([design.patients, round(100 * rate)])
    inside = dict.fromkeys(truth, 0)
    for r in range(replicates):
        resampling = Resampling(key="coverage", seed=r, resamples=200)
        made = carried_threshold(two_sites(design, rng), "site", "a", rate=rate, resampling=resampling)
        for name, value in truth.items():
            entry = made.rows["b"]["metrics"][name]
            inside[name] += entry["lo"] <= value <= entry["hi"]
    for name, count in inside.items():
        lo, hi = binomial_interval(count, replicates, level=0.999)
        assert lo <= 0.95 <= hi, (name, count / replicates)


def test_intervals_hold_the_rates_of_the_other_site():
    covered(MarksDesign(patients=60, volumes_per_patient=2, wafroc=0.8), rate=0.5, replicates=40)


@pytest.mark.slow
@pytest.mark.parametrize(("patients", "volumes"), [(150, 4), (400, 2)])
@pytest.mark.parametrize("rate", [0.25, 0.6])
def test_intervals_hold_the_rates_of_the_other_site_in_many_cohorts(patients, volumes, rate):
    design = MarksDesign(patients=patients, volumes_per_patient=volumes, wafroc=0.8)
    covered(design, rate=rate, replicates=300)
