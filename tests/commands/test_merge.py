"""`merge`: chosen on validation, judged on test; its files, its honesty, and the inputs that it refuses or counts."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from elsewhere.cohort import Cohort
from elsewhere.cohort.loading import load_cohort
from elsewhere.commands.merge import merge
from elsewhere.commands.score import score
from elsewhere.errors import UserError
from elsewhere.phantom.detectors import DetectorWorld, draw_detectors
from elsewhere.phantom.detectors_layout import write_detectors
from elsewhere.predictions.boxes import read_boxes
from elsewhere.predictions.dbtex import DBTEX_COLUMNS

METRIC = "mean_sensitivity_1_to_4_all"
QUICK = {"resamples": 50}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Eight finders; a cohort folder with both splits and one for each."""
    made = draw_detectors(DetectorWorld(patients=24, seed=2))
    folder = write_detectors(made, tmp_path_factory.mktemp("merge") / "world")
    for split in ("validation", "test"):
        made.cohort(split).save(folder.parent / split)
    return folder


@pytest.fixture(scope="module")
def merged(world, run):
    out = world.parent / "out"
    ran = run(
        "merge", world / "phase1", "--cohort", world / "cohort", "--where", "split=validation", "--report-on", "split=test",
        "--out", out, "--resamples", 200,
    )  # fmt: skip
    assert ran.code == 0, ran.said
    return out, ran


def test_files_grid_optimism_and_paired_interval(merged, world):
    """Must show 1: what `merge` on eight phantom finders writes."""
    out, ran = merged
    grid = pd.read_csv(out / "grid.csv")
    assert len(grid) == 432 and grid["chosen"].sum() == 1 and grid["published"].sum() == 1
    summary = json.loads((out / "summary.json").read_text())
    part = summary["merging"]
    assert part["search"]["settings"] == 432 and part["search"]["fusions"] == 72
    assert part["metric"] == METRIC
    optimism, gain = part["optimism"]["merged"], part["gain"]["test"]
    assert optimism["lo"] < optimism["difference"] < optimism["hi"]
    assert optimism["difference"] == pytest.approx(optimism["validation"] - optimism["test"])
    assert gain["lo"] <= gain["difference"] <= gain["hi"] and gain["p"] is not None
    assert gain["difference"] == pytest.approx(gain["a"] - gain["b"])
    best = max(part["teams"], key=lambda row: row["validation"]["value"])
    assert part["best_single"]["team"] == best["team"]
    assert "optimism" in ran.out and "published choice" in ran.out


def test_the_merged_files_are_valid_dbtex_and_score_to_the_printed_numbers(merged, world):
    out, _ = merged
    summary = json.loads((out / "summary.json").read_text())["merging"]
    for split, name in (("test", "merged.csv"), ("validation", "merged_validation.csv")):
        assert list(pd.read_csv(out / name, nrows=1)) == list(DBTEX_COLUMNS)
        cohort = load_cohort(world.parent / split)
        boxes = read_boxes(out / name, cohort=cohort)
        assert boxes.table["reason"].isna().all() and (boxes.table["z"] >= 0).all()
        assert boxes.table["case_id"].isin(cohort.cases["case_id"]).all()
        result = score("detection", cohort, out / name, resamples=0)
        printed = summary["merged"][split]["metrics"][METRIC]["value"]
        assert result.summary["metrics"][METRIC]["value"] == pytest.approx(printed, abs=1e-12)
    grid = pd.read_csv(out / "grid.csv")
    assert grid.loc[grid["chosen"], "value"].item() == pytest.approx(printed, abs=1e-12)


def test_what_may_be_shared_names_nobody(merged, world):
    out, _ = merged
    patients = load_cohort(world / "cohort").cases["patient_id"].astype(str)
    for name in ("summary.json", "report.html", "grid.csv"):
        content = (out / name).read_text()
        assert not any(patient in content for patient in patients.unique())
        assert str(world) not in content
    note = (out / "SHARING.txt").read_text()
    assert note.index("grid.csv") < note.index("Stay with the data") < note.index("merged.csv")


def test_the_report_says_what_the_merge_gains(merged):
    page = (merged[0] / "report.html").read_text()
    for words in (
        "The detectors merged",
        "On the test volumes the merge has",
        "merge-teams",
        "merge-settings",
        "432",
    ):
        assert words in page
    assert len(page) < 2 * 2**20


