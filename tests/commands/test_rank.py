"""`rank`: folders of prediction files, result folders, and files that failed."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.analysis.result.storage import reseal
from worlds.task_files import binary_tables


@pytest.fixture(scope="module")
def submissions(tmp_path_factory):
    """Four models of falling strength, one with the strongest one's answers, one broken, one constant."""
    folder = tmp_path_factory.mktemp("rank")
    cases, best = binary_tables(patients=120, strength=4.0, target="pcr")
    cases.to_csv(folder / "cohort.csv", index=False)
    files = folder / "submissions"
    files.mkdir()
    best.to_csv(files / "best.csv", index=False)
    best.to_csv(files / "twin.csv", index=False)
    for name, strength in (("middle", 2.0), ("poor", 0.1)):
        binary_tables(patients=120, strength=strength, seed=7, target="pcr")[1].to_csv(
            files / f"{name}.csv", index=False
        )
    best.assign(probability=0.8).to_csv(files / "constant.csv", index=False)
    (files / "broken.csv").write_text("case_id,probability\nC0000,much\n")
    (files / ".hidden").write_text("no submission")
    return folder


def ranked(run, folder, *more):
    done = run(
        "rank",
        folder / "submissions",
        "--cohort",
        folder / "cohort.csv",
        "--task",
        "response",
        "--resamples",
        100,
        *more,
        "--json",
    )
    assert done.code in (0, 5), done.said
    return done.json


def test_a_folder_of_files_with_ties_and_failures(submissions, run, tmp_path):
    out = tmp_path / "ranking"
    found = ranked(run, submissions, "--protocol", "mamamia-paper", "--out", out)
    part = found["ranking"]
    assert part["metric"] == "combined"
    rows = {row["model"]: row for row in part["table"]}
    assert set(rows) == {"best", "twin", "middle", "poor"}
    assert rows["best"]["rank"] == rows["twin"]["rank"]
    assert rows["best"]["value"] == rows["twin"]["value"]
    assert rows["best"]["tier"] == rows["twin"]["tier"]
    for row in rows.values():
        assert row["rank_lo"] <= row["rank"] <= row["rank_hi"]
    failed = {entry["model"]: entry["why"] for entry in part["failed"]}
    assert set(failed) == {"broken.csv", "constant.csv"}
    assert "much" in failed["broken.csv"]
    assert "constant" in failed["constant.csv"]
    assert found["counts"] == {"cases": 120, "patients": 120, "entries": 6, "models": 4, "failed": 2}
    assert part["fairness_weight"]
    assert json.loads((out / "summary.json").read_text())["ranking"]["failed"]
    assert "broken.csv" in (out / "report.html").read_text()


def test_a_case_without_an_outcome_is_not_counted(submissions, run, tmp_path):
    cases = pd.read_csv(submissions / "cohort.csv")
    cases.loc[3, "pcr"] = np.nan
    cases.to_csv(tmp_path / "cohort.csv", index=False)
    files = tmp_path / "submissions"
    files.mkdir()
    pd.read_csv(submissions / "submissions" / "best.csv").to_csv(files / "best.csv", index=False)
    found = ranked(run, tmp_path)
    assert found["counts"] == {"cases": 119, "patients": 119, "entries": 1, "models": 1, "failed": 0}


def test_a_baseline_is_tested_against(submissions, run):
    found = ranked(run, submissions, "--metric", "auroc", "--baseline", "poor")
    rows = found["ranking"]["table"]
    assert [row["model"] for row in rows][-1] in ("poor", "constant")
    tested = {row["model"]: row for row in found["ranking"]["against_baseline"]}
    assert tested["best"]["difference"] > 0
    assert tested["best"]["p"] <= tested["best"]["p_holm"] < 0.05
    assert tested["best"] == {**tested["twin"], "model": "best"}
    wrong = run(
        "rank",
        submissions / "submissions",
        "--cohort",
        submissions / "cohort.csv",
        "--task",
        "response",
        "--baseline",
        "por",
    )
    assert wrong.code == 64
    assert "poor" in wrong.err


