"""Foreign metrics: by decorator, by entry point of an installed package, and as part of every evaluator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.protocols import protocols
from elsewhere.registry import Registry
from elsewhere.scoring import metrics as module
from elsewhere.scoring.binary import BinaryEvaluator
from elsewhere.scoring.composite import CompositeEvaluator
from elsewhere.scoring.metrics import CaseMetric, case_metric, evaluate_case_metric, with_extra_metrics
from elsewhere.scoring.task import Scores
from elsewhere.statistics.evaluator import RatioInputs
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec


def spec(name):
    return MetricSpec(
        name=name,
        label=name,
        higher_is_better=True,
        kind=MetricKind.MEAN,
        interval=IntervalMethod.CLUSTERED_T,
    )


@pytest.fixture
def registry(monkeypatch):
    """A registry of its own, so that a test's metrics do not stay for the others."""
    own = Registry("metric", group="elsewhere.metrics.none")
    monkeypatch.setattr(module, "metrics", own)
    return own


def scores_of(n=8):
    cases = pd.DataFrame(
        {
            "case_id": [f"c{i}" for i in range(n)],
            "label": [0, 1] * (n // 2),
            "probability": np.linspace(0, 1, n),
            "status": "scored",
        }
    )
    return Scores(task="classification", protocol=protocols.get("plain"), cases=cases)


def evaluator_of(scores, *, turned=False):
    probability = scores.cases["probability"].to_numpy()
    return BinaryEvaluator(
        label=scores.cases["label"],
        probability=1 - probability if turned else probability,
        cluster_of_case=np.arange(len(scores.cases)) // 2,
        n_clusters=len(scores.cases) // 2,
    )


def test_a_decorated_function_takes_part_in_everything(registry):
    @case_metric(spec("above_half"), tasks=("classification",))
    def above_half(cases):
        return RatioInputs((cases["probability"] > 0.5).to_numpy(float), np.ones(len(cases)))

    assert "test_metrics" in registry.owner("above_half")
    scores = scores_of()
    base = evaluator_of(scores)
    both = with_extra_metrics(base, scores, "classification")
    assert isinstance(both, CompositeEvaluator)
    assert [s.name for s in both.specs] == [*(s.name for s in base.specs), "above_half"]
    values = both.values()
    assert values["above_half"] == 0.5
    assert values["auroc"] == base.values()["auroc"]
    weights = np.array([[0, 0, 3, 1]], dtype=np.uint16)
    assert both.evaluate(weights)[0, -1] == 1.0
    assert both.subset(np.arange(8) < 4).values()["above_half"] == 0.0
    inputs = both.closed_form("above_half")
    assert isinstance(inputs, RatioInputs)
    assert inputs.numerator.sum() == 4
    assert both.closed_form("auroc") is not None
    assert both.case_counts()["above_half"] == (8, 0)
    other = with_extra_metrics(evaluator_of(scores, turned=True), scores, "classification")
    stacked = both.stack(other)
    assert stacked.n_clusters == 8
    assert stacked.values()["above_half"] == 0.5
    assert both.leave_one_out().shape == (4, len(both.specs))


def test_other_tasks_are_left_alone(registry):
    case_metric(spec("mine"), tasks=("slides",))(
        lambda cases: RatioInputs(np.ones(len(cases)), np.ones(len(cases)))
    )
    scores = scores_of()
    base = evaluator_of(scores)
    assert with_extra_metrics(base, scores, "classification") is base


def test_undefined_cases_are_counted_not_dropped(registry):
    @case_metric(spec("part"), tasks=("*",))
    def part(cases):
        values = np.arange(len(cases), dtype=float)
        values[:2] = np.nan
        return RatioInputs(values, np.ones(len(cases)))

    scores = scores_of()
    both = with_extra_metrics(evaluator_of(scores), scores, "classification")
    assert both.case_counts()["part"] == (6, 2)
    assert both.values()["part"] == pytest.approx(np.mean([2, 3, 4, 5, 6, 7]))
    nothing = both.subset(np.arange(8) < 2)
    assert np.isnan(nothing.values()["part"])
    assert "part" in nothing.undefined_reasons()


@pytest.mark.parametrize(
    "bad", [RatioInputs(np.ones(3), np.ones(3)), RatioInputs(np.ones(8), -np.ones(8)), 0.5]
)
def test_a_metric_that_does_not_keep_its_word_is_named(registry, bad):
    metric = CaseMetric(spec=spec("odd"), tasks=("*",), per_case=lambda cases: bad)
    with pytest.raises(UserError, match="'odd'"):
        evaluate_case_metric(metric, scores_of().cases)


def test_a_name_that_is_taken_is_refused(registry):
    case_metric(spec("auroc"), tasks=("*",))(
        lambda cases: RatioInputs(np.ones(len(cases)), np.ones(len(cases)))
    )
    scores = scores_of()
    with pytest.raises(UserError, match="classification's own"):
        with_extra_metrics(evaluator_of(scores), scores, "classification")


def test_two_owners_of_one_name_are_both_shown(registry):
    def first(cases):
        return RatioInputs(np.ones(len(cases)), np.ones(len(cases)))

    def second(cases):
        return RatioInputs(np.zeros(len(cases)), np.ones(len(cases)))

    case_metric(spec("same"), tasks=("*",))(first)
    with pytest.raises(UserError, match=r"first.*second"):
        case_metric(spec("same"), tasks=("*",))(second)


FOREIGN = """
import numpy as np
from elsewhere.scoring.metrics import case_metric
from elsewhere.statistics.evaluator import RatioInputs
from elsewhere.statistics.metric import IntervalMethod, MetricKind, MetricSpec

@case_metric(
    MetricSpec(name="squared_label", label="Squared label", higher_is_better=True,
               kind=MetricKind.MEAN, interval=IntervalMethod.CLUSTERED_T),
    tasks=("classification",),
)
def squared_label(cases):
    return RatioInputs(cases["label"].to_numpy(float) ** 2, np.ones(len(cases)))
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "tiny-foreign-metric"
version = "0.1"
[project.entry-points."elsewhere.metrics"]
squared_label = "tiny_foreign_metric:squared_label"
[tool.setuptools]
py-modules = ["tiny_foreign_metric"]
"""
USE = """
import json, numpy as np, pandas as pd
from elsewhere.cohort.table import Cohort
from elsewhere.predictions.probability import probabilities_from_frame
from elsewhere.protocols import protocols
from elsewhere.scoring.classification import ClassificationTask
from elsewhere.scoring.metrics import metrics, with_extra_metrics
from elsewhere.scoring.task import ScoreOptions
ids = [f"c{i}" for i in range(8)]
cohort = Cohort(cases=pd.DataFrame({"case_id": ids, "label": [0, 0, 0, 1] * 2}))
predictions = probabilities_from_frame(pd.DataFrame({"case_id": ids, "probability": np.linspace(0, 1, 8)}))
task = ClassificationTask()
scores = task.score(cohort, predictions, protocols.get("plain"), ScoreOptions())
evaluator = with_extra_metrics(task.evaluator(scores, task.partition(scores), ScoreOptions()), scores, task)
found = {"value": evaluator.values()["squared_label"], "names": metrics.names()}
print(json.dumps(found | {"owner": metrics.owner("squared_label")}))
"""


def test_an_installed_foreign_package_brings_its_metric(install_package):
    """A package that knows nothing of ours but the entry point: installed, found, and used."""
    target = install_package("tiny_foreign_metric", textwrap.dedent(FOREIGN), PROJECT)
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    used = subprocess.run(
        [sys.executable, "-c", USE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert used.returncode == 0, used.stderr
    found = json.loads(used.stdout)
    assert found["value"] == 0.25
    assert found["names"] == ["squared_label"]
    assert "tiny_foreign_metric" in found["owner"]
