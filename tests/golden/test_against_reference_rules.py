"""The package against `reference_rules`, through its public functions, on small and nasty inputs.

Every world is drawn from a seed: ties, equalities at a limit, empty and full masks, groups of one class,
missing and extra rows. Values must agree to 1e-9, undefined ones must be null.
"""

from __future__ import annotations

import math
from typing import Any

import nibabel
import numpy as np
import pandas as pd
import pytest
from PIL import Image

import elsewhere
from elsewhere import Cohort, UserError
from golden.reference_rules import (
    NLL_EPSILON,
    PATIENT_STAGES,
    SLIDE_STAGES,
    Box,
    Lesion,
    camelyon16,
    classification_task,
    dbtex,
    quadratic_kappa,
    response_task,
    segmentation,
    segmentation_task,
    slide_stage,
    stage_metrics,
)


def seeds(count: int, *, quick: int) -> list[Any]:
    """Worlds of a rule: the first `quick` in every run, the others in the slow one."""
    return [pytest.param(seed, marks=[pytest.mark.slow] if seed >= quick else []) for seed in range(count)]


def agree(result, wanted, names=None):
    for name in names or wanted:
        entry, want = result.metrics[name], wanted[name]
        if math.isnan(want):
            assert entry["value"] is None and entry["undefined_reason"], name
        else:
            assert entry["value"] == pytest.approx(want, abs=1e-9), name


def numbered(n, **columns):
    ids = [f"c{i}" for i in range(n)]
    return pd.DataFrame({"case_id": ids, "patient_id": [f"p{i}" for i in range(n)], **columns})


# Detection --------------------------------------------------------------------------------------

SIZES = [(60, 80), (30, 40), (100, 100), (300, 400), (6, 8)]
STEPS = [(0, 0), (50, 0), (0, 50), (30, 40), (60, 80), (100, 0), (0, 100), (49.5, 0), (100.5, 0), (150, 200)]
STEPS += [(250, 0), (17.5, 3)]


def detection_world(rng):
    """Volumes, lesions (also in mixed order, with contradicting VolumeSlices) and boxes at the limits."""
    volumes = [f"S{i // 2}/{'lcc' if i % 2 else 'rmlo'}" for i in range(int(rng.integers(1, 6)))]
    lesions = []
    for volume in volumes:
        for _ in range(int(rng.choice([0, 1, 1, 2, 3]))):
            width, height = SIZES[rng.integers(len(SIZES))]
            x, y = rng.choice([400, 450, 500, 560, 600], 2)
            slices = int(rng.choice([41, 42, 43, 50, 60, 99]))
            lesions.append(
                Lesion(volume, x - width / 2, y - height / 2, width, height, int(rng.integers(5, 40)), slices)
            )
    lesions = [lesions[i] for i in rng.permutation(len(lesions))]
    unlisted = ["S9/lcc", "S0/rcc"] if rng.random() < 0.3 else []
    boxes = []
    for _ in range(int(rng.integers(0, 25))):
        volume = str(rng.choice(volumes + unlisted))
        here = [lesion for lesion in lesions if lesion.case == volume]
        if here and rng.random() < 0.7:
            lesion = here[rng.integers(len(here))]
            dx, dy = STEPS[rng.integers(len(STEPS))]
            reach = here[0].volume_slices / 4
            dz = rng.choice([0, 0.5, reach, -reach, reach + 0.5, int(reach), int(reach) + 1])
            x, y = lesion.x + lesion.width / 2 + dx, lesion.y + lesion.height / 2 + dy
            z = min(max(lesion.slice + dz, 0), here[0].volume_slices)
        else:
            x, y, z = rng.integers(0, 2000), rng.integers(0, 2000), rng.integers(0, 41)
        width, height, depth = rng.choice([10, 21, 60]), rng.choice([10, 33]), rng.choice([1, 2, 5])
        score = float(rng.choice([0.1, 0.2, 0.5, 0.5, 0.5, 0.9, rng.random()]))
        corner = (float(x - width / 2), float(y - height / 2))
        boxes.append(
            Box(volume, *corner, float(width), float(height), float(z - depth / 2), float(depth), score)
        )
    return volumes, lesions, boxes


