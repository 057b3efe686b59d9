"""The search over 432 settings from 72 fusions, and merged boxes as predictions (DBT-09)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from elsewhere.analysis.merging.search import search_settings
from elsewhere.analysis.merging.settings import MergeSetting, all_settings, parse_setting, published
from elsewhere.analysis.merging.team_boxes import MergeOptions, fit_scales, gather, merge_boxes, scaled
from elsewhere.ensembles.volumes import fuse
from elsewhere.errors import UserError
from elsewhere.phantom.detectors import DetectorWorld, draw_detectors
from elsewhere.protocols.builtin import DBTEX_CODE
from elsewhere.scoring.detection.froc import FrocEvaluator, FrocEvents
from elsewhere.scoring.task import ScoreOptions, tasks

RULES = DBTEX_CODE.detection


@pytest.fixture(scope="module")
def world():
    return draw_detectors(DetectorWorld(patients=20, finders=6, seed=3))


@pytest.fixture(scope="module")
def teams(world):
    said = {finder.name: world.boxes(finder.name, "validation") for finder in world.finders}
    return gather(said, RULES, cohort=world.cohort("validation"))


def value_of(boxes, cohort):
    """The metric by the task's own scoring."""
    task = tasks.get("detection")
    scores = task.score(cohort, boxes, DBTEX_CODE, ScoreOptions())
    evaluator = task.evaluator(scores, task.partition(scores), ScoreOptions())
    values = evaluator.evaluate(np.ones((1, evaluator.n_clusters), dtype=np.uint16))[0]
    return values[evaluator.index("mean_sensitivity_1_to_4_all")]


def test_72_fusions_are_432_plain_ones(world, teams):
    """Each setting on its own: normalise, fuse, match, and read the curve by the task's evaluator (must show 2)."""
    found = search_settings(teams)
    assert found.fusions == 72 and len(found.table) == 432
    cohort = world.cohort("validation")
    of_patient = np.unique(cohort.cases["patient_id"].astype(str), return_inverse=True)[1].astype(np.int32)
    of_case = np.bincount(teams.lesions.volume, minlength=teams.listed)
    for number, (setting, value) in enumerate(zip(all_settings(), found.table["value"], strict=True)):
        scales = fit_scales(teams, setting.normalisation)
        fused, score = fuse(teams.boxes, scaled(teams, scales), setting.fusion())
        evaluator = FrocEvaluator(
            rules=RULES, cluster_of_case=of_patient, n_clusters=20, lesions_of_case=of_case,
            events=FrocEvents(case=fused.volume, cluster=of_patient[fused.volume].astype(np.int64), lesion=teams.hits(fused), score=score),
        )  # fmt: skip
        plain = evaluator.evaluate(np.ones((1, 20), dtype=np.uint16))[0, -1]
        assert plain == pytest.approx(value, abs=1e-12) and len(score) == found.table["boxes"][number]


@pytest.mark.parametrize("number", [0, 100, 251, 340, 431])
def test_a_setting_has_the_value_of_its_merged_boxes_scored_by_the_task(world, teams, number):
    setting = all_settings()[number]
    found = search_settings(teams, settings=[setting])
    alone = merge_boxes(teams, setting)
    assert len(alone.table) == found.table["boxes"][0]
    assert value_of(alone, world.cohort("validation")) == pytest.approx(found.table["value"][0], abs=1e-12)


def test_the_chosen_and_the_published_setting_are_marked(teams):
    found = search_settings(teams)
    table = found.table
    assert table["chosen"].sum() == 1 and table["published"].sum() == 1
    assert table.loc[table["chosen"], "setting"].item() == found.chosen.name
    assert table.loc[table["chosen"], "rank"].item() == 1
    assert table["setting"].nunique() == 432
    assert table.loc[table["published"], "setting"].item() == published().name


