"""A protocol's rules are its fields: its name chooses nothing, and its digest is of the rules alone."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from elsewhere.cohort import Cohort
from elsewhere.errors import UserError
from elsewhere.predictions import Predictions
from elsewhere.protocols import SlideRules, protocols
from elsewhere.scoring.segmentation.evaluator import segmentation_specs
from elsewhere.scoring.task import ScoreOptions, main_metric, tasks

DIGESTS = {
    "camelyon16": "af536e8a2cf2a8d6",
    "camelyon16-code": "1900db23cdb8e312",
    "camelyon17": "9d94f632a751db59",
    "dbtex-code": "a8054beb59c6042b",
    "dbtex-paper": "6c331e0152167400",
    "mamamia-code": "ccbe9c2bcd42d87f",
    "mamamia-paper": "5797684598edf46b",
    "plain": "85a189fcc33e89c6",
}


def test_stored_results_still_open():
    assert {name: protocols.get(name).digest() for name in DIGESTS} == DIGESTS


def test_the_digest_is_of_the_rules():
    paper = protocols.get("mamamia-paper")
    same = replace(paper, headline=("dice",), default_for=("our-archive",))
    assert same.digest() == paper.digest()
    assert replace(paper, task_rules={"tolerance_s": 0.25}).digest() != paper.digest()
    assert (
        replace(paper, task_rules={"a": 1, "b": 2}).digest()
        == replace(paper, task_rules={"b": 2, "a": 1}).digest()
    )


def leading(protocol) -> str:
    return next(spec.name for spec in segmentation_specs(protocol) if spec.primary)


def test_what_leads_is_a_field_and_not_the_name():
    copy = replace(protocols.get("mamamia-paper"), name="our-challenge")
    assert leading(copy) == "combined"
    named = replace(protocols.get("plain"), name="mamamia-like")
    assert leading(named) == "dice"
    slides = tasks.get("slides").metrics(protocols.get("plain"))
    found = {name: main_metric(slides, protocols.get(name)) for name in ("plain", "camelyon16", "camelyon17")}
    assert found == {"plain": "stage_accuracy", "camelyon16": "froc_score", "camelyon17": "pn_kappa"}
    assert main_metric(slides, replace(protocols.get("camelyon17"), name="our-slides")) == "pn_kappa"


def stages() -> tuple[Cohort, Predictions]:
    cases = pd.DataFrame(
        {
            "case_id": ["p1_node_0", "p2_node_0"],
            "patient_id": ["p1", "p2"],
            "stage": ["micro", "negative"],
            "patient_stage": ["pN1mi", "pN0"],
        }
    )
    table = pd.DataFrame({"case_id": ["p1"], "stage": ["pN1mi"]})
    return Cohort.from_frame(cases), Predictions(kind="slides", table=table, source="said", digest="")


def test_a_missing_patient_is_refused_by_the_rule_and_not_by_the_name():
    cohort, said = stages()
    task, strict = tasks.get("slides"), replace(protocols.get("camelyon17"), name="our-slides")
    with pytest.raises(UserError, match=r"\d patients have no predicted stage"):
        task.score(cohort, said, strict, ScoreOptions())
    lenient = replace(protocols.get("camelyon17"), slides=SlideRules())
    found = task.score(cohort, said, lenient, ScoreOptions())
    assert any("counts as the stage farthest from the truth" in word for word in found.warnings)


@pytest.mark.parametrize(
    ("task", "reader", "expected"),
    [
        ("segmentation", "mama-mia", "mamamia-paper"),
        ("response", "mama-mia", "mamamia-paper"),
        ("detection", "bcs-dbt", "dbtex-paper"),
        ("slides", "camelyon17", "camelyon17"),
        ("classification", "mama-mia", "plain"),
        ("segmentation", "table", "plain"),
    ],
)
def test_the_protocol_of_a_cohort_is_declared_by_the_protocol(task, reader, expected):
    assert tasks.get(task).protocol_for(reader) == expected