def shuffled(cohort, seed=0):
    """The same volumes with lesions in volumes and at places where there is nothing."""
    rng = np.random.default_rng(seed)
    lesions = cohort.lesions.copy()
    ids = rng.permutation(cohort.cases["case_id"].to_numpy())[: len(lesions)]
    lesions["case_id"], lesions["lesion_id"] = ids, [f"{name}/1" for name in ids]
    lesions["x"], lesions["y"] = rng.integers(0, 1500, (2, len(lesions)))
    lesions["slice"] = rng.integers(5, 20, len(lesions))
    return Cohort.from_frame(cohort.cases, lesions=lesions, reader="bcs-dbt", synthetic=True)


def test_a_shuffled_test_shows_no_gain_while_validation_does(tmp_path):
    """Must show 1: what was found on validation is not there, and the number of the report says so."""
    made = draw_detectors(DetectorWorld(patients=100, seed=1))
    folder = write_detectors(made, tmp_path / "world")
    shuffled(made.cohort("test")).save(tmp_path / "shuffled")
    made.cohort("validation").save(tmp_path / "validation")
    found = merge(
        [folder / "phase1"], cohort=tmp_path / "validation", report_on=tmp_path / "shuffled", resamples=300
    )
    gain, optimism = found.summary["merging"]["gain"], found.summary["merging"]["optimism"]["merged"]
    assert gain["validation"]["lo"] > 0
    assert gain["test"]["lo"] <= 0 <= gain["test"]["hi"] and abs(gain["test"]["difference"]) < 0.03
    assert optimism["lo"] > 0.5


@pytest.mark.slow
def test_over_many_worlds_a_shuffled_test_shows_a_gain_no_more_often_than_it_may():
    """Of 60 worlds the 95 % interval of merged minus best single leaves out 0 in at most as many as 5 % allow."""
    import tempfile
    from pathlib import Path

    from elsewhere.analysis.merging.merging import MergeChoice, MergeInputs, merge_teams

    above, validation = 0, []
    for seed in range(60):
        made = draw_detectors(DetectorWorld(patients=30, seed=100 + seed))
        with tempfile.TemporaryDirectory() as place:
            folder = write_detectors(made, Path(place) / "world")
            inputs = MergeInputs(
                files=[folder / "phase1"],
                cohort=made.cohort("validation"),
                report_on=shuffled(made.cohort("test"), seed),
            )
            gain = merge_teams(inputs, MergeChoice(resamples=300)).summary["merging"]["gain"]
        above += gain["test"]["lo"] > 0
        validation.append(gain["validation"]["difference"])
    assert above <= 6
    assert np.mean(validation) > 0


def files(world, split, names):
    return [world / "phase1" / split / f"{name}.csv" for name in names]


def test_one_file_per_team_may_hold_both_splits(world, tmp_path):
    both = []
    for name in ("alpha", "beta"):
        parts = [
            pd.read_csv(file)
            for file in (files(world, "validation", [name])[0], files(world, "test", [name])[0])
        ]
        both.append(tmp_path / f"{name}.csv")
        pd.concat(parts).to_csv(both[-1], index=False)
    options = {
        "cohort": world / "cohort",
        "where": {"split": "validation"},
        "report_on": "split=test",
        **QUICK,
    }
    one = merge(both, **options)
    two = merge(
        files(world, "validation", ["alpha", "beta"]), test_predictions=[world / "phase1" / "test"], **options
    )
    assert one.summary["merging"]["gain"] == two.summary["merging"]["gain"]
    assert any("only one of the two sets" in text for text in two.summary["warnings"])
    apart = merge(both, cohort=world.parent / "validation", report_on=world.parent / "test", **QUICK)
    assert (
        apart.summary["merging"]["merged"]["test"]["boxes"]
        == one.summary["merging"]["merged"]["test"]["boxes"]
    )


def test_a_given_setting_needs_no_search_and_no_truth(world, tmp_path):
    given = files(world, "test", ["alpha", "beta", "gamma"])
    bare = merge(given, setting="published", out=tmp_path / "bare")
    assert bare.grid is None and not (tmp_path / "bare" / "grid.csv").exists()
    assert "metric" not in bare.summary["merging"]
    judged = merge(given, setting="published", cohort=world.parent / "test", **QUICK)
    assert set(judged.summary["merging"]["merged"]) == {"test"}
    pd.testing.assert_frame_equal(
        bare.boxes.table.sort_values(["case_id", "row"])[["case_id", "score", "x"]].reset_index(drop=True),
        judged.boxes.table.sort_values(["case_id", "row"])[["case_id", "score", "x"]].reset_index(drop=True),
    )
    chosen = merge(given, setting="iou=0.5,votes=2", cohort=world.parent / "test", **QUICK)
    assert len(chosen.boxes.table) < len(judged.boxes.table)
    assert "published" in chosen.summary["merging"]