def test_result_folders_give_the_same_ranking(submissions, run, tmp_path):
    folders = []
    for name in ("best", "middle", "poor"):
        done = run(
            "score",
            "response",
            submissions / "cohort.csv",
            submissions / "submissions" / f"{name}.csv",
            "--resamples",
            0,
            "--out",
            tmp_path / name,
        )
        assert done.code == 0, done.said
        folders.append(tmp_path / name)
    done = run("rank", *folders, tmp_path / "nothing", "--metric", "auroc", "--resamples", 100, "--json")
    assert done.code == 5, done.said
    found = done.json
    assert [row["model"] for row in found["ranking"]["table"]] == ["best", "middle", "poor"]
    assert [entry["model"] for entry in found["ranking"]["failed"]] == ["nothing"]
    from_files = ranked(run, submissions, "--metric", "auroc")
    values = {row["model"]: row["value"] for row in from_files["ranking"]["table"]}
    for row in found["ranking"]["table"]:
        assert row["value"] == pytest.approx(values[row["model"]], abs=1e-12)


def test_nothing_to_rank(submissions, run, tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "bad.csv").write_text("a,b\n1,2\n")
    done = run("rank", tmp_path / "one", "--cohort", submissions / "cohort.csv", "--task", "response")
    assert done.code == 64
    assert "bad.csv" in done.err
    assert run("rank", tmp_path / "one", "--cohort", submissions / "cohort.csv").code == 64
    assert run("rank", tmp_path / "one").code == 64


def test_two_files_of_one_name_stay_apart(submissions, run, tmp_path):
    """Forty teams all call their file predictions.csv."""
    paths = []
    for team, model in (("a", "best"), ("b", "poor")):
        (tmp_path / team).mkdir()
        paths.append(tmp_path / team / "predictions.csv")
        paths[-1].write_bytes((submissions / "submissions" / f"{model}.csv").read_bytes())
    done = run(
        "rank",
        *paths,
        "--cohort",
        submissions / "cohort.csv",
        "--task",
        "response",
        "--metric",
        "auroc",
        "--resamples",
        0,
        "--json",
    )
    assert done.code == 0, done.said
    rows = done.json["ranking"]["table"]
    assert [row["model"] for row in rows] == ["a/predictions", "b/predictions"]
    assert rows[0]["value"] > rows[1]["value"]


def test_detection_submissions_get_lesion_difficulty(detection_pair, run, tmp_path):
    folder = tmp_path / "subs"
    folder.mkdir()
    said = pd.read_csv(detection_pair.predictions)
    said.to_csv(folder / "a.csv", index=False)
    said.iloc[2:].to_csv(folder / "b.csv", index=False)
    done = run(
        "rank", folder, "--cohort", detection_pair.cohort, "--task", "detection", "--resamples", 50, "--json"
    )
    assert done.code == 0, done.said
    assert done.json["difficulty"]
    assert done.json["ranking"]["table"][0]["model"] == "a"


def test_mask_folders_are_ranked_too(mask_pair, run, tmp_path):
    import shutil

    teams = tmp_path / "teams"
    shutil.copytree(mask_pair.predictions, teams / "one")
    shutil.copytree(mask_pair.predictions, teams / "two")
    (teams / "two" / "S1.nii.gz").unlink()
    done = run(
        "rank",
        teams,
        "--cohort",
        mask_pair.cohort,
        "--task",
        "segmentation",
        "--metric",
        "dice",
        "--resamples",
        50,
        "--json",
    )
    assert done.code == 0, done.said
    rows = done.json["ranking"]["table"]
    assert [row["model"] for row in rows] == ["one", "two"]
    assert rows[0]["value"] > rows[1]["value"]


