"""Study tables for the tests: written by hand in short, or drawn by hypothesis; and the plain, slow truth."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pandas as pd
from hypothesis import strategies as st

LABEL = {"b": "benign", "m": "malignant", "n": "normal"}


def table_of(patients: dict[str, str], groups: dict[str, str] | None = None) -> pd.DataFrame:
    """{'A/1': 'bbm'}: patient 1 of dataset A with two benign images and a malignant one. `groups`: the
    patients whose group is not their own name."""
    rows = []
    for patient, letters in patients.items():
        dataset = patient.split("/")[0]
        for number, letter in enumerate(letters):
            case_id = f"{patient.split('/')[1]}-{number}"
            rows.append(
                {
                    "case": f"{dataset}/{case_id}",
                    "dataset": dataset,
                    "case_id": case_id,
                    "patient": patient,
                    "group": (groups or {}).get(patient, patient),
                    "label": LABEL[letter],
                }
            )
    return pd.DataFrame(rows)


def plain(dataset: str, benign: int, malignant: int, normal: int = 0) -> dict[str, str]:
    """So many patients with one image each."""
    kinds = "b" * benign + "m" * malignant + "n" * normal
    return {f"{dataset}/{at:04d}": letter for at, letter in enumerate(kinds)}


@st.composite
def study_tables(draw: st.DrawFn, *, datasets: int = 3, patients: int = 9, joins: int = 3) -> pd.DataFrame:
    """Mixed patients, patients of normals alone, tiny classes, patients joined within and across datasets,
    and sometimes a group column that parts a patient's own pictures (the patient must hold all the same)."""
    names = [f"D{at}" for at in range(draw(st.integers(1, datasets)))]
    held: dict[str, str] = {}
    for name in names:
        letters = st.lists(st.sampled_from("bbbmmmn"), min_size=1, max_size=4).map("".join)
        for at, images in enumerate(draw(st.lists(letters, min_size=1, max_size=patients))):
            held[f"{name}/{at}"] = images
    who = sorted(held)
    groups: dict[str, str] = {}
    for at in range(draw(st.integers(0, joins))):
        for patient in draw(st.lists(st.sampled_from(who), min_size=2, max_size=3)):
            groups[patient] = f"dup {at}"
    table = table_of(held, groups)
    if draw(st.booleans()):
        alone = draw(st.lists(st.sampled_from(range(len(table))), max_size=4, unique=True))
        table.loc[alone, "group"] = [f"own {at % 2}" for at in alone]
    return table


def units_of(table: pd.DataFrame) -> dict[str, int]:
    """Case to indivisible unit, by merging sets until nothing changes: slow, and plainly right."""
    sets = [
        set(cases) for column in ("patient", "group") for cases in table.groupby(column)["case"].agg(list)
    ]
    merged = True
    while merged:
        merged = False
        for one, other in itertools.combinations(range(len(sets)), 2):
            if sets[one] & sets[other]:
                sets[one] |= sets.pop(other)
                merged = True
                break
    return {case: at for at, cases in enumerate(sets) for case in cases}


def some_split_exists(table: pd.DataFrame, dataset: str, parts: int, *, without: Iterable[int] = ()) -> bool:
    """Whether any of all assignments of the dataset's units gives every part both classes of lesion."""
    units = units_of(table)
    lesions = table[(table["dataset"] == dataset) & (table["label"] != "normal")]
    labels: dict[int, set[str]] = {}
    for case, label in zip(lesions["case"], lesions["label"], strict=True):
        if units[case] not in without:
            labels.setdefault(units[case], set()).add(label)
    held = list(labels.values())
    for assignment in itertools.product(range(parts), repeat=len(held)):
        seen = [set() for _ in range(parts)]
        for part, classes in zip(assignment, held, strict=True):
            seen[part] |= classes
        if all(len(classes) == 2 for classes in seen):
            return True
    return False


def spanning_units(table: pd.DataFrame) -> set[int]:
    """The units with cases of two datasets or more."""
    count = table.groupby(table["case"].map(units_of(table)))["dataset"].nunique()
    return set(count[count > 1].index)
