"""Edge rules of the protocols, one test a rule, through the public functions and the command line."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import elsewhere
from elsewhere import Cohort
from elsewhere.cli import main
from elsewhere.protocols import protocols
from elsewhere.scoring.slides.regions import evaluation_mask, find_regions


def value(result, name):
    return result.metrics[name]["value"]


def slides(folder, *names, mask=None):
    """Slides of 40 x 60 pixels at level 5, each with one long lesion unless another mask is given."""
    if mask is None:
        mask = np.zeros((40, 60), dtype=np.uint8)
        mask[10:14, 5:55] = 255
    for name in names:
        Image.fromarray(mask).save(folder / f"{name}.png")
    rows = [{"case_id": n, "patient_id": n, "mask": f"{n}.png"} for n in names]
    cases = pd.DataFrame(rows).assign(microns_per_pixel=0.243, mask_downsample=32)
    return Cohort.from_frame(cases, root=folder)


def points(*listed):
    columns = {"case_id": "string", "score": float, "x": float, "y": float}
    return pd.DataFrame(listed, columns=list(columns)).astype(columns)


HIT, AWAY = (30 * 32, 12 * 32), (5 * 32, 38 * 32)


# CAMELYON ---------------------------------------------------------------------------------------


def test_a_hit_rounded_down_enters_with_the_false_positive_of_its_score(tmp_path):
    """0.95 in single precision lies below 0.95: still no threshold parts the two in the published script."""
    assert float(np.float32(0.95)) < 0.95
    said = points(("a", 0.95, *HIT), ("a", 0.95, *AWAY), ("a", 0.3, *AWAY))
    result = elsewhere.score("slides", slides(tmp_path, "a"), said, protocol="camelyon16-code", resamples=0)
    assert value(result, "froc_score") == pytest.approx(np.mean([0.25, 0.5, 1, 1, 1, 1]))


def test_a_hit_rounded_up_enters_before_the_false_positive_of_its_score(tmp_path):
    assert float(np.float32(0.66)) > 0.66
    said = points(("a", 0.66, *HIT), ("a", 0.66, *AWAY), ("a", 0.3, *AWAY))
    cohort = slides(tmp_path, "a")
    code = elsewhere.score("slides", cohort, said, protocol="camelyon16-code", resamples=0)
    plain = elsewhere.score("slides", cohort, said, protocol="camelyon16", resamples=0)
    assert value(code, "froc_score") == 1.0
    assert value(plain, "froc_score") == pytest.approx(np.mean([0.25, 0.5, 1, 1, 1, 1]))


def test_the_dropped_threshold_is_the_lowest_as_listed(tmp_path):
    """All lesions found, the hit 0.95 (single precision) is the lowest entry: it goes, and 0.95 stays."""
    said = points(("a", 0.95, *HIT), ("a", 0.95, *AWAY))
    result = elsewhere.score("slides", slides(tmp_path, "a"), said, protocol="camelyon16-code", resamples=0)
    assert value(result, "froc_score") == pytest.approx(np.mean([0.25, 0.5, 1, 1, 1, 1]))


def test_points_outside_the_slide_are_false_positives(tmp_path):
    outside = [("a", 0.9, 60 * 32, 12 * 32), ("a", 0.9, -64, 12 * 32), ("a", 0.9, 1e7, 1e7)]
    said = points(("a", 0.5, *HIT), *outside)
    result = elsewhere.score("slides", slides(tmp_path, "a"), said, protocol="camelyon16", resamples=0)
    assert sorted(result.scores.events["kind"]) == ["fp", "fp", "fp", "tp"]
    assert value(result, "froc_score") == pytest.approx(np.mean([0, 0, 0, 0, 1, 1]))


def test_a_table_without_a_point_finds_nothing(tmp_path):
    file = tmp_path / "points.csv"
    file.write_text("case_id,score,x,y\n")
    for protocol in ("camelyon16", "camelyon16-code"):
        result = elsewhere.score("slides", slides(tmp_path, "a", "b"), file, protocol=protocol, resamples=0)
        assert value(result, "froc_score") == 0.0


def test_the_axis_of_a_region_is_that_of_its_pixel_centres():
    """As the published evaluation measures it: a pixel has length 0, and a bar none of its end pixels' width."""
    pixel = np.zeros((5, 5), dtype=bool)
    pixel[2, 2] = True
    assert find_regions(pixel).major_axis_px.tolist() == [0.0]
    bar = np.ones((10, 200), dtype=bool)
    axis = 4 * math.sqrt((200**2 - 1) / 12)
    assert find_regions(bar).major_axis_px[0] == pytest.approx(axis, abs=1e-9)
    ungrown = replace(protocols.get("camelyon16").slides, froc_grow_um=1e-9)
    for pixel_um, itc in ((275 / axis * (1 - 1e-6), True), (275 / axis * (1 + 1e-6), False)):
        assert evaluation_mask(np.pad(bar, 2), pixel_um=pixel_um, rules=ungrown).is_itc.tolist() == [itc]


