"""Result folders that were edited, mixed up or made up are refused, each with the file that is wrong."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

import elsewhere
from elsewhere.analysis.result.schema import check_summary
from elsewhere.analysis.result.storage import reseal, seal_of
from elsewhere.commands.report import report
from elsewhere.commands.score import score
from elsewhere.errors import UserError
from elsewhere.report.result.tables import write_tables
from elsewhere.results import load_result
from worlds.task_files import MAKERS, binary_tables, options_of_task, write_pair


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """`TASK/result` for every task, and `other/result` of other predictions."""
    folder = tmp_path_factory.mktemp("results")
    for task, make in MAKERS.items():
        (folder / task).mkdir()
        files = make(folder / task)
        groups = options_of_task(task)[1:]
        score(
            task, files.cohort, files.predictions, out=folder / task / "result", resamples=20, group_by=groups
        )
    other = write_pair(folder / "other", *binary_tables(seed=2))
    score("classification", other.cohort, other.predictions, out=folder / "other" / "result", resamples=0)
    return folder


@pytest.fixture
def result(made, tmp_path) -> Path:
    return Path(shutil.copytree(made / "classification" / "result", tmp_path / "result"))


def change(folder: Path, how, *, sealed: bool = False) -> None:
    """Edit summary.json; `sealed`: as somebody would who computes the digests again."""
    tree = json.loads((folder / "summary.json").read_text())
    tree = how(tree) or tree
    (folder / "summary.json").write_text(json.dumps(reseal(tree, folder) if sealed else tree))


def rewrite(folder: Path, how, name: str = "scores.parquet") -> None:
    """Edit a table, and compute the digests again."""
    frame = pd.read_parquet(folder / name)
    changed = how(frame)
    (frame if changed is None else changed).to_parquet(folder / name)
    change(folder, lambda tree: None, sealed=True)


@pytest.mark.parametrize("task", sorted(MAKERS))
def test_every_task_writes_what_may_be_read_back(task, made):
    """The types of the schema are those of every task's own summary, and its table passes the checks."""
    loaded = load_result(made / task / "result")
    assert loaded.summary["seal"] == seal_of(loaded.summary)
    check_summary(loaded.summary, where="here")
    assert loaded.scores.task == task and ("events_digest" in loaded.summary["provenance"]) == (
        task == "detection"
    )


def test_the_digests_are_what_save_returned(made):
    loaded = load_result(made / "other" / "result")
    assert loaded.summary["provenance"]["scores_digest"]
    again = loaded.save(made / "again")
    assert again.summary == load_result(made / "again").summary == loaded.summary


def test_a_number_changed_by_hand_is_refused(result):
    """A verdict or a value edited in summary.json was printed by `report` as if it were ours."""

    def flatter(tree):
        tree["metrics"]["auroc"]["value"] = 0.999

    change(result, flatter)
    with pytest.raises(UserError, match=r"summary\.json was edited") as refused:
        report(result)
    assert refused.value.where == str(result / "summary.json")


def test_the_summary_of_another_result_is_refused(made, result):
    shutil.copy(made / "other" / "result" / "summary.json", result / "summary.json")
    with pytest.raises(UserError, match=r"summary\.json does not belong to the scores\.parquet"):
        load_result(result)


def test_a_summary_without_a_seal_is_refused_and_says_how_to_go_on(made, result, tmp_path):
    def older(tree):
        del tree["seal"]

    change(result, older)
    with pytest.raises(UserError, match="does not say which scores it belongs to") as refused:
        load_result(result)
    assert "elsewhere summarise" in str(refused.value.fix)
    anew = elsewhere.summarise(
        "classification",
        made / "classification" / "cohort.csv",
        result / "scores.parquet",
        out=tmp_path / "anew",
        resamples=0,
    )
    assert load_result(tmp_path / "anew").metrics["auroc"]["value"] == anew.metrics["auroc"]["value"]


def test_events_that_are_not_those_of_the_summary_are_refused(made, tmp_path):
    folder = Path(shutil.copytree(made / "detection" / "result", tmp_path / "result"))
    (folder / "events.parquet").unlink()
    with pytest.raises(UserError, match="no such table"):
        load_result(folder)
    shutil.copy(folder / "scores.parquet", folder / "events.parquet")
    with pytest.raises(UserError, match=r"does not belong to the events\.parquet"):
        load_result(folder)


