"""`score`: the vectors of other evaluators, end to end through the command line."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from worlds.task_files import write_nifti, write_pair


@pytest.fixture
def scored(run, tmp_path):
    """`scored(task, cohort, predictions, ...)`: the summary of a run without resamples."""

    def score(task, cohort, predictions, *more):
        out = tmp_path / "out"
        done = run(
            "score", task, cohort, predictions, *more, "--resamples", 0, "--out", out, "--replace", "--json"
        )
        assert done.code == 0, done.said
        return done.json

    return score


@pytest.mark.parametrize(
    "name",
    ["ordinary_small", "duplicates_on_one_lesion", "radius_small_box_50_vs_100", "two_lesions_nearest_wins"],
)
@pytest.mark.parametrize("rules", [("--protocol", "dbtex-code"), ()], ids=["named", "default"])
def test_dbtex_vectors(vectors_dir, name, rules, run, scored, tmp_path):
    """The organisers' code, named or as the default of the cohort's reader."""
    want = json.loads((vectors_dir / "dbtex/expected.json").read_text())[name]["dbtex-code"]["metrics"]
    folder = tmp_path / "published"
    folder.mkdir()
    for file in ("labels.csv", "boxes.csv"):
        shutil.copy(vectors_dir / "dbtex" / name / file, folder / f"BCS-DBT-{file}")
    cohort = tmp_path / "cohort"
    assert run("cohort", "read", "bcs-dbt", folder, "--out", cohort).code == 0
    found = scored("detection", cohort, vectors_dir / "dbtex" / name / "predictions.csv", *rules)
    assert found["protocol"] == "dbtex-code"
    names = {
        "mean_sensitivity_positive": "mean_sensitivity_1_to_4",
        "sensitivity_at_2_fps_all": "sensitivity_at_2_all",
    }
    for theirs, ours in names.items():
        assert found["metrics"][ours]["value"] == pytest.approx(want[theirs], abs=1e-12)


@pytest.fixture
def mamamia(vectors_dir, tmp_path):
    def files(name):
        table = pd.read_csv(vectors_dir / "mamamia" / f"{name}.csv")
        table["case_id"] = table["patient_id"]
        cases = table[["case_id", "patient_id", "age", "menopausal_status", "breast_density", "pcr"]]
        expected = json.loads((vectors_dir / "mamamia/expected.json").read_text())[name]
        return table, cases, expected

    return files


MAMAMIA = ["ordinary_60", "age_bin_edges", "group_all_positive_all_predicted_positive"]


@pytest.mark.parametrize("name", MAMAMIA)
def test_mamamia_response_vectors(name, mamamia, scored, tmp_path):
    table, cases, expected = mamamia(name)
    said = pd.DataFrame({"case_id": table["case_id"], "probability": table["pred_score"]})
    files = write_pair(tmp_path, cases, said)
    found = scored("response", files.cohort, files.predictions, "--protocol", "mamamia-code")["metrics"]
    want = expected["task2"]
    assert found["balanced_accuracy"]["value"] == pytest.approx(want["balanced_accuracy"], abs=1e-12)
    assert found["fairness"]["value"] == pytest.approx(1 - want["fairness_score"], abs=1e-12)
    assert found["combined"]["value"] == pytest.approx(want["ranking_score"], abs=1e-12)


@pytest.mark.parametrize("name", MAMAMIA)
def test_mamamia_segmentation_vectors(name, mamamia, run, tmp_path):
    """The template scores from a table a case; `summarise` takes it under its own column names."""
    table, cases, expected = mamamia(name)
    files = write_pair(tmp_path, cases, table[["case_id", "DSC", "NormHD"]], "scores_said")
    arguments = ["--protocol", "mamamia-code", "--map", "dice=DSC,norm_hd=NormHD", "--resamples", 0]
    done = run(
        "summarise",
        "segmentation",
        files.cohort,
        files.predictions,
        *arguments,
        "--out",
        tmp_path / "o",
        "--json",
    )
    assert done.code == 0, done.said
    found, want = done.json["metrics"], expected["task1"]
    assert found["performance"]["value"] == pytest.approx(want["performance_score"], abs=1e-12)
    assert found["fairness"]["value"] == pytest.approx(want["avg_fairness_score"], abs=1e-12)
    assert found["combined"]["value"] == pytest.approx(want["ranking_score"], abs=1e-12)


def test_classification_vectors(vectors_dir, scored, tmp_path):
    folder = vectors_dir / "classification"
    for name, inputs in json.loads((folder / "inputs.json").read_text()).items():
        want = json.loads((folder / "expected.json").read_text())[name]["raw"]
        ids = [f"c{i}" for i in range(len(inputs["y"]))]
        files = write_pair(
            tmp_path / name,
            pd.DataFrame({"case_id": ids, "label": inputs["y"]}),
            pd.DataFrame({"case_id": ids, "logit": inputs["logit_malignant"]}),
        )
        arguments = ("--map", "score=logit", "--scale", "logit")
        found = scored("classification", files.cohort, files.predictions, *arguments)["metrics"]
        for theirs, ours in {
            "auroc_sklearn": "auroc",
            "auprc_average_precision_sklearn": "auprc",
            "sensitivity": "sensitivity",
            "specificity": "specificity",
            "f1": "f1",
            "brier_sklearn": "brier",
            "nll_sklearn_log_loss": "nll",
            "balanced_accuracy_threshold_ge_0.5": "balanced_accuracy",
            "ece10_prob_of_malignant_netcal": "ece_malignant",
        }.items():
            assert found[ours]["value"] == pytest.approx(want[theirs], abs=1e-9), (name, ours)
        confidence = want["ece10_confidence_gpleiss"]
        assert found["ece_confidence"]["value"] == pytest.approx(confidence, abs=1e-6), name


def test_calibrate_on_a_validation_file(vectors_dir, scored, tmp_path):
    """The temperature of the vector comes back, and the calibrated metrics with it."""
    folder = vectors_dir / "classification"
    inputs = json.loads((folder / "inputs.json").read_text())["ordinary_300"]
    want = json.loads((folder / "expected.json").read_text())["ordinary_300"]
    y, p = inputs["y"], 1 / (1 + np.exp(-np.array(inputs["logit_malignant"])))
    ids = [f"c{i}" for i in range(len(y))]
    files = write_pair(
        tmp_path, pd.DataFrame({"case_id": ids, "label": y}), pd.DataFrame({"case_id": ids, "probability": p})
    )
    held_out = pd.DataFrame({"case_id": [f"v{i}" for i in range(len(y))], "label": y, "probability": p})
    held_out.to_csv(tmp_path / "validation.csv", index=False)
    found = scored(
        "classification", files.cohort, files.predictions, "--calibrate-on", tmp_path / "validation.csv"
    )
    assert found["metrics"]["nll_calibrated"]["value"] == pytest.approx(want["nll_at_T_bounded"], abs=1e-6)
    assert found["metrics"]["auroc_calibrated"]["value"] == pytest.approx(
        found["metrics"]["auroc"]["value"], abs=1e-12
    )
    assert found["calibration"]["temperature"] is not None


def test_hausdorff_vectors_as_nifti(vectors_dir, scored, tmp_path):
    expected = json.loads((vectors_dir / "hausdorff/expected.json").read_text())
    masks = np.load(vectors_dir / "hausdorff/masks.npz")
    rows = []
    for name, want in expected.items():
        spacing = tuple(want["spacing_zyx_mm"])
        for part, folder in (("gt", "truth"), ("pred", "said")):
            mask = masks[f"{name}__{part}"].astype(np.uint8)
            write_nifti(mask, tmp_path / folder / f"{name}.nii.gz", spacing)
        rows.append({"case_id": name, "mask": f"truth/{name}.nii.gz"})
    pd.DataFrame(rows).to_csv(tmp_path / "cohort.csv", index=False)
    scored("segmentation", tmp_path / "cohort.csv", tmp_path / "said")
    cases = pd.read_parquet(tmp_path / "out" / "scores.parquet").set_index("case_id")
    for name, want in expected.items():
        distance = want["sitk_hausdorff_all_voxels_mm"]
        assert cases.loc[name, "hausdorff_mm"] == pytest.approx(distance, abs=1e-5), name


@pytest.mark.parametrize("name", ["ordinary", "hit_on_itc_is_ignored"])
def test_camelyon16_vectors_from_points_and_png_masks(vectors_dir, scored, tmp_path, name):
    folder = vectors_dir / "camelyon16"
    inputs = json.loads((folder / "inputs.json").read_text())
    want = json.loads((folder / "expected.json").read_text())[name]
    masks = np.load(folder / "masks_level5.npz")
    rows, points = [], []
    for slide, listed in inputs["cases"][name].items():
        file = ""
        if slide in masks:
            file = f"{slide}.png"
            Image.fromarray(masks[slide]).save(tmp_path / file)
        rows.append({"case_id": slide, "patient_id": slide, "mask": file})
        points += [{"case_id": slide, "score": p, "x": x, "y": y} for p, x, y in listed]
    cases = pd.DataFrame(rows).assign(
        microns_per_pixel=inputs["resolution_um"], mask_downsample=2 ** inputs["level"]
    )
    files = write_pair(tmp_path, cases, pd.DataFrame(points), "points")
    found = scored("slides", files.cohort, files.predictions, "--protocol", "camelyon16-code")
    assert found["metrics"]["froc_score"]["value"] == pytest.approx(want["froc_score"], abs=1e-12)


def test_slashes_in_ids_are_percent_encoded_in_file_names(mask_pair, scored):
    assert (mask_pair.predictions / "S0%2Fleft.nii.gz").exists()
    found = scored("segmentation", mask_pair.cohort, mask_pair.predictions)
    assert found["counts"]["scored"] == 8
    assert found["counts"]["missing"] == 0


def test_hand_counted_detection(detection_pair, scored):
    """Three of four lesions are hit at no false positive a positive volume: the rest is a miss."""
    found = scored("detection", detection_pair.cohort, detection_pair.predictions)
    assert found["metrics"]["mean_sensitivity_1_to_4"]["value"] == 0.75
    assert found["counts"]["cases"] == 6


def test_matching_by_name_survives_a_reload(detection_pair, scored, run, tmp_path):
    nearest = scored("detection", detection_pair.cohort, detection_pair.predictions, "--matching", "nearest")
    assert nearest["provenance"]["settings"]["matching"] == "nearest"
    done = run("compare", tmp_path / "out", tmp_path / "out", "--resamples", 0, "--json")
    assert done.code == 0, done.said


def test_missing_answers_are_worst_and_the_rest_stands_beside(pair, run, scored, tmp_path):
    said = pd.read_csv(pair.predictions)
    said.iloc[3:].to_csv(tmp_path / "short.csv", index=False)
    found = scored("classification", pair.cohort, tmp_path / "short.csv")
    assert found["counts"]["missing"] == 3
    entry = found["metrics"]["auroc"]
    assert entry["value"] < entry["answered_only"]
    lost = [step for step in found["flow"] if step["lost"]]
    assert [step["lost"] for step in lost] == [3]


def test_not_analysable_is_an_outcome_of_its_own(pair, scored, tmp_path):
    said = pd.read_csv(pair.predictions).astype({"probability": object})
    said.loc[[0, 5], "probability"] = "could not be analysed"
    said.to_csv(tmp_path / "vendor.csv", index=False)
    found = scored("classification", pair.cohort, tmp_path / "vendor.csv")
    assert found["counts"]["not_analysable"] == 2
    assert found["counts"]["scored"] == len(said) - 2


def test_the_threshold_counts_itself_in(pair, scored):
    said = pd.read_csv(pair.predictions)
    cut = float(said["probability"].iloc[0])
    found = scored("classification", pair.cohort, pair.predictions, "--threshold", repr(cut))
    truth = pd.read_csv(pair.cohort)["label"].to_numpy() > 0
    wanted = (said["probability"].to_numpy()[truth] >= cut).mean()
    assert found["metrics"]["sensitivity"]["value"] == pytest.approx(wanted, abs=1e-12)


def test_a_vendors_scale_columns_and_views(run, scored, tmp_path):
    cases = pd.DataFrame({"case_id": ["E1", "E2", "E3", "E4"], "label": [1, 0, 1, 0]})
    rows = [("E1", "cc", 20), ("E1", "mlo", 90), ("E2", "cc", 10), ("E3", "cc", 80), ("E4", "cc", 30)]
    said = pd.DataFrame(rows, columns=["Accession", "View", "AI score"])
    files = write_pair(tmp_path, cases, said)
    arguments = [
        "--map",
        "exam_id=Accession",
        "--map",
        "score=AI score",
        "--scale",
        "0-100",
        "--unit",
        "exam",
    ]
    found = scored("classification", files.cohort, files.predictions, *arguments, "--combine", "max")
    assert found["metrics"]["auroc"]["value"] == 1.0
    table = pd.read_parquet(tmp_path / "out/scores.parquet").set_index("case_id")
    assert table.loc["E1", "probability"] == pytest.approx(0.9)


def test_verdicts_over_sites(pair, run, tmp_path):
    arguments = [
        "--reference-site",
        "north",
        "--margin",
        0.9,
        "--resamples",
        50,
        "--out",
        tmp_path / "o",
        "--json",
    ]
    done = run("score", "classification", pair.cohort, pair.predictions, *arguments)
    assert done.json["verdict"]["word"] == "EQUIVALENT"
    assert done.code == 0
    again = run(
        "score",
        "classification",
        pair.cohort,
        pair.predictions,
        "--reference-site",
        "nort",
        "--margin",
        0.1,
        "--out",
        tmp_path / "p",
    )
    assert again.code == 64
    assert "north" in again.err


def test_constant_prediction_is_invalid_for_the_challenge(response_pair, run, scored, tmp_path):
    said = pd.read_csv(response_pair.predictions).assign(probability=0.9)
    said.to_csv(tmp_path / "constant.csv", index=False)
    out = tmp_path / "never"
    done = run(
        "score",
        "response",
        response_pair.cohort,
        tmp_path / "constant.csv",
        "--protocol",
        "mamamia-paper",
        "--out",
        out,
    )
    assert done.code == 64
    assert "constant" in done.err
    assert not out.exists()
    found = scored("response", response_pair.cohort, tmp_path / "constant.csv", "--protocol", "mamamia-code")
    assert found["metrics"]["balanced_accuracy"]["value"] == 0.5


def test_detection_may_resample_volumes_and_nothing_else_may(tmp_path):
    """DBT-06: the study's bootstrap unit is unnamed; ours is the patient, volumes on request."""
    import elsewhere
    from elsewhere.errors import UserError
    from elsewhere.phantom.hospitals import World, make

    tables = make("detection", np.random.default_rng(2), World(patients_per_site=25))
    cohort = elsewhere.Cohort.from_frame(tables.cases, lesions=tables.lesions)
    settings = {"resamples": 200, "protocol": "dbtex-paper"}
    patients = elsewhere.score("detection", cohort, tables.predictions, **settings)
    volumes = elsewhere.score("detection", cohort, tables.predictions, resample="volumes", **settings)
    name = "mean_sensitivity_1_to_4"
    assert volumes.metrics[name]["value"] == patients.metrics[name]["value"]
    assert volumes.metrics[name]["lo"] != patients.metrics[name]["lo"]
    assert volumes.summary["counts"]["patients"] == patients.summary["counts"]["patients"] == 75
    assert volumes.summary["provenance"]["settings"]["resample"] == "volumes"
    one = make("response", np.random.default_rng(2), World(patients_per_site=25))
    with pytest.raises(UserError, match="not for response"):
        elsewhere.score("response", one.cases, one.predictions, resample="volumes", resamples=0)
