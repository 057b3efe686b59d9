"""Detection at another hospital: verdicts on localisation, and the threshold that is carried over."""

from __future__ import annotations

import json

import pytest

DROP = 0.5
METRICS = ("wafroc", "mean_sensitivity_1_to_4")


@pytest.fixture(scope="module")
def worlds(run, tmp_path_factory):
    """A world with a planted drop at vendor B, its twin without, and the result of a finder in each."""
    folder = tmp_path_factory.mktemp("localisation")
    for name, drop in (("drop", DROP), ("twin", 0.0)):
        made = run("phantom", "detections", folder / name, "--patients", 200, "--finders", 1, "--drop", drop)
        assert made.code == 0, made.said
        done = run(
            "score", "detection", folder / name / "cohort", folder / name / "phase1/test/alpha.csv",
            "--where", "split=test", "--group-by", "vendor", "--resamples", 0, "--out", folder / f"{name}-result",
        )  # fmt: skip
        assert done.code == 0, done.said
    return folder


@pytest.mark.parametrize("metric", METRICS)
def test_the_planted_drop_is_found_and_its_twin_is_not(run, worlds, metric):
    def judged(name):
        return run(
            "equivalence", worlds / f"{name}-result", "--split-by", "vendor", "--reference", "A",
            "--metric", metric, "--margin", 0.05, "--resamples", 0, "--json",
        )  # fmt: skip

    dropped, twin = judged("drop"), judged("twin")
    assert dropped.code == 2 and dropped.json["verdict"]["word"] == "BELOW"
    (claim,) = dropped.json["verdict"]["claims"]
    assert claim["hi"] < -0.05 and claim["smallest_detectable_drop"] < 0.2
    assert twin.code in (0, 3) and twin.json["verdict"]["word"] != "BELOW"


def test_two_results_and_a_pair_of_models(run, worlds):
    here, home = worlds / "drop-result", worlds / "twin-result"
    done = run("equivalence", here, home, "--metric", "wafroc", "--margin", 0.05, "--resamples", 0, "--json")
    (claim,) = done.json["verdict"]["claims"]
    assert "shared patients" in claim["method"] and claim["difference"] < 0
    paired = run("compare", here, home, "--metrics", "wafroc", "--resamples", 200, "--json")
    made = paired.json["comparison"]["metrics"]["wafroc"]
    assert made["difference"] == pytest.approx(claim["difference"]) and made["hi"] < 0


CLAIM = """
model = "alpha"
task = "detection"
where = {{ split = "test", vendor = "B" }}
[outcomes]
verified_by = "biopsy"
[[primary]]
metric = "wafroc"
value = {wafroc}
margin = 0.05
margin_source = "the tests"
[[primary]]
metric = "mean_sensitivity_1_to_4"
value = {mean_sensitivity_1_to_4}
margin = 0.05
margin_source = "the tests"
"""


@pytest.mark.parametrize(
    ("name", "word"), [("drop", {"BELOW"}), ("twin", {"EQUIVALENT", "INCONCLUSIVE", "ABOVE"})]
)
def test_a_claim_on_localisation_is_judged(run, worlds, tmp_path, name, word):
    home = json.loads((worlds / "twin-result/summary.json").read_text())["groups"]["vendor"]["A"]["metrics"]
    claim = tmp_path / "claim.toml"
    claim.write_text(CLAIM.format(**{metric: round(home[metric]["value"], 3) for metric in METRICS}))
    done = run(
        "accept", worlds / name / "cohort", worlds / name / "phase1/test/alpha.csv", "--claim", claim,
        "--resamples", 0, "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.json["verdict"]["word"] in word, done.said
    assert {line["metric"] for line in done.json["verdict"]["claims"]} == set(METRICS)


def test_the_threshold_is_carried_over_by_command(run, worlds, tmp_path):
    out = tmp_path / "carried.json"
    arguments = ("carry-threshold", worlds / "drop-result", "--split-by", "vendor", "--reference", "A")
    done = run(*arguments, "--resamples", 200, "--out", out, "--json")
    assert done.code == 0 and done.json == json.loads(out.read_text())
    row = done.json["rows"]["B"]
    assert row["words"]["sensitivity"] == "lower" and row["metrics"]["lesion_difference"]["hi"] < 0
    said = run(*arguments, "--resamples", 200, "--rate", 2).out
    assert "for at most 2 false positives per volume" in said
    assert "B: false positives: no difference shown; sensitivity: lower" in said
    assert "DBT-" not in said, "no id is printed"
    both = run("carry-threshold", worlds / "drop-result", worlds / "twin-result", "--resamples", 0)
    assert both.code == 0 and "the reference result" in both.out and "on both sides" in both.out


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ((), "Give one with --split-by and --reference"),
        (("--split-by", "vendor"), "Give one with --split-by and --reference"),
        (("--split-by", "vendor", "--reference", "C"), "unknown value of vendor 'C'"),
        (("--split-by", "vender", "--reference", "A"), "Did you mean vendor"),
        (("--split-by", "vendor", "--reference", "A", "--rate", "-1"), "a rate of -1"),
        (("--split-by", "vendor", "--reference", "A", "--resamples", "-1"), "-1 resamples"),
    ],
)
def test_mistakes_are_explained(run, worlds, extra, words):
    done = run("carry-threshold", worlds / "drop-result", *extra)
    assert done.code == 64 and words in done.err and "Traceback" not in done.said


def test_a_result_without_boxes_is_refused(run, pair, tmp_path):
    run("score", "classification", pair.cohort, pair.predictions, "--resamples", 0, "--out", tmp_path / "r")
    done = run("carry-threshold", tmp_path / "r", "--split-by", "site", "--reference", "north")
    assert done.code == 64 and "a threshold is carried over for boxes" in done.err


def test_score_with_a_reference_site_carries_the_threshold(run, worlds, tmp_path):
    cohort, said = worlds / "drop/cohort", worlds / "drop/phase1/test/alpha.csv"
    done = run(
        "score", "detection", cohort, said, "--where", "split=test", "--reference-site", "Alder",
        "--margin", 0.05, "--resamples", 100, "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    made = done.json["carried_threshold"]
    assert list(made["rows"]) == ["Alder", "Birch"] and made["rate"] == 1.0
    assert [point["rate"] for point in done.json["thresholds"]["points"]][:4] == [1.0, 2.0, 3.0, 4.0]
    page = (tmp_path / "out/report.html").read_text()
    for words in ("Thresholds and levels of truth", "The threshold carried over", "Compared with Alder"):
        assert words in page
    tables = run("report", tmp_path / "out", "--tables", tmp_path / "tables", "--replace")
    assert tables.code == 0, tables.said
    for name in ("carried_threshold", "thresholds"):
        assert len((tmp_path / f"tables/{name}.csv").read_text().splitlines()) > 6
