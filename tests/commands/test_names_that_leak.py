"""No id of any input, no name of a case's file and no folder in anything that is shared.

Shared is every file that a command writes but `case_key.csv`, `scores.parquet` and `events.parquet`, and what
`--json` prints. Ids are planted in every channel: the cohort, ids that the cohort does not have, files that cannot
be scored, names of mask files, a table without a header, a result folder of other cases.
"""

from __future__ import annotations

import shutil
import stat

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worlds.task_files import binary_tables, detection_pair, mask_pair, slide_pair, write_nifti

LOCAL = {"case_key.csv", "scores.parquet", "events.parquet"}
FOLDER = "folder-of-dr-berg"
DRAWS_FIGURES = True


def shared_texts(*folders):
    """Every shareable file by name; what is no text is looked through as Latin-1."""
    found = {}
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name not in LOCAL:
                found[str(file.relative_to(folder))] = file.read_bytes().decode("latin-1")
    return found


def assert_names_nobody(texts, ids):
    wanted = {one.encode().decode("latin-1") for one in ids} | set(ids)
    leaks = {(name, one) for name, text in texts.items() for one in wanted if one in text}
    assert not leaks, sorted(leaks)[:10]
    assert not [name for name, text in texts.items() if FOLDER in text], "a folder is named"


def make_submissions(folder, prefix):
    """A cohort and entries that fail in every way that quotes an id; and all the ids that were planted."""
    cases, said = binary_tables(patients=60, target="pcr")
    rename = {old: f"{prefix}-{i:06d}" for i, old in enumerate(cases["case_id"])}
    cases["patient_id"] = [f"PAT.{prefix}.{i:04d}" for i in range(len(cases))]
    cases["exam_id"] = [f"{prefix}/EX{i:05d}" for i in range(len(cases))]
    cases["case_id"] = cases["case_id"].map(rename)
    said["case_id"] = said["case_id"].map(rename)
    foreign = [f"XX{prefix}-{9000 + i}" for i in range(4)]
    spare = cases.iloc[:1].assign(case_id=foreign[0], patient_id=foreign[1], exam_id=foreign[2], pcr=np.nan)
    folder.mkdir(parents=True)
    pd.concat([cases, spare]).to_csv(folder / "cohort.csv", index=False)
    files = folder / "subs"
    files.mkdir()
    said.to_csv(files / "good.csv", index=False)
    more = pd.DataFrame({"case_id": foreign[1:], "probability": 0.5})
    pd.concat([said, more]).to_csv(files / "extra.csv", index=False)
    pd.concat([said, said.iloc[:2]]).to_csv(files / "twice.csv", index=False)
    pd.concat([more, more]).to_csv(files / "foreign-twice.csv", index=False)
    more.to_csv(files / "all-foreign.csv", index=False)
    said.to_csv(files / "no-header.csv", index=False, header=False)
    said.rename(columns={"case_id": "Fallnummer"}).to_csv(files / "other-column.csv", index=False)
    said.assign(probability=said["case_id"]).to_csv(files / "shifted.csv", index=False)
    (files / "ragged.csv").write_text(f"case_id,probability\n{foreign[2]},0.5,{foreign[3]},1\n")
    (files / f"{foreign[2]}.csv").write_text("nothing\n")
    (files / "folder").mkdir()
    (files / "folder" / f"{foreign[3]}.csv").write_text("1,2")
    ids = [*cases["case_id"], *cases["patient_id"], *cases["exam_id"], *foreign]
    return folder / "cohort.csv", files, ids


CLAIM = """
model = "Vendor"
task = "response"
[[primary]]
metric = "auroc"
value = 0.8
margin = 0.2
margin_source = "agreed with case {group}, minutes in {folder}/minutes.txt"
[subgroups]
describe = ["exam_id"]
"""
PREFIX = st.text("ABCDEFGHKMNPQRSTUVXYZ", min_size=4, max_size=8)


