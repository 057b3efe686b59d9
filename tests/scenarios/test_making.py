"""Partitions by hand: strata, shares, the edges of eligibility, duplicates across datasets (US-05 to US-11)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elsewhere.errors import UserError
from elsewhere.scenarios import (
    Skipped,
    Split,
    count_parts,
    make_partitions,
    make_split,
    nested_scenarios,
    scenarios_of,
)
from elsewhere.scenarios.allocation import INTERNAL_SHARES, SOURCE_SHARES, apportion
from worlds.scenario_tables import plain, table_of


def made(table: pd.DataFrame, name: str, seed: int = 0) -> Split | Skipped:
    names = sorted(table["dataset"].unique())
    kinds = ["internal", "external"] if len(names) > 1 else ["internal"]
    (scenario,) = scenarios_of(names, kinds, only=[name])
    return make_split(table, scenario, seed)


def classes(table: pd.DataFrame, cases: tuple[str, ...]) -> set[str]:
    return set(table.set_index("case").loc[list(cases), "label"])


@pytest.mark.parametrize(
    ("count", "shares", "expected"),
    [
        (3, INTERNAL_SHARES, [1, 1, 1]),
        (4, INTERNAL_SHARES, [2, 1, 1]),
        (5, INTERNAL_SHARES, [3, 1, 1]),
        (10, INTERNAL_SHARES, [7, 1, 2]),
        (15, INTERNAL_SHARES, [11, 1, 3]),
        (100, INTERNAL_SHARES, [70, 10, 20]),
        (2, INTERNAL_SHARES, [1, 0, 1]),
        (1, INTERNAL_SHARES, [1, 0, 0]),
        (0, INTERNAL_SHARES, [0, 0, 0]),
        (2, SOURCE_SHARES, [1, 1]),
        (10, SOURCE_SHARES, [9, 1]),
        (20, SOURCE_SHARES, [17, 3]),
        (1064, SOURCE_SHARES, [904, 160]),
    ],
)
def test_patients_are_apportioned_by_the_largest_remainder(count, shares, expected):
    assert apportion(count, shares).tolist() == expected


@pytest.mark.parametrize("shares", [INTERNAL_SHARES, SOURCE_SHARES])
def test_no_part_is_a_patient_off_its_share_unless_it_would_be_empty(shares):
    for count in range(len(shares), 400):
        parts = apportion(count, shares)
        quota = count * np.array(shares) / 100
        assert parts.sum() == count and (parts >= 1).all()
        rescued = int((np.floor(quota) == 0).sum())
        assert (np.abs(parts - quota) < 1 + rescued).all()
        if count >= 10:
            assert (np.abs(parts - quota) < 1).all()


def test_internal_shares_hold_in_each_stratum():
    table = table_of(plain("A", 50, 30))
    split = made(table, "A")
    count = count_parts([split], table).set_index("part")
    assert count.loc[["train", "validation", "test"], "benign"].tolist() == [35, 5, 10]
    assert count.loc[["train", "validation", "test"], "malignant"].tolist() == [21, 3, 6]


def test_a_mixed_patient_is_of_the_malignant_stratum_and_keeps_its_labels():
    # Seven mixed patients in a stratum of ten: 7/1/2 of the ten, whatever their benign images.
    table = table_of({**plain("A", 10, 3), **{f"A/mixed{i}": "bbbbm" for i in range(7)}})
    for seed in range(5):
        split = made(table, "A", seed)
        patients = table.set_index("case")["patient"]
        stratum = {
            part: {p for p in patients[list(cases)] if p.startswith("A/mixed") or int(p[2:]) >= 10}
            for part, cases in split.parts.items()
        }
        assert {part: len(held) for part, held in stratum.items()} == {
            "train": 7,
            "validation": 1,
            "test": 2,
            "normal": 0,
        }
    assert len(split.train) + len(split.validation) + len(split.test) == 48


@pytest.mark.parametrize(
    ("benign", "malignant", "takes_part"), [(3, 3, True), (2, 3, False), (3, 2, False), (0, 9, False)]
)
def test_internal_takes_three_patients_a_class(benign, malignant, takes_part):
    split = made(table_of(plain("A", benign, malignant, normal=5)), "A")
    assert isinstance(split, Split) == takes_part
    if not takes_part:
        assert f"{malignant} patients with a malignant and {benign} with a benign" in split.reason
        assert split.seed == 0 and split.scenario.name == "A"


def test_many_images_of_two_patients_are_two_patients():
    table = table_of({"A/1": "b" * 50, "A/2": "b" * 50, **{f"A/m{i}": "m" for i in range(9)}})
    split = made(table, "A")
    assert isinstance(split, Skipped) and "2 with a benign" in split.reason


def test_patients_joined_by_duplicates_count_once():
    patients = plain("A", 3, 5)
    assert isinstance(made(table_of(patients), "A"), Split)
    joined = table_of(patients, {"A/0000": "same", "A/0001": "same"})
    assert isinstance(made(joined, "A"), Skipped)


def test_mixed_patients_bring_both_classes_where_one_stratum_is_too_small():
    table = table_of({"A/1": "bm", "A/2": "bm", "A/3": "bm"})
    split = made(table, "A")
    assert [len(cases) for cases in split.parts.values()] == [2, 2, 2, 0]
    table = table_of({"A/b": "b", "A/x": "bm", "A/y": "mb", **plain("A", 0, 12)})
    for seed in range(20):
        split = made(table, "A", seed)
        assert all(
            classes(table, split.parts[p]) == {"benign", "malignant"} for p in ("train", "validation", "test")
        )


@pytest.mark.parametrize(("benign", "malignant", "takes_part"), [(2, 2, True), (1, 2, False), (2, 1, False)])
def test_a_source_takes_two_patients_a_class(benign, malignant, takes_part):
    table = table_of(plain("A", benign, malignant) | plain("B", 1, 1))
    split = made(table, "A>B")
    assert isinstance(split, Split) == takes_part
    if not takes_part:
        assert split.reason.startswith("A: ")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (plain("B", 1, 1), None),
        (plain("B", 5, 0), "only benign"),
        (plain("B", 0, 5), "only malignant"),
        (plain("B", 0, 0, 5), "no lesion images"),
    ],
)
def test_a_target_needs_both_classes(target, reason):
    split = made(table_of(plain("A", 5, 5) | target), "A>B")
    assert (reason is None) == isinstance(split, Split)
    if reason:
        assert split.reason.startswith("B: ") and reason in split.reason


def test_external_tests_every_lesion_of_the_target_and_its_normals():
    table = table_of(plain("A", 20, 20, 7) | plain("B", 3, 4, 5))
    split = made(table, "A>B")
    target = table[table["dataset"] == "B"]
    assert split.test == tuple(target.loc[target["label"] != "normal", "case"])
    assert split.normal == tuple(target.loc[target["label"] == "normal", "case"])
    assert (len(split.train), len(split.validation)) == (34, 6)
    assert split.left_out == () and split.warnings == ()


def test_normals_within_a_dataset_are_those_of_patients_who_do_not_train():
    """The test's lesion and normal images may share patients, with a warning (US-18)."""
    patients = plain("A", 10, 10, 4) | {f"A/both{i}": "bn" for i in range(10)}
    table = table_of(patients)
    split = made(table, "A")
    who = table.set_index("case")["patient"]
    training = set(who[list(split.train + split.validation)])
    normals = set(table.loc[table["label"] == "normal", "case"])
    assert set(split.normal) == {case for case in normals if who[case] not in training}
    assert set(split.left_out) == normals - set(split.normal)
    assert f"{len(split.left_out)} normal images" in split.warnings[0]
    assert "share" in split.warnings[1] and "not independent" in split.warnings[1]


