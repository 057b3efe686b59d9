"""Attributes become groups: one test a rule of MRI-06 and ST-08."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.privacy import SMALLEST_CELL
from elsewhere.protocols import FairnessRules, protocols
from elsewhere.scoring.groups import (
    SMALLEST_TOLD,
    age_groups,
    attribute_groups,
    binned_groups,
    density_groups,
    fairness_codes,
    group_codes,
    menopausal_groups,
)

PAPER = FairnessRules()
CODE = protocols.get("mamamia-code").fairness


def words(*cells):
    return pd.Series(list(cells), dtype="string")


def test_ages_40_and_71_have_a_group_and_bins_are_half_open():
    coded = age_groups(pd.Series([39.9, 40, 40.5, 50, 51, 60, 70, 71, 101, np.nan]), PAPER)
    assert coded.names == ("<=40", "(40, 50]", "(50, 60]", "(60, 70]", ">70")
    assert coded.codes.tolist() == [0, 0, 1, 1, 2, 2, 3, 4, 4, -1]
    assert coded.missing == 1


def test_ages_beyond_the_outer_bins_are_dropped_by_the_code_protocol():
    coded = age_groups(words("0", "0.5", "40", "100", "101", "", "n/a"), CODE)
    assert coded.names[0] == "(0, 40]"
    assert coded.names[-1] == "(70, 100]"
    assert coded.codes.tolist() == [-1, 0, 0, 4, -1, -1, -1]
    assert "fewer than 5 values outside" in coded.note


def test_an_age_that_is_no_number_is_missing_and_named():
    coded = age_groups(words("45", "forty"), PAPER)
    assert coded.codes.tolist() == [1, -1]
    assert "forty" in coded.note


STATES = words(
    "pre (<6 months since LMP AND no prior bilateral ovariectomy AND not on estrogen replacement)",
    "POST",
    "peri (6-12 months since LMP AND no prior bilateral ovariectomy AND not on estrogen replacement)",
    "Pre-menopausal",
    "post-menopausal",
    "unknown",
    None,
    "N/A",
    "odd",
)


def test_unknown_menopausal_status_is_left_out_and_counted_by_the_paper():
    coded = menopausal_groups(STATES, PAPER)
    assert coded.names == ("pre", "post")
    assert coded.codes.tolist() == [0, 1, 0, 0, 1, -1, -1, -1, -1]
    assert coded.missing == 4
    assert "fewer than 5 perimenopausal" in coded.note
    assert "odd" in coded.note


def test_unknown_menopausal_status_is_a_group_by_the_code():
    coded = menopausal_groups(STATES, CODE)
    assert coded.names == ("pre", "post", "unknown")
    assert coded.codes.tolist() == [0, 1, 0, 0, 1, 2, 2, 2, 2]
    assert coded.missing == 0


def test_peri_may_be_a_group_of_its_own():
    coded = menopausal_groups(STATES, FairnessRules(peri_counts_as="own-group"))
    assert coded.sizes() == {"pre": 2, "post": 2, "peri": 1}


@pytest.mark.parametrize(
    ("cell", "letter"),
    [
        ("a", 0),
        ("B", 1),
        (" acr C ", 2),
        ("BI-RADS D", 3),
        ("birads: 2", 1),
        ("4.0", 3),
        ("III", 2),
        ("Almost entirely fatty", 0),
        ("scattered fibroglandular", 1),
        ("c - heterogeneously dense", 2),
        ("Extremely dense", 3),
        ("breast density b", 1),
        ("5", -1),
        ("dense", -1),
        ("e", -1),
        (None, -1),
    ],
)
def test_density_in_any_spelling(cell, letter):
    assert density_groups(words(cell)).codes.tolist() == [letter]


def test_categories_stay_as_they_are_and_missing_is_no_group():
    coded = attribute_groups(words("GE", "Siemens", " GE ", None, "unknown"), variable="vendor")
    assert coded.names == ("GE", "Siemens")
    assert coded.codes.tolist() == [0, 1, 0, -1, -1]
    assert coded.sizes() == {"GE": 2, "Siemens": 1}


def test_few_numbers_are_categories_and_many_are_quantile_bins():
    assert attribute_groups(pd.Series([1.5, 3.0, np.nan]), variable="tesla").names == ("1.5", "3")
    coded = attribute_groups(pd.Series(np.arange(100.0)), variable="size")
    assert list(coded.sizes().values()) == [25, 25, 25, 25]
    assert "quantile bins" in coded.note


def test_numbers_given_as_text_are_numbers():
    coded = attribute_groups(words(*[str(v) for v in range(40)]), variable="size")
    assert coded.n_groups == 4


def test_booleans_are_categories():
    assert attribute_groups(pd.Series([True, False, None]), variable="implant").names == ("False", "True")


def test_given_edges_win():
    table = pd.DataFrame({"age": [30.0, 65.0]})
    assert group_codes(table, "age", upper_edges=(64,)).names == ("<=64", ">64")


def test_too_many_categories_are_refused():
    with pytest.raises(UserError, match="too many"):
        attribute_groups(words(*[f"scanner {i}" for i in range(80)]), variable="scanner")


def test_edges_must_rise():
    with pytest.raises(UserError, match="do not rise"):
        binned_groups(pd.Series([1.0]), (3, 2), variable="x")


def test_a_column_that_is_not_there_offers_its_neighbour():
    with pytest.raises(UserError, match="breast_density"):
        group_codes(pd.DataFrame({"breast_density": ["a"]}), "breast_densty")


def test_protocol_variables_that_are_absent_or_empty_are_said():
    table = pd.DataFrame({"age": [30.0, 70.0] * 5, "breast_density": words(*[None] * 10)})
    codes, warnings = fairness_codes(table, PAPER)
    assert [c.variable for c in codes] == ["age", "breast_density"]
    assert len(warnings) == 2
    assert "menopausal_status" in warnings[0]


def test_take_counts_the_missing_again():
    coded = age_groups(pd.Series([30.0, np.nan, 80.0]), PAPER).take(np.array([True, False, True]))
    assert coded.missing == 0
    assert coded.codes.tolist() == [0, 4]


def test_values_that_differ_in_the_seventh_digit_have_names_of_their_own():
    values = pd.Series([1_000_000.0, 999_999.5])
    assert attribute_groups(values, variable="x").sizes() == {"999999.5": 1, "1000000": 1}
    edges = [0.12345678, 0.12345679]
    names = attribute_groups(pd.Series([0.1, 0.2]), variable="x", upper_edges=edges).names
    assert names == ("<=0.12345678", "(0.12345678, 0.12345679]", ">0.12345679")


@example(cells=[1_000_000.0, 999_999.5])
@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=60))
def test_every_number_has_exactly_one_group(cells):
    values = pd.Series(cells, dtype="float64")
    coded = attribute_groups(values, variable="x")
    assert ((coded.codes < 0) == values.isna().to_numpy()).all()
    assert coded.codes.max(initial=-1) < coded.n_groups
    assert sum(coded.sizes().values()) + coded.missing == len(cells)


def test_a_variable_known_for_few_says_on_whom_fairness_rests():
    density = [*"aab", *[None] * 5]
    table = pd.DataFrame({"age": [30, 45, 55, 65, 75, 35, 52, 61], "breast_density": density})
    rules = FairnessRules(variables=("age", "breast_density"))
    codes, warnings = fairness_codes(table, rules)
    assert [group.variable for group in codes] == ["age", "breast_density"]
    assert len(warnings) == 2
    assert (
        "'breast_density' is known for fewer than 5 of 8 cases (A fewer than 5, B fewer than 5, C 0"
        in warnings[0]
    )
    assert "cannot be estimated" in warnings[0]
    half = table.assign(breast_density=[*"aabb", *[None] * 4])
    assert not any("cannot be estimated" in warning for warning in fairness_codes(half, rules)[1])


def test_a_group_of_one_patient_is_named_without_its_size():
    table = pd.DataFrame(
        {"breast_density": [*"a" * 6, *"b" * 9, "d"], "menopausal_status": ["pre", "post"] * 8}
    )
    rules = FairnessRules(variables=("breast_density", "menopausal_status"))
    (said,) = fairness_codes(table, rules)[1]
    assert "Fewer than 5 cases in a group (breast_density D)" in said
    assert fairness_codes(table.iloc[:15], rules)[1] == ()


def test_no_count_of_one_to_four_can_be_read_or_worked_out_of_a_warning():
    """A size of one alone would be the number known less the others."""
    density = [*"a" * 37, *"b" * 12, "d", *[None] * 90]
    table = pd.DataFrame({"breast_density": density})
    said = fairness_codes(table, FairnessRules(variables=("breast_density",)))[1][0]
    assert "known for 50 of 140 cases (A 37, B about 10, C 0, D fewer than 5)" in said
    assert SMALLEST_TOLD == SMALLEST_CELL
    odd = binned_groups(pd.Series([30, 95, "old"]), [40, 50], variable="age", highest=70)
    assert odd.note.startswith("fewer than 5 values outside") and "fewer than 5 cells of age" in odd.note
