"""Whom a kept model was trained on: asked for a patient it answers, whatever she is called."""

from __future__ import annotations

import numpy as np
import pytest

from elsewhere.engine.trained_on import Patient, check_apart, training_record
from elsewhere.engine.training import RecipeSpec, Training, Work
from elsewhere.errors import UserError
from elsewhere.inputs import Cases

NAMES = ("A/1", "A/2", "B/1", "B/9")
CASES = Cases(
    case=NAMES,
    dataset=("A", "A", "B", "B"),
    label=np.zeros(4, dtype=np.int8),
    box=np.zeros((4, 4), dtype=np.int32),
    digest=("d1", "d2", "d3", "d4"),
)
WORK = Work(
    cases=CASES,
    about={
        "study": "s",
        "cohorts": {"A": "hash of A", "B": "hash of B"},
        # Both sets count from 1: in the study their patients have the dataset in front.
        "patients": {"A/1": ["A/A_1", "M7"], "A/2": ["A/2", ""], "B/1": ["B/B_1", ""], "B/9": ["B/9", ""]},
        "pixels": {"A/1": "voxels of 1"},
    },
)
UNIT = Training(
    recipe=RecipeSpec(name="random"), key="k" * 32, train=("A/1",), validation=("A/2",), predict=("B/1",)
)


def asked(name: str, also: str = "", digest: str = "") -> None:
    check_apart(UNIT, training_record(UNIT, WORK), {"c": Patient(name=name, also=also)}, {"c": digest})


@pytest.mark.parametrize(
    ("name", "also", "digest"),
    [
        ("A/1", "", ""),
        ("A/A_1", "", ""),
        (" a/2", "", ""),
        ("C/new", "2", ""),
        ("C/new", "m7", ""),
        ("MAMA/M7", "", ""),
        ("C/new", "", "voxels of 1"),
        ("C/new", "", "d2"),
    ],
)
def test_who_trained_or_validated_is_known_again(name, also, digest):
    with pytest.raises(UserError, match="cannot be tested"):
        asked(name, also, digest)


@pytest.mark.parametrize(
    ("name", "also", "digest"), [("B/1", "", "d3"), ("C/1", "", ""), ("C/2", "B9", ""), ("A/12", "", "")]
)
def test_the_same_number_at_another_hospital_is_another_patient(name, also, digest):
    asked(name, also, digest)


def test_the_record_names_nobody():
    record = training_record(UNIT, WORK)
    assert record["cohorts"] == {"A": "hash of A"} and record["n_patients"] == 2
    assert not {"A/1", "A/A_1", "A/2", "M7", "m7"} & {*record["patients"], *record["ids"], *record["also"]}
