"""Outcomes of a therapy split like lesions; an unknown outcome is a stratum of its own and trains too (MRI)."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from elsewhere.scenarios import (
    check_split,
    make_split,
    read_splits,
    scenarios_of,
    write_splits,
)
from elsewhere.scenarios.groups import LESIONS, RESPONSES, StudyGroups, words_of


def responses(counts: dict[str, tuple[int, int, int]]) -> pd.DataFrame:
    rows = [
        {"case": f"{name}/{label}{at}", "dataset": name, "case_id": f"{label}{at}", "label": label}
        for name, parts in counts.items()
        for label, n in zip(("pCR", "no pCR", "unknown"), parts, strict=True)
        for at in range(n)
    ]
    return pd.DataFrame(rows).assign(patient=lambda t: t["case"], group=lambda t: t["case"])


def test_the_words_come_from_the_labels():
    assert words_of(["pCR", "unknown"]) is RESPONSES
    assert words_of(["benign"]) is words_of([]) is LESIONS


def test_unknown_outcomes_are_dealt_by_their_own_shares():
    table = responses({"A": (20, 40, 40), "B": (10, 10, 10)})
    made = make_split(table, scenarios_of(("A", "B"), ["external"])[0], 1)
    label = dict(zip(table["case"], table["label"], strict=True))
    assert Counter(label[c] for c in made.train) == {"pCR": 17, "no pCR": 34, "unknown": 34}
    assert Counter(label[c] for c in made.validation) == {"pCR": 3, "no pCR": 6, "unknown": 6}
    assert len(made.test) == 30
    folds = [make_split(table, s, 1) for s in scenarios_of(("A",), ["folds"], folds=4)]
    assert [Counter(label[c] for c in f.test)["unknown"] for f in folds] == [10] * 4
    assert sorted(c for f in folds for c in f.test) == sorted(c for c in table["case"] if c.startswith("A/"))


def test_a_dataset_without_any_outcome_still_trains_and_is_tested(tmp_path):
    table = responses({"A": (0, 0, 8), "B": (4, 4, 0), "C": (1, 0, 0)})
    found = [make_split(table, s, 1) for s in scenarios_of(("A", "B", "C"), ["leave-one-dataset-out"])]
    for made in found:
        check_split(StudyGroups(table), made)
    assert [len(made.test) for made in found] == [8, 8, 1]
    assert "C/pCR0" in found[0].train
    write_splits(found, table, tmp_path / "splits")
    assert read_splits(tmp_path / "splits", table) == found
