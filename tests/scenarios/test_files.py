"""Splits as files: what is written is what is read, and what was changed is refused (US-09, US-11)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elsewhere.errors import UserError
from elsewhere.scenarios import (
    LeakError,
    Skipped,
    Split,
    make_partitions,
    read_partition,
    read_splits,
    scenarios_of,
    write_partition,
    write_splits,
)
from elsewhere.scenarios.files import COLUMNS, file_name
from worlds.scenario_tables import plain, study_tables, table_of

TABLE = table_of(
    {f"A/0{i}": "bb" for i in range(8)} | plain("A", 0, 18, 3) | plain("B", 9, 9, 2) | plain("C", 5, 0)
)
MADE = make_partitions(TABLE, scenarios_of(["A", "B", "C"]), [1, 2])

FEW = settings(deadline=None, max_examples=25)


def test_a_csv_a_scenario_and_seed_and_an_index(tmp_path):
    files = write_splits(MADE, TABLE, tmp_path / "splits")
    assert [f.name for f in files][:3] == ["A_seed-1.csv", "A_seed-2.csv", "B_seed-1.csv"]
    assert (tmp_path / "splits" / "A_to_B_seed-2.csv") in files
    frame = pd.read_csv(files[0], dtype=str)
    assert tuple(frame.columns) == COLUMNS
    assert set(frame["part"]) == {"train", "validation", "test", "normal"}
    assert "00-0" in set(frame["case_id"])
    index = json.loads((tmp_path / "splits" / "index.json").read_text())
    assert [entry["hash"] for entry in index["splits"]] == [m.hash for m in MADE if isinstance(m, Split)]
    assert index["splits"][0]["images"]["train"] == len(MADE[0].train)
    assert {entry["scenario"]["name"] for entry in index["skipped"]} == {"C", "C>A", "C>B", "A>C", "B>C"}


def test_what_is_written_is_read(tmp_path):
    files = write_splits(MADE, TABLE, tmp_path)
    splits = [m for m in MADE if isinstance(m, Split)]
    assert [read_partition(file, TABLE) for file in files] == splits
    assert read_splits(tmp_path, TABLE) == splits + [m for m in MADE if isinstance(m, Skipped)]
    again = write_splits(MADE, TABLE, tmp_path, replace=True)
    assert [f.read_bytes() for f in again] == [f.read_bytes() for f in files]


def test_one_split_at_a_time(tmp_path):
    for split in (MADE[0], MADE[1], MADE[0]):
        path = write_partition(split, TABLE, tmp_path)
        assert read_partition(path, TABLE) == split
    assert read_splits(tmp_path, TABLE) == [MADE[1], MADE[0]]


@FEW
@given(study_tables(), st.integers(0, 99))
def test_any_split_survives_its_file(table, seed):
    made = make_partitions(
        table, scenarios_of(sorted(table["dataset"].unique()), ["internal", "folds"], folds=3), [seed]
    )
    with tempfile.TemporaryDirectory() as folder:
        write_splits(made, table, Path(folder) / "splits")
        read = read_splits(Path(folder) / "splits", table)
    assert sorted(read, key=lambda m: m.scenario.name) == sorted(made, key=lambda m: m.scenario.name)


NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(
    lambda t: t.strip()
)


@FEW
@given(st.lists(NAMES, min_size=9, max_size=9, unique=True))
def test_strange_ids_survive_their_file(ids):
    table = table_of(plain("A", 4, 5))
    table["case_id"] = ids
    table["case"] = ["A/" + name for name in ids]
    (split,) = make_partitions(table, scenarios_of(["A"], ["internal"]), [0])
    with tempfile.TemporaryDirectory() as folder:
        assert read_partition(write_partition(split, table, folder), table) == split


@FEW
@given(st.sampled_from(range(len(TABLE))), st.sampled_from(COLUMNS), st.integers(0, 3))
def test_any_changed_cell_is_refused(at, column, which):
    """Every cell that is put to another value of its own column, whichever it is."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_partition(MADE[0], TABLE, folder)
        frame = pd.read_csv(path, dtype=str)
        at %= len(frame)
        others = sorted(set(frame[column]) - {frame.loc[at, column]}) or ["other"]
        frame.loc[at, column] = others[which % len(others)]
        frame.to_csv(path, index=False)
        with pytest.raises(UserError):
            read_partition(path, TABLE)