def test_a_target_whose_lesions_and_normals_share_patients_only_warns():
    """US-18."""
    table = table_of(plain("A", 5, 5) | {"B/1": "bn", "B/2": "mn", "B/3": "n"})
    split = made(table, "A>B")
    assert split.warnings == (
        "lesion and normal images of the target share 2 patients: the two groups are not independent",
    )


def test_duplicates_across_datasets_train_nowhere_and_are_tested_everywhere():
    patients = plain("A", 20, 20) | plain("B", 20, 20) | plain("C", 20, 20)
    patients["A/0000"] = "bbb"
    table = table_of(patients, {"A/0000": "shared", "B/0003": "shared"})
    splits = {name: made(table, name) for name in ("A>B", "A>C", "B>A", "C>A", "A", "B")}
    for name in ("A>B", "A>C"):
        assert set(splits[name].left_out) == {"A/0000-0", "A/0000-1", "A/0000-2"}
        assert splits[name].warnings[0].startswith("A: 3 lesion images of 1 patient left out of training")
        assert len(splits[name].train) + len(splits[name].validation) == 39
    assert splits["A>B"].train == splits["A>C"].train
    assert "B/0003-0" in splits["A>B"].test
    assert splits["B>A"].left_out == ("B/0003-0",) and "A/0000-1" in splits["B>A"].test
    assert splits["C>A"].left_out == () and len(splits["C>A"].train) == 34
    # Within one dataset nothing is left out: the duplicate elsewhere is on neither side.
    assert splits["A"].left_out == () and splits["B"].left_out == ()


