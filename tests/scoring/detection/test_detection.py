"""Detection from tables to numbers: the vectors, the counts, and every edge rule end to end."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import Cohort, read_cohort
from elsewhere.errors import UserError
from elsewhere.predictions import Predictions, ReadOptions
from elsewhere.predictions.boxes import boxes_from_frame
from elsewhere.protocols import protocols
from elsewhere.scoring.detection import DetectionTask, lesion_table
from elsewhere.scoring.detection.froc import froc_specs
from elsewhere.scoring.task import ScoreOptions, read_predictions, tasks
from elsewhere.statistics.bootstrap_weights import WeightStream, draw
from elsewhere.statistics.localisation import FIGURES

CODE = protocols.get("dbtex-code")
PAPER = protocols.get("dbtex-paper")
TASK = DetectionTask()
VARIANTS = {
    "dbtex-code": CODE,
    "older code, first listed": dataclasses.replace(
        CODE, detection=dataclasses.replace(CODE.detection, matching="challenge")
    ),
    "dbtex-code with a floor of 50 px": dataclasses.replace(
        CODE, detection=dataclasses.replace(CODE.detection, floor_px=50.0)
    ),
}
NAMES = {
    "mean_sensitivity_1_to_4": "mean_sensitivity_positive",
    "sensitivity_at_2_all": "sensitivity_at_2_fps_all",
} | {f"sensitivity_at_{x}_positive": f"sensitivity_at_{x}_fps_positive" for x in (1, 2, 3, 4)}


def cohort(n=4, *, lesions=((0, 500, 500, 20), (0, 900, 900, 40), (1, 500, 500, 20)), **columns):
    """`n` volumes of n/2 patients; lesions as (volume, centre x, centre y, slice), 60 x 80 px, 60 slices."""
    cases = pd.DataFrame(
        {
            "case_id": [f"S{i // 2}/{'lcc' if i % 2 else 'rcc'}" for i in range(n)],
            "patient_id": [f"P{i // 2}" for i in range(n)],
            "dataset": "set",
            **columns,
        }
    )
    truth = pd.DataFrame(
        {
            "case_id": [cases["case_id"][v] for v, *_ in lesions],
            "lesion_id": [str(i) for i in range(len(lesions))],
            "x": [x - 30 for _, x, _, _ in lesions],
            "y": [y - 40 for _, _, y, _ in lesions],
            "width": 60,
            "height": 80,
            "slice": [z for *_, z in lesions],
            "volume_slices": 60,
            "class": ["cancer" if i % 2 else "benign" for i in range(len(lesions))],
        }
    )
    return Cohort.from_frame(cases, lesions=truth)


def boxes(*rows, **columns):
    """Rows (case_id, centre x, centre y, centre slice, score)."""
    table = pd.DataFrame(rows, columns=["case_id", "x", "y", "z", "score"])
    frame = table.assign(
        x=table["x"] - 10, y=table["y"] - 10, z=table["z"] - 1, width=20, height=20, depth=2, **columns
    )
    return boxes_from_frame(frame, ReadOptions(on_invalid="worst"))


HIT_A, HIT_B, HIT_C = ("S0/rcc", 500, 500, 20), ("S0/rcc", 900, 900, 40), ("S0/lcc", 500, 500, 20)
AWAY = ("S0/rcc", 100, 100, 5)


def score(predictions, *, of=None, protocol=PAPER, **options):
    return TASK.score(of or cohort(), predictions, protocol, ScoreOptions(**options))


def values(scores):
    return TASK.evaluator(scores, TASK.partition(scores), ScoreOptions()).values()


def test_the_task_is_registered():
    assert isinstance(tasks.get("detection"), DetectionTask)
    assert next(s.name for s in TASK.metrics(PAPER)) == "mean_sensitivity_1_to_4"


CASES = [
    "ordinary_small",
    "duplicates_on_one_lesion",
    "radius_small_box_50_vs_100",
    "two_lesions_nearest_wins",
]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_the_published_evaluation_to_the_last_bit(name, variant, vectors_dir):
    folder = vectors_dir / "dbtex" / name
    expected = json.loads((vectors_dir / "dbtex" / "expected.json").read_text())[name][variant]
    truth = read_cohort("bcs-dbt", folder)
    predictions = read_predictions("detection", folder / "predictions.csv", cohort=truth)
    scores = score(predictions, of=truth, protocol=VARIANTS[variant])
    got = values(scores)
    for ours, theirs in NAMES.items():
        assert got[ours] == expected["metrics"][theirs], ours
    rows = scores.events[scores.events["kind"] != "fn"].sort_values("box")
    assert (rows["kind"] != "fp").astype(int).tolist() == expected["tp_per_prediction_row"]


def test_the_papers_radius_parts_from_the_codes(vectors_dir):
    folder = vectors_dir / "dbtex" / "radius_small_box_50_vs_100"
    truth = read_cohort("bcs-dbt", folder)
    predictions = read_predictions("detection", folder / "predictions.csv", cohort=truth)
    kinds = score(predictions, of=truth).events.sort_values("box")["kind"].head(9).tolist()
    assert kinds == ["tp", "tp", "fp", "fp", "fp", "fp", "fp", "fp", "fp"]


def test_matching_by_name_overrides_the_protocol_and_is_recorded():
    near_two = cohort(lesions=((0, 500, 500, 20), (0, 540, 500, 20)))
    box = boxes(("S0/rcc", 535, 500, 20, 0.9))
    first = score(box, of=near_two)
    nearest = score(box, of=near_two, matching="nearest")
    assert first.events["lesion_id"].iloc[0] == "0"
    assert nearest.events["lesion_id"].iloc[0] == "1"
    assert nearest.protocol.detection.matching == "nearest"
    assert nearest.protocol.digest() != PAPER.digest()
    with pytest.raises(UserError, match="unknown matching 'nearst'"):
        score(box, matching="nearst")


def test_case_table_and_events():
    scores = score(boxes((*HIT_A, 0.9), (*HIT_A, 0.95), (*AWAY, 0.5), (*HIT_C, 0.4)))
    assert scores.events["kind"].tolist() == ["duplicate", "tp", "fp", "tp", "fn"]
    assert scores.events["lesion_id"].fillna("-").tolist() == ["0", "0", "-", "2", "1"]
    assert scores.events["box"].fillna(0).tolist() == [1, 2, 3, 4, 0]
    assert scores.events["lesion_class"].fillna("-").tolist() == ["benign", "benign", "-", "benign", "cancer"]
    table = scores.cases.set_index("case_id")
    assert table.loc["S0/rcc", ["n_lesions", "n_detected", "n_boxes", "n_false_positives"]].tolist() == [
        2,
        1,
        3,
        1,
    ]
    assert table.loc["S0/rcc", "max_score"] == 0.95
    assert np.isnan(table.loc["S1/lcc", "max_score"])
    assert (table["status"] == "scored").all()
    for column in ("patient_id", "dataset", "site"):
        assert column in scores.cases.columns


def test_counts():
    scores = score(
        boxes((*HIT_A, 0.9), ("S9/rcc", 1, 1, 1, 0.8), ("S9/rcc", 1, 1, 1, 0.7), ("S8/rcc", 1, 1, 1, 0.7))
    )
    wanted = {
        "cases": 4,
        "patients": 2,
        "scored": 4,
        "missing": 0,
        "without_boxes": 3,
        "extra": 3,
        "extra_volumes": 2,
    }
    assert {name: scores.counts[name] for name in wanted} == wanted
    assert scores.counts["lesions"] == 3
    assert scores.counts["positives"] == 2
    assert any("not in the cohort" in warning for warning in scores.warnings)
    assert any("3 boxes" in step["why"] for step in scores.flow)


def test_a_volume_without_boxes_is_scored_and_counted_not_missing():
    scores = score(boxes((*HIT_A, 0.9)))
    assert scores.counts["missing"] == 0
    assert scores.counts["without_boxes"] == 3
    assert values(scores)["mean_sensitivity_1_to_4"] == pytest.approx(1 / 3)


def test_no_predictions_at_all():
    scores = score(boxes())
    assert scores.counts["without_boxes"] == 4
    got = values(scores)
    assert {got[spec.name] for spec in froc_specs(PAPER.detection)} == {0.0}
    assert {got[name] for name in FIGURES} == {0.5}, "a model that marks nothing ties with itself"
    assert (got["max_llf"], got["max_nlf"]) == (0.0, 0.0)


def test_no_lesion_is_undefined_with_its_reason():
    scores = score(boxes((*AWAY, 0.9)), of=cohort(lesions=()))
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    got = evaluator.values()
    assert {name for name, value in got.items() if not np.isnan(value)} == {"max_nlf"}
    assert got["max_nlf"] == 0.25
    for name in ("sensitivity_at_2_all", "wafroc", "max_llf"):
        assert "no lesion" in evaluator.undefined_reasons()[name]
    assert TASK.curves(scores, TASK.partition(scores), None, ScoreOptions()) == {}
    bare = Cohort.from_frame(cohort().cases)
    assert any("no lesion table" in warning for warning in score(boxes((*AWAY, 0.9)), of=bare).warnings)


def test_extra_boxes_follow_their_patient_where_the_cohort_has_it():
    box = boxes((*HIT_A, 0.9), *[("S7/rcc", 1, 1, 1, 0.95)] * 6, patient_id=["P0", *["P1"] * 6])
    scores = score(box)
    partition = TASK.partition(scores)
    evaluator = TASK.evaluator(scores, partition, ScoreOptions())
    at = evaluator.index("sensitivity_at_2_all")
    assert evaluator.evaluate(np.array([[2, 0]], dtype=np.uint16))[0, at] == pytest.approx(1 / 3)
    eighteen_over_eight = 18 / 8
    got = evaluator.evaluate(np.array([[1, 3]], dtype=np.uint16))[0, at]
    assert got == pytest.approx(1 / 3 * 2 / eighteen_over_eight)
    stranger = TASK.evaluator(
        score(boxes((*HIT_A, 0.9), ("S7/rcc", 1, 1, 1, 0.95))), partition, ScoreOptions()
    )
    assert stranger.froc.events.cluster.tolist() == [0, -1]


def test_a_file_of_another_cohort_is_refused():
    with pytest.raises(UserError, match="not one of 1 volume ids"):
        score(boxes(("T1/rcc", 1, 1, 1, 0.5)))


def test_ids_that_look_alike_are_offered_and_joined_on_request():
    shouted = boxes((*HIT_A, 0.9), ("S0/LCC", 500, 500, 20, 0.8))
    scores = score(shouted)
    assert scores.counts["extra"] == 1
    assert any("--normalise-ids case" in warning for warning in scores.warnings)
    assert score(shouted, normalise_ids=("case",)).counts["extra"] == 0


def test_an_invalid_box_is_an_error_or_a_false_positive_with_the_volumes_highest_score():
    bad = boxes((*HIT_A, 0.9), (*HIT_A, np.nan), (*HIT_C, np.inf), (*HIT_B, 0.3))
    strict = Predictions(kind="boxes", table=bad.table.drop(columns="reason"), source="x.csv", digest="")
    with pytest.raises(UserError, match="score is missing"):
        score(strict)
    scores = score(bad, on_invalid="worst")
    assert scores.events["kind"].tolist()[:4] == ["tp", "fp", "fp", "tp"]
    assert scores.events["score"].tolist()[:4] == [0.9, 0.9, 0.9, 0.3]
    assert scores.counts["invalid"] == 2
    assert scores.counts["invalid_boxes"] == 2
    assert scores.cases["status"].tolist() == ["invalid", "invalid", "scored", "scored"]
    assert any("2 of 4 boxes are invalid" in warning for warning in scores.warnings)
    without = score(boxes((*HIT_A, 0.9), (*HIT_B, 0.3)))
    assert values(scores)["sensitivity_at_1_positive"] <= values(without)["sensitivity_at_1_positive"]


def test_boxes_without_slices_cannot_hit_lesions_with_slices():
    flat = boxes_from_frame(
        pd.DataFrame({"case_id": ["S0/rcc"], "x": 490, "y": 490, "width": 20, "height": 20, "score": 0.9})
    )
    with pytest.raises(UserError, match="no slices"):
        score(flat)
    pictures = cohort()
    pictures = dataclasses.replace(
        pictures, lesions=pictures.lesions.drop(columns=["slice", "volume_slices"])
    )
    assert score(flat, of=pictures).events["kind"].tolist() == ["tp", "fn", "fn"]


def lesions_with(**columns):
    base = cohort()
    return dataclasses.replace(base, lesions=base.lesions.assign(**columns))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"case_id": ["S0/rcc", "S0/rcc", "S9/x"]}, "does not list"),
        ({"lesion_id": ["0", "0", "2"]}, "already has"),
        ({"width": -1}, "negative size"),
        ({"volume_slices": None}, "no volume_slices"),
        ({"x": ["a", "1", "2"]}, "not numbers"),
    ],
)
def test_bad_lesions_are_named(columns, why):
    with pytest.raises(UserError, match=why):
        score(boxes((*HIT_A, 0.9)), of=lesions_with(**columns))


def test_missing_lesion_columns_and_group_columns_are_named():
    bare = dataclasses.replace(cohort(), lesions=cohort().lesions.drop(columns="height"))
    with pytest.raises(UserError, match="needs height"):
        score(boxes((*HIT_A, 0.9)), of=bare)
    with pytest.raises(UserError, match="unknown cohort column 'scaner'"):
        score(boxes((*HIT_A, 0.9)), of=cohort(scanner="A"), group_by=("scaner",))
    grouped = score(boxes((*HIT_A, 0.9)), of=cohort(scanner="A", age=50), group_by=("scanner",))
    assert {"scanner", "age"} <= set(grouped.cases.columns)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_every_number_comes_back_from_saved_scores_and_events(ending, tmp_path):
    truth = cohort()
    table = [(*HIT_A, 0.9), (*HIT_A, 0.8), (*AWAY, 0.85), (*HIT_B, 0.3), ("S9/x", 1, 1, 1, 0.95)]
    scores = score(boxes(*table, patient_id=["P0"] * 4 + ["P1"]))
    for name, frame in (("scores", scores.cases), ("events", scores.events)):
        path = tmp_path / f"{name}.{ending}"
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    read = (lambda p: pd.read_csv(p, dtype="string")) if ending == "csv" else pd.read_parquet
    saved = read(tmp_path / f"scores.{ending}"), read(tmp_path / f"events.{ending}")
    again = TASK.from_table(Cohort.from_frame(truth.cases), saved[0], saved[1], PAPER, ScoreOptions())
    assert values(again) == values(scores)
    same = ["n_lesions", "n_detected", "n_boxes", "n_false_positives", "max_score"]
    pd.testing.assert_frame_equal(again.cases[same], scores.cases[same])
    for name in ("cases", "patients", "scored", "extra", "without_boxes", "lesions", "positives", "boxes"):
        assert again.counts[name] == scores.counts[name], name
    pd.testing.assert_frame_equal(lesion_table(again), lesion_table(scores))


def test_scores_without_events_or_of_another_run_are_refused():
    scores = score(boxes((*HIT_A, 0.9), (*HIT_B, 0.5)))
    with pytest.raises(UserError, match=r"events\.parquet"):
        TASK.from_table(cohort(), scores.cases, None, PAPER, ScoreOptions())
    fewer = scores.cases.assign(n_lesions=1)
    with pytest.raises(UserError, match="more lesions than they have"):
        TASK.from_table(cohort(), fewer, scores.events, PAPER, ScoreOptions())
    for change, why in (
        ({"kind": "hit"}, "have a kind"),
        ({"score": None}, "without a score"),
        ({"lesion_id": None}, "name no lesion"),
    ):
        with pytest.raises(UserError, match=why):
            TASK.from_table(cohort(), scores.cases, scores.events.assign(**change), PAPER, ScoreOptions())
    with pytest.raises(UserError, match="the events need kind"):
        TASK.from_table(cohort(), scores.cases, scores.events.drop(columns="kind"), PAPER, ScoreOptions())


def test_partition_is_by_patient_with_volumes_on_request():
    scores = score(boxes((*HIT_A, 0.9)))
    assert TASK.partition(scores).cluster_of_case.tolist() == [0, 0, 1, 1]
    assert TASK.partition(scores).positive_cluster.tolist() == [True, False]
    assert TASK.partition(scores, cluster="case_id").n_clusters == 4


def test_curves_have_bands_that_hold_the_curve_and_meet_the_metrics():
    rng = np.random.default_rng(7)
    truth = cohort(60, lesions=[(v, 500, 500, 20) for v in range(0, 60, 2)])
    rows = []
    for volume, case in enumerate(truth.cases["case_id"]):
        if volume % 2 == 0 and rng.random() < 0.8:
            rows.append((case, 505, 500, 20, rng.random() + 0.3))
        rows += [(case, 100, 100, 5, rng.random()) for _ in range(6)]
    scores = score(boxes(*rows), of=truth)
    partition = TASK.partition(scores)
    stream = WeightStream(partition, key="k", seed=1, resamples=200)
    curves = TASK.curves(scores, partition, stream, ScoreOptions(threads=1))
    assert set(curves) == {"froc", "froc_all"}
    for curve in curves.values():
        assert len(curve["x"]) == len(curve["y"]) == len(curve["lo"]) == len(curve["hi"]) <= 500
        assert (np.diff(curve["y"]) >= 0).all()
        assert (np.array(curve["lo"]) <= np.array(curve["y"]) + 1e-9).all()
        assert (np.array(curve["hi"]) >= np.array(curve["y"]) - 1e-9).all()
    got = values(scores)
    assert np.interp(2, curves["froc_all"]["x"], curves["froc_all"]["y"]) == got["sensitivity_at_2_all"]
    assert np.interp(4, curves["froc"]["x"], curves["froc"]["y"]) == got["sensitivity_at_4_positive"]
    bare = TASK.curves(scores, partition, None, ScoreOptions())
    assert bare["froc"]["lo"] is None and bare["froc"]["y"] == curves["froc"]["y"]


def test_resamples_do_not_depend_on_threads():
    scores = score(boxes((*HIT_A, 0.9), (*AWAY, 0.95), (*HIT_C, 0.4)))
    partition = TASK.partition(scores)
    evaluator = TASK.evaluator(scores, partition, ScoreOptions())
    one, two = (
        draw([evaluator], WeightStream(partition, key="k", seed=3, resamples=300), threads=threads)[0]
        for threads in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_lesions_one_by_one_and_by_class():
    scores = score(boxes((*HIT_A, 0.9), (*AWAY, 0.8), (*AWAY, 0.7), (*HIT_B, 0.6), ("S1/rcc", 1, 1, 1, 0.95)))
    table = lesion_table(scores).sort_values("lesion_id")
    assert table["fp_per_volume"].fillna(-1).tolist() == [0.0, 1.0, -1.0]
    everywhere = lesion_table(scores, positive_only=False).sort_values("lesion_id")
    assert everywhere["fp_per_volume"].fillna(-1).tolist() == [0.25, 0.75, -1.0]
    strata = TASK.details(scores, TASK.partition(scores), ScoreOptions())["lesions"]["strata"]
    assert strata["all"]["lesions"] == 3
    assert strata["cancer"]["found_within"]["1"] == 1.0
    assert strata["benign"]["found_within"]["4"] == 0.5
    assert strata["benign"]["found_at_any_score"] == 1
