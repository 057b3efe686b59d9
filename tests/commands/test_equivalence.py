"""`equivalence`: Welch TOST from group summaries, and bootstrap from results."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from worlds.task_files import binary_tables, write_pair


def test_vectors_of_toster(vectors_dir, run, tmp_path):
    inputs = pd.read_csv(vectors_dir / "tost/inputs.csv")
    expected = json.loads((vectors_dir / "tost/expected.json").read_text())
    usable = [
        row
        for row in inputs.itertuples()
        if not row.var_equal and row.alpha == 0.05 and isinstance(expected[row.name]["TOST_df"], float)
    ]
    assert usable
    table = pd.DataFrame(
        [
            {
                "mean_1": r.m1,
                "sd_1": r.sd1,
                "n_1": r.n1,
                "mean_2": r.m2,
                "sd_2": r.sd2,
                "n_2": r.n2,
                "low": r.low_eqbound,
                "high": r.high_eqbound,
            }
            for r in usable
        ]
    )
    table.to_csv(tmp_path / "means.csv", index=False)
    out = tmp_path / "tost.csv"
    done = run("equivalence", "--means", tmp_path / "means.csv", "--out", out, "--json")
    assert done.code == 0, done.said
    rows = done.json["rows"]
    written = pd.read_csv(out)
    assert list(written.columns[-6:]) == ["difference", "lo90", "hi90", "df", "p", "equivalent"]
    for row, given in zip(rows, usable, strict=True):
        want = expected[given.name]
        assert row["difference"] == pytest.approx(want["diff"], abs=1e-12)
        assert row["df"] == pytest.approx(want["TOST_df"], abs=1e-8)
        assert row["lo90"] == pytest.approx(want["LL_CI_TOST"], abs=1e-9)
        assert row["hi90"] == pytest.approx(want["UL_CI_TOST"], abs=1e-9)
        assert row["p"] == pytest.approx(want["ptost_max_p"], abs=1e-9)
        assert row["equivalent"] is (want["ptost_max_p"] < 0.05)


def test_margins_of_means(run, tmp_path):
    table = pd.DataFrame(
        {"mean_1": [0.90, 0.80], "sd_1": 0.02, "n_1": 5, "mean_2": [0.89, 0.84], "sd_2": 0.02, "n_2": 5}
    )
    file = tmp_path / "means.csv"
    table.to_csv(file, index=False)
    missing = run("equivalence", "--means", file)
    assert missing.code == 64
    assert "low" in missing.err
    fixed = run("equivalence", "--means", file, "--margin", 0.1, "--json").json["rows"]
    assert [row["high"] for row in fixed] == [0.1, 0.1]
    study = run("equivalence", "--means", file, "--margin", "study", "--json").json
    assert study["study_margin"]
    assert run("equivalence", "--means", file, "--margin", "wide").code == 64
    assert run("equivalence", "--means", file, "--margin", -1).code == 64
    table.assign(sd_1="x", low=-1, high=1).to_csv(file, index=False)
    bad = run("equivalence", "--means", file)
    assert bad.code == 64
    assert "sd_1" in bad.err
    assert "row 1" in bad.err


@pytest.fixture(scope="module")
def hospitals(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospitals")
    for name, strength, seed in (("home", 2.5, 1), ("same", 2.5, 5), ("worse", 0.3, 6)):
        files = write_pair(folder / name, *binary_tables(patients=300, strength=strength, seed=seed))
        done = run(
            "score",
            "classification",
            files.cohort,
            files.predictions,
            "--resamples",
            0,
            "--out",
            folder / f"{name}_result",
        )
        assert done.code == 0, done.said
    return folder


@pytest.mark.parametrize(("here", "word", "code"), [("same", "EQUIVALENT", 0), ("worse", "BELOW", 2)])
def test_two_results(hospitals, run, here, word, code, tmp_path):
    arguments = (
        "equivalence",
        hospitals / f"{here}_result",
        hospitals / "home_result",
        "--margin",
        0.1,
        "--resamples",
        100,
    )
    done = run(*arguments, "--out", tmp_path / "v.json", "--json")
    assert done.code == code, done.said
    assert done.json["verdict"]["word"] == word
    assert done.json["metric"] == "auroc"
    assert json.loads((tmp_path / "v.json").read_text())["verdict"]["word"] == word
    assert f"verdict: {word}" in run(*arguments).out


def test_a_verdict_on_few_patients_carries_the_domain_warning(hospitals, run, tmp_path):
    """Verdicts look at the domain of the promised coverage: the console and the json name the side."""
    files = write_pair(tmp_path / "few", *binary_tables(patients=40, strength=2.0, seed=8))
    few = tmp_path / "few_result"
    done = run("score", "classification", files.cohort, files.predictions, "--resamples", 0, "--out", few)
    assert done.code == 0, done.said
    arguments = ("equivalence", few, hospitals / "home_result", "--margin", 0.1, "--resamples", 50)
    said = run(*arguments, "--json").json["verdict"]["claims"][0]["warnings"]
    assert [text for text in said if text.startswith("Here: Outside the domain")]
    assert "warning: Here: Outside the domain" in run(*arguments).out
    plenty = run("equivalence", hospitals / "same_result", hospitals / "home_result", "--margin", 0.1)
    assert "Outside the domain" not in plenty.out


def test_a_verdict_on_a_small_site_says_so_on_the_console(run, tmp_path):
    """`score --reference-site`: the claim's own sentence about its side is printed above the verdict."""
    files = write_pair(tmp_path / "few", *binary_tables(patients=40, strength=2.0, seed=8))
    done = run(
        "score",
        "classification",
        files.cohort,
        files.predictions,
        "--reference-site",
        "north",
        "--margin",
        0.2,
        "--resamples",
        50,
        "--out",
        tmp_path / "result",
    )
    assert "warning: Here: Outside the domain" in done.out, done.said