def test_leaving_duplicates_out_moves_few_of_the_others():
    patients = plain("A", 40, 40) | plain("B", 5, 5)
    before = made(table_of(patients), "A>B")
    after = made(table_of(patients, {"A/0000": "shared", "B/0000": "shared"}), "A>B")
    assert len(set(before.train) ^ set(after.train)) <= 2


def test_a_source_left_too_small_by_its_duplicates_is_skipped_and_says_so():
    patients = plain("A", 2, 4) | plain("B", 3, 3)
    split = made(table_of(patients, {"A/0000": "shared", "B/0000": "shared"}), "A>B")
    assert isinstance(split, Skipped)
    assert "1 with a benign" in split.reason and "1 patient left out" in split.reason


def test_leave_one_out_joins_the_sources_own_splits():
    table = table_of(plain("A", 20, 14) | plain("B", 9, 30) | plain("C", 12, 12, 3) | plain("D", 8, 8))
    (rest,) = make_partitions(
        table, scenarios_of(list("ABCD"), ["leave-one-dataset-out"], only=["rest>C"]), [3]
    )
    nested = make_partitions(table, nested_scenarios(list("ABCD"), "C"), [3])
    single = {name: made(table, f"{name}>C", 3) for name in "ABD"}
    assert set(rest.train) == {case for split in single.values() for case in split.train}
    assert set(rest.validation) == {case for split in single.values() for case in split.validation}
    assert rest.test == single["A"].test and rest.normal == single["A"].normal
    for split in nested:
        assert set(split.train) == {case for name in split.scenario.sources for case in single[name].train}
        assert not any(case.startswith("C/") for part in split.parts.values() for case in part)


def test_one_source_too_small_skips_the_joined_scenario():
    table = table_of(plain("A", 20, 14) | plain("B", 1, 30) | plain("C", 12, 12))
    (scenario,) = scenarios_of(list("ABC"), ["leave-one-dataset-out"], only=["rest>C"])
    split = make_split(table, scenario, 0)
    assert isinstance(split, Skipped) and split.reason.startswith("B: ")


def test_folds_judge_every_image_once():
    table = table_of(plain("A", 23, 17, 11) | {f"A/both{i}": "bmn" for i in range(6)})
    splits = make_partitions(table, scenarios_of(["A"], ["folds"], folds=5), [0])
    tested = [case for split in splits for case in split.test]
    normal = [case for split in splits for case in split.normal]
    assert sorted(tested) == sorted(table.loc[table["label"] != "normal", "case"])
    assert sorted(normal) == sorted(table.loc[table["label"] == "normal", "case"])
    patients = [len(set(table.set_index("case").loc[list(s.test), "patient"])) for s in splits]
    assert max(patients) - min(patients) <= 1
    for split in splits:
        assert len(split.validation) >= 2
        assert all(
            classes(table, split.parts[p]) == {"benign", "malignant"} for p in ("train", "validation", "test")
        )
        assert 0.08 < len(split.validation) / (len(split.train) + len(split.validation)) < 0.15


