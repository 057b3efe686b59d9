"""`readers`: a workbook and result folders end to end, the verdict, what is written, and bad options."""

from __future__ import annotations

import json

import numpy as np
import openpyxl
import pandas as pd
import pytest

import elsewhere
from elsewhere.phantom.reader_study import ReaderWorld, draw_reader_study, write_reader_study


@pytest.fixture(scope="module")
def workbook(tmp_path_factory):
    """A study of marks with a planted effect, whose case ids are long enough to be noticed in a text."""
    path = tmp_path_factory.mktemp("readers") / "study.xlsx"
    study = draw_reader_study(ReaderWorld(effect=0.6, model=True), np.random.default_rng(3))
    return write_reader_study(study, path)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Two methods with three trainings each, scored on the same 80 cases of 40 patients."""
    folder = tmp_path_factory.mktemp("trainings")
    rng = np.random.default_rng(1)
    label = (rng.random(80) < 0.4).astype(int)
    cohort = pd.DataFrame(
        {
            "case_id": [f"case{i}" for i in range(80)],
            "patient_id": [f"patient{i // 2}" for i in range(80)],
            "label": label,
        }
    )
    hard = rng.normal(size=80)
    for method, strength in {"cnn": 1.2, "vit": 2.6}.items():
        for seed in range(3):
            logit = strength * (label - 0.5) + hard + rng.normal(0, 0.7, 80)
            said = pd.DataFrame({"case_id": cohort["case_id"], "probability": 1 / (1 + np.exp(-logit))})
            result = elsewhere.score("classification", cohort, said, resamples=0)
            result.save(folder / method / f"{method}-{seed}")
    return folder


def test_a_workbook_end_to_end(run, workbook, tmp_path):
    out = tmp_path / "analysis"
    done = run("readers", workbook, "--model", "AI", "--out", out)
    assert done.code == 0, done.said
    for line in (
        "wAFROC: lesions by weight against the highest non-lesion mark of each normal case",
        "2 treatments, 5 readers, crossed; 100 cases of 100 patients, 40 positive; jackknife over cases",
        "analysis of variance",
        "  Treatment x reader       df 4",
        "random readers and random cases, 95 % intervals",
        "  test of the treatments: F ",
        "fixed readers and random cases, 95 % intervals",
        "AI and 5 readers, unaided",
    ):
        assert line in done.out
    names = {file.name for file in out.iterdir()}
    assert names >= {"summary.json", "report.html", "SHARING.txt", "anova.csv", "readers.csv", "panel.csv"}
    summary = json.loads((out / "summary.json").read_text())
    part = summary["readers"]
    assert [row["df"] for row in part["anova"]] == [1, 4, 4]
    assert set(part["analyses"]) == {"readers,cases", "cases", "readers"}
    assert part["analyses"]["cases"]["test"]["df2"] is None
    assert len(part["per_reader"]) == 10 and len(part["panel"]) == 2
    readers = pd.read_csv(out / "readers.csv")
    assert readers["value"].tolist() == pytest.approx([row["value"] for row in part["per_reader"]])
    means = readers.groupby("treatment")["value"].mean()
    difference = part["analyses"]["readers,cases"]["differences"][0]
    assert difference["value"] == pytest.approx(means["aided"] - means["unaided"])
    page = (out / "report.html").read_text()
    for words in (
        "Test that all treatments are equal",
        "Analysis of variance",
        "The model and the readers",
        "Cov3",
    ):
        assert words in page
    assert "C0001" not in page and "C0001" not in (out / "summary.json").read_text()
    assert "Hillis (2007)" in summary["methods"]


def test_json_is_the_summary(run, workbook, tmp_path):
    done = run("readers", workbook, "--use-readers", "1,2,3", "--fom", "hr-auc", "--json")
    assert done.code == 0
    found = done.json
    assert found["readers"]["figure"]["name"] == "inferred_roc" and found["counts"]["readers"] == 3


def test_the_planted_effect_is_non_inferior(run, workbook):
    done = run("readers", workbook, "--use-readers", "1,2,3,4,5", "--non-inferiority-margin", "0.001")
    assert done.code == 0 and "margin 0.001: non-inferior" in done.out and "verdict: ABOVE" in done.out


def test_sensitivity_at_a_rating(run, workbook):
    options = ("readers", workbook, "--model", "AI", "--fom", "sensitivity")
    assert run(*options).code == 64
    done = run(*options, "--threshold", "70", "--json")
    assert done.json["readers"]["figure"]["title"] == "Sensitivity at 70"


def test_the_verdict_turns_round_with_the_reference(run, workbook):
    options = (
        "readers",
        workbook,
        "--use-readers",
        "1,2,3,4,5",
        "--non-inferiority-margin",
        "0.01",
        "--json",
    )
    there = run(*options)
    back = run(*options, "--reference", "aided")
    (one,), (other,) = there.json["verdict"]["claims"], back.json["verdict"]["claims"]
    assert one["difference"] == pytest.approx(-other["difference"])
    assert (one["lo"], one["hi"]) == pytest.approx((-other["hi"], -other["lo"]))
    assert (one["word"], other["word"]) == ("ABOVE", "BELOW")
    assert (there.code, back.code) == (0, 2)


def test_lower_is_better_for_false_marks(run, workbook):
    done = run("readers", workbook, "--fom", "max-nlf", "--use-readers", "1,2,3", "--json")
    assert done.json["readers"]["figure"]["higher_is_better"] is False


def test_trainings_of_two_methods(run, trainings, tmp_path):
    out = tmp_path / "analysis"
    done = run(
        "readers", "--treatment", f"cnn={trainings / 'cnn'}", "--treatment", f"vit={trainings / 'vit'}",
        "--fom", "auc", "--out", out, "--json",
    )  # fmt: skip
    assert done.code == 0, done.said
    part = done.json["readers"]
    assert (part["design"], part["readers_are"], part["left_out"]) == ("nested", "trainings", "patient")
    assert [row["source"] for row in part["anova"]] == ["Treatment", "Reader within treatment"]
    for row in part["per_reader"]:
        one = elsewhere.load_result(trainings / row["treatment"] / row["reader"])
        assert row["value"] == pytest.approx(one.metrics["auroc"]["value"], abs=1e-12)
        assert row["se"] == pytest.approx(_delong_se(one), rel=0.1)
    assert part["covariances"]["cov1"] is None
    assert "Reader within treatment" in (out / "report.html").read_text()
    assert "Hillis (2014" in done.json["methods"]


def _delong_se(result):
    from elsewhere.statistics.auroc import auroc_components

    cases = result.scores.cases
    patient = pd.factorize(cases["patient_id"])[0]
    return np.sqrt(auroc_components(cases["label"].astype(int), cases["probability"], patient).variance()[0])


def test_trainings_with_the_same_names_are_crossed_unless_said_otherwise(run, trainings, tmp_path):
    import shutil

    for method in ("cnn", "vit"):
        for seed in range(2):
            shutil.copytree(trainings / method / f"{method}-{seed}", tmp_path / method / f"seed{seed}")
    treatments = [f"--treatment={method}={tmp_path / method}" for method in ("cnn", "vit")]
    assert run("readers", *treatments, "--json").json["readers"]["design"] == "crossed"
    nested = run("readers", *treatments, "--design", "nested", "--json").json["readers"]
    assert nested["design"] == "nested"
    crossed = run(
        "readers", *[f"--treatment={m}={trainings / m}" for m in ("cnn", "vit")], "--design", "crossed"
    )
    assert crossed.code == 64 and "other readers: cnn-0, cnn-1" in crossed.err


def test_one_training_as_a_model_against_the_others(run, trainings):
    done = run("readers", "--treatment", f"cnn={trainings / 'cnn'}", "--model", "cnn-1", "--json")
    (panel,) = done.json["readers"]["panel"]
    assert panel["model"] == "cnn-1" and panel["readers"] == 2


def test_one_reader_alone(run, workbook):
    done = run("readers", workbook, "--use-readers", "2")
    assert done.code == 0
    assert "the conclusion is about this reader alone" in done.out
    assert "fixed readers and random cases" in done.out.split("random readers and random cases")[0]
    done = run("readers", workbook, "--use-readers", "2", "--random", "readers")
    assert done.code == 64 and "there is one reader" in done.err


def test_without_arguments_the_cohort_readers_are_listed(run):
    done = run("readers")
    assert done.code == 0 and "bcs-dbt" in done.out
    assert {"name", "about"} <= set(run("readers", "--json").json["readers"][0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fom", "wafrok"], "unknown figure of merit 'wafrok'"),
        (["--fom", "auc"], "needs a study of the paradigm ROC"),
        (["--random", "everything"], "unknown random factor 'everything'"),
        (["--reference", "with"], "unknown treatment 'with'"),
        (["--model", "A1"], "unknown model 'A1'"),
        (["--use-readers", "9"], "unknown reader '9'"),
        (["--paradigm", "LROC"], "unknown paradigm 'LROC'"),
        (["--paradigm", "ROC", "--use-readers", "1,2"], "rating for"),
        (["--design", "split"], "unknown design 'split'"),
        (["--leave-out", "reader"], "unknown leave-out 'reader'"),
        (["--on-invalid", "worst"], "unknown on-invalid 'worst'"),
        (["--level", "95"], "level of the intervals is 95"),
        (["--non-inferiority-margin", "-0.1"], "margin is -0.1"),
        (["--non-inferiority-margin", "0.1", "--alpha", "0.7"], "alpha"),
        (["--treatment", "a=b"], "a workbook, or result folders"),
        (["--treatment", "folder"], "'folder' is not NAME=FOLDER"),
        (["--use-treatments", "unaided", "--non-inferiority-margin", "0.1"], "nothing to compare"),
    ],
)
def test_options_that_do_not_fit(run, workbook, options, message):
    more = () if "--use-readers" in options or "--model" in options else ("--use-readers", "1,2,3,4,5")
    done = run("readers", workbook, *more, *options)
    assert done.code == 64 and message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (["cnn=absent"], "there is no such folder"),
        (["cnn=."], "there is no result in this folder"),
        (["cnn={0}/cnn", "vit={0}/cnn/cnn-0"], "a result is given twice"),
        (["cnn={0}/cnn", "vit={0}/vit/vit-0"], "different numbers of readers (cnn: 3, vit: 1)"),
    ],
)
def test_folders_that_do_not_fit(run, trainings, tmp_path, monkeypatch, folders, message):
    monkeypatch.chdir(tmp_path)
    options = [f"--treatment={folder.format(trainings)}" for folder in folders]
    done = run("readers", *options)
    assert done.code == 64 and message in done.err


def test_results_of_other_cases(run, trainings, tmp_path):
    cohort = pd.DataFrame(
        {"case_id": ["a", "b", "c", "d"], "patient_id": list("abcd"), "label": [0, 1, 0, 1]}
    )
    said = pd.DataFrame({"case_id": cohort["case_id"], "probability": [0.1, 0.9, 0.2, 0.8]})
    elsewhere.score("classification", cohort, said, resamples=0).save(tmp_path / "other")
    done = run(
        "readers", f"--treatment=cnn={trainings / 'cnn' / 'cnn-0'}", f"--treatment=new={tmp_path / 'other'}"
    )
    assert done.code == 64 and "not of the same cases" in done.err and "new, other" in done.err


def test_a_metric_that_is_undefined(run, trainings):
    done = run("readers", f"--treatment=cnn={trainings / 'cnn'}", "--fom", "dise")
    assert done.code == 64 and "unknown metric 'dise'" in done.err


def test_marks_that_are_left_out_are_counted(run, workbook, tmp_path):
    book = openpyxl.load_workbook(workbook)
    book["FP"].append(["1", "aided", "nobody", 50.0])
    book.save(tmp_path / "study.xlsx")
    done = run("readers", tmp_path / "study.xlsx", "--model", "AI")
    assert done.code == 64 and "not in the truth" in done.err
    done = run("readers", tmp_path / "study.xlsx", "--model", "AI", "--on-invalid", "skip", "--json")
    assert done.code == 0 and done.json["counts"]["marks_of_unknown_cases"] == 1
    assert "left out" in done.json["warnings"][0]


def test_numbers_as_case_ids_take_nothing_out_of_the_tables(run, tmp_path):
    """Case 1 and reader 1 are different things: the page keeps the readers' names."""
    study = draw_reader_study(ReaderWorld(readers=3, normal=12, diseased=10), np.random.default_rng(5))
    path = write_reader_study(study, tmp_path / "study.xlsx")
    book = openpyxl.load_workbook(path)
    for sheet in book.worksheets:
        column = [cell.value for cell in sheet[1]].index("CaseID") + 1
        for row in range(2, sheet.max_row + 1):
            cell = sheet.cell(row, column)
            cell.value = int(str(cell.value)[1:])
    book.save(path)
    found = run("readers", path, "--json").json
    assert [row["reader"] for row in found["readers"]["per_reader"]] == ["1", "2", "3"] * 2
    assert "[id" not in json.dumps(found)


def test_what_was_written_is_replaced_only_when_asked(run, workbook, tmp_path):
    options = ("readers", workbook, "--use-readers", "1,2", "--out", tmp_path / "out")
    assert run(*options).code == 0
    assert run(*options).code == 64
    assert run(*options, "--replace").code == 0


def test_the_phantom(run, tmp_path):
    out = tmp_path / "study.xlsx"
    done = run(
        "phantom", "reader-study", out, "--paradigm", "roc", "--readers", "3", "--form", "older", "--json"
    )
    assert done.json["counts"] == {"cases": 100, "lesions": 40, "readers": 3, "treatments": 2, "marks": 600}
    assert run("readers", out, "--json").json["readers"]["figure"]["name"] == "auroc"
    assert run("phantom", "reader-study", out).code == 64
    assert run("phantom", "reader-study", tmp_path / "x.xlsx", "--form", "new").code == 64