def test_a_negative_slide_needs_no_mask_file_for_its_false_positive_rate(tmp_path):
    cohort = slides(tmp_path, "a", "b")
    cases = cohort.cases.assign(stage=["macro", "negative"], mask=["a.png", ""])
    (tmp_path / "said").mkdir()
    said = np.zeros((40, 60), dtype=np.uint8)
    said[:4, :6] = 255
    for name in ("a", "b"):
        Image.fromarray(said).save(tmp_path / "said" / f"{name}.png")
    result = elsewhere.score(
        "slides", Cohort.from_frame(cases, root=tmp_path), tmp_path / "said", protocol="plain", resamples=0
    )
    assert value(result, "slide_false_positive_rate") == pytest.approx(24 / 2400)


def test_transparency_is_no_tumour(tmp_path):
    picture = np.zeros((40, 60, 4), dtype=np.uint8)
    picture[..., 3] = 255
    picture[10:14, 5:55, :3] = 255
    said = points(("a", 0.9, *HIT), ("a", 0.5, *AWAY))
    result = elsewhere.score(
        "slides", slides(tmp_path, "a", mask=picture), said, protocol="camelyon16", resamples=0
    )
    assert sorted(result.scores.events["kind"]) == ["fp", "tp"]


def stages(tmp_path, rows):
    file = tmp_path / "stages.csv"
    pd.DataFrame(rows, columns=["patient", "stage"]).to_csv(file, index=False)
    cohort = tmp_path / "cohort.csv"
    cases = {"case_id": ["a", "b", "c"], "patient_id": ["p0", "p1", "p2"]}
    pd.DataFrame(cases | {"patient_stage": ["pN0", "pN1", "pN2"]}).to_csv(cohort, index=False)
    return cohort, file


