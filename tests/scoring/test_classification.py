"""Classification from a cohort and a prediction table to metrics, curves and details."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import precision_recall_curve

from elsewhere.cohort.table import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import ReadOptions
from elsewhere.predictions.probability import probabilities_from_frame
from elsewhere.protocols import ClassificationRules, protocols
from elsewhere.scoring.classification import ClassificationTask
from elsewhere.scoring.curves import ROC_GRID
from elsewhere.scoring.task import ScoreOptions
from elsewhere.scoring.temperature import FileTemperature, temperature_of
from elsewhere.statistics.bootstrap_weights import WeightStream
from elsewhere.statistics.calibration import apply_temperature

PLAIN = protocols.get("plain")
TASK = ClassificationTask()


def make(n=60, *, normals=0, seed=0):
    rng = np.random.default_rng(seed)
    label = np.where(rng.random(n) < 0.4, "malignant", "benign")
    label[:2] = ["benign", "malignant"]
    label = np.concatenate([label, np.full(normals, "normal")])
    total = n + normals
    cases = pd.DataFrame(
        {
            "case_id": [f"c{i:03d}" for i in range(total)],
            "patient_id": [f"p{i // 2:03d}" for i in range(total)],
            "site": np.where(np.arange(total) % 2, "north", "south"),
            "label": label,
            "age": rng.integers(30, 80, total),
        }
    )
    probability = 1 / (1 + np.exp(-(rng.normal(size=total) + 1.5 * (label == "malignant") - 0.5)))
    table = pd.DataFrame({"case_id": cases["case_id"], "probability": probability})
    return Cohort(cases=cases), table


def score(cohort, table, *, protocol=PLAIN, read=None, **options):
    predictions = probabilities_from_frame(table, read or ReadOptions(), cohort)
    return TASK.score(cohort, predictions, protocol, ScoreOptions(**options))


def evaluate(scores, **options):
    return TASK.evaluator(scores, TASK.partition(scores), ScoreOptions(**options))


def test_every_contract_metric_is_there():
    scores = score(*make())
    values = evaluate(scores).values()
    wanted = "auroc auprc sensitivity specificity balanced_accuracy f1 ece_confidence ece_malignant nll brier"
    assert set(wanted.split()) <= set(values)
    assert TASK.metrics(PLAIN)[0].name == "auroc"
    assert TASK.metrics(PLAIN)[0].primary


def test_scores_table_has_a_row_a_case_with_its_metrics():
    scores = score(*make(), group_by=("site",))
    assert {"case_id", "patient_id", "site", "status", "label", "probability", "nll", "brier", "age"} <= set(
        scores.cases.columns
    )
    assert len(scores.cases) == 60
    values = evaluate(scores).values()
    assert scores.cases["brier"].mean() == pytest.approx(values["brier"])
    assert scores.cases["nll"].mean() == pytest.approx(values["nll"])


def test_order_of_the_prediction_file_does_not_matter():
    cohort, table = make()
    straight = evaluate(score(cohort, table)).values()
    shuffled = evaluate(score(cohort, table.sample(frac=1, random_state=3))).values()
    assert straight == shuffled


def test_missing_invalid_and_failed_are_counted_apart_and_scored_worst():
    cohort, table = make()
    table = table.astype({"probability": "object"})
    table.loc[3, "probability"] = "not analysable"
    table.loc[4, "probability"] = 7.0
    table = pd.concat([table.drop(index=5), pd.DataFrame({"case_id": ["zz"], "probability": [0.5]})])
    scores = score(cohort, table, read=ReadOptions(on_invalid="worst"))
    counts = scores.counts
    assert (counts["missing"], counts["invalid"], counts["not_analysable"], counts["extra"]) == (1, 1, 1, 1)
    assert counts["scored"] == 57
    assert counts["cases"] == 60
    assert scores.cases["status"].tolist()[3:6] == ["not_analysable", "invalid", "missing"]
    worst = scores.cases["probability"].isna()
    assert worst.sum() == 3
    assert (scores.cases.loc[worst, "brier"] == 1).all()
    evaluator = evaluate(scores)
    answered = evaluator.subset((scores.cases["status"] == "scored").to_numpy())
    assert answered.values()["auroc"] > evaluator.values()["auroc"]


def test_other_labels_are_left_out_and_counted():
    cohort, table = make()
    cases = cohort.cases.copy()
    cases.loc[[6, 7], "label"] = ["cyst?", None]
    scores = score(Cohort(cases=cases), table)
    assert scores.counts["cases"] == 58
    assert scores.counts["left_out"] == 2
    assert any("cyst?" in step["why"] for step in scores.flow)
    assert any("left out" in text for text in scores.warnings)


@pytest.mark.parametrize(
    "labels", [["Benign ", "MALIGNANT"], [0, 1], [0.0, 1.0], ["0", "1.0"], [False, True]]
)
def test_labels_in_many_spellings(labels):
    cohort, table = make()
    truth = (cohort.cases["label"] == "malignant").astype(int)
    cases = cohort.cases.assign(label=[labels[value] for value in truth])
    assert evaluate(score(Cohort(cases=cases), table)).values() == evaluate(score(cohort, table)).values()


def test_bad_truth_is_a_clear_error():
    cohort, table = make()
    with pytest.raises(UserError, match="no column 'label'"):
        score(Cohort(cases=cohort.cases.rename(columns={"label": "labels"})), table)
    with pytest.raises(UserError, match="no case has a truth"):
        score(Cohort(cases=cohort.cases.assign(label="?")), table)
    with pytest.raises(UserError, match="group by"):
        score(cohort, table, group_by=("scaner",))


def test_one_class_is_scored_with_a_warning():
    cohort, table = make()
    scores = score(Cohort(cases=cohort.cases.assign(label="malignant")), table)
    assert any("there is no benign case" in text for text in scores.warnings)
    evaluator = evaluate(scores)
    assert np.isnan(evaluator.values()["auroc"])
    assert evaluator.undefined_reasons()["auroc"] == "no benign case"
    assert 0 < evaluator.values()["sensitivity"] < 1


def test_threshold_option():
    cohort, table = make()
    scores = score(cohort, table, threshold=0.2)
    assert evaluate(scores, threshold=0.2).values()["sensitivity"] >= evaluate(scores).values()["sensitivity"]
    details = TASK.details(scores, TASK.partition(scores), ScoreOptions(threshold=0.2))
    assert details["threshold"] == 0.2
    assert sum(details["confusion"].values()) == 60
    precision, recall, _ = precision_recall_curve(scores.cases["label"], scores.cases["probability"])
    assert details["auprc_trapezoid"] == pytest.approx(-np.trapezoid(precision, recall), abs=1e-12)


@pytest.mark.parametrize("threshold", [45.0, -0.1, float("nan")])
def test_a_threshold_on_another_scale_is_refused(threshold):
    with pytest.raises(UserError, match=r"0\.45"):
        score(*make(), threshold=threshold)


def test_reversed_scores_are_noticed():
    cohort, table = make(200)
    assert not any("reversed" in text for text in score(cohort, table).warnings)
    turned = table.assign(probability=1 - table["probability"])
    assert any("--scale 1-0" in text for text in score(cohort, turned).warnings)
    mended = score(cohort, turned, read=ReadOptions(scale="1-0"))
    assert evaluate(mended).values()["auroc"] == pytest.approx(
        evaluate(score(cohort, table)).values()["auroc"]
    )


def test_birads_has_no_calibration_also_from_the_saved_table():
    cohort, table = make()
    words = pd.cut(table["probability"], [-1, 0.2, 0.4, 0.6, 0.8, 2], labels=["2", "3", "4A", "4C", "5"])
    table = table.assign(probability=words.astype("string"))
    scores = score(cohort, table, read=ReadOptions(scale="birads"))
    for found in (scores, TASK.from_table(cohort, scores.cases, scores.events, PLAIN, ScoreOptions())):
        evaluator = evaluate(found)
        values = evaluator.values()
        assert np.isnan(values["nll"])
        assert "ranks" in evaluator.undefined_reasons()["ece_malignant"]
        assert np.isfinite(values["auroc"])
    curves = TASK.curves(scores, TASK.partition(scores), None, ScoreOptions())
    assert "reliability" not in curves


def test_from_table_gives_the_same_numbers():
    cohort, table = make(80, normals=25)
    first = score(cohort, table.drop(index=[4, 9]))
    again = TASK.from_table(cohort, first.cases, first.events, PLAIN, ScoreOptions())
    assert evaluate(again).values() == evaluate(first).values()
    assert again.counts == first.counts
    part = TASK.partition(first)
    assert (
        TASK.details(again, part, ScoreOptions())["lesion_against_normal"]
        == TASK.details(first, part, ScoreOptions())["lesion_against_normal"]
    )


def test_lesion_against_normal():
    """US-18: from 20 normals on, normal is the positive class, shared patients warn."""
    few = score(*make(60, normals=19))
    found = TASK.details(few, TASK.partition(few), ScoreOptions())["lesion_against_normal"]
    assert not found["available"]
    assert "20" in found["reason"]
    cohort, table = make(61, normals=20)
    table.loc[61:, "probability"] = 0.5
    scores = score(cohort, table)
    assert scores.counts["normals"] == 20
    assert scores.counts["cases"] == 61
    found = TASK.details(scores, TASK.partition(scores), ScoreOptions())["lesion_against_normal"]
    assert found["available"]
    assert found["auroc"] == 1.0
    assert found["auprc"] == pytest.approx(1.0)
    assert found["shared_patients"] == 1
    none = score(*make())
    assert not TASK.details(none, TASK.partition(none), ScoreOptions())["lesion_against_normal"]["available"]


def test_calibrate_on_adds_calibrated_metrics(tmp_path):
    cohort, table = make(100)
    other_cohort, other = make(200, seed=5)
    sharp = apply_temperature(other["probability"], 0.5)
    path = tmp_path / "validation.csv"
    other.assign(case_id="v" + other["case_id"], probability=sharp, label=other_cohort.cases["label"]).to_csv(
        path, index=False
    )
    scores = score(cohort, table, calibrate_on=str(path))
    values = evaluate(scores).values()
    assert "nll_calibrated" in values
    assert values["auroc_calibrated"] == pytest.approx(values["auroc"])
    assert scores.extras["temperature"]["eligible"]
    assert scores.extras["temperature"]["overlap"] == 0
    assert 1.5 < scores.extras["temperature"]["temperature"] < 2.8
    again = TASK.from_table(cohort, scores.cases, scores.events, PLAIN, ScoreOptions())
    assert evaluate(again).values() == values
    curves = TASK.curves(scores, TASK.partition(scores), None, ScoreOptions())
    assert "reliability_calibrated" in curves


def test_unusable_rows_of_the_calibration_file_are_counted(tmp_path):
    cohort, table = make(100)
    path = tmp_path / "validation.csv"
    other = table.assign(case_id="v" + table["case_id"], label=cohort.cases["label"]).astype(
        {"probability": "object"}
    )
    other.loc[0, "probability"] = "failed"
    other.loc[1, "label"] = "?"
    other.to_csv(path, index=False)
    scores = score(cohort, table, calibrate_on=str(path))
    assert scores.extras["temperature"]["left_out"] == 2
    assert scores.extras["temperature"]["cases"] == 98
    assert any("left out of the fit" in text for text in scores.warnings)


def test_calibrating_on_the_test_cases_is_said(tmp_path):
    cohort, table = make(100)
    path = tmp_path / "same.csv"
    table.assign(label=cohort.cases["label"]).to_csv(path, index=False)
    scores = score(cohort, table, calibrate_on=str(path))
    assert any("flatters" in text for text in scores.warnings)


def test_too_few_to_calibrate_means_temperature_one(tmp_path):
    cohort, table = make(100)
    path = tmp_path / "few.csv"
    pd.DataFrame(
        {"case_id": [f"v{i}" for i in range(39)], "probability": 0.3, "label": [0, 1, 0] * 13}
    ).to_csv(path, index=False)
    scores = score(cohort, table, calibrate_on=str(path))
    assert scores.extras["temperature"]["temperature"] == 1.0
    assert any("Not calibrated" in text for text in scores.warnings)
    values = evaluate(scores).values()
    assert values["nll_calibrated"] == pytest.approx(values["nll"])


@pytest.mark.parametrize("sample", ["ordinary_300", "tied_logits"])
def test_temperature_vectors(vectors_dir, sample):
    expected = json.loads((vectors_dir / "classification/expected.json").read_text())[sample]
    inputs = json.loads((vectors_dir / "classification/inputs.json").read_text())[sample]
    probability = 1 / (1 + np.exp(-np.array(inputs["logit_malignant"])))
    fitted = temperature_of(inputs["y"], probability)
    # the two reference minimisers themselves part by up to 2e-8
    assert fitted.value == pytest.approx(expected["T_bounded_0.5_5"], abs=1e-7)
    assert fitted.nll_after == pytest.approx(expected["nll_at_T_bounded"], abs=1e-12)
    assert fitted.hit_bound is None


def test_a_temperature_at_its_bound_is_reported():
    label = np.tile([0, 1], 50)
    fitted = temperature_of(label, np.where(label == 1, 0.7, 0.3), rules=ClassificationRules())
    assert fitted.value == 0.5
    assert fitted.hit_bound == "lower"
    assert any("bound" in text for text in FileTemperature(fit=fitted).warnings())


def test_curves_agree_with_sklearn_and_have_bands():
    from sklearn.metrics import roc_curve

    cohort, table = make(150)
    table["probability"] = table["probability"].round(2)
    scores = score(cohort, table)
    partition = TASK.partition(scores)
    stream = WeightStream(partition, key="k", seed=1, resamples=150, by_class=True)
    curves = TASK.curves(scores, partition, stream, ScoreOptions(threads=1))
    roc = curves["roc"]
    fpr, tpr, _ = roc_curve(scores.cases["label"], scores.cases["probability"], drop_intermediate=False)
    upper = pd.Series(tpr).groupby(fpr).max()
    lower = pd.Series(tpr).groupby(fpr).min()
    for x, y in zip(roc["x"], roc["y"], strict=True):
        left, right = upper.index[upper.index <= x].max(), upper.index[upper.index > x].min()
        if np.isnan(right):
            assert y == 1.0
        else:
            share = (x - left) / (right - left)
            assert y == pytest.approx(upper[left] + share * (lower[right] - upper[left]), abs=1e-9)
    for name in ("roc", "pr", "reliability"):
        curve = curves[name]
        assert len(curve["x"]) == len(curve["y"]) == len(curve["lo"]) == len(curve["hi"]) <= 500
        inside = [
            lo - 1e-9 <= y <= hi + 1e-9
            for lo, y, hi in zip(curve["lo"], curve["y"], curve["hi"], strict=True)
        ]
        assert np.mean(inside) > 0.8
    assert curves["pr"]["y"][-1] >= curves["pr"]["prevalence"] - 1e-12
    assert sum(curves["reliability"]["n"]) == 150
    assert len(ROC_GRID) <= 250


def test_area_under_the_curve_is_the_auroc():
    scores = score(*make(400))
    partition = TASK.partition(scores)
    roc = TASK.curves(scores, partition, None, ScoreOptions())["roc"]
    assert np.trapezoid(roc["y"], roc["x"]) == pytest.approx(evaluate(scores).values()["auroc"], abs=0.01)
    assert "lo" not in roc


def test_curves_do_not_depend_on_threads():
    scores = score(*make(100))
    partition = TASK.partition(scores)
    stream = WeightStream(partition, key="k", seed=1, resamples=300, by_class=True)
    one = TASK.curves(scores, partition, stream, ScoreOptions(threads=1))
    two = TASK.curves(scores, partition, stream, ScoreOptions(threads=2))
    assert one == two


def test_normalised_ids_reach_the_join():
    cohort, table = make()
    with pytest.raises(UserError, match="--normalise-ids case"):
        score(cohort, table.assign(case_id=table["case_id"].str.upper()))
    predictions = probabilities_from_frame(table.assign(case_id=table["case_id"].str.upper()))
    scores = TASK.score(cohort, predictions, PLAIN, ScoreOptions(normalise_ids=("case",)))
    assert scores.counts["missing"] == 0


def test_the_calibration_file_is_read_as_the_predictions_are(tmp_path):
    """A vendor's columns and scale hold for both files; a score off the scale stops, it is not dropped."""
    import elsewhere

    rng = np.random.default_rng(5)
    label = np.arange(120) % 2
    score = np.clip(100 * (0.3 * label + 0.6 * rng.random(120)), 1, 99)
    cohort = pd.DataFrame({"case_id": [f"c{i}" for i in range(120)], "label": label})
    said = pd.DataFrame({"Accession": cohort["case_id"], "AI": score})
    file = tmp_path / "validation.csv"
    pd.DataFrame({"Accession": [f"v{i}" for i in range(120)], "AI": score, "label": label}).to_csv(
        file, index=False
    )
    settings = {"column_map": {"case_id": "Accession", "score": "AI"}, "resamples": 0, "calibrate_on": file}
    result = elsewhere.score("classification", cohort, said, scale="0-100", **settings)
    assert result.metrics["nll_calibrated"]["value"] < result.metrics["nll"]["value"]
    with pytest.raises(elsewhere.UserError, match="validation"):
        elsewhere.score("classification", cohort, said.assign(AI=score / 100), scale="0-1", **settings)
