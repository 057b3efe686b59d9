"""Response: the published template's numbers, and one test a rule where protocols part."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions.probability import probabilities_from_frame
from elsewhere.protocols import protocols
from elsewhere.scoring.response import CONSTANT_REASON, ResponseTask, chance_test
from elsewhere.scoring.task import ScoreOptions

TASK = ResponseTask()
PAPER, CODE, PLAIN = (protocols.get(name) for name in ("mamamia-paper", "mamamia-code", "plain"))


def run(frame, protocol, *, column="pred_score", **options):
    cases = frame.drop(columns=[column]).assign(case_id=frame["patient_id"])
    predictions = probabilities_from_frame(
        pd.DataFrame({"case_id": frame["patient_id"], "probability": frame[column]}).dropna()
    )
    return score(Cohort(cases=cases), predictions, protocol, **options)


def score(cohort, predictions, protocol, **options):
    chosen = ScoreOptions(**options)
    scores = TASK.score(cohort, predictions, protocol, chosen)
    return scores, TASK.evaluator(scores, TASK.partition(scores), chosen)


def frame_of(pcr, pred, **columns):
    n = len(pcr)
    return pd.DataFrame(
        {"patient_id": [f"p{i}" for i in range(n)], "pcr": pcr, "pred_score": pred}
        | {"age": [45] * n, "menopausal_status": ["pre"] * n, "breast_density": ["a"] * n}
        | columns
    )


@pytest.mark.parametrize(
    "name", ["ordinary_60", "age_bin_edges", "group_all_positive_all_predicted_positive"]
)
def test_vectors(vectors_dir, name):
    expected = json.loads((vectors_dir / "mamamia/expected.json").read_text())[name]["task2"]
    frame = pd.read_csv(vectors_dir / f"mamamia/{name}.csv")
    _, evaluator = run(frame, CODE)
    values = evaluator.values()
    assert values["balanced_accuracy"] == pytest.approx(expected["balanced_accuracy"], abs=1e-12)
    for variable, disparity in expected["equalized_odds_disparities"].items():
        assert evaluator.disparities()[variable] == pytest.approx(disparity, abs=1e-12), variable
    assert values["fairness"] == pytest.approx(expected["official_Fairness_Score_printed"], abs=1e-12)
    assert values["combined"] == pytest.approx(expected["ranking_score"], abs=1e-12)


def test_one_half_is_pcr_in_the_paper_and_not_in_the_code():
    frame = frame_of([1, 1, 0, 0], [0.5, 0.9, 0.5, 0.1])
    assert run(frame, PAPER)[1].values()["sensitivity"] == 1.0
    assert run(frame, PAPER)[1].values()["specificity"] == 0.5
    assert run(frame, CODE)[1].values()["sensitivity"] == 0.5
    assert run(frame, CODE)[1].values()["specificity"] == 1.0


@pytest.mark.parametrize("value", [0.2, 0.8])
def test_a_constant_prediction_is_invalid_in_the_paper(value):
    scores, evaluator = run(frame_of([1, 1, 0, 0], [value] * 4), PAPER)
    assert all(np.isnan(v) for v in evaluator.values().values())
    assert set(evaluator.undefined_reasons().values()) == {CONSTANT_REASON}
    assert evaluator.case_counts()["combined"] == (0, 4)
    assert evaluator.closed_form("auroc") is None
    assert scores.extras["constant_prediction"]
    part = evaluator.subset(np.array([True, False, True, False]))
    assert np.isnan(part.values()["balanced_accuracy"])


def test_constant_means_the_decision_not_the_score():
    _, evaluator = run(frame_of([1, 1, 0, 0], [0.1, 0.2, 0.3, 0.4]), PAPER)
    assert CONSTANT_REASON in evaluator.undefined_reasons().values()


def test_a_constant_group_is_not_a_constant_prediction():
    frame = frame_of([1, 1, 0, 0], [0.9, 0.8, 0.1, 0.2])
    _, evaluator = run(frame, PAPER)
    part = evaluator.subset(np.array([True, True, False, False]))
    assert part.values()["sensitivity"] == 1.0
    assert np.isnan(part.values()["balanced_accuracy"])
    weights = np.array([[1, 1, 0, 0]], dtype=np.uint16)
    assert evaluator.evaluate(weights)[0, evaluator.index("sensitivity")] == 1.0


def test_all_negative_gets_three_quarters_in_the_code():
    """The footgun of protocols.md: fair to everybody, useful to nobody."""
    scores, evaluator = run(frame_of([1, 1, 0, 0], [0.0] * 4), CODE)
    assert evaluator.values()["combined"] == 0.75
    assert any("constant" in text for text in scores.warnings)


def test_a_group_of_one_class_leaves_the_range_in_the_paper_and_is_zero_in_the_code():
    frame = frame_of(
        [1, 0, 1, 0, 1, 1],
        [0.9, 0.1, 0.9, 0.1, 0.9, 0.1],
        menopausal_status=["pre", "pre", "pre", "pre", "post", "post"],
    )
    _, paper = run(frame, PAPER)
    assert paper.disparities()["menopausal_status"] == pytest.approx(0.5)  # TPR 1 and 0.5; FPR of pre alone
    _, code = run(frame, CODE)
    assert code.disparities()["menopausal_status"] == pytest.approx(
        0.5
    )  # FPR of post is 0, as is that of pre
    frame["pred_score"] = [0.9, 0.9, 0.9, 0.9, 0.9, 0.1]
    assert run(frame, PAPER)[1].disparities()["menopausal_status"] == pytest.approx(0.5)
    assert run(frame, CODE)[1].disparities()["menopausal_status"] == pytest.approx(1.5)


def test_a_group_whose_truth_and_prediction_are_one_class_is_zero_in_the_code():
    frame = frame_of(
        [1, 0, 1, 1],
        [0.9, 0.1, 0.9, 0.9],
        menopausal_status=["pre", "pre", "post", "post"],
    )
    assert run(frame, PAPER)[1].disparities()["menopausal_status"] == 0.0
    assert run(frame, CODE)[1].disparities()["menopausal_status"] == 1.0  # TPR of post is called 0


def test_unknown_status_is_left_out_or_a_group_of_its_own():
    frame = frame_of(
        [1, 0, 1, 0, 1, 0],
        [0.9, 0.1, 0.9, 0.1, 0.1, 0.9],
        menopausal_status=["pre", "pre", "post", "post", None, "unknown"],
    )
    assert run(frame, PAPER)[1].disparities()["menopausal_status"] == 0.0
    assert run(frame, CODE)[1].disparities()["menopausal_status"] == 2.0


@pytest.mark.parametrize("protocol", [PAPER, CODE])
def test_peri_counts_as_pre(protocol):
    frame = frame_of(
        [1, 0, 1, 0, 1, 0],
        [0.9, 0.1, 0.9, 0.1, 0.1, 0.9],
        menopausal_status=["pre", "pre", "post", "post", "peri", "peri (6-12 months)"],
    )
    assert run(frame, protocol)[1].disparities()["menopausal_status"] == 1.0


def test_the_mean_disparity_is_cut_to_one_in_the_code_alone():
    opposite = {"age": [30, 30, 75, 75], "menopausal_status": ["pre", "pre", "post", "post"]}
    frame = frame_of([1, 0, 1, 0], [0.9, 0.1, 0.1, 0.9], breast_density=list("aadd"), **opposite)
    assert run(frame, PAPER)[1].values()["fairness"] == -1.0
    assert run(frame, CODE)[1].values()["fairness"] == 0.0
    paper_spec, code_spec = (run(frame, p)[1].spec("fairness") for p in (PAPER, CODE))
    assert (paper_spec.lower_bound, code_spec.lower_bound) == (-1.0, 0.0)


def test_ages_beyond_a_hundred_leave_the_groups_in_the_code():
    frame = frame_of([1, 0, 1, 0], [0.9, 0.1, 0.1, 0.9], age=[75, 75, 101, 101])
    assert run(frame, PAPER)[1].disparities()["age"] == 0.0
    assert run(frame, CODE)[1].disparities()["age"] == 0.0
    frame["age"] = [60, 60, 101, 101]
    assert run(frame, PAPER)[1].disparities()["age"] == 2.0
    assert run(frame, CODE)[1].disparities()["age"] == 0.0


def test_unknown_outcome_is_left_out_and_counted():
    frame = frame_of([1, 0, np.nan, 1], [0.9, 0.1, 0.5, 0.2])
    scores, _ = run(frame, PLAIN)
    assert scores.counts["cases"] == 3
    assert scores.counts["left_out"] == 1
    assert any(step["lost"] == 1 and "known response" in step["step"] for step in scores.flow)


def test_missing_patients_are_wrong_in_every_part():
    frame = frame_of(
        [1, 0, 1, 0], [np.nan, 0.1, 0.9, np.nan], menopausal_status=["pre", "pre", "post", "post"]
    )
    scores, evaluator = run(frame, PLAIN)
    assert scores.counts["missing"] == 2
    assert scores.cases["decision"].tolist() == [0, 0, 1, 1]
    values = evaluator.values()
    assert values["balanced_accuracy"] == 0.5
    assert evaluator.disparities()["menopausal_status"] == 2.0
    answered = evaluator.subset((scores.cases["status"] == "scored").to_numpy())
    assert answered.values()["balanced_accuracy"] == 1.0


def test_the_fairness_weight_can_be_chosen():
    frame = frame_of([1, 0, 1, 0], [0.9, 0.1, 0.1, 0.1], menopausal_status=["pre", "pre", "post", "post"])
    _, evaluator = run(frame, PLAIN, fairness_weight=0.2)
    values = evaluator.values()
    expected = 0.8 * values["balanced_accuracy"] + 0.2 * values["fairness"]
    assert values["combined"] == pytest.approx(expected)
    assert np.isfinite(run(frame, PLAIN, fairness_weight=0.0)[1].values()["combined"])


def test_without_any_variable_fairness_is_undefined_with_its_reason():
    frame = frame_of([1, 0, 1, 0], [0.9, 0.1, 0.1, 0.1]).drop(
        columns=["age", "menopausal_status", "breast_density"]
    )
    scores, evaluator = run(frame, PLAIN)
    values, reasons = evaluator.values(), evaluator.undefined_reasons()
    assert np.isnan(values["fairness"])
    assert np.isnan(values["combined"])
    assert "none of age" in reasons["fairness"]
    assert "fairness is undefined" in reasons["combined"]
    assert np.isfinite(values["balanced_accuracy"])
    assert any("no column 'age'" in text for text in scores.warnings)


def test_reasons_name_exactly_the_undefined():
    frame = frame_of([1, 0, 1, 0], [0.9, 0.1, 0.1, 0.1])
    _, evaluator = run(frame, PLAIN)
    for part in (evaluator, evaluator.subset(np.array([True, False, True, False]))):
        undefined = {name for name, value in part.values().items() if np.isnan(value)}
        assert undefined == set(part.undefined_reasons())


def test_from_table_gives_the_same_numbers(vectors_dir):
    frame = pd.read_csv(vectors_dir / "mamamia/ordinary_60.csv")
    scores, evaluator = run(frame, CODE)
    cohort = Cohort(cases=frame.assign(case_id=frame["patient_id"]))
    again = TASK.from_table(cohort, scores.cases, None, CODE, ScoreOptions())
    found = TASK.evaluator(again, TASK.partition(again), ScoreOptions())
    assert found.values() == evaluator.values()


def test_weights_mean_repeated_patients(vectors_dir):
    frame = pd.read_csv(vectors_dir / "mamamia/ordinary_60.csv")
    _, evaluator = run(frame, PAPER)
    rng = np.random.default_rng(0)
    weights = rng.multinomial(60, np.full(60, 1 / 60), size=5).astype(np.uint16)
    found = evaluator.evaluate(weights)
    for row, w in zip(found, weights, strict=True):
        repeated = frame.loc[np.repeat(np.arange(60), w)].reset_index(drop=True)
        repeated["patient_id"] = [f"r{i}" for i in range(len(repeated))]
        _, again = run(repeated, PAPER)
        assert list(again.values().values()) == pytest.approx(list(row), abs=1e-12)


def test_stack_swaps_models(vectors_dir):
    frame = pd.read_csv(vectors_dir / "mamamia/ordinary_60.csv")
    _, a = run(frame, CODE)
    _, b = run(frame.assign(pred_score=1 - frame["pred_score"]), CODE)
    both = a.stack(b)
    first = np.concatenate([np.ones(60), np.zeros(60)]).astype(np.uint16)[None]
    assert both.evaluate(first)[0] == pytest.approx(np.array(list(a.values().values())))
    second = np.ascontiguousarray(first[:, ::-1])
    assert both.evaluate(second)[0] == pytest.approx(np.array(list(b.values().values())))


def test_one_class_is_scored_and_no_column_is_an_error():
    frame = frame_of([1, 1], [0.9, 0.1])
    scores, evaluator = run(frame, PLAIN)
    assert any("there is no non-pCR case" in text for text in scores.warnings)
    assert evaluator.values()["sensitivity"] == 0.5
    assert np.isnan(evaluator.values()["balanced_accuracy"])
    details = TASK.details(scores, TASK.partition(scores), ScoreOptions())
    assert details["chance_test"] == {"undefined_reason": "both classes are needed"}
    with pytest.raises(UserError, match="'pcr'"):
        run(frame.rename(columns={"pcr": "response"}), PLAIN)


def test_details():
    frame = frame_of([1, 0, 1, 0], [0.9, 0.1, 0.1, 0.1], menopausal_status=["pre", "pre", "post", "post"])
    scores, evaluator = run(frame, PLAIN)
    details = TASK.details(scores, TASK.partition(scores), ScoreOptions())
    assert sum(details["confusion"].values()) == 4
    assert details["equalised_odds_disparity"]["menopausal_status"] == 1.0
    assert 0 < details["chance_test"]["p"] <= 1
    assert {"roc", "pr", "reliability"} <= set(
        TASK.curves(scores, TASK.partition(scores), None, ScoreOptions())
    )
    assert evaluator.spec("balanced_accuracy").primary


def test_the_chance_test_finds_skill_and_keeps_its_level():
    """MRI-09, ST-12: p is never 0, a perfect model is beyond chance, a random one is rarely called good."""
    truth = np.tile([0, 1], 50)
    perfect = chance_test(truth, truth)
    assert perfect.p == pytest.approx(1 / 1001)
    assert perfect.chance_mean == pytest.approx(0.5, abs=0.01)
    rng = np.random.default_rng(1)
    p = [chance_test(truth, rng.random(100) < 0.5, rng=rng).p for _ in range(400)]
    assert np.mean(np.array(p) <= 0.05) <= 0.08
    assert chance_test(truth, truth) == chance_test(truth, truth)
    with pytest.raises(ValueError, match="both classes"):
        chance_test([1, 1], [1, 0])


def test_a_protocol_of_ones_own():
    frame = frame_of([1, 0, 1, 0], [0.35, 0.1, 0.9, 0.2])
    lower = dataclasses.replace(
        PAPER, name="mine", response=dataclasses.replace(PAPER.response, threshold=0.3)
    )
    assert run(frame, lower)[1].values()["sensitivity"] == 1.0
    assert run(frame, PAPER, threshold=0.3)[1].values()["sensitivity"] == 1.0