def detection_tables(volumes, lesions, boxes):
    cases = pd.DataFrame({"case_id": volumes, "patient_id": [v.split("/")[0] for v in volumes]})
    columns = ["case_id", "x", "y", "width", "height", "slice", "volume_slices"]
    truth = pd.DataFrame([list(vars(lesion).values()) for lesion in lesions], columns=columns)
    truth = truth.astype({"case_id": "string"}).assign(**{"class": "cancer"})
    truth["lesion_id"] = pd.Series([str(i) for i in range(len(lesions))], dtype="string")
    columns = ["case_id", "x", "y", "width", "height", "z", "depth", "score"]
    said = pd.DataFrame([list(vars(box).values()) for box in boxes], columns=columns)
    return Cohort.from_frame(cases, lesions=truth), said.astype({"case_id": "string"})


@pytest.mark.parametrize("seed", seeds(6, quick=1))
def test_detection(seed):
    rng = np.random.default_rng(seed)
    for _ in range(7):
        volumes, lesions, boxes = detection_world(rng)
        for protocol, matching in (
            ("dbtex-code", None),
            ("dbtex-paper", "challenge"),
            ("dbtex-paper", "nearest"),
        ):
            wanted = dbtex(
                volumes,
                lesions,
                boxes,
                code=protocol == "dbtex-code",
                nearest=None if matching is None else matching == "nearest",
            )
            cohort, said = detection_tables(volumes, lesions, boxes)
            if boxes and not any(box.case in volumes for box in boxes):
                with pytest.raises(UserError, match="not one of"):
                    elsewhere.score("detection", cohort, said, protocol=protocol, resamples=0)
                continue
            result = elsewhere.score(
                "detection", cohort, said, protocol=protocol, matching=matching, resamples=0
            )
            agree(result, wanted)
            counts, boxed = result.summary["counts"], {box.case for box in boxes}
            assert counts["without_boxes"] == sum(volume not in boxed for volume in volumes)
            assert counts["extra"] == sum(box.case not in volumes for box in boxes)
            assert counts["scored"] == counts["cases"] == len(volumes)


# Response and the groups ------------------------------------------------------------------------

AGES = [25, 39, 40, 41, 50, 50.5, 51, 60, 61, 70, 71, 99, 100, 101, 0, math.nan]
STATES = ["pre", "post", "pre", "post", "peri", "unknown", None, "perimenopausal", "Post-menopausal", "PRE"]


def patients(rng):
    """Patients with attributes at every edge; one variable in three worlds is not there at all."""
    dropped = rng.choice([None, None, None, None, "age", "menopausal_status", "breast_density"])
    plain = rng.random() < 0.4
    scores = [
        lambda: float(rng.random()),
        lambda: float(rng.choice([0.4, 0.5, 0.6])),
        lambda: float(rng.choice([0.3, 0.5])),
        lambda: float(rng.random() * 0.5),
        lambda: 0.5,
        lambda: float(rng.choice([0, 0.5, 0.7, 1])),
    ][rng.integers(6)]
    rows = []
    for _ in range(int(rng.integers(3, 25))):
        row = {
            "pcr": int(rng.random() < 0.5),
            "age": float(rng.choice([30, 45, 55, 65, 75] if plain else AGES)),
            "menopausal_status": rng.choice(STATES),
            "breast_density": rng.choice(["a", "b", "c", "d", "A", "D", None]),
            "probability": None if rng.random() < 0.1 else scores(),
        }
        rows.append({k: v for k, v in row.items() if k != dropped})
    rows[0]["pcr"], rows[1]["pcr"] = 0, 1
    return rows