def test_a_row_put_on_the_other_side_is_a_leak(tmp_path):
    path = write_partition(MADE[0], TABLE, tmp_path)
    frame = pd.read_csv(path, dtype=str)
    two = frame[(frame["label"] == "benign") & (frame["part"] == "train")].index[0]
    frame.loc[two, "part"] = "test"
    frame.to_csv(path, index=False)
    with pytest.raises(LeakError, match="train and in test"):
        read_partition(path, TABLE)


def test_a_new_duplicate_in_the_table_is_a_leak_at_reading(tmp_path):
    path = write_partition(MADE[0], TABLE, tmp_path)
    who = TABLE.set_index("case")["patient"]
    joined = {who[MADE[0].train[0]]: "same", who[MADE[0].test[0]]: "same"}
    table = TABLE.assign(group=[joined.get(p, p) for p in TABLE["patient"]])
    with pytest.raises(LeakError, match="same"):
        read_partition(path, table)


def test_a_row_less_or_twice_is_refused(tmp_path):
    path = write_partition(MADE[0], TABLE, tmp_path)
    whole = pd.read_csv(path, dtype=str)
    whole[1:].to_csv(path, index=False)
    with pytest.raises(UserError, match="without a part"):
        read_partition(path, TABLE)
    pd.concat([whole, whole[:1]]).to_csv(path, index=False)
    with pytest.raises(LeakError, match="two parts"):
        read_partition(path, TABLE)
    whole[::-1].to_csv(path, index=False)
    assert read_partition(path, TABLE) == MADE[0]


def test_another_table_is_refused(tmp_path):
    path = write_partition(MADE[0], TABLE, tmp_path)
    with pytest.raises(UserError, match="not in the study table"):
        read_partition(path, TABLE[TABLE["dataset"] != "A"])
    benign = TABLE.index[TABLE["label"] == "benign"][0]
    relabelled = TABLE.assign(label=TABLE["label"].where(TABLE.index != benign, "malignant"))
    with pytest.raises(UserError, match="the label of 1 case "):
        read_partition(path, relabelled)


def test_an_unlisted_file_and_a_foreign_folder_are_refused(tmp_path):
    path = write_partition(MADE[0], TABLE, tmp_path / "splits")
    path.rename(path.with_name("A_seed-one.csv"))
    with pytest.raises(UserError, match=r"Did you mean A_seed-1\.csv"):
        read_partition(path.with_name("A_seed-one.csv"), TABLE)
    with pytest.raises(UserError, match=r"no index\.json"):
        read_partition(tmp_path / "A_seed-1.csv", TABLE)
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.json").write_text('{"name": "somebody else\'s"}')
    for write in (lambda: write_splits(MADE, TABLE, site), lambda: write_partition(MADE[0], TABLE, site)):
        with pytest.raises(UserError, match="left alone"):
            write()
    assert [f.name for f in site.iterdir()] == ["index.json"]


@pytest.mark.parametrize(
    "index",
    [
        "",
        "[]",
        '{"format": "elsewhere-splits-1"}',
        '{"format": "elsewhere-splits-1", "splits": [{}], "skipped": []}',
        '{"format": "elsewhere-splits-1", "splits": [{"file": "../a.csv", "scenario": {"name": "a", "kind": '
        '"internal", "sources": ["a"], "target": "a"}, "seed": 1, "hash": "", "warnings": []}], "skipped": []}',
    ],
)
def test_a_broken_index_is_named(tmp_path, index):
    path = write_partition(MADE[0], TABLE, tmp_path)
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(UserError, match="index"):
        read_partition(path, TABLE)


def test_file_names_are_plain_and_never_meet():
    pairs = ["a b", "a_b", "a>b", "a_to_b", "a to b", "ä", "a/b", "a\\b", "..", "rest>a", "a fold 1 of 5"]
    names = []
    for name in pairs:
        scenario = scenarios_of(["x"], ["internal"])[0]
        names.append(file_name(type(scenario)(name=name, kind="internal", sources=("x",), target="x"), 1))
    assert len(set(names)) == len(names)
    assert all("/" not in name and "\\" not in name and not name.startswith(".") for name in names)
    assert names[2] == "a_to_b_seed-1.csv"