def test_without_resamples_and_not_assessed_as_text(hospitals, run):
    arguments = ("equivalence", hospitals / "same_result", hospitals / "home_result", "--margin", 0.1)
    assert run(*arguments, "--metric", "ppv", "--resamples", 50).code == 4
    done = run(*arguments, "--metric", "balanced_accuracy", "--resamples", 0)
    assert done.code in (0, 3, 4), done.said


def test_two_parts_of_one_result(hospitals, run):
    one = hospitals / "home_result"
    done = run(
        "equivalence",
        one,
        "--split-by",
        "site",
        "--reference",
        "north",
        "--margin",
        0.9,
        "--resamples",
        50,
        "--json",
    )
    assert done.code == 0, done.said
    for wrong in (
        ("--split-by", "sites", "--reference", "north"),
        ("--split-by", "site", "--reference", "nord"),
        ("--split-by", "site"),
        ("--split-by", "dataset", "--reference", "cohort"),
        (),
    ):
        refused = run("equivalence", one, *wrong, "--margin", 0.1)
        assert refused.code == 64, wrong
    assert run("equivalence", one, one).code == 64
    assert run("equivalence", one, one, "--margin", 0.1, "--metric", "aurok").code == 64
    assert run("equivalence", one, "--means", "x.csv").code == 64


def test_results_that_share_patients_are_not_taken_for_independent(run, tmp_path):
    """The same result twice, and a second model on the same patients: paired, with a warning that counts them."""
    cases, said = binary_tables(patients=120)
    for name, values in (("a", said["probability"]), ("b", 0.9 * said["probability"])):
        folder = tmp_path / name
        folder.mkdir()
        files = write_pair(folder, cases, said.assign(probability=values))
        done = run("score", "classification", files.cohort, files.predictions, "--resamples", 50,
                   "--out", folder / "out")  # fmt: skip
        assert done.code == 0, done.said
    for metric in ("auroc", "brier", "f1"):
        same = run(
            "equivalence",
            tmp_path / "a/out",
            tmp_path / "a/out",
            "--margin",
            0.05,
            "--metric",
            metric,
            "--json",
        )
        (claim,) = same.json["verdict"]["claims"]
        assert claim["difference"] == 0
        assert any("120 patients are in both results" in w for w in claim["warnings"]), metric
        if metric == "auroc":
            assert same.code == 0
            assert max(abs(claim["lo"]), abs(claim["hi"])) < 0.03
    other = run("equivalence", tmp_path / "a/out", tmp_path / "b/out", "--margin", 0.05)
    assert "120 patients are in both results" in other.said


def test_results_of_two_tasks_are_refused(run, results):
    _, a, _ = results("classification")
    _, b, _ = results("response")
    done = run("equivalence", a, b, "--margin", 0.05)
    assert done.code == 64
    assert "two tasks, classification and response" in done.said
