"""What a study's printed numbers decide (LN-11, LN-12): the lymph-node study's answers in one call."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from elsewhere.analysis.generalise.printed import read_printed
from elsewhere.errors import UserError

TABLE = Path(__file__).parents[2] / "golden" / "lymph_nodes_equivalence.csv"
"""The published table of the lymph-node study (21 models), as printed."""
ON_TUMOUR = ["histopathology-0", "histopathology-40", "imagenet-0", "imagenet-50", "single-natural"]
ON_NORMAL = ["histopathology-0", "histopathology-natural", "imagenet-natural", "single-30", "single-natural"]


def test_the_lymph_node_study_s_answers():
    tumour, normal = read_printed(TABLE, margins={"dice": "study", "fpr": "study"})
    assert (tumour.margin, normal.margin) == (0.079, 0.006)
    assert (tumour.names("equivalent"), normal.names("equivalent")) == (ON_TUMOUR, ON_NORMAL)
    assert len(normal.names("non_inferior")) == len(normal.rows) == 21
    assert tumour.names("non_inferior") == ON_TUMOUR
    assert (tumour.names("undecidable"), normal.names("undecidable")) == ([], ["single-30"])


def test_a_declared_margin_takes_the_study_s_place():
    tumour, normal = read_printed(TABLE, margins={"dice": 0.2, "fpr": 0.001})
    assert tumour.study is None and tumour.margin == 0.2
    assert set(ON_TUMOUR) <= set(tumour.names("equivalent"))
    assert len(normal.names("non_inferior")) == 21


def one(**change):
    row = {"model": ["a", "b"], "dice_difference": ["0.01", "0.02"], "dice_lo90": ["0.00", "0.01"]}
    return pd.DataFrame({**row, "dice_hi90": ["0.02", "0.05"], **change})


def test_without_a_p_the_interval_decides_and_an_end_on_the_margin_does_not():
    made = read_printed(one(), margins={"dice": 0.05})[0]
    assert made.names("equivalent") == ["a"] and made.names("undecidable") == ["b"]


def test_lower_is_better_for_rates_so_that_fewer_external_false_positives_pass():
    rates = one().rename(columns=lambda name: name.replace("dice", "fpr"))
    rates[["fpr_difference", "fpr_lo90", "fpr_hi90"]] = [
        ["0.50", "0.40", "0.60"],
        ["-0.50", "-0.60", "-0.40"],
    ]
    made = read_printed(rates, margins={"fpr": 0.05})[0]
    assert made.names("non_inferior") == ["a"] and made.names("equivalent") == []


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (one().drop(columns="dice_hi90"), "no column dice_hi90"),
        (one(dice_lo90=["0.5", "0.0"]), "does not hold its difference in 1 rows"),
        (one(dice_lo90=["x", "0.0"]), "not a number|not numbers|numbers"),
        (one(model=["a", "a"]), "model 'a' is there twice"),
        (one(dice_p=["2", "0.1"]), "no p value"),
        (pd.DataFrame({"model": ["a"]}), "no column ends with _difference"),
        (one().rename(columns=lambda n: n.replace("dice", "odd")), "whether a higher 'odd' is better"),
        (one().drop(columns="model"), "no column model"),
    ],
)
def test_bad_tables_are_refused(frame, words):
    with pytest.raises(UserError, match=words):
        read_printed(frame, margins={"dice": "study", "fpr": "study"})