def test_among_equal_settings_the_published_one_is_chosen(world):
    """One box of one finder in one volume: no setting can differ."""
    cohort = world.cohort("validation")
    lesion = cohort.lesions.iloc[0]
    boxes = world.boxes("alpha", "validation")
    row = boxes.table.iloc[[0]].assign(
        case_id=lesion["case_id"], x=lesion["x"], y=lesion["y"], width=lesion["width"], height=lesion["height"],
        z=lesion["slice"], depth=0.0,
    )  # fmt: skip
    one = dataclasses.replace(boxes, table=row)
    empty = dataclasses.replace(boxes, table=row.iloc[:0])
    found = search_settings(gather({"a": one, "b": empty}, RULES, cohort=cohort))
    assert found.equal == 432 // 3 and found.chosen == published()


@pytest.mark.parametrize("vote", ["affirmative", "consensus", "unanimous"])
def test_votes_have_72_settings(world, teams, vote):
    found = search_settings(teams, settings=all_settings(vote))
    assert len(found.table) == 72 and found.chosen.vote == vote
    alone = merge_boxes(teams, found.chosen, scales=found.scales[found.chosen.normalisation])
    assert value_of(alone, world.cohort("validation")) == pytest.approx(found.table["value"].max(), abs=1e-12)


def test_weights_and_floor_hold_for_all_settings(world, teams):
    options = MergeOptions(floor=0.3, weights=(3.0, 1.0, 1.0, 1.0, 1.0, 2.0))
    settings = all_settings(normalisations=["percentile"])[:18]
    found = search_settings(teams, settings=settings, options=options)
    setting = settings[7]
    alone = merge_boxes(teams, setting, options=options)
    assert value_of(alone, world.cohort("validation")) == pytest.approx(found.table["value"][7], abs=1e-12)
    assert len(merge_boxes(teams, setting).table) > len(alone.table)


def test_boxes_of_unlisted_volumes_are_merged_and_count_as_false_positives(world):
    cohort = world.cohort("validation")
    said = {}
    for finder in ("alpha", "beta"):
        boxes = world.boxes(finder, "validation")
        stray = boxes.table.head(40).assign(
            case_id="elsewhere/lcc", patient_id="x", score=boxes.table["score"].max()
        )
        said[finder] = dataclasses.replace(
            boxes, table=type(stray)(np.concatenate([boxes.table, stray]), columns=stray.columns)
        )
        said[finder].table[["x", "y", "width", "height", "z", "depth", "score"]] = (
            said[finder].table[["x", "y", "width", "height", "z", "depth", "score"]].astype(float)
        )
    teams = gather(said, RULES, cohort=cohort)
    assert len(teams.volume_ids) == teams.listed + 1 and teams.patients[-1] == "x"
    setting = MergeSetting(normalisation="max")
    found = search_settings(teams, settings=[setting])
    alone = merge_boxes(teams, setting)
    assert "elsewhere/lcc" in set(alone.table["case_id"])
    assert value_of(alone, cohort) == pytest.approx(found.table["value"][0], abs=1e-12)


def test_no_lesion_no_choice(world, teams):
    normal = world.cohort("validation")
    normal = normal.subset(~normal.cases["case_id"].isin(normal.lesions["case_id"]).to_numpy())
    said = {name: world.boxes(name, "validation") for name in ("alpha", "beta")}
    with pytest.raises(UserError, match="no lesions"):
        search_settings(gather(said, RULES, cohort=normal))
    bare = gather(said, RULES)
    assert len(merge_boxes(bare, published()).table)
    with pytest.raises(UserError, match="needs lesions"):
        merge_boxes(bare, MergeSetting(normalisation="thresholded-percentile"))


def test_settings_are_read_from_their_names():
    for setting in (*all_settings()[::50], *all_settings("consensus")[::20]):
        assert parse_setting(setting.name) == setting
    assert parse_setting("published") == published()
    assert parse_setting("iou=0.5", vote="consensus").vote == "consensus"


@pytest.mark.parametrize(
    "text", ["", "iou", "iou=x", "iou=1.0", "votes=0", "votes=1.5", "score=best", "normalisation=rank", "slices=5",
             "iou=0.4,iou=0.5", "vote=most", "vote=consensus,votes=2", "distance=-1", "distance=nan"],
)  # fmt: skip
def test_what_is_no_setting_is_refused(text):
    with pytest.raises(UserError):
        parse_setting(text)
    with pytest.raises(UserError):
        parse_setting("vote=consensus", vote="unanimous")