@pytest.mark.parametrize("name", ["summary.json", "scores.parquet"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "dangling"])
def test_something_else_in_the_place_of_a_file(result, name, kind):
    """`report` waited for ever on a pipe, and a folder ended in a traceback."""
    file = result / name
    file.unlink()
    {
        "fifo": os.mkfifo,
        "folder": Path.mkdir,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "dangling": lambda path: path.symlink_to("nowhere"),
    }[kind](file)
    with pytest.raises(UserError, match=name.partition(".")[0]):
        load_result(result)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda t: t.pop("counts"), "counts: Field required"),
        (lambda t: t.update(metrics=[1]), "metrics"),
        (lambda t: t.update(task=["classification"]), "task"),
        (lambda t: t["metrics"]["auroc"].update(value="high"), r"metrics\.auroc\.value"),
        (lambda t: t["counts"].update(cases=-1), r"counts\.cases"),
        (lambda t: t["counts"].update(cases=3), "3 cases, and the scores have"),
        (lambda t: t.update(flow={"a": 1}), "flow"),
        (lambda t: t.update(warnings="x"), "warnings"),
        (lambda t: t["provenance"].update(settings={"threshold": "x"}), "threshold"),
        (lambda t: t["curves"].update(roc={"x": ["a"], "y": [1]}), r"curves\.roc\.x"),
        (lambda t: t["provenance"].update(settings={"matching": "mine"}), "other rules"),
        (lambda t: t.update(protocol="dbtex-paper"), "other rules"),
        (lambda t: t.update(protocol="nobody's"), "unknown protocol"),
        (lambda t: t.update(task="astrology"), "unknown task"),
    ],
)
def test_a_summary_of_another_shape_is_refused_though_its_digests_fit(result, how, message):
    """Missing keys and other types ended in a traceback, wherever they were first used."""
    change(result, lambda tree: how(tree) and None, sealed=True)
    with pytest.raises(UserError, match=message):
        load_result(result)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda f: f.drop(columns="patient_id"), "no column patient_id"),
        (lambda f: f.drop(columns="probability"), "no column probability"),
        (lambda f: f.assign(probability="high"), "probability must hold numbers"),
        (lambda f: f.assign(probability=7.0), "probability outside of 0 to 1"),
        (lambda f: f.assign(label=2), "neither 0 nor 1"),
        (lambda f: f.assign(label=None), "neither 0 nor 1"),
        (lambda f: f.assign(status="fine"), "a status that is none of"),
        (lambda f: f.assign(case_id="same"), "the case_id of another row"),
        (lambda f: f.assign(patient_id=None), "have no patient_id"),
        (lambda f: f.assign(case_id=range(len(f))), "case_id must hold text"),
        (lambda f: f.assign(when=pd.Timestamp("2024-01-01")), "which no scores do"),
        (lambda f: f.iloc[:0], "no rows"),
    ],
)
def test_scores_that_the_task_cannot_have_written_are_refused(result, how, message):
    rewrite(result, how)
    with pytest.raises(UserError, match=message):
        load_result(result)


@pytest.mark.parametrize("text", ["[1]", "not json", '{"a": ' * 5000, "{}", ""])
def test_what_is_no_summary_is_refused(result, text):
    (result / "summary.json").write_text(text)
    with pytest.raises(UserError, match="summary of"):
        load_result(result)


def test_no_table_is_written_outside_of_its_folder(made, tmp_path):
    """A confusion matrix called '../../x' in a crafted summary left the folder of tables."""
    summary = dict(load_result(made / "classification" / "result").summary)
    summary["confusion"] = {"../../x": {"labels": ["a", "b"], "matrix": [[9, 8], [7, 6]]}}
    folder = tmp_path / "one" / "two" / "tables"
    written = write_tables(summary, folder)
    assert all(path.parent == folder for path in written)
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["two"]
    assert any(path.name.startswith("confusion_.._.._x") for path in written)


def test_a_step_of_the_flow_with_its_name_alone_is_shown(result, tmp_path):
    """The template took for granted what the schema does not ask for."""
    change(result, lambda tree: tree["flow"].append({"step": "the last step"}), sealed=True)
    report(result, out=tmp_path / "page.html")
    assert "the last step" in (tmp_path / "page.html").read_text()


def test_a_group_with_the_marks_of_a_formula_can_be_drawn(made, tmp_path):
    """matplotlib took a name with two dollar signs for a formula, and ended in its parser."""
    files = write_pair(tmp_path, *_named("$\\frac{1}$"))
    done = score(
        "classification",
        files.cohort,
        files.predictions,
        out=tmp_path / "r",
        resamples=0,
        group_by=("breast_density",),
    )
    report(done.path, figures=tmp_path / "figures")
    assert list((tmp_path / "figures").glob("*.svg"))


def _named(name: str):
    cases, said = binary_tables()
    return cases.assign(
        breast_density=[name if density == "a" else density for density in cases["breast_density"]]
    ), said
