"""From screened pairs of pictures to partitions (US-30): what the screening joins, no partition parts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.cohort.duplicates import merge_groups
from elsewhere.scenarios import Split, make_partitions, scenarios_of
from worlds.scenario_tables import plain, study_tables, table_of


@settings(deadline=None, max_examples=50)
@given(study_tables(joins=0), st.data())
def test_a_pair_of_duplicates_never_trains_and_tests(table, data):
    """Whatever pairs are found, within and across datasets: both pictures on one side, or one left out."""
    cases = table["case"].tolist()
    who = dict(zip(table["case"], table["patient"], strict=True))
    pairs = data.draw(st.lists(st.tuples(st.sampled_from(cases), st.sampled_from(cases)), max_size=5))
    table = table.assign(group=merge_groups(table["patient"].tolist(), [(who[a], who[b]) for a, b in pairs]))
    names = sorted(table["dataset"].unique())
    kinds = (
        ["internal", "folds"] + ["external"] * (len(names) > 1) + ["leave-one-dataset-out"] * (len(names) > 2)
    )
    for split in make_partitions(table, scenarios_of(names, kinds, folds=3), [0]):
        if not isinstance(split, Split):
            continue
        part = {case: name for case, name in split.part_of().items() if name != "left-out"}
        for one, two in pairs:
            sides = {part[one], part[two]} if one in part and two in part else set()
            assert len(sides) < 2 or sides == {"test", "normal"}


def test_a_chain_of_duplicates_is_one_unit():
    """a-b, b-c in three datasets: a and c never meet in a pair, and belong together all the same."""
    table = table_of(plain("A", 9, 9) | plain("B", 9, 9) | plain("C", 9, 9))
    chain = [("A/0000", "B/0000"), ("B/0000", "C/0000")]
    table["group"] = merge_groups(table["patient"].tolist(), chain)
    for split in make_partitions(table, scenarios_of(list("ABC"), ["external"]), [0]):
        assert split.left_out == (f"{split.scenario.source}/0000-0",)
        assert f"{split.scenario.target}/0000-0" in split.test
