"""`phantom ultrasound` on the command line."""

from __future__ import annotations

import json

import pytest


def test_hospitals_are_written_and_told(run, tmp_path):
    out = tmp_path / "world"
    arguments = ["phantom", "ultrasound", "--out", out, "--patients", 6, "--scale", 0.3]
    done = run(*arguments, "--plant", "duplicate=1,missing-mask=1", "--shortcut", "Alder", "--json")
    assert done.code == 0, done.said
    told = json.loads(done.out)
    assert [h["name"] for h in told["hospitals"]] == ["Alder", "Birch"]
    assert told["hospitals"][0]["shortcut"] > 0 and told["hospitals"][1]["shortcut"] == 0
    assert told["hospitals"][1]["planted"] == {"duplicate": 1, "missing-mask": 1}
    assert (out / "Alder" / "Dataset_BUSI_with_GT").is_dir()
    assert (out / "Birch" / "BUSBRA" / "bus_data.csv").is_file()
    again = run(*arguments, "--hospitals", "A,B,C", "--layout", "breast", "--replace")
    assert again.code == 0, again.said
    assert "elsewhere cohort read breast" in again.out
    assert sorted(p.name for p in out.iterdir() if p.is_dir()) == ["A", "B", "C"]


def test_mistakes_exit_64(run, tmp_path):
    for wrong in (
        ["--layout", "busj"],
        ["--layout", "busi,bus-bra,breast"],
        ["--hospitals", "A,a"],
        ["--shortcut", "Cedar"],
        ["--plant", "duplicate=two"],
        ["--plant", "ghost=1"],
        ["--shift", "9"],
    ):
        done = run("phantom", "ultrasound", "--out", tmp_path / "o", "--patients", 4, *wrong)
        assert done.code == 64, wrong
        assert not (tmp_path / "o").exists()


def test_an_mri_world_is_written_and_told(run, tmp_path):
    out = tmp_path / "mri"
    arguments = ["phantom", "mri", out, "--patients", 4, "--size", 32, "--seed", 1]
    done = run(*arguments, "--sites", 2, "--gap", "menopausal_status=post:0.8", "--json")
    assert done.code == 0, done.said
    told = json.loads(done.out)
    assert [site["name"] for site in told["sites"]] == ["NORTH", "SOUTH"]
    assert sum(site["patients"] for site in told["sites"]) == 4
    assert sorted(p.name for p in (out / "images").iterdir())[0] == "NORTH_001"
    again = run(*arguments, "--sites", "WEST,EAST", "--replace")
    assert again.code == 0, again.said
    lines = [line for line in again.out.strip().splitlines() if "warning" not in line]
    assert "sagittal" in lines[0] and "fat not suppressed" in lines[1]
    command = lines[-1].removeprefix("next: elsewhere ").split()
    command[-1] = str(tmp_path / "cohort")
    assert run(*command).code == 0


def test_a_site_with_one_outcome_is_told(run, tmp_path):
    done = run("phantom", "mri", tmp_path / "few", "--patients", 3, "--size", 32, "--sites", 3)
    assert done.code == 0, done.said
    assert "of 1 with pCR" in done.out
    assert done.out.count("has one outcome only, so that response cannot be tested there") == 3
    told = json.loads(run("phantom", "mri", tmp_path / "more", "--patients", 36, "--size", 32, "--json").out)
    assert all(site["pcr"] and site["no_pcr"] for site in told["sites"])


def test_mistakes_of_an_mri_world_exit_64(run, tmp_path):
    for wrong in (
        ["--size", "9"],
        ["--sites", "0"],
        ["--sites", "A,a"],
        ["--patients", "2"],
        ["--gap", "density=D"],
        ["--gap", "breast_density"],
        ["--blind", "age=old"],
        ["--missing", "2"],
    ):
        done = run("phantom", "mri", tmp_path / "o", *wrong)
        assert done.code == 64, wrong
        assert not (tmp_path / "o").exists()


def test_help_has_an_example(run):
    done = run("phantom", "mri", "--help")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "elsewhere phantom mri" in text and "--json" in text


def test_a_tomosynthesis_world_is_written_and_told(run, tmp_path):
    pytest.importorskip("pydicom")
    pytest.importorskip("imagecodecs")
    out = tmp_path / "dbt"
    arguments = ["phantom", "tomosynthesis", out, "--vendors", "A,B", "--patients", 4]
    done = run(*arguments, "--drop", 0.5, "--json")
    assert done.code == 0, done.said
    told = json.loads(done.out)
    assert [vendor["name"] for vendor in told["vendors"]] == ["A", "B"]
    assert [vendor["volumes"] for vendor in told["vendors"]] == [8, 8]
    assert told["protocol"] == "phantom-small" and told["planted"]["drop"]["share"] == 0.5
    assert all(told["planted"]["faults"].values())
    refused = run(*arguments)
    assert refused.code == 64 and "--replace" in refused.said
    again = run(*arguments, "--no-faults", "--syntax", "rle", "--replace")
    assert again.code == 0, again.said
    assert "planted turned" not in again.out and "planted left tags as published" in again.out
    assert len(list(out.rglob("*.dcm"))) == 16


def test_mistakes_of_a_tomosynthesis_world_exit_64(run, tmp_path):
    for wrong in (
        ["--vendors", "A,C"],
        ["--size", "huge"],
        ["--patients", "0"],
        ["--views", "3"],
        ["--mix", "a,b"],
        ["--splits", "0.5,0.5"],
        ["--drop", "2"],
        ["--drop", "0.5", "--vendors", "A"],
        ["--syntax", "gif"],
    ):
        done = run("phantom", "tomosynthesis", tmp_path / "o", *wrong)
        assert done.code == 64, wrong
        assert not (tmp_path / "o").exists()


def test_help_of_tomosynthesis_has_examples(run):
    done = run("phantom", "tomosynthesis", "--help")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert "elsewhere phantom tomosynthesis world" in text and "--faults" in text
