"""`generalise`, `slides patch-scores` and `phantom patch-scores`: end to end, what is written, and bad options."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PRINTED = Path(__file__).parents[1] / "golden" / "lymph_nodes_equivalence.csv"


@pytest.fixture(scope="module")
def scores(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("generalise") / "scores.csv"
    done = run(
        "phantom",
        "patch-scores",
        path,
        "--internal",
        40,
        "--external",
        25,
        "--models",
        7,
        "--seed",
        3,
        "--drop",
        0.5,
    )
    assert done.code == 0, done.said
    return path


def test_many_models_end_to_end(run, scores, tmp_path):
    out = tmp_path / "verdicts"
    done = run(
        "generalise", scores, "--margin", "dice=0.08,fpr=0.004", "--by", "stage", "--standardise", "stage",
        "--reference", "histopathology-natural", "--ensembles", "--resamples", 200, "--out", out,
    )  # fmt: skip
    assert done.code == 0, done.said
    for line in (
        "7 models, 5 folds; internal: 40 slides of 40 patients, external: 25 slides of 25 patients",
        "margin of dice: 0.080 (declared)",
        "dice, external - internal, by patient",
        "by fold (Welch TOST, the study's test), dice: equivalent",
        "reliably better than histopathology-natural",
        "members chosen on other patients",
        "Among 7 models that all lie exactly on the margin, about 0.35 would pass by chance",
        "warning: Outside the domain of promised coverage: False-positive rate",
    ):
        assert line in done.out, line
    names = {file.name for file in out.iterdir()}
    assert names >= {
        "summary.json",
        "report.html",
        "verdicts.csv",
        "models.csv",
        "ensembles.csv",
        "SHARING.txt",
    }
    verdicts = pd.read_csv(out / "verdicts.csv")
    assert set(verdicts["stratum"]) == {"all", "macro", "micro", "itc", "negative"} and len(verdicts) == 7 * 9
    summary = json.loads((out / "summary.json").read_text())
    assert summary["generalise"]["rows"][0]["lo"] == pytest.approx(verdicts["lo"][0])
    page = (out / "report.html").read_text()
    for words in (
        "Verdicts by patient",
        "The study&#39;s test by fold",
        "Ensembles",
        "At the internal mix",
        "0 of 7",
    ):
        assert words in page or words.replace("&#39;", "'") in page, words
    for text in (page, (out / "summary.json").read_text(), (out / "verdicts.csv").read_text()):
        assert "slide-0" not in text and "out-0" not in text


def test_the_same_seed_gives_the_same_numbers_and_json_is_one_object(run, scores):
    first, second = (
        run("generalise", scores, "--margin", "study", "--resamples", 100, "--json").json for _ in range(2)
    )
    assert first == second
    assert first["generalise"]["margins"][0]["source"] == "study"


def test_the_lymph_node_study_in_one_command(run, tmp_path):
    done = run("generalise", "--means", PRINTED, "--out", tmp_path / "study")
    assert done.code == 0, done.said
    for line in (
        "tumor (dice), 21 models, internal - external: margin 0.079",
        "equivalent: 5 of 21: histopathology-0, histopathology-40, imagenet-0, imagenet-50, single-natural",
        "normal (fpr), 21 models, internal - external: margin 0.006",
        "equivalent: 5 of 21: histopathology-0, histopathology-natural, imagenet-natural, single-30, single-natural",
        "non-inferior: 21 of 21",
        "undecidable within rounding: single-30",
        "warning: This margin was made from the same differences that it judges",
    ):
        assert line in done.out, line
    assert "5 + 5" in (tmp_path / "study" / "report.html").read_text()
    assert len(pd.read_csv(tmp_path / "study" / "models.csv")) == 42


def test_from_rows_of_patches_to_verdicts(run, tmp_path):
    rng = np.random.default_rng(0)
    n = 3000
    case = rng.integers(0, 20, n)
    tumour = rng.random(n) < 0.4
    rows = pd.DataFrame(
        {
            "case_id": [f"case{i}" for i in case],
            "model": rng.choice(["a", "b"], n),
            "fold": rng.choice(["1", "2", "3"], n),
            "dice": np.where(tumour, rng.uniform(0.5, 1, n), np.nan),
            "fpr": np.where(tumour, np.nan, rng.uniform(0, 0.1, n)),
        }
    )
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    pd.DataFrame(
        {
            "case_id": [f"case{i}" for i in range(20)],
            "site": ["A", "B"] * 10,
            "patient_id": np.arange(20) // 2 * 2 + np.arange(20) % 2,
        }
    ).to_csv(tmp_path / "slides.csv", index=False)
    table = tmp_path / "scores.parquet"
    done = run(
        "slides", "patch-scores", tmp_path / "rows.parquet", table, "--slides", tmp_path / "slides.csv"
    )
    assert done.code == 0 and "3,000 rows of patches, 20 slides, 2 models" in done.out, done.said
    judged = run(
        "generalise", table, "--id", "site=A", "--margin", "dice=0.5", "--margin", "fpr=0.5", "--json"
    ).json
    assert {row["verdict"] for row in judged["generalise"]["models"]} == {"EQUIVALENT"}
    assert run("slides", "patch-scores", tmp_path / "rows.parquet", table).code == 64
    assert run("slides", "patch-scores", tmp_path / "rows.parquet", table, "--replace").code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "no margin was given"),
        (("--margin", "0"), "the margin is 0"),
        (("--margin", "study", "--by", "grade"), "grade"),
        (("--margin", "study", "--reference", "best"), "best"),
        (("--margin", "study", "--ratio-margin", "0.9"), "the ratio margin is 0.9"),
        (("--margin", "study", "--id", "domain"), "'domain' is not COLUMN=VALUE"),
        (("--margin", "study", "--weight", "pixels"), "pixels"),
        (("--margin", "study", "--folds", "some"), "some"),
        (
            ("--margin", "study", "--means", str(PRINTED)),
            "generalise takes a table of patch scores, or --means",
        ),
        (("--margin", "study", "--alpha", "0.7"), "alpha"),
    ],
)
def test_bad_options_are_named(run, scores, options, words):
    done = run("generalise", scores, *options)
    assert done.code == 64 and words in done.err, done.said
    assert "Traceback" not in done.said


def test_other_tables_and_nothing_are_refused(run, tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    done = run("generalise", tmp_path / "x.csv", "--margin", "study")
    assert done.code == 64 and "case_id" in done.err
    assert run("generalise").code == 64
    assert run("phantom", "patch-scores", tmp_path / "s.csv", "--thresholds", "0.5,2").code == 64
    assert run("phantom", "patch-scores", tmp_path / "s.csv", "--thresholds", "x").code == 64
    assert not (tmp_path / "s.csv").exists()


def test_thresholds_are_carried_over(run, tmp_path):
    path = tmp_path / "scores.csv"
    done = run(
        "phantom",
        "patch-scores",
        path,
        "--models",
        2,
        "--internal",
        30,
        "--external",
        20,
        "--thresholds",
        "0.3,0.5,0.7",
    )
    assert done.code == 0, done.said
    done = run("generalise", path, "--margin", "study", "--resamples", 100, "--out", tmp_path / "out")
    assert "operating point of histopathology-natural: threshold 0.5 fixed on internal slides" in done.out, (
        done.said
    )
    assert "Operating point carried over" in (tmp_path / "out" / "report.html").read_text()


def test_the_page_again_with_tables_for_a_paper(run, scores, tmp_path):
    out = tmp_path / "verdicts"
    done = run("generalise", scores, "--margin", "dice=0.08,fpr=0.004", "--resamples", 0, "--out", out)
    assert done.code == 0, done.said
    before = (out / "report.html").read_bytes()
    done = run("report", out, "--tables", tmp_path / "tables")
    assert done.code == 0, done.said
    assert (out / "report.html").read_bytes() == before
    table = pd.read_csv(tmp_path / "tables" / "generalise_fpr.csv")
    summary = json.loads((out / "summary.json").read_text())
    row = next(row for row in summary["generalise"]["rows"] if row["metric"] == "fpr")
    assert len(table) == 7 and table["difference"][0] == row["difference"]
    tex = (tmp_path / "tables" / "generalise_fpr.tex").read_text()
    assert f"{row['internal']:.4f}" in tex


@pytest.mark.parametrize("rows", [5, "text", [1, None], [{"metric": ["x"]}], [{"metric": "dice", "lo": "x"}]])
def test_a_summary_that_somebody_changed_gives_no_traceback(run, tmp_path, rows):
    summary = {"task": "many models at two domains", "generalise": {"rows": rows, "models": [{"model": 3}]}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    done = run("report", tmp_path, "--out", tmp_path / "page.html")
    assert done.code in (0, 64), done.said
    assert "Traceback" not in done.said
    if done.code:
        assert "something else" in done.err and not (tmp_path / "page.html").exists()


def test_a_table_of_models_has_their_shares_and_clusterings(run, scores, tmp_path):
    names = sorted(set(pd.read_csv(scores)["model"]))
    pd.DataFrame({"model": names, "pt": range(len(names)), "set": list("aabbccc")}).to_csv(
        tmp_path / "models.csv", index=False
    )
    options = ("--margin", "0.1", "--resamples", 0, "--models", tmp_path / "models.csv")
    done = run("generalise", scores, *options, "--share", "pt", "--clustering", "set", "--json")
    kinds = done.json["generalise"]["kinds"]
    assert kinds["source"] == "the table of models"
    assert {row["value"] for row in kinds["rows"] if row["by"] == "clustering"} == {"a", "b", "c"}
    assert run("generalise", scores, *options, "--share", "pd").code == 64
    assert run("generalise", scores, "--margin", "0.1", "--share", "pt").code == 64
    assert run("generalise", "--means", PRINTED, "--models", tmp_path / "models.csv").code == 64


FIGURE_8 = pd.DataFrame(
    {
        "name": ["Generalizing", "Generalizing (T&N)"],
        "sensitivity": [0.909, 0.846],
        "specificity": [0.622, 0.767],
        "positive": 105,
        "negative": 110,
        "itc": 22,
    }
)
"""The rates of figure 8 of the lymph-node study, and its numbers of slides."""


def test_printed_rates_give_the_known_answers_under_both_rules(run, tmp_path):
    FIGURE_8.to_csv(tmp_path / "rates.csv", index=False)
    done = run("generalise", "--means", PRINTED, "--rates", tmp_path / "rates.csv", "--out", tmp_path / "out")
    assert done.code == 0, done.said
    assert "Generalizing             0.787 / 0.758, 0.776 / 0.748" in done.out
    assert pd.read_csv(tmp_path / "out" / "slide_rates.csv")["left_out_f1"].round(3)[0] == 0.758
    assert "F1, ITC left out" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sensitivity": ["90.9", "0.8"]}, "sensitivity is not a rate from 0 to 1 in row 2"),
        ({"negative": [110.5, 110]}, "negative is not a number of slides in row 2"),
        ({"positive": [105, 0]}, "positive is not a number of slides in row 3"),
        ({"itc": ["many", "22"]}, "itc"),
    ],
)
def test_printed_rates_that_are_none(run, tmp_path, change, words):
    FIGURE_8.assign(**change).to_csv(tmp_path / "rates.csv", index=False)
    done = run("generalise", "--means", PRINTED, "--rates", tmp_path / "rates.csv")
    assert done.code == 64 and words in done.err


def test_rates_go_with_printed_differences(run, scores, tmp_path):
    FIGURE_8.to_csv(tmp_path / "rates.csv", index=False)
    done = run("generalise", scores, "--rates", tmp_path / "rates.csv")
    assert done.code == 64 and "--rates is about printed rates" in done.err
