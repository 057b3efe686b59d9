"""`cohort read`, `cohort check`, `cohort describe`; and `check`, with and without the truth."""

from __future__ import annotations

import json

import pandas as pd


def test_any_csv_with_a_map_and_a_constant(run, pair, tmp_path):
    cases = pd.read_csv(pair.cohort).rename(columns={"patient_id": "PID", "label": "Diagnosis"})
    cases.to_csv(tmp_path / "own.csv", index=False, sep=";", encoding="latin-1")
    out = tmp_path / "cohort"
    arguments = ("cohort", "read", "csv", tmp_path / "own.csv", "--out", out)
    assert run(*arguments).code == 64
    done = run(
        *arguments,
        "--map",
        "patient_id=PID",
        "--map",
        "label=Diagnosis",
        "--set",
        "dataset=ours",
        "--delimiter",
        ";",
        "--encoding",
        "latin-1",
        "--json",
    )
    assert done.code == 0, done.said
    meta = json.loads((out / "cohort.json").read_text())
    assert meta["hash"] == done.json["hash"]
    assert {"hash", "reader", "id_grade", "counts", "warnings"} <= set(meta)
    assert (out / "cases.parquet").exists()
    assert set(pd.read_parquet(out / "cases.parquet")["dataset"]) == {"ours"}
    scored = run(
        "score", "classification", out, pair.predictions, "--resamples", 0, "--out", tmp_path / "r", "--json"
    )
    assert scored.code == 0
    assert scored.json["provenance"]["cohort_hash"] == meta["hash"]


def test_readers_refuse_options_that_are_not_theirs(run, detection_pair, tmp_path):
    done = run(
        "cohort", "read", "bcs-dbt", tmp_path / "published", "--set", "dataset=x", "--out", tmp_path / "o"
    )
    assert done.code == 64
    assert "bcs-dbt" in done.err
    assert not (tmp_path / "o").exists()


def test_a_finding_says_of_which_dataset_it_is_where_there_are_several(run, pair, tmp_path):
    cases = pd.read_csv(pair.cohort)
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    cases.assign(dataset="A", patient_id=[f"p{n}" for n in range(len(cases))]).to_csv(one, index=False)
    halves = ["A" if n % 2 else "B" for n in range(len(cases))]
    cases.assign(dataset=halves, patient_id=[f"p{n}" for n in range(len(cases))]).to_csv(two, index=False)
    assert "warning: every one of the" in run("cohort", "check", one).out
    said = run("cohort", "check", two).out
    assert "warning: A: every one of the" in said and "warning: B: every one of the" in said


def test_check_and_describe(run, pair, detection_pair):
    for cohort in (pair.cohort, detection_pair.cohort):
        for command in ("check", "describe"):
            done = run("cohort", command, cohort, "--json")
            assert done.code == 0, done.said
            assert {"hash", "id_grades", "counts", "audit"} <= set(done.json)
            assert ("description" in done.json) == (command == "describe")
            assert "cases of" in run("cohort", command, cohort).out


def test_the_audit_speaks(run, pair, tmp_path):
    cases = pd.read_csv(pair.cohort)
    cases.loc[0, "patient_id"] = "scan_001.png"
    cases.loc[[2, 4], "site"] = "North "
    cases.to_csv(tmp_path / "c.csv", index=False)
    done = run("cohort", "check", tmp_path / "c.csv", "--json")
    assert done.code == 0
    kinds = " ".join(finding["kind"] + finding["message"] for finding in done.json["audit"])
    assert "file" in kinds
    assert "North" in kinds or "spel" in kinds


def test_a_cohort_that_was_tampered_with(run, detection_pair):
    file = detection_pair.cohort / "cases.parquet"
    cases = pd.read_parquet(file)
    cases.loc[0, "patient_id"] = "other"
    cases.to_parquet(file)
    done = run("cohort", "check", detection_pair.cohort)
    assert done.code == 64
    assert "hash" in done.err


def test_check_for_a_participant_without_the_truth(run, pair, tmp_path):
    alone = run("check", pair.predictions, "--task", "classification", "--json")
    assert alone.code == 0
    assert alone.json["ok"] is True
    blind = pd.read_csv(pair.cohort).drop(columns="label")
    blind.to_csv(tmp_path / "blind.csv", index=False)
    said = pd.read_csv(pair.predictions)
    said.iloc[2:].to_csv(tmp_path / "short.csv", index=False)
    done = run(
        "check",
        tmp_path / "short.csv",
        "--task",
        "classification",
        "--cohort",
        tmp_path / "blind.csv",
        "--json",
    )
    assert done.code == 0
    assert done.json["counts"]["missing"] == 2
    messages = " ".join(finding["message"] for finding in done.json["findings"])
    assert "direction" in messages
    text = run(
        "check", tmp_path / "short.csv", "--task", "classification", "--cohort", tmp_path / "blind.csv"
    ).out
    assert "This file can be scored." in text


def test_check_finds_what_scoring_would_stop_at(run, pair, tmp_path):
    said = pd.read_csv(pair.predictions)
    said.assign(probability=1 - said["probability"]).to_csv(tmp_path / "turned.csv", index=False)
    done = run(
        "check", tmp_path / "turned.csv", "--task", "classification", "--cohort", pair.cohort, "--json"
    )
    turned = [f for f in done.json["findings"] if f["kind"] == "direction"]
    assert turned[0]["severity"] == "warning"
    said.assign(probability=100 * said["probability"]).to_csv(tmp_path / "scale.csv", index=False)
    done = run("check", tmp_path / "scale.csv", "--task", "classification", "--json")
    assert done.code == 64
    assert done.json["ok"] is False
    assert "--scale 0-100" in json.dumps(done.json)
    assert run("check", tmp_path / "none.csv", "--task", "classification").code == 64
    unknown = run("check", pair.predictions, "--task", "clasification")
    assert unknown.code == 64
    assert "classification" in unknown.said


def test_check_of_every_task(run, mask_pair, detection_pair):
    for task, files in (("segmentation", mask_pair), ("detection", detection_pair)):
        done = run("check", files.predictions, "--task", task, "--cohort", files.cohort, "--json")
        assert done.code == 0, done.said
        assert done.json["counts"]["matched"] == done.json["counts"]["cohort_cases"]
