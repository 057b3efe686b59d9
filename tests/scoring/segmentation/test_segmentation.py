"""Segmentation: vectors of the scoring template, the rules for empty and missing masks, and the evaluator."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import nibabel
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions.masks import mask_file_name
from elsewhere.protocols import protocols
from elsewhere.scoring.segmentation import NO_SPACING, SegmentationTask, size_strata
from elsewhere.scoring.segmentation.hausdorff import measure_pair
from elsewhere.scoring.task import ScoreOptions, read_predictions, tasks
from elsewhere.statistics.metric import MetricKind

TASK = SegmentationTask()
SHAPE, SPACING = (16, 14, 10), (0.8, 0.8, 2.0)
PLAIN, PAPER, CODE = (protocols.get(name) for name in ("plain", "mamamia-paper", "mamamia-code"))


def ball(centre, radius):
    axes = np.ogrid[tuple(slice(0, n) for n in SHAPE)]
    return (sum((a - c) ** 2 for a, c in zip(axes, centre, strict=True)) <= radius**2).astype(np.uint8)


EMPTY, FULL = np.zeros(SHAPE, dtype=np.uint8), np.ones(SHAPE, dtype=np.uint8)
ONE, TWO = ball((6, 6, 5), 3), ball((8, 7, 5), 3)


def save(path, mask, spacing=SPACING):
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(mask, np.diag([*spacing, 1.0])), path)


class World:
    """A cohort on disk and a folder of predictions; None is a case without a mask."""

    def __init__(self, folder, pairs, **columns):
        self.folder = folder
        ids = list(pairs)
        for case_id, (truth, prediction) in pairs.items():
            save(folder / "truth" / mask_file_name(case_id), truth)
            if prediction is not None:
                save(folder / "predicted" / mask_file_name(case_id), prediction)
        frame = pd.DataFrame(
            {
                "case_id": ids,
                "patient_id": [f"p{i}" for i in range(len(ids))],
                "mask": [f"truth/{mask_file_name(case_id)}" for case_id in ids],
                **columns,
            }
        )
        self.cohort = Cohort.from_frame(frame, root=folder)

    def score(self, protocol=PLAIN, **options):
        predictions = read_predictions("segmentation", self.folder / "predicted", None, self.cohort)
        return TASK.score(self.cohort, predictions, protocol, ScoreOptions(**options))


def values(scores, **options):
    asked = ScoreOptions(**options)
    return TASK.evaluator(scores, TASK.partition(scores), asked).values()


@pytest.mark.parametrize(
    "name", ["ordinary_60", "age_bin_edges", "group_all_positive_all_predicted_positive"]
)
def test_vectors_of_the_scoring_template(vectors_dir, name):
    want = json.loads((vectors_dir / "mamamia" / "expected.json").read_text())[name]["task1"]
    table = pd.read_csv(vectors_dir / "mamamia" / f"{name}.csv")
    table["case_id"] = table["patient_id"]
    cohort = Cohort.from_frame(
        table[["case_id", "patient_id", "age", "menopausal_status", "breast_density"]].copy()
    )
    given = table[["case_id", "DSC", "NormHD"]].rename(columns={"DSC": "dice", "NormHD": "norm_hd"})
    scores = TASK.from_table(cohort, given, None, CODE, ScoreOptions())
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    got = evaluator.values()
    assert got["performance"] == pytest.approx(want["performance_score"], abs=1e-12)
    assert got["fairness"] == pytest.approx(want["avg_fairness_score"], abs=1e-12)
    assert got["combined"] == pytest.approx(want["ranking_score"], abs=1e-12)
    for variable, disparity in evaluator.disparities().items():
        assert 1 - disparity == pytest.approx(want["fairness_score_dict"][variable], abs=1e-12)


def test_end_to_end_by_id(tmp_path):
    world = World(tmp_path, {"a": (ONE, TWO), "s/b": (TWO, TWO), "c": (ONE, ONE)})
    scores = world.score()
    assert scores.cases["case_id"].tolist() == ["a", "s/b", "c"]
    assert scores.cases["status"].tolist() == ["scored"] * 3
    assert scores.cases["dice"].iloc[1:].tolist() == [1.0, 1.0]
    assert scores.cases["hausdorff_mm"].iloc[0] == pytest.approx(np.hypot(0.8, 1.6), rel=1e-6)
    assert scores.cases["volume_truth_ml"].iloc[0] == pytest.approx(
        ONE.sum() * 0.8 * 0.8 * 2 / 1000, rel=1e-6
    )
    got = values(scores)
    assert got["dice"] == pytest.approx(scores.cases["dice"].mean())
    assert got["norm_hd"] == pytest.approx(scores.cases["hausdorff_mm"].mean() / 150)
    assert got["performance"] == pytest.approx((got["dice"] + 1 - got["norm_hd"]) / 2)
    assert got["lesion_sensitivity"] == 1.0


EMPTY_RULES = [
    (PAPER, ONE, EMPTY, 0.0, 1.0, 150.0, "scored"),
    (PAPER, EMPTY, ONE, 0.0, 1.0, 150.0, "scored"),
    (PAPER, EMPTY, EMPTY, 0.0, 1.0, 150.0, "scored"),
    (CODE, ONE, EMPTY, 0.0, 1.0, 150.0, "scored"),
    (CODE, EMPTY, ONE, 0.0, 1.0, 150.0, "scored"),
    (CODE, EMPTY, EMPTY, 0.0, 0.0, 0.0, "scored"),
    (PLAIN, ONE, EMPTY, 0.0, 1.0, 150.0, "scored"),
    (PLAIN, EMPTY, ONE, 0.0, 1.0, 150.0, "scored"),
    (PLAIN, EMPTY, EMPTY, np.nan, np.nan, np.nan, "undefined"),
]


@pytest.mark.parametrize(
    ("protocol", "truth", "prediction", "dice", "norm", "distance", "status"), EMPTY_RULES
)
def test_empty_masks(tmp_path, protocol, truth, prediction, dice, norm, distance, status):
    scores = World(tmp_path, {"a": (truth, prediction), "b": (ONE, ONE)}).score(protocol)
    row = scores.cases.iloc[0]
    assert row["status"] == status
    assert [row["dice"], row["norm_hd"], row["hausdorff_mm"]] == pytest.approx(
        [dice, norm, distance], nan_ok=True
    )
    assert scores.counts["undefined"] == (status == "undefined")
    said = [warning for warning in scores.warnings if "1 of 2 truth masks are empty" in warning]
    assert len(said) == (truth is EMPTY)


def test_predictions_without_a_voxel_are_said_beside_the_mean(tmp_path):
    pairs = {f"c{n}": (ONE, EMPTY if n < 6 else TWO) for n in range(8)}
    scores = World(tmp_path, pairs).score(PAPER)
    said = (
        "6 of 8 predictions are empty where there is a tumour: Dice 0 and 150 mm by protocol 'mamamia-paper'."
    )
    assert said in scores.warnings
    fewer = World(tmp_path / "fewer", {f"c{n}": (ONE, TWO if n else EMPTY) for n in range(8)}).score(PAPER)
    assert any(warning.startswith("fewer than 5 of 8 predictions are empty") for warning in fewer.warnings)
    none = World(tmp_path / "none", {"a": (ONE, TWO)}).score(PAPER)
    assert not any("predictions are empty" in warning for warning in none.warnings)


def test_both_empty_is_counted_and_in_no_mean_under_plain(tmp_path):
    scores = World(tmp_path, {"a": (EMPTY, EMPTY), "b": (ONE, ONE)}).score()
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    assert evaluator.values()["dice"] == 1.0
    assert evaluator.case_counts()["dice"] == (1, 1)
    assert any("1 cases are undefined" in warning for warning in scores.warnings)
    assert scores.cases["reason"].iloc[0] == "both masks are empty"


def test_code_distance_is_of_contour_voxels_over_150_without_a_cut(tmp_path):
    scores = World(tmp_path, {"a": (ONE, TWO), "b": (ONE, FULL), "c": (FULL, FULL)}).score(CODE)
    assert (
        scores.cases["norm_hd"].iloc[0] == measure_pair(ONE, TWO, None, contour=True).contour95_voxels / 150
    )
    assert scores.cases["norm_hd"].iloc[1] == 1.0
    assert scores.cases["dice"].iloc[2] == 1.0
    assert scores.cases["norm_hd"].iloc[2] == 0.0


def test_the_cut_to_one_is_the_papers(tmp_path):
    far = pd.DataFrame({"case_id": ["a", "b"], "dice": [0.0, 0.5], "hausdorff_mm": [300.0, 75.0]})
    cohort = Cohort.from_frame(pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["a", "b"]}))
    cut = TASK.from_table(cohort, far, None, PAPER, ScoreOptions())
    assert cut.cases["norm_hd"].tolist() == [1.0, 0.5]
    assert cut.cases["hausdorff_mm"].tolist() == [300.0, 75.0]
    uncut = replace(PAPER, segmentation=replace(PAPER.segmentation, cut_to_one=False))
    assert TASK.from_table(cohort, far, None, uncut, ScoreOptions()).cases["norm_hd"].tolist() == [2.0, 0.5]


def test_missing_is_worst_with_the_answered_beside_it(tmp_path):
    scores = World(tmp_path, {"a": (ONE, None), "b": (ONE, ONE)}).score()
    row = scores.cases.iloc[0]
    assert row["status"] == "missing"
    assert [row["dice"], row["norm_hd"], row["hausdorff_mm"], row["hausdorff95_mm"]] == [
        0.0,
        1.0,
        150.0,
        150.0,
    ]
    assert row["volume_truth_ml"] > 0
    assert scores.counts["missing"] == 1
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    assert evaluator.values()["dice"] == 0.5
    assert evaluator.values()["lesion_sensitivity"] == 0.5
    assert evaluator.subset(np.array([False, True])).values()["dice"] == 1.0


BAD = {
    "shape": lambda path: save(path, ONE[:-1]),
    "spacing": lambda path: save(path, ONE, (0.8, 0.8, 2.5)),
    "whole numbers": lambda path: save(path, ONE.astype(np.float32) * 0.4),
    r"cut off|cannot be read": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "empty": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("words", list(BAD))
def test_a_bad_mask_is_an_error_or_the_worst_score(tmp_path, words):
    world = World(tmp_path, {"a": (ONE, ONE), "b": (ONE, ONE)})
    BAD[words](tmp_path / "predicted" / "a.nii.gz")
    with pytest.raises(UserError, match=words) as caught:
        world.score()
    assert "a.nii.gz" in str(caught.value)
    scores = world.score(on_invalid="worst")
    row = scores.cases.iloc[0]
    assert [row["status"], row["dice"], row["norm_hd"]] == ["invalid", 0.0, 1.0]
    assert row["reason"]
    assert scores.counts["invalid"] == 1
    assert any("1 masks are invalid and scored worst" in warning for warning in scores.warnings)
    assert not any("a.nii.gz" in warning for warning in scores.warnings)


def test_a_bad_truth_is_always_an_error(tmp_path):
    world = World(tmp_path, {"a": (ONE, ONE)})
    (tmp_path / "truth" / "a.nii.gz").write_bytes(b"")
    with pytest.raises(UserError, match="truth mask: the file is empty"):
        world.score(on_invalid="worst")


def test_cases_without_a_truth_mask_are_named(tmp_path):
    world = World(tmp_path, {"a": (ONE, ONE), "b": (ONE, ONE)})
    predictions = read_predictions("segmentation", tmp_path / "predicted")
    cases = world.cohort.cases.copy()
    cases.loc[1, "mask"] = None
    with pytest.raises(UserError, match="1 of 2 cases have no truth mask"):
        TASK.score(replace(world.cohort, cases=cases), predictions, PLAIN, ScoreOptions())
    with pytest.raises(UserError, match="no column 'mask'"):
        TASK.score(
            replace(world.cohort, cases=cases.drop(columns="mask")), predictions, PLAIN, ScoreOptions()
        )


def test_extra_masks_are_counted(tmp_path):
    world = World(tmp_path, {"a": (ONE, ONE)})
    save(tmp_path / "predicted" / "zzz.nii.gz", ONE)
    assert world.score().counts["extra"] == 1


def test_threads_and_progress_give_the_same(tmp_path):
    world = World(tmp_path, {f"c{i}": (ONE, TWO if i % 2 else ONE) for i in range(9)})
    seen = []
    one = world.score(threads=1)
    several = world.score(threads=4, progress=lambda done, total: seen.append((done, total)))
    pd.testing.assert_frame_equal(one.cases, several.cases)
    assert seen == [(i + 1, 9) for i in range(9)]
    assert threading.active_count() < 50


def test_pictures_need_a_spacing_for_mm(tmp_path):
    mask = np.zeros((20, 30), dtype=np.uint8)
    mask[4:9, 5:12] = 255
    for folder in ("truth", "predicted"):
        (tmp_path / folder).mkdir()
        Image.fromarray(mask if folder == "truth" else np.roll(mask, 3, axis=0)).save(
            tmp_path / folder / "a.png"
        )
    frame = pd.DataFrame({"case_id": ["a"], "patient_id": ["a"], "mask": ["truth/a.png"]})
    predictions = read_predictions("segmentation", tmp_path / "predicted")
    bare = TASK.score(Cohort.from_frame(frame, root=tmp_path), predictions, PLAIN, ScoreOptions())
    assert 0 < bare.cases["dice"].iloc[0] < 1
    assert np.isnan(bare.cases["norm_hd"].iloc[0])
    evaluator = TASK.evaluator(bare, TASK.partition(bare), ScoreOptions())
    assert evaluator.undefined_reasons()["norm_hd"] == NO_SPACING
    frame["spacing_row_mm"], frame["spacing_column_mm"] = 0.5, 0.2
    known = TASK.score(Cohort.from_frame(frame, root=tmp_path), predictions, PLAIN, ScoreOptions())
    assert known.cases["hausdorff_mm"].iloc[0] == pytest.approx(1.5)


def test_a_saved_table_is_judged_again_under_another_protocol(tmp_path):
    pairs = {"a": (ONE, TWO), "b": (EMPTY, EMPTY), "c": (ONE, None), "d": (ONE, EMPTY), "e": (FULL, FULL)}
    world = World(tmp_path, pairs)
    table = world.score(PLAIN).cases
    for protocol in (PLAIN, PAPER, CODE):
        again = TASK.from_table(world.cohort, table, None, protocol, ScoreOptions())
        direct = world.score(protocol)
        pd.testing.assert_frame_equal(again.cases[direct.cases.columns], direct.cases, check_dtype=False)
        assert again.counts == direct.counts
    path = tmp_path / "scores.csv"
    table.to_csv(path, index=False)
    from elsewhere.tables import read_table

    again = TASK.from_table(world.cohort, read_table(path), None, CODE, ScoreOptions())
    assert values(again) == pytest.approx(values(world.score(CODE)), nan_ok=True)


def two_cases():
    return Cohort.from_frame(pd.DataFrame({"case_id": ["a", "b"], "patient_id": ["a", "b"]}))


def test_a_short_table_and_a_case_it_lacks():
    table = pd.DataFrame({"case_id": ["b"], "dice": [0.8], "norm_hd": [0.1]})
    scores = TASK.from_table(two_cases(), table, None, PAPER, ScoreOptions())
    assert scores.cases["status"].tolist() == ["missing", "scored"]
    got = values(scores)
    assert [got["dice"], got["norm_hd"], got["performance"]] == pytest.approx([0.4, 0.55, 0.425])
    assert np.isnan(got["hausdorff_mm"])
    assert np.isnan(got["fairness"])


@pytest.mark.parametrize(
    ("table", "protocol", "words"),
    [
        ({"case_id": ["a"], "norm_hd": [0.1]}, PAPER, "no column 'dice'"),
        ({"case_id": ["a"], "dice": [0.1]}, PAPER, "neither 'norm_hd' nor 'hausdorff_mm'"),
        (
            {"case_id": ["a"], "dice": [0.1], "hausdorff_mm": [3.0]},
            CODE,
            "neither 'norm_hd' nor 'contour95_voxels'",
        ),
        ({"case_id": ["a"], "dice": [1.2], "norm_hd": [0.1]}, PAPER, "outside"),
        ({"case_id": ["a"], "dice": [0.2], "norm_hd": [-0.1]}, PAPER, "outside"),
        ({"case_id": ["a"], "dice": ["x"], "norm_hd": [0.1]}, PAPER, "dice"),
        ({"case_id": ["a", "a"], "dice": [0.1, 0.2], "norm_hd": [0.1, 0.1]}, PAPER, "rows 1, 2"),
        ({"case_id": ["a"], "dice": [0.2], "norm_hd": [0.1], "status": ["fine"]}, PAPER, "no status"),
    ],
)
def test_tables_that_cannot_be_used(table, protocol, words):
    with pytest.raises(UserError, match=words):
        TASK.from_table(two_cases(), pd.DataFrame(table), None, protocol, ScoreOptions())


def test_a_bad_value_in_a_table_may_count_as_worst():
    table = pd.DataFrame({"case_id": ["a", "b"], "dice": [1.2, 0.5], "norm_hd": [0.1, 0.1]})
    scores = TASK.from_table(two_cases(), table, None, PAPER, ScoreOptions(on_invalid="worst"))
    assert scores.cases["status"].tolist() == ["invalid", "scored"]
    assert scores.cases["dice"].tolist() == [0.0, 0.5]


def grouped(n=60, seed=3):
    rng = np.random.default_rng(seed)
    ids = [f"c{i}" for i in range(n)]
    cohort = Cohort.from_frame(
        pd.DataFrame(
            {
                "case_id": ids,
                "patient_id": [f"p{i // 2}" for i in range(n)],
                "age": rng.integers(30, 80, n),
                "breast_density": rng.choice(list("abcd"), n),
            }
        )
    )
    table = pd.DataFrame({"case_id": ids, "dice": rng.random(n), "norm_hd": rng.random(n) / 3})
    return cohort, table


def test_variables_that_are_absent_are_named():
    cohort, table = grouped()
    scores = TASK.from_table(cohort, table, None, PAPER, ScoreOptions())
    assert any("menopausal_status" in warning for warning in scores.warnings)
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    assert set(evaluator.disparities()) == {"age", "breast_density"}
    assert np.isfinite(evaluator.values()["fairness"])


def test_fairness_without_variables_is_undefined_with_its_reason():
    cohort, table = grouped()
    bare = Cohort.from_frame(cohort.cases[["case_id", "patient_id"]].copy())
    scores = TASK.from_table(bare, table, None, PAPER, ScoreOptions())
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    reasons = evaluator.undefined_reasons()
    assert "none of age" in reasons["fairness"]
    assert "fairness is undefined" in reasons["combined"]
    assert values(scores, fairness_weight=0.0)["combined"] == values(scores)["performance"]


def test_fairness_weight():
    cohort, table = grouped()
    scores = TASK.from_table(cohort, table, None, PAPER, ScoreOptions())
    got = values(scores, fairness_weight=0.3)
    assert got["combined"] == pytest.approx(0.7 * got["performance"] + 0.3 * got["fairness"])


def test_weights_are_the_same_as_repeated_patients():
    cohort, table = grouped()
    scores = TASK.from_table(cohort, table, None, PAPER, ScoreOptions())
    partition = TASK.partition(scores)
    evaluator = TASK.evaluator(scores, partition, ScoreOptions())
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 4, (5, partition.n_clusters)).astype(np.uint16)
    got = evaluator.evaluate(weights)
    for row, w in zip(got, weights, strict=True):
        rows = np.repeat(np.arange(len(scores.cases)), w[partition.cluster_of_case])
        drawn = scores.cases.iloc[rows].reset_index(drop=True)
        again = replace(scores, cases=drawn.assign(patient_id=[str(i) for i in range(len(drawn))]))
        assert values(again) == pytest.approx(
            {spec.name: v for spec, v in zip(evaluator.specs, row, strict=True)}, nan_ok=True
        )


def test_stacked_models_keep_apart():
    cohort, table = grouped()
    other = table.assign(dice=table["dice"] / 2)
    options = ScoreOptions()
    a, b = (TASK.from_table(cohort, t, None, PAPER, options) for t in (table, other))
    partition = TASK.partition(a)
    one, two = (TASK.evaluator(s, partition, options) for s in (a, b))
    both = one.stack(two)
    n = partition.n_clusters
    weights = np.zeros((2, 2 * n), dtype=np.uint16)
    weights[0, :n] = weights[1, n:] = 1
    expected = [list(one.values().values()), list(two.values().values())]
    assert both.evaluate(weights) == pytest.approx(np.array(expected), nan_ok=True)


def test_closed_form_of_means_agrees_with_the_value():
    cohort, table = grouped()
    scores = TASK.from_table(cohort, table, None, PAPER, ScoreOptions())
    evaluator = TASK.evaluator(scores, TASK.partition(scores), ScoreOptions())
    for spec in evaluator.specs:
        inputs = evaluator.closed_form(spec.name)
        if spec.kind in (MetricKind.MEAN, MetricKind.PROPORTION) and inputs.denominator.any():
            got = inputs.numerator.sum() / inputs.denominator.sum()
            assert got == pytest.approx(evaluator.values()[spec.name])


def test_size_strata_by_the_20th_and_80th_percentile():
    volumes = np.arange(1.0, 101.0)
    edges, codes = size_strata(pd.DataFrame({"volume_truth_ml": [*volumes, 0.0, np.nan]}))
    assert edges == pytest.approx(np.quantile(volumes, [0.2, 0.8]))
    assert np.bincount(codes[:100]).tolist() == [20, 60, 20]
    assert codes[100:].tolist() == [-1, -1]


def test_details(tmp_path):
    pairs = {f"c{i}": (ball((7, 7, 5), 1 + i % 4), ball((7, 7, 5), 2)) for i in range(8)}
    scores = World(tmp_path, pairs, age=[35, 45, 55, 65] * 2).score()
    details = TASK.details(scores, TASK.partition(scores), ScoreOptions())
    assert sum(s["cases"] for s in details["size_strata"]["strata"].values()) == 8
    assert details["lesions"] == {"truth_components": 8, "found_components": 8, "false_components": 0}
    assert details["disparity"]["age"] > 0


def test_the_task_is_registered_and_leads_with_the_protocols_number():
    assert isinstance(tasks.get("segmentation"), SegmentationTask)
    assert [s.name for s in TASK.metrics(PLAIN) if s.primary] == ["dice"]
    assert [s.name for s in TASK.metrics(PAPER) if s.primary] == ["combined"]
