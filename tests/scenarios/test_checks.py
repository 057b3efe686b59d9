"""The leak check is a hard error (US-11), whoever made the partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elsewhere.errors import UserError
from elsewhere.scenarios import (
    LeakError,
    Split,
    check_split,
    make_split,
    scenarios_of,
    split_hash,
)
from worlds.scenario_tables import plain, table_of

TABLE = table_of(
    {f"A/b{i}": "bb" for i in range(10)}
    | {f"A/m{i}": "mm" for i in range(10)}
    | {"A/n1": "nn", "A/n2": "n"}
    | plain("B", 4, 4, 2)
)


def split_of(name: str) -> Split:
    (scenario,) = scenarios_of(["A", "B"], only=[name])
    split = make_split(TABLE, scenario, 0)
    assert isinstance(split, Split)
    return split


def rehashed(split: Split, **parts: tuple[str, ...]) -> Split:
    """With other parts, and a hash that fits them: only the check itself can object."""
    changed = replace(split, **parts)
    content = {**changed.parts, "left-out": changed.left_out}
    return replace(changed, hash=split_hash(changed.scenario, changed.seed, content))


def test_a_patient_on_two_sides_is_a_leak():
    split = split_of("A")
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        case = getattr(split, one)[0]
        parts = {one: getattr(split, one)[1:], other: (*getattr(split, other), case)}
        patient = TABLE.set_index("case").loc[case, "patient"]
        with pytest.raises(LeakError, match=f"1 patient in {one} and in {other}: {patient}"):
            check_split(TABLE, rehashed(split, **parts))


def test_a_whole_patient_may_move():
    split = split_of("A")
    patient = TABLE.set_index("case")["patient"]
    who = patient[split.train[0]]
    moved = tuple(case for case in split.train if patient[case] == who)
    rest = tuple(case for case in split.train if patient[case] != who)
    check_split(TABLE, rehashed(split, train=rest, test=split.test + moved))


def test_duplicates_on_two_sides_are_a_leak():
    split = split_of("A")
    patient = TABLE.set_index("case")["patient"]
    joined = {patient[split.train[0]]: "same picture", patient[split.test[0]]: "same picture"}
    table = TABLE.assign(group=[joined.get(p, p) for p in TABLE["patient"]])
    with pytest.raises(LeakError, match="1 group in train and in test: same picture"):
        check_split(table, split)


def test_a_duplicate_in_source_and_target_is_a_leak():
    split = split_of("A>B")
    joined = {TABLE.set_index("case").loc[split.train[0], "patient"]: "same", "B/0000": "same"}
    table = TABLE.assign(group=[joined.get(p, p) for p in TABLE["patient"]])
    with pytest.raises(LeakError, match="train and in test: same"):
        check_split(table, split)


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_normal_image_of_a_patient_who_trains_or_validates_is_a_leak(part):
    split = split_of("A")
    seen = TABLE.set_index("case").loc[getattr(split, part)[0], "patient"]
    patient = [seen if p == "A/n2" else p for p in TABLE["patient"]]
    table = TABLE.assign(patient=patient, group=patient)
    with pytest.raises(LeakError, match=f"{part} and in normal"):
        check_split(table, split)


def test_a_normal_image_of_a_tested_patient_is_none():
    split = split_of("A")
    tested = TABLE.set_index("case").loc[split.test[0], "patient"]
    patient = [tested if p == "A/n2" else p for p in TABLE["patient"]]
    check_split(TABLE.assign(patient=patient, group=patient), split)


def test_a_case_of_the_target_may_not_train():
    split = split_of("A>B")
    with pytest.raises(LeakError, match="1 case in train not of A: B/0000-0"):
        check_split(TABLE, rehashed(split, train=(*split.train, "B/0000-0"), test=split.test[1:]))


def test_a_case_twice_is_a_leak():
    split = split_of("A>B")
    with pytest.raises(LeakError, match="1 case in two parts"):
        check_split(TABLE, rehashed(split, train=(*split.train, split.train[0])))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: rehashed(s, train=(*s.train, "A/who")), "not in the study table: A/who"),
        (lambda s: rehashed(s, train=(*s.train, "A/n1-0", "A/n1-1")), "2 normal images in train"),
        (lambda s: rehashed(s, test=s.test[1:]), "1 lesion image without a part"),
        (lambda s: rehashed(s, test=s.test[1:], left_out=s.test[:1]), "1 lesion image without a part"),
        (lambda s: rehashed(s, normal=(*s.normal, s.test[0]), test=s.test[1:]), "1 lesion image in normal"),
        (lambda s: replace(s, seed=4), "the split was changed"),
        (lambda s: replace(s, hash="0" * 64), "the split was changed"),
    ],
)
def test_other_faults_are_named(change, says):
    with pytest.raises(UserError, match=f"(?i){says}") as caught:
        check_split(TABLE, change(split_of("A>B")))
    assert not isinstance(caught.value, LeakError)
