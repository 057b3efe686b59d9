"""Outcomes of a therapy split like lesions; an unknown outcome is a stratum of its own and trains too (MRI)."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pytest

from elsewhere.cohort.label_scheme import LESIONS, RESPONSES, LabelScheme
from elsewhere.errors import UserError
from elsewhere.scenarios import (
    check_split,
    make_split,
    read_splits,
    scenarios_of,
    write_splits,
)
from elsewhere.scenarios.groups import StudyGroups
from elsewhere.scoring.task import tasks


def responses(counts: dict[str, tuple[int, int, int]]) -> pd.DataFrame:
    rows = [
        {"case": f"{name}/{label}{at}", "dataset": name, "case_id": f"{label}{at}", "label": label}
        for name, parts in counts.items()
        for label, n in zip(("pCR", "no pCR", "unknown"), parts, strict=True)
        for at in range(n)
    ]
    return pd.DataFrame(rows).assign(patient=lambda t: t["case"], group=lambda t: t["case"])


def test_a_task_declares_what_its_labels_are_called():
    assert tasks.get("response").label_scheme is RESPONSES
    assert tasks.get("classification").label_scheme is LESIONS
    assert tasks.get("segmentation").label_scheme is None


def test_labels_of_another_scheme_are_refused_and_never_guessed():
    """A table of outcomes alone was once taken for one of responses because of its labels."""
    table = responses({"A": (4, 4, 4)})
    with pytest.raises(UserError, match="'pCR'") as refused:
        StudyGroups(table)
    assert "benign, malignant, normal" in str(refused.value.fix)
    assert len(StudyGroups(table, scheme=RESPONSES)) == 12


def test_another_package_may_name_its_own_classes():
    table = responses({"A": (9, 9, 0), "B": (9, 9, 0)}).replace({"label": {"pCR": "fit", "no pCR": "calm"}})
    scheme = LabelScheme(classes=("calm", "fit"), image="recording")
    made = make_split(table, scenarios_of(("A", "B"), ["external"])[0], 1, scheme=scheme)
    assert len(made.test) == 18
    alone = table[(table["dataset"] == "A") | (table["label"] == "calm")]
    skipped = make_split(alone, scenarios_of(("A", "B"), ["external"])[0], 1, scheme=scheme)
    assert "it has only calm recordings" in skipped.reason


def test_unknown_outcomes_are_dealt_by_their_own_shares():
    table = responses({"A": (20, 40, 40), "B": (10, 10, 10)})
    made = make_split(table, scenarios_of(("A", "B"), ["external"])[0], 1, scheme=RESPONSES)
    label = dict(zip(table["case"], table["label"], strict=True))
    assert Counter(label[c] for c in made.train) == {"pCR": 17, "no pCR": 34, "unknown": 34}
    assert Counter(label[c] for c in made.validation) == {"pCR": 3, "no pCR": 6, "unknown": 6}
    assert len(made.test) == 30
    folds = [make_split(table, s, 1, scheme=RESPONSES) for s in scenarios_of(("A",), ["folds"], folds=4)]
    assert [Counter(label[c] for c in f.test)["unknown"] for f in folds] == [10] * 4
    assert sorted(c for f in folds for c in f.test) == sorted(c for c in table["case"] if c.startswith("A/"))


def test_a_dataset_without_any_outcome_still_trains_and_is_tested(tmp_path):
    table = responses({"A": (0, 0, 8), "B": (4, 4, 0), "C": (1, 0, 0)})
    found = [
        make_split(table, s, 1, scheme=RESPONSES)
        for s in scenarios_of(("A", "B", "C"), ["leave-one-dataset-out"])
    ]
    for made in found:
        check_split(StudyGroups(table, scheme=RESPONSES), made)
    assert [len(made.test) for made in found] == [8, 8, 1]
    assert "C/pCR0" in found[0].train
    write_splits(found, table, tmp_path / "splits", scheme=RESPONSES)
    assert read_splits(tmp_path / "splits", table, scheme=RESPONSES) == found
