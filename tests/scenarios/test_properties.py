"""What holds of every partition of every table (US-05 to US-11), against the plain, slow truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.scenarios import (
    Scenario,
    Skipped,
    Split,
    check_split,
    make_partitions,
    make_split,
    nested_scenarios,
    scenarios_of,
)
from worlds import examples
from worlds.scenario_tables import some_split_exists, spanning_units, study_tables, units_of

SEEDS = st.integers(0, 2**40)
FEW = settings(deadline=None, max_examples=examples(80))


def all_scenarios(table: pd.DataFrame, folds: int = 3) -> list[Scenario]:
    names = sorted(table["dataset"].unique())
    kinds = ["internal", "folds"] + ["external"] * (len(names) > 1)
    kinds += ["leave-one-dataset-out"] * (len(names) > 2)
    nested = nested_scenarios(names) if len(names) > 2 else []
    return scenarios_of(names, kinds, folds=folds) + nested


@FEW
@given(study_tables(), SEEDS)
def test_nothing_that_belongs_together_is_ever_parted(table, seed):
    units = units_of(table)
    for split in make_partitions(table, all_scenarios(table), [seed]):
        if isinstance(split, Skipped):
            continue
        sides = [{units[case] for case in split.parts[p]} for p in ("train", "validation", "test")]
        assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
        normal = {units[case] for case in split.normal}
        assert not normal & (sides[0] | sides[1])


@FEW
@given(study_tables(), SEEDS)
def test_every_lesion_has_one_place_or_a_reason(table, seed):
    units, spanning = units_of(table), spanning_units(table)
    for split in make_partitions(table, all_scenarios(table), [seed]):
        if isinstance(split, Skipped):
            assert split.reason
            continue
        scenario = split.scenario
        everything = [case for cases in (*split.parts.values(), split.left_out) for case in cases]
        assert len(everything) == len(set(everything))
        wanted = table[table["dataset"].isin([*scenario.sources, scenario.target])]
        lesions = set(wanted.loc[wanted["label"] != "normal", "case"])
        normals = set(wanted.loc[wanted["label"] == "normal", "case"])
        left = set(split.left_out)
        assert set(split.train) | set(split.validation) | set(split.test) | (left & lesions) == lesions
        assert set(split.normal) | (left - lesions) <= normals
        if scenario.within:
            assert not left & lesions
        else:
            target = set(table.loc[table["dataset"] == scenario.target, "case"])
            assert set(split.test) == lesions & target and set(split.normal) == normals & target
            assert left == {case for case in lesions - target if units[case] in spanning}
        # Nothing is left out in silence: the warnings count the cases.
        counted = [w for w in split.warnings if "left out" in w]
        assert sum(int(w.split(": ", 1)[1].split()[0]) for w in counted) == len(left)


@FEW
@given(study_tables(datasets=2, patients=6, joins=2), SEEDS)
def test_a_scenario_is_skipped_exactly_when_no_split_exists(table, seed):
    spanning = spanning_units(table)
    labels = table.set_index("case")["label"]
    for split in make_partitions(table, all_scenarios(table), [seed]):
        scenario = split.scenario
        if scenario.kind == "internal":
            possible = some_split_exists(table, scenario.target, 3)
        elif scenario.kind == "external":
            target = table[table["dataset"] == scenario.target]
            possible = {"benign", "malignant"} <= set(target["label"]) and some_split_exists(
                table, scenario.sources[0], 2, without=spanning
            )
        elif scenario.kind == "folds":
            possible = some_split_exists(table, scenario.target, 3)
        else:
            continue
        assert isinstance(split, Split) == possible
        if possible:
            for part in ("train", "validation", "test"):
                assert set(labels[list(split.parts[part])]) == {"benign", "malignant"}


@FEW
@given(study_tables(), SEEDS)
def test_shares_hold_within_each_stratum(table, seed):
    units = units_of(table)
    unit = table["case"].map(units)
    for split in make_partitions(table, all_scenarios(table), [seed]):
        if isinstance(split, Skipped) or split.scenario.kind not in ("internal", "external"):
            continue
        within = split.scenario.kind == "internal"
        shares = (
            {"train": 0.7, "validation": 0.1, "test": 0.2} if within else {"train": 0.85, "validation": 0.15}
        )
        source = table["dataset"].isin(split.scenario.sources)
        malignant = set(unit[source & (table["label"] == "malignant")])
        for stratum in (True, False):
            count = {
                part: len({units[c] for c in split.parts[part] if (units[c] in malignant) == stratum})
                for part in shares
            }
            n = sum(count.values())
            if n >= 10:
                assert all(abs(count[part] - share * n) < 1 for part, share in shares.items())
            elif n >= len(shares):
                assert min(count.values()) >= 1 and max(count, key=count.get) == "train"


@FEW
@given(study_tables(), SEEDS, st.randoms(use_true_random=False))
def test_row_order_and_the_names_of_groups_change_nothing(table, seed, random):
    order = list(range(len(table)))
    random.shuffle(order)
    other = table.iloc[order].copy()
    other["group"] = other["group"].map({name: f"g{at}" for at, name in enumerate(other["group"].unique())})
    scenarios = all_scenarios(table)
    pairs = zip(*(make_partitions(t, scenarios, [seed]) for t in (table, other)), strict=True)
    for one, two in pairs:
        if isinstance(one, Skipped):
            assert one == two
            continue
        assert one.hash == two.hash and sorted(one.warnings) == sorted(two.warnings)
        place = {case: at for at, case in enumerate(other["case"])}
        for part, cases in two.parts.items():
            assert set(cases) == set(one.parts[part])
            assert [place[case] for case in cases] == sorted(place[case] for case in cases)


@FEW
@given(study_tables(), SEEDS)
def test_a_sources_split_does_not_know_its_target(table, seed):
    names = sorted(table["dataset"].unique())
    assume(len(names) > 2)
    seen: dict[str, set[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    joined = []
    for split in make_partitions(table, all_scenarios(table), [seed]):
        if isinstance(split, Split) and split.scenario.kind == "external":
            seen.setdefault(split.scenario.source, set()).add((split.train, split.validation))
        elif isinstance(split, Split) and split.scenario.kind in ("leave-one-dataset-out", "nested"):
            joined.append(split)
    assert all(len(splits) == 1 for splits in seen.values())
    for split in joined:
        for at, part in enumerate((split.train, split.validation)):
            own = [set(next(iter(seen[name]))[at]) for name in split.scenario.sources if name in seen]
            if len(own) == len(split.scenario.sources):
                assert set(part) == set().union(*own)


@FEW
@given(study_tables(joins=0), SEEDS)
def test_other_datasets_do_not_move_a_split(table, seed):
    table = table.assign(group=table["patient"])
    names = sorted(table["dataset"].unique())
    for name in names:
        alone = table[table["dataset"] == name]
        for scenario in scenarios_of([name], ["internal", "folds"], folds=3):
            assert make_split(table, scenario, seed) == make_split(alone, scenario, seed)


@FEW
@given(study_tables(), SEEDS, st.integers(2, 4))
def test_folds_test_each_patient_once(table, seed, folds):
    for name in sorted(table["dataset"].unique()):
        splits = make_partitions(table, scenarios_of([name], ["folds"], folds=folds), [seed])
        kinds = {type(split) for split in splits}
        assert len(kinds) == 1
        if kinds == {Skipped}:
            continue
        own = table[table["dataset"] == name]
        lesion = own["label"] != "normal"
        assert sorted(c for s in splits for c in s.test) == sorted(own.loc[lesion, "case"])
        assert sorted(c for s in splits for c in s.normal) == sorted(own.loc[~lesion, "case"])
        assert all(not s.left_out for s in splits)


@FEW
@given(study_tables(), SEEDS, st.data())
def test_any_move_of_a_case_is_noticed(table, seed, data):
    """Whatever case is put elsewhere, `check_split` does not let it pass."""
    found = [s for s in make_partitions(table, all_scenarios(table), [seed]) if isinstance(s, Split)]
    assume(found)
    split = data.draw(st.sampled_from(found))
    check_split(table, split)
    part_of = split.part_of()
    case = data.draw(st.sampled_from(sorted(part_of)))
    fields = {"left-out": "left_out"}
    old = fields.get(part_of[case], part_of[case])
    new = data.draw(st.sampled_from([p for p in (*split.parts, "left_out", "nowhere") if p != old]))
    moved = {old: tuple(c for c in getattr(split, old) if c != case)}
    if new != "nowhere":
        moved[new] = (*getattr(split, new), case)
    with pytest.raises(UserError):
        check_split(table, replace(split, **moved))


@FEW
@given(st.lists(st.integers(0, 2**63), min_size=2, max_size=5, unique=True))
def test_large_seeds_are_seeds(seeds):
    rows = [(f"A/{i}", "A", f"A/{i}", f"A/{i}", "mb"[i % 2]) for i in range(120)]
    table = pd.DataFrame(rows, columns=["case", "dataset", "patient", "group", "label"])
    table["label"] = np.where(table["label"] == "m", "malignant", "benign")
    (scenario,) = scenarios_of(["A"], ["internal"])
    assert len({make_split(table, scenario, seed).hash for seed in seeds}) == len(seeds)
