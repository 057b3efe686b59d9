"""Slides: LN-14, LN-15, LN-17, against the published FROC script's outputs and by hand."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import Predictions, ReadOptions
from elsewhere.predictions.slides import read_slides
from elsewhere.protocols import SlideRules, protocols
from elsewhere.scoring.slides import SlideTask
from elsewhere.scoring.slides.evaluator import quadratic_kappa
from elsewhere.scoring.slides.objects import measure_objects
from elsewhere.scoring.slides.regions import find_regions, patient_stage, stage_of_extent
from elsewhere.scoring.task import ScoreOptions
from elsewhere.statistics.bootstrap_weights import WeightStream

TASK = SlideTask()


def evaluate(cohort, predictions, protocol="plain", **options):
    chosen = protocols.get(protocol)
    scores = TASK.score(cohort, predictions, chosen, ScoreOptions(**options))
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    return scores, evaluator


def stages_cohort(truth, patients=None):
    n = len(truth)
    frame = {"case_id": [f"s{i}" for i in range(n)], "stage": truth}
    frame["patient_id"] = patients or [f"p{i}" for i in range(n)]
    return Cohort.from_frame(pd.DataFrame(frame))


def said(stages, start=0):
    table = pd.DataFrame({"case_id": [f"s{i + start}" for i in range(len(stages))], "stage": stages})
    return Predictions(kind="slides", table=table, source="test", digest="x")


def camelyon16_case(vectors_dir, tmp_path, name):
    folder = vectors_dir / "camelyon16"
    inputs = json.loads((folder / "inputs.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())[name]
    masks = np.load(folder / "masks_level5.npz")
    rows, points = [], []
    for slide, listed in inputs["cases"][name].items():
        path = ""
        if slide in masks:
            path = str(tmp_path / f"{slide}.png")
            Image.fromarray(masks[slide]).save(path)
        rows.append({"case_id": slide, "patient_id": slide, "mask": path})
        points += [{"case_id": slide, "score": p, "x": x, "y": y} for p, x, y in listed]
    cases = pd.DataFrame(rows)
    cases["microns_per_pixel"] = inputs["resolution_um"]
    cases["mask_downsample"] = 2.0 ** inputs["level"]
    frame = pd.DataFrame(points)
    predictions = Predictions(
        kind="slides",
        table=pd.DataFrame({"case_id": frame["case_id"].unique()}),
        points=frame,
        source="v",
        digest="x",
    )
    return Cohort.from_frame(cases), predictions, expected


@pytest.mark.parametrize("name", ["ordinary", "hit_on_itc_is_ignored"])
def test_camelyon16_code_equals_the_published_script(vectors_dir, tmp_path, name):
    cohort, predictions, expected = camelyon16_case(vectors_dir, tmp_path, name)
    scores, evaluator = evaluate(cohort, predictions, "camelyon16-code")
    assert evaluator.values()["froc_score"] == pytest.approx(expected["froc_score"], abs=1e-12)
    wanted_at = expected["sensitivity_at"]
    rows = np.random.default_rng(0).integers(0, 3, size=(20, evaluator.n_clusters)).astype(np.uint16)
    column = evaluator.index("froc_score")
    np.testing.assert_allclose(
        evaluator.ranked().evaluate(rows)[:, column], evaluator.evaluate(rows)[:, column], atol=1e-12
    )
    at = evaluator.sensitivities(
        np.ones((1, evaluator.n_clusters), dtype=np.uint16), [float(k) for k in wanted_at]
    )
    np.testing.assert_allclose(at[0], list(wanted_at.values()), atol=1e-12)
    partition = TASK.partition(scores)
    curve = TASK.curves(
        scores, partition, WeightStream(partition, key="k", seed=1, resamples=64), ScoreOptions()
    )["froc"]
    assert curve["y"][curve["x"].index(1.0)] == pytest.approx(wanted_at["1"], abs=1e-12)
    assert all(lo <= hi for lo, hi in zip(curve["lo"], curve["hi"], strict=True))
    for slide, wanted in expected["per_case"].items():
        row = scores.cases.set_index("case_id").loc[slide]
        assert row["n_lesions"] == wanted["n_lesions_counted"]
        assert row["n_itc_regions"] == len(wanted["itc_labels"])
        mine = scores.events[(scores.events["case_id"] == slide) & (scores.events["kind"] == "fp")]
        assert sorted(mine["score"]) == pytest.approx(sorted(wanted["fp_probs"]))


def froc_by_hand(lesion_scores, n_lesions, false_positives, n_slides, *, published):
    """The rule of protocols.md in plain numpy."""
    hits = [np.float32(s) for s in lesion_scores] if published else list(lesion_scores)
    listed = hits + ([0.0] * (n_lesions - len(hits)) if published else [])
    thresholds = sorted({float(s) for s in [*false_positives, *listed]})
    kept = thresholds[1:] if published else thresholds
    fps = [sum(f >= t for f in false_positives) / n_slides for t in kept] + [0.0]
    sens = [sum(float(h) >= t for h in hits) / n_lesions for t in kept] + [0.0]
    return float(np.mean(np.interp([0.25, 0.5, 1, 2, 4, 8], fps[::-1], sens[::-1])))


def bar_cohort(tmp_path, n_lesions, n_slides):
    rows = []
    for i in range(n_slides):
        mask = np.zeros((64, 64), np.uint8)
        for k in range(n_lesions if i == 0 else 0):
            mask[8 + 18 * k : 12 + 18 * k, 4:60] = 255
        Image.fromarray(mask).save(tmp_path / f"m{i}.png")
        rows.append(
            {
                "case_id": f"s{i}",
                "patient_id": f"s{i}",
                "mask": f"m{i}.png",
                "microns_per_pixel": 0.5,
                "mask_downsample": 32,
            }
        )
    return Cohort.from_frame(pd.DataFrame(rows), root=tmp_path)


def points(listed):
    frame = pd.DataFrame(listed, columns=["case_id", "x", "y", "score"])
    return Predictions(
        kind="slides",
        table=pd.DataFrame({"case_id": frame["case_id"].unique()}),
        points=frame,
        source="t",
        digest="x",
    )


@pytest.mark.parametrize("published", [True, False])
def test_missed_lesions_and_the_lowest_threshold(tmp_path, published):
    cohort = bar_cohort(tmp_path, 3, 2)
    listed = [
        ("s0", 32 * 10, 32 * 9, 0.9),
        ("s0", 32 * 10, 32 * 27, 0.2),
        ("s1", 5, 5, 0.5),
        ("s1", 6, 6, 0.1),
    ]
    _, evaluator = evaluate(cohort, points(listed), "camelyon16-code" if published else "camelyon16")
    wanted = froc_by_hand([0.9, 0.2], 3, [0.5, 0.1], 2, published=published)
    assert evaluator.values()["froc_score"] == pytest.approx(wanted, abs=1e-12)


def test_all_lesions_found_the_published_script_drops_the_lowest_real_threshold(tmp_path):
    cohort = bar_cohort(tmp_path, 1, 2)
    listed = [("s0", 320, 32 * 9, 0.3), ("s1", 5, 5, 0.5)]
    _, code = evaluate(cohort, points(listed), "camelyon16-code")
    _, ours = evaluate(cohort, points(listed), "camelyon16")
    assert code.values()["froc_score"] == pytest.approx(froc_by_hand([0.3], 1, [0.5], 2, published=True))
    assert code.values()["froc_score"] == 0.0
    assert ours.values()["froc_score"] > 0.5


def test_no_countable_lesion_is_undefined_and_no_prediction_is_zero(tmp_path):
    empty = bar_cohort(tmp_path, 0, 2)
    _, evaluator = evaluate(empty, points([("s0", 1, 1, 0.4)]), "camelyon16")
    assert np.isnan(evaluator.values()["froc_score"])
    assert evaluator.undefined_reasons()["froc_score"] == "no countable lesion"
    cohort = bar_cohort(tmp_path, 2, 2)
    none = Predictions(
        kind="slides", table=pd.DataFrame({"case_id": []}), source="t", digest="x",
        points=pd.DataFrame({"case_id": pd.Series([], dtype="string"), "x": [], "y": [], "score": []}),
    )  # fmt: skip
    _, evaluator = evaluate(cohort, none, "camelyon16")
    assert evaluator.values()["froc_score"] == 0.0


def test_weights_equal_physical_copies(tmp_path):
    rng = np.random.default_rng(3)
    cohort = bar_cohort(tmp_path, 3, 4)
    listed = [
        (f"s{rng.integers(4)}", float(rng.integers(2048)), float(rng.integers(2048)), float(rng.random()))
        for _ in range(60)
    ]
    _, evaluator = evaluate(cohort, points(listed), "camelyon16-code")
    weights = np.array([[2, 0, 1, 3]], dtype=np.uint16)
    copies, copied_points = [], []
    for i, times in enumerate(weights[0]):
        for k in range(times):
            row = cohort.cases.iloc[[i]].copy()
            row["case_id"] = row["patient_id"] = f"s{i}c{k}"
            copies.append(row)
            copied_points += [(f"s{i}c{k}", x, y, s) for c, x, y, s in listed if c == f"s{i}"]
    _, physical = evaluate(
        Cohort.from_frame(pd.concat(copies), root=tmp_path), points(copied_points), "camelyon16-code"
    )
    assert evaluator.evaluate(weights)[0, evaluator.index("froc_score")] == pytest.approx(
        physical.values()["froc_score"], abs=1e-12
    )


def test_equal_moments_axis_of_a_bar_and_its_true_extent():
    mask = np.zeros((30, 220), bool)
    mask[10:20, 10:210] = True
    assert find_regions(mask).major_axis_px.max() == pytest.approx(231, abs=0.5)
    assert measure_objects(mask).largest_feret_px() == pytest.approx(np.hypot(200, 10))


def test_diagonal_neighbours_are_one_object():
    mask = np.eye(5, dtype=bool)
    assert find_regions(mask).count == 1


@pytest.mark.parametrize(
    ("extent", "any_object", "stage"),
    [
        (2.0, True, "micro"),
        (2.0001, True, "macro"),
        (0.2, True, "itc"),
        (0.2001, True, "micro"),
        (0.0, False, "negative"),
    ],
)
def test_stage_limits_are_strict(extent, any_object, stage):
    assert stage_of_extent(extent, SlideRules(), any_object=any_object) == stage


@pytest.mark.parametrize(
    ("nodes", "stage"),
    [
        (["negative"] * 5, "pN0"),
        (["itc", "negative"], "pN0(i+)"),
        (["micro", "itc"], "pN1mi"),
        (["macro", "micro", "micro"], "pN1"),
        (["macro", "micro", "micro", "micro"], "pN2"),
        (["micro"] * 5, "pN1mi"),
    ],
)
def test_patient_stage_from_nodes(nodes, stage):
    assert patient_stage(nodes) == stage


def test_stage_metrics_by_hand():
    truth = ["macro", "micro", "itc", "negative", "negative", "macro"]
    predicted = ["macro", "macro", "negative", "negative", "micro", "negative"]
    scores, evaluator = evaluate(stages_cohort(truth), said(predicted))
    values = evaluator.values()
    assert values["stage_accuracy"] == pytest.approx(2 / 6)
    assert values["positive_sensitivity"] == pytest.approx(2 / 3)
    assert values["positive_specificity"] == pytest.approx(2 / 3)
    f1 = 2 * 2 / (2 * 2 + 1 + 1)
    assert values["f1_macro"] == pytest.approx(f1)
    assert values["sensitivity_class_averaged"] == pytest.approx(2 / 3)
    two = TASK.details(scores, TASK.partition(scores), ScoreOptions())["confusion"]["two_class"]
    assert two["rows_truth_columns_prediction"] == [[2, 1], [1, 2]]


def test_a_missing_slide_is_the_worst_answer_and_counted():
    scores, evaluator = evaluate(stages_cohort(["macro", "negative", "micro"]), said(["macro"]))
    assert scores.counts["missing"] == 2
    assert evaluator.values()["positive_sensitivity"] == pytest.approx(0.5)
    assert evaluator.values()["positive_specificity"] == 0.0


def camelyon17(truth, predicted):
    frame = pd.DataFrame(
        {"case_id": [f"{p}_node_0" for p in truth], "patient_id": list(truth), "stage": "negative"}
    )
    frame["patient_stage"] = list(truth.values())
    table = pd.DataFrame({"case_id": list(predicted), "stage": list(predicted.values())})
    return Cohort.from_frame(frame), Predictions(kind="slides", table=table, source="t", digest="x")


def test_camelyon17_kappa_ignores_extra_patients_and_refuses_a_missing_one():
    from sklearn.metrics import cohen_kappa_score

    order = ["pN0", "pN0(i+)", "pN1mi", "pN1", "pN2"]
    rng = np.random.default_rng(0)
    truth = {f"p{i:02d}": order[rng.integers(5)] for i in range(40)}
    predicted = {p: order[min(4, max(0, order.index(s) + rng.integers(-1, 2)))] for p, s in truth.items()}
    cohort, predictions = camelyon17(truth, {**predicted, "p99": "pN2"})
    _, evaluator = evaluate(cohort, predictions, "camelyon17")
    wanted = cohen_kappa_score(
        list(truth.values()), list(predicted.values()), labels=order, weights="quadratic"
    )
    assert evaluator.values()["pn_kappa"] == pytest.approx(wanted, abs=1e-12)
    del predicted["p07"]
    cohort, predictions = camelyon17(truth, predicted)
    with pytest.raises(UserError, match="p07"):
        evaluate(cohort, predictions, "camelyon17")


def test_kappa_with_one_stage_only_is_undefined():
    counts = np.zeros((1, 5, 5))
    counts[0, 2, 2] = 7
    assert np.isnan(quadratic_kappa(counts))[0]


def test_masks_give_stage_dice_and_false_positive_rate(tmp_path):
    truth_dir, said_dir = tmp_path / "truth", tmp_path / "said"
    truth_dir.mkdir(), said_dir.mkdir()
    big, none, small = (np.zeros((100, 200), np.uint8) for _ in range(3))
    big[40:60, 20:180] = 255
    small[50:52, 50:54] = 255
    for name, truth, guess in (("a/1", big, big), ("b", none, small)):
        file = name.replace("/", "%2F")
        Image.fromarray(truth).save(truth_dir / f"{file}.png")
        Image.fromarray(guess).save(said_dir / f"{file}.png")
    frame = pd.DataFrame(
        {
            "case_id": ["a/1", "b"],
            "patient_id": ["1", "2"],
            "mask": ["truth/a%2F1.png", "truth/b.png"],
            "stage": ["macro", "negative"],
        }
    )
    frame["microns_per_pixel"], frame["mask_downsample"] = 1.0, 16
    scores, evaluator = evaluate(
        Cohort.from_frame(frame, root=tmp_path), read_slides(said_dir, ReadOptions())
    )
    assert list(scores.cases["stage_predicted"]) == ["macro", "itc"]
    assert evaluator.values()["slide_dice"] == 1.0
    assert evaluator.values()["slide_false_positive_rate"] == pytest.approx(8 / 20000)
    assert scores.cases["largest_feret_mm"].iloc[0] == pytest.approx(np.hypot(160, 20) * 16 / 1000)


def test_a_mask_of_another_size_is_named(tmp_path):
    (tmp_path / "said").mkdir()
    Image.fromarray(np.zeros((10, 10), np.uint8)).save(tmp_path / "t.png")
    Image.fromarray(np.zeros((10, 12), np.uint8)).save(tmp_path / "said" / "a.png")
    frame = pd.DataFrame(
        {
            "case_id": ["a"],
            "patient_id": ["1"],
            "mask": ["t.png"],
            "stage": ["negative"],
            "microns_per_pixel": [0.5],
        }
    )
    cohort = Cohort.from_frame(frame, root=tmp_path)
    predictions = read_slides(tmp_path / "said", ReadOptions())
    with pytest.raises(UserError, match=r"12 x 10 px, the truth 10 x 10"):
        evaluate(cohort, predictions)
    scores, evaluator = evaluate(cohort, predictions, on_invalid="worst")
    assert scores.counts["invalid"] == 1
    assert evaluator.values()["slide_false_positive_rate"] == 1.0


def test_stack_and_subset_agree_with_the_parts():
    truth = ["macro", "micro", "itc", "negative", "negative", "macro"]
    _, a = evaluate(stages_cohort(truth), said(["macro", "macro", "itc", "negative", "micro", "negative"]))
    _, b = evaluate(stages_cohort(truth), said(["macro", "micro", "itc", "negative", "negative", "macro"]))
    both = a.stack(b)
    ones, zeros = np.ones(6, dtype=np.uint16), np.zeros(6, dtype=np.uint16)
    got = both.evaluate(np.stack([np.concatenate([ones, zeros]), np.concatenate([zeros, ones])]))
    np.testing.assert_allclose(got[0], list(a.values().values()))
    np.testing.assert_allclose(got[1], list(b.values().values()))
    part = a.subset(np.array([True, True, False, False, False, True]))
    assert part.values()["positive_sensitivity"] == pytest.approx(2 / 3)


def test_published_camelyon17_form_is_read(tmp_path):
    file = tmp_path / "submission.csv"
    file.write_text("patient,stage\npatient_000.zip,pN1\npatient_000_node_0.tif,macro\n")
    got = read_slides(file, ReadOptions())
    assert list(got.table["case_id"]) == ["patient_000", "patient_000_node_0"]
    assert list(got.table["stage"]) == ["pN1", "macro"]


def test_a_word_that_is_no_stage_is_named_with_its_row(tmp_path):
    file = tmp_path / "s.csv"
    file.write_text("case_id,stage\na,macro\nb,huge\n")
    with pytest.raises(UserError, match="huge"):
        read_slides(file, ReadOptions())
