"""Words of the report come from what tasks and metrics declare, whoever brings them."""

from __future__ import annotations

import pytest

from elsewhere.report.page.labels import has_two_classes, headline, label, task_title, task_units
from elsewhere.scoring.metrics import metric_label


@pytest.mark.parametrize(
    ("task", "title", "units", "two"),
    [
        ("classification", "Classification", "cases", True),
        ("detection", "Lesion detection", "volumes", False),
        ("response", "Response to treatment", "patients' scans", True),
        ("not-installed", "not-installed", "cases", False),
    ],
)
def test_a_task_is_called_what_it_declares(task, title, units, two):
    summary = {"task": task}
    assert (task_title(summary), task_units(summary), has_two_classes(summary)) == (title, units, two)
    assert task_title({"task": "not-installed"}, "report") == "report"


def test_a_metric_is_called_what_it_declares():
    assert label("froc_score") == metric_label("froc_score") == "Lesion FROC score"
    assert label("combined") == "Combined" and label("ece_confidence") == "ECE"
    assert label("auroc", {"label": "AUROC of ours"}) == "AUROC of ours"
    assert label("auroc_calibrated") == "AUROC, calibrated"
    assert label("breast_density") == "Breast density" and label("some_column") == "Some column"
    assert metric_label("some_column") is None


def test_what_leads_without_a_headline_is_the_primary_metric_then_the_first_defined():
    metrics = {"a": {"value": None}, "b": {"value": 1.0}, "c": {"value": 2.0, "primary": True}}
    assert headline({"task": "classification", "metrics": metrics}) == "c"
    assert headline({"metrics": {"a": metrics["a"], "b": metrics["b"]}}) == "b"
    assert headline({"metrics": metrics, "headline": "b"}) == "b"