def response_tables(rows):
    cases = numbered(len(rows)).join(pd.DataFrame(rows).drop(columns="probability"))
    said = pd.DataFrame(
        {"case_id": cases["case_id"], "probability": pd.Series([r["probability"] for r in rows], dtype=float)}
    )
    return cases, said[said["probability"].notna()]


@pytest.mark.parametrize("seed", seeds(5, quick=1))
def test_response(seed):
    rng = np.random.default_rng(100 + seed)
    for _ in range(8):
        rows = patients(rng)
        for protocol in ("mamamia-code", "mamamia-paper"):
            code = protocol == "mamamia-code"
            cases, said = response_tables(rows)
            decisions = {p > 0.5 if code else p >= 0.5 for p in said["probability"]}
            if not code and len(decisions) == 1:
                with pytest.raises(UserError, match="constant prediction"):
                    elsewhere.score("response", cases, said, protocol=protocol, resamples=0)
                continue
            result = elsewhere.score("response", cases, said, protocol=protocol, resamples=0)
            wanted = response_task(rows, code=code)
            agree(result, wanted, ("balanced_accuracy", "auroc", "fairness", "combined"))
            for variable, entry in result.summary["fairness"].items():
                want = wanted[f"disparity_{variable}"]
                if entry["gap"] is None:
                    # The published score counts a range of one group as 0; the report beside it has no gap.
                    assert math.isnan(want) or "a gap needs two groups" in entry["undefined_reason"]
                else:
                    assert entry["gap"] == pytest.approx(want, abs=1e-9)
            counts = result.summary["counts"]
            assert counts["missing"] == sum(r["probability"] is None for r in rows)
            assert counts["scored"] + counts["missing"] == counts["cases"] == len(rows)


@pytest.mark.parametrize("seed", seeds(3, quick=1))
def test_segmentation_scores_of_others(seed):
    """A table with Dice and NormHD a case, also beyond 1: the paper's protocol cuts, the code's does not."""
    rng = np.random.default_rng(200 + seed)
    for _ in range(8):
        rows = patients(rng)
        for row in rows:
            row["dice"] = float(rng.choice([0, 1, rng.random()]))
            row["norm_hd"] = float(rng.choice([0, 1, 2.5, rng.random()]))
        cases, _ = response_tables(rows)
        scores = cases[["case_id", "dice", "norm_hd"]]
        cohort = cases.drop(columns=["dice", "norm_hd", "pcr"])
        for protocol in ("mamamia-code", "mamamia-paper"):
            code = protocol == "mamamia-code"
            cut = [row | {"norm_hd": row["norm_hd"] if code else min(1.0, row["norm_hd"])} for row in rows]
            result = elsewhere.summarise("segmentation", cohort, scores, protocol=protocol, resamples=0)
            agree(result, segmentation_task(cut, code=code), ("performance", "fairness", "combined"))


# Classification ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(4, quick=1))
def test_classification(seed):
    rng = np.random.default_rng(300 + seed)
    for _ in range(20):
        n = int(rng.integers(3, 30))
        truth = [0, 1] + [int(rng.random() < 0.4) for _ in range(n - 2)]
        draw = [
            lambda: float(rng.random()),
            lambda: float(rng.choice([i / 10 for i in range(11)])),
            lambda: 0.5,
            lambda: float(rng.choice([0, 0.5, 1])),
            lambda: round(float(rng.random()), 2),
        ][rng.integers(5)]
        said = [None if rng.random() < 0.08 else draw() for _ in range(n)]
        threshold = float(rng.choice([0.5, 0.3, 0.7]))
        words = ["malignant" if t else "Benign " for t in truth]
        cohort = numbered(n, label=words if rng.random() < 0.5 else truth)
        table = pd.DataFrame({"case_id": cohort["case_id"], "probability": pd.Series(said, dtype=float)})
        result = elsewhere.score(
            "classification", cohort, table.dropna(), resamples=0, threshold=threshold, protocol="plain"
        )
        agree(result, classification_task(truth, said, threshold))
        assert result.summary["counts"]["missing"] == said.count(None)


