"""`cohort duplicates`: what it prints and writes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from worlds.duplicate_pictures import make_cohort, re_encoded, speckle


@pytest.fixture
def two_cohorts(tmp_path):
    """A holds one picture under both labels; B holds a copy of another of A's."""
    rng = np.random.default_rng(20)
    pictures = {f"a{at}": speckle(rng) for at in range(5)}
    here = make_cohort(
        tmp_path / "a",
        pictures | {"a5": pictures["a0"]},
        dataset="A",
        patient_id=[f"P{at}" for at in range(6)],
        label=["benign"] * 5 + ["malignant"],
    )
    there = make_cohort(
        tmp_path / "b",
        {"b0": re_encoded(pictures["a2"]), "b1": speckle(rng)},
        dataset="B",
        patient_id=["Q0", "Q0"],
        label=["benign", "benign"],
    )
    return here.save(tmp_path / "cohort-a"), there.save(tmp_path / "cohort-b")


def test_json_names_the_pairs_and_writes_nothing(run, two_cohorts, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = run("cohort", "duplicates", *two_cohorts, "--json")
    assert done.code == 0, done.said
    said = done.json
    assert [(p["case_a"], p["case_b"], p["kind"], p["relation"]) for p in said["pairs"]] == [
        ("a0", "a5", "exact", "across patients and labels"),
        ("a2", "b0", "near", "across datasets"),
    ]
    assert said["counts"]["pairs"] == 2
    assert said["groups"] == {
        "patients": 7,
        "groups": 5,
        "merged_groups": 2,
        "patients_in_merged_groups": 4,
    }
    assert len(said["calibration"]) == 3
    assert sorted(tmp_path.iterdir()) == before


def test_out_holds_tables_and_sheets(run, two_cohorts, tmp_path):
    out = tmp_path / "out"
    done = run("cohort", "duplicates", *two_cohorts, "--out", out)
    assert done.code == 0, done.said
    assert "label conflict: A/a0 (benign) and A/a5 (malignant), exact" in done.out
    assert "kept together: 4 patients in 2 groups" in done.out
    assert {f.name for f in out.iterdir()} == {
        "pairs.csv",
        "groups.csv",
        "summary.json",
        "contact-sheet-01.png",
        ".elsewhere-result.json",
    }
    groups = pd.read_csv(out / "groups.csv").set_index("case")
    assert groups.loc["A/a5", "group"] == groups.loc["A/a0", "group"] == "A/P0"
    assert groups.loc["B/b1", "group"] == groups.loc["A/a2", "group"] == "A/P2"
    assert json.loads((out / "summary.json").read_text())["counts"]["pairs_across_datasets"] == 1
    again = run(
        "cohort", "duplicates", *two_cohorts, "--no-keep-duplicates-together", "--out", out, "--replace"
    )
    assert again.code == 0
    assert "may put copies on both sides" in again.out
    groups = pd.read_csv(out / "groups.csv")
    assert list(groups["group"]) == list(groups["patient"])


def test_mistakes_are_told(run, two_cohorts, pair, tmp_path):
    twice = run("cohort", "duplicates", two_cohorts[0], two_cohorts[0])
    assert twice.code == 64
    assert "are in two of the cohorts" in twice.err
    bare = run("cohort", "duplicates", pair.cohort)
    assert bare.code == 64
    assert "image" in bare.err
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.txt").write_text("mine")
    assert run("cohort", "duplicates", *two_cohorts, "--out", taken).code == 64
    assert (taken / "thesis.txt").read_text() == "mine"