def rank_once(run, folder, prefix):
    cohort, files, ids = make_submissions(folder / FOLDER, prefix)
    out = folder / "out"
    done = run(
        "rank", files, "--cohort", cohort, "--task", "response", "--metric", "auroc", "--resamples", 0,
        "--out", out, "--json",
    )  # fmt: skip
    assert done.code == 5, done.said
    assert done.json["counts"]["models"] == 2
    texts = {**shared_texts(out), "--json": done.out}
    assert_names_nobody(texts, ids)
    key = pd.read_csv(out / "case_key.csv", dtype=str)
    assert set(key["case_id"]) & set(ids), "the originals are in the key file"
    assert key["case"].str.fullmatch(r"\[id \d+\]").all()
    assert stat.S_IMODE((out / "case_key.csv").stat().st_mode) == 0o600
    assert "case_key.csv" in (out / "SHARING.txt").read_text().split("Stay with the data")[1]
    failed = {row["model"]: row["why"] for row in done.json["ranking"]["failed"]}
    assert "[id " in failed["twice.csv"] and "is in rows" in failed["twice.csv"]
    assert "not one of 3" in failed["all-foreign.csv"]
    assert "Fallnummer" in failed["other-column.csv"], "columns are no ids"


def test_a_ranking_of_submissions_that_fail_in_every_way(run, tmp_path):
    rank_once(run, tmp_path, "ISPY")


@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(prefix=PREFIX)
def test_whatever_the_ids_look_like(run, tmp_path_factory, prefix):
    rank_once(run, tmp_path_factory.mktemp("rank"), prefix)


@pytest.mark.slow
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(prefix=PREFIX)
def test_whatever_the_ids_look_like_many_times(run, tmp_path_factory, prefix):
    rank_once(run, tmp_path_factory.mktemp("rank"), prefix)


def test_the_terminal_still_names_what_is_to_be_mended(run, tmp_path):
    """Console output is local: without the id nobody finds the row."""
    cohort, files, _ = make_submissions(tmp_path / FOLDER, "ISPY")
    done = run("rank", files, "--cohort", cohort, "--task", "response", "--metric", "auroc", "--resamples", 0)
    assert done.code == 5
    assert "ISPY-000000" in done.out
    assert "2 of 11 entries ranked; 9 could not be scored" in done.out


def test_names_of_mask_files_and_their_folders(run, tmp_path):
    (tmp_path / FOLDER).mkdir()
    pair = mask_pair(tmp_path / FOLDER)
    cases = pd.read_csv(pair.cohort, dtype={"case_id": str})
    teams = tmp_path / FOLDER / "teams"
    ids = ["ISPY2-000100", "DUKE-77881", *(f"KRANK-{i:04d}" for i in range(8))]
    rename = dict(zip(cases["case_id"], ids[2:], strict=True))
    cases.assign(case_id=cases["case_id"].map(rename), patient_id=cases["case_id"].map(rename)).to_csv(
        pair.cohort, index=False
    )
    for team in ("good", "twice", "torn", "shape", "foreign", "link"):
        (teams / team).mkdir(parents=True)
        for old, new in rename.items():
            shutil.copy(
                pair.predictions / f"{old.replace('/', '%2F')}.nii.gz", teams / team / f"mask_{new}.nii.gz"
            )
    for team in ("good", "twice", "torn", "shape", "link"):
        for file in list((teams / team).iterdir()):
            file.rename(file.with_name(file.name.removeprefix("mask_")))
    first = teams / "twice" / "KRANK-0001.nii.gz"
    (teams / "twice" / "KRANK-0001").mkdir()
    shutil.copy(first, teams / "twice" / "KRANK-0001" / "mask.nii.gz")
    (teams / "torn" / "KRANK-0002.nii.gz").write_bytes(b"torn")
    shutil.copy(first, teams / "torn" / "ISPY2-000100.nii.gz")
    write_nifti(np.zeros((2, 2, 2), np.uint8), teams / "shape" / "KRANK-0003.nii.gz", (2.0, 1.0, 1.0))
    (teams / "link" / "KRANK-0004.nii.gz").unlink()
    (teams / "link" / "KRANK-0004.nii.gz").symlink_to(tmp_path / FOLDER / "truth" / "S1.nii.gz")
    shutil.copy(first, teams / "good" / "DUKE-77881_pred.nii.gz")
    out = tmp_path / "out"
    done = run(
        "rank", teams, "--cohort", pair.cohort, "--task", "segmentation", "--metric", "dice", "--resamples", 0,
        "--out", out, "--json",
    )  # fmt: skip
    assert done.code == 5, done.said
    assert [row["model"] for row in done.json["ranking"]["table"]] == ["good"]
    assert done.json["counts"]["failed"] == 5
    assert_names_nobody({**shared_texts(out), "--json": done.out}, ids)
    failed = {row["model"]: row["why"] for row in done.json["ranking"]["failed"]}
    assert "leads out of the prediction folder" in failed["link"]