@pytest.mark.parametrize("vote", ["affirmative", "consensus", "unanimous"])
def test_ensembles_by_vote(world, vote):
    given = files(world, "validation", ["alpha", "beta", "gamma"])
    found = merge(given, cohort=world.parent / "validation", vote=vote, **QUICK)
    assert found.summary["merging"]["search"]["settings"] == 72
    assert found.summary["merging"]["method"] == f"vote: {vote}"
    assert any("too good" in text for text in found.summary["warnings"])


def test_weights_and_floor(world):
    given = files(world, "test", ["alpha", "beta"])
    plain = merge(given, setting="published")
    heavy = merge(given, setting="published", weights={"alpha": 5}, floor=0.5)
    assert len(heavy.boxes.table) < len(plain.boxes.table)
    assert heavy.summary["merging"]["weights"] == {"alpha": 5}
    for wrong in (
        {"weights": {"alfa": 2}},
        {"weights": {"alpha": 0}},
        {"floor": 2.0},
        {"floor": float("nan")},
    ):
        with pytest.raises(UserError):
            merge(given, setting="published", **wrong)


def odd(world, tmp_path, name, change, split="validation"):
    """A team whose file was changed."""
    table = pd.read_csv(files(world, split, [name])[0])
    path = tmp_path / f"{name}.csv"
    change(table).to_csv(path, index=False)
    return path


def with_column(**columns):
    return lambda table: table.assign(**columns)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.head(0), "no boxes"),
        (with_column(Score=0.5), "gives every box the score 0.5"),
        (with_column(Score=0.0), "gives every box the score 0"),
        (lambda table: table.head(3), "may not have been run on all"),
        (lambda table: table.assign(Width=table["Width"].where(table.index > 4, 0)), "5 boxes without width or height"),
        (lambda table: table.assign(StudyUID=["X"] * 9 + table["StudyUID"].tolist()[9:]), "are not in the cohort"),
    ],
)  # fmt: skip
def test_odd_teams_are_merged_and_counted(world, tmp_path, change, words):
    path = odd(world, tmp_path, "beta", change)
    given = [*files(world, "validation", ["alpha", "gamma"]), path]
    found = merge(given, cohort=world.parent / "validation", **QUICK)
    assert found.exit_code == 0 and found.summary["counts"]["teams"] == 3
    assert any(words in text for text in found.summary["warnings"]), found.summary["warnings"]
    assert found.grid["value"].notna().all()


def test_negative_scores_are_said_where_the_maximum_divides(world):
    found = merge(
        files(world, "test", ["alpha", "delta"]),
        setting="normalisation=max",
        cohort=world.parent / "test",
        **QUICK,
    )
    assert any("delta has negative scores" in text for text in found.summary["warnings"])


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.assign(Score=table["Score"].where(table.index > 0)),
        lambda table: table.assign(Score=np.where(table.index > 0, table["Score"], np.inf)),
        lambda table: table.drop(columns="Score"),
        lambda table: table.assign(StudyUID="none of them"),
    ],
)
def test_a_team_that_cannot_be_read_does_not_stop_the_others(world, tmp_path, change):
    path = odd(world, tmp_path, "beta", change)
    given = [*files(world, "validation", ["alpha", "gamma"]), path]
    found = merge(given, cohort=world.parent / "validation", **QUICK)
    assert found.exit_code == 5 and [failed.model for failed in found.failures] == ["beta"]
    assert found.summary["merging"]["failed"][0]["model"] == "beta"
    assert any("beta" in line and "failed" in line for line in found.lines())


def test_invalid_boxes_are_left_out_on_request(world, tmp_path):
    path = odd(
        world, tmp_path, "beta", lambda table: table.assign(Score=table["Score"].where(table.index > 6))
    )
    given = [*files(world, "validation", ["alpha"]), path]
    found = merge(given, cohort=world.parent / "validation", on_invalid="worst", **QUICK)
    assert any("7 invalid boxes" in text for text in found.summary["warnings"])