def test_nll_is_cut_where_scikit_learn_cuts_it():
    """US-17: p = 0 for a positive and p = 1 for a negative are finite, and the same in both."""
    log_loss = pytest.importorskip("sklearn.metrics").log_loss
    truth, said = [1, 0, 1, 0], [0.0, 1.0, 1.0, 0.3]
    result = elsewhere.score_arrays("classification", label=truth, probability=said, resamples=0)
    assert result.metrics["nll"]["value"] == pytest.approx(log_loss(truth, said), abs=1e-12)
    missing = elsewhere.score(
        "classification", numbered(2, label=[1, 0]), {"case_id": ["c1"], "probability": [0.5]}, resamples=0
    )
    assert missing.metrics["nll"]["value"] == pytest.approx((-math.log(NLL_EPSILON) + math.log(2)) / 2)


# Segmentation -----------------------------------------------------------------------------------


def mask_of(kind, shape, rng):
    mask = np.zeros(shape, dtype=bool)
    if kind == "full":
        mask[:] = True
    elif kind == "one":
        mask[tuple(int(rng.integers(0, n)) for n in shape)] = True
    elif kind in ("noise", "sparse"):
        mask = rng.random(shape) < (0.5 if kind == "noise" else 0.1)
    elif kind == "blob":
        mask[1:-1, 1:-1, 1:-1] = True
    elif kind == "hollow":
        mask[:] = True
        mask[1:-1, 1:-1, 1:-1] = False
    elif kind == "border":
        mask[0] = True
    return mask


def mask_pairs(rng):
    """(truth, prediction, spacing); spacings are what a NIfTI header can hold."""
    kinds = ["empty", "full", "one", "noise", "sparse", "blob", "hollow", "border"]
    pairs = []
    for _ in range(90):
        shape = tuple(int(n) for n in rng.integers(2, 8, 3))
        spacing = tuple(float(np.float32(v)) for v in rng.choice([0.5, 0.7, 1, 2, 5, 40], 3))
        truth, said = (mask_of(kind, shape, rng) for kind in rng.choice(kinds, 2))
        pairs.append((truth, said, spacing))
    unit = (1.0, 1.0, 1.0)
    full = np.ones((3, 3, 3), dtype=bool)
    pairs += [(full, full, unit), (full, ~full, unit), (~full, full, unit), (~full, ~full, unit)]
    far = np.zeros((1, 1, 200), dtype=bool)
    far[0, 0, 0] = True
    pairs += [(far, np.roll(far, 190, axis=2), unit), (far, np.roll(far, 3, axis=2), (1.0, 1.0, 100.0))]
    return pairs


@pytest.fixture(scope="module")
def masks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masks")
    pairs = mask_pairs(np.random.default_rng(400))
    for i, (truth, said, spacing) in enumerate(pairs):
        for name, mask in (("truth", truth), ("said", said)):
            path = folder / name / f"c{i}.nii.gz"
            path.parent.mkdir(exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(mask.astype(np.uint8), np.diag([*spacing, 1.0])), path)
    cases = numbered(len(pairs) + 1, mask=[f"truth/c{i}.nii.gz" for i in [*range(len(pairs)), 0]])
    return Cohort.from_frame(cases, root=folder), folder / "said", pairs