def test_camelyon17_counts_extra_patients_and_refuses_a_missing_one(tmp_path, capsys):
    rows = [("p0.zip", "pN0"), ("p1.zip", "pN1"), ("p2.zip", "pN2"), ("p9.zip", "pN2")]
    cohort, file = stages(tmp_path, rows)
    result = elsewhere.score("slides", cohort, file, protocol="camelyon17", resamples=0)
    assert value(result, "pn_kappa") == 1.0
    assert result.summary["counts"]["extra"] == 1
    cohort, file = stages(tmp_path, rows[1:])
    words = ["score", "slides", str(cohort), str(file), "--resamples", "0", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as end:
        raise SystemExit(main([*words, "--protocol", "camelyon17"]))
    assert end.value.code == 64
    assert "p0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_elsewhere_a_missing_patient_is_the_farthest_stage_and_said(tmp_path):
    cohort, file = stages(tmp_path, [("p1.zip", "pN1"), ("p2.zip", "pN2")])
    result = elsewhere.score("slides", cohort, file, protocol="plain", resamples=0)
    assert result.scores.cases["patient_stage_predicted"].tolist() == ["pN2", "pN1", "pN2"]
    assert any("no predicted stage" in warning for warning in result.summary["warnings"])


# Classification and calibration -----------------------------------------------------------------


def arrays(label, probability, task="classification", **options):
    return elsewhere.score_arrays(task, label=label, probability=probability, resamples=0, **options)


@pytest.mark.parametrize("tenth", range(11))
def test_a_probability_on_an_edge_lies_in_the_bin_above_and_one_in_the_last(tenth):
    """Beside a companion of the bin that it must share: gaps of opposite sign cancel in one bin alone."""
    p = tenth / 10
    companion = min(p, 0.9) + 0.05
    together = arrays([0, 1], [p, companion])
    assert value(together, "ece_malignant") == pytest.approx(abs((p + companion) / 2 - 0.5))


def test_one_half_is_called_malignant_in_the_confidence_too():
    result = arrays([1, 1, 1, 0], [0.5, 0.5, 0.55, 0.1])
    assert value(result, "sensitivity") == 1.0
    assert value(result, "ece_confidence") == pytest.approx(0.75 * (1 - 1.55 / 3) + 0.25 * 0.1)


def test_a_missing_answer_ranks_behind_every_answer():
    """ST-14, worst rank: it does not tie with a real 0 or 1."""
    cohort = pd.DataFrame({"case_id": list("abcd"), "patient_id": list("abcd"), "label": [1, 1, 0, 0]})
    said = {"case_id": ["b", "c", "d"], "probability": [1.0, 0.0, 0.0]}
    result = elsewhere.score("classification", cohort, said, resamples=0)
    assert value(result, "auroc") == 0.5
    assert result.metrics["auroc"]["answered_only"] == 1.0
    assert value(result, "auprc") == pytest.approx(0.5 * 1 + 0.5 * 2 / 4)


# MAMA-MIA ---------------------------------------------------------------------------------------


def test_an_age_group_without_patients_is_no_group():
    """MRI-06: left out, also where a rate without a denominator is 0."""
    label, said = [1, 0, 1, 0], [0.9, 0.1, 0.9, 0.1]
    for protocol in ("mamamia-code", "mamamia-paper"):
        result = arrays(label, said, "response", groups={"age": [35, 35, 45, 45]}, protocol=protocol)
        assert value(result, "fairness") == 1.0


def test_a_constant_submission_ends_with_64_and_writes_nothing(tmp_path, capsys):
    cohort, said = tmp_path / "cohort.csv", tmp_path / "said.csv"
    ids = [f"c{i}" for i in range(6)]
    pd.DataFrame({"case_id": ids, "patient_id": ids, "pcr": [0, 1] * 3, "age": 50}).to_csv(
        cohort, index=False
    )
    pd.DataFrame({"case_id": ids, "probability": np.linspace(0, 0.49, 6)}).to_csv(said, index=False)
    words = ["score", "response", str(cohort), str(said), "--resamples", "0"]
    with pytest.raises(SystemExit) as end:
        raise SystemExit(main([*words, "--protocol", "mamamia-paper", "--out", str(tmp_path / "paper")]))
    assert end.value.code == 64
    assert "constant" in capsys.readouterr().err
    assert not (tmp_path / "paper").exists()
    with pytest.raises(SystemExit) as end:
        raise SystemExit(main([*words, "--protocol", "mamamia-code", "--out", str(tmp_path / "code")]))
    assert not end.value.code
    assert elsewhere.load_result(tmp_path / "code").metrics["combined"]["value"] == 0.75


def test_fairness_may_be_negative_where_no_rule_cuts_it():
    """Segmentation in the code, NormHD beyond 1; the bounds that stand beside the number hold it."""
    cohort = pd.DataFrame({"case_id": list("ab"), "patient_id": list("ab"), "age": [35, 45]})
    scores = pd.DataFrame({"case_id": list("ab"), "dice": [1.0, 0.0], "norm_hd": [0.0, 3.0]})
    result = elsewhere.summarise("segmentation", cohort, scores, protocol="mamamia-code", resamples=0)
    assert value(result, "fairness") == -1.0
    low, high = result.metrics["fairness"]["bounds"]
    assert (low is None or low <= -1.0) and high == 1.0
