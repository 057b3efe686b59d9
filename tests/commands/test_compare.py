"""`compare`: two models on the same cases."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from worlds.task_files import binary_tables, write_pair


@pytest.fixture(scope="module")
def two(run, tmp_path_factory):
    """Two models on one cohort, the first better."""
    folder = tmp_path_factory.mktemp("two")
    cases, strong = binary_tables(strength=3.0)
    _, weak = binary_tables(strength=0.5, seed=2)
    files = write_pair(folder, cases, strong, "strong")
    weak.sample(frac=1, random_state=1).to_csv(folder / "weak.csv", index=False)
    for name in ("strong", "weak"):
        done = run(
            "score",
            "classification",
            files.cohort,
            folder / f"{name}.csv",
            "--resamples",
            0,
            "--out",
            folder / name,
            "--json",
        )
        assert done.code == 0, done.said
    return folder


def test_the_difference_is_that_of_the_two_results(two, run, tmp_path):
    out = tmp_path / "comparison"
    done = run("compare", two / "strong", two / "weak", "--resamples", 200, "--out", out, "--json")
    assert done.code == 0, done.said
    rows = done.json["comparison"]["metrics"]
    values = [json.loads((two / n / "summary.json").read_text())["metrics"] for n in ("strong", "weak")]
    for name, row in rows.items():
        if row["difference"] is not None:
            assert row["difference"] == pytest.approx(
                values[0][name]["value"] - values[1][name]["value"], abs=1e-12
            )
    auroc = rows["auroc"]
    assert auroc["lo"] <= auroc["difference"] <= auroc["hi"]
    assert auroc["p"] < 0.01
    assert json.loads((out / "summary.json").read_text())["comparison"]["metrics"].keys() == rows.keys()
    assert (out / "report.html").exists()
    backwards = run("compare", two / "weak", two / "strong", "--resamples", 200, "--json").json
    assert backwards["comparison"]["metrics"]["auroc"]["difference"] == pytest.approx(
        -auroc["difference"], abs=1e-12
    )


def test_a_model_against_itself(two, run):
    done = run("compare", two / "strong", two / "strong", "--resamples", 50, "--json")
    rows = done.json["comparison"]["metrics"]
    assert rows["auroc"]["difference"] == 0
    assert rows["auroc"]["p"] in (None, 1.0)


def test_chosen_metrics_as_text(two, run):
    done = run("compare", two / "strong", two / "weak", "--metrics", "auroc,brier", "--resamples", 50)
    assert done.code == 0
    assert "auroc" in done.out
    assert "sensitivity" not in done.out
    wrong = run("compare", two / "strong", two / "weak", "--metrics", "aurok")
    assert wrong.code == 64
    assert "auroc" in wrong.err


def test_other_cases_are_refused(two, run, tmp_path, results):
    _, other, _ = results("response")
    done = run("compare", two / "strong", other)
    assert done.code == 64
    assert "response" in done.err
    cases, said = binary_tables(patients=40)
    files = write_pair(tmp_path, cases, said)
    assert (
        run(
            "score",
            "classification",
            files.cohort,
            files.predictions,
            "--resamples",
            0,
            "--out",
            tmp_path / "o",
        ).code
        == 0
    )
    done = run("compare", two / "strong", tmp_path / "o")
    assert done.code == 64
    assert "same cases" in done.err
    done = run("compare", two / "strong", tmp_path / "nowhere")
    assert done.code == 64
    assert "nowhere" in done.err


def test_the_threshold_of_the_result_is_kept(two, run, tmp_path):
    cohort = two / "cohort.csv"
    for name in ("strong", "weak"):
        done = run(
            "score",
            "classification",
            cohort,
            two / f"{name}.csv",
            "--threshold",
            0.3,
            "--resamples",
            0,
            "--out",
            tmp_path / name,
            "--json",
        )
        assert done.code == 0
    rows = run("compare", tmp_path / "strong", tmp_path / "weak", "--resamples", 0, "--json").json[
        "comparison"
    ]["metrics"]
    table = pd.read_csv(two / "strong.csv").merge(pd.read_csv(cohort), on="case_id")
    sick = table[table["label"] == 1]
    assert rows["sensitivity"]["a"] == pytest.approx((sick["probability"] >= 0.3).mean())