@pytest.mark.parametrize("protocol", ["plain", "mamamia-paper", "mamamia-code"])
def test_segmentation(masks, protocol):
    cohort, said, pairs = masks
    result = elsewhere.score("segmentation", cohort, said, protocol=protocol, resamples=0)
    got = result.scores.cases.set_index("case_id")
    wanted = [segmentation(truth, mask, spacing, protocol) for truth, mask, spacing in pairs]
    wanted.append({"dice": 0.0, "norm_hd": 1.0, "hausdorff_mm": 150.0})
    for i, want in enumerate(wanted):
        for name, value in want.items():
            assert got.loc[f"c{i}", name] == pytest.approx(value, abs=1e-9, nan_ok=True), (i, name)
    undefined = sum(math.isnan(want["dice"]) for want in wanted)
    counts = result.summary["counts"]
    assert (counts["missing"], counts["undefined"]) == (1, undefined)
    assert counts["scored"] + 1 + undefined == counts["cases"] == len(wanted)
    known = [want["dice"] for want in wanted if not math.isnan(want["dice"])]
    assert result.metrics["dice"]["value"] == pytest.approx(np.mean(known), abs=1e-12)


def test_flat_masks_are_measured_in_their_plane(tmp_path):
    """A picture has no slices: its inner pixels are no surface, and their distances do not count."""
    rng = np.random.default_rng(401)
    pairs = {f"c{i}": (rng.random((9, 11)) < 0.8, rng.random((9, 11)) < 0.6) for i in range(12)}
    for name, which in (("truth", 0), ("said", 1)):
        (tmp_path / name).mkdir()
        for case, pair in pairs.items():
            Image.fromarray(pair[which].astype(np.uint8) * 255).save(tmp_path / name / f"{case}.png")
    cases = numbered(12, mask=[f"truth/c{i}.png" for i in range(12)])
    cohort = Cohort.from_frame(cases.assign(spacing_row_mm=2.0, spacing_column_mm=0.5), root=tmp_path)
    for protocol in ("plain", "mamamia-code"):
        result = elsewhere.score("segmentation", cohort, tmp_path / "said", protocol=protocol, resamples=0)
        got = result.scores.cases.set_index("case_id")
        for case, (truth, said) in pairs.items():
            for name, value in segmentation(truth, said, (2.0, 0.5), protocol).items():
                assert got.loc[case, name] == pytest.approx(value, abs=1e-9), (protocol, case, name)


# Slides -----------------------------------------------------------------------------------------

MICRONS, DOWNSAMPLE = 0.243, 32


def slide_world(rng):
    """Slides with bars, rings and single pixels at level 5; points on them, near them and far away."""
    slides = {}
    for i in range(int(rng.integers(1, 5))):
        shape = (int(rng.integers(25, 40)), int(rng.integers(30, 50)))
        mask = None if rng.random() < 0.3 else np.zeros(shape, dtype=np.uint8)
        for _ in range(0 if mask is None else int(rng.integers(0, 4))):
            y, x = int(rng.integers(0, shape[0])), int(rng.integers(0, shape[1]))
            kind = rng.integers(4)
            if kind == 0:
                mask[y, x] = 255
            elif kind == 1:
                mask[y : y + 3, x : x + 40] = 255
            elif kind == 2:
                mask[y : y + 27, x : x + 2] = 255
            else:
                mask[y : y + 12, x : x + 12] = 255
                mask[y + 3 : y + 9, x + 3 : x + 9] = 0
        points = []
        for _ in range(int(rng.integers(0, 14))):
            score = float(rng.choice([0.7, 0.66, 0.95, 0.3, 0.1, 0.0, 1.0, round(float(rng.random()), 2)]))
            y, x = rng.integers(0, shape[0] * DOWNSAMPLE), rng.integers(0, shape[1] * DOWNSAMPLE)
            if mask is not None and mask.any() and rng.random() < 0.6:
                tumour = np.argwhere(mask)
                near = tumour[rng.integers(len(tumour))] * DOWNSAMPLE + rng.integers(-150, 150, 2)
                y, x = np.clip(near, 0, np.array(shape) * DOWNSAMPLE - 1)
            points.append((score, float(x), float(y)))
        slides[f"s{i}"] = (mask, points)
    return slides