def test_a_baseline_brings_the_gate_and_volumes_bring_the_strata(tmp_path):
    """MRI-10 to MRI-12: every fairness weight, the gated and adaptive ranks, best against worst by size."""
    import elsewhere
    from elsewhere.phantom.hospitals import World, make

    tables = make("segmentation", np.random.default_rng(1), World(patients_per_site=30))
    results = []
    for i, loss in enumerate((0.0, 0.05, 0.2)):
        scores = tables.predictions.assign(dice=(tables.predictions["dice"] - loss).clip(0, 1))
        results.append(
            elsewhere.summarise(
                "segmentation",
                tables.cases,
                scores,
                protocol="mamamia-paper",
                resamples=0,
                out=tmp_path / f"team{i}",
            )
        )
    board = elsewhere.rank(results, baseline="team1", resamples=60).to_dict()["ranking"]
    gate = {row["model"]: row["passed_gate"] for row in board["gated_and_adaptive"]}
    assert gate["team0"] and not gate["team2"]
    assert set(board["top_against_bottom"]["strata"]) == {"all", "small", "moderate", "large"}
    assert board["top_against_bottom"]["strata"]["all"]["gap"] == pytest.approx(0.2, abs=0.02)
    first, last = board["fairness_weight"]["weights"][0], board["fairness_weight"]["weights"][-1]
    assert (first["weight"], last["weight"]) == (0.0, 1.0)


def test_a_result_of_other_cases_is_listed_as_failed(tmp_path):
    import elsewhere
    from elsewhere.phantom.hospitals import World, make

    tables = make("response", np.random.default_rng(1), World(patients_per_site=20))
    fewer = tables.cases.iloc[:-7]
    results = [
        elsewhere.score("response", cohort, tables.predictions, resamples=0, out=tmp_path / name)
        for name, cohort in (("odd", fewer), ("oak", tables.cases), ("yew", tables.cases))
    ]
    board = elsewhere.rank(results, metric="auroc", resamples=40).to_dict()["ranking"]
    assert {row["model"] for row in board["table"]} == {"oak", "yew"}
    assert [row["model"] for row in board["failed"]] == ["odd"]
    assert "7 only in" in board["failed"][0]["why"]


def test_entries_that_could_not_be_scored_are_counted_and_end_with_exit_code_5(submissions, run, tmp_path):
    """A script that looks at the exit code alone must notice that a third of the entries is missing."""
    import elsewhere

    base = ("rank", submissions / "submissions", "--cohort", submissions / "cohort.csv", "--task", "response")
    more = ("--metric", "auroc", "--resamples", 0)
    done = run(*base, *more, "--out", tmp_path / "out")
    assert done.code == 5
    assert "5 of 6 entries ranked; 1 could not be scored" in done.out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert {k: summary["counts"][k] for k in ("entries", "models", "failed")} == {
        "entries": 6,
        "models": 5,
        "failed": 1,
    }
    assert summary["warnings"] == ["5 of 6 entries ranked; 1 could not be scored"]
    assert summary["warnings"][0] in (tmp_path / "out" / "report.html").read_text()
    board = elsewhere.rank(
        [submissions / "submissions"],
        cohort=submissions / "cohort.csv",
        task="response",
        metric="auroc",
        resamples=0,
    )
    assert board.exit_code == 5
    assert [failure.model for failure in board.failures] == ["broken.csv"]
    whole = sorted(p for p in (submissions / "submissions").glob("*.csv") if p.stem != "broken")
    done = run("rank", *whole, *base[2:], *more)
    assert done.code == 0 and "could not be scored" not in done.out


def test_an_entry_that_is_a_link_out_of_the_folder_is_not_scored(submissions, run, tmp_path):
    """A participant's entry that links to another file could be the truth; one that the user names may be a link."""
    files = tmp_path / "subs"
    files.mkdir()
    best = submissions / "submissions" / "best.csv"
    (files / "own.csv").write_bytes(best.read_bytes())
    (files / "linked.csv").symlink_to(best)
    (files / "inside.csv").symlink_to("own.csv")
    base = ("--cohort", submissions / "cohort.csv", "--task", "response", "--metric", "auroc")
    done = run("rank", files, *base, "--resamples", 0, "--json")
    assert done.code == 5
    assert {row["model"] for row in done.json["ranking"]["table"]} == {"own", "inside"}
    assert "leads out of the" in done.json["ranking"]["failed"][0]["why"]
    done = run("rank", files / "linked.csv", files / "own.csv", *base, "--resamples", 0)
    assert done.code == 0, done.said