def test_score_accept_compare_diff_and_report_name_nobody(run, tmp_path):
    """Two results with foreign ids, a page, tables, figures, a comparison: all from inputs in a named folder."""
    cohort, files, ids = make_submissions(tmp_path / FOLDER, "KLINIK")
    outs = []
    for name in ("extra", "good"):
        outs.append(tmp_path / name)
        done = run(
            "score", "response", cohort, files / f"{name}.csv", "--group-by", "exam_id", "--resamples", 0,
            "--out", outs[-1], "--json",
        )  # fmt: skip
        assert done.code == 0, done.said
        printed = done.out.replace(str(tmp_path), "")
        assert_names_nobody({**shared_texts(outs[-1]), "--json": printed}, ids)
        assert stat.S_IMODE((outs[-1] / "case_key.csv").stat().st_mode) == 0o600
    claim = tmp_path / FOLDER / "claim.toml"
    claim.write_text(CLAIM.format(group=ids[0], folder=tmp_path / FOLDER))
    verdict = tmp_path / "verdict"
    done = run(
        "accept", cohort, files / "extra.csv", "--claim", claim, "--resamples", 0, "--out", verdict, "--json"
    )
    assert done.code in (0, 2, 3, 4), done.said
    assert_names_nobody({**shared_texts(verdict), "--json": done.out.replace(str(tmp_path), "")}, ids)
    tables, figures = tmp_path / "tables", tmp_path / "figures"
    assert run("report", outs[0], "--tables", tables, "--figures", figures).code == 0
    assert_names_nobody(shared_texts(outs[0], tables, figures), ids)
    done = run("compare", *outs, "--resamples", 0, "--out", tmp_path / "both", "--json")
    assert done.code == 0, done.said
    assert (done.json["comparison"]["a"], done.json["comparison"]["b"]) == ("extra", "good")
    assert_names_nobody({**shared_texts(tmp_path / "both"), "--json": done.out}, ids)
    assert str(tmp_path) not in done.out
    done = run("diff", *outs, "--json")
    assert_names_nobody({"--json": done.out}, ids)


def test_a_ranking_of_result_folders_names_nobody(run, tmp_path):
    """One result is of other cases, and the reason why it is left out quotes them."""
    cohort, files, ids = make_submissions(tmp_path / FOLDER, "KLINIK")
    few = tmp_path / FOLDER / "few.csv"
    pd.read_csv(cohort).iloc[5:].to_csv(few, index=False)
    folders = []
    for name, of in (("a", cohort), ("b", cohort), ("c", few)):
        folders.append(tmp_path / FOLDER / name)
        done = run("score", "response", of, files / "extra.csv", "--resamples", 0, "--out", folders[-1])
        assert done.code == 0, done.said
    out = tmp_path / "out"
    done = run("rank", *folders, "--metric", "auroc", "--resamples", 0, "--out", out, "--json")
    assert done.code == 5, done.said
    assert "only in the first" in done.json["ranking"]["failed"][0]["why"]
    assert_names_nobody({**shared_texts(out), "--json": done.out}, ids)


@pytest.mark.parametrize(("task", "make"), [("detection", detection_pair), ("slides", slide_pair)])
def test_boxes_and_slides(run, tmp_path, task, make):
    """Volumes and slides that the cohort does not have, in good and in failing entries."""
    (tmp_path / FOLDER).mkdir()
    pair = make(tmp_path / FOLDER)
    said = pd.read_csv(pair.predictions)
    files = tmp_path / FOLDER / "subs"
    files.mkdir()
    foreign = "DBT-S77881"
    column = "StudyUID" if task == "detection" else "case_id"
    extra = said.iloc[:1].assign(
        **{column: foreign}, **({"PatientID": "DBT-P5511"} if task == "detection" else {})
    )
    pd.concat([said, extra]).to_csv(files / "good.csv", index=False)
    bad = {"Width": -4} if task == "detection" else {"stage": foreign}
    pd.concat([said, extra.assign(**bad)]).to_csv(files / "bad.csv", index=False)
    extra.to_csv(files / "foreign.csv", index=False)
    out = tmp_path / "out"
    done = run(
        "rank", files, "--cohort", pair.cohort, "--task", task, "--resamples", 0, "--out", out, "--json"
    )
    assert done.code == 5, done.said
    assert done.json["counts"]["failed"] == 2, done.json["ranking"]["failed"]
    assert_names_nobody({**shared_texts(out), "--json": done.out}, [foreign, "DBT-P5511"])