def test_folds_take_as_many_patients_a_class_as_folds():
    scenarios = scenarios_of(["A"], ["folds"], folds=5)
    assert all(isinstance(s, Split) for s in make_partitions(table_of(plain("A", 5, 5)), scenarios, [0]))
    skipped = make_partitions(table_of(plain("A", 4, 50)), scenarios, [0])
    assert all(isinstance(s, Skipped) and "need 5 of each" in s.reason for s in skipped)
    two = scenarios_of(["A"], ["folds"], folds=2)
    assert all(isinstance(s, Skipped) for s in make_partitions(table_of(plain("A", 3, 3)), two, [0]))
    assert all(isinstance(s, Split) for s in make_partitions(table_of(plain("A", 4, 4)), two, [0]))


def test_every_patient_is_tested_as_often_as_any_other():
    """20 % of each stratum, over 2,000 seeds: five standard errors is 0.045."""
    table = table_of(plain("A", 10, 10))
    (scenario,) = scenarios_of(["A"], ["internal"])
    tested = pd.Series(0, index=table["case"])
    for split in make_partitions(table, [scenario], range(2000)):
        tested[list(split.test)] += 1
    assert np.abs(tested / 2000 - 0.2).max() < 0.045


def test_the_same_seed_gives_the_same_split_and_another_seed_another():
    table = table_of(plain("A", 30, 30) | plain("B", 30, 30))
    splits = [made(table, "A", seed) for seed in range(6)]
    assert len({split.hash for split in splits}) == len({split.train for split in splits}) == 6
    assert made(table, "A", 2) == splits[2]
    # Two datasets of the same make, and two purposes of one dataset, draw apart.
    other = made(table, "B", 0)
    assert {c[2:] for c in other.test} != {c[2:] for c in splits[0].test}


def test_the_split_is_pinned():
    """A change here is a change of every number of every study: raise the version, and say so."""
    table = table_of(plain("A", 5, 4) | plain("B", 2, 2, 1))
    split = made(table, "A", 7)
    assert split.validation == ("A/0000-0", "A/0007-0")
    assert split.test == ("A/0003-0", "A/0006-0")
    assert split.hash == "89954e4bd5665b35ac5dd115127c310efb91a4edbaf39ad15ad5cc2aba1fc8aa"
    outer = made(table, "A>B", 7)
    assert outer.validation == ("A/0002-0", "A/0005-0")
    assert outer.hash == "660c8fd8630362cc04578a9778314a7f87a785520de62f8b9bbea0478467b3e0"
    folds = make_partitions(table_of(plain("A", 4, 4, 4)), scenarios_of(["A"], ["folds"], folds=2), [7])
    assert [fold.test for fold in folds] == [
        ("A/0000-0", "A/0003-0", "A/0004-0", "A/0007-0"),
        ("A/0001-0", "A/0002-0", "A/0005-0", "A/0006-0"),
    ]
    assert [fold.normal for fold in folds] == [("A/0008-0", "A/0009-0"), ("A/0010-0", "A/0011-0")]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.drop(columns="group"), "no column 'group'"),
        (lambda t: t.assign(label=["cyst", *t["label"][1:]]), "labels 'cyst'"),
        (lambda t: t.assign(patient=["", *t["patient"][1:]]), "no patient: A/0000-0"),
        (lambda t: t.assign(patient=["A/", *t["patient"][1:]]), "no patient: A/0000-0"),
        (lambda t: t.assign(patient=[None, *t["patient"][1:]]), "no patient: A/0000-0"),
        (lambda t: t.assign(group=[" ", *t["group"][1:]]), "no group: A/0000-0"),
        (lambda t: pd.concat([t, t[:1]]), "are listed twice in the study table: A/0000-0"),
        (lambda t: t.assign(patient="1"), "patients are in two datasets: 1"),
    ],
)
def test_a_table_that_cannot_be_trusted_is_refused(change, says):
    table = table_of(plain("A", 4, 4) | plain("B", 4, 4))
    with pytest.raises(UserError, match=says):
        make_split(change(table), scenarios_of(["A", "B"])[0], 0)


def test_a_wrong_dataset_or_seed_is_named():
    table = table_of(plain("BUSI", 4, 4))
    with pytest.raises(UserError, match="Did you mean BUSI"):
        make_split(table, scenarios_of(["BUSY"], ["internal"])[0], 0)
    for seed in (-1, 0.5, True):
        with pytest.raises(UserError, match="whole number"):
            make_split(table, scenarios_of(["BUSI"], ["internal"])[0], seed)