def test_a_mask_folder_that_is_a_link_out_is_not_scored(mask_pair, run, tmp_path):
    import shutil

    teams = tmp_path / "teams"
    shutil.copytree(mask_pair.predictions, teams / "one")
    (teams / "perfect").symlink_to(mask_pair.cohort.parent / "truth", target_is_directory=True)
    base = ("--cohort", mask_pair.cohort, "--task", "segmentation", "--metric", "dice", "--resamples", 0)
    done = run("rank", teams, *base, "--json")
    assert done.code == 5, done.said
    assert [row["model"] for row in done.json["ranking"]["table"]] == ["one"]
    assert "leads out of the folder of submissions" in done.json["ranking"]["failed"][0]["why"]


@pytest.fixture
def two_lesions(tmp_path):
    """One volume with two lesions that a box qualifies for; the second is nearer. And a volume without any."""
    from elsewhere.cohort import Cohort

    cases = pd.DataFrame({"case_id": ["S0/lcc", "S1/lcc"], "patient_id": ["P0", "P1"]})
    lesion = {"case_id": "S0/lcc", "y": 500, "width": 100, "height": 100, "slice": 20, "volume_slices": 80}
    lesions = pd.DataFrame([{**lesion, "lesion_id": "0", "x": 500}, {**lesion, "lesion_id": "1", "x": 540}])
    cohort = Cohort.from_frame(cases, lesions=lesions.assign(**{"class": "cancer"}))
    cohort.save(tmp_path / "cohort")
    box = {
        "case_id": "S0/lcc",
        "x": 545,
        "y": 510,
        "width": 80,
        "height": 80,
        "z": 19,
        "depth": 2,
        "score": 0.9,
    }
    (tmp_path / "subs").mkdir()
    for name in ("a", "b"):
        pd.DataFrame([box, {**box, "score": 0.8}]).to_csv(tmp_path / "subs" / f"{name}.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("protocol", ["dbtex-paper", "dbtex-code", "plain"])
def test_difficulty_is_of_matching_nearest_whatever_protocol_ranks(two_lesions, run, protocol):
    """DBT-08: matching `challenge` gives both boxes to the first listed lesion, which is not the nearest."""
    base = ("--cohort", two_lesions / "cohort", "--task", "detection", "--protocol", protocol)
    done = run("rank", two_lesions / "subs", *base, "--resamples", 0, "--json")
    assert done.code == 0, done.said
    found = done.json["difficulty"]
    assert found["matching"] == "nearest"
    assert found["lesions"] == 2
    assert found["lesions_by_detections"] == [1, 0, 1]
    assert found["never_detected"] == 1
    folders = []
    for name in ("a", "b"):
        folders.append(two_lesions / name)
        made = run(
            "score", "detection", two_lesions / "cohort", two_lesions / "subs" / f"{name}.csv",
            "--protocol", protocol, "--resamples", 0, "--out", folders[-1],
        )  # fmt: skip
        assert made.code == 0, made.said
        events = pd.read_parquet(folders[-1] / "events.parquet")
        assert set(events["nearest_lesion_id"].dropna()) == {"1"}
    again = run("rank", *folders, "--resamples", 0, "--json")
    assert again.json["difficulty"] == found
    assert again.json["warnings"] == []


def test_results_that_do_not_tell_the_nearest_lesion_are_named(two_lesions, run):
    """Events that were saved without it cannot be matched again, for they hold no boxes: said, not guessed."""
    folders = []
    for name in ("a", "b"):
        folders.append(two_lesions / name)
        run(
            "score", "detection", two_lesions / "cohort", two_lesions / "subs" / f"{name}.csv",
            "--protocol", "dbtex-paper", "--resamples", 0, "--out", folders[-1],
        )  # fmt: skip
    events = pd.read_parquet(folders[0] / "events.parquet")
    events.drop(columns="nearest_lesion_id").to_parquet(folders[0] / "events.parquet")
    summary = json.loads((folders[0] / "summary.json").read_text())
    (folders[0] / "summary.json").write_text(json.dumps(reseal(summary, folders[0])))
    done = run("rank", *folders, "--resamples", 0, "--json")
    assert done.code == 0, done.said
    assert done.json["difficulty"]["algorithms"] == 1
    assert "leaves out a:" in done.json["warnings"][0] and "nearest_lesion_id" in done.json["warnings"][0]
