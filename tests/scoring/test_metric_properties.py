"""Every metric of every task declares true properties: bounds, direction, and no regard for case order.

A new metric is drawn in by its task; one that declares itself wrongly fails here.
"""

from __future__ import annotations

import math
from functools import cache
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.table import Cohort
from elsewhere.phantom.hospitals import World, make
from elsewhere.protocols import protocols
from elsewhere.scoring.slides import worst_stage
from elsewhere.scoring.task import ScoreOptions, read_predictions, tasks

OPTIONS = ScoreOptions(threads=1)
PAIRS = [(task, name) for task in tasks.names() for name, protocol in protocols if task in protocol.tasks]
NOT_A_QUALITY = {"recall_rate"}
"""How many are called positive: fewer are wished for, but a perfect model need not have the fewest."""
WORLD = World(patients_per_site=30, leaked_patients=0, file_name_ids=0, respelt_site_rows=0)


@cache
def world_of(task):
    tables = make(task, np.random.default_rng(3), WORLD)
    predictions = tables.predictions
    if task == "segmentation":
        predictions = mask_columns(predictions, predictions["dice"], predictions["hausdorff_mm"])
    return Cohort(cases=tables.cases, lesions=tables.lesions), predictions


def mask_columns(table, dice, distance):
    """A scores table with every column that a segmentation metric is made of."""
    found = (pd.Series(dice, index=table.index) > 0.5).astype(int)
    return table.assign(
        dice=dice,
        hausdorff_mm=distance,
        hausdorff95_mm=distance,
        contour95_voxels=distance,
        average_surface_distance_mm=distance,
        surface_dice_1mm=dice,
        n_truth_components=1,
        n_found_components=found,
        false_components_per_case=1 - found,
    )


def scores_of(task, protocol, predictions, folder):
    cohort, _ = world_of(task)
    found = tasks.get(task)
    if task == "segmentation":
        return found.from_table(cohort, predictions, None, protocols.get(protocol), OPTIONS)
    path = folder / f"{quote(task)}.csv"
    predictions.to_csv(path, index=False)
    return found.score(cohort, read_predictions(task, path, cohort=cohort), protocols.get(protocol), OPTIONS)


def evaluator_of(task, scores):
    found = tasks.get(task)
    return found.evaluator(scores, found.partition(scores), OPTIONS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("predictions")


@pytest.fixture(scope="module")
def scored(folder):
    """The scores of each (task, protocol), made once."""

    @cache
    def get(task, protocol):
        return scores_of(task, protocol, world_of(task)[1], folder)

    return get


@pytest.mark.parametrize(("task", "protocol"), PAIRS)
def test_declarations_are_complete(task, protocol, scored):
    scores = scored(task, protocol)
    specs = evaluator_of(task, scores).specs
    declared = tasks.get(task).metrics(protocols.get(protocol))
    assert [spec.name for spec in declared] == [spec.name for spec in specs]
    assert len({spec.name for spec in specs}) == len(specs)
    assert sum(spec.primary for spec in specs) == 1
    for spec in specs:
        assert spec.label, spec.name
        assert spec.lower_bound < spec.upper_bound, spec.name
        assert spec.lower_bound <= spec.worst <= spec.upper_bound, spec.name
        if not math.isinf(spec.worst):
            wrong_end = spec.upper_bound if spec.higher_is_better else spec.lower_bound
            assert spec.worst != wrong_end, spec.name


@pytest.mark.parametrize(("task", "protocol"), PAIRS)
def test_bounds_hold_under_any_weights(task, protocol, scored):
    evaluator = evaluator_of(task, scored(task, protocol))
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, size=(40, evaluator.n_clusters)).astype(np.uint16)
    weights[0] = 1
    weights[1, 5:] = 0
    values = evaluator.evaluate(weights)
    assert values.shape == (40, len(evaluator.specs))
    for spec, column in zip(evaluator.specs, values.T, strict=True):
        defined = column[~np.isnan(column)]
        assert (defined >= spec.lower_bound - 1e-9).all(), spec.name
        assert (defined <= spec.upper_bound + 1e-9).all(), spec.name
    undefined = {spec.name for spec, value in zip(evaluator.specs, values[0], strict=True) if np.isnan(value)}
    assert undefined == set(evaluator.undefined_reasons())
    assert set(evaluator.case_counts()) == {spec.name for spec in evaluator.specs}


