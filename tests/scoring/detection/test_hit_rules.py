"""Hit rules: equal to separate evaluations to the last bit, and to a plain reading of every rule."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions.boxes import boxes_from_frame
from elsewhere.protocols import protocols
from elsewhere.scoring.detection.hit_rule_map import map_of_rules, score_under_rules
from elsewhere.scoring.detection.hit_rules import HitRules, InPlane, in_plane_rules, rule_table
from elsewhere.scoring.task import ScoreOptions, tasks

CODE = protocols.get("dbtex-code")
ONCE = np.ones((1, 1), dtype=np.uint16)


def world(seed, *, volumes=30, boxes=600, flat=False):
    """Volumes with up to three lesions, and boxes near them; scores are coarse, so that many are equal."""
    rng = np.random.default_rng(seed)
    cases = pd.DataFrame(
        {
            "case_id": [f"S{i}/lcc" for i in range(volumes)],
            "patient_id": [f"P{i // 2}" for i in range(volumes)],
        }
    )
    of = np.sort(rng.integers(0, volumes // 2, volumes // 2))
    slices = rng.integers(20, 80, volumes)
    n = of.size
    lesions = pd.DataFrame(
        {
            "case_id": cases["case_id"].to_numpy()[of],
            "lesion_id": [str(i) for i in range(n)],
            "x": rng.integers(200, 500, n),
            "y": rng.integers(200, 500, n),
            "width": rng.integers(0, 250, n),
            "height": rng.integers(0, 250, n),
            "slice": rng.integers(0, 20, n),
            "volume_slices": slices[of] + rng.integers(0, 2, n),
            "class": "cancer",
            "ad": rng.integers(0, 2, n),
        }
    )
    at = rng.integers(0, volumes + 1, boxes)
    said = pd.DataFrame(
        {
            "case_id": np.append(cases["case_id"].to_numpy(), "X/lcc")[at],
            "x": rng.integers(150, 550, boxes),
            "y": rng.integers(150, 550, boxes),
            "width": rng.integers(0, 250, boxes),
            "height": rng.integers(0, 250, boxes),
            "z": rng.integers(0, 20, boxes),
            "depth": rng.integers(0, 9, boxes),
            "score": rng.integers(0, 40, boxes) / 40,
        }
    )
    if flat:
        lesions = lesions.drop(columns=["slice", "volume_slices"])
        said = said.drop(columns=["z", "depth"])
    return Cohort.from_frame(cases, lesions=lesions), said


def under(cohort, said, protocol=CODE, rules=None, **options):
    options = ScoreOptions(**options)
    return score_under_rules(
        cohort, boxes_from_frame(said, cohort=None), protocol, options, rules or HitRules()
    )


def separately(cohort, said, rules):
    """The primary and the secondary metric by the task itself, under rules that a protocol can hold."""
    task = tasks.get("detection")
    protocol = dataclasses.replace(CODE, detection=rules)
    scores = task.score(cohort, boxes_from_frame(said), protocol, ScoreOptions())
    evaluator = task.evaluator(scores, task.partition(scores), ScoreOptions())
    row = evaluator.evaluate(np.ones((1, evaluator.n_clusters), dtype=np.uint16))[0]
    names = [spec.name for spec in evaluator.specs]
    return row[names.index("mean_sensitivity_1_to_4")], row[names.index("sensitivity_at_2_all")]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_radius_rules_equal_separate_evaluations_to_the_last_bit(seed, flat):
    cohort, said = world(seed, flat=flat)
    rules = HitRules(in_plane=in_plane_rules(floors=(50, 100), ious=()), slice_fractions=(0.05, 0.25))
    made = under(cohort, said, rules=rules).every.values
    planes = {plane.name: plane.radius for plane in rules.in_plane}
    for row, value in zip(rule_table(rules).itertuples(), made, strict=True):
        of_rule = dataclasses.replace(
            planes[row.in_plane], slice_fraction=row.slice_tolerance, matching=row.matching
        )
        assert tuple(value) == separately(cohort, said, of_rule)


@pytest.mark.parametrize("name", ["dbtex-code", "dbtex-paper", "plain", "phantom-half"])
def test_the_own_rule_is_the_protocol(name):
    cohort, said = world(5)
    protocol = protocols.get(name)
    made = under(cohort, said, protocol)
    assert tuple(made.own.values[0]) == separately(cohort, said, protocol.detection)


def overlap(box, lesion):
    width = min(box.x + box.width, lesion.x + lesion.width) - max(box.x, lesion.x)
    height = min(box.y + box.height, lesion.y + lesion.height) - max(box.y, lesion.y)
    both = max(width, 0) * max(height, 0)
    union = box.width * box.height + lesion.width * lesion.height - both
    return both / union if union else 0.0


@pytest.mark.parametrize("seed", range(2))
def test_overlap_rules_equal_a_loop_over_the_boxes(seed):
    cohort, said = world(seed, volumes=12, boxes=150)
    rules = HitRules(in_plane=in_plane_rules(floors=(), ious=(0.1, 0.4))[1:], slice_fractions=(0.1, 0.5))
    made = under(cohort, said, rules=rules).every
    lesions, hits = cohort.lesions, np.zeros(len(said), dtype=int)
    lesion_hits = np.zeros(len(lesions), dtype=int)
    first_row = lesions.drop_duplicates("case_id").set_index("case_id")["volume_slices"]
    for least in (0.1, 0.4):
        for fraction in (0.1, 0.5):
            for matching in ("challenge", "nearest"):
                seen = set()
                for i, box in enumerate(said.itertuples()):
                    near = []
                    for j, lesion in enumerate(lesions.itertuples()):
                        if lesion.case_id != box.case_id or overlap(box, lesion) < least:
                            continue
                        dz = abs(box.z + box.depth / 2 - lesion.slice)
                        if dz > first_row[box.case_id] * fraction:
                            continue
                        dx = box.x + box.width / 2 - lesion.x - lesion.width / 2
                        dy = box.y + box.height / 2 - lesion.y - lesion.height / 2
                        near.append((np.sqrt(dx * dx + dy * dy + dz * dz), j))
                    if near:
                        hits[i] += 1
                        seen.add(near[0][1] if matching == "challenge" else min(near)[1])
                lesion_hits[sorted(seen)] += 1
    order = np.argsort(-said["score"].to_numpy(), kind="stable")
    assert made.box_hits.tolist() == hits[order].tolist()
    assert made.lesion_hits.tolist() == lesion_hits.tolist()
    assert hits.max() > 0


def test_a_looser_rule_never_loses_a_hit():
    """Every box that hits by a rule hits by one with a longer reach."""
    cohort, said = world(7)
    counts = [
        (
            under(
                cohort,
                said,
                rules=HitRules(
                    in_plane=(InPlane(name="iou", min_iou=iou),),
                    slice_fractions=(fraction,),
                    matchings=("nearest",),
                ),
            ).every.box_hits
        )
        for iou, fraction in ((0.5, 0.05), (0.3, 0.05), (0.3, 0.25), (0.1, 0.5))
    ]
    for tight, loose in itertools.pairwise(counts):
        assert (tight <= loose).all()


def test_invalid_boxes_hit_nothing_and_no_boxes_find_nothing():
    cohort, said = world(1)
    broken = said.assign(x=said["x"].astype(float))
    broken.loc[:40, "x"] = np.nan
    from elsewhere.predictions import ReadOptions

    boxes = boxes_from_frame(broken, ReadOptions(on_invalid="worst"))
    made = score_under_rules(cohort, boxes, CODE, ScoreOptions(on_invalid="worst"))
    assert made.every.values.shape == (60, 2) and np.isfinite(made.every.values).all()
    nothing = under(cohort, said.iloc[:0])
    assert (nothing.every.values == 0).all()
    assert nothing.every.box_hits.size == 0 and (nothing.every.lesion_hits == 0).all()


def test_a_cohort_without_lesions_has_no_values():
    cohort, said = world(1)
    empty = Cohort.from_frame(cohort.cases, lesions=cohort.lesions.iloc[:0])
    made = map_of_rules({"A": under(empty, said), "B": under(empty, said)}).summary
    assert made["models"][0]["value"] is None and made["rules_with_another_order"] == 0
    assert made["paper_and_code"]["share"] is None


def test_boxes_without_slices_are_refused_where_lesions_have_them():
    cohort, said = world(1)
    with pytest.raises(UserError, match="no slices"):
        under(cohort, said.drop(columns=["z", "depth"]))


def test_the_map_of_two_models_whose_order_depends_on_the_overlap():
    """Sharp boxes of A beside coarse ones of B: B finds more by the radius, A by the overlap."""
    ids = [f"S{i}/lcc" for i in range(10)]
    cases = pd.DataFrame({"case_id": ids, "patient_id": ids})
    lesion = {"x": 300, "y": 300, "width": 200, "height": 200, "slice": 20, "volume_slices": 60}
    lesions = pd.DataFrame([{"case_id": name, "lesion_id": "1", **lesion} for name in ids])
    cohort = Cohort.from_frame(cases, lesions=lesions.assign(**{"class": "cancer"}))
    box = {"x": 300, "y": 300, "width": 200, "height": 200, "z": 20, "depth": 0, "score": 0.9}
    sharp = pd.DataFrame([{"case_id": name, **box} for name in ids[:6]])
    coarse = pd.DataFrame([{"case_id": name, **box, "width": 900} for name in ids[:8]]).assign(x=-50)
    made = map_of_rules({"A": under(cohort, sharp), "B": under(cohort, coarse)})
    assert made.summary["models"][0]["value"] == 0.6 and made.summary["models"][1]["value"] == 0.8
    (pair,) = made.summary["changing_pairs"]
    # IoU of a coarse box is 0.22: it is no hit at 0.3 and at 0.5, under every depth and matching.
    assert pair == {"ahead": "B", "behind": "A", "rules_in_other_order": 20}
    assert made.summary["rules_with_another_leader"] == made.summary["rules_with_another_order"] == 20
    row = made.summary["models"][1]
    assert (row["best_rank"], row["worst_rank"], row["rules_at_another_rank"]) == (1, 2, 20)
    assert (row["boxes_always_hits"], row["boxes_that_change"]) == (0, 8)
    assert made.summary["models"][0]["boxes_always_hits"] == 6
    assert set(made.table.columns) >= {"in_plane", "slice_tolerance", "matching", "model", "value", "rank"}
    assert len(made.table) == 120
    assert made.lesions["rules_hit B"].tolist() == [40] * 8 + [0] * 2
    # The diagonal is 283 px: paper and code agree here.
    assert made.summary["paper_and_code"]["lesions_with_another_radius"] == 0


def test_paper_and_code_differ_below_a_diagonal_of_200_px():
    cohort, said = world(3)
    made = map_of_rules({"A": under(cohort, said)}).summary["paper_and_code"]
    diagonal = np.hypot(cohort.lesions["width"], cohort.lesions["height"])
    assert made["lesions_with_another_radius"] == int((diagonal < 200).sum()) > 0
    both = [
        separately(cohort, said, protocols.get(name).detection)[0] for name in ("dbtex-paper", "dbtex-code")
    ]
    of_paper = dataclasses.replace(protocols.get("dbtex-paper").detection, matching=CODE.detection.matching)
    assert made["models"][0]["code"] == both[1]
    assert made["models"][0]["paper"] == separately(cohort, said, of_paper)[0]


def test_on_the_published_boxes_the_rules_differ_on_a_quarter_of_the_lesions(data_dir):
    """DBT-04a: the floor of 100 px acts on 26 % of the training lesions."""
    from elsewhere.cohort import read_cohort

    cohort = read_cohort("bcs-dbt", data_dir / "tomosynthesis" / "BCS-DBT")
    said = pd.DataFrame(columns=["case_id", "x", "y", "width", "height", "z", "depth", "score"])
    part = map_of_rules({"A": under(cohort, said)}).summary["paper_and_code"]
    assert part["lesions"] == 224
    assert part["share"] == pytest.approx(0.26, abs=0.005)


@pytest.mark.parametrize(
    "rules",
    [
        {"slice_fractions": ()},
        {"slice_fractions": (0.0,)},
        {"slice_fractions": (float("nan"),)},
        {"in_plane": ()},
    ],
)
def test_rules_outside_of_their_range(rules):
    with pytest.raises(UserError):
        HitRules(**rules)


@pytest.mark.parametrize("wrong", [{"ious": (0.0,)}, {"ious": (1.2,)}, {"floors": (-1.0,)}])
def test_in_plane_rules_outside_of_their_range(wrong):
    with pytest.raises(UserError):
        in_plane_rules(**wrong)