def slide_tables(slides, folder):
    rows, points = [], []
    for name, (mask, listed) in slides.items():
        if mask is not None:
            Image.fromarray(mask).save(folder / f"{name}.png")
        path = "" if mask is None else f"{name}.png"
        rows.append({"case_id": name, "patient_id": name, "mask": path})
        points += [(name, score, x, y) for score, x, y in listed]
    cases = pd.DataFrame(rows).assign(microns_per_pixel=MICRONS, mask_downsample=DOWNSAMPLE)
    said = pd.DataFrame(points, columns=["case_id", "score", "x", "y"]).astype({"case_id": "string"})
    return Cohort.from_frame(cases, root=folder), said.astype({"score": float, "x": float, "y": float})


@pytest.mark.parametrize("seed", seeds(4, quick=1))
def test_lesion_froc(seed, tmp_path):
    rng = np.random.default_rng(500 + seed)
    for _ in range(7):
        slides = slide_world(rng)
        cohort, said = slide_tables(slides, tmp_path)
        for protocol in ("camelyon16", "camelyon16-code"):
            wanted = camelyon16(
                slides,
                pixel_um=MICRONS * DOWNSAMPLE,
                downsample=DOWNSAMPLE,
                code=protocol == "camelyon16-code",
            )
            agree(elsewhere.score("slides", cohort, said, protocol=protocol, resamples=0), wanted)


@pytest.mark.parametrize("seed", range(2))
def test_slide_stages_and_patient_stages(seed, tmp_path):
    rng = np.random.default_rng(600 + seed)
    for _ in range(8):
        n = int(rng.integers(2, 10))
        truth = [str(s) for s in rng.choice(SLIDE_STAGES[: rng.integers(1, 5)], n)]
        said = [str(s) for s in rng.choice(SLIDE_STAGES, n)]
        pn_truth, pn_said = ([str(s) for s in rng.choice(PATIENT_STAGES, n)] for _ in range(2))
        cohort = numbered(n, stage=truth, patient_stage=pn_truth)
        rows = [(f"c{i}.tif", s) for i, s in enumerate(said)] + [
            (f"p{i}.zip", s) for i, s in enumerate(pn_said)
        ]
        extra = [("p900.zip", "pN2")] if rng.random() < 0.5 else []
        file = tmp_path / "stages.csv"
        pd.DataFrame(rows + extra, columns=["patient", "stage"]).to_csv(file, index=False)
        result = elsewhere.score("slides", cohort, file, protocol="camelyon17", resamples=0)
        wanted = stage_metrics(truth, said) | {"pn_kappa": quadratic_kappa(pn_truth, pn_said)}
        agree(result, wanted)
        assert result.summary["counts"]["extra"] == len(extra)


def test_slide_stage_by_the_largest_object(tmp_path):
    """LN-14: strict limits, 8-connected, the ellipse's axis and not the extent."""
    pixel_um = 10.0
    rng = np.random.default_rng(700)
    (tmp_path / "said").mkdir()
    wanted = {}
    for i in range(30):
        mask = np.zeros((120, 260), dtype=bool)
        length = int(rng.choice([1, 2, 17, 18, 19, 20, 172, 173, 174, 175, 200]))
        if i % 3 == 0:
            mask[5 + np.arange(min(length, 100)), 5 + np.arange(min(length, 100))] = True
        elif i % 3 == 1:
            mask[3:4, 4 : 4 + length] = True
        else:
            mask[rng.random(mask.shape) < 0.002 * (i % 2)] = True
        Image.fromarray(mask).save(tmp_path / "said" / f"c{i}.png")
        wanted[f"c{i}"] = slide_stage(mask, pixel_um)
    cohort = numbered(30, stage="micro", microns_per_pixel=pixel_um, mask_downsample=1)
    got = elsewhere.score("slides", cohort, tmp_path / "said", protocol="plain", resamples=0).scores.cases
    assert dict(zip(got["case_id"], got["stage_predicted"], strict=True)) == wanted
    assert len(set(wanted.values())) == 4