@pytest.mark.parametrize(("task", "protocol"), PAIRS)
def test_the_order_of_cases_does_not_matter(task, protocol, scored):
    scores = scored(task, protocol)
    order = np.random.default_rng(2).permutation(len(scores.cases))
    shuffled = type(scores)(
        task=scores.task,
        protocol=scores.protocol,
        cases=scores.cases.iloc[order].reset_index(drop=True),
        events=scores.events,
        counts=scores.counts,
        extras=scores.extras,
    )
    before, after = evaluator_of(task, scores).values(), evaluator_of(task, shuffled).values()
    for name, value in before.items():
        assert after[name] == pytest.approx(value, abs=1e-9, nan_ok=True), name


SCORE_COLUMN = {"classification": "probability", "response": "probability", "detection": "Score"}


@pytest.mark.parametrize("task", sorted(SCORE_COLUMN))
def test_rank_based_metrics_and_no_others_ignore_a_monotone_change_of_the_scores(task, folder):
    """`rank_based` is what permutation tests go by: a metric that declares it falsely fails here (ST-12a)."""
    table = world_of(task)[1]
    column = SCORE_COLUMN[task]
    changed = table.assign(**{column: 0.4 * table[column] ** 3})
    before = evaluator_of(task, scores_of(task, "plain", table, folder))
    after = evaluator_of(task, scores_of(task, "plain", changed, folder)).values()
    same = {
        name
        for name, value in before.values().items()
        if not math.isnan(value) and after[name] == pytest.approx(value, abs=1e-12)
    }
    declared = {spec.name for spec in before.specs if spec.rank_based}
    assert declared and declared <= same
    moving = {"balanced_accuracy", "brier", "nll", "accuracy"} & {spec.name for spec in before.specs}
    assert not moving & same


@pytest.mark.parametrize(("task", "protocol"), PAIRS)
def test_ranks_in_place_of_scores_keep_rank_based_values(task, protocol, scored):
    """Under any weights: `ranked` may change nothing that a rank-based metric reads."""
    evaluator = evaluator_of(task, scored(task, protocol))
    weights = np.random.default_rng(5).integers(0, 4, size=(30, evaluator.n_clusters)).astype(np.uint16)
    before, after = evaluator.evaluate(weights), evaluator.ranked().evaluate(weights)
    for k, spec in enumerate(evaluator.specs):
        if spec.rank_based:
            assert after[:, k] == pytest.approx(before[:, k], abs=1e-12, nan_ok=True), spec.name


def perfect_and_useless(task):
    """(predictions that know the truth, predictions that say the opposite)."""
    cohort, _ = world_of(task)
    cases = cohort.cases
    if task in {"classification", "response"}:
        truth = cases["label"] == "malignant" if task == "classification" else cases["pcr"] == 1
        table = pd.DataFrame({"case_id": cases["case_id"], "probability": truth.astype(float)})
        return table, table.assign(probability=1 - table["probability"])
    if task == "segmentation":
        table = world_of(task)[1]
        return mask_columns(table, 1.0, 0.0), mask_columns(table, 0.0, 150.0)
    if task == "slides":
        ids = cases["case_id"] + ".tif"
        best = pd.DataFrame({"patient": ids, "stage": cases["stage"]})
        return best, best.assign(stage=[worst_stage(stage) for stage in cases["stage"]])
    lesions = cohort.lesions.merge(cases[["case_id", "patient_id", "exam_id", "view"]], on="case_id")
    found = pd.DataFrame(
        {
            "PatientID": lesions["patient_id"],
            "StudyUID": lesions["exam_id"],
            "View": lesions["view"],
            "X": lesions["x"],
            "Width": lesions["width"],
            "Y": lesions["y"],
            "Height": lesions["height"],
            "Z": lesions["slice"] - 2,
            "Depth": 4,
            "Score": 0.9,
        }
    )
    return found, found.assign(X=found["X"] + 3000, Y=found["Y"] + 3000)


@pytest.mark.parametrize("task", tasks.names())
def test_the_truth_scores_better_than_its_opposite(task, folder):
    best, worst = (
        evaluator_of(task, scores_of(task, "plain", table, folder)) for table in perfect_and_useless(task)
    )
    good, bad = best.values(), worst.values()
    for spec in best.specs:
        if spec.name in NOT_A_QUALITY or math.isnan(good[spec.name]) or math.isnan(bad[spec.name]):
            continue
        sign = 1 if spec.higher_is_better else -1
        assert sign * (good[spec.name] - bad[spec.name]) >= -1e-9, spec.name
        if spec.primary:
            assert sign * (good[spec.name] - bad[spec.name]) > 0.5
