"""`diff`: what changed between two results, and why."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from elsewhere.analysis.result.storage import reseal


@pytest.fixture
def scored(run, pair, tmp_path):
    def score(name, *more, cohort=None, predictions=None):
        out = tmp_path / name
        done = run(
            "score",
            "classification",
            cohort or pair.cohort,
            predictions or pair.predictions,
            *more,
            "--out",
            out,
        )
        assert done.code == 0, done.said
        return out

    return score


def causes(done):
    return {cause["name"] for cause in done.json["causes"]}


def test_nothing_changed(scored, run):
    a, b = scored("a", "--resamples", 50), scored("b", "--resamples", 50)
    found = run("diff", a, b, "--json").json
    assert found["same"] is True
    assert found["unexplained"] is False
    assert "nothing changed" in run("diff", a, b).out


def test_seed_and_resamples_move_intervals_only(scored, run):
    a, b = scored("a", "--resamples", 50), scored("b", "--resamples", 60, "--seed", 7)
    done = run("diff", a, b, "--json")
    assert causes(done) == {"seed", "resamples"}
    assert all(row["interval_only"] for row in done.json["metrics"])
    assert done.json["cases"]["changed"] == 0
    assert done.json["unexplained"] is False


def test_other_predictions_name_the_changed_cases(scored, run, pair, tmp_path):
    said = pd.read_csv(pair.predictions)
    said.loc[4, "probability"] = 1 - said.loc[4, "probability"]
    said.drop(index=9).to_csv(tmp_path / "new.csv", index=False)
    a, b = scored("a", "--resamples", 0), scored("b", "--resamples", 0, predictions=tmp_path / "new.csv")
    done = run("diff", a, b, "--json")
    assert causes(done) == {"predictions_digest"}
    assert done.json["cases"]["changed"] == 2
    rows = pd.read_parquet(a / "scores.parquet")["case_id"].to_numpy()
    assert set(rows[[row - 1 for row in done.json["cases"]["first_changed_rows"]]]) == {"C0004", "C0009"}
    assert "C0004" not in done.out
    counts = {row["name"]: (row["a"], row["b"]) for row in done.json["counts"]}
    assert counts["missing"] == (0, 1)
    text = run("diff", a, b).out
    assert "the predictions changed" in text


def test_cohort_threshold_and_protocol_are_causes(scored, run, pair, tmp_path):
    pd.read_csv(pair.cohort).iloc[:-4].to_csv(tmp_path / "less.csv", index=False)
    a = scored("a", "--resamples", 0)
    b = scored("b", "--resamples", 0, cohort=tmp_path / "less.csv")
    done = run("diff", a, b, "--json")
    assert causes(done) == {"cohort_hash"}
    assert done.json["cases"]["only_a"] == 4
    c = scored("c", "--resamples", 0, "--threshold", 0.2)
    done = run("diff", a, c, "--json")
    assert causes(done) == {"settings"}
    assert done.json["unexplained"] is False
    moved = {row["name"] for row in done.json["metrics"]}
    assert "sensitivity" in moved
    assert "auroc" not in moved


def test_a_number_that_moved_without_a_cause_is_called_a_defect(scored, run):
    a, b = scored("a", "--resamples", 0), scored("b", "--resamples", 0)
    file = b / "summary.json"
    summary = json.loads(file.read_text())
    summary["metrics"]["auroc"]["value"] -= 0.1
    file.write_text(json.dumps(reseal(summary, b)))  # as a fault of ours would have written it
    done = run("diff", a, b)
    assert "please report this as a defect" in done.out
    assert run("diff", a, b, "--json").json["unexplained"] is True


@pytest.mark.parametrize("task", ["detection", "segmentation", "slides", "response"])
def test_every_task_can_be_compared_with_itself(task, results, run):
    _, out, _ = results(task)
    assert run("diff", out, out, "--json").json["same"] is True
