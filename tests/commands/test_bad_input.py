"""Bad input: exit 64, a message that names the place and the way out, and nothing half-written."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from worlds.task_files import box_mask, write_nifti, write_pair


@pytest.fixture
def refused(run, tmp_path):
    """`refused(arguments, words...)`: exit 64 naming every word, the same as JSON, nothing written."""
    out = tmp_path / "out"

    def check(arguments, *words, writes=True):
        tail = ("--out", out) if writes else ()
        done = run(*arguments, *tail)
        assert done.code == 64, done.said
        assert done.out == ""
        assert "Traceback" not in done.err
        for word in words:
            assert word in done.err, done.err
        as_json = run(*arguments, *tail, "--json")
        assert as_json.code == 64
        assert as_json.json["error"]
        assert not out.exists()
        hidden = [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]
        assert hidden == []
        return done.err

    return check


def test_missing_columns_offer_near_ones(pair, refused, tmp_path):
    said = pd.read_csv(pair.predictions).rename(columns={"probability": "probabilty", "case_id": "caseid"})
    said.to_csv(tmp_path / "bad.csv", index=False)
    refused(
        ("score", "classification", pair.cohort, tmp_path / "bad.csv"),
        "bad.csv",
        "probabilty",
        "caseid",
        "--map",
    )


def test_a_cohort_without_the_truth(pair, refused, tmp_path):
    pd.read_csv(pair.cohort).rename(columns={"label": "labels"}).to_csv(tmp_path / "c.csv", index=False)
    refused(("score", "classification", tmp_path / "c.csv", pair.predictions), "label", "labels")


def test_a_cohort_without_ids(pair, refused, tmp_path):
    pd.read_csv(pair.cohort).rename(columns={"case_id": "Case"}).to_csv(tmp_path / "c.csv", index=False)
    refused(("score", "classification", tmp_path / "c.csv", pair.predictions), "c.csv", "case_id")


@pytest.mark.parametrize("where", ["cohort", "predictions"])
def test_duplicate_ids(pair, refused, tmp_path, where):
    table = pd.read_csv(getattr(pair, where))
    pd.concat([table, table.iloc[[4]]]).to_csv(tmp_path / "twice.csv", index=False)
    files = {"cohort": pair.cohort, "predictions": pair.predictions, where: tmp_path / "twice.csv"}
    message = refused(
        ("score", "classification", files["cohort"], files["predictions"]), "twice.csv", "C0004"
    )
    assert f"{len(table) + 1}" in message


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("nan", ("row 3",)),
        ("", ("rows 3",)),
        ("inf", ("infinite", "3")),
        ("-inf", ("infinite", "3")),
        ("high", ("row 3", "high")),
    ],
)
def test_scores_that_are_no_numbers(pair, refused, tmp_path, cell, words):
    said = pd.read_csv(pair.predictions, dtype=str)
    said.loc[2, "probability"] = cell
    said.to_csv(tmp_path / "bad.csv", index=False)
    refused(("score", "classification", pair.cohort, tmp_path / "bad.csv"), "bad.csv", *words)


def test_not_a_number_in_parquet(pair, refused, tmp_path):
    said = pd.read_csv(pair.predictions)
    said.loc[1, "probability"] = np.nan
    said.to_parquet(tmp_path / "bad.parquet")
    refused(("score", "classification", pair.cohort, tmp_path / "bad.parquet"), "bad.parquet", "2")


@pytest.mark.parametrize("value", [-0.1, 1.2])
def test_probabilities_outside(pair, refused, tmp_path, value):
    said = pd.read_csv(pair.predictions)
    said.loc[6, "probability"] = value
    said.to_csv(tmp_path / "bad.csv", index=False)
    refused(
        ("score", "classification", pair.cohort, tmp_path / "bad.csv"), "bad.csv", "7", "scale", f"{value}"
    )


def test_percentages_offer_their_scale(pair, refused, tmp_path):
    said = pd.read_csv(pair.predictions)
    said.assign(probability=(100 * said["probability"]).round(1)).to_csv(tmp_path / "bad.csv", index=False)
    refused(("score", "classification", pair.cohort, tmp_path / "bad.csv"), "--scale 0-100")


@pytest.mark.parametrize("content", ["", "\n\n", "case_id,probability\n"])
@pytest.mark.parametrize("which", ["cohort", "predictions"])
def test_empty_files(pair, refused, tmp_path, content, which):
    (tmp_path / "empty.csv").write_text(content)
    files = {"cohort": pair.cohort, "predictions": pair.predictions, which: tmp_path / "empty.csv"}
    refused(("score", "classification", files["cohort"], files["predictions"]), "empty.csv")


def test_a_prediction_file_that_does_not_exist(pair, refused, tmp_path):
    refused(
        ("score", "classification", pair.cohort, tmp_path / "predictionss.csv"),
        "predictionss.csv",
        "predictions.csv",
    )
    refused(("score", "classification", tmp_path / "nothing.csv", pair.predictions), "nothing.csv")
    refused(("score", "segmentation", pair.cohort, tmp_path / "masks"), "masks")


def test_empty_patient_ids(pair, refused, tmp_path):
    cases = pd.read_csv(pair.cohort)
    cases.loc[[1, 2], "patient_id"] = None
    cases.to_csv(tmp_path / "c.csv", index=False)
    refused(("score", "classification", tmp_path / "c.csv", pair.predictions), "c.csv", "patient_id", "2, 3")


def test_ids_that_match_nowhere(pair, refused, tmp_path):
    said = pd.read_csv(pair.predictions)
    said["case_id"] = said["case_id"].str.lower()
    said.to_csv(tmp_path / "low.csv", index=False)
    refused(("score", "classification", pair.cohort, tmp_path / "low.csv"), "low.csv", "--normalise-ids case")


def test_a_gzip_that_unpacks_without_end(pair, refused, tmp_path):
    with gzip.open(tmp_path / "bomb.csv.gz", "wb", compresslevel=9) as stream:
        stream.write(b"case_id,probability\n")
        block = b"0" * (1 << 20)
        for _ in range(160):
            stream.write(block)
    refused(("score", "classification", pair.cohort, tmp_path / "bomb.csv.gz"), "bomb.csv.gz", "unpacks")
    (tmp_path / "cut.csv.gz").write_bytes((tmp_path / "bomb.csv.gz").read_bytes()[:200])
    refused(("score", "classification", pair.cohort, tmp_path / "cut.csv.gz"), "cut.csv.gz", "damaged")


def _as(text, path, encoding):
    path.write_bytes(text.encode(encoding))
    return path


def test_other_encodings_name_the_option_that_reads_them(pair, refused, run, tmp_path):
    text = "case_id,probability,Größe\n" + "".join(
        f"{row.case_id},{row.probability},ü\n" for row in pd.read_csv(pair.predictions).itertuples()
    )
    latin = _as(text, tmp_path / "latin.csv", "latin-1")
    refused(("score", "classification", pair.cohort, latin), "latin.csv", "--encoding")
    wide = _as(text, tmp_path / "wide.csv", "utf-16-le")
    refused(("score", "classification", pair.cohort, wide), "wide.csv", "utf-16-le")
    for file, encoding in ((latin, "latin-1"), (wide, "utf-16-le")):
        done = run(
            "score",
            "classification",
            pair.cohort,
            file,
            "--encoding",
            encoding,
            "--resamples",
            0,
            "--out",
            tmp_path / encoding,
        )
        assert done.code == 0, done.said
    refused(("score", "classification", pair.cohort, latin, "--encoding", "latin-uno"), "latin-uno")


def test_semicolons_and_decimal_commas(pair, refused, run, tmp_path):
    said, cases = pd.read_csv(pair.predictions), pd.read_csv(pair.cohort)
    said.to_csv(tmp_path / "de.csv", index=False, sep=";", decimal=",")
    cases.to_csv(tmp_path / "cohort_de.csv", index=False, sep=";", decimal=",")
    plain = ("score", "classification", pair.cohort, tmp_path / "de.csv")
    refused(plain, "de.csv", "--delimiter ';'", "--decimal ','")
    refused((*plain, "--delimiter", ";"), "de.csv", "decimal commas", "--decimal")
    refused(
        ("score", "classification", tmp_path / "cohort_de.csv", pair.predictions),
        "cohort_de.csv",
        "--delimiter",
    )
    refused((*plain, "--delimiter", ";;"), "delimiter")
    refused((*plain, "--decimal", "x"), "--decimal")
    want = run(
        "score",
        "classification",
        pair.cohort,
        pair.predictions,
        "--resamples",
        0,
        "--out",
        tmp_path / "w",
        "--json",
    )
    for cohort in (pair.cohort, tmp_path / "cohort_de.csv"):
        done = run(
            "score",
            "classification",
            cohort,
            tmp_path / "de.csv",
            "--delimiter",
            ";",
            "--decimal",
            ",",
            "--resamples",
            0,
            "--out",
            tmp_path / "o",
            "--replace",
            "--json",
        )
        assert done.code == 0, done.said
        assert done.json["metrics"]["auroc"]["value"] == want.json["metrics"]["auroc"]["value"]


@pytest.mark.parametrize("command", ["check", "rank", "cohort check", "summarise", "equivalence"])
def test_every_command_that_reads_tables_takes_them(command, pair, run, tmp_path):
    said, cases = pd.read_csv(pair.predictions), pd.read_csv(pair.cohort)
    said.to_csv(tmp_path / "de.csv", index=False, sep=";", decimal=",")
    cases.to_csv(tmp_path / "cohort_de.csv", index=False, sep=";", decimal=",")
    means = pd.DataFrame(
        [[0.9, 0.01, 5, 0.91, 0.01, 5, -0.1, 0.1]],
        columns=["mean_1", "sd_1", "n_1", "mean_2", "sd_2", "n_2", "low", "high"],
    )
    means.to_csv(tmp_path / "means.csv", index=False, sep=";", decimal=",")
    cohort, de = tmp_path / "cohort_de.csv", tmp_path / "de.csv"
    arguments = {
        "check": ("check", de, "--task", "classification", "--cohort", cohort),
        "rank": ("rank", de, "--cohort", cohort, "--task", "classification", "--resamples", 0),
        "cohort check": ("cohort", "check", cohort),
        "summarise": ("summarise", "classification", cohort, de, "--resamples", 0, "--out", tmp_path / "o"),
        "equivalence": ("equivalence", "--means", tmp_path / "means.csv"),
    }[command]
    assert run(*arguments).code == 64
    done = run(*arguments, "--delimiter", ";", "--decimal", ",")
    assert done.code == 0, done.said


def test_unknown_names_offer_near_ones(pair, refused, detection_pair):
    both = (pair.cohort, pair.predictions)
    refused(("score", "clasification", *both), "clasification", "classification")
    refused(("score", "classification", *both, "--protocol", "plane"), "plane", "plain")
    refused(("score", "classification", *both, "--protocol", "dbtex-paper"), "dbtex-paper", "plain")
    refused(
        ("score", "classification", *both, "--group-by", "breast_densty"), "breast_densty", "breast_density"
    )
    refused(("score", "classification", *both, "--map", "scor=x"), "scor", "score")
    refused(("score", "classification", *both, "--map", "score"), "--map")
    refused(("score", "classification", *both, "--scale", "percent"), "percent", "0-100")
    refused(("score", "classification", *both, "--unit", "exams"), "exams", "exam")
    refused(("score", "classification", *both, "--combine", "maxx", "--unit", "exam"), "maxx", "max")
    refused(("score", "classification", *both, "--normalise-ids", "zeroes"), "zeroes", "zeros")
    refused(("score", "classification", *both, "--on-invalid", "worse"), "worse", "worst")
    look = ("check", pair.predictions, "--task", "classification")
    refused((*look, "--on-invalid", "worse"), "worse", "worst", writes=False)
    refused(("score", "classification", *both, "--matching", "nearst"), "nearst", "nearest")
    refused(("score", "classification", *both, "--threshold", "1.7"), "1.7")
    refused(("cohort", "read", "bcsdbt", pair.cohort), "bcsdbt", "bcs-dbt")
    refused(("cohort", "read", "csv", pair.cohort, "--map", "label=lable"), "lable", "label")
    refused(
        ("rank", pair.predictions, "--cohort", pair.cohort, "--task", "classification", "--metric", "aurok"),
        "aurok",
        "auroc",
    )


def test_usage_errors_are_64_too(refused, run):
    refused(("score", "classification"), "cohort", writes=False)
    refused(("scoree",), "scoree", writes=False)
    refused(("score", "--nonsense"), "--nonsense", writes=False)
    refused(("rank", "x", "--resamples", "-1"), "resamples", writes=False)
    assert run("cohort").code in (0, 64)


def test_an_out_folder_that_is_not_ours_is_left_alone(pair, run, tmp_path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.tex").write_text("ten years of work")
    for arguments in (
        ("score", "classification", pair.cohort, pair.predictions),
        ("rank", pair.predictions, "--cohort", pair.cohort, "--task", "classification"),
        ("cohort", "read", "csv", pair.cohort),
    ):
        done = run(*arguments, "--out", out)
        assert done.code == 64, done.said
        assert "thesis" in done.err
    assert (out / "chapter.tex").read_text() == "ten years of work"
    assert [p.name for p in out.iterdir()] == ["chapter.tex"]


def test_an_earlier_result_stays_when_the_new_one_fails(pair, run, tmp_path):
    out = tmp_path / "result"
    assert (
        run("score", "classification", pair.cohort, pair.predictions, "--resamples", 0, "--out", out).code
        == 0
    )
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    (tmp_path / "bad.csv").write_text("case_id,probability\nC0001,7\n")
    assert run("score", "classification", pair.cohort, tmp_path / "bad.csv", "--out", out).code == 64
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_masks_on_another_grid(mask_pair, refused, run, tmp_path):
    file = mask_pair.predictions / "S3.nii.gz"
    good = file.read_bytes()
    arguments = ("score", "segmentation", mask_pair.cohort, mask_pair.predictions)
    write_nifti(box_mask((6, 10, 11), (1, 1, 1), (3, 3, 3)), file, (2.0, 1.0, 1.0))
    refused(arguments, "S3", "shape")
    write_nifti(box_mask((6, 10, 12), (1, 1, 1), (3, 3, 3)), file, (2.0, 1.0, 1.5))
    refused(arguments, "S3", "spacing")
    file.write_bytes(good[: len(good) // 2])
    refused(arguments, "S3.nii.gz")
    worst = run(*arguments, "--on-invalid", "worst", "--resamples", 0, "--out", tmp_path / "w", "--json")
    assert worst.code == 0, worst.said
    assert worst.json["counts"]["invalid"] == 1
    cases = pd.read_parquet(tmp_path / "w" / "scores.parquet").set_index("case_id")
    assert cases.loc["S3", "dice"] == 0.0
    assert cases.loc["S3", "status"] == "invalid"
    assert any("invalid" in line.lower() for line in worst.json["warnings"])


def test_a_box_outside_its_volume(detection_pair, refused, run, tmp_path):
    said = pd.read_csv(detection_pair.predictions)
    said.loc[1, "Z"] = 300
    said.to_csv(tmp_path / "bad.csv", index=False)
    arguments = ("score", "detection", detection_pair.cohort, tmp_path / "bad.csv")
    refused(arguments, "bad.csv", "2")
    worst = run(*arguments, "--on-invalid", "worst", "--resamples", 0, "--out", tmp_path / "w", "--json")
    assert worst.code == 0, worst.said
    assert worst.json["counts"]["invalid"] >= 1


def test_bad_points_and_stages(slide_pair, refused, run, tmp_path):
    said = pd.read_csv(slide_pair.predictions)
    said.loc[3, "stage"] = "gigantic"
    said.to_csv(tmp_path / "bad.csv", index=False)
    arguments = ("score", "slides", slide_pair.cohort, tmp_path / "bad.csv")
    refused(arguments, "bad.csv", "4", "gigantic")
    worst = run(*arguments, "--on-invalid", "worst", "--resamples", 0, "--out", tmp_path / "w", "--json")
    assert worst.code == 0, worst.said
    assert worst.json["counts"]["invalid"] == 1
    pd.concat([said.iloc[:3], said.iloc[[0]]]).to_csv(tmp_path / "twice.csv", index=False)
    refused(("score", "slides", slide_pair.cohort, tmp_path / "twice.csv"), "twice.csv")
    points = pd.DataFrame({"case_id": said["case_id"], "x": 1, "y": 2, "score": "inf"})
    points.to_csv(tmp_path / "points.csv", index=False)
    refused(("score", "slides", slide_pair.cohort, tmp_path / "points.csv"), "points.csv", "infinite")


def test_a_bad_case_among_many_is_scored_worst_and_shown(pair, run, tmp_path):
    said = pd.read_csv(pair.predictions, dtype=str)
    said.loc[0, "probability"] = "nan"
    said.loc[1, "probability"] = "7.5"
    said.to_csv(tmp_path / "bad.csv", index=False)
    done = run(
        "score",
        "classification",
        pair.cohort,
        tmp_path / "bad.csv",
        "--on-invalid",
        "worst",
        "--resamples",
        0,
        "--out",
        tmp_path / "w",
    )
    assert done.code == 0, done.said
    assert "2 invalid" in done.out
    cases = pd.read_parquet(tmp_path / "w" / "scores.parquet").set_index("case_id")
    assert list(cases.loc[["C0000", "C0001"], "status"]) == ["invalid", "invalid"]
    assert "invalid" in (tmp_path / "w" / "report.html").read_text()


def test_a_fault_of_ours_is_70(pair, run, tmp_path, monkeypatch):
    import elsewhere.analysis.result.scoring as module

    def break_down(*_, **__):
        raise RuntimeError("a wheel came off")

    monkeypatch.setattr(module, "analyse", break_down)
    out = tmp_path / "o"
    done = run("score", "classification", pair.cohort, pair.predictions, "--out", out)
    assert done.code == 70
    assert "a wheel came off" in done.err
    assert "fault of ours" in done.err
    as_json = run("score", "classification", pair.cohort, pair.predictions, "--out", out, "--json")
    assert as_json.code == 70
    assert "a wheel came off" in as_json.json["error"]
    assert not out.exists()


@pytest.fixture
def point_pair(tmp_path):
    """Six slides, three with one lesion, each with one point in its middle."""
    from PIL import Image

    rows, points = [], []
    for i in range(6):
        mask = np.zeros((100, 100), dtype=np.uint8)
        if i < 3:
            mask[20:60, 20:60] = 255
        Image.fromarray(mask).save(tmp_path / f"s{i}.png")
        rows.append(
            {"case_id": f"s{i}", "mask": f"s{i}.png", "microns_per_pixel": 0.243, "mask_downsample": 32}
        )
        points.append({"case_id": f"s{i}", "x": 1280, "y": 1280, "score": str(0.5 + i / 20)})
    return write_pair(tmp_path, pd.DataFrame(rows), pd.DataFrame(points), "points")


@pytest.mark.parametrize("cell", ["nan", "", "inf"])
def test_a_point_without_a_score(point_pair, refused, run, tmp_path, cell):
    points = pd.read_csv(point_pair.predictions, dtype=str)
    points.loc[1, "score"] = cell
    points.to_csv(tmp_path / "bad.csv", index=False)
    arguments = (
        "score",
        "slides",
        point_pair.cohort,
        tmp_path / "bad.csv",
        "--protocol",
        "camelyon16",
        "--resamples",
        0,
    )
    refused(arguments, "bad.csv", "score", "row 2")
    good = run(*arguments[:3], point_pair.predictions, *arguments[4:], "--out", tmp_path / "g", "--json").json
    worst = run(*arguments, "--on-invalid", "worst", "--out", tmp_path / "w", "--json").json
    assert worst["counts"]["invalid"] == 1
    assert worst["metrics"]["froc_score"]["value"] < good["metrics"]["froc_score"]["value"]


def test_points_of_other_slides(point_pair, refused, run, tmp_path):
    points = pd.read_csv(point_pair.predictions)
    points["case_id"] = points["case_id"].str.upper()
    points.to_csv(tmp_path / "upper.csv", index=False)
    arguments = (
        "score",
        "slides",
        point_pair.cohort,
        tmp_path / "upper.csv",
        "--protocol",
        "camelyon16",
        "--resamples",
        0,
    )
    refused(arguments, "upper.csv", "--normalise-ids case")
    same = run(*arguments, "--normalise-ids", "case", "--out", tmp_path / "n", "--json").json
    good = run(*arguments[:3], point_pair.predictions, *arguments[4:], "--out", tmp_path / "g", "--json").json
    assert same["metrics"]["froc_score"]["value"] == good["metrics"]["froc_score"]["value"] > 0
    more = pd.concat(
        [
            pd.read_csv(point_pair.predictions),
            pd.DataFrame([{"case_id": "secret-slide", "x": 1, "y": 1, "score": 1}]),
        ]
    )
    more.to_csv(tmp_path / "more.csv", index=False)
    extra = run(*arguments[:3], tmp_path / "more.csv", *arguments[4:], "--out", tmp_path / "m", "--json")
    assert extra.json["counts"]["extra"] == 1
    assert "secret-slide" not in extra.out
    assert "secret-slide" not in (tmp_path / "m" / "report.html").read_text()
