"""Tasks of means over cases: what they need not write, and what they may not get wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import Predictions
from elsewhere.protocols import protocols
from elsewhere.scoring.case_means import CaseMeanTask
from elsewhere.scoring.stored import check_stored_scores
from elsewhere.scoring.task import ScoreOptions, main_metric
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

PLAIN = protocols.get("plain")
CASES = pd.DataFrame(
    {"case_id": list("abcd"), "patient_id": ["p", "p", "q", "r"], "truth": [1.0, 2.0, 3.0, 4.0], "age": 50}
)


def spec(name, **more) -> MetricSpec:
    return MetricSpec(
        name=name, label=name, higher_is_better=False, kind=MetricKind.MEAN, interval=IntervalMethod.CLUSTERED_T,
        **({"worst": 9.0, "upper_bound": 9.0} | more),
    )  # fmt: skip


class Guess(CaseMeanTask):
    name, title, target, answer_kind = "guess", "Guess", "truth", "number"
    specs = (spec("error"), spec("square"))

    def case_values(self, cases, answers, protocol):
        error = np.abs(answers["value"] - cases["truth"])
        return {"error": error, "square": np.where(error > 1, np.nan, error**2)}


def answers(**values) -> Predictions:
    table = pd.DataFrame({"case_id": list(values), "value": list(values.values())})
    return Predictions(kind="number", table=table, source="answers", digest="")


def scored(predictions, task=None):
    cohort = Cohort.from_frame(CASES)
    return (task or Guess()).score(cohort, predictions, PLAIN, ScoreOptions())


def test_a_case_is_scored_missing_invalid_or_undefined():
    found = scored(answers(a=1.5, b=np.nan, d=8.0))
    assert found.cases["status"].tolist() == ["scored", "invalid", "missing", "undefined"]
    assert found.cases["error"].tolist() == [0.5, 9, 9, 4]
    assert found.cases["square"].tolist()[:3] == [0.25, 9, 9] and np.isnan(found.cases["square"][3])
    assert found.counts == {
        "cases": 4, "scored": 1, "missing": 1, "invalid": 1, "not_analysable": 0, "undefined": 1, "extra": 0,
    }  # fmt: skip
    task = Guess()
    values = task.evaluator(found, task.partition(found), ScoreOptions()).values()
    assert values == {"error": (0.5 + 9 + 9 + 4) / 4, "square": (0.25 + 9 + 9) / 3}
    assert "age" in found.cases.columns and "truth" not in found.cases.columns


def test_the_worst_cases_are_those_of_the_primary_metric():
    found = scored(answers(a=1.5, b=2.0, c=3.2, d=8.0))
    assert Guess().case_cost(found).round(6).tolist() == [0.5, 0, 0.2, 4]
    assert Guess().case_columns == ("error", "square")


def test_scores_that_were_stored_are_taken_up_again():
    task, first = Guess(), scored(answers(a=1.5, b=np.nan, d=8.0))
    again = task.from_table(Cohort.from_frame(CASES), first.cases, None, PLAIN, ScoreOptions())
    pd.testing.assert_frame_equal(first.cases, again.cases)
    check_stored_scores(task, first.cases, None, where="result")
    with pytest.raises(UserError, match="square"):
        check_stored_scores(task, first.cases.drop(columns="square"), None, where="result")
    with pytest.raises(UserError, match="no column 'error'"):
        task.from_table(
            Cohort.from_frame(CASES), first.cases.drop(columns="error"), None, PLAIN, ScoreOptions()
        )


@pytest.mark.parametrize("worst", [0.0, np.inf])
def test_a_missing_answer_may_not_be_better_than_a_bad_one(worst):
    class Careless(Guess):
        specs = (spec("error", worst=worst), spec("square"))

    with pytest.raises(UserError, match="worst value"):
        scored(answers(a=1), Careless())


def test_answers_of_another_kind_and_a_cohort_without_truth_are_refused():
    other = Predictions(kind="masks", table=answers(a=1).table, source="answers", digest="")
    with pytest.raises(UserError, match="kind masks, and guess needs number"):
        scored(other)
    with pytest.raises(UserError, match="no column 'truth'"):
        Guess().score(Cohort.from_frame(CASES.drop(columns="truth")), answers(a=1), PLAIN, ScoreOptions())


def test_what_leads_is_the_protocols_headline_then_the_primary_metric():
    from dataclasses import replace

    specs = (spec("error"), spec("square", primary=True))
    assert main_metric(specs, PLAIN) == "square"
    assert main_metric(specs, replace(PLAIN, headline=("absent", "error"))) == "error"
    assert main_metric(specs[:1], PLAIN) == "error"