def test_other_scales_on_test_are_said(world, tmp_path):
    (tmp_path / "t").mkdir()
    path = odd(
        world, tmp_path / "t", "beta", lambda table: table.assign(Score=table["Score"] * 50), split="test"
    )
    found = merge(
        files(world, "validation", ["alpha", "beta"]),
        test_predictions=[files(world, "test", ["alpha"])[0], path],
        cohort=world.parent / "validation", report_on=world.parent / "test", **QUICK,
    )  # fmt: skip
    assert any("outside the range of its validation scores" in text for text in found.summary["warnings"])


def test_patients_in_both_cohorts_are_counted(world):
    cohort = load_cohort(world.parent / "test")
    first = load_cohort(world.parent / "validation").cases["patient_id"].iloc[0]
    cases = cohort.cases.assign(patient_id=cohort.cases["patient_id"].where(cohort.cases.index > 3, first))
    again = Cohort.from_frame(cases, lesions=cohort.lesions, reader="bcs-dbt", synthetic=True)
    found = merge([world / "phase1"], cohort=world.parent / "validation", report_on=again, **QUICK)
    assert any("1 patients are in both cohorts" in text for text in found.summary["warnings"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no setting can be chosen without a cohort"),
        ({"report_on": "split=test", "setting": "published"}, "need the cohort"),
        ({"cohort": "cohort", "report_on": "split=test"}, "not known which cases choose"),
        (
            {"cohort": "cohort", "where": {"split": "validation"}, "report_on": "split=tests"},
            "no case has split",
        ),
        (
            {"cohort": "cohort", "where": {"split": "validation"}, "report_on": "splitt=test"},
            "no column 'splitt'",
        ),
        ({"cohort": "cohort", "report_on": "cohort"}, "are in both cohorts"),
        ({"cohort": "cohort", "vote": "most"}, "most"),
        ({"setting": "normalisation=thresholded-percentile"}, "needs lesions"),
        ({"setting": "rank=3"}, "rank"),
        ({"cohort": "nowhere"}, "no such"),
        ({"cohort": "cohort", "protocol": "mamamia-paper"}, "mamamia-paper"),
        ({"setting": "published", "test_predictions": ["x.csv"]}, "--report-on"),
    ],
)
def test_what_cannot_be_merged_is_refused(world, options, words):
    options = dict(options)
    if options.get("cohort"):
        options["cohort"] = world / options["cohort"]
    if options.get("report_on") == "cohort":
        options["report_on"] = world / "cohort"
    with pytest.raises(UserError, match=words):
        merge(files(world, "validation", ["alpha", "beta"]), **options)


def test_one_team_is_no_merge(world):
    with pytest.raises(UserError, match="two are needed"):
        merge(files(world, "validation", ["alpha"]), setting="published")
    with pytest.raises(UserError, match="two are needed"):
        merge(
            [world / "phase1" / "validation" / "nobody.csv", *files(world, "test", ["alpha"])],
            setting="published",
        )


def test_a_second_run_asks_before_it_replaces(world, run, tmp_path):
    command = [
        "merge",
        *files(world, "test", ["alpha", "beta"]),
        "--setting",
        "published",
        "--out",
        tmp_path / "out",
    ]
    assert run(*command).code == 0
    (tmp_path / "out" / "notes.txt").write_text("of a person")
    again = run(*command)
    assert again.code == 64 and "--replace" in again.err
    assert run(*command, "--replace").code == 0
    assert (tmp_path / "out" / "notes.txt").read_text() == "of a person"
    inside = run(*command[:-1], world / "phase1" / "test", "--replace")
    assert inside.code == 64


def test_the_command_line(world, run):
    ran = run(
        "merge",
        *files(world, "test", ["alpha", "beta"]),
        "--setting",
        "published",
        "--json",
        "--weight",
        "alpha=2",
    )
    assert ran.code == 0 and json.loads(ran.out)["merging"]["weights"] == {"alpha": 2}
    assert run("merge", world / "phase1" / "test", "--setting", "published", "--weight", "alpha=x").code == 64


def test_pictures_without_slices_are_written_in_our_own_columns(tmp_path):
    for name, shift in (("a", 0), ("b", 3)):
        rows = [
            {"case_id": f"p{k}", "x": 10 + shift, "y": 10, "width": 50, "height": 50, "score": 0.5 + 0.1 * k}
            for k in range(3)
        ]
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
    found = merge([tmp_path / "a.csv", tmp_path / "b.csv"], setting="published", out=tmp_path / "out")
    table = pd.read_csv(tmp_path / "out" / "merged.csv")
    assert list(table) == ["case_id", "x", "y", "width", "height", "score"] and len(table) == 3
    assert found.boxes.table["z"].isna().all()
